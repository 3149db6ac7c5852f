#!/usr/bin/env python3
"""Functions of CuPy, PyTorch and JAX as A on a GPU: the time of an iteration above the function's own.

CG on the Laplacian of a cube, −Δ with 7 points, from the function and from the assembled matrix. Every case is
checked first: both give the same x. `own` is the time of the function alone, as the library runs it, and `above` is what an
iteration takes above that. On small cubes it is the time of launches and calls; on large ones, the vectors of CG
count too, as they do in the iteration with the assembled matrix. Output: one line of JSON per case, and a table.

    python3 bench/python/functions.py [--nodes 24 128] [--json functions.json]
"""

import argparse
import json
import sys
import time

import numpy as np
import scipy.sparse as sp

import krylith


def laplacian(k):
    """Return the matrix of k³ nodes."""
    T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(k, k))
    I = sp.eye_array(k)
    return sp.csr_array(sp.kron(sp.kron(T, I), I) + sp.kron(sp.kron(I, T), I) + sp.kron(sp.kron(I, I), T))


KERNEL = r"""
extern "C" __global__ void laplacian(const double* x, double* y, int k) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, n = (long long)k * k * k;
    if (i >= n) return;
    int a = i % k, b = i / k % k, c = i / ((long long)k * k);
    double sum = 6.0 * x[i];
    if (a > 0) sum -= x[i - 1];
    if (a < k - 1) sum -= x[i + 1];
    if (b > 0) sum -= x[i - k];
    if (b < k - 1) sum -= x[i + k];
    if (c > 0) sum -= x[i - (long long)k * k];
    if (c < k - 1) sum -= x[i + (long long)k * k];
    y[i] = sum;
}
"""


def of_cupy(k):
    import cupy

    kernel = cupy.RawKernel(KERNEL, "laplacian")
    n = k**3
    blocks = ((n + 255) // 256,)

    def write(x, y):
        kernel(blocks, (256,), (x, y, np.int32(k)))

    def seconds(times):
        x, y = cupy.ones(n), cupy.empty(n)
        write(x, y)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(times):
            write(x, y)
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(begin, end) * 1e-3 / times

    return write, seconds, dict(like="cupy", out=True)


def of_torch(k):
    import torch

    def apply(x):
        u = x.view(k, k, k)
        y = 6.0 * u
        for axis in range(3):
            y.narrow(axis, 1, k - 1).sub_(u.narrow(axis, 0, k - 1))
            y.narrow(axis, 0, k - 1).sub_(u.narrow(axis, 1, k - 1))
        return y.reshape(-1)

    def seconds(times):
        x = torch.ones(k**3, dtype=torch.float64, device="cuda")
        apply(x)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            apply(x)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / times

    return apply, seconds, dict(like="torch")


def of_jax(k):
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    @jax.jit
    def apply(x):
        u = jnp.pad(x.reshape(k, k, k), 1)
        inner = slice(1, -1)
        y = 6.0 * u[inner, inner, inner]
        for shift in (slice(0, -2), slice(2, None)):
            y = y - u[shift, inner, inner] - u[inner, shift, inner] - u[inner, inner, shift]
        return y.reshape(-1)

    def seconds(times):
        x = jnp.ones(k**3)
        apply(x).block_until_ready()
        begin = time.perf_counter()
        for _ in range(times):
            x = apply(x) * 0.1
        x.block_until_ready()
        return (time.perf_counter() - begin) / times

    return apply, seconds, dict(like="jax")


def timed(solver, b, iterations):
    """Return the seconds of an iteration, from solves of two lengths."""
    best = [np.inf, np.inf]
    limits = (iterations // 2, iterations)
    for _ in range(5):
        for j, limit in enumerate(limits):
            begin = time.perf_counter()
            solver.solve(b, rtol=0.0, atol=0.0, max_iters=limit)
            best[j] = min(best[j], time.perf_counter() - begin)
    return (best[1] - best[0]) / (limits[1] - limits[0])


def measured(k, given):
    """Return the results of one cube."""
    n = k**3
    A = laplacian(k)
    b = np.random.default_rng(1).standard_normal(n)
    options = dict(method="cg", rtol=1e-8)
    assembled = krylith.Solver(A, precond="none", device="cuda", **options)
    expected = assembled.solve(b)
    assert expected.converged, expected.outcome
    rows = [{"case": "assembled", "nodes": k, "iteration": timed(assembled, b, given.iterations)}]
    for name, make in (("cupy", of_cupy), ("torch", of_torch), ("jax", of_jax)):
        if name not in given.only:
            continue
        try:
            apply, seconds, how = make(k)
        except ImportError as e:
            print(f"{name}: {e}", file=sys.stderr)
            continue
        own = min(seconds(200) for _ in range(3))
        for capturable in (False, True):
            if name == "jax" and capturable:
                continue
            case = {"case": name, "nodes": k, "capturable": capturable, "own": own}
            try:
                solver = krylith.Solver(krylith.DeviceOperator(apply, n, capturable=capturable, **how), **options)
                s = solver.solve(b)
                assert s.converged, s.outcome
                error = float(np.linalg.norm(s.x - expected.x) / np.linalg.norm(expected.x))
                assert error < 1e-5 and abs(s.iterations - expected.iterations) <= 3, (error, s.iterations)
                case |= {"iterations": s.iterations, "error": error, "iteration": timed(solver, b, given.iterations)}
                case["above"] = case["iteration"] - own
            except Exception as e:  # one library must not hide the others
                case["failed"] = f"{type(e).__name__}: {e}"
            rows.append(case)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[24, 128], help="nodes in each direction")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=["cupy", "torch", "jax"])
    parser.add_argument("--json", default=None)
    given = parser.parse_args()
    import warnings

    warnings.simplefilter("ignore")  # solves of fixed lengths do not converge
    rows = [row for k in given.nodes for row in measured(k, given)]
    for row in rows:
        print(json.dumps(row))
    print(f"{'case':12} {'nodes':>6} {'capturable':>10} {'own µs':>9} {'iteration µs':>13} {'above µs':>9}")
    for row in rows:
        own, whole, above = (f"{row[key] * 1e6:.1f}" if key in row else "" for key in ("own", "iteration", "above"))
        print(f"{row['case']:12} {row['nodes']:>6} {str(row.get('capturable', '')):>10} {own:>9} {whole:>13} {above:>9} {row.get('failed', '')}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
