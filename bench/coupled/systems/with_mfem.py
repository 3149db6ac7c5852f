"""Systems assembled by MFEM."""

import mfem.ser as mfem
import numpy as np
import scipy.sparse

from systems.registry import system


@system("mfem-q2-elastic", (7,))
def elasticity(n, poisson=0.3):
    """Elasticity by MFEM, Q2 hexahedra, -div(2 mu eps(u) + lambda div(u) I) = f, a clamped bar;
    all first components come first, then all second ones, then all third (byNODES).
    """
    mesh = mfem.Mesh.MakeCartesian3D(2 * n, n, n, mfem.Element.HEXAHEDRON, 2.0, 1.0, 1.0)
    elements = mfem.H1_FECollection(2, 3)
    space = mfem.FiniteElementSpace(mesh, elements, 3, mfem.Ordering.byNODES)
    # Of MFEM's six faces of a box the fifth is x = 0.
    clamped = mfem.intArray([int(attribute == 5) for attribute in range(1, mesh.bdr_attributes.Max() + 1)])
    fixed = mfem.intArray()
    space.GetEssentialTrueDofs(clamped, fixed)
    mu, lam = 1 / 2 / (1 + poisson), poisson / (1 + poisson) / (1 - 2 * poisson)
    form = mfem.BilinearForm(space)
    form.AddDomainIntegrator(mfem.ElasticityIntegrator(mfem.ConstantCoefficient(lam), mfem.ConstantCoefficient(mu)))
    form.Assemble()
    load = mfem.LinearForm(space)
    load.AddDomainIntegrator(mfem.VectorDomainLFIntegrator(mfem.VectorConstantCoefficient([0.0, 0.0, -1.0])))
    load.Assemble()
    x = mfem.GridFunction(space)
    x.Assign(0.0)
    matrix, b, unknowns = mfem.SparseMatrix(), mfem.Vector(), mfem.Vector()
    form.FormLinearSystem(fixed, x, load, matrix, unknowns, b)
    parts = matrix.GetDataArray(), matrix.GetJArray(), matrix.GetIArray()
    a = scipy.sparse.csr_matrix(tuple(np.array(part) for part in parts), shape=(space.GetTrueVSize(),) * 2)
    return a, np.array(b.GetDataArray())
