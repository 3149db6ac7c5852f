/* What PETSc's objects tell about a system: blocks, null spaces, coordinates and fields. */
#include "krylith_petsc.h"
#include <ctype.h>
#include <petscdmda.h>

/* Returns the block size that a matrix was given; 0 if it has none that Krylith stores. */
PetscErrorCode KrylithBlockOf(Mat mat, PetscInt *block) {
  PetscInt rows, columns;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSizes(mat, &rows, &columns));
  *block = rows == columns && rows > 1 && rows <= KRYLITH_MAX_BLOCK ? rows : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode mix_id(void *object, PetscInt64 *hash) {
  PetscObjectId id = 0;

  PetscFunctionBegin;
  if (object)
    PetscCall(PetscObjectGetId((PetscObject)object, &id));
  PetscCall(KrylithMix(hash, &id, sizeof(id)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns what changes when other null spaces are attached to the matrices, or to the blocks of a MATNEST.
 */
PetscErrorCode KrylithAttached(Mat amat, Mat mat, PetscInt64 *hash) {
  MatNullSpace space;
  PetscBool nest;
  PetscInt m, n;
  Mat **blocks;

  PetscFunctionBegin;
  *hash = 0;
  PetscCall(mix_id(amat, hash));
  PetscCall(MatGetNullSpace(amat, &space));
  PetscCall(mix_id(space, hash));
  PetscCall(MatGetNearNullSpace(mat, &space));
  PetscCall(mix_id(space, hash));
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATNEST, &nest));
  if (!nest)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNestGetSubMats(mat, &m, &n, &blocks));
  for (PetscInt i = 0; i < m && i < n; i++) {
    space = NULL;
    if (blocks[i][i])
      PetscCall(MatGetNearNullSpace(blocks[i][i], &space));
    PetscCall(mix_id(space, hash));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies the vectors of a null space, the own numbers of each. A lone constant is no vector if `alone` is
 * false. */
static PetscErrorCode vectors_of(MatNullSpace space, PetscInt own, PetscBool alone, PetscInt *count,
                                 PetscScalar **vectors) {
  PetscBool constant;
  PetscInt n, length, at = 0;
  const Vec *vecs;
  const PetscScalar *values;

  PetscFunctionBegin;
  *count = 0;
  *vectors = NULL;
  if (!space)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNullSpaceGetVecs(space, &constant, &n, &vecs));
  if (n == 0 && (!constant || !alone))
    PetscFunctionReturn(PETSC_SUCCESS);
  *count = n + (constant ? 1 : 0);
  PetscCall(PetscMalloc1((size_t)*count * own + 1, vectors)); /* not null without own rows */
  for (PetscInt i = 0; constant && i < own; i++)
    (*vectors)[at++] = 1.0;
  for (PetscInt k = 0; k < n; k++) {
    PetscCall(VecGetLocalSize(vecs[k], &length));
    PetscCheck(length == own, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
               "a vector of a null space has %" PetscInt_FMT " own numbers, and its matrix %" PetscInt_FMT
               " own rows",
               length, own);
    PetscCall(VecGetArrayRead(vecs[k], &values));
    PetscCall(PetscArraycpy(*vectors + at, values, own));
    PetscCall(VecRestoreArrayRead(vecs[k], &values));
    at += own;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Takes the coordinates and, on one rank, the grid of a DMDA with one point for each of the own nodes. */
static PetscErrorCode points_of(DM dm, PetscInt nodes, KrylithSystem *s) {
  PetscMPIInt size;
  PetscInt m[3], length, dimension;
  Vec points;
  const PetscScalar *values;

  PetscFunctionBegin;
  PetscCall(
      DMDAGetInfo(dm, NULL, &m[0], &m[1], &m[2], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)dm), &size));
  if (size == 1 && (PetscInt64)m[0] * m[1] * m[2] == nodes)
    PetscCall(PetscArraycpy(s->grid, m, 3));
  PetscCall(DMGetCoordinates(dm, &points));
  if (!points)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DMGetCoordinateDim(dm, &dimension));
  PetscCall(VecGetLocalSize(points, &length));
  if (length != nodes * dimension)
    PetscFunctionReturn(PETSC_SUCCESS);
  s->dimension = dimension;
  s->points = nodes;
  PetscCall(PetscMalloc1(length + 1, &s->coordinates));
  PetscCall(VecGetArrayRead(points, &values));
  PetscCall(PetscArraycpy(s->coordinates, values, length));
  PetscCall(VecRestoreArrayRead(points, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Adds a field of an index set and its diagonal block, which may be null. */
static PetscErrorCode add_field(KrylithSystem *s, const char name[], IS set, Mat block) {
  KrylithField *field = &s->field[s->fields];
  const PetscInt *numbers;
  PetscInt size;
  PetscBool good = name && isalpha((unsigned char)name[0]) ? PETSC_TRUE : PETSC_FALSE;
  MatNullSpace space;

  PetscFunctionBegin;
  PetscCheck(s->fields < KRYLITH_MAX_FIELDS, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "the system has more than %d fields", KRYLITH_MAX_FIELDS);
  for (const char *at = name; good && *at; at++)
    if (!isalnum((unsigned char)*at) && *at != '_')
      good = PETSC_FALSE;
  if (good)
    PetscCall(PetscStrncpy(field->name, name, sizeof(field->name)));
  else
    PetscCall(PetscSNPrintf(field->name, sizeof(field->name), "f%d", (int)s->fields));
  s->fields++;
  PetscCall(ISGetLocalSize(set, &field->length));
  PetscCall(PetscMalloc1(field->length + 1, &field->unknowns));
  PetscCall(ISGetIndices(set, &numbers));
  for (PetscInt i = 0; i < field->length; i++)
    field->unknowns[i] = numbers[i];
  PetscCall(ISRestoreIndices(set, &numbers));
  PetscCall(ISGetBlockSize(set, &size));
  field->block = size > 1 && size <= KRYLITH_MAX_BLOCK ? size : 1;
  if (!block)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KrylithBlockOf(block, &size));
  if (size)
    field->block = size;
  PetscCall(MatGetNearNullSpace(block, &space));
  PetscCall(vectors_of(space, field->length, PETSC_FALSE, &field->near, &field->vectors));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Takes the fields that the user gave, or those of a MATNEST, or of a DM; components of a DMDA only if
 * asked for. */
static PetscErrorCode fields_of(KrylithFollower *f, Mat mat, DM dm, KrylithSystem *s) {
  PetscBool nest, da = PETSC_FALSE, asked = f->names || f->asks_fields ? PETSC_TRUE : PETSC_FALSE;
  PetscInt m, n, count = 0;
  char **names = NULL;
  int named = 0;
  char **own = NULL;
  IS *sets = NULL;
  Mat **blocks;

  PetscFunctionBegin;
  if (f->names)
    PetscCall(PetscStrToArray(f->names, ',', &named, &own));
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATNEST, &nest));
  if (dm)
    PetscCall(PetscObjectTypeCompare((PetscObject)dm, DMDA, &da));
  if (f->sets > 0) {
    count = f->sets;
    for (PetscInt k = 0; k < count; k++)
      PetscCall(add_field(s, k < named ? own[k] : f->set_name[k], f->set[k], NULL));
  } else if (nest) {
    PetscCall(MatNestGetSubMats(mat, &m, &n, &blocks));
    count = m;
    PetscCall(PetscCalloc1(m, &sets));
    PetscCall(MatNestGetISs(mat, sets, NULL));
    for (PetscInt k = 0; k < m && m > 1; k++)
      PetscCall(add_field(s, k < named ? own[k] : NULL, sets[k], k < n ? blocks[k][k] : NULL));
    PetscCall(PetscFree(sets));
  } else if (dm && (asked || !da)) {
    PetscCall(DMCreateFieldDecomposition(dm, &count, &names, &sets, NULL));
    for (PetscInt k = 0; k < count; k++) {
      if (count > 1)
        PetscCall(add_field(s, k < named ? own[k] : names[k], sets[k], NULL));
      PetscCall(PetscFree(names[k]));
      PetscCall(ISDestroy(&sets[k]));
    }
    PetscCall(PetscFree(names));
    PetscCall(PetscFree(sets));
  }
  PetscCall(PetscStrToArrayDestroy(named, own));
  if (!f->names)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(count > 1, PetscObjectComm((PetscObject)mat), PETSC_ERR_USER_INPUT,
             "`fields` is %s, and neither the matrix nor its DM has fields; use MATNEST, a DM, or "
             "PCFieldSplitSetIS",
             f->names);
  PetscCheck(named == count, PetscObjectComm((PetscObject)mat), PETSC_ERR_USER_INPUT,
             "`fields` has %d names, and the system has %" PetscInt_FMT " fields", named, count);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Collects all that PETSc's objects tell about the system of `mat`. */
PetscErrorCode KrylithDescribe(KrylithFollower *f, Mat amat, Mat mat, DM dm, KrylithSystem *s) {
  PetscInt own;
  PetscBool da = PETSC_FALSE;
  MatNullSpace space;

  PetscFunctionBegin;
  PetscCall(PetscMemzero(s, sizeof(*s)));
  PetscCall(MatGetLocalSize(mat, &own, NULL));
  s->own = own;
  s->block = f->block;
  if (!s->block)
    PetscCall(KrylithBlockOf(mat, &s->block));
  PetscCall(MatGetNullSpace(amat, &space));
  PetscCall(vectors_of(space, own, PETSC_TRUE, &s->null, &s->null_vectors));
  PetscCall(MatGetNearNullSpace(mat, &space));
  PetscCall(vectors_of(space, own, PETSC_FALSE, &s->near, &s->near_vectors));
  if (dm)
    PetscCall(PetscObjectTypeCompare((PetscObject)dm, DMDA, &da));
  if (da)
    PetscCall(points_of(dm, own / PetscMax(s->block, 1), s));
  if (f->dimension > 0) { /* those of PCSetCoordinates come first */
    PetscCall(PetscFree(s->coordinates));
    s->dimension = f->dimension;
    s->points = f->points;
    PetscCall(PetscMalloc1((size_t)f->dimension * f->points + 1, &s->coordinates));
    PetscCall(PetscArraycpy(s->coordinates, f->coordinates, (size_t)f->dimension * f->points));
  }
  if (s->dimension > 0 && !s->block) { /* the number of points tells the block size */
    PetscInt mine = s->points > 0 ? own / s->points : 0, most;

    PetscCallMPI(MPI_Allreduce(&mine, &most, 1, MPIU_INT, MPI_MAX, PetscObjectComm((PetscObject)mat)));
    s->block = PetscMin(PetscMax(most, 1), KRYLITH_MAX_BLOCK);
  }
  PetscCall(fields_of(f, mat, dm, s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithSystemHash(const KrylithSystem *s, PetscInt64 *hash) {
  const PetscInt sizes[] = {s->block,   s->null,    s->near,    s->dimension, s->points,
                            s->grid[0], s->grid[1], s->grid[2], s->fields,    s->own};

  PetscFunctionBegin;
  PetscCall(KrylithMix(hash, sizes, sizeof(sizes)));
  if (s->null)
    PetscCall(KrylithMix(hash, s->null_vectors, (size_t)s->null * s->own * sizeof(PetscScalar)));
  if (s->near)
    PetscCall(KrylithMix(hash, s->near_vectors, (size_t)s->near * s->own * sizeof(PetscScalar)));
  if (s->coordinates)
    PetscCall(KrylithMix(hash, s->coordinates, (size_t)s->points * s->dimension * sizeof(PetscReal)));
  for (PetscInt k = 0; k < s->fields; k++) {
    const KrylithField *field = &s->field[k];
    const PetscInt part[] = {field->length, field->block, field->near};

    PetscCall(KrylithMix(hash, field->name, sizeof(field->name)));
    PetscCall(KrylithMix(hash, part, sizeof(part)));
    PetscCall(KrylithMix(hash, field->unknowns, (size_t)field->length * sizeof(PetscInt64)));
    if (field->near)
      PetscCall(
          KrylithMix(hash, field->vectors, (size_t)field->near * field->length * sizeof(PetscScalar)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives Krylith's problem what describes the system. Collective. */
PetscErrorCode KrylithSystemSet(KrylithFollower *f, MPI_Comm comm, const KrylithSystem *s,
                                krylith_problem *problem) {
  krylith_status status = KRYLITH_OK;
  const char *names[KRYLITH_MAX_FIELDS];
  int64_t lengths[KRYLITH_MAX_FIELDS];
  const int64_t *unknowns[KRYLITH_MAX_FIELDS];
  int32_t blocks[KRYLITH_MAX_FIELDS];
  char part[64];

  PetscFunctionBegin;
  f->taken[0] = 0;
#define TAKEN(...)                                                                                         \
  do {                                                                                                     \
    PetscCall(PetscSNPrintf(part, sizeof(part), __VA_ARGS__));                                             \
    if (f->taken[0])                                                                                       \
      PetscCall(PetscStrlcat(f->taken, ", ", sizeof(f->taken)));                                           \
    PetscCall(PetscStrlcat(f->taken, part, sizeof(f->taken)));                                             \
  } while (0)
  if (s->block)
    TAKEN("block %" PetscInt_FMT, s->block);
  if (s->dimension > 0) {
    const PetscReal *points = s->coordinates;
    PetscReal *padded = NULL;

    TAKEN("coordinates");
    if (s->dimension == 1) { /* Krylith's nodes have two or three coordinates */
      PetscCall(PetscCalloc1(2 * s->points + 1, &padded));
      for (PetscInt i = 0; i < s->points; i++)
        padded[2 * i] = s->coordinates[i];
      points = padded;
    }
    status =
        krylith_problem_set_coordinates(problem, (int32_t)PetscMax(s->dimension, 2), s->points, points);
    PetscCall(PetscFree(padded));
  }
  if (!status && s->grid[0]) {
    TAKEN("grid");
    status = krylith_problem_set_grid(problem, s->grid[0], s->grid[1], s->grid[2]);
  }
  if (!status && (s->near || f->near_nullspace)) {
    if (!f->near_nullspace)
      TAKEN("near null space of %" PetscInt_FMT, s->near);
    status = krylith_problem_set_near_null_vectors(problem, (int32_t)s->near,
                                                   f->near_nullspace ? NULL : s->near_vectors);
  }
  PetscCall(KrylithAgree(comm, status));
  if (s->null || f->nullspace) {
    if (!f->nullspace)
      TAKEN("null space of %" PetscInt_FMT, s->null);
    status =
        krylith_problem_set_null_vectors(problem, (int32_t)s->null, f->nullspace ? NULL : s->null_vectors);
    PetscCall(KrylithAgree(comm, status));
  }
  if (!s->fields)
    PetscFunctionReturn(PETSC_SUCCESS);
  for (PetscInt k = 0; k < s->fields; k++) {
    names[k] = s->field[k].name;
    lengths[k] = s->field[k].length;
    unknowns[k] = (const int64_t *)s->field[k].unknowns;
    blocks[k] = (int32_t)s->field[k].block;
  }
  TAKEN("fields of %" PetscInt_FMT, s->fields);
  PetscCall(KrylithAgree(comm, krylith_problem_set_field_lists(problem, (int32_t)s->fields, names, lengths,
                                                               unknowns, blocks)));
  for (PetscInt k = 0; k < s->fields; k++) {
    if (!s->field[k].near)
      continue;
    TAKEN("near null space of %" PetscInt_FMT " of %s", s->field[k].near, names[k]);
    PetscCall(KrylithAgree(comm, krylith_problem_set_field_near_null_vectors(
                                     problem, names[k], (int32_t)s->field[k].near, s->field[k].vectors)));
  }
#undef TAKEN
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithSystemDestroy(KrylithSystem *s) {
  PetscFunctionBegin;
  PetscCall(PetscFree(s->null_vectors));
  PetscCall(PetscFree(s->near_vectors));
  PetscCall(PetscFree(s->coordinates));
  for (PetscInt k = 0; k < s->fields; k++) {
    PetscCall(PetscFree(s->field[k].unknowns));
    PetscCall(PetscFree(s->field[k].vectors));
  }
  s->fields = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}
