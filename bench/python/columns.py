"""Four right-hand sides on a GPU: seconds of successive solves, and of one solve of the system I ⊗ A.

    python3 columns.py [FILE.json]
"""
import json
import sys
import warnings

import numpy as np
from compare import load

import krylith

COLUMNS = 4


def least_of_three(solver, B):
    """Seconds of solves, iterations as a mean over columns, and whether all converged."""
    best = float("inf")
    for _ in range(3):
        solution = solver.solve(B)
        parts = solution.columns or (solution,)
        best = min(best, sum(part.seconds.solve for part in parts))
    return best, sum(part.iterations for part in parts) / len(parts), solution.converged


def main():
    warnings.simplefilter("ignore")
    rows = []
    for name in ("laplace 60³", "laplace 128³", "convection 80³", "reaction 50³, 4 fields"):
        A = load(name)
        B = np.random.default_rng(3).standard_normal((A.shape[0], COLUMNS))
        for method in ("cg", "bicgstab") if name.startswith("laplace") else ("bicgstab",):
            options = {"method": method, "precond": "jacobi", "device": "cuda", "rtol": 1e-6}
            one, none = np.eye(COLUMNS), np.zeros((COLUMNS, COLUMNS))
            turn = least_of_three(krylith.Solver(A, **options), B)
            together = least_of_three(krylith.Solver(krylith.KroneckerSum(one, A, none, A, 0.0), **options), B)
            rows.append({"system": name, "method": method, "in turn": turn, "together": together})
            print(f"{name}, {method}: {1e3 * turn[0]:.1f} ms in turn, {1e3 * together[0]:.1f} together", flush=True)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
