/* The rows of a matrix of PETSc, as arrays for Krylith. */
#include "krylith_petsc.h"

/* Types of matrices without entries, which only multiply. */
static const char *const MAPS[] = {"shell",     "mffd",   "python",    "schurcomplement",
                                   "composite", "lrc",    "transpose", "hermitiantranspose",
                                   "normal",    "normalh"};

static PetscBool begins(Mat mat, const char type[]) {
  const char *name = ((PetscObject)mat)->type_name;
  return name && !strncmp(name, type, strlen(type)) ? PETSC_TRUE : PETSC_FALSE;
}

/* Mixes bytes into a hash: FNV-1a on words of 64 bits, and on the bytes that are left. */
PetscErrorCode KrylithMix(PetscInt64 *hash, const void *data, size_t bytes) {
  uint64_t h = (uint64_t)*hash ^ 0x9e3779b97f4a7c15u, word;
  const char *at = (const char *)data;

  PetscFunctionBegin;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    memcpy(&word, at, 8);
    h = (h ^ word) * 0x100000001b3u;
    h ^= h >> 29; /* high bits reach low ones */
  }
  for (; bytes > 0; at++, bytes--)
    h = (h ^ (unsigned char)*at) * 0x100000001b3u;
  *hash = (PetscInt64)(h ^ (h >> 32));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode identity(Mat mat, PetscInt64 *hash) {
  PetscObjectId id;
  PetscObjectState state;
  PetscInt64 both[2];

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)mat, &id));
  PetscCall(PetscObjectStateGet((PetscObject)mat, &state));
  both[0] = (PetscInt64)id, both[1] = (PetscInt64)state;
  PetscCall(KrylithMix(hash, both, sizeof(both)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithHasEntries(Mat mat, PetscBool *has) {
  PetscBool nest, part;
  PetscInt m, n;
  Mat **blocks;

  PetscFunctionBegin;
  *has = PETSC_TRUE;
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATNEST, &nest));
  if (nest) {
    PetscCall(MatNestGetSubMats(mat, &m, &n, &blocks));
    for (PetscInt i = 0; i < m; i++) {
      for (PetscInt j = 0; j < n; j++) {
        if (!blocks[i][j])
          continue;
        PetscCall(KrylithHasEntries(blocks[i][j], &part));
        if (!part)
          *has = PETSC_FALSE;
      }
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (size_t k = 0; k < sizeof(MAPS) / sizeof(MAPS[0]); k++) {
    PetscCall(PetscObjectTypeCompare((PetscObject)mat, MAPS[k], &part));
    if (part)
      *has = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Mixes what changes whenever a matrix changes: the states that PETSc counts, of all parts. */
PetscErrorCode KrylithState(Mat mat, PetscInt64 *hash) {
  PetscBool nest, is;
  PetscInt m, n, none = -1;
  Mat **blocks, local;

  PetscFunctionBegin;
  PetscCall(identity(mat, hash));
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATNEST, &nest));
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATIS, &is));
  if (nest) {
    PetscCall(MatNestGetSubMats(mat, &m, &n, &blocks));
    for (PetscInt i = 0; i < m; i++) {
      for (PetscInt j = 0; j < n; j++) {
        if (blocks[i][j])
          PetscCall(KrylithState(blocks[i][j], hash));
        else
          PetscCall(KrylithMix(hash, &none, sizeof(none)));
      }
    }
  }
  if (is) {
    PetscCall(MatISGetLocalMat(mat, &local));
    PetscCall(identity(local, hash));
    PetscCall(MatISRestoreLocalMat(mat, &local));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns what changes whenever the pattern of a matrix changes; 0 if PETSc does not tell. */
PetscErrorCode KrylithPatternState(Mat mat, PetscInt64 *hash) {
  PetscObjectId id;
  PetscObjectState state;
  PetscInt64 both[2];

  PetscFunctionBegin;
  *hash = 0;
  if (!begins(mat, "seqaij") && !begins(mat, "seqbaij") && !begins(mat, "seqsbaij") &&
      !begins(mat, "mpiaij") && !begins(mat, "mpibaij"))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectGetId((PetscObject)mat, &id));
  PetscCall(MatGetNonzeroState(mat, &state));
  both[0] = (PetscInt64)id, both[1] = (PetscInt64)state;
  PetscCall(KrylithMix(hash, both, sizeof(both)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Writes blocks row by row; PETSc stores their columns one after the other. */
static void transposed(const PetscScalar *from, PetscScalar *to, PetscInt b) {
  for (PetscInt i = 0; i < b; i++)
    for (PetscInt j = 0; j < b; j++)
      to[i * b + j] = from[j * b + i];
}

/* Gives the arrays of a sequential matrix, or of its blocks. Values of AIJ are in the memory `at`; null is the
 * host. */
static PetscErrorCode sequential(Mat mat, PetscInt b, const krylith_memory *at, KrylithRows *rows) {
  const PetscBool aij = begins(mat, "seqaij");
  PetscInt n;
  PetscBool done;
  PetscScalar *blocks;

  PetscFunctionBegin;
  PetscCall(
      MatGetRowIJ(mat, 0, PETSC_FALSE, aij ? PETSC_FALSE : PETSC_TRUE, &n, &rows->ia, &rows->ja, &done));
  PetscCheck(done, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "a matrix of type %s does not give its rows; assemble an AIJ matrix",
             ((PetscObject)mat)->type_name);
  rows->borrowed = PETSC_TRUE;
  rows->rows = n;
  rows->entries = rows->ia[n];
  if (aij) {
    if (at && at->gpu >= 0)
      PetscCall(KrylithRowsThere(mat, at, rows));
    else
      PetscCall(MatSeqAIJGetArrayRead(mat, &rows->values));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatSeqBAIJGetArray(mat, &blocks));
  rows->values = blocks;
  if (b > 1) {
    PetscCall(PetscMalloc1(rows->entries * b * b, &rows->copy));
    for (PetscInt64 e = 0; e < rows->entries; e++)
      transposed(blocks + e * b * b, rows->copy + e * b * b, b);
    rows->values = rows->copy;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives all blocks of a matrix of which PETSc stores the upper triangle, in ascending columns. */
static PetscErrorCode symmetric(Mat mat, PetscInt b, KrylithRows *rows) {
  const PetscInt *ia, *ja;
  PetscInt n;
  PetscInt64 *next;
  PetscBool done;
  PetscScalar *blocks;

  PetscFunctionBegin;
  PetscCall(MatGetRowIJ(mat, 0, PETSC_FALSE, PETSC_TRUE, &n, &ia, &ja, &done));
  PetscCheck(done, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "a matrix of type %s does not give its rows; assemble an AIJ matrix",
             ((PetscObject)mat)->type_name);
  PetscCall(MatSeqSBAIJGetArray(mat, &blocks));
  PetscCall(PetscCalloc1(n + 1, &rows->ptr));
  for (PetscInt i = 0; i < n; i++) {
    for (PetscInt e = ia[i]; e < ia[i + 1]; e++) {
      rows->ptr[i + 1]++;
      if (ja[e] != i)
        rows->ptr[ja[e] + 1]++;
    }
  }
  for (PetscInt i = 0; i < n; i++)
    rows->ptr[i + 1] += rows->ptr[i];
  rows->rows = n;
  rows->entries = rows->ptr[n];
  PetscCall(PetscMalloc1(rows->entries, &rows->col));
  PetscCall(PetscMalloc1(rows->entries * b * b, &rows->copy));
  PetscCall(PetscMalloc1(n, &next));
  PetscCall(PetscArraycpy(next, rows->ptr, n));
  /* Rows before i have put their blocks left of the diagonal of row i, in ascending columns. */
  for (PetscInt i = 0; i < n; i++) {
    for (PetscInt e = ia[i]; e < ia[i + 1]; e++) {
      const PetscScalar *block = blocks + (PetscInt64)e * b * b;
      PetscScalar *to = rows->copy + next[i] * b * b;

      rows->col[next[i]++] = ja[e];
      transposed(block, to, b);
      if (ja[e] == i) { /* PETSc reads the upper triangle of a diagonal block */
        for (PetscInt k = 0; k < b; k++)
          for (PetscInt l = 0; l < k; l++)
            to[k * b + l] = to[l * b + k];
      } else {
        PetscCall(PetscArraycpy(rows->copy + next[ja[e]] * b * b, block, b * b));
        rows->col[next[ja[e]]++] = i;
      }
    }
  }
  rows->values = rows->copy;
  PetscCall(PetscFree(next));
  PetscCall(MatSeqSBAIJRestoreArray(mat, &blocks));
  PetscCall(MatRestoreRowIJ(mat, 0, PETSC_FALSE, PETSC_TRUE, &n, &ia, &ja, &done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Joins the diagonal and off-diagonal parts of the rows of this rank, in ascending columns of the matrix.
 */
static PetscErrorCode merged(Mat mat, PetscInt b, KrylithRows *rows) {
  const PetscBool aij = begins(mat, "mpiaij");
  const PetscInt *map;
  PetscInt first;
  Mat part[2];
  KrylithRows own[2];
  PetscInt64 entries = 0;

  PetscFunctionBegin;
  if (aij)
    PetscCall(MatMPIAIJGetSeqAIJ(mat, &part[0], &part[1], &map));
  else
    PetscCall(MatMPIBAIJGetSeqBAIJ(mat, &part[0], &part[1], &map));
  PetscCall(MatGetOwnershipRangeColumn(mat, &first, NULL));
  first /= b;
  for (int k = 0; k < 2; k++) {
    PetscCall(PetscMemzero(&own[k], sizeof(own[k])));
    own[k].mat = part[k], own[k].block = b, own[k].at.gpu = -1;
    PetscCall(sequential(part[k], b, NULL, &own[k]));
    entries += own[k].entries;
  }
  const PetscInt64 n = own[0].rows;
  rows->rows = n;
  rows->entries = entries;
  PetscCall(PetscMalloc1(n + 1, &rows->ptr));
  PetscCall(PetscMalloc1(entries, &rows->col));
  PetscCall(PetscMalloc1(entries * b * b, &rows->copy));
  rows->ptr[0] = entries = 0;
  for (PetscInt64 i = 0; i < n; i++) {
    PetscInt e = own[1].ia[i];
    const PetscInt end = own[1].ia[i + 1];
    for (int side = 0; side < 3; side++) { /* left of the own columns, within, and right of them */
      const int k = side == 1 ? 0 : 1;
      PetscInt from = side == 1 ? own[0].ia[i] : e;
      PetscInt to = side == 1 ? own[0].ia[i + 1] : end;
      if (side == 0)
        for (to = from; to < end && map[own[1].ja[to]] < first;)
          to++;
      if (side == 0)
        e = to;
      for (PetscInt j = from; j < to; j++)
        rows->col[entries + j - from] = k ? map[own[1].ja[j]] : first + own[0].ja[j];
      PetscCall(PetscArraycpy(rows->copy + entries * b * b, own[k].values + (PetscInt64)from * b * b,
                              (PetscInt64)(to - from) * b * b));
      entries += to - from;
    }
    rows->ptr[i + 1] = entries;
  }
  rows->values = rows->copy;
  for (int k = 0; k < 2; k++)
    PetscCall(KrylithRowsRestore(&own[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives scalar rows of any matrix that has MatGetRow. */
static PetscErrorCode one_by_one(Mat mat, KrylithRows *rows) {
  PetscInt first, last, n;
  const PetscInt *col;
  const PetscScalar *values;

  PetscFunctionBegin;
  rows->block = 1;
  PetscCall(MatGetOwnershipRange(mat, &first, &last));
  rows->rows = last - first;
  PetscCall(PetscMalloc1(rows->rows + 1, &rows->ptr));
  rows->ptr[0] = 0;
  for (PetscInt i = first; i < last; i++) {
    PetscCall(MatGetRow(mat, i, &n, NULL, NULL));
    rows->ptr[i - first + 1] = rows->ptr[i - first] + n;
    PetscCall(MatRestoreRow(mat, i, &n, NULL, NULL));
  }
  rows->entries = rows->ptr[last - first];
  PetscCall(PetscMalloc1(rows->entries, &rows->col));
  PetscCall(PetscMalloc1(rows->entries, &rows->copy));
  for (PetscInt i = first; i < last; i++) {
    PetscCall(MatGetRow(mat, i, &n, &col, &values));
    for (PetscInt j = 0; j < n; j++) {
      rows->col[rows->ptr[i - first] + j] = col[j];
      rows->copy[rows->ptr[i - first] + j] = values[j];
    }
    PetscCall(MatRestoreRow(mat, i, &n, &col, &values));
  }
  rows->values = rows->copy;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives the rows of this process. `block` is the block size that the user asks for, or 0. Values of AIJ are
 * in the memory `at`; null is the host. */
PetscErrorCode KrylithRowsGet(Mat mat, PetscInt block, const krylith_memory *at, KrylithRows *rows) {
  PetscInt b, columns;
  PetscBool fits;

  PetscFunctionBegin;
  PetscCall(PetscMemzero(rows, sizeof(*rows)));
  PetscCall(MatGetBlockSize(mat, &b));
  PetscCall(MatGetSize(mat, NULL, &columns));
  fits = b == 1 || (b <= KRYLITH_MAX_BLOCK && (block == 0 || block == b)) ? PETSC_TRUE : PETSC_FALSE;
  rows->mat = mat;
  rows->at.gpu = -1;
  rows->block = begins(mat, "seqbaij") || begins(mat, "seqsbaij") || begins(mat, "mpibaij") ? b : 1;
  if (begins(mat, "seqaij"))
    PetscCall(sequential(mat, 1, at, rows));
  else if (begins(mat, "mpiaij"))
    PetscCall(merged(mat, 1, rows));
  else if (fits && begins(mat, "seqbaij"))
    PetscCall(sequential(mat, b, NULL, rows));
  else if (fits && begins(mat, "seqsbaij"))
    PetscCall(symmetric(mat, b, rows));
  else if (fits && begins(mat, "mpibaij"))
    PetscCall(merged(mat, b, rows));
  else if (begins(mat, "seqbaij") || begins(mat, "mpibaij"))
    PetscCall(one_by_one(mat, rows));
  else {
    Mat converted;

    PetscCall(KrylithConvert(mat, &converted));
    PetscCall(KrylithRowsGet(converted, block, NULL, rows));
    rows->converted = PETSC_TRUE;
  }
  rows->columns = columns / rows->block;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithRowsRestore(KrylithRows *rows) {
  PetscInt n;
  PetscBool done;

  PetscFunctionBegin;
  if (rows->borrowed) {
    const PetscBool aij = begins(rows->mat, "seqaij");
    if (aij && rows->at.gpu < 0)
      PetscCall(MatSeqAIJRestoreArrayRead(rows->mat, &rows->values));
    PetscCall(MatRestoreRowIJ(rows->mat, 0, PETSC_FALSE, aij ? PETSC_FALSE : PETSC_TRUE, &n, &rows->ia,
                              &rows->ja, &done));
  }
  PetscCall(PetscFree(rows->ptr));
  PetscCall(PetscFree(rows->col));
  PetscCall(PetscFree(rows->copy));
  if (rows->converted)
    PetscCall(MatDestroy(&rows->mat));
  PetscCall(PetscMemzero(rows, sizeof(*rows)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Mixes the pattern, which is the same for indices of 32 and of 64 bits only if their arrays are of one
 * kind. */
PetscErrorCode KrylithRowsHash(const KrylithRows *rows, PetscInt64 *hash) {
  const PetscInt64 sizes[] = {rows->block, rows->rows, rows->columns, rows->entries};

  PetscFunctionBegin;
  PetscCall(KrylithMix(hash, sizes, sizeof(sizes)));
  PetscCall(KrylithMix(hash, rows->ptr ? (const void *)rows->ptr : (const void *)rows->ia,
                       (size_t)(rows->rows + 1) * (rows->ptr ? sizeof(PetscInt64) : sizeof(PetscInt))));
  PetscCall(KrylithMix(hash, rows->col ? (const void *)rows->col : (const void *)rows->ja,
                       (size_t)rows->entries * (rows->col ? sizeof(PetscInt64) : sizeof(PetscInt))));
  PetscFunctionReturn(PETSC_SUCCESS);
}
