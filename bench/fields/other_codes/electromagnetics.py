"""Electromagnetic fields: edge elements with NGSolve, and the Helmholtz equation with an absorbing layer."""

import numpy as np
import scipy.sparse as sp
from ngsolve import CF, HCurl, IfPos, curl, dx, sqrt, x, y

import ngs
from common import System, as_real, eliminated, second_difference


def maxwell_order2():
    """Edge elements of second order (a hierarchical basis), iron of 1e3, mass 1e-5."""
    space = HCurl(ngs.cube(0.13), order=2, dirichlet="left|right")
    u, v = space.TnT()
    reluctivity = IfPos(0.3 - sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2), 1e-3, 1.0)
    a = ngs.matrix(space, (reluctivity * curl(u) * curl(v) + 1e-5 * u * v) * dx)
    b = ngs.load(space, CF((0, 0, 1)) * curl(v) * dx)
    return System(*eliminated(a, b, ngs.free(space)))


def eddy_2x2():
    """Time-harmonic eddy currents, lowest order, as a real system, the real parts first."""
    space = HCurl(ngs.cube(0.07), order=0, complex=True, dirichlet=".*")
    u, v = space.TnT()
    conductivity = IfPos(0.25 - sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2), 1e3, 1e-3)
    a = ngs.matrix(space, (curl(u) * curl(v) + 1j * conductivity * u * v - 2 * u * v) * dx)
    b = ngs.load(space, CF((0, 1, 0)) * v * dx)
    return System(*as_real(*eliminated(a, b, ngs.free(space))))


def helmholtz_pml():
    """Eleven waves in a square with a perfectly matched layer, as a real system, the real parts first."""
    n, wave = 150, 2 * np.pi * 11
    h = 1 / (n + 1)
    at = np.arange(1, n + 1) * h
    depth = np.maximum(0, np.maximum(0.12 - at, at - 0.88)) / 0.12
    stretch = sp.diags(1 / (1 + 1j * 40 * depth**2 / wave * 10))
    line = stretch @ second_difference(n) @ stretch / h / h
    a = sp.kron(line, sp.eye(n)) + sp.kron(sp.eye(n), line) - wave**2 * sp.eye(n * n)
    b = np.zeros(n * n, complex)
    b[n * n // 2 + n // 3] = 1 / h / h
    return System(*as_real(a.tocsr(), b))
