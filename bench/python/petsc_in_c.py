"""The types of libkrylith_petsc beside those of krylith.petsc and PETSc's gamg: times of one process and one thread.

    PYTHONPATH=FOLDER-OF-KRYLITH /usr/bin/python3 bench/python/petsc_in_c.py LIBRARY [OUT.json]

LIBRARY is the path of libkrylith_petsc.so. The large systems have processor seconds, medians of three runs: a first
solve with its set-up, one with new values, and one again. The system of 100 rows has the smallest of 4,000 times of a
solve again, in microseconds of the wall clock. All to 1e-8, with CG where PETSc iterates. Needs SciPy and petsc4py.
"""

import json
import os
import pathlib
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import petsc4py
import scipy.sparse as sp

petsc4py.init([sys.argv[0], "-dll_append", sys.argv[1]])
from petsc4py import PETSc

import krylith.petsc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "crates/krylith-py/tests"))
from petsc_cases import aij, elasticity, poisson

PYTHON_PC = {"pc_type": "python", "pc_python_type": "krylith.petsc.PC"}
CG = {"ksp_type": "cg", "ksp_norm_type": "unpreconditioned"}
KINDS = {
    "KSP in C": {"ksp_type": "krylith"},
    "KSP in Python": {"ksp_type": "python", "ksp_python_type": "krylith.petsc.KSP"},
    "PC in C": {**CG, "pc_type": "krylith"},
    "PC in Python": {**CG, **PYTHON_PC},
    "gamg": {**CG, "pc_type": "gamg"},
}


def cube(n):
    T, I = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n)), sp.identity(n)
    return (sp.kron(sp.kron(T, I), I) + sp.kron(sp.kron(I, T), I) + sp.kron(sp.kron(I, I), T)).tocsr()


def body(n):
    S, points = elasticity(n)
    A = aij(S)
    A.setBlockSize(2)
    at = A.createVecRight()
    at.setBlockSize(2)
    at.setArray(points.ravel())
    A.setNearNullSpace(PETSc.NullSpace().createRigidBody(at))
    return A


def new_ksp(A, options):
    database = PETSc.Options()
    for name, value in options.items():
        database[name] = value
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOperators(A)
    ksp.setTolerances(rtol=1e-8)
    ksp.setFromOptions()
    for name in options:
        database.delValue(name)
    return ksp


def run(A, options):
    """Return the processor seconds of a first solve, of new values, and of a solve again, and the iterations."""
    x, b = A.createVecs()
    b.set(1.0)
    times, start = [], time.process_time()
    ksp = new_ksp(A, options)
    for change in (False, True, False):
        if change:
            A.scale(1.0 + 1e-12)
            start = time.process_time()
        ksp.solve(b, x)
        times.append(time.process_time() - start)
        start = time.process_time()
        assert ksp.reason > 0
    its = ksp.its
    ksp.destroy()
    return times, its


def main():
    rows = []
    for system, A in (("Poisson 60^3", aij(cube(60))), ("elasticity 160^2", body(160))):
        found = {kind: [] for kind in KINDS}
        for _ in range(4):
            for kind, options in KINDS.items():
                ours = {} if kind == "gamg" else {"krylith_threads": 1, "krylith_precond": "amg"}
                found[kind].append(run(A, {**options, **ours}))
        for kind, runs in found.items():
            first, new, again = (statistics.median(times[k] for times, _ in runs[1:]) for k in range(3))
            rows.append({"system": system, "kind": kind, "first_s": first, "new_values_s": new, "again_s": again, "iterations": runs[0][1]})
            print(f"{system:18} {kind:14} first {first:.3f} s, new values {new:.3f} s, again {again:.3f} s, {runs[0][1]} iterations", flush=True)
    A = aij(poisson(10))
    x, b = A.createVecs()
    b.set(1.0)
    for kind, options in KINDS.items():
        ksp = new_ksp(A, {**options, **({} if kind == "gamg" else {"krylith_threads": 1})})
        ksp.solve(b, x)
        best = float("inf")
        for _ in range(4000):
            start = time.perf_counter()
            ksp.solve(b, x)
            best = min(best, time.perf_counter() - start)
        rows.append({"system": "Poisson 10^2", "kind": kind, "again_us": 1e6 * best, "iterations": ksp.its})
        print(f"{'Poisson 10^2':18} {kind:14} again {1e6 * best:.1f} us, {ksp.its} iterations", flush=True)
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(rows, indent=1), encoding="utf-8")


main()
