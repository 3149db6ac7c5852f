"""Dirichlet values by penalty: a number of 1e10 to 1e30 on the diagonal, as FreeFem does it."""

import numpy as np
from ngsolve import CF, H1, Grad, InnerProduct, Sym, VectorH1, div, dx, exp, grad, sin, specialcf, sqrt, x, y

import ngs
from common import PENALTY, System, laplacian, penalised
from flows import INFLOW, taylor_hood


def stokes_tgv():
    """Taylor-Hood with an inflow by penalty and -1e-10 in the pressure block."""
    space, pressure = taylor_hood(ngs.square(0.022), "left|top|bottom")
    (u, p), (v, q) = space.TnT()
    a = ngs.matrix(space, (InnerProduct(Grad(u), Grad(v)) - div(u) * q - div(v) * p - 1e-10 * p * q) * dx)
    values = ngs.boundary(space, 0, INFLOW, "left")
    a, b = penalised(a, np.zeros(space.ndof), ngs.free(space), values)
    return System(a, b, ngs.fields(space, u=[0], p=[1]), {"Mp": ngs.mass(pressure)})


def biot_tgv():
    """A poroelastic step: displacement and pressure of 0.01 by penalties of either sign."""
    mesh = ngs.cube(0.17)
    space = VectorH1(mesh, order=2, dirichlet="bottom|left") * H1(mesh, order=1, dirichlet="top")
    (u, p), (v, q) = space.TnT()
    solid = 2 * InnerProduct(Sym(Grad(u)), Sym(Grad(v))) + 2 * div(u) * div(v)
    step = solid - p * div(v) - q * div(u) - 1e-6 * p * q - 1e-5 * grad(p) * grad(q)
    a, b, free = ngs.matrix(space, step * dx), ngs.load(space, CF((0, 0, -1)) * v * dx), ngs.free(space)
    penalty = np.full(space.ndof, PENALTY)
    penalty[ngs.part(space, [1])] *= -1
    a, b = penalised(a, b, free, np.where(free, 0, 1e-2), penalty)
    return System(a, b, ngs.fields(space, u=[0], p=[1]))


def poisson_tgv():
    """Five-point Poisson; the first line of points has values from 0 to 1."""
    n = 150
    free, values = np.ones(n * n, bool), np.zeros(n * n)
    free[:n], values[:n] = False, np.linspace(0, 1, n)
    return System(*penalised(laplacian(n, n), np.full(n * n, 1e-3), free, values))


def diff3d_tgv():
    """Linear elements, a coefficient that varies by exp(4), and values from 0 to 1 on two sides."""
    space = H1(ngs.cube(0.05), order=1, dirichlet="left|bottom")
    u, v = space.TnT()
    a, free = ngs.matrix(space, exp(2 * sin(9 * x)) * grad(u) * grad(v) * dx), ngs.free(space)
    values = np.where(free, 0, np.linspace(0, 1, space.ndof))
    return System(*penalised(a, ngs.load(space, v * dx), free, values))


def h1_p6_aniso():
    """Elements of degree 6 (a hierarchical basis), anisotropy 1e5, zeros by a penalty of 1e10."""
    space = H1(ngs.square(0.045), order=6, dirichlet="left")
    u, v = space.TnT()
    a = ngs.matrix(space, (grad(u)[0] * grad(v)[0] + 1e-5 * grad(u)[1] * grad(v)[1]) * dx)
    return System(*penalised(a, ngs.load(space, v * dx), ngs.free(space), penalty=1e10))


def supg3d_rot_pen():
    """Streamline diffusion in a turning flow without much diffusion, zeros by a penalty of 1e15."""
    space = H1(ngs.cube(0.032), order=1, dirichlet="left|bottom")
    u, v = space.TnT()
    wind = CF((y - 0.5, -(x - 0.5), 0.2))
    delay = specialcf.mesh_size / 2 / sqrt(wind * wind + 1e-6)
    along = wind * grad(v)
    a = ngs.matrix(space, (1e-6 * grad(u) * grad(v) + wind * grad(u) * (v + delay * along)) * dx)
    b = ngs.load(space, (v + delay * along) * dx)
    return System(*penalised(a, b, ngs.free(space), penalty=1e15))
