"""Krylith as a solver of pymatsolver, and so of SimPEG: `Krylith(A, precond="amg") @ b`."""

# pymatsolver has no types.
# mypy: disable-error-code="misc"

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from pymatsolver.solvers import Base

from krylith._errors import ConvergenceWarning
from krylith._solver import Solver

__all__ = ["Krylith"]

#: What belongs to pymatsolver.
_OF_BASE = ("is_symmetric", "is_positive_definite", "is_hermitian", "check_accuracy", "check_rtol", "check_atol")


class Krylith(Base):
    """A solver of pymatsolver.

    `rtol` is the tolerance of ‖b − A x‖/‖b‖, which by default is that of a direct solver. Other options are those of
    `krylith.Solver`. `T` solves with Aᵀ from the same set-up. If a solve does not converge, it raises
    `krylith.ConvergenceError`.
    """

    def __init__(self, A: Any, *, rtol: float = 1e-12, **options: Any) -> None:
        """Set up for A."""
        super().__init__(A, **{key: options.pop(key) for key in _OF_BASE if key in options})
        self.solver = Solver(A.tocsr(), rtol=rtol, **options)
        self._is_transposed = False

    def transpose(self) -> Any:
        """Return the solver of Aᵀ, which has the same set-up."""
        if self.is_symmetric:
            return self
        other = copy.copy(self)
        other._A, other._is_transposed = self.A.T, not self._is_transposed
        return other

    def _solve_single(self, rhs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.solver.solve(np.ascontiguousarray(rhs), transpose=self._is_transposed).check().x

    def _solve_multiple(self, rhs: Any) -> Any:
        return self._solve_single(rhs)
