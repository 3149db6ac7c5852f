/* The preconditioner of Krylith as a PC: -pc_type krylith. */
#include "krylith_petsc.h"

static PetscErrorCode PCSetUp_Krylith(PC pc) {
  PetscFunctionBegin;
  PetscCall(KrylithFollow((KrylithFollower *)pc->data, pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sets up if the solver was forgotten, or told more, since PETSc's set-up. */
static PetscErrorCode ready(PC pc) {
  KrylithFollower *f = (KrylithFollower *)pc->data;

  PetscFunctionBegin;
  if (!f->solver || !f->state)
    PetscCall(KrylithFollow(f, pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes y = P⁻¹ x, or y = P⁻ᵀ x. */
static PetscErrorCode apply(PC pc, PetscBool transposed, const PetscScalar *x, PetscScalar *y,
                            const krylith_memory *at) {
  KrylithFollower *f = (KrylithFollower *)pc->data;

  PetscFunctionBegin;
  if (transposed)
    KrylithCall(krylith_solver_precondition_transposed(f->solver, x, y, at));
  else
    KrylithCall(krylith_solver_precondition(f->solver, x, y, at));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_vec(PC pc, PetscBool transposed, Vec x, Vec y) {
  KrylithVectors v;

  PetscFunctionBegin;
  PetscCall(ready(pc));
  PetscCall(KrylithVectorsGet((KrylithFollower *)pc->data, x, y, PETSC_FALSE, &v));
  PetscCall(apply(pc, transposed, v.given, v.found, v.memory));
  PetscCall(KrylithVectorsRestore(&v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApply_Krylith(PC pc, Vec x, Vec y) {
  PetscFunctionBegin;
  PetscCall(apply_vec(pc, PETSC_FALSE, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApplyTranspose_Krylith(PC pc, Vec x, Vec y) {
  PetscFunctionBegin;
  PetscCall(apply_vec(pc, PETSC_TRUE, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode apply_mat(PC pc, PetscBool transposed, Mat X, Mat Y) {
  const PetscScalar *given;
  PetscScalar *found;
  PetscInt columns, ldx, ldy;

  PetscFunctionBegin;
  PetscCall(ready(pc));
  PetscCall(MatGetSize(X, NULL, &columns));
  PetscCall(MatDenseGetLDA(X, &ldx));
  PetscCall(MatDenseGetLDA(Y, &ldy));
  PetscCall(MatDenseGetArrayRead(X, &given));
  PetscCall(MatDenseGetArrayWrite(Y, &found));
  for (PetscInt k = 0; k < columns; k++)
    PetscCall(apply(pc, transposed, given + (size_t)k * ldx, found + (size_t)k * ldy, NULL));
  PetscCall(MatDenseRestoreArrayWrite(Y, &found));
  PetscCall(MatDenseRestoreArrayRead(X, &given));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCMatApply_Krylith(PC pc, Mat X, Mat Y) {
  PetscFunctionBegin;
  PetscCall(apply_mat(pc, PETSC_FALSE, X, Y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if PETSC_VERSION_GE(3, 24, 0)
static PetscErrorCode PCMatApplyTranspose_Krylith(PC pc, Mat X, Mat Y) {
  PetscFunctionBegin;
  PetscCall(apply_mat(pc, PETSC_TRUE, X, Y));
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

static PetscErrorCode PCSetFromOptions_Krylith(PC pc, KrylithOptionItems items) {
  PetscFunctionBegin;
  (void)items;
  PetscCall(KrylithOptionsGet((KrylithFollower *)pc->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_Krylith(PC pc, PetscViewer viewer) {
  PetscFunctionBegin;
  PetscCall(KrylithView((KrylithFollower *)pc->data, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCReset_Krylith(PC pc) {
  PetscFunctionBegin;
  PetscCall(KrylithForget((KrylithFollower *)pc->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_Krylith(PC pc) {
  KrylithFollower *f = (KrylithFollower *)pc->data;

  PetscFunctionBegin;
  PetscCall(KrylithFollowerDetach(pc));
  PetscCall(KrylithFollowerDestroy(&f));
  pc->data = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCreate_Krylith(PC pc) {
  KrylithFollower *f;

  PetscFunctionBegin;
  PetscCall(KrylithFollowerCreate((PetscObject)pc, PETSC_FALSE, &f));
  pc->data = f;
  PetscCall(KrylithFollowerAttach(f, pc));
  pc->ops->setup = PCSetUp_Krylith;
  pc->ops->apply = PCApply_Krylith;
  pc->ops->applytranspose = PCApplyTranspose_Krylith;
  pc->ops->matapply = PCMatApply_Krylith;
#if PETSC_VERSION_GE(3, 24, 0)
  pc->ops->matapplytranspose = PCMatApplyTranspose_Krylith;
#endif
  pc->ops->setfromoptions = PCSetFromOptions_Krylith;
  pc->ops->view = PCView_Krylith;
  pc->ops->reset = PCReset_Krylith;
  pc->ops->destroy = PCDestroy_Krylith;
  PetscFunctionReturn(PETSC_SUCCESS);
}
