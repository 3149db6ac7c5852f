"""GB/s at which krylith.solve takes arrays of the host, beside a copy from pinned memory: python3 upload.py [SYSTEM ...]

The time of the upload is that of a call with host arrays less that of a call with the same arrays on the GPU, medians of
five. Indices have 32 or 64 bits. Needs CuPy.
"""

import json
import statistics
import sys
import time

import cupy
import cupyx.scipy.sparse as csp
import numpy as np
import scipy.sparse as sp
from amgx import ROWS, pinned

import krylith


def milliseconds(run):
    times = []
    for _ in range(6):
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        run()
        cupy.cuda.Device().synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[1:])


def main():
    locked = pinned(np.ones(1 << 27))
    there = cupy.empty_like(cupy.asarray(locked))
    copy = locked.nbytes / milliseconds(lambda: there.set(locked)) / 1e6
    print(json.dumps({"copy from pinned memory": round(copy, 1)}), flush=True)
    del locked, there
    for name in sys.argv[1:] or ["laplace128", "laplace256", "elasticity65"]:
        make, block = ROWS[name]
        a = sp.csr_matrix(make(""))
        a.sort_indices()
        options = {"rtol": 1e-8, "device": "cuda"} | ({"block": block} if block > 1 else {})
        b = np.ones(a.shape[0])
        device_a, device_b = csp.csr_matrix(a), cupy.ones(a.shape[0])
        on_gpu = milliseconds(lambda: krylith.solve(device_a, device_b, **options))
        for index in (np.int32, np.int64):
            given = sp.csr_matrix(a)
            given.indptr, given.indices = a.indptr.astype(index), a.indices.astype(index)
            size = given.data.nbytes + given.indices.nbytes + given.indptr.nbytes + 2 * b.nbytes
            on_host = milliseconds(lambda: krylith.solve(given, b, **options))
            rate = size / (on_host - on_gpu) / 1e6
            row = {"row": name, "indices": np.dtype(index).name, "MB": round(size / 1e6), "device ms": round(on_gpu, 1)}
            row |= {"host ms": round(on_host, 1), "GB/s": round(rate, 1), "of pinned": round(rate / copy, 2)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
