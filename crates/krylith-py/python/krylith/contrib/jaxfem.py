"""Krylith as a solver of JAX-FEM: `solver(problem, {"custom_solver": krylith.contrib.jaxfem.solver()})`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from krylith.contrib.skfem import solver as kept

__all__ = ["solver"]


def solver(*, rtol: float = 1e-12, **options: Any) -> Callable[..., Any]:
    """Return a function for the entry `custom_solver` of JAX-FEM's solver options.

    Parameters
    ----------
    rtol : float
        The tolerance of ‖b − A x‖/‖b‖. Its default is that of a direct solver.
    **options
        Options of `krylith.Solver`, such as `precond="amg"`.

    Returns
    -------
    callable
        A function of PETSc's matrix, b, the initial guess and JAX-FEM's options, that returns x. A later matrix of the
        same pattern takes the set-up of the one before. Give the adjoint problem a function of its own, because its
        matrix is transposed. If a solve does not converge, it raises `krylith.ConvergenceError`.
    """
    solve = kept(rtol=rtol, **options)

    def custom(A: Any, b: Any, x0: Any = None, solver_options: Any = None) -> Any:
        indptr, indices, data = A.getValuesCSR()
        return solve(sp.csr_matrix((data, indices, indptr), shape=A.getSize()), np.asarray(b, dtype=float))

    return custom
