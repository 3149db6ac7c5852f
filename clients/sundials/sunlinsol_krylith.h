/* sunlinsol_krylith.h: Krylith as a SUNLinearSolver of SUNDIALS.
 *
 *     SUNLinearSolver LS = SUNLinSol_Krylith(y, A, "method=gmres precond=ildu", ctx);
 *     CVodeSetLinearSolver(cvode_mem, LS, A);
 *
 * With a SUNSparseMatrix its type is SUNLINEARSOLVER_MATRIX_ITERATIVE. New values of the same pattern
 * refresh the set-up. Without a matrix its type is SUNLINEARSOLVER_ITERATIVE, and it uses the products and
 * the preconditioner of the integrator. */
#ifndef SUNLINSOL_KRYLITH_H
#define SUNLINSOL_KRYLITH_H

#include <krylith.h>
#include <sundials/sundials_linearsolver.h>
#include <sunmatrix/sunmatrix_sparse.h>

#if !defined(SUNDIALS_DOUBLE_PRECISION)
  #error "sunlinsol_krylith needs a SUNDIALS of double precision (-DSUNDIALS_PRECISION=double)"
#endif
#if SUNDIALS_VERSION_MAJOR < 6
  #error "sunlinsol_krylith needs SUNDIALS 6.4 or later"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A function that describes the system of a new pattern, such as its coordinates or fields. It returns the
 * status of the call of Krylith that fails, or KRYLITH_OK. */
typedef krylith_status (*SUNLinSol_KrylithDescribe)(void *user, krylith_problem *problem);

/* Returns a solver for vectors like y. A is a square SUNSparseMatrix in CSR or CSC format, or NULL.
 * `options` is the text of krylith_solver_new; NULL means the defaults. After an error it returns NULL, and
 * krylith_last_error() has the reason. */
SUNDIALS_EXPORT SUNLinearSolver SUNLinSol_Krylith(N_Vector y, SUNMatrix A, const char *options,
                                                  SUNContext sunctx);

/* Sets the number of unknowns of a node, 1 to 8, for the next new pattern. By default it is found in the
 * pattern. */
SUNDIALS_EXPORT int SUNLinSol_KrylithSetBlock(SUNLinearSolver S, int block);

/* Sets the function that describes the system, for the next new pattern. */
SUNDIALS_EXPORT int SUNLinSol_KrylithSetDescribe(SUNLinearSolver S, SUNLinSol_KrylithDescribe describe,
                                                 void *user);

/* Sets what new values do to the preconditioner: "keep", "refresh" (the default) or "rebuild". */
SUNDIALS_EXPORT int SUNLinSol_KrylithSetRefresh(SUNLinearSolver S, const char *refresh);

/* Returns the reason why the last call failed; the text is empty if it succeeded. */
SUNDIALS_EXPORT const char *SUNLinSol_KrylithError(SUNLinearSolver S);

/* Returns the result of the last solve, in norms without weights; of products in norms with weights. */
SUNDIALS_EXPORT const krylith_solution *SUNLinSol_KrylithSolution(SUNLinearSolver S);

/* Returns the solver of Krylith; NULL before the first set-up. The next new pattern replaces it. */
SUNDIALS_EXPORT krylith_solver *SUNLinSol_KrylithSolver(SUNLinearSolver S);

/* Returns the number of set-ups for new patterns, and of updates of values. */
SUNDIALS_EXPORT int SUNLinSol_KrylithCounts(SUNLinearSolver S, long int *setups, long int *updates);

#ifdef __cplusplus
}
#endif
#endif
