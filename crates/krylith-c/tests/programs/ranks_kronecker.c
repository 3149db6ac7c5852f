/* A⊗M + τB⊗L whose M and L are distributed over MPI ranks. The right-hand side is made for a known solution. */
#include "check.h"
#include <math.h>
#include <mpi.h>

enum { PER_RANK = 30, MOST = PER_RANK + 1, STAGES = 2 };

/* Two matrices with different patterns: `reach` is the distance of the nodes that a node is coupled with. */
typedef struct {
    int64_t reach;
    double diagonal, before, after;
} stencil;

/* This rank's rows of a matrix in CSR format. */
typedef struct {
    int64_t row_ptr[MOST + 1], col[3 * MOST], entries;
    double values[3 * MOST];
} rows;

static rows rows_of(stencil of, int64_t first, int64_t own, int64_t n) {
    rows a = {{0}, {0}, 0, {0}};
    const double value[3] = {of.before, of.diagonal, of.after};
    for (int64_t i = 0; i < own; i++) {
        for (int64_t step = -1; step <= 1; step++) {
            const int64_t j = first + i + step * of.reach;
            if (j < 0 || j >= n) continue;
            a.col[a.entries] = j;
            a.values[a.entries++] = value[step + 1];
        }
        a.row_ptr[i + 1] = a.entries;
    }
    return a;
}

static double exact(int64_t i, int stage) { return 1.0 + stage + 0.25 * (double)(i % 5); }

/* Row i of a matrix times a stage of the solution. */
static double product(stencil of, int64_t i, int stage, int64_t n) {
    const double value[3] = {of.before, of.diagonal, of.after};
    double sum = 0.0;
    for (int64_t step = -1; step <= 1; step++) {
        const int64_t j = i + step * of.reach;
        if (j >= 0 && j < n) sum += value[step + 1] * exact(j, stage);
    }
    return sum;
}

int main(int argc, char **argv) {
    int provided, rank, size;
    EXPECT(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS && provided >= MPI_THREAD_SERIALIZED);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
#if MPI_VERSION >= 5
    const int comm = MPI_Comm_toint(MPI_COMM_WORLD);
#else
    const int comm = MPI_Comm_c2f(MPI_COMM_WORLD);
#endif
    /* The last rank has one row more than the others. */
    const int64_t own = PER_RANK + (rank == size - 1), n = (int64_t)PER_RANK * size + 1, first = (int64_t)PER_RANK * rank;
    const int last = rank == size - 1;
    stencil mass = {2, 3.0, 0.5, 0.25}, stiff = {1, 2.5, -1.0, -0.5};
    double a[4] = {2.0, 0.0, 0.5, 1.0}, b[4] = {5.0 / 12, -1.0 / 12, 3.0 / 4, 1.0 / 4}, tau = 0.5;
    int64_t numbers[MOST];
    for (int64_t i = 0; i < own; i++) numbers[i] = first + i;
    rows m = rows_of(mass, first, own, n), l = rows_of(stiff, first, own, n);
    krylith_problem *of_m = NULL, *of_l = NULL, *sum = NULL;
    krylith_solver *solver = NULL;
    EXPECT(krylith_problem_distributed_csr(comm, own, n, m.entries, m.row_ptr, m.col, m.values, 1, &of_m) == KRYLITH_OK);
    EXPECT(krylith_problem_distributed_bsr(comm, 1, own, l.entries, numbers, l.row_ptr, l.col, l.values, &of_l) == KRYLITH_OK);
    EXPECT(krylith_problem_kronecker(STAGES, a, b, tau, of_m, of_l, &sum) == KRYLITH_OK);
    EXPECT(krylith_problem_unknowns(sum) == own * STAGES && krylith_problem_block(sum) == 1);
    EXPECT(krylith_solver_new(sum, "rtol=1e-12 device=cpu threads=1", &solver) == KRYLITH_OK);
    for (int step = 0; step < 4; step++) {
        if (step == 1) {
            tau = 0.25;
            EXPECT(krylith_solver_set_tau(solver, tau) == KRYLITH_OK);
        } else if (step > 1) {
            stiff.diagonal += 0.5;
            l = rows_of(stiff, first, own, n);
        }
        if (step == 2) EXPECT(krylith_solver_update_values(solver, 1, l.entries, l.values, NULL) == KRYLITH_OK);
        if (step == 3) {
            mass.before = -0.75, a[0] = 3.0, b[3] = 0.5, tau = 1.0;
            m = rows_of(mass, first, own, n);
            EXPECT(krylith_solver_update_kronecker(solver, STAGES, a, b, tau, m.entries, m.values, l.entries, l.values, NULL) ==
                   KRYLITH_OK);
        }
        double f[MOST * STAGES], x[MOST * STAGES] = {0};
        krylith_solution solution;
        for (int64_t i = 0; i < own; i++) {
            for (int k = 0; k < STAGES; k++) {
                f[i * STAGES + k] = 0.0;
                for (int j = 0; j < STAGES; j++) {
                    f[i * STAGES + k] += a[k * STAGES + j] * product(mass, first + i, j, n) +
                                         tau * b[k * STAGES + j] * product(stiff, first + i, j, n);
                }
            }
        }
        EXPECT(krylith_solver_solve(solver, f, x, NULL, &solution) == KRYLITH_OK && solution.outcome == KRYLITH_CONVERGED);
        for (int64_t i = 0; i < own * STAGES; i++) EXPECT(fabs(x[i] - exact(first + i / STAGES, (int)(i % STAGES))) < 1e-9);
    }
    /* A wrong argument on one rank is an error on all ranks, and changes nothing. */
    krylith_problem *none = NULL;
    const double wide[9] = {1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0};
    const int stages = last ? 3 : 2;
    REFUSED(krylith_problem_kronecker(stages, wide, wide, tau, of_m, of_l, &none), KRYLITH_INVALID, "has 3 stages");
    REFUSED(krylith_problem_kronecker(STAGES, a, b, tau + last * rank, of_m, of_l, &none), KRYLITH_INVALID, "tau is");
    REFUSED(krylith_problem_kronecker(STAGES, a, b, tau, of_m, last ? NULL : of_l, &none), KRYLITH_INVALID, "l is a null pointer");
    REFUSED(krylith_solver_set_tau(solver, tau + last), KRYLITH_INVALID, "tau is");
    REFUSED(krylith_solver_update_kronecker(solver, STAGES, last ? NULL : a, b, tau, m.entries, m.values, l.entries, l.values, NULL),
            KRYLITH_INVALID, "a is a null pointer");
    EXPECT(none == NULL);
    krylith_solver_free(solver), krylith_problem_free(sum), krylith_problem_free(of_m), krylith_problem_free(of_l);
    if (rank == 0) printf("a Kronecker sum of %d ranks\n", size);
    return MPI_Finalize();
}
