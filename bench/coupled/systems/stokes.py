"""Stokes flow by Taylor-Hood elements P2-P1."""

import numpy as np
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import (
    boundary,
    by_cells,
    constant,
    discretised,
    ends,
    fixed,
    part,
    taylor_hood,
    unit,
)


@system("stokes2d", (48, 104), dim=2)
@system("stokes2d-eta1e6", (48, 104), dim=2, contrast=1e6)
@system("stokes2d-lid", (48, 104), dim=2, enclosed=True)
@system("stokes3d", (9, 16), dim=3)
@system("stokes3d-eta1e6", (9,), dim=3, contrast=1e6)  # of 113 k unknowns MUMPS takes 202 CPU s
@system("stokes3d-lid", (9, 16), dim=3, enclosed=True)
def stokes(n, dim, contrast=1.0, enclosed=False):
    """Stokes: -div(2 eta eps(u)) + grad p = f, -div u = 0; a channel with outflow or a lid-driven box.

    `contrast` is the viscosity of eight round bodies in a fluid of viscosity 1. In an enclosed flow the
    constant pressure is in the null space, and the solver is not told.
    """
    grid = unit(dim, n)
    space = taylor_hood(grid)
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    x = ufl.SpatialCoordinate(grid)
    eta = by_cells(grid, lambda centres: bodies(centres[:, :dim], contrast)) if contrast > 1 else 1.0
    form = (2 * eta * ufl.inner(ufl.sym(ufl.grad(u)), ufl.sym(ufl.grad(v))) - p * ufl.div(v) - q * ufl.div(u)) * ufl.dx
    # A constant of the mesh, for a form of plain zeros has no mesh.
    size = constant(grid, 0.0 if enclosed else 1.0)
    force = size * ufl.as_vector([0.0] * (dim - 1) + [-1.0]) * ufl.sin(3 * x[0])
    velocity = fem.Function(part(space, 0))
    velocity.interpolate(lid(dim) if enclosed else inflow(dim))
    where = boundary(dim) if enclosed else walls(dim)
    return discretised(form, ufl.inner(force, v) * ufl.dx, [fixed(space, where, 0, velocity)])


def bodies(centres, contrast):
    middles = np.random.default_rng(1).uniform(0.15, 0.85, (8, centres.shape[1]))
    values = np.ones(len(centres))
    for middle in middles:
        values[((centres - middle) ** 2).sum(1) < 0.1**2] = contrast
    return values


def lid(dim):
    """The last axis's upper face moves along the first."""
    return lambda x: np.vstack([np.where(np.isclose(x[dim - 1], 1), 1.0, 0)] + [0 * x[0]] * (dim - 1))


def inflow(dim):
    return lambda x: np.vstack([np.where(np.isclose(x[0], 0), 4 * x[1] * (1 - x[1]), 0)] + [0 * x[0]] * (dim - 1))


def walls(dim):
    """All but the inner part of the outflow, the face x = 1."""

    def there(x):
        sides = np.any([ends(x, axis) for axis in range(1, dim)], axis=0)
        return sides | np.isclose(x[0], 0)

    return there
