/* A first solve: −u'' = 1 between two ends at zero, by three arrays.
 *
 *     cc first_solve.c $(pkg-config --cflags --libs krylith) -o first_solve */
#include <krylith.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1000 };

static void check(krylith_status status) {
    if (status != KRYLITH_OK) {
        fprintf(stderr, "%s\n", krylith_last_error());
        exit(EXIT_FAILURE);
    }
}

int main(void) {
    static int32_t row_ptr[N + 1], col[3 * N];
    static double values[3 * N], b[N], x[N]; /* x = 0 is the first guess */
    int32_t entries = 0;
    for (int32_t i = 0; i < N; i++) {
        for (int32_t j = i - 1; j <= i + 1; j++) {
            if (j < 0 || j >= N) continue;
            col[entries] = j;
            values[entries++] = i == j ? 2.0 : -1.0;
        }
        row_ptr[i + 1] = entries;
        b[i] = 1.0 / ((N + 1.0) * (N + 1.0));
    }

    krylith_problem *problem = NULL;
    krylith_solver *solver = NULL;
    krylith_solution solution;
    check(krylith_problem_csr(N, entries, row_ptr, col, values, 0, NULL, &problem));
    check(krylith_solver_new(problem, "rtol=1e-10", &solver));
    check(krylith_solver_solve(solver, b, x, NULL, &solution));
    printf("%s", krylith_solver_summary(solver));
    printf("u(1/2) = %.6f, which is 1/8\n", (x[N / 2 - 1] + x[N / 2]) / 2);

    /* Twice the matrix gives half the solution. The solver keeps all that depends only on the pattern. */
    for (int32_t e = 0; e < entries; e++) values[e] *= 2.0;
    check(krylith_solver_update_values(solver, 0, entries, values, NULL));
    check(krylith_solver_solve(solver, b, x, NULL, &solution));
    printf("%s after %lld iterations: u(1/2) = %.6f\n", krylith_outcome_name(solution.outcome),
           (long long)solution.iterations, (x[N / 2 - 1] + x[N / 2]) / 2);

    krylith_solver_free(solver);
    krylith_problem_free(problem);
    return solution.outcome == KRYLITH_CONVERGED ? EXIT_SUCCESS : EXIT_FAILURE;
}
