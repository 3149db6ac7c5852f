"""Solvers and preconditioners as operators of SciPy, functions as preconditioners, SciPy's direct solvers, `out`."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from scipy.sparse.linalg import LinearOperator, aslinearoperator, spsolve

import krylith
from test_solve import close, poisson, random_matrix


def dense(operator, n):
    """Return the matrix of an operator, from its columns."""
    return np.column_stack([operator.matvec(e) for e in np.eye(n)])


def test_a_solver_is_the_inverse():
    A = random_matrix(60)
    rng = np.random.default_rng(1)
    b, B = rng.standard_normal(60), rng.standard_normal((60, 3))
    solver = krylith.Solver(A, rtol=1e-12)
    assert solver.shape == (60, 60) and solver.dtype == np.float64 and solver.ndim == 2
    x, X = spsolve(A.tocsc(), b), spsolve(A.tocsc(), B)
    for made in (solver @ b, solver.dot(b), solver(b), solver * b, solver.matvec(b), aslinearoperator(solver) @ b):
        np.testing.assert_allclose(made, x, rtol=1e-9, atol=1e-12)
    assert solver.matvec(b[:, None]).shape == (60, 1)
    for made in (solver @ B, solver.matmat(B), aslinearoperator(solver) @ B):
        np.testing.assert_allclose(made, X, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(solver.multiply(B), A @ B, rtol=1e-12, atol=1e-12)
    # Inverse iteration in SciPy uses a solver as A⁻¹.
    S = poisson(8)
    found = sla.eigsh(S, k=2, sigma=0, OPinv=krylith.Solver(S, rtol=1e-12), which="LM")[0]
    np.testing.assert_allclose(np.sort(found), np.linalg.eigvalsh(S.toarray())[:2], rtol=1e-8)


@pytest.mark.parametrize("make", [krylith.Jacobi, krylith.ILDU, krylith.Schwarz, krylith.AMG, krylith.LU])
def test_a_preconditioner_is_an_operator(make):
    A = poisson(7)
    n = A.shape[0]
    P = make(A)
    inverse = dense(P, n)
    V = np.random.default_rng(2).standard_normal((n, 4))
    for made in (P @ V, P(V), P.dot(V), P.matmat(V), P * V, aslinearoperator(P).matmat(V)):
        np.testing.assert_allclose(made, inverse @ V, rtol=1e-9, atol=1e-12)
    v = V[:, 0]
    np.testing.assert_allclose(P @ list(v), inverse @ v, rtol=1e-9, atol=1e-12)
    for made, expected in [
        (2 * P, 2 * inverse), (P * 2.0, 2 * inverse), (-P, -inverse), (P + P, 2 * inverse), (P - P, 0 * inverse),
        (P @ P, inverse @ inverse), (P + LinearOperator((n, n), lambda v: v), inverse + np.eye(n)),
    ]:  # fmt: skip
        assert isinstance(made, LinearOperator)
        np.testing.assert_allclose(made @ v, expected @ v, rtol=1e-9, atol=1e-12)
    with pytest.raises(krylith.InvalidInput, match="multiply by a number"):
        P @ 2.0
    # LOBPCG applies M to several columns at once.
    found = sla.lobpcg(A, np.random.default_rng(3).standard_normal((n, 2)), M=P, tol=1e-8, maxiter=200, largest=False)[0]
    np.testing.assert_allclose(np.sort(found), np.linalg.eigvalsh(A.toarray())[:2], rtol=1e-6)


def test_transposes():
    A = random_matrix(60)
    rng = np.random.default_rng(8)
    v, V = rng.standard_normal(60), rng.standard_normal((60, 3))
    for operator in (krylith.ILDU(A, fill=1), krylith.Jacobi(A), krylith.AMG(A, coarsest=10), krylith.Schwarz(A), krylith.LU(A)):
        dense = operator.matmat(np.eye(60))
        scale = np.abs(dense).max()
        for turned in (operator.T, operator.H, operator.transpose(), operator.adjoint(), aslinearoperator(operator).H):
            np.testing.assert_allclose(turned @ v, dense.T @ v, atol=1e-11 * scale)
            np.testing.assert_allclose(turned @ V, dense.T @ V, atol=1e-11 * scale)
        np.testing.assert_allclose(operator.rmatvec(v), dense.T @ v, atol=1e-11 * scale)
        np.testing.assert_allclose(operator.rmatmat(V), dense.T @ V, atol=1e-11 * scale)
        assert operator.T.T is operator
    exact = np.linalg.solve(A.toarray().T, V)
    solver, factors = krylith.Solver(A, rtol=1e-12), krylith.splu(A)
    solution = solver.solve(v, transpose=True)
    assert solution.converged and np.linalg.norm(A.T @ solution.x - v) <= 1.01e-12 * np.linalg.norm(v)
    for found in (solver.T @ V, solver.rmatmat(V), factors.solve(V, "T"), factors.solve(V, "H"), factors.T @ V):
        np.testing.assert_allclose(found, exact, rtol=1e-9)
    np.testing.assert_allclose(solver.multiply(V, transpose=True), A.T @ V, rtol=1e-13, atol=1e-13)
    # New values reach the transpose.
    solver.update_values(2.0 * A)
    np.testing.assert_allclose(solver.solve(V, transpose=True).x, exact / 2, rtol=1e-9)
    with pytest.raises(krylith.InvalidInput, match="`trans` is 'C'"):
        factors.solve(v, "C")
    with pytest.raises(krylith.InvalidInput, match="whose transpose is not known"):
        krylith.Solver(A, precond=lambda v: v).solve(v, transpose=True)


def test_transposes_in_methods_of_scipy():
    A = random_matrix(80)
    b = np.random.default_rng(9).standard_normal(80)
    for method in (sla.bicg, sla.qmr):
        P = krylith.ILDU(A)
        given = {"M": P} if method is sla.bicg else {"M1": P, "M2": aslinearoperator(sp.eye_array(80))}
        x, info = method(A, b, rtol=1e-10, **given) if "rtol" in method.__code__.co_varnames else method(A, b, **given)
        assert info == 0 and np.linalg.norm(A @ x - b) <= 1e-4 * np.linalg.norm(b)


def preconditioners(A):
    P = krylith.ILDU(A)
    return [P, P.matvec, aslinearoperator(P), lambda v: P @ v, LinearOperator(A.shape, P.matvec), krylith.LU(A)]


def test_objects_and_functions_as_preconditioners():
    A, b = poisson(20), np.random.default_rng(4).standard_normal(400)
    plain = krylith.solve(A, b, method="gmres", precond="none", rtol=1e-9).iterations
    for P in preconditioners(A):
        solution = krylith.solve(A, b, precond=P, rtol=1e-9)
        assert solution.converged and close(A, solution.x, b, 1e-9) and 0 < solution.iterations < plain
        assert solution.method.startswith("GMRES") and solution.precond == "a function of the caller"
        assert "a function of the caller" in repr(solution) and solution.plot().svg.startswith("<svg")
        assert solution.residuals[0] == 1.0 and len(solution.residuals) == solution.iterations + 1
    named = krylith.solve(A, b, method="cg", precond="ildu", rtol=1e-9)
    given = krylith.solve(A, b, method="cg", precond=krylith.ILDU(A), rtol=1e-9)
    assert given.method == "CG" and abs(given.iterations - named.iterations) <= 1
    # A matrix is the approximate inverse itself.
    diagonal = sp.diags_array(1 / A.diagonal()).tocsr()
    exactly = krylith.solve(A, b, method="cg", precond="jacobi", rtol=1e-9)
    assert abs(krylith.solve(A, b, method="cg", precond=diagonal, rtol=1e-9).iterations - exactly.iterations) <= 1
    for method in (krylith.cg, krylith.gmres, krylith.fgmres):
        x, info = method(A, b, precond=krylith.ILDU(A), rtol=1e-9)
        assert info == 0 and close(A, x, b, 1e-9)
    with pytest.raises(krylith.InvalidInput, match="`precond` and `M` are both given"):
        krylith.cg(A, b, M="jacobi", precond="jacobi")


def test_a_solver_with_a_function_takes_new_values_and_columns():
    A = random_matrix(50)
    B = np.random.default_rng(5).standard_normal((50, 3))
    solver = krylith.Solver(A, precond=krylith.ILDU(A), rtol=1e-10)
    np.testing.assert_allclose(solver.solve(B).x, spsolve(A.tocsc(), B), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(solver.precondition(B), krylith.ILDU(A) @ B, rtol=1e-12)
    solver.update_values(2 * A)
    np.testing.assert_allclose(solver.solve(B[:, 0]).x, spsolve(2 * A.tocsc(), B[:, 0]), rtol=1e-7, atol=1e-10)
    told = []
    solver.solve(B[:, 0], callback=lambda k, r: told.append((k, r)))
    assert [k for k, _ in told] == list(range(len(told))) and told[-1][1] < 1e-10 <= told[-2][1]
    with pytest.warns(krylith.ConvergenceWarning):
        assert solver.solve(B[:, 0], callback=lambda k, r: k == 1, rtol=1e-14).outcome == "interrupted"


def test_a_function_sees_vectors_of_a_kronecker_sum_in_the_order_of_the_caller():
    M, L, B = random_matrix(15), random_matrix(15, seed=8), np.array([[1.0, 2.0], [0.5, 3.0]])
    K = krylith.KroneckerSum(np.eye(2), M, B, L, 0.5)
    whole = np.kron(np.eye(2), M.toarray()) + 0.5 * np.kron(B, L.toarray())
    v = np.random.default_rng(6).standard_normal(30)
    np.testing.assert_allclose(K @ v, whole @ v, rtol=1e-12)
    V = v.reshape(2, 15).T
    np.testing.assert_allclose(K.matvec(V), (whole @ v).reshape(2, 15).T, rtol=1e-12)
    assert aslinearoperator(K).shape == (30, 30)
    with pytest.raises(krylith.InvalidInput, match=r"expected \(15, 2\) or \(30,\)"):
        K @ v[1:]
    inverse = np.linalg.inv(whole)
    for b in (v, V):
        solution = krylith.solve(K, b, precond=lambda u: inverse @ u, rtol=1e-10)
        assert solution.converged and solution.iterations <= 2
        np.testing.assert_allclose(K @ solution.x, b, rtol=1e-8, atol=1e-9)


def test_functions_raise_through_and_are_refused_where_they_do_not_work():
    A, b = poisson(8), np.ones(64)

    def fails(v):
        raise KeyError("of the preconditioner")

    with pytest.raises(KeyError, match="of the preconditioner"):
        krylith.solve(A, b, precond=fails)
    solver = krylith.Solver(A, precond=lambda v: solver.multiply(v))
    with pytest.raises(krylith.InvalidInput, match="the solver that calls it"):
        solver.solve(b)
    with pytest.raises(krylith.InvalidInput, match="returned 63 numbers"):
        krylith.solve(A, b, precond=lambda v: v[1:])
    with pytest.raises(krylith.InvalidInput, match="65×65"):
        krylith.solve(A, b, precond=LinearOperator((65, 65), lambda v: v))
    with pytest.raises(krylith.InvalidInput, match=r"the class ILDU; pass an object of it, such as ILDU\(A\)"):
        krylith.solve(A, b, precond=krylith.ILDU)
    with pytest.raises(krylith.InvalidInput, match="`precond` is of type int; expected a name"):
        krylith.solve(A, b, precond=3)

    class Two:
        size, rank = 2, 0

    refused = [
        (dict(device="cuda"), "`device` is 'cuda'"), (dict(nullspace="constant"), "`nullspace` does not work"),
        (dict(precision="f32"), "`precision`"), (dict(equilibrate=True), "`equilibrate`"),
        (dict(matching="on"), "`matching`"), (dict(time_limit=1.0), "`time_limit`"), (dict(comm=Two()), "several ranks"),
    ]  # fmt: skip
    for options, text in refused:
        with pytest.raises(krylith.InvalidInput, match=f"{text}.*give the name of a preconditioner"):
            krylith.solve(A, b, precond=krylith.Jacobi(A), **options)
    assert krylith.solve(A, b, precond=krylith.Jacobi(A), device="cpu", equilibrate=False, precision="f64").converged
    with pytest.raises(krylith.InvalidInput, match="`precond` is of type Jacobi"):
        krylith.newton(lambda u: A @ u - b, lambda u: A, np.zeros(64), precond=krylith.Jacobi(A))


def test_ctrl_c_in_a_function_ends_the_solve():
    A = poisson(10)
    calls = []

    def press(v):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return v

    with pytest.raises(KeyboardInterrupt):
        krylith.solve(A, np.ones(100), precond=press, rtol=1e-12)
    assert len(calls) == 3


def test_callbacks_see_x():
    A = poisson(10)
    b = np.random.default_rng(7).standard_normal(100)
    for method, theirs in [(krylith.cg, sla.cg), (krylith.bicgstab, sla.bicgstab), (krylith.minres, sla.minres)]:
        for M in (None, krylith.Jacobi(A), "jacobi"):
            seen, expected = [], []
            x, info = method(A, b, rtol=1e-8, M=M, callback=lambda x: seen.append(x))
            theirs(A, b, rtol=1e-8, M=None if M is None else krylith.Jacobi(A), callback=lambda x: expected.append(x.copy()))
            # SciPy's MINRES has another criterion.
            assert info == 0 and abs(len(seen) - len(expected)) <= (1 if method is not krylith.minres else 10)
            np.testing.assert_array_equal(seen[-1], x)
            # The first iterates agree before rounding errors separate them.
            for ours, other in zip(seen[:5], expected[:5]):
                np.testing.assert_allclose(ours, other, rtol=0, atol=1e-9 * abs(x).max())
    norms = []
    x, info = krylith.cg(A, b, rtol=1e-8, callback=norms.append, callback_type="pr_norm")
    assert info == 0 and all(isinstance(r, float) for r in norms) and norms[-1] < 1e-6
    cycles = []
    x, info = krylith.gmres(A, b, rtol=1e-8, restart=5, callback=cycles.append, callback_type="x")
    residuals = [np.linalg.norm(b - A @ x) for x in cycles]
    assert info == 0 and len(cycles) > 2 and all(s <= r for r, s in zip(residuals, residuals[1:]))
    with pytest.raises(ZeroDivisionError):
        krylith.cg(A, b, callback=lambda x: 1 / 0)
    with pytest.raises(krylith.InvalidInput, match="callback_type is 'y'; expected 'x' or 'pr_norm'"):
        krylith.cg(A, b, callback=print, callback_type="y")
    with pytest.raises(krylith.InvalidInput, match="callback that gets x.*pass callback_type='pr_norm'"):
        krylith.cg(A, b, callback=lambda x: None, nullspace="constant")
    with pytest.raises(krylith.InvalidInput, match="name a preconditioner"):
        krylith.cg(A, b, callback=lambda x: None, M="auto")
    with pytest.warns(DeprecationWarning, match="callback_type"):
        krylith.gmres(A, b, callback=lambda r: None)


def test_info_of_gmres_counts_cycles():
    A, b = random_matrix(80), np.ones(80)
    for ours, theirs in [(krylith.gmres, sla.gmres)]:
        for options in (dict(restart=3, maxiter=2), dict(restart=1, maxiter=4)):
            assert ours(A, b, rtol=1e-14, **options)[1] == theirs(A, b, rtol=1e-14, **options)[1] > 0


def test_direct_solvers_have_the_results_of_scipys():
    A = random_matrix(40)
    rng = np.random.default_rng(8)
    sides = [rng.standard_normal(40), rng.standard_normal((40, 1)), rng.standard_normal((40, 3)), list(range(40))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sp.SparseEfficiencyWarning)
        for b in sides:
            expected = sla.spsolve(A, np.asarray(b, dtype=float))
            found = krylith.spsolve(A, b)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
        B = sp.csc_array(rng.standard_normal((40, 3)))
        found = krylith.spsolve(A, B)
        assert type(found) is sp.csc_array
        np.testing.assert_allclose(found.toarray(), sla.spsolve(A.tocsc(), B).toarray(), rtol=1e-7, atol=1e-9)
    theirs, ours = sla.splu(A.tocsc()), krylith.splu(A, permc_spec="COLAMD")
    assert ours.shape == theirs.shape and "40×40" in repr(ours)
    for b in sides[:3]:
        expected = theirs.solve(b)
        for found in (ours.solve(b), ours.solve(b, "N"), ours @ b, krylith.factorized(A)(b)):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    ours.update_values(2 * A)
    np.testing.assert_allclose(2 * ours.solve(sides[0]), theirs.solve(sides[0]), rtol=1e-10, atol=1e-12)
    out = np.empty(40)
    assert ours.solve(sides[0], out=out) is out and krylith.spsolve(A, sides[0], out=out) is out


def test_direct_solvers_raise_where_there_is_no_x():
    singular = sp.csr_array(np.array([[1.0, 1.0], [1.0, 1.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(krylith.ConvergenceError, match="‖b − A x‖/‖b‖ is") as e:
            krylith.spsolve(singular, np.array([1.0, 2.0]))
    assert isinstance(e.value, RuntimeError) and not e.value.solution
    with pytest.raises(krylith.InvalidInput, match="singular"):
        krylith.splu(singular).solve(np.array([1.0, 2.0]))


def test_x_is_written_in_place(tmp_path):
    A = random_matrix(30)
    b = np.random.default_rng(9).standard_normal(30)
    exact = spsolve(A.tocsc(), b)
    solver, P = krylith.Solver(A, rtol=1e-11), krylith.ILDU(A)
    rows = np.full((3, 30), np.nan)
    solution = solver.solve(b, out=rows[1])
    assert solution.x.base is rows and np.isnan(rows[[0, 2]]).all()
    np.testing.assert_allclose(rows[1], exact, rtol=1e-8)
    out = np.full(30, np.nan)
    assert krylith.solve(A, b, rtol=1e-11, out=out).x is out
    np.testing.assert_allclose(out, exact, rtol=1e-8)
    assert solver.solve(b, out, out=out).iterations == 0, "out is the initial guess as well"
    for apply, expected in [(P.matvec, P @ b), (solver.multiply, A @ b), (solver.precondition, solver.precondition(b))]:
        out[:] = np.nan
        assert apply(b, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    both = b.copy()
    np.testing.assert_allclose(solver.solve(both, out=both).x, exact, rtol=1e-8)
    B = np.stack([b, -2 * b], axis=1)
    columns = np.full((30, 2), np.nan)
    assert solver.solve(B, out=columns).x is columns
    np.testing.assert_allclose(columns, np.stack([exact, -2 * exact], axis=1), rtol=1e-8)
    mapped = np.memmap(tmp_path / "x.bin", dtype=np.float64, mode="w+", shape=(30,))
    assert solver.solve(b, out=mapped).x is mapped
    mapped.flush()
    np.testing.assert_allclose(np.fromfile(tmp_path / "x.bin"), exact, rtol=1e-8)
    K = krylith.KroneckerSum(np.eye(2), A, np.eye(2), A, 1.0)
    for shape in ((60,), (30, 2)):
        right, out = np.arange(60.0).reshape(shape), np.full(shape, np.nan)
        assert krylith.solve(K, right, rtol=1e-11, out=out).x is out
        np.testing.assert_allclose(K @ out, right, rtol=1e-8, atol=1e-8)


def test_a_wrong_out_is_named_and_untouched():
    A, b = random_matrix(12), np.ones(12)
    solver = krylith.Solver(A)
    read_only = np.zeros(12)
    read_only.flags.writeable = False
    packed = np.zeros(13 * 8, dtype=np.uint8)[1 : 1 + 12 * 8].view(np.float64)
    cases = [
        (np.zeros(11), r"shape \(11,\); expected that of b, \(12,\)"), (np.zeros((12, 1)), r"shape \(12, 1\)"),
        (np.zeros(12, dtype=np.float32), "type float32; expected float64"), (np.zeros(24)[::2], "not contiguous"),
        (read_only, "read-only"), (packed, "not aligned"), ([0.0] * 12, "builtins.list; expected an array of NumPy"),
    ]  # fmt: skip
    for out, text in cases:
        for use in (solver.solve, lambda b, out: krylith.solve(A, b, out=out)):
            with pytest.raises(krylith.InvalidInput, match=f"`out` .*{text}"):
                use(b, out=out)
        assert not np.any(out)
    with pytest.raises(krylith.InvalidInput, match="`out` has shape"):
        krylith.ILDU(A).matvec(b, out=np.zeros(11))


def test_programs_of_scipy_work_with_them(monkeypatch):
    from scipy.integrate import solve_ivp
    from scipy.integrate._ivp import bdf
    from scipy.optimize import newton_krylov

    n = 50
    A = -poisson(n)[:n, :n].tocsc()
    start = np.sin(np.linspace(0, np.pi, n))
    theirs = solve_ivp(lambda t, y: A @ y, (0, 1), start, method="BDF", jac=A, rtol=1e-6)
    monkeypatch.setattr(bdf, "splu", krylith.splu)
    ours = solve_ivp(lambda t, y: A @ y, (0, 1), start, method="BDF", jac=A, rtol=1e-6)
    assert len(ours.t) == len(theirs.t)
    np.testing.assert_allclose(ours.y, theirs.y, rtol=1e-9, atol=1e-12)
    F = lambda u: u**3 - A @ u - 1  # noqa: E731
    for inner in (krylith.ILDU(-A), krylith.Solver(-A)):
        u = newton_krylov(F, np.zeros(n), inner_M=inner, method="gmres", f_tol=1e-8)
        assert abs(F(u)).max() < 1e-8
