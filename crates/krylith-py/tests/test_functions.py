"""A as a function with a matrix beside it, Jacobian-free Newton, and functions of GPU vectors where there is no GPU."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, spsolve

import krylith
from test_solve import poisson


def coupled(n=80):
    """Return a matrix, and its entries near the diagonal."""
    band = sp.diags_array([-1.0, 3.0, -1.2], offsets=[-1, 0, 1], shape=(n, n), format="csr")
    far = sp.diags_array([0.2, 0.1], offsets=[-n // 2, n // 2], shape=(n, n), format="csr")
    return (band + far).tocsr(), band


@pytest.mark.parametrize("precond", ["auto", "none", "jacobi", "ildu", "amg", "lu"])
def test_a_matrix_preconditions_a_function(precond):
    A, P = coupled()
    b = np.random.default_rng(1).standard_normal(80)
    exact = spsolve(A.tocsc(), b)
    maps = [lambda v: A @ v, LinearOperator(A.shape, matvec=lambda v: A @ v, rmatvec=lambda v: A.T @ v, dtype=float)]
    for of in maps:
        s = krylith.solve(of, b, precond_matrix=P, precond=precond, rtol=1e-10)
        assert s.converged and s.device == "cpu"
        np.testing.assert_allclose(s.x, exact, rtol=1e-7)
        assert s.true_residual <= 1e-10
    solver = krylith.Solver(maps[1], precond_matrix=P, precond=precond, rtol=1e-10)
    np.testing.assert_allclose(solver.solve(b).x, exact, rtol=1e-7)
    np.testing.assert_allclose(solver.solve(b, transpose=True).x, spsolve(A.T.tocsc(), b), rtol=1e-7)
    solver.update_values(2 * P)
    np.testing.assert_allclose(solver.solve(np.stack([b, 2 * b], axis=1)).x[:, 1], 2 * exact, rtol=1e-7)
    complex_ = solver.solve(b + 1j * b).x
    np.testing.assert_allclose(complex_.imag, exact, rtol=1e-7)


def test_functions_without_a_matrix():
    A = poisson(12)
    n = A.shape[0]
    b = np.ones(n)
    exact = spsolve(A.tocsc(), b)
    d = A.diagonal()
    s = krylith.solve(lambda v: A @ v, b, method="cg", rtol=1e-10)
    np.testing.assert_allclose(s.x, exact, rtol=1e-7)
    jacobi = krylith.solve(lambda v: A @ v, b, precond=lambda r: r / d, rtol=1e-10)
    np.testing.assert_allclose(jacobi.x, exact, rtol=1e-7)
    assert "function" in jacobi.precond
    seen = []
    krylith.solve(lambda v: A @ v, b, callback=lambda k, r: seen.append(k))
    assert seen[0] == 0 and len(seen) > 2


def test_what_functions_raise():
    A, P = coupled()
    b = np.ones(80)

    def fails(v):
        raise ZeroDivisionError("of the function")

    for given in ({}, {"precond_matrix": P, "precond": "ildu"}):
        with pytest.raises(ZeroDivisionError, match="of the function"):
            krylith.solve(fails, b, **given)
    with pytest.raises(krylith.InvalidInput, match="79 numbers; expected 80"):
        krylith.solve(lambda v: v[1:], b)
    with pytest.raises(krylith.InvalidInput, match="precond_matrix"):
        krylith.solve(lambda v: v, b, precond="ildu")
    with pytest.raises(krylith.InvalidInput, match="goes with a function"):
        krylith.solve(A, b, precond_matrix=P)
    with pytest.raises(krylith.InvalidInput, match="has no shape"):
        krylith.Solver(lambda v: v)
    with pytest.raises(krylith.InvalidInput, match="real"):
        krylith.solve(lambda v: v, b, precond_matrix=(1j * P).tocsr())
    solver = krylith.Solver(LinearOperator(A.shape, matvec=lambda v: A @ v, dtype=float), precond_matrix=P)
    with pytest.raises(krylith.InvalidInput, match="A is a function"):
        solver.multiply(b)
    with pytest.raises(TypeError, match="copied or pickled"):
        solver.__getstate__()


def test_functions_on_a_gpu_are_refused_on_the_host():
    A, P = coupled()
    n, b = A.shape[0], np.ones(A.shape[0])
    on_gpu = krylith.DeviceOperator(lambda x, y: None, n)
    assert on_gpu.shape == (n, n) and "addresses" in repr(on_gpu)
    for given in ({"device": "cpu"}, {"device": "cpu", "precond_matrix": P}):
        with pytest.raises(krylith.InvalidInput, match="use device=cuda|device='cuda'"):
            krylith.solve(on_gpu, b, **given)
    with pytest.raises(krylith.InvalidInput, match="cannot run on the CPU"):
        krylith.solve(A, b, precond=on_gpu, device="cpu")
    with pytest.raises(krylith.InvalidInput, match="unknowns"):
        krylith.solve(krylith.DeviceOperator(lambda x, y: None, 3), b, precond_matrix=P, device="cpu")
    for wrong in ({"like": "numpy"}, {"device": -1}, {"transpose": 3}):
        with pytest.raises(krylith.InvalidInput):
            krylith.DeviceOperator(lambda x, y: None, n, **wrong)
    with pytest.raises(krylith.InvalidInput, match="cannot run on the CPU"):
        krylith.gmres(LinearOperator(A.shape, matvec=lambda v: v, dtype=float), b, M=on_gpu, device="cpu")
    with pytest.raises(krylith.InvalidInput, match="callback_type"):
        krylith.cg(on_gpu, b, callback=print)


def test_a_vector_on_a_gpu_lends_its_memory():
    vector = krylith.DeviceVector(4096, 10, 1, 77)
    assert vector.__cuda_array_interface__["data"] == (4096, False) and vector.__dlpack_device__() == (2, 1)
    assert vector.__cuda_array_interface__["stream"] == 77 and vector.shape == (10,)
    capsule = vector.__dlpack__(stream=-1)
    assert krylith._native.numbers_of(capsule, 1) == (4096, 10)
    with pytest.raises(krylith.InvalidInput, match="not on the GPU"):
        krylith._native.numbers_of(capsule, 0)
    with pytest.raises(ValueError):
        krylith._native.numbers_of(object(), 0)


def test_newton_without_a_jacobian():
    A, P = coupled()
    f = lambda u: A @ u + u**3 - 1.0
    full = lambda u: (A + sp.diags_array(3 * u**2)).tocsr()
    near = lambda u: (P + sp.diags_array(3 * u**2)).tocsr()
    jvp = lambda u, v: A @ v + 3 * u**2 * v
    how = dict(rtol=1e-10, forcing=1e-8)
    exact = krylith.newton(f, full, np.zeros(80), method="gmres", **how)
    for jacobian, precond in [(near, "ildu"), (near, "amg"), (None, "auto")]:
        s = krylith.newton(f, jacobian, np.zeros(80), jvp=jvp, precond=precond, **how)
        assert s.converged and len(s.steps) == len(exact.steps), precond
        np.testing.assert_allclose(s.x, exact.x, rtol=1e-8)
    with pytest.raises(krylith.InvalidInput, match="jvp"):
        krylith.newton(f, None, np.zeros(80))
    with pytest.raises(krylith.InvalidInput, match="needs a matrix"):
        krylith.newton(f, None, np.zeros(80), jvp=jvp, precond="ildu")

    def fails(u, v):
        raise ZeroDivisionError("of the product")

    with pytest.raises(ZeroDivisionError, match="of the product"):
        krylith.newton(f, near, np.zeros(80), jvp=fails)
