"""Solves three systems from CuPy's arrays, the last in blocks of three, and checks them; for stress.py."""

import json
import sys
import time

import cupy
import cupyx.scipy.sparse
import numpy as np
import scipy.sparse

import krylith


def laplacian(side, dimensions):
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    one = scipy.sparse.identity(side)
    a = line
    for _ in range(1, dimensions):
        a = scipy.sparse.kron(a, one) + scipy.sparse.kron(scipy.sparse.identity(a.shape[0]), line)
    return a.tocsr()


def main():
    random = np.random.default_rng(int(sys.argv[1]))
    plane, solid = laplacian(int(random.integers(20, 100)), 2), laplacian(int(random.integers(8, 26)), 3)
    wind = scipy.sparse.diags([-0.3, 0.3], [-1, 1], shape=solid.shape)
    node = np.eye(3) + 0.05 * random.standard_normal((3, 3))
    small = laplacian(int(random.integers(6, 18)), 3)
    blocks = scipy.sparse.kron(small, np.eye(3)) + scipy.sparse.kron(scipy.sparse.identity(small.shape[0]), node)
    begin, solves = time.monotonic(), 0
    for a, options in [(plane, {}), (solid + wind, {}), (blocks, {"block": 3})]:
        a = a.tocsr()
        there = cupyx.scipy.sparse.csr_matrix(a)
        for _ in range(2):
            b = random.standard_normal(a.shape[0])
            solved = krylith.solve(there, cupy.asarray(b), rtol=1e-9, device="cuda:0", **options)
            x = cupy.asnumpy(solved.x)
            residual = np.linalg.norm(b - a @ x) / np.linalg.norm(b)
            assert solved.converged and residual < 2e-8, f"{options}: {solved.outcome}, {residual:e}"
            solves += 1
            print(f"solve {solves}", flush=True)
    print(json.dumps({"solves": solves, "seconds": round(time.monotonic() - begin, 2)}), flush=True)


main()
