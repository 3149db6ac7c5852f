"""Linear elasticity in 3-D: a clamped bar under its weight."""

import numpy as np
import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import bar, discretised, fixed, lame, strain, taylor_hood


def clamped(x):
    return np.isclose(x[0], 0)


@system("elast-p1-nu0.3", (14, 24, 36), degree=1, poisson=0.3)
@system("elast-p2-nu0.3", (7, 12), degree=2, poisson=0.3)
@system("elast-p1-nu0.4999", (14, 24), degree=1, poisson=0.4999)
@system("elast-p2-nu0.4999", (7, 12), degree=2, poisson=0.4999)
def displacement(n, degree, poisson):
    """Elasticity in the displacement: -div(2 mu eps(u) + lambda div(u) I) = f; unknowns interleaved."""
    space = fem.VectorFunctionSpace(bar(n), ("CG", degree))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    mu, lam = lame(1.0, poisson)
    form = (2 * mu * ufl.inner(strain(u), strain(v)) + lam * ufl.div(u) * ufl.div(v)) * ufl.dx
    return discretised(form, -v[2] * ufl.dx, [fixed(space, clamped)])


@system("elast-mixed-nu0.4999", (7, 12), poisson=0.4999)
def mixed(n, poisson):
    """Elasticity in displacement and pressure, P2-P1:
    -div(2 mu eps(u)) + grad p = f, -div u - p / lambda = 0.
    """
    space = taylor_hood(bar(n))
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)
    mu, lam = lame(1.0, poisson)
    form = (2 * mu * ufl.inner(strain(u), strain(v)) - p * ufl.div(v) - q * ufl.div(u) - p * q / lam) * ufl.dx
    return discretised(form, -v[2] * ufl.dx, [fixed(space, clamped, 0)])
