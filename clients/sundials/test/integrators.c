/* CVODE, ARKODE, IDA and KINSOL with Krylith, beside KLU and SPGMR. */
#include "cases.h"
#include <arkode/arkode_arkstep.h>
#include <cvode/cvode.h>
#include <cvode/cvode_bandpre.h>
#include <ida/ida.h>
#include <kinsol/kinsol.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sunlinsol/sunlinsol_klu.h>
#include <sunlinsol/sunlinsol_spgmr.h>

/* How a system is solved. */
typedef enum { KLU, SPGMR, KRYLITH, PRODUCTS } Kind;
typedef struct {
  const char *name;
  Kind kind;
  int format;
  const char *options;
} Way;

static SUNLinearSolver solver(const Way *way, N_Vector y, SUNMatrix A, SUNContext ctx) {
  switch (way->kind) {
  case KLU:
    return SUNLinSol_KLU(y, A, ctx);
  case SPGMR:
    return SUNLinSol_SPGMR(y, SUN_PREC_LEFT, 0, ctx);
  case PRODUCTS:
    return SUNLinSol_Krylith(y, NULL, way->options, ctx);
  default:
    return SUNLinSol_Krylith(y, A, way->options, ctx);
  }
}

static int takes_matrix(const Way *way) {
  return way->kind == KLU || way->kind == KRYLITH;
}

/* The largest of |x − y| / (rtol |y| + atol). */
static double error_of(N_Vector x, N_Vector y, double rtol, double atol) {
  double most = 0;

  for (sunindextype i = 0; i < N_VGetLength(x); i++) {
    const double a = N_VGetArrayPointer(x)[i], b = N_VGetArrayPointer(y)[i];

    most = fmax(most, fabs(a - b) / (rtol * fabs(b) + atol));
  }
  return most;
}

/* New values of one pattern are updates: one set-up serves a whole integration. */
static void one_setup(const Way *way, SUNLinearSolver S) {
  long int setups, updates;

  if (way->kind != KRYLITH)
    return;
  OK(SUNLinSol_KrylithCounts(S, &setups, &updates));
  EXPECT(setups == 1 && updates > 2);
}

#define TIMES 4

/* Integrates the Brusselator with CVODE, or with ARKODE's implicit method, and stores y at a few times. */
static long int brusselator(Brusselator *p, const Way *way, int arkode, double rtol, double atol,
                            N_Vector *found, SUNContext ctx) {
  N_Vector y = N_VNew_Serial(brusselator_size(p), ctx);
  SUNMatrix A = takes_matrix(way) ? brusselator_matrix(p, way->format, ctx) : NULL;
  double t;
  long int steps, iterations = 0;
  void *mem;

  brusselator_start(p, y);
  SUNLinearSolver S = solver(way, y, A, ctx);

  EXPECT(S != NULL);
  if (arkode) {
    mem = ARKStepCreate(NULL, brusselator_rhs, 0, y, ctx);
    OK(ARKStepSStolerances(mem, rtol, atol));
    OK(ARKStepSetUserData(mem, p));
    OK(ARKStepSetMaxNumSteps(mem, 100000));
    OK(ARKStepSetLinearSolver(mem, S, A));
    OK(ARKStepSetJacFn(mem, brusselator_jacobian));
  } else {
    mem = CVodeCreate(CV_BDF, ctx);
    OK(CVodeInit(mem, brusselator_rhs, 0, y));
    OK(CVodeSStolerances(mem, rtol, atol));
    OK(CVodeSetUserData(mem, p));
    OK(CVodeSetMaxNumSteps(mem, 100000));
    OK(CVodeSetLinearSolver(mem, S, A));
    if (A)
      OK(CVodeSetJacFn(mem, brusselator_jacobian));
    else
      OK(CVBandPrecInit(mem, brusselator_size(p), 2, 2));
  }
  for (int k = 0; k < TIMES; k++) {
    const double end = 0.3 * (k + 1) * (k + 1);

    if (arkode)
      OK(ARKStepEvolve(mem, end, y, &t, ARK_NORMAL));
    else
      OK(CVode(mem, end, y, &t, CV_NORMAL));
    found[k] = N_VClone(y);
    N_VScale(1.0, y, found[k]);
  }
  if (arkode) {
    OK(ARKStepGetNumSteps(mem, &steps));
    OK(ARKStepGetNumLinIters(mem, &iterations));
    ARKStepFree(&mem);
  } else {
    OK(CVodeGetNumSteps(mem, &steps));
    OK(CVodeGetNumLinIters(mem, &iterations));
    CVodeFree(&mem);
  }
  printf("%s, %s: %ld steps, %ld linear iterations", arkode ? "ARKODE" : "CVODE", way->name, steps,
         iterations);
  one_setup(way, S);
  SUNLinSolFree(S);
  if (A)
    SUNMatDestroy(A);
  N_VDestroy(y);
  return steps;
}

/* Errors and steps are like those with the solvers of SUNDIALS. */
static void test_brusselator(int arkode, SUNContext ctx) {
  const Way ways[] = {{"KLU", KLU, CSC_MAT, NULL},
                      {"SPGMR", SPGMR, 0, NULL},
                      {"Krylith, CSR", KRYLITH, CSR_MAT, NULL},
                      {"Krylith, CSC, ILDU", KRYLITH, CSC_MAT, "method=gmres precond=ildu"},
                      {"Krylith, LU", KRYLITH, CSR_MAT, "precond=lu"},
                      {"Krylith, products", PRODUCTS, 0, "method=gmres:restart=40"}};
  const double rtol = 1e-5, atol = 1e-7;
  Brusselator p = {16, 0.02};
  N_Vector exact[TIMES], found[TIMES];
  double own = 0;
  long int by_klu = 0;

  brusselator(&p, &ways[0], arkode, 1e-9, 1e-11, exact, ctx);
  printf(" (the reference)\n");
  for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
    if (arkode && !takes_matrix(&ways[w]))
      continue;
    const long int steps = brusselator(&p, &ways[w], arkode, rtol, atol, found, ctx);

    double most = 0;

    printf(", errors");
    for (int k = 0; k < TIMES; k++) {
      const double error = error_of(found[k], exact[k], rtol, atol);

      printf(" %.3g", error);
      most = fmax(most, error);
      N_VDestroy(found[k]);
    }
    printf(" of the tolerance\n");
    by_klu = w ? by_klu : steps;
    if (ways[w].kind == KLU || ways[w].kind == SPGMR)
      own = fmax(own, most);
    EXPECT(most < 2 * own);
    EXPECT(labs(steps - by_klu) < 0.2 * by_klu);
  }
  for (int k = 0; k < TIMES; k++)
    N_VDestroy(exact[k]);
}

/* Integrates the reaction with algebraic boundary by IDA. */
static N_Vector by_ida(Bratu *p, const Way *way, double rtol, double atol, long int *steps,
                       SUNContext ctx) {
  const sunindextype n = (sunindextype)p->m * p->m;
  N_Vector y = N_VNew_Serial(n, ctx), yp = N_VClone(y), id = N_VClone(y);
  SUNMatrix A = takes_matrix(way) ? bratu_matrix(p, way->format, ctx) : NULL;
  SUNLinearSolver S = solver(way, y, A, ctx);
  void *mem = IDACreate(ctx);
  double t;

  bratu_start(p, y, yp, id);
  OK(IDAInit(mem, bratu_residual, 0, y, yp));
  OK(IDASStolerances(mem, rtol, atol));
  OK(IDASetUserData(mem, p));
  OK(IDASetId(mem, id));
  OK(IDASetLinearSolver(mem, S, A));
  if (A)
    OK(IDASetJacFn(mem, bratu_jacobian));
  OK(IDASetMaxNumSteps(mem, 10000));
  OK(IDASolve(mem, 0.05, &t, y, yp, IDA_NORMAL));
  OK(IDAGetNumSteps(mem, steps));
  one_setup(way, S);
  IDAFree(&mem);
  SUNLinSolFree(S);
  if (A)
    SUNMatDestroy(A);
  N_VDestroy(yp);
  N_VDestroy(id);
  return y;
}

static void test_ida(SUNContext ctx) {
  const Way ways[] = {{"KLU", KLU, CSR_MAT, NULL},
                      {"Krylith, CSR", KRYLITH, CSR_MAT, NULL},
                      {"Krylith, CSC, AMG", KRYLITH, CSC_MAT, "method=gmres precond=amg"},
                      {"Krylith, products", PRODUCTS, 0, "method=gmres:restart=60"}};
  const double rtol = 1e-6, atol = 1e-8;
  Bratu p = {21, 1.5};
  long int steps, by_klu = 0;
  N_Vector exact = by_ida(&p, &ways[0], 1e-10, 1e-12, &steps, ctx);
  double of_klu = 0;

  for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
    N_Vector y = by_ida(&p, &ways[w], rtol, atol, &steps, ctx);
    const double error = error_of(y, exact, rtol, atol);

    printf("IDA, %s: %ld steps, error %.3g of the tolerance\n", ways[w].name, steps, error);
    by_klu = w ? by_klu : steps;
    of_klu = w ? of_klu : error;
    EXPECT(error < 2 * of_klu + 1);
    EXPECT(labs(steps - by_klu) < 0.2 * by_klu + 2);
    N_VDestroy(y);
  }
  N_VDestroy(exact);
}

/* Solves the steady reaction by KINSOL. */
static N_Vector by_kinsol(Bratu *p, const Way *way, int strategy, int eta, SUNContext ctx) {
  N_Vector y = N_VNew_Serial((sunindextype)p->m * p->m, ctx), one = N_VClone(y);
  SUNMatrix A = takes_matrix(way) ? bratu_matrix(p, way->format, ctx) : NULL;
  SUNLinearSolver S = solver(way, y, A, ctx);
  void *mem = KINCreate(ctx);

  N_VConst(0.0, y);
  N_VConst(1.0, one);
  OK(KINInit(mem, bratu_steady, y));
  OK(KINSetUserData(mem, p));
  OK(KINSetLinearSolver(mem, S, A));
  if (A)
    OK(KINSetJacFn(mem, bratu_steady_jacobian));
  OK(KINSetFuncNormTol(mem, 1e-9));
  OK(KINSetMaxNewtonStep(mem, 1e3)); /* the initial guess is zero */
  OK(KINSetEtaForm(mem, eta));
  OK(KINSetMaxSetupCalls(mem, 1));
  const int flag = KINSol(mem, y, strategy, one, one);

  EXPECT(flag == KIN_SUCCESS || flag == KIN_INITIAL_GUESS_OK);
  long int iterations;

  OK(KINGetNumNonlinSolvIters(mem, &iterations));
  EXPECT(iterations > 1 && iterations < 40);
  KINFree(&mem);
  SUNLinSolFree(S);
  if (A)
    SUNMatDestroy(A);
  N_VDestroy(one);
  return y;
}

static void test_kinsol(SUNContext ctx) {
  const Way ways[] = {{"KLU", KLU, CSC_MAT, NULL},
                      {"Krylith, CSR", KRYLITH, CSR_MAT, NULL},
                      {"Krylith, CSC, AMG", KRYLITH, CSC_MAT, "method=gmres precond=amg"},
                      {"Krylith, products", PRODUCTS, 0, "method=gmres:restart=60"}};
  Bratu p = {21, 5.0};
  N_Vector exact = by_kinsol(&p, &ways[0], KIN_NONE, KIN_ETACONSTANT, ctx);

  EXPECT(N_VMaxNorm(exact) > 0.5);
  for (size_t w = 1; w < sizeof(ways) / sizeof(*ways); w++)
    for (int strategy = 0; strategy < 2; strategy++)
      for (int eta = 0; eta < 2; eta++) {
        N_Vector y = by_kinsol(&p, &ways[w], strategy ? KIN_LINESEARCH : KIN_NONE,
                               eta ? KIN_ETACHOICE1 : KIN_ETACONSTANT, ctx);

        EXPECT(error_of(y, exact, 1e-8, 1e-9) < 1);
        N_VDestroy(y);
      }
  N_VDestroy(exact);
}

void test_integrators(SUNContext ctx) {
  test_brusselator(0, ctx);
  test_brusselator(1, ctx);
  test_ida(ctx);
  test_kinsol(ctx);
}
