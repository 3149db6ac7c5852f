/* The systems of the benchmark, assembled on the host and given to PETSc row by row. */
#ifndef SYSTEMS_H
#define SYSTEMS_H
#include <petscksp.h>

#if PETSC_VERSION_LT(3, 19, 0)
  #define PETSC_SUCCESS 0
#endif

/* Rows of blocks of a grid: offsets, columns of scalar rows and values, as PETSc's AIJ has them. */
typedef struct {
  PetscInt rows, *ptr, *col;
  PetscScalar *values;
} System;

/* Poisson's equation on n³ nodes with 7 points and Dirichlet conditions; `skew` adds convection in x. */
static PetscErrorCode poisson(PetscInt n, PetscReal skew, System *s) {
  PetscInt at = 0;

  PetscFunctionBeginUser;
  s->rows = n * n * n;
  PetscCall(PetscMalloc3(s->rows + 1, &s->ptr, 7 * s->rows, &s->col, 7 * s->rows, &s->values));
  s->ptr[0] = 0;
  for (PetscInt row = 0; row < s->rows; row++) {
    const PetscInt x = row % n, y = row / n % n, z = row / (n * n);
#define ENTRY(inside, to, value)                                                                           \
  if (inside)                                                                                              \
    s->col[at] = row + (to), s->values[at++] = (value)
    ENTRY(z > 0, -n * n, -1.0);
    ENTRY(y > 0, -n, -1.0);
    ENTRY(x > 0, -1, -1.0 - skew);
    ENTRY(1, 0, 6.0);
    ENTRY(x < n - 1, 1, -1.0 + skew);
    ENTRY(y < n - 1, n, -1.0);
    ENTRY(z < n - 1, n * n, -1.0);
#undef ENTRY
    s->ptr[row + 1] = at;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The stiffness of a cube with edges of length 1: trilinear elements, 2×2×2 points, Lamé's constants 1. */
static void stiffness(PetscReal k[24][24]) {
  const PetscReal g = 0.5 / PetscSqrtReal(3.0);

  memset(k, 0, 24 * 24 * sizeof(PetscReal));
  for (int q = 0; q < 8; q++) {
    const PetscReal p[3] = {0.5 + (q & 1 ? g : -g), 0.5 + (q & 2 ? g : -g), 0.5 + (q & 4 ? g : -g)};
    PetscReal d[8][3];
    for (int a = 0; a < 8; a++) {
      for (int i = 0; i < 3; i++) {
        d[a][i] = 1.0;
        for (int j = 0; j < 3; j++) {
          const int far = a >> j & 1;
          d[a][i] *= i == j ? (far ? 1.0 : -1.0) : (far ? p[j] : 1.0 - p[j]);
        }
      }
    }
    for (int a = 0; a < 8; a++)
      for (int b = 0; b < 8; b++)
        for (int i = 0; i < 3; i++)
          for (int j = 0; j < 3; j++) {
            PetscReal sum = d[a][i] * d[b][j] + d[a][j] * d[b][i];
            for (int m = 0; i == j && m < 3; m++)
              sum += d[a][m] * d[b][m];
            k[3 * a + i][3 * b + j] += 0.125 * sum;
          }
  }
}

/* Linear elasticity of a cube of n³ nodes, three unknowns a node, held at x = 0 by rows of the identity. */
static PetscErrorCode elasticity(PetscInt n, System *s) {
  PetscReal k[24][24], row[27][3][3];
  PetscInt at = 0;

  PetscFunctionBeginUser;
  stiffness(k);
  s->rows = 3 * n * n * n;
  PetscCall(PetscMalloc3(s->rows + 1, &s->ptr, 81 * s->rows, &s->col, 81 * s->rows, &s->values));
  s->ptr[0] = 0;
  for (PetscInt node = 0; node < n * n * n; node++) {
    const PetscInt c[3] = {node % n, node / n % n, node / (n * n)};
    memset(row, 0, sizeof(row));
    for (int e = 0; e < 8; e++) { /* the elements around the node, which is their corner a */
      const int a = 7 - e;
      PetscInt o[3];
      PetscBool inside = PETSC_TRUE;
      for (int i = 0; i < 3; i++) {
        o[i] = c[i] - (a >> i & 1);
        if (o[i] < 0 || o[i] >= n - 1)
          inside = PETSC_FALSE;
      }
      for (int b = 0; inside && b < 8; b++) {
        PetscInt place = 0, step = 1;
        for (int i = 0; i < 3; i++, step *= 3)
          place += step * (1 + (b >> i & 1) - (a >> i & 1));
        for (int i = 0; i < 3; i++)
          for (int j = 0; j < 3; j++)
            row[place][i][j] += k[3 * a + i][3 * b + j];
      }
    }
    for (int i = 0; i < 3; i++) {
      for (int place = 0; place < 27; place++) {
        const PetscInt x = c[0] + place % 3 - 1, y = c[1] + place / 3 % 3 - 1, z = c[2] + place / 9 - 1;
        if (x < 0 || y < 0 || z < 0 || x >= n || y >= n || z >= n)
          continue;
        for (int j = 0; j < 3; j++) {
          const PetscBool held = c[0] == 0 || x == 0 ? PETSC_TRUE : PETSC_FALSE;
          s->col[at] = 3 * (x + n * (y + n * z)) + j;
          s->values[at++] = held ? (place == 13 && i == j ? 1.0 : 0.0) : row[place][i][j];
        }
      }
      s->ptr[3 * node + i + 1] = at;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the matrix of a system, of the type of -mat_type, with the rigid modes of elasticity. */
static PetscErrorCode matrix_of(const System *s, PetscInt block, PetscInt n, Mat *A) {
  PetscFunctionBeginUser;
  PetscCall(MatCreate(PETSC_COMM_SELF, A));
  PetscCall(MatSetSizes(*A, s->rows, s->rows, s->rows, s->rows));
  PetscCall(MatSetBlockSize(*A, block));
  PetscCall(MatSetType(*A, MATAIJ));
  PetscCall(MatSetFromOptions(*A));
  PetscCall(MatSeqAIJSetPreallocationCSR(*A, s->ptr, s->col, s->values));
  PetscCall(MatSetOption(*A, MAT_SYMMETRIC, PETSC_TRUE));
  PetscCall(MatSetOption(*A, MAT_SPD, PETSC_TRUE));
  if (block == 3) {
    Vec points;
    PetscScalar *to;
    MatNullSpace modes;

    PetscCall(VecCreateSeq(PETSC_COMM_SELF, s->rows, &points));
    PetscCall(VecSetBlockSize(points, 3));
    PetscCall(VecGetArray(points, &to));
    for (PetscInt node = 0; node < s->rows / 3; node++) {
      to[3 * node] = (PetscReal)(node % n) / n;
      to[3 * node + 1] = (PetscReal)(node / n % n) / n;
      to[3 * node + 2] = (PetscReal)(node / (n * n)) / n;
    }
    PetscCall(VecRestoreArray(points, &to));
    PetscCall(MatNullSpaceCreateRigidBody(points, &modes));
    PetscCall(MatSetNearNullSpace(*A, modes));
    PetscCall(MatNullSpaceDestroy(&modes));
    PetscCall(VecDestroy(&points));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif
