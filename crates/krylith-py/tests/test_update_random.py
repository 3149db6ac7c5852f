"""Random updates of values, in every container and of sums. KRYLITH_UPDATES is their number; 10,000 is thorough."""

import os
import re
import warnings

import numpy as np

import krylith
from test_update import CONTAINERS, N, blocks, dense, whole, with_numbers

UPDATES = int(os.environ.get("KRYLITH_UPDATES", "400"))
OPTIONS = [
    {},
    {"precond": "lu"},
    {"precond": "ildu"},
    {"precond": "jacobi"},
    {"zeros": "drop"},
    {"zeros": "keep"},
    {"equilibrate": True},
    {"precision": "f32"},
]


def changed(rng, data, positive):
    """Return other values, some of them zero, with which the diagonal stays dominant."""
    way = rng.integers(4)
    if way == 0:
        return data * rng.uniform(0.5, 2.0)
    if way == 1:
        return np.where((np.abs(data) < positive) & (rng.random(data.shape) < 0.3), 0.0, data)
    if way == 2:
        return np.where(np.abs(data) < positive, -data, data)
    return np.where(np.abs(data) < positive, data * rng.uniform(0.0, 1.0, data.shape), data)


def quiet(solver, b):
    """Solve without warnings: with outdated factors or a given preconditioner, a solve need not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krylith.ConvergenceWarning)
        return solver.solve(b)


def residual(A, x, b):
    """Return the residual in long double; for a singular matrix, a large x hides it in rounding."""
    A, x, b = (np.asarray(v, dtype=np.longdouble) for v in (A, x, b))
    r = b - A @ x
    return float(np.sqrt((r @ r) / (b @ b)))


def test_new_values_of_every_container_again_and_again():
    rng, done, wrong = np.random.default_rng(39), 0, []
    while done < UPDATES:
        name = list(CONTAINERS)[done // 4 % len(CONTAINERS)]
        X = CONTAINERS[name](blocks(int(rng.integers(1 << 30))))
        options, block = OPTIONS[rng.integers(len(OPTIONS))], [None, 1, 2][rng.integers(3)]
        solver = krylith.Solver(X, rtol=1e-9, block=block, **options)
        for refresh in rng.choice(["keep", "refresh", "rebuild"], 4):
            X = with_numbers(X, changed(rng, X.data, 0.9))
            try:
                solver.update_values(X if rng.random() < 0.5 else X.data, refresh=str(refresh))
            except krylith.InvalidInput as e:
                assert "precond" in options and re.search("diagonal block|pivot|singular", str(e)), e
                break
            b = rng.standard_normal(N)
            s, done = quiet(solver, b), done + 1
            r = residual(dense(X), s.x, b)
            if not (np.isfinite(s.x).all() and r <= 1.0 + 1e-9 and (not s.converged or r <= 1.01e-9)):
                wrong.append((done, name, options, block, refresh, s.outcome, r))
    print(f"{done} updates, {len(wrong)} wrong")
    assert not wrong, wrong[:5]


def test_new_sums_of_every_container_again_and_again():
    rng, done, wrong = np.random.default_rng(40), 0, []
    names = ["csr", "csc", "coo", "bsr", "unsorted", "entries twice"]
    while done < UPDATES:
        name, block = names[done // 4 % len(names)], [None, 1, 2][rng.integers(3)]
        M, L = (CONTAINERS[name](blocks(int(rng.integers(1 << 30)))) for _ in range(2))
        A, B, tau = np.eye(2), np.array([[5, -1], [9, 3]]) / 12, 0.1
        options = OPTIONS[rng.integers(len(OPTIONS))]
        solver = krylith.Solver(krylith.KroneckerSum(A, M, B, L, tau, block=block), rtol=1e-9, **options)
        for _ in range(4):
            M, L = (with_numbers(X, changed(rng, X.data, 0.9)) for X in (M, L))
            if rng.random() < 0.5:
                A, tau = np.eye(2) + 0.2 * rng.standard_normal((2, 2)), float(rng.uniform(0.01, 0.3))
            K = krylith.KroneckerSum(A, M, B, L, tau)
            solver.update_values(K)
            F = rng.standard_normal((N, 2))
            s, done = quiet(solver, F), done + 1
            r = residual(whole(K), s.x.T.ravel(), F.T.ravel())
            if not (np.isfinite(s.x).all() and r <= 1.0 + 1e-9 and (not s.converged or r <= 1.01e-9)):
                wrong.append((done, name, options, block, s.outcome, r))
    print(f"{done} updates, {len(wrong)} wrong")
    assert not wrong, wrong[:5]
