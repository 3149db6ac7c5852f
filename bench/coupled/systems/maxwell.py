"""Fields in H(curl)."""

import numpy as np
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import boundary, by_cells, cube, discretised, fixed_facets


@system("maxwell-eps1e-2", (14, 23), eps=1e-2)
@system("maxwell-eps1e-6", (14, 23), eps=1e-6)
@system("maxwell-eps1e-4-anyJ", (14, 23), eps=1e-4, solenoidal=False)
@system("magnetostatic-iron", (14, 23), eps=1e-6, iron=1e3)
def maxwell(n, eps, iron=1.0, solenoidal=True):
    """Maxwell: curl(nu curl u) + eps u = J, lowest-order edge elements; nu is 1 / iron in an inner cube."""
    grid = cube(n)
    space = fem.FunctionSpace(grid, ("N1curl", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    nu = by_cells(grid, lambda centres: np.where(np.abs(centres - 0.5).max(1) < 0.25, 1 / iron, 1.0))
    form = (nu * ufl.inner(ufl.curl(u), ufl.curl(v)) + eps * ufl.inner(u, v)) * ufl.dx
    x = ufl.SpatialCoordinate(grid)
    if solenoidal:
        current = ufl.as_vector([-(x[1] - 0.5), x[0] - 0.5, 0 * x[0]])
    else:
        current = ufl.as_vector([1 + x[0] * x[0], ufl.sin(3 * x[1]), x[0]])
    return discretised(form, ufl.inner(current, v) * ufl.dx, [fixed_facets(space, boundary(3))])
