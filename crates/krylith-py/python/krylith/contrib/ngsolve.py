"""Krylith as an inverse and as a preconditioner of NGSolve.

    from krylith.contrib.ngsolve import Inverse, Preconditioner

    inv = Inverse(a.mat, fes.FreeDofs(), precond="amg")        # in place of a.mat.Inverse(fes.FreeDofs())
    gfu.vec.data = inv * f.vec

    pre = Preconditioner(a.mat, fes.FreeDofs())                # in place of NGSolve's own
    gfu.vec.data = ngsolve.krylovspace.CGSolver(a.mat, pre) * f.vec
"""

# NGSolve has no types that mypy can read.
# mypy: disable-error-code="misc, no-any-return"

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from ngsolve import BaseMatrix

from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._solution import Solution
from krylith._solver import Solver

__all__ = ["Inverse", "Preconditioner"]


class Inverse(BaseMatrix):
    """The inverse of a matrix on its free unknowns; the others are zero.

    A solve that does not converge raises `krylith.ConvergenceError`. The result of the last solve is `solution`.

    Parameters
    ----------
    mat : ngsolve.BaseMatrix
        A sparse matrix that is assembled with all its entries: a form with `symmetric=True` and the option
        `symmetric_storage` stores only half of them, and is refused.
    freedofs : ngsolve.BitArray, optional
        The free unknowns; all of them by default.
    **options
        Options of `krylith.Solver`. `rtol` is 1e-12 by default, as callers expect a direct solver.
    """

    def __init__(self, mat: Any, freedofs: Any = None, **options: Any) -> None:
        super().__init__()
        if not hasattr(mat, "CSR") or "Symmetric" in type(mat).__name__:
            raise InvalidInput(f"{type(mat).__name__} does not store all entries; assemble a sparse matrix")
        if mat.is_complex:
            raise InvalidInput("the matrix is complex; krylith.Solver takes it as a SciPy matrix")
        self._mat = mat
        self._options: dict[str, Any] = {"rtol": 1e-12, **options}
        self._free = np.arange(mat.height) if freedofs is None else np.flatnonzero(np.array(list(freedofs), dtype=bool))
        self._solver = Solver(self._entries(), **self._options)
        self.solution: Solution | None = None

    def _entries(self) -> Any:
        values, columns, starts = (np.asarray(part) for part in self._mat.CSR())
        A = sp.csr_array((values, columns, starts), shape=(self._mat.height, self._mat.width))
        return A[self._free][:, self._free] if len(self._free) < A.shape[0] else A

    def Update(self) -> None:
        """Take the values that the matrix has now; the set-up is refreshed."""
        self._solver.update_values(self._entries(), on_new_pattern="rebuild")

    def _solve(self, b: Any, transpose: bool) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.solution = self._solver.solve(b, transpose=transpose)
        return self.solution.check().x

    def _apply(self, x: Any, y: Any, transpose: bool) -> None:
        to = y.FV().NumPy()
        b = x.FV().NumPy()[self._free]
        to[:] = 0.0
        to[self._free] = self._solve(b, transpose)

    def Mult(self, x: Any, y: Any) -> None:
        """Compute y = A⁻¹ x."""
        self._apply(x, y, False)

    def MultTrans(self, x: Any, y: Any) -> None:
        """Compute y = A⁻ᵀ x."""
        self._apply(x, y, True)

    def Shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return self._mat.height, self._mat.width

    def Height(self) -> int:
        """Return the number of rows."""
        return self._mat.height

    def Width(self) -> int:
        """Return the number of columns."""
        return self._mat.width

    def IsComplex(self) -> bool:
        """Return False."""
        return False

    def CreateColVector(self) -> Any:
        """Return a vector for the result."""
        return self._mat.CreateRowVector()

    def CreateRowVector(self) -> Any:
        """Return a vector for the argument."""
        return self._mat.CreateColVector()


class Preconditioner(Inverse):
    """One application of a preconditioner of Krylith, by default `precond="amg"`, for a solver of NGSolve."""

    def __init__(self, mat: Any, freedofs: Any = None, *, precond: str = "amg", **options: Any) -> None:
        super().__init__(mat, freedofs, precond=precond, **options)

    def _solve(self, b: Any, transpose: bool) -> Any:
        return self._solver.precondition(b, transpose=transpose)
