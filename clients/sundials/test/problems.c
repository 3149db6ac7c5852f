/* The problems of cases.h. */
#include "cases.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void check(int holds, const char *file, int line, const char *what) {
  if (holds)
    return;
  fflush(stdout);
  fprintf(stderr, "%s:%d: this fails: %s\n", file, line, what);
  abort();
}

SUNContext new_context(void) {
  SUNContext ctx;

#if SUNDIALS_VERSION_MAJOR < 7
  OK(SUNContext_Create(NULL, &ctx));
#else
  OK(SUNContext_Create(SUN_COMM_NULL, &ctx));
#endif
  return ctx;
}

/* --- matrices --- */

/* The entries so far, and the lines that have ended: one matrix is written at a time. */
static sunindextype entries, lines;

void matrix_begin(SUNMatrix A) {
  OK(SUNMatZero(A));
  entries = lines = 0;
}

void matrix_add(SUNMatrix A, sunindextype index, double value) {
  EXPECT(entries < SM_NNZ_S(A));
  SM_INDEXVALS_S(A)[entries] = index;
  SM_DATA_S(A)[entries++] = value;
}

void matrix_end_line(SUNMatrix A) {
  SM_INDEXPTRS_S(A)[++lines] = entries;
}

/* Writes the neighbours of point (i, j) of m² points to `to`, in ascending order, and returns their number.
 */
static int neighbours(int m, int i, int j, int to[4]) {
  int count = 0;

  if (i > 0)
    to[count++] = (i - 1) * m + j;
  if (j > 0)
    to[count++] = i * m + j - 1;
  if (j < m - 1)
    to[count++] = i * m + j + 1;
  if (i < m - 1)
    to[count++] = (i + 1) * m + j;
  return count;
}

/* --- Brusselator --- */

sunindextype brusselator_size(const Brusselator *p) {
  return 2 * (sunindextype)p->m * p->m;
}

SUNMatrix brusselator_matrix(const Brusselator *p, int format, SUNContext ctx) {
  const sunindextype n = brusselator_size(p);

  return SUNSparseMatrix(n, n, 6 * n, format, ctx);
}

void brusselator_start(const Brusselator *p, N_Vector y) {
  double *v = N_VGetArrayPointer(y);

  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->m; j++) {
      const double a = (i + 0.5) / p->m, b = (j + 0.5) / p->m;

      v[2 * (i * p->m + j)] = 22 * b * pow(1 - b, 1.5);
      v[2 * (i * p->m + j) + 1] = 27 * a * pow(1 - a, 1.5);
    }
}

int brusselator_rhs(sunrealtype t, N_Vector y, N_Vector ydot, void *data) {
  const Brusselator *p = data;
  const double *v = N_VGetArrayPointer(y), c = p->alpha * p->m * p->m;
  double *f = N_VGetArrayPointer(ydot);
  int near[4];

  (void)t;
  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->m; j++) {
      const int at = 2 * (i * p->m + j), count = neighbours(p->m, i, j, near);
      const double u = v[at], w = v[at + 1];

      f[at] = 1 + u * u * w - 4.4 * u;
      f[at + 1] = 3.4 * u - u * u * w;
      for (int k = 0; k < count; k++) {
        f[at] += c * (v[2 * near[k]] - u);
        f[at + 1] += c * (v[2 * near[k] + 1] - w);
      }
    }
  return 0;
}

int brusselator_jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *data, N_Vector t1,
                         N_Vector t2, N_Vector t3) {
  const Brusselator *p = data;
  const double *v = N_VGetArrayPointer(y), c = p->alpha * p->m * p->m;
  int near[4];

  (void)t, (void)fy, (void)t1, (void)t2, (void)t3;
  matrix_begin(J);
  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->m; j++) {
      const int point = i * p->m + j, count = neighbours(p->m, i, j, near);
      const double u = v[2 * point], w = v[2 * point + 1];
      const double own[2][2] = {{2 * u * w - 4.4 - count * c, u * u},
                                {3.4 - 2 * u * w, -u * u - count * c}};

      for (int a = 0; a < 2; a++) { /* the couplings of neighbours are symmetric */
        int k = 0;

        for (; k < count && near[k] < point; k++)
          matrix_add(J, 2 * near[k] + a, c);
        for (int b = 0; b < 2; b++)
          matrix_add(J, 2 * point + b, SM_SPARSETYPE_S(J) == CSR_MAT ? own[a][b] : own[b][a]);
        for (; k < count; k++)
          matrix_add(J, 2 * near[k] + a, c);
        matrix_end_line(J);
      }
    }
  return 0;
}

/* --- Bratu --- */

static int on_boundary(int m, int i, int j) {
  return i == 0 || j == 0 || i == m - 1 || j == m - 1;
}

SUNMatrix bratu_matrix(const Bratu *p, int format, SUNContext ctx) {
  const sunindextype n = (sunindextype)p->m * p->m;

  return SUNSparseMatrix(n, n, 5 * n, format, ctx);
}

void bratu_start(const Bratu *p, N_Vector y, N_Vector yp, N_Vector differential) {
  double *v = N_VGetArrayPointer(y), *d = N_VGetArrayPointer(differential);
  const double h = 1.0 / (p->m - 1);

  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->m; j++) {
      const double a = i * h, b = j * h;

      v[i * p->m + j] = on_boundary(p->m, i, j) ? 0 : 16 * a * (1 - a) * b * (1 - b);
      d[i * p->m + j] = on_boundary(p->m, i, j) ? 0 : 1;
    }
  N_VConst(0.0, yp);
  OK(bratu_residual(0, y, yp, yp, (void *)p)); /* consistent: r = −Δy − λ exp(y) inside */
  N_VScale(-1.0, yp, yp);
}

/* r = y' − Δy − λ exp(y) inside, and y on the boundary; yp may be r. */
int bratu_residual(sunrealtype t, N_Vector y, N_Vector yp, N_Vector r, void *data) {
  const Bratu *p = data;
  const double *v = N_VGetArrayPointer(y), *d = N_VGetArrayPointer(yp), c = (p->m - 1) * (p->m - 1);
  double *to = N_VGetArrayPointer(r);
  int near[4];

  (void)t;
  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->m; j++) {
      const int at = i * p->m + j, count = neighbours(p->m, i, j, near);

      if (on_boundary(p->m, i, j)) {
        to[at] = v[at];
        continue;
      }
      to[at] = d[at] - p->lambda * exp(v[at]);
      for (int k = 0; k < count; k++)
        to[at] += c * (v[at] - v[near[k]]);
    }
  return 0;
}

/* The entry of dr/dy + cj dr/dy' in the row of one point and the column of another, or of the same. */
static double bratu_entry(const Bratu *p, double cj, const double *v, int row, int col) {
  const double c = (p->m - 1) * (p->m - 1);

  if (on_boundary(p->m, row / p->m, row % p->m))
    return row == col ? 1 : 0;
  return row == col ? cj + 4 * c - p->lambda * exp(v[row]) : -c;
}

int bratu_jacobian(sunrealtype t, sunrealtype cj, N_Vector y, N_Vector yp, N_Vector r, SUNMatrix J,
                   void *data, N_Vector t1, N_Vector t2, N_Vector t3) {
  const Bratu *p = data;
  const double *v = N_VGetArrayPointer(y);
  const int by_rows = SM_SPARSETYPE_S(J) == CSR_MAT;
  int near[4];

  (void)t, (void)yp, (void)r, (void)t1, (void)t2, (void)t3;
  matrix_begin(J);
  for (int i = 0; i < p->m; i++)
    for (int j = 0; j < p->m; j++) {
      const int point = i * p->m + j, count = neighbours(p->m, i, j, near);

      matrix_add(J, point, bratu_entry(p, cj, v, point, point)); /* not in ascending order */
      for (int k = 0; k < count; k++)
        matrix_add(J, near[k],
                   by_rows ? bratu_entry(p, cj, v, point, near[k]) : bratu_entry(p, cj, v, near[k], point));
      matrix_end_line(J);
    }
  return 0;
}

int bratu_steady(N_Vector y, N_Vector f, void *data) {
  N_VConst(0.0, f);
  return bratu_residual(0, y, f, f, data);
}

int bratu_steady_jacobian(N_Vector y, N_Vector f, SUNMatrix J, void *data, N_Vector t1, N_Vector t2) {
  return bratu_jacobian(0, 0, y, f, f, J, data, t1, t2, t2);
}
