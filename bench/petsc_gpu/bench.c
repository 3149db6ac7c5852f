/* Times a solver of PETSc's options on a GPU, and counts its copies between GPU and host as PETSc does:
 *   bench -problem poisson -n 128 -label NAME -out FILE -mat_type aijcusparse -ksp_type NAME -pc_type NAME
 * The right-hand side is the product with a known x. Every answer is compared with this x, with the answer of
 * PETSc's CG with Jacobi, and by its residual; a wrong one ends the program before anything is timed.
 */
#include "systems.h"
#include <petsctime.h>

/* What PETSc has counted: copies and bytes of arrays from the host and to it, and of single numbers. */
typedef struct {
  double in, in_bytes, out, out_bytes, scalars;
} Copies;

typedef struct {
  double seconds; /* the least of all repetitions */
  PetscInt iterations;
  Copies copies; /* of the last repetition */
} Phase;

static Copies copies_so_far(void) {
  Copies c = {0, 0, 0, 0, 0};
#if defined(PETSC_HAVE_DEVICE)
  c.in = petsc_ctog_ct, c.in_bytes = petsc_ctog_sz;
  c.out = petsc_gtoc_ct, c.out_bytes = petsc_gtoc_sz;
  c.scalars = petsc_ctog_ct_scalar + petsc_gtoc_ct_scalar;
#endif
  return c;
}

static Phase begun(void) { return (Phase){1e30, 0, {0, 0, 0, 0, 0}}; }

/* Waits for the work of PETSc on the GPU. */
static PetscErrorCode waited(Vec x) {
  PetscFunctionBeginUser;
  PetscScalar square;

  PetscCall(VecDot(x, x, &square)); /* PETSc remembers norms, and would not wait for one */
  PetscCheck(!PetscIsInfOrNanScalar(square), PETSC_COMM_SELF, PETSC_ERR_FP, "an answer is not finite");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode timed_solve(KSP ksp, Vec b, Vec x, Phase *phase) {
  PetscLogDouble from, to;
  const Copies before = copies_so_far();
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(PetscTime(&from));
  PetscCall(KSPSolve(ksp, b, x));
  phase->copies = copies_so_far();
  PetscCall(waited(x));
  PetscCall(PetscTime(&to));
  phase->copies.in -= before.in, phase->copies.in_bytes -= before.in_bytes;
  phase->copies.out -= before.out, phase->copies.out_bytes -= before.out_bytes;
  phase->copies.scalars -= before.scalars;
  phase->seconds = PetscMin(phase->seconds, to - from);
  PetscCall(KSPGetIterationNumber(ksp, &phase->iterations));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  PetscCheck(reason > 0, PETSC_COMM_SELF, PETSC_ERR_NOT_CONVERGED, "a solve ends with the reason %s",
             KSPConvergedReasons[reason]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void say(FILE *out, const char name[], const Phase *phase) {
  fprintf(out,
          ", \"%s\": {\"seconds\": %.6g, \"iterations\": %d, \"to_gpu\": %g, \"to_gpu_bytes\": %g, "
          "\"to_host\": %g, \"to_host_bytes\": %g, \"scalars\": %g}",
          name, phase->seconds, (int)phase->iterations, phase->copies.in, phase->copies.in_bytes,
          phase->copies.out, phase->copies.out_bytes, phase->copies.scalars);
}

static PetscErrorCode difference(Vec x, Vec y, PetscReal *relative) {
  Vec d;
  PetscReal size;

  PetscFunctionBeginUser;
  PetscCall(VecDuplicate(x, &d));
  PetscCall(VecCopy(x, d));
  PetscCall(VecAXPY(d, -1.0, y));
  PetscCall(VecNorm(d, NORM_2, relative));
  PetscCall(VecNorm(y, NORM_2, &size));
  *relative /= size;
  PetscCall(VecDestroy(&d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns ‖b − A x‖ / ‖b‖, or that of Aᵀ. */
static PetscErrorCode residual(Mat A, Vec b, Vec x, PetscBool transposed, PetscReal *relative) {
  Vec r;

  PetscFunctionBeginUser;
  PetscCall(VecDuplicate(b, &r));
  if (transposed)
    PetscCall(MatMultTranspose(A, x, r));
  else
    PetscCall(MatMult(A, x, r));
  PetscCall(difference(r, b, relative));
  PetscCall(VecDestroy(&r));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode new_ksp(Mat A, const char prefix[], PetscReal rtol, KSP *ksp) {
  PetscFunctionBeginUser;
  PetscCall(KSPCreate(PETSC_COMM_SELF, ksp));
  PetscCall(KSPSetOptionsPrefix(*ksp, prefix));
  PetscCall(KSPSetOperators(*ksp, A, A));
  PetscCall(KSPSetNormType(*ksp, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(*ksp, rtol, 1e-50, 1e30, 20000));
  PetscCall(KSPSetFromOptions(*ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Applies the PC `repeats` times and times one application. Compares (v, P⁻¹ u) with (P⁻ᵀ v, u). */
static PetscErrorCode applications(KSP ksp, Vec b, Phase *plain, Phase *transposed, PetscReal *wrong) {
  PC pc;
  Vec u, v, x, y;
  PetscRandom random;
  PetscScalar one, other;
  PetscReal size_v, size_x;
  const int repeats = 20;

  PetscFunctionBeginUser;
  PetscCall(KSPSetUp(ksp));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(VecDuplicate(b, &u));
  PetscCall(VecDuplicate(b, &v));
  PetscCall(VecDuplicate(b, &x));
  PetscCall(VecDuplicate(b, &y));
  PetscCall(PetscRandomCreate(PETSC_COMM_SELF, &random));
  PetscCall(PetscRandomSetFromOptions(random));
  PetscCall(VecSetRandom(u, random));
  PetscCall(VecSetRandom(v, random));
  for (int k = 0; k < 2; k++) {
    PetscBool has = PETSC_TRUE;
    Phase *phase = k ? transposed : plain;

    if (k)
      PetscCall(PCApplyTransposeExists(pc, &has));
    if (!has)
      continue;
    for (int warm = 0; warm < 2; warm++) {
      PetscLogDouble from, to;
      const int count = warm ? repeats : 1;
      const Copies before = copies_so_far();

      PetscCall(PetscTime(&from));
      for (int i = 0; i < count; i++)
        PetscCall(k ? PCApplyTranspose(pc, v, y) : PCApply(pc, u, x));
      phase->copies = copies_so_far();
      PetscCall(waited(k ? y : x));
      PetscCall(PetscTime(&to));
      phase->copies.in -= before.in, phase->copies.in_bytes -= before.in_bytes;
      phase->copies.out -= before.out, phase->copies.out_bytes -= before.out_bytes;
      phase->copies.scalars -= before.scalars;
      phase->seconds = (to - from) / count;
    }
    if (k) {
      PetscCall(VecDot(v, x, &one));
      PetscCall(VecDot(u, y, &other));
      PetscCall(VecNorm(v, NORM_2, &size_v));
      PetscCall(VecNorm(x, NORM_2, &size_x));
      *wrong = PetscAbsScalar(one - other) / (size_v * size_x);
    }
  }
  PetscCall(PetscRandomDestroy(&random));
  PetscCall(VecDestroy(&u));
  PetscCall(VecDestroy(&v));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv) {
  char problem[32] = "poisson", label[128] = "unnamed", file[1024] = "";
  PetscInt n = 32, block, repeats = 3;
  PetscReal skew = 0.0, rtol = 1e-8, error, other, left, left_t = -1.0, wrong = -1.0;
  PetscBool transposes = PETSC_FALSE;
  System s;
  Mat A;
  Vec exact, b, x, reference;
  KSP ksp;
  Phase first = begun(), whole = begun(), again = begun(), fresh = begun(), back = begun();
  Phase apply = begun(), apply_t = begun();
  FILE *out;
  PetscRandom random;
  const char *type;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-problem", problem, sizeof(problem), NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-label", label, sizeof(label), NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-out", file, sizeof(file), NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-n", &n, NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-repeats", &repeats, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-skew", &skew, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-rtol", &rtol, NULL));
  PetscCall(PetscOptionsGetBool(NULL, NULL, "-transposes", &transposes, NULL));

  block = !strcmp(problem, "elasticity") ? 3 : 1;
  if (block == 3)
    PetscCall(elasticity(n, &s));
  else
    PetscCall(poisson(n, skew, &s));
  PetscCall(matrix_of(&s, block, n, &A));
  if (skew != 0.0) {
    PetscCall(MatSetOption(A, MAT_SYMMETRIC, PETSC_FALSE));
    PetscCall(MatSetOption(A, MAT_SPD, PETSC_FALSE));
  }
  PetscCall(PetscFree3(s.ptr, s.col, s.values));
  PetscCall(MatCreateVecs(A, &x, &b));
  PetscCall(VecDuplicate(x, &exact));
  PetscCall(VecDuplicate(x, &reference));
  PetscCall(PetscRandomCreate(PETSC_COMM_SELF, &random));
  PetscCall(VecSetRandom(exact, random));
  PetscCall(MatMult(A, exact, b));
  /* On a GPU, the newest values are there alone from here on. */
  PetscCall(MatScale(A, 2.0));
  PetscCall(MatScale(A, 0.5));

  /* Answers first. */
  PetscCall(new_ksp(A, "ref_", rtol * 1e-2, &ksp));
  PetscCall(KSPSolve(ksp, b, reference));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(new_ksp(A, NULL, rtol, &ksp));
  PetscCall(timed_solve(ksp, b, x, &first));
  PetscCall(residual(A, b, x, PETSC_FALSE, &left));
  PetscCall(difference(x, exact, &error));
  PetscCall(difference(x, reference, &other));
  PetscCall(PetscPrintf(PETSC_COMM_SELF, "%s %s: residual %.2e, error %.2e, from the reference %.2e\n",
                        problem, label, (double)left, (double)error, (double)other));
  PetscCheck(left <= 1.01 * rtol, PETSC_COMM_SELF, PETSC_ERR_PLIB, "the true residual is %g",
             (double)left);
  PetscCheck(error < 1e4 * rtol && other < 1e4 * rtol, PETSC_COMM_SELF, PETSC_ERR_PLIB,
             "the answer is wrong by %g, and from the reference by %g", (double)error, (double)other);
  if (transposes) {
    const Copies before = copies_so_far();

    PetscCall(KSPSolveTranspose(ksp, b, x));
    back.copies = copies_so_far();
    back.copies.in -= before.in, back.copies.in_bytes -= before.in_bytes;
    back.copies.out -= before.out, back.copies.out_bytes -= before.out_bytes;
    back.copies.scalars -= before.scalars;
    back.seconds = 0.0;
    PetscCall(KSPGetIterationNumber(ksp, &back.iterations));
    PetscCall(residual(A, b, x, PETSC_TRUE, &left_t));
    PetscCheck(left_t <= 1.01 * rtol, PETSC_COMM_SELF, PETSC_ERR_PLIB, "the residual of Aᵀ x = b is %g",
               (double)left_t);
  }

  for (PetscInt k = 0; k < repeats; k++)
    PetscCall(timed_solve(ksp, b, x, &again));
  for (PetscInt k = 0; k < repeats; k++) {
    PetscCall(MatScale(A, 1.25));
    PetscCall(waited(b));
    PetscCall(timed_solve(ksp, b, x, &fresh));
  }
  PetscCall(residual(A, b, x, PETSC_FALSE, &left));
  PetscCheck(left <= 1.01 * rtol, PETSC_COMM_SELF, PETSC_ERR_PLIB, "with new values, the residual is %g",
             (double)left);
  PetscCall(KSPView(ksp, PETSC_VIEWER_STDOUT_SELF));
  PetscCall(KSPDestroy(&ksp));
  for (PetscInt k = 0; k < repeats; k++) {
    PetscCall(new_ksp(A, NULL, rtol, &ksp));
    PetscCall(timed_solve(ksp, b, x, &whole));
    PetscCall(KSPDestroy(&ksp));
  }
  PetscCall(new_ksp(A, "apply_", rtol, &ksp)); /* the preconditioner of a KSP of PETSC's own */
  PetscCall(applications(ksp, b, &apply, &apply_t, &wrong));
  PetscCheck(!transposes || wrong < 1e-10, PETSC_COMM_SELF, PETSC_ERR_PLIB,
             "the transposed preconditioner differs by %g", (double)wrong);
  PetscCall(KSPDestroy(&ksp));

  PetscCall(MatGetType(A, &type));
  if (file[0]) {
    out = fopen(file, "a");
    PetscCheck(out, PETSC_COMM_SELF, PETSC_ERR_FILE_OPEN, "%s cannot be written", file);
    fprintf(out,
            "{\"problem\": \"%s\", \"label\": \"%s\", \"n\": %d, \"rows\": %d, \"matrix\": \"%s\", "
            "\"rtol\": %g, \"residual\": %.3g, \"error\": %.3g, \"from_reference\": %.3g, "
            "\"residual_transposed\": %.3g, \"transposed_pc_differs\": %.3g",
            problem, label, (int)n, (int)s.rows, type, (double)rtol, (double)left, (double)error,
            (double)other, (double)left_t, (double)wrong);
    say(out, "first", &first);
    say(out, "whole", &whole);
    say(out, "again", &again);
    say(out, "new_values", &fresh);
    if (transposes)
      say(out, "transposed", &back);
    say(out, "apply", &apply);
    if (wrong >= 0)
      say(out, "apply_transposed", &apply_t);
    fprintf(out, "}\n");
    fclose(out);
  }
  PetscCall(PetscRandomDestroy(&random));
  PetscCall(VecDestroy(&exact));
  PetscCall(VecDestroy(&reference));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&A));
  PetscCall(PetscFinalize());
  return 0;
}
