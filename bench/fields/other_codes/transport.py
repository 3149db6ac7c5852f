"""Convection, diffusion and reaction: finite elements with NGSolve, and finite volumes in NumPy."""

import numpy as np
import scipy.sparse as sp
from ngsolve import CF, H1, L2, IfPos, ds, dx, grad, specialcf, x, y, z

import ngs
from common import System, from_parts, identity_rows, laplacian, neighbours


def dg_advect_p2():
    """Discontinuous elements with upwind fluxes in a turning flow, in random order."""
    space = L2(ngs.cube(0.11), order=2, dgjumps=True)
    u, v = space.TnT()
    wind = CF((1, 0.5 - z, y - 0.3))
    flux = wind * specialcf.normal(3)
    inside = (-u * (wind * grad(v)) + 1e-2 * u * v) * dx
    upwind = IfPos(flux, flux * u, flux * u.Other(bnd=0)) * (v - v.Other(bnd=0)) * dx(skeleton=True)
    outflow = IfPos(flux, flux * u, 0) * v * ds(skeleton=True)
    return System(ngs.matrix(space, inside, upwind, outflow), ngs.load(space, v * dx)).shuffled()


def irk2_p2():
    """Both stages of a step of Radau IIA for advection and diffusion, as one matrix."""
    space = H1(ngs.cube(0.075), order=2, dirichlet="left")
    u, v = space.TnT()
    stiffness = ngs.matrix(space, (grad(u) * grad(v) + CF((20 * y, -20 * x, 5)) * grad(u) * v) * dx)
    kept = np.flatnonzero(ngs.free(space))
    stiffness, mass = stiffness[kept][:, kept], ngs.mass(space)[kept][:, kept]
    stages = np.array([[5 / 12, -1 / 12], [3 / 4, 1 / 4]])
    a = sp.kron(sp.eye(2), mass) + 0.05 * sp.kron(stages, stiffness)
    return System(a, np.tile(ngs.load(space, v * dx)[kept], 2))


def spacetime_heat():
    """All 32 steps of backward Euler for the heat equation as one matrix."""
    n, steps = 28, 32
    step = sp.diags([np.ones(steps), -np.ones(steps - 1)], [0, -1]) * steps
    a = sp.kron(step, sp.eye(n * n)) + sp.kron(sp.eye(steps), laplacian(n, n) * (0.1 * n * n))
    b = np.zeros((steps, n * n))
    b[0], b[5] = steps, 3
    return System(a, b)


def rad_diff_10g():
    """Ten groups of radiation diffusion and the material's temperature: 11 unknowns a cell."""
    n, groups, step = 75, 10, 0.01
    cells, width = n * n, groups + 1
    xs, ys = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n))
    temperature = 0.1 + np.exp(-20 * ((xs - 0.3) ** 2 + (ys - 0.5) ** 2)).ravel()
    i, j = np.vstack(neighbours(n, n)).T
    cell = np.arange(cells) * width
    material, parts = cell + groups, []
    for group in range(groups):
        opacity = 10 ** (3 - 0.5 * group) * temperature**-2 * (1 + 5 * (xs.ravel() > 0.6))
        diffusion = n * n / (3 * opacity)
        face = 2 * diffusion[i] * diffusion[j] / (diffusion[i] + diffusion[j])
        for p, q in ((i, j), (j, i)):
            parts += [(cell[p] + group, cell[p] + group, face), (cell[p] + group, cell[q] + group, -face)]
        emission = opacity * 4 * temperature**3 * 0.1
        parts += [(cell + group, cell + group, opacity + 1 / step), (cell + group, material, -emission)]
        parts += [(material, cell + group, -opacity), (material, material, emission)]
    parts += [(material, material, 0.3 / step)]
    a, b = from_parts(parts, (cells * width, cells * width)), np.zeros(cells * width)
    b[material] = temperature / step
    return System(a, b)


def bernoulli(t):
    small = np.abs(t) < 1e-8
    return np.where(small, 1 - t / 2, t / np.expm1(np.where(small, 1, t)))


def bernoulli_slope(t, step=1e-5):
    return (bernoulli(t + step) - bernoulli(t - step)) / (2 * step)


def sg_dd_si():
    """A Newton step of drift-diffusion (Scharfetter-Gummel) in SI units: potential, electrons, holes."""
    nx, ny, h = 170, 120, 5e-9
    charge, permittivity, thermal, mobility, intrinsic = 1.602e-19, 11.7 * 8.854e-12, 0.02585, 36e-4, 1.5e16
    nodes = nx * ny
    xs, ys = np.meshgrid(np.arange(nx) / nx, np.arange(ny) / ny)
    doping = np.where((xs < 0.5) & (ys < 0.6), 1e24, -1e22).ravel()
    noise = 0.02 * np.random.default_rng(0).standard_normal(nodes) * thermal
    potential = thermal * np.arcsinh(doping / 2 / intrinsic) + noise
    n = intrinsic * np.exp(potential / thermal) * np.exp(0.3 * xs.ravel())
    p = intrinsic * np.exp(-potential / thermal)
    i, j = np.vstack(neighbours(nx, ny)).T
    t = (potential[j] - potential[i]) / thermal
    up, down = bernoulli(t), bernoulli(-t)
    up_slope, down_slope = bernoulli_slope(t), bernoulli_slope(-t)
    parts = []
    for a, b in ((i, j), (j, i)):
        parts += [(3 * a, 3 * a, permittivity), (3 * a, 3 * b, -permittivity)]
    for a, sign in ((i, 1), (j, -1)):
        k = charge * mobility * sign
        by_potential = k * (n[j] * up_slope + n[i] * down_slope) / thermal
        row = 3 * a + 1
        parts += [(row, 3 * j + 1, k * up), (row, 3 * i + 1, -k * down)]
        parts += [(row, 3 * j, by_potential), (row, 3 * i, -by_potential)]
        k /= 3
        by_potential = k * (-p[i] * up_slope - p[j] * down_slope) / thermal
        row = 3 * a + 2
        parts += [(row, 3 * i + 2, -k * up), (row, 3 * j + 2, k * down)]
        parts += [(row, 3 * j, by_potential), (row, 3 * i, -by_potential)]
    node, cell = 3 * np.arange(nodes), charge * h * h
    parts += [(node, node + 1, cell), (node, node + 2, -cell)]
    recombination = cell / (1e-7 * (n + p + 2 * intrinsic))
    for carrier in (1, 2):
        row = node + carrier
        parts += [(row, node + 1, -recombination * p), (row, node + 2, -recombination * n)]
    number = np.arange(nodes).reshape(ny, nx)
    contact, free, values = number[0, :40], np.ones((nodes, 3), bool), np.zeros((nodes, 3))
    free[contact] = free[number[-1]] = False
    values[contact, 0] = 0.1
    matrix = from_parts(parts, (3 * nodes, 3 * nodes))
    a, b = identity_rows(matrix, np.zeros(3 * nodes), free.ravel(), values.ravel())
    light = cell * 1e26 * np.exp(-((xs - 0.3) ** 2 + (ys - 0.3) ** 2).ravel() * 30)
    b[1::3] += light * free[:, 1]
    return System(a, b, {"u": node})
