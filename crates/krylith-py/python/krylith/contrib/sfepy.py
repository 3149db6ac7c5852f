"""Krylith as a solver of SfePy, with the name `ls.krylith`.

    import krylith.contrib.sfepy
    krylith.contrib.sfepy.install()

    solvers = {"ls": ("ls.krylith", {"precond": "amg", "eps_r": 1e-10}), ...}
"""

# SfePy has no types.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sfepy.base.base import get_default
from sfepy.solvers.ls import LinearSolver, standard_call
from sfepy.solvers.solvers import Solver as AnySolver

from krylith._errors import ConvergenceWarning
from krylith._solver import Solver

__all__ = ["KrylithSolver", "install"]

#: What belongs to SfePy in the options of a solver.
_OF_SFEPY = {"eps_a", "eps_r", "i_max", "use_presolve", *(name for name, *_ in AnySolver._parameters)}


class KrylithSolver(LinearSolver):
    """The linear solver `ls.krylith`.

    `eps_r` is the tolerance of ‖b − A x‖/‖b‖. Its default is near the limit of double precision, because SfePy's Newton
    method has an absolute tolerance, and expects a direct solver. `eps_a` is the tolerance of ‖b − A x‖, and `i_max` the
    iteration limit. Other options are those of `krylith.Solver`. The set-up is kept: a matrix of the same pattern
    refreshes it, and the same matrix does nothing. If a solve does not converge, `status["condition"]` is 1, and SfePy
    goes on with its x.
    """

    name = "ls.krylith"

    _parameters = [
        ("method", "str", "auto", False, "The method."),
        ("precond", "str", "auto", False, "The preconditioner."),
        ("i_max", "int", None, False, "The maximum number of iterations."),
        ("eps_a", "float", 0.0, False, "The absolute tolerance for the residual."),
        ("eps_r", "float", 1e-14, False, "The relative tolerance for the residual."),
        ("use_presolve", "bool", False, False, "Accepted; the set-up is always kept."),
        ("*", "*", None, False, "Further options of krylith.Solver."),
    ]

    _solver: Solver | None = None
    #: Columns and values of the matrix of the set-up.
    _known: tuple[np.ndarray, np.ndarray] | None = None

    def presolve(self, mtx: Any, use_mtx_digest: bool = True) -> None:
        """Set up for a matrix, or take its values."""
        rows = mtx.tocsr()
        if self._known is not None and all(map(np.array_equal, self._known, (rows.indices, rows.data))):
            return
        if self._solver is None:
            conf = self.conf.to_dict()
            self._solver = Solver(rows, **{key: value for key, value in conf.items() if key not in _OF_SFEPY and value is not None})
        else:
            self._solver.update_values(rows, on_new_pattern="rebuild")
        self._known = rows.indices.copy(), rows.data.copy()

    @standard_call
    def __call__(
        self, rhs: Any, x0: Any = None, conf: Any = None, eps_a: Any = None, eps_r: Any = None, i_max: Any = None,
        mtx: Any = None, status: Any = None, context: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Return x and the number of iterations."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.presolve(mtx)
            assert self._solver is not None
            solution = self._solver.solve(
                rhs, x0, rtol=get_default(eps_r, conf.eps_r), atol=get_default(eps_a, conf.eps_a), max_iters=get_default(i_max, conf.i_max)
            )
        if status is not None:
            status["condition"] = 0 if solution else 1
        return solution.x, solution.iterations

    def clear(self) -> None:
        """Forget the set-up."""
        self._solver = self._known = None


class _InsteadOf(KrylithSolver):
    """The same under another solver's name, whose options it does not take."""

    def __init__(self, conf: Any, **kwargs: Any) -> None:
        plain = type(conf)(name=getattr(conf, "name", "ls"), kind=KrylithSolver.name)
        super().__init__(KrylithSolver.process_conf(plain, {}), **kwargs)

    def __call__(self, *arguments: Any, **kwargs: Any) -> Any:
        return super().__call__(*arguments, **{**kwargs, "conf": self.conf})


def install(*instead_of: str) -> None:
    """Register `ls.krylith` in SfePy, and put it in the place of the solvers with these names.

    `install("ls.auto_direct", "ls.scipy_direct")` gives problems that name these solvers Krylith, with its defaults.
    """
    from sfepy.solvers import register_solver, solver_table

    register_solver(KrylithSolver)
    for name in instead_of:
        solver_table[name] = _InsteadOf
