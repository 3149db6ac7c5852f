/* Problems with sparse Jacobians, and checks, for the tests and for bench/sundials. */
#ifndef KRYLITH_SUNDIALS_CASES_H
#define KRYLITH_SUNDIALS_CASES_H

#include "sunlinsol_krylith.h"
#include <nvector/nvector_serial.h>

#define EXPECT(what) check((what) ? 1 : 0, __FILE__, __LINE__, #what)
#define OK(call) EXPECT((call) == 0)

void check(int holds, const char *file, int line, const char *what);
SUNContext new_context(void);

/* Entries of a sparse matrix that are added row by row, or column by column. */
void matrix_begin(SUNMatrix A);
void matrix_add(SUNMatrix A, sunindextype index, double value);
void matrix_end_line(SUNMatrix A);

/* A Brusselator of two species on m² points with reflecting walls (Hairer and Wanner, Solving Ordinary
 * Differential Equations II, IV.10): u' = 1 + u²v − 4.4u + α Δu, v' = 3.4u − u²v + α Δv. */
typedef struct {
  int m;
  double alpha;
} Brusselator;

sunindextype brusselator_size(const Brusselator *p);
SUNMatrix brusselator_matrix(const Brusselator *p, int format, SUNContext ctx);
void brusselator_start(const Brusselator *p, N_Vector y);
int brusselator_rhs(sunrealtype t, N_Vector y, N_Vector ydot, void *p);
int brusselator_jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *p, N_Vector a,
                         N_Vector b, N_Vector c);

/* A reaction on m² points: y' = Δy + λ exp(y) inside, and y = 0 on the boundary, as algebraic equations. */
typedef struct {
  int m;
  double lambda;
} Bratu;

SUNMatrix bratu_matrix(const Bratu *p, int format, SUNContext ctx);
void bratu_start(const Bratu *p, N_Vector y, N_Vector yp, N_Vector differential);
int bratu_residual(sunrealtype t, N_Vector y, N_Vector yp, N_Vector r, void *p);
int bratu_jacobian(sunrealtype t, sunrealtype cj, N_Vector y, N_Vector yp, N_Vector r, SUNMatrix J, void *p,
                   N_Vector a, N_Vector b, N_Vector c);
/* The same without y', for KINSOL. */
int bratu_steady(N_Vector y, N_Vector f, void *p);
int bratu_steady_jacobian(N_Vector y, N_Vector f, SUNMatrix J, void *p, N_Vector a, N_Vector b);

#endif
