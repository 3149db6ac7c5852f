/* krylith.h: solve sparse point-block systems on CPUs and GPUs.
 *
 * A problem is a matrix, or a sum of two; a solver is a problem on a device; both are handles, made and freed by functions.
 * Every function that can fail returns a krylith_status, and krylith_last_error() says why, in the thread that called. A solve that does not
 * converge is no failure: see the outcome in krylith_solution.
 *
 * Arrays are the caller's and are used during the call alone. All are on the host, or, where a call takes a krylith_memory, on a GPU.
 * Functions may be called from any thread.
 *
 *     krylith_problem *problem;
 *     krylith_solution solution;
 *     if (krylith_problem_csr(rows, entries, row_ptr, col, values, 0, NULL, &problem) != KRYLITH_OK ||
 *         krylith_solve(problem, "rtol=1e-8", b, x, NULL, &solution) != KRYLITH_OK)
 *         fprintf(stderr, "%s\n", krylith_last_error());
 *     krylith_problem_free(problem);
 *
 * Made by cbindgen of crates/krylith-c/src. */


#ifndef KRYLITH_H
#define KRYLITH_H

#include <stdint.h>

#define KRYLITH_VERSION "0.1.0"
#define KRYLITH_VERSION_MAJOR 0
#define KRYLITH_VERSION_MINOR 1
#define KRYLITH_VERSION_PATCH 0

/// How a call ended. A solve that did not converge has ended well: its outcome says so.
typedef enum {
    /// Done.
    KRYLITH_OK = 0,
    /// An argument, an option or a matrix is wrong; the caller can mend it.
    KRYLITH_INVALID = 1,
    /// A device, a library or another rank is missing or has failed.
    KRYLITH_DEVICE = 2,
    /// Not enough memory on the host or a GPU.
    KRYLITH_MEMORY = 3,
    /// A function of the caller said that it failed.
    KRYLITH_CALLBACK = 4,
    /// A fault of Krylith's own; please report it.
    KRYLITH_INTERNAL = 5,
    /// krylith_solver_cancel ended new values, or a set-up before the first iteration.
    KRYLITH_CANCELLED = 6,
} krylith_status;

/// How a solve ended.
typedef enum {
    /// The true residual satisfies the tolerance.
    KRYLITH_CONVERGED = 0,
    /// The limit of iterations came first.
    KRYLITH_MAX_ITERATIONS = 1,
    /// The method cannot go on: the matrix is singular for this right-hand side.
    KRYLITH_BREAKDOWN = 2,
    /// No progress any more.
    KRYLITH_STAGNATED = 3,
    /// The tolerance lies below what rounding makes of the residual, and x is as good as a direct solve's.
    KRYLITH_ROUNDING_LIMIT = 4,
    /// No x satisfies the tolerance; x is the least-squares answer.
    KRYLITH_INCONSISTENT = 5,
    /// The residual grew far past its start.
    KRYLITH_DIVERGED = 6,
    /// A NaN or an infinity appeared.
    KRYLITH_NOT_FINITE = 7,
    /// The solve was cancelled, or its monitor asked to stop; x is the best so far.
    KRYLITH_INTERRUPTED = 8,
} krylith_outcome;

/// A system without its right-hand side: a matrix or a sum of two, and what is known beside the numbers.
typedef struct krylith_problem krylith_problem;

/// A problem on its device, ready to be solved many times. Threads that use the same one take turns.
typedef struct krylith_solver krylith_solver;

/// Where the arrays of a call lie. In its place a null pointer means host memory.
///
/// Nothing needs to be synchronised by hand: the library's work comes after what the stream holds at the time
/// of the call, and what is put into the stream afterwards comes after the library's.
typedef struct {
    /// The GPU, as CUDA counts them from 0; -1 means host memory.
    int32_t gpu;
    /// The CUDA stream (cudaStream_t or CUstream) in which the caller works; null is the default stream.
    void *stream;
} krylith_memory;

/// How a solve went.
typedef struct {
    /// How it ended.
    krylith_outcome outcome;
    /// Iterations of all attempts.
    int64_t iterations;
    /// How often the method began anew from the true residual.
    int64_t restarts;
    /// ‖b − A x‖ / ‖b‖, computed anew from x.
    double true_residual;
    /// What it was to be.
    double target;
    /// Seconds of set-up since the solve before.
    double setup_seconds;
    /// Seconds of iterating.
    double solve_seconds;
} krylith_solution;

/// Is told of iterations and relative residuals. Returns 0 to go on; any other number ends the solve, whose
/// outcome is then KRYLITH_INTERRUPTED.
typedef int32_t (*krylith_monitor)(void *user, int64_t iteration, double relative_residual);

/// y ← A x, or y ← P⁻¹ x: fills the n numbers of y. Returns 0; any other number ends the solve with
/// KRYLITH_CALLBACK.
typedef int32_t (*krylith_function)(void *user, int64_t n, const double *x, double *y);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/// Why the last call of this thread that failed did. Never null; stays as it is until another call of this
/// thread fails.
const char *krylith_last_error(void);

/// The version of the library, such as "0.1.0"; that of the header is KRYLITH_VERSION.
const char *krylith_version(void);

/// A scalar matrix by rows: `row_ptr` has rows + 1 offsets into `col` and `values`, which have `entries`
/// numbers; columns ascend in each row. Where row_ptr[0] is 1, rows and columns count from 1, as in Fortran.
/// The arrays are copied.
///
/// `block` is how many unknowns a node has, which follow one another: blocks make products and preconditioners
/// faster. 1 keeps a scalar matrix, and 0 takes what suits the pattern. New values come in the order given here
/// either way.
krylith_status krylith_problem_csr(int64_t rows,
                                   int64_t entries,
                                   const int32_t *row_ptr,
                                   const int32_t *col,
                                   const double *values,
                                   int32_t block,
                                   const krylith_memory *memory,
                                   krylith_problem **problem);

/// As krylith_problem_csr, with indices of 64 bits.
krylith_status krylith_problem_csr64(int64_t rows,
                                     int64_t entries,
                                     const int64_t *row_ptr,
                                     const int64_t *col,
                                     const double *values,
                                     int32_t block,
                                     const krylith_memory *memory,
                                     krylith_problem **problem);

/// As krylith_problem_csr, with row pointers of 64 bits and columns of 32.
krylith_status krylith_problem_csr64_32(int64_t rows,
                                        int64_t entries,
                                        const int64_t *row_ptr,
                                        const int32_t *col,
                                        const double *values,
                                        int32_t block,
                                        const krylith_memory *memory,
                                        krylith_problem **problem);

/// A matrix of square blocks: `row_ptr` has block_rows + 1 offsets into `col`, which has `blocks` block
/// columns, ascending in each block row; `values` has block × block numbers for each, row by row. Row pointers
/// may count from 1. The arrays are copied.
krylith_status krylith_problem_bsr(int32_t block,
                                   int64_t block_rows,
                                   int64_t blocks,
                                   const int32_t *row_ptr,
                                   const int32_t *col,
                                   const double *values,
                                   const krylith_memory *memory,
                                   krylith_problem **problem);

/// As krylith_problem_bsr, with indices of 64 bits.
krylith_status krylith_problem_bsr64(int32_t block,
                                     int64_t block_rows,
                                     int64_t blocks,
                                     const int64_t *row_ptr,
                                     const int64_t *col,
                                     const double *values,
                                     const krylith_memory *memory,
                                     krylith_problem **problem);

/// A⊗M + τB⊗L, as space-time methods make it: A and B are dense, stages × stages, row by row on the host; M and
/// L are problems of one matrix each, with the same blocks; new values of either come in the order in which its
/// own problem was given. Component c at node i of stage k is number (i·block
/// + c)·stages + k of a vector.
krylith_status krylith_problem_kronecker(int32_t stages,
                                         const double *a,
                                         const double *b,
                                         double tau,
                                         const krylith_problem *m,
                                         const krylith_problem *l,
                                         krylith_problem **problem);

/// The rows that this rank of a parallel program holds, of a scalar matrix whose rows the ranks hold in runs, one
/// after the other; columns are those of the whole matrix. Collective. Vectors of a solver are then this rank's
/// rows.
///
/// `comm` is the communicator's Fortran handle, by MPI_Comm_c2f in C (or MPI_Comm_toint of MPI 5); MPI must have been started
/// with MPI_THREAD_SERIALIZED at least. `columns` is the order of the whole matrix. `block` is as for
/// krylith_problem_csr, and divides the rows of each rank. Any Open MPI, MPICH or library with the standard ABI will do.
krylith_status krylith_problem_distributed_csr(int32_t comm,
                                               int64_t rows,
                                               int64_t columns,
                                               int64_t entries,
                                               const int64_t *row_ptr,
                                               const int64_t *col,
                                               const double *values,
                                               int32_t block,
                                               krylith_problem **problem);

/// As krylith_problem_distributed_csr, with square blocks as those of krylith_problem_bsr, and rows in any order:
/// `numbers` has the number of each own block row in the whole matrix, and a null pointer means runs of rows.
/// Columns are block columns of the whole matrix, in any order within a row.
krylith_status krylith_problem_distributed_bsr(int32_t comm,
                                               int32_t block,
                                               int64_t block_rows,
                                               int64_t blocks,
                                               const int64_t *numbers,
                                               const int64_t *row_ptr,
                                               const int64_t *col,
                                               const double *values,
                                               krylith_problem **problem);

/// The same system with a point for each node, `dimensions` (2 or 3) numbers each: subdomains are then boxes in
/// space, and rigid modes are known.
krylith_status krylith_problem_set_coordinates(krylith_problem *problem,
                                               int32_t dimensions,
                                               int64_t nodes,
                                               const double *points);

/// The same system on a grid of nodes, numbered with x fastest.
krylith_status krylith_problem_set_grid(krylith_problem *problem, int64_t nx, int64_t ny, int64_t nz);

/// The same system with `count` vectors, one after the other, that the matrix maps to zero: no answer has a
/// component in them. A null pointer means the constants that the matrix maps to zero.
krylith_status krylith_problem_set_null_vectors(krylith_problem *problem,
                                                int32_t count,
                                                const double *vectors);

/// The same system with one to eight vectors, one after the other, that the matrix maps nearly to zero: coarse
/// levels have an unknown for each at every node. A null pointer means the rigid modes of an elastic body, for
/// which coordinates must be known.
krylith_status krylith_problem_set_near_null_vectors(krylith_problem *problem,
                                                     int32_t count,
                                                     const double *vectors);

/// Unknowns that this process holds: the length of its vectors. 0 for a null pointer.
int64_t krylith_problem_unknowns(const krylith_problem *problem);

/// Unknowns of a node. 0 for a null pointer.
int32_t krylith_problem_block(const krylith_problem *problem);

/// Frees a problem; solvers that were made of it live on. A null pointer is fine.
void krylith_problem_free(krylith_problem *problem);

/// An outcome in a word, such as "converged" or "max-iterations". The text is the calling thread's, until it
/// asks for another.
const char *krylith_outcome_name(int32_t outcome);

/// Puts a problem on a device and sets up the first attempt. `options` are key=value words, as in "method=gmres
/// precond=ildu rtol=1e-8 device=cpu"; a null pointer or an empty text leaves everything open. Collective where
/// the problem is distributed.
krylith_status krylith_solver_new(const krylith_problem *problem,
                                  const char *options,
                                  krylith_solver **solver);

/// Solves A x = b from x, and overwrites x with the best solution found. `solution` may be a null pointer.
/// Collective where the problem is distributed.
krylith_status krylith_solver_solve(krylith_solver *solver,
                                    const double *b,
                                    double *x,
                                    const krylith_memory *memory,
                                    krylith_solution *solution);

/// Solves for `columns` right-hand sides, which stand one after the other, as do their solutions. `solutions`
/// has room for as many, or is a null pointer.
krylith_status krylith_solver_solve_columns(krylith_solver *solver,
                                            int32_t columns,
                                            const double *b,
                                            double *x,
                                            const krylith_memory *memory,
                                            krylith_solution *solutions);

/// New values of a term under the same pattern, in the order in which the matrix was given. The term is 0, but
/// for L of A⊗M + τB⊗L, which is 1. The preconditioner is refreshed; krylith_solver_set_refresh changes that.
krylith_status krylith_solver_update_values(krylith_solver *solver,
                                            int32_t term,
                                            int64_t count,
                                            const double *values,
                                            const krylith_memory *memory);

/// A new τ of A⊗M + τB⊗L.
krylith_status krylith_solver_set_tau(krylith_solver *solver, double tau);

/// A new A⊗M + τB⊗L of as many stages, M and L of the patterns that there are: all of it, or nothing where a part is
/// refused. A and B are dense, stages × stages, row by row on the host; `m` and `l` have values as for
/// krylith_solver_update_values.
krylith_status krylith_solver_update_kronecker(krylith_solver *solver,
                                               int32_t stages,
                                               const double *a,
                                               const double *b,
                                               double tau,
                                               int64_t m_count,
                                               const double *m,
                                               int64_t l_count,
                                               const double *l,
                                               const krylith_memory *memory);

/// What becomes of the preconditioner when values change: "keep", "refresh" (as it is at first) or "rebuild".
krylith_status krylith_solver_set_refresh(krylith_solver *solver, const char *refresh);

/// Tolerances and the limit of iterations of solves from now on. A negative number leaves what the options say.
krylith_status krylith_solver_set_tolerance(krylith_solver *solver,
                                            double rtol,
                                            double atol,
                                            int64_t max_iters);

/// A function that solves from now on tell of their progress, or none. It is called on a thread of the solver
/// while the caller waits.
krylith_status krylith_solver_set_monitor(krylith_solver *solver, krylith_monitor monitor, void *user);

/// y ← A x on the device.
krylith_status krylith_solver_multiply(krylith_solver *solver,
                                       const double *x,
                                       double *y,
                                       const krylith_memory *memory);

/// y ← P⁻¹ x by the preconditioner that is set up; a copy where there is none.
krylith_status krylith_solver_precondition(krylith_solver *solver,
                                           const double *x,
                                           double *y,
                                           const krylith_memory *memory);

/// Stops the solve that another thread has under way; its x is the best so far. May be called in a signal
/// handler.
void krylith_solver_cancel(krylith_solver *solver);

/// Relative residuals of the last solve, one an iteration after that of the first guess: `*count` of them, of
/// which as many as there is room for are written to `residuals`.
krylith_status krylith_solver_residuals(const krylith_solver *solver,
                                        int64_t room,
                                        double *residuals,
                                        int64_t *count);

/// The last solve in a table, as the krylith command prints it: system, device, method, outcome, residual,
/// time. The text is the calling thread's, until it asks for another.
const char *krylith_solver_summary(const krylith_solver *solver);

/// Why the last solve did not converge and what to try; empty where it did. The text is the calling thread's,
/// until it asks for another.
const char *krylith_solver_advice(const krylith_solver *solver);

/// Frees a solver and what is on its device. A null pointer is fine.
void krylith_solver_free(krylith_solver *solver);

/// A whole solve: as krylith_solver_new, krylith_solver_solve and krylith_solver_free.
krylith_status krylith_solve(const krylith_problem *problem,
                             const char *options,
                             const double *b,
                             double *x,
                             const krylith_memory *memory,
                             krylith_solution *solution);

/// Solves A x = b from x, where A is a function, and P⁻¹ too unless `p` is a null pointer: for matrices that
/// are nowhere stored. All vectors have n numbers on the host. The functions are called on this thread; where P
/// changes from one application to the next, the method is fgmres. `monitor` may be a null pointer.
///
/// Of the options `method` and its own, `rtol`, `atol`, `max_iters` and `threads` count. A method that is left
/// open is GMRES.
krylith_status krylith_solve_functions(int64_t n,
                                       krylith_function a,
                                       void *a_user,
                                       krylith_function p,
                                       void *p_user,
                                       const double *b,
                                       double *x,
                                       const char *options,
                                       krylith_monitor monitor,
                                       void *monitor_user,
                                       krylith_solution *solution);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KRYLITH_H */
