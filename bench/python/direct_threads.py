"""Direct factors on several threads beside MUMPS: seconds of wall clock, best of RUNS (three) runs.

    python3 bench/python/direct_threads.py DIRECT MUMPS OUT.json [THREADS …]

DIRECT is the program of direct.py. MUMPS is bench/mumps_threads.c, which has no MPI. Its threads are those of the BLAS
library, so link it with one that has threads:
gcc -O2 bench/mumps_threads.c -I/usr/include/mumps_seq -ldmumps_seq -lm -o mumps
(Debian: libmumps-seq-dev, libopenblas0-pthread). The factors of both include the analysis.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import scipy.sparse as sp
from direct import laplace, marker_and_cell, matrices, write

RUNS = int(os.environ.get("RUNS", "3"))


def systems():
    yield from matrices()
    yield "laplace 64^3", "spd", lambda: laplace(64, 64, 64)
    yield "plane 1500^2", "spd", lambda: laplace(1500, 1500)
    yield "plane stokes 400^2", "sym", lambda: marker_and_cell(400)


def run(command, threads):
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": "not in 100 s"}
    if done.returncode:
        return {"error": (done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def best(runs):
    failed = [r for r in runs if "error" in r]
    return (
        failed[0]
        if failed
        else {k: v if isinstance(v, str) else min(r[k] for r in runs) for k, v in runs[0].items()}
    )


def line(way, r):
    if "error" in r:
        return f"{way} {r['error']}"
    memory = (r["peak_bytes"] - r["before_bytes"]) / 2**20
    times = (r[key] for key in ("factors_wall_s", "again_wall_s", "solve_wall_s"))
    return f"{way} " + " ".join(f"{t:.4f}" for t in times) + f" s, {memory:.0f} MB, {r['residual']:.0e}"


def main():
    direct, mumps, out, *threads = sys.argv[1:]
    results = []
    for name, kind, make in systems():
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            a = sp.csr_matrix(make())
            write(a, file.name)
            row = {"matrix": name, "kind": kind, "rows": a.shape[0], "entries": int(a.nnz), "threads": {}}
            for count in map(int, threads or ["1", "4", "16"]):
                ways = {"krylith": [direct, file.name, str(count)], "mumps": [mumps, file.name, kind]}
                runs = {way: [] for way in ways}
                for _ in range(RUNS):
                    for way, command in ways.items():
                        runs[way].append(run(command, count))
                row["threads"][count] = {way: best(runs[way]) for way in ways}
                parts = [line(way, row["threads"][count][way]) for way in ways]
                print(f"{name}, {count} threads: " + " | ".join(parts), flush=True)
        results.append(row)
        pathlib.Path(out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
