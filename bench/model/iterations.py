#!/usr/bin/env python3
"""Compares predictions of `krylith model` with the time of an iteration on this machine's GPUs.

    python3 iterations.py --krylith PROGRAM --gpus 1,2 --machine h200-nvlink --out FOLDER

Each system is solved several times with a fixed number of iterations; the median counts. The time of an
iteration is that of the solve over their number. It excludes the set-up, which the model does not predict.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path

CASES = [
    ("laplace:64x64x64", "cg", ["none", "jacobi", "block-jacobi", "ildu"]),
    ("laplace:160x160x160", "cg", ["jacobi", "block-jacobi", "ildu"]),
    ("laplace:160x160x160", "cbcg", ["jacobi", "block-jacobi"]),
    ("laplace:64x64x64,block=4", "cg", ["jacobi", "ildu"]),
    ("radiation:50x50x50", "bicgstab", ["jacobi", "ildu"]),
    ("stokes:32x32x32", "bicgstab", ["jacobi", "ildu"]),
    ("stokes:32x32x32", "gmres", ["none", "jacobi", "ildu"]),
    ("stokes:53x53x54", "gmres", ["none", "jacobi", "ildu"]),
]
ITERATIONS = 240


def read(command):
    """Returns the output of a command; exit code 1 is accepted: fixed iterations end without convergence."""
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        raise RuntimeError((ran.stderr or ran.stdout).strip().splitlines()[0])
    return ran.stdout


def predicted(args, system, way, gpus):
    folder = args.out / "prediction"
    read([args.krylith, "model", system, "--machine", args.machine, "--gpus", str(gpus), *way, "--out", str(folder)])
    found = json.loads((folder / "prediction.json").read_text())
    # Of dense blocks and of structured ones: a solve leaves out what is zero or equal.
    return next((row for row in found["rows"] if row.get("blocks") == "structured"), found["rows"][0])


def measured(args, system, way, gpus):
    device = "cuda:" + ",".join(map(str, range(gpus)))
    command = [args.krylith, "solve", system, "--device", device, *way, "--rtol", "1e-30"]
    command += ["--max-iters", str(args.iterations), "--quiet", "--report", "-"]
    seconds, iterations = [], 0
    for _ in range(args.rounds):
        report = json.loads(read(command))
        iterations = report["iterations"]
        if iterations < args.iterations // 4:
            raise RuntimeError(f"ended after {iterations} iterations: {report['outcome']}")
        seconds.append((report["seconds"]["total"] - report["seconds"]["setup"]) / iterations)
    return seconds, iterations


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--krylith", default="krylith", help="the program")
    parser.add_argument("--machine", default="h200-nvlink", help="a machine of `krylith model --machines`, or a file")
    parser.add_argument("--gpus", default="1", help="numbers of GPUs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--out", type=Path, default=Path("."))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    print(f"{'system':<26} {'method':<9} {'preconditioner':<13} GPUs  predicted  measured, µs    error")
    for gpus in map(int, args.gpus.split(",")):
        for system, method, preconditioners in CASES:
            for preconditioner in preconditioners:
                way = ["--method", method, "--precond", preconditioner]
                row = {"system": system, "method": method, "precond": preconditioner, "gpus": gpus}
                try:
                    row["model"] = predicted(args, system, way, gpus)
                    row["predicted"] = row["model"]["seconds_per_iteration"]
                    row["samples"], row["iterations"] = measured(args, system, way, gpus)
                    row["measured"] = statistics.median(row["samples"])
                    row["error"] = row["predicted"] / row["measured"] - 1
                    said = f"{1e6 * row['predicted']:9.1f} {1e6 * row['measured']:9.1f}     {100 * row['error']:+8.1f} %"
                except (RuntimeError, KeyError) as error:
                    row["failure"] = str(error)
                    said = f"no figure: {error}"
                print(f"{system:<26} {method:<9} {preconditioner:<13} {gpus:4} {said}", flush=True)
                rows.append(row)
    errors = [abs(row["error"]) for row in rows if "error" in row]
    if errors:
        near = sum(error <= 0.15 for error in errors)
        print(f"{near} of {len(errors)} within 15 %; median error {100 * statistics.median(errors):.1f} %")
    about = {"machine": args.machine, "rounds": args.rounds, "rows": rows}
    (args.out / "iterations.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
