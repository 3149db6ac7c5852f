"""Help with NGSolve: meshes, assembly as SciPy matrices, and the unknowns of fields."""

import numpy as np
import scipy.sparse as sp
from netgen.csg import unit_cube
from netgen.geom2d import unit_square
from ngsolve import BilinearForm, GridFunction, LinearForm, Mesh, SetNumThreads, dx

SetNumThreads(1)


def square(size):
    return Mesh(unit_square.GenerateMesh(maxh=size))


def cube(size):
    return Mesh(unit_cube.GenerateMesh(maxh=size))


def csr(matrix):
    rows, cols, values = (np.array(part) for part in matrix.COO())
    return sp.csr_matrix((values, (rows, cols)), shape=(matrix.height, matrix.width))


def assembled(space, *integrals, condense=False):
    """The assembled bilinear form of the sum of `integrals`."""
    form = BilinearForm(space, condense=condense)
    for integral in integrals:
        form += integral
    form.Assemble()
    return form


def matrix(space, *integrals):
    return csr(assembled(space, *integrals).mat)


def load(space, *integrals):
    form = LinearForm(space)
    for integral in integrals:
        form += integral
    form.Assemble()
    return array(form.vec)


def array(vector):
    return vector.FV().NumPy().copy()


def mass(space, weight=1.0):
    u, v = space.TnT()
    return matrix(space, weight * u * v * dx)


def free(space, condensed=False):
    return np.array(list(space.FreeDofs(condensed)), bool)


def boundary(space, component, value, where):
    """The vector that has `value` on a part of the boundary in one component, and zeros elsewhere."""
    function = GridFunction(space)
    function.components[component].Set(value, definedon=space.mesh.Boundaries(where))
    return array(function.vec)


def part(space, components):
    """The unknowns of some components of a product space."""
    ranges = [space.Range(k) for k in components]
    return np.concatenate([np.arange(r.start, r.stop) for r in ranges])


def fields(space, kept=None, **components):
    """The unknowns of each field. With `kept`, a mask, numbers count the kept unknowns only."""
    number = np.arange(space.ndof)
    if kept is not None:
        number = np.where(kept, np.cumsum(kept) - 1, -1)
    numbers = {name: number[part(space, k)] for name, k in components.items()}
    return {name: k[k >= 0] for name, k in numbers.items()}
