"""Times of 1, 4 and 16 right-hand sides that are solved together, beside the same ones solved one after the other.

Usage: python bench/python/columns.py [--device cpu|cuda] [--nodes 64] [--threads N] [--out rows.json]

Systems: Poisson's equation with 7 points and upwind convection and diffusion on a cube of nodes³ nodes, and the
convection with three coupled unknowns at (nodes/1.4)³ nodes. Right-hand sides are random, so all need about the same
number of iterations. On a CPU, times are CPU seconds of the process; on a GPU, those of the wall, with b on the GPU.
A row has the seconds of one column and of k columns together, least of three, those of k solves one after the other,
and the ratio of bytes of a product: (matrix + k vectors)/(matrix + one vector).
"""

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp
from transposed import coupled, cube

import krylith

CASES = [
    ("poisson", "cg", "jacobi"),
    ("poisson", "cg", "amg"),
    ("convection", "bicgstab", "ildu"),
    ("convection", "gmres", "amg"),
    ("three", "bicgstab", "jacobi"),
    ("three", "bicgstab", "ildu"),
    ("three", "gmres", "amg"),
    ("elasticity", "cg", "amg"),
]


def poisson(m: int) -> sp.csr_array:
    """Return the seven-point Laplacian on m³ nodes."""
    eye, line = sp.eye_array(m), sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
    return sp.csr_array(
        sp.kron(sp.kron(line, eye), eye) + sp.kron(sp.kron(eye, line), eye) + sp.kron(sp.kron(eye, eye), line)
    )


def elasticity(m: int) -> tuple[sp.bsr_array, np.ndarray]:
    """Return trilinear elements of an elastic cube of (m − 1)³ cells that is clamped at x = 0, and its free nodes."""
    h, lame, shear = 1.0 / (m - 1), 1.0, 1.0
    pattern = sp.csr_array(sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(m, m)))
    row = np.repeat(np.arange(m), np.diff(pattern.indptr))
    end = np.where((row == 0) | (row == m - 1), 0.5, 1.0)

    def line(low, diagonal, high):
        """Return a tridiagonal matrix that stores zeros too, so that all blocks have one pattern."""
        apart = pattern.indices - row
        data = np.where(apart == 0, diagonal * np.ones(len(row)), np.where(apart < 0, low, high))
        return sp.csr_array((data, pattern.indices, pattern.indptr), shape=(m, m))

    slope = np.where(row == 0, -0.5, np.where(row == m - 1, 0.5, 0.0))  # ∫ φ_i φ_j′
    kinds = [line(h / 6, 4 * h / 6 * end, h / 6), line(-1 / h, 2 / h * end, -1 / h), line(-0.5, slope, 0.5)]
    kinds.append(sp.csr_array(kinds[2].T))
    lines = [[one[1:, 1:] for one in kinds], kinds, kinds]

    def product(of_axes):
        made = lines[0][of_axes[0]]
        for axis in (1, 2):
            made = sp.kron(made, lines[axis][of_axes[axis]], format="csr")
        made.sort_indices()
        return made

    def data(test: int, trial: int):
        if test == trial:
            parts = [product([int(axis == k) for axis in range(3)]).data for k in range(3)]
            return sum((lame + 2 * shear if k == test else shear) * part for k, part in enumerate(parts))
        one, other = [0, 0, 0], [0, 0, 0]
        one[test], one[trial], other[test], other[trial] = 3, 2, 2, 3
        return lame * product(one).data + shear * product(other).data

    of = product([0, 0, 0])
    values = np.empty((of.nnz, 3, 3))
    for test in range(3):
        for trial in range(3):
            values[:, test, trial] = data(test, trial)
    x, y, z = np.meshgrid(np.arange(1, m) * h, np.arange(m) * h, np.arange(m) * h, indexing="ij")
    return sp.bsr_array((values, of.indices, of.indptr)), np.stack([x.ravel(), y.ravel(), z.ravel()], axis=1)


def timed(solve, clock):
    begin = clock()
    solution = solve()
    return clock() - begin, solution


def least(solve, clock):
    return min((timed(solve, clock) for _ in range(3)), key=lambda pair: pair[0])


def rows_of(name: str, A, method: str, precond: str, device: str, options: dict, more: dict) -> list[dict]:
    B = np.random.default_rng(0).standard_normal((A.shape[0], 16))
    clock = time.process_time if device == "cpu" else time.perf_counter
    given = {"method": method, "precond": precond, "device": device, "rtol": 1e-8} | options
    solver = krylith.Solver(A, **given, **more)
    on = np
    if device == "cuda":
        import cupy as on

        B = on.asarray(B)
    ones = [least(lambda: solver.solve(B[:, 0]), clock)]
    ones += [timed(lambda k=k: solver.solve(B[:, k]), clock) for k in range(1, 16)]
    rows, matrix = [], 12 * A.nnz
    for k in (1, 4, 16):
        b = on.ascontiguousarray(B[:, :k])
        first = timed(lambda b=b: solver.solve(b), clock)[0]
        seconds, solution = least(lambda b=b: solver.solve(b), clock)
        x = solution.x if device == "cpu" else solution.x.get()
        residual = np.linalg.norm(B[:, :k].get() - A @ x if device == "cuda" else b - A @ x, axis=0)
        residual /= np.linalg.norm(np.asarray(B[:, :k].get() if device == "cuda" else b), axis=0)
        one, alone = ones[0][0], sum(seconds for seconds, _ in ones[:k])
        columns = solution.columns or (solution,)
        rows.append({
            "system": name, "rows": A.shape[0], "method": method, "precond": precond, "columns": k, "first": first,
            "seconds": seconds, "one": one, "one_after_the_other": alone, "times_one": seconds / one,
            "gain": alone / seconds, "bytes": (matrix + 16 * k * A.shape[0]) / (matrix + 16 * A.shape[0]),
            "iterations": [column.iterations for column in columns],
            "iterations_alone": [solution.iterations for _, solution in ones[:k]],
            "residual": float(residual.max()), "outcomes": sorted({column.outcome for column in columns}),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out")
    given = parser.parse_args()
    options = {} if given.threads is None else {"threads": given.threads}
    made = {"poisson": poisson(given.nodes), "convection": cube(given.nodes), "three": coupled(int(given.nodes / 1.4))}
    rigid, points = elasticity(given.nodes // 2)
    made["elasticity"] = rigid
    rows = []
    for name, method, precond in CASES:
        for row in rows_of(name, made[name], method, precond, given.device, options, {"coordinates": points, "near_nullspace": "rigid"} if name == "elasticity" else {}):
            rows.append(row)
            assert row["residual"] <= 1.01e-8, row
            print(
                "{system:10} {method:8} {precond:6} {columns:2} columns: {seconds:8.4f} s, {times_one:5.2f} times one (bytes "
                "{bytes:5.2f}), {gain:4.2f} times as fast as one after the other; iterations {iterations[0]}, alone "
                "{iterations_alone[0]}".format(**row), flush=True
            )  # fmt: skip
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"versions": {"krylith": krylith.__version__, "numpy": np.__version__}, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
