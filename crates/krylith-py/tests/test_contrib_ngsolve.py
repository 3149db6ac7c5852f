"""The adapter for NGSolve, against its own direct solver."""

import numpy as np
import pytest

import krylith

ngsolve = pytest.importorskip("ngsolve")

from krylith.contrib.ngsolve import Inverse, Preconditioner  # noqa: E402


@pytest.fixture(scope="module")
def system():
    from netgen.geom2d import unit_square
    from ngsolve import BilinearForm, CoefficientFunction, H1, LinearForm, Mesh, Parameter, dx, grad

    mesh = Mesh(unit_square.GenerateMesh(maxh=0.08))
    space = H1(mesh, order=2, dirichlet="left|top")
    u, v = space.TnT()
    c = Parameter(1.0)
    wind = CoefficientFunction((3.0, 1.0))
    a = BilinearForm(c * grad(u) * grad(v) * dx + wind * grad(u) * v * dx).Assemble()
    s = BilinearForm(c * grad(u) * grad(v) * dx).Assemble()
    f = LinearForm(1 * v * dx).Assemble()
    return space, c, a, s, f


def solved(inverse, f):
    x = f.vec.CreateVector()
    x.data = inverse * f.vec
    return x.FV().NumPy().copy()


def test_an_inverse_solves_and_takes_new_values(system):
    space, c, a, _, f = system
    right = solved(a.mat.Inverse(space.FreeDofs()), f)
    inverse = Inverse(a.mat, space.FreeDofs())
    assert np.abs(solved(inverse, f) - right).max() < 1e-9 * np.abs(right).max()
    assert inverse.solution.converged
    transposed = solved(a.mat.CreateTranspose().Inverse(space.FreeDofs()), f)
    assert np.abs(solved(inverse.T, f) - transposed).max() < 1e-9 * np.abs(transposed).max()
    c.Set(2.0)
    a.Assemble()
    inverse.Update()
    right = solved(a.mat.Inverse(space.FreeDofs()), f)
    c.Set(1.0)
    assert np.abs(solved(inverse, f) - right).max() < 1e-9 * np.abs(right).max()


def test_a_preconditioner_serves_cg(system):
    space, _, _, s, f = system
    right = solved(s.mat.Inverse(space.FreeDofs()), f)
    cg = ngsolve.krylovspace.CGSolver(s.mat, Preconditioner(s.mat, space.FreeDofs()), tol=1e-12, maxiter=100)
    assert np.abs(solved(cg, f) - right).max() < 1e-9 * np.abs(right).max()
    assert cg.iterations < 40


def test_failures_are_errors(system):
    space, _, a, _, f = system
    with pytest.raises(krylith.ConvergenceError):
        solved(Inverse(a.mat, space.FreeDofs(), precond="jacobi", max_iters=1), f)
