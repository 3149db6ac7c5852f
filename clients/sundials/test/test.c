/* Tests of SUNLinSol_Krylith: single systems against KLU, refusals, and then integrators. */
#include "cases.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sunlinsol/sunlinsol_klu.h>
#include <sunmatrix/sunmatrix_dense.h>

void test_integrators(SUNContext ctx);

static N_Vector vector(sunindextype n, double start, SUNContext ctx) {
  N_Vector v = N_VNew_Serial(n, ctx);

  for (sunindextype i = 0; i < n; i++)
    N_VGetArrayPointer(v)[i] = start + sin(3.0 * i);
  return v;
}

/* Fills a matrix: I − γJ of the Brusselator. */
static void fill(SUNMatrix A, const Brusselator *p, double gamma, SUNContext ctx) {
  N_Vector y = N_VNew_Serial(brusselator_size(p), ctx);

  brusselator_start(p, y);
  OK(brusselator_jacobian(0, y, NULL, A, (void *)p, NULL, NULL, NULL));
  OK(SUNMatScaleAddI(-gamma, A));
  N_VDestroy(y);
}

static double difference(N_Vector x, N_Vector y) {
  N_Vector d = N_VClone(x);

  N_VLinearSum(1.0, x, -1.0, y, d);
  const double found = N_VMaxNorm(d) / N_VMaxNorm(y);

  N_VDestroy(d);
  return found;
}

static N_Vector by_klu(SUNMatrix A, N_Vector b, SUNContext ctx) {
  SUNLinearSolver S = SUNLinSol_KLU(b, A, ctx);
  N_Vector x = N_VClone(b);

  OK(SUNLinSolInitialize(S));
  OK(SUNLinSolSetup(S, A));
  OK(SUNLinSolSolve(S, A, x, b, 0));
  SUNLinSolFree(S);
  return x;
}

static void solves(SUNMatrix A, SUNLinearSolver S, double tolerance, SUNContext ctx) {
  const sunindextype n = SM_ROWS_S(A);
  N_Vector b = vector(n, 0.5, ctx), x = N_VNew_Serial(n, ctx), exact = by_klu(A, b, ctx);

  N_VConst(0.0, x);
  OK(SUNLinSolSetup(S, A));
  OK(SUNLinSolSolve(S, A, x, b, 0));
  EXPECT(SUNLinSolLastFlag(S) == 0 && SUNLinSolNumIters(S) > 0);
  EXPECT(difference(x, exact) < tolerance);
  N_VDestroy(b);
  N_VDestroy(x);
  N_VDestroy(exact);
}

static void counts(SUNLinearSolver S, long int setups, long int updates) {
  long int found[2];

  OK(SUNLinSol_KrylithCounts(S, &found[0], &found[1]));
  EXPECT(found[0] == setups && found[1] == updates);
}

/* New values refresh the set-up, and a new pattern makes another. */
static void test_matrices(SUNContext ctx) {
  const Brusselator p = {7, 0.02};
  const Bratu q = {6, 2.0};

  for (int format = CSC_MAT; format <= CSR_MAT; format++) {
    SUNMatrix A = brusselator_matrix(&p, format, ctx);
    N_Vector y = N_VNew_Serial(brusselator_size(&p), ctx);

    fill(A, &p, 0.1, ctx);
    SUNLinearSolver S = SUNLinSol_Krylith(y, A, NULL, ctx);

    EXPECT(S && SUNLinSolGetType(S) == SUNLINEARSOLVER_MATRIX_ITERATIVE);
    OK(SUNLinSolInitialize(S));
    solves(A, S, 1e-9, ctx);
    counts(S, 1, 0);
    for (int k = 1; k < 4; k++) {
      fill(A, &p, 0.1 * k, ctx);
      solves(A, S, 1e-9, ctx);
      counts(S, 1, k);
    }
    for (int i = 0; i < 2; i++) { /* one entry less, and then those of another place */
      sunindextype *ptr = SM_INDEXPTRS_S(A), last = ptr[SM_NP_S(A)] - 1;

      EXPECT(SM_INDEXVALS_S(A)[last] == SM_NP_S(A) - 1);
      if (i == 0) {
        for (sunindextype k = last - 1; k < last; k++) {
          SM_INDEXVALS_S(A)[k] = SM_INDEXVALS_S(A)[k + 1];
          SM_DATA_S(A)[k] = SM_DATA_S(A)[k + 1];
        }
        ptr[SM_NP_S(A)]--;
      } else {
        EXPECT(SM_INDEXVALS_S(A)[last - 1] > 0);
        SM_INDEXVALS_S(A)[ptr[SM_NP_S(A) - 1]] -= 2;
      }
      solves(A, S, 1e-9, ctx);
      counts(S, 2 + i, 3);
    }
    long int reals, integers;

    OK(SUNLinSolSpace(S, &reals, &integers));
    EXPECT(reals >= SM_NNZ_S(A) - 1 - 2 * 4 * p.m && integers > reals);
    EXPECT(strcmp(SUNLinSol_KrylithError(S), "") == 0);
    OK(SUNLinSolFree(S));
    SUNMatDestroy(A);
    N_VDestroy(y);

    /* Rows in no order, with the diagonal first. */
    A = bratu_matrix(&q, format, ctx);
    y = vector((sunindextype)q.m * q.m, 0, ctx);
    OK(bratu_jacobian(0, 3.0, y, NULL, NULL, A, (void *)&q, NULL, NULL, NULL));
    S = SUNLinSol_Krylith(y, A, "precond=lu", ctx);
    solves(A, S, 1e-10, ctx);
    OK(bratu_jacobian(0, 30.0, y, NULL, NULL, A, (void *)&q, NULL, NULL, NULL));
    solves(A, S, 1e-10, ctx);
    counts(S, 1, 1);
    OK(SUNLinSolFree(S));
    SUNMatDestroy(A);
    N_VDestroy(y);
  }
}

/* ‖S1 (b − A x)‖, from the entries of a matrix by rows. */
static double weighted_residual(SUNMatrix A, N_Vector x, N_Vector b, N_Vector s1) {
  N_Vector r = N_VClone(b);

  OK(SUNMatMatvec(A, x, r));
  N_VLinearSum(1.0, b, -1.0, r, r);
  N_VProd(r, s1, r);
  const double found = sqrt(N_VDotProd(r, r));

  N_VDestroy(r);
  return found;
}

/* The tolerance is that of the weighted residual, whatever the weights are. */
static void test_tolerance(SUNContext ctx) {
  const Brusselator p = {9, 0.02};
  const sunindextype n = brusselator_size(&p);
  SUNMatrix A = brusselator_matrix(&p, CSR_MAT, ctx);
  N_Vector b = vector(n, 0.5, ctx), x = N_VClone(b), s1 = N_VClone(b), s2 = N_VClone(b);

  fill(A, &p, 0.3, ctx);
  SUNLinearSolver S = SUNLinSol_Krylith(b, A, "method=gmres precond=jacobi", ctx);

  OK(SUNLinSolSetup(S, A));
  for (int spread = 0; spread <= 9; spread += 3)
    for (double reduction = 1e-2; reduction > 1e-7; reduction /= 100) {
      for (sunindextype i = 0; i < n; i++) {
        N_VGetArrayPointer(s1)[i] = pow(10, spread * (i % 2) + 0.5 * sin(i));
        N_VGetArrayPointer(s2)[i] = pow(10, spread * (i % 2));
      }
      OK(SUNLinSolSetScalingVectors(S, s1, s2));
      N_VConst(0.0, x);
      const double tol = reduction * weighted_residual(A, x, b, s1);

      OK(SUNLinSolSolve(S, A, x, b, tol));
      const double found = weighted_residual(A, x, b, s1);

      EXPECT(found <= tol && found <= 1.0001 * SUNLinSolResNorm(S) && SUNLinSolResNorm(S) <= tol);
      if (reduction > 1e-3 && spread == 0) { /* and no more than that is computed */
        EXPECT(found > 1e-4 * tol);
      }
    }
  counts(S, 1, 0);

  /* x is the initial guess: a good one needs no iteration, and then the residual is kept. */
  OK(SUNLinSolSetScalingVectors(S, NULL, NULL));
  OK(SUNLinSolSolve(S, A, x, b, 1e-3));
  EXPECT(SUNLinSolNumIters(S) == 0 && SUNLinSolResid(S) && N_VMaxNorm(SUNLinSolResid(S)) > 0);
  EXPECT(N_VMaxNorm(SUNLinSolResid(S)) <= 1e-3);
  N_VConst(0.0, x);
  N_VConst(0.0, s2);
  OK(SUNLinSolSetScalingVectors(S, NULL, NULL));
  OK(SUNLinSolSolve(S, A, x, s2, 1e-3)); /* b = 0 */
  EXPECT(N_VMaxNorm(x) == 0 && SUNLinSolResNorm(S) == 0);
  OK(SUNLinSolSetScalingVectors(S, s2, NULL));
  EXPECT(SUNLinSolSolve(S, A, x, b, 1e-3) < 0 && strstr(SUNLinSol_KrylithError(S), "is not positive"));
  OK(SUNLinSolFree(S));
  SUNMatDestroy(A);
  N_VDestroy(b);
  N_VDestroy(x);
  N_VDestroy(s1);
  N_VDestroy(s2);
}

static krylith_status describe(void *user, krylith_problem *problem) {
  const Brusselator *p = user;

  return krylith_problem_set_grid(problem, p->m, p->m, 1);
}

static void test_settings(SUNContext ctx) {
  Brusselator p = {8, 0.02};
  SUNMatrix A = brusselator_matrix(&p, CSR_MAT, ctx);
  N_Vector y = N_VNew_Serial(brusselator_size(&p), ctx);

  fill(A, &p, 0.1, ctx);
  SUNLinearSolver S = SUNLinSol_Krylith(y, A, "method=gmres precond=ildu rtol=1e-11", ctx);

  EXPECT(SUNLinSol_KrylithSolver(S) == NULL);
  OK(SUNLinSol_KrylithSetBlock(S, 2));
  OK(SUNLinSol_KrylithSetDescribe(S, describe, &p));
  OK(SUNLinSol_KrylithSetRefresh(S, "keep"));
  solves(A, S, 1e-8, ctx);
  const int first = SUNLinSolNumIters(S);

  EXPECT(SUNLinSol_KrylithSolver(S) != NULL);
  EXPECT(SUNLinSol_KrylithSolution(S)->iterations == first);
  fill(A, &p, 10.0, ctx);
  solves(A, S, 1e-8, ctx);
  const int kept = SUNLinSolNumIters(S);

  OK(SUNLinSol_KrylithSetRefresh(S, "refresh"));
  solves(A, S, 1e-8, ctx);
  EXPECT(SUNLinSolNumIters(S) < kept); /* a preconditioner of other values is worse */
  EXPECT(SUNLinSol_KrylithSetRefresh(S, "again") < 0);
  EXPECT(strstr(SUNLinSol_KrylithError(S), "use keep, refresh or rebuild"));
  EXPECT(SUNLinSol_KrylithSetBlock(S, 9) < 0 && strstr(SUNLinSol_KrylithError(S), "1 to 8"));
  p.m = 5; /* a grid of another size: the next set-up says so */
  OK(SUNLinSol_KrylithSetDescribe(S, describe, &p));
  SM_INDEXPTRS_S(A)[SM_NP_S(A)]--;
  EXPECT(SUNLinSolSetup(S, A) < 0 && strstr(SUNLinSol_KrylithError(S), "grid"));
  OK(SUNLinSolFree(S));
  SUNMatDestroy(A);
  N_VDestroy(y);
}

static N_Vector_ID parallel(N_Vector v) {
  (void)v;
  return SUNDIALS_NVEC_PARALLEL;
}

static void refused(N_Vector y, SUNMatrix A, const char *options, const char *why, SUNContext ctx) {
  EXPECT(SUNLinSol_Krylith(y, A, options, ctx) == NULL);
  if (!strstr(krylith_last_error(), why))
    fprintf(stderr, "`%s` is not in: %s\n", why, krylith_last_error());
  EXPECT(strstr(krylith_last_error(), why));
}

/* Sets up after a change of the matrix; `recoverable` tells the sign of the flag. */
static void setup_fails(SUNLinearSolver S, SUNMatrix A, int recoverable, const char *why) {
  const int flag = SUNLinSolSetup(S, A);

  EXPECT(flag != 0 && (flag > 0) == recoverable && SUNLinSolLastFlag(S) == flag);
  if (!strstr(SUNLinSol_KrylithError(S), why))
    fprintf(stderr, "`%s` is not in: %s\n", why, SUNLinSol_KrylithError(S));
  EXPECT(strstr(SUNLinSol_KrylithError(S), why));
}

static void test_refusals(SUNContext ctx) {
  SUNMatrix A = SUNSparseMatrix(3, 3, 6, CSR_MAT, ctx), dense = SUNDenseMatrix(3, 3, ctx),
            wide = SUNSparseMatrix(3, 4, 6, CSR_MAT, ctx);
  N_Vector y = vector(3, 1, ctx), other = vector(4, 1, ctx), x = N_VClone(y);
  const sunindextype ptr[] = {0, 2, 4, 5}, index[] = {0, 1, 1, 0, 2};
  const double data[] = {4, 1, 5, 2, 3};

  refused(y, dense, NULL, "takes a SUNSparseMatrix", ctx);
  refused(y, wide, NULL, "3 rows and 4 columns", ctx);
  refused(other, A, NULL, "the vectors have 4 numbers", ctx);
  refused(y, A, "tolerance=1e-3", "unknown option", ctx);
  refused(y, A, "criterion=rows", "leave out `criterion`", ctx);
  y->ops->nvgetvectorid = parallel;
  refused(y, A, NULL, "for vectors over ranks", ctx);
  y->ops->nvgetvectorid = x->ops->nvgetvectorid;
  refused(NULL, A, NULL, "takes serial", ctx);

  SUNLinearSolver S = SUNLinSol_Krylith(y, A, NULL, ctx);

  EXPECT(SUNLinSolSolve(S, A, x, y, 1e-3) < 0);
  EXPECT(strstr(SUNLinSol_KrylithError(S), "needs a SUNLinSolSetup that succeeded"));
  memcpy(SM_INDEXPTRS_S(A), ptr, sizeof(ptr));
  memcpy(SM_INDEXVALS_S(A), index, sizeof(index));
  memcpy(SM_DATA_S(A), data, sizeof(data));
  setup_fails(S, dense, 0, "needs the SUNSparseMatrix");
  SM_INDEXVALS_S(A)[1] = 3;
  setup_fails(S, A, 0, "column index 3 in row 0 of the matrix is out of range");
  SM_INDEXVALS_S(A)[1] = 0;
  setup_fails(S, A, 0, "has its entry (0, 0) twice");
  SM_INDEXVALS_S(A)[1] = 1;
  SM_INDEXPTRS_S(A)[1] = 5;
  setup_fails(S, A, 0, "ends before it begins");
  SM_INDEXPTRS_S(A)[1] = 2;
  SM_INDEXPTRS_S(A)[3] = 7;
  setup_fails(S, A, 0, "from 0 to 7");
  SM_INDEXPTRS_S(A)[3] = 5;
  SM_DATA_S(A)[2] = NAN; /* a trial step: CVODE tries a smaller one */
  setup_fails(S, A, 1, "NaN or an infinity");
  EXPECT(SUNLinSolSolve(S, A, x, y, 1e-3) < 0);
  SM_DATA_S(A)[2] = 5;
  solves(A, S, 1e-10, ctx);
  SM_DATA_S(A)[2] = INFINITY;
  setup_fails(S, A, 1, "NaN or an infinity");
  SM_DATA_S(A)[2] = 5;
  solves(A, S, 1e-10, ctx);
  counts(S, 1, 1);
  N_VGetArrayPointer(y)[1] = NAN;
  EXPECT(SUNLinSolSolve(S, A, x, y, 1e-3) == SUNLS_PACKAGE_FAIL_REC);
  EXPECT(strstr(SUNLinSol_KrylithError(S), "right-hand side has a NaN"));
  N_VConst(1.0, y);
  memset(SM_DATA_S(A), 0, sizeof(data)); /* singular */
  SM_DATA_S(A)[0] = 1;
  int flag = SUNLinSolSetup(S, A);

  if (flag == 0) {
    N_VConst(0.0, x);
    flag = SUNLinSolSolve(S, A, x, y, 1e-6);
  }
  EXPECT(flag == SUNLS_LUFACT_FAIL && strstr(SUNLinSol_KrylithError(S), "singular"));
  OK(SUNLinSolFree(S));

  S = SUNLinSol_Krylith(y, NULL, NULL, ctx);
  EXPECT(SUNLinSolGetType(S) == SUNLINEARSOLVER_ITERATIVE);
  EXPECT(SUNLinSolSolve(S, NULL, x, y, 1e-3) == SUNLS_ATIMES_NULL);
  EXPECT(strstr(SUNLinSol_KrylithError(S), "call SUNLinSolSetATimes"));
  OK(SUNLinSolFree(S));
  SUNMatDestroy(A);
  SUNMatDestroy(dense);
  SUNMatDestroy(wide);
  N_VDestroy(y);
  N_VDestroy(x);
  N_VDestroy(other);
}

static int failing, calls;

static int times(void *A, N_Vector v, N_Vector z) {
  OK(SUNMatMatvec((SUNMatrix)A, v, z));
  return ++calls > 3 ? failing : 0;
}

static int of_setup(void *data) {
  (void)data;
  return failing;
}

static int inverse_of_diagonal(void *data, N_Vector r, N_Vector z, sunrealtype tol, int side) {
  const SUNMatrix A = data;
  const sunindextype *ptr = SM_INDEXPTRS_S(A);

  EXPECT(side == SUN_PREC_RIGHT && tol > 0);
  for (sunindextype i = 0; i < SM_ROWS_S(A); i++)
    for (sunindextype k = ptr[i]; k < ptr[i + 1]; k++)
      if (SM_INDEXVALS_S(A)[k] == i)
        N_VGetArrayPointer(z)[i] = N_VGetArrayPointer(r)[i] / SM_DATA_S(A)[k];
  return ++calls > 3 ? failing : 0;
}

/* Without a matrix: products, a preconditioner, weights, and functions that fail. */
static void test_products(SUNContext ctx) {
  const Brusselator p = {7, 0.02};
  const sunindextype n = brusselator_size(&p);
  SUNMatrix A = brusselator_matrix(&p, CSR_MAT, ctx);
  N_Vector b = vector(n, 0.5, ctx), x = N_VClone(b), s = N_VClone(b);

  fill(A, &p, 0.05, ctx);
  for (sunindextype i = 0; i < n; i++) { /* unlike rows, for which the preconditioner matters */
    N_VGetArrayPointer(s)[i] = pow(10, i % 3);
    for (sunindextype k = SM_INDEXPTRS_S(A)[i]; k < SM_INDEXPTRS_S(A)[i + 1]; k++)
      SM_DATA_S(A)[k] *= pow(4, i % 5);
  }
  SUNLinearSolver S = SUNLinSol_Krylith(b, NULL, "method=gmres:restart=60", ctx);
  int iterations[2];

  OK(SUNLinSolSetATimes(S, A, times));
  for (int with = 0; with < 2; with++) {
    if (with)
      OK(SUNLinSolSetPreconditioner(S, A, of_setup, inverse_of_diagonal));
    for (int scaled = 0; scaled < 2; scaled++) {
      OK(SUNLinSolSetScalingVectors(S, scaled ? s : NULL, scaled ? s : NULL));
      OK(SUNLinSolSetup(S, NULL));
      N_VConst(0.0, x);
      OK(SUNLinSolSolve(S, NULL, x, b, 1e-7));
      if (!scaled)
        N_VConst(1.0, s);
      EXPECT(weighted_residual(A, x, b, s) <= 1e-7 && SUNLinSolResNorm(S) <= 1e-7);
      iterations[with] = SUNLinSolNumIters(S);
      for (sunindextype i = 0; i < n; i++)
        N_VGetArrayPointer(s)[i] = pow(10, i % 3);
    }
  }
  EXPECT(iterations[1] < iterations[0]);
  const int flags[2][4] = {{SUNLS_ATIMES_FAIL_REC, SUNLS_PSOLVE_FAIL_REC, SUNLS_PSET_FAIL_REC, 1},
                           {SUNLS_ATIMES_FAIL_UNREC, SUNLS_PSOLVE_FAIL_UNREC, SUNLS_PSET_FAIL_UNREC, -1}};

  for (int k = 0; k < 2; k++) {
    failing = flags[k][3];
    calls = 0;
    EXPECT(SUNLinSolSetup(S, NULL) == flags[k][2]);
    N_VConst(0.0, x);
    OK(SUNLinSolSetPreconditioner(S, NULL, NULL, NULL));
    EXPECT(SUNLinSolSolve(S, NULL, x, b, 1e-7) == flags[k][0]);
    OK(SUNLinSolSetPreconditioner(S, A, of_setup, inverse_of_diagonal));
    calls = -1; /* the fourth call is that of the preconditioner */
    int flag = 0;

    for (int start = 0; start < 2 && flag != flags[k][1]; start++) {
      calls = start;
      N_VConst(0.0, x);
      flag = SUNLinSolSolve(S, NULL, x, b, 1e-7);
    }
    EXPECT(flag == flags[k][1] && SUNLinSolLastFlag(S) == flag);
  }
  OK(SUNLinSolFree(S));
  SUNMatDestroy(A);
  N_VDestroy(b);
  N_VDestroy(x);
  N_VDestroy(s);
}

/* A solve that ends early tells whether the residual is smaller than before. */
static void test_outcomes(SUNContext ctx) {
  const Brusselator p = {12, 2.0};
  SUNMatrix A = brusselator_matrix(&p, CSR_MAT, ctx);
  N_Vector b = vector(brusselator_size(&p), 0.5, ctx), x = N_VClone(b);

  fill(A, &p, 1.0, ctx);
  SUNLinearSolver S = SUNLinSol_Krylith(b, A, "method=gmres precond=jacobi max_iters=3", ctx);

  OK(SUNLinSolSetup(S, A));
  N_VConst(0.0, x);
  EXPECT(SUNLinSolSolve(S, A, x, b, 1e-9) == SUNLS_RES_REDUCED);
  EXPECT(SUNLinSolLastFlag(S) == SUNLS_RES_REDUCED && SUNLinSolNumIters(S) == 3);
  EXPECT(strstr(SUNLinSol_KrylithError(S), "max-iterations"));
  EXPECT(SUNLinSolResNorm(S) > 1e-9);
  OK(SUNLinSolFree(S));
  SUNMatDestroy(A);
  N_VDestroy(b);
  N_VDestroy(x);
}

int main(void) {
  SUNContext ctx = new_context();

  test_matrices(ctx);
  test_tolerance(ctx);
  test_settings(ctx);
  test_refusals(ctx);
  test_products(ctx);
  test_outcomes(ctx);
  test_integrators(ctx);
  SUNContext_Free(&ctx);
  printf("SUNDIALS %s: all tests passed\n", SUNDIALS_VERSION);
  return 0;
}
