"""Direct factors beside MUMPS, one process each, on one thread: process CPU seconds, medians of three runs.

    python3 bench/python/direct.py target/release/examples/direct OUT.json [MATRIX …] [--spsolve]

Collected matrices are read from the folder KRYLITH_DATA; without it only generated ones are run. With
--spsolve, SciPy's spsolve runs once too. Needs SciPy, and petsc4py with MUMPS (Debian: python3-petsc4py,
python3-scipy). Build the program first:
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

DATA = os.environ.get("KRYLITH_DATA")
RUNS = 3


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
    along = ((step, one, one), (one, step, one), (one, one, step))
    x, y, z = (sp.kron(sp.kron(a, b), c) for a, b, c in along)
    return laplace(n, n, n) + speed * (x + 2.0 * y + 0.5 * z)


def helmholtz_real_form(n):
    """The complex Helmholtz system of complex.py in real form, with the parts of an unknown together."""
    shift = 0.25 * np.array([[1.0, -0.1], [0.1, 1.0]])
    return sp.kron(laplace(n, n, n), sp.eye(2)) - sp.kron(sp.eye(n**3), shift)


def marker_and_cell(n):
    """Plane Stokes on staggered grids, with one pressure fixed: a saddle point without a diagonal."""
    u, v = (n - 1, n), (n, n - 1)
    gradient = sp.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
    a = sp.block_diag([laplace(*u), laplace(*v)])
    b = sp.vstack([sp.kron(gradient, sp.eye(n)), sp.kron(sp.eye(n), gradient)]).tocsr()[:, 1:]
    return sp.bmat([[a, b], [b.T, None]])


def stored(name, folder, reader):
    a = sp.csr_matrix(reader(pathlib.Path(DATA) / folder / name))
    a.eliminate_zeros()
    return a


def matrices():
    """Names, kinds as MUMPS has them, and functions that make the matrices."""
    yield "laplace 16^3", "spd", lambda: laplace(16, 16, 16)
    yield "laplace 40^3", "spd", lambda: laplace(40, 40, 40)
    yield "plane 700^2", "spd", lambda: laplace(700, 700)
    yield "convection 36^3", "gen", lambda: convection(36)
    yield "helmholtz 200^2", "sym", lambda: laplace(200, 200) - 0.3 * sp.eye(40000)
    yield "complex helmholtz 32^3", "gen", lambda: helmholtz_real_form(32)
    yield "plane stokes 150^2", "sym", lambda: marker_and_cell(150)
    if DATA is None:
        return
    for name in ("darcy3d", "stokes3d-oom"):
        yield name, "sym", lambda name=name: stored(f"{name}.npz", "coupled", sp.load_npz)
    for name in ("twophase3d", "repro_oom_liquidvapor"):
        yield name, "gen", lambda name=name: stored(f"{name}.npz", "coupled", sp.load_npz)
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
    info = pc.getFactorMatrix().getMumpsInfog
    numbers, used = info(29), info(22) * 1_000_000
    a.setValuesCSR(m.indptr, m.indices, 1.5 * m.data)
    a.assemble()
    ksp.setOperators(a)
    clock = time.process_time()
    pc.setOperators(a)
    pc.setUp()
    again = time.process_time() - clock
    numbers = numbers if numbers >= 0 else -1_000_000 * numbers
    out = dict(factors_s=first, again_s=again, solve_s=solve, numbers=numbers, residual=residual)
    return out | dict(used_bytes=used, before_bytes=before, peak_bytes=most)


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
    chosen = [name for name in sys.argv[3:] if name != "--spsolve"]
    program, target, results = sys.argv[1], sys.argv[2], []
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
            ways = {"krylith": [program, file.name, "1"], "mumps": [*own, "--mumps", file.name, kind]}
            runs = {way: [] for way in ways}
            for _ in range(RUNS):
                for way, command in ways.items():
                    runs[way].append(run(command))
            row |= {way: median(runs[way]) for way in ways} | {"runs": runs}
            if "--spsolve" in sys.argv:
                row["spsolve"] = run([*own, "--spsolve", file.name])
        results.append(row)
        parts = [line(way, row[way]) for way in (*ways, "spsolve") if way in row]
        print(f"{name}: " + " | ".join(parts), flush=True)
        pathlib.Path(target).write_text(json.dumps(results, indent=1) + "\n")


def median(runs):
    """The median of each number of the runs; the first error if there is one."""
    failed = [r for r in runs if "error" in r]
    if failed:
        return failed[0]
    middle = lambda key: float(np.median([r[key] for r in runs]))
    return {key: value if isinstance(value, str) else middle(key) for key, value in runs[0].items()}


def line(way, r):
    if "error" in r:
        return f"{way} {r['error']}"
    memory = (r["peak_bytes"] - r["before_bytes"]) / 2**20
    return (
        f"{way} {r['factors_s']:.3f} s, again {r.get('again_s', 0):.3f}, solve {r.get('solve_s', 0):.4f}, "
        f"{r.get('numbers', 0) / 1e6:.2f} M, {memory:.0f} MB, {r['residual']:.0e}"
    )

if __name__ == "__main__":
    main()
