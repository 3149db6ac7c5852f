"""Transport of a scalar with little diffusion."""

import ufl
from dolfinx import fem

from systems.registry import system
from systems.tools import boundary, discretised, fixed, unit


@system("supg-2d-rotating", (141,), dim=2)
@system("supg-2d-straight", (141,), dim=2, rotating=False)
@system("supg-3d", (26, 46), dim=3)
def supg(n, dim, rotating=True, diffusion=1e-6):
    """Advection and diffusion, P1 with SUPG: -eps laplace u + w . grad u = f, u = 0 on the boundary."""
    grid = unit(dim, n)
    space = fem.FunctionSpace(grid, ("CG", 1))
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    x = ufl.SpatialCoordinate(grid)
    if rotating:
        # Round the middle; in space up or down as well, so that nothing goes round for ever.
        wind = [x[1] - 0.5, 0.5 - x[0]] + [0.2 + 0 * x[0]] * (dim - 2)
    else:
        wind = [1.0 + 0 * x[0], 0.5 + 0 * x[0], 0.25 + 0 * x[0]][:dim]
    w = ufl.as_vector(wind)
    along = ufl.dot(w, ufl.grad(u))
    h, speed = 1.0 / n, ufl.sqrt(ufl.dot(w, w) + 1e-12)
    tau = 1 / ufl.sqrt((2 * speed / h) ** 2 + (12 * diffusion / h**2) ** 2)
    tested = v + tau * ufl.dot(w, ufl.grad(v))
    form = (diffusion * ufl.inner(ufl.grad(u), ufl.grad(v)) + along * tested) * ufl.dx
    source = ufl.exp(-60 * sum((x[i] - 0.3) ** 2 for i in range(dim)))
    return discretised(form, source * tested * ufl.dx, [fixed(space, boundary(dim))])
