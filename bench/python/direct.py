"""Direct factors beside MUMPS and SciPy's spsolve, one process each, on one core.

    python3 bench/python/direct.py target/release/examples/direct OUT.json [MATRIX …]

The collected matrices are read from the folder KRYLITH_DATA. Needs SciPy, and petsc4py with MUMPS (Debian: python3-petsc4py, python3-scipy). Build the program first:
cargo build --release -p krylith-core --no-default-features --features lu --example direct
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import scipy.io
import scipy.sparse as sp

DATA = pathlib.Path(os.environ.get("KRYLITH_DATA", "data"))


def laplace(*sides):
    """The Laplacian of a grid with values of zero around it."""
    out = sp.csr_matrix((1, 1))
    for n in sides:
        line = sp.diags([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1])
        out = sp.kron(out, sp.eye(n)) + sp.kron(sp.eye(out.shape[0]), line)
    return out


def convection(n, speed=20.0):
    """Diffusion and upwind convection in a cube."""
    step = sp.diags([-np.ones(n - 1), np.ones(n)], [-1, 0])
    one = sp.eye(n)
    along = lambda m, w: w[0] * sp.kron(sp.kron(m, one), one) + w[1] * sp.kron(sp.kron(one, m), one) + w[2] * sp.kron(sp.kron(one, one), m)
    return laplace(n, n, n) + speed * along(step, (1.0, 2.0, 0.5))


def marker_and_cell(n):
    """Plane Stokes on staggered grids, with one pressure fixed: a saddle point without a diagonal."""
    u, v = (n - 1, n), (n, n - 1)
    gradient = sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
    a = sp.block_diag([laplace(*u), laplace(*v)])
    b = sp.vstack([sp.kron(gradient, sp.eye(n)), sp.kron(sp.eye(n), gradient)]).tocsr()[:, 1:]
    return sp.bmat([[a, b], [b.T, None]])


def stored(name, folder, reader):
    a = sp.csr_matrix(reader(DATA / folder / name))
    a.eliminate_zeros()
    return a


def matrices():
    """Names, kinds as MUMPS has them, and functions that make the matrices."""
    yield "laplace 40^3", "spd", lambda: laplace(40, 40, 40)
    yield "laplace 60^3", "spd", lambda: laplace(60, 60, 60)
    yield "plane 700^2", "spd", lambda: laplace(700, 700)
    yield "convection 36^3", "gen", lambda: convection(36)
    yield "helmholtz 200^2", "sym", lambda: laplace(200, 200) - 0.3 * sp.eye(40000)
    yield "plane stokes 150^2", "sym", lambda: marker_and_cell(150)
    for name in ("darcy3d", "stokes3d-oom"):
        yield name, "sym", lambda name=name: stored(f"{name}.npz", "coupled", sp.load_npz)
    yield "twophase3d", "gen", lambda: stored("twophase3d.npz", "coupled", sp.load_npz)
    for name, kind in (("bcsstk16", "spd"), ("ani4", "spd"), ("compflow6k.A", "gen"), ("2dcyl1", "gen")):
        yield name, kind, lambda name=name: stored(f"{name}.mtx.gz", "matrices", scipy.io.mmread)


def write(a, path):
    a = sp.csr_matrix(a)
    a.sum_duplicates()
    a.sort_indices()
    with open(path, "wb") as out:
        np.array([a.shape[0], a.nnz], "<u8").tofile(out)
        for array, kind in ((a.indptr, "<u8"), (a.indices, "<u4"), (a.data, "<f8")):
            array.astype(kind).tofile(out)


def read(path):
    with open(path, "rb") as file:
        n, entries = (int(v) for v in np.fromfile(file, "<u8", 2))
        ptr, col = np.fromfile(file, "<u8", n + 1), np.fromfile(file, "<u4", entries)
        return sp.csr_matrix((np.fromfile(file, "<f8", entries), col.astype("i4"), ptr.astype("i4")), (n, n))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def mumps(path, kind):
    import petsc4py

    petsc4py.init(["x"])
    from petsc4py import PETSc

    m = read(path)
    n = m.shape[0]
    a = PETSc.Mat().createAIJ((n, n), csr=(m.indptr, m.indices, m.data))
    a.assemble()
    a.setOption(PETSc.Mat.Option.SYMMETRIC, kind != "gen")
    a.setOption(PETSc.Mat.Option.SPD, kind == "spd")
    before = peak()
    ksp = PETSc.KSP().create()
    ksp.setOperators(a)
    ksp.setType("preonly")
    pc = ksp.getPC()
    pc.setType("lu" if kind == "gen" else "cholesky")
    pc.setFactorSolverType("mumps")
    clock = time.process_time()
    pc.setUp()
    first, most = time.process_time() - clock, peak()
    x, b = a.createVecRight(), a.createVecLeft()
    b.set(1.0)
    clock = time.process_time()
    ksp.solve(b, x)
    solve = time.process_time() - clock
    residual = float(np.linalg.norm(1.0 - m @ x.getArray()) / n**0.5)
    numbers = pc.getFactorMatrix().getMumpsInfog(29)
    a.scale(1.0)
    clock = time.process_time()
    pc.setUp()
    again = time.process_time() - clock
    numbers = numbers if numbers >= 0 else -1_000_000 * numbers
    return dict(factors_s=first, again_s=again, solve_s=solve, numbers=numbers, residual=residual, before_bytes=before, peak_bytes=most)


def spsolve(path):
    from scipy.sparse.linalg import spsolve

    m = read(path).tocsc()
    before, clock = peak(), time.process_time()
    x = spsolve(m, np.ones(m.shape[0]))
    seconds = time.process_time() - clock
    residual = float(np.linalg.norm(1.0 - m @ x) / m.shape[0] ** 0.5)
    return dict(factors_s=seconds, residual=residual, before_bytes=before, peak_bytes=peak())


def run(command, limit=100):
    """The last line of a program's output, as JSON, with its processor seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"not in {limit} s"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return {"error": (done.stderr.strip() or f"exit {done.returncode}").splitlines()[-1][:200]}
    out = json.loads(done.stdout.splitlines()[-1])
    out["process_cpu_s"] = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return out


def main():
    if sys.argv[1] == "--mumps":
        print(json.dumps(mumps(*sys.argv[2:])))
        return
    if sys.argv[1] == "--spsolve":
        print(json.dumps(spsolve(sys.argv[2])))
        return
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    program, target, chosen = sys.argv[1], sys.argv[2], sys.argv[3:]
    results = []
    for name, kind, make in matrices():
        if chosen and name not in chosen:
            continue
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            try:
                a = make()
            except (OSError, ValueError) as e:
                print(f"{name}: {e}", flush=True)
                continue
            write(a, file.name)
            own = [sys.executable, __file__]
            row = dict(matrix=name, kind=kind, rows=a.shape[0], entries=int(a.nnz), load=os.getloadavg()[0])
            row["krylith"] = run([program, file.name, "1"])
            row["mumps"] = run([*own, "--mumps", file.name, kind])
            if a.shape[0] <= 50_000:
                row["spsolve"] = run([*own, "--spsolve", file.name])
        results.append(row)
        parts = []
        for way in ("krylith", "mumps", "spsolve"):
            r = row.get(way, {"error": "left out"})
            if "error" in r:
                parts.append(f"{way} {r['error']}")
                continue
            memory = (r["peak_bytes"] - r["before_bytes"]) / 2**20
            parts.append(f"{way} {r['factors_s']:.3f} s, again {r.get('again_s', 0):.3f}, {r.get('numbers', 0) / 1e6:.2f} M, {memory:.0f} MB, {r['residual']:.0e}")
        print(f"{name}: " + " | ".join(parts), flush=True)
        pathlib.Path(target).write_text(json.dumps(results, indent=1) + "\n")


main()
