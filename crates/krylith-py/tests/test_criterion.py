"""Criteria of convergence: keywords, fields of a solution, and what is refused."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import krylith
from test_solve import random_matrix


def quantities(A, b, x, to=None):
    """Return the value of every criterion, with residuals in long double."""
    wide = A.astype(np.longdouble)
    r = b.astype(np.longdouble) - wide @ x.astype(np.longdouble)
    size = abs(wide) @ abs(x) + abs(b)
    d = np.asarray(abs(wide).sum(axis=1)).reshape(-1)
    d[d == 0] = 1
    to = b if to is None else b - A @ to
    norm = np.linalg.norm
    backward = np.divide(abs(r), size, out=np.zeros_like(r), where=r != 0).max()
    return {
        "residual": float(np.sqrt(sum(r * r)) / norm(to)),
        "rows": float(np.sqrt(sum((r / d) ** 2)) / np.sqrt(sum((to / d) ** 2))),
        "backward": float(backward),
    }


def uneven(n=40):
    """Return a system whose rows differ in scale by 1e12."""
    scale = np.where(np.arange(n) % 2, 1e6, 1e-6)
    A = sp.csr_matrix(sp.diags(scale) @ sp.diags([-1.6, 3.0, -0.4], [-1, 0, 1], shape=(n, n)))
    return A, A @ np.ones(n)


@pytest.mark.parametrize("criterion", ["residual", "rows", "backward"])
@pytest.mark.parametrize("method", ["gmres", "bicgstab", "auto"])
def test_a_solution_meets_its_criterion(criterion, method):
    A, b = uneven()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krylith.ConvergenceWarning)
        solution = krylith.solve(A, b, method=method, criterion=criterion, rtol=1e-9, precond="jacobi")
    assert solution.converged and (solution.criterion, solution.relative_to) == (criterion, "b")
    values = quantities(A, b, solution.x)
    assert values[criterion] <= 1.001e-9
    assert solution.criterion_value == pytest.approx(values[criterion], rel=1e-4, abs=1e-16)
    assert solution.residuals[-1] == pytest.approx(solution.criterion_value, rel=1e-9, abs=1e-18)
    assert solution.true_residual == pytest.approx(values["residual"], rel=1e-4, abs=1e-16)
    if criterion != "residual":
        np.testing.assert_allclose(solution.x, 1, rtol=1e-5)
    loaded = pickle.loads(pickle.dumps(solution))
    assert (loaded.criterion, loaded.criterion_value) == (criterion, solution.criterion_value)
    assert str(loaded) == str(solution)


def test_residuals_relative_to_the_first_one():
    A = random_matrix(30, 3, 0.1)
    b = np.random.default_rng(1).standard_normal(30)
    near = krylith.solve(A, b, rtol=1e-5).x
    solver = krylith.Solver(A, relative_to="r0", rtol=1e-6)
    solution = solver.solve(b, near)
    assert solution.converged and solution.iterations > 0 and solution.residuals[0] == 1
    assert quantities(A, b, solution.x, near)["residual"] <= 1.001e-6
    assert solution.relative_to == "r0" and "initial" in str(solution)


def test_columns_have_the_criterion():
    A, b = uneven()
    B = np.stack([b, 2 * b, np.zeros_like(b)], axis=1)
    solution = krylith.solve(A, B, method="gmres", criterion="rows", rtol=1e-9)
    assert [column.criterion for column in solution.columns] == ["rows"] * 3
    assert all(column.converged for column in solution.columns)


def test_what_has_no_meaning_is_refused():
    A, b = uneven()
    for options, words in [
        ({"criterion": "backward", "relative_to": "r0"}, "relative_to"),
        ({"criterion": "backward", "atol": 1e-3}, "atol"),
        ({"criterion": "row"}, "rows"),
    ]:
        with pytest.raises(krylith.InvalidInput, match=words):
            krylith.solve(A, b, **options)
    for name in ("cg", "gmres", "bicgstab", "minres"):
        with pytest.raises(krylith.InvalidInput, match="SciPy"):
            getattr(krylith, name)(A, b, criterion="rows")
    with pytest.raises(krylith.InvalidInput, match="criterion=residual"):
        krylith.solve(lambda x: A @ x, b, criterion="rows")
