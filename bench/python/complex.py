"""Complex Helmholtz and Maxwell systems: Krylith beside SciPy's spsolve and PETSc with complex numbers.

Usage: python bench/python/complex.py [--petsc /usr/bin/python3] [--petsc-path FOLDER] [--small] [--out rows.json]

`--petsc` is a Python with petsc4py of complex numbers. On Debian the package is python3-petsc4py-complex, and
FOLDER is /usr/lib/petscdir/petsc3.18/x86_64-linux-gnu-complex/lib/python3/dist-packages.

helmholtz: −Δu − k²(1 + iη)u = f, seven points on n³ nodes of the unit cube, u = 0 outside, k = 0.5 (n + 1), which is
    12.6 nodes per wavelength, and η = 0.1.
maxwell: curl curl E − ω²E + iωσE = f, Nédélec elements of lowest order on n³ cubes of the unit box, E × n = 0 on the
    sides, ω = 2, σ = 40 in the lower half and 2 above. f is a current along x through the middle of the box.

The rows "forms" solve the real forms K1 and K2 with a preconditioner of the real matrix −Δ + k², or
curl curl + ω² + ωσ.

Each solve is a process of its own on one thread. A row has its CPU seconds from the matrix in memory to x, without the
start of the process, the memory that it added to the process at most, and ‖b − A x‖/‖b‖, recomputed. rtol is 1e-8.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import scipy
import scipy.sparse as sp

RTOL = 1e-8
AUX = (
    "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) then aux(Py: amg)"
    " then aux(Pz: amg))"
)
#: A solver for the real matrix of absolute values, curl curl + ω² + ωσ, as the preconditioner.
REAL = "fgmres real cg"
KRYLITH = {
    "helmholtz": ["auto", "gmres ildu", "bicgstab ildu:fill=1", "gmres lu"],
    "maxwell": ["auto", "gmres ildu:fill=1", f"gmres {AUX}", REAL, "gmres lu"],
}
PETSC = [
    "-ksp_type gmres -pc_type ilu", "-ksp_type bcgs -pc_type ilu", "-ksp_type gmres -pc_type ilu -pc_factor_levels 1",
    "-ksp_type bcgs -pc_type ilu -pc_factor_levels 1", "-ksp_type gmres -pc_type gamg",
    "-ksp_type preonly -pc_type lu -pc_factor_mat_solver_type mumps",
]  # fmt: skip


def kron(a, b, c):
    return sp.kron(sp.kron(a, b), c, format="csr")


def helmholtz(n: int) -> dict:
    """Return the Helmholtz system, with a source in the middle."""
    k, h, eye = 0.5 * (n + 1), 1.0 / (n + 1), sp.identity(n)
    line = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    A = kron(line, eye, eye) + kron(eye, line, eye) + kron(eye, eye, line)
    A = A - (k * h) ** 2 * (1 + 0.1j) * sp.identity(n**3)
    f = np.zeros((n, n, n), complex)
    f[n // 2, n // 2, n // 3] = 1.0
    real = (A + 2 * (k * h) ** 2 * sp.identity(n**3)).real  # −Δ + k²
    return {"A": A.tocsr(), "b": f.ravel(), "real": real}


def maxwell(n: int, omega: float = 2.0, sigma: tuple = (40.0, 2.0)) -> dict:
    """Return the Maxwell system, the gradient G and the interpolations P of linear vectors (Hiptmair and Xu 2007)."""
    h, cells = 1.0 / n, sp.identity(n)
    # Along a line: the derivative and the mean from inner nodes to cells, and the mass of linear functions.
    D = sp.diags([np.ones(n - 1), -np.ones(n - 1)], [0, -1], shape=(n, n - 1)).tocsr()
    mean, I = abs(D) / 2, sp.identity(n - 1)
    # The six masses of a cell of an element: ∫φᵢφⱼ with weights by cell.
    def mass(weight):
        full = sp.lil_matrix((n + 1, n + 1))
        for c in range(n):
            full[c : c + 2, c : c + 2] += weight[c] * h / 6 * np.array([[2.0, 1.0], [1.0, 2.0]])
        return full.tocsr()[1:n, 1:n]
    one, conducting = np.ones(n), np.where(np.arange(n) < n // 2, *sigma)
    M = mass(one)
    C = sp.bmat([[None, -kron(I, cells, D), kron(I, D, cells)],
                 [kron(cells, I, D), None, -kron(D, I, cells)],
                 [-kron(cells, D, I), kron(D, cells, I), None]]) / h
    faces = h**2 * sp.block_diag([kron(M, cells, cells), kron(cells, M, cells), kron(cells, cells, M)])
    edges = lambda w: h * sp.block_diag([kron(cells, M, mass(w)), kron(M, cells, mass(w)), kron(M, M, sp.diags(w))])
    stiffness, of_one, of_sigma = C.T @ faces @ C, omega**2 * edges(one), omega * edges(conducting)
    A = stiffness - of_one + 1j * of_sigma
    G = sp.vstack([kron(D, I, I), kron(I, D, I), kron(I, I, D)])
    P = sp.block_diag([kron(mean, I, I), kron(I, mean, I), kron(I, I, mean)], format="csc")
    parts = {name: P[:, k * (n - 1) ** 3 : (k + 1) * (n - 1) ** 3] for k, name in enumerate(("Px", "Py", "Pz"))}
    f = np.zeros((n, n - 1, n - 1), complex)
    f[n // 4 : 3 * n // 4, n // 2, n // 2] = h
    b = np.concatenate([f.ravel(), np.zeros(2 * f.size)])
    real = stiffness + of_one + of_sigma
    return {"A": sp.csr_matrix(A), "b": b, "real": real, "G": G.tocsr(), **parts}


def save(path: str, system: dict) -> None:
    flat = {"names": np.array([name for name in system if name != "b"]), "b": system["b"]}
    for name in flat["names"]:
        matrix = sp.csr_matrix(system[name])
        matrix.sort_indices()
        for part in ("data", "indices", "indptr", "shape"):
            flat[f"{name}.{part}"] = np.asarray(getattr(matrix, part))
    np.savez(path, **flat)


def load(path: str) -> dict:
    with np.load(path) as flat:
        part = lambda name, what: flat[f"{name}.{what}"]
        arrays = lambda name: tuple(part(name, what) for what in ("data", "indices", "indptr"))
        of = lambda name: sp.csr_matrix(arrays(name), part(name, "shape"))
        return {"b": flat["b"]} | {str(name): of(name) for name in flat["names"]}


def krylith_solve(system: dict, way: str) -> tuple:
    import krylith

    fixed = {"device": "cpu", "threads": 1}
    method, _, precond = way.partition(" ")
    named = {} if way == "auto" else {"method": method, "precond": precond}
    used = AUX if way == REAL else precond
    matrices = {name: m for name, m in system.items() if f"aux({name}:" in used} or None
    if way == REAL:
        of_real = {"method": "cg", "precond": AUX, "matrices": matrices, "rtol": 1e-2}
        named["precond"] = krylith.Solver(system["real"], **of_real, **fixed)
        matrices = None
    solution = krylith.solve(system["A"], system["b"], rtol=RTOL, max_iters=1000, matrices=matrices, **fixed, **named)
    return solution.x, solution.iterations, solution.outcome, f"{solution.method} {solution.precond}"


def form_solve(system: dict, way: str) -> tuple:
    """Solve the real form K1 = [[R, −I], [I, R]] or K2 = [[R, I], [I, −R]] of A = R + iI, with P⁻¹ of a real P."""
    import krylith
    from scipy.sparse.linalg import LinearOperator

    form, method = way.split()
    maxwell = "G" in system
    matrices = {name: system[name] for name in ("G", "Px", "Py", "Pz")} if maxwell else None
    P = krylith.Solver(
        system["real"], method="cg", precond=AUX if maxwell else "amg", matrices=matrices, device="cpu", threads=1
    )
    R, I, n = system["A"].real, system["A"].imag, system["A"].shape[0]
    K = sp.bmat([[R, -I], [I, R]] if form == "K1" else [[R, I], [I, -R]], format="csr")
    halves = lambda v: np.concatenate([P.precondition(v[:n]), P.precondition(v[n:])])
    b = np.concatenate([system["b"].real, system["b"].imag])
    precond = LinearOperator(K.shape, matvec=halves, dtype=float)
    solution = krylith.solve(K, b, method=method, precond=precond, rtol=RTOL, max_iters=1000, device="cpu", threads=1)
    x = solution.x[:n] + (1j if form == "K1" else -1j) * solution.x[n:]
    return x, solution.iterations, solution.outcome, solution.method


def scipy_solve(system: dict, way: str) -> tuple:
    from scipy.sparse.linalg import spsolve

    return spsolve(system["A"].tocsc(), system["b"]), 0, "converged", "SuperLU"


def petsc_solve(system: dict, way: str) -> tuple:
    from petsc4py import PETSc

    A = system["A"]
    pattern = [part.astype(PETSc.IntType) for part in (A.indptr, A.indices)]
    matrix = PETSc.Mat().createAIJ(A.shape, csr=(*pattern, A.data))
    b, x = matrix.createVecRight(), matrix.createVecRight()
    b.setArray(system["b"])
    ksp = PETSc.KSP().create()
    ksp.setOperators(matrix)
    ksp.setTolerances(rtol=RTOL, max_it=1000)
    ksp.setFromOptions()
    ksp.setNormType(PETSc.KSP.NormType.NONE if ksp.getType() == "preonly" else PETSc.KSP.NormType.UNPRECONDITIONED)
    ksp.setPCSide(PETSc.PC.Side.LEFT if ksp.getType() == "preonly" else PETSc.PC.Side.RIGHT)
    ksp.solve(b, x)
    reason = ksp.getConvergedReason()
    return x.getArray().copy(), ksp.getIterationNumber(), "converged" if reason > 0 else f"reason {reason}", ""


SOLVERS = {"krylith": krylith_solve, "forms": form_solve, "scipy": scipy_solve, "petsc": petsc_solve}


def worker(solver: str, way: str, path: str) -> None:
    system = load(path)
    __import__({"krylith": "krylith", "forms": "krylith", "scipy": "scipy.sparse.linalg", "petsc": "petsc4py"}[solver])
    if solver == "petsc":
        sys.modules["petsc4py"].init(["complex.py", *way.split()])
        from petsc4py import PETSc  # noqa: F401
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before, begin = peak(), time.process_time()
    x, iterations, outcome, told = SOLVERS[solver](system, way)
    seconds, added = time.process_time() - begin, peak() - before
    b = system["b"]
    residual = np.linalg.norm(b - system["A"] @ x) / np.linalg.norm(b)
    found = {"iterations": int(iterations), "outcome": outcome, "residual": float(residual), "told": str(told)}
    print(json.dumps(found | {"cpu_seconds": seconds, "added_mib": added / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--petsc")
    parser.add_argument("--petsc-path", default="")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds of a solve")
    parser.add_argument("--only", help="krylith, scipy or petsc")
    parser.add_argument("--out")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return worker(*given.worker)
    sizes = {"helmholtz": (12,), "maxwell": (8,)} if given.small else {"helmholtz": (20, 32), "maxwell": (10, 16)}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, n in [(name, n) for name, of in sizes.items() for n in of]:
            system = {"helmholtz": helmholtz, "maxwell": maxwell}[name](n)
            path = os.path.join(folder, f"{name}{n}.npz")
            save(path, system)
            runs = [("krylith", way) for way in KRYLITH[name]] + [("scipy", "spsolve")]
            runs += [("forms", way) for way in ("K1 gmres", "K1 gmres:restart=100", "K1 bicgstab", "K2 minres")]
            runs += [("petsc", way) for way in PETSC] if given.petsc else []
            for solver, way in [(s, w) for s, w in runs if given.only in (None, s)]:
                python = given.petsc if solver == "petsc" else sys.executable
                one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
                if solver == "petsc":
                    one["PYTHONPATH"] = given.petsc_path
                row = {"system": name, "n": n, "unknowns": system["A"].shape[0], "entries": system["A"].nnz}
                row |= {"solver": solver, "way": way}
                command = [python, __file__, "--worker", solver, way, path]
                how = {"capture_output": True, "text": True, "timeout": given.limit, "env": os.environ | one}
                try:
                    ran = subprocess.run(command, **how)
                    found = [line for line in ran.stdout.splitlines() if line.startswith("{")]
                    row |= json.loads(found[-1]) if found else {"outcome": "failed", "why": ran.stderr[-300:]}
                except subprocess.TimeoutExpired:
                    row |= {"outcome": f"no answer in {given.limit:g} s"}
                rows.append(row)
                shown = {"iterations": 0, "residual": np.nan, "cpu_seconds": np.nan, "added_mib": np.nan} | row
                print(
                    "{system:9} {unknowns:6} {solver:7} {way:.62} | {outcome}, {iterations} iterations, residual "
                    "{residual:.1e}, {cpu_seconds:.2f} s, {added_mib:.0f} MiB".format(**shown), flush=True
                )  # fmt: skip

                if given.out:  # after each row, because a run takes long
                    versions = {"numpy": np.__version__, "scipy": scipy.__version__, "python": sys.version.split()[0]}
                    with open(given.out, "w") as file:
                        json.dump({"versions": versions, "rtol": RTOL, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
