/* Conversion of matrices to AIJ, whose result is checked by a product with a vector. */
#include "krylith_petsc.h"

/* Makes an AIJ matrix of an MPISBAIJ matrix; PETSc 3.18 converts its diagonal blocks wrongly. */
static PetscErrorCode of_upper(Mat mat, Mat *found) {
  PetscInt first, last, n, *count;
  const PetscInt *col;
  const PetscScalar *values;
  Mat lower;
  Vec zero;

  PetscFunctionBegin;
  PetscCall(MatSetOption(mat, MAT_GETROW_UPPERTRIANGULAR, PETSC_TRUE));
  PetscCall(MatGetOwnershipRange(mat, &first, &last));
  PetscCall(PetscCalloc1(last - first, &count));
  for (PetscInt i = first; i < last; i++) {
    PetscCall(MatGetRow(mat, i, &n, NULL, NULL));
    count[i - first] = n;
    PetscCall(MatRestoreRow(mat, i, &n, NULL, NULL));
  }
  PetscCall(MatCreate(PetscObjectComm((PetscObject)mat), found));
  PetscCall(MatSetSizes(*found, last - first, last - first, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetType(*found, MATAIJ));
  PetscCall(MatSeqAIJSetPreallocation(*found, 0, count));
  PetscCall(MatMPIAIJSetPreallocation(*found, 0, count, 0, count));
  for (PetscInt i = first; i < last; i++) {
    PetscCall(MatGetRow(mat, i, &n, &col, &values));
    for (PetscInt j = 0; j < n; j++) {
      if (col[j] >= i)
        PetscCall(MatSetValues(*found, 1, &i, 1, &col[j], &values[j],
                               INSERT_VALUES)); /* diagonal blocks are stored whole */
    }
    PetscCall(MatRestoreRow(mat, i, &n, &col, &values));
  }
  PetscCall(MatAssemblyBegin(*found, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*found, MAT_FINAL_ASSEMBLY));
  PetscCall(PetscFree(count));
  PetscCall(MatSetOption(mat, MAT_GETROW_UPPERTRIANGULAR, PETSC_FALSE));
  PetscCall(MatTranspose(*found, MAT_INITIAL_MATRIX, &lower));
  PetscCall(MatCreateVecs(lower, NULL, &zero));
  PetscCall(VecSet(zero, 0.0));
  PetscCall(MatDiagonalSet(lower, zero, INSERT_VALUES));
  PetscCall(MatAXPY(*found, 1.0, lower, DIFFERENT_NONZERO_PATTERN));
  PetscCall(VecDestroy(&zero));
  PetscCall(MatDestroy(&lower));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithConvert(Mat mat, Mat *found) {
  const char *type = ((PetscObject)mat)->type_name;
  Vec x, y, z;
  PetscInt first, n;
  PetscScalar *values;
  PetscReal wrong, size;
  PetscBool upper;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATMPISBAIJ, &upper));
  if (upper)
    PetscCall(of_upper(mat, found));
  else
    PetscCall(MatConvert(mat, MATAIJ, MAT_INITIAL_MATRIX, found));
  PetscCall(MatCreateVecs(mat, &x, &y));
  PetscCall(VecGetOwnershipRange(x, &first, NULL));
  PetscCall(VecGetLocalSize(x, &n));
  PetscCall(VecGetArray(x, &values));
  for (PetscInt i = 0; i < n; i++)
    values[i] = PetscCosReal((PetscReal)(first + i));
  PetscCall(VecRestoreArray(x, &values));
  PetscCall(VecDuplicate(y, &z));
  PetscCall(MatMult(mat, x, y));
  PetscCall(MatMult(*found, x, z));
  PetscCall(VecAXPY(z, -1.0, y));
  PetscCall(VecNorm(z, NORM_2, &wrong));
  PetscCall(VecNorm(y, NORM_2, &size));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscCall(VecDestroy(&z));
  if (wrong > 1e-6 * size) {
    PetscCall(MatDestroy(found));
    SETERRQ(PetscObjectComm((PetscObject)mat), PETSC_ERR_SUP,
            "PETSc converts this matrix of type %s to another matrix of type aij; assemble an AIJ matrix",
            type);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
