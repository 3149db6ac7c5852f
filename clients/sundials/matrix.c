/* A solver that follows a matrix. */
#include "internal.h"

static krylith_status create(KrylithContent *c) {
  const KrylithRows *rows = &c->rows;
  krylith_problem *problem = NULL;
  krylith_status status = krylith_problem_csr64_32(rows->n, rows->entries, rows->row_ptr, rows->col,
                                                   rows->values, c->block, NULL, &problem);

  if (!status && c->describe)
    status = c->describe(c->describe_user, problem);
  if (!status)
    status = krylith_solver_new(problem, c->options, &c->solver);
  krylith_problem_free(problem);
  if (!status && c->refresh)
    status = krylith_solver_set_refresh(c->solver, c->refresh);
  c->setups += status ? 0 : 1;
  return status;
}

static void forget(KrylithContent *c) {
  krylith_solver_free(c->solver);
  c->solver = NULL;
}

int KrylithSetUpMatrix(KrylithContent *c, SUNMatrix A) {
  krylith_status status;
  int same, flag;

  c->ready = 0;
  if (!A || SUNMatGetID(A) != SUNMATRIX_SPARSE)
    return KrylithReject("SUNLinSolSetup needs the SUNSparseMatrix of SUNLinSol_Krylith");
  if (SM_ROWS_S(A) != c->n || SM_COLUMNS_S(A) != c->n)
    return KrylithReject("the matrix has %lld rows and %lld columns; the vectors have %lld numbers",
                         (long long)SM_ROWS_S(A), (long long)SM_COLUMNS_S(A), (long long)c->n);
  flag = KrylithRowsUpdate(&c->rows, A, &same);
  if (!same) {
    forget(c);
    flag = KrylithRowsTake(&c->rows, A);
  }
  if (flag)
    return flag;
  if (c->solver) {
    status = krylith_solver_update_values(c->solver, 0, c->rows.entries, c->rows.values, NULL);
    c->updates += status ? 0 : 1;
  } else {
    status = create(c);
  }
  if (status) /* the next set-up begins anew */
    forget(c);
  c->ready = !status;
  return flag_of(status);
}
