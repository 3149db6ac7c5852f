"""Seconds of the first call from Python on a GPU, with an empty kernel cache: python3 first_call.py [FILE.json]

Each row is a new process of its own, on all cores and on two. `driver` is what the driver alone takes to start and to
make a context, in a process beside it; `first` is the first call of krylith.solve, which includes both, and `later` the
third call. `compiled` counts the kernels that the call compiled; a release embeds most of them.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

DRIVER = """
import ctypes, time
begin = time.perf_counter()
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
print(time.perf_counter() - begin)
"""

CALL = """
import sys, time
import compare, krylith
import numpy as np, scipy.sparse as sp
make, options = {
    "laplace 128³": (lambda: compare.laplace(128, 128, 128), {}),
    "reaction 64³ × 3": (lambda: compare.reaction(64, 3).tocsr(), {"block": 3}),
    "convection 64³": (lambda: compare.convection(64), {}),
}[sys.argv[1]]
a = sp.csr_matrix(make())
b, times = np.ones(a.shape[0]), []
for _ in range(3):
    begin = time.perf_counter()
    s = krylith.solve(a, b, rtol=1e-8, device="cuda", **options)
    times.append(time.perf_counter() - begin)
    assert s.converged
print(times[0], times[2])
"""


def seconds(code, cores, *arguments, **variables):
    command = [*cores, sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [round(float(word), 3) for word in done.stdout.split()]


def main():
    os.chdir(pathlib.Path(__file__).parent)
    rows = []
    for count in (os.cpu_count(), 2):
        cores = ["taskset", "-c", f"0-{count - 1}"]
        for system in ("laplace 128³", "reaction 64³ × 3", "convection 64³"):
            with tempfile.TemporaryDirectory() as cache:
                # The driver's own cache would hide what NVRTC costs.
                variables = {"KRYLITH_CACHE": cache, "CUDA_CACHE_DISABLE": "1"}
                (driver,) = seconds(DRIVER, cores)
                first, later = seconds(CALL, cores, system, **variables)
                compiled = sum(1 for _ in pathlib.Path(cache).glob("*.cubin"))
            rows.append({"system": system, "cores": count, "driver": driver, "first": first, "later": later, "compiled": compiled})
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


main()
