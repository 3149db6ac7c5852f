"""Functions of CuPy, PyTorch and JAX as A and as the preconditioner, on the GPU. Skipped without a GPU."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import krylith
from test_functions import coupled
from test_gpu import gpu
from test_solve import poisson

LIBRARIES = ["cupy", "torch", "jax"]


def library(name):
    """Return a library that can use a GPU."""
    if name != "jax":
        return gpu(name)
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("jax has no GPU")
    return jax


def product(name, A):
    """Return x ↦ A x with a dense or sparse matrix of a library on the GPU."""
    module = library(name)
    if name == "cupy":
        # CuPy refuses calls of cuSPARSE and cuBLAS while a stream is recorded.
        there = module.asarray(A.toarray())
        return lambda x: (there * x).sum(axis=1)
    if name == "torch":
        there = module.from_numpy(A.toarray()).cuda()
        return lambda x: there @ x
    there = module.numpy.asarray(A.toarray())
    return module.jit(lambda x: there @ x)


def of_library(name, b):
    module = library(name)
    if name == "cupy":
        return module.asarray(b)
    return module.from_numpy(b).cuda() if name == "torch" else b


def on_host(x):
    return x.get() if hasattr(x, "get") else x.cpu().numpy() if hasattr(x, "cpu") else np.asarray(x)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("capturable", [False, True])
def test_functions_as_a(name, capturable):
    if name == "jax" and capturable:
        pytest.skip("functions of JAX cannot be recorded")
    A, P = coupled(400)
    b = np.random.default_rng(1).standard_normal(400)
    call = product(name, A)
    exact = spsolve(A.tocsc(), b)
    calls = [0]

    def counted(x):
        calls[0] += 1
        return call(x)

    of = krylith.DeviceOperator(counted, 400, like=name, capturable=capturable, transpose=product(name, A.T.tocsr()))
    for given in ({}, {"precond_matrix": P, "precond": "ildu"}, {"precond_matrix": P, "precond": "amg"}):
        for method in ("auto", "bicgstab"):
            s = krylith.solve(of, of_library(name, b), method=method, rtol=1e-10, **given)
            assert s.converged and s.device == "cuda", (given, method)
            np.testing.assert_allclose(on_host(s.x), exact, rtol=1e-6, atol=1e-9)
            assert s.true_residual <= 1e-10
    solver = krylith.Solver(of, precond_matrix=P, precond="ildu", rtol=1e-10)
    solver.solve(b)
    calls[0] = 0
    s = solver.solve(b)
    assert calls[0] == 0 if capturable else calls[0] >= s.iterations
    np.testing.assert_allclose(solver.solve(b, transpose=True).x, spsolve(A.T.tocsc(), b), rtol=1e-6, atol=1e-9)
    x, info = krylith.gmres(of, b, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(x, exact, rtol=1e-6, atol=1e-9)
    v = of_library(name, b)
    if name != "jax":
        np.testing.assert_allclose(on_host(of @ v), A @ b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", LIBRARIES)
def test_functions_as_the_preconditioner(name):
    library(name)
    A = poisson(20)
    n = A.shape[0]
    b = np.ones(n)
    d = float(A.diagonal()[0])
    half = krylith.DeviceOperator(lambda r: r / d, n, like=name, capturable=name != "jax")
    expected = krylith.solve(A, b, method="cg", precond="jacobi", device="cuda", rtol=1e-10)
    for A_ in (A, krylith.DeviceOperator(product(name, A), n, like=name)):
        s = krylith.solve(A_, b, method="cg", precond=half, rtol=1e-10)
        assert s.converged and s.device == "cuda" and abs(s.iterations - expected.iterations) <= 2
        np.testing.assert_allclose(s.x, expected.x, rtol=1e-6)


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_functions_that_write_y(name):
    module = library(name)
    A = poisson(15)
    n, b = A.shape[0], np.ones(A.shape[0])
    call = product(name, A)

    def write(x, y):
        y[...] = call(x)

    exact = spsolve(A.tocsc(), b)
    for capturable in (False, True):
        of = krylith.DeviceOperator(write, n, like=name, capturable=capturable, out=True)
        np.testing.assert_allclose(krylith.solve(of, b, method="cg", rtol=1e-10).x, exact, rtol=1e-7)
    if name == "cupy":

        def raw(x, y):
            with module.cuda.ExternalStream(x.stream):
                module.asarray(_apart(y))[...] = call(module.asarray(_apart(x)))

        of = krylith.DeviceOperator(raw, n)
        np.testing.assert_allclose(krylith.solve(of, b, method="cg", rtol=1e-10).x, exact, rtol=1e-7)


class _apart:
    """A vector without its stream, for which CuPy would wait."""

    def __init__(self, vector):
        self._vector = vector
        self.__cuda_array_interface__ = {**vector.__cuda_array_interface__, "stream": None}


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_functions_on_a_gpu_raise(name):
    library(name)
    A = poisson(10)
    n, b = A.shape[0], np.ones(A.shape[0])
    call, left = product(name, A), [3]

    def fails(x):
        left[0] -= 1
        if left[0] < 0:
            raise ZeroDivisionError("of the function")
        return call(x)

    for capturable in {False, name != "jax"}:
        left[0] = 3
        with pytest.raises(ZeroDivisionError, match="of the function"):
            krylith.solve(krylith.DeviceOperator(fails, n, like=name, capturable=capturable), b, rtol=1e-14)
    with pytest.raises(krylith.InvalidInput, match="numbers; expected"):
        krylith.solve(krylith.DeviceOperator(lambda x: x[1:] * 1.0, n, like=name), b)
    with pytest.raises(krylith.InvalidInput):
        krylith.solve(krylith.DeviceOperator(lambda x: np.ones(n), n, like=name), b)
    with pytest.raises(krylith.InvalidInput, match="put no work|recording"):
        krylith.solve(krylith.DeviceOperator(lambda x, y: None, n, capturable=True), b)
    np.testing.assert_allclose(
        krylith.solve(krylith.DeviceOperator(call, n, like=name), b, method="cg", rtol=1e-10).x, spsolve(A.tocsc(), b), rtol=1e-7
    )


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_newton_without_a_jacobian_on_a_gpu(name):
    module = library(name)
    A, P = coupled()
    call = product(name, A)
    exact = krylith.newton(
        lambda u: A @ u + u**3 - 1.0, lambda u: (A + sp.diags_array(3 * u**2)).tocsr(), np.zeros(80),
        method="gmres", rtol=1e-10, forcing=1e-8, device="cpu",
    )  # fmt: skip
    x0 = of_library(name, np.zeros(80))
    f = lambda u: call(u) + u**3 - 1.0
    jvp = lambda u, v: call(v) + 3 * u**2 * v
    near = lambda u: (P + sp.diags_array(3 * on_host(u) ** 2)).tocsr()
    for jacobian, precond in [(None, "auto"), (near, "ildu"), (near, "amg")]:
        s = krylith.newton(f, jacobian, x0, jvp=jvp, precond=precond, rtol=1e-10, forcing=1e-8)
        assert s.converged and abs(len(s.steps) - len(exact.steps)) <= 1, precond
        assert type(s.x) is type(x0) and module is not None
        np.testing.assert_allclose(on_host(s.x), exact.x, rtol=1e-8)
