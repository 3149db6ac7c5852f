"""Milliseconds of krylith.solve for large unsymmetric systems on a GPU, by auto, ildu and amg: python3 unsymmetric.py

Each line is the least of two calls after the first, to 1e-8 with b = ones, from arrays on the GPU. Needs CuPy.
"""

import time
import warnings

import amgx
import compare
import cupy
import cupyx.scipy.sparse as csp
import krylith
import scipy.sparse as sp


def convection(n, strength):
    """Upwind convection and diffusion on n³ nodes."""
    h = 1.0 / (n + 1)
    axes = (compare.tridiagonal(n, -1.0 - s * strength * h, 2.0 + s * strength * h) for s in (4.0, 2.0, 1.0))
    return compare.box(*axes)


SYSTEMS = {
    "radiation 64³ × 3": (lambda: amgx.generated("radiation:64x64x64,components=3"), 3),
    "reaction 64³ × 3": (lambda: compare.reaction(64, 3), 3),
    "reaction 60³ × 4": (lambda: compare.reaction(60, 4), 4),
    "convection 128³": (lambda: compare.convection(128), None),
    "convection 96³, strong": (lambda: convection(96, 1e3), None),
    "convection 96³, very strong": (lambda: convection(96, 1e5), None),
}


def main():
    warnings.simplefilter("ignore")
    for name, (make, block) in SYSTEMS.items():
        a = csp.csr_matrix(sp.csr_matrix(make()))
        b = cupy.ones(a.shape[0])
        for precond in ("auto", "ildu", "amg"):
            times = []
            for _ in range(3):
                cupy.cuda.Device().synchronize()
                begin = time.perf_counter()
                s = krylith.solve(a, b, rtol=1e-8, device="cuda", block=block, precond=precond, max_iters=2000)
                cupy.cuda.Device().synchronize()
                times.append(1e3 * (time.perf_counter() - begin))
            print(f"{name}: {precond} {min(times[1:]):.1f} ms, {s.outcome}, {s.iterations} iterations, {s.precond}", flush=True)


if __name__ == "__main__":
    main()
