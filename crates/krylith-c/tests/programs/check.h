/* Macros that the test programs share. */
#include <krylith.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #what,                    \
                    krylith_last_error());                                                                             \
            exit(EXIT_FAILURE);                                                                                        \
        }                                                                                                              \
    } while (0)

/* Checks that a call fails with this status, and that its error text contains these words. */
#define REFUSED(call, wanted, words)                                                                                   \
    do {                                                                                                               \
        EXPECT((call) == (wanted));                                                                                    \
        EXPECT(strstr(krylith_last_error(), words) != NULL);                                                           \
    } while (0)
