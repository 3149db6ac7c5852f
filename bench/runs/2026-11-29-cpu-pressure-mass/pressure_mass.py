#!/usr/bin/env python3
"""Unpreconditioned GMRES(30) on Stokes steps whose pressure has a mass.

usage: pressure_mass.py [--mass-alone] FOLDER...

A folder is one of `krylith problem stokes:NxNxN,scale=1 --out FOLDER`. M gets beta times the mass matrix of linear
tetrahedra on the pressure, which is an artificial compressibility: beta p' + div u = 0. Rows are divided by the
lumped mass if the case says so. --mass-alone leaves out all cases but that of beta = 1 with such rows.
"""

import sys
import time

import numpy as np
import scipy.sparse as sp


def petsc(path):
    """Reads a matrix in PETSc's binary format."""
    with open(path, "rb") as file:
        _, rows, columns, entries = np.fromfile(file, ">i4", 4)
        counts = np.fromfile(file, ">i4", rows)
        index = np.fromfile(file, ">i4", entries).astype(np.int32)
        values = np.fromfile(file, ">f8", entries).astype(np.float64)
    a = sp.csr_matrix((values, index, np.concatenate([[0], np.cumsum(counts)])), shape=(rows, columns))
    a.eliminate_zeros()
    return a


def pressure_mass(n):
    """Returns the mass matrix of a unit cube of n^3 nodes, whose cells have six Kuhn tetrahedra each."""
    at = np.arange(n - 1)
    lowest = (at[:, None, None] * n + at[None, :, None]) * n + at[None, None, :]
    step = [1, n, n * n]
    cells = []
    for a, b, c in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        walk = np.cumsum([0, step[a], step[b], step[c]])
        cells.append(lowest.ravel()[:, None] + walk[None, :])
    cells = np.concatenate(cells)
    local = (np.ones((4, 4)) + np.eye(4)) / 120 / (n - 1) ** 3
    rows, columns = np.repeat(cells, 4, axis=1).ravel(), np.tile(cells, (1, 4)).ravel()
    return sp.csr_matrix((np.tile(local.ravel(), len(cells)), (rows, columns)), shape=(n**3, n**3))


def gmres(a, b, most, restart=30, rtol=1e-6):
    """Returns iterations and ||b - A x|| / ||b||, with classical Gram-Schmidt, twice."""
    x, done = np.zeros_like(b), 0
    while True:
        r = b - a @ x
        beta = np.linalg.norm(r)
        if beta <= rtol * np.linalg.norm(b) or done >= most:
            return done, beta / np.linalg.norm(b)
        v, h = np.zeros((restart + 1, len(b))), np.zeros((restart + 1, restart))
        v[0] = r / beta
        for j in range(restart):
            w = a @ v[j]
            for _ in range(2):
                c = v[: j + 1] @ w
                w -= c @ v[: j + 1]
                h[: j + 1, j] += c
            h[j + 1, j] = np.linalg.norm(w)
            v[j + 1] = w / h[j + 1, j]
            done += 1
            right = np.zeros(j + 2)
            right[0] = beta
            y = np.linalg.lstsq(h[: j + 2, : j + 1], right, rcond=None)[0]
            if np.linalg.norm(right - h[: j + 2, : j + 1] @ y) <= rtol * np.linalg.norm(b):
                break
        x += y @ v[: len(y)]


CASES = [(0, False, 300), (0, True, 300), (1, False, 900), (1, True, 900), (0.1, True, 900)]
alone = "--mass-alone" in sys.argv
tau, radau = 0.125, np.array([[5, -1], [9, 3]]) / 12
for folder in [word for word in sys.argv[1:] if not word.startswith("--")]:
    m, l = petsc(f"{folder}/M.petsc"), petsc(f"{folder}/L.petsc")
    f = np.load(f"{folder}/rhs.npy").ravel()
    n = round((m.shape[0] / 4) ** (1 / 3))
    mass = pressure_mass(n)
    lumped = np.repeat(1 / np.asarray(mass.sum(axis=1)).ravel(), 8)
    on_pressure = sp.csr_matrix(([1.0], ([3], [3])), shape=(4, 4))
    for beta, scaled, most in CASES[3:4] if alone else CASES:
        start = time.time()
        k = (sp.kron(m + beta * sp.kron(mass, on_pressure), np.eye(2)) + tau * sp.kron(l, radau)).tocsr()
        b = f
        if scaled:
            k, b = (sp.diags(lumped) @ k).tocsr(), lumped * f
        done, residual = gmres(k, b, most)
        rows = "rows over lumped mass" if scaled else "rows as they are"
        print(f"{n}^3  beta {beta:<4} {rows:22} {done:4} iterations  residual {residual:.1e}  "
              f"{time.time() - start:.0f} s", flush=True)
