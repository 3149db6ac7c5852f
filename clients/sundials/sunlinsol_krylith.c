/* Krylith as a SUNLinearSolver: the object and its operations. */
#include "internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tolerance of ‖b − A x‖/‖b‖ if neither SUNDIALS nor the options give one, as of a direct solver. */
#define DIRECT_RTOL " rtol=1e-12"
/* How often a solve goes on for the weighted residual. */
#define ROUNDS 10

static KrylithContent *content(SUNLinearSolver S) {
  return (KrylithContent *)S->content;
}

/* Keeps the flag of a call, and the reason if it is an error. */
static int finish(KrylithContent *c, int flag) {
  c->last_flag = flag;
  if (!flag)
    c->error[0] = 0;
  else
    snprintf(c->error, sizeof(c->error), "%s", krylith_last_error());
  return flag;
}

/* --- operators --- */

/* Keeps what a function of SUNDIALS returned: a positive number is an error that it can recover from. */
static int32_t called(KrylithContent *c, int code, int recoverable, int other) {
  if (code)
    c->failed = code > 0 ? recoverable : other;
  return code;
}

/* Returns 0 if vectors are on the host, where functions of SUNDIALS want them. */
static int on_gpu(KrylithContent *c, const krylith_memory *memory) {
  if (memory)
    c->failed = KRYLITH_SUN_INVALID;
  return memory != NULL;
}

/* y ← S1 A S2⁻¹ x */
static int32_t apply_a(void *user, int64_t n, const double *x, double *y, int32_t transposed,
                       const krylith_memory *memory) {
  KrylithContent *c = user;
  const double *s1 = array(c->s1), *s2 = array(c->s2);
  double *in = array(c->in), *out = array(c->out);

  (void)transposed; /* has_transpose is 0 */
  if (on_gpu(c, memory))
    return 1;
  int zero = 1, code = 0;

  for (int64_t i = 0; i < n; i++) {
    in[i] = x[i] / weight(s2, i);
    zero &= x[i] == 0;
  }
  if (zero) /* difference quotients of integrators divide by ‖x‖ */
    N_VConst(0.0, c->out);
  else
    code = c->atimes(c->atimes_data, c->in, c->out);
  for (int64_t i = 0; i < n; i++)
    y[i] = weight(s1, i) * out[i];
  return called(c, code, SUNLS_ATIMES_FAIL_REC, SUNLS_ATIMES_FAIL_UNREC);
}

/* y ← S2 P⁻¹ S1⁻¹ x */
static int32_t apply_p(void *user, int64_t n, const double *x, double *y, int32_t transposed,
                       const krylith_memory *memory) {
  KrylithContent *c = user;
  const double *s1 = array(c->s1), *s2 = array(c->s2);
  double *in = array(c->in), *out = array(c->out);

  (void)transposed;
  if (on_gpu(c, memory))
    return 1;
  for (int64_t i = 0; i < n; i++)
    in[i] = x[i] / weight(s1, i);
  int code = c->psolve(c->p_data, c->in, c->out, c->tol, SUN_PREC_RIGHT);

  for (int64_t i = 0; i < n; i++)
    y[i] = weight(s2, i) * out[i];
  return called(c, code, SUNLS_PSOLVE_FAIL_REC, SUNLS_PSOLVE_FAIL_UNREC);
}

static int set_operators(KrylithContent *c) {
  const krylith_operator a = {.apply = apply_a, .user = c}, p = {.apply = apply_p, .user = c};
  krylith_status status = KRYLITH_OK;

  if (!c->atimes) {
    KrylithReject("the solver has neither a matrix nor products; call SUNLinSolSetATimes first");
    return SUNLS_ATIMES_NULL;
  }
  if (!c->solver) {
    status = krylith_solver_without_matrix(c->n, c->options, &c->solver);
    c->setups += status ? 0 : 1;
  }
  if (!status && !c->operators_set)
    status = krylith_solver_set_operators(c->solver, &a, c->psolve ? &p : NULL);
  c->operators_set = !status;
  return flag_of(status);
}

/* --- solves --- */

/* ‖S v‖, without overflow; no weights means 1. */
static double norm(int64_t n, const double *weights, const double *v) {
  double sum = 0, largest = 0;

  for (int64_t i = 0; i < n; i++)
    largest = isfinite(v[i]) ? fmax(largest, weight(weights, i) * fabs(v[i])) : INFINITY;
  if (largest == 0 || !isfinite(largest))
    return largest;
  for (int64_t i = 0; i < n; i++) {
    const double part = weight(weights, i) * v[i] / largest;

    sum += part * part;
  }
  return largest * sqrt(sum);
}

/* Puts S1 (b − A x) into the vector that SUNLinSolResid returns; b and x are scaled if A is. */
static int keep_residual(KrylithContent *c, const double *b, const double *x) {
  const double *s1 = c->matrix_free ? NULL : array(c->s1); /* the product is scaled already */
  double *r = array(c->resid);
  int flag;

  if (c->matrix_free)
    flag = apply_a(c, c->n, x, r, 0, NULL) ? c->failed : 0;
  else
    flag = flag_of(krylith_solver_multiply(c->solver, x, r, NULL));
  for (int64_t i = 0; i < c->n; i++)
    r[i] = weight(s1, i) * (b[i] - r[i]);
  return flag;
}

/* Returns the flag of an outcome; the reason becomes that of krylith_last_error(). */
static int flag_of_outcome(const KrylithContent *c) {
  const krylith_outcome outcome = c->solution.outcome;

  if (outcome == KRYLITH_CONVERGED || outcome == KRYLITH_ROUNDING_LIMIT) /* as accurate as a direct solve */
    return 0;
  KrylithReject("%s", krylith_solver_advice(c->solver));
  if (outcome == KRYLITH_NOT_FINITE)
    return SUNLS_PACKAGE_FAIL_REC;
  if (outcome == KRYLITH_BREAKDOWN || outcome == KRYLITH_INCONSISTENT)
    return SUNLS_LUFACT_FAIL; /* the matrix is singular */
  return SUNLS_CONV_FAIL;
}

/* Solves until ‖b − A x‖ is at most atol, or with the tolerance of the options if that is 0. */
static int solve_once(KrylithContent *c, const double *b, double *x, double atol) {
  krylith_status status = atol > 0 ? krylith_solver_set_tolerance(c->solver, 0, atol, -1)
                                   : krylith_solver_set_tolerance(c->solver, -1, -1, -1);

  if (!status)
    status = krylith_solver_solve(c->solver, b, x, NULL, &c->solution);
  if (status == KRYLITH_CALLBACK && c->failed)
    return c->failed;
  if (status)
    return flag_of(status);
  c->iterations += (int)c->solution.iterations;
  return flag_of_outcome(c);
}

/* Solves until ‖S1 (b − A x)‖ is at most tol. Without S1, b and x are scaled. Krylith solves the system as
 * it is, since a preconditioner of S1 A may be worse: it begins with the reduction that b needs, and goes
 * on from x if the residual has other shares than b. */
static int solve_weighted(KrylithContent *c, const double *s1, const double *b, double *x, double tol) {
  const double of_b = norm(c->n, NULL, b), weighted = norm(c->n, s1, b);
  double most = 0, atol = 0;

  for (int64_t i = 0; i < c->n; i++) {
    if (!(weight(s1, i) > 0) || !isfinite(weight(s1, i)))
      return KrylithReject("number %lld of a scaling vector is not positive; weights are", (long long)i);
    most = fmax(most, weight(s1, i));
  }
  if (!isfinite(of_b)) {
    KrylithReject("the right-hand side has a NaN or an infinity");
    return SUNLS_PACKAGE_FAIL_REC;
  }
  /* If no iteration is necessary, IDA takes the residual for the correction. So one always is. */
  if (tol > 0 && of_b > 0)
    atol = fmin(of_b / weighted * tol, 0.9 * of_b);
  for (int round = 0;; round++) {
    int flag = solve_once(c, b, x, atol);

    if (flag && flag != SUNLS_CONV_FAIL)
      return flag;
    const double residual = c->solution.true_residual * of_b;

    c->resnorm = residual * most;
    if (c->resnorm <= tol && c->iterations > 0)
      return 0;
    if (keep_residual(c, b, x))
      return KRYLITH_SUN_FAILED;
    c->resnorm = norm(c->n, NULL, array(c->resid));
    if (flag)
      return c->resnorm < weighted ? SUNLS_RES_REDUCED : flag;
    if (atol == 0 || c->resnorm <= tol || c->solution.outcome == KRYLITH_ROUNDING_LIMIT)
      return 0;
    if (round == ROUNDS) {
      KrylithReject("the weighted residual is %.2e after %d solves; the tolerance is %.2e", c->resnorm,
                    round + 1, tol);
      return SUNLS_RES_REDUCED;
    }
    atol = 0.5 * residual * tol / c->resnorm;
  }
}

/* Solves S1 A S2⁻¹ (S2 x) = S1 b by the products of SUNDIALS. */
static int solve_products(KrylithContent *c, const double *b, double *x, double tol) {
  const double *s1 = array(c->s1), *s2 = array(c->s2);
  int flag = set_operators(c);

  if (flag)
    return flag;
  c->tol = tol;
  for (int64_t i = 0; i < c->n; i++) {
    c->b[i] = weight(s1, i) * b[i];
    c->x[i] = weight(s2, i) * x[i];
  }
  flag = solve_weighted(c, NULL, c->b, c->x, tol);
  for (int64_t i = 0; i < c->n; i++)
    x[i] = c->x[i] / weight(s2, i);
  return flag;
}

static int solve(KrylithContent *c, N_Vector x, N_Vector b, double tol) {
  if (c->matrix_free)
    return solve_products(c, array(b), array(x), tol);
  if (!c->ready)
    return KrylithReject("SUNLinSolSolve needs a SUNLinSolSetup that succeeded");
  return solve_weighted(c, array(c->s1), array(b), array(x), tol);
}

/* --- operations --- */

static SUNLinearSolver_Type get_type(SUNLinearSolver S) {
  return content(S)->matrix_free ? SUNLINEARSOLVER_ITERATIVE : SUNLINEARSOLVER_MATRIX_ITERATIVE;
}

static SUNLinearSolver_ID get_id(SUNLinearSolver S) {
  (void)S;
  return SUNLINEARSOLVER_CUSTOM;
}

static int set_atimes(SUNLinearSolver S, void *data, SUNATimesFn atimes) {
  content(S)->atimes = atimes;
  content(S)->atimes_data = data;
  content(S)->operators_set = 0;
  return finish(content(S), 0);
}

static int set_preconditioner(SUNLinearSolver S, void *data, SUNPSetupFn psetup, SUNPSolveFn psolve) {
  content(S)->psetup = psetup;
  content(S)->psolve = psolve;
  content(S)->p_data = data;
  content(S)->operators_set = 0;
  return finish(content(S), 0);
}

static int set_scaling_vectors(SUNLinearSolver S, N_Vector s1, N_Vector s2) {
  content(S)->s1 = s1;
  content(S)->s2 = s2;
  return finish(content(S), 0);
}

static int initialize(SUNLinearSolver S) {
  return finish(content(S), 0);
}

static int set_up(SUNLinearSolver S, SUNMatrix A) {
  KrylithContent *c = content(S);

  if (!c->matrix_free)
    return finish(c, KrylithSetUpMatrix(c, A));
  int code = c->psetup ? c->psetup(c->p_data) : 0;

  if (!code)
    return finish(c, 0);
  KrylithReject("the set-up function of the preconditioner returned %d", code);
  return finish(c, code > 0 ? SUNLS_PSET_FAIL_REC : SUNLS_PSET_FAIL_UNREC);
}

static int solve_system(SUNLinearSolver S, SUNMatrix A, N_Vector x, N_Vector b, sunrealtype tol) {
  KrylithContent *c = content(S);

  (void)A; /* SUNLinSolSetup took it */
  c->iterations = c->failed = 0;
  c->resnorm = 0;
  N_VConst(0.0, c->resid);
  int flag = solve(c, x, b, tol);

  finish(c, flag);
  if (c->failed == KRYLITH_SUN_INVALID) /* its reason is that of another thread */
    snprintf(c->error, sizeof(c->error), "functions of SUNDIALS need vectors on the host; use device=cpu");
  return flag;
}

static int num_iters(SUNLinearSolver S) {
  return content(S)->iterations;
}

static sunrealtype res_norm(SUNLinearSolver S) {
  return content(S)->resnorm;
}

static N_Vector residual(SUNLinearSolver S) {
  return content(S)->resid;
}

static sunindextype last_flag(SUNLinearSolver S) {
  return content(S)->last_flag;
}

/* Returns the numbers that this file holds; those of Krylith are not known. */
static int space(SUNLinearSolver S, long int *reals, long int *integers) {
  const KrylithContent *c = content(S);

  *reals = (long int)(c->rows.entries + c->n * (c->matrix_free ? 5 : 1));
  *integers = (long int)(2 * c->rows.entries + (c->rows.row_ptr ? c->n + 1 : 0));
  return 0;
}

static int free_solver(SUNLinearSolver S) {
  KrylithContent *c = S ? content(S) : NULL;

  if (c) {
    N_Vector vectors[] = {c->in, c->out, c->resid};

    krylith_solver_free(c->solver);
    KrylithRowsFree(&c->rows);
    free(c->b);
    free(c->x);
    for (size_t k = 0; k < sizeof(vectors) / sizeof(*vectors); k++)
      if (vectors[k])
        N_VDestroy(vectors[k]);
    free(c->options);
    free(c);
    S->content = NULL;
  }
  SUNLinSolFreeEmpty(S);
  return 0;
}

/* --- construction --- */

/* Returns false, with a reason, if vectors or the matrix do not suit. */
static int suits(N_Vector y, SUNMatrix A) {
  const N_Vector_ID id = y ? N_VGetVectorID(y) : SUNDIALS_NVEC_CUSTOM;

  if (id != SUNDIALS_NVEC_SERIAL && id != SUNDIALS_NVEC_OPENMP && id != SUNDIALS_NVEC_PTHREADS)
    KrylithReject("SUNLinSol_Krylith takes serial, OpenMP and Pthreads vectors of one process; "
                  "for vectors over ranks use PETSc's vectors and Krylith's types for PETSc");
  else if (A && SUNMatGetID(A) != SUNMATRIX_SPARSE)
    KrylithReject("SUNLinSol_Krylith takes a SUNSparseMatrix; make one of a dense or banded matrix with "
                  "SUNSparseFromDenseMatrix or SUNSparseFromBandMatrix");
  else if (A && (SM_ROWS_S(A) != N_VGetLength(y) || SM_COLUMNS_S(A) != N_VGetLength(y)))
    KrylithReject("the matrix has %lld rows and %lld columns; the vectors have %lld numbers",
                  (long long)SM_ROWS_S(A), (long long)SM_COLUMNS_S(A), (long long)N_VGetLength(y));
  else
    return 1;
  return 0;
}

/* Copies the options with the default of `rtol`; NULL, with a reason, if they are wrong. */
static char *checked_options(const char *options) {
  const char *given = options ? options : "", *criterion = " criterion=residual";
  char *text = malloc(strlen(given) + strlen(criterion) + 1);

  if (!text) {
    KrylithReject("not enough memory for the options");
    return NULL;
  }
  strcpy(text, given);
  if (krylith_check_options(text)) {
    free(text);
    return NULL;
  }
  strcat(text, criterion);
  if (krylith_check_options(text)) { /* it is given twice */
    KrylithReject("SUNDIALS has a criterion of its own; leave out `criterion`");
    free(text);
    return NULL;
  }
  strcpy(text + strlen(given), DIRECT_RTOL);
  if (krylith_check_options(text))
    text[strlen(given)] = 0;
  return text;
}

static void set_operations(SUNLinearSolver_Ops ops, int matrix_free) {
  ops->gettype = get_type;
  ops->getid = get_id;
  ops->setatimes = matrix_free ? set_atimes : NULL;
  ops->setpreconditioner = matrix_free ? set_preconditioner : NULL;
  ops->setscalingvectors = set_scaling_vectors;
  ops->initialize = initialize;
  ops->setup = set_up;
  ops->solve = solve_system;
  ops->numiters = num_iters;
  ops->resnorm = res_norm;
  ops->resid = residual;
  ops->lastflag = last_flag;
  ops->space = space;
  ops->free = free_solver;
}

SUNLinearSolver SUNLinSol_Krylith(N_Vector y, SUNMatrix A, const char *options, SUNContext sunctx) {
  char *text = suits(y, A) ? checked_options(options) : NULL;

  if (!text)
    return NULL;
  SUNLinearSolver S = SUNLinSolNewEmpty(sunctx);
  KrylithContent *c = calloc(1, sizeof(*c));
  int made = S && c;

  if (made) {
    c->options = text;
    c->n = N_VGetLength(y);
    c->matrix_free = A == NULL;
    c->resid = N_VClone(y);
    S->content = c;
    set_operations(S->ops, c->matrix_free);
    made = c->resid != NULL;
  }
  if (made && c->matrix_free) {
    c->in = N_VClone(y);
    c->out = N_VClone(y);
    c->b = malloc(((size_t)c->n + 1) * sizeof(double));
    c->x = malloc(((size_t)c->n + 1) * sizeof(double));
    made = c->in && c->out && c->b && c->x;
  }
  if (made)
    return S;
  KrylithReject("SUNDIALS could not make the solver; check the SUNContext and the free memory");
  if (S && S->content) {
    free_solver(S);
  } else {
    if (S)
      SUNLinSolFreeEmpty(S);
    free(c);
    free(text);
  }
  return NULL;
}

int SUNLinSol_KrylithSetBlock(SUNLinearSolver S, int block) {
  if (block < 0 || block > 8)
    return finish(content(S),
                  KrylithReject("a block has %d unknowns; 1 to 8 are possible, and 0 finds it", block));
  content(S)->block = block;
  return finish(content(S), 0);
}

int SUNLinSol_KrylithSetDescribe(SUNLinearSolver S, SUNLinSol_KrylithDescribe describe, void *user) {
  content(S)->describe = describe;
  content(S)->describe_user = user;
  return finish(content(S), 0);
}

int SUNLinSol_KrylithSetRefresh(SUNLinearSolver S, const char *refresh) {
  static const char *const words[] = {"keep", "refresh", "rebuild"};
  KrylithContent *c = content(S);

  for (int k = 0; k < 3; k++)
    if (refresh && strcmp(refresh, words[k]) == 0) {
      c->refresh = words[k];
      return finish(c, c->solver ? flag_of(krylith_solver_set_refresh(c->solver, words[k])) : 0);
    }
  return finish(
      c, KrylithReject("`%s` is no refresh; use keep, refresh or rebuild", refresh ? refresh : "NULL"));
}

const char *SUNLinSol_KrylithError(SUNLinearSolver S) {
  return content(S)->error;
}

const krylith_solution *SUNLinSol_KrylithSolution(SUNLinearSolver S) {
  return &content(S)->solution;
}

krylith_solver *SUNLinSol_KrylithSolver(SUNLinearSolver S) {
  return content(S)->solver;
}

int SUNLinSol_KrylithCounts(SUNLinearSolver S, long int *setups, long int *updates) {
  *setups = content(S)->setups;
  *updates = content(S)->updates;
  return 0;
}
