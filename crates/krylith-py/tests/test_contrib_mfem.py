"""The adapter for PyMFEM, against MFEM's own solvers."""

import numpy as np
import pytest

import krylith

mfem = pytest.importorskip("mfem.ser")

from krylith.contrib.mfem import Preconditioner, Solver, rows, solve  # noqa: E402


class Poisson:
    """−∇·(c ∇u) = 1 on the unit square."""

    def __init__(self, c=1.0, n=12):
        self.mesh = mfem.Mesh.MakeCartesian2D(n, n, mfem.Element.QUADRILATERAL)
        self.elements = mfem.H1_FECollection(1, 2)
        self.space = mfem.FiniteElementSpace(self.mesh, self.elements)
        boundary, one, factor = mfem.intArray(), mfem.ConstantCoefficient(1.0), mfem.ConstantCoefficient(c)
        self.space.GetBoundaryTrueDofs(boundary)
        self.b = mfem.LinearForm(self.space)
        self.b.AddDomainIntegrator(mfem.DomainLFIntegrator(one))
        self.b.Assemble()
        self.u = mfem.GridFunction(self.space)
        self.u.Assign(0.0)
        self.a = mfem.BilinearForm(self.space)
        self.a.AddDomainIntegrator(mfem.DiffusionIntegrator(factor))
        self.a.Assemble()
        self.A, self.B, self.X = mfem.OperatorPtr(), mfem.Vector(), mfem.Vector()
        self.a.FormLinearSystem(boundary, self.u, self.b, self.A, self.X, self.B)


def by_cg(problem, precond=None):
    cg = mfem.CGSolver()
    cg.SetRelTol(1e-13)
    cg.SetMaxIter(2000)
    if precond is not None:
        cg.SetPreconditioner(precond)
    cg.SetOperator(rows_operator(problem))
    x = mfem.Vector(problem.B.Size())
    x.Assign(0.0)
    cg.Mult(problem.B, x)
    return x.GetDataArray().copy(), cg


def rows_operator(problem):
    return problem.A.AsSparseMatrix()


def test_a_solve_takes_the_place_of_pcg():
    problem = Poisson()
    right, _ = by_cg(problem)
    solution = solve(problem.A, problem.B, problem.X, precond="amg")
    assert np.abs(problem.X.GetDataArray() - right).max() < 1e-10 * np.abs(right).max()
    assert solution.converged
    problem.X.Assign(0.0)
    with pytest.raises(krylith.ConvergenceError):
        solve(problem.A, problem.B, problem.X, precond="jacobi", max_iters=2)


def test_a_solver_keeps_its_set_up_and_has_setters():
    first, second = Poisson(), Poisson(c=2.0)
    right, _ = by_cg(first)
    solver, x = Solver(method="cg", precond="jacobi"), mfem.Vector(first.B.Size())
    for problem, factor in ((first, 1.0), (second, 2.0)):
        x.Assign(0.0)
        solver.SetOperator(problem.A)
        solver.Mult(problem.B, x)
        assert solver.GetConverged() and solver.GetNumIterations() > 0
        assert np.abs(factor * x.GetDataArray() - right).max() < 1e-10 * np.abs(right).max()
    solver.Mult(second.B, x)
    assert solver.GetNumIterations() == 0  # from the solution
    solver.iterative_mode = False
    solver.SetMaxIter(1)
    solver.Mult(second.B, x)
    assert not solver.GetConverged()
    solver.SetMaxIter(100)
    solver.MultTranspose(second.B, x)
    assert np.abs(2 * x.GetDataArray() - right).max() < 1e-9 * np.abs(right).max()


def test_a_preconditioner_serves_a_solver_of_mfem():
    problem = Poisson()
    right, plain = by_cg(problem)
    x, cg = by_cg(problem, Preconditioner(precond="amg"))
    assert np.abs(x - right).max() < 1e-10 * np.abs(right).max()
    assert cg.GetNumIterations() < plain.GetNumIterations()


def test_blocks_are_fields():
    mesh = mfem.Mesh.MakeCartesian2D(8, 8, mfem.Element.QUADRILATERAL)
    fluxes, pressures = mfem.RT_FECollection(0, 2), mfem.L2_FECollection(0, 2)
    R, W = mfem.FiniteElementSpace(mesh, fluxes), mfem.FiniteElementSpace(mesh, pressures)
    m = mfem.BilinearForm(R)
    m.AddDomainIntegrator(mfem.VectorFEMassIntegrator())
    d = mfem.MixedBilinearForm(R, W)
    d.AddDomainIntegrator(mfem.VectorFEDivergenceIntegrator())
    for form in (m, d):
        form.Assemble()
        form.Finalize()
    offsets = mfem.intArray([0, R.GetVSize(), R.GetVSize() + W.GetVSize()])
    A, D = mfem.BlockOperator(offsets), d.SpMat()
    Dt = mfem.TransposeOperator(D)
    A.SetBlock(0, 0, m.SpMat())
    A.SetBlock(0, 1, Dt, -1.0)
    A.SetBlock(1, 0, D, -1.0)
    b, x = mfem.Vector(offsets[2]), mfem.Vector(offsets[2])
    b.Assign(np.r_[np.zeros(offsets[1]), np.full(W.GetVSize(), 1 / 64)])
    x.Assign(0.0)
    entries, starts = rows(A)
    assert starts == offsets.ToList() and abs(entries - entries.T).max() < 1e-14
    solver = Solver(A, precond="split(b0: jacobi, b1: amg; schur=full, S=selfp)", rtol=1e-11)
    solver.Mult(b, x)
    assert solver.GetConverged()
    assert np.abs(entries @ x.GetDataArray() - b.GetDataArray()).max() < 1e-10


def test_an_operator_without_entries_is_refused():
    with pytest.raises(krylith.InvalidInput, match="no entries"):
        rows(mfem.IdentityOperator(3))
