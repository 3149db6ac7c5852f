"""Direct factors of distributed matrices beside MUMPS of PETSc, on the same MPI ranks, and beside one rank.

    python3 bench/python/direct_ranks.py target/release/examples/direct_ranks OUT.json [MATRIX …] [--runs N]

Times are processor seconds: those of the rank that takes longest, and the sum of all ranks. Ranks that wait in
MPI poll, and that counts too. Memory is the growth of the largest resident memory, the sum of all ranks. Needs
SciPy, and petsc4py with MUMPS for the same MPI (Debian: python3-petsc4py, python3-scipy, libmumps-5.5). Build
the program first:
cargo build --release -p krylith-core --no-default-features --features lu --example direct_ranks
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

RUNS = 3
KEYS = ("factors", "again", "solve")


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def mumps(path, kind):
    """PETSc's MUMPS on all ranks, each with a run of rows."""
    import petsc4py

    petsc4py.init(["x"])
    from mpi4py import MPI
    from petsc4py import PETSc

    from direct import read

    comm = MPI.COMM_WORLD
    m = read(path)
    n = m.shape[0]
    own = slice(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
    rows = m[own]
    size = (rows.shape[0], n)
    a = PETSc.Mat().createAIJ((size, size), csr=(rows.indptr, rows.indices, rows.data), comm=comm)
    a.assemble()
    a.setOption(PETSc.Mat.Option.SYMMETRIC, kind != "gen")
    a.setOption(PETSc.Mat.Option.SPD, kind == "spd")
    ksp = PETSc.KSP().create(comm)
    ksp.setOperators(a)
    ksp.setType("preonly")
    pc = ksp.getPC()
    pc.setType("lu" if kind == "gen" else "cholesky")
    pc.setFactorSolverType("mumps")
    x, b = a.createVecRight(), a.createVecLeft()
    b.set(1.0)
    out = {}

    def timed(key, work):
        comm.Barrier()
        clock, begin = time.process_time(), time.perf_counter()
        work()
        out[f"{key}_s"] = comm.gather(time.process_time() - clock)
        out[f"{key}_elapsed_s"] = comm.gather(time.perf_counter() - begin)

    before = peak()
    timed("factors", pc.setUp)
    out["added_bytes"] = comm.gather(peak() - before)
    timed("solve", lambda: ksp.solve(b, x))
    whole = np.concatenate(comm.allgather(x.getArray()))
    off = comm.allreduce(float(np.sum((1.0 - rows @ whole) ** 2)))
    out["residual"] = (off / n) ** 0.5
    numbers = pc.getFactorMatrix().getMumpsInfog(29)
    out["numbers"] = numbers if numbers >= 0 else -1_000_000 * numbers
    a.setValuesCSR(rows.indptr, rows.indices, 1.5 * rows.data)
    a.assemble()
    ksp.setOperators(a)

    def again():
        pc.setOperators(a)
        pc.setUp()

    timed("again", again)
    if comm.rank == 0:
        print(json.dumps(out))


def run(command, limit=200):
    """The last line of the output, as JSON."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"not in {limit} s"}
    if done.returncode:
        lines = (done.stderr.strip() or f"exit {done.returncode}").splitlines()
        return {"error": lines[0][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def median(runs):
    """The medians of the longest and of the sum over ranks; the first error if there is one."""
    failed = [r for r in runs if "error" in r]
    if failed:
        return failed[0]
    out = {key: runs[0][key] for key in ("way", "kind", "numbers") if key in runs[0]}
    for key in KEYS:
        out[f"{key}_longest_s"] = float(np.median([max(r[f"{key}_s"]) for r in runs]))
        out[f"{key}_sum_s"] = float(np.median([sum(r[f"{key}_s"]) for r in runs]))
        out[f"{key}_elapsed_s"] = float(np.median([max(r[f"{key}_elapsed_s"]) for r in runs]))
    out["added_bytes"] = float(np.median([sum(r["added_bytes"]) for r in runs]))
    out["residual"] = max(r["residual"] for r in runs)
    return out


def line(way, r):
    if "error" in r:
        return f"  {way:<14} {r['error']}"
    times = " ".join(f"{key} {r[f'{key}_longest_s']:.3f} ({r[f'{key}_sum_s']:.3f})" for key in KEYS)
    numbers, memory = r["numbers"] / 1e6, r["added_bytes"] / 2**20
    return f"  {way:<14} {times} {numbers:.2f} M, {memory:.0f} MB, {r['residual']:.0e}"


def main():
    if sys.argv[1] == "--mumps":
        mumps(*sys.argv[2:])
        return
    from direct import matrices, write

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    arguments, count = sys.argv[1:], RUNS
    if "--runs" in arguments:
        at = arguments.index("--runs")
        count = int(arguments[at + 1])
        del arguments[at : at + 2]
    program, target, chosen, results = arguments[0], arguments[1], arguments[2:], []
    own = [sys.executable, __file__, "--mumps"]
    for name, kind, make in matrices():
        if chosen and name not in chosen:
            continue
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            a = make()
            write(a, file.name)
            row = dict(matrix=name, kind=kind, rows=a.shape[0], entries=int(a.nnz), load=os.getloadavg()[0])
            ways = {}
            for ranks in (1, 2, 4):
                start = ["mpirun", "--oversubscribe", "-n", str(ranks)]
                ways[f"one, {ranks}"] = [*start, program, file.name, "one"]
                ways[f"mumps, {ranks}"] = [*start, program, file.name, "mumps"]
                ways[f"PETSc, {ranks}"] = [*start, *own, file.name, kind]
            runs = {way: [] for way in ways}
            for _ in range(count):
                for way, command in ways.items():
                    runs[way].append(run(command))
            row |= {"medians": {way: median(runs[way]) for way in ways}, "runs": runs}
        results.append(row)
        print(f"{name}: longest rank (sum) in CPU seconds", flush=True)
        print("\n".join(line(way, row["medians"][way]) for way in ways), flush=True)
        pathlib.Path(target).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
