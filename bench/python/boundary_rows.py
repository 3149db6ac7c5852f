"""Seconds of bare solves with boundary rows of the identity, beside the same system eliminated by hand.

    python3 boundary_rows.py [--device cuda|cpu] [--petsc]

Each system is −Δu = 1 on a square or a cube. Rows of its border are those of the identity, with boundary values
sin(i), and other rows still refer to them. *By hand* is the block of the other unknowns with b − A x_F, as a user
would form it; forming it is not timed. Times are whole calls, the best of three. With CuPy, arrays in GPU memory are
measured too. With --petsc, PETSc solves the system with the border: GMRES with hypre's BoomerAMG, rows as given, and
with columns eliminated by MatZeroRowsColumns, which is timed, as PETSc's users do.
"""
import argparse
import sys
import time

import numpy as np
import scipy.sparse as sp

import krylith

RTOL = 1e-8


def bordered(*points):
    """The Laplacian with its border as rows of the identity, b, and the fixed unknowns."""
    n = int(np.prod(points))
    index = np.arange(n)
    at, stride = [], 1
    for m in points:
        at.append(index // stride % m)
        stride *= m
    fixed = np.zeros(n, bool)
    for k, m in enumerate(points):
        fixed |= (at[k] == 0) | (at[k] == m - 1)
    inner = index[~fixed]
    rows, columns, values = [index], [index], [np.where(fixed, 1.0, 2.0 * len(points))]
    stride = 1
    for m in points:
        for other in (inner - stride, inner + stride):
            rows.append(inner)
            columns.append(other)
            values.append(np.full(len(inner), -1.0))
        stride *= m
    A = sp.coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(n, n)).tocsr()
    b = np.where(fixed, np.sin(index), 1.0 / points[0] ** 2)
    return A, b, fixed


def best(work, times=3):
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), found


def told(name, seconds, found, A, b):
    x = found.x.get() if hasattr(found.x, "get") else found.x
    left = np.linalg.norm(b - A @ x) / np.linalg.norm(b)
    assert left <= 1.01 * RTOL, (name, left)
    print(f"  {name}: {seconds:.4f} s, {found.iterations} iterations, {found.precond}, {found.method}, residual {left:.1e}", flush=True)


def petsc(A, b, eliminate):
    from petsc4py import PETSc

    mat = PETSc.Mat().createAIJ(A.shape, csr=(A.indptr.astype("i4"), A.indices.astype("i4"), A.data.copy()))
    rhs, x = PETSc.Vec().createWithArray(b.copy()), PETSc.Vec().createWithArray(np.zeros(len(b)))
    if eliminate is not None:
        x.array[eliminate] = b[eliminate]
        mat.zeroRowsColumns(eliminate.astype("i4"), 1.0, x, rhs)
    ksp = PETSc.KSP().create()
    ksp.setOperators(mat)
    ksp.setType("gmres" if eliminate is None else "cg")
    ksp.pc.setType("hypre")
    ksp.pc.setHYPREType("boomeramg")
    ksp.setTolerances(rtol=RTOL, max_it=500)
    ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    if eliminate is None:
        ksp.setPCSide(PETSc.PC.Side.RIGHT)
    ksp.setInitialGuessNonzero(eliminate is not None)
    ksp.solve(rhs, x)
    return x.array.copy(), ksp.getIterationNumber()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--petsc", action="store_true")
    parser.add_argument("--sizes", default="513x513,1025x1025,65x65x65,101x101x101")
    asked = parser.parse_args()
    sys.argv = sys.argv[:1]
    device = asked.device
    for size in asked.sizes.split(","):
        points = [int(k) for k in size.split("x")]
        A, b, fixed = bordered(*points)
        inner = np.flatnonzero(~fixed)
        C = A[inner][:, inner].tocsr()
        c = b[inner] - (A @ np.where(fixed, b, 0.0))[inner]
        print(f"{size}: {A.shape[0]} unknowns, {fixed.sum()} fixed")
        options = {"rtol": RTOL, "device": device}
        seconds, found = best(lambda: krylith.solve(A, b, **options))
        told("as given", seconds, found, A, b)
        seconds, found = best(lambda: krylith.solve(C, c, **options))
        told("by hand", seconds, found, C, c)
        seconds, found = best(lambda: krylith.solve(A, b, precond="amg", method="cg", **options))
        told("as given, amg", seconds, found, A, b)
        solver = krylith.Solver(A, **options)
        seconds, found = best(lambda: solver.solve(b))
        told("again", seconds, found, A, b)
        if device != "cpu":
            import cupy
            import cupyx.scipy.sparse as cusp

            on, rhs = cusp.csr_matrix(A), cupy.asarray(b)
            seconds, found = best(lambda: krylith.solve(on, rhs, rtol=RTOL))
            told("as given, in GPU memory", seconds, found, A, b)
            on, rhs = cusp.csr_matrix(C), cupy.asarray(c)
            seconds, found = best(lambda: krylith.solve(on, rhs, rtol=RTOL))
            told("by hand, in GPU memory", seconds, found, C, c)
        if asked.petsc:
            for name, rows in (("PETSc, GMRES, hypre", None), ("PETSc, MatZeroRowsColumns, CG, hypre", np.flatnonzero(fixed))):
                seconds, (x, iterations) = best(lambda: petsc(A, b, rows))
                left = np.linalg.norm(b - A @ x) / np.linalg.norm(b)
                print(f"  {name}: {seconds:.4f} s, {iterations} iterations, residual {left:.1e}", flush=True)


main()
