"""More coupled systems from dolfinx, for bare.py: `python3 more.py NAME SIZE FOLDER` assembles one, with those of fem.py."""

import sys

import fem as base
import numpy as np
import scipy.sparse as sp
import ufl
from dolfinx import fem


def enclosed(dim):
    """Flow in a closed box with a moving lid. Constant pressures are in the null space."""

    def make(n):
        m = base.box(dim, n)
        w = base.element(m, "P2v", "P1")
        (vs, du), (qs, dp) = w.sub(0).collapse(), w.sub(1).collapse()
        (u, p), (v, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
        sym = lambda u: ufl.sym(ufl.grad(u))
        a = (2 * ufl.inner(sym(u), sym(v)) - p * ufl.div(v) - q * ufl.div(u)) * ufl.dx
        lid = fem.Function(vs)
        lid.interpolate(lambda x: np.vstack([np.where(base.near(x, dim - 1, 1), 1.0, 0)] + [0 * x[0]] * (dim - 1)))
        walls = lambda x: np.any([base.near(x, k, e) for k in range(dim) for e in (0, 1)], axis=0)
        bcs = [fem.dirichletbc(lid, fem.locate_dofs_geometrical((w.sub(0), vs), walls), w.sub(0))]
        k, f = base.assembled(a, base.fem.Constant(m, 0.0) * q * ufl.dx, bcs)
        pp, qq = ufl.TrialFunction(qs), ufl.TestFunction(qs)
        return k, f, {"u": (du, dim), "p": (dp, 1)}, {"Mp": base.csr(pp * qq * ufl.dx)} | base.vector_field(vs, m, du)

    return make


def reaction(species, stiff=1e4, step=1e-1, speed=0.0):
    """A step of diffusion and stiff reactions of several species in the plane, interleaved."""

    def make(n):
        m = base.box(2, n)
        space = fem.FunctionSpace(m, ("CG", 1))
        u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
        x = ufl.SpatialCoordinate(m)
        wind = ufl.as_vector([-(x[1] - 0.5), x[0] - 0.5])
        mass = base.csr(u * v * ufl.dx)
        flux = base.csr((ufl.inner(ufl.grad(u), ufl.grad(v)) + speed * ufl.dot(wind, ufl.grad(u)) * v) * ufl.dx)
        at, rng = space.tabulate_dof_coordinates(), np.random.default_rng(0)
        diffusion = np.diag(10.0 ** rng.uniform(-4, -1, species))
        rates = 10.0 ** rng.uniform(-4, np.log10(stiff), 3 * species)
        jacobian = np.zeros((len(at), species, species))
        c = 10.0 ** (-2 + 2 * np.sin(at @ rng.normal(size=(3, species)) * 3))
        for r, rate in enumerate(rates):
            i, j, into = rng.choice(species, 3, replace=False)
            slope, change = np.zeros((len(at), species)), np.zeros(species)
            if r % 2:
                slope[:, i] = rate
                change[i], change[into] = -1, 1
            else:
                slope[:, i], slope[:, j] = rate * c[:, j], rate * c[:, i]
                change[i], change[j], change[into] = -1, -1, 1
            jacobian += change[None, :, None] * slope[:, None, :]
        lumped = np.asarray(mass.sum(1)).ravel()
        blocks = (-jacobian * lumped[:, None, None], np.arange(len(at)), np.arange(len(at) + 1))
        react = sp.bsr_matrix(blocks, shape=(species * len(at),) * 2)
        a = (sp.kron(mass / step, np.eye(species)) + sp.kron(flux, diffusion) + react).tocsr()
        a.sort_indices()
        b = np.repeat(lumped, species) * rng.uniform(0, 1, a.shape[0])
        return a, b, {f"s{k}": (np.arange(k, len(b), species), 1) for k in range(species)}, {}

    return make


def cahn_hilliard(n, step=5e-6, width=1e-2):
    m = base.box(2, n)
    linear = ufl.FiniteElement("CG", m.ufl_cell(), 1)
    w = fem.FunctionSpace(m, ufl.MixedElement([linear, linear]))
    (_, dc), (_, dm) = w.sub(0).collapse(), w.sub(1).collapse()
    (c, mu), (q, v) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
    before = fem.Function(w)
    before.sub(0).interpolate(lambda x: 0.5 + 0.45 * np.tanh(np.sin(9 * x[0]) * np.cos(7 * x[1]) * 6))
    c0 = ufl.split(before)[0]
    curvature = 100 * (2 - 12 * c0 * (1 - c0))
    a = (c * q + step * 0.5 * ufl.dot(ufl.grad(mu), ufl.grad(q)) + mu * v - curvature * c * v) * ufl.dx
    a -= width * ufl.dot(ufl.grad(c), ufl.grad(v)) * ufl.dx
    k, f = base.assembled(a, (c0 * q + 200 * c0 * (1 - c0) * (1 - 2 * c0) * v) * ufl.dx, [])
    return k, f, {"c": (dc, 1), "mu": (dm, 1)}, {}


def supg(n):
    """Convection at a cell Péclet number of 50 along a slanted direction, with streamline diffusion."""
    m = base.box(3, n)
    space = fem.FunctionSpace(m, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    wind, nu = ufl.as_vector([1.0, 0.5, 0.25]), 1.0 / (100 * n)
    along = lambda f: ufl.dot(wind, ufl.grad(f))
    a = (nu * ufl.inner(ufl.grad(u), ufl.grad(v)) + along(u) * v + along(u) * along(v) / (2 * n)) * ufl.dx
    one = fem.Function(space)
    one.interpolate(lambda x: np.where(x[1] < 0.5, 1.0, 0.0))
    walls = lambda x: base.near(x, 0, 0) | base.near(x, 1, 0) | base.near(x, 2, 0)
    k, f = base.assembled(a, fem.Constant(m, 0.0) * v * ufl.dx, [fem.dirichletbc(one, fem.locate_dofs_geometrical(space, walls))])
    return k, f, {"u": (np.arange(len(f)), 1)}, {}


def twophase(n):
    """A step of oil and water in n × n × n/2 cells, lognormal permeability over five decades: p in Pa and the saturation
    interleaved; rows are the balances of both."""
    from scipy.ndimage import gaussian_filter

    nz = max(n // 2, 2)
    cells = n * n * nz
    index, rng = np.arange(cells).reshape(n, n, nz), np.random.default_rng(0)
    g = gaussian_filter(rng.normal(size=(n, n, nz)), 2)
    k = (1e-13 * 10 ** (1.2 * g / g.std())).ravel()
    s = np.clip(gaussian_filter(rng.uniform(size=(n, n, nz)), 3) * 2 - 0.5, 0.05, 0.95).ravel()
    volume, compress = 0.2 * 10.0**3 / 86400.0, 1e-9
    phases = ((s**2 / 5e-4, 2 * s / 5e-4), ((1 - s) ** 2 / 2e-3, -2 * (1 - s) / 2e-3))
    p = 3e7 - 1e5 * (np.arange(cells) // (n * nz))
    rows, cols, values = [], [], []

    def add(r, phase, c, unknown, v):
        rows.append(2 * r + phase)
        cols.append(2 * c + unknown)
        values.append(np.broadcast_to(v, r.shape))

    for axis in range(3):
        a = np.take(index, range(index.shape[axis] - 1), axis).ravel()
        b = np.take(index, range(1, index.shape[axis]), axis).ravel()
        t, up, dp = 20.0 / (1 / k[a] + 1 / k[b]), np.where(p[a] >= p[b], a, b), p[a] - p[b]
        for phase, (mobility, slope) in enumerate(phases):
            for i, sign in ((a, 1.0), (b, -1.0)):
                add(i, phase, a, 0, sign * t * mobility[up])
                add(i, phase, b, 0, -sign * t * mobility[up])
                add(i, phase, up, 1, sign * t * slope[up] * dp)
    every = np.arange(cells)
    add(every, 0, every, 1, volume)
    add(every, 0, every, 0, volume * compress * s)
    add(every, 1, every, 1, -volume)
    add(every, 1, every, 0, volume * compress * (1 - s))
    well = index[-1, -1, :]
    for phase in range(2):
        add(well, phase, well, 0, 1e-10)
    a = sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=(2 * cells,) * 2)
    a.sort_indices()
    f = np.zeros(2 * cells)
    f[2 * index[0, 0, :]], f[2 * well + 1] = 1e-3, -1e-3
    return a, f, {"p": (np.arange(0, 2 * cells, 2), 1), "s": (np.arange(1, 2 * cells, 2), 1)}, {}


base.SYSTEMS.update(
    {
        "enclosed2d": enclosed(2),
        "enclosed3d": enclosed(3),
        "reaction6": reaction(6),
        "reaction9": reaction(9, 1e6, 1.0, 50.0),
        "cahn-hilliard": cahn_hilliard,
        "supg3d": supg,
        "twophase": twophase,
    }
)

if __name__ == "__main__":
    sys.exit(base.main())
