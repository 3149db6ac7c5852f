"""Flow in porous media: mixed and hybrid Darcy with NGSolve, and two phases with wells."""

import numpy as np
from ngsolve import (
    L2,
    Discontinuous,
    FacetFESpace,
    HDiv,
    IfPos,
    LinearForm,
    div,
    dx,
    exp,
    sin,
    specialcf,
    x,
    y,
    z,
)

import ngs
from common import System, eliminated, from_parts, neighbours

GRAVITY = 9.81


def darcy_rt1_aniso():
    """Raviart-Thomas elements of second order, permeabilities 1 and 1e-4, in random order."""
    mesh, kx, ky = ngs.square(0.014), 1.0, 1e-4
    space = HDiv(mesh, order=1, RT=True, dirichlet="left") * L2(mesh, order=1)
    (u, p), (v, q) = space.TnT()
    a = ngs.matrix(space, (u[0] * v[0] / kx + u[1] * v[1] / ky - div(u) * q - div(v) * p) * dx)
    b = ngs.load(space, -exp(-20 * ((x - 0.5) ** 2 + (y - 0.5) ** 2)) * q * dx)
    free = ngs.free(space)
    a, b = eliminated(a, b, free)
    return System(a, b, ngs.fields(space, free, u=[0], p=[1])).shuffled()


def darcy_hybrid3d():
    """Hybrid mixed elements condensed to face pressures: positive definite, coefficients 1 and 1e4."""
    mesh, normal = ngs.cube(0.085), specialcf.normal(3)
    k = IfPos(sin(15 * x + 3 * z) * sin(9 * y), 1.0, 1e4)
    flux, faces = (
        Discontinuous(HDiv(mesh, order=1, RT=True)),
        FacetFESpace(mesh, order=1, dirichlet="left|right"),
    )
    space = flux * L2(mesh, order=1) * faces
    (s, u, face), (t, v, test) = space.TnT()
    inside = (1 / k * s * t - div(s) * v - div(t) * u) * dx
    between = (s * normal * test + t * normal * face) * dx(element_boundary=True)
    form = ngs.assembled(space, inside, between, condense=True)
    rhs = LinearForm(space)
    rhs += -v * dx
    rhs.Assemble()
    rhs.vec.data += form.harmonic_extension_trans * rhs.vec
    a, b = eliminated(-ngs.csr(form.mat), -ngs.array(rhs.vec), ngs.free(space, condensed=True))
    return System(a, b)


def fim_wells():
    """A fully implicit step of water and oil with gravity and layers.

    Unknowns are pressure (Pa) and saturation, and rows are the balances of the phases. Two wells have a given
    pressure and one a given rate. Cells are in random order.
    """
    nx, ny, nz = 40, 40, 14
    cells, random = nx * ny * nz, np.random.default_rng(1)
    variation = random.normal(size=(nz, ny, nx)) * 0.7
    permeability = (1e-13 * 10 ** (variation + random.normal(size=(nz, 1, 1)) * 1.2)).ravel()
    pressure = 2e7 + 1e4 * random.normal(size=cells)
    water = np.clip(0.3 + 0.3 * np.sin(np.arange(cells) / 900.0), 0.05, 0.9)
    order = random.permutation(cells)
    mobility = lambda s: (s**2 / 5e-4, (1 - s) ** 2 / 5e-3)
    slope = lambda s: (2 * s / 5e-4, -2 * (1 - s) / 5e-3)
    depth, density = np.repeat(np.arange(nz), nx * ny) * 2.0, (1000.0, 800.0)
    parts = []
    for pairs, distance, area in zip(neighbours(nx, ny, nz), (2, 20, 20), (400, 40, 40), strict=True):
        i, j = pairs.T
        mean = 2 * permeability[i] * permeability[j] / (permeability[i] + permeability[j])
        across = area / distance * mean
        for phase in (0, 1):
            drop = pressure[i] - pressure[j] + density[phase] * GRAVITY * (depth[i] - depth[j])
            upwind = np.where(drop > 0, i, j)
            m, dm = mobility(water[upwind])[phase], slope(water[upwind])[phase]
            for cell, sign in ((i, 1), (j, -1)):
                row = 2 * cell + phase
                parts += [(row, 2 * i, sign * across * m), (row, 2 * j, -sign * across * m)]
                parts += [(row, 2 * upwind + 1, sign * across * dm * drop)]
    cell = np.arange(cells)
    storage, compressibility = 0.2 * 20 * 20 * 2 / (86400 * 10), 1e-9
    parts += [(2 * cell, 2 * cell + 1, storage), (2 * cell + 1, 2 * cell + 1, -storage)]
    parts += [(2 * cell, 2 * cell, storage * compressibility * water)]
    parts += [(2 * cell + 1, 2 * cell, storage * compressibility * (1 - water))]
    size = 2 * cells
    b = np.zeros(size + 3)
    columns = np.arange(cells).reshape(nz, ny, nx)
    for number, (at_x, at_y) in enumerate(((3, 3), (36, 35), (20, 8))):
        hit, well, by_rate = columns[:, at_y, at_x], size + number, number == 1
        index = 2 * np.pi * 2 * permeability[hit] / np.log(4 / 0.1)
        water_part, oil_part = mobility(water[hit])
        total = water_part + oil_part
        for phase, m in enumerate((total, 0 * total) if by_rate else (water_part, oil_part)):
            parts += [(2 * hit + phase, 2 * hit, index * m), (2 * hit + phase, well, -index * m)]
        if by_rate:
            parts += [(well, 2 * hit, index * total), (well, well, -index * total)]
        else:
            parts += [(well, well, 1.0)]
        b[well] = -1e-3 if by_rate else -1e6
    a = from_parts(parts, (size + 3, size + 3))
    b[:size] = 1e-6 * random.normal(size=size)
    wells = np.arange(size, size + 3)
    fields = {"p": np.arange(0, size, 2), "s": np.r_[1:size:2, wells]}
    return System(a, b, fields).reordered(np.r_[np.c_[2 * order, 2 * order + 1].ravel(), wells])
