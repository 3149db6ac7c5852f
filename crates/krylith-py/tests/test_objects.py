"""Solutions and solvers as objects of Python: truth, unpacking, pickles, copies, memory, logs, names, patterns."""

import copy
import logging
import pickle
import typing
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import krylith
from krylith import _keywords, _native
from test_solve import close, poisson, random_matrix


def solved(**options):
    """Return the solution of a Poisson problem without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krylith.ConvergenceWarning)
        return krylith.solve(poisson(12), np.ones(144), method="cg", precond="none", **options)


def test_a_solution_is_true_if_it_succeeded():
    good, limit, bad = solved(rtol=1e-8), solved(rtol=1e-30), solved(rtol=1e-8, max_iters=3)
    assert [s.outcome for s in (good, limit, bad)] == ["converged", "rounding-limit", "max-iterations"]
    assert good and limit and not bad
    assert good.check() is good and limit.check() is limit
    with pytest.raises(krylith.ConvergenceError) as e:
        bad.check()
    text = str(e.value)
    assert "max-iterations after 3 iterations" in text and f"{bad.true_residual:.2e}, wanted 1.00e-08" in text
    assert e.value.solution is bad and isinstance(e.value, (krylith.Error, RuntimeError))
    assert pickle.loads(pickle.dumps(e.value)).solution.outcome == "max-iterations"
    assert [s.info for s in (good, limit, bad)] == [0, 0, 3]
    x, info = good
    assert x is good.x and info == 0
    np.testing.assert_array_equal(np.asarray(good), good.x)
    assert np.asarray(good, dtype=np.float32).dtype == np.float32


def test_columns_are_true_if_all_are():
    A = poisson(12)
    solver = krylith.Solver(A, method="cg", precond="none", rtol=1e-8, max_iters=10)
    with pytest.warns(krylith.ConvergenceWarning):
        both = solver.solve(np.stack([np.zeros(144), np.random.default_rng(1).standard_normal(144)], axis=1))
    assert [bool(s) for s in both.columns] == [True, False] and not both
    with pytest.raises(krylith.ConvergenceError, match="the worst of 2 columns"):
        both.check()
    assert solver.solve(np.zeros((144, 2)))


def test_solutions_are_pickled_and_copied(tmp_path):
    A = random_matrix(80)
    for solution in (
        krylith.solve(A, np.ones(80), method="gmres", restart=3, precond="none", rtol=1e-10),
        krylith.solve(A, np.ones((80, 2))),
        krylith.solve(A, np.ones(80), precond=krylith.Jacobi(A)),
    ):
        for twin in (pickle.loads(pickle.dumps(solution)), copy.copy(solution), copy.deepcopy(solution)):
            twin = pickle.loads(pickle.dumps(twin))
            np.testing.assert_array_equal(twin.x, solution.x)
            np.testing.assert_array_equal(twin.residuals, solution.residuals)
            for name in (
                "outcome", "converged", "iterations", "restarts", "true_residual", "convergence_factor", "target",
                "method", "precond", "device", "seconds", "events", "row_scaled_residual", "info",
            ):  # fmt: skip
                assert getattr(twin, name) == getattr(solution, name), name
            assert repr(twin) == repr(solution) and twin.verdict() == solution.verdict()
            assert twin.plot().svg == solution.plot().svg and twin._repr_html_() == solution._repr_html_()
            assert len(twin.columns) == len(solution.columns)
    twin.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


FORMATS = ["csr", "csc", "coo", "dia", "bsr", "dense"]


@pytest.mark.parametrize("kind", FORMATS)
def test_solvers_are_built_anew_from_pickles(kind):
    A = random_matrix(60)
    given = A.toarray() if kind == "dense" else A.tobsr(blocksize=(3, 3)) if kind == "bsr" else A.asformat(kind)
    b = np.random.default_rng(2).standard_normal(60)
    solver = krylith.Solver(given, method="gmres", restart=20, precond="ildu", rtol=1e-10)
    solver.update_values(3 * given)
    exact = spsolve(3 * A.tocsc(), b)
    for twin in (pickle.loads(pickle.dumps(solver)), copy.copy(solver), copy.deepcopy(solver)):
        solution = twin.solve(b)
        np.testing.assert_allclose(solution.x, exact, rtol=1e-7, atol=1e-10)
        assert solution.method == "GMRES(20)" and repr(twin) == repr(solver)
        # The order of an array of new values is that of the first matrix.
        twin.update_values(given if kind == "dense" else given.data)
        np.testing.assert_allclose(twin.solve(b).x, 3 * exact, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(solver.solve(b).x, exact, rtol=1e-7, atol=1e-10)


def test_pickles_keep_what_belongs_to_the_system():
    n = 12
    A = poisson(n)
    b = np.random.default_rng(3).standard_normal(n * n)
    singular = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    singular[0, 0] = singular[n - 1, n - 1] = 1.0
    one = krylith.Solver(singular.tocsr(), nullspace="constant", rtol=1e-10)
    side = np.arange(n) - (n - 1) / 2
    np.testing.assert_allclose(copy.copy(one).solve(side).x, one.solve(side).x, rtol=1e-12)
    grid = krylith.Solver(A, grid=(n, n), rtol=1e-10)
    np.testing.assert_allclose(copy.copy(grid).solve(b).x, grid.solve(b).x, rtol=1e-12)
    K = krylith.KroneckerSum(np.eye(2), A, np.array([[1.0, 2.0], [0.0, 3.0]]), sp.eye_array(n * n), 0.5)
    stages = krylith.Solver(K, rtol=1e-10)
    stages.set_tau(0.25)
    V = np.stack([b, -b], axis=1)
    np.testing.assert_allclose(copy.copy(stages).solve(V).x, stages.solve(V).x, rtol=1e-12)
    C = sp.csr_array(np.ones((1, n * n)))
    blocks = krylith.Solver(
        [[A, C.T], [C, None]], fields=["u", "p"], precond="split(u: ildu, p: jacobi; S=selfp)", rtol=1e-8
    )
    side = np.append(b, 0.0)
    twin = pickle.loads(pickle.dumps(blocks))
    np.testing.assert_allclose(twin.solve(side).x, blocks.solve(side).x, rtol=1e-12)
    given = krylith.Solver(A, precond=krylith.Jacobi(A), rtol=1e-8)
    np.testing.assert_allclose(copy.deepcopy(given).solve(b).x, given.solve(b).x, rtol=1e-12)


@pytest.mark.parametrize("make", [krylith.Jacobi, krylith.ILDU, krylith.Schwarz, krylith.AMG, krylith.LU])
def test_preconditioners_are_pickled_and_copied(make):
    A, v = poisson(9), np.random.default_rng(4).standard_normal(81)
    P = make(A)
    P.update_values(2 * A)
    for twin in (pickle.loads(pickle.dumps(P)), copy.copy(P), copy.deepcopy(P)):
        np.testing.assert_allclose(twin @ v, P @ v, rtol=1e-12)
        assert repr(twin) == repr(P)
    lu = krylith.splu(A)
    np.testing.assert_allclose(copy.deepcopy(lu).solve(v), lu.solve(v), rtol=1e-12)


def test_what_cannot_be_pickled_says_why():
    class One:
        size, rank = 1, 0

    solver = krylith.Solver(poisson(4))
    solver._comm = One()
    with pytest.raises(TypeError, match="over ranks cannot be copied or pickled"):
        pickle.dumps(solver)
    solver._comm = None
    solver.close()
    with pytest.raises(TypeError, match="closed solver cannot be copied"):
        copy.copy(solver)


def test_a_closed_solver_says_so():
    A, b = poisson(10), np.ones(100)
    with krylith.Solver(A, precond="ildu", rtol=1e-8) as solver:
        assert close(A, solver.solve(b).x, b, 1e-8)
        assert repr(solver) == "<krylith.Solver 100×100, method auto, precond ildu, on cpu>"
        host, device = solver.memory
        assert host >= 12 * A.nnz + 8 * A.nnz and device is None
    assert repr(solver) == "<krylith.Solver, closed>"
    uses = [
        lambda: solver.solve(b), lambda: solver @ b, lambda: solver.multiply(b), lambda: solver.precondition(b),
        lambda: solver.update_values(A), solver.cancel, lambda: solver.memory,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(krylith.InvalidInput, match="the solver is closed; create a new Solver"):
            use()
    solver.close()
    P = krylith.ILDU(A)
    assert P.memory.host > 0
    P.close()
    with pytest.raises(krylith.InvalidInput, match="closed"):
        P @ b


def test_systems_without_unknowns_are_answered():
    empty, b = sp.csr_array((0, 0)), np.zeros(0)
    for A in (empty, empty.tocsc(), np.zeros((0, 0)), empty.tocoo()):
        solution = krylith.solve(A, b)
        assert solution and solution.converged and solution.x.shape == (0,) and solution.iterations == 0
        assert "0 unknowns" in repr(solution) and solution.true_residual == 0.0
    assert krylith.solve(empty, np.zeros((0, 3))).x.shape == (0, 3)
    assert krylith.solve(empty, b, precond=lambda v: v).converged
    assert krylith.spsolve(empty, b).shape == (0,) and krylith.splu(empty).solve(np.zeros((0, 2))).shape == (0, 2)
    for method in (krylith.cg, krylith.gmres, krylith.minres):
        for a in (empty, lambda v: v):
            x, info = method(a, b)
            assert x.shape == (0,) and info == 0
    solver = krylith.Solver(empty)
    assert solver.shape == (0, 0) and solver.memory == (0, None) and (krylith.ILDU(empty) @ b).shape == (0,)
    solver.update_values(empty)
    assert copy.copy(solver).solve(b).converged
    assert pickle.loads(pickle.dumps(solver.solve(b))).converged
    with pytest.raises(krylith.InvalidInput, match="the first matrix is 0×0"):
        solver.update_values(poisson(3))
    solver.update_values(poisson(3), on_new_pattern="rebuild")
    assert solver.solve(np.ones(9)).converged
    with pytest.raises(krylith.InvalidInput, match=r"expected \(0,\)"):
        krylith.solve(empty, np.ones(1))
    with pytest.raises(krylith.InvalidInput, match="unknown option `quux`"):
        krylith.solve(empty, b, quux=1)


def test_a_new_pattern_is_named_or_taken():
    A, b = random_matrix(40), np.ones(40)
    other = random_matrix(40, seed=5)
    solver = krylith.Solver(A, method="gmres", precond="ildu", rtol=1e-10)
    before = solver.solve(b).x
    cases = [(other, "another pattern"), (random_matrix(41), "they are 41×41, and the first matrix is 40×40")]
    for new, text in cases:
        with pytest.raises(krylith.InvalidInput, match=f"{text}.*on_new_pattern='rebuild'"):
            solver.update_values(new)
    with pytest.raises(krylith.InvalidInput, match="`on_new_pattern` is 'often'"):
        solver.update_values(A, on_new_pattern="often")
    broken = other.copy()
    broken.data[0] = np.nan
    with pytest.raises(krylith.InvalidInput, match="NaN"):
        solver.update_values(broken, on_new_pattern="rebuild")
    np.testing.assert_allclose(solver.solve(b).x, before, rtol=1e-12)
    for new, side in [(other, b), (random_matrix(41), np.ones(41)), (2 * random_matrix(41), np.ones(41))]:
        solver.update_values(new, on_new_pattern="rebuild")
        solution = solver.solve(side)
        assert solution.method.startswith("GMRES") and solver.shape == new.shape
        np.testing.assert_allclose(solution.x, spsolve(new.tocsc(), side), rtol=1e-8)
    P = krylith.ILDU(A)
    P.update_values(other, on_new_pattern="rebuild")
    np.testing.assert_allclose(P @ b, krylith.ILDU(other) @ b, rtol=1e-12)
    eye = sp.eye_array(40, format="csr")
    stages = krylith.Solver(krylith.KroneckerSum(np.eye(1), A, np.eye(1), eye, 1.0), rtol=1e-10)
    stages.update_values(krylith.KroneckerSum(np.eye(1), other, np.eye(1), eye, 1.0), on_new_pattern="rebuild")
    np.testing.assert_allclose(stages.solve(b).x, spsolve((other + eye).tocsc(), b), rtol=1e-8)


def test_events_are_logged(caplog):
    A, b = random_matrix(60), np.ones(60)
    with caplog.at_level(logging.DEBUG, logger="krylith"):
        solution = krylith.solve(A, b, method="gmres", restart=2, precond="none", rtol=1e-10)
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert found[0][0] == "INFO" and found[0][1].startswith("set up: <krylith.Solver 60×60, method gmres")
    assert [text for level, text in found if level == "DEBUG"] == [e.detail for e in solution.events if e.kind == "restart"]
    assert found[-1][0] == "INFO" and f"converged after {solution.iterations} iterations" in found[-1][1]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="krylith"), pytest.warns(krylith.ConvergenceWarning):
        krylith.solve(A, b, method="gmres", precond="none", rtol=1e-10, max_iters=2)
    assert "max-iterations" in caplog.records[-1].getMessage()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="krylith"):
        krylith.solve(A, b)
    assert not caplog.records


def test_newtons_method_is_logged(caplog):
    A, b = poisson(5), np.ones(25)
    with caplog.at_level(logging.INFO, logger="krylith"):
        solution = krylith.newton(lambda u: A @ u - b, lambda u: A, np.zeros(25))
    assert caplog.records[-1].getMessage().startswith(f"Newton: converged after {len(solution.steps)} steps")


def test_verbose_prints_progress(capsys):
    A, b = poisson(15), np.ones(225)
    told = []
    solution = krylith.solve(A, b, method="cg", precond="none", verbose=True, callback=lambda k, r: told.append(k))
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].split() == ["iteration", "‖r‖/‖b‖"] and lines[1].split() == ["0", "1.000e+00"]
    assert repr(solution) in text and told[0] == 0 and len(told) == solution.iterations + 1
    solver = krylith.Solver(A, verbose=True)
    solver.solve(b, verbose=False)
    assert capsys.readouterr().out == ""
    solver.solve(b)
    assert "converged" in capsys.readouterr().out
    krylith.cg(A, b, verbose=True)
    assert "iteration" in capsys.readouterr().out
    krylith.solve(A, b)
    assert capsys.readouterr().out == ""


def test_types_have_the_names_of_the_library():
    names = _native.names()
    types = {"method": krylith.MethodName, "precond": krylith.PrecondName, "outcome": krylith.OutcomeName}
    assert {key: list(typing.get_args(type)) for key, type in types.items()} == names
    for kind, type in [("ildu", _keywords.IlduKeys), ("ras", _keywords.RasKeys), ("amg", _keywords.AmgKeys), ("lu", _keywords.LuKeys)]:
        assert list(type.__annotations__) == [key for key, _ in _native.precond_keys(kind)]
    A, b = poisson(6), np.ones(36)
    for method in names["method"]:
        assert krylith.solve(A, b, method=method, precond="jacobi" if method == "minres" else "auto").outcome in names["outcome"]
    with pytest.raises(krylith.InvalidInput) as e:
        krylith.solve(A, b, precond="nothing-like-it")
    assert all(name in str(e.value) for name in names["precond"])


def test_a_wrong_limit_is_called_as_the_caller_calls_it():
    A, b = poisson(4), np.ones(16)
    for name in ("maxiter", "max_iters"):
        with pytest.raises(krylith.InvalidInput, match=f"`{name}` is 1.5; expected a whole number"):
            krylith.solve(A, b, **{name: 1.5})
    assert krylith.solve(A, b, maxiter=1e3).converged and krylith.solve(A, b, max_iters=50).converged
    with pytest.raises(krylith.InvalidInput, match="a function of x alone is a callback of krylith.cg"):
        krylith.solve(A, b, callback=lambda x: None)
