/* What the files of libkrylith_petsc share: the follower, which keeps a solver of Krylith in step with the
 * matrices of a PC or a KSP. */
#ifndef KRYLITH_PETSC_H
#define KRYLITH_PETSC_H

#include <krylith.h>
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>
#include <petscdm.h>

#if defined(PETSC_USE_COMPLEX)
  #error "libkrylith_petsc needs a PETSc of real scalars; this one has complex scalars (--with-scalar-type)"
#endif
#if !defined(PETSC_USE_REAL_DOUBLE)
  #error "libkrylith_petsc needs a PETSc of double precision (--with-precision=double)"
#endif
#if defined(PETSC_USE_64BIT_INDICES)
  #error "libkrylith_petsc needs a PETSc of 32-bit indices (--with-64-bit-indices=0)"
#endif
#if PETSC_VERSION_LT(3, 18, 0)
  #error "libkrylith_petsc needs PETSc 3.18 or later"
#endif

#if PETSC_VERSION_LT(3, 19, 0)
  #define PETSC_SUCCESS 0
#endif
#if PETSC_VERSION_LT(3, 23, 0)
typedef PetscOptionItems *KrylithOptionItems;
#else
typedef PetscOptionItems KrylithOptionItems;
#endif

/* PETSc that tells whether its arrays are in the memory of a GPU of CUDA. */
#if defined(PETSC_HAVE_CUDA) && PETSC_VERSION_GE(3, 20, 0)
  #define KRYLITH_PETSC_CUDA 1
#endif

/* Places of a solver besides the number of a GPU: the host or several GPUs, and what Krylith chooses. */
#define KRYLITH_ELSEWHERE (-1)
#define KRYLITH_ANYWHERE (-2)

/* The largest block of Krylith. */
#define KRYLITH_MAX_BLOCK 8
/* The largest number of fields, and of options by prefix. */
#define KRYLITH_MAX_FIELDS 32
#define KRYLITH_MAX_OPTIONS 64

/* Raises the error of a call of Krylith that fails, with its remedy. */
#define KrylithCall(call)                                                                                  \
  do {                                                                                                     \
    krylith_status status_ = (call);                                                                       \
    PetscCheck(status_ == KRYLITH_OK, PETSC_COMM_SELF, KrylithError_(status_), "Krylith: %s",              \
               krylith_last_error());                                                                      \
  } while (0)

/* The rows of this process of a matrix with entries. Arrays of sequential AIJ are PETSc's own. */
typedef struct {
  /* The order of the blocks, which are stored row by row; 1 for scalar rows. */
  PetscInt block;
  /* Numbers of own rows of blocks, of all columns of blocks, and of own blocks. */
  PetscInt64 rows, columns, entries;
  /* The pattern with indices of 32 bits, or of 64 bits with columns of the whole matrix. */
  const PetscInt *ia, *ja;
  PetscInt64 *ptr, *col;
  const PetscScalar *values;
  /* The values, if they are a copy. */
  PetscScalar *copy;
  /* The memory of the values; gpu is -1 for the host. On a GPU, the pattern is there, too. */
  krylith_memory at;
  const PetscInt *ia_there, *ja_there;
  /* The matrix whose arrays these are: the given one, or a conversion of it. */
  Mat mat;
  PetscBool converted, borrowed;
} KrylithRows;

/* The arrays of a vector to read and of one to write, both on the host or both on a GPU. */
typedef struct {
  Vec from, to;
  const PetscScalar *given;
  PetscScalar *found;
  krylith_memory at;
  /* Null for the host. */
  const krylith_memory *memory;
  PetscBool kept;
} KrylithVectors;

/* A field of a coupled system. */
typedef struct {
  char name[64];
  PetscInt length;
  PetscInt block;
  PetscInt64 *unknowns;
  /* Near-null vectors of its diagonal block. */
  PetscInt near;
  PetscScalar *vectors;
} KrylithField;

/* What describes a system besides its matrix. */
typedef struct {
  PetscInt own, block;
  PetscInt null, near;
  PetscScalar *null_vectors, *near_vectors;
  PetscInt dimension, points;
  PetscReal *coordinates;
  PetscInt grid[3];
  PetscInt fields;
  KrylithField field[KRYLITH_MAX_FIELDS];
} KrylithSystem;

typedef struct {
  char name[64];
  const char *value;
} KrylithOption;

typedef struct KrylithRelay_ *KrylithRelay;

/* A solver of Krylith that follows the matrices of a PC or a KSP. */
typedef struct {
  PetscObject owner;
  PetscBool of_ksp;
  /* The options of the solver as a text, and those of the system. */
  char *options, *nullspace, *near_nullspace, *names;
  PetscInt block;
  /* The number of the GPU that the options name, or one of the places above. */
  PetscInt place;
  PetscBool asks_fields;
  /* Criteria other than the residual, and convergence relative to the initial residual. */
  PetscBool other_criterion, relative_to_r0;

  krylith_solver *solver;
  /* The GPU that the solver runs on, if its matrix was there; otherwise -1. */
  int32_t gpu;
  /* The states of the matrices of the last set-up or update, and what is attached to them. */
  PetscInt64 state, attached;
  /* The matrix and the pattern of the last set-up. */
  PetscInt64 of_pattern, pattern, described;
  /* The operator, if it has no entries. */
  Mat map;
  Vec map_x, map_y;
  PetscErrorCode failed;
  PetscBool on_gpu;
  /* The solve that runs, if it has callbacks. */
  KrylithRelay relay;
  /* False if the last matrix is not finite. */
  PetscBool finite;

  PetscInt set_ups, updates;
  char taken[256];
  krylith_solution solution;

  /* What the user gave by PCSetCoordinates and PCFieldSplitSetIS. */
  PetscInt dimension, points;
  PetscReal *coordinates;
  PetscInt sets;
  IS set[KRYLITH_MAX_FIELDS];
  char *set_name[KRYLITH_MAX_FIELDS];
} KrylithFollower;

PETSC_INTERN PetscErrorCode KrylithError_(krylith_status);
PETSC_INTERN PetscErrorCode KrylithAgree(MPI_Comm, krylith_status);
PETSC_INTERN PetscErrorCode KrylithMix(PetscInt64 *, const void *, size_t);

/* matrix.c */
PETSC_INTERN PetscErrorCode KrylithHasEntries(Mat, PetscBool *);
PETSC_INTERN PetscErrorCode KrylithState(Mat, PetscInt64 *);
PETSC_INTERN PetscErrorCode KrylithPatternState(Mat, PetscInt64 *);
PETSC_INTERN PetscErrorCode KrylithRowsGet(Mat, PetscInt block, const krylith_memory *, KrylithRows *);
PETSC_INTERN PetscErrorCode KrylithRowsRestore(KrylithRows *);
PETSC_INTERN PetscErrorCode KrylithRowsHash(const KrylithRows *, PetscInt64 *);

/* memory.c */
PETSC_INTERN PetscErrorCode KrylithMemoryOf(const KrylithFollower *, Mat, krylith_memory *);
PETSC_INTERN PetscErrorCode KrylithRowsThere(Mat, const krylith_memory *, KrylithRows *);
PETSC_INTERN PetscErrorCode KrylithVectorsGet(const KrylithFollower *, Vec, Vec, PetscBool kept,
                                              KrylithVectors *);
PETSC_INTERN PetscErrorCode KrylithVectorsRestore(KrylithVectors *);

/* convert.c */
PETSC_INTERN PetscErrorCode KrylithConvert(Mat, Mat *);

/* system.c */
PETSC_INTERN PetscErrorCode KrylithBlockOf(Mat, PetscInt *);
PETSC_INTERN PetscErrorCode KrylithAttached(Mat amat, Mat mat, PetscInt64 *);
PETSC_INTERN PetscErrorCode KrylithDescribe(KrylithFollower *, Mat amat, Mat mat, DM, KrylithSystem *);
PETSC_INTERN PetscErrorCode KrylithSystemHash(const KrylithSystem *, PetscInt64 *);
PETSC_INTERN PetscErrorCode KrylithSystemSet(KrylithFollower *, MPI_Comm, const KrylithSystem *,
                                             krylith_problem *);
PETSC_INTERN PetscErrorCode KrylithSystemDestroy(KrylithSystem *);

/* options.c */
PETSC_INTERN PetscErrorCode KrylithOptionsGet(KrylithFollower *);
PETSC_INTERN PetscErrorCode KrylithOptionsDestroy(KrylithFollower *);

/* setup.c */
PETSC_INTERN PetscErrorCode KrylithFollowerCreate(PetscObject, PetscBool of_ksp, KrylithFollower **);
PETSC_INTERN PetscErrorCode KrylithFollowerAttach(KrylithFollower *, PC);
PETSC_INTERN PetscErrorCode KrylithFollowerDetach(PC);
PETSC_INTERN PetscErrorCode KrylithFollowerDestroy(KrylithFollower **);
PETSC_INTERN PetscErrorCode KrylithForget(KrylithFollower *);
PETSC_INTERN PetscErrorCode KrylithFollow(KrylithFollower *, PC);
PETSC_INTERN PetscErrorCode KrylithView(KrylithFollower *, PetscViewer);

/* relay.c */
PETSC_INTERN int32_t KrylithRelayCall(KrylithRelay, int32_t (*)(void *), void *);
PETSC_INTERN krylith_status KrylithSolve(KrylithFollower *, PetscBool callbacks, PetscBool transposed,
                                         const PetscScalar *b, PetscScalar *x, const krylith_memory *);

PETSC_INTERN PetscErrorCode PCCreate_Krylith(PC);
PETSC_INTERN PetscErrorCode KSPCreate_Krylith(KSP);

#endif
