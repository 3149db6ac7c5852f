"""Coupled systems of any size on cubes, made by Kronecker products: Stokes, Darcy, two-phase flow, curl-curl.

Each function returns A, b, fields and named matrices as `krylith.solve` takes them.
"""

import numpy as np
import scipy.sparse as sp


def _tri(n, first, last):
    d = np.full(n, 2.0)
    d[0], d[-1] = first, last
    return sp.diags([-np.ones(n - 1), d, -np.ones(n - 1)], [-1, 0, 1])


def _kron(*factors):
    product = factors[0]
    for factor in factors[1:]:
        product = sp.kron(product, factor, format="csr")
    return product


def stokes(n):
    """Staggered grid of n³ cells: no slip but for an open side at x = 1, and a force along x."""
    eye = sp.identity
    # Along a normal direction: faces from wall to wall, or with the open side. Across: cells beside walls.
    across, across_open, normal, normal_open = _tri(n, 3, 3), _tri(n, 3, 1), _tri(n - 1, 2, 2), _tri(n, 2, 1)
    g_open = sp.diags([-np.ones(n), np.ones(n - 1)], [0, 1])
    g = sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
    i = eye(n)
    j = eye(n - 1)
    au = _kron(normal_open, i, i) + _kron(i, across, i) + _kron(i, i, across)
    av = _kron(across_open, j, i) + _kron(i, normal, i) + _kron(i, j, across)
    aw = _kron(across_open, i, j) + _kron(i, across, j) + _kron(i, i, normal)
    b = sp.vstack([_kron(g_open, i, i), _kron(i, g, i), _kron(i, i, g)])
    a = sp.block_diag([au, av, aw])
    k = sp.bmat([[a, b], [b.T, None]], format="csr")
    nu = a.shape[0]
    f = np.zeros(k.shape[0])
    f[: n**3] = 1.0 / n**2
    return k, f, {"u": slice(0, nu), "p": slice(nu, None)}, {"Mp": sp.identity(n**3, format="csr")}


def darcy(n, contrast=1e4, seed=1):
    """RT0–P0 on n³ cells with a permeability that varies by `contrast` from cell to cell, p = 0 around it."""
    rng = np.random.default_rng(seed)
    inverse = contrast ** rng.uniform(-0.5, 0.5, (n, n, n))
    cell = np.arange(n**3).reshape(n, n, n)
    rows, cols, values, div, start = [], [], [], [], 0
    for axis in range(3):
        shape = [n, n, n]
        shape[axis] += 1
        face = start + np.arange(np.prod(shape)).reshape(shape)
        low = np.take(face, range(n), axis).ravel()
        high = np.take(face, range(1, n + 1), axis).ravel()
        k = inverse.ravel()
        rows += [low, high, low, high]
        cols += [low, high, high, low]
        values += [k / 3, k / 3, k / 6, k / 6]
        div += [(cell.ravel(), low, -1.0), (cell.ravel(), high, 1.0)]
        start += face.size
    m = sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=(start, start))
    d_rows, d_cols = (np.concatenate([part[k] for part in div]) for k in (0, 1))
    d_values = np.concatenate([np.full(n**3, part[2]) for part in div])
    d = sp.csr_matrix((d_values, (d_rows, d_cols)), shape=(n**3, start))
    k = sp.bmat([[m, d.T], [d, None]], format="csr")
    f = np.zeros(k.shape[0])
    f[start:] = rng.standard_normal(n**3)
    return k, f, {"w": slice(0, start), "p": slice(start, None)}, {}


def twophase(n, seed=2):
    """Pressure and saturation in n³ cells, interleaved: elliptic pressure, upwind transport, both coupled."""
    rng = np.random.default_rng(seed)
    k = 10.0 ** rng.uniform(-2, 2, (n, n, n))
    cell = np.arange(n**3).reshape(n, n, n)
    rows, cols, values = [], [], []
    up_rows, up_cols, up_values = [], [], []
    for axis in range(3):
        low = np.take(cell, range(n - 1), axis).ravel()
        high = np.take(cell, range(1, n), axis).ravel()
        t = 2 / (1 / k.ravel()[low] + 1 / k.ravel()[high])
        rows += [low, high, low, high]
        cols += [low, high, high, low]
        values += [t, t, -t, -t]
        flux = 5.0 * t
        up_rows += [low, high]
        up_cols += [low, low]
        up_values += [flux, -flux]
    def make(r, c, v):
        return sp.csr_matrix((np.concatenate(v), (np.concatenate(r), np.concatenate(c))), shape=(n**3,) * 2)
    t, transport = make(rows, cols, values), make(up_rows, up_cols, up_values)
    storage = sp.diags(np.full(n**3, 0.5))
    # Sums of both phases in the first row of a cell; the second is one phase.
    blocks = [[t + 1e-6 * storage, 0.3 * transport], [0.4 * t, transport + storage]]
    e = [sp.csr_matrix(([1.0], ([c], [0])), shape=(2, 1)) for c in range(2)]
    a = sum(sp.kron(blocks[r][c], e[r] @ e[c].T, format="csr") for r in range(2) for c in range(2))
    f = np.zeros(2 * n**3)
    f[0], f[-2] = 1.0, -1.0
    return a.tocsr(), f, {"p": slice(0, None, 2), "s": slice(1, None, 2)}, {}


def curlcurl(n, mass=1e-2, seed=3):
    """Edge elements of lowest order on n³ cubes: curl μ⁻¹ curl u + mass u, with any right-hand side."""
    h = 1.0 / n
    m1 = h / 6 * sp.diags([np.ones(n), np.r_[2.0, np.full(n - 1, 4.0), 2.0], np.ones(n)], [-1, 0, 1])
    m0, i = sp.identity(n) / h, sp.identity(n + 1)
    d = sp.diags([-np.ones(n), np.ones(n)], [0, 1], shape=(n, n + 1))
    j = sp.identity(n)
    edges = sp.block_diag([_kron(m0, m1, m1), _kron(m1, m0, m1), _kron(m1, m1, m0)])
    faces = sp.block_diag([_kron(m1, m0, m0), _kron(m0, m1, m0), _kron(m0, m0, m1)])
    curl = sp.bmat(
        [
            [None, -_kron(i, j, d), _kron(i, d, j)],
            [_kron(j, i, d), None, -_kron(d, i, j)],
            [-_kron(j, d, i), _kron(d, j, i), None],
        ]
    )
    g = sp.vstack([_kron(d, i, i), _kron(i, d, i), _kron(i, i, d)]).tocsr()
    x = np.linspace(0, 1, n + 1)
    vertices = np.stack([a.ravel() for a in np.meshgrid(x, x, x, indexing="ij")], 1)
    a = (curl.T @ faces @ curl + mass * edges).tocsr()
    import krylith

    f = np.random.default_rng(seed).standard_normal(a.shape[0])
    return a, f, None, {"G": g} | dict(zip(("Px", "Py", "Pz"), krylith.edge_interpolation(g, vertices)))


#: System, sizes, preconditioner and options of each case.
CASES = {
    "stokes": (stokes, "split(u: amg, p: chebyshev(jacobi; degree=1); schur=upper, S=Mp)", {}),
    "darcy": (darcy, "split(w: ildu, p: amg; schur=full, S=selfp)", {}),
    "twophase": (twophase, "cpr(p: amg) then ildu", {}),
    "curlcurl": (curlcurl, "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) then aux(Py: amg) then aux(Pz: amg))", {}),
}
