/* Systems, and checks of their solutions, for test.c. */
#include <math.h>
#include <petscdmda.h>
#include <petscksp.h>
#include <string.h>

#define OK(call) check((call) == 0, __LINE__, #call)
#define EXPECT(what) check((what) ? 1 : 0, __LINE__, #what)

static void check(int holds, int line, const char what[]) {
  if (holds)
    return;
  fprintf(stderr, "line %d: this fails: %s\n", line, what);
  abort();
}

#if PETSC_VERSION_LT(3, 19, 0)
  #define PETSC_SUCCESS 0
#endif

/* Lets a DM of a KSP tell about the system without making its matrix. */
static PetscErrorCode no_dm_operators(KSP ksp) {
#if PETSC_VERSION_LT(3, 25, 0)
  return KSPSetDMActive(ksp, PETSC_FALSE);
#else
  return KSPSetDMActive(ksp, KSP_DMACTIVE_ALL, PETSC_FALSE);
#endif
}

static int ranks(void) {
  PetscMPIInt size;

  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

/* Sets options of a text, or removes them. A ~ is a space in a value. */
static void options(const char text[], PetscBool set) {
  char copy[1024], *word, *next, *end;

  OK(PetscStrncpy(copy, text, sizeof(copy)));
  for (word = strtok_r(copy, " ", &end); word; word = next) {
    next = strtok_r(NULL, " ", &end);
    char *value = next && next[0] != '-' ? next : NULL;

    if (value) {
      for (char *at = value; *at; at++)
        *at = *at == '~' ? ' ' : *at;
      next = strtok_r(NULL, " ", &end);
    }
    if (set)
      OK(PetscOptionsSetValue(NULL, word, value));
    else
      OK(PetscOptionsClearValue(NULL, word));
  }
}

static KSP new_ksp(Mat A, Mat P, const char text[]) {
  KSP ksp;

  options(text, PETSC_TRUE);
  OK(KSPCreate(PetscObjectComm((PetscObject)A), &ksp));
  OK(KSPSetOperators(ksp, A, P ? P : A));
  OK(KSPSetTolerances(ksp, 1e-10, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT));
  OK(KSPSetFromOptions(ksp));
  options(text, PETSC_FALSE);
  return ksp;
}

static void destroy(KSP ksp, Mat A, Mat B) {
  OK(KSPDestroy(&ksp));
  OK(MatDestroy(&A));
  OK(MatDestroy(&B));
}

/* Fills a vector with numbers that depend on their places alone. */
static void fill(Vec v, PetscReal factor) {
  PetscInt first, n;
  PetscScalar *values;

  OK(VecGetOwnershipRange(v, &first, NULL));
  OK(VecGetLocalSize(v, &n));
  OK(VecGetArray(v, &values));
  for (PetscInt i = 0; i < n; i++)
    values[i] = 1.0 + cos(factor * (PetscReal)(first + i));
  OK(VecRestoreArray(v, &values));
}

/* Solves A x = b, or Aᵀ x = b, for a known x. */
static void solves(KSP ksp, int transposed) {
  Mat A;
  Vec x, b, known;
  PetscReal wrong, size;
  KSPConvergedReason reason;

  OK(KSPGetOperators(ksp, &A, NULL));
  OK(MatCreateVecs(A, &x, &b));
  OK(VecDuplicate(x, &known));
  fill(known, 1.0);
  OK(transposed ? MatMultTranspose(A, known, b) : MatMult(A, known, b));
  OK(transposed ? KSPSolveTranspose(ksp, b, x) : KSPSolve(ksp, b, x));
  OK(KSPGetConvergedReason(ksp, &reason));
  EXPECT(reason == KSP_CONVERGED_RTOL);
  OK(VecNorm(known, NORM_2, &size));
  OK(VecAXPY(x, -1.0, known));
  OK(VecNorm(x, NORM_2, &wrong));
  EXPECT(wrong < 1e-6 * size);
  OK(VecDestroy(&x)), OK(VecDestroy(&b)), OK(VecDestroy(&known));
}

/* Solves a singular system, whose solutions differ by constants. */
static void solves_up_to_constants(KSP ksp) {
  Mat A;
  Vec x, b, r;
  PetscReal wrong, size;
  KSPConvergedReason reason;

  OK(KSPGetOperators(ksp, &A, NULL));
  OK(MatCreateVecs(A, &x, &b));
  OK(VecDuplicate(b, &r));
  fill(x, 1.0);
  OK(MatMult(A, x, b));
  OK(VecSet(x, 0.0));
  OK(KSPSolve(ksp, b, x));
  OK(KSPGetConvergedReason(ksp, &reason));
  EXPECT(reason > 0);
  OK(MatMult(A, x, r));
  OK(VecAXPY(r, -1.0, b));
  OK(VecNorm(r, NORM_2, &wrong));
  OK(VecNorm(b, NORM_2, &size));
  EXPECT(wrong < 1e-8 * size);
  OK(VecDestroy(&x)), OK(VecDestroy(&b)), OK(VecDestroy(&r));
}

static void expect_reason(KSP ksp, Vec b, Vec x, PetscReal rtol, PetscReal atol, PetscInt most,
                          KSPConvergedReason wanted) {
  KSPConvergedReason reason;

  OK(KSPSetTolerances(ksp, rtol, atol, PETSC_DEFAULT, most));
  OK(KSPSolve(ksp, b, x));
  OK(KSPGetConvergedReason(ksp, &reason));
  if (reason != wanted)
    fprintf(stderr, "the reason is %d, expected %d\n", (int)reason, (int)wanted);
  EXPECT(reason == wanted);
}

/* Returns whether the view of a KSP has these words. */
static PetscBool says(KSP ksp, const char words[]) {
  static char text[20000];
  FILE *file = tmpfile();
  PetscViewer viewer;
  size_t length;
  int rank;

  OK(PetscViewerASCIIOpenWithFILE(PetscObjectComm((PetscObject)ksp), file, &viewer));
  OK(KSPView(ksp, viewer));
  OK(PetscViewerFlush(viewer));
  OK(PetscViewerDestroy(&viewer));
  rewind(file);
  length = fread(text, 1, sizeof(text) - 1, file);
  text[length] = 0;
  fclose(file);
  MPI_Comm_rank(PetscObjectComm((PetscObject)ksp), &rank);
  if (rank > 0 || strstr(text, words))
    return PETSC_TRUE;
  fprintf(stderr, "%s\nthis view does not say: %s\n", text, words);
  return PETSC_FALSE;
}

static char told[4096];

static PetscErrorCode listen(MPI_Comm comm, int line, const char *function, const char *file,
                             PetscErrorCode code, PetscErrorType p, const char *words, void *context) {
  (void)comm, (void)line, (void)function, (void)file, (void)context;
  if (p == PETSC_ERROR_INITIAL)
    OK(PetscStrncpy(told, words, sizeof(told)));
  return code;
}

/* Expects an error with these words on all ranks, of the options or of the solve. */
static void refused(Mat A, Mat P, const char text[], const char words[]) {
  KSP ksp;
  Vec x, b;
  PetscErrorCode code;

  options(text, PETSC_TRUE);
  told[0] = 0;
  OK(KSPCreate(PETSC_COMM_WORLD, &ksp));
  OK(KSPSetOperators(ksp, A, P ? P : A));
  OK(MatCreateVecs(A, &x, &b));
  OK(VecSet(b, 1.0));
  OK(PetscPushErrorHandler(listen, NULL));
  code = KSPSetFromOptions(ksp);
  if (!code)
    code = KSPSolve(ksp, b, x);
  OK(PetscPopErrorHandler());
  options(text, PETSC_FALSE);
  if (!code || !strstr(told, words))
    fprintf(stderr, "%s\nexpected: %s\nfound: %s\n", text, words, told);
  EXPECT(code && strstr(told, words));
  /* After an error PETSc's objects are left as they are: they may be half made. */
}

static Mat new_matrix(const char type[], PetscInt n, PetscInt b) {
  Mat A;

  OK(MatCreate(PETSC_COMM_WORLD, &A));
  OK(MatSetBlockSize(A, b));
  OK(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n, n));
  OK(MatSetType(A, type));
  OK(MatSetUp(A));
  OK(MatSetOption(A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  return A;
}

static void assemble(Mat A) {
  OK(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  OK(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
}

/* Five-point differences on n×n nodes with blocks of b unknowns, and a skew part. */
static Mat grid_matrix(const char type[], PetscInt n, PetscInt b, PetscReal skew) {
  Mat A = new_matrix(type, n * n * b, b);
  const PetscInt dx[] = {0, -1, 1, 0, 0}, dy[] = {0, 0, 0, -1, 1};
  const PetscBool symmetric = !strcmp(type, MATSBAIJ) ? PETSC_TRUE : PETSC_FALSE;
  PetscInt first, last;

  OK(MatGetOwnershipRange(A, &first, &last));
  for (PetscInt row = first; row < last; row++) {
    const PetscInt node = row / b, x = node % n, y = node / n;
    for (int k = 0; k < 5; k++) {
      if (x + dx[k] < 0 || x + dx[k] >= n || y + dy[k] < 0 || y + dy[k] >= n)
        continue;
      const PetscReal value = k == 0 ? 4.2 : -1.0 + skew * (dx[k] + dy[k]);
      for (PetscInt c = 0; c < b; c++) {
        const PetscInt col = (node + dx[k] + n * dy[k]) * b + c;
        if (!symmetric || col >= row)
          OK(MatSetValue(A, row, col, value * (row % b == c ? 1.0 + 0.1 * c : 0.1), INSERT_VALUES));
      }
    }
  }
  assemble(A);
  return A;
}

/* Second differences with the Neumann condition at both sides of a square. */
static Mat neumann(PetscInt n) {
  Mat A = new_matrix(MATAIJ, n * n, 1);
  PetscInt first, last;

  OK(MatGetOwnershipRange(A, &first, &last));
  for (PetscInt row = first; row < last; row++) {
    const PetscInt x = row % n, y = row / n;
    const PetscInt near[] = {x > 0 ? row - 1 : -1, x < n - 1 ? row + 1 : -1, y > 0 ? row - n : -1,
                             y < n - 1 ? row + n : -1};
    PetscReal sum = 0.0;
    for (int k = 0; k < 4; k++) {
      if (near[k] < 0)
        continue;
      OK(MatSetValue(A, row, near[k], -1.0, INSERT_VALUES));
      sum += 1.0;
    }
    OK(MatSetValue(A, row, row, sum, INSERT_VALUES));
  }
  assemble(A);
  return A;
}

/* [A B; Bᵀ 0] as MATNEST, of second differences at nodes and of differences between them. The
 * preconditioner is made of [A ·; · M]. */
static void saddle(Mat *N, Mat *P, Mat *A, Mat *B, Mat *C, Mat *M) {
  const PetscInt n = 10, pressures = n * n / 2;
  PetscInt first, last, own, half;

  *A = grid_matrix(MATAIJ, n, 1, 0.0);
  *M = new_matrix(MATAIJ, pressures, 1);
  OK(MatGetLocalSize(*A, &own, NULL));
  OK(MatGetLocalSize(*M, &half, NULL));
  OK(MatCreateAIJ(PETSC_COMM_WORLD, own, half, n * n, pressures, 4, NULL, 4, NULL, B));
  OK(MatGetOwnershipRange(*B, &first, &last));
  for (PetscInt row = first; row < last; row++)
    OK(MatSetValue(*B, row, row / 2, row % 2 ? 1.0 : -1.0, INSERT_VALUES));
  assemble(*B);
  OK(MatTranspose(*B, MAT_INITIAL_MATRIX, C));
  OK(MatGetOwnershipRange(*M, &first, &last));
  for (PetscInt row = first; row < last; row++)
    OK(MatSetValue(*M, row, row, 0.4, INSERT_VALUES));
  assemble(*M);
  Mat blocks[] = {*A, *B, *C, NULL}, parts[] = {*A, NULL, NULL, *M};
  OK(MatCreateNest(PETSC_COMM_WORLD, 2, NULL, 2, NULL, blocks, N));
  OK(MatCreateNest(PETSC_COMM_WORLD, 2, NULL, 2, NULL, parts, P));
}

/* Plane stress on n×n bilinear elements, clamped at the left, and the coordinates of its nodes. */
static Mat elasticity(PetscInt n, Vec *points) {
  const PetscInt m = n + 1;
  const PetscReal nu = 0.3, g = 1 / sqrt(3.0), xi[] = {-1, 1, 1, -1}, eta[] = {-1, -1, 1, 1};
  const PetscReal D[3][3] = {{1 / (1 - nu * nu), nu / (1 - nu * nu), 0},
                             {nu / (1 - nu * nu), 1 / (1 - nu * nu), 0},
                             {0, 0, 0.5 / (1 + nu)}};
  PetscScalar K[64] = {0};
  PetscInt first, last, clamped[2000], count = 0;
  Mat A = new_matrix(MATAIJ, 2 * m * m, 2);

  for (int q = 0; q < 4; q++) {
    const PetscReal s = q % 2 ? g : -g, t = q / 2 ? g : -g;
    PetscReal E[3][8] = {{0}};
    for (int a = 0; a < 4; a++) {
      const PetscReal dx = xi[a] * (1 + eta[a] * t) / 2, dy = eta[a] * (1 + xi[a] * s) / 2;
      E[0][2 * a] = E[2][2 * a + 1] = dx, E[1][2 * a + 1] = E[2][2 * a] = dy;
    }
    for (int i = 0; i < 8; i++)
      for (int j = 0; j < 8; j++)
        for (int k = 0; k < 3; k++)
          for (int l = 0; l < 3; l++)
            K[8 * i + j] += E[k][i] * D[k][l] * E[l][j] / 4;
  }
  OK(MatGetOwnershipRange(A, &first, &last));
  for (PetscInt i = 0; i < n; i++) {
    for (PetscInt j = 0; j < n; j++) {
      const PetscInt nodes[] = {i * m + j, (i + 1) * m + j, (i + 1) * m + j + 1, i * m + j + 1};
      PetscInt at[8];
      if (2 * nodes[0] < first || 2 * nodes[0] >= last)
        continue;
      for (int a = 0; a < 8; a++)
        at[a] = 2 * nodes[a / 2] + a % 2;
      OK(MatSetValues(A, 8, at, 8, at, K, ADD_VALUES));
    }
  }
  assemble(A);
  for (PetscInt row = first; row < last && row < 2 * m; row++)
    clamped[count++] = row;
  OK(MatZeroRowsColumns(A, count, clamped, 1.0, NULL, NULL));
  OK(MatCreateVecs(A, points, NULL));
  OK(VecSetBlockSize(*points, 2));
  for (PetscInt row = first; row < last; row++)
    OK(VecSetValue(*points, row, row % 2 ? (row / 2) % m : (row / 2) / m, INSERT_VALUES));
  OK(VecAssemblyBegin(*points));
  OK(VecAssemblyEnd(*points));
  return A;
}

/* Five-point differences of two components on the grid of a DMDA. */
static void fill_by_stencil(DM da, Mat A) {
  PetscInt xs, ys, xm, ym, M, N;

  OK(DMDAGetInfo(da, NULL, &M, &N, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  OK(DMDAGetCorners(da, &xs, &ys, NULL, &xm, &ym, NULL));
  for (PetscInt j = ys; j < ys + ym; j++) {
    for (PetscInt i = xs; i < xs + xm; i++) {
      const MatStencil near[] = {
          {0, j, i, 0}, {0, j, i - 1, 0}, {0, j, i + 1, 0}, {0, j - 1, i, 0}, {0, j + 1, i, 0}};
      for (int k = 0; k < 5; k++) {
        if (near[k].i < 0 || near[k].i >= M || near[k].j < 0 || near[k].j >= N)
          continue;
        for (int c = 0; c < 4; c++) {
          MatStencil row = near[0], col = near[k];
          const PetscScalar value = (k ? -1.0 : 4.5) * (c == 0 ? 2.0 : c == 3 ? 1.0 : 0.4);
          row.c = c / 2, col.c = c % 2;
          OK(MatSetValuesStencil(A, 1, &row, 1, &col, &value, INSERT_VALUES));
        }
      }
    }
  }
  assemble(A);
}

static PetscErrorCode multiply(Mat S, Vec x, Vec y) {
  Mat A;

  PetscFunctionBegin;
  PetscCall(MatShellGetContext(S, &A));
  PetscCall(MatMult(A, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode multiply_transposed(Mat S, Vec x, Vec y) {
  Mat A;

  PetscFunctionBegin;
  PetscCall(MatShellGetContext(S, &A));
  PetscCall(MatMultTranspose(A, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix without entries that multiplies as A does. */
static Mat shell_of(Mat A) {
  Mat S;
  PetscInt n;

  OK(MatGetLocalSize(A, &n, NULL));
  OK(MatCreateShell(PETSC_COMM_WORLD, n, n, PETSC_DETERMINE, PETSC_DETERMINE, A, &S));
  OK(MatShellSetOperation(S, MATOP_MULT, (void (*)(void))multiply));
  OK(MatShellSetOperation(S, MATOP_MULT_TRANSPOSE, (void (*)(void))multiply_transposed));
  return S;
}
