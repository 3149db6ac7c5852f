"""Milliseconds of repeated solves with one krylith.Solver, compared with named options: python3 repeated.py

The system is −div k grad on n³ cells with u = 0 around them; k varies by up to 1,000. Right-hand sides are
sin(k i), the tolerance is 1e-8.
Run it on one core: OMP_NUM_THREADS=1 taskset -c 0.
"""
import time

import numpy as np
import scipy.sparse as sp

import krylith

CONTRAST = 1e3


def rock(side):
    cell = np.arange(side**3)
    k = CONTRAST ** ((cell * 7919 % 1009) / 1009.0)
    rows, columns, values, diagonal = [], [], [], np.zeros(side**3)
    for step in (1, side, side * side):
        at = cell // step % side
        for inside, other in ((at > 0, cell - step), (at + 1 < side, cell + step)):
            face = np.where(inside, 2.0 / (1.0 / k + 1.0 / k[np.where(inside, other, cell)]), 2.0 * k)
            diagonal += face
            rows.append(cell[inside])
            columns.append(other[inside])
            values.append(-face[inside])
    off = sp.coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(side**3,) * 2)
    return (off + sp.diags_array(diagonal)).tocsr()


def milliseconds(work):
    begin = time.perf_counter()
    done = work()
    return 1e3 * (time.perf_counter() - begin), done


for side in (24, 32):
    A = rock(side)
    for options in ({"precond": "jacobi", "method": "cg"}, {"precond": "amg", "method": "cg"}, {"precond": "lu"}):
        setup, solver = milliseconds(lambda: krylith.Solver(A, rtol=1e-8, device="cpu", **options))
        solves = [milliseconds(lambda: solver.solve(np.sin(np.arange(A.shape[0])))) for _ in range(4)]
        print(f"{side}³, {options['precond']}: set-up {setup:.1f}, then {min(s[0] for s in solves):.1f} of {solves[0][1].iterations} iterations")
    setup, solver = milliseconds(lambda: krylith.Solver(A, rtol=1e-8, device="cpu"))
    solves = [milliseconds(lambda: solver.solve(np.sin(np.arange(A.shape[0]) * (k + 1.0)))) for k in range(12)]
    print(f"{side}³, auto: set-up {setup:.1f}, then " + " ".join(f"{ms:.1f} ({x.iterations})" for ms, x in solves), flush=True)
