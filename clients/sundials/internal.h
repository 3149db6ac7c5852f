/* What the files of sunlinsol_krylith share. */
#ifndef KRYLITH_SUNDIALS_INTERNAL_H
#define KRYLITH_SUNDIALS_INTERNAL_H

#include "sunlinsol_krylith.h"

/* Names of SUNDIALS 6, which 7 replaced. */
#ifdef SUNLS_ILL_INPUT
  #define KRYLITH_SUN_INVALID SUNLS_ILL_INPUT
  #define KRYLITH_SUN_MEMORY SUNLS_MEM_FAIL
  #define KRYLITH_SUN_FAILED SUNLS_PACKAGE_FAIL_UNREC
#else
  #define KRYLITH_SUN_INVALID SUN_ERR_ARG_INCOMPATIBLE
  #define KRYLITH_SUN_MEMORY SUN_ERR_MEM_FAIL
  #define KRYLITH_SUN_FAILED SUN_ERR_EXT_FAIL
#endif

/* The entries of a SUNSparseMatrix in CSR format, with ascending columns. */
typedef struct {
  int64_t n, entries;
  int64_t *row_ptr;
  int32_t *col;
  double *values;
  /* The place of each entry in the arrays of the matrix, and the format of that. */
  int64_t *from;
  int format;
} KrylithRows;

/* rows.c: each returns 0 or a flag of SUNDIALS, whose reason krylith_last_error() has. */
int KrylithRowsTake(KrylithRows *rows, SUNMatrix A);
/* Takes new values; `*same` is false if the pattern differs, and then nothing changes. */
int KrylithRowsUpdate(KrylithRows *rows, SUNMatrix A, int *same);
void KrylithRowsFree(KrylithRows *rows);

typedef struct {
  char *options;
  int64_t n;
  int block, matrix_free, ready;
  const char *refresh;
  SUNLinSol_KrylithDescribe describe;
  void *describe_user;

  krylith_solver *solver;
  KrylithRows rows;
  long int setups, updates;

  /* The weights of SUNDIALS: S1 of residuals, S2 of solutions. No vector means 1. */
  N_Vector s1, s2;

  /* What SUNDIALS gives in place of a matrix. */
  SUNATimesFn atimes;
  SUNPSetupFn psetup;
  SUNPSolveFn psolve;
  void *atimes_data, *p_data;
  N_Vector in, out;
  /* The scaled right-hand side and solution, and the tolerance. */
  double *b, *x, tol;
  int operators_set, failed;

  int iterations;
  double resnorm;
  N_Vector resid;
  sunindextype last_flag;
  krylith_solution solution;
  char error[1024];
} KrylithContent;

/* matrix.c */

/* Sets up for a matrix, or takes new values of the same pattern. */
int KrylithSetUpMatrix(KrylithContent *c, SUNMatrix A);

/* Stores a reason for krylith_last_error(), and returns KRYLITH_SUN_INVALID. */
int KrylithReject(const char *format, ...);

static inline double *array(N_Vector v) {
  return v ? N_VGetArrayPointer(v) : NULL;
}

/* Returns weight i; no array means 1. */
static inline double weight(const double *weights, int64_t i) {
  return weights ? weights[i] : 1.0;
}

static inline int flag_of(krylith_status status) {
  switch (status) {
  case KRYLITH_OK:
    return 0;
  case KRYLITH_INVALID:
    return KRYLITH_SUN_INVALID;
  case KRYLITH_MEMORY:
    return KRYLITH_SUN_MEMORY;
  default:
    return KRYLITH_SUN_FAILED;
  }
}

#endif
