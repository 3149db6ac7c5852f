"""Flow in porous rock, mixed."""

import numpy as np
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import by_cells, discretised, ends, fixed_facets, unit


@system("darcy2d", (64, 142), dim=2)
@system("darcy3d", (11, 18), dim=3)
def darcy(n, dim, contrast=1e4):
    """Darcy, RT0-P0: w / k + grad p = 0, -div w = 0; smooth random permeability, two open faces."""
    grid = unit(dim, n)
    cell = grid.ufl_cell()
    space = fem.FunctionSpace(
        grid, ufl.MixedElement([ufl.FiniteElement("RT", cell, 1), ufl.FiniteElement("DG", cell, 0)])
    )
    (w, p), (t, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    resistance = by_cells(grid, lambda centres: np.exp(-np.log(contrast) / 5 * field(centres)))
    form = (resistance * ufl.inner(w, t) - p * ufl.div(t) - q * ufl.div(w)) * ufl.dx
    x = ufl.SpatialCoordinate(grid)
    load = -ufl.conditional(ufl.lt(x[0], 1e-8), 1.0, 0.0) * ufl.inner(t, ufl.FacetNormal(grid)) * ufl.ds
    walls = fixed_facets(space, lambda x: np.any([ends(x, axis) for axis in range(1, dim)], axis=0), 0)
    return discretised(form, load, [walls])


def field(centres):
    """A sum of twelve waves, of variance about one."""
    random = np.random.default_rng(0)
    waves = [np.cos(centres @ (random.normal(size=3) * 12) + random.uniform(0, 6.3)) for _ in range(12)]
    return sum(waves) / np.sqrt(6)
