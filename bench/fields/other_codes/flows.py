"""Incompressible flows: finite elements with NGSolve, and a finite-volume system."""

import numpy as np
import scipy.sparse as sp
from netgen.geom2d import SplineGeometry
from ngsolve import (
    CF,
    H1,
    L2,
    FESpace,
    Grad,
    GridFunction,
    IfPos,
    InnerProduct,
    LinearForm,
    Mesh,
    NumberSpace,
    Sym,
    VectorH1,
    div,
    ds,
    dx,
    exp,
    grad,
    sin,
    specialcf,
    x,
    y,
    z,
)

import ngs
from common import (
    System,
    eliminated,
    from_parts,
    graph_laplacian,
    identity_rows,
    neighbours,
    symmetric_identity_rows,
)

INFLOW = CF((4 * y * (1 - y), 0))


def taylor_hood(mesh, dirichlet):
    velocity, pressure = VectorH1(mesh, order=2, dirichlet=dirichlet), H1(mesh, order=1)
    return velocity * pressure, pressure


def strain_product(u, v):
    return InnerProduct(Sym(Grad(u)), Sym(Grad(v)))


def stokes_cr3d():
    """Crouzeix-Raviart elements with constant pressures."""
    mesh = ngs.cube(0.09)
    scalar = FESpace("nonconforming", mesh, dirichlet="left|top|bottom|front|back")
    pressure = L2(mesh, order=0)
    space = FESpace([scalar, scalar, scalar, pressure])
    *u, p = space.TrialFunction()
    *v, q = space.TestFunction()
    divergence = lambda w: sum(grad(w[k])[k] for k in range(3))
    stress = sum(grad(u[k]) * grad(v[k]) for k in range(3))
    a = ngs.matrix(space, (stress - divergence(u) * q - divergence(v) * p) * dx)
    b = ngs.load(space, 10 * x * v[1] * dx, sin(5 * y) * v[2] * dx)
    a, b = symmetric_identity_rows(a, b, ngs.free(space))
    return System(a, b, ngs.fields(space, u=[0, 1, 2], p=[3]), {"Mp": ngs.mass(pressure)})


def stokes_p2p0_mean():
    """A lid-driven cavity with P2-P0 elements. A multiplier, one dense row, makes the mean pressure zero."""
    mesh = ngs.square(0.013)
    space = VectorH1(mesh, order=2, dirichlet=".*") * L2(mesh, order=0) * NumberSpace(mesh)
    (u, p, mean), (v, q, r) = space.TnT()
    flow = 2 * strain_product(u, v) - div(u) * q - div(v) * p
    a = ngs.matrix(space, (flow + mean * q + r * p) * dx)
    free, lid = ngs.free(space), ngs.boundary(space, 0, CF((1, 0)), "top")
    a, b = eliminated(a, np.zeros(space.ndof), free, lid)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1, 2]))


def stokes_pspg3d():
    """Linear elements with pressure stabilisation; rows of the identity; interleaved."""
    mesh, mu, h = ngs.cube(0.05), 1e-3, specialcf.mesh_size
    space = VectorH1(mesh, order=1, dirichlet="left|top|bottom|front|back") * H1(mesh, order=1)
    (u, p), (v, q) = space.TnT()
    flow = mu * InnerProduct(Grad(u), Grad(v)) - div(v) * p + div(u) * q
    a = ngs.matrix(space, (flow + h * h / (12 * mu) * grad(p) * grad(q)) * dx)
    b = ngs.load(space, CF((z, sin(4 * x), 0)) * v * dx)
    a, b = identity_rows(a, b, ngs.free(space))
    order = np.arange(space.ndof).reshape(4, -1).T.ravel()
    return System(a, b, ngs.fields(space, u=[0], p=[1])).reordered(order)


def stokes_slip_mult():
    """Taylor-Hood with a viscosity that varies by 1e4. Multipliers impose slip; the order is random."""
    geometry = SplineGeometry()
    geometry.AddRectangle((0, 0), (2, 1), bcs=["bottom", "right", "top", "left"])
    geometry.AddCircle((0.7, 0.45), 0.2, leftdomain=0, rightdomain=1, bc="circle")
    mesh, slip = Mesh(geometry.GenerateMesh(maxh=0.02)), "circle|bottom"
    mesh.Curve(2)
    velocity, pressure = VectorH1(mesh, order=2, dirichlet="left|top"), H1(mesh, order=1)
    space = velocity * pressure * H1(mesh, order=1, definedon=mesh.Boundaries(slip), dirichlet_bbnd="")
    (u, p, s), (v, q, t) = space.TnT()
    mu, normal = exp(-9.2 * x * y), specialcf.normal(2)
    inside = (2 * mu * strain_product(u, v) - div(u) * q - div(v) * p) * dx
    wall = (s * (v.Trace() * normal) + t * (u.Trace() * normal)) * ds(slip)
    a = ngs.matrix(space, inside, wall)
    used = np.asarray(abs(a).sum(1)).ravel() > 0
    free = ngs.free(space) & used
    a, b = eliminated(a, np.zeros(space.ndof), free, ngs.boundary(space, 0, CF((y, 0)), "left"))
    return System(a, b, ngs.fields(space, free, u=[0], p=[1, 2])).shuffled()


def stokes3d_encl_1e4():
    """An enclosed flow, a ball of 1e4 times the viscosity. Six pressures have rows of stored zeros only."""
    mesh = ngs.cube(0.095)
    space, pressure = taylor_hood(mesh, ".*")
    (u, p), (v, q) = space.TnT()
    mu = IfPos(0.07 - ((x - 0.4) ** 2 + (y - 0.5) ** 2 + (z - 0.6) ** 2), 1e4, 1.0)
    a = ngs.matrix(space, (2 * mu * strain_product(u, v) - div(u) * q - div(v) * p) * dx)
    b, free = ngs.load(space, CF((0, 0, sin(6 * x))) * v * dx), ngs.free(space)
    a, b = eliminated(a, b, free)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1]), {"Mp": ngs.mass(pressure, 1 / mu)})


def brinkman_1e8():
    """Taylor-Hood with an inverse permeability of 0 and 1e8, in reverse Cuthill-McKee order."""
    space, _ = taylor_hood(ngs.square(0.021), "left|top|bottom")
    (u, p), (v, q) = space.TnT()
    drag = IfPos(sin(12 * x) * sin(14 * y), 1e8, 0.0)
    stokes = InnerProduct(Grad(u), Grad(v)) + drag * u * v - div(u) * q - div(v) * p
    a, free = ngs.matrix(space, stokes * dx), ngs.free(space)
    a, b = eliminated(a, np.zeros(space.ndof), free, ngs.boundary(space, 0, INFLOW, "left"))
    return System(a, b, ngs.fields(space, free, u=[0], p=[1])).by_bandwidth()


def oseen3d_dt():
    """A time step of Oseen at Reynolds number 200, with rows of the identity."""
    space, _ = taylor_hood(ngs.cube(0.1), "left|top|bottom|front")
    (u, p), (v, q) = space.TnT()
    wind = CF((z * (1 - z), x, -y))
    momentum = 5e-3 * InnerProduct(Grad(u), Grad(v)) + (Grad(u) * wind) * v + 10 * u * v
    a = ngs.matrix(space, (momentum - div(u) * q - div(v) * p) * dx)
    b = ngs.load(space, CF((0, 1, -1 + x)) * v * dx)
    a, b = identity_rows(a, b, ngs.free(space))
    return System(a, b, ngs.fields(space, u=[0], p=[1]))


def boussinesq():
    """The fourth Newton step of natural convection at Rayleigh number 5e4, with a mean-zero multiplier."""
    mesh, rayleigh, prandtl = ngs.square(0.028), 5e4, 0.71
    velocity, pressure = VectorH1(mesh, order=2, dirichlet=".*"), H1(mesh, order=1)
    space = velocity * pressure * H1(mesh, order=2, dirichlet="left|right") * NumberSpace(mesh)
    (u, p, t, mean), (v, q, s, r) = space.TnT()
    state = GridFunction(space)
    state.components[2].Set(1 - x, definedon=mesh.Boundaries("left|right"))
    walls = ngs.array(state.vec)
    diffusion = InnerProduct(Grad(u), Grad(v)) + 1 / prandtl * grad(t) * grad(s)
    linear = diffusion - div(u) * q - div(v) * p - rayleigh / prandtl * t * v[1] + mean * q + r * p
    flow, heat = state.components[0], state.components[2]
    for step in range(4):
        on = 1.0 if step else 0.0
        convection = (Grad(u) * flow) * v + (Grad(flow) * u) * v + flow * grad(t) * s + u * grad(heat) * s
        form = ngs.assembled(space, (linear + on * convection) * dx)
        rhs = LinearForm(space)
        rhs += on * ((Grad(flow) * flow) * v + flow * grad(heat) * s) * dx
        rhs.Assemble()
        if step == 3:
            break
        residual = rhs.vec.CreateVector()
        residual.data = rhs.vec - form.mat * state.vec
        state.vec.data += form.mat.Inverse(space.FreeDofs(), "umfpack") * residual
    free = ngs.free(space)
    a, b = eliminated(ngs.csr(form.mat), ngs.array(rhs.vec), free, walls)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1, 3], T=[2]))


def fv_pu_coupled():
    """Pressure and velocity of collocated finite volumes together (Rhie-Chow), cells in random order."""
    n, nu = 20, 1e-3
    cells, h = n**3, 1 / n
    number = np.arange(cells).reshape(n, n, n)
    at = (np.arange(n) + 0.5) / n
    zs, ys, xs = np.meshgrid(at, at, at, indexing="ij")
    wind = [np.sin(np.pi * xs) * np.cos(np.pi * ys), -np.cos(np.pi * xs) * np.sin(np.pi * ys)]
    wind = [w.ravel() for w in (*wind, 0.2 * np.sin(2 * np.pi * zs))]
    convection, stiffness, divergence = sp.csr_matrix((cells, cells)), sp.csr_matrix((cells, cells)), {}
    for axis, pairs in zip((2, 1, 0), neighbours(n, n, n), strict=True):
        i, j = pairs.T
        flux = 0.5 * (wind[axis][i] + wind[axis][j]) * h * h
        upwind = np.where(flux > 0, i, j)
        across = graph_laplacian(pairs, 1.0, cells)
        stiffness = stiffness + across
        convection = convection + from_parts([(i, upwind, flux), (j, upwind, -flux)], (cells, cells))
        convection = convection + nu * h * across
        area = 0.5 * h * h
        faces = [(i, i, area), (i, j, area), (j, i, -area), (j, j, -area)]
        divergence[axis] = from_parts(faces, (cells, cells))
        divergence[axis].eliminate_zeros()
    walls = np.zeros(cells)
    for axis in range(3):
        for end in (0, -1):
            walls[np.take(number, end, axis).ravel()] += 2 * nu * h
    unbalanced = np.maximum(-np.asarray(convection.sum(1)).ravel(), 0)
    momentum = convection + sp.diags(walls + 2 * h**3 + unbalanced)
    outlet = np.zeros(cells)
    outlet[number[:, :, -1].ravel()] = 1
    smoothing = h**4 / np.mean(momentum.diagonal())
    blocks = [[momentum if k == d else None for k in range(3)] + [-divergence[d].T] for d in range(3)]
    last = [divergence[0] + sp.diags(outlet * h * h), divergence[1], divergence[2]]
    a = sp.bmat([*blocks, [*last, smoothing * (stiffness + 2 * sp.diags(outlet))]])
    b = np.r_[np.full(cells, h**3), h**3 * np.cos(5 * ys).ravel(), np.zeros(2 * cells)]
    shuffled = np.random.default_rng(15).permutation(cells)
    return System(a, b).reordered((np.arange(4) * cells + shuffled[:, None]).ravel())
