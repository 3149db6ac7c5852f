/* Arrays in the memory of a GPU: values of a matrix of type AIJCUSPARSE, and vectors of type VECCUDA. PETSc
 * counts its copies between GPU and host; here it makes none. */
#include "krylith_petsc.h"

#if defined(KRYLITH_PETSC_CUDA)
  #include <petscdevice.h>

/* Returns the GPU that PETSc uses, and the stream of its work; -1 if it uses none of CUDA. */
static PetscErrorCode memory_of_petsc(krylith_memory *at) {
  PetscDeviceContext context;
  PetscDeviceType type;
  PetscDevice device;
  PetscInt number;
  void *stream;

  PetscFunctionBegin;
  at->gpu = -1;
  at->stream = NULL;
  PetscCall(PetscDeviceContextGetCurrentContext(&context));
  PetscCall(PetscDeviceContextGetDeviceType(context, &type));
  if (type != PETSC_DEVICE_CUDA)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscDeviceContextGetDevice(context, &device));
  PetscCall(PetscDeviceGetDeviceId(device, &number));
  PetscCall(PetscDeviceContextGetStreamHandle(context, &stream)); /* the address of the stream */
  at->gpu = (int32_t)number;
  at->stream = *(void **)stream;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns the memory that Krylith reads the values of a matrix from: that of the GPU where they are, if
 * Krylith solves on the same one; otherwise the host. */
PetscErrorCode KrylithMemoryOf(const KrylithFollower *f, Mat mat, krylith_memory *at) {
  PetscBool there, bound;

  PetscFunctionBegin;
  at->gpu = -1;
  at->stream = NULL;
  PetscCall(PetscObjectTypeCompare((PetscObject)mat, MATSEQAIJCUSPARSE, &there));
  if (!there || f->place == KRYLITH_ELSEWHERE)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatBoundToCPU(mat, &bound));
  if (bound)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(memory_of_petsc(at));
  if (f->place >= 0 && f->place != at->gpu)
    at->gpu = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives the arrays of a matrix of type AIJCUSPARSE in the memory of the GPU. */
PetscErrorCode KrylithRowsThere(Mat mat, const krylith_memory *at, KrylithRows *rows) {
  PetscScalar *values;
  PetscMemType type;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetCSRAndMemType(mat, &rows->ia_there, &rows->ja_there, &values, &type));
  PetscCheck(PetscMemTypeCUDA(type), PETSC_COMM_SELF, PETSC_ERR_PLIB,
             "the arrays of a matrix of type %s are not on the GPU", ((PetscObject)mat)->type_name);
  rows->values = values;
  rows->at = *at;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode is_there(Vec v, PetscBool *there) {
  PetscBool bound;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)v, there, VECSEQCUDA, VECMPICUDA, ""));
  if (!*there)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecBoundToCPU(v, &bound));
  if (bound)
    *there = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Returns true if two vectors are on the GPU of the solver. */
static PetscErrorCode both_there(const KrylithFollower *f, Vec from, Vec to, krylith_memory *at,
                                 PetscBool *both) {
  PetscFunctionBegin;
  *both = f->gpu >= 0 ? PETSC_TRUE : PETSC_FALSE;
  if (*both)
    PetscCall(is_there(from, both));
  if (*both)
    PetscCall(is_there(to, both));
  if (!*both)
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(memory_of_petsc(at));
  *both = at->gpu == f->gpu ? PETSC_TRUE : PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PetscErrorCode KrylithMemoryOf(const KrylithFollower *f, Mat mat, krylith_memory *at) {
  PetscFunctionBegin;
  (void)f, (void)mat;
  at->gpu = -1;
  at->stream = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithRowsThere(Mat mat, const krylith_memory *at, KrylithRows *rows) {
  PetscFunctionBegin;
  (void)at, (void)rows;
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_PLIB, "a matrix of type %s is on a GPU, and this PETSc has no CUDA",
          ((PetscObject)mat)->type_name);
}

#endif

/* Gives the numbers of two vectors: on the GPU of the solver if both are there, otherwise on the host.
 * `kept` says that the old numbers of `to` are needed. */
PetscErrorCode KrylithVectorsGet(const KrylithFollower *f, Vec from, Vec to, PetscBool kept,
                                 KrylithVectors *v) {
  PetscFunctionBegin;
  v->from = from;
  v->to = to;
  v->memory = NULL;
  v->kept = kept;
#if defined(KRYLITH_PETSC_CUDA)
  PetscBool there;

  PetscCall(both_there(f, from, to, &v->at, &there));
  if (there) {
    v->memory = &v->at;
    PetscCall(VecGetArrayReadAndMemType(from, &v->given, NULL));
    if (kept)
      PetscCall(VecGetArrayAndMemType(to, &v->found, NULL));
    else
      PetscCall(VecGetArrayWriteAndMemType(to, &v->found, NULL));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
#else
  (void)f;
#endif
  PetscCall(VecGetArrayRead(from, &v->given));
  PetscCall(VecGetArray(to, &v->found)); /* not ...Write, which copies nothing to a VecNest */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KrylithVectorsRestore(KrylithVectors *v) {
  PetscFunctionBegin;
  if (v->memory) {
    if (v->kept)
      PetscCall(VecRestoreArrayAndMemType(v->to, &v->found));
    else
      PetscCall(VecRestoreArrayWriteAndMemType(v->to, &v->found));
    PetscCall(VecRestoreArrayReadAndMemType(v->from, &v->given));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecRestoreArray(v->to, &v->found));
  PetscCall(VecRestoreArrayRead(v->from, &v->given));
  PetscFunctionReturn(PETSC_SUCCESS);
}
