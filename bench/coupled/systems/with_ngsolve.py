"""Systems assembled by NGSolve, on unstructured meshes."""

import ngsolve as ng
import numpy as np
import scipy.sparse
from netgen.csg import unit_cube
from netgen.geom2d import unit_square

from systems.registry import system

ng.ngsglobals.msg_level = 0


def free_part(form, load, space, held=None):
    """Returns the system of the free unknowns, as for NGSolve's solvers; `held` has the other values."""
    form.Assemble()
    load.Assemble()
    rows, columns, values = form.mat.COO()
    a = scipy.sparse.csr_matrix((np.array(values), (np.array(rows), np.array(columns))), shape=(space.ndof,) * 2)
    b = np.array(load.vec)
    if held is not None:
        b = b - a @ np.array(held.vec)
    free = np.flatnonzero(np.array(list(space.FreeDofs())))
    return a[free][:, free], b[free]


@system("ngsolve-stokes-2d", (0.0217,), dim=2, inflow=True)
@system("ngsolve-stokes-3d", (0.12,), dim=3, inflow=False)
@system("ngsolve-stokes-3d-inflow", (0.12,), dim=3, inflow=True, truthful=(0,))
def stokes(h, dim, inflow):
    """Stokes by NGSolve, P2-P1: -laplace u + grad p = f, -div u = 0, a channel; 3D has empty pressure rows.

    A corner pressure whose cells all lie on walls is coupled to no free velocity: NGSolve stores zeros in its
    row. If a force drives the flow, b is zero there. With an inflow it is not: no x solves that system, and
    the correct result is to report that.
    """
    plane = dim == 2
    mesh = ng.Mesh((unit_square if plane else unit_cube).GenerateMesh(maxh=h))
    # What netgen calls the faces x = 0 and x = 1.
    entry, exit_ = ("left", "right") if plane else ("back", "front")
    walls = "|".join(name for name in dict.fromkeys(mesh.GetBoundaries()) if name != exit_)
    space = ng.VectorH1(mesh, order=2, dirichlet=walls) * ng.H1(mesh, order=1)
    (u, p), (v, q) = space.TnT()
    form = ng.BilinearForm(space)
    form += (ng.InnerProduct(ng.Grad(u), ng.Grad(v)) - p * ng.div(v) - q * ng.div(u)) * ng.dx
    load, flow = ng.LinearForm(space), ng.GridFunction(space)
    rest = [ng.CF(0)] * (dim - 1)
    if inflow:
        flow.components[0].Set(ng.CF((4 * ng.y * (1 - ng.y), *rest)), definedon=mesh.Boundaries(entry))
    else:
        load += ng.InnerProduct(ng.CF((ng.sin(5 * ng.y), *rest)), v) * ng.dx
    return free_part(form, load, space, flow)


@system("plate-hhj", (0.0297,))
def hhj(h, order=2):
    """Plate by Hellan, Herrmann and Johnson, moments and deflection, simply supported: sigma + hesse w = 0,
    div div sigma = f.
    """
    mesh = ng.Mesh(unit_square.GenerateMesh(maxh=h))
    space = ng.HDivDiv(mesh, order=order - 1) * ng.H1(mesh, order=order, dirichlet=".*")
    (sigma, w), (tau, v) = space.TnT()
    n = ng.specialcf.normal(2)

    def tangential(z):
        return z - (z * n) * n

    form = ng.BilinearForm(space)
    form += (ng.InnerProduct(sigma, tau) + ng.div(sigma) * ng.grad(v) + ng.div(tau) * ng.grad(w)) * ng.dx
    edges = ng.dx(element_boundary=True)
    form += (-(sigma * n) * tangential(ng.grad(v)) - (tau * n) * tangential(ng.grad(w))) * edges
    load = ng.LinearForm(space)
    load += -10 * v * ng.dx
    return free_part(form, load, space)
