"""Times of transposed solves beside those with A, from one set-up: the first, which lays out Aᵀ, and later ones.

Usage: python bench/python/transposed.py [--device cpu|cuda] [--nodes 40] [--threads N] [--out rows.json]

Systems: upwind convection and diffusion on a cube of nodes³ nodes with one unknown, and with three coupled unknowns
at (nodes/1.4)³ nodes. On a CPU, times are CPU seconds of the process. A row has the seconds of the set-up, of a solve and of an iteration, with A and with Aᵀ, and the
seconds by which the first transposed solve exceeds a later one. Least of three for solves.
"""

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp

import krylith

PRECONDS = ["jacobi", "ildu", "ras:solve=exact", "amg", "amg:coarsen=smoothed", "amg:coarsen=air", "lu"]


def cube(m: int) -> sp.csr_array:
    """Return diffusion with upwind convection of three speeds on m³ nodes."""
    eye = sp.eye_array(m)
    line = [sp.diags_array([-1.0 - v, 2.0 + v, -1.0], offsets=[-1, 0, 1], shape=(m, m)) for v in (0.4, 0.9, 1.7)]
    return sp.csr_array(
        sp.kron(sp.kron(line[0], eye), eye) + sp.kron(sp.kron(eye, line[1]), eye) + sp.kron(sp.kron(eye, eye), line[2])
    )


def coupled(m: int) -> sp.bsr_array:
    """Return the same for three unknowns of a node, which reactions couple."""
    reactions = np.array([[0.5, 0.3, -0.2], [-0.1, 0.6, 0.2], [0.2, -0.3, 0.4]])
    a = cube(m)
    return sp.bsr_array(sp.kron(a, np.eye(3)) + sp.kron(sp.eye_array(a.shape[0]), reactions), blocksize=(3, 3))


def timed(solve, clock):
    begin = clock()
    solution = solve()
    return clock() - begin, solution


def row(name: str, A, precond: str, device: str, options: dict) -> dict:
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    if device == "cuda":
        import cupy

        b = cupy.asarray(b)
    clock = time.process_time if device == "cpu" else time.perf_counter
    given = {"method": "bicgstab", "precond": precond, "device": device, "rtol": 1e-8} | options
    set_up, solver = timed(lambda: krylith.Solver(A, **given), clock)
    first, _ = timed(lambda: solver.solve(b), clock)
    plain = min((timed(lambda: solver.solve(b), clock) for _ in range(3)), key=lambda pair: pair[0])
    lay_out, _ = timed(lambda: solver.solve(b, transpose=True), clock)
    turned = min((timed(lambda: solver.solve(b, transpose=True), clock) for _ in range(3)), key=lambda pair: pair[0])
    each = [seconds / max(solution.iterations, 1) for seconds, solution in (plain, turned)]
    return {
        "system": name, "rows": A.shape[0], "precond": precond, "set_up": set_up, "first": first,
        "solve": plain[0], "iterations": plain[1].iterations, "solve_transposed": turned[0],
        "iterations_transposed": turned[1].iterations, "lay_out": lay_out - turned[0],
        "share_of_set_up": (lay_out - turned[0]) / set_up, "iteration_ratio": each[1] / each[0],
        "outcomes": [plain[1].outcome, turned[1].outcome],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out")
    given = parser.parse_args()
    options = {} if given.threads is None else {"threads": given.threads}
    systems = {"scalar": cube(given.nodes), "three": coupled(int(given.nodes / 1.4))}
    rows = []
    for name, A in systems.items():
        for precond in PRECONDS:
            if (precond == "lu" and given.nodes > 24) or (name == "three" and "air" in precond):
                continue
            rows.append(row(name, A, precond, given.device, options))
            print(
                "{system:7} {precond:22} set-up {set_up:7.3f} s, {iterations:3} in {solve:7.3f} s; transposed "
                "{iterations_transposed:3} in {solve_transposed:7.3f} s, laid out in {lay_out:7.3f} s = {share_of_set_up:.2f} "
                "of the set-up; an iteration {iteration_ratio:.2f} times".format(**rows[-1]), flush=True
            )  # fmt: skip
    if given.out:
        with open(given.out, "w") as file:
            json.dump({"versions": {"krylith": krylith.__version__, "numpy": np.__version__}, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
