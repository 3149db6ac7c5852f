/* The entries of a SUNSparseMatrix in CSR format. */
#include "internal.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int KrylithReject(const char *format, ...) {
  char text[512];
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  (void)krylith_reject(text); /* its status is known */
  return KRYLITH_SUN_INVALID;
}

void KrylithRowsFree(KrylithRows *rows) {
  free(rows->row_ptr);
  free(rows->col);
  free(rows->values);
  free(rows->from);
  *rows = (KrylithRows){0};
}

/* Sorts the entries 0, 1, … or those of `order` by their key. Entries of the same key keep their order. */
static void sort(int64_t n, int64_t entries, const int32_t *key, const int64_t *order, int64_t *start,
                 int64_t *sorted) {
  for (int64_t i = 0; i <= n; i++)
    start[i] = 0;
  for (int64_t k = 0; k < entries; k++)
    start[key[k] + 1]++;
  for (int64_t i = 0; i < n; i++)
    start[i + 1] += start[i];
  for (int64_t k = 0; k < entries; k++) {
    int64_t entry = order ? order[k] : k;

    sorted[start[key[entry]]++] = entry;
  }
  for (int64_t i = n; i > 0; i--)
    start[i] = start[i - 1];
  start[0] = 0;
}

/* Writes the row and the column of each entry. */
static int expand(SUNMatrix A, int32_t *row, int32_t *col) {
  const sunindextype n = SM_NP_S(A), *ptr = SM_INDEXPTRS_S(A), *index = SM_INDEXVALS_S(A);
  const int by_rows = SM_SPARSETYPE_S(A) == CSR_MAT;
  const char *major = by_rows ? "row" : "column", *minor = by_rows ? "column" : "row";
  int32_t *outer = by_rows ? row : col, *inner = by_rows ? col : row;

  for (sunindextype i = 0; i < n; i++) {
    if (ptr[i] > ptr[i + 1] || ptr[i + 1] > ptr[n])
      return KrylithReject("%s %lld of the matrix ends before it begins: its index pointers must ascend",
                           major, (long long)i);
    for (sunindextype k = ptr[i]; k < ptr[i + 1]; k++) {
      if (index[k] < 0 || index[k] >= n)
        return KrylithReject("%s index %lld in %s %lld of the matrix is out of range; there are %lld %ss",
                             minor, (long long)index[k], major, (long long)i, (long long)n, minor);
      outer[k] = (int32_t)i;
      inner[k] = (int32_t)index[k];
    }
  }
  return 0;
}

/* Makes the pattern from the row and the column of each entry. */
static int arrange(KrylithRows *rows, const int32_t *row, const int32_t *col, int64_t *by_column) {
  sort(rows->n, rows->entries, col, NULL, rows->row_ptr, by_column);
  sort(rows->n, rows->entries, row, by_column, rows->row_ptr, rows->from);
  for (int64_t i = 0; i < rows->n; i++)
    for (int64_t k = rows->row_ptr[i]; k < rows->row_ptr[i + 1]; k++) {
      rows->col[k] = col[rows->from[k]];
      if (k > rows->row_ptr[i] && rows->col[k] == rows->col[k - 1])
        return KrylithReject("the matrix has its entry (%lld, %d) twice; add the two values", (long long)i,
                             rows->col[k]);
    }
  return 0;
}

/* Takes the values. A matrix that is not finite comes from a trial step, so that its flag is recoverable.
 */
static int take_values(KrylithRows *rows, const sunrealtype *data) {
  int finite = 1;

  for (int64_t k = 0; k < rows->entries; k++) {
    rows->values[k] = data[rows->from[k]];
    finite &= isfinite(rows->values[k]) ? 1 : 0;
  }
  if (finite)
    return 0;
  KrylithReject("the matrix has a NaN or an infinity");
  return SUNLS_PACKAGE_FAIL_REC;
}

static int check(SUNMatrix A) {
  const sunindextype n = SM_NP_S(A), *ptr = SM_INDEXPTRS_S(A);

  if (n > INT32_MAX)
    return KrylithReject("the matrix has %lld rows; Krylith numbers columns with 32 bits", (long long)n);
  if (ptr[0] != 0 || ptr[n] < 0 || ptr[n] > SM_NNZ_S(A))
    return KrylithReject(
        "index pointers of the matrix run from %lld to %lld; they must run from 0 to at most %lld",
        (long long)ptr[0], (long long)ptr[n], (long long)SM_NNZ_S(A));
  return 0;
}

int KrylithRowsTake(KrylithRows *rows, SUNMatrix A) {
  const int64_t n = SM_NP_S(A);
  int flag = check(A);

  KrylithRowsFree(rows);
  if (flag)
    return flag;
  const int64_t entries = SM_INDEXPTRS_S(A)[n];
  const size_t length = (size_t)entries + 1; /* not zero */
  int32_t *row = malloc(length * sizeof(*row)), *col = malloc(length * sizeof(*col));
  int64_t *order = malloc(length * sizeof(*order));

  rows->n = n;
  rows->entries = entries;
  rows->format = SM_SPARSETYPE_S(A);
  rows->row_ptr = malloc(((size_t)n + 1) * sizeof(*rows->row_ptr));
  rows->col = malloc(length * sizeof(*rows->col));
  rows->values = malloc(length * sizeof(*rows->values));
  rows->from = malloc(length * sizeof(*rows->from));
  if (!row || !col || !order || !rows->row_ptr || !rows->col || !rows->values || !rows->from) {
    KrylithReject("not enough memory for a copy of the matrix, which has %lld entries", (long long)entries);
    flag = KRYLITH_SUN_MEMORY;
  }
  if (!flag)
    flag = expand(A, row, col);
  if (!flag)
    flag = arrange(rows, row, col, order);
  if (!flag)
    flag = take_values(rows, SM_DATA_S(A));
  free(row);
  free(col);
  free(order);
  if (flag)
    KrylithRowsFree(rows);
  return flag;
}

int KrylithRowsUpdate(KrylithRows *rows, SUNMatrix A, int *same) {
  const sunindextype *ptr = SM_INDEXPTRS_S(A), *index = SM_INDEXVALS_S(A);
  const int by_rows = SM_SPARSETYPE_S(A) == CSR_MAT;

  *same = rows->row_ptr && rows->n == SM_NP_S(A) && rows->format == SM_SPARSETYPE_S(A) && ptr[0] == 0 &&
          rows->entries == ptr[rows->n];
  for (int64_t i = 0; *same && i < rows->n; i++)
    for (int64_t k = rows->row_ptr[i]; k < rows->row_ptr[i + 1]; k++) {
      const int64_t at = rows->from[k], outer = by_rows ? i : rows->col[k],
                    inner = by_rows ? rows->col[k] : i;

      if (index[at] != inner || at < ptr[outer] || at >= ptr[outer + 1]) {
        *same = 0;
        break;
      }
    }
  return *same ? take_values(rows, SM_DATA_S(A)) : 0;
}
