/* Tests of the PC and KSP type `krylith`, on one process and on several ranks:
 *   test -dll_append libkrylith_petsc.so
 * Right-hand sides are products with a known solution, so that every number of ranks has the same answer.
 */
#include "cases.h"
#include <pthread.h>

static void types_of_matrices(void) {
  const char *const types[] = {MATAIJ, MATBAIJ, MATSBAIJ};

  for (int k = 0; k < 3; k++) {
    for (PetscInt b = 1; b <= 3; b++) {
      const PetscReal skew = k == 2 ? 0.0 : 0.2;
      for (int inside = 0; inside < 2; inside++) {
        Mat A = grid_matrix(types[k], 12, b, skew);
        KSP ksp = new_ksp(A, NULL, inside ? "-ksp_type fgmres -pc_type krylith" : "-ksp_type krylith");
        solves(ksp, 0);
        if (!inside)
          solves(ksp, 1);
        solves(ksp, 0); /* nothing is done again */
        EXPECT(says(ksp, "1 set-ups, 0 updates"));
        if (k > 0 && b > 1 && !inside)
          EXPECT(says(ksp, b == 2 ? "blocks 2×2" : "blocks 3×3"));
        OK(MatScale(A, 2.0));
        solves(ksp, 0);
        EXPECT(says(ksp, "1 set-ups, 1 updates"));
        Mat B = grid_matrix(types[k], 12, b, 1.5 * skew); /* another matrix of the same pattern */
        OK(KSPSetOperators(ksp, B, B));
        solves(ksp, 0);
        EXPECT(says(ksp, "1 set-ups, 2 updates"));
        destroy(ksp, A, B);
      }
    }
  }
}

/* With KSPSetReusePreconditioner the matrix takes new values, and the preconditioner stays. */
static void a_preconditioner_that_is_kept(void) {
  Mat A = grid_matrix(MATAIJ, 12, 1, 0.0), B = grid_matrix(MATAIJ, 12, 1, 0.3);
  KSP ksp = new_ksp(A, NULL, "-ksp_type krylith -krylith_precond lu -krylith_method gmres");
  PetscInt its;

  for (int kept = 0; ranks() == 1 && kept < 2; kept++) {
    solves(ksp, 0);
    OK(KSPSetReusePreconditioner(ksp, kept ? PETSC_TRUE : PETSC_FALSE));
    OK(KSPSetOperators(ksp, B, B));
    solves(ksp, 0);
    OK(KSPGetIterationNumber(ksp, &its));
    EXPECT(kept ? its > 3 : its <= 3);
    OK(KSPSetReusePreconditioner(ksp, PETSC_FALSE));
    OK(KSPSetOperators(ksp, A, A));
  }
  destroy(ksp, A, B);
}

static void a_new_pattern_is_a_new_set_up(void) {
  Mat A = grid_matrix(MATAIJ, 9, 1, 0.0), B = grid_matrix(MATAIJ, 8, 1, 0.0);
  KSP ksp = new_ksp(A, NULL, "-ksp_type krylith");
  PetscInt first, last;

  solves(ksp, 0);
  OK(MatGetOwnershipRange(A, &first, &last));
  OK(MatSetOption(A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  if (first == 0)
    OK(MatSetValue(A, 0, 80, 0.5, INSERT_VALUES));
  assemble(A);
  solves(ksp, 0);
  EXPECT(says(ksp, "2 set-ups, 0 updates"));
  OK(KSPReset(ksp));
  OK(KSPSetOperators(ksp, B, B));
  solves(ksp, 0);
  destroy(ksp, A, B);
}

/* The transpose of the preconditioner: (v, P⁻¹ u) = (P⁻ᵀ v, u). */
static void transposes_and_columns(void) {
  const char *const preconds[] = {"jacobi", "ildu", "amg", "lu"};
  Mat A = grid_matrix(MATBAIJ, 8, 2, 0.2), B, X, R;
  Vec u, v, x, y;
  PC pc;
  KSP ksp;
  PetscScalar one, other;
  PetscReal norm, size;
  PetscInt n;
  char words[128];

  for (int k = 0; k < (ranks() > 1 ? 3 : 4); k++) {
    OK(PetscSNPrintf(words, sizeof(words), "-ksp_type gmres -pc_type krylith -krylith_precond %s",
                     preconds[k]));
    ksp = new_ksp(A, NULL, words);
    OK(KSPSetUp(ksp));
    OK(KSPGetPC(ksp, &pc));
    OK(MatCreateVecs(A, &u, &v));
    OK(VecDuplicate(u, &x));
    OK(VecDuplicate(u, &y));
    fill(u, 1.0), fill(v, 0.3);
    OK(PCApply(pc, u, x));
    OK(PCApplyTranspose(pc, v, y));
    OK(VecDot(v, x, &one));
    OK(VecDot(u, y, &other));
    OK(VecNorm(x, NORM_1, &norm));
    EXPECT(PetscAbsReal(one - other) < 1e-10 * norm);
    OK(VecDestroy(&u)), OK(VecDestroy(&v)), OK(VecDestroy(&x)), OK(VecDestroy(&y));
    destroy(ksp, NULL, NULL);
  }
  /* Several right-hand sides. */
  OK(MatGetLocalSize(A, &n, NULL));
  OK(MatCreateDense(PETSC_COMM_WORLD, n, PETSC_DECIDE, PETSC_DETERMINE, 5, NULL, &B));
  OK(MatSetRandom(B, NULL));
  OK(MatDuplicate(B, MAT_DO_NOT_COPY_VALUES, &X));
  OK(MatNorm(B, NORM_FROBENIUS, &size));
  for (int whole = 0; whole < 2; whole++) {
    ksp = new_ksp(A, NULL,
                  whole ? "-ksp_type krylith" : "-ksp_type preonly -pc_type krylith -krylith_precond ildu");
    OK(MatZeroEntries(X));
    OK(KSPMatSolve(ksp, B, X));
    OK(MatMatMult(A, X, MAT_INITIAL_MATRIX, PETSC_DEFAULT, &R));
    OK(MatAXPY(R, -1.0, B, SAME_NONZERO_PATTERN));
    OK(MatNorm(R, NORM_FROBENIUS, &norm));
    EXPECT(norm < (whole ? 1e-9 : 0.9) * size);
    OK(MatDestroy(&R));
    destroy(ksp, NULL, NULL);
  }
  OK(MatDestroy(&B)), OK(MatDestroy(&X)), OK(MatDestroy(&A));
}

/* A saddle point of two fields as MATNEST, with the matrix of the Schur complement as P_p. */
static void nest_with_fields(void) {
  static const char SPLIT[] =
      "-krylith_fields u,p -krylith_precond split(u:~amg,~p:~jacobi;~schur=upper,~S=P_p)";
  Mat N, P, A, B, C, M;
  KSP ksp;
  char words[256];

  saddle(&N, &P, &A, &B, &C, &M);
  for (int how = 0; how < 3; how++) {
    OK(PetscSNPrintf(
        words, sizeof(words), "%s %s", how == 2 ? "-ksp_type fgmres -pc_type krylith" : "-ksp_type krylith",
        how == 0   ? ""
        : how == 1 ? SPLIT
                   : "-krylith_fields u,p -krylith_precond split(u:~ildu,~p:~jacobi;~form=diagonal)"));
    ksp = new_ksp(N, P, words);
    solves(ksp, 0);
    EXPECT(says(ksp, "fields of 2"));
    OK(MatScale(A, 2.0)); /* new values of one block */
    assemble(N), assemble(P);
    solves(ksp, 0);
    EXPECT(says(ksp, "1 set-ups, 1 updates"));
    OK(MatScale(A, 0.5));
    destroy(ksp, NULL, NULL);
  }
  refused(N, P, "-ksp_type krylith -krylith_fields u,p,q",
          "`fields` has 3 names, and the system has 2 fields");
  OK(MatDestroy(&N)), OK(MatDestroy(&P)), OK(MatDestroy(&A)), OK(MatDestroy(&B)), OK(MatDestroy(&C)),
      OK(MatDestroy(&M));
}

/* Rigid modes as the near-null space, from MatNullSpaceCreateRigidBody and from PCSetCoordinates. */
static void near_null_space(void) {
  PetscInt its[3];

  for (int how = 0; how < 3; how++) {
    Vec points;
    Mat A = elasticity(20, &points);
    MatNullSpace modes;
    PC pc;
    KSP ksp;
    PetscScalar *at;
    PetscInt n;

    if (how == 1) {
      OK(MatNullSpaceCreateRigidBody(points, &modes));
      OK(MatSetNearNullSpace(A, modes));
      OK(MatNullSpaceDestroy(&modes));
    }
    ksp = new_ksp(A, NULL,
                  how < 2
                      ? "-ksp_type cg -ksp_norm_type unpreconditioned -pc_type krylith -krylith_precond amg"
                      : "-ksp_type krylith -krylith_precond amg -krylith_near_nullspace rigid");
    if (how == 2) {
      OK(KSPGetPC(ksp, &pc));
      OK(VecGetLocalSize(points, &n));
      OK(VecGetArray(points, &at));
      OK(PCSetCoordinates(pc, 2, n / 2, at));
      OK(VecRestoreArray(points, &at));
    }
    solves(ksp, 0);
    OK(KSPGetIterationNumber(ksp, &its[how]));
    EXPECT(says(ksp, how == 1 ? "near null space of 3" : how == 2 ? "coordinates" : "block 2"));
    if (how == 2) { /* the same coordinates again change nothing */
      OK(VecGetArray(points, &at));
      OK(PCSetCoordinates(pc, 2, n / 2, at));
      OK(VecRestoreArray(points, &at));
      solves(ksp, 0);
      EXPECT(says(ksp, "1 set-ups"));
    }
    OK(VecDestroy(&points));
    destroy(ksp, A, NULL);
  }
  EXPECT(its[1] < its[0] && its[2] < its[0]);
}

static void null_space(void) {
  for (int inside = 0; inside < 2; inside++) {
    Mat A = neumann(12);
    MatNullSpace constant;
    KSP ksp;

    OK(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_TRUE, 0, NULL, &constant));
    OK(MatSetNullSpace(A, constant));
    OK(MatNullSpaceDestroy(&constant));
    ksp = new_ksp(A, NULL,
                  inside ? "-ksp_type cg -pc_type krylith -krylith_precond amg" : "-ksp_type krylith");
    solves_up_to_constants(ksp);
    if (!inside)
      EXPECT(says(ksp, "null space of 1"));
    destroy(ksp, A, NULL);
  }
}

static void wrong_options(void) {
  Mat A = grid_matrix(MATAIJ, 5, 1, 0.0);

  refused(A, NULL, "-ksp_type krylith -krylith_precnod amg",
          "`-krylith_precnod`: precnod=amg: unknown option");
  refused(A, NULL, "-ksp_type krylith -krylith_precond agm", "agm");
  refused(A, NULL, "-ksp_type gmres -pc_type krylith -krylith_precond agm", "krylith_precond`");
  refused(A, NULL, "-ksp_type krylith -krylith_threads many", "krylith_threads`");
  refused(A, NULL, "-ksp_type krylith -krylith_precond", "krylith_precond`");
  refused(A, NULL, "-ksp_type krylith -krylith_block 9", "expected a number from 1 to 8");
  refused(A, NULL, "-ksp_type krylith -krylith_nullspace", "has no value");
  refused(A, NULL, "-ksp_type krylith -krylith_nullspace one", "expected constant");
  refused(A, NULL, "-ksp_type krylith -krylith_nullspace constant",
          "does not map constant vectors to zero");
  refused(A, NULL, "-ksp_type krylith -krylith_rtol 1e-3", "give -ksp_rtol");
  refused(A, NULL, "-ksp_type gmres -pc_type krylith -krylith_method gmres",
          "has no effect on a preconditioner");
  refused(A, NULL, "-ksp_type krylith -krylith_fields u,p", "neither the matrix nor its DM has fields");
  refused(A, NULL, "-ksp_type krylith -ksp_monitor_true_residual ascii:/dev/null", "computes with x");
  KSP ksp = new_ksp(A, NULL,
                    "-ksp_type krylith -krylith_deterministic -krylith_precond jacobi~then~ildu:fill=1 "
                    "-krylith_threads 1");
  solves(ksp, 0);
  EXPECT(says(ksp, "deterministic=true") && says(ksp, "precond=jacobi then ildu:fill=1"));
  destroy(ksp, A, NULL);
}

static PetscErrorCode five(KSP ksp, PetscInt its, PetscReal norm, KSPConvergedReason *reason, void *user) {
  Vec x;

  (void)norm, (void)user;
  OK(KSPBuildSolution(ksp, NULL, &x)); /* as SNESNEWTONTR does */
  *reason = its >= 5 ? KSP_CONVERGED_ITS : KSP_CONVERGED_ITERATING;
  return PETSC_SUCCESS;
}

/* The thread that calls KSPSolve. */
static pthread_t caller;

static PetscErrorCode count(KSP ksp, PetscInt its, PetscReal norm, void *user) {
  PetscReal *seen = (PetscReal *)user;

  (void)ksp;
  EXPECT(pthread_equal(pthread_self(), caller));
  seen[its] = norm;
  seen[99] = its;
  return PETSC_SUCCESS;
}

static void reasons_and_monitors(void) {
  Mat A = grid_matrix(MATAIJ, 20, 1, 0.0);
  KSP ksp = new_ksp(A, NULL, "-ksp_type krylith -krylith_precond jacobi");
  Vec b, x;
  PetscReal seen[100] = {0}, history[100], norm;
  const PetscReal *told;
  PetscInt n, its, first;

  OK(MatCreateVecs(A, &x, &b));
  OK(VecGetOwnershipRange(b, &first, NULL));
  OK(VecSet(b, 1.0));
  OK(KSPSetResidualHistory(ksp, history, 100, PETSC_TRUE));
  OK(KSPSolve(ksp, b, x));
  OK(KSPGetResidualHistory(ksp, &told, &n));
  OK(KSPGetIterationNumber(ksp, &its));
  OK(VecNorm(b, NORM_2, &norm));
  EXPECT(n == its + 1 && PetscAbsReal(told[0] - norm) < 1e-12 * norm && told[its] <= 1e-10 * norm);
  caller = pthread_self();
  OK(KSPMonitorSet(ksp, count, seen, NULL));
  OK(KSPSolve(ksp, b, x));
  OK(KSPGetIterationNumber(ksp, &its));
  EXPECT(seen[99] == its && PetscAbsReal(seen[0] - norm) < 1e-12 * norm && seen[its] <= 1e-10 * norm);
  OK(KSPMonitorCancel(ksp));
  expect_reason(ksp, b, x, 1e-30, 1e-3, 10000, KSP_CONVERGED_ATOL);
  expect_reason(ksp, b, x, 1e-10, 1e-50, 3, KSP_DIVERGED_ITS);
  expect_reason(ksp, b, x, 1e-30, 1e-50, 10000, KSP_CONVERGED_HAPPY_BREAKDOWN);
  OK(KSPSetInitialGuessNonzero(ksp, PETSC_TRUE));
  expect_reason(ksp, b, x, 1e-8, 1e-50, 10000, KSP_CONVERGED_RTOL);
  OK(KSPGetIterationNumber(ksp, &its));
  EXPECT(its == 0);
  OK(KSPSetInitialGuessNonzero(ksp, PETSC_FALSE));
  if (first == 0)
    OK(VecSetValue(b, 0, NAN, INSERT_VALUES));
  OK(VecAssemblyBegin(b)), OK(VecAssemblyEnd(b));
  expect_reason(ksp, b, x, 1e-8, 1e-50, 10000, KSP_DIVERGED_NANORINF);
  OK(VecSet(b, 1.0));
  if (first == 0)
    OK(MatSetValue(A, 0, 0, NAN, INSERT_VALUES));
  assemble(A);
  expect_reason(ksp, b, x, 1e-8, 1e-50, 10000, KSP_DIVERGED_NANORINF);
  if (first == 0)
    OK(MatSetValue(A, 0, 0, 4.0, INSERT_VALUES));
  assemble(A);
  expect_reason(ksp, b, x, 1e-8, 1e-50, 10000, KSP_CONVERGED_RTOL);
  OK(KSPSetConvergenceTest(ksp, five, NULL, NULL));
  expect_reason(ksp, b, x, 1e-8, 1e-50, 10000, KSP_CONVERGED_ITS);
  OK(KSPGetIterationNumber(ksp, &its));
  EXPECT(ranks() == 1 ? its == 5 : its >= 5); /* ranks iterate in batches */
  OK(VecDestroy(&b)), OK(VecDestroy(&x));
  destroy(ksp, A, NULL);
}

/* The preconditioner as a part of PETSc's fieldsplit, and index sets of the user as Krylith's fields. */
static void fields_of_petsc(void) {
  Mat N, P, A, B, C, M, J;
  IS sets[2];
  PC pc;
  KSP ksp;

  saddle(&N, &P, &A, &B, &C, &M);
  OK(MatNestGetISs(N, sets, NULL));
  OK(MatConvert(N, MATAIJ, MAT_INITIAL_MATRIX, &J));
  ksp = new_ksp(
      J, NULL,
      "-ksp_type fgmres -pc_type fieldsplit -pc_fieldsplit_type schur -pc_fieldsplit_schur_precondition "
      "selfp "
      "-fieldsplit_u_ksp_type preonly -fieldsplit_u_pc_type krylith -fieldsplit_u_krylith_precond amg "
      "-fieldsplit_p_ksp_type preonly -fieldsplit_p_pc_type krylith -fieldsplit_p_krylith_precond ildu");
  OK(KSPGetPC(ksp, &pc));
  OK(PCFieldSplitSetIS(pc, "u", sets[0]));
  OK(PCFieldSplitSetIS(pc, "p", sets[1]));
  solves(ksp, 0);
  destroy(ksp, NULL, NULL);
  ksp =
      new_ksp(J, NULL, "-ksp_type krylith -krylith_precond split(u:~amg,~p:~jacobi;~schur=full,~S=selfp)");
  OK(KSPGetPC(ksp, &pc));
  OK(PCFieldSplitSetIS(pc, "u", sets[0]));
  OK(PCFieldSplitSetIS(pc, "p", sets[1]));
  solves(ksp, 0);
  EXPECT(says(ksp, "fields of 2"));
  destroy(ksp, J, NULL);
  OK(MatDestroy(&N)), OK(MatDestroy(&P)), OK(MatDestroy(&A)), OK(MatDestroy(&B)), OK(MatDestroy(&C)),
      OK(MatDestroy(&M));
}

static void grid_of_a_dm(void) {
  DM da;
  Mat A;
  KSP ksp;

  OK(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, 9, 8,
                  PETSC_DECIDE, PETSC_DECIDE, 2, 1, NULL, NULL, &da));
  OK(DMSetUp(da));
  OK(DMDASetUniformCoordinates(da, 0, 1, 0, 1, 0, 1));
  OK(DMCreateMatrix(da, &A));
  fill_by_stencil(da, A);
  ksp = new_ksp(A, NULL, "-ksp_type krylith");
  OK(KSPSetDM(ksp, da));
  OK(no_dm_operators(ksp));
  solves(ksp, 0);
  EXPECT(says(ksp, ranks() == 1 ? "block 2, coordinates, grid" : "block 2, coordinates"));
  destroy(ksp, NULL, NULL);
  ksp = new_ksp(
      A, NULL, "-ksp_type krylith -krylith_fields u,v -krylith_precond split(u:~ildu,~v:~ildu;~form=full)");
  OK(KSPSetDM(ksp, da));
  OK(no_dm_operators(ksp));
  solves(ksp, 0);
  EXPECT(says(ksp, "fields of 2"));
  destroy(ksp, A, NULL);
  OK(DMDestroy(&da));
}

static void operators_without_entries(void) {
  Mat A = grid_matrix(MATAIJ, 12, 1, 0.2), S = shell_of(A);
  KSP ksp;

  refused(S, NULL, "-ksp_type gmres -pc_type krylith", "has no entries");
  if (ranks() > 1)
    refused(S, A, "-ksp_type krylith", "several ranks cannot share it");
  for (int alone = 0; ranks() == 1 && alone < 2; alone++) {
    ksp = new_ksp(S, alone ? NULL : A,
                  alone ? "-ksp_type krylith" : "-ksp_type krylith -krylith_precond ildu");
    solves(ksp, 0);
    if (!alone)
      solves(ksp, 1);
    destroy(ksp, NULL, NULL);
  }
  OK(MatDestroy(&S)), OK(MatDestroy(&A));
}

/* Rows of several ranks gather on one of them, if the option says so. */
static void ranks_that_share_a_device(void) {
  Mat A = grid_matrix(MATAIJ, 12, 2, 0.2);

  refused(A, NULL, "-ksp_type krylith -krylith_ranks_per_gpu 0", "from 1 to");
  for (int share = 1; share <= 2; share++) {
    KSP ksp = new_ksp(A, NULL,
                      share == 1 ? "-ksp_type krylith -krylith_device cpu -krylith_ranks_per_gpu 1"
                                 : "-ksp_type krylith -krylith_device cpu -krylith_ranks_per_gpu 2");
    solves(ksp, 0);
    solves(ksp, 1);
    if (share > 1 && ranks() > 1)
      EXPECT(says(ksp, "gather on rank"));
    OK(MatScale(A, 2.0));
    solves(ksp, 0);
    destroy(ksp, NULL, NULL);
  }
  OK(MatDestroy(&A));
}

int main(int argc, char **argv) {
  PETSC_MPI_THREAD_REQUIRED = MPI_THREAD_SERIALIZED; /* for matrices on several ranks */
  OK(PetscInitialize(&argc, &argv, NULL, NULL));
  types_of_matrices();
  a_preconditioner_that_is_kept();
  a_new_pattern_is_a_new_set_up();
  transposes_and_columns();
  nest_with_fields();
  near_null_space();
  null_space();
  wrong_options();
  reasons_and_monitors();
  fields_of_petsc();
  grid_of_a_dm();
  operators_without_entries();
  ranks_that_share_a_device();
  OK(PetscPrintf(PETSC_COMM_WORLD, "krylith in PETSc: all tests passed on %d ranks\n", ranks()));
  OK(PetscFinalize());
  return EXIT_SUCCESS;
}
