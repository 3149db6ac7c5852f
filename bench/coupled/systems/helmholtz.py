"""Waves of one frequency."""

import numpy as np
import scipy.sparse
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import assembled, boundary, discretised, fixed, loaded, unit


def source(x, dim):
    return ufl.exp(-200 * sum((x[i] - 0.4) ** 2 for i in range(dim)))


@system("helmholtz-2d", (141,), dim=2, wave=40.3)
@system("helmholtz-3d", (26,), dim=3, wave=10.7)
def closed(n, dim, wave):
    """Helmholtz, indefinite: -laplace u - k^2 u = f, P1, u = 0 on the boundary."""
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    form = (ufl.inner(ufl.grad(u), ufl.grad(v)) - wave**2 * u * v) * ufl.dx
    load = source(ufl.SpatialCoordinate(grid), dim) * v * ufl.dx
    return discretised(form, load, [fixed(space, boundary(dim))])


@system("helmholtz-impedance-2d", (99,), dim=2, wave=40.3)
@system("helmholtz-impedance-3d", (20,), dim=3, wave=10.7)
def impedance(n, dim, wave):
    """Helmholtz with an impedance boundary, du/dn = i k u, as real blocks [S, k B; -k B, S] of the nodes,
    S = K - k^2 M; real and imaginary parts interleaved.
    """
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    form = (ufl.inner(ufl.grad(u), ufl.grad(v)) - wave**2 * u * v) * ufl.dx
    inside, outside = assembled(form), assembled(u * v * ufl.ds)
    a = scipy.sparse.kron(inside, np.eye(2)) + wave * scipy.sparse.kron(outside, [[0, 1], [-1, 0]])
    load = loaded(form, source(ufl.SpatialCoordinate(grid), dim) * v * ufl.dx)
    return a.tocsr(), np.kron(load, [1.0, 0.0])
