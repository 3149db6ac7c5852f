"""Krylith in SciPy's implicit integrators: `solve_ivp(…, method=BDF, jac=…)` with a sparse Jacobian.

>>> import numpy as np, scipy.sparse as sp
>>> from scipy.integrate import solve_ivp
>>> from krylith.contrib.scipy import BDF
>>> J = 1e4 * sp.diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(99, 99), format="csc")
>>> heat = solve_ivp(lambda t, y: J @ y, (0, 0.1), np.sin(np.pi * np.arange(1, 100) / 100), method=BDF, jac=J, rtol=1e-6)
>>> bool(abs(heat.y[49, -1] - np.exp(-np.pi**2 / 10)) < 1e-3)
True
"""

# The base classes have no types.
# mypy: disable-error-code="misc"

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import scipy.integrate
import scipy.sparse as sp

from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._solver import Solver

__all__ = ["BDF", "Radau"]

#: The tolerance of linear solves: SciPy expects those of a direct solver.
_RTOL = 1e-12


class _Solves:
    """The set-up that follows the matrices of an integrator: one for real and one for complex numbers."""

    def _take(self, options: Mapping[str, Any] | None) -> None:
        if not sp.issparse(self.J):  # type: ignore[attr-defined]
            raise InvalidInput("Krylith solves with sparse Jacobians; pass jac= as a sparse matrix, or jac_sparsity=")
        self._given = {"rtol": _RTOL, **(options or {})}
        self._kept: dict[str, Solver] = {}
        self.lu, self.solve_lu = self._factorize, self._solve

    def _factorize(self, A: Any) -> Solver:
        self.nlu += 1  # type: ignore[attr-defined]
        kind = A.dtype.kind
        if kind in self._kept:
            self._kept[kind].update_values(A, on_new_pattern="rebuild")
        else:
            self._kept[kind] = Solver(A, **self._given)
        return self._kept[kind]

    def _solve(self, solver: Solver, b: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return solver.solve(b).check().x


class BDF(_Solves, scipy.integrate.BDF):
    """SciPy's `BDF` with linear solves by Krylith, for `method=` of `solve_ivp`.

    Parameters
    ----------
    *args, **keywords
        Those of SciPy's class. The Jacobian has to be sparse: `jac` as a matrix or a function that returns one, or
        `jac_sparsity`.
    krylith : dict, optional
        Options of `krylith.Solver`, such as `{"precond": "amg"}`. `rtol` is the tolerance of ‖b − A x‖/‖b‖ of linear
        solves, by default that of a direct solver, 1e-12.

    New values of the same pattern take the set-up of before. If a linear solve does not converge, it raises
    `krylith.ConvergenceError`.
    """

    def __init__(self, *args: Any, krylith: Mapping[str, Any] | None = None, **keywords: Any) -> None:
        """Begin an integration."""
        super().__init__(*args, **keywords)
        self._take(krylith)


class Radau(_Solves, scipy.integrate.Radau):
    """SciPy's `Radau` with linear solves by Krylith, real and complex; the parameters are those of `BDF`."""

    def __init__(self, *args: Any, krylith: Mapping[str, Any] | None = None, **keywords: Any) -> None:
        """Begin an integration."""
        super().__init__(*args, **keywords)
        self._take(krylith)
