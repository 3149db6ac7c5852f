"""Eight MPI ranks on two GPUs beside two ranks on two GPUs: `ranks_per_gpu`.

    python3 bench/python/ranks_per_gpu.py OUT.json [--many 8] [--few 2] [--side 128] [--runs 5]
        [--device cuda] [--mpirun "mpirun --oversubscribe --allow-run-as-root --bind-to none"]

Needs the package krylith, mpi4py, SciPy and mpirun. Each system is solved by `--many` ranks, which share the
GPUs, by `--few` ranks with a GPU each, and by `--many` ranks of which each sees one GPU by
CUDA_VISIBLE_DEVICES. Checks come first. ‖b − A x‖ is computed with SciPy from the x of all ranks, after the
first solve, after new values and for two right-hand sides. Outcome and iterations must be the same on all
ranks, and so must an error of one rank. Then set-up, first solve, and medians of later solves and updates are
measured, as the largest time of all ranks after a barrier. `--device cpu` runs the same program without a GPU,
with groups of `--many`/`--few` ranks.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import scipy.sparse as sp

SYSTEMS = {
    "laplace": {"precond": "amg", "method": "cg", "rtol": 1e-8},
    "coupled": {"precond": "cpr(p: amg) then ildu", "method": "gmres", "rtol": 1e-8},
}


def laplace(side, own):
    """Return own rows of −Δ on a cube, with 7 points."""
    n = side**3
    i = np.arange(own.start, own.stop)
    x, y, z = i % side, i // side % side, i // side**2
    rows, columns, values = [i], [i], [np.full(len(i), 6.0)]
    for at, step in ((x, 1), (y, side), (z, side * side)):
        for inside, neighbour in ((at > 0, i - step), (at < side - 1, i + step)):
            rows.append(i[inside])
            columns.append(neighbour[inside])
            values.append(np.full(int(inside.sum()), -1.0))
    rows, columns, values = map(np.concatenate, (rows, columns, values))
    return sp.csr_array((values, (rows - own.start, columns)), shape=(len(i), n))


def coupled(side, own):
    """Return own rows of a pressure and a saturation in each cell: Darcy's law and upwind transport."""
    diffusion = laplace(side, own)
    n = side**3
    i = np.arange(own.start, own.stop)
    local = np.arange(len(i))
    inside = i % side > 0
    unit = sp.csr_array((np.ones(len(i)), (local, i)), shape=(len(i), n))
    left = sp.csr_array((np.ones(int(inside.sum())), (local[inside], i[inside] - 1)), shape=(len(i), n))
    upwind = unit - left
    blocks = ((diffusion + 1e-3 * unit, 0.3 * upwind), (0.2 * diffusion, unit + 2.0 * upwind))
    parts = []
    for row, of_row in enumerate(blocks):
        for column, block in enumerate(of_row):
            coo = block.tocoo()
            parts.append((2 * coo.row + row, 2 * coo.col + column, coo.data))
    rows, columns, values = map(np.concatenate, zip(*parts))
    return sp.csr_array((values, (rows, columns)), shape=(2 * len(i), 2 * n))


def rank_program(arguments):
    """Solve one system on these ranks; rank 0 writes the result."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if arguments.one_each:
        # As launchers do that give each rank one GPU.
        os.environ["CUDA_VISIBLE_DEVICES"] = str(comm.rank % arguments.few)
    import krylith

    cells = arguments.side**3
    own = range(cells * comm.rank // comm.size, cells * (comm.rank + 1) // comm.size)
    own = slice(own.start, own.stop)
    a = {"laplace": laplace, "coupled": coupled}[arguments.system](arguments.side, own)
    width = a.shape[1] // cells
    mine = slice(width * own.start, width * own.stop)
    options = dict(SYSTEMS[arguments.system], device=arguments.device)
    if arguments.ranks_per_gpu:
        options["ranks_per_gpu"] = arguments.ranks_per_gpu
    if arguments.system == "coupled":
        numbers = np.arange(mine.start, mine.stop)
        options["fields"] = {"p": numbers[::2], "s": numbers[1::2]}
        options["block"] = 2
    b = np.cos(0.1 * np.arange(mine.start, mine.stop))

    def timed(work):
        comm.Barrier()
        begin = time.perf_counter()
        result = work()
        return result, comm.allreduce(time.perf_counter() - begin, MPI.MAX)

    def residual(matrix, rhs, x):
        whole = np.concatenate(comm.allgather(x))
        r = rhs - matrix @ whole
        return float(np.sqrt(comm.allreduce(r @ r) / comm.allreduce(rhs @ rhs)))

    solver, setup = timed(lambda: krylith.Solver(a, comm=comm, **options))
    solution, first = timed(lambda: solver.solve(b))
    says = comm.allgather((solution.outcome, solution.iterations, str(solution)))
    checks = {
        "converged": bool(solution.converged),
        "residual": residual(a, b, solution.x),
        "same_report": len({said[:2] for said in says}) == 1,
    }
    solver.update_values(2.0 * a)
    checks["after_update"] = residual(2.0 * a, b, solver.solve(b).x)
    solver.update_values(a)
    both = solver.solve(np.stack([b, np.roll(b, 1)], axis=1))
    checks["columns"] = [residual(a, rhs, both.x[:, k]) for k, rhs in enumerate((b, np.roll(b, 1)))]
    bad = b.copy()
    if comm.rank == comm.size - 1:
        bad[0] = np.nan
    try:
        solver.solve(bad)
        checks["error_on_all"] = False
    except krylith.Error:
        checks["error_on_all"] = True
    checks["error_on_all"] = all(comm.allgather(checks["error_on_all"]))
    limit = 100 * options["rtol"]
    small = [checks["residual"], checks["after_update"], *checks["columns"]]
    checks["passed"] = bool(
        checks["converged"] and checks["same_report"] and checks["error_on_all"] and max(small) < limit
    )
    solves, updates = [], []
    for run in range(arguments.runs):
        updates.append(timed(lambda: solver.update_values((1.0 + 0.1 * (run % 2)) * a))[1])
        solves.append(timed(lambda: solver.solve(b))[1])
    if comm.rank == 0:
        found = {
            "system": arguments.system,
            "ranks": comm.size,
            "one_gpu_each": arguments.one_each,
            "unknowns": a.shape[1],
            "iterations": solution.iterations,
            "says": says[0][2],
            "checks": checks,
            "setup_s": setup,
            "first_solve_s": first,
            "solve_s": statistics.median(solves),
            "update_s": statistics.median(updates),
            "solves_s": solves,
            "updates_s": updates,
        }
        pathlib.Path(arguments.out).write_text(json.dumps(found))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--many", type=int, default=8)
    parser.add_argument("--few", type=int, default=2)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --allow-run-as-root --bind-to none")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--ranks-per-gpu", help=argparse.SUPPRESS)
    parser.add_argument("--one-each", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.system:
        return rank_program(arguments)
    shared = str(arguments.many // arguments.few) if arguments.device == "cpu" else "auto"
    # The same program with a GPU for each rank is the baseline.
    cases = [(arguments.few, "1", False), (arguments.many, shared, False)]
    if arguments.device != "cpu":
        cases.append((arguments.many, "auto", True))
    results = []
    for system in SYSTEMS:
        for ranks, share, one_each in cases:
            with tempfile.TemporaryDirectory() as folder:
                out = str(pathlib.Path(folder) / "result.json")
                words = [*arguments.mpirun.split(), "-n", str(ranks), sys.executable, __file__, out]
                words += ["--system", system, "--ranks-per-gpu", share, "--device", arguments.device]
                words += ["--few", str(arguments.few), "--side", str(arguments.side)]
                words += ["--runs", str(arguments.runs), *["--one-each"] * one_each]
                done = subprocess.run(words, capture_output=True, text=True, timeout=560)
                if done.returncode != 0:
                    results.append({"system": system, "ranks": ranks, "failed": done.stdout + done.stderr})
                    print(system, ranks, "FAILED\n", done.stdout + done.stderr)
                    continue
                results.append(json.loads(pathlib.Path(out).read_text()))
            one = results[-1]
            print(
                f"{system} {ranks} ranks{' (one GPU each)' if one_each else ''}: "
                f"passed {one['checks']['passed']}, {one['iterations']} iterations, "
                f"set-up {one['setup_s']:.3f} s, first {one['first_solve_s']:.3f} s, "
                f"solve {one['solve_s']:.4f} s, update {one['update_s']:.4f} s"
            )
            pathlib.Path(arguments.out).write_text(json.dumps(results, indent=1))
    failed = [one for one in results if "failed" in one or not one["checks"]["passed"]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
