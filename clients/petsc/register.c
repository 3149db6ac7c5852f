/* Registers the types: PETSc calls PetscDLLibraryRegister_krylith_petsc for -dll_append, and programs may
 * call it. */
#include "krylith_petsc.h"

/* Krylith calls MPI from a thread of its own. If this library is in the process before PETSc starts MPI
 * (linked, or by LD_PRELOAD), PETSc asks for the level of threads that this needs. */
__attribute__((constructor)) static void ask_for_threads(void) {
  if (PETSC_MPI_THREAD_REQUIRED < MPI_THREAD_SERIALIZED)
    PETSC_MPI_THREAD_REQUIRED = MPI_THREAD_SERIALIZED;
}

PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_krylith_petsc(void) {
  if (PETSC_COMM_WORLD ==
      MPI_COMM_NULL) { /* the process has another PETSc than this library: its errors are not ours */
    fprintf(stderr,
            "libkrylith_petsc: the program has not started the PETSc that the library is built for (%d.%d, "
            "real scalars, 32-bit indices); build it for the PETSc of the program\n",
            PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR);
    return PETSC_ERR_LIB;
  }
  PetscFunctionBegin;
  PetscCall(PCRegister("krylith", PCCreate_Krylith));
  PetscCall(KSPRegister("krylith", KSPCreate_Krylith));
  PetscFunctionReturn(PETSC_SUCCESS);
}
