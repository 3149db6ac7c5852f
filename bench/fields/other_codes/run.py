"""Bare solves of other codes' systems beside PETSc: `python3 run.py [NAME …] [--write DIR] [--json FILE]`.

Each solve runs in a process of its own on one thread, to a relative residual of 1e-8 that is recomputed with
SciPy. Bare means `kr.solve(a, b)` with a tolerance only. Seconds are process CPU seconds with the set-up.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

from catalogue import CASES, PETSC

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
ENV = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: Seconds for the first peer; the others get three times the best so far, this at most.
CAP = 30
#: What a process needs beside the solve.
START = 3
TITLES = [
    "system",
    "unknowns",
    "seconds",
    "iterations",
    "preconditioner",
    "residual",
    "x off",
    "best peer",
    "its seconds",
]
ROW = "{:18} {:>8} {:>8} {:>10} {:54.54} {:>8} {:>8} {:18} {:>11} {:>6}"


def peer(folder, name, schur, cap, x_file):
    """One of PETSc's methods, in this process."""
    import numpy as np
    import peers

    limit = int(float(cap)) + START
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    method, _, block = name.partition(":")
    options = PETSC[method] + " -ksp_rtol 9e-9 -ksp_max_it 5000"
    schur = schur if method.startswith("schur") else None
    seconds, iterations, a, b, x, _ = peers.petsc(folder, options, schur, int(block or 1))
    if x_file:
        np.save(x_file, x)
    residual = float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))
    print(json.dumps({"seconds": round(seconds, 3), "iterations": iterations, "residual": residual}))


def last_object(command):
    """The JSON that the last line of a command is, or its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=900)
    except subprocess.TimeoutExpired:
        return {"error": "more than 900 s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        return json.loads(lines[-1])
    why = " ".join(done.stderr.strip().splitlines()[-1:])
    return {"error": why or f"ended with {done.returncode}, as at the time limit"}


def solved(result):
    return result.get("residual", 1) <= 1.1e-8


def beside_peers(folder, case, x_file):
    """The results of all peers. The first one's x goes to `x_file`."""
    results, best = {}, None
    for k, name in enumerate(case.peers):
        cap = CAP if best is None else min(CAP, max(3, 3 * best))
        command = [
            sys.executable,
            __file__,
            "--peer",
            folder,
            name,
            case.schur,
            str(cap),
            "" if k else x_file,
        ]
        results[name] = last_object(command)
        if solved(results[name]):
            best = min(best or CAP, results[name]["seconds"])
    return results


def difference(x_file, reference_file):
    import numpy as np

    if not (os.path.exists(x_file) and os.path.exists(reference_file)):
        return None
    x, reference = np.load(x_file), np.load(reference_file)
    return float(np.linalg.norm(x - reference) / np.linalg.norm(reference))


def measured(name, folder, scratch):
    case = CASES[name]
    x_file, reference_file = f"{scratch}/{name}-x.npy", f"{scratch}/{name}-reference.npy"
    out = last_object([sys.executable, f"{HERE}/../folders.py", "--here", "--x", x_file, folder]) | {
        "system": name
    }
    out["peers"] = beside_peers(folder, case, reference_file)
    good = [(result["seconds"], peer) for peer, result in out["peers"].items() if solved(result)]
    if good:
        out["peer_seconds"], out["best_peer"] = min(good)
    # Singular systems have no single x.
    if case.peers[0] == "mumps" and solved(out["peers"]["mumps"]):
        out["x_off"] = difference(x_file, reference_file)
    return out


def row(out):
    if "error" in out:
        return f"{out['system']:18} {out['error']}"
    shown = lambda key, form: "–" if out.get(key) is None else format(out[key], form)
    ratio = f"{out['seconds'] / out['peer_seconds']:.2f}" if "peer_seconds" in out else "–"
    what = out["what"] if out["outcome"] == "converged" else f"{out['outcome']}: {out['what']}"
    start = [
        out["system"],
        out["unknowns"],
        out["seconds"],
        out["iterations"],
        what,
        shown("residual", ".0e"),
    ]
    return ROW.format(
        *start, shown("x_off", ".0e"), shown("best_peer", ""), shown("peer_seconds", ".3f"), ratio
    )


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="systems; all by default")
    parser.add_argument(
        "--write", metavar="DIR", help="keep the systems here; those that are there already are used"
    )
    parser.add_argument("--json", metavar="FILE", help="write a line of JSON for each system")
    parser.add_argument("--generator-python", default=sys.executable, help="a Python that has NGSolve")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in CASES]
    if unknown:
        parser.error(f"no system {unknown[0]}; there are {', '.join(CASES)}")
    print(ROW.format(*TITLES, "ratio"), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.names or CASES:
            where = args.write or f"{scratch}/systems"
            if not os.path.exists(f"{where}/{name}/fields.npz"):
                subprocess.run(
                    [args.generator_python, f"{HERE}/generate.py", where, name], check=True, env=ENV
                )
            out = measured(name, f"{where}/{name}", scratch)
            print(row(out), flush=True)
            if args.json:
                with open(args.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
