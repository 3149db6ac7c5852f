"""Milliseconds of a whole call from Python for systems of blocks in CSR format: arrays on the GPU and on the host.

    python3 blocks.py

Prints a line of JSON for each row: krylith.solve to 1e-8, the median and the least of six calls after the first, and
for blocks the time of new values of device arrays. Needs CuPy.
"""

import json
import statistics
import time

import compare
import cupy
import cupyx.scipy.sparse as csp
import krylith
import numpy as np
import scipy.sparse as sp


def coupled(a, b):
    """The same operator for `b` fields, which the nodes couple."""
    block = np.eye(b) + 0.1 * np.random.default_rng(3).random((b, b))
    return sp.kron(a, np.eye(b)) + sp.kron(sp.eye_array(a.shape[0]), block)


def timed(work, count):
    times = []
    for _ in range(count):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        last = work()
        cupy.cuda.Device().synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times, last


def main():
    for name, matrix, block in (
        ("laplace 64³ × 4", coupled(compare.laplace(64, 64, 64), 4), 4),
        ("laplace 64³ × 4, block not given", coupled(compare.laplace(64, 64, 64), 4), None),
        ("reaction 64³ × 3", compare.reaction(64, 3), 3),
        ("laplace 128³", compare.laplace(128, 128, 128), None),
    ):
        a = sp.csr_matrix(matrix)
        a.sort_indices()
        b = np.ones(a.shape[0])
        there = csp.csr_matrix(a), cupy.asarray(b)
        for where, (A, f) in (("device", there), ("host", (a, b))):
            times, s = timed(lambda: krylith.solve(A, f, rtol=1e-8, device="cuda", block=block), 7)
            row = {"row": name, "entries": int(a.nnz), "arrays": where, "first": times[0], "median": statistics.median(times[1:])}
            row |= {"least": min(times[1:]), "outcome": s.outcome, "iterations": s.iterations}
            print(json.dumps(row, ensure_ascii=False), flush=True)
        if block:
            solver = krylith.Solver(there[0], rtol=1e-8, device="cuda", block=block)
            solver.solve(there[1])
            new = there[0].copy()
            new.data *= 1.01
            times, _ = timed(lambda: solver.update_values(new), 5)
            print(json.dumps({"row": name, "arrays": "device", "update": statistics.median(times)}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
