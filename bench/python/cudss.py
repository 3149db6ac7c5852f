"""Direct factors on a GPU: Krylith's `lu` beside cuDSS called directly, in one process.

    KRYLITH_CUDSS=…/libcudss.so.1 python3 bench/python/cudss.py OUT.json [--small | --only] [MATRIX …]

A MATRIX is a folder that `krylith problem SPEC --out FOLDER` wrote, or a file of scipy.sparse.save_npz. With --only no
generated grids are run. Needs CuPy, SciPy and cuDSS 0.8 or later. The
direct calls get the type of the matrix (positive definite, symmetric or general), the library's defaults, and its
library of threads if it lies beside it. Seconds are wall clock, with the GPU idle before and after. The matrix is on
the GPU for both. Times: the analysis, the first factors, the best of three factorisations of new values, the best of
five solves. Krylith's first time is a whole `Solver`, with checks, analysis and test of the factors, and its solve is
certified; `lu` has its own part of the set-up.
"""

import ctypes as ct
import json
import os
import pathlib
import sys
import time

import cupy as cp
import numpy as np
import scipy.io
import scipy.sparse as sp
from cupyx.scipy.sparse import csr_matrix

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from direct import convection, laplace, marker_and_cell

import krylith

LIBRARY = os.environ["KRYLITH_CUDSS"]
THREADS = pathlib.Path(LIBRARY).with_name("libcudss_mtlayer_gomp.so.1")
# Constants of cudss_data_types.h.
F64, I32, I64 = 1, 10, 24
HOST_THREADS, DEVICES, DEVICE_NUMBERS = 14, 21, 22
ANALYSIS, FACTORS, NEW_FACTORS, SOLVE, NUMBERS = 3, 4, 8, 0x3F0, 1
TYPES = {"gen": (0, 0), "sym": (1, 2), "spd": (3, 2)}


class Cudss:
    """One system, by calls of cuDSS."""

    def __init__(self, a, kind, devices=()):
        self.library = ct.CDLL(LIBRARY)
        n, self.row_ptr = a.shape[0], a.indptr.astype(cp.int64)
        self.a, self.x, self.b = a, cp.zeros(n), cp.zeros(n)
        self.handle, self.config, self.data = ct.c_void_p(), ct.c_void_p(), ct.c_void_p()
        numbers = (ct.c_int * len(devices))(*devices)
        if devices:
            self.call("cudssCreateMg", ct.byref(self.handle), len(devices), numbers)
        else:
            self.call("cudssCreate", ct.byref(self.handle))
        if THREADS.exists():
            self.call("cudssSetThreadingLayer", self.handle, str(THREADS).encode())
        self.call("cudssConfigCreate", ct.byref(self.config))
        self.call("cudssDataCreate", self.handle, ct.byref(self.data))
        threads = ct.c_int(len(os.sched_getaffinity(0)))
        self.call("cudssConfigSet", self.config, HOST_THREADS, ct.byref(threads), ct.c_size_t(4))
        if devices:
            count = ct.c_int(len(devices))
            self.call("cudssConfigSet", self.config, DEVICES, ct.byref(count), ct.c_size_t(4))
            self.call("cudssConfigSet", self.config, DEVICE_NUMBERS, numbers, ct.c_size_t(4 * len(devices)))
        self.matrix, self.solution, self.right = ct.c_void_p(), ct.c_void_p(), ct.c_void_p()
        arrays = (self.row_ptr, None, a.indices, a.data)
        arrays = [ct.c_void_p(v.data.ptr) if v is not None else None for v in arrays]
        sizes = [ct.c_int64(v) for v in (n, n, a.nnz)]
        self.call("cudssMatrixCreateCsr", ct.byref(self.matrix), *sizes, *arrays, I64, I32, F64, *TYPES[kind], 0)
        for handle, vector in ((self.solution, self.x), (self.right, self.b)):
            sizes, at = [ct.c_int64(v) for v in (n, 1, n)], ct.c_void_p(vector.data.ptr)
            self.call("cudssMatrixCreateDn", ct.byref(handle), *sizes, at, F64, 0)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def run(self, phase):
        matrices = (self.matrix, self.solution, self.right)
        self.call("cudssExecute", self.handle, phase, self.config, self.data, *matrices)

    def numbers(self):
        value, written = ct.c_int64(), ct.c_size_t()
        self.call("cudssDataGet", self.handle, self.data, NUMBERS, ct.byref(value), ct.c_size_t(8), ct.byref(written))
        return value.value

    def close(self):
        for matrix in (self.matrix, self.solution, self.right):
            self.call("cudssMatrixDestroy", matrix)
        self.call("cudssDataDestroy", self.handle, self.data)
        self.call("cudssConfigDestroy", self.config)
        self.call("cudssDestroy", self.handle)


def timed(work):
    cp.cuda.Device().synchronize()
    start = time.perf_counter()
    out = work()
    cp.cuda.Device().synchronize()
    return time.perf_counter() - start, out


def residual(a, b, x):
    return float(cp.linalg.norm(b - a @ x) / cp.linalg.norm(b))


def direct(a, kind, b):
    """Times, numbers of the factors and residual of cuDSS."""
    cudss = Cudss(a, kind)
    try:
        cudss.b[:] = b
        row = {"analysis": timed(lambda: cudss.run(ANALYSIS))[0], "factors": timed(lambda: cudss.run(FACTORS))[0]}
        row["solve"] = min(timed(lambda: cudss.run(SOLVE))[0] for _ in range(5))
        row["residual"] = residual(a, b, cudss.x)
        row["new_values"] = min(timed(lambda: cudss.run(NEW_FACTORS))[0] for _ in range(3))
        row["numbers"] = cudss.numbers()
        return row
    finally:
        cudss.close()


def ours(a, b):
    """Times, iterations and residual of Krylith."""
    precond = "lu:on=device" if a.shape[0] < 8192 else "lu"  # where the host is the default
    first, solver = timed(lambda: krylith.Solver(a, device="cuda", precond=precond, rtol=1e-10))
    solved, solution = timed(lambda: solver.solve(b))
    row = {"first": first, "first_solve": solved, "outcome": solution.outcome, "iterations": solution.iterations}
    row["precond"] = solution.precond
    row["residual"] = residual(a, b, solution.x)
    row["solve"] = min(timed(lambda: solver.solve(b))[0] for _ in range(5))
    row["new_values"] = min(timed(lambda: solver.update_values(a.data))[0] for _ in range(3))
    row["report"] = solution.report() if hasattr(solution, "report") else repr(solution)
    return row


def stored(folder):
    if folder.endswith(".npz"):
        return sp.csr_matrix(sp.load_npz(folder))
    matrix = next(p for p in sorted(pathlib.Path(folder).glob("*.mtx")) if not p.name.startswith(("b", "x")))
    return sp.csr_matrix(scipy.io.mmread(matrix))


def kind_of(a):
    if abs(a - a.T).max() > 1e-12 * abs(a).max():
        return "gen"
    return "sym" if a.diagonal().min() <= 0 else "spd"


def systems(small, only, folders):
    for folder in folders:
        yield pathlib.Path(folder).name, lambda folder=folder: stored(folder)
    if only:
        return
    edge = 24 if small else 64
    yield f"laplace {edge}^3", lambda: laplace(edge, edge, edge)
    yield f"convection {edge}^3", lambda: convection(edge)
    coupling = sp.csr_matrix(np.eye(4) + 0.2)
    yield f"laplace {edge}^3 x 4", lambda: sp.kron(laplace(edge, edge, edge), coupling)
    plane = 60 if small else 300
    yield f"plane stokes {plane}^2", lambda: marker_and_cell(plane)
    if not small:
        yield "laplace 1000^2", lambda: laplace(1000, 1000)
        yield "laplace 100^3", lambda: laplace(100, 100, 100)


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    out, rows = pathlib.Path(arguments[0]), []
    warm = csr_matrix(laplace(30, 30).tocsr())
    direct(warm, "spd", cp.ones(900))
    ours(warm, cp.ones(900))
    for name, make in systems("--small" in sys.argv, "--only" in sys.argv, arguments[1:]):
        host = sp.csr_matrix(make())
        host.eliminate_zeros()
        host.sort_indices()
        kind, a = kind_of(host), csr_matrix(host)
        b = cp.asarray(np.random.default_rng(1).standard_normal(a.shape[0]))
        row = {"system": name, "kind": kind, "unknowns": a.shape[0], "entries": a.nnz}
        for key, run in (("cudss", lambda: direct(a, kind, b)), ("krylith", lambda: ours(a, b))):
            try:
                row[key] = run()
            except Exception as e:  # noqa: BLE001 - a failure is a result
                row[key] = {"error": str(e)}
        rows.append(row)
        out.write_text(json.dumps(rows, indent=1))
        c, k = row["cudss"], row["krylith"]
        if "error" in c or "error" in k:
            print(name, c, k, flush=True)
            continue
        parts = (c["analysis"], c["factors"], c["new_values"], c["solve"], c["residual"])
        print(f"{name} ({kind}, {a.shape[0]}): cuDSS", *(f"{v:.2g}" for v in parts), flush=True)
        parts = (k["first"], k["new_values"], k["solve"], k["residual"])
        print("   Krylith", *(f"{v:.2g}" for v in parts), k["outcome"], k["iterations"], k["precond"], flush=True)
        del a, b
        cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
