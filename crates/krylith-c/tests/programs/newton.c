/* Newton's method: -u" + u^3 = 1 on a line, its failures, and its end by a monitor and by a callback. */
#include "check.h"
#include <math.h>

enum { N = 50 };

typedef struct {
    int evaluations, fails, stops;
    krylith_newton *own;
} state;

static int32_t residual(void *user, int64_t n, const double *x, double *f) {
    state *s = user;
    const double h = 1.0 / (N + 1);
    if (++s->evaluations == s->fails) return 7;
    if (s->own) REFUSED(krylith_newton_solve(s->own, residual, NULL, s, f, NULL, NULL), KRYLITH_INVALID, "callback cannot use");
    for (int64_t i = 0; i < n; i++)
        f[i] = 2 * x[i] - (i > 0 ? x[i - 1] : 0) - (i + 1 < n ? x[i + 1] : 0) + h * h * (x[i] * x[i] * x[i] - 1);
    return 0;
}

static int32_t jacobian(void *user, int64_t n, const double *x, int64_t entries, double *values) {
    (void)user;
    const double h = 1.0 / (N + 1);
    int64_t e = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) values[e++] = -1;
        values[e++] = 2 + h * h * (x[i] * x[i] * x[i] - 1);
        if (i + 1 < n) values[e++] = -1;
    }
    return e == entries ? 0 : 1;
}

static int products;

/* The product with the Jacobian. */
static int32_t multiply(void *user, int64_t n, const double *x, const double *v, double *y) {
    (void)user;
    const double h = 1.0 / (N + 1);
    products++;
    for (int64_t i = 0; i < n; i++)
        y[i] = (2 + 3 * h * h * x[i] * x[i]) * v[i] - (i > 0 ? v[i - 1] : 0) - (i + 1 < n ? v[i + 1] : 0);
    return 0;
}

static int32_t fails(void *user, int64_t n, const double *x, const double *v, double *y) {
    (void)user, (void)n, (void)x, (void)v, (void)y;
    return 9;
}

static int32_t monitor(void *user, int64_t steps, double norm) {
    return norm >= 0 && ((state *)user)->stops && steps == 1;
}

int main(void) {
    int32_t row_ptr[N + 1] = {0}, col[3 * N];
    double values[3 * N] = {0}, x[N] = {0};
    for (int i = 0; i < N; i++) {
        int e = row_ptr[i];
        for (int j = i - 1; j <= i + 1; j++)
            if (j >= 0 && j < N) col[e++] = j;
        row_ptr[i + 1] = e;
    }
    krylith_problem *problem = NULL;
    krylith_newton *newton = NULL;
    krylith_newton_result result;
    EXPECT(krylith_problem_csr(N, row_ptr[N], row_ptr, col, values, 1, NULL, &problem) == KRYLITH_OK);
    REFUSED(krylith_newton_new(problem, "steps=3", NULL, &newton), KRYLITH_INVALID, "unknown key of Newton");
    REFUSED(krylith_newton_new(problem, NULL, "precond=much", &newton), KRYLITH_INVALID, "much");
    EXPECT(krylith_newton_new(problem, "rtol=1e-10 forcing=1e-3", "device=cpu threads=1", &newton) == KRYLITH_OK);
    krylith_problem_free(problem);
    REFUSED(krylith_newton_solve(newton, residual, NULL, NULL, x, NULL, NULL), KRYLITH_INVALID, "jacobian is a null pointer");
    REFUSED(krylith_newton_solve(newton, residual, jacobian, NULL, NULL, NULL, NULL), KRYLITH_INVALID, "x is a null pointer");

    state s = {0};
    s.own = newton; /* a callback that uses its own handle is refused, and does not wait */
    EXPECT(krylith_newton_solve(newton, residual, jacobian, &s, x, monitor, &result) == KRYLITH_OK);
    EXPECT(result.outcome == KRYLITH_NEWTON_CONVERGED && result.steps > 1 && result.iterations >= result.steps);
    EXPECT(result.norm <= result.target && result.target <= 1e-10 * result.first_norm * 1.0001);
    /* Below x (1 - x) / 2, the solution without the cube; and symmetric. */
    for (int i = 0; i < N; i++) {
        const double place = (i + 1.0) / (N + 1), above = place * (1 - place) / 2;
        EXPECT(x[i] < above && x[i] > 0.99 * above && fabs(x[i] - x[N - 1 - i]) < 1e-9);
    }

    /* A Jacobian-free method finds the same x. */
    double free_x[N] = {0};
    s = (state){0};
    EXPECT(krylith_newton_set_product(newton, multiply, NULL) == KRYLITH_OK);
    EXPECT(krylith_newton_solve(newton, residual, jacobian, &s, free_x, NULL, &result) == KRYLITH_OK);
    EXPECT(result.outcome == KRYLITH_NEWTON_CONVERGED && products > 0);
    for (int i = 0; i < N; i++) EXPECT(fabs(x[i] - free_x[i]) < 1e-8);
    EXPECT(krylith_newton_set_product(newton, fails, NULL) == KRYLITH_OK);
    memset(free_x, 0, sizeof free_x);
    REFUSED(krylith_newton_solve(newton, residual, jacobian, &s, free_x, NULL, NULL), KRYLITH_CALLBACK, "returned 9");
    EXPECT(krylith_newton_set_product(newton, NULL, NULL) == KRYLITH_OK);

    s = (state){.stops = 1};
    memset(x, 0, sizeof x);
    EXPECT(krylith_newton_solve(newton, residual, jacobian, &s, x, monitor, &result) == KRYLITH_OK);
    EXPECT(result.outcome == KRYLITH_NEWTON_INTERRUPTED && result.steps == 1);
    EXPECT(strcmp(krylith_newton_outcome_name(result.outcome), "interrupted") == 0);
    s = (state){.fails = 2};
    memset(x, 0, sizeof x);
    REFUSED(krylith_newton_solve(newton, residual, jacobian, &s, x, NULL, &result), KRYLITH_CALLBACK, "returned 7");
    s = (state){0};
    EXPECT(krylith_newton_solve(newton, residual, jacobian, &s, x, NULL, NULL) == KRYLITH_OK); /* still usable */
    krylith_newton_free(newton), krylith_newton_free(NULL);
    return 0;
}
