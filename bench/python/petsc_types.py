"""What the types of krylith.petsc cost beside krylith.solve, and how they compare with PETSc's own solvers.

    PYTHONPATH=FOLDER-OF-KRYLITH /usr/bin/python3 bench/python/petsc_types.py overhead OUT.json [--runs N] [--edge N]
    PYTHONPATH=FOLDER-OF-KRYLITH /usr/bin/python3 bench/python/petsc_types.py peers OUT.json [--runs N]

Times are processor seconds of one process with one thread, and medians of runs that alternate. On a busy machine two
times of a second differ by some percent. For large systems the overhead is therefore also measured inside the KSP: its
time without that of the calls into Krylith's library. Needs SciPy and petsc4py (Debian: python3-petsc4py-real, python3-scipy).
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import scipy.sparse as sp
import petsc4py

petsc4py.init([sys.argv[0]])
from petsc4py import PETSc

import krylith
import krylith.petsc

SELF = PETSc.COMM_SELF
RTOL = 1e-8


def poisson(edge, dimensions):
    T, I = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(edge, edge)), sp.identity(edge)
    S = sum(sp.kron(sp.kron(*((T if k == d else I) for k in (0, 1))), T if d == 2 else I) if dimensions == 3 else
            sp.kron(*((T if k == d else I) for k in (0, 1))) for d in range(dimensions))
    S = S.tocsr()
    S.sort_indices()
    return S


def elasticity(edge):
    """Linear tetrahedra are those of dolfinx in the documents; here trilinear bricks, clamped on one side."""
    nu, g = 0.3, 1 / np.sqrt(3)
    D = np.zeros((6, 6))
    D[:3, :3] = nu
    D[range(3), range(3)] = 1 - nu
    D[range(3, 6), range(3, 6)] = (1 - 2 * nu) / 2
    D /= (1 + nu) * (1 - 2 * nu)
    corner = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
    K = np.zeros((24, 24))
    for point in np.array([[a, b, c] for a in (-g, g) for b in (-g, g) for c in (-g, g)]):
        sign = 2 * corner - 1
        factors = (1 + sign * point) / 2
        slopes = np.stack([sign[:, d] * np.prod(np.delete(factors, d, axis=1), axis=1) for d in range(3)])
        E = np.zeros((6, 24))
        for d in range(3):
            E[d, d::3] = slopes[d]
        for row, (a, b) in enumerate(((0, 1), (1, 2), (0, 2)), start=3):
            E[row, a::3], E[row, b::3] = slopes[b], slopes[a]
        K += E.T @ D @ E / 8
    n = edge + 1
    cells = np.stack(np.meshgrid(*[np.arange(edge)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    nodes = (cells[:, None, :] + corner) @ np.array([n * n, n, 1])
    unknowns = (3 * nodes[:, :, None] + np.arange(3)).reshape(-1, 24)
    rows, cols = np.repeat(unknowns, 24, axis=1).ravel(), np.tile(unknowns, (1, 24)).ravel()
    whole = sp.csr_matrix((np.tile(K.ravel(), edge**3), (rows, cols)), shape=(3 * n**3, 3 * n**3))
    free = slice(3 * n * n, None)
    points = np.stack(np.meshgrid(*[np.arange(float(n))] * 3, indexing="ij"), axis=-1).reshape(-1, 3)[n * n :]
    S = whole[free, free].tocsr()
    S.sort_indices()
    return S, points


def aij(S, block=1, points=None):
    A = PETSc.Mat().createAIJ(S.shape, csr=(S.indptr, S.indices, S.data), comm=SELF)
    A.assemble()
    A.setBlockSize(block)
    if points is not None:
        places = A.createVecRight()
        places.setBlockSize(3)
        places.setArray(points.ravel())
        A.setNearNullSpace(PETSc.NullSpace().createRigidBody(places))
    A.setOption(PETSc.Mat.Option.SPD, True)
    return A


def timed(work):
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def ways_of(S, A, b, options):
    """The same three jobs by krylith.solve and by the KSP type: all of a solve, new values, and a solve again."""
    x, right = A.createVecs()
    right.setArray(b)
    solver = krylith.Solver(S, rtol=RTOL, **options)
    ksp = PETSc.KSP().createPython(krylith.petsc.KSP(**options), comm=SELF)
    ksp.setOperators(A)
    ksp.setTolerances(rtol=RTOL)
    ksp.solve(right, x)
    numbers = S.data.copy()

    def first():
        one = PETSc.KSP().createPython(krylith.petsc.KSP(**options), comm=SELF)
        one.setOperators(A)
        one.setTolerances(rtol=RTOL)
        one.solve(right, x)
        assert one.reason > 0
        one.destroy()  # PETSc 3.18 would keep it until PETSc.garbage_cleanup()

    def updated():
        solver.update_values(numbers)
        solver.solve(b)

    def changed():
        A.stateIncrease()
        ksp.solve(right, x)

    return {
        "all": (lambda: krylith.solve(S, b, rtol=RTOL, **options), first),
        "new values": (updated, changed),
        "again": (lambda: solver.solve(b), lambda: ksp.solve(right, x)),
    }


class Inside:
    """Adds up the processor time of the library's set-ups, updates and solves, in all solvers."""

    def __init__(self):
        self.seconds = 0.0

    def timed(self, function):
        def call(*arguments, **more):
            start = time.process_time()
            try:
                return function(*arguments, **more)
            finally:
                self.seconds += time.process_time() - start

        return call


def own_time(S, A, b, options):
    """Return the processor time of a KSP for all of a solve, new values, and a solve again; and its own part."""
    from krylith.petsc import _setup

    inside, library = Inside(), _setup.Once

    class Native:
        def __init__(self, native):
            self._native = native

        def __getattr__(self, name):
            found = getattr(self._native, name)
            return inside.timed(found) if callable(found) else found

    class Timed(library):
        def __init__(self, *arguments, **more):
            inside.timed(super().__init__)(*arguments, **more)
            self._native = Native(self._native)

    _setup.Once = Timed
    try:
        x, right = A.createVecs()
        right.setArray(b)
        ksp = PETSc.KSP().createPython(krylith.petsc.KSP(**options), comm=SELF)
        ksp.setOperators(A)
        ksp.setTolerances(rtol=RTOL)
        found = {}
        for job in ("all", "new values", "again"):
            if job == "new values":
                A.stateIncrease()
            inside.seconds = 0.0
            whole, _ = timed(lambda: ksp.solve(right, x))
            found[job] = (whole, whole - inside.seconds)
        ksp.destroy()
        return found
    finally:
        _setup.Once = library


def overhead(runs, edge):
    found = []
    for name, S in (("100 rows", poisson(10, 2)), (f"{edge**3} rows", poisson(edge, 3))):
        small = S.shape[0] < 1000
        A, b = aij(S), np.ones(S.shape[0])
        for precond in () if small else ("auto", "amg"):
            rows = [own_time(S, A, b, {"precond": precond, "threads": 1}) for _ in range(runs)]
            for job in rows[0]:
                whole, own = (statistics.median(row[job][k] for row in rows) for k in (0, 1))
                found.append({"system": name, "precond": precond, "job": job, "whole_s": [row[job][0] for row in rows], "own_s": [row[job][1] for row in rows]})
                print(f"{name:14} {precond:6} {job:10} {whole:8.4f} s, of which the type's own part {own:8.4f} s, {100 * own / whole:.2f} %", flush=True)
        for precond in ("auto", "jacobi") if small else ("auto", "amg"):
            for job, pair in ways_of(S, A, b, {"precond": precond, "threads": 1}).items():
                times = ([], [])
                for _ in range(100 * runs if small else runs):
                    for way, into in zip(pair, times):
                        into.append(timed(way)[0])
                ours, theirs = min(times[0]), min(times[1])
                middle = [statistics.median(t) for t in times]
                found.append({"system": name, "precond": precond, "job": job, "krylith_s": times[0] if not small else ours,
                              "petsc_s": times[1] if not small else theirs, "min": [ours, theirs], "median": middle})
                print(f"{name:14} {precond:6} {job:10} {ours * 1e6:12.1f} µs {theirs * 1e6:12.1f} µs "
                      f"+{(theirs - ours) * 1e6:9.1f} µs {100 * (theirs / ours - 1):6.2f} %  medians +{(middle[1] - middle[0]) * 1e6:.1f} µs", flush=True)
    return found


#: PETSc's own ways and those of Krylith, as options.
OWN = {
    "gamg": {"ksp_type": "cg", "pc_type": "gamg"},
    "hypre": {"ksp_type": "cg", "pc_type": "hypre"},
    "cholesky (mumps)": {"ksp_type": "preonly", "pc_type": "cholesky", "pc_factor_mat_solver_type": "mumps"},
    "krylith.petsc.PC amg": {"ksp_type": "cg", "pc_type": "python", "pc_python_type": "krylith.petsc.PC", "krylith_precond": "amg", "krylith_threads": 1},
    "krylith.petsc.KSP amg": {"ksp_type": "python", "ksp_python_type": "krylith.petsc.KSP", "krylith_precond": "amg", "krylith_threads": 1},
    "krylith.petsc.KSP auto": {"ksp_type": "python", "ksp_python_type": "krylith.petsc.KSP", "krylith_threads": 1},
}


def peers(runs):
    S, points = elasticity(24)
    systems = [("poisson 48^3", poisson(48, 3), 1, None), ("poisson 400^2", poisson(400, 2), 1, None), ("elasticity 24^3", S, 3, points)]
    found = []
    for name, S, block, points in systems:
        A, b = aij(S, block, points), np.ones(S.shape[0])
        x, right = A.createVecs()
        right.setArray(b)
        times = {}
        for run in range(runs):
            for way, options in OWN.items():
                if way.startswith("cholesky") and run:  # takes long
                    continue
                ksp = PETSc.KSP().create(SELF)
                for key, value in options.items():
                    PETSc.Options()[key] = value
                ksp.setOperators(A)
                ksp.setTolerances(rtol=RTOL)
                ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED if way != "cholesky (mumps)" else PETSc.KSP.NormType.NONE)
                ksp.setFromOptions()
                first, _ = timed(lambda: ksp.solve(right, x))
                again, _ = timed(lambda: ksp.solve(right, x))
                A.stateIncrease()
                renewed, _ = timed(lambda: ksp.solve(right, x))
                residual = np.linalg.norm(b - S @ x.getArray()) / np.linalg.norm(b)
                assert ksp.reason > 0 and residual < 1.01e-8, (way, ksp.reason, residual)
                times.setdefault(way, []).append((first, renewed, again, ksp.its))
                for key in options:
                    PETSc.Options().delValue(key)
                ksp.destroy()
        for way, rows in times.items():
            middle = [statistics.median(column) for column in zip(*rows)]
            found.append({"system": name, "unknowns": S.shape[0], "way": way, "runs": rows})
            print(f"{name:16} {S.shape[0]:8} {way:24} first {middle[0]:7.3f} s  new values {middle[1]:7.3f} s  again {middle[2]:7.3f} s  {int(middle[3]):4} iterations", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("overhead", "peers"))
    parser.add_argument("out")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--edge", type=int, default=100)
    given = parser.parse_args()
    rows = overhead(given.runs, given.edge) if given.what == "overhead" else peers(given.runs)
    with open(given.out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
