/* Processor seconds of CVODE and IDA with Krylith, and with solvers of SUNDIALS.
 *
 *     cc -O2 -std=gnu11 -I../../clients/sundials -I../../clients/sundials/test times.c \
 *       ../../clients/sundials/test/problems.c -I/usr/include/suitesparse -lsunlinsol_krylith \
 *       $(pkg-config --cflags --libs krylith) -lsundials_cvode -lsundials_ida -lsundials_sunlinsolklu \
 *       -lsundials_sunlinsolspgmr -lsundials_sunlinsolspbcgs -lsundials_sunmatrixsparse
 * -lsundials_nvecserial -lm
 *     ./a.out cvode|ida POINTS REPETITIONS WAY...
 *
 * A line of JSON for each way has the seconds of each repetition, the counts of the last, and the largest
 * error in units of the tolerance, relative to a reference of tolerance 1e-8. */
#include "cases.h"
#include <cvode/cvode.h>
#include <cvode/cvode_bandpre.h>
#include <ida/ida.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sunlinsol/sunlinsol_klu.h>
#include <sunlinsol/sunlinsol_spbcgs.h>
#include <sunlinsol/sunlinsol_spgmr.h>
#include <sys/resource.h>

typedef struct {
  const char *name;
  enum { KLU, SPGMR, SPBCGS, KRYLITH, PRODUCTS } kind;
  const char *options;
} Way;

static const Way ways[] = {
    {"klu", KLU, NULL},
    {"spgmr", SPGMR, NULL},
    {"spbcgs", SPBCGS, NULL},
    {"krylith", KRYLITH, "threads=1 device=cpu"},
    {"krylith-ildu", KRYLITH, "threads=1 device=cpu method=gmres precond=ildu"},
    {"krylith-amg", KRYLITH, "threads=1 device=cpu method=gmres precond=amg"},
    {"krylith-amg-equilibrated", KRYLITH, "threads=1 device=cpu method=gmres precond=amg equilibrate=true"},
    {"krylith-lu", KRYLITH, "threads=1 device=cpu precond=lu"},
    {"krylith-products", PRODUCTS, "threads=1 device=cpu method=gmres"},
};

typedef struct {
  long int steps, solves, iterations, setups, jacobians;
} Counts;

static double seconds(void) {
  struct rusage used;

  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
         1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static SUNLinearSolver solver(const Way *way, N_Vector y, SUNMatrix A, SUNContext ctx) {
  switch (way->kind) {
  case KLU:
    return SUNLinSol_KLU(y, A, ctx);
  case SPGMR:
    return SUNLinSol_SPGMR(y, SUN_PREC_LEFT, 0, ctx);
  case SPBCGS:
    return SUNLinSol_SPBCGS(y, SUN_PREC_LEFT, 0, ctx);
  default:
    return SUNLinSol_Krylith(y, A, way->options, ctx);
  }
}

static double brusselator(int m, const Way *way, double rtol, N_Vector *found, Counts *n, SUNContext ctx) {
  Brusselator p = {m, 0.02};
  N_Vector y = N_VNew_Serial(brusselator_size(&p), ctx);
  const int matrix = way->kind == KLU || way->kind == KRYLITH;
  SUNMatrix A = matrix ? brusselator_matrix(&p, way->kind == KLU ? CSC_MAT : CSR_MAT, ctx) : NULL;
  double t;

  brusselator_start(&p, y);
  const double start = seconds();
  SUNLinearSolver S = solver(way, y, A, ctx);
  void *mem = CVodeCreate(CV_BDF, ctx);

  EXPECT(S != NULL);
  OK(CVodeInit(mem, brusselator_rhs, 0, y));
  OK(CVodeSStolerances(mem, rtol, 0.01 * rtol));
  OK(CVodeSetUserData(mem, &p));
  OK(CVodeSetMaxNumSteps(mem, 1000000));
  OK(CVodeSetLinearSolver(mem, S, A));
  if (A)
    OK(CVodeSetJacFn(mem, brusselator_jacobian));
  else
    OK(CVBandPrecInit(mem, brusselator_size(&p), 2, 2)); /* lines of points */
  OK(CVode(mem, 4.8, y, &t, CV_NORMAL));
  const double used = seconds() - start;

  OK(CVodeGetNumSteps(mem, &n->steps));
  OK(CVodeGetNumNonlinSolvIters(mem, &n->solves));
  OK(CVodeGetNumLinIters(mem, &n->iterations));
  OK(CVodeGetNumLinSolvSetups(mem, &n->setups));
  OK(CVodeGetNumJacEvals(mem, &n->jacobians));
  CVodeFree(&mem);
  SUNLinSolFree(S);
  if (A)
    SUNMatDestroy(A);
  *found = y;
  return used;
}

static double bratu(int m, const Way *way, double rtol, N_Vector *found, Counts *n, SUNContext ctx) {
  Bratu p = {m, 1.5};
  N_Vector y = N_VNew_Serial((sunindextype)m * m, ctx), yp = N_VClone(y), id = N_VClone(y);
  SUNMatrix A = bratu_matrix(&p, way->kind == KLU ? CSC_MAT : CSR_MAT, ctx);
  double t;

  EXPECT(way->kind == KLU || way->kind == KRYLITH);
  bratu_start(&p, y, yp, id);
  const double start = seconds();
  SUNLinearSolver S = solver(way, y, A, ctx);
  void *mem = IDACreate(ctx);

  OK(IDAInit(mem, bratu_residual, 0, y, yp));
  OK(IDASStolerances(mem, rtol, 0.01 * rtol));
  OK(IDASetUserData(mem, &p));
  OK(IDASetId(mem, id));
  OK(IDASetLinearSolver(mem, S, A));
  OK(IDASetJacFn(mem, bratu_jacobian));
  OK(IDASetMaxNumSteps(mem, 100000));
  OK(IDASolve(mem, 0.05, &t, y, yp, IDA_NORMAL));
  const double used = seconds() - start;

  OK(IDAGetNumSteps(mem, &n->steps));
  OK(IDAGetNumNonlinSolvIters(mem, &n->solves));
  OK(IDAGetNumLinIters(mem, &n->iterations));
  OK(IDAGetNumLinSolvSetups(mem, &n->setups));
  OK(IDAGetNumJacEvals(mem, &n->jacobians));
  IDAFree(&mem);
  SUNLinSolFree(S);
  SUNMatDestroy(A);
  N_VDestroy(yp);
  N_VDestroy(id);
  *found = y;
  return used;
}

static double run(const char *problem, int m, const Way *way, double rtol, N_Vector *y, Counts *n,
                  SUNContext ctx) {
  return strcmp(problem, "ida") == 0 ? bratu(m, way, rtol, y, n, ctx)
                                     : brusselator(m, way, rtol, y, n, ctx);
}

static void measure(const char *problem, int m, int repetitions, const Way *way, N_Vector exact,
                    SUNContext ctx) {
  const double rtol = 1e-5;
  double most = 0;
  Counts n;
  N_Vector y;

  printf("{\"problem\": \"%s\", \"points\": %d, \"way\": \"%s\", \"seconds\": [", problem, m, way->name);
  for (int k = 0; k < repetitions; k++) {
    const double used = run(problem, m, way, rtol, &y, &n, ctx);

    printf("%s%.4f", k ? ", " : "", used);
    for (sunindextype i = 0; k == 0 && i < N_VGetLength(y); i++) {
      const double a = N_VGetArrayPointer(y)[i], b = N_VGetArrayPointer(exact)[i];

      most = fmax(most, fabs(a - b) / (rtol * fabs(b) + 0.01 * rtol));
    }
    N_VDestroy(y);
  }
  printf("], \"steps\": %ld, \"solves\": %ld, \"iterations\": %ld, \"setups\": %ld, \"jacobians\": %ld, "
         "\"error\": %.3g}\n",
         n.steps, n.solves, n.iterations, n.setups, n.jacobians, most);
  fflush(stdout);
}

int main(int count, char **words) {
  const Way by_lu = {"reference", KRYLITH, "precond=lu"};

  if (count < 5) {
    fprintf(stderr, "%s cvode|ida POINTS REPETITIONS WAY...\n", words[0]);
    return 2;
  }
  SUNContext ctx = new_context();
  const int m = atoi(words[2]);
  N_Vector exact;
  Counts n;

  run(words[1], m, &by_lu, 1e-8, &exact, &n, ctx);
  for (int k = 4; k < count; k++) {
    size_t w = 0;

    while (w < sizeof(ways) / sizeof(*ways) && strcmp(words[k], ways[w].name) != 0)
      w++;
    if (w == sizeof(ways) / sizeof(*ways)) {
      fprintf(stderr, "`%s` is no way\n", words[k]);
      return 2;
    }
    measure(words[1], m, atoi(words[3]), &ways[w], exact, ctx);
  }
  N_VDestroy(exact);
  SUNContext_Free(&ctx);
  return 0;
}
