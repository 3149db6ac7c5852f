"""Adapters for codes in Python, each against the code's own solver. Codes that are not installed are skipped."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import krylith
from krylith.contrib.skfem import solver


def poisson(n):
    T = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n))
    return (sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T)).tocsr()


def test_skfem_takes_arguments_of_spsolve_and_keeps_the_set_up():
    A, b = poisson(12), np.ones(144)
    solve = solver()
    x = solve(A, b, use_umfpack=True)
    assert np.abs(x - spsolve(A.tocsc(), b)).max() < 1e-10 * np.abs(x).max()
    assert np.abs(2 * solve(2 * A, b) - x).max() < 1e-9 * np.abs(x).max()
    smaller, columns = poisson(9), np.ones((81, 2))
    assert np.abs(smaller @ solve(smaller, columns) - 1).max() < 1e-9
    assert np.abs(solve(A, b, rtol=1e-6, precond="jacobi") - x).max() < 1e-4 * np.abs(x).max()


def test_skfem_raises_if_a_solve_does_not_converge():
    with pytest.raises(krylith.ConvergenceError):
        solver(precond="jacobi", max_iters=2)(poisson(20), np.ones(400))
    with pytest.raises(krylith.InvalidInput, match="unknown option"):
        solver(tolerance=1e-3)(poisson(4), np.ones(16))


def test_skfem_solves_a_problem():
    skfem = pytest.importorskip("skfem")
    from skfem.models.poisson import laplace, unit_load

    basis = skfem.Basis(skfem.MeshTri().refined(4), skfem.ElementTriP2())
    condensed = skfem.condense(laplace.assemble(basis), unit_load.assemble(basis), D=basis.get_dofs())
    x, y = skfem.solve(*condensed), skfem.solve(*condensed, solver=solver(precond="amg"))
    assert np.abs(x - y).max() < 1e-10 * np.abs(x).max()


def run(program, **env):
    """Run a program in a process of its own, because installing changes the code for all that follows."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_fipy_solves_with_every_criterion():
    pytest.importorskip("fipy")
    run(
        """
        import numpy as np
        import krylith.contrib.fipy as contrib
        contrib.install()
        import fipy as fp
        assert fp.LinearLUSolver is contrib.LinearLUSolver and fp.solvers.DefaultSolver is contrib.LinearKrylithSolver
        mesh = fp.Grid2D(nx=20, ny=20)

        def solved(solver, steps=1):
            phi = fp.CellVariable(mesh=mesh, value=0.5)
            phi.constrain(1.0, mesh.facesLeft)
            phi.constrain(0.0, mesh.facesRight)
            equation = fp.TransientTerm() == fp.DiffusionTerm(coeff=1 + phi**2)
            for _ in range(steps):
                equation.solve(var=phi, dt=1.0, solver=solver)
            return phi.value

        from fipy.solvers.scipy.linearLUSolver import LinearLUSolver as Own
        exact = solved(Own(), 3)
        for solver in (None, contrib.LinearKrylithSolver(), contrib.LinearLUSolver(), contrib.LinearKrylithSolver(precond="amg")):
            assert np.abs(solved(solver, 3) - exact).max() < 1e-7
        kept = contrib.LinearCGSolver(tolerance=1e-12, iterations=500)
        assert np.abs(solved(kept, 3) - exact).max() < 1e-7 and kept._krylith is not None
        for criterion in ("unscaled", "RHS", "matrix", "initial", "legacy"):
            for kind in (contrib.LinearKrylithSolver, contrib.LinearGMRESSolver, contrib.LinearBicgstabSolver):
                solver = kind(criterion=criterion, tolerance=1e-8)
                assert np.abs(solved(solver) - solved(Own())).max() < 1e-4
                assert solver.convergence.residual <= solver.tolerance * solver.convergence.tolerance_scale * 1.01
        """,
        FIPY_SOLVERS="scipy",
    )


def test_fipy_of_another_suite_is_refused():
    pytest.importorskip("fipy")
    run(
        """
        import krylith, krylith.contrib.fipy as contrib, fipy.solvers
        fipy.solvers.solver_suite = "petsc"
        try:
            contrib.install()
            raise SystemExit("not refused")
        except krylith.InvalidInput as error:
            assert "FIPY_SOLVERS=scipy" in str(error)
        """,
        FIPY_SOLVERS="scipy",
    )


def test_sfepy_solves_by_name_and_instead_of_another():
    pytest.importorskip("sfepy")
    run(
        """
        import numpy as np, scipy.sparse as sp
        import krylith, krylith.contrib.sfepy as contrib
        contrib.install("ls.scipy_direct")
        from sfepy.base.base import Struct
        from sfepy.solvers.solvers import Solver
        A = sp.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(400, 400)).tocsr()
        b = np.ones(400)
        for options in ({"kind": "ls.krylith", "precond": "ildu", "threads": 1}, {"kind": "ls.scipy_direct", "use_presolve": True}):
            solver, status = Solver.any_from_conf(Struct(name="ls", **options)), {}
            for matrix in (A, 2 * A):
                x = solver(b, mtx=matrix, status=status)
                assert np.abs(matrix @ x - b).max() < 1e-10 and status["condition"] == 0 and status["n_iter"] >= 1
            solver.clear()
            assert np.abs(A @ solver(b, mtx=A) - b).max() < 1e-10
        solver, status = Solver.any_from_conf(Struct(name="ls", kind="ls.krylith", method="cg", precond="none", i_max=2)), {}
        solver(b, mtx=A, status=status)
        assert status["condition"] == 1 and status["n_iter"] == 2
        try:
            Solver.any_from_conf(Struct(name="ls", kind="ls.krylith", precnod="amg"))(b, mtx=A)
            raise SystemExit("not refused")
        except krylith.InvalidInput as error:
            assert "precnod" in str(error)
        """
    )
