"""Iterations of Stokes flow in time by Radau IIA, to 1e-8: `python3 radau.py [CELLS]`. P2–P1 elements in 3-D.

Prints a line of JSON for each preconditioner, number of stages and time step.
"""

import json
import sys
import time

import krylith  # before fem, which adds the sources without the extension module to the path
import fem
import numpy as np
import scipy.sparse as sp
import ufl

P2 = "symmetric(chebyshev(jacobi:block=1; degree=3, low=0.2) then aux(P: amg; block=3))"
LAST = "p: stage(chebyshev(jacobi)); schur=full, S=Mp"
PRECONDS = {
    "split in stages": f"stage(split(u: {P2}, p: chebyshev(jacobi); schur=full, S=Mp))",
    "stages in a split": f"split(u: stage({P2}), {LAST})",
    "stages in a split, 3 inner": f"split(u: stage(cg({P2}; iterations=3)), {LAST})",
}
ROOT = np.sqrt(6.0)
SCHEMES = {
    1: np.array([[1.0]]),
    2: np.array([[5, -1], [9, 3]]) / 12,
    3: np.array(
        [
            [(88 - 7 * ROOT) / 360, (296 - 169 * ROOT) / 1800, (-2 + 3 * ROOT) / 225],
            [(296 + 169 * ROOT) / 1800, (88 + 7 * ROOT) / 360, (-2 - 3 * ROOT) / 225],
            [(16 - ROOT) / 36, (16 + ROOT) / 36, 1 / 9],
        ]
    ),
}


def mass(n, unknowns):
    """The mass matrix of the velocity in the whole system, without the rows of boundary values."""
    space = fem.element(fem.box(3, n), "P2v", "P1")
    velocities, numbers = space.sub(0).collapse()
    u, v = ufl.TrialFunction(velocities), ufl.TestFunction(velocities)
    own = fem.csr(ufl.inner(u, v) * ufl.dx).tocoo()
    numbers = np.asarray(numbers)
    return sp.csr_matrix((own.data, (numbers[own.row], numbers[own.col])), shape=(unknowns, unknowns))


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    k, f, fields, more = fem.stokes(3)(n)
    m = mass(n, len(f))
    off = abs(k) @ np.ones(len(f)) - abs(k.diagonal())
    inside = sp.diags((off > 0).astype(float))
    m = (inside @ m @ inside).tocsr()
    (du, dim), (dp, _) = fields["u"], fields["p"]
    named = {"u": {"unknowns": du, "block": dim, "near_nullspace": more["u_modes"]}, "p": dp}
    for name, precond in PRECONDS.items():
        for tau in (0.1, 1.0, 1e3):
            for s, b in SCHEMES.items():
                step = krylith.KroneckerSum(np.eye(s), m, b, k, tau=tau)
                right = tau * (b @ np.ones(s))[None, :] * f[:, None]
                start = time.process_time()
                x = krylith.solve(
                    step, right, fields=named, matrices={"Mp": more["Mp"], "P": more["P"]}, precond=precond, rtol=1e-8, device="cpu", threads=1, restart=100
                )
                print(
                    json.dumps(
                        {
                            "unknowns": s * len(f),
                            "precond": name,
                            "tau": tau,
                            "stages": s,
                            "iterations": x.iterations,
                            "outcome": x.outcome,
                            "seconds": round(time.process_time() - start, 2),
                        }
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
