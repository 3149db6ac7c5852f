"""Transposed and complex solves inside other programs: `python clients.py [NAME …] [--devsim FOLDER]`.

Each client runs in a process of its own with its own solver and with Krylith, and the results are compared. Clients that
are not installed are skipped. They come as petsc4py, ngsolve, simpeg and devsim; FOLDER is the `devsim_data` that the
devsim package installs.

petsc: KSP bicg, gmres and bcgs with a Krylith preconditioner as a Python PC, `solve` and `solveTranspose`.
scipy: bicg and qmr with M of Krylith, and krylith.splu in all three forms.
ngsolve: a matrix with Mult and MultTrans by one krylith.Solver, against the Inverse of NGSolve.
simpeg: electromagnetics in the frequency domain, whose matrices are complex: data, J v and Jᵀ w.
devsim: its tests of small-signal analysis (complex) and noise (complex and transposed) by `direct_solver="custom"`.
"""

import argparse
import os
import re
import subprocess
import sys
import warnings

import numpy as np

RTOL = 1e-10
CURRENTS = ("Electron", "Hole", "Total")
DEVSIM = [
    "testing/ssac_cap.py", "testing/ssac_res.py", "testing/ssac_circ.py", "testing/ssac_cap_2d_edge.py",
    "testing/ssac_cap_3d_edge.py", "examples/diode/ssac_diode.py", "testing/noise_res.py", "testing/noise_res_2d.py",
]  # fmt: skip


def transport(n: int = 40):
    """Return diffusion with upwind convection on n² nodes, and a right-hand side."""
    import scipy.sparse as sp

    ones = np.ones(n)
    second = sp.diags([-ones[1:], 2 * ones, -ones[1:]], [-1, 0, 1])
    first = sp.diags([-ones[1:], ones], [-1, 0])
    A = (sp.kron(second, sp.eye(n)) + sp.kron(sp.eye(n), second) + 0.7 * sp.kron(first, sp.eye(n))).tocsr()
    A.sort_indices()
    return A, np.random.default_rng(0).standard_normal(n * n)


def residual(A, x, b) -> float:
    return float(np.linalg.norm(A @ x - b) / np.linalg.norm(b))


def report(what: str, good: bool, text: str) -> None:
    print(f"{what:44} {'passed' if good else 'FAILED'}  {text}", flush=True)


def petsc() -> None:
    from petsc4py import PETSc
    import krylith

    A, b = transport()
    matrix = PETSc.Mat().createAIJ(A.shape, csr=(A.indptr.astype("i4"), A.indices.astype("i4"), A.data))
    matrix.assemble()
    for kind in (krylith.ILDU, krylith.AMG, krylith.Schwarz):

        class PC:
            def setUp(self, pc):
                self.p = kind(A)

            def apply(self, pc, x, y):
                y.array[:] = self.p @ x.array_r

            def applyTranspose(self, pc, x, y):
                y.array[:] = self.p.rmatvec(x.array_r)

        for method in ("bicg", "gmres", "bcgs"):
            for transposed in (False, True):
                ksp = PETSc.KSP().create()
                ksp.setOperators(matrix)
                ksp.setType(method)
                ksp.setTolerances(rtol=RTOL, max_it=300)
                ksp.getPC().setType("python")
                ksp.getPC().setPythonContext(PC())
                rhs = PETSc.Vec().createWithArray(b.copy())
                x = rhs.duplicate()
                (ksp.solveTranspose if transposed else ksp.solve)(rhs, x)
                r, its = residual(A.T if transposed else A, x.array, b), ksp.getIterationNumber()
                name = f"petsc {method} {kind.__name__}{' solveTranspose' if transposed else ''}"
                report(name, ksp.getConvergedReason() > 0 and r < 100 * RTOL, f"{its} iterations, residual {r:.0e}")


def scipy() -> None:
    import krylith
    import scipy.sparse as sp
    import scipy.sparse.linalg as sl

    A, b = transport()
    one = sl.aslinearoperator(sp.identity(len(b)))
    for kind in (krylith.ILDU, krylith.AMG, krylith.Schwarz):
        P = kind(A)
        for name, (x, info) in (("bicg", sl.bicg(A, b, M=P, rtol=RTOL)), ("qmr", sl.qmr(A, b, M1=P, M2=one, rtol=RTOL))):
            r = residual(A, x, b)
            report(f"scipy {name} {kind.__name__}", info == 0 and r < 100 * RTOL, f"residual {r:.0e}")
    factors = krylith.splu(A + 1j * A.T)
    for form, matrix in (("N", A + 1j * A.T), ("T", A.T + 1j * A), ("H", A.T - 1j * A)):
        r = residual(matrix, factors.solve(b + 0j, form), b)
        report(f"scipy splu, complex, trans={form}", r < 100 * RTOL, f"residual {r:.0e}")


def ngsolve() -> None:
    import krylith
    import ngsolve as ng
    import scipy.sparse as sp
    from netgen.geom2d import unit_square

    mesh = ng.Mesh(unit_square.GenerateMesh(maxh=0.05))
    space = ng.H1(mesh, order=2, dirichlet="left|right|top|bottom")
    u, v = space.TnT()
    wind = ng.CoefficientFunction((20, 5))
    a = ng.BilinearForm(ng.grad(u) * ng.grad(v) * ng.dx + wind * ng.grad(u) * v * ng.dx).Assemble()
    f = ng.LinearForm(v * ng.dx).Assemble()
    rows, columns, values = a.mat.COO()
    free = np.flatnonzero(np.array(list(space.FreeDofs())))
    A = sp.csr_matrix((values, (rows, columns)))[free][:, free]
    solver = krylith.Solver(A, rtol=1e-12)

    class Inverse(ng.BaseMatrix):
        def Mult(self, x, y, **more):
            y[:] = 0
            y.FV().NumPy()[free] = solver.solve(x.FV().NumPy()[free], **more).check().x

        def MultTrans(self, x, y):
            self.Mult(x, y, transpose=True)

        def Height(self):
            return a.mat.height

        Width = Height

    one, two, inverse = ng.GridFunction(space), ng.GridFunction(space), Inverse()
    one.vec.data, two.vec.data = inverse * f.vec, a.mat.Inverse(space.FreeDofs()) * f.vec
    own = two.vec.FV().NumPy()
    far = np.linalg.norm(one.vec.FV().NumPy() - own) / np.linalg.norm(own)
    report("ngsolve Inverse", far < 1e-9, f"difference {far:.0e}")
    one.vec.data = inverse.T * f.vec
    r = residual(A.T, one.vec.FV().NumPy()[free], f.vec.FV().NumPy()[free])
    report("ngsolve Inverse.T", r < 100 * RTOL, f"residual {r:.0e}")


def simpeg() -> None:
    import discretize
    import krylith
    import pymatsolver
    import scipy.sparse as sp
    from simpeg import maps
    from simpeg.electromagnetics import frequency_domain as fdem

    class Krylith(pymatsolver.solvers.Base):
        def __init__(self, A, **_):
            super().__init__(A, is_symmetric=False, is_hermitian=False)
            self.solver, self.transposed = krylith.Solver(sp.csr_matrix(A), precond="lu", rtol=1e-12), False

        def transpose(self):
            other = object.__new__(Krylith)
            other.__dict__.update(self.__dict__, transposed=not self.transposed, _A=self._A.T)
            return other

        def _solve_single(self, b):
            return self.solver.solve(np.ascontiguousarray(b), transpose=self.transposed).check().x

        def _solve_multiple(self, b):
            return np.column_stack([self._solve_single(column) for column in b.T])

        def clean(self):
            pass

    mesh = discretize.CylindricalMesh([[(10.0, 12)], 1, [(10.0, 16)]], x0="00C")
    where = np.array([[40.0, 0.0, 20.0]])
    seen = fdem.receivers.PointMagneticFluxDensitySecondary(where, orientation="z", component="imag")
    dipole = lambda f: fdem.sources.MagDipole([seen], frequency=f, location=np.array([0.0, 0.0, 20.0]))
    survey = fdem.Survey([dipole(100.0), dipole(1000.0)])
    conductivity = np.where(mesh.cell_centers[:, 2] < 0, 1e-2, 1e-8)
    results = []
    for more in ({}, {"solver": Krylith}):
        simulation = fdem.Simulation3DMagneticFluxDensity(mesh, survey=survey, sigmaMap=maps.IdentityMap(mesh), **more)
        data = simulation.dpred(conductivity)
        adjoint = simulation.Jtvec(conductivity, np.arange(1.0, 1.0 + len(data)))
        results.append((data, simulation.Jvec(conductivity, conductivity), adjoint))
    for name, own, ours in zip(("data", "J v", "Jᵀ w"), *results):
        far = np.linalg.norm(own - ours) / np.linalg.norm(own)
        report(f"simpeg {name}", far < 1e-7, f"difference {far:.0e}")


def devsim_one(path: str, custom: bool) -> None:
    """Run one of devsim's tests with its own solver or with Krylith."""
    import array
    import runpy

    import devsim
    import krylith
    import scipy.sparse as sp

    counts = {}

    class Held:
        pass

    def callback(**call):
        if call["action"] == "init":
            held = Held()
            held.n, held.transposed = call["n"], bool(call["transpose"])
            return {"solver_object": held, "matrix_format": "csr", "status": True, "message": None}
        held = call["solver_object"]
        if call["action"] == "factor":
            rows, columns, values = (np.asarray(call[name]) for name in ("Ap", "Ai", "Ax"))
            held.complex = bool(call["is_complex"])
            numbers = values.view(complex) if held.complex else values
            A = sp.csr_matrix((numbers, columns, rows), shape=(held.n, held.n))
            held.solver = krylith.Solver(A, precond="lu", equilibrate=True, rtol=1e-13)
            return {"status": True, "message": None}
        b = np.asarray(call["b"])
        solution = held.solver.solve(b.view(complex) if held.complex else b, transpose=held.transposed)
        for name in [solution.outcome] + ["complex"] * held.complex + ["transposed"] * held.transposed:
            counts[name] = counts.get(name, 0) + 1
        return {"status": True, "message": None, "x": array.array("d", solution.x.view(float).tolist())}

    if custom:
        devsim.set_parameter(name="direct_solver", value="custom")
        devsim.set_parameter(name="solver_callback", value=callback)
    os.chdir(os.path.dirname(path))
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")
    if custom:
        print("COUNTS", counts)


def devsim(folder: str) -> None:
    number = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
    for test in DEVSIM:
        texts = []
        for who in ("own", "krylith"):
            command = [sys.executable, os.path.abspath(__file__), "--one", os.path.join(folder, test), who]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            texts.append(done.stdout if done.returncode == 0 else None)
        if None in texts:
            report(f"devsim {test}", False, "ended with an error")
            continue
        counts = [line for line in texts[1].splitlines() if line.startswith("COUNTS")]
        # Lines of Newton's method have rounding errors; the others are results.
        skip = ("Iteration", "Error:", "COUNTS", "RelError")
        lines = [[line for line in text.splitlines() if not any(word in line for word in skip)] for text in texts]
        pairs = [[np.array(number.findall(line), float) for line in both] for both in zip(*lines)]
        # A number may be the rounding error of a larger one in its line, and a current that of the device.
        near = lambda one, two, line: one.shape == two.shape and np.allclose(
            one, two, rtol=1e-6, atol=1e-12 * abs(one).max(initial=0.0) + 1e-15 * line.startswith(CURRENTS))
        alike = len(lines[0]) == len(lines[1]) and all(map(near, *zip(*pairs), lines[0]))
        report(f"devsim {test}", alike, f"{len(pairs)} lines; {counts[0][7:]}")


CLIENTS = {"petsc": petsc, "scipy": scipy, "ngsolve": ngsolve, "simpeg": simpeg, "devsim": devsim}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--devsim", default=os.path.join(sys.prefix, "devsim_data"), metavar="FOLDER")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.one:
        return devsim_one(given.one[0], given.one[1] == "krylith")
    if unknown := [name for name in given.names if name not in CLIENTS]:
        parser.error(f"{unknown[0]} is not one of {', '.join(CLIENTS)}")
    for name in given.names or CLIENTS:
        try:
            devsim(given.devsim) if name == "devsim" else CLIENTS[name]()
        except ImportError as missing:
            print(f"{name:44} skipped {missing}", flush=True)


if __name__ == "__main__":
    main()
