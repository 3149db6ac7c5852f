"""Seconds of `krylith solve` on diffusion with default options, compared with named options, on one core.

    python3 diffusion.py KRYLITH FILE.json

The right-hand side is random, the tolerance 1e-6. The fastest of five runs counts, set-up included, from the
report. Each run is a process of its own.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import scipy.sparse as sp
from compare import laplace, rock


def plane_rock(n, contrast):
    """−div k grad on n² cells whose k differ by as much as `contrast`: a layer of `rock`."""
    k = contrast ** np.random.default_rng(1).random((n, n))
    number = np.arange(n * n).reshape(n, n)
    rows, columns, values, diagonal = [], [], [], np.zeros(n * n)
    low, high, every = slice(0, n - 1), slice(1, n), slice(None)
    for a, b in (((low, every), (high, every)), ((every, low), (every, high))):
        face = (2.0 / (1.0 / k[a] + 1.0 / k[b])).ravel()
        i, j = number[a].ravel(), number[b].ravel()
        rows += [i, j]
        columns += [j, i]
        values += [-face, -face]
        np.add.at(diagonal, i, face)
        np.add.at(diagonal, j, face)
    diagonal[number[0]] += 2.0 * k[0]
    rows, columns, values = (np.concatenate(part) for part in (rows, columns, values))
    return (sp.coo_array((values, (rows, columns)), shape=(n * n, n * n)) + sp.diags_array(diagonal)).tocsr()


SYSTEMS = {
    "laplace 100²": lambda: laplace(100, 100),
    "laplace 200²": lambda: laplace(200, 200),
    "laplace 400²": lambda: laplace(400, 400),
    "laplace 20³": lambda: laplace(20, 20, 20),
    "laplace 30³": lambda: laplace(30, 30, 30),
    "laplace 60³": lambda: laplace(60, 60, 60),
    "laplace 100×100×4": lambda: laplace(100, 100, 4),
    "rock 100², 1e4": lambda: plane_rock(100, 1e4),
    "rock 300², 1e4": lambda: plane_rock(300, 1e4),
    "rock 40³, 1e4": lambda: rock(40, 1e4),
}
WAYS = {
    "auto": [],
    "lu": ["--precond", "lu"],
    "jacobi": ["--method", "cg", "--precond", "jacobi"],
    "amg": ["--method", "cg", "--precond", "amg"],
}
ALWAYS = ["--device", "cpu", "--threads", "1", "--rtol", "1e-6", "--quiet"]


def run(command, folder, words):
    """Seconds, outcome, iterations, method and preconditioner of one run."""
    report = os.path.join(folder, "r.json")
    files = [os.path.join(folder, "A.npz"), "--rhs", os.path.join(folder, "b.npy"), "--report", report]
    subprocess.run([command, "solve", *files, *ALWAYS, *words], check=False)
    with open(report) as file:
        r = json.load(file)
    return r["seconds"]["total"], r["outcome"], r["iterations"], r["method"], r["preconditioner"]["name"]


def main():
    found = {}
    print("| system | " + " | ".join(WAYS) + " | auto ended by |\n|---|" + "---:|" * len(WAYS) + "---|")
    for name, make in SYSTEMS.items():
        A = make()
        with tempfile.TemporaryDirectory() as folder:
            sp.save_npz(os.path.join(folder, "A.npz"), A.tocsr())
            np.save(os.path.join(folder, "b.npy"), np.random.default_rng(3).standard_normal(A.shape[0]))
            found[name] = {way: [run(sys.argv[1], folder, words) for _ in range(5)] for way, words in WAYS.items()}
        best = {way: min(runs) for way, runs in found[name].items()}
        cells = [f"{1e3 * b[0]:.1f}" if b[1] == "converged" else b[1] for b in best.values()]
        _, _, iterations, method, precond = best["auto"]
        print(f"| {name} | " + " | ".join(cells) + f" | {method}, {precond}, {iterations} iterations |", flush=True)
    with open(sys.argv[2], "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
