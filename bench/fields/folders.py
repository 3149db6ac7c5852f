"""Bare solves of assembled systems: `python3 folders.py FOLDER …` prints a line of JSON for each.

A folder holds `A.npz` (SciPy) and `b.npy`. Each solve is `kr.solve(a, b, rtol=1e-8)` on one thread, in a process of its
own. Times are process CPU seconds with the set-up; the residual is recomputed with SciPy. With `--precond NAME` the
solve takes that preconditioner instead, such as `lu`. `--here FOLDER --x FILE` writes x, too.
"""

import argparse
import json
import os
import subprocess
import sys
import time


def one(folder, precond, cap, x_file):
    import krylith as kr
    import numpy as np
    import scipy.sparse as sp

    a, b = sp.load_npz(f"{folder}/A.npz").tocsr(), np.load(f"{folder}/b.npy")
    start = time.process_time()
    named = {"precond": precond} if precond else {}
    s = kr.solve(a, b, rtol=1e-8, threads=1, device="cpu", callback=lambda *_: time.process_time() - start > cap, **named)
    seconds = time.process_time() - start
    residual = float(np.linalg.norm(b - a @ s.x) / np.linalg.norm(b))
    if x_file:
        np.save(x_file, s.x)
    tried = [e.detail for e in s.events if e.kind == "fallback"]
    out = {"system": os.path.basename(folder.rstrip("/")), "unknowns": len(b), "entries": int(a.nnz), "seconds": round(seconds, 3)}
    out |= {"iterations": s.iterations, "outcome": s.outcome, "residual": residual, "what": f"{s.precond} with {s.method}"}
    print(json.dumps(out | {"fallbacks": tried}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--precond", default="")
    parser.add_argument("--cap", type=float, default=120.0, help="CPU seconds after which a solve is cancelled")
    parser.add_argument("--x", default="", help="with --here: the file of x")
    parser.add_argument("--here", action="store_true", help="solve in this process")
    args = parser.parse_args()
    if args.here:
        return one(args.folders[0], args.precond, args.cap, args.x)
    limits = {key: "1" for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    for folder in args.folders:
        command = [sys.executable, __file__, "--here", "--precond", args.precond, "--cap", str(args.cap), folder]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | limits, timeout=900)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        why = " ".join(done.stderr.strip().splitlines()[-1:])
        print(lines[-1] if lines else json.dumps({"system": os.path.basename(folder), "error": why}), flush=True)


if __name__ == "__main__":
    main()
