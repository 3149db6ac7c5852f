/* Calls every function of krylith.h, and checks results with known solutions and errors by their texts. Programs of
 * their own call those of fields (fields.c) and of ranks (ranks.c). */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 6 };

/* The matrix −1 2 −1. The solution of A x = 1 is x_i = (i + 1)(N − i)/2. */
static int32_t row_ptr[N + 1], col[3 * N];
static double values[3 * N];
static int32_t entries;

static void make(int base) {
    entries = 0;
    for (int32_t i = 0; i < N; i++) {
        row_ptr[i] = entries + base;
        for (int32_t j = i - 1; j <= i + 1; j++) {
            if (j < 0 || j >= N) continue;
            col[entries] = j + base;
            values[entries++] = i == j ? 2.0 : -1.0;
        }
    }
    row_ptr[N] = entries + base;
}

static int near(const double *x, double factor) {
    for (int i = 0; i < N; i++)
        if (fabs(x[i] - factor * (i + 1) * (N - i) / 2.0) > 1e-8) return 0;
    return 1;
}

static void ones(double *b, int n) {
    for (int i = 0; i < n; i++) b[i] = 1.0;
}

static const char *OPTIONS = "rtol=1e-12 device=cpu";

static void matrices_of_all_widths(void) {
    double b[N], x[N];
    ones(b, N);
    for (int base = 0; base <= 1; base++) {
        make(base);
        int64_t row_ptr64[N + 1], col64[3 * N];
        for (int i = 0; i <= N; i++) row_ptr64[i] = row_ptr[i];
        for (int e = 0; e < entries; e++) col64[e] = col[e];
        for (int way = 0; way < 5; way++) {
            krylith_problem *problem = NULL;
            krylith_status status = KRYLITH_INTERNAL;
            if (way == 0) status = krylith_problem_csr(N, entries, row_ptr, col, values, 0, NULL, &problem);
            if (way == 1) status = krylith_problem_csr64(N, entries, row_ptr64, col64, values, 1, NULL, &problem);
            if (way == 2) status = krylith_problem_csr64_32(N, entries, row_ptr64, col, values, 2, NULL, &problem);
            if (way == 3) status = krylith_problem_bsr(1, N, entries, row_ptr, col, values, NULL, &problem);
            if (way == 4) status = krylith_problem_bsr64(1, N, entries, row_ptr64, col64, values, NULL, &problem);
            EXPECT(status == KRYLITH_OK);
            EXPECT(krylith_problem_unknowns(problem) == N);
            EXPECT(krylith_problem_block(problem) == (way == 2 ? 2 : 1) || way == 0);
            krylith_solution solution;
            memset(x, 0, sizeof x);
            EXPECT(krylith_solve(problem, OPTIONS, b, x, NULL, &solution) == KRYLITH_OK);
            EXPECT(solution.outcome == KRYLITH_CONVERGED && near(x, 1.0));
            EXPECT(solution.true_residual <= solution.target && solution.target == 1e-12);
            EXPECT(solution.criterion == KRYLITH_CRITERION_RESIDUAL && solution.criterion_value == solution.true_residual);
            memset(x, 0, sizeof x);
            EXPECT(krylith_solve(problem, "criterion=rows rtol=1e-12", b, x, NULL, &solution) == KRYLITH_OK);
            EXPECT(solution.criterion == KRYLITH_CRITERION_ROWS && solution.criterion_value <= 1e-12 && near(x, 1.0));
            krylith_problem_free(problem);
        }
    }
    make(0);
}

static int32_t told;
static double last;

static int32_t monitor(void *user, int64_t iteration, double residual) {
    told++;
    last = residual;
    return iteration >= *(int64_t *)user;
}

static void solvers(void) {
    krylith_problem *problem = NULL;
    krylith_solver *solver = NULL;
    krylith_solution solution, both[2];
    double b[2 * N], x[2 * N] = {0}, y[N], residuals[64];
    int64_t count = 0, most = 1000;
    ones(b, N);
    for (int i = 0; i < N; i++) b[N + i] = 2.0;
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 2, NULL, &problem) == KRYLITH_OK);
    EXPECT(krylith_solver_new(problem, "method=cg precond=jacobi rtol=1e-12 device=cpu", &solver) == KRYLITH_OK);
    krylith_problem_free(problem); /* the solver lives on */

    EXPECT(krylith_solver_set_monitor(solver, monitor, &most) == KRYLITH_OK);
    EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_CONVERGED && near(x, 1.0) && told > 1 && last < 1e-6);
    EXPECT(krylith_solver_residuals(solver, 0, NULL, &count) == KRYLITH_OK && count == solution.iterations + 1);
    EXPECT(krylith_solver_residuals(solver, 64, residuals, &count) == KRYLITH_OK && residuals[0] == 1.0);
    EXPECT(strstr(krylith_solver_summary(solver), "converged after") != NULL);
    EXPECT(krylith_solver_advice(solver)[0] == 0);

    /* The monitor ends the solve after one iteration. */
    most = 1;
    memset(x, 0, sizeof x);
    EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_INTERRUPTED && solution.iterations >= 1);
    EXPECT(strcmp(krylith_outcome_name(solution.outcome), "interrupted") == 0);
    EXPECT(krylith_solver_set_monitor(solver, NULL, NULL) == KRYLITH_OK);

    memset(x, 0, sizeof x);
    EXPECT(krylith_solver_solve_columns(solver, 2, b, x, NULL, both) == KRYLITH_OK);
    EXPECT(near(x, 1.0) && near(x + N, 2.0) && both[1].outcome == KRYLITH_CONVERGED);

    EXPECT(krylith_solver_multiply(solver, x, y, NULL) == KRYLITH_OK);
    for (int i = 0; i < N; i++) EXPECT(fabs(y[i] - 1.0) < 1e-8);
    EXPECT(krylith_solver_precondition(solver, b, y, NULL) == KRYLITH_OK);
    EXPECT(fabs(y[0] - 1.0) < 1e-12); /* [2 −1; −1 2]⁻¹ 1 */

    /* A matrix that is not symmetric: 2 on the diagonal, and row 0 has -1 in column 1. */
    {
        const int32_t starts[] = {0, 2, 3}, columns[] = {0, 1, 1};
        const double entries_of[] = {2.0, -1.0, 2.0}, rhs[] = {2.0, 1.0};
        double turned[2] = {0.0, 0.0}, product[2];
        krylith_problem *small;
        krylith_solver *two;
        EXPECT(krylith_problem_csr(2, 3, starts, columns, entries_of, 1, NULL, &small) == KRYLITH_OK);
        EXPECT(krylith_solver_new(small, "device=cpu precond=jacobi rtol=1e-10", &two) == KRYLITH_OK);
        EXPECT(krylith_solver_solve_transposed(two, rhs, turned, NULL, &solution) == KRYLITH_OK);
        EXPECT(solution.outcome == KRYLITH_CONVERGED);
        EXPECT(fabs(turned[0] - 1.0) < 1e-9 && fabs(turned[1] - 1.0) < 1e-9);
        EXPECT(krylith_solver_multiply_transposed(two, turned, product, NULL) == KRYLITH_OK);
        EXPECT(fabs(product[0] - 2.0) < 1e-8 && fabs(product[1] - 1.0) < 1e-8);
        EXPECT(krylith_solver_precondition_transposed(two, rhs, product, NULL) == KRYLITH_OK);
        EXPECT(product[0] == 1.0 && product[1] == 0.5);
        krylith_solver_free(two);
        krylith_problem_free(small);
    }

    /* New values have the order of the scalar matrix, although the solver stores blocks of two. */
    for (int e = 0; e < entries; e++) values[e] *= 4.0;
    EXPECT(krylith_solver_update_values(solver, 0, entries, values, NULL) == KRYLITH_OK);
    for (int e = 0; e < entries; e++) values[e] /= 4.0;
    EXPECT(krylith_solver_solve(solver, b, x, NULL, NULL) == KRYLITH_OK && near(x, 0.25));

    /* One iteration is too few, and the advice names the remedy. */
    memset(x, 0, sizeof x);
    EXPECT(krylith_solver_set_tolerance(solver, 1e-13, -1.0, 1) == KRYLITH_OK);
    EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_MAX_ITERATIONS && solution.target == 1e-13);
    EXPECT(strstr(krylith_solver_advice(solver), "raise max_iters") != NULL);
    EXPECT(krylith_solver_set_refresh(solver, "keep") == KRYLITH_OK);
    krylith_solver_cancel(solver); /* nothing is under way */

    REFUSED(krylith_solver_set_refresh(solver, "often"), KRYLITH_INVALID, "unknown refresh `often`");
    REFUSED(krylith_solver_set_tau(solver, 1.0), KRYLITH_INVALID, "tau");
    REFUSED(krylith_solver_set_tolerance(solver, NAN, -1.0, -1), KRYLITH_INVALID, "rtol");
    REFUSED(krylith_solver_update_values(solver, 0, 3, values, NULL), KRYLITH_INVALID, "3 new values");
    REFUSED(krylith_solver_update_values(solver, 2, entries, values, NULL), KRYLITH_INVALID, "no term 2");
    REFUSED(krylith_solver_solve(solver, NULL, x, NULL, NULL), KRYLITH_INVALID, "b is a null pointer");
    b[N + 3] = NAN;
    REFUSED(krylith_solver_solve(solver, b + N, x, NULL, NULL), KRYLITH_INVALID, "b: entry 3 is NaN");
    REFUSED(krylith_solver_solve_columns(solver, 2, b, x, NULL, NULL), KRYLITH_INVALID, "column 1: b: entry 3 is NaN");
    b[N + 3] = 2.0, x[1] = INFINITY;
    REFUSED(krylith_solver_solve(solver, b, x, NULL, NULL), KRYLITH_INVALID, "x0: entry 1 is inf");
    x[1] = 0.0;
    REFUSED(krylith_solver_solve_columns(solver, -1, b, x, NULL, NULL), KRYLITH_INVALID, "columns is -1");
    krylith_solver_free(solver);
}

/* Columns that are solved together have the answers of solves one by one. The matrix is the five-point Laplacian on
 * 16×16 points with a wind; factors with fill are large enough that columns are solved together. */
static void columns_together(void) {
    enum { M = 16, COUNT = 5, LARGE = M * M };
    static int32_t starts[LARGE + 1], of[5 * LARGE];
    static double entry[5 * LARGE], b[COUNT * LARGE], x[COUNT * LARGE], alone[LARGE];
    int32_t stored = 0;
    for (int32_t i = 0; i < LARGE; i++) {
        const int32_t near_by[] = {i - M, i - 1, i, i + 1, i + M};
        const double values_of[] = {-1.5, -1.5, 4.0, -0.5, -0.5};
        for (int k = 0; k < 5; k++) {
            const int32_t j = near_by[k];
            if (j < 0 || j >= LARGE || (k % 2 == 1 && j / M != i / M)) continue;
            of[stored] = j;
            entry[stored++] = values_of[k];
        }
        starts[i + 1] = stored;
        for (int c = 0; c < COUNT; c++) b[c * LARGE + i] = c == 1 ? 0.0 : (double)((i * (2 * c + 3)) % 17) - 8.0;
    }
    krylith_problem *problem = NULL;
    krylith_solver *solver = NULL;
    krylith_solution solutions[COUNT], one;
    EXPECT(krylith_problem_csr(LARGE, stored, starts, of, entry, 1, NULL, &problem) == KRYLITH_OK);
    for (int way = 0; way < 2; way++) {
        const char *options = way ? "device=cpu rtol=1e-10 precond=amg:coarsest=20"
                                  : "device=cpu rtol=1e-10 precond=ildu:fill=1";
        EXPECT(krylith_solver_new(problem, options, &solver) == KRYLITH_OK);
        memset(x, 0, sizeof x);
        EXPECT(krylith_solver_solve_columns(solver, COUNT, b, x, NULL, solutions) == KRYLITH_OK);
        for (int c = 0; c < COUNT; c++) {
            memset(alone, 0, sizeof alone);
            EXPECT(krylith_solver_solve(solver, b + c * LARGE, alone, NULL, &one) == KRYLITH_OK);
            EXPECT(one.outcome == KRYLITH_CONVERGED && solutions[c].outcome == one.outcome);
            EXPECT(llabs(solutions[c].iterations - one.iterations) <= 1 && (c == 1) == (one.iterations == 0));
            EXPECT(fabs(solutions[c].true_residual - one.true_residual) < 1e-11);
            for (int i = 0; i < LARGE; i++) EXPECT(fabs(x[c * LARGE + i] - alone[i]) < 1e-8);
        }
        b[3 * LARGE + 7] = NAN;
        const char *why = "column 3: b: entry 7 is NaN";
        REFUSED(krylith_solver_solve_columns(solver, COUNT, b, x, NULL, solutions), KRYLITH_INVALID, why);
        b[3 * LARGE + 7] = 1.0;
        krylith_solver_free(solver);
    }
    krylith_problem_free(problem);
}

static void kronecker(void) {
    /* A = [2 1; 0 3], B = I, M = I, L = −1 2 −1. Checks the solution stage by stage, and the product. */
    double one[N], a[4] = {2, 1, 0, 3}, b[4] = {1, 0, 0, 1}, x[2 * N] = {0}, f[2 * N], y[2 * N];
    int32_t diagonal[N + 1];
    ones(one, N), ones(f, 2 * N);
    for (int i = 0; i <= N; i++) diagonal[i] = i;
    krylith_problem *m = NULL, *l = NULL, *sum = NULL;
    krylith_solver *solver = NULL;
    EXPECT(krylith_problem_csr(N, N, diagonal, diagonal, one, 1, NULL, &m) == KRYLITH_OK);
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, &l) == KRYLITH_OK);
    EXPECT(krylith_problem_kronecker(2, a, b, 0.5, m, l, &sum) == KRYLITH_OK);
    EXPECT(krylith_problem_unknowns(sum) == 2 * N);
    EXPECT(krylith_solver_new(sum, OPTIONS, &solver) == KRYLITH_OK);
    for (double tau = 0.5; tau < 1.2; tau += 0.5) {
        EXPECT(krylith_solver_set_tau(solver, tau) == KRYLITH_OK);
        EXPECT(krylith_solver_solve(solver, f, x, NULL, NULL) == KRYLITH_OK);
        EXPECT(krylith_solver_multiply(solver, x, y, NULL) == KRYLITH_OK);
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < 2; k++) {
                double left = i > 0 ? x[2 * (i - 1) + k] : 0, right = i < N - 1 ? x[2 * (i + 1) + k] : 0;
                double own = a[2 * k] * x[2 * i] + a[2 * k + 1] * x[2 * i + 1];
                EXPECT(fabs(own + tau * (2 * x[2 * i + k] - left - right) - 1.0) < 1e-9);
                EXPECT(fabs(y[2 * i + k] - 1.0) < 1e-9);
            }
        }
    }
    REFUSED(krylith_problem_kronecker(2, a, b, 0.5, m, sum, &sum), KRYLITH_INVALID, "a problem of one matrix");
    REFUSED(krylith_problem_kronecker(2, a, b, 0.5, NULL, l, &sum), KRYLITH_INVALID, "m is a null pointer");
    krylith_solver_free(solver);
    krylith_problem_free(sum), krylith_problem_free(l), krylith_problem_free(m);
}

/* Scalar M and L in blocks of two. New values have the order in which M and L were given. If one part of an
 * update is rejected, nothing changes. */
static void sums_in_blocks(void) {
    double a[1] = {1}, b[1] = {1}, two[1] = {2}, nine[9] = {0}, f[N], x[N], m3[3 * N], wrong[3 * N];
    ones(f, N);
    krylith_problem *m = NULL, *l = NULL, *sum = NULL;
    krylith_solver *solver = NULL;
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 2, NULL, &m) == KRYLITH_OK);
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 2, NULL, &l) == KRYLITH_OK);
    EXPECT(krylith_problem_kronecker(1, a, b, 0.5, m, l, &sum) == KRYLITH_OK && krylith_problem_block(sum) == 2);
    EXPECT(krylith_solver_new(sum, OPTIONS, &solver) == KRYLITH_OK);
    for (int e = 0; e < entries; e++) m3[e] = 3.0 * values[e], wrong[e] = e == 4 ? NAN : values[e];
    for (int step = 0; step < 4; step++) {
        double factor = 0;
        if (step == 0) factor = 1.0 + 0.5; /* as it was made */
        if (step == 1) { /* the same values */
            factor = 1.0 + 0.5;
            EXPECT(krylith_solver_update_values(solver, 0, entries, values, NULL) == KRYLITH_OK);
            EXPECT(krylith_solver_update_values(solver, 1, entries, values, NULL) == KRYLITH_OK);
        }
        if (step == 2) {
            factor = 3.0 + 0.5;
            EXPECT(krylith_solver_update_values(solver, 0, entries, m3, NULL) == KRYLITH_OK);
        }
        if (step == 3) { /* A, B and τ too */
            factor = 2.0 * 1.0 + 0.25 * 3.0;
            EXPECT(krylith_solver_update_kronecker(solver, 1, two, b, 0.25, entries, values, entries, m3, NULL) == KRYLITH_OK);
            REFUSED(krylith_solver_update_kronecker(solver, 1, a, b, 9.0, entries, m3, entries, wrong, NULL), KRYLITH_INVALID,
                    "new value 4 is NaN");
            REFUSED(krylith_solver_update_kronecker(solver, 3, nine, nine, 9.0, entries, m3, entries, m3, NULL), KRYLITH_INVALID,
                    "another number of stages");
        }
        memset(x, 0, sizeof x);
        EXPECT(krylith_solver_solve(solver, f, x, NULL, NULL) == KRYLITH_OK && near(x, 1.0 / factor));
    }
    krylith_solver_free(solver);
    krylith_problem_free(sum), krylith_problem_free(l), krylith_problem_free(m);
}

static void what_is_known_beside_the_numbers(void) {
    /* A ring, whose null vector is constant. */
    int32_t ptr[N + 1], ring[3 * N];
    double ring_values[3 * N], b[N] = {1, -1}, x[N], plane[2 * N], constant[N];
    for (int i = 0; i < N; i++) {
        int at[3] = {(i + N - 1) % N, i, (i + 1) % N}, e = 3 * i;
        ptr[i] = e;
        for (int k = 0; k < 3; k++) { /* ascending */
            int smaller = 0;
            for (int q = 0; q < 3; q++) smaller += at[q] < at[k];
            ring[e + smaller] = at[k];
            ring_values[e + smaller] = at[k] == i ? 2.0 : -1.0;
        }
        plane[2 * i] = i, plane[2 * i + 1] = 0.0;
        x[i] = 7.0;
    }
    ptr[N] = 3 * N;
    ones(constant, N);
    krylith_problem *problem = NULL;
    krylith_solution solution;
    EXPECT(krylith_problem_csr(N, 3 * N, ptr, ring, ring_values, 1, NULL, &problem) == KRYLITH_OK);
    EXPECT(krylith_problem_set_null_vectors(problem, 0, NULL) == KRYLITH_OK);
    EXPECT(krylith_problem_set_null_vectors(problem, 1, constant) == KRYLITH_OK);
    EXPECT(krylith_problem_set_grid(problem, N, 1, 1) == KRYLITH_OK);
    EXPECT(krylith_problem_set_coordinates(problem, 2, N, plane) == KRYLITH_OK);
    EXPECT(krylith_problem_set_near_null_vectors(problem, 1, constant) == KRYLITH_OK);
    EXPECT(krylith_solve(problem, OPTIONS, b, x, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_CONVERGED);
    for (int i = 0; i < N; i++)
        EXPECT(fabs(2 * x[i] - x[(i + 1) % N] - x[(i + N - 1) % N] - b[i]) < 1e-9);
    constant[2] = 5.0;
    REFUSED(krylith_problem_set_null_vectors(problem, 1, constant), KRYLITH_INVALID, "null vector");
    REFUSED(krylith_problem_set_near_null_vectors(problem, 0, NULL), KRYLITH_INVALID, "rigid modes");
    REFUSED(krylith_problem_set_coordinates(problem, 4, N, plane), KRYLITH_INVALID, "the points have 4 coordinates");
    REFUSED(krylith_problem_set_coordinates(problem, 2, 2, plane), KRYLITH_INVALID, "2 points");
    REFUSED(krylith_problem_set_grid(problem, 2, 2, 1), KRYLITH_INVALID, "the grid has 2×2×1 nodes, but the system has 6 nodes");
    plane[3] = NAN;
    REFUSED(krylith_problem_set_coordinates(problem, 2, N, plane), KRYLITH_INVALID, "coordinates: point 1");
    memset(x, 0, sizeof x);
    REFUSED(krylith_problem_set_near_null_vectors(problem, 1, x), KRYLITH_INVALID, "near-null vector 0 is zero");
    krylith_problem_free(problem);
}

static void wrong_matrices(void) {
    krylith_problem *none = NULL;
    krylith_solver *solver = NULL;
    int32_t far[3 * N];
    memcpy(far, col, sizeof far);
    far[4] = 77;
    REFUSED(krylith_problem_csr(N, entries, row_ptr, far, values, 1, NULL, &none), KRYLITH_INVALID, "column 77");
    REFUSED(krylith_problem_csr(N, entries - 1, row_ptr, col, values, 1, NULL, &none), KRYLITH_INVALID, "");
    REFUSED(krylith_problem_csr(-1, entries, row_ptr, col, values, 1, NULL, &none), KRYLITH_INVALID, "rows is -1");
    REFUSED(krylith_problem_csr(N, entries, NULL, col, values, 1, NULL, &none), KRYLITH_INVALID, "row_ptr is a null pointer");
    REFUSED(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, NULL), KRYLITH_INVALID, "the place for the handle");
    REFUSED(krylith_problem_csr(N, entries, row_ptr, col, values, 4, NULL, &none), KRYLITH_INVALID, "4");
    REFUSED(krylith_problem_bsr(0, N, entries, row_ptr, col, values, NULL, &none), KRYLITH_INVALID, "block");
    krylith_memory nowhere = {12345, NULL};
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, &nowhere, &none) != KRYLITH_OK);
    EXPECT(none == NULL);
    REFUSED(krylith_solver_new(NULL, "", &solver), KRYLITH_INVALID, "problem is a null pointer");
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, &none) == KRYLITH_OK);
    REFUSED(krylith_solver_new(none, "method=fast", &solver), KRYLITH_INVALID, "fast");
    REFUSED(krylith_solver_new(none, "rtol=-1", &solver), KRYLITH_INVALID, "rtol");
    REFUSED(krylith_solver_new(none, "quickly", &solver), KRYLITH_INVALID, "`quickly` is not key=value");
    REFUSED(krylith_solver_new(none, "\xff", &solver), KRYLITH_INVALID, "not UTF-8");
    EXPECT(krylith_solver_new(none, "device=cuda:99", &solver) == KRYLITH_DEVICE && solver == NULL);
    krylith_problem_free(none), krylith_problem_free(NULL), krylith_solver_free(NULL);
    krylith_solver_cancel(NULL);
    EXPECT(krylith_problem_unknowns(NULL) == 0 && krylith_problem_block(NULL) == 0);
    EXPECT(krylith_solver_summary(NULL)[0] == 0);
}

struct calls {
    int products, fails_at;
};

static int32_t product(void *user, int64_t n, const double *x, double *y) {
    struct calls *calls = user;
    for (int64_t i = 0; i < n; i++) y[i] = 2 * x[i] - (i > 0 ? x[i - 1] : 0) - (i < n - 1 ? x[i + 1] : 0);
    return ++calls->products == calls->fails_at ? 42 : 0;
}

static int32_t half(void *user, int64_t n, const double *x, double *y) {
    (void)user;
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / 2;
    return 0;
}

static void functions(void) {
    double b[N], x[N] = {0};
    struct calls calls = {0, 0};
    krylith_solution solution;
    ones(b, N);
    EXPECT(krylith_solve_functions(N, product, &calls, half, NULL, b, x, "method=cg rtol=1e-12", NULL, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_CONVERGED && near(x, 1.0) && calls.products > 1 && solution.target == 1e-12);
    memset(x, 0, sizeof x);
    EXPECT(krylith_solve_functions(N, product, &calls, NULL, NULL, b, x, NULL, NULL, NULL, NULL) == KRYLITH_OK);
    calls = (struct calls){0, 2};
    REFUSED(krylith_solve_functions(N, product, &calls, NULL, NULL, b, x, "rtol=1e-15", NULL, NULL, &solution), KRYLITH_CALLBACK,
            "returned 42");
    REFUSED(krylith_solve_functions(N, NULL, NULL, NULL, NULL, b, x, "", NULL, NULL, NULL), KRYLITH_INVALID, "a is a null pointer");
    REFUSED(krylith_solve_functions(N, product, &calls, NULL, NULL, b, x, "precond=ildu", NULL, NULL, NULL), KRYLITH_INVALID, "matrix");
}

/* The matrix of `product`, or its half, on the host. */
static int32_t apply(void *user, int64_t n, const double *x, double *y, int32_t transposed, const krylith_memory *memory) {
    struct calls *calls = user;
    EXPECT(n == N && memory == NULL && (transposed == 0 || transposed == 1));
    return product(calls, n, x, y);
}

static int32_t halve(void *user, int64_t n, const double *x, double *y, int32_t transposed, const krylith_memory *memory) {
    (void)transposed, (void)memory;
    return half(user, n, x, y);
}

static void operators(void) {
    double b[N], x[N] = {0};
    struct calls calls = {0, 0};
    krylith_solver *solver = NULL;
    krylith_solution solution;
    krylith_operator a = {apply, &calls, 1, 0}, p = {halve, NULL, 0, 0}, none = {NULL, NULL, 0, 0};
    ones(b, N);
    EXPECT(krylith_solver_without_matrix(N, "method=cg rtol=1e-12", &solver) == KRYLITH_OK);
    REFUSED(krylith_solver_solve(solver, b, x, NULL, NULL), KRYLITH_INVALID, "no matrix");
    REFUSED(krylith_solver_set_operators(solver, &none, NULL), KRYLITH_INVALID, "apply is a null pointer");
    EXPECT(krylith_solver_set_operators(solver, &a, &p) == KRYLITH_OK);
    EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_CONVERGED && near(x, 1.0) && calls.products > 1);
    EXPECT(krylith_solver_set_operators(solver, &a, NULL) == KRYLITH_OK);
    memset(x, 0, sizeof x);
    EXPECT(krylith_solver_solve_transposed(solver, b, x, NULL, &solution) == KRYLITH_OK && near(x, 1.0));
    calls = (struct calls){0, 2};
    memset(x, 0, sizeof x);
    REFUSED(krylith_solver_solve(solver, b, x, NULL, NULL), KRYLITH_CALLBACK, "returned 42");
    calls = (struct calls){0, 0};
    EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK && near(x, 1.0));
    krylith_solver_free(solver), solver = NULL;
    REFUSED(krylith_solver_without_matrix(N, "precond=ildu", &solver), KRYLITH_INVALID, "needs a matrix");

    /* A matrix beside the function preconditions it. */
    krylith_problem *problem = NULL;
    make(0);
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, &problem) == KRYLITH_OK);
    EXPECT(krylith_solver_new(problem, "precond=ildu device=cpu rtol=1e-12", &solver) == KRYLITH_OK);
    EXPECT(krylith_solver_set_operators(solver, &a, NULL) == KRYLITH_OK);
    memset(x, 0, sizeof x);
    calls = (struct calls){0, 0};
    EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK && near(x, 1.0) && calls.products > 0);
    krylith_solver_free(solver), krylith_problem_free(problem);
}

static krylith_solver *shared, *other;

static int32_t uses_its_solver(void *user, int64_t iteration, double residual) {
    double x[N] = {0}, y[N];
    (void)iteration, (void)residual;
    *(krylith_status *)user = krylith_solver_multiply(shared, x, y, NULL);
    return 0;
}

/* Uses the solver through the monitor of another solver, which runs on another thread, and then directly. */
static int32_t uses_another(void *user, int64_t iteration, double residual) {
    krylith_status *seen = user;
    double b[N], x[N] = {0}, y[N];
    (void)iteration, (void)residual;
    ones(b, N);
    if (seen[0] != KRYLITH_OK) return 0;
    EXPECT(krylith_solver_set_monitor(other, uses_its_solver, &seen[0]) == KRYLITH_OK);
    EXPECT(krylith_solver_solve(other, b, x, NULL, NULL) == KRYLITH_OK);
    seen[1] = krylith_solver_multiply(shared, x, y, NULL);
    return 0;
}

static void *in_a_thread(void *unused) {
    double b[N], x[N];
    ones(b, N);
    for (int i = 0; i < 200; i++) {
        memset(x, 0, sizeof x);
        EXPECT(krylith_solver_solve(shared, b, x, NULL, NULL) == KRYLITH_OK && near(x, 1.0));
    }
    EXPECT(krylith_last_error()[0] == 0); /* errors are each thread's own */
    return unused;
}

static void threads_and_forks(void) {
    krylith_problem *problem = NULL;
    krylith_status inner = KRYLITH_OK;
    double b[N], x[N] = {0};
    ones(b, N);
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, &problem) == KRYLITH_OK);
    EXPECT(krylith_solver_new(problem, "method=cg precond=jacobi rtol=1e-12 device=cpu", &shared) == KRYLITH_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) EXPECT(pthread_create(&threads[i], NULL, in_a_thread, NULL) == 0);
    for (int i = 0; i < 4; i++) EXPECT(pthread_join(threads[i], NULL) == 0);

    EXPECT(krylith_solver_set_monitor(shared, uses_its_solver, &inner) == KRYLITH_OK);
    EXPECT(krylith_solver_solve(shared, b, x, NULL, NULL) == KRYLITH_OK && inner == KRYLITH_INVALID);

    krylith_status seen[2] = {KRYLITH_OK, KRYLITH_OK};
    EXPECT(krylith_solver_new(problem, "method=cg precond=jacobi rtol=1e-12 device=cpu", &other) == KRYLITH_OK);
    EXPECT(krylith_solver_set_monitor(shared, uses_another, seen) == KRYLITH_OK);
    memset(x, 0, sizeof x);
    alarm(60); /* they would wait for ever */
    EXPECT(krylith_solver_solve(shared, b, x, NULL, NULL) == KRYLITH_OK && near(x, 1.0));
    alarm(0);
    EXPECT(seen[0] == KRYLITH_INVALID && seen[1] == KRYLITH_INVALID);
    krylith_solver_free(other);
    EXPECT(krylith_solver_set_monitor(shared, NULL, NULL) == KRYLITH_OK);

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        krylith_status status = krylith_solver_solve(shared, b, x, NULL, NULL);
        int told_so = status == KRYLITH_DEVICE && strstr(krylith_last_error(), "forked") != NULL;
        krylith_solver_free(shared);
        _exit(told_so ? 0 : 1);
    }
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    krylith_solver_free(shared);
    krylith_problem_free(problem);
}

/* Resident memory, which must not grow over many solves and handles. */
static long resident(void) {
    long pages = 0, own = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file != NULL && fscanf(file, "%ld %ld", &pages, &own) == 2);
    fclose(file);
    return own * sysconf(_SC_PAGESIZE);
}

static void nothing_grows(void) {
    double b[N], x[N];
    ones(b, N);
    long before = 0;
    for (int round = 0; round < 2000; round++) {
        krylith_problem *problem = NULL;
        memset(x, 0, sizeof x);
        EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, &problem) == KRYLITH_OK);
        EXPECT(krylith_solve(problem, OPTIONS, b, x, NULL, NULL) == KRYLITH_OK);
        EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 99, NULL, &problem) == KRYLITH_INVALID);
        krylith_problem_free(problem);
        if (round == 500) before = resident();
    }
    EXPECT(resident() - before < 4 << 20);
}

int main(void) {
    EXPECT(strcmp(krylith_version(), KRYLITH_VERSION) == 0);
    EXPECT(krylith_last_error()[0] == 0);
    make(0);
    matrices_of_all_widths();
    solvers();
    columns_together();
    kronecker();
    sums_in_blocks();
    what_is_known_beside_the_numbers();
    wrong_matrices();
    functions();
    operators();
    threads_and_forks();
    nothing_grows();
    EXPECT(strcmp(krylith_outcome_name(99), "unknown") == 0);
    printf("krylith.h: all functions\n");
    return EXIT_SUCCESS;
}
