"""What the modules that use dolfinx share."""

import numpy as np
import scipy.sparse
import ufl
from dolfinx import fem, mesh
from dolfinx.fem.petsc import apply_lifting, assemble_matrix, assemble_vector, set_bc
from mpi4py import MPI
from petsc4py import PETSc


def square(n):
    return mesh.create_unit_square(MPI.COMM_WORLD, n, n)


def cube(n):
    return mesh.create_unit_cube(MPI.COMM_WORLD, n, n, n)


def unit(dim, n):
    return square(n) if dim == 2 else cube(n)


def bar(n):
    """A bar of length 2 and section 1 x 1."""
    corners = [np.zeros(3), np.array([2.0, 1.0, 1.0])]
    return mesh.create_box(MPI.COMM_WORLD, corners, [2 * n, n, n])


def csr(matrix):
    pointers, columns, values = matrix.getValuesCSR()
    return scipy.sparse.csr_matrix((values, columns, pointers), shape=matrix.getSize())


def assembled(form, conditions=(), diagonal=1.0):
    """The matrix of a bilinear form; rows of conditions have `diagonal` on the diagonal."""
    matrix = assemble_matrix(fem.form(form), bcs=list(conditions), diagonal=diagonal)
    matrix.assemble()
    a = csr(matrix)
    matrix.destroy()
    return a


def loaded(form, load, conditions=()):
    """The vector of a linear form, with the conditions of the bilinear one moved to it."""
    b = assemble_vector(fem.form(load))
    apply_lifting(b, [fem.form(form)], [list(conditions)])
    set_bc(b, list(conditions))
    return b.array.copy()


def discretised(form, load, conditions=()):
    """The matrix and the right-hand side."""
    return assembled(form, conditions), loaded(form, load, conditions)


def taylor_hood(grid):
    """The mixed space P2-P1, velocity (or displacement) and pressure."""
    cell = grid.ufl_cell()
    velocity = ufl.VectorElement("CG", cell, 2)
    return fem.FunctionSpace(grid, ufl.MixedElement([velocity, ufl.FiniteElement("CG", cell, 1)]))


def part(space, i):
    """A part of a mixed space as a space of its own."""
    return space.sub(i).collapse()[0]


def constant(grid, value):
    return fem.Constant(grid, PETSc.ScalarType(value))


def fixed(space, where, i=None, value=None):
    """A Dirichlet condition at nodes `where` of a space or of part i of a mixed one: zero or a function."""
    own = space if i is None else part(space, i)
    if value is None:
        value = fem.Function(own)
    if i is None:
        return fem.dirichletbc(value, fem.locate_dofs_geometrical(own, where))
    return fem.dirichletbc(value, fem.locate_dofs_geometrical((space.sub(i), own), where), space.sub(i))


def fixed_facets(space, where, i=None):
    """A zero condition on the facets `where` of a space of edges or faces, or of part i of a mixed one."""
    grid = space.mesh
    dim = grid.topology.dim
    facets = mesh.locate_entities_boundary(grid, dim - 1, where)
    grid.topology.create_connectivity(dim - 1, dim)
    if i is None:
        return fem.dirichletbc(fem.Function(space), fem.locate_dofs_topological(space, dim - 1, facets))
    own = part(space, i)
    there = fem.locate_dofs_topological((space.sub(i), own), dim - 1, facets)
    return fem.dirichletbc(fem.Function(own), there, space.sub(i))


def by_cells(grid, values):
    """A coefficient constant in each cell: `values` takes the cells' centres, as rows."""
    function = fem.Function(fem.FunctionSpace(grid, ("DG", 0)))
    function.x.array[:] = values(function.function_space.tabulate_dof_coordinates())
    return function


def ends(x, axis):
    """The two faces of the unit square or cube across an axis."""
    return np.isclose(x[axis], 0) | np.isclose(x[axis], 1)


def boundary(dim):
    """All faces of the unit square or cube."""
    return lambda x: np.any([ends(x, axis) for axis in range(dim)], axis=0)


def strain(u):
    return ufl.sym(ufl.grad(u))


def lame(young, poisson):
    """Lame's parameters, mu and lambda."""
    return young / 2 / (1 + poisson), young * poisson / (1 + poisson) / (1 - 2 * poisson)
