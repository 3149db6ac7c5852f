"""The PC and KSP types for petsc4py: matrices and what is taken from them, against SciPy's direct solver."""

import numpy as np
import pytest

pytest.importorskip("petsc4py")
import scipy.sparse as sp  # noqa: E402
from petsc4py import PETSc  # noqa: E402
from scipy.sparse.linalg import spsolve  # noqa: E402

from petsc_cases import (  # noqa: E402
    INSIDE, SELF, WHOLE, aij, baij, blocks, elasticity, matis, nest, new_ksp, poisson, sbaij, solved, stokes, vector,
)  # fmt: skip

import krylith  # noqa: E402
import krylith.petsc  # noqa: E402

REASON = PETSc.KSP.ConvergedReason

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


def test_solvers_end_in_the_order_in_which_they_began(monkeypatch):
    """The order of a set would differ from rank to rank."""
    import weakref

    from krylith.petsc import _setup

    monkeypatch.setattr(_setup, "_ALIVE", weakref.WeakSet())
    ended = []
    kept = [krylith.petsc.PC() if k % 3 else krylith.petsc.KSP() for k in range(50)]
    for one in kept:
        monkeypatch.setattr(one, "_forget", lambda one=one: ended.append(one))
    _setup._end()
    assert ended == kept
