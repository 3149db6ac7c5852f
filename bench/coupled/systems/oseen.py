"""Linear systems of Navier-Stokes: a Picard (Oseen) or Newton step, about a flow from a few Picard steps.

A fluid enters a box by the upper half of one face, as behind a step, and leaves by the opposite face. Re is
based on the width of the box and the largest speed.
"""

import numpy as np
import ufl
from dolfinx import fem
from petsc4py import PETSc

from systems.registry import system
from systems.stokes import walls
from systems.tools import constant, discretised, fixed, part, taylor_hood, unit


def jet(dim):
    """The speed at x = 0: a parabola above y = 1/2, and across z."""

    def values(x):
        speed = np.where(np.isclose(x[0], 0) & (x[1] > 0.5), 16 * (x[1] - 0.5) * (1 - x[1]), 0.0)
        if dim == 3:
            speed = speed * 4 * x[2] * (1 - x[2])
        return np.vstack([speed] + [0 * x[0]] * (dim - 1))

    return values


def solved(a, b, options):
    """x by PETSc, only to find the flow to linearise about."""
    matrix = PETSc.Mat().createAIJ(a.shape, csr=(a.indptr, a.indices, a.data))
    solver = PETSc.KSP().create()
    solver.setOperators(matrix)
    for key, value in options.items():
        PETSc.Options()[key] = value
    solver.setFromOptions()
    for key in options:
        PETSc.Options().delValue(key)
    x, right = matrix.createVecs()
    right.array[:] = b
    solver.solve(right, x)
    assert solver.getConvergedReason() > 0, f"the flow was not found: {solver.getConvergedReason()}"
    return x.array.copy()


def linearised(space, form, dim, picard, newton, options):
    """The system of the next step after `picard` steps; `form(w, newton)` is the form about a flow w."""
    inflow = fem.Function(part(space, 0))
    inflow.interpolate(jet(dim))
    conditions = [fixed(space, walls(dim), 0, inflow)]
    flow = fem.Function(space)
    for _ in range(picard):
        flow.x.array[:] = solved(*discretised(*form(flow, False), conditions), options)
    return discretised(*form(flow, newton), conditions)


@system("oseen-th-2d-re100", (48,), dim=2, reynolds=100)
@system("newton-th-2d-re500", (48,), dim=2, reynolds=500, newton=True)
@system("oseen-th-3d-re100", (9,), dim=3, reynolds=100)
def taylor_hood_flow(n, dim, reynolds, newton=False):
    """Oseen, Taylor-Hood: -laplace u / Re + (w . grad) u + grad p = 0, -div u = 0;
    Newton's step adds (u . grad) w.
    """
    space = taylor_hood(unit(dim, n))
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)

    def form(flow, newton):
        w = ufl.split(flow)[0]
        left = ufl.inner(ufl.grad(u), ufl.grad(v)) / reynolds + ufl.inner(ufl.dot(ufl.grad(u), w), v)
        left += -p * ufl.div(v) - q * ufl.div(u)
        right = constant(space.mesh, float(newton)) * ufl.inner(ufl.dot(ufl.grad(w), w), v)
        if newton:
            left += ufl.inner(ufl.dot(ufl.grad(w), u), v)
        return left * ufl.dx, right * ufl.dx

    lu = {"ksp_type": "preonly", "pc_type": "lu", "pc_factor_mat_solver_type": "mumps", "mat_mumps_icntl_14": 80}
    return linearised(space, form, dim, 4 if newton else 2, newton, lu)


@system("oseen-p1p1-2d-re500", (83,), dim=2, reynolds=500)
@system("oseen-p1p1-3d-re500", (17, 29), dim=3, reynolds=500)
def equal_order_flow(n, dim, reynolds):
    """Oseen, P1-P1 with SUPG, PSPG and LSIC: -laplace u / Re + (w . grad) u + grad p = 0, div u = 0."""
    grid = unit(dim, n)
    cell = grid.ufl_cell()
    pair = ufl.MixedElement([ufl.VectorElement("CG", cell, 1), ufl.FiniteElement("CG", cell, 1)])
    space = fem.FunctionSpace(grid, pair)
    (u, p), (v, q) = ufl.TrialFunctions(space), ufl.TestFunctions(space)

    def form(flow, newton):
        w = ufl.split(flow)[0]
        # The side of the square or cube that a cell is cut from.
        h, speed = 1.0 / n, ufl.sqrt(ufl.dot(w, w) + 1e-12)
        tau = 1 / ufl.sqrt((2 * speed / h) ** 2 + (12 / reynolds / h**2) ** 2)
        along = ufl.dot(ufl.grad(u), w)
        left = ufl.inner(ufl.grad(u), ufl.grad(v)) / reynolds + ufl.inner(along, v) - p * ufl.div(v) + q * ufl.div(u)
        left += tau * ufl.inner(along + ufl.grad(p), ufl.dot(ufl.grad(v), w) + ufl.grad(q))
        left += speed * h / 2 * ufl.div(u) * ufl.div(v)
        return left * ufl.dx, constant(grid, 0.0) * q * ufl.dx

    ilu = {"ksp_type": "gmres", "ksp_gmres_restart": 150, "ksp_rtol": 1e-5, "pc_type": "ilu", "pc_factor_levels": 1}
    return linearised(space, form, dim, 2, False, ilu)
