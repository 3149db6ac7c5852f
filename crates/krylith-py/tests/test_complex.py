"""Complex systems, beside SciPy's direct solver and dense algebra."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import krylith
from test_solve import poisson, random_matrix


def random_complex(n, seed=3):
    """Return a matrix with a dominant diagonal."""
    return (random_matrix(n, seed=seed) + 1j * random_matrix(n, seed=seed + 1)).tocsr()


def helmholtz(n, k=0.6, damping=0.2):
    """Return the Helmholtz operator with damping on n×n nodes."""
    return (poisson(n) - (k * k - 1j * damping) * sp.eye_array(n * n)).tocsr()


def hermitian(n, shift=0.01):
    """Return the Laplacian of a charged particle in a magnetic field, Hermitian and positive definite."""
    T, phase = sp.diags_array(np.full(n - 1, -1.0), offsets=1, shape=(n, n)), np.exp(0.05j * np.arange(n))
    hops = sp.kron(sp.eye_array(n), T) + sp.kron(T, sp.diags_array(phase))
    return (hops + hops.conj().T + (4 + shift) * sp.eye_array(n * n)).tocsr()


def vector(n, *more, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, *more)) + 1j * rng.standard_normal((n, *more))


def check(found, exact, tolerance=1e-8):
    assert found.dtype == np.complex128 and found.shape == exact.shape
    np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance * np.abs(exact).max())


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "dense"])
def test_every_format(form):
    A = helmholtz(12)
    b = vector(144)
    given = A.toarray() if form == "dense" else A.asformat(form)
    for right in (b, b.real, b.astype(np.complex64), list(b), b[:, None]):
        solution = krylith.solve(given, right, rtol=1e-11)
        assert solution.converged and solution.true_residual <= 1e-11
        check(solution.x, sla.spsolve(A.tocsc(), np.asarray(right).reshape(-1)).reshape(np.shape(right)))
    check(krylith.solve(given.astype(np.complex64), b, rtol=1e-11).x, sla.spsolve(A.astype(np.complex64).astype(complex).tocsc(), b))


@pytest.mark.parametrize("precond", ["none", "jacobi", "ildu", "ras", "lu", "auto"])
@pytest.mark.parametrize("A", [helmholtz(20), (poisson(20) - 0.05j * poisson(20) + (0.3 - 0.4j) * sp.eye_array(400)).tocsr()])
def test_helmholtz_and_a_shifted_laplacian(A, precond):
    b = vector(400)
    solution = krylith.solve(A, b, precond=precond, rtol=1e-10)
    assert solution.converged
    check(solution.x, sla.spsolve(A.tocsc(), b), 1e-7)
    residual = np.linalg.norm(b - A @ solution.x) / np.linalg.norm(b)
    assert residual <= 1.01e-10 and abs(residual - solution.true_residual) <= 1e-13


def test_a_hermitian_matrix_has_a_symmetric_real_form():
    A, b = hermitian(40), vector(1600)
    exact = sla.spsolve(A.tocsc(), b)
    for method in ("cg", "minres"):
        solution = krylith.solve(A, b, method=method, precond="amg", rtol=1e-10)
        assert solution.converged and solution.iterations < 60
        check(solution.x, exact)
    # Conjugate gradients are those of complex numbers.
    plain = krylith.solve(A, b, method="cg", precond="none", rtol=1e-8)
    seen = []
    sla.cg(A, b, rtol=1e-8, callback=seen.append)
    assert abs(plain.iterations - len(seen)) <= 2


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_blocks(m):
    rng = np.random.default_rng(m)
    pattern = (sp.random_array((12, 12), density=0.3, rng=rng) + sp.eye_array(12)).tocsr()
    data = rng.standard_normal((pattern.nnz, m, m)) + 1j * rng.standard_normal((pattern.nnz, m, m))
    A = sp.bsr_array((data, pattern.indices, pattern.indptr), shape=(12 * m, 12 * m))
    A = (A + sp.bsr_array((20 * m) * sp.eye_array(12 * m, dtype=complex), blocksize=(m, m))).tobsr((m, m))
    b = vector(12 * m)
    exact = sla.spsolve(A.tocsc(), b)
    for given, block in [(A, None), (A.tocsr(), m), (A.tocsr(), None)]:
        if m == 5 and block is not None:
            with pytest.raises(krylith.InvalidInput, match="`block` is 5; expected a whole number from 1 to 4 for complex"):
                krylith.solve(given, b, block=block)
            continue
        solver = krylith.Solver(given, rtol=1e-11, block=block, precond="jacobi")
        check(solver.solve(b).x, exact)
        check(solver.multiply(b), A @ b, 1e-13)
        # Jacobi inverts the diagonal blocks of complex numbers.
        size = m if m <= 4 and (block or given is A) else 1
        dense = A.toarray().reshape(12 * m // size, size, 12 * m // size, size)
        blocks = np.stack([np.linalg.inv(dense[i, :, i, :]) for i in range(len(dense))])
        check(solver.precondition(b), np.einsum("imn,in->im", blocks, b.reshape(-1, size)).reshape(-1), 1e-12)
        for new in (2j * A, 2j * A.tocsr(), 2j * given.data):
            solver.update_values(new)
            check(solver.solve(b).x, exact / 2j)
            solver.update_values(A)
            check(solver.multiply(b), A @ b, 1e-13)


def test_columns_guesses_and_results_in_place():
    A, B = random_complex(50), vector(50, 3)
    exact = sla.spsolve(A.tocsc(), B)
    solver = krylith.Solver(A, rtol=1e-12)
    assert solver.dtype == np.complex128 and solver.shape == (50, 50)
    solution = solver.solve(B)
    check(solution.x, exact)
    assert len(solution.columns) == 3
    check(solver.solve(B.real).x, sla.spsolve(A.tocsc(), B.real.astype(complex)))
    assert solver.solve(B[:, 0], exact[:, 0]).iterations <= 1
    out = np.full(50, np.nan + 0j)
    assert solver.solve(B[:, 1], out=out).x is out
    check(out, exact[:, 1])
    both = B[:, 1].copy()
    check(solver.solve(both, out=both).x, exact[:, 1])
    columns = np.empty((50, 3), dtype=complex)
    assert solver.solve(B, out=columns).x is columns
    check(columns, exact)
    check(solver.multiply(B, out=columns), A @ B, 1e-13)
    for wrong, text in [(np.zeros(50), "type float64; expected complex128"), (np.zeros(50, np.complex64), "complex64")]:
        with pytest.raises(krylith.InvalidInput, match=text):
            solver.solve(B[:, 0], out=wrong)


def operators(A):
    return [krylith.Jacobi(A), krylith.ILDU(A, fill=1), krylith.Schwarz(A), krylith.AMG(A, coarsest=10), krylith.LU(A)]


def test_transposes_and_adjoints():
    A = random_complex(60)
    v, V = vector(60), vector(60, 3, seed=2)
    for operator in operators(A):
        assert operator.dtype == operator.T.dtype == np.complex128
        dense = operator.matmat(np.eye(60))
        for given, matrix in [
            (operator, dense), (operator.T, dense.T), (operator.H, dense.conj().T), (operator.T.H, dense.conj()),
            (operator.H.T, dense.conj()), (operator.H.H, dense), (operator.T.T, dense), (operator.T.H.T, dense.conj().T),
            (aslinearoperator(operator).H, dense.conj().T), (aslinearoperator(operator).T, dense.T),
        ]:  # fmt: skip
            check(given @ v, matrix @ v, 1e-11)
            check(given @ V, matrix @ V, 1e-11)
        check(operator.rmatvec(v), dense.conj().T @ v, 1e-11)
        check(operator.rmatmat(V), dense.conj().T @ V, 1e-11)
        assert operator.T.T is operator and operator.H.H is operator and "adjoint of" in repr(operator.H)
    solver, factors, dense = krylith.Solver(A, rtol=1e-12), krylith.splu(A), A.toarray()
    for word, matrix in [(False, dense), (True, dense.T), ("N", dense), ("T", dense.T), ("H", dense.conj().T)]:
        check(solver.solve(V, transpose=word).x, np.linalg.solve(matrix, V))
        check(solver.multiply(V, transpose=word), matrix @ V, 1e-13)
        out = np.empty(60, dtype=complex)
        kept = v.copy()
        check(solver.solve(v, out=out, transpose=word).x, np.linalg.solve(matrix, v))
        exact = np.linalg.solve(matrix, v)
        assert solver.solve(v, exact, transpose=word).iterations <= 1, "the guess has the same form"
        np.testing.assert_array_equal(v, kept)
        if isinstance(word, str):
            check(factors.solve(V, word), np.linalg.solve(matrix, V))
    check(solver.T.H @ v, np.linalg.solve(dense.conj(), v))
    for word in ("C", "transposed"):
        with pytest.raises(krylith.InvalidInput, match=f"`transpose` is '{word}'"):
            solver.solve(v, transpose=word)


def test_the_gradient_of_a_real_function():
    A, b, d = random_complex(30), vector(30), vector(30, seed=7)
    solver = krylith.Solver(A, rtol=1e-13)
    x = solver.solve(b).x
    adjoint = solver.H @ (x - d)  # of J = ½‖x − d‖²
    dA = random_complex(30, seed=9)
    h = 1e-6
    numeric = [0.5 * np.linalg.norm(np.linalg.solve((A + s * h * dA).toarray(), b) - d) ** 2 for s in (1, -1)]
    np.testing.assert_allclose(-np.vdot(adjoint, dA @ x).real, (numeric[0] - numeric[1]) / (2 * h), rtol=1e-6)


def test_a_real_matrix_with_complex_right_hand_sides():
    A, B = random_matrix(40), vector(40, 3)
    exact = np.linalg.solve(A.toarray(), B)
    solver = krylith.Solver(A, rtol=1e-12)
    solution = solver.solve(B[:, 0], exact[:, 0])
    assert solution.converged and len(solution.columns) == 2
    check(solution.x, exact[:, 0])
    check(solver.solve(B).x, exact)
    check(solver.solve(B, transpose="H").x, np.linalg.solve(A.toarray().T, B))
    out = np.empty((40, 3), dtype=complex)
    assert solver.solve(B, out=out).x is out
    check(out, exact)
    check(solver.multiply(B), A @ B, 1e-13)
    check(krylith.ILDU(A) @ B[:, 0], krylith.ILDU(A) @ B[:, 0].real + 1j * (krylith.ILDU(A) @ B[:, 0].imag), 1e-13)
    check(krylith.spsolve(A, B), exact)
    for method in (krylith.bicgstab, krylith.gmres):
        x, info = method(A, B[:, 0], rtol=1e-10)
        assert info == 0
        check(x, exact[:, 0])
    absolute = krylith.solve(A, B[:, 0], rtol=0.0, atol=1e-3)
    assert absolute.converged and np.linalg.norm(A @ absolute.x - B[:, 0]) <= 1e-3
    K = krylith.KroneckerSum(np.eye(2), A, np.eye(2), A, 1.0)
    for shape in [(80,), (40, 2)]:
        F = vector(80).reshape(shape)
        U = krylith.solve(K, F, rtol=1e-12).x
        np.testing.assert_allclose(K @ U, F, atol=1e-10)
    with pytest.raises(krylith.InvalidInput, match="the numbers are complex; expected real numbers"):
        solver.solve(B[:, 0].real, B[:, 0])
    with pytest.raises(krylith.InvalidInput, match="type float64; expected complex128"):
        solver.solve(B[:, 0], out=np.zeros(40))


def test_new_values():
    A, b = random_complex(40), vector(40)
    for given in (A, A.tocsc(), A.tocoo(), A.tobsr((2, 2))):
        solver = krylith.Solver(given, rtol=1e-12, precond="ildu")
        for new in ((1 + 2j) * given, (1 + 2j) * A, (1 + 2j) * given.data):
            solver.update_values(A)
            solver.update_values(new)
            check(solver.solve(b).x, sla.spsolve((1 + 2j) * A.tocsc(), b))
        solver.update_values(A.real)
        check(solver.multiply(b), A.real @ b, 1e-13)
    solver = krylith.Solver(A.real)
    with pytest.raises(krylith.InvalidInput, match="the new values are complex, and the first matrix is real"):
        solver.update_values(A)
    solver.update_values(A, on_new_pattern="rebuild")
    assert solver.dtype == np.complex128
    check(solver.multiply(b), A @ b, 1e-13)
    with pytest.raises(krylith.InvalidInput, match="another pattern"):
        solver.update_values(helmholtz(5))
    P = krylith.Jacobi(A.real)
    P.update_values(A, on_new_pattern="rebuild")
    assert P.dtype == np.complex128 and P.H.dtype == np.complex128


@pytest.mark.parametrize("block", [None, 2])
def test_copies_and_pickles(block):
    A, b = random_complex(40), vector(40)
    solver = krylith.Solver(A, rtol=1e-12, block=block)
    solver.update_values(2j * A)
    for other in (copy.copy(solver), pickle.loads(pickle.dumps(solver))):
        check(other.solve(b).x, sla.spsolve(2j * A.tocsc(), b))
        other.update_values(A.data)
        check(other.multiply(b), A @ b, 1e-13)
    solution = pickle.loads(pickle.dumps(solver.solve(b)))
    assert solution.x.dtype == np.complex128


def test_methods_by_name():
    A, H, b = random_complex(60), hermitian(8), vector(60)
    exact = np.linalg.solve(A.toarray(), b)
    makers = (lambda A: A, aslinearoperator, lambda A: lambda v: A @ v)
    for method in (krylith.bicgstab, krylith.gmres, krylith.fgmres):
        for given in makers:
            for M in (None, krylith.ILDU(A), aslinearoperator(krylith.Jacobi(A)), lambda v: v / (40 + 40j)):
                x, info = method(given(A), b, M=M, rtol=1e-10)
                assert info == 0
                check(x, exact)
        x, info = method(aslinearoperator(A), b.real, x0=exact, rtol=1e-10)
        assert info == 0
        check(x, np.linalg.solve(A.toarray(), b.real))
    x, info = krylith.gmres(A, b, M="ildu", x0="Mb", rtol=1e-10)
    check(x, exact)
    x, info = krylith.gmres(aslinearoperator(A), b, M=krylith.ILDU(A), x0="Mb", rtol=1e-10)
    check(x, exact)
    c = vector(64)
    for method in (krylith.cg, krylith.minres, krylith.cbcg):
        seen = []
        x, info = method(H, c, M=krylith.AMG(H), rtol=1e-10) if method is not krylith.cbcg else method(H, c, rtol=1e-10)
        assert info == 0
        check(x, np.linalg.solve(H.toarray(), c))
    seen = []
    x, info = krylith.cg(H, c, rtol=1e-8, callback=lambda x: seen.append(x.copy()))
    assert info == 0 and seen[-1].dtype == np.complex128 and seen[-1].shape == (64,)
    np.testing.assert_array_equal(seen[-1], x)
    # SciPy's methods with preconditioners of Krylith, and an eigenvalue solver with a solver as A⁻¹.
    x, info = sla.bicg(A, b, M=krylith.ILDU(A), rtol=1e-10)
    assert info == 0
    check(x, exact)
    found = sla.eigsh(H, k=2, sigma=0, OPinv=krylith.Solver(H, rtol=1e-12))[0]
    np.testing.assert_allclose(np.sort(found), np.linalg.eigvalsh(H.toarray())[:2], rtol=1e-8)
    with pytest.raises(krylith.InvalidInput, match="A returns complex numbers for a real vector; pass a complex b"):
        krylith.gmres(lambda v: 1j * v, b.real)


def test_functions_as_preconditioners():
    A, b = random_complex(50), vector(50)
    inverse = np.linalg.inv(A.toarray())

    def exactly(v):
        assert v.dtype == np.complex128 and v.shape == (50,)
        return inverse @ v

    for P in (exactly, LinearOperator((50, 50), matvec=exactly, dtype=complex), krylith.LU(A)):
        solution = krylith.solve(A, b, precond=P, rtol=1e-10)
        assert solution.converged and solution.iterations <= 2
        check(solution.x, inverse @ b)
    with pytest.raises(krylith.InvalidInput, match="the preconditioner returns complex numbers"):
        krylith.solve(A.real, b.real, precond=lambda v: 1j * v)
    assert krylith.solve(A.real, b, precond=lambda v: v / 40).converged


def test_null_vectors():
    n = 64
    ring = sp.diags_array([-1.0, 2.0, -1.0, -1.0, -1.0], offsets=[-1, 0, 1, n - 1, 1 - n], shape=(n, n))
    phase = np.exp(0.7j * np.arange(n))
    turned = (sp.diags_array(phase) @ ring @ sp.diags_array(phase.conj())).tocsr()
    for A, null, given in [((1 + 1j) * ring, np.ones(n), "constant"), (turned, phase, phase), (turned, phase, [phase])]:
        x = vector(n)
        b = A @ x
        solution = krylith.solve(A, b, nullspace=given, rtol=1e-10)
        assert solution.converged
        error = solution.x - x
        error -= null * (np.vdot(null, error) / n)
        assert np.abs(error).max() < 1e-6
    with pytest.raises(krylith.InvalidInput, match="not a null vector"):
        krylith.solve(turned, vector(n), nullspace=np.ones(n))
    with pytest.raises(krylith.InvalidInput, match="'rigid' needs a real A"):
        krylith.solve(turned, vector(n), near_nullspace="rigid", coordinates=np.ones((n, 2)))
    H, b = hermitian(20), vector(400)
    assert krylith.solve(H, b, method="cg", precond="amg", near_nullspace=np.ones(400)).converged


def test_nodes_fields_and_named_matrices():
    A, b = helmholtz(16), vector(256)
    exact = sla.spsolve(A.tocsc(), b)
    check(krylith.solve(A, b, grid=(16, 16), rtol=1e-11).x, exact)
    points = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), -1).reshape(-1, 2)
    check(krylith.solve(A, b, coordinates=points, rtol=1e-11).x, exact)
    C = sp.csr_array(0.3j * sp.eye_array(256))
    D = helmholtz(16, damping=0.8)
    whole = sp.bmat([[A, C], [C, D]], format="csc")
    c = vector(512)
    options = dict(precond="split(u: ildu, p: jacobi; S=Mp)", matrices={"Mp": D}, method="fgmres", rtol=1e-11)
    for given, fields in [([[A, C], [C, D]], ["u", "p"]), (whole, {"u": slice(0, 256), "p": range(256, 512)})]:
        check(krylith.solve(given, c, fields=fields, **options).x, sla.spsolve(whole, c))


def test_direct_solvers():
    A, b = random_complex(40), vector(40)
    exact = np.linalg.solve(A.toarray(), b)
    lu = krylith.splu(A.tocsc())
    assert lu.dtype == np.complex128
    for found in (krylith.spsolve(A, b), lu.solve(b), lu @ b, krylith.factorized(A)(b)):
        check(found, exact)
    theirs = sla.splu(A.tocsc())
    for word in "NTH":
        check(lu.solve(b, word), theirs.solve(b, word))
    sparse = krylith.spsolve(A, sp.csc_array(vector(40, 2)))
    assert type(sparse) is sp.csc_array and sparse.dtype == np.complex128


def test_errors():
    A, b = random_complex(20), vector(20)
    with pytest.raises(krylith.InvalidInput, match="a Kronecker sum is complex"):
        krylith.solve(krylith.KroneckerSum(np.eye(2), A, np.eye(2), A, 1.0), vector(40))
    with pytest.raises(krylith.InvalidInput, match="does not divide"):
        krylith.solve(random_complex(21), vector(21), block=2)
    with pytest.raises(krylith.InvalidInput, match=r"b has shape \(19,\); expected \(20,\)"):
        krylith.solve(A, b[1:])
    with pytest.raises(krylith.InvalidInput, match="complex"):
        krylith.newton(lambda u: u, lambda u: A, np.zeros(20))
    with pytest.raises(krylith.InvalidInput, match="complex"):
        krylith.newton(lambda u: u, lambda u: A, b)
    bad = b.copy()
    bad[3] = np.nan
    with pytest.raises(krylith.InvalidInput, match="b: entry 6 is NaN"):
        krylith.solve(A, bad)  # the real part of unknown 3
    assert krylith.solve(sp.csr_array((0, 0), dtype=complex), np.empty(0, dtype=complex)).x.dtype == np.complex128
