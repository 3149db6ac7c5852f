"""Batches of small systems, against dense solves of NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

import krylith


def pattern(n=40, seed=0):
    rng = np.random.default_rng(seed)
    A = sp.random(n, n, 0.08, random_state=rng, format="csr") + sp.diags([1.0] * n) + sp.diags([1.0] * (n - 1), 1)
    A = sp.csr_matrix(A)
    A.sort_indices()
    return A


def values_of(A, k, complex_=False, seed=1):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((k, A.data.size))
    if complex_:
        values = values + 1j * rng.standard_normal(values.shape)
    coo = A.tocoo()
    values[:, coo.row == coo.col] += 6.0
    return values


def dense(A, values):
    B = A.copy()
    B.data = values.reshape(A.data.shape)
    return B.toarray()


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("transpose", [False, "T", "H"])
def test_values_are_in_the_order_of_data(form, complex_, transpose):
    A = pattern().asformat(form)
    if form == "coo":  # COO has no order
        rng = np.random.default_rng(4)
        mixed = rng.permutation(A.nnz)
        A = sp.coo_matrix((A.data[mixed], (A.row[mixed], A.col[mixed])), A.shape)
    values = values_of(A, 150, complex_)
    B = np.random.default_rng(2).standard_normal((150, 40))
    solution = krylith.solve_batch(A, B, values, transpose=transpose, threads=2)
    assert bool(solution) and solution.check() is solution and len(solution) == 150
    assert solution.x.dtype == (np.complex128 if complex_ else np.float64)
    for k in (0, 1, 64, 149):
        M = dense(A, values[k])
        M = {"T": M.T, "H": M.conj().T}.get(transpose, M)
        np.testing.assert_allclose(solution.x[k], np.linalg.solve(M, B[k]), rtol=1e-8, atol=1e-10)
        assert np.linalg.norm(M @ solution.x[k] - B[k]) <= 1e-10 * np.linalg.norm(B[k])


def test_blocks_and_lists_of_matrices_and_one_right_hand_side():
    A = sp.bsr_matrix(sp.kron(pattern(15), np.ones((3, 3))), blocksize=(3, 3))
    values = np.random.default_rng(3).standard_normal((7, *A.data.shape)) + 8 * np.eye(3) * (
        A.indices == np.repeat(np.arange(15), np.diff(A.indptr))
    ).reshape(1, -1, 1, 1)
    matrices = []
    for one in values:
        M = A.copy()
        M.data = one.copy()
        matrices.append(M)
    b = np.arange(45.0)
    out = np.empty((7, 45))
    by_values = krylith.solve_batch(A, b, values, out=out)
    assert by_values.x is out
    by_list = krylith.solve_batch([M.tocsr() for M in matrices], b)
    np.testing.assert_allclose(by_list.x, out, rtol=1e-9, atol=1e-12)
    for M, x in zip(matrices, out):
        np.testing.assert_allclose(M @ x, b, rtol=1e-9, atol=1e-9)


def test_bad_systems_are_named():
    A = pattern()
    values = values_of(A, 200)
    values[170] = 0.0
    values[3, 5] = np.nan
    solution = krylith.solve_batch(A, np.ones(40), values)
    assert sorted(solution.errors) == [3, 170] and solution.errors[170].startswith("system 170: ")
    assert not solution and solution.converged.sum() == 198
    assert np.isnan(solution.residuals[170]) and not solution.x[170].any()
    with pytest.raises(krylith.ConvergenceError, match="2 of 200 systems did not converge; system 3: a matrix entry"):
        solution.check()


def test_wrong_input_is_explained():
    A = pattern()
    values = values_of(A, 3)
    for arguments, words in [
        ((A, np.ones(40)), "pass `values`"),
        ((A, np.ones(39), values), r"need \(3, 40\) or \(40,\)"),
        ((A, np.ones((2, 40)), values), r"3 systems of 40 unknowns"),
        ((A, np.ones(40), values[:, 1:]), "needs"),
        ((A.todia(), np.ones(40), values), "CSR, CSC, COO or BSR"),
        (([A, A + sp.eye(40, k=3)], np.ones(40)), "matrix 1 has another pattern"),
        ((A[:, :39], np.ones(40), values[:, : A[:, :39].nnz]), "square"),
        (([], np.ones(40)), "sequence of sparse matrices"),
        ((sp.coo_matrix(([1.0, 2.0], ([0, 0], [0, 0])), (1, 1)), np.ones(1), np.ones((1, 2))), "duplicates"),
    ]:
        with pytest.raises(krylith.InvalidInput, match=words):
            krylith.solve_batch(*arguments)
    with pytest.raises(krylith.InvalidInput, match="contiguous array of float64"):
        krylith.solve_batch(A, np.ones(40), values, out=np.empty((3, 40), "f4"))
    assert len(krylith.solve_batch(A, np.empty((0, 40)), values[:0])) == 0
