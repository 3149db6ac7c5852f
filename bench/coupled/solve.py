#!/usr/bin/env python3
"""Solves every system with default options and checks that the answer is true and within the limits.

    solve.py KRYLITH [PATTERN] [--in DIR] [--rtol 1e-8] [--seconds 120] [--memory 4] [--out results.jsonl]

KRYLITH is the command, such as target/release/krylith. Each solve runs in its own process on one thread, and
only the tolerance is given. SciPy recomputes the residual. The exit code is 1 unless every answer is true and
within the limits.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# What is not a failure.
GOOD = ("ok", "truthful")
# Rounding may part the two residuals by so much.
SLACK = 1.01


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("krylith", metavar="KRYLITH", help="the command, with words of its own if it has some")
    words.add_argument("pattern", nargs="?", default="", help="only systems whose NAME-SIZE contains this")
    words.add_argument("--in", dest="folder", type=pathlib.Path, default=pathlib.Path("coupled-systems"))
    words.add_argument("--rtol", default="1e-8")
    words.add_argument("--seconds", type=int, default=120, help="CPU time of the process")
    words.add_argument("--memory", type=float, default=4, help="its largest resident memory, GiB")
    words.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("results.jsonl"), help="a line of JSON is added for each"
    )
    asked = words.parse_args()
    folders = sorted(about.parent for about in asked.folder.glob("*/about.json") if asked.pattern in about.parent.name)
    if not folders:
        sys.exit(f"no system of {asked.folder} has {asked.pattern!r} in its name: generate.py makes them")
    # Small ones first, as generate.py does.
    folders.sort(key=lambda folder: (folder.name.rsplit("-", 1)[1], folder.name))
    heads = f"{'system':26s} {'n':>7s} {'nnz':>9s} {'verdict':11s} {'outcome':14s}"
    print(heads, f"{'its':>6s} {'CPU s':>7s} {'MiB':>6s} {'residual':>8s}  method, preconditioner")
    done = []
    for folder in folders:
        result = solve(folder, asked)
        show(result)
        with asked.out.open("a") as lines:
            lines.write(json.dumps(result) + "\n")
        done.append(result)
    return summary(done)


def solve(folder, asked):
    about = json.loads((folder / "about.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        report, x, said = place / "report.json", place / "x.npy", place / "said.txt"
        command = shlex.split(asked.krylith) + ["solve", str(folder / "A.npz"), "--rhs", str(folder / "b.npy")]
        command += ["--rtol", asked.rtol, "--threads", "1", "--device", "cpu", "--quiet"]
        command += ["--out", str(x), "--report", str(report)]
        result = {"system": folder.name, "n": about["n"], "nnz": about["nnz"], "truthful": about["truthful"]}
        result |= measured(command, said, asked.seconds, asked.memory * 2**20)
        result["said"] = said.read_text(errors="replace").strip()[-2000:]
        result |= reported(report)
        result["residual"] = residual(folder, x) if x.exists() else None
    result["verdict"] = verdict(result, float(asked.rtol))
    return result


def measured(command, said, seconds, kilobytes):
    """Runs the command; returns exit code (or minus the signal), CPU seconds, memory and the limit hit."""
    with said.open("wb") as output:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        # Only there to end the process: CPU time is measured, and a second above is no answer in time either.
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds + 1, seconds + 2))
        # A process that waits for something uses no CPU time.
        end, peak, limit = time.monotonic() + 4 * seconds + 60, 0, None
        while True:
            peak = max(peak, high_water(process.pid))
            gone, status, used = os.wait4(process.pid, os.WNOHANG)
            if gone:
                break
            # Well above what is allowed, for then nothing more is learnt.
            if limit is None and peak > 2 * kilobytes:
                limit = "memory"
            elif limit is None and time.monotonic() > end:
                limit = "wall clock"
            if limit:
                process.kill()
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
    cpu = used.ru_utime + used.ru_stime
    # The kernel's own number has the last moments too; it is never below what this Python uses, some 20 MiB.
    peak = max(peak, used.ru_maxrss)
    if limit is None and cpu > seconds:
        limit = "CPU"
    elif limit is None and peak > kilobytes:
        limit = "memory"
    return {"code": process.returncode, "cpu": round(cpu, 3), "MiB": round(peak / 1024), "limit": limit}


def high_water(pid):
    """The largest resident memory of a process so far, KiB."""
    try:
        found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:
        found = None
    return int(found[1]) if found else 0


def reported(path):
    """What the report says."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"outcome": None, "iterations": None, "method": "", "preconditioner": ""}
    return {
        "outcome": report["outcome"],
        "iterations": report["iterations"],
        "method": report["method"],
        "preconditioner": report["preconditioner"]["name"],
        "claimed": report["true_relative_residual"],
        "events": [event["detail"] for event in report["events"]],
    }


def residual(folder, x):
    """Computes the residual by SciPy in another process.

    This process must stay small, because the kernel's peak memory of the command starts with its size.
    """
    files = [str(folder / "A.npz"), str(folder / "b.npy"), str(x)]
    command = [sys.executable, str(HERE / "residual.py"), *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(run.stdout) if run.returncode == 0 else None


def verdict(result, rtol):
    """ok, truthful, unanswered, over a limit, error, panic, or wrong."""
    # NaN and no x at all are not below anything.
    small = result["residual"] is not None and result["residual"] <= SLACK * rtol
    claimed = result["code"] == 0 or result["outcome"] == "converged"
    if "internal error" in result["said"] or "panicked" in result["said"]:
        return "panic"
    if claimed and not small:
        return "wrong"
    if result["limit"]:
        return "over " + result["limit"]
    if claimed:
        return "ok"
    if result["code"] == 1 and result["outcome"]:
        return "truthful" if result["truthful"] else "unanswered"
    return "error"


def show(result):
    iterations = "" if result["iterations"] is None else result["iterations"]
    left = "" if result["residual"] is None else f"{result['residual']:.1e}"
    print(
        f"{result['system']:26s} {result['n']:7d} {result['nnz']:9d} {result['verdict']:11s} "
        f"{result['outcome'] or '-':14s} {iterations:>6} {result['cpu']:7.2f} {result['MiB']:6d} "
        f"{left:>8s}  {result['method']}, {result['preconditioner']}",
        flush=True,
    )
    if result["verdict"] not in GOOD and result["said"]:
        print("    " + result["said"].splitlines()[-1], flush=True)


def summary(done):
    bad = [result for result in done if result["verdict"] not in GOOD]
    counts = {}
    for result in done:
        counts[result["verdict"]] = counts.get(result["verdict"], 0) + 1
    slowest, largest = (max(done, key=lambda result: result[key]) for key in ("cpu", "MiB"))
    print(f"{len(done)} systems: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    print(f"most CPU time {slowest['cpu']:.1f} s ({slowest['system']})")
    print(f"most memory {largest['MiB']} MiB ({largest['system']})")
    if bad:
        print("not good: " + ", ".join(f"{result['system']} ({result['verdict']})" for result in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
