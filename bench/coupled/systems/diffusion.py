"""Diffusion of a scalar: high order, anisotropy, jumps, and nothing held."""

import numpy as np
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import boundary, by_cells, discretised, fixed, unit


def waves(x, dim):
    return sum(ufl.cos((i + 2) * np.pi * x[i]) for i in range(dim)) + x[0]


@system("poisson-p3-3d", (None, 15), dim=3, degree=3)
@system("poisson-p4-2d", (35,), dim=2, degree=4)
@system("poisson-p4-3d", (7,), dim=3, degree=4)
def poisson(n, dim, degree):
    """Poisson of high order: -laplace u = f, u = 0 on the boundary."""
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", degree))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    load = waves(ufl.SpatialCoordinate(grid), dim) * v * ufl.dx
    return discretised(ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx, load, [fixed(space, boundary(dim))])


@system("anisotropy-3d", (None, 46), ratio=1e4)
def anisotropy(n, ratio):
    """Anisotropic diffusion, P1: -div(D grad u) = f, D = I + (ratio - 1) d d', d across the grid's axes."""
    grid = unit(3, n)
    space = fem.FunctionSpace(grid, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    direction = np.array([3.0, 2.0, 1.0]) / np.sqrt(14)
    tensor = ufl.as_matrix((np.eye(3) + (ratio - 1) * np.outer(direction, direction)).tolist())
    form = ufl.inner(tensor * ufl.grad(u), ufl.grad(v)) * ufl.dx
    load = waves(ufl.SpatialCoordinate(grid), 3) * v * ufl.dx
    return discretised(form, load, [fixed(space, boundary(3))])


@system("jumps-2d", (141,), dim=2)
@system("jumps-3d", (26,), dim=3)
def jumps(n, dim, contrast=1e8):
    """Jumping diffusion, P1: -div(k grad u) = f; 8 boxes per side have random k from 1 to the contrast."""
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    drawn = contrast ** np.random.default_rng(2).uniform(0, 1, (8,) * dim)
    k = by_cells(grid, lambda centres: drawn[tuple(np.minimum((8 * centres[:, :dim]).astype(int), 7).T)])
    load = waves(ufl.SpatialCoordinate(grid), dim) * v * ufl.dx
    return discretised(k * ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx, load, [fixed(space, boundary(dim))])


@system("neumann-2d", (141,), dim=2, degree=1)
@system("neumann-p2-3d", (13,), dim=3, degree=2)
def neumann(n, dim, degree):
    """Poisson with nothing held, du/dn = 0: singular; b is consistent, and nobody tells of the constant."""
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", degree))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    load = waves(ufl.SpatialCoordinate(grid), dim) * v * ufl.dx
    a, b = discretised(ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx, load)
    return a, b - b.mean()
