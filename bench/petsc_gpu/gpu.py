"""Checks krylith.petsc with matrices and vectors of PETSc on a GPU: answers, and PETSc's counts of copies.

    python gpu.py [nodes in each direction]

It needs petsc4py of a PETSc with CUDA, and prints a line for each solver.
"""

import ctypes
import sys
import time

import numpy as np
import petsc4py

petsc4py.init(sys.argv[:1])
import krylith.petsc
from petsc4py import PETSc

LIBRARY = ctypes.CDLL(PETSc.__file__)
COUNTS = [ctypes.c_double.in_dll(LIBRARY, f"petsc_{name}_ct") for name in ("ctog", "gtoc")]


def copies():
    return np.array([count.value for count in COUNTS])


def poisson(n, skew):
    i = np.arange(n**3)
    at = [i % n, i // n % n, i // n**2]
    rows, cols, values = [i], [i], [np.full(n**3, 6.0)]
    for axis in range(3):
        for side in (-1, 1):
            inside = (at[axis] + side >= 0) & (at[axis] + side < n)
            rows.append(i[inside])
            cols.append(i[inside] + side * n**axis)
            values.append(np.full(inside.sum(), -1.0 + (skew * side if axis == 0 else 0.0)))
    A = PETSc.Mat().create(PETSC_SELF)
    A.setSizes((n**3, n**3))
    A.setType("aijcusparse")
    A.setPreallocationCOO(np.concatenate(rows).astype(PETSc.IntType), np.concatenate(cols).astype(PETSc.IntType))
    A.setValuesCOO(np.concatenate(values))
    A.assemble()
    return A


def solver(A, context):
    ksp = PETSc.KSP().create(PETSC_SELF)
    ksp.setOperators(A)
    ksp.setTolerances(rtol=1e-9)
    if isinstance(context, krylith.petsc.KSP):
        ksp.setType("python")
        ksp.setPythonContext(context)
    else:
        ksp.setType("fgmres")
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        ksp.getPC().setType("python")
        ksp.getPC().setPythonContext(context)
    return ksp


def check(name, A, ksp, b, x, transpose=False):
    """Solve, and print the residual, the difference from the known x, the time and the copies."""
    before, begin = copies(), time.perf_counter()
    (ksp.solveTranspose if transpose else ksp.solve)(b, x)
    r = b.duplicate()
    counted = copies() - before
    (A.multTranspose if transpose else A.mult)(x, r)
    r.axpy(-1.0, b)
    residual, seconds = r.norm() / b.norm(), time.perf_counter() - begin
    print(f"{name}: {ksp.its} iterations, residual {residual:.1e}, {seconds:.4f} s, copies to the GPU {counted[0]:g}, to the host {counted[1]:g}")
    assert ksp.reason > 0 and residual < 1.01e-9, (name, ksp.reason, residual)
    return counted


PETSC_SELF = PETSc.COMM_SELF
n = int(sys.argv[1]) if len(sys.argv) > 1 else 48
for skew in (0.0, 0.3):
    A = poisson(n, skew)
    x, b = A.createVecs()
    assert x.getType() == "seqcuda", x.getType()
    b.setRandom()
    A.mult(b, x)  # both are on the GPU from here on
    A.scale(2.0)
    b.scale(1.0)
    for context in (krylith.petsc.KSP(), krylith.petsc.KSP(precond="amg"), krylith.petsc.PC(precond="amg"), krylith.petsc.PC(precond="jacobi")):
        kind = f"{type(context).__name__}({', '.join(f'{k}={v}' for k, v in context._given.items())}), skew {skew}"
        ksp = solver(A, context)
        check(f"{kind}, first", A, ksp, b, x)
        total = check(f"{kind}, again", A, ksp, b, x)
        A.scale(1.5)
        total += check(f"{kind}, new values", A, ksp, b, x)
        if isinstance(context, krylith.petsc.KSP):
            total += check(f"{kind}, transposed", A, ksp, b, x, transpose=True)
        assert (context.set_ups, context.updates) == (1, 1), (context.set_ups, context.updates)
        if isinstance(context, krylith.petsc.KSP):
            assert not total.any(), (kind, total)
        print(context.solver)
print("all passed")
