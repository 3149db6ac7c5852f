"""Microseconds that a call from Python takes on a system of 100 rows: python3 overhead.py [FILE.json]

`krylith.solve` sets up and solves; `Solver.solve` only solves, and is compared with the library's own clock
of the same solve. Median and minimum of 2,000 calls are reported, after 200 uncounted ones.
"""
import json
import statistics
import sys
import time

import numpy as np
import scipy.sparse as sp

import krylith

CALLS, WARM = 2000, 200


def timed(call):
    """Microseconds of each call, and what the calls returned last."""
    seconds = []
    for k in range(WARM + CALLS):
        start = time.perf_counter()
        result = call()
        if k >= WARM:
            seconds.append(time.perf_counter() - start)
    return [1e6 * s for s in seconds], result


def main():
    n = 100
    A = sp.csr_array(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
    b = np.ones(n)
    whole, solution = timed(lambda: krylith.solve(A, b))
    assert solution.converged and np.linalg.norm(b - A @ solution.x) <= 1.0001e-6 * np.linalg.norm(b)
    solver = krylith.Solver(A)
    own = []

    def solve():
        solution = solver.solve(b)
        own.append(1e6 * solution.seconds.solve)
        return solution

    repeated, solution = timed(solve)
    assert solution.converged
    rows = {"krylith.solve": whole, "Solver.solve": repeated, "the library's solve": own[WARM:]}
    for name, figures in rows.items():
        print(f"{name:22} median {statistics.median(figures):7.1f} µs, least {min(figures):7.1f} µs")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump({name: [statistics.median(f), min(f)] for name, f in rows.items()}, file, indent=1)


if __name__ == "__main__":
    main()
