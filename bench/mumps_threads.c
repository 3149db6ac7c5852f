/* Times MUMPS on the file that bench/python/direct.py writes: `mumps FILE spd|sym|gen`.
 * Prints wall seconds of the analysis, of the factors, of factors of new values and of a solve. */
#include <dmumps_c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <time.h>
#include <sys/resource.h>

#define ICNTL(i) icntl[(i) - 1]
#define INFOG(i) infog[(i) - 1]

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void *take(size_t bytes, FILE *file)
{
    void *to = malloc(bytes ? bytes : 1);
    if (!to || fread(to, 1, bytes, file) != bytes) {
        fprintf(stderr, "a short file, or no memory\n");
        exit(1);
    }
    return to;
}

static long peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024 * usage.ru_maxrss;
}

static void run(DMUMPS_STRUC_C *id, int job)
{
    id->job = job;
    dmumps_c(id);
    if (id->INFOG(1) < 0) {
        fprintf(stderr, "MUMPS, job %d: INFOG(1) = %d, INFOG(2) = %d\n", job, id->INFOG(1), id->INFOG(2));
        exit(1);
    }
}

int main(int count, char **args)
{
    FILE *file = count == 3 ? fopen(args[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "mumps FILE spd|sym|gen\n");
        return 1;
    }
    uint64_t *sizes = take(16, file), n = sizes[0], entries = sizes[1], *ptr = take(8 * (n + 1), file);
    uint32_t *col = take(4 * entries, file);
    double *values = take(8 * entries, file), *x = malloc(8 * n), *r = malloc(8 * n);
    int *row = malloc(4 * entries), *column = malloc(4 * entries), symmetric = strcmp(args[2], "gen") != 0;
    double *given = malloc(8 * entries);
    int64_t kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        x[i] = 1.0;
        for (uint64_t p = ptr[i]; p < ptr[i + 1]; p++)
            if (!symmetric || col[p] <= i) {
                row[kept] = i + 1, column[kept] = col[p] + 1, given[kept++] = values[p];
            }
    }
    long before = peak();
    DMUMPS_STRUC_C id = {.comm_fortran = -987654, .par = 1};
    id.sym = symmetric ? (strcmp(args[2], "spd") == 0 ? 1 : 2) : 0;
    run(&id, -1);
    id.ICNTL(1) = id.ICNTL(2) = id.ICNTL(3) = -1, id.ICNTL(4) = 0;
    if (getenv("OMP_NUM_THREADS"))
        id.ICNTL(16) = atoi(getenv("OMP_NUM_THREADS"));
    id.n = n, id.nnz = kept, id.irn = row, id.jcn = column, id.a = given, id.rhs = x, id.nrhs = 1, id.lrhs = n;
    double begin = now();
    run(&id, 1);
    double analysis = now() - begin;
    run(&id, 2);
    double factors = now() - begin;
    begin = now();
    run(&id, 3);
    double solve = now() - begin, left = 0;
    long most = peak();
    for (uint64_t i = 0; i < n; i++) {
        r[i] = 1.0;
        for (uint64_t p = ptr[i]; p < ptr[i + 1]; p++)
            r[i] -= values[p] * x[col[p]];
        left += r[i] * r[i];
    }
    for (int64_t p = 0; p < kept; p++)
        given[p] *= 1.5;
    begin = now();
    run(&id, 2);
    printf("{\"analysis_wall_s\": %.4f, \"factors_wall_s\": %.4f, \"again_wall_s\": %.4f, \"solve_wall_s\": %.5f, "
           "\"residual\": %.1e, \"before_bytes\": %ld, \"peak_bytes\": %ld}\n",
           analysis, factors, now() - begin, solve, sqrt(left / n), before, most);
    run(&id, -2);
    return 0;
}
