"""Coupled systems: fields, blocks given apart, matrices by name, and helpers that make them."""

import numpy as np
import pytest
import scipy.sparse as sp

import krylith


def channel(n):
    """Stokes flow between walls on a staggered n×n grid with an open end: blocks A and B, and a force."""

    def tri(m, first, last):
        d = np.full(m, 2.0)
        d[0], d[-1] = first, last
        return sp.diags([-np.ones(m - 1), d, -np.ones(m - 1)], [-1, 0, 1])

    i = sp.identity(n)
    au = sp.kron(tri(n, 2, 1), i) + sp.kron(i, tri(n, 3, 3))
    av = sp.kron(tri(n, 3, 1), sp.identity(n - 1)) + sp.kron(i, tri(n - 1, 2, 2))
    gx = sp.diags([-np.ones(n), np.ones(n - 1)], [0, 1])
    gy = sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
    a = sp.block_diag([au, av]).tocsr()
    b = sp.vstack([sp.kron(gx, i), sp.kron(i, gy)]).tocsr()
    f = np.zeros(a.shape[0] + n * n)
    f[: n * n] = 1.0 / n**2
    return a, b, f


def residual(a, x, f):
    return np.linalg.norm(f - a @ x) / np.linalg.norm(f)


SPLIT = "split(u: amg, p: jacobi; schur=upper, S=Mp)"


@pytest.mark.parametrize(
    "describe",
    [
        lambda nu, n: {"u": slice(0, nu), "p": slice(nu, None)},
        lambda nu, n: {"u": range(nu), "p": np.arange(nu, n)},
        lambda nu, n: {"U": np.arange(n) < nu, "P": {"unknowns": np.arange(n) >= nu, "block": 1}},
    ],
)
def test_fields_in_every_form(describe):
    a, b, f = channel(16)
    k = sp.bmat([[a, b], [b.T, None]], format="csr")
    fields = describe(a.shape[0], k.shape[0])
    s = krylith.solve(k, f, precond=SPLIT, fields=fields, matrices={"Mp": sp.identity(256)}, rtol=1e-8, device="cpu")
    assert s.outcome == "converged" and s.iterations < 50
    assert residual(k, s.x, f) <= 1.01e-8


def test_minres_with_a_diagonal_split():
    counts = []
    for n in (16, 32):
        a, b, f = channel(n)
        k = sp.bmat([[a, b], [b.T, None]], format="csr")
        s = krylith.solve(
            [[a, b], [b.T, None]],
            f,
            method="minres",
            precond="split(u: amg, p: jacobi; schur=diagonal, S=Mp)",
            fields=("u", "p"),
            matrices={"Mp": sp.identity(n * n)},
            rtol=1e-8,
            device="cpu",
        )
        assert s.outcome == "converged" and residual(k, s.x, f) <= 1.01e-8
        counts.append(s.iterations)
    assert counts[1] < 80 and counts[1] <= 1.5 * counts[0], counts


def test_named_matrices_change_with_the_values():
    a, b, f = channel(12)
    k = sp.bmat([[a, b], [b.T, None]], format="csr")
    fields = {"u": slice(0, a.shape[0]), "p": slice(a.shape[0], None)}
    mass = sp.identity(144, format="csr")
    make = lambda m: krylith.Solver(k, precond=SPLIT, fields=fields, matrices={"Mp": m}, device="cpu", method="fgmres")
    solver, other = make(mass), make(3.0 * mass)
    before, after = solver.precondition(f + 1.0), other.precondition(f + 1.0)
    assert np.linalg.norm(before - after) > 1e-3 * np.linalg.norm(after)
    solver.update_values(k, matrices={"Mp": 3.0 * mass})
    np.testing.assert_allclose(solver.precondition(f + 1.0), after, rtol=1e-12)
    with pytest.raises(krylith.InvalidInput, match="only values may change"):
        solver.update_values(k, matrices={"Mp": sp.csr_matrix((144, 144))})
    with pytest.raises(krylith.InvalidInput, match="no matrix has the name `Mq`"):
        solver.update_values(k, matrices={"Mq": mass})


def test_few_multipliers_have_an_explicit_schur_complement():
    a, _, _ = channel(12)
    n = a.shape[0]
    u = np.random.default_rng(1).standard_normal((n, 3))
    s = krylith.solve(
        [[a, u], [u.T, -np.eye(3)]],
        np.append(np.ones(n), np.zeros(3)),
        fields=("x", "m"),
        precond="split(x: lu, m: lu; schur=full, S=explicit)",
        rtol=1e-10,
        device="cpu",
    )
    x = s.x[:n]
    assert s.iterations <= 2 and np.linalg.norm(a @ x + u @ (u.T @ x) - 1.0) < 1e-7


def test_blocks_given_apart():
    a, b, f = channel(12)
    k = sp.bmat([[a, b], [b.T, None]], format="csr")
    blocks = [[a, b], [b.T, None]]
    for fields in (("u", "p"), {"u": {}, "p": {}}):
        s = krylith.solve(blocks, f, precond=SPLIT, fields=fields, matrices={"Mp": sp.identity(144)}, rtol=1e-8, device="cpu")
        assert residual(k, s.x, f) <= 1.01e-8
    s = krylith.solve(blocks, f, precond="split(f0: lu, f1: amg; S=selfp)", rtol=1e-8, device="cpu")
    assert residual(k, s.x, f) <= 1.01e-8
    with pytest.raises(krylith.InvalidInput, match="2 rows of blocks, and fields has 3 names"):
        krylith.solve(blocks, f, fields=("u", "v", "p"))
    with pytest.raises(krylith.InvalidInput, match="block row 1 and block column 1"):
        krylith.solve([[a, None], [None, None]], f)


def test_new_values_reach_every_part():
    a, b, f = channel(16)
    k = sp.bmat([[a, b], [b.T, None]], format="csr")
    fields = {"u": slice(0, a.shape[0]), "p": slice(a.shape[0], None)}
    solver = krylith.Solver(k, precond="split(u: amg, p: amg; schur=full, S=selfp)", fields=fields, rtol=1e-8, device="cpu")
    first = solver.solve(f).iterations
    stiff = sp.bmat([[1000 * a, b], [b.T, None]], format="csr")
    solver.update_values(stiff)
    s = solver.solve(f)
    assert residual(stiff, s.x, f) <= 1.01e-8 and s.iterations <= first + 5


def test_two_phases_by_cpr():
    n = 12
    cells = sp.kronsum(sp.kronsum(*[sp.diags([-1, 2, -1], [-1, 0, 1], shape=(n, n))] * 2), sp.identity(n) * 0.01).tocsr()
    m = cells.shape[0]
    transport = sp.diags([np.full(m, 3.0), np.full(m - 1, -2.5)], [0, -1])
    blocks = [[cells, 0.5 * transport], [0.4 * cells, transport]]
    k = sum(sp.kron(blocks[r][c], np.eye(2)[:, r : r + 1] @ np.eye(2)[c : c + 1]) for r in range(2) for c in range(2)).tocsr()
    f = np.random.default_rng(1).standard_normal(2 * m)
    fields = {"p": slice(0, None, 2), "s": slice(1, None, 2)}
    plain = krylith.solve(k, f, precond="ildu", rtol=1e-8, device="cpu")
    s = krylith.solve(k, f, precond="cpr(p: amg) then ildu", fields=fields, rtol=1e-8, device="cpu")
    assert s.outcome == "converged" and residual(k, s.x, f) <= 1.01e-8
    assert s.iterations < plain.iterations


def test_interpolations():
    # Two triangles of a square, with the midpoints of their five edges.
    vertices = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    cells = [[0, 1, 3], [0, 3, 2]]
    middles = [(0, 1), (1, 3), (0, 3), (3, 2), (2, 0)]
    points = np.vstack([[(vertices[i] + vertices[j]) / 2 for i, j in middles], vertices])
    p = krylith.p2_interpolation(points, vertices, cells, block=2)
    assert p.shape == (18, 8)
    linear = vertices @ np.array([2.0, -1.0]) + 3
    fine = points @ np.array([2.0, -1.0]) + 3
    assert np.allclose(p @ np.repeat(linear, 2), np.repeat(fine, 2))
    with pytest.raises(krylith.InvalidInput, match="neither a vertex nor the midpoint"):
        krylith.p2_interpolation([[0.3, 0.3]], vertices, cells)
    # Constant fields have the same circulation by both ways.
    g = sp.csr_matrix([[-1.0, 1, 0, 0], [-1, 0, 1, 0], [0, -1, 0, 1]])
    corners = np.hstack([vertices, np.zeros((4, 1))])
    for k, part in enumerate(krylith.edge_interpolation(g, corners)):
        assert np.allclose(part @ np.ones(4), (g @ corners)[:, k])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"u": slice(0, 300)}, "belong to no field"),
        ({"u": slice(0, None), "p": slice(300, None)}, "belongs to the fields"),
        ({"u": [0, 1, 2, 999999]}, "has the unknown 999999"),
        ({"u": 1.5}, "expected a slice"),
        ({"u": {"block": 2}}, "has no 'unknowns'"),
        ({"u": {"unknowns": slice(0, None), "size": 2}}, "has the key 'size'"),
        (["u", "p"], "is not a dictionary"),
        ({"2u": slice(0, None)}, "starts with a letter"),
        ({"u": {"unknowns": slice(0, None), "near_nullspace": "rigid"}}, "'rigid' with coordinates"),
    ],
)
def test_wrong_fields(fields, words):
    a, b, f = channel(12)
    k = sp.bmat([[a, b], [b.T, None]], format="csr")
    with pytest.raises(krylith.InvalidInput, match=words):
        krylith.solve(k, f, precond=SPLIT, fields=fields)


@pytest.mark.parametrize(
    "word, advice",
    [
        ("fieldsplit", "write split\\(u: P, p: Q; schur=upper, S=NAME\\)"),
        ("simple", "schur=simple, S=selfp"),
        ("ams", "write aux\\(G: amg\\)"),
        ("minres", "write method=minres"),
    ],
)
def test_words_of_other_programs(word, advice):
    with pytest.raises(krylith.InvalidInput, match=advice):
        krylith.solve(sp.identity(4, format="csr"), np.ones(4), precond=word)
