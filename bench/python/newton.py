"""Newton's method with F and J on the GPU, and with both on the host: python3 newton.py [N]

The system is Bratu's, −Δu = λ exp(u) in a cube of N³ nodes (160 by default), λ = 6. Linear solves run on the GPU in both
cases. Prints the medians of three whole calls, after one that is not counted, and where the time of the last one goes.
Needs CuPy.
"""

import json
import statistics
import sys
import time

import cupy
import cupyx.scipy.sparse as csp
import numpy as np
import scipy.sparse as sp

import krylith


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 160
    T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    one = sp.eye_array(n)
    K = (sp.kron(sp.kron(T, one), one) + sp.kron(sp.kron(one, T), one) + sp.kron(sp.kron(one, one), T)).tocsr()
    K.sort_indices()
    K = sp.csr_matrix((K.data, K.indices.astype(np.int32), K.indptr.astype(np.int32)), shape=K.shape)
    factor = 6.0 / (n + 1) ** 2
    rows = np.repeat(np.arange(K.shape[0]), np.diff(K.indptr))
    places = np.flatnonzero(K.indices == rows)
    answers = {}
    for where, module, matrix, form in (("GPU", cupy, csp.csr_matrix(K), csp.csr_matrix), ("host", np, K, sp.csr_matrix)):
        diagonal = module.asarray(places)

        def residual(u):
            return matrix @ u - factor * module.exp(u)

        def jacobian(u):
            values = matrix.data.copy()
            values[diagonal] -= factor * module.exp(u)
            return form((values, matrix.indices, matrix.indptr), shape=matrix.shape)

        start, times = module.zeros(K.shape[0]), []
        for _ in range(4):
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
            s = krylith.newton(residual, jacobian, start, rtol=1e-10, device="cuda")
            cupy.cuda.Device().synchronize()
            times.append(time.perf_counter() - begin)
        assert s.converged, s
        answers[where] = cupy.asnumpy(s.x)
        row = {"F and J": where, "unknowns": K.shape[0], "ms": round(1e3 * statistics.median(times[1:])), "steps": len(s.steps)}
        row |= {"iterations": s.iterations, "in ms": {name: round(1e3 * t) for name, t in s.seconds.items()}}
        print(json.dumps(row), flush=True)
    difference = float(np.abs(answers["GPU"] - answers["host"]).max() / np.abs(answers["host"]).max())
    print(json.dumps({"largest difference of x": difference}), flush=True)
    assert difference < 1e-8, difference


if __name__ == "__main__":
    main()
