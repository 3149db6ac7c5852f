"""Systems that nobody holds, or that rows of means hold, and fields in SI units."""

import numpy as np
import scipy.sparse as sp
from netgen.csg import CSGeometry, OrthoBrick, Pnt
from netgen.geom2d import SplineGeometry
from ngsolve import (
    CF,
    H1,
    BilinearForm,
    Det,
    Grad,
    GridFunction,
    Id,
    InnerProduct,
    Mesh,
    NumberSpace,
    Sym,
    Variation,
    VectorH1,
    cos,
    div,
    ds,
    dx,
    grad,
    log,
    sin,
    specialcf,
    x,
    y,
    z,
)

import ngs
from common import System, eliminated, from_parts, graph_laplacian, neighbours


def stokes_control():
    """The control of an enclosed flow: velocity, pressure, their adjoints, and a mean value of each pressure."""
    beta = 1e-6
    mesh = ngs.square(0.022)
    velocity, pressure, mean = VectorH1(mesh, order=2, dirichlet=".*"), H1(mesh, order=1), NumberSpace(mesh)
    space = velocity * pressure * velocity * pressure * mean * mean
    (u, p, w, r, l, m), (v, q, t, s, k, n) = space.TnT()
    form = u * v + InnerProduct(Grad(w), Grad(v)) - div(v) * r - div(u) * s
    form += InnerProduct(Grad(u), Grad(t)) - div(t) * p - div(w) * q - 1 / beta * w * t
    form += l * q + k * p + m * s + n * r
    a, free = ngs.matrix(space, form * dx), ngs.free(space)
    a, b = eliminated(a, ngs.load(space, CF((sin(7 * y) * x, cos(5 * x))) * v * dx), free)
    return System(a, b, ngs.fields(space, free, u=[0, 2], p=[1, 3, 4, 5]))


def hyper_free():
    """A twisted bar of rubber that nothing holds: translations are null vectors, and forces balance."""
    ratio, turn = 1e4, 0.5
    geometry = CSGeometry()
    geometry.Add(OrthoBrick(Pnt(-0.5, -0.5, 0), Pnt(0.5, 0.5, 3)))
    mesh = Mesh(geometry.GenerateMesh(maxh=0.16))
    space = VectorH1(mesh, order=2) * H1(mesh, order=1)
    u, p = space.TrialFunction()
    strain = Id(3) + Grad(u)
    volume = Det(strain)
    energy = 0.5 * (InnerProduct(strain, strain) - 3) - log(volume) + p * (volume - 1) - p * p / (2 * ratio)
    form = BilinearForm(space, symmetric=False)
    form += Variation(energy * dx)
    state = GridFunction(space)
    angle = turn * z
    turned = [x * cos(angle) - y * sin(angle) - x, x * sin(angle) + y * cos(angle) - y, 0.02 * z]
    state.components[0].Set(CF(tuple(turned)))
    state.components[1].Set(-1 + 0.3 * x)
    form.AssembleLinearization(state.vec)
    forces = state.vec.CreateVector()
    form.Apply(state.vec, forces)
    free = ngs.free(space)
    return System(ngs.csr(form.mat), -ngs.array(forces), ngs.fields(space, free, u=[0], p=[1]))


def vibro():
    """A steel structure below water at 800 Hz: displacement and pressure, not symmetric, in SI units."""
    geometry = SplineGeometry()
    corners = [geometry.AppendPoint(*at) for at in [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2), (0, 2)]]
    sides = [(0, 1, 1, 0, "base"), (1, 2, 1, 0, "side"), (2, 3, 1, 2, "wet"), (3, 0, 1, 0, "side")]
    sides += [(2, 4, 2, 0, "wall"), (4, 5, 2, 0, "top"), (5, 3, 2, 0, "wall")]
    for i, j, left, right, name in sides:
        geometry.Append(["line", corners[i], corners[j]], leftdomain=left, rightdomain=right, bc=name)
    geometry.SetMaterial(1, "steel")
    geometry.SetMaterial(2, "water")
    mesh = Mesh(geometry.GenerateMesh(maxh=0.017))
    solid = VectorH1(mesh, order=2, definedon="steel", dirichlet="base")
    space = solid * H1(mesh, order=2, definedon="water", dirichlet="top")
    (u, p), (v, q) = space.TnT()
    normal, square = specialcf.normal(2), (2 * np.pi * 800) ** 2
    stress = 2 * 8e10 * InnerProduct(Sym(Grad(u)), Sym(Grad(v))) + 1.2e11 * div(u) * div(v)
    inside = (stress - square * 7850 * u * v) * dx("steel")
    water = (grad(p) * grad(q) / 1000 - square / 2.2e9 * p * q) * dx("water")
    force = p.Trace() * (v.Trace() * normal) - square * (u.Trace() * normal) * q.Trace()
    a = ngs.matrix(space, inside + water, force * ds("wet"))
    b = ngs.load(space, CF((0, 1e3)) * v * ds("side"))
    used = np.asarray(abs(a).sum(1)).ravel() > 0
    free = ngs.free(space) & used
    a, b = eliminated(a, b, free)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1]))


def ions():
    """Three kinds of ions and a potential between charged plates, by finite volumes in SI units, node by node."""
    nx, ny, nz = 24, 24, 44
    n, plane = nx * ny * nz, nx * ny
    heights = 1e-10 * 1.3 ** np.arange(nz // 2)
    heights = np.r_[heights, heights[::-1]]
    side = 2e-7
    volume = np.repeat(heights, plane) * side**2
    pairs, conduct = [], []
    for axis, found in enumerate(neighbours(nx, ny, nz)):
        i, j = np.asarray(found).T
        size = np.full(n, side) if axis > 0 else np.repeat(heights, plane)
        pairs.append(np.c_[i, j])
        conduct.append(volume[i] / size[i] / (0.5 * (size[i] + size[j])))
    pairs, conduct = np.concatenate(pairs), np.concatenate(conduct)
    i, j = pairs.T
    middle = np.cumsum(heights) - heights / 2
    at = np.repeat(middle, plane)
    potential = 4 * (np.exp(-at / 1e-8) - np.exp(-(middle[-1] + middle[0] - at) / 1e-8))
    charge, thermal, permittivity, moles = 1.6e-19, 4.1e-21, 7e-10, 6e23
    volt = permittivity * thermal / charge

    def bernoulli(v):
        return np.where(abs(v) < 1e-6, 1 - v / 2, v / np.expm1(np.where(abs(v) < 1e-6, 1, v)))

    layer = np.arange(n) // plane
    ends = (layer == 0) | (layer == nz - 1)
    parts = {(0, 0): graph_laplacian(pairs, conduct * volt, n) + sp.diags(ends * 2 * volt * 4e-14 / 1e-10)}
    for s, (z_s, far, diffusion) in enumerate(((1, 1.0, 1.3e-9), (-1, 0.9, 2e-9), (-2, 0.05, 9e-10)), 1):
        c = far * np.exp(-z_s * potential.clip(-4, 4))
        parts[0, s] = -sp.diags(volume * z_s * charge * moles)
        jump, t = z_s * (potential[j] - potential[i]), conduct * diffusion
        up, down = t * bernoulli(jump), t * bernoulli(-jump)
        flux = from_parts([(i, i, up), (i, j, -down), (j, i, -up), (j, j, down)], (n, n))
        parts[s, s] = flux + sp.diags(volume / 1e-6)
        parts[s, 0] = graph_laplacian(pairs, t * z_s * 0.5 * (c[i] + c[j]), n)
    parts[1, 1] = parts[1, 1] + sp.diags(volume * 1e5)
    parts[2, 1] = -sp.diags(volume * 1e5)
    a = sp.bmat([[parts.get((r, c)) for c in range(4)] for r in range(4)]).tocsr()
    b = np.r_[0 * volume, volume * 1e6, volume * 9e5, volume * 5e4]
    order = (np.arange(4) * n + np.arange(n)[:, None]).ravel()
    return System(a, b).reordered(order)
