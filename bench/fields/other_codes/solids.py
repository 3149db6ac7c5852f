"""Solids: beams, plates, mixed elasticity, contact, and elasticity with heat or flow."""

import numpy as np
import scipy.sparse as sp
from ngsolve import (
    CF,
    H1,
    Grad,
    HCurl,
    HDivDiv,
    Id,
    InnerProduct,
    Sym,
    Trace,
    VectorH1,
    div,
    dx,
    grad,
    specialcf,
)

import ngs
from common import System, eliminated, from_parts, identity_rows, neighbours, symmetric_identity_rows


def lame(young, poisson):
    return young / 2 / (1 + poisson), young * poisson / (1 + poisson) / (1 - 2 * poisson)


def elastic(u, v, mu, la):
    return 2 * mu * InnerProduct(Sym(Grad(u)), Sym(Grad(v))) + la * div(u) * div(v)


def plate_hhj():
    """A plate by Hellan-Herrmann-Johnson elements: moments and deflection."""
    mesh = ngs.square(0.022)
    space = HDivDiv(mesh, order=1) * H1(mesh, order=2, dirichlet="left|bottom")
    (s, w), (t, v) = space.TnT()
    normal = specialcf.normal(2)
    shear = lambda m: m * normal - ((m * normal) * normal) * normal
    inside = (InnerProduct(s, t) * 12 - div(s) * grad(v) - div(t) * grad(w)) * dx
    edges = [shear(s) * grad(v) * dx(element_boundary=True), shear(t) * grad(w) * dx(element_boundary=True)]
    a, b, free = ngs.matrix(space, inside, *edges), ngs.load(space, -v * dx), ngs.free(space)
    a, b = eliminated(a, b, free)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1]))


def elas_tdnns():
    """Nearly incompressible elasticity: normal-normal stress and tangential displacement."""
    mesh, young, poisson = ngs.cube(0.15), 1.0, 0.499
    stress = HDivDiv(mesh, order=1, dirichlet="right|top|front|back")
    space = stress * HCurl(mesh, order=1, dirichlet="left")
    (s, u), (t, v) = space.TnT()
    normal = specialcf.normal(3)
    compliance = (1 + poisson) / young * s - poisson / young * Trace(s) * Id(3)
    tangential = lambda w: w - (w * normal) * normal
    shear = lambda m: m * normal - ((m * normal) * normal) * normal
    inside = (InnerProduct(compliance, t) + div(s) * v + div(t) * u) * dx
    faces = (-shear(s) * tangential(v) - shear(t) * tangential(u)) * dx(element_boundary=True)
    a, b, free = ngs.matrix(space, inside, faces), ngs.load(space, -v[2] * dx), ngs.free(space)
    a, b = eliminated(a, b, free)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1]))


def thermo_elastic_si():
    """A step of displacement and temperature, fully coupled, in SI units, with rows of the identity."""
    mesh = ngs.cube(0.1)
    space = VectorH1(mesh, order=2, dirichlet="left") * H1(mesh, order=2, dirichlet="left|right")
    (u, t), (v, s) = space.TnT()
    (mu, la), step, heat, conductivity, temperature = lame(2e11, 0.3), 10.0, 3.6e6, 45, 293
    expansion = (3 * la + 2 * mu) * 1.2e-5
    solid = elastic(u, v, mu, la) - expansion * t * div(v)
    warmth = (
        heat / step * t * s + conductivity * grad(t) * grad(s) + expansion * temperature / step * div(u) * s
    )
    a, b = ngs.matrix(space, (solid + warmth) * dx), ngs.load(space, 1e6 * s * dx)
    a, b = identity_rows(a, b, ngs.free(space))
    return System(a, b, ngs.fields(space, u=[0], p=[1]))


def biot3d_k1e_12():
    """A poroelastic step without storage at permeability 1e-12, Taylor-Hood elements."""
    mesh, permeability, (mu, la) = ngs.cube(0.11), 1e-12, lame(1, 0.25)
    pressure = H1(mesh, order=1, dirichlet="top")
    space = VectorH1(mesh, order=2, dirichlet="bottom|left") * pressure
    (u, p), (v, q) = space.TnT()
    step = elastic(u, v, mu, la) - p * div(v) - q * div(u) - permeability * grad(p) * grad(q)
    a, b, free = ngs.matrix(space, step * dx), ngs.load(space, CF((0, 0, -1)) * v * dx), ngs.free(space)
    a, b = eliminated(a, b, free)
    p, q = pressure.TnT()
    schur = ngs.mass(pressure, 1 / (la + 2 * mu / 3))
    schur = (schur + ngs.matrix(pressure, permeability * grad(p) * grad(q) * dx)).tocsr()
    kept = np.flatnonzero(ngs.free(pressure))
    return System(a, b, ngs.fields(space, free, u=[0], p=[1]), {"Sp": schur[kept][:, kept]})


def bilinear_elasticity(nx, ny, height, young, poisson):
    """The stiffness of a block of width 1 in plane stress (bilinear elements), and its node numbers."""
    hx, hy, gauss = 1 / nx, height / ny, 1 / np.sqrt(3)
    law = young / (1 - poisson**2) * np.array([[1, poisson, 0], [poisson, 1, 0], [0, 0, (1 - poisson) / 2]])
    element = np.zeros((8, 8))
    for s in (-gauss, gauss):
        for t in (-gauss, gauss):
            along_x = np.array([-(1 - t), 1 - t, 1 + t, -(1 + t)]) / 4 * (2 / hx)
            along_y = np.array([-(1 - s), -(1 + s), 1 + s, 1 - s]) / 4 * (2 / hy)
            strain = np.zeros((3, 8))
            strain[0, ::2], strain[1, 1::2] = along_x, along_y
            strain[2, ::2], strain[2, 1::2] = along_y, along_x
            element += strain.T @ law @ strain * hx * hy / 4
    nodes = np.arange((nx + 1) * (ny + 1)).reshape(ny + 1, nx + 1)
    corners = np.stack([nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, 1:], nodes[1:, :-1]], -1).reshape(-1, 4)
    unknowns = np.stack([2 * corners, 2 * corners + 1], -1).reshape(-1, 8)
    size = 2 * nodes.size
    return from_parts([(unknowns[:, :, None], unknowns[:, None, :], element)], (size, size)), nodes


def contact_mult():
    """Two elastic blocks of 2e11 and 1e9 Pa, one on the other. Multipliers join their unequal meshes."""
    lower, below = bilinear_elasticity(120, 60, 0.5, 2e11, 0.3)
    upper, above = bilinear_elasticity(150, 40, 0.4, 1e9, 0.45)
    start, size = lower.shape[0], lower.shape[0] + upper.shape[0]
    place = np.linspace(0, 1, above.shape[1]) * 120
    segment = np.minimum(place.astype(int), 119)
    share, count = place - segment, np.arange(len(place))
    left, right = 2 * below[-1][segment] + 1, 2 * below[-1][segment + 1] + 1
    gap = [(count, left, 1 - share), (count, right, share), (count, start + 2 * above[0] + 1, -1.0)]
    gap = from_parts(gap, (len(place), size))
    a = sp.bmat([[sp.block_diag([lower, upper]), gap.T], [gap, None]]).tocsr()
    b, free = np.zeros(a.shape[0]), np.ones(a.shape[0], bool)
    b[start + 2 * above[-1] + 1] = -1e4
    free[2 * below[0]] = free[2 * below[0] + 1] = False
    free[start + 2 * above[:, 0]] = False
    a, b = symmetric_identity_rows(a, b, free)
    return System(a, b, {"u": np.arange(size), "p": np.arange(size, len(b))})


def beam(length, young, shear, area, bending, torsion):
    """The stiffness of Euler beams along x, one for each length: displacements and turns of both ends."""
    k = np.zeros((len(length), 12, 12))

    def put(i, j, value):
        k[:, i, j] = k[:, j, i] = value

    for i, stiffness in ((0, young * area), (3, shear * torsion)):
        put(i, i, stiffness / length)
        put(i + 6, i + 6, stiffness / length)
        put(i, i + 6, -stiffness / length)
    ei = young * bending
    for v, turn, sign in ((1, 5, 1), (2, 4, -1)):
        put(v, v, 12 * ei / length**3)
        put(v + 6, v + 6, 12 * ei / length**3)
        put(v, v + 6, -12 * ei / length**3)
        for end in (turn, turn + 6):
            put(v, end, sign * 6 * ei / length**2)
            put(v + 6, end, -sign * 6 * ei / length**2)
            put(end, end, 4 * ei / length)
        put(turn, turn + 6, 2 * ei / length)
    return k


def frame_beams():
    """A space frame of Euler beams in SI units: six unknowns a node, each beam with a node in its middle."""
    side, random = 16, np.random.default_rng(20)
    pairs, joints = np.vstack(neighbours(side, side, side)), side**3
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:, ::-1]
    points = grid * 0.5 + random.normal(size=(joints, 3)) * 0.05
    middle = joints + np.arange(len(pairs))
    points = np.vstack([points, (points[pairs[:, 0]] + points[pairs[:, 1]]) / 2])
    ends = np.vstack([np.c_[pairs[:, 0], middle], np.c_[middle, pairs[:, 1]]])
    along = points[ends[:, 1]] - points[ends[:, 0]]
    length = np.linalg.norm(along, axis=1)
    along /= length[:, None]
    helper = np.where(abs(along[:, 2:]) < 0.9, [[0, 0, 1.0]], [[1.0, 0, 0]])
    second = np.cross(helper, along)
    second /= np.linalg.norm(second, axis=1)[:, None]
    axes = np.stack([along, second, np.cross(along, second)], 1)
    turn = np.zeros((len(ends), 12, 12))
    for k in range(0, 12, 3):
        turn[:, k : k + 3, k : k + 3] = axes
    stiffness = beam(length, 2e11, 8e10, 1e-4, 1e-9, 2e-9)
    stiffness = np.einsum("eji,ejk,ekl->eil", turn, stiffness, turn)
    unknowns = (6 * ends[:, :, None] + np.arange(6)).reshape(-1, 12)
    size = 6 * len(points)
    a = from_parts([(unknowns[:, :, None], unknowns[:, None, :], stiffness)], (size, size))
    b = np.tile([0, 0, -10.0, 0, 0, 0], len(points))
    return System(*eliminated(a, b, np.repeat(points[:, 2] > 0.2, 6)))
