"""Matrices and vectors of CuPy and PyTorch, which stay on the GPU. Skipped without a GPU."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import krylith
from krylith import _arrays
from test_solve import close, poisson, random_matrix


def gpu(name):
    """Return CuPy or PyTorch, if it can use a GPU."""
    module = pytest.importorskip(name)
    if name == "cupy":
        try:
            there = module.cuda.runtime.getDeviceCount() > 0
        except module.cuda.runtime.CUDARuntimeError:
            there = False
    else:
        there = module.cuda.is_available()
    if not there:
        pytest.skip(f"{name} has no GPU")
    return module


@pytest.fixture
def lent(monkeypatch):
    """Return the addresses and lengths of arrays that the extension module received."""
    seen = []
    remote = _arrays.remote

    def note(array):
        answer = remote(array)
        seen.append(answer)
        return answer

    monkeypatch.setattr(_arrays, "remote", note)
    return seen


def complex_system(n=400):
    """Return a complex matrix, b and two solutions: of A x = b and of Aᴴ x = b."""
    A = (random_matrix(n, seed=5, density=0.02) + 1j * random_matrix(n, seed=6, density=0.02)).tocsr()
    rng = np.random.default_rng(7)
    b = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    return A, b, spsolve(A.tocsc(), b), spsolve(A.conj().T.tocsc(), b)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_complex_matrices_of_cupy(form):
    cupy = gpu("cupy")
    import cupyx.scipy.sparse

    A, b, exact, adjoint = complex_system()
    given = getattr(cupyx.scipy.sparse, f"{form}_matrix")(cupyx.scipy.sparse.csr_matrix(A))
    there = cupy.asarray(b)
    solver = krylith.Solver(given, rtol=1e-11)
    s = solver.solve(there)
    assert s.device == "cuda" and isinstance(s.x, cupy.ndarray) and s.x.dtype == "complex128"
    np.testing.assert_allclose(cupy.asnumpy(s.x), exact, rtol=1e-7)
    np.testing.assert_allclose(cupy.asnumpy(solver.solve(there, transpose="H").x), adjoint, rtol=1e-7)
    np.testing.assert_allclose(solver.solve(b).x, exact, rtol=1e-7)
    two = solver.solve(cupy.stack([there, 1j * there], axis=1)).x
    np.testing.assert_allclose(cupy.asnumpy(two[:, 1]), 1j * exact, rtol=1e-7)
    solver.update_values(given * (2 - 1j))
    np.testing.assert_allclose((2 - 1j) * cupy.asnumpy(solver.solve(there).x), exact, rtol=1e-7)
    real = krylith.solve(given, there.real, rtol=1e-11).x
    np.testing.assert_allclose(cupy.asnumpy(real), spsolve(A.tocsc(), b.real), rtol=1e-6)
    with pytest.raises(krylith.InvalidInput, match="omit it"):
        krylith.solve(cupyx.scipy.sparse.csr_matrix(A), there, block=2)


def test_complex_matrices_of_torch():
    torch = gpu("torch")
    A, b, exact, adjoint = complex_system()
    there = torch.from_numpy(b).cuda()
    given = torch.sparse_csr_tensor(
        torch.from_numpy(A.indptr).long(), torch.from_numpy(A.indices).long(), torch.from_numpy(A.data), A.shape
    ).cuda()
    solver = krylith.Solver(given, rtol=1e-11)
    s = solver.solve(there)
    assert s.device == "cuda" and s.x.dtype == torch.complex128 and s.x.is_cuda
    np.testing.assert_allclose(s.x.cpu().numpy(), exact, rtol=1e-7)
    np.testing.assert_allclose(solver.solve(there, transpose="H").x.cpu().numpy(), adjoint, rtol=1e-7)
    solver.update_values(given.values() * 2j)
    np.testing.assert_allclose(2j * solver.solve(there).x.cpu().numpy(), exact, rtol=1e-7)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_cupy(form, lent):
    cupy = gpu("cupy")
    import cupyx.scipy.sparse

    A = random_matrix(500, density=0.02)
    b = np.random.default_rng(1).standard_normal(500)
    exact = spsolve(A.tocsc(), b)
    given = getattr(cupyx.scipy.sparse, f"{form}_matrix")(cupyx.scipy.sparse.csr_matrix(A))
    there = cupy.asarray(b)
    s = krylith.solve(given, there, rtol=1e-10)
    assert s.device == "cuda" and isinstance(s.x, cupy.ndarray)
    np.testing.assert_allclose(cupy.asnumpy(s.x), exact, rtol=1e-7)
    addresses = {address for address, *_ in lent}
    assert there.data.ptr in addresses and s.x.data.ptr in addresses, "nothing was copied"
    if form == "csr":
        assert {given.data.data.ptr, given.indices.data.ptr, given.indptr.data.ptr} <= addresses
    # The matrix on the GPU and b on the host, and the reverse.
    np.testing.assert_allclose(krylith.solve(given, b, rtol=1e-10).x, exact, rtol=1e-7)
    np.testing.assert_allclose(cupy.asnumpy(krylith.solve(A, there, rtol=1e-10).x), exact, rtol=1e-7)
    two = krylith.solve(given, cupy.stack([there, 2 * there], axis=1), rtol=1e-10).x
    np.testing.assert_allclose(cupy.asnumpy(two[:, 1]), 2 * exact, rtol=1e-7)
    solver = krylith.Solver(given, rtol=1e-10)
    solver.update_values(given * 2)
    np.testing.assert_allclose(2 * cupy.asnumpy(solver.solve(there).x), exact, rtol=1e-7)
    with pytest.raises(krylith.InvalidInput, match="pattern"):
        solver.update_values(cupyx.scipy.sparse.csr_matrix(random_matrix(500, seed=3, density=0.02)))
    single = krylith.solve(given, there.astype("float32"), rtol=1e-5)
    assert single.converged and single.x.dtype == "float64"
    guess = krylith.solve(given, there, x0=s.x)
    assert guess.iterations == 0


def test_the_callers_stream_comes_first(lent):
    cupy = gpu("cupy")
    import cupyx.scipy.sparse

    A = poisson(300)
    given = cupyx.scipy.sparse.csr_matrix(A)
    solver = krylith.Solver(given, rtol=1e-8, device="cuda")
    stream = cupy.cuda.Stream(non_blocking=True)
    for k in range(5):
        with stream:
            b = cupy.zeros(A.shape[0])
            for _ in range(200):  # what the stream has still to do when the solve is called
                b += 1.0
            x = solver.solve(b).x
            twice = x * 2.0
        stream.synchronize()
        assert close(A, cupy.asnumpy(twice) / 2, np.full(A.shape[0], 200.0)), f"round {k}"
    assert any(stream.ptr == used for *_, used in lent)


@pytest.mark.parametrize("layout", ["csr", "bsr", "coo", "csc"])
def test_torch(layout, lent):
    torch = gpu("torch")
    A = random_matrix(400, density=0.02)
    b = np.random.default_rng(1).standard_normal(400)
    exact = spsolve(A.tocsc(), b)
    rows = torch.sparse_csr_tensor(A.indptr, A.indices, A.data, size=A.shape, device="cuda")
    given = {
        "csr": lambda: rows,
        "bsr": lambda: torch.from_numpy(A.toarray()).cuda().to_sparse_bsr((2, 2)),
        "coo": lambda: torch.from_numpy(A.toarray()).cuda().to_sparse_coo(),
        "csc": lambda: torch.from_numpy(A.toarray()).cuda().to_sparse_csc(),
    }[layout]()
    there = torch.from_numpy(b).cuda()
    s = krylith.solve(given, there, rtol=1e-10)
    assert s.device == "cuda" and s.x.is_cuda and s.x.dtype == torch.float64
    np.testing.assert_allclose(s.x.cpu().numpy(), exact, rtol=1e-7)
    addresses = {address for address, *_ in lent}
    assert there.data_ptr() in addresses and s.x.data_ptr() in addresses
    if layout == "bsr":
        assert "blocks 2×2" in repr(s)
    assert krylith.solve(given, there.float(), rtol=1e-5).x.dtype == torch.float64
    wanted = torch.from_numpy(b).requires_grad_()
    with pytest.raises(krylith.InvalidInput, match="requires gradients"):
        krylith.solve(given, wanted.cuda())
    assert krylith.solve(A, wanted.detach()).x.dtype == torch.float64


def test_a_system_on_the_host_that_a_gpu_solves():
    gpu("cupy")
    A, b = poisson(200), np.ones(40_000)
    s = krylith.solve(A, b, device="cuda", rtol=1e-8)
    assert s.device == "cuda" and close(A, s.x, b, 1e-8)
    small = krylith.solve(random_matrix(50), np.ones(50))
    assert small.device == "cpu"


def test_torch_on_the_host():
    torch = pytest.importorskip("torch")
    A = random_matrix(60)
    given = torch.sparse_csr_tensor(A.indptr, A.indices, A.data, size=A.shape)
    s = krylith.solve(given, torch.ones(60, dtype=torch.float64))
    assert isinstance(s.x, torch.Tensor) and close(A, s.x.numpy(), np.ones(60))


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_newton_keeps_the_jacobian_on_the_gpu(library, lent):
    module = gpu(library)
    n = 60
    K, c = poisson(n), 5.0 / (n + 1) ** 2
    inside = K.indices == np.repeat(np.arange(n * n), np.diff(K.indptr))
    if library == "cupy":
        import cupyx.scipy.sparse

        A = cupyx.scipy.sparse.csr_matrix(K)
        diagonal = module.asarray(np.flatnonzero(inside))
        zeros = module.zeros(n * n)

        def jacobian(u):
            J = A.copy()
            J.data[diagonal] -= c * module.exp(u)
            return J

        back = module.asnumpy
    else:
        p, j, v = (module.from_numpy(a.astype(t)).cuda() for a, t in ((K.indptr, "int32"), (K.indices, "int32"), (K.data, "float64")))
        A = module.sparse_csr_tensor(p, j, v, size=K.shape)
        diagonal = module.from_numpy(np.flatnonzero(inside)).cuda()
        zeros = module.zeros(n * n, dtype=module.float64, device="cuda")

        def jacobian(u):
            new = v.clone()
            new[diagonal] -= c * module.exp(u)
            return module.sparse_csr_tensor(p, j, new, size=K.shape)

        def back(u):
            return u.cpu().numpy()

    def residual(u):
        assert type(u) is type(zeros) and _arrays.on_device(u)
        return A @ u - c * module.exp(u)

    s = krylith.newton(residual, jacobian, zeros, rtol=1e-10)
    assert s.converged and type(s.x) is type(zeros)
    on_host = krylith.newton(
        lambda u: K @ u - c * np.exp(u), lambda u: K - sp.diags_array(c * np.exp(u)), np.zeros(n * n), rtol=1e-10, device="cpu"
    )
    np.testing.assert_allclose(back(s.x), on_host.x, atol=1e-8)
    assert sum(length == K.nnz for _, length, *_ in lent) >= len(s.steps), "values were lent on the GPU"
    with pytest.raises(krylith.InvalidInput, match="one place"):
        calls = iter([jacobian(zeros), K])
        krylith.newton(residual, lambda u: next(calls), zeros, rtol=1e-10)


def test_new_values_that_change_blocks_of_one_gpu():
    """Blocks are diagonal at first. Later those of the first half of the rows are full, all on one of two GPUs."""
    torch = gpu("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    n = 400
    A = sp.kron(poisson(n), np.eye(2)).tobsr((2, 2))
    solver = krylith.Solver(A, precond="amg", device="cuda:0,1", rtol=1e-8)
    b = np.ones(A.shape[0])
    assert close(A, solver.solve(b).x, b, 1e-8)
    coupled = A.copy()
    diagonal = coupled.indices == np.repeat(np.arange(n * n), np.diff(coupled.indptr))
    first = np.repeat(np.arange(n * n) < n * n // 3, np.diff(coupled.indptr))
    coupled.data[diagonal & first] += [[0.5, 0.25], [0.25, 0.5]]
    solver.update_values(coupled)
    assert close(coupled, solver.solve(b).x, b, 1e-8)
    solver.update_values(A)
    assert close(A, solver.solve(b).x, b, 1e-8)
