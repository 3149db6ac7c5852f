"""Batches of small systems: krylith.solve_batch beside PyTorch's batched dense solve and SciPy's spsolve, on one thread.

Usage: python bench/python/batch.py [--out rows.json]

Systems are diffusion with upwind convection on m² nodes, with values that differ by up to 10 %, and blocks of three
unknowns on 13² nodes. Each row has milliseconds of CPU time per system, medians of three runs in turn. PyTorch gets
dense matrices in memory; their assembly is not counted. It solves fewer systems where they would not fit. The error is
the largest difference from PyTorch's x.
"""

import argparse
import json
import statistics
import time

import krylith
import numpy as np
import scipy
import scipy.sparse as sp
import scipy.sparse.linalg as sl
import torch

DENSE = 2e9  # bytes of dense matrices at most


def grid(m: int) -> sp.csr_matrix:
    ones = np.ones(m)
    second = sp.diags([-ones[1:], 2 * ones, -ones[1:]], [-1, 0, 1])
    first = sp.diags([-ones[1:], ones], [-1, 0])
    A = (sp.kron(second, sp.eye(m)) + sp.kron(sp.eye(m), second) + 0.3 * sp.kron(first, sp.eye(m))).tocsr()
    A.sort_indices()
    return A


def blocks(m: int, b: int) -> sp.csr_matrix:
    coupling = np.eye(b) + 0.1 * np.random.default_rng(1).standard_normal((b, b))
    A = sp.kron(grid(m), coupling).tocsr()
    A.sort_indices()
    return A


def seconds(run, count: int):
    start = time.process_time()
    result = run()
    return (time.process_time() - start) / count, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(f"krylith {krylith.__version__}, SciPy {scipy.__version__}, PyTorch {torch.__version__}")
    print("| unknowns | systems | krylith, ms | PyTorch, dense | spsolve | krylith / PyTorch | residual | difference |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    cases = [(grid(4), 10_000), (grid(10), 10_000), (blocks(13, 3), 2_000), (grid(22), 10_000), (grid(44), 500)]
    for A, count in cases:
        n = A.shape[0]
        rng = np.random.default_rng(0)
        values, b = A.data * (1 + 0.1 * rng.random((count, A.nnz))), rng.standard_normal((count, n))
        few, some = max(1, min(count, int(DENSE / (8 * n * n)))), min(count, 200)
        dense = torch.zeros((few, n * n), dtype=torch.float64)
        where = np.repeat(np.arange(n), np.diff(A.indptr)) * n + A.indices
        dense[:, where] = torch.from_numpy(values[:few])
        dense, right = dense.reshape(few, n, n), torch.from_numpy(b[:few])
        matrices = [sp.csc_matrix(sp.csr_matrix((v, A.indices, A.indptr), A.shape)) for v in values[:some]]
        times = {"krylith": [], "torch": [], "spsolve": []}
        for _ in range(3):
            t, ours = seconds(lambda: krylith.solve_batch(A, b, values, threads=1), count)
            times["krylith"].append(t)
            t, theirs = seconds(lambda: torch.linalg.solve(dense, right), few)
            times["torch"].append(t)
            t, _ = seconds(lambda: [sl.spsolve(M, r) for M, r in zip(matrices, b)], some)
            times["spsolve"].append(t)
        ours.check()
        ms = {name: 1e3 * statistics.median(all) for name, all in times.items()}
        error = float(abs(ours.x[:few] - theirs.numpy()).max())
        rows.append({"unknowns": n, "systems": count, "dense_systems": few, "times": times, "error": error,
                     "residual": float(ours.residuals.max())})  # fmt: skip
        print(f"| {n} | {count} | {ms['krylith']:.4f} | {ms['torch']:.4f} | {ms['spsolve']:.4f} | "
              f"{ms['krylith'] / ms['torch']:.3f} | {rows[-1]['residual']:.0e} | {error:.0e} |", flush=True)  # fmt: skip
    if given.out:
        with open(given.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
