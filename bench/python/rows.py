"""Cost of the stopping criterion with scaled rows on a GPU.

The systems are rock with a contrast of 1e2, and of 1e10, whose rows differ by more than 1e6.
"""

import time

import cupy
import cupyx.scipy.sparse
import numpy as np
import scipy.sparse as sp

import krylith

SOLVES = 4


def rock(side, contrast, seed=5):
    """Cells of random permeability in a cube, and a little storage."""
    rng, n = np.random.default_rng(seed), side**3
    k = (10.0 ** (np.log10(contrast) * (rng.random(n) - 0.5))).ravel()
    cells = np.arange(n).reshape((side,) * 3)
    rows, cols, values, diagonal = [], [], [], 1e-3 * k
    for axis in range(3):
        a, b = (np.take(cells, range(first, side - 1 + first), axis).ravel() for first in (0, 1))
        flux = 2.0 / (1.0 / k[a] + 1.0 / k[b])
        for i, j in ((a, b), (b, a)):
            rows, cols, values = [*rows, i], [*cols, j], [*values, -flux]
            np.add.at(diagonal, i, flux)
    rows, cols, values = ([*x, own] for x, own in ((rows, np.arange(n)), (cols, np.arange(n)), (values, diagonal)))
    return sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=(n, n))


def main():
    for side in (48, 96):
        for contrast in (1e2, 1e10):
            A = rock(side, contrast)
            b = np.random.default_rng(1).standard_normal(A.shape[0])
            for where in ("device", "host"):
                there = (cupyx.scipy.sparse.csr_matrix(A), cupy.asarray(b)) if where == "device" else (A, b)
                solver = krylith.Solver(there[0], rtol=1e-8, device="cuda:0")
                for _ in range(SOLVES):
                    start = time.perf_counter()
                    s = solver.solve(there[1])
                    wall = time.perf_counter() - start
                x = s.x.get() if where == "device" else s.x
                residual = np.linalg.norm(b - A @ x) / np.linalg.norm(b)
                print(
                    f"{side}³ contrast {contrast:.0e} {where}: {s.outcome} {s.iterations} its, wall {1e3 * wall:.2f} ms, "
                    f"iterating {1e3 * s.seconds.solve:.2f} ms, residual {residual:.1e}, rows {s.row_scaled_residual}, {s.method} {s.precond}"
                )


main()
