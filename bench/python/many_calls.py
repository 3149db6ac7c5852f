"""1,000 calls of changing sizes and kinds from one process on a GPU: python3 many_calls.py [--calls N] [--out FILE.json]

Fails if memory of the host or of the GPU grows over the second half, or if a call takes more than twice the median of
its kind. A watch prints the stacks of all threads if a call takes that long and a second more.
"""

import argparse
import faulthandler
import json
import resource
import statistics
import time

import compare
import cupy
import cupyx.scipy.sparse as csp
import krylith
import numpy as np
import scipy.sparse as sp


def kinds():
    """Name, matrix and options of each kind of call."""
    for n in (24, 40, 64):
        yield f"laplace {n}³", sp.csr_matrix(compare.laplace(n, n, n)), {}
        yield f"convection {n}³", sp.csr_matrix(compare.convection(n)), {}
    for n in (16, 32):
        yield f"reaction {n}³ × 3", sp.csr_matrix(compare.reaction(n, 3)), {"block": 3}
        yield f"reaction {n}³ × 4, BSR", sp.bsr_matrix(compare.reaction(n, 4)), {}


def host_memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def gpu_memory():
    free, total = cupy.cuda.runtime.memGetInfo()
    return total - free


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--calls", type=int, default=1000)
    words.add_argument("--out")
    asked = words.parse_args()
    cases = []
    for name, a, options in kinds():
        b = np.ones(a.shape[0])
        cases.append((name + ", host", a, b, options))
        if a.format == "csr":
            cases.append((name + ", device", csp.csr_matrix(a), cupy.asarray(b), options))
    times = {name: [] for name, *_ in cases}
    memory, slow = [], []
    for call in range(asked.calls):
        name, a, b, options = cases[call * 7 % len(cases)]
        known = times[name]
        faulthandler.dump_traceback_later(1.0 + 2.0 * statistics.median(known) if len(known) > 3 else 30.0)
        begin = time.perf_counter()
        s = krylith.solve(a, b, rtol=1e-8, device="cuda", **options)
        known.append(time.perf_counter() - begin)
        faulthandler.cancel_dump_traceback_later()
        assert s.converged, (name, s.outcome)
        if call % 50 == 49:
            memory.append((host_memory(), gpu_memory()))
    for name, known in times.items():
        median = statistics.median(known)
        slow += [(name, i, t, median) for i, t in enumerate(known) if i >= 3 and t > 2.0 * median]
    half = memory[len(memory) // 2 :]
    growth = [half[-1][k] - half[0][k] for k in (0, 1)]
    result = {
        "calls": asked.calls, "kinds": len(cases), "growth of host and GPU in bytes": growth,
        "medians in ms": {name: 1e3 * statistics.median(known) for name, known in times.items()},
        "largest by median": {name: max(known[3:]) / statistics.median(known) for name, known in times.items()},
        "over twice the median": len(slow),
    }
    print(json.dumps(result, ensure_ascii=False, indent=1))
    if asked.out:
        with open(asked.out, "w") as out:
            json.dump(result, out, ensure_ascii=False, indent=1)
    assert growth[0] <= 16 << 20 and growth[1] <= 16 << 20, growth
    assert not slow, slow[:5]


main()
