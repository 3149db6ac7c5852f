"""All stages of an implicit Runge-Kutta step (Radau IIA), written out as one matrix, stage by stage."""

import numpy as np
import scipy.sparse
import ufl
from dolfinx import fem

from systems.registry import system
from systems.stokes import walls
from systems.tools import assembled, boundary, fixed, loaded, taylor_hood, unit

ROOT6 = np.sqrt(6)
# Butcher's matrices of Radau IIA.
RADAU = {
    2: np.array([[5, -1], [9, 3]]) / 12,
    3: np.array(
        [
            [(88 - 7 * ROOT6) / 360, (296 - 169 * ROOT6) / 1800, (-2 + 3 * ROOT6) / 225],
            [(296 + 169 * ROOT6) / 1800, (88 + 7 * ROOT6) / 360, (-2 - 3 * ROOT6) / 225],
            [(16 - ROOT6) / 36, (16 + ROOT6) / 36, 1 / 9],
        ]
    ),
}


def staged(mass, stiffness, stages, step):
    """I x M + tau A x K."""
    one = scipy.sparse.identity(stages)
    return (scipy.sparse.kron(one, mass) + step * scipy.sparse.kron(RADAU[stages], stiffness)).tocsr()


@system("irk-heat-2d", (99,), dim=2, stages=2)
@system("irk-heat-3d", (18,), dim=3, stages=3)
def heat(n, dim, stages, step=0.01):
    """Heat, the stages' slopes k of a step: (I x M + tau A x K) k = 1 x (f - K u0), P1."""
    space = fem.FunctionSpace(unit(dim, n), ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    held = [fixed(space, boundary(dim))]
    mass = u * v * ufl.dx
    stiffness = assembled(ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx, held, 0.0)
    before = fem.Function(space)
    before.interpolate(lambda x: np.prod([np.sin(np.pi * x[i]) for i in range(dim)], axis=0) * (1 + np.sin(9 * x[0])))
    b = loaded(mass, v * ufl.dx, held) - stiffness @ before.x.array
    return staged(assembled(mass, held), stiffness, stages, step), np.tile(b, stages)


@system("irk-stokes-2d", (34,), dim=2)
@system("irk-stokes-3d", (7,), dim=3)
def stokes(n, dim, stages=2, step=0.1, viscosity=0.05):
    """Unsteady Stokes in a channel, the stages' slopes k of a step, P2-P1:
    (I x diag(M, 0) + tau A x [K, -B'; -B, 0]) k = 1 x f.
    """
    space = taylor_hood(unit(dim, n))
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    held = [fixed(space, walls(dim), 0)]
    mass = ufl.inner(u, v) * ufl.dx
    flow = viscosity * ufl.inner(ufl.grad(u), ufl.grad(v)) - p * ufl.div(v) - q * ufl.div(u)
    x = ufl.SpatialCoordinate(space.mesh)
    force = ufl.as_vector([ufl.sin(5 * x[1])] + [ufl.cos(4 * x[0])] * (dim - 1))
    b = loaded(mass, ufl.inner(force, v) * ufl.dx, held)
    return staged(assembled(mass, held), assembled(flow * ufl.dx, held, 0.0), stages, step), np.tile(b, stages)
