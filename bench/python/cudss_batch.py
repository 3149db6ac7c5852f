"""Many small sparse systems on a GPU: krylith.solve_batch beside PyTorch's batched dense solve, in one process.

    KRYLITH_CUDSS=…/libcudss.so.1 python3 bench/python/cudss_batch.py OUT.json

Systems of a plane grid with convection and reaction, of one pattern and random coefficients. All arrays are on the GPU
before and after. The dense matrices are made before the clock starts. Best of three whole calls, after one call.
"""

import json
import pathlib
import sys
import time

import cupy as cp
import numpy as np
import scipy.sparse as sp
import torch

import krylith


def pattern(rows, columns):
    line = [sp.diags([-np.ones(n - 1), 2.0 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1]) for n in (rows, columns)]
    a = sp.csr_matrix(sp.kron(line[0], sp.eye(columns)) + sp.kron(sp.eye(rows), line[1]))
    a.sort_indices()
    return a


def best(work, runs=3):
    times, out = [], work()
    for _ in range(runs):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        out = work()
        cp.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return min(times), out


def main():
    rows = []
    for grid, count in (((5, 4), 100_000), ((10, 10), 100_000), ((25, 20), 10_000), ((50, 40), 1_000)):
        a = pattern(*grid)
        n, rng = a.shape[0], cp.random.default_rng(1)
        values = cp.asarray(a.data)[None, :] * (1.0 + 0.5 * rng.random((count, a.nnz)))
        values[:, cp.asarray(np.flatnonzero(a.tocoo().row == a.tocoo().col))] += 1.0
        b = rng.standard_normal((count, n))
        ours, solution = best(lambda: krylith.solve_batch(a, b, values))
        worst, good = float(np.nanmax(solution.residuals)), int(solution.converged.sum())
        row = {"unknowns": n, "systems": count, "krylith": ours, "worst": worst, "converged": good}
        if count * n * n * 8 < 60e9:
            dense = torch.zeros((count, n, n), dtype=torch.float64, device="cuda")
            coo = a.tocoo()
            index = [torch.as_tensor(v, device="cuda", dtype=torch.int64) for v in (coo.row, coo.col)]
            dense[:, index[0], index[1]] = torch.as_tensor(values, device="cuda")
            right = torch.as_tensor(b, device="cuda")[:, :, None]
            theirs, x = best(lambda: torch.linalg.solve(dense, right))
            difference = cp.linalg.norm(solution.x - cp.asarray(x[:, :, 0])) / cp.linalg.norm(solution.x)
            row.update(torch=theirs, ratio=ours / theirs, difference=float(difference))
            del dense, right, x
            torch.cuda.empty_cache()
        rows.append(row)
        print(row, flush=True)
        pathlib.Path(sys.argv[1]).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
