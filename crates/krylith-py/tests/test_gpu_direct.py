"""Direct factors by cuDSS. Skipped without a GPU, CuPy and KRYLITH_CUDSS, which names the library."""

import os

import numpy as np
import pytest
import scipy.sparse as sp

import krylith
from krylith import InvalidInput
from test_gpu import gpu


@pytest.fixture
def cupy():
    if "KRYLITH_CUDSS" not in os.environ:
        pytest.skip("KRYLITH_CUDSS does not name cuDSS")
    return gpu("cupy")


def grid(m):
    line = sp.diags([-1.2 * np.ones(m - 1), 2.0 * np.ones(m), -0.8 * np.ones(m - 1)], [-1, 0, 1])
    a = sp.csr_matrix(sp.kron(line, sp.eye(m)) + sp.kron(sp.eye(m), line))
    a.sort_indices()
    return a


def test_factors_of_arrays_on_the_gpu(cupy):
    from cupyx.scipy.sparse import csr_matrix

    host = grid(120)
    a, b = csr_matrix(host), cupy.arange(1.0, host.shape[0] + 1.0)
    solver = krylith.Solver(a, precond="lu:on=device", rtol=1e-10)
    for _ in range(3):
        solution = solver.solve(b)
        assert solution.converged and solution.iterations <= 2 and "cuDSS" in repr(solution)
        assert float(cupy.linalg.norm(b - a @ solution.x) / cupy.linalg.norm(b)) <= 1e-10
        a.data *= 1.5
        solver.update_values(a.data)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_batches_on_the_gpu(cupy, library):
    a, rng = grid(9), np.random.default_rng(3)
    values = a.data * (1.0 + 0.3 * rng.random((200, a.nnz)))
    values[17] = 0.0
    b = rng.standard_normal((200, a.shape[0]))
    if library == "torch":
        torch = gpu("torch")
        move, back = lambda v: torch.as_tensor(v, device="cuda"), lambda v: v.cpu().numpy()
    else:
        move, back = cupy.asarray, cupy.asnumpy
    for transpose in (False, True):
        there = krylith.solve_batch(a, move(b), move(values), transpose=transpose)
        here = krylith.solve_batch(a, b, values, transpose=transpose)
        assert list(there.errors) == [17] and np.isnan(there.residuals[17])
        assert np.array_equal(there.converged, here.converged) and there.converged.sum() == 199
        assert np.allclose(back(there.x), here.x, rtol=1e-9, atol=1e-12)
    one = krylith.solve_batch(a, move(b[0]), move(values))
    assert np.allclose(back(one.x)[5], krylith.solve_batch(a, b[0], values).x[5])


def test_what_batches_refuse(cupy):
    a = grid(4)
    values, b = cupy.ones((3, a.nnz)), cupy.ones((3, 16))
    with pytest.raises(InvalidInput, match="both on a GPU"):
        krylith.solve_batch(a, b.get(), values)
    with pytest.raises(InvalidInput, match="complex"):
        krylith.solve_batch(a, b * 1j, values)
    with pytest.raises(InvalidInput, match="CSR"):
        krylith.solve_batch(a.tocoo(), b, values)
    with pytest.raises(InvalidInput, match="need \\(3, 16\\)"):
        krylith.solve_batch(a, b[:, :5], values)
    with pytest.raises(InvalidInput, match="sorted"):
        krylith.solve_batch(_unsorted(a), b, values)


def _unsorted(a):
    out = a.copy()
    out.indices[:2] = out.indices[1::-1]
    out.has_sorted_indices = False
    return out
