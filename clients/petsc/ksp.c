/* A whole solve by Krylith as a KSP: -ksp_type krylith. */
#include "krylith_petsc.h"

/* The default of -ksp_atol. */
#define NO_ATOL 1e-50

typedef struct {
  KrylithFollower *follower;
  /* True while monitors are called: x is known at the end only. */
  PetscBool in_monitors;
  PetscBool solved;
} KSP_Krylith;

/* What the monitor of Krylith passes on. */
typedef struct {
  KSP ksp;
  PetscReal scale;
  PetscBool test;
  KSPConvergedReason reason;
  PetscErrorCode failed;
  PetscInt iteration;
  PetscReal residual;
} Progress;

/* Makes the PC `none`: PETSc would set up its own beside. */
static PetscErrorCode take_pc(KSP ksp, PC *pc) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;
  PetscBool none;
  PetscContainer container;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(ksp, pc));
  PetscCall(PetscObjectTypeCompare((PetscObject)*pc, PCNONE, &none));
  if (!none)
    PetscCall(PCSetType(*pc, PCNONE));
  PetscCall(PetscObjectQuery((PetscObject)*pc, "krylith", (PetscObject *)&container));
  if (!none || !container) /* another type may have removed its functions, and with them ours */
    PetscCall(KrylithFollowerAttach(own->follower, *pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetUp_Krylith(KSP ksp) {
  PC pc;

  PetscFunctionBegin;
  PetscCall(take_pc(ksp, &pc));
  PetscCall(KrylithFollow(((KSP_Krylith *)ksp->data)->follower, pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode call_monitors(KSP ksp, PetscInt iteration, PetscReal residual) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;

  PetscFunctionBegin;
  ksp->its = iteration;
  ksp->rnorm = residual;
  own->in_monitors = PETSC_TRUE;
  PetscErrorCode ierr = KSPMonitor(ksp, iteration, residual);
  own->in_monitors = PETSC_FALSE;
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls monitors and the convergence test, on the thread of the caller. */
static int32_t tell(void *given) {
  Progress *p = (Progress *)given;

  p->failed = call_monitors(p->ksp, p->iteration, p->residual);
  if (!p->failed && p->test)
    p->failed = (*p->ksp->converged)(p->ksp, p->iteration, p->residual, &p->reason, p->ksp->cnvP);
  return p->failed || p->reason ? 1 : 0;
}

static int32_t monitor(void *user, int64_t iteration, double relative_residual) {
  Progress *p = (Progress *)user;

  p->iteration = (PetscInt)iteration;
  p->residual = relative_residual * p->scale;
  return KrylithRelayCall(((KSP_Krylith *)p->ksp->data)->follower->relay, tell, p);
}

/* Returns the factor from the residuals that Krylith reports to those that PETSc does. */
static PetscErrorCode scale_of(KSP ksp, Vec b, Vec x, PetscReal norm, PetscReal *scale) {
  const KrylithFollower *f = ((KSP_Krylith *)ksp->data)->follower;
  Mat a;
  Vec r;

  PetscFunctionBegin;
  *scale = f->other_criterion ? 1.0 : norm;
  if (f->other_criterion || !f->relative_to_r0 || ksp->guess_zero)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPGetOperators(ksp, &a, NULL));
  PetscCall(VecDuplicate(b, &r));
  if (ksp->transpose_solve)
    PetscCall(MatMultTranspose(a, x, r));
  else
    PetscCall(MatMult(a, x, r));
  PetscCall(VecAYPX(r, -1.0, b));
  PetscCall(VecNorm(r, NORM_2, scale));
  PetscCall(VecDestroy(&r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives the KSP the reason of a solution. At the limit of double precision x is as good as that of a direct
 * solver. */
static KSPConvergedReason reason_of(KSP ksp, const krylith_solution *solution, PetscReal residual) {
  switch (solution->outcome) {
  case KRYLITH_CONVERGED:
    return residual <= ksp->abstol && solution->criterion_value > ksp->rtol ? KSP_CONVERGED_ATOL
                                                                            : KSP_CONVERGED_RTOL;
  case KRYLITH_ROUNDING_LIMIT:
    return KSP_CONVERGED_HAPPY_BREAKDOWN;
  case KRYLITH_MAX_ITERATIONS:
    return KSP_DIVERGED_ITS;
  case KRYLITH_DIVERGED:
    return KSP_DIVERGED_DTOL;
  case KRYLITH_NOT_FINITE:
    return KSP_DIVERGED_NANORINF;
  default:
    return KSP_DIVERGED_BREAKDOWN; /* an interruption is a time limit */
  }
}

/* Gives the history the residuals of all iterations; monitors of several ranks see some of them. */
static PetscErrorCode tell_history(KSP ksp, PetscReal scale) {
  krylith_solver *solver = ((KSP_Krylith *)ksp->data)->follower->solver;
  int64_t count = 0;
  double *residuals;

  PetscFunctionBegin;
  KrylithCall(krylith_solver_residuals(solver, 0, NULL, &count));
  PetscCall(PetscMalloc1(count + 1, &residuals));
  KrylithCall(krylith_solver_residuals(solver, count, residuals, &count));
  for (int64_t i = 0; i < count; i++)
    PetscCall(KSPLogResidualHistory(ksp, residuals[i] * scale));
  PetscCall(PetscFree(residuals));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sets up, and sets the tolerances; a convergence test of the user decides alone. */
static PetscErrorCode ready(KSP ksp, PetscBool test) {
  KrylithFollower *f = ((KSP_Krylith *)ksp->data)->follower;
  PC pc;

  PetscFunctionBegin;
  PetscCall(take_pc(ksp, &pc));
  PetscCall(KrylithFollow(f, pc));
  if (!f->solver)
    PetscFunctionReturn(PETSC_SUCCESS);
  KrylithCall(krylith_solver_set_tolerance(
      f->solver, test ? 0.0 : ksp->rtol, test || ksp->abstol <= NO_ATOL ? 0.0 : ksp->abstol, ksp->max_it));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSolve_Krylith(KSP ksp) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;
  KrylithFollower *f = own->follower;
  const Vec b = ksp->vec_rhs, x = ksp->vec_sol;
  Progress progress = {ksp,
                       1.0,
                       ksp->converged != KSPConvergedDefault ? PETSC_TRUE : PETSC_FALSE,
                       KSP_CONVERGED_ITERATING,
                       PETSC_SUCCESS,
                       0,
                       0.0};
  const PetscBool watched = progress.test || ksp->numbermonitors > 0 ? PETSC_TRUE : PETSC_FALSE;
  PetscReal norm;
  KrylithVectors v;
  krylith_status status;

  PetscFunctionBegin;
  own->solved = PETSC_FALSE;
  ksp->reason = KSP_CONVERGED_ITERATING;
  ksp->its = 0;
  PetscCall(VecNorm(b, NORM_2, &norm));
  if (!PetscIsInfOrNanReal(norm))
    PetscCall(ready(ksp, progress.test));
  if (PetscIsInfOrNanReal(norm) || !f->solver) {
    ksp->rnorm = PETSC_INFINITY;
    ksp->reason = KSP_DIVERGED_NANORINF;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (ksp->guess_zero)
    PetscCall(VecSet(x, 0.0));
  PetscCall(scale_of(ksp, b, x, norm, &progress.scale));
  KrylithCall(krylith_solver_set_monitor(f->solver, watched ? monitor : NULL, &progress));
  PetscCall(KrylithVectorsGet(f, b, x, PETSC_TRUE, &v));
  status = KrylithSolve(f, watched || f->map ? PETSC_TRUE : PETSC_FALSE, ksp->transpose_solve, v.given,
                        v.found, v.memory);
  PetscCall(KrylithVectorsRestore(&v));
  PetscCall(progress.failed);
  if (status == KRYLITH_CALLBACK) {
    PetscCheck(!f->on_gpu, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "the operator has no entries and multiplies on the host; give -krylith_device cpu");
    PetscCall(f->failed);
  }
  KrylithCall(status);
  PetscCall(tell_history(ksp, progress.scale));
  own->solved = PETSC_TRUE;
  ksp->its = (PetscInt)f->solution.iterations;
  ksp->rnorm = f->solution.true_residual * norm;
  ksp->reason = progress.reason ? progress.reason : reason_of(ksp, &f->solution, ksp->rnorm);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Solves for the columns of dense matrices, up to 16 of them together; the reason is that of the worst
 * column. */
static PetscErrorCode KSPMatSolve_Krylith(KSP ksp, Mat B, Mat X) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;
  KrylithFollower *f = own->follower;
  PetscInt columns, n, ldb, ldx;
  PetscScalar *given, *found, *to;
  const PetscScalar *from;
  krylith_solution *solutions;
  PetscReal *norms;
  PetscBool finite = PETSC_TRUE;

  PetscFunctionBegin;
  PetscCall(MatGetSize(B, NULL, &columns));
  PetscCall(MatGetLocalSize(B, &n, NULL));
  PetscCall(MatDenseGetLDA(B, &ldb));
  PetscCall(MatDenseGetLDA(X, &ldx));
  PetscCall(PetscMalloc2(columns, &solutions, columns, &norms));
  PetscCall(MatGetColumnNorms(B, NORM_2, norms));
  for (PetscInt k = 0; k < columns; k++)
    if (PetscIsInfOrNanReal(norms[k]))
      finite = PETSC_FALSE;
  if (finite)
    PetscCall(ready(ksp, PETSC_FALSE));
  if (!finite || !f->solver) {
    ksp->reason = KSP_DIVERGED_NANORINF;
    PetscCall(PetscFree2(solutions, norms));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  KrylithCall(krylith_solver_set_monitor(f->solver, NULL, NULL));
  PetscCall(PetscMalloc2((size_t)n * columns, &given, (size_t)n * columns, &found));
  PetscCall(MatDenseGetArrayRead(B, &from));
  PetscCall(MatDenseGetArray(X, &to));
  for (PetscInt k = 0; k < columns; k++) {
    PetscCall(PetscArraycpy(given + (size_t)k * n, from + (size_t)k * ldb, n));
    if (ksp->guess_zero)
      PetscCall(PetscArrayzero(found + (size_t)k * n, n));
    else
      PetscCall(PetscArraycpy(found + (size_t)k * n, to + (size_t)k * ldx, n));
  }
  if (ksp->transpose_solve || f->map) {
    for (PetscInt k = 0; k < columns; k++) {
      KrylithCall(KrylithSolve(f, f->map ? PETSC_TRUE : PETSC_FALSE, ksp->transpose_solve,
                               given + (size_t)k * n, found + (size_t)k * n, NULL));
      solutions[k] = f->solution;
    }
  } else
    KrylithCall(krylith_solver_solve_columns(f->solver, (int32_t)columns, given, found, NULL, solutions));
  for (PetscInt k = 0; k < columns; k++)
    PetscCall(PetscArraycpy(to + (size_t)k * ldx, found + (size_t)k * n, n));
  PetscCall(MatDenseRestoreArray(X, &to));
  PetscCall(MatDenseRestoreArrayRead(B, &from));
  ksp->its = 0;
  ksp->reason = KSP_CONVERGED_RTOL;
  for (PetscInt k = 0; k < columns; k++) {
    const PetscReal residual = solutions[k].true_residual * norms[k];
    const KSPConvergedReason reason = reason_of(ksp, &solutions[k], residual);

    if (k == 0 || (reason < 0 && ksp->reason > 0))
      ksp->reason = reason;
    ksp->its = PetscMax(ksp->its, (PetscInt)solutions[k].iterations);
    ksp->rnorm = k == 0 ? residual : PetscMax(ksp->rnorm, residual);
  }
  own->solved = columns > 0 ? PETSC_TRUE : PETSC_FALSE;
  PetscCall(PetscFree2(given, found));
  PetscCall(PetscFree2(solutions, norms));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Monitors that compute with x ask for it. Convergence tests, as that of SNESNEWTONTR, get the initial
 * guess. */
static PetscErrorCode KSPBuildSolution_Krylith(KSP ksp, Vec v, Vec *V) {
  PetscFunctionBegin;
  PetscCheck(!((KSP_Krylith *)ksp->data)->in_monitors, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "this monitor computes with x, which Krylith has at the end only; -ksp_monitor shows the norm "
             "of b - A x");
  PetscCall(KSPBuildSolutionDefault(ksp, v, V));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_Krylith(KSP ksp, KrylithOptionItems items) {
  PetscFunctionBegin;
  (void)items;
  PetscCall(KrylithOptionsGet(((KSP_Krylith *)ksp->data)->follower));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPView_Krylith(KSP ksp, PetscViewer viewer) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;
  PetscBool ascii;
  char *text, *line, *end;

  PetscFunctionBegin;
  PetscCall(KrylithView(own->follower, viewer));
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &ascii));
  if (!ascii || !own->follower->solver || !own->solved)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscStrallocpy(krylith_solver_summary(own->follower->solver), &text));
  for (line = text; line && *line; line = end) {
    end = strchr(line, '\n');
    if (end)
      *end++ = 0;
    PetscCall(PetscViewerASCIIPrintf(viewer, "    %s\n", line));
  }
  PetscCall(PetscFree(text));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPReset_Krylith(KSP ksp) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;

  PetscFunctionBegin;
  own->solved = PETSC_FALSE;
  PetscCall(KrylithForget(own->follower));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPDestroy_Krylith(KSP ksp) {
  KSP_Krylith *own = (KSP_Krylith *)ksp->data;

  PetscFunctionBegin;
  if (ksp->pc)
    PetscCall(KrylithFollowerDetach(ksp->pc));
  PetscCall(KrylithFollowerDestroy(&own->follower));
  PetscCall(PetscFree(ksp->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPCreate_Krylith(KSP ksp) {
  KSP_Krylith *own;
  PC pc;

  PetscFunctionBegin;
  PetscCall(PetscNew(&own));
  ksp->data = own;
  PetscCall(KrylithFollowerCreate((PetscObject)ksp, PETSC_TRUE, &own->follower));
  /* Krylith's residual is b - A x; other norms and sides have no effect. */
  for (int side = PC_LEFT; side <= PC_SYMMETRIC; side++) {
    PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, (PCSide)side, 5 - side));
    for (int norm = KSP_NORM_NONE; norm <= KSP_NORM_NATURAL; norm++)
      if (norm != KSP_NORM_UNPRECONDITIONED)
        PetscCall(KSPSetSupportedNorm(ksp, (KSPNormType)norm, (PCSide)side, 1));
  }
  ksp->ops->setup = KSPSetUp_Krylith;
  ksp->ops->solve = KSPSolve_Krylith;
  ksp->ops->matsolve = KSPMatSolve_Krylith;
  ksp->ops->setfromoptions = KSPSetFromOptions_Krylith;
  ksp->ops->view = KSPView_Krylith;
  ksp->ops->reset = KSPReset_Krylith;
  ksp->ops->destroy = KSPDestroy_Krylith;
  ksp->ops->buildsolution = KSPBuildSolution_Krylith;
  ksp->ops->buildresidual = KSPBuildResidualDefault; /* calls buildsolution */
  PetscCall(take_pc(ksp, &pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
