"""krylith.petsc with every build of PETSc that Debian has installed: complex numbers, and indices of 64 bits."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("petsc4py")

BUILDS = sorted(folder.parents[3] for folder in pathlib.Path("/usr/lib/petscdir").glob("*/*/lib/python3/dist-packages/petsc4py"))

PROGRAM = """
import petsc4py
petsc4py.init(["x"])
from petsc4py import PETSc
import numpy as np, scipy.sparse as sp, krylith, krylith.petsc
from scipy.sparse.linalg import spsolve

number, index = PETSc.ScalarType, PETSc.IntType
is_complex, n = np.dtype(number).kind == "c", 8
T = sp.diags([-1.0, 2.0, -1.3], [-1, 0, 1], shape=(n, n))
S = sp.kron(sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T), [[2.0, 0.5], [0.4, 1.0]]).astype(number)
S = (S + (0.5j if is_complex else 0.1) * sp.identity(S.shape[0])).tocsr()
symmetric = ((S + S.T) / 2).tocsr()
b = np.cos(np.arange(S.shape[0])).astype(number) + (1j if is_complex else 0)


def aij(S):
    S.sort_indices()
    return PETSc.Mat().createAIJ(S.shape, csr=(S.indptr.astype(index), S.indices.astype(index), S.data), comm=PETSc.COMM_SELF)


def baij(S):
    S = S.tobsr((2, 2))
    S.sort_indices()
    return PETSc.Mat().createBAIJ(S.shape, 2, csr=(S.indptr.astype(index), S.indices.astype(index), S.data), comm=PETSc.COMM_SELF)


def sbaij(S):
    A = PETSc.Mat().createSBAIJ(S.shape, 2, nnz=9, comm=PETSc.COMM_SELF)
    for i, j, v in zip(*sp.find(S)):
        if j >= i:
            A.setValue(i, j, v)
    return A


def nest(S):
    return PETSc.Mat().createNest([[aij(S)]], comm=PETSc.COMM_SELF)


for make, S in ((aij, S), (baij, S), (sbaij, symmetric), (nest, S)):
    A, exact = make(S), spsolve(S.tocsc(), b)
    A.assemble()
    for inside in (False, True):
        ksp = PETSc.KSP().create(PETSc.COMM_SELF)
        ksp.setOperators(A)
        ksp.setTolerances(rtol=1e-10)
        context = krylith.petsc.PC() if inside else krylith.petsc.KSP()
        ksp.setType("gmres")
        owner = ksp.getPC() if inside else ksp
        owner.setType("python")
        owner.setPythonContext(context)
        x, right = A.createVecs()
        right.setArray(b)
        ksp.solve(right, x)
        assert ksp.reason > 0 and np.abs(x.getArray() - exact).max() < 1e-7 * np.abs(exact).max()
        ksp.solveTranspose(right, x)
        assert ksp.reason > 0 and np.abs(S.T @ x.getArray() - b).max() < 1e-7 * np.abs(b).max() * abs(S).max()
        A.scale(2.0)
        ksp.solve(right, x)
        assert np.abs(2 * x.getArray() - exact).max() < 1e-7 * np.abs(exact).max()
        assert (context.set_ups, context.updates) == (1, 1)
        A.scale(0.5)
"""


@pytest.mark.parametrize("build", BUILDS or [None], ids=lambda build: f"{build.parent.name} {build.name.split('-')[-1]}" if build else "none")
def test_builds(build):
    env = os.environ if build is None else os.environ | {"PETSC_DIR": str(build)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
