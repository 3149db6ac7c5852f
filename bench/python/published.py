"""Milliseconds of krylith.solve on two systems whose times others publish: python3 published.py [--out FILE] [ROW ...]

plane:N       Five-point Poisson matrix on N² nodes, b of random numbers, to 1e-6, as torch-sla publishes for an H200:
              N = 1000: CG with Jacobi 190 ms, cuDSS 7.3 s. 4000: 7.3 s. 9000: 75.9 s. 13000: 224 s.
p2:FILE.npz   Poisson's equation with quadratic elements on the unit square, f = x, to 1e-8, as NGSolve publishes for an
              H100 (CG with Jacobi in one CUDA graph): 46,741 unknowns 16.8 ms, 185,809 in 49.5, 514,637 in 134.6.
mesh:H:FILE   Writes FILE.npz of NGSolve's mesh with edges of length H: 0.01, 0.005 and 0.003. Needs NGSolve.

Arrays are on the GPU. The time is of whole calls, set-up included: the least and the median of six after the first. Beside
each row stands CuPy's cg with Jacobi, to the same residual, if it needs at most 20,000 iterations. Needs CuPy.
"""

import argparse
import json
import statistics
import time

import numpy as np


def mesh(h, path):
    """Writes the points and triangles of NGSolve's mesh of the unit square."""
    from ngsolve import VOL, Mesh, unit_square

    made = Mesh(unit_square.GenerateMesh(maxh=h))
    points = np.array([vertex.point for vertex in made.vertices])
    triangles = np.array([[v.nr for v in e.vertices] for e in made.Elements(VOL)], dtype=np.int32)
    np.savez_compressed(path, points=points, triangles=triangles)
    print(path, points.shape[0], "vertices", triangles.shape[0], "triangles")


def plane(n):
    """The five-point matrix in CSR, made on the GPU, and b."""
    import cupy
    import cupyx.scipy.sparse as csp

    i = cupy.arange(n * n, dtype=cupy.int32)
    x, y = i % n, i // n
    there = [y > 0, x > 0, x >= 0, x < n - 1, y < n - 1]
    kept = cupy.stack(there, axis=1).ravel()
    row_ptr = cupy.zeros(n * n + 1, dtype=cupy.int64)
    cupy.cumsum(sum(t.astype(cupy.int64) for t in there), out=row_ptr[1:])
    del there, x, y
    col = (i[:, None] + cupy.array([-n, -1, 0, 1, n], dtype=cupy.int32)).ravel()[kept]
    values = cupy.tile(cupy.array([-1.0, -1.0, 4.0, -1.0, -1.0]), n * n)[kept]
    del kept, i
    a = csp.csr_matrix((values, col, row_ptr.astype(cupy.int32)), shape=(n * n, n * n))
    return a, cupy.random.default_rng(1).standard_normal(n * n), 1e-6


def quadratic(path):
    """Stiffness matrix and load vector for hats and edge bubbles λᵢ λⱼ; values on the border are zero."""
    import cupy
    import cupyx.scipy.sparse as csp
    import scipy.sparse as sp

    file = np.load(path)
    points, triangles = file["points"], file["triangles"]
    nodes, ends = points.shape[0], [(1, 2), (0, 2), (0, 1)]
    all_edges = np.sort(np.concatenate([triangles[:, list(pair)] for pair in ends]), axis=1)
    edges, number, uses = np.unique(all_edges, axis=0, return_inverse=True, return_counts=True)
    number = number.reshape(3, -1).T + nodes
    unknowns = np.concatenate([triangles, number], axis=1)
    corner = points[triangles]
    e = np.stack([corner[:, 2] - corner[:, 1], corner[:, 0] - corner[:, 2], corner[:, 1] - corner[:, 0]], axis=1)
    double = e[:, 1, 0] * e[:, 2, 1] - e[:, 1, 1] * e[:, 2, 0]
    gradient = np.stack([-e[:, :, 1], e[:, :, 0]], axis=2) / double[:, None, None]
    g = np.einsum("eic,ejc->eij", gradient, gradient)
    matrix = np.zeros((triangles.shape[0], 6, 6))
    load = np.zeros((triangles.shape[0], 6))
    # The midpoints of the edges integrate products of degree two exactly.
    middles = np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    for at in middles:
        # Each basis function has gradient Σ w_i ∇λ_i.
        w = np.concatenate([np.eye(3), np.zeros((3, 3))])
        value = np.concatenate([at, np.zeros(3)])
        for k, (i, j) in enumerate(ends):
            w[3 + k, i], w[3 + k, j], value[3 + k] = at[j], at[i], at[i] * at[j]
        area = np.abs(double) / 6.0
        matrix += np.einsum("ai,eij,bj,e->eab", w, g, w, area)
        load += (np.einsum("k,ek->e", at, corner[:, :, 0]) * area)[:, None] * value
    size = nodes + edges.shape[0]
    rows, cols = np.repeat(unknowns, 6, axis=1).ravel(), np.tile(unknowns, (1, 6)).ravel()
    a = sp.coo_matrix((matrix.ravel(), (rows, cols)), shape=(size, size)).tocsr()
    b = np.bincount(unknowns.ravel(), load.ravel(), size)
    inside = np.ones(size, dtype=bool)
    inside[edges[uses == 1].ravel()] = False
    inside[nodes:][uses == 1] = False
    a = a[inside][:, inside].tocsr()
    a.eliminate_zeros()
    return csp.csr_matrix(a), cupy.asarray(b[inside]), 1e-8


def with_cupy(a, b, rtol):
    """Seconds, iterations and residual of CuPy's cg with Jacobi."""
    import cupy
    import cupyx.scipy.sparse.linalg as linalg

    def solve():
        inverse, count = 1.0 / a.diagonal(), [0]
        jacobi = linalg.LinearOperator(a.shape, lambda v: inverse * v)

        def counted(_):
            count[0] += 1

        x, _ = linalg.cg(a, b, rtol=0.9 * rtol, maxiter=20_000, M=jacobi, callback=counted)
        return x, count[0]

    begin = time.perf_counter()
    x, count = solve()
    cupy.cuda.Device().synchronize()
    seconds = time.perf_counter() - begin
    if seconds < 5.0:
        begin = time.perf_counter()
        x, count = solve()
        cupy.cuda.Device().synchronize()
        seconds = time.perf_counter() - begin
    residual = float(cupy.linalg.norm(b - a @ x) / cupy.linalg.norm(b))
    return {"solver": "CuPy cg with Jacobi", "ms": 1e3 * seconds, "iterations": count, "residual": residual}


def with_krylith(a, b, rtol, **options):
    import cupy
    import krylith

    times, s = [], None
    for _ in range(7):
        s = None
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        s = krylith.solve(a, b, rtol=rtol, device="cuda", **options)
        cupy.cuda.Device().synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    x = cupy.asarray(s.x)
    residual = float(cupy.linalg.norm(b - a @ x) / cupy.linalg.norm(b))
    row = {"solver": " ".join(["Krylith", *(f"{k}={v}" for k, v in options.items())]), "least": min(times[1:]), "median": statistics.median(times[1:]), "first": times[0]}
    row |= {"iterations": s.iterations, "residual": residual, "outcome": s.outcome, "precond": s.precond}
    return row | {"method": s.method, "seconds": s.seconds._asdict()}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("rows", nargs="*", default=["plane:1000", "plane:4000", "plane:9000"])
    words.add_argument("--out", default="published.jsonl")
    asked = words.parse_args()
    for name in asked.rows:
        kind, _, rest = name.partition(":")
        if kind == "mesh":
            h, _, path = rest.partition(":")
            mesh(float(h), path)
            continue
        import cupy

        a, b, rtol = plane(int(rest)) if kind == "plane" else quadratic(rest)
        cupy.get_default_memory_pool().free_all_blocks()
        def jacobi(a, b, rtol):
            return with_krylith(a, b, rtol, precond="jacobi")

        for measure in (with_krylith, jacobi, with_cupy) if kind == "p2" else (with_krylith, with_cupy):
            if measure is with_cupy and a.shape[0] > 20_000_000:
                continue  # tens of thousands of iterations
            row = {"row": name, "unknowns": a.shape[0], "stored": int(a.nnz), "rtol": rtol} | measure(a, b, rtol)
            print(json.dumps(row), flush=True)
            with open(asked.out, "a") as out:
                out.write(json.dumps(row) + "\n")
        del a, b
        cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
