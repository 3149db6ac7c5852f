"""Seconds of `krylith solve` with default options, compared with SciPy's `spsolve` (SuperLU).

    python3 compare.py KRYLITH A.mtx ...

Both get b = ones and start with the matrix in memory; the fastest of three runs counts (of one run from 20 s
on). Krylith's time is set-up and solve, to 1e-8, from its report, with each run in its own process; spsolve's
is the call on a CSC matrix. Run it on one core: OMP_NUM_THREADS=1 taskset -c 0.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import scipy
import scipy.io
import scipy.sparse
import scipy.sparse.linalg

warnings.filterwarnings("ignore")


def spsolve(a, b):
    best, residual = float("inf"), float("nan")
    for _ in range(3):
        start = time.perf_counter()
        x = scipy.sparse.linalg.spsolve(a, b)
        best = min(best, time.perf_counter() - start)
        residual = numpy.linalg.norm(b - a @ x) / numpy.linalg.norm(b)
        if best > 20:
            break
    return best, residual


def krylith(command, path, a, b):
    best = None
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            report, out = os.path.join(folder, "r.json"), os.path.join(folder, "x.npy")
            words = ["solve", path, "--rhs", "ones", "--rtol", "1e-8", "--device", "cpu", "--threads", "1"]
            words += ["--report", report, "--out", out, "--quiet"]
            subprocess.run([command] + words, capture_output=True, timeout=600)
            found = json.load(open(report))
            x = numpy.load(out)
        found["checked"] = numpy.linalg.norm(b - a @ x) / numpy.linalg.norm(b)
        if best is None or found["seconds"]["total"] < best["seconds"]["total"]:
            best = found
    return best


command, files = sys.argv[1], sys.argv[2:]
print(f"SciPy {scipy.__version__}, {subprocess.run([command, '--version'], capture_output=True, text=True).stdout.strip()}\n")
print("| matrix | n | nonzeros | spsolve, ms | residual | krylith, ms | residual | way | iterations | ratio |")
print("|---|---:|---:|---:|---:|---:|---:|---|---:|---:|")
rows = []
for path in files:
    a = scipy.sparse.csc_matrix(scipy.io.mmread(path))
    b = numpy.ones(a.shape[0])
    (theirs, residual), ours = spsolve(a, b), krylith(command, path, a, b)
    seconds = ours["seconds"]["total"]
    way = f"{ours['method']}, {ours['preconditioner']['name']}"
    if ours["outcome"] != "converged":
        way += f" ({ours['outcome']})"
    name = os.path.basename(path).replace(".mtx", "").replace(".gz", "")
    print(
        f"| {name} | {a.shape[0]} | {a.nnz} | {1e3 * theirs:.2f} | {residual:.0e} | {1e3 * seconds:.2f} | {ours['checked']:.0e} "
        f"| {way} | {ours['iterations']} | {seconds / theirs:.2f} |",
        flush=True,
    )
    rows.append((a.shape[0], theirs, residual, seconds, ours["outcome"] == "converged"))
solved = [row for row in rows if row[2] <= 1e-8]
print(f"\nOf {len(rows)} matrices spsolve brings {len(solved)} to 1e-8 and Krylith {sum(row[4] for row in rows)};", end=" ")
print(f"Krylith all of spsolve's: {all(row[4] for row in solved)}.")
print(f"No longer than spsolve: {sum(row[3] <= row[1] for row in solved)} of {len(solved)};", end=" ")
print(f"within 1.25 times: {sum(row[3] <= 1.25 * row[1] for row in solved)};", end=" ")
print(f"more than 3 times, of those below 20,000 rows: {sum(row[3] > 3 * row[1] and row[0] < 20000 for row in solved)}.")
print(f"All together {sum(row[1] for row in solved):.2f} s with spsolve, {sum(row[3] for row in solved):.2f} s with Krylith.")
