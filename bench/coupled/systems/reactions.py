"""Several fields at every node: reactions and phases."""

import numpy as np
import scipy.sparse
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import assembled, constant, discretised, unit


@system("rd6-2d", (58, 130), dim=2)
@system("rd6-3d", (14, 25), dim=3)
@system("rd9-adv-2d", (48, 105), dim=2, species=9, stiff=1e6, step=1.0, speed=50.0)
@system("rd6-3d-bigdt", (14, 25), dim=3, stiff=1e2, step=1e3)
def reaction(n, dim, species=6, stiff=1e4, step=0.1, speed=0.0):
    """Reaction and diffusion of several species, P1, interleaved:
    u / tau + w . grad u - D laplace u - R'(c) u = f.
    """
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    x = ufl.SpatialCoordinate(grid)
    wind = ufl.as_vector([-(x[1] - 0.5), x[0] - 0.5] + [0 * x[0]] * (dim - 2))
    mass = assembled(u * v * ufl.dx)
    advection = constant(grid, speed) * ufl.dot(wind, ufl.grad(u)) * v * ufl.dx
    spread = assembled(ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx + advection)
    nodes = space.tabulate_dof_coordinates()
    random = np.random.default_rng(0)
    diffusion = np.diag(10.0 ** random.uniform(-4, -1, species))
    kinetics = mass_action(nodes, species, stiff, random)
    lumped = np.asarray(mass.sum(1)).ravel()
    size = species * len(nodes)
    local = -kinetics * lumped[:, None, None]
    local = scipy.sparse.bsr_matrix((local, np.arange(len(nodes)), np.arange(len(nodes) + 1)), shape=(size, size))
    a = scipy.sparse.kron(mass / step, np.eye(species)) + scipy.sparse.kron(spread, diffusion) + local
    return a.tocsr(), np.repeat(lumped, species) * random.uniform(0, 1, size)


def mass_action(nodes, species, stiff, random):
    """The kinetics' Jacobian at every node: reactions i -> l and i + j -> l, rates over many decades."""
    reactions = 3 * species
    rates = 10.0 ** random.uniform(-4, np.log10(stiff), reactions)
    jacobian = np.zeros((len(nodes), species, species))
    c = 10.0 ** (-2 + 2 * np.sin(nodes @ random.normal(size=(3, species)) * 3))
    for r in range(reactions):
        i, j, to = random.choice(species, 3, replace=False)
        rate, change = np.zeros((len(nodes), species)), np.zeros(species)
        change[i] -= 1
        change[to] += 1
        if r % 2:
            rate[:, i] = rates[r]
        else:
            change[j] -= 1
            rate[:, i], rate[:, j] = rates[r] * c[:, j], rates[r] * c[:, i]
        jacobian += change[None, :, None] * rate[:, None, :]
    return jacobian


@system("cahn-hilliard-2d", (100, 220), dim=2)
@system("cahn-hilliard-3d", (20, 36), dim=3)
@system("cahn-hilliard-2d-bigdt", (100, 220), dim=2, step=1e-3)
def cahn_hilliard(n, dim, step=5e-6):
    """Cahn-Hilliard, the Jacobian of a step, P1-P1:
    c - tau / 2 laplace mu = c0, mu - f''(c0) c + l laplace c = g.
    """
    grid = unit(dim, n)
    element = ufl.FiniteElement("CG", grid.ufl_cell(), 1)
    space = fem.FunctionSpace(grid, element * element)
    (c, mu), (q, v) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    before = fem.Function(space)
    before.sub(0).interpolate(
        lambda x: 0.5 + 0.45 * np.tanh(np.sin(9 * x[0]) * np.cos(7 * x[1]) * 6) + 0.01 * np.sin(97 * x[0] + 31 * x[1])
    )
    c0 = ufl.split(before)[0]
    curvature = 100 * (2 - 12 * c0 * (1 - c0))
    form = c * q + step * 0.5 * ufl.dot(ufl.grad(mu), ufl.grad(q))
    form += mu * v - curvature * c * v - 1e-2 * ufl.dot(ufl.grad(c), ufl.grad(v))
    load = (c0 * q + 200 * c0 * (1 - c0) * (1 - 2 * c0) * v) * ufl.dx
    return discretised(form * ufl.dx, load)
