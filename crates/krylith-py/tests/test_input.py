"""Inputs given by habit or by mistake: accepted if their meaning is clear, else rejected with a reason."""

import sys
import time
import types

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, lobpcg

import krylith
from test_solve import close, poisson, random_matrix


def refused(text, *args, **options):
    with pytest.raises(krylith.InvalidInput) as e:
        krylith.solve(*args, **options)
    assert text in str(e.value), str(e.value)


def test_numbers_that_are_not_finite_are_named():
    A, good = random_matrix(10), np.ones(10)
    for value, name in [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")]:
        bad = good.copy()
        bad[5] = value
        refused(f"b: entry 5 is {name}; every value must be finite", A, bad)
        refused(f"x0: entry 5 is {name}; every value must be finite", A, good, x0=bad)
        refused(f"column 1: b: entry 5 is {name}", A, np.stack([good, bad], axis=1))
        with pytest.raises(krylith.InvalidInput, match=f"b: entry 5 is {name}"):
            krylith.cg(LinearOperator((10, 10), lambda v: A @ v, dtype=float), bad)
        solver = krylith.Solver(A, rtol=1e-10)
        with pytest.raises(krylith.InvalidInput):
            solver.solve(bad)
        assert close(A, solver.solve(good).x, good, 1e-10)


def test_options_by_other_names_are_asked_about():
    A, b = random_matrix(10), np.ones(10)
    for name in ("max_iterations", "maxits", "maxit", "max_iter", "niter"):
        refused(f"unknown option `{name}`; did you mean `max_iters`?", A, b, **{name: 5})
    for name, ours in [("pc", "precond"), ("tol", "rtol"), ("thread", "threads"), ("gpu", "device"), ("timeout", "time_limit")]:
        refused(f"unknown option `{name}`; did you mean `{ours}`?", A, b, **{name: 5})
    refused("or a name as `precond=`", A, b, M=krylith.Jacobi(A))
    refused("`method` is of type int", A, b, method=3)
    refused("written `gmres:restart=30`", A, b, method="gmres(30)")
    refused("expected a name", A, b, precond=" ")


def test_names_of_scipy_and_of_earlier_versions_are_taken():
    A, b = poisson(20), np.ones(400)
    for name in ("max_iters", "maxiter"):
        with pytest.warns(krylith.ConvergenceWarning):
            assert krylith.solve(A, b, method="cg", precond="none", **{name: 3}).iterations == 3
        with pytest.warns(krylith.ConvergenceWarning):
            assert krylith.Solver(A, method="cg", precond="none").solve(b, **{name: 3}).iterations == 3
    refused("`max_iters` is given twice", A, b, max_iters=3, maxiter=4)
    with pytest.raises(krylith.InvalidInput, match="given twice"):
        krylith.Solver(A).solve(b, max_iters=3, maxiter=4)
    solution = krylith.solve(A, b, store="f32")
    assert any("`store` is now called `precision`" in event.detail for event in solution.events)
    assert not any(event.kind == "warning" for event in krylith.solve(A, b, precision="f32").events)


def test_counts_may_be_whole_floats():
    A, b = poisson(20), np.ones(400)
    assert krylith.solve(A, b, maxiter=1e3, restart=np.float64(20), method="gmres").converged
    solver = krylith.Solver(A, maxiter=1e3)
    assert solver.solve(b, maxiter=5e2).converged
    for bad in (-1, 2.5, "many", np.nan):
        for call in (lambda: krylith.solve(A, b, maxiter=bad), lambda: solver.solve(b, maxiter=bad)):
            with pytest.raises(krylith.InvalidInput, match="`max_?iters?` is .*expected a whole number"):
                call()


def test_compositions_have_spaces():
    A, b = poisson(20), np.ones(400)
    for method, precond in [
        ("gmres", "jacobi then ildu"),
        ("gmres", "jacobi then ildu:fill=1"),
        ("cg", "symmetric(jacobi then coarse)"),
        ("gmres", "jacobi + ildu"),
    ]:
        s = krylith.solve(A, b, method=method, precond=precond, rtol=1e-8)
        assert s.converged and close(A, s.x, b, 1e-8), precond
        x, info = getattr(krylith, method)(A, b, M=precond, rtol=1e-8)
        assert info == 0 and close(A, x, b, 1e-8), precond
    refused("the value of an option has no spaces: give rtol by itself", A, b, precond="jacobi rtol=1")
    refused("unknown", A, b, precond="jacobi then nothing")


class Watcher:
    def told(self, iteration, residual):
        return None


def test_callbacks_of_other_arguments_are_refused_at_once():
    A, b = poisson(10), np.ones(100)
    for wrong in (lambda x: None, lambda: None, lambda a, b, c: None):
        refused("is called with two numbers", A, b, callback=wrong)
    refused("expected a function", A, b, callback=3)
    for fine in (lambda i, r: None, lambda *a: None, lambda i, r, more=1: None, Watcher().told):
        assert krylith.solve(A, b, callback=fine).converged


def test_what_is_no_matrix_is_refused_at_once():
    class Lazy:
        """An object with a size and indexing but without an array, such as a sparse matrix of JAX."""

        shape, ndim, dtype = (60, 60), 2, np.dtype("f8")

        def __len__(self):
            return 60

        def __getitem__(self, i):
            time.sleep(0.01)
            raise IndexError if i >= 60 else AssertionError("it was walked through")

    b = np.ones(60)
    refused("Lazy is not a matrix; pass a sparse matrix of SciPy, CuPy, PyTorch or JAX, or a dense array", Lazy(), b)
    solver = krylith.Solver(random_matrix(60))
    with pytest.raises(krylith.InvalidInput, match="Lazy is not a matrix"):
        solver.update_values(Lazy())
    assert krylith.solve(lambda v: 2 * v, b).converged
    refused("solve(A, b) takes the matrix first", b, random_matrix(60))
    refused("pass a dense array, such as b.toarray()", random_matrix(60), sp.csr_array(b.reshape(-1, 1)))

    class Other:
        """A method that sparse arrays of PyData have."""

        def to_scipy_sparse(self):
            return random_matrix(60)

    assert krylith.solve(Other(), b).converged


def test_arrays_that_numpy_takes():
    A, b = random_matrix(12), np.ones(12)
    dense = A.toarray()
    for given in (dense.astype(">f8"), dense.astype("f2"), dense.astype("f4"), np.asmatrix(dense)):
        exact = np.linalg.solve(np.asarray(given, dtype=float), b)
        np.testing.assert_allclose(krylith.solve(given, b, rtol=1e-12).x, exact, rtol=1e-9)
    room = sp.csr_array(A.shape)
    room.data, room.indices, room.indptr = np.r_[A.data, 9.0, 9.0], np.r_[A.indices, 0, 0].astype(np.int32), A.indptr
    np.testing.assert_allclose(krylith.solve(room, b, rtol=1e-12).x, np.linalg.solve(dense, b), rtol=1e-9)

    def misaligned(values):
        raw = np.zeros(values.nbytes + 1, dtype="u1")[1:].view(values.dtype)
        raw[:] = values
        assert not raw.flags.aligned
        return raw

    odd = sp.csr_array(A.shape)
    odd.data, odd.indices, odd.indptr = misaligned(A.data), misaligned(A.indices), misaligned(A.indptr)
    s = krylith.solve(odd, misaligned(b), x0=misaligned(0 * b), rtol=1e-12)
    np.testing.assert_allclose(s.x, np.linalg.solve(dense, b), rtol=1e-9)
    solver = krylith.Solver(odd, rtol=1e-12)
    solver.update_values(misaligned(2 * A.data))
    np.testing.assert_allclose(solver.solve(b).x, np.linalg.solve(2 * dense, b), rtol=1e-9)


def test_preconditioners_take_columns():
    A = poisson(20)
    P, V = krylith.ILDU(A), np.random.default_rng(3).standard_normal((400, 3))
    expected = np.stack([P.matvec(v) for v in V.T], axis=1)
    for given in (P(V), P @ V, P.matmat(V), np.asarray(P(V.tolist()))):
        np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(P @ V[:, 0].tolist(), expected[:, 0])
    assert P(V[:, :1]).shape == (400, 1)
    smallest, _ = lobpcg(A, V, M=krylith.AMG(A), largest=False, tol=1e-6, maxiter=100)
    exact = 4 * np.sin(np.pi / 42) ** 2 * 2
    assert abs(smallest[0] - exact) < 1e-5


def test_what_is_known_beside_the_numbers_fits_or_is_refused():
    A, b = random_matrix(50), np.ones(50)
    refused("the grid has 7×7×1 nodes, but the system has 50 nodes", A, b, grid=(7, 7))
    refused("nodes, but the system has 50 nodes", A, b, grid=(2**33, 2**33))
    refused("`grid` is (2.5, 20)", A, b, grid=(2.5, 20))
    refused("`grid` is (1, 2, 5, 5)", A, b, grid=(1, 2, 5, 5))
    assert krylith.solve(A, b, grid=(5, 10)).converged
    pairs = sp.kron(random_matrix(24), np.ones((2, 2))).tocsr() + sp.eye_array(48)
    # The grid determines the nodes, even if another block size suits the pattern.
    for grid, unknowns in [((6, 8), "48 unknowns"), ((4, 6), "2×2")]:
        s = krylith.solve(pairs.tocsr(), np.ones(48), grid=grid)
        assert s.converged and unknowns in repr(s), repr(s)
    points = np.zeros((50, 3))
    points[3, 1] = np.nan
    refused("coordinates: point 3 is (0, NaN, 0); every number must be finite", A, b, coordinates=points)
    near = np.ones((50, 2))
    near[:, 1] = 0.0
    refused("near-null vector 1 is zero", A, b, near_nullspace=near, precond="amg")
    ring = (sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(50, 50)) - sp.coo_array(([1.0, 1.0], ([0, 49], [49, 0])), shape=(50, 50))).tocsr()
    s = krylith.solve(ring, np.r_[1.0, np.zeros(48), -1.0], nullspace=[1.0] * 50)  # a flat list is one vector
    assert s.converged


def test_gradients_are_not_dropped_in_silence(monkeypatch):
    torch = types.ModuleType("torch")
    enabled = [True]
    torch.is_grad_enabled = lambda: enabled[0]
    monkeypatch.setitem(sys.modules, "torch", torch)

    class Tensor:
        requires_grad, is_cuda, shape, ndim = True, False, (10,), 1

        def is_complex(self):
            return False

        def detach(self):
            return self

        double = contiguous = detach

        def numpy(self):
            return np.ones(10)

    Tensor.__module__ = "torch"
    from krylith._arrays import float64

    with pytest.raises(krylith.InvalidInput, match="requires gradients.*detach"):
        float64(Tensor())
    enabled[0] = False
    assert float64(Tensor()).sum() == 10.0


def test_gradients_of_real_tensors():
    torch = pytest.importorskip("torch")
    A = random_matrix(20)
    values = torch.tensor(A.data, requires_grad=True)
    matrix = torch.sparse_csr_tensor(torch.tensor(A.indptr), torch.tensor(A.indices), values, size=(20, 20))
    b = torch.ones(20, dtype=torch.float64)
    refused("requires gradients", matrix, b)
    refused("requires gradients", matrix.detach(), b.clone().requires_grad_())
    assert krylith.solve(matrix.detach(), b).converged
