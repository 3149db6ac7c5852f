"""Systems assembled by scikit-fem."""

import numpy as np
import skfem
from skfem.helpers import dd, ddot, eye, trace

from systems.registry import system


@system("plate-morley", (70,))
def morley(n, poisson=0.3):
    """Plate by Morley's element, the deflection alone: div div (D hesse w) = f, clamped."""
    line = np.linspace(0, 1, n + 1)
    mesh = skfem.MeshTri.init_tensor(line, line)
    basis = skfem.Basis(mesh, skfem.ElementTriMorley())

    @skfem.BilinearForm
    def bending(w, v, _):
        moments = (1 - poisson) * dd(w) + poisson * eye(trace(dd(w)), 2)
        return ddot(moments, dd(v))

    @skfem.LinearForm
    def load(v, _):
        return 1.0 * v

    a, b, _, _ = skfem.condense(bending.assemble(basis), load.assemble(basis), D=basis.get_dofs())
    return a, b
