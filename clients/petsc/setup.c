/* The set-up that PC and KSP share: a solver of Krylith that follows the matrices of PETSc. */
#include "krylith_petsc.h"

/* Returns PETSc's error code for a status of Krylith. */
PetscErrorCode KrylithError_(krylith_status status) {
  switch (status) {
  case KRYLITH_INVALID:
    return PETSC_ERR_ARG_WRONG;
  case KRYLITH_MEMORY:
    return PETSC_ERR_MEM;
  default:
    return PETSC_ERR_LIB;
  }
}

/* Raises the error of the first rank that has one, on all ranks. Collective. */
PetscErrorCode KrylithAgree(MPI_Comm comm, krylith_status status) {
  PetscMPIInt rank, size;
  int mine, first, told = (int)status;
  char words[1024] = {0};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  mine = status == KRYLITH_OK ? size : rank;
  PetscCallMPI(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm));
  if (first == size)
    PetscFunctionReturn(PETSC_SUCCESS);
  if (rank == first)
    PetscCall(PetscStrncpy(words, krylith_last_error(), sizeof(words)));
  PetscCallMPI(MPI_Bcast(words, sizeof(words), MPI_CHAR, first, comm));
  PetscCallMPI(MPI_Bcast(&told, 1, MPI_INT, first, comm));
  (void)krylith_reject(words); /* the error text of this rank, too */
  SETERRQ(PETSC_COMM_SELF, KrylithError_((krylith_status)told), "Krylith: %s", words);
}

PetscErrorCode KrylithForget(KrylithFollower *f) {
  PetscFunctionBegin;
  krylith_solver_free(f->solver);
  f->solver = NULL;
  f->gpu = -1;
  f->state = f->attached = f->of_pattern = f->pattern = f->described = 0;
  PetscCall(VecDestroy(&f->map_x));
  PetscCall(VecDestroy(&f->map_y));
  PetscCall(MatDestroy(&f->map));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCSetCoordinates: coordinates of the own nodes. */
static PetscErrorCode set_coordinates(PC pc, PetscInt dimension, PetscInt nodes, PetscReal coordinates[]) {
  PetscContainer container;
  KrylithFollower *f;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)pc, "krylith", (PetscObject *)&container));
  PetscCheck(container, PetscObjectComm((PetscObject)pc), PETSC_ERR_PLIB,
             "the PC has lost its solver of Krylith");
  PetscCall(PetscContainerGetPointer(container, (void **)&f));
  PetscCall(PetscFree(f->coordinates));
  f->dimension = dimension;
  f->points = nodes;
  PetscCall(PetscMalloc1((size_t)dimension * nodes + 1, &f->coordinates));
  PetscCall(PetscArraycpy(f->coordinates, coordinates, (size_t)dimension * nodes));
  f->state = f->attached = 0; /* the next use looks whether the system differs */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCFieldSplitSetIS: one field more. */
static PetscErrorCode set_field(PC pc, const char name[], IS set) {
  PetscContainer container;
  KrylithFollower *f;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)pc, "krylith", (PetscObject *)&container));
  PetscCheck(container, PetscObjectComm((PetscObject)pc), PETSC_ERR_PLIB,
             "the PC has lost its solver of Krylith");
  PetscCall(PetscContainerGetPointer(container, (void **)&f));
  PetscCheck(f->sets < KRYLITH_MAX_FIELDS, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "the system has more than %d fields", KRYLITH_MAX_FIELDS);
  PetscCall(PetscObjectReference((PetscObject)set));
  PetscCall(PetscStrallocpy(name ? name : "", &f->set_name[f->sets]));
  f->set[f->sets++] = set;
  f->state = f->attached = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithFollowerCreate(PetscObject owner, PetscBool of_ksp, KrylithFollower **f) {
  PetscFunctionBegin;
  PetscCall(PetscNew(f));
  (*f)->owner = owner;
  (*f)->of_ksp = of_ksp;
  (*f)->gpu = -1;
  (*f)->place = KRYLITH_ANYWHERE;
  PetscCall(PetscStrallocpy("", &(*f)->options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lets PCSetCoordinates and PCFieldSplitSetIS of a PC reach a follower. */
PetscErrorCode KrylithFollowerAttach(KrylithFollower *f, PC pc) {
  PetscContainer container;

  PetscFunctionBegin;
  PetscCall(PetscContainerCreate(PetscObjectComm((PetscObject)pc), &container));
  PetscCall(PetscContainerSetPointer(container, f));
  PetscCall(PetscObjectCompose((PetscObject)pc, "krylith", (PetscObject)container));
  PetscCall(PetscContainerDestroy(&container));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCSetCoordinates_C", set_coordinates));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCFieldSplitSetIS_C", set_field));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithFollowerDetach(PC pc) {
  PetscFunctionBegin;
  PetscCall(PetscObjectCompose((PetscObject)pc, "krylith", NULL));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCSetCoordinates_C", NULL));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCFieldSplitSetIS_C", NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithFollowerDestroy(KrylithFollower **f) {
  PetscFunctionBegin;
  PetscCall(KrylithForget(*f));
  PetscCall(KrylithOptionsDestroy(*f));
  PetscCall(PetscFree((*f)->coordinates));
  for (PetscInt k = 0; k < (*f)->sets; k++) {
    PetscCall(ISDestroy(&(*f)->set[k]));
    PetscCall(PetscFree((*f)->set_name[k]));
  }
  PetscCall(PetscFree(*f));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A product with a matrix without entries. */
typedef struct {
  KrylithFollower *follower;
  const PetscScalar *x;
  PetscScalar *y;
  PetscBool transposed;
} Product;

static PetscErrorCode multiply(const Product *p) {
  KrylithFollower *f = p->follower;
  const Vec in = p->transposed ? f->map_y : f->map_x, out = p->transposed ? f->map_x : f->map_y;

  PetscFunctionBegin;
  PetscCall(VecPlaceArray(in, p->x));
  PetscCall(VecPlaceArray(out, p->y));
  if (p->transposed)
    PetscCall(MatMultTranspose(f->map, in, out));
  else
    PetscCall(MatMult(f->map, in, out));
  PetscCall(VecResetArray(out));
  PetscCall(VecResetArray(in));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Multiplies on the thread of the caller. */
static int32_t do_multiply(void *given) {
  const Product *p = (const Product *)given;

  p->follower->failed = multiply(p);
  return p->follower->failed ? 1 : 0;
}

static int32_t apply(void *user, int64_t n, const double *x, double *y, int32_t transposed,
                     const krylith_memory *at) {
  KrylithFollower *f = (KrylithFollower *)user;
  Product product = {f, x, y, transposed ? PETSC_TRUE : PETSC_FALSE};

  (void)n;
  f->on_gpu = at ? PETSC_TRUE : PETSC_FALSE;
  return f->on_gpu
             ? 1
             : KrylithRelayCall(f->relay, do_multiply, &product); /* PETSc's vectors are on the host */
}

/* Makes a matrix without entries the operator of the solver. */
static PetscErrorCode set_map(KrylithFollower *f, Mat amat) {
  krylith_operator a = {apply, f, 0, 0};
  PetscBool has;
  PetscInt m, n;

  PetscFunctionBegin;
  PetscCall(PetscObjectReference((PetscObject)amat));
  f->map = amat;
  PetscCall(MatGetLocalSize(amat, &m, &n));
  PetscCall(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, n, NULL, &f->map_x));
  PetscCall(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, m, NULL, &f->map_y));
  PetscCall(MatHasOperation(amat, MATOP_MULT_TRANSPOSE, &has));
  a.has_transpose = has;
  KrylithCall(krylith_solver_set_operators(f->solver, &a, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Raises the error of a status; a KSP has a reason for a matrix that is not finite. */
static PetscErrorCode check_finite(KrylithFollower *f, krylith_status status) {
  PetscFunctionBegin;
  if (f->of_ksp && status == KRYLITH_INVALID && strstr(krylith_last_error(), "must be finite"))
    f->finite = PETSC_FALSE;
  else
    KrylithCall(status);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the problem of the rows of all ranks. */
static PetscErrorCode problem_of(KrylithFollower *f, MPI_Comm comm, const KrylithRows *rows, PetscInt block,
                                 krylith_problem **problem) {
  PetscMPIInt size;
  const PetscInt b = rows->block;
  krylith_status status;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  if (size > 1) {
    const int32_t handle = (int32_t)MPI_Comm_c2f(comm);
    const int64_t *ptr = (const int64_t *)rows->ptr, *col = (const int64_t *)rows->col;

    if (b > 1)
      status = krylith_problem_distributed_bsr(handle, b, rows->rows, rows->entries, NULL, ptr, col,
                                               rows->values, problem);
    else
      status = krylith_problem_distributed_csr(handle, rows->rows, rows->columns, rows->entries, ptr, col,
                                               rows->values, block, problem);
  } else if (rows->ptr) {
    const int64_t *ptr = (const int64_t *)rows->ptr, *col = (const int64_t *)rows->col;

    if (b > 1)
      status = krylith_problem_bsr64(b, rows->rows, rows->entries, ptr, col, rows->values, NULL, problem);
    else
      status =
          krylith_problem_csr64(rows->rows, rows->entries, ptr, col, rows->values, block, NULL, problem);
  } else if (rows->at.gpu >= 0) {
    status = krylith_problem_csr(rows->rows, rows->entries, rows->ia_there, rows->ja_there, rows->values,
                                 block, &rows->at, problem);
  } else {
    if (b > 1)
      status = krylith_problem_bsr(b, rows->rows, rows->entries, rows->ia, rows->ja, rows->values, NULL,
                                   problem);
    else
      status = krylith_problem_csr(rows->rows, rows->entries, rows->ia, rows->ja, rows->values, block, NULL,
                                   problem);
  }
  PetscCall(check_finite(f, status));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives a matrix that the preconditioner names to the problem, or its new values to the solver. */
static PetscErrorCode set_named(KrylithFollower *f, MPI_Comm comm, const char name[],
                                const KrylithRows *rows, krylith_problem *problem) {
  int32_t *col;
  int64_t *ptr;

  PetscFunctionBegin;
  if (!problem) {
    PetscCall(KrylithAgree(comm, krylith_solver_set_matrix(f->solver, name, rows->entries, rows->values)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscMalloc2(rows->rows + 1, &ptr, rows->entries, &col));
  for (PetscInt64 i = 0; i <= rows->rows; i++)
    ptr[i] = rows->ptr ? rows->ptr[i] : rows->ia[i];
  for (PetscInt64 e = 0; e < rows->entries; e++)
    col[e] = rows->col ? (int32_t)rows->col[e] : rows->ja[e];
  PetscCall(KrylithAgree(comm, krylith_problem_set_matrix(problem, name, rows->rows, rows->columns,
                                                          rows->entries, ptr, col, rows->values)));
  PetscCall(PetscFree2(ptr, col));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Mixes the patterns of the diagonal blocks of a second MATNEST, or passes the blocks on as P_<field>. */
static PetscErrorCode named_blocks(KrylithFollower *f, Mat matrix, Mat mat, const KrylithSystem *s,
                                   krylith_problem *problem, PetscInt64 *hash) {
  PetscBool nest;
  PetscInt m, n;
  Mat **blocks;
  char name[80];
  KrylithRows rows;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATNEST, &nest));
  if (mat == matrix || !nest)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNestGetSubMats(mat, &m, &n, &blocks));
  if (m != s->fields || m != n)
    PetscFunctionReturn(PETSC_SUCCESS);
  for (PetscInt k = 0; k < m; k++) {
    if (!blocks[k][k])
      continue;
    PetscCall(PetscSNPrintf(name, sizeof(name), "P_%s", s->field[k].name));
    PetscCall(KrylithRowsGet(blocks[k][k], 1, NULL, &rows));
    if (hash)
      PetscCall(KrylithRowsHash(&rows, hash));
    else
      PetscCall(set_named(f, PetscObjectComm((PetscObject)matrix), name, &rows, problem));
    PetscCall(KrylithRowsRestore(&rows));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Refuses a matrix that Krylith cannot share with the PC or KSP, and an MPI that it cannot call. */
static PetscErrorCode check_ranks(KrylithFollower *f, Mat matrix, PetscBool maps) {
  MPI_Comm comm = PetscObjectComm((PetscObject)matrix);
  PetscMPIInt size, other;
  int same, provided;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm(f->owner), &other));
  PetscCallMPI(MPI_Comm_compare(comm, PetscObjectComm(f->owner), &same));
  PetscCheck(size == other && (size == 1 || same == MPI_IDENT || same == MPI_CONGRUENT), PETSC_COMM_SELF,
             PETSC_ERR_ARG_NOTSAMECOMM,
             "the matrix is on a communicator of %d ranks, and the %s on another of %d; create both on the "
             "same one",
             (int)size, f->of_ksp ? "KSP" : "PC", (int)other);
  if (size == 1)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(!maps, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "the operator has no entries, and several ranks cannot share it; assemble it");
  PetscCallMPI(MPI_Query_thread(&provided));
  PetscCheck(provided >= MPI_THREAD_SERIALIZED, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "MPI was started for one thread, and Krylith calls it from another; start MPI with "
             "MPI_THREAD_SERIALIZED, or set PETSC_MPI_THREAD_REQUIRED to it before PetscInitialize, or put "
             "libkrylith_petsc.so into LD_PRELOAD");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns the options of the solver; a matrix on a GPU is solved there, unless they say otherwise. */
static PetscErrorCode options_there(const KrylithFollower *f, const KrylithRows *rows, char **text) {
  size_t room;
  char device[64] = {0};

  PetscFunctionBegin;
  if (rows->at.gpu >= 0 && f->place == KRYLITH_ANYWHERE)
    PetscCall(PetscSNPrintf(device, sizeof(device), " device=cuda:%d", (int)rows->at.gpu));
  PetscCall(PetscStrlen(f->options, &room));
  room += sizeof(device);
  PetscCall(PetscMalloc1(room, text));
  PetscCall(PetscStrncpy(*text, f->options, room));
  PetscCall(PetscStrlcat(*text, device, room));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes a new solver. */
static PetscErrorCode set_up(KrylithFollower *f, Mat amat, Mat mat, Mat matrix, PetscBool maps,
                             const KrylithRows *rows, const KrylithSystem *s) {
  MPI_Comm comm = PetscObjectComm((PetscObject)matrix);
  krylith_problem *problem = NULL;
  PetscErrorCode ierr;
  krylith_status status = KRYLITH_OK;
  char *options = NULL;

  PetscFunctionBegin;
  PetscCall(KrylithForget(f)); /* frees the memory of the last one */
  PetscCall(problem_of(f, comm, rows, s->block, &problem));
  if (!f->finite)
    PetscFunctionReturn(PETSC_SUCCESS);
  ierr = KrylithSystemSet(f, comm, s, problem);
  if (!ierr)
    ierr = named_blocks(f, matrix, mat, s, problem, NULL);
  if (ierr)
    krylith_problem_free(problem);
  PetscCall(ierr);
  ierr = options_there(f, rows, &options);
  if (!ierr)
    status = krylith_solver_new(problem, options, &f->solver);
  krylith_problem_free(problem);
  PetscCall(ierr);
  PetscCall(PetscFree(options));
  PetscCall(check_finite(f, status));
  if (!f->finite)
    PetscFunctionReturn(PETSC_SUCCESS);
  f->gpu = rows->at.gpu;
  f->set_ups++;
  if (maps)
    PetscCall(set_map(f, amat));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives new values of the same pattern. `keep` keeps the preconditioner, as KSPSetReusePreconditioner asks.
 */
static PetscErrorCode update(KrylithFollower *f, PetscBool keep, Mat mat, Mat matrix,
                             const KrylithRows *rows, const KrylithSystem *s) {
  PetscFunctionBegin;
  PetscCall(named_blocks(f, matrix, mat, s, NULL, NULL));
  KrylithCall(krylith_solver_set_refresh(f->solver, keep ? "keep" : "refresh"));
  PetscCall(
      check_finite(f, krylith_solver_update_values(f->solver, 0, rows->entries * rows->block * rows->block,
                                                   rows->values, &rows->at)));
  f->updates++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode state_of(Mat matrix, Mat mat, PetscInt64 *state) {
  PetscFunctionBegin;
  *state = 0;
  PetscCall(KrylithState(matrix, state));
  if (mat != matrix)
    PetscCall(KrylithState(mat, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sets up, takes new values, or does nothing if the matrix has not changed. Collective. */
static PetscErrorCode follow(KrylithFollower *f, PC pc) {
  Mat amat, mat, matrix;
  PetscBool has, maps = PETSC_FALSE, nest;
  PetscInt64 state = 0, attached, of_pattern, pattern = 0, described = 0;
  int differs, any;
  DM dm = pc->dm;
  krylith_memory at;
  KrylithRows rows;
  KrylithSystem system;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(pc, &amat, &mat));
  if (f->of_ksp) {
    PetscCall(KrylithHasEntries(amat, &has));
    maps = has ? PETSC_FALSE : PETSC_TRUE;
    if (!dm)
      dm = ((KSP)f->owner)->dm;
  }
  matrix = f->of_ksp && !maps ? amat : mat;
  PetscCall(state_of(matrix, mat, &state));
  PetscCall(KrylithAttached(amat, matrix, &attached));
  differs = !f->solver || state != f->state || attached != f->attached;
  /* States of local matrices, as of MATIS, may differ between ranks. */
  PetscCallMPI(MPI_Allreduce(&differs, &any, 1, MPI_INT, MPI_MAX, PetscObjectComm(f->owner)));
  if (!any)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(check_ranks(f, matrix, maps));
  PetscCall(KrylithHasEntries(matrix, &has));
  if (!has && maps && matrix == amat) { /* without a preconditioner */
    PetscInt n;

    PetscCall(KrylithForget(f));
    PetscCall(MatGetLocalSize(amat, &n, NULL));
    KrylithCall(krylith_solver_without_matrix(n, f->options, &f->solver));
    f->set_ups++;
    PetscCall(set_map(f, amat));
    f->state = state;
    f->attached = attached;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCheck(has, PetscObjectComm((PetscObject)matrix), PETSC_ERR_SUP,
             "the matrix is of type %s, which has no entries; give an assembled one as the second of "
             "KSPSetOperators",
             ((PetscObject)matrix)->type_name);

  at.gpu = -1;
  if (!maps) /* which multiply on the host */
    PetscCall(KrylithMemoryOf(f, matrix, &at));
  PetscCall(KrylithRowsGet(matrix, f->block, &at, &rows));
  PetscCall(KrylithPatternState(matrix, &of_pattern));
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATNEST, &nest));
  if (of_pattern && of_pattern == f->of_pattern)
    pattern = f->pattern;
  else
    PetscCall(KrylithRowsHash(&rows, &pattern));
  differs = !f->solver || attached != f->attached || pattern != f->pattern || nest;
  differs = differs || rows.at.gpu != f->gpu;
  PetscCallMPI(MPI_Allreduce(&differs, &any, 1, MPI_INT, MPI_MAX, PetscObjectComm((PetscObject)matrix)));
  if (any) {
    PetscCall(KrylithDescribe(f, amat, matrix, dm, &system));
    PetscCall(KrylithSystemHash(&system, &described));
    PetscCall(named_blocks(f, matrix, mat, &system, NULL, &described));
  } else {
    PetscCall(PetscMemzero(&system, sizeof(system))); /* new values alone */
    described = f->described;
  }
  differs = !f->solver || pattern != f->pattern || described != f->described;
  differs = differs || f->map != (maps ? amat : NULL) || rows.at.gpu != f->gpu;
  PetscCallMPI(MPI_Allreduce(&differs, &any, 1, MPI_INT, MPI_MAX, PetscObjectComm((PetscObject)matrix)));
  if (any)
    PetscCall(set_up(f, amat, mat, matrix, maps, &rows, &system));
  else
    PetscCall(update(f, pc->reusepreconditioner, mat, matrix, &rows, &system));
  PetscCall(KrylithSystemDestroy(&system));
  PetscCall(KrylithRowsRestore(&rows));
  PetscCall(state_of(matrix, mat, &f->state)); /* a conversion may have counted the state of MATNEST up */
  f->attached = attached;
  f->of_pattern = of_pattern;
  f->pattern = pattern;
  f->described = described;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Follows the matrices of a PC. After an error no solver is left: PETSc may go on as if the set-up had
 * succeeded. For a KSP, a matrix that is not finite is no error: f->finite tells it. */
PetscErrorCode KrylithFollow(KrylithFollower *f, PC pc) {
  PetscErrorCode ierr;

  PetscFunctionBegin;
  f->finite = PETSC_TRUE;
  ierr = follow(f, pc);
  if (ierr || !f->finite)
    (void)KrylithForget(f);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithView(KrylithFollower *f, PetscViewer viewer) {
  PetscBool ascii;
  const char *system[] = {f->nullspace, f->near_nullspace, f->names},
             *names[] = {"nullspace", "near_nullspace", "fields"};

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &ascii));
  if (!ascii)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "  Krylith %s: %s\n", krylith_version(),
                                   f->options && f->options[0] ? f->options : "defaults"));
  for (int k = 0; k < 3; k++)
    if (system[k])
      PetscCall(PetscViewerASCIIPrintf(viewer, "  %s: %s\n", names[k], system[k]));
  if (!f->solver)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "  taken from the matrix and its DM: %s\n",
                                   f->taken[0] ? f->taken : "nothing else"));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "  %" PetscInt_FMT " set-ups, %" PetscInt_FMT " updates of values\n",
                                   f->set_ups, f->updates));
  PetscFunctionReturn(PETSC_SUCCESS);
}
