"""Finite volumes on a structured grid, written by hand: semiconductors and oil reservoirs."""

import numpy as np
import scipy.sparse
from scipy.ndimage import gaussian_filter

from systems.registry import system


class Entries:
    """A matrix of `fields` unknowns a cell, interleaved, as it is summed up."""

    def __init__(self, cells, fields):
        self.fields = fields
        self.size = cells * fields
        self.rows, self.columns, self.values = [], [], []

    def add(self, row, row_field, column, column_field, value):
        """Adds values at (row cells, field) x (column cells, field)."""
        self.rows.append(self.fields * row + row_field)
        self.columns.append(self.fields * column + column_field)
        self.values.append(np.broadcast_to(value, row.shape))

    def matrix(self):
        there = np.concatenate(self.rows), np.concatenate(self.columns)
        return scipy.sparse.csr_matrix((np.concatenate(self.values), there), shape=(self.size, self.size))


def neighbours(index, axis):
    """Cells on the two sides of every inner face across an axis."""
    count = index.shape[axis]
    return np.take(index, range(count - 1), axis).ravel(), np.take(index, range(1, count), axis).ravel()


def bernoulli(t):
    small = np.abs(t) < 1e-8
    return np.where(small, 1 - t / 2, t / np.expm1(np.where(small, 1, t)))


def bernoulli_slope(t):
    step = 1e-4
    return (bernoulli(t + step) - bernoulli(t - step)) / (2 * step)


@system("driftdiff-3d", (19, 32))
def drift_diffusion(n):
    """Drift and diffusion in a pn junction, Scharfetter-Gummel:
    -lambda^2 laplace psi + n - p = 0, div J_n + R = 0, div J_p + R = 0;
    psi, n and p interleaved, densities over ten decades.
    """
    count, h = n**3, 1.0 / n
    index = np.arange(count).reshape(n, n, n)
    random = np.random.default_rng(0)
    x = np.repeat((np.arange(n) + 0.5) / n, n * n)
    intrinsic, lambda2 = 1e-5, 1e-3
    doping = np.where(x < 0.5, 1.0, -1.0)
    psi = np.arcsinh(doping / 2 / intrinsic) * np.tanh(np.abs(x - 0.5) * 12)
    electrons, holes = intrinsic * np.exp(psi * 0.98), intrinsic * np.exp(-psi * 0.98)
    a, w = Entries(count, 3), 1 / h**2
    for axis in range(3):
        one, two = neighbours(index, axis)
        for i, j in ((one, two), (two, one)):
            t = psi[j] - psi[i]
            a.add(i, 0, i, 0, lambda2 * w)
            a.add(i, 0, j, 0, -lambda2 * w)
            a.add(i, 1, i, 1, w * bernoulli(-t))
            a.add(i, 1, j, 1, -w * bernoulli(t))
            slope = w * (-bernoulli_slope(-t) * electrons[i] - bernoulli_slope(t) * electrons[j])
            a.add(i, 1, j, 0, slope)
            a.add(i, 1, i, 0, -slope)
            a.add(i, 2, i, 2, w * bernoulli(t))
            a.add(i, 2, j, 2, -w * bernoulli(-t))
            slope = w * (bernoulli_slope(t) * holes[i] + bernoulli_slope(-t) * holes[j])
            a.add(i, 2, j, 0, slope)
            a.add(i, 2, i, 0, -slope)
    cells, recombination = np.arange(count), 1e2
    a.add(cells, 0, cells, 1, 1.0)
    a.add(cells, 0, cells, 2, -1.0)
    for field in (1, 2):
        a.add(cells, field, cells, 1, recombination * holes)
        a.add(cells, field, cells, 2, recombination * electrons)
    for contact in (index[0].ravel(), index[-1].ravel()):
        for field in range(3):
            a.add(contact, field, contact, field, 2 * (lambda2 if field == 0 else 1.0) * w)
    return a.matrix(), random.normal(size=3 * count)


@system("twophase-3d", (27, 46))
def two_phase(n):
    """Oil and water in rock, a fully implicit step:
    phi dS / dt - div(k lambda_w(S) grad p) = q_w, and the same for oil;
    p in Pa and S interleaved, permeabilities over five decades.
    """
    layers = max(n // 2, 2)
    shape, count = (n, n, layers), n * n * layers
    index = np.arange(count).reshape(shape)
    random = np.random.default_rng(0)
    rock = gaussian_filter(random.normal(size=shape), 2)
    permeability = (1e-13 * 10 ** (1.2 * rock / rock.std())).ravel()
    water = np.clip(gaussian_filter(random.uniform(size=shape), 3) * 2 - 0.5, 0.05, 0.95).ravel()
    porosity, step, h, compressibility = 0.2, 86400.0, 10.0, 1e-9
    mobility = water**2 / 5e-4, (1 - water) ** 2 / 2e-3
    slope = 2 * water / 5e-4, -2 * (1 - water) / 2e-3
    pressure = 3e7 - 1e5 * (np.arange(count) // (n * layers))
    a = Entries(count, 2)
    for axis in range(3):
        one, two = neighbours(index, axis)
        through = h * 2 / (1 / permeability[one] + 1 / permeability[two])
        upwind = np.where(pressure[one] >= pressure[two], one, two)
        drop = pressure[one] - pressure[two]
        for phase in (0, 1):
            flow, change = through * mobility[phase][upwind], through * slope[phase][upwind] * drop
            for cell, sign in ((one, 1.0), (two, -1.0)):
                other = two if sign > 0 else one
                # The flux out of a cell is that into the other; both follow the pressure from one to two.
                a.add(cell, phase, cell, 0, flow)
                a.add(cell, phase, other, 0, -flow)
                a.add(cell, phase, upwind, 1, sign * change)
    cells, volume = np.arange(count), porosity * h**3 / step
    a.add(cells, 0, cells, 1, volume)
    a.add(cells, 0, cells, 0, volume * compressibility * water)
    a.add(cells, 1, cells, 1, -volume)
    a.add(cells, 1, cells, 0, volume * compressibility * (1 - water))
    producer = index[-1, -1, :]
    a.add(producer, 0, producer, 0, 1e-10 * mobility[0][producer] / mobility[0].max())
    a.add(producer, 1, producer, 0, 1e-10)
    b = np.zeros(2 * count)
    b[2 * index[0, 0, :]] = 1e-3
    b[2 * index[-1, -1, :] + 1] = -1e-3
    return a.matrix(), b
