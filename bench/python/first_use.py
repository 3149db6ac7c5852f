"""Cost of the first solve on a GPU: `krylith solve` with an empty kernel cache, then with the filled one.

    python3 bench/python/first_use.py path/to/krylith [--system laplace:128x128x128] [--rounds 3] [--out first_use.json]

The command must be built without embedded kernels (`cargo build --release -p krylith-cli`). Each round has
its own cache.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def run(asked, cache, report):
    """Seconds of the whole process, and what its report says."""
    command = [asked.krylith, "solve", asked.system, "--device", "cuda", "--report", report]
    begin = time.monotonic()
    done = subprocess.run(command, env=dict(os.environ, KRYLITH_CACHE=cache), capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    told = json.loads(pathlib.Path(report).read_text())
    return {"process": round(seconds, 3), "report": told["seconds"]}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("krylith")
    words.add_argument("--system", default="laplace:128x128x128")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--out", default="first_use.json")
    asked = words.parse_args()
    rounds = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as cache:
            report = str(pathlib.Path(cache) / "report.json")
            first = run(asked, cache, report)
            kernels = sum(1 for _ in pathlib.Path(cache).glob("*.cubin"))
            rounds.append({"kernels": kernels, "first": first, "warm": run(asked, cache, report)})
        print(f"{kernels} kernels: {first['process']:.1f} s, then {rounds[-1]['warm']['process']:.2f}", flush=True)
    info = subprocess.run([asked.krylith, "info"], capture_output=True, text=True).stdout
    found = {"system": asked.system, "cores": len(os.sched_getaffinity(0)), "info": info.splitlines(), "rounds": rounds}
    pathlib.Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")


main()
