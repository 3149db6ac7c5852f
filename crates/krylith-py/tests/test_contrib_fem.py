"""Adapters for torch-fem, JAX-FEM and Kratos, against their own solvers. Codes that are not installed are skipped."""

import numpy as np
import pytest

import krylith


@pytest.fixture
def torchfem():
    """torch-fem in double precision, with its own solver after the test."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("torchfem")
    import torchfem.sparse

    kept, dtype = torchfem.sparse.sparse_solve, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield module
    torchfem.sparse.sparse_solve = kept
    torch.set_default_dtype(dtype)


def displacements(torchfem, plastic, method):
    """Return the displacements of a beam, and the gradient of its compliance by its thickness."""
    import torch
    from torchfem.materials import IsotropicElasticityPlaneStress, IsotropicPlasticityPlaneStress
    from torchfem.mesh import rect_quad

    nodes, elements = rect_quad(9, 5, 2.0, 1.0)
    law = {"sigma_f": lambda q: 4.0 + 100.0 * q, "sigma_f_prime": lambda q: 100.0 + 0 * q}
    material = (
        IsotropicPlasticityPlaneStress(E=1000.0, nu=0.3, **law)
        if plastic
        else IsotropicElasticityPlaneStress(E=1000.0, nu=0.3)
    )
    beam = torchfem.Planar(nodes, elements, material)
    tip = nodes[:, 0] > 2 - 1e-9
    beam.forces[tip, 1] = -1.0 / tip.sum()
    beam.constraints[nodes[:, 0] < 1e-9, :] = True
    beam.thickness.requires_grad = True
    u, f, *_ = beam.solve(differentiable_parameters=beam.thickness, method=method)
    (gradient,) = torch.autograd.grad(torch.inner(f.ravel(), u.ravel()), beam.thickness)
    return u.detach().numpy(), gradient.numpy()


@pytest.mark.parametrize("plastic", [False, True])
@pytest.mark.parametrize("method", ["direct", "cg"])
def test_torchfem_has_the_same_displacements_and_gradients(torchfem, plastic, method):
    from krylith.contrib.torchfem import install

    own = displacements(torchfem, plastic, method)
    for options in ({}, {"precond": "amg"}):
        install(**options)
        for found, exact in zip(displacements(torchfem, plastic, method), own):
            assert np.abs(found - exact).max() < 1e-8 * np.abs(exact).max()


def test_torchfem_keeps_its_setup_and_solves_with_transposes(torchfem):
    import torch

    from krylith.contrib.torchfem import sparse_solve

    dense = torch.eye(40) * 4 + torch.diag(torch.ones(39), 1) - 2 * torch.diag(torch.ones(39), -1)
    b, solve = torch.arange(40.0), sparse_solve()
    for factor in (1.0, 2.0, 2.0):
        A = (factor * dense).to_sparse_csr()
        x, M, solver, iterations = solve(A, b, method="direct")
        assert torch.allclose(x, torch.linalg.solve(factor * dense, b), rtol=1e-10) and iterations == 0
        x, *_ = solve(A.t(), b.float(), stol=1e-9, method="cg")
        assert x.dtype == torch.float32 and torch.allclose(x.double(), torch.linalg.solve(factor * dense.T, b), rtol=1e-5)
    other = torch.eye(40).to_sparse_csr()
    assert torch.allclose(solve(other, b, method="direct")[0], b)
    A.values()[:] *= 3  # in place
    assert torch.allclose(solve(A, b, method="direct")[0], torch.linalg.solve(6 * dense, b), rtol=1e-10)
    with pytest.raises(torchfem.sparse.ConvergenceError, match="max-iterations"):
        sparse_solve(method="gmres", precond="none", max_iters=1)(A, b)
    with pytest.raises(krylith.InvalidInput, match="unknown option"):
        sparse_solve(tolerance=1e-3)


def test_jaxfem_has_the_same_solutions_and_gradients():
    pytest.importorskip("jax_fem")
    import jax
    import jax.numpy as jnp
    from jax_fem.generate_mesh import Mesh, get_meshio_cell_type, rectangle_mesh
    from jax_fem.problem import Problem
    from jax_fem.solver import ad_wrapper

    from krylith.contrib.jaxfem import solver

    class Reaction(Problem):
        """−∇·((1 + u²) ∇u) = c with u = 0 on the left and right."""

        def get_tensor_map(self):
            return lambda grad, c: grad * (1 + jnp.sum(grad**2))

        def get_mass_map(self):
            return lambda u, x, c: -c * jnp.ones(1)

        def set_params(self, c):
            self.internal_vars = [c * jnp.ones((self.fes[0].num_cells, self.fes[0].num_quads))]

    cells = get_meshio_cell_type("QUAD4")
    mesh = rectangle_mesh(Nx=8, Ny=8, domain_x=1.0, domain_y=1.0)
    mesh = Mesh(mesh.points, mesh.cells_dict[cells])
    sides = [lambda p: jnp.isclose(p[0], 0.0), lambda p: jnp.isclose(p[0], 1.0)]
    fixed = [sides, [0, 0], [lambda p: 0.0, lambda p: 0.0]]

    def solution(options, adjoint):
        problem = Reaction(mesh, vec=1, dim=2, ele_type="QUAD4", dirichlet_bc_info=fixed)
        forward = ad_wrapper(problem, options, adjoint)
        return jax.value_and_grad(lambda c: jnp.sum(forward(c)[0] ** 2))(3.0)

    own = solution({"umfpack_solver": {}}, {"umfpack_solver": {}})
    ours = solution({"custom_solver": solver(precond="amg")}, {"custom_solver": solver()})
    assert own[0] > 0.1
    assert np.allclose(ours, own, rtol=1e-8)
    with pytest.raises(krylith.ConvergenceError):
        solution({"custom_solver": solver(precond="jacobi", max_iters=1)}, {"umfpack_solver": {}})


def plate(KM, n):
    """Return a model part of heat conduction on a square of 2n² triangles."""
    model = KM.Model()
    part = model.CreateModelPart("Main")
    settings = KM.ConvectionDiffusionSettings()
    settings.SetDiffusionVariable(KM.CONDUCTIVITY)
    settings.SetUnknownVariable(KM.TEMPERATURE)
    settings.SetVolumeSourceVariable(KM.HEAT_FLUX)
    settings.SetReactionVariable(KM.REACTION_FLUX)
    part.ProcessInfo[KM.CONVECTION_DIFFUSION_SETTINGS] = settings
    for variable in (KM.TEMPERATURE, KM.HEAT_FLUX, KM.CONDUCTIVITY, KM.REACTION_FLUX):
        part.AddNodalSolutionStepVariable(variable)
    for i in range(n + 1):
        for j in range(n + 1):
            part.CreateNewNode(i * (n + 1) + j + 1, i / n, j / n, 0.0)
    for i in range(n):
        for j in range(n):
            a, e = i * (n + 1) + j + 1, 2 * (i * n + j)
            nodes = [[a, a + n + 1, a + n + 2], [a, a + n + 2, a + 1]]
            for k in range(2):
                part.CreateNewElement("LaplacianElement2D3N", e + k + 1, nodes[k], part.GetProperties()[1])
    KM.VariableUtils().AddDof(KM.TEMPERATURE, KM.REACTION_FLUX, part)
    for node in part.Nodes:
        node.SetSolutionStepValue(KM.HEAT_FLUX, 10 * node.X)
        node.SetSolutionStepValue(KM.CONDUCTIVITY, 1 + node.X * node.Y)
        if node.X < 1e-9 or node.X > 1 - 1e-9:
            node.SetSolutionStepValue(KM.TEMPERATURE, node.Y)
            node.Fix(KM.TEMPERATURE)
    return model, part


def test_kratos_has_the_same_temperatures_and_reactions():
    KM = pytest.importorskip("KratosMultiphysics")
    pytest.importorskip("KratosMultiphysics.ConvectionDiffusionApplication")
    from krylith.contrib.kratos import NewtonStrategy

    def values(part, variable):
        return np.array([node.GetSolutionStepValue(variable) for node in part.Nodes])

    def parts():
        direct = KM.LinearSolverFactory().Create(KM.Parameters('{"solver_type": "skyline_lu_factorization"}'))
        builder = KM.ResidualBasedBlockBuilderAndSolver(direct)
        return KM.ResidualBasedIncrementalUpdateStaticScheme(), builder

    _model, part = plate(KM, 12)
    scheme, builder = parts()
    own = KM.ResidualBasedLinearStrategy(part, scheme, builder, True, False, False, False)
    own.Initialize()
    own.Solve()
    for options in ({}, {"precond": "amg", "method": "cg", "reform_dofs": True}):
        kept, other = plate(KM, 12)
        scheme, builder = parts()
        criterion = KM.ResidualCriteria(1e-10, 1e-10)
        ours = NewtonStrategy(other, scheme, criterion, builder, reactions=True, **options)
        ours.SetEchoLevel(0)
        ours.Initialize()
        assert ours.Check() == 0
        for conductivity in (1.0, 2.0, 1.0):  # the last are those of `own`
            for node in other.Nodes:
                node.SetSolutionStepValue(KM.CONDUCTIVITY, conductivity * (1 + node.X * node.Y))
            assert ours.Solve() and ours.IsConverged()
        for variable in (KM.TEMPERATURE, KM.REACTION_FLUX):
            found, exact = values(other, variable), values(part, variable)
            assert np.abs(found - exact).max() < 1e-8 * np.abs(exact).max()
        del kept
    _model, other = plate(KM, 12)
    scheme, builder = parts()
    fails = NewtonStrategy(other, scheme, criterion, builder, precond="jacobi", max_iters=1)
    with pytest.raises(krylith.ConvergenceError):
        fails.Solve()


def beam(KM, n):
    """Return a model part of a beam of 2n elements that bends far under its weight."""
    mechanics = pytest.importorskip("KratosMultiphysics.StructuralMechanicsApplication")
    model = KM.Model()
    part = model.CreateModelPart("Main")
    part.ProcessInfo[KM.DOMAIN_SIZE] = 2
    for variable in (KM.DISPLACEMENT, KM.REACTION, KM.VOLUME_ACCELERATION):
        part.AddNodalSolutionStepVariable(variable)
    properties = part.GetProperties()[1]
    numbers = {KM.YOUNG_MODULUS: 1000.0, KM.POISSON_RATIO: 0.3, KM.DENSITY: 1.0, KM.THICKNESS: 1.0}
    for variable, value in numbers.items():
        properties.SetValue(variable, value)
    properties.SetValue(KM.CONSTITUTIVE_LAW, mechanics.LinearElasticPlaneStress2DLaw())
    for i in range(n + 1):
        for j in range(3):
            part.CreateNewNode(3 * i + j + 1, 2.0 * i / n, 0.1 * j, 0.0)
    for i in range(n):
        for j in range(2):
            a = 3 * i + j + 1
            part.CreateNewElement("TotalLagrangianElement2D4N", 2 * i + j + 1, [a, a + 3, a + 4, a + 1], properties)
    for variable, reaction in ((KM.DISPLACEMENT_X, KM.REACTION_X), (KM.DISPLACEMENT_Y, KM.REACTION_Y)):
        KM.VariableUtils().AddDof(variable, reaction, part)
    for node in part.Nodes:
        if node.X < 1e-9:
            node.Fix(KM.DISPLACEMENT_X)
            node.Fix(KM.DISPLACEMENT_Y)
    return model, part


def test_kratos_has_the_same_newton_steps():
    KM = pytest.importorskip("KratosMultiphysics")
    from krylith.contrib.kratos import NewtonStrategy

    def bent(options):
        model, part = beam(KM, 8)
        direct = KM.LinearSolverFactory().Create(KM.Parameters('{"solver_type": "skyline_lu_factorization"}'))
        builder, criterion = KM.ResidualBasedBlockBuilderAndSolver(direct), KM.ResidualCriteria(1e-9, 1e-9)
        scheme = KM.ResidualBasedIncrementalUpdateStaticScheme()
        if options is None:
            strategy = KM.ResidualBasedNewtonRaphsonStrategy(part, scheme, criterion, builder, 30, True, False, True)
        else:
            strategy = NewtonStrategy(part, scheme, criterion, builder, reactions=True, move_mesh=True, **options)
        strategy.SetEchoLevel(0)
        strategy.Initialize()
        found = []
        for weight in (-1.0, -2.0):
            for node in part.Nodes:
                node.SetSolutionStepValue(KM.VOLUME_ACCELERATION, KM.Array3([0.0, weight, 0.0]))
            strategy.Solve()
            found.append(part.ProcessInfo[KM.NL_ITERATION_NUMBER])
            found.extend(x for node in part.Nodes for x in (node.X, node.Y, *node.GetSolutionStepValue(KM.REACTION)))
        del model
        return np.array(found)

    own = bent(None)
    assert own[0] > 3 and own.min() < -0.5  # several iterations, and a large displacement
    for options in ({}, {"method": "gmres", "precond": "ildu", "rtol": 1e-10}):
        assert np.abs(bent(options) - own).max() < 1e-8
