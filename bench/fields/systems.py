"""Coupled systems of any size on cubes, made by Kronecker products: Stokes, Darcy, reservoirs, curl-curl.

Each function returns A, b, fields and named matrices as `krylith.solve` takes them.
"""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg


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


def blackoil(n, phases=3, compress=1e-4, wells=8, seed=4):
    """A Newton step of water, oil and dissolving gas (with two phases: water and oil) in n³ cells, and of vertical wells.

    Two-point fluxes, upwind mobilities, a log-normal permeability, a mean Courant number of 5. Every third well injects
    water. Unknowns: p and the saturations of water and gas of each cell in turn; then the pressure of each well, which
    has a given rate."""
    rng, cells = np.random.default_rng(seed), n**3
    at = np.stack([a.ravel() for a in np.meshgrid(*[np.arange(n) / n] * 3, indexing="ij")], 1)
    waves = sum(np.cos(at @ (rng.normal(size=3) * 15) + rng.uniform(0, 6.3)) for _ in range(16)) / np.sqrt(8)
    k = 10 ** (waves + 0.5 * rng.standard_normal(cells))
    d, i = sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n)), sp.identity(n)
    between = sp.vstack([_kron(d, i, i), _kron(i, d, i), _kron(i, i, d)]).tocsr()
    t = 2 / (abs(between) @ (1 / k)) * np.repeat([1, 1, 0.1], between.shape[0] // 3)
    columns = rng.choice(n * n, wells, replace=False)
    holes = sp.csr_matrix((np.ones(wells * n), (np.arange(wells * n), (columns[:, None] * n + np.arange(n)).ravel())), shape=(wells * n, cells))
    owner = sp.kron(sp.identity(wells), np.ones((n, 1)), format="csr")
    injects = np.repeat(np.arange(wells) % 3 == 0, n)
    index = 3 * (holes @ k)

    s = np.stack([0.35 + 0.1 * np.cos(at @ [5, 3, 1]), 0 * k, 0.12 + 0.05 * np.sin(at @ [2, 7, 4])])[:phases]
    s[1] = 1 - s.sum(0)
    c, viscosity = compress * np.array([1, 3, 100.0])[:phases, None], np.array([0.5, 2, 0.1])[:phases, None]
    mobility, slope = s**2 / viscosity, 2 * s / viscosity
    total = mobility.sum(0)
    elliptic = between.T @ sp.diags(t) @ between + holes.T @ sp.diags(index) @ holes
    jacobi = sp.diags(1 / elliptic.diagonal())
    p, _ = cg(elliptic, holes.T @ (index * np.where(injects, 1.0, -1.0)), maxiter=2000, M=jacobi)
    b, drop = np.exp(c * p), between @ p
    up = ((abs(between) + sp.diags(np.sign(drop)) @ between) / 2).tocsr()
    draw = holes @ p - np.where(injects, 1.0, -1.0)
    storage = np.abs(t * (up @ total) * drop).sum() / cells / 5
    diag, zero = sp.diags, sp.csr_matrix((cells, cells))
    rows, rate_p, rate_s, rate_w = [], 0, [0] * phases, 0
    for a in range(phases):
        m, dm, db = up @ mobility[a], up @ (slope[a] * b[a]), up @ (mobility[a] * c[a] * b[a])
        by_p = between.T @ (diag(t * m * (up @ b[a])) @ between + diag(t * db * drop) @ up) + diag(storage * s[a] * c[a] * b[a])
        by_s = between.T @ diag(t * dm * drop) @ up + diag(storage * b[a])
        flow = index * np.where(injects, (holes @ total) * (a == 0), holes @ (mobility[a] * b[a]))
        more = index * np.where(injects, 0.0, (holes @ (slope[a] * b[a])) * draw)
        by_p, by_s, by_w = by_p + holes.T @ diag(flow) @ holes, by_s + holes.T @ diag(more) @ holes, -holes.T @ diag(flow) @ owner
        rate_p, rate_w = rate_p + owner.T @ diag(flow) @ holes, rate_w - owner.T @ diag(flow) @ owner
        rate_s[a] = owner.T @ diag(more) @ holes
        rows.append([by_p, [by_s if q == a else zero for q in range(phases)], by_w])
    if phases == 3:
        # Gas dissolved in oil flows with it; Rs = 0.5 + 0.1 p.
        oil, gas, rs = rows[1], rows[2], 0.5
        gas[0], gas[2] = gas[0] + rs * oil[0] + diag(0.1 * storage * s[1]), gas[2] + rs * oil[2]
        gas[1] = [x + rs * y for x, y in zip(gas[1], oil[1])]
    # The saturation of oil is what the others leave.
    own = [q for q in range(phases) if q != 1]
    blocks = [[r[0], *[r[1][q] - r[1][1] for q in own], r[2]] for r in rows]
    blocks.append([rate_p, *[rate_s[q] - rate_s[1] for q in own], rate_w])
    order = np.concatenate([np.arange(phases * cells).reshape(phases, -1).T.ravel(), phases * cells + np.arange(wells)])
    a = sp.bmat(blocks, format="csr")[order][:, order].tocsr()
    fields = {name: slice(q, phases * cells, phases) for q, name in enumerate(("p", "sw", "sg")[:phases])}
    return a, rng.standard_normal(a.shape[0]), fields | {"wells": slice(phases * cells, None)}, {}


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
    "darcy": (darcy, "split(w: chebyshev(jacobi), p: amg; schur=upper, S=selfp)", {}),
    "twophase": (twophase, "cpr(p: amg) then ildu", {}),
    "blackoil": (blackoil, "cpr(p: amg) then ildu", {}),
    "blackoil-barely": (lambda n: blackoil(n, compress=1e-9), "cpr(p: amg) then ildu", {}),
    "twophase-wells": (lambda n: blackoil(n, phases=2, compress=1e-6), "cpr(p: amg) then ildu", {}),
    "curlcurl": (curlcurl, "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) then aux(Py: amg) then aux(Pz: amg))", {}),
}
