/* Rows of MPI ranks, by the names of communicators that C and Fortran share; the answer is known. */
#include "check.h"
#include <math.h>
#include <mpi.h>

enum { PER_RANK = 40 };

int main(int argc, char **argv) {
    int provided, rank, size;
    EXPECT(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS && provided >= MPI_THREAD_SERIALIZED);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The last rank has a row more than the others. */
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
    /* With numbers of the rows, and without. */
    for (int named = 0; named < 2; named++) {
        krylith_problem *problem = NULL;
        krylith_solver *solver = NULL;
        krylith_solution solution;
        EXPECT(krylith_problem_distributed(MPI_Comm_c2f(MPI_COMM_WORLD), 1, own, entries, named ? numbers : NULL, row_ptr, col, values,
                                           &problem) == KRYLITH_OK);
        EXPECT(krylith_problem_unknowns(problem) == own);
        EXPECT(krylith_solver_new(problem, "rtol=1e-12 device=cpu threads=1", &solver) == KRYLITH_OK);
        memset(x, 0, sizeof x);
        EXPECT(krylith_solver_solve(solver, b, x, NULL, &solution) == KRYLITH_OK && solution.outcome == KRYLITH_CONVERGED);
        for (int64_t i = 0; i < own; i++) {
            const double exact = (first + i + 1.0) * (n - first - i) / 2.0;
            EXPECT(fabs(x[i] - exact) < 1e-6 * n * n);
        }
        krylith_solver_free(solver), krylith_problem_free(problem);
    }
    /* What is wrong on one rank is an error of all. */
    krylith_problem *none = NULL;
    col[1] = rank == 0 ? -5 : col[1];
    krylith_status status =
        krylith_problem_distributed(MPI_Comm_c2f(MPI_COMM_WORLD), 1, own, entries, NULL, row_ptr, col, values, &none);
    EXPECT(status == KRYLITH_INVALID && none == NULL && strstr(krylith_last_error(), "-5") != NULL);
    if (rank == 0) printf("rows of %d ranks\n", size);
    return MPI_Finalize();
}
