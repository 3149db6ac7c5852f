/* Problems distributed over MPI ranks, by the communicator's Fortran handle. Their solution is known. */
#include "check.h"
#include <math.h>
#include <mpi.h>

enum { PER_RANK = 40 };

int main(int argc, char **argv) {
    int provided, rank, size;
    EXPECT(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS && provided >= MPI_THREAD_SERIALIZED);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The last rank has one row more than the others. */
    const int64_t own = PER_RANK + (rank == size - 1), n = (int64_t)PER_RANK * size + 1, first = (int64_t)PER_RANK * rank;
    int64_t row_ptr[PER_RANK + 2] = {0}, col[3 * PER_RANK + 3], numbers[PER_RANK + 1], entries = 0;
    double values[3 * PER_RANK + 3], b[PER_RANK + 1], x[PER_RANK + 1];
    for (int64_t i = 0; i < own; i++) {
        for (int64_t j = first + i - 1; j <= first + i + 1; j++) {
            if (j < 0 || j >= n) continue;
            col[entries] = j;
            values[entries++] = j == first + i ? 2.0 : -1.0;
        }
        row_ptr[i + 1] = entries;
        numbers[i] = first + i;
        b[i] = 1.0;
    }
#if MPI_VERSION >= 5
    const int comm = MPI_Comm_toint(MPI_COMM_WORLD);
#else
    const int comm = MPI_Comm_c2f(MPI_COMM_WORLD);
#endif
    /* Scalar rows, and blocks with and without row numbers; indices count from 0 or from 1. */
    for (int way = 0; way < 6; way++) {
        krylith_problem *problem = NULL;
        krylith_solver *solver = NULL;
        krylith_solution solution;
        const int base = way / 3;
        int64_t p[PER_RANK + 2], j[3 * PER_RANK + 3], of[PER_RANK + 1];
        for (int64_t i = 0; i <= own; i++) p[i] = row_ptr[i] + base;
        for (int64_t i = 0; i < own; i++) of[i] = numbers[i] + base;
        for (int64_t e = 0; e < entries; e++) j[e] = col[e] + base;
        EXPECT((way % 3 == 0 ? krylith_problem_distributed_csr(comm, own, n, entries, p, j, values, 0, &problem)
                             : krylith_problem_distributed_bsr(comm, 1, own, entries, way % 3 == 1 ? of : NULL, p, j, values,
                                                               &problem)) == KRYLITH_OK);
        EXPECT(krylith_problem_unknowns(problem) == own);
        EXPECT(krylith_solver_new(problem, "rtol=1e-12 device=cpu threads=1", &solver) == KRYLITH_OK);
        /* New values have the given order, although columns of other ranks are stored last in a row. */
        for (int twice = 1; twice <= 2; twice++) {
            double scaled[3 * PER_RANK + 3];
            for (int64_t e = 0; e < entries; e++) scaled[e] = twice * values[e];
            if (twice == 2) EXPECT(krylith_solver_update_values(solver, 0, entries, scaled, NULL) == KRYLITH_OK);
            memset(x, 0, sizeof x);
            EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK && solution.outcome == KRYLITH_CONVERGED);
            for (int64_t i = 0; i < own; i++) {
                const double exact = (first + i + 1.0) * (n - first - i) / 2.0 / twice;
                EXPECT(fabs(x[i] - exact) < 1e-6 * n * n);
            }
        }
        /* A new value that is not finite on one rank is an error on all ranks, and changes nothing. */
        double wrong[3 * PER_RANK + 3];
        for (int64_t e = 0; e < entries; e++) wrong[e] = rank == size - 1 && e == 4 ? NAN : values[e];
        REFUSED(krylith_solver_update_values(solver, 0, entries, wrong, NULL), KRYLITH_INVALID, "must be finite");
        krylith_solver_free(solver), krylith_problem_free(problem);
    }
    /* A wrong argument on one rank is an error on all ranks. */
    krylith_problem *none = NULL;
    REFUSED(krylith_problem_distributed_csr(comm, own, n + 1, entries, row_ptr, col, values, 0, &none), KRYLITH_INVALID,
            "all ranks together have");
    col[1] = rank == 0 ? -5 : col[1];
    REFUSED(krylith_problem_distributed_bsr(comm, 1, own, entries, NULL, row_ptr, col, values, &none), KRYLITH_INVALID, "-5");
    REFUSED(krylith_problem_distributed_csr(comm, own, n, entries, row_ptr, col, values, 0, &none), KRYLITH_INVALID, "-5");
    EXPECT(none == NULL);
    if (rank == 0) printf("rows of %d ranks\n", size);
    return MPI_Finalize();
}
