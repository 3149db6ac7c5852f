"""Methods with SciPy's signatures, preconditioners in SciPy's methods, and Newton's method."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from scipy.sparse.linalg import LinearOperator, spsolve

import krylith
from test_solve import close, poisson, random_matrix

METHODS = [krylith.cg, krylith.bicgstab, krylith.gmres, krylith.fgmres, krylith.cbcg, krylith.minres]


@pytest.mark.parametrize("method", METHODS, ids=lambda f: f.__name__)
def test_matrices_operators_and_functions(method):
    A = poisson(12)
    n = A.shape[0]
    b = np.random.default_rng(1).standard_normal(n)
    jacobi = LinearOperator((n, n), lambda v: v / 4.0)
    for a in (A, A.tocoo(), A.toarray(), LinearOperator((n, n), lambda v: A @ v), lambda v: A @ v):
        for M in (None, krylith.Jacobi(A), jacobi, lambda v: v / 4.0):
            x, info = method(a, b, rtol=1e-8, M=M)
            assert info == 0 and x.shape == (n,) and close(A, x, b, 1e-8)
    x, info = method(A, b[:, None], M="jacobi", rtol=1e-8)
    assert info == 0 and x.shape == (n,) and close(A, x, b, 1e-8)
    x, info = method(A, b, maxiter=1, rtol=1e-12, x0=np.ones(n))
    assert info > 0
    x, info = method(lambda v: A @ v, b, maxiter=1, rtol=1e-12, x0=np.ones(n))
    assert info > 0


def test_functions_raise_through_and_are_checked():
    A, b = poisson(8), np.ones(64)

    def fails(v):
        raise KeyError("of the operator")

    for a, M in ((fails, None), (A, fails)):
        with pytest.raises(KeyError, match="of the operator"):
            krylith.gmres(a, b, M=M)
    with pytest.raises(krylith.InvalidInput, match="returned 63 numbers"):
        krylith.gmres(lambda v: v[1:], b)
    with pytest.raises(krylith.InvalidInput, match="M='ildu' needs the entries"):
        krylith.gmres(lambda v: A @ v, b, M="ildu")
    with pytest.raises(krylith.InvalidInput, match="not an operator"):
        krylith.gmres(3, b)
    with pytest.raises(krylith.InvalidInput, match="65×65"):
        krylith.cg(LinearOperator((65, 65), lambda v: v), b)
    with pytest.raises(krylith.InvalidInput, match="64"):
        krylith.cg(A, np.ones(63))
    with pytest.raises(ZeroDivisionError):
        krylith.cg(lambda v: A @ v, b, callback=lambda r: 1 / 0)


def indefinite(n, seed):
    """Return a symmetric matrix with eigenvalues of both signs and a positive diagonal."""
    small = 0.1 * sp.random_array((n, n), density=3 / n, rng=np.random.default_rng(seed))
    pairs = sp.kron(sp.eye_array(n // 2), np.array([[1.0, 3.0], [3.0, 1.0]]))
    return (pairs + small + small.T + sp.diags_array(0.1 * (np.arange(n) % 4))).tocsr()


def test_minres_makes_the_iterates_of_scipys():
    n = 200
    A, b = indefinite(n, 7), np.random.default_rng(8).standard_normal(n)
    w = np.linalg.eigvalsh(A.toarray())
    assert w[0] < -1 and w[-1] > 1
    weights = 1.0 / (1.0 + np.arange(n) % 5)
    M = LinearOperator((n, n), lambda v: weights * v.reshape(-1))
    for m in (None, M):
        for steps in (1, 2, 5, 12):
            theirs, _ = sla.minres(A, b, M=m, rtol=1e-14, maxiter=steps)
            for a in (A, LinearOperator((n, n), lambda v: A @ v)):
                ours, info = krylith.minres(a, b, M=m, rtol=1e-14, maxiter=steps)
                assert info == steps
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())
    x, info = krylith.minres(A, b, M=M, rtol=1e-10)
    assert info == 0 and close(A, x, b, 1e-10)


def test_minres_says_what_it_cannot_use():
    A, b = indefinite(60, 9), np.ones(60)
    with pytest.raises(krylith.InvalidInput, match="varies between applications.*fgmres"):
        krylith.minres(A, b, M="cg(jacobi)")
    with pytest.raises(krylith.InvalidInput, match="minres"):
        krylith.minres(A, b, M="jacobi then ildu")
    signs = np.where(np.arange(60) % 2 == 0, 1.0, -1.0)
    x, info = krylith.minres(A, b, M=lambda v: signs * v)
    assert info == -1 and np.isfinite(x).all()


def test_a_preconditioner_that_varies():
    A = random_matrix(300, density=0.02)
    b = np.ones(300)
    rng = np.random.default_rng(2)
    varies = lambda v: v / A.diagonal() * rng.uniform(0.5, 2.0, 300)  # noqa: E731
    x, info = krylith.fgmres(A, b, M=varies, rtol=1e-8)
    assert info == 0 and close(A, x, b, 1e-8)


@pytest.mark.parametrize("make", [krylith.Jacobi, krylith.ILDU, krylith.Schwarz, krylith.AMG, krylith.LU])
def test_preconditioners_in_scipys_methods(make):
    A = poisson(20)
    b = np.random.default_rng(3).standard_normal(400)
    P = make(A)
    few, plain = [], []
    x, info = sla.gmres(A, b, M=P, rtol=1e-8, callback=few.append, callback_type="pr_norm")
    sla.gmres(A, b, rtol=1e-8, callback=plain.append, callback_type="pr_norm")
    assert info == 0 and close(A, x, b, 1e-7) and len(few) <= len(plain)
    # The preconditioner is linear, and maps columns as it maps vectors.
    u, v = np.random.default_rng(4).standard_normal((2, 400))
    np.testing.assert_allclose(P @ (2 * u - v), 2 * (P @ u) - P @ v, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(P @ np.stack([u, v], axis=1), np.stack([P @ u, P @ v], axis=1), rtol=1e-12)
    before = P @ u
    P.update_values(2 * A)
    np.testing.assert_allclose(2 * (P @ u), before, rtol=1e-9)
    assert make.__name__ in repr(P)
    x, info = krylith.cg(A, b, M=make(A), rtol=1e-8)
    assert info == 0 and close(A, x, b, 1e-8)


def test_what_preconditioners_are():
    A = random_matrix(40)
    np.testing.assert_allclose(krylith.Jacobi(A) @ np.ones(40), 1 / A.diagonal())
    np.testing.assert_allclose(krylith.LU(A) @ np.ones(40), spsolve(A.tocsc(), np.ones(40)), rtol=1e-9)
    assert "ildu:fill=1" in repr(krylith.ILDU(A, fill=1))
    with pytest.raises(krylith.InvalidInput):
        krylith.ILDU(A, fil=1)
    blocks = A.tobsr(blocksize=(2, 2))
    inverse = np.zeros((40, 40))
    for i in range(0, 40, 2):
        inverse[i : i + 2, i : i + 2] = np.linalg.inv(A.toarray()[i : i + 2, i : i + 2])
    np.testing.assert_allclose(krylith.Jacobi(blocks) @ np.ones(40), inverse @ np.ones(40), rtol=1e-12)


def test_products():
    A = random_matrix(70)
    v = np.random.default_rng(5).standard_normal(70)
    solver = krylith.Solver(A)
    np.testing.assert_allclose(solver.multiply(v), A @ v, rtol=1e-13, atol=1e-13)
    solver.update_values(3 * A)
    np.testing.assert_allclose(solver.multiply(v), 3 * (A @ v), rtol=1e-13, atol=1e-13)
    K = krylith.KroneckerSum(np.eye(2), A, np.array([[1.0, 2.0], [3.0, 4.0]]), A, 0.5)
    V = np.stack([v, -v], axis=1)
    expected = (A @ V) @ np.eye(2) + 0.5 * (A @ V) @ np.array([[1.0, 2.0], [3.0, 4.0]]).T
    np.testing.assert_allclose(krylith.Solver(K).multiply(V), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(krylith.InvalidInput):
        solver.multiply(v[1:])


@pytest.mark.parametrize("block", [None, 1, 2])
def test_newton(block):
    n = 40
    K = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr") * (n + 1) ** 2
    f = lambda u: K @ u - np.exp(u)  # noqa: E731
    J = lambda u: K - sp.diags_array(np.exp(u))  # noqa: E731
    told = []
    s = krylith.newton(f, J, np.zeros(n), block=block, rtol=1e-12, callback=lambda k, r: told.append((k, r)))
    assert s.converged and np.linalg.norm(f(s.x)) <= 1.01e-12 * np.linalg.norm(f(np.zeros(n)))
    assert told == list(enumerate(s.norms)) and len(s.steps) + 1 == len(told)
    assert "converged after" in repr(s) and s.iterations > 0
    exact = np.zeros(n)
    for _ in range(20):
        exact -= spsolve(J(exact).tocsc(), f(exact))
    np.testing.assert_allclose(s.x, exact, rtol=1e-8)
    with pytest.warns(krylith.ConvergenceWarning, match="max-steps"):
        krylith.newton(f, J, np.zeros(n), maxiter=1, rtol=1e-14)
    with pytest.raises(KeyError):
        krylith.newton(f, J, np.zeros(n), callback=lambda k, r: {}["missing"])
    with pytest.raises(krylith.InvalidInput, match="pattern"):
        krylith.newton(f, lambda u: K if u.any() else sp.eye_array(n, format="csr"), np.zeros(n))


def test_several_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    A = poisson(15)
    sides = np.random.default_rng(6).standard_normal((16, 225))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda b: krylith.solve(A, b, rtol=1e-9).x, sides))
    for b, x in zip(sides, answers):
        assert close(A, x, b, 1e-9)
