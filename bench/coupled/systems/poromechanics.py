"""Solids with a fluid in their pores, or with heat."""

import numpy as np
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import (
    cube,
    discretised,
    ends,
    fixed,
    fixed_facets,
    lame,
    strain,
    taylor_hood,
    unit,
)


def top_load(grid, v, size):
    """The load on the upper face, down the last axis."""
    up = grid.topology.dim - 1
    above = ufl.conditional(ufl.gt(ufl.SpatialCoordinate(grid)[up], 1 - 1e-8), 1.0, 0.0)
    return -size * above * v[up] * ufl.ds


def solid_and_storage(u, p, v, q, constants):
    """The terms of Biot's equations without flow: elasticity, coupling and storage."""
    mu, lam, alpha, storage = constants
    return (
        2 * mu * ufl.inner(strain(u), strain(v))
        + lam * ufl.div(u) * ufl.div(v)
        - alpha * p * ufl.div(v)
        - alpha * q * ufl.div(u)
        - storage * p * q
    )


@system("biot2f-2d", (48, 104), dim=2)
@system("biot2f-3d", (9, 16), dim=3)
@system("biot2f-3d-si", (9, 16), dim=3, si=True)
def biot_two(n, dim, si=False):
    """Biot, one implicit Euler step, displacement P2 and pressure P1: -div sigma(u) + alpha grad p = f,
    -alpha div u - s p + tau div(k grad p) = 0; in units of one or in SI units.
    """
    grid = unit(dim, n)
    space = taylor_hood(grid)
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    mu, lam = lame(1e9 if si else 1.0, 0.25)
    alpha, storage, mobility = 0.9, 1e-10 if si else 1e-3, 1e-12 if si else 1e-6
    step, load = (1e3, 1e6) if si else (1.0, 1.0)
    form = (
        solid_and_storage(u, p, v, q, (mu, lam, alpha, storage))
        - step * mobility * ufl.inner(ufl.grad(p), ufl.grad(q))
    ) * ufl.dx
    held = fixed(space, lambda x: np.isclose(x[dim - 1], 0), 0)
    drained = fixed(space, lambda x: np.isclose(x[dim - 1], 1), 1)
    return discretised(form, top_load(grid, v, load), [held, drained])


@system("biot3f-2d", (40, 90), dim=2)
@system("biot3f-3d", (11, 18), dim=3)
def biot_three(n, dim):
    """Biot, one implicit Euler step, displacement P2 (P1 in 3-D), flux RT0 and pressure P0:
    -div sigma(u) + alpha grad p = f, tau (w / k + grad p) = 0, -alpha div u - s p - tau div w = 0.
    """
    grid = unit(dim, n)
    cell = grid.ufl_cell()
    solid = ufl.VectorElement("CG", cell, 2 if dim == 2 else 1)
    flow = [ufl.FiniteElement("RT", cell, 1), ufl.FiniteElement("DG", cell, 0)]
    space = fem.FunctionSpace(grid, ufl.MixedElement([solid, *flow]))
    (u, w, p), (v, t, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    mu, lam, alpha, storage, mobility, step = 0.4, 0.4, 0.9, 1e-3, 1e-6, 1.0
    form = (
        solid_and_storage(u, p, v, q, (mu, lam, alpha, storage))
        + step / mobility * ufl.inner(w, t)
        - step * p * ufl.div(t)
        - step * q * ufl.div(w)
    ) * ufl.dx
    held = fixed(space, lambda x: np.isclose(x[dim - 1], 0), 0)
    tight = fixed_facets(space, lambda x: ends(x, 0) | np.isclose(x[dim - 1], 0), 1)
    return discretised(form, top_load(grid, v, 1.0), [held, tight])


@system("thermo-oneway", (16, 28), coupled=False)
@system("thermo-coupled", (16, 28), coupled=True)
def thermo(n, coupled):
    """Thermo-elasticity of steel in SI units, P1-P1, one implicit Euler step: -div(sigma(u) - beta T I) = f,
    rho T - tau kappa laplace T + T0 beta div u = q; one way without the last term.
    """
    grid = cube(n)
    cell = grid.ufl_cell()
    pair = ufl.MixedElement([ufl.VectorElement("CG", cell, 1), ufl.FiniteElement("CG", cell, 1)])
    space = fem.FunctionSpace(grid, pair)
    (u, t), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    mu, lam = lame(2.1e11, 0.3)
    beta = 1.2e-5 * (3 * lam + 2 * mu)
    conductivity, capacity, temperature, step = 50.0, 3.9e6, 293.0, 1.0
    form = (2 * mu * ufl.inner(strain(u), strain(v)) + lam * ufl.div(u) * ufl.div(v) - beta * t * ufl.div(v)) * ufl.dx
    form += (capacity * t * q + step * conductivity * ufl.inner(ufl.grad(t), ufl.grad(q))) * ufl.dx
    if coupled:
        form += temperature * beta * ufl.div(u) * q * ufl.dx
    x = ufl.SpatialCoordinate(grid)
    near = ufl.exp(-50 * ((x[0] - 0.5) ** 2 + (x[1] - 0.5) ** 2 + (x[2] - 0.8) ** 2))
    load = step * 1e6 * near * q * ufl.dx - 7.8e4 * v[2] * ufl.dx
    return discretised(form, load, [fixed(space, lambda x: np.isclose(x[2], 0), i) for i in (0, 1)])
