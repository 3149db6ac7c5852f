"""Matrices of PETSc and solvers by options, for the tests of krylith.petsc."""

import numpy as np
import scipy.sparse as sp
from petsc4py import PETSc

SELF = PETSc.COMM_SELF


def poisson(n, shift=0.0):
    T = sp.diags([-1.0, 2.0 + shift, -1.0], [-1, 0, 1], shape=(n, n))
    return (sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T)).tocsr()


def blocks(n, b):
    """A nonsymmetric matrix of dense blocks."""
    D = np.eye(b) + 0.2 * np.arange(b * b).reshape(b, b) / b
    T = sp.diags([-1.0, 4.0, -1.4], [-1, 0, 1], shape=(n, n))
    return sp.kron(sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T), D).tobsr((b, b))


def aij(S):
    S = S.tocsr()
    S.sort_indices()
    A = PETSc.Mat().createAIJ(S.shape, csr=(S.indptr.astype(PETSc.IntType), S.indices.astype(PETSc.IntType), S.data), comm=SELF)
    A.assemble()
    return A


def baij(S, b):
    S = S.tobsr((b, b))
    S.sort_indices()
    A = PETSc.Mat().createBAIJ(S.shape, b, csr=(S.indptr, S.indices, S.data), comm=SELF)
    A.assemble()
    return A


def sbaij(S, b):
    A = PETSc.Mat().createSBAIJ(S.shape, b, nnz=20, comm=SELF)
    A.setOption(PETSc.Mat.Option.IGNORE_LOWER_TRIANGULAR, True)
    coo = S.tocoo()
    for i, j, v in zip(coo.row, coo.col, coo.data):
        if j >= i:  # the upper triangle alone
            A.setValue(i, j, v)
    A.assemble()
    return A


def matis(S):
    n = S.shape[0]
    lgmap = PETSc.LGMap().create(np.arange(n, dtype=PETSc.IntType), comm=SELF)
    A = PETSc.Mat().createIS((n, n), lgmapr=lgmap, lgmapc=lgmap, comm=SELF)
    A.setISLocalMat(aij(S))
    A.assemble()
    return A


def new_ksp(A, P=None, context=None, prefix="", **options):
    """A KSP by options, as a program makes it."""
    for name, value in options.items():
        PETSc.Options(prefix)[name] = value
    ksp = PETSc.KSP().create(SELF)
    ksp.setOptionsPrefix(prefix)
    ksp.setOperators(A, P)
    ksp.setTolerances(rtol=1e-10)
    if context is not None:
        ksp.setType("python")
        ksp.setPythonContext(context)
    ksp.setFromOptions()
    for name in options:
        PETSc.Options(prefix).delValue(name)
    return ksp


#: Options of a whole solve, and of the preconditioner alone.
WHOLE = {"ksp_type": "python", "ksp_python_type": "krylith.petsc.KSP"}
INSIDE = {"ksp_type": "gmres", "ksp_pc_side": "right", "pc_type": "python", "pc_python_type": "krylith.petsc.PC"}


def vector(A, values):
    b = A.createVecLeft()
    b.setArray(values)
    return b


def solved(ksp, values, transpose=False):
    A = ksp.getOperators()[0]
    x = A.createVecRight()
    (ksp.solveTranspose if transpose else ksp.solve)(vector(A, values), x)
    return x.getArray().copy()


def stokes(n=8):
    """A staggered grid: viscous blocks, gradient, and the pressure of an open end."""

    def tri(m, first, last):
        d = np.full(m, 2.0)
        d[0], d[-1] = first, last
        return sp.diags([-np.ones(m - 1), d, -np.ones(m - 1)], [-1, 0, 1])

    i, j = sp.identity(n), sp.identity(n - 1)
    A = sp.block_diag(
        [
            sp.kron(tri(n, 2, 1), i) + sp.kron(i, tri(n, 3, 3)),
            sp.kron(tri(n, 3, 1), j) + sp.kron(i, tri(n - 1, 2, 2)),
        ]
    ).tocsr()
    B = sp.vstack(
        [
            sp.kron(sp.diags([-np.ones(n), np.ones(n - 1)], [0, 1]), i),
            sp.kron(i, sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))),
        ]
    ).tocsr()
    return A, B


def nest(rows):
    N = PETSc.Mat().createNest([[None if block is None else aij(block) for block in row] for row in rows], comm=SELF)
    N.assemble()
    return N


def elasticity(n):
    """Plane stress on n×n bilinear elements, clamped at the left; the matrix, and the positions of its nodes."""
    nu, g = 0.3, 1 / np.sqrt(3)
    D = np.array([[1, nu, 0], [nu, 1, 0], [0, 0, (1 - nu) / 2]]) / (1 - nu**2)
    xi, eta = np.array([-1, 1, 1, -1]), np.array([-1, -1, 1, 1])
    K = np.zeros((8, 8))
    for s in (-g, g):
        for t in (-g, g):
            dx, dy = xi * (1 + eta * t) / 2, eta * (1 + xi * s) / 2
            E = np.zeros((3, 8))
            E[0, ::2], E[1, 1::2], E[2, ::2], E[2, 1::2] = dx, dy, dy, dx
            K += E.T @ D @ E / 4
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    first = (i * (n + 1) + j).ravel()
    nodes = np.stack([first, first + n + 1, first + n + 2, first + 1], axis=1)
    unknowns = (2 * nodes[:, :, None] + np.arange(2)).reshape(-1, 8)
    rows, cols = np.repeat(unknowns, 8, axis=1).ravel(), np.tile(unknowns, (1, 8)).ravel()
    whole = sp.csr_matrix((np.tile(K.ravel(), n * n), (rows, cols)))
    free = slice(2 * (n + 1), None)
    x, y = np.meshgrid(np.arange(n + 1.0), np.arange(n + 1.0), indexing="ij")
    return whole[free, free].tocsr(), np.stack([x.ravel(), y.ravel()], axis=1)[n + 1 :]
