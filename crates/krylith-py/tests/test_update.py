"""Updates of values: every container, matrices and bare arrays, Kronecker sums, and errors."""

import copy
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

import krylith

N = 24


def blocks(seed, b=2, n=N):
    """Return a diagonally dominant matrix of node blocks, some of whose entries are missing."""
    rng = np.random.default_rng(seed)
    A = sp.kron(sp.random_array((n // b, n // b), density=0.2, rng=rng), np.ones((b, b))).tocsr()
    A.data = rng.standard_normal(A.nnz)
    A.data[rng.random(A.nnz) < 0.2] = 0.0
    A.eliminate_zeros()
    A = A + sp.diags_array(1.0 + abs(A).sum(axis=1))
    return A.tocsr()


def unsorted(A, seed=3):
    rng, A = np.random.default_rng(seed), A.copy()
    for i in range(A.shape[0]):
        row = slice(A.indptr[i], A.indptr[i + 1])
        order = rng.permutation(row.stop - row.start)
        A.indices[row], A.data[row] = A.indices[row][order], A.data[row][order]
    A.has_sorted_indices = False
    return A


def twice(A):
    """Return the matrix with every entry stored as two parts."""
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    order = np.argsort(np.r_[rows, rows], kind="stable")
    values, cols = np.r_[0.25 * A.data, 0.75 * A.data], np.r_[A.indices, A.indices]
    return sp.csr_array((values[order], cols[order], 2 * A.indptr), shape=A.shape)


def spare(A):
    """Return the matrix with unused space after the last row."""
    S = sp.csr_array(A.shape)
    S.data, S.indices, S.indptr = np.r_[A.data, 7.0, 7.0], np.r_[A.indices, 0, 0].astype(np.int32), A.indptr
    return S


def unsorted_blocks(A):
    B = A.tobsr((2, 2)).copy()
    for i in range(len(B.indptr) - 1):
        row = slice(B.indptr[i], B.indptr[i + 1])
        B.indices[row], B.data[row] = B.indices[row][::-1].copy(), B.data[row][::-1].copy()
    B.has_sorted_indices = False
    return B


CONTAINERS = {
    "csr": lambda A: A,
    "csc": lambda A: A.tocsc(),
    "coo": lambda A: A.tocoo(),
    "coo in any order": lambda A: sp.coo_array((A.tocoo().data[::-1], (A.tocoo().row[::-1], A.tocoo().col[::-1])), shape=A.shape),
    "bsr": lambda A: A.tobsr((2, 2)),
    "bsr 3x1": lambda A: A.tobsr((3, 1)),
    "bsr, unsorted": unsorted_blocks,
    "dia": lambda A: A.todia(),
    "unsorted": unsorted,
    "entries twice": twice,
    "spare room": spare,
    "product": lambda A: (A @ (sp.eye_array(N) + 0.1 * sp.eye_array(N, k=3)).tocsr()).tocsr(),
    "csc, unsorted": lambda A: unsorted(A.T.tocsr()).T,
}


def with_numbers(X, data):
    """Return a matrix with the same index arrays and other values."""
    Y = copy.copy(X)
    Y.data = data
    return Y


def dense(X):
    return spare_free(X).toarray()


def spare_free(X):
    if X.format == "csr":
        n = X.indptr[-1]
        return sp.csr_array((X.data[:n], X.indices[:n], X.indptr), shape=X.shape)
    return X


def solves(solver, A, b):
    s = solver.solve(b)
    assert s.converged
    return np.linalg.norm(b - A @ s.x) <= 1e-8 * np.linalg.norm(b)


@pytest.mark.parametrize("block", [None, 1, 2])
@pytest.mark.parametrize("container", CONTAINERS)
def test_new_values_in_every_container(container, block):
    X, b = CONTAINERS[container](blocks(1)), np.arange(1.0, N + 1)
    solver = krylith.Solver(X, rtol=1e-10, block=block)
    solver.update_values(X.data)  # the very same numbers
    assert solves(solver, dense(X), b)
    Y = with_numbers(X, X.data * np.linspace(1.0, 2.0, X.data.size).reshape(X.data.shape))
    for given in (Y.data, Y, X.data.reshape(-1), Y.data.reshape(-1)):
        solver.update_values(given)
        values = given.data if hasattr(given, "tocsr") else given
        Z = with_numbers(X, np.asarray(values).reshape(X.data.shape))
        assert solves(solver, dense(Z), b)
    with pytest.raises(krylith.InvalidInput, match="new values for a matrix that stores"):
        solver.update_values(X.data.reshape(-1)[:-3])
    assert solves(solver, dense(Y), b)


def test_diagonals_keep_their_pattern():
    A = sp.dia_array((np.array([[4.0] * 6, [1.0, 0.0, 1.0, 1.0, 1.0, 9.0]]), [0, -1]), shape=(6, 6))
    solver = krylith.Solver(A, rtol=1e-12)
    new = A.data.copy()
    new[1, 5] = np.pi  # beside the matrix
    new[0] = 5.0
    solver.update_values(new)
    assert solves(solver, sp.dia_array((new, A.offsets), shape=A.shape).toarray(), np.ones(6))
    new[1, 1] = 1.0  # no entry before
    with pytest.raises(krylith.InvalidInput, match="another pattern"):
        solver.update_values(new)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok", "dense"])
@pytest.mark.parametrize("block", [None, 1, 2])
def test_what_a_new_matrix_does_not_store_is_zero(kind, block):
    A, b = blocks(9), np.arange(1.0, N + 1)
    of = lambda X: X.toarray() if kind == "dense" else X.asformat(kind)  # noqa: E731
    solver = krylith.Solver(of(A), rtol=1e-10, block=block)
    B = A.copy()
    B.data[np.abs(B.data) < 0.5] = 0.0
    B.eliminate_zeros()
    assert B.nnz < A.nnz
    for X in (B, A, B):
        solver.update_values(of(X))
        assert solves(solver, X, b)
    B = B.tolil()
    B[0, N - 1], there = 1.0, A[0, N - 1] != 0
    assert not there
    with pytest.raises(krylith.InvalidInput, match="another pattern"):
        solver.update_values(of(B.tocsr()))
    assert solves(solver, X, b)


@pytest.mark.parametrize("kind", ["lil", "dok", "dense"])
def test_what_has_no_array_of_its_own_takes_matrices_alone(kind):
    A = blocks(2)
    X = A.toarray() if kind == "dense" else A.asformat(kind)
    solver = krylith.Solver(X, rtol=1e-10)
    with pytest.raises(krylith.InvalidInput, match=f"a {kind} matrix has no array of stored numbers"):
        solver.update_values(A.data)
    solver.update_values(X * 2)
    assert solves(solver, 2 * A, np.ones(N))
    with pytest.raises(krylith.InvalidInput, match="another pattern"):
        solver.update_values(np.ones((N, N)))


def test_a_pattern_that_changed_in_place_is_noticed():
    A, b = blocks(4, n=50), np.arange(1.0, 51)
    for X in (A, A.tocsc(), A.tobsr((2, 2))):
        X, original = X.copy(), X.copy()
        solver = krylith.Solver(X, rtol=1e-10)
        X.indices[:] = X.indices[::-1].copy() if X.format != "bsr" else (X.indices + 1) % 25
        X.has_canonical_format = X.has_sorted_indices = False
        with pytest.raises(krylith.InvalidInput, match="another pattern|sorted|range"):
            solver.update_values(X)
        # A bare array has the order of the first matrix's values.
        solver.update_values(2 * original.data)
        assert solves(solver, 2 * original.toarray(), b)


def whole(K):
    return np.kron(K.A, K.M.toarray()) + K.tau * np.kron(K.B, K.L.toarray())


def check_sum(solver, K, F):
    s = solver.solve(F)
    assert s.converged
    f, x = F.T.ravel(), s.x.T.ravel()
    assert np.linalg.norm(f - whole(K) @ x) <= 1e-8 * np.linalg.norm(f)


@pytest.mark.parametrize("container", ["csr", "csc", "coo", "bsr", "unsorted", "entries twice"])
@pytest.mark.parametrize("block", [None, 1, 2])
@pytest.mark.parametrize("identity", [False, True])
def test_new_values_of_sums(container, block, identity):
    """Update with the same values, with new values and with new arrays, for each block size."""
    make, F = CONTAINERS[container], np.random.default_rng(8).standard_normal((N, 2))
    M, L = make(sp.eye_array(N, format="csr") if identity else blocks(5)), make(blocks(6))
    A, B = np.eye(2), np.array([[5, -1], [9, 3]]) / 12
    K = krylith.KroneckerSum(A, M, B, L, 0.1, block=block)
    solver = krylith.Solver(K, rtol=1e-10)
    check_sum(solver, K, F)
    solver.update_values(K)
    check_sum(solver, K, F)
    M3, L2 = M * 3.0, L * 2.0
    new = krylith.KroneckerSum(A, M3, B, L2, 0.3)
    solver.update_values(new)
    check_sum(solver, new, F)
    solver.update_values(krylith.KroneckerSum(A, M.data, B, L2.data, 0.3))
    check_sum(solver, krylith.KroneckerSum(A, M, B, L2, 0.3), F)


def test_a_new_scheme_is_taken_whole_or_not_at_all():
    M, L, F = blocks(5), blocks(6), np.ones((N, 2))
    B = np.array([[5, -1], [9, 3]]) / 12
    K = krylith.KroneckerSum(np.eye(2), M, B, L, tau=0.1)
    solver = krylith.Solver(K, rtol=1e-10)
    K2 = krylith.KroneckerSum(2 * np.eye(2), M, np.eye(2), 2 * L, tau=0.1)
    solver.update_values(K2)
    check_sum(solver, K2, F)
    nan, other = L.copy(), blocks(7)
    nan.data[3] = np.nan
    three = np.eye(3)
    for refused, text in [
        (krylith.KroneckerSum(np.eye(2), 5 * M, B, nan, tau=7.0), "NaN"),
        (krylith.KroneckerSum(np.eye(2), 5 * M, B, other, tau=7.0), "another pattern"),
        (krylith.KroneckerSum(np.eye(2), 5 * M, B, L, tau=np.inf), "tau is inf"),
        (krylith.KroneckerSum(np.eye(2) * np.nan, 5 * M, B, L, tau=1.0), "\\(0, 0\\) is NaN"),
        (krylith.KroneckerSum(three, M, three, L, tau=0.1), "create a new solver for another"),
        (krylith.KroneckerSum(np.eye(2), 5 * M, three, L, tau=0.1), "create a new solver for another"),
    ]:
        with pytest.raises(krylith.InvalidInput, match=text):
            solver.update_values(refused)
        check_sum(solver, K2, F)
    solver.set_tau(0.4)
    K2.tau = 0.4
    check_sum(solver, K2, F)


def test_a_jacobian_may_come_as_an_array():
    K = (sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(20, 20)) * 441.0).tocsc()
    diagonal = K.copy()
    diagonal.data[:] = np.where(diagonal.tocoo().row == diagonal.tocoo().col, 1.0, 0.0)
    calls = []

    def jacobian(u):
        calls.append(1)
        J = K.copy()
        J.data = K.data - diagonal.data * np.exp(u)[K.tocoo().col]
        return J if len(calls) == 1 else J.data

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s = krylith.newton(lambda u: K @ u - np.exp(u), jacobian, np.zeros(20))
    assert s.converged and len(calls) > 2


def test_stored_zeros_are_dropped_and_values_still_come_at_all_places() -> None:
    rng = np.random.default_rng(5)
    n = 200
    A = (sp.random(n, n, density=0.05, random_state=5) + 8 * sp.identity(n)).tocsr()
    off = np.flatnonzero(np.repeat(np.arange(n), np.diff(A.indptr)) != A.indices)
    A.data[rng.choice(off, off.size // 2, replace=False)] = 0.0
    b = np.ones(n)
    for X in (A, A.tocsc()):
        solver = krylith.Solver(X, rtol=1e-10)
        solution = solver.solve(b)
        assert any("stored zeros dropped" in e.detail for e in solution.events)
        for round in range(3):
            X = X.copy()
            X.data *= 1.5
            if round == 2:
                X.data[np.flatnonzero(X.data == 0.0)[0]] = 0.5
            solver.update_values(X.data)
            solution = solver.solve(b)
            assert np.linalg.norm(b - X @ solution.x) <= 1e-9 * np.linalg.norm(b)
        assert any("set up again" in e.detail for e in solution.events)
    assert not any("dropped" in e.detail for e in krylith.solve(A, b, zeros="keep").events)


def test_rows_of_other_scale_are_right_or_warned_of() -> None:
    n = 100
    A = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n)).tolil()
    A[0, 0] = A[n - 1, n - 1] = 1e10
    A, b = A.tocsr(), np.full(n, 1e-3)
    b[0] = 3e10
    exact = sp.linalg.spsolve(A.tocsc(), b)
    solution = krylith.solve(A, b)
    assert solution.converged and np.abs(solution.x - exact).max() < 1e-3
    assert solution.row_scaled_residual is not None and solution.row_scaled_residual <= 1e-6
    with pytest.warns(krylith.ConvergenceWarning, match="norm 1"):
        solution = krylith.solve(A, b, method="cg", precond="jacobi")
    assert solution.converged and solution.row_scaled_residual > 1e-3


@pytest.mark.parametrize("threads", [1, 3, None])
@pytest.mark.parametrize("length", [0, 5, (1 << 21) + 12345])
def test_a_kept_pattern_is_a_copy(threads, length):
    from krylith._order import copied

    for kind in (np.int32, np.int64):
        given = np.arange(length, dtype=kind)
        kept = copied(given, threads)
        assert kept.dtype == kind and np.array_equal(kept, given) and not np.shares_memory(kept, given)
