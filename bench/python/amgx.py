"""Milliseconds to an answer, AmgX beside krylith.solve: AMGX=PATH/libamgxsh.so python3 amgx.py [--rows A,B] [--mode dDFI] [--out FILE]

Both solve to ‖b − A x‖ ≤ 1e-8 ‖b‖ with b = ones in one process. For AmgX: upload, set-up and solve of each of the 16
settings below, best of three after one that does not count, from arrays on the GPU and from pinned arrays of the host.
A setting counts only if the residual computed here meets the tolerance. With `--mode dDFI` AmgX has the matrix and all
levels in f32, and vectors in f64; the residual is still that of the matrix in f64. For Krylith: whole calls of krylith.solve, the
least and the median of six after the first, from arrays on the GPU and from arrays of the host. CuPy's cg and gmres with
Jacobi stand beside some rows, for at most 10,000 iterations. Needs CuPy. AMGX may name several libraries with colons
between them, in the order of their loading; without it, Krylith is measured alone.
"""

import argparse
import ctypes
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

# AmgX fails in its initialisation if CuPy was loaded first.
LIBRARIES = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in os.environ.get("AMGX", "").split(":") if path]
if LIBRARIES:
    assert LIBRARIES[-1].AMGX_initialize() == 0

import compare
import cupy
import cupyx.scipy.sparse as csp
import krylith
import numpy as np
import scipy.sparse as sp

RTOL = 1e-8
# The modes of AmgX: vectors and matrix in f64, or vectors in f64 and the matrix in f32.
MODES = {"dDDI": (8193, np.float64), "dDFI": (8449, np.float32)}
MODE, MATRIX = MODES[sys.argv[sys.argv.index("--mode") + 1] if "--mode" in sys.argv else "dDDI"]

JACOBI = {"solver": "BLOCK_JACOBI", "relaxation_factor": 0.9, "max_iters": 1, "monitor_residual": 0}
L1 = {"solver": "JACOBI_L1", "max_iters": 1, "monitor_residual": 0}
DILU = {"solver": "MULTICOLOR_DILU", "max_iters": 1, "monitor_residual": 0}
AMG = {"solver": "AMG", "max_iters": 1, "monitor_residual": 0, "cycle": "V", "presweeps": 1, "postsweeps": 1}
AMG |= {"coarse_solver": "DENSE_LU_SOLVER", "max_levels": 50, "min_coarse_rows": 32, "dense_lu_num_rows": 128}
AMG |= {"print_grid_stats": 0, "print_vis_data": 0, "structure_reuse_levels": 0}
AGGREGATION = AMG | {"algorithm": "AGGREGATION", "selector": "SIZE_8", "max_matching_iterations": 1}
CLASSICAL = AMG | {"algorithm": "CLASSICAL", "selector": "PMIS", "interpolator": "D2", "max_row_sum": 0.9}
CLASSICAL |= {"strength_threshold": 0.25, "interp_max_elements": 4}
PRECONDITIONERS = {
    "block Jacobi": JACOBI,
    "DILU": DILU,
    "aggregation of 8, block Jacobi": AGGREGATION | {"smoother": JACOBI},
    "aggregation of 8, DILU": AGGREGATION | {"smoother": DILU},
    "aggregation of 2, W, block Jacobi": AGGREGATION | {"selector": "SIZE_2", "cycle": "W", "smoother": JACOBI},
    "PMIS, L1-Jacobi": CLASSICAL | {"smoother": L1},
    "PMIS, aggressive, L1-Jacobi": CLASSICAL | {"smoother": L1, "aggressive_levels": 1},
    "classical V, Jacobi": CLASSICAL | {"interpolator": "D1", "smoother": JACOBI | {"relaxation_factor": 0.75}},
}
OUTER = {
    "PCG": {"solver": "PCG"},
    "FGMRES": {"solver": "FGMRES", "gmres_n_restart": 30},
}


def settings():
    """The 16 settings: two methods with eight preconditioners."""
    for method, outer in OUTER.items():
        for name, preconditioner in PRECONDITIONERS.items():
            solver = outer | {"scope": "main", "max_iters": 1000, "monitor_residual": 1, "norm": "L2"}
            solver |= {"convergence": "RELATIVE_INI_CORE", "tolerance": 0.9 * RTOL, "store_res_history": 0}
            solver |= {"print_solve_stats": 0, "obtain_timings": 0, "preconditioner": scoped(preconditioner, "p")}
            yield f"{method}, {name}", {"config_version": 2, "determinism_flag": 0, "solver": solver}


def scoped(solver, scope):
    out = {key: scoped(value, scope + "s") if isinstance(value, dict) else value for key, value in solver.items()}
    return out | {"scope": scope}


class AmgX:
    """What is needed of AmgX' C interface."""

    def __init__(self):
        self.lib = LIBRARIES[-1]
        self.printed = []
        callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)
        self.silent = callback(lambda text, _: self.printed.append(text[:200]))
        self.lib.AMGX_register_print_callback(self.silent)

    def ok(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: {code} {b''.join(self.printed[-3:])!r}")

    def make(self, name, *arguments):
        handle = ctypes.c_void_p()
        self.ok(name, ctypes.byref(handle), *arguments)
        return handle

    def run(self, config, a, block, b, rounds):
        """Seconds of upload, set-up and solve in each round, x and the iterations of the last."""
        row_ptr, col, values = a
        rows = (row_ptr.size - 1,)
        times, text = [], json.dumps(config).encode()
        x = cupy.zeros(b.size)
        cfg = self.make("AMGX_config_create", text)
        rsc = self.make("AMGX_resources_create_simple", cfg)
        A, rhs, sol = (self.make(f"AMGX_{kind}_create", rsc, MODE) for kind in ("matrix", "vector", "vector"))
        solver = self.make("AMGX_solver_create", rsc, MODE, cfg)
        try:
            for _ in range(rounds):
                cupy.cuda.Device().synchronize()
                marks = [time.perf_counter()]
                nnz = ctypes.c_int(values.size // block**2)
                arrays = (pointer(row_ptr), pointer(col), pointer(values), None)
                self.ok("AMGX_matrix_upload_all", A, ctypes.c_int(*rows), nnz, block, block, *arrays)
                self.ok("AMGX_vector_upload", rhs, ctypes.c_int(*rows), block, pointer(b))
                self.ok("AMGX_vector_set_zero", sol, ctypes.c_int(*rows), block)
                cupy.cuda.Device().synchronize()
                marks.append(time.perf_counter())
                self.ok("AMGX_solver_setup", solver, A)
                cupy.cuda.Device().synchronize()
                marks.append(time.perf_counter())
                self.ok("AMGX_solver_solve_with_0_initial_guess", solver, rhs, sol)
                self.ok("AMGX_vector_download", sol, pointer(x))
                cupy.cuda.Device().synchronize()
                marks.append(time.perf_counter())
                times.append(np.diff(marks))
                if marks[-1] - marks[0] > 3.0:
                    break
            count = ctypes.c_int()
            self.lib.AMGX_solver_get_iterations_number(solver, ctypes.byref(count))
            return times, x, count.value
        finally:
            self.lib.AMGX_solver_destroy(solver)
            for kind, handle in (("vector", sol), ("vector", rhs), ("matrix", A), ("resources", rsc), ("config", cfg)):
                getattr(self.lib, f"AMGX_{kind}_destroy")(handle)


def pointer(array):
    address = array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data
    return ctypes.c_void_p(address)


def pinned(array):
    """The same numbers in page-locked memory."""
    memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
    out = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    out[...] = array
    return out


#: Coordinates of the nodes of generated systems.
POINTS = []


def generated(spec):
    """The matrix of `krylith problem`, in CSR."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "krylith", "problem", spec, "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        if (points := pathlib.Path(folder) / "coordinates.npy").exists():
            POINTS.append(np.load(points))
        return petsc(pathlib.Path(folder) / "A.petsc")


def petsc(path):
    """A matrix in PETSc's binary format."""
    with open(path, "rb") as file:
        _, rows, columns, entries = np.fromfile(file, ">i4", 4)
        lengths = np.fromfile(file, ">i4", rows)
        col = np.fromfile(file, ">i4", entries).astype(np.int32)
        values = np.fromfile(file, ">f8", entries).astype(np.float64)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return sp.csr_matrix((values, col, row_ptr), shape=(rows, columns))


def anisotropic(n, strength):
    axes = [compare.tridiagonal(n)] * 2 + [strength * compare.tridiagonal(n)]
    return compare.box(*axes)


def tetrahedra(n):
    """P1 stiffness of the tetrahedra of a shaken grid of n³ points, six in each cell, with the nodes numbered at random;
    values on the border are zero."""
    rng, axis = np.random.default_rng(3), np.arange(n, dtype=float)
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    inside = np.all((points > 0) & (points < n - 1), axis=1)
    points[inside] += rng.uniform(-0.2, 0.2, (inside.sum(), 3))
    number = -np.ones(n**3, dtype=np.int64)
    number[inside] = rng.permutation(inside.sum())
    corner = np.arange(n**3).reshape(n, n, n)[:-1, :-1, :-1].ravel()
    size, total = int(inside.sum()), None
    for order in itertools.permutations([n * n, n, 1]):
        cells = corner[:, None] + np.concatenate([[0], np.cumsum(order)])
        e = points[cells[:, 1:]] - points[cells[:, :1]]
        a, b, c = e[:, 0], e[:, 1], e[:, 2]
        g = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=1)
        volume = np.einsum("ec,ec->e", a, g[:, 0])
        g = np.concatenate([-g.sum(axis=1, keepdims=True), g], axis=1)
        values = np.einsum("eic,ejc,e->eij", g, g, 1.0 / (6.0 * np.abs(volume))).ravel()
        rows, cols = number[np.repeat(cells, 4, axis=1).ravel()], number[np.tile(cells, (1, 4)).ravel()]
        kept = (rows >= 0) & (cols >= 0)
        part = sp.coo_matrix((values[kept], (rows[kept], cols[kept])), shape=(size, size)).tocsr()
        total = part if total is None else total + part
    return total


def power_law(n, edges=8):
    """Laplacian of a graph of n nodes in which a new node joins `edges` ends of earlier edges; one node in a hundred
    is grounded."""
    rng, m = np.random.default_rng(4), n * edges
    ends = np.empty(2 * m, dtype=np.int64)
    ends[::2] = np.repeat(np.arange(n), edges)
    drawn = (rng.random(m) * (2 * np.arange(m) + 1)).astype(np.int64)
    while np.any(odd := drawn % 2 == 1):
        drawn[odd] = drawn[drawn[odd] // 2]
    ends[1::2] = ends[drawn]
    one, other = ends[::2], ends[1::2]
    w = rng.uniform(0.5, 1.5, m) * (one != other)
    a = sp.coo_matrix((np.concatenate([w, w]), (np.concatenate([one, other]), np.concatenate([other, one]))), shape=(n, n))
    a = a.tocsr()
    a.eliminate_zeros()
    kept = rng.random(n) > 0.01
    full = sp.diags(np.asarray(a.sum(axis=1)).ravel()) - a
    return full.tocsr()[kept][:, kept].tocsr()


#: Rows that are also compared with CuPy.
CUPY = ("convection128", "anisotropy128", "tetrahedra128", "powerlaw")

#: Name, matrix, block size.
ROWS = {
    "laplace128": (lambda rock: compare.laplace(128, 128, 128), 1),
    "laplace256": (lambda rock: generated("laplace:256x256x256"), 1),
    "spe10": (lambda rock: generated(f"spe10:60x220x85{',permeability=' + rock if rock else ''}"), 1),
    "radiation64": (lambda rock: generated("radiation:64x64x64,components=3"), 3),
    "laplace64b4": (lambda rock: generated("laplace:64x64x64,block=4"), 4),
    "elasticity65": (lambda rock: generated("elasticity:65x65x65"), 3),
    "tetrahedra128": (lambda rock: tetrahedra(128), 1),
    "powerlaw": (lambda rock: power_law(1 << 20), 1),
    "convection128": (lambda rock: compare.convection(128), 1),
    "anisotropy128": (lambda rock: anisotropic(128, 1e3), 1),
}


def residual(a, b, x):
    """The relative residual, on the GPU."""
    return float(cupy.linalg.norm(b - a @ x) / cupy.linalg.norm(b))


def with_amgx(amgx, name, a, block, say):
    blocks = sp.bsr_matrix(a, blocksize=(block, block)) if block > 1 else a
    blocks.sort_indices()
    values = blocks.data.reshape(-1).astype(MATRIX)
    host = [blocks.indptr.astype(np.int32), blocks.indices.astype(np.int32), values]
    there, device_a, b = [cupy.asarray(part) for part in host], csp.csr_matrix(a), cupy.ones(a.shape[0])
    locked, best = [pinned(part) for part in host], None
    symmetric = abs(a - a.T).max() <= 1e-12 * abs(a).max()
    for setting, config in settings():
        row = {"row": name, "solver": "AmgX", "setting": setting}
        if block > 1 and ("PMIS" in setting or "classical" in setting):
            continue  # scalar only
        if not symmetric and setting.startswith("PCG"):
            continue
        try:
            begin = time.perf_counter()
            times, x, count = amgx.run(config, there, block, b, 4)
            row |= {"residual": residual(device_a, b, x), "iterations": count}
            times = times[1:] or times
            least = min(times, key=sum)
            row |= {"upload": 1e3 * least[0], "setup": 1e3 * least[1], "solve": 1e3 * least[2]}
            row["device"] = 1e3 * float(sum(least[1:]))
            if row["residual"] <= RTOL and (best is None or row["device"] < best[0]):
                best = (row["device"], setting, config)
        except RuntimeError as why:
            row["failed"] = str(why)[:300]
        say(row | {"seconds": time.perf_counter() - begin})
    if best:
        times, x, _ = amgx.run(best[2], locked, block, pinned(np.ones(a.shape[0])), 4)
        least = min(times[1:] or times, key=sum)
        say({
            "row": name, "solver": "AmgX", "setting": best[1], "arrays": "pinned host", "upload": 1e3 * least[0],
            "setup": 1e3 * least[1], "solve": 1e3 * least[2], "host": 1e3 * float(sum(least)),
        })


def with_krylith(name, a, block, say):
    device_a, b = csp.csr_matrix(a), cupy.ones(a.shape[0])
    kinds = [("device", device_a, b), ("host", a, np.ones(a.shape[0]))]
    if block > 1:
        blocks = sp.bsr_matrix(a, blocksize=(block, block))
        kinds.append(("host, BSR", blocks, np.ones(a.shape[0])))
    if name == "elasticity65":
        kinds.insert(0, ("device, coordinates", device_a, b))
    for arrays, A, f in kinds:
        times = []
        for _ in range(7):
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
            given = {"block": block} if block > 1 and A is not kinds[-1][1] else {}
            if "coordinates" in arrays:
                given |= {"coordinates": POINTS[-1], "near_nullspace": "rigid"}
            s = krylith.solve(A, f, rtol=RTOL, device="cuda", **given)
            cupy.cuda.Device().synchronize()
            times.append(1e3 * (time.perf_counter() - begin))
        least, median = min(times[1:]), statistics.median(times[1:])
        row = {"row": name, "solver": "Krylith", "arrays": arrays, "least": least, "median": median, "first": times[0]}
        row |= {"outcome": s.outcome, "iterations": s.iterations, "residual": residual(device_a, b, cupy.asarray(s.x))}
        say(row | {"method": s.method, "precond": s.precond, "seconds": s.seconds._asdict()})


def with_cupy(name, a, say):
    """Milliseconds of CuPy's cg or gmres with Jacobi, and of gmres without."""
    import cupyx.scipy.sparse.linalg as linalg

    device_a, b = csp.csr_matrix(a), cupy.ones(a.shape[0])
    symmetric = abs(a - a.T).max() <= 1e-12 * abs(a).max()
    for method in ["cg", "gmres"] if symmetric else ["gmres"]:
        for jacobi in [True, False]:
            for _ in range(2):
                cupy.cuda.Device().synchronize()
                begin = time.perf_counter()
                inverse = 1.0 / device_a.diagonal()
                M = linalg.LinearOperator(a.shape, lambda v: inverse * v) if jacobi else None
                given = {"maxiter": 10_000 if method == "cg" else 3_000, "M": M}
                if method == "gmres":
                    given["restart"] = 30
                x, _ = getattr(linalg, method)(device_a, b, rtol=0.9 * RTOL, **given)
                cupy.cuda.Device().synchronize()
                ms = 1e3 * (time.perf_counter() - begin)
                if ms > 3000:
                    break
            row = {"row": name, "solver": f"CuPy {method}{' with Jacobi' if jacobi else ''}", "ms": ms}
            say(row | {"residual": residual(device_a, b, x)})


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rows", default=",".join(ROWS))
    words.add_argument("--rock", default="", help="folder of the permeabilities of SPE10")
    words.add_argument("--mode", choices=list(MODES), default="dDDI")
    words.add_argument("--out", default="amgx.jsonl")
    asked = words.parse_args()
    amgx = AmgX() if LIBRARIES else None
    with open(asked.out, "a") as out:

        def say(row):
            print(json.dumps(row, ensure_ascii=False), flush=True)
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            out.flush()

        for name in asked.rows.split(","):
            make, block = ROWS[name]
            a = sp.csr_matrix(make(asked.rock))
            a.sort_indices()
            with_krylith(name, a, block, say)
            if name in CUPY:
                with_cupy(name, a, say)
            if amgx:
                with_amgx(amgx, name, a, block, say)


if __name__ == "__main__":
    main()
