"""Krylith as a solver of nutils: `matrix.solve(rhs, solver=solver())`, or `linsolver=solver()` of a `System`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.sparse as sp

from krylith.contrib.skfem import solver as kept

__all__ = ["solver"]


def solver(*, rtol: float = 1e-12, **options: Any) -> Callable[..., Any]:
    """Return a solver for matrices of nutils.

    Parameters
    ----------
    rtol : float
        The tolerance of ‖b − A x‖/‖b‖ if nutils gives none.
    **options
        Options of `krylith.Solver`, such as `precond="amg"`.

    Returns
    -------
    callable
        A function of a matrix, a right-hand side of shape (n,) or (n, k), and the absolute tolerance of nutils. A later
        matrix of the same pattern takes the set-up of the one before. If a solve does not converge, nutils raises
        `nutils.matrix.MatrixError`.
    """
    solve = kept(rtol=rtol, **options)

    def krylith(matrix: Any, rhs: Any, *, atol: float = 0.0, **more: Any) -> Any:
        rows = sp.csr_matrix(matrix.export("csr"), shape=matrix.shape)
        if atol > 0:
            more = {"atol": atol, "rtol": 0.0, **more}
        return solve(rows, rhs, **more)

    return krylith
