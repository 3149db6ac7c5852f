"""Seconds of a whole call from Python: krylith.solve compared with SciPy, PyAMG and CuPy.

    python3 compare.py [--gpu] [--seconds S] [MATRIX.mtx | NAME ...]

Every variant starts with b = A·1 and the matrix in memory in its own format: CSR on the host, CSC for spsolve
and spilu, CSR on the GPU for CuPy except "from the host". It ends with x; the set-up is included. The fastest
of three calls counts, after uncounted calls for two seconds (--warm); from 20 s on, one call is made. A
variant counts if ‖b − A x‖ ≤ 1e-6 ‖b‖, computed here. Each variant runs in its own process, which is ended
after S seconds (60). Ratios relate to the fastest other variant that starts from the same memory.

Run it on one core: OMP_NUM_THREADS=1 taskset -c 0; with --gpu on an otherwise idle machine.
"""
import argparse
import json
import multiprocessing
import os
import signal
import time
import warnings

import numpy as np
import scipy.io
import scipy.sparse as sp
import scipy.sparse.linalg as sla

RTOL = 1e-6


def tridiagonal(n, a=-1.0, b=2.0, c=-1.0):
    return sp.diags_array([a, b, c], offsets=[-1, 0, 1], shape=(n, n))


def box(*axes):
    """Sum of one-dimensional operators over a box."""
    total = None
    for axis, operator in enumerate(axes):
        term = None
        for other, unit in enumerate(axes):
            factor = operator if other == axis else sp.eye_array(unit.shape[0])
            term = factor if term is None else sp.kron(term, factor, format="csr")
        total = term if total is None else total + term
    return total.tocsr()


def laplace(*sides):
    return box(*(tridiagonal(n) for n in sides))


def convection(n):
    """Upwind convection and diffusion on n³ nodes."""
    h = 1.0 / (n + 1)
    return box(*(tridiagonal(n, -1.0 - speed * h, 2.0 + speed * h) for speed in (40.0, 20.0, 10.0)))


def rock(n, contrast):
    """−div k grad on n³ cells whose k differ by as much as `contrast`."""
    k = contrast ** np.random.default_rng(1).random((n, n, n))
    number = np.arange(n**3).reshape(n, n, n)
    rows, columns, values, diagonal = [], [], [], np.zeros(n**3)
    for axis in range(3):
        low, high = [slice(None)] * 3, [slice(None)] * 3
        low[axis], high[axis] = slice(0, n - 1), slice(1, n)
        low, high = tuple(low), tuple(high)
        face = (2.0 / (1.0 / k[low] + 1.0 / k[high])).ravel()
        i, j = number[low].ravel(), number[high].ravel()
        rows += [i, j]
        columns += [j, i]
        values += [-face, -face]
        np.add.at(diagonal, i, face)
        np.add.at(diagonal, j, face)
    diagonal[number[0].ravel()] += 2.0 * k[0].ravel()
    rows, columns, values = (np.concatenate(part) for part in (rows, columns, values))
    return (sp.coo_array((values, (rows, columns)), shape=(n**3, n**3)) + sp.diags_array(diagonal)).tocsr()


def reaction(n, fields):
    """Diffusion on n³ nodes of several fields that react with each other: dense blocks on the diagonal."""
    rng = np.random.default_rng(2)
    react = rng.standard_normal((fields, fields)) * 0.3 + 2.0 * np.eye(fields)
    diffusion = np.diag(rng.uniform(0.5, 2.0, fields))
    return (sp.kron(laplace(n, n, n), diffusion) + sp.kron(sp.eye_array(n**3), react)).tobsr((fields, fields))


SYSTEMS = {
    "laplace 100²": lambda: laplace(100, 100),
    "laplace 400²": lambda: laplace(400, 400),
    "laplace 20³": lambda: laplace(20, 20, 20),
    "laplace 60³": lambda: laplace(60, 60, 60),
    "laplace 128³": lambda: laplace(128, 128, 128),
    "convection 30³": lambda: convection(30),
    "convection 80³": lambda: convection(80),
    "rock 40³, 1e4": lambda: rock(40, 1e4),
    "rock 80³, 1e6": lambda: rock(80, 1e6),
    "reaction 20³, 4 fields": lambda: reaction(20, 4),
    "reaction 50³, 4 fields": lambda: reaction(50, 4),
}


def load(name):
    if name in SYSTEMS:
        return SYSTEMS[name]()
    return sp.csr_array(scipy.io.mmread(name))


def with_krylith(A, device):
    import krylith

    warnings.simplefilter("ignore")
    return lambda b: krylith.solve(A, b, rtol=RTOL, device=device).x


def with_spsolve(A):
    A = A.tocsc()
    return lambda b: sla.spsolve(A, b)


def with_spilu(A, method):
    C, R = A.tocsc(), A.tocsr()

    def solve(b):
        factors = sla.spilu(C, drop_tol=1e-4, fill_factor=10)
        M = sla.LinearOperator(A.shape, factors.solve)
        return method(R, b, rtol=0.5 * RTOL, M=M, maxiter=2000)[0]

    return solve


def with_jacobi(A):
    R = A.tocsr()

    def solve(b):
        inverse = 1.0 / R.diagonal()
        return sla.cg(R, b, rtol=0.5 * RTOL, M=sla.LinearOperator(A.shape, lambda v: inverse * v), maxiter=20_000)[0]

    return solve


def with_pyamg(A, make):
    import pyamg

    R = sp.csr_matrix(A.tocsr())
    accelerate = "cg" if abs(R - R.T).max() <= 1e-12 * abs(R).max() else "gmres"
    return lambda b: getattr(pyamg, make)(R).solve(b, tol=0.5 * RTOL, accel=accelerate, maxiter=500)


def with_cupy(A, method, there=True):
    import cupy
    import cupyx.scipy.sparse
    import cupyx.scipy.sparse.linalg as linalg

    host = sp.csr_matrix(A.tocsr())
    known = cupyx.scipy.sparse.csr_matrix(host) if there else None

    def solve(b):
        R = known if there else cupyx.scipy.sparse.csr_matrix(host)
        b = cupy.asarray(b)
        if method == "spsolve":
            x = linalg.spsolve(R, b)
        else:
            inverse = 1.0 / R.diagonal()
            M = linalg.LinearOperator(R.shape, lambda v: inverse * v, dtype=float)
            options = {"rtol": 0.5 * RTOL, "maxiter": 20_000, "M": M}
            if method == "gmres":
                options["restart"] = 50
            x = getattr(linalg, method)(R, b, **options)[0]
        return x.get()

    return solve


def with_krylith_there(A):
    import cupy
    import cupyx.scipy.sparse

    import krylith

    R = cupyx.scipy.sparse.csr_matrix(sp.csr_matrix(A.tocsr()))
    return lambda b: krylith.solve(R, cupy.asarray(b), rtol=RTOL).x.get()


WAYS = {
    "krylith": lambda A: with_krylith(A, "auto"),
    "spsolve": with_spsolve,
    "cg, Jacobi": with_jacobi,
    "gmres, spilu": lambda A: with_spilu(A, sla.gmres),
    "bicgstab, spilu": lambda A: with_spilu(A, sla.bicgstab),
    "PyAMG classical": lambda A: with_pyamg(A, "ruge_stuben_solver"),
    "PyAMG smoothed": lambda A: with_pyamg(A, "smoothed_aggregation_solver"),
}
GPU_WAYS = {
    "krylith": lambda A: with_krylith(A, "auto"),
    "krylith, CuPy's matrix": with_krylith_there,
    "PyAMG smoothed": lambda A: with_pyamg(A, "smoothed_aggregation_solver"),
    "CuPy cg from the host": lambda A: with_cupy(A, "cg", there=False),
    "CuPy gmres from the host": lambda A: with_cupy(A, "gmres", there=False),
    "CuPy cg": lambda A: with_cupy(A, "cg"),
    "CuPy gmres": lambda A: with_cupy(A, "gmres"),
    "CuPy spsolve": lambda A: with_cupy(A, "spsolve"),
}


#: Ways that begin with the matrix on the GPU.
THERE = ("krylith, CuPy's matrix", "CuPy cg", "CuPy gmres", "CuPy spsolve")


def ratio(good, ours):
    """Our way over the fastest other one that starts from the same memory."""
    others = [f for way, f in good.items() if not way.startswith("krylith") and (way in THERE) == (ours in THERE)]
    return good[ours] / min(others, default=float("inf")) if ours in good else float("inf")


def measure(name, way, gpu, warm, pipe):
    """One way on one system, in a process of its own: least seconds and residual."""
    warnings.simplefilter("ignore")
    A = load(name)
    b = A @ np.ones(A.shape[0])
    solve = (GPU_WAYS if gpu else WAYS)[way](A)
    pipe.send("ready")
    start = time.perf_counter()
    solve(b)
    while time.perf_counter() - start < warm:
        solve(b)
    best, residual = float("inf"), float("nan")
    for _ in range(3):
        start = time.perf_counter()
        x = solve(b)
        best = min(best, time.perf_counter() - start)
        residual = float(np.linalg.norm(b - A @ x) / np.linalg.norm(b))
        if best > 20:
            break
    pipe.send((best, residual))


def run(name, way, gpu, warm, limit):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=measure, args=(name, way, gpu, warm, theirs))
    process.start()
    theirs.close()
    try:
        ours.recv()  # the system is loaded
        if ours.poll(limit):
            return ours.recv()
        return "too long"
    except EOFError:
        return "failed"
    finally:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=2.0)
    parser.add_argument("--json")
    args = parser.parse_args()
    ways = GPU_WAYS if args.gpu else WAYS
    ours = [way for way in ways if way.startswith("krylith")]
    print("| system | n | nonzeros | " + " | ".join([*ways, *(f"{way}: ratio" for way in ours)]) + " |")
    print("|---|---:|---:|" + "---:|" * (len(ways) + len(ours)))
    rows = []
    for name in args.systems or list(SYSTEMS):
        A = load(name)
        found = {way: run(name, way, args.gpu, args.warm, args.seconds) for way in ways}
        good = {way: f[0] for way, f in found.items() if isinstance(f, tuple) and f[1] <= 1.0001 * RTOL}
        ratios = {way: ratio(good, way) for way in ours}

        def cell(way):
            f = found[way]
            if way in good:
                return f"{1e3 * f[0]:.2f}"
            return f if isinstance(f, str) else f"(residual {f[1]:.0e})"

        label = os.path.basename(name).removesuffix(".gz").removesuffix(".mtx")
        cells = [*map(cell, ways), *(f"{ratios[way]:.2f}" for way in ours)]
        print(f"| {label} | {A.shape[0]} | {A.nnz} | " + " | ".join(cells) + " |", flush=True)
        rows.append({"system": label, "rows": A.shape[0], "nonzeros": int(A.nnz), "found": found, "ratios": ratios})
    print("\nMilliseconds.")
    for way in ours:
        within, solved = (sum(row["ratios"][way] <= most for row in rows) for most in (1.3, 1e300))
        print(f"{way}: fastest or within 1.3 times on {within} of {len(rows)}; solved {solved}.")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
