"""The PC and KSP types for petsc4py, against SciPy's direct solver and products of PETSc."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

petsc4py = pytest.importorskip("petsc4py")
import scipy.sparse as sp  # noqa: E402
from petsc4py import PETSc  # noqa: E402
from scipy.sparse.linalg import spsolve  # noqa: E402

import krylith  # noqa: E402
import krylith.petsc  # noqa: E402

SELF = PETSc.COMM_SELF
REASON = PETSc.KSP.ConvergedReason


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


def new_ksp(A, P=None, pc=None, context=None, prefix="", **options):
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


CASES = {
    "aij": lambda: (aij, poisson(12)),
    "aij with a block size": lambda: (lambda S: (lambda A: (A.setBlockSize(2), A)[1])(aij(S)), blocks(9, 2)),
    "baij 1": lambda: (lambda S: baij(S, 1), blocks(9, 1)),
    "baij 2": lambda: (lambda S: baij(S, 2), blocks(9, 2)),
    "baij 3": lambda: (lambda S: baij(S, 3), blocks(8, 3)),
    "baij 9, more than Krylith's blocks": lambda: (lambda S: baij(S, 9), blocks(5, 9)),
    "sbaij 1": lambda: (lambda S: sbaij(S, 1), poisson(12)),
    "sbaij 2": lambda: (lambda S: sbaij(S, 2), poisson(12)),
    "sbaij 3": lambda: (lambda S: sbaij(S, 3), sp.kron(poisson(8), np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])).tocsr()),
    "is": lambda: (matis, poisson(12)),
    "dense": lambda: (lambda S: aij(S).convert("dense"), poisson(6)),
}


@pytest.mark.parametrize("case", CASES)
def test_types_of_matrices(case):
    make, S = CASES[case]()
    A, b = make(S), np.cos(np.arange(S.shape[0]))
    exact = spsolve(S.tocsc(), b)
    for options in (WHOLE, INSIDE):
        ksp = new_ksp(A, **options)
        x = solved(ksp, b)
        assert ksp.reason == REASON.CONVERGED_RTOL
        assert np.abs(x - exact).max() < 1e-7 * np.abs(exact).max()
    y = solved(new_ksp(A, **WHOLE), b, transpose=True)
    assert np.abs(S.T @ y - b).max() < 1e-8


def test_blocks_stay_blocks():
    for make, S in (CASES["baij 3"](), CASES["sbaij 3"]()):
        ksp = new_ksp(make(S), **WHOLE)
        ksp.setUp()
        assert ksp.getPythonContext().solver._block == 3


def test_new_values_are_updates_and_the_same_ones_nothing():
    for case in ("aij", "baij 3", "sbaij 3", "is"):
        make, S = CASES[case]()
        A, b = make(S), np.ones(S.shape[0])
        for options in (WHOLE, INSIDE):
            ksp = new_ksp(A, **options)
            x = solved(ksp, b)
            context = (ksp if options is WHOLE else ksp.getPC()).getPythonContext()
            assert np.abs(solved(ksp, b) - x).max() == 0.0
            assert (context.set_ups, context.updates) == (1, 0)
            A.scale(2.0)
            assert np.abs(2 * solved(ksp, b) - x).max() < 1e-7 * np.abs(x).max()
            assert (context.set_ups, context.updates) == (1, 1), case
            A.scale(0.5)
            # Another matrix object of the same pattern.
            ksp.setOperators(make(3 * S))
            assert np.abs(3 * solved(ksp, b) - x).max() < 1e-7 * np.abs(x).max()
            assert (context.set_ups, context.updates) == (1, 2)
            ksp.setOperators(A)
            assert np.abs(solved(ksp, b) - x).max() < 1e-7 * np.abs(x).max()
            assert context.set_ups == 1


def test_a_new_pattern_is_a_new_set_up():
    S = poisson(10)
    A, b = aij(S), np.ones(100)
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    ksp = new_ksp(A, **WHOLE)
    solved(ksp, b)
    A.setValue(0, 99, 0.5)
    A.assemble()
    S = S.tolil()
    S[0, 99] = 0.5
    assert np.abs(solved(ksp, b) - spsolve(S.tocsc(), b)).max() < 1e-7
    ksp.setOperators(aij(poisson(10)))
    assert np.abs(solved(ksp, b) - spsolve(poisson(10).tocsc(), b)).max() < 1e-7
    assert ksp.getPythonContext().set_ups >= 2
    # The pattern of the first matrix changes while another one is in use.
    T = poisson(10)
    first, second = aij(T), aij(2 * T)
    first.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    ksp = new_ksp(first, **WHOLE)
    solved(ksp, b)
    ksp.setOperators(second)
    solved(ksp, b)
    assert ksp.getPythonContext().updates == 1
    for k in range(50):
        first.setValue(k, 99 - k, 0.5)
    first.assemble()
    second.scale(2.0)
    assert np.abs(4 * solved(ksp, b) - spsolve(T.tocsc(), b)).max() < 1e-7
    assert (ksp.getPythonContext().set_ups, ksp.getPythonContext().updates) == (2, 1)
    # Another size.
    ksp.reset()
    ksp.setOperators(aij(poisson(7)))
    assert np.abs(solved(ksp, np.ones(49)) - spsolve(poisson(7).tocsc(), np.ones(49))).max() < 1e-7


def test_without_functions_of_the_library_rows_come_by_petsc4py(monkeypatch):
    import krylith.petsc._arrays as arrays

    monkeypatch.setattr(arrays, "C", {})
    for case in ("aij", "baij 3", "sbaij 3"):
        make, S = CASES[case]()
        A, b = make(S), np.ones(S.shape[0])
        ksp = new_ksp(A, **WHOLE)
        x = solved(ksp, b)
        assert np.abs(x - spsolve(S.tocsc(), b)).max() < 1e-7 * np.abs(x).max()
        A.scale(2.0)
        assert np.abs(2 * solved(ksp, b) - x).max() < 1e-7 * np.abs(x).max()
        assert (ksp.getPythonContext().set_ups, ksp.getPythonContext().updates) == (1, 1)


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


@pytest.mark.parametrize("how", ["auto", "split", "pc"])
def test_nest(how):
    A, B = stokes()
    K, b = sp.bmat([[A, B], [B.T, None]], format="csc"), np.zeros(sum(B.shape))
    b[:10] = 1.0
    N, P = nest([[A, B], [B.T, None]]), nest([[A, None], [None, sp.identity(B.shape[1], format="csr")]])
    split = {"krylith_fields": "u,p", "krylith_precond": "split(u: amg, p: jacobi; schur=upper, S=P_p)"}
    if how == "pc":
        more = {"krylith_fields": "u,p", "krylith_precond": "split(u: amg, p: jacobi; form=diagonal)"}
        ksp = new_ksp(N, P, **INSIDE, **more)
    else:
        ksp = new_ksp(N, P, **WHOLE, **(split if how == "split" else {}))
    right = PETSc.Vec().createNest([vector(N.getNestSubMatrix(0, 0), b[: A.shape[0]]), vector(P.getNestSubMatrix(1, 1), b[A.shape[0] :])], comm=SELF)
    x = right.duplicate()
    ksp.solve(right, x)
    assert ksp.reason > 0
    assert np.abs(x.getArray() - spsolve(K, b)).max() < 1e-6
    # New values of one block.
    N.getNestSubMatrix(0, 0).scale(2.0)
    N.assemble()
    ksp.solve(right, x)
    K = sp.bmat([[2 * A, B], [B.T, None]], format="csc")
    assert ksp.reason > 0 and np.abs(x.getArray() - spsolve(K, b)).max() < 1e-6
    context = ksp.getPC().getPythonContext() if how == "pc" else ksp.getPythonContext()
    assert context.set_ups == 1 and context.updates == (0 if how == "pc" else 1)


def test_index_sets_and_matrices_of_the_user():
    A, B = stokes()
    K, n = sp.bmat([[A, B], [B.T, None]], format="csr"), sum(B.shape)
    context = krylith.petsc.KSP(precond="split(u: amg, p: jacobi; schur=upper, S=Mp)")
    numbers = np.arange(n, dtype=PETSc.IntType)
    u = PETSc.IS().createGeneral(numbers[: A.shape[0]], comm=SELF)
    p = PETSc.IS().createGeneral(numbers[A.shape[0] :], comm=SELF)
    context.setFieldSplitIS(("u", u), ("p", p))
    context.setMatrix("Mp", aij(sp.identity(B.shape[1], format="csr")))
    b = np.zeros(n)
    b[:10] = 1.0
    ksp = new_ksp(aij(K), context=context)
    assert np.abs(solved(ksp, b) - spsolve(K.tocsc(), b)).max() < 1e-6
    assert context.solution.precond.startswith("upper split: u by algebraic multigrid")


def test_null_space():
    n = 12
    T = sp.diags([-np.ones(n - 1), np.r_[1.0, np.full(n - 2, 2.0), 1.0], -np.ones(n - 1)], [-1, 0, 1])
    S = (sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T)).tocsr()
    A = aij(S)
    space = PETSc.NullSpace().create(constant=True, comm=SELF)
    A.setNullSpace(space)
    b = np.cos(np.arange(n * n))
    b -= b.mean()
    for options in (WHOLE, {**INSIDE, "krylith_precond": "amg"}):
        ksp = new_ksp(A, **options)
        x = solved(ksp, b)
        assert ksp.reason > 0 and np.linalg.norm(S @ x - b) < 1e-9 * np.linalg.norm(b)
    context = new_ksp(A, **WHOLE)
    context.setUp()
    assert np.array_equal(context.getPythonContext()._system["nullspace"], [np.ones(n * n)])


def test_transpose_null_space():
    """A singular nonsymmetric matrix: PETSc takes the null vectors of Aᵀ out of b, and Krylith solves what is left."""
    n = 40
    # Upwind transport on a ring: column sums are zero, and the null vector is not constant.
    speed = 1.0 + 0.5 * np.sin(2 * np.pi * np.arange(n) / n)
    S = (sp.identity(n) - sp.csr_matrix((np.ones(n), (np.arange(n), (np.arange(n) - 1) % n)))) @ sp.diags(speed)
    A = aij(S.tocsr())
    null = A.createVecRight()
    null.setArray(1 / speed)
    null.normalize()
    A.setNullSpace(PETSc.NullSpace().create(vectors=[null], comm=SELF))
    A.setTransposeNullSpace(PETSc.NullSpace().create(constant=True, comm=SELF))
    b = np.cos(np.arange(n)) + 1.0
    consistent = b - b.mean()
    ksp = new_ksp(A, **WHOLE)
    x = solved(ksp, b)
    assert ksp.reason > 0 and np.linalg.norm(S @ x - consistent) < 1e-8 * np.linalg.norm(consistent)
    y = solved(ksp, b, transpose=True)
    v = (1 / speed) / np.linalg.norm(1 / speed)
    consistent = b - v * (v @ b)
    assert ksp.reason > 0 and np.linalg.norm(S.T @ y - consistent) < 1e-8 * np.linalg.norm(consistent)


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


def test_near_null_space():
    S, points = elasticity(24)
    b, iterations = np.ones(S.shape[0]), []
    for rigid in (False, True):
        A = aij(S)
        A.setBlockSize(2)
        if rigid:
            places = A.createVecRight()
            places.setBlockSize(2)
            places.setArray(points.ravel())
            A.setNearNullSpace(PETSc.NullSpace().createRigidBody(places))
        for options in (WHOLE, {**INSIDE, "ksp_type": "cg", "ksp_norm_type": "unpreconditioned", "ksp_pc_side": "left"}):
            ksp = new_ksp(A, **options, krylith_precond="amg")
            x = solved(ksp, b)
            assert ksp.reason > 0 and np.abs(x - spsolve(S.tocsc(), b)).max() < 1e-6 * np.abs(x).max()
            iterations.append(ksp.its)
        context = ksp.getPC().getPythonContext()
        assert len(context._system.get("near_nullspace", [])) == (3 if rigid else 0)
    assert iterations[2] < iterations[0] and iterations[3] < iterations[1], iterations
    # The same from coordinates, which PCSetCoordinates does not pass on.
    context = krylith.petsc.KSP(precond="amg", near_nullspace="rigid")
    context.setCoordinates(points)
    A = aij(S)
    A.setBlockSize(2)
    ksp = new_ksp(A, context=context)
    assert np.abs(solved(ksp, b) - x).max() < 1e-6 * np.abs(x).max() and ksp.its < iterations[0]


def test_coordinates_and_fields_of_a_dm():
    da = PETSc.DMDA().create([9, 8], dof=2, stencil_width=1, comm=SELF, setup=True)
    da.setUniformCoordinates()
    A = da.createMatrix()
    S = sp.kron(sp.kron(sp.diags([-1, 3, -1], [-1, 0, 1], shape=(8, 8)), sp.identity(9)) + sp.kron(sp.identity(8), sp.diags([-1, 3, -1], [-1, 0, 1], shape=(9, 9))), [[2.0, 0.5], [0.4, 1.0]]).tocsr()
    for row in range(S.shape[0]):
        at = slice(S.indptr[row], S.indptr[row + 1])
        A.setValues([row], S.indices[at], S.data[at])
    A.assemble()
    b = np.cos(np.arange(144))
    for options, fields in ({}, None), ({"krylith_fields": "u,v", "krylith_precond": "split(u: lu, v: lu; form=full)"}, ["u", "v"]):
        for key, value in {**WHOLE, **options}.items():
            PETSc.Options()[key] = value
        ksp = PETSc.KSP().create(SELF)
        ksp.setDM(da)
        ksp.setDMActive(False)
        ksp.setOperators(A)
        ksp.setTolerances(rtol=1e-10)
        ksp.setFromOptions()
        for key in {**WHOLE, **options}:
            PETSc.Options().delValue(key)
        assert np.abs(solved(ksp, b) - spsolve(S.tocsc(), b)).max() < 1e-7
        system = ksp.getPythonContext()._system
        assert system["grid"] == [9, 8] and system["coordinates"].shape == (72, 2) and system["block"] == 2
        assert system["coordinates"][1].tolist() == [0.125, 0.0]
        assert fields is None and "fields" not in system or list(system["fields"]) == fields


def test_options_by_prefix():
    A = aij(poisson(10))
    ksp = new_ksp(A, prefix="flow_", **WHOLE, krylith_method="gmres:restart=7", krylith_precond="ildu:fill=1", krylith_threads=1)
    ksp.solve(vector(A, np.ones(100)), A.createVecRight())
    solution = ksp.getPythonContext().solution
    assert (solution.method, solution.precond) == ("GMRES(7)", "ILDU(1)")
    # Words with spaces, and an option of another prefix, which is not this KSP's.
    PETSc.Options()["heat_krylith_nonsense"] = "1"
    ksp = new_ksp(A, prefix="flow_", **WHOLE, krylith_precond="jacobi then amg")
    ksp.solve(vector(A, np.ones(100)), A.createVecRight())
    assert "then algebraic multigrid" in ksp.getPythonContext().solution.precond
    PETSc.Options().delValue("heat_krylith_nonsense")
    ksp = new_ksp(A, prefix="flow_", **INSIDE, krylith_precond="lu")
    solved(ksp, np.ones(100))
    assert ksp.its == 1


@pytest.mark.parametrize(
    "options, text",
    [
        ({"krylith_precnod": "amg"}, "unknown option `-a_krylith_precnod`; did you mean `precond`"),
        ({"krylith_precond": "agm"}, "agm"),
        ({"krylith_threads": "many"}, "`-a_krylith_threads` is 'many'; expected a whole number"),
        ({"krylith_deterministic": "perhaps"}, "`-a_krylith_deterministic` is 'perhaps'; expected true or false"),
        ({"krylith_rtol": "1e-3"}, "give -ksp_rtol"),
        ({"krylith_fields": "u,p"}, "neither the matrix nor its DM has fields"),
        ({"ksp_monitor_true_residual": None}, "computes with x"),
    ],
)
def test_wrong_options_are_named(options, text):
    A = aij(poisson(5))
    try:
        with pytest.raises(krylith.InvalidInput, match="^.*" + text.replace("(", r"\(").replace("?", r"\?")):
            new_ksp(A, prefix="a_", **WHOLE, **options).setUp()
    finally:
        for name in options:
            PETSc.Options("a_").delValue(name)


def test_options_of_a_solve_are_refused_by_the_preconditioner():
    with pytest.raises(krylith.InvalidInput, match="has no effect on a preconditioner"):
        krylith.petsc.PC(method="gmres")
    with pytest.raises(krylith.InvalidInput, match="unknown option `presond`"):
        krylith.petsc.KSP(presond="lu")


def test_reasons():
    S = poisson(20)
    A, b = aij(S), np.ones(400)
    ksp = new_ksp(A, **WHOLE, krylith_precond="jacobi")
    solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_RTOL and ksp.norm <= 1e-10 * np.linalg.norm(b)
    ksp.setTolerances(rtol=1e-30, atol=1e-3)
    x = solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_ATOL and abs(ksp.norm - np.linalg.norm(b - S @ x)) < 1e-10
    ksp.setTolerances(rtol=1e-10, atol=0.0, max_it=3)
    solved(ksp, b)
    assert ksp.reason == REASON.DIVERGED_MAX_IT and ksp.its == 3
    ksp.setTolerances(rtol=1e-30, max_it=10000)
    solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_HAPPY_BREAKDOWN
    ksp.setTolerances(rtol=1e-8)
    solved(ksp, 0 * b)
    assert ksp.reason > 0
    bad = b.copy()
    bad[7] = np.nan
    solved(ksp, bad)
    assert ksp.reason == REASON.DIVERGED_NANORINF
    with pytest.raises(PETSc.Error):
        ksp.setErrorIfNotConverged(True)
        solved(ksp, bad)
    ksp.setErrorIfNotConverged(False)
    A.setValue(3, 3, np.nan)
    A.assemble()
    solved(ksp, b)
    assert ksp.reason == REASON.DIVERGED_NANORINF
    A.setValue(3, 3, S[3, 3])
    A.assemble()
    solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_RTOL
    # An inconsistent singular system.
    n = 30
    T = sp.diags([-np.ones(n - 1), np.r_[1.0, np.full(n - 2, 2.0), 1.0], -np.ones(n - 1)], [-1, 0, 1])
    ksp = new_ksp(aij(T.tocsr()), **WHOLE)
    solved(ksp, np.ones(n))
    assert ksp.reason < 0


def test_initial_guess_and_criteria():
    S = poisson(12)
    A, b = aij(S), np.ones(144)
    exact = spsolve(S.tocsc(), b)
    for more in ({}, {"krylith_relative_to": "r0"}, {"krylith_criterion": "backward"}):
        ksp = new_ksp(A, **WHOLE, ksp_initial_guess_nonzero=True, krylith_precond="jacobi", **more)
        ksp.setConvergenceHistory()
        x = A.createVecRight()
        x.setArray(exact + 1e-3)
        first = np.linalg.norm(b - S @ x.getArray())
        ksp.solve(vector(A, b), x)
        history = ksp.getConvergenceHistory()
        assert ksp.reason > 0 and np.abs(x.getArray() - exact).max() < 1e-7
        assert "krylith_criterion" in more or abs(history[0] - first) < 1e-9 * first
        assert len(history) == ksp.its + 1


def test_monitors_and_history():
    S = poisson(16)
    A, b, seen = aij(S), np.ones(256), []
    ksp = new_ksp(A, **WHOLE, krylith_precond="jacobi")
    ksp.setConvergenceHistory()
    solved(ksp, b)
    after = ksp.getConvergenceHistory()
    ksp.setConvergenceHistory(reset=True)
    ksp.setMonitor(lambda ksp, its, norm: seen.append((its, norm)))
    x = solved(ksp, b)
    history = ksp.getConvergenceHistory()
    assert [its for its, _ in seen] == list(range(ksp.its + 1)) and np.array_equal([norm for _, norm in seen], history)
    assert np.array_equal(after, history)
    assert abs(history[0] - np.linalg.norm(b)) < 1e-12 and abs(history[-1] - np.linalg.norm(b - S @ x)) < 1e-10


def test_a_convergence_test_of_the_user_ends_the_solve():
    A = aij(poisson(20))
    ksp = new_ksp(A, **WHOLE, krylith_precond="jacobi")
    ksp.setConvergenceTest(lambda ksp, its, norm: REASON.CONVERGED_ITS if its == 5 else 0)
    solved(ksp, np.ones(400))
    assert ksp.its == 5 and ksp.reason == REASON.CONVERGED_ITS
    ksp.setConvergenceTest(None)


def test_views(tmp_path):
    A = aij(poisson(6))
    for options in (WHOLE, INSIDE):
        ksp = new_ksp(A, **options, krylith_precond="ildu")
        solved(ksp, np.ones(36))
        viewer = PETSc.Viewer().createASCII(str(tmp_path / "view"), comm=SELF)
        ksp.view(viewer)
        viewer.destroy()
        text = (tmp_path / "view").read_text(encoding="utf-8")
        assert "Krylith: precond=ildu" in text and "1 set-ups, 0 updates" in text
        assert ("converged after" in text) == (options is WHOLE)


def test_columns():
    S = poisson(10)
    A = aij(S)
    B = PETSc.Mat().createDense((100, 5), comm=SELF).setUp()
    B.getDenseArray()[...] = np.random.default_rng(1).random((100, 5))
    B.assemble()
    X = B.duplicate()
    X.assemble()
    ksp = new_ksp(A, **WHOLE)
    ksp.getPythonContext().matSolve(ksp, B, X)
    given = B.getDenseArray()
    assert ksp.reason > 0 and np.abs(S @ X.getDenseArray() - given).max() < 1e-8
    pc = PETSc.PC().createPython(krylith.petsc.PC(precond="lu"), comm=SELF)
    pc.setOperators(A)
    X.zeroEntries()
    pc.matApply(B, X)
    assert np.abs(S @ X.getDenseArray() - given).max() < 1e-10


@pytest.mark.parametrize("precond", ["jacobi", "ildu", "amg", "lu"])
def test_the_transpose_of_the_preconditioner(precond):
    S = blocks(8, 2)
    pc = PETSc.PC().createPython(krylith.petsc.PC(precond=precond), comm=SELF)
    pc.setOperators(baij(S, 2))
    u, v = np.random.default_rng(2).random((2, S.shape[0]))
    A = pc.getOperators()[0]
    x, y = A.createVecs()
    pc.apply(vector(A, u), x)
    pc.applyTranspose(vector(A, v), y)
    assert abs(v @ x.getArray() - u @ y.getArray()) < 1e-10 * np.abs(x.getArray()).sum()
    ksp = new_ksp(A, **{**INSIDE, "ksp_type": "bicg", "ksp_pc_side": "left"}, krylith_precond=precond)
    x = solved(ksp, u)
    assert ksp.reason > 0 and np.abs(S @ x - u).max() < 1e-6


def test_operators_without_entries():
    S = poisson(12)

    class Product:
        def mult(self, mat, x, y):
            y.setArray(S @ x.getArray(readonly=True))

    A = PETSc.Mat().createPython(S.shape, Product(), comm=SELF)
    A.setUp()
    b = np.ones(144)
    for P, options in ((aij(S), {"krylith_precond": "ildu"}), (None, {"krylith_method": "gmres"})):
        ksp = new_ksp(A, P, **WHOLE, **options)
        assert np.abs(S @ solved(ksp, b) - b).max() < 1e-8 and ksp.reason > 0
    with pytest.raises(krylith.InvalidInput, match="has no entries"):
        new_ksp(A, **INSIDE).setUp()


def test_a_preconditioner_that_varies_needs_a_flexible_method():
    A, b = aij(poisson(16)), np.ones(256)
    options = {**INSIDE, "ksp_type": "fgmres", "pc_type": "ksp", "pc_ksp_ksp_type": "python"}
    ksp = new_ksp(A, ksp_type="fgmres", pc_type="ksp", ksp_ksp_type="python", ksp_ksp_python_type="krylith.petsc.KSP", ksp_ksp_rtol=1e-3)
    assert options["ksp_type"] == "fgmres"
    x = solved(ksp, b)
    assert ksp.reason > 0 and ksp.its <= 5 and np.abs(poisson(16) @ x - b).max() < 1e-8


def test_the_pc_of_the_ksp_is_not_set_up():
    """PETSc's ILU, the default, fails on this matrix."""
    A, B = stokes(5)
    K = sp.bmat([[A, B], [B.T, None]], format="csr")
    b = np.ones(K.shape[0])
    for order in ("options", "calls"):
        if order == "options":
            ksp = new_ksp(aij(K), **WHOLE, pc_type="ilu")
        else:
            ksp = new_ksp(aij(K))
            ksp.setType("python")
            ksp.setPythonContext(krylith.petsc.KSP())
            ksp.getPC().setType("ilu")
        assert np.abs(solved(ksp, b) - spsolve(K.tocsc(), b)).max() < 1e-5 and ksp.reason > 0


RANKS = """
import sys
import numpy as np, scipy.sparse as sp
from mpi4py import MPI  # before PETSc, which starts MPI for one thread
import petsc4py
petsc4py.init([sys.argv[0]])
from petsc4py import PETSc
import krylith, krylith.petsc
comm = PETSc.COMM_WORLD
n, b = 20, 2
T = sp.diags([-1.0, 2.1, -1.2], [-1, 0, 1], shape=(n, n))
S = sp.kron(sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T), [[2.0, 0.5], [0.4, 1.0]]).tobsr((2, 2))
N = S.shape[0]


def spread(S, kind):
    A = PETSc.Mat().create(comm)
    A.setSizes(S.shape, bsize=2)
    A.setType(kind)
    A.setPreallocationNNZ(12)
    first, last = A.getOwnershipRange()
    coo = S.tocoo()
    for i, j, v in zip(coo.row, coo.col, coo.data):
        if first <= i < last and (kind != "sbaij" or j >= i):
            A.setValue(i, j, v)
    A.assemble()
    return A


def solved(ksp, right, transpose=False):
    A = ksp.getOperators()[0]
    x, rhs = A.createVecs()
    own = slice(*A.getOwnershipRange())
    rhs.setArray(right[own])
    (ksp.solveTranspose if transpose else ksp.solve)(rhs, x)
    return x.getArray().copy(), own


right = np.cos(np.arange(N))
"""


def mpirun(program, count, tmp_path, before=RANKS):
    """Run a program on ranks, and return what it prints."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing")
    pytest.importorskip("mpi4py")
    words = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", str(count)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, sys.executable, "-c", before + textwrap.dedent(program)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_solve_as_one(count, tmp_path):
    said = mpirun(
        """
        from scipy.sparse.linalg import spsolve
        symmetric = (S + S.T).tobsr((2, 2))
        for kind in ("aij", "baij", "sbaij"):
            matrix = symmetric if kind == "sbaij" else S
            A = spread(matrix, kind)
            exact = spsolve(matrix.tocsc(), right)
            for inside in (False, True):
                ksp = PETSc.KSP().create(comm)
                ksp.setOperators(A)
                ksp.setTolerances(rtol=1e-10)
                if inside:
                    ksp.setType("fgmres")
                    context = krylith.petsc.PC(precond="amg" if kind == "aij" else "ildu")
                    ksp.getPC().setType("python")
                    ksp.getPC().setPythonContext(context)
                else:
                    context = krylith.petsc.KSP()
                    ksp.setType("python")
                    ksp.setPythonContext(context)
                x, own = solved(ksp, right)
                assert ksp.reason > 0 and np.abs(x - exact[own]).max() < 1e-6 * np.abs(exact).max(), (kind, inside, ksp.reason)
                A.scale(2.0)
                x, own = solved(ksp, right)
                assert ksp.reason > 0 and np.abs(2 * x - exact[own]).max() < 1e-6 * np.abs(exact).max()
                A.scale(0.5)
                assert (context.set_ups, context.updates) == (1, 1)
                if not inside:
                    x, own = solved(ksp, right, transpose=True)
                    exact_t = spsolve(matrix.T.tocsc(), right)
                    assert np.abs(x - exact_t[own]).max() < 1e-6 * np.abs(exact_t).max()
        # Another matrix of the same pattern, and one of another.
        ksp.setOperators(spread(3 * symmetric, "sbaij"))
        x, own = solved(ksp, right)
        assert np.abs(3 * x - exact[own]).max() < 1e-6 * np.abs(exact).max() and context.set_ups == 1
        PETSc.Sys.Print("all the same")
        """,
        count,
        tmp_path,
    )
    assert said == "all the same\n"


def test_null_spaces_blocks_and_nest_over_ranks(tmp_path):
    said = mpirun(
        """
        from scipy.sparse.linalg import spsolve
        D = S.tocsr()[::2, ::2].tocsr()
        m = D.shape[0]

        def own_rows(S, bsize=1):
            A = PETSc.Mat().create(comm)
            A.setSizes(S.shape)
            A.setType("aij")
            A.setUp()
            first, last = A.getOwnershipRange()
            rows = S.tocsr()[first:last]
            return PETSc.Mat().createAIJ(((rows.shape[0], m), (rows.shape[0], m)), csr=(rows.indptr, rows.indices, rows.data), comm=comm)

        L = sp.identity(m, format="csr")
        N = PETSc.Mat().createNest([[own_rows(D), own_rows(L)], [own_rows(L), None]], comm=comm)
        N.assemble()
        PETSc.Options()["krylith_fields"] = "u,p"
        PETSc.Options()["krylith_precond"] = "split(u: ildu, p: jacobi; schur=full, S=selfp)"
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(N)
        ksp.setTolerances(rtol=1e-10)
        ksp.setType("python")
        ksp.setPythonContext(krylith.petsc.KSP())
        ksp.setFromOptions()
        x, rhs = N.createVecs()
        u = own_rows(L).createVecLeft()
        own = slice(*u.getOwnershipRange())
        k = own.stop - own.start
        local = np.r_[right[own], right[m:][own]]
        rhs.setArray(local)
        ksp.solve(rhs, x)
        exact = spsolve(sp.bmat([[D, L], [L, None]], format="csc"), np.r_[right[:m], right[m : 2 * m]])
        found = x.getArray()
        assert ksp.reason > 0
        assert np.abs(found[:k] - exact[:m][own]).max() < 1e-6 and np.abs(found[k:] - exact[m:][own]).max() < 1e-6
        PETSc.Options().delValue("krylith_fields"), PETSc.Options().delValue("krylith_precond")
        # A pure Neumann problem, whose null space is on the ranks.
        r = sp.diags([-np.ones(m - 1), np.r_[1.0, np.full(m - 2, 2.0), 1.0], -np.ones(m - 1)], [-1, 0, 1]).tocsr()
        A = own_rows(r)
        A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=comm))
        c = right[:m] - right[:m].mean()
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(A)
        ksp.setType("python")
        ksp.setPythonContext(krylith.petsc.KSP())
        x, rhs = A.createVecs()
        rhs.setArray(c[own])
        ksp.solve(rhs, x)
        residual = rhs.duplicate()
        A.mult(x, residual)
        residual.axpy(-1.0, rhs)
        assert ksp.reason > 0 and residual.norm() <= 1.01e-5 * rhs.norm()
        PETSc.Sys.Print("done")
        """,
        2,
        tmp_path,
    )
    assert said == "done\n"


def test_a_parallel_matrix_that_krylith_cannot_share_is_refused(tmp_path):
    said = mpirun(
        """
        A = spread(S, "aij")

        def fails(text, comm):
            for cls, kind in ((krylith.petsc.KSP, "ksp"), (krylith.petsc.PC, "pc")):
                ksp = PETSc.KSP().create(comm)
                ksp.setOperators(A)
                if kind == "ksp":
                    ksp.setType("python")
                    ksp.setPythonContext(cls())
                else:
                    ksp.getPC().setType("python")
                    ksp.getPC().setPythonContext(cls())
                try:
                    ksp.setUp()
                    raise SystemExit("not refused")
                except krylith.Error as error:
                    assert text in str(error), error

        mpi4py = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "mpi4py"}
        sys.modules["mpi4py"] = None
        fails("mpi4py is missing", comm)
        # Each process alone is not a parallel matrix.
        sys.modules.pop("mpi4py")
        sys.modules.update(mpi4py)
        one = PETSc.Mat().createAIJ((3, 3), csr=([0, 1, 2, 3], [0, 1, 2], [1.0, 2.0, 4.0]), comm=PETSc.COMM_SELF)
        ksp = PETSc.KSP().createPython(krylith.petsc.KSP(), comm=PETSc.COMM_SELF)
        ksp.setOperators(one)
        x, y = one.createVecs()
        y.set(4.0)
        ksp.solve(y, x)
        assert x.getArray().tolist() == [4.0, 2.0, 1.0]
        PETSc.Sys.Print("refused")
        """,
        2,
        tmp_path,
    )
    assert said == "refused\n"


def test_two_communicators_are_refused():
    class Other:
        size, comm = 3, object()

        def __ne__(self, other):
            return True

    class Object:
        comm = Other()

    from krylith.petsc._system import communicator

    with pytest.raises(krylith.InvalidInput, match="on another of 3"):
        communicator(aij(poisson(2)), Object())


@pytest.mark.parametrize("count", [1, 2])
def test_programs_of_the_document(count, tmp_path):
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/petsc.md"
    if not page.exists():
        pytest.skip("docs/petsc.md is not here")
    programs = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if importlib.util.find_spec("dolfinx") is None:
        programs = [program for program in programs[:1] if "dolfinx" not in program]
    # In a process of its own, and with mpi4py before PETSc.
    mpirun("\n".join(["import mpi4py.MPI", *programs]), count, tmp_path, before="")
