"""Krylith as the solver suite of FiPy: `install()` makes its solvers those of every equation.

    import os; os.environ["FIPY_SOLVERS"] = "scipy"
    import krylith.contrib.fipy
    krylith.contrib.fipy.install()
    from fipy import ...

`eq.solve(var, solver=krylith.contrib.fipy.LinearCGSolver(precond="amg"))` takes one of them for one equation.
"""

# FiPy has no types.
# mypy: disable-error-code="misc, no-any-return"

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from fipy.solvers.scipy.scipySolver import ScipySolver

from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._solution import info_of
from krylith._solver import Solver

__all__ = [
    "LinearBicgstabSolver", "LinearCGSSolver", "LinearCGSolver", "LinearGMRESSolver", "LinearKrylithSolver", "LinearLUSolver",
    "LinearPCGSolver", "install",
]  # fmt: skip

#: Preconditioners of Krylith in place of those of FiPy, by the names of their classes.
_PRECONDS = {
    "JacobiPreconditioner": "jacobi",
    "ILUPreconditioner": "ildu:cut=whole",
    "SmoothedAggregationPreconditioner": "amg:coarsen=smoothed",
}

#: What a solver that stands in for a direct one reduces the residual to.
_DIRECT = 1e-10


class LinearKrylithSolver(ScipySolver):
    """A solver for every matrix, in place of FiPy's direct solver.

    The arguments are those of FiPy's solvers. `tolerance` and `criterion` mean what they do in FiPy's direct solver. A
    solver that is used again takes the set-up of the last matrix if the pattern is the same.

    Parameters
    ----------
    method, precond : str, optional
        The same as for `krylith.solve`; a preconditioner of FiPy in `precon` is replaced by one of Krylith.
    **options
        Further options of `krylith.Solver`, such as `threads=1`.
    """

    #: The method and the preconditioner, if the user names none.
    _method, _precond = "auto", "auto"
    #: True to solve as exactly as a direct solver does, whatever the tolerance.
    _direct = True

    def __init__(
        self, tolerance: Any = "default", absolute_tolerance: float = 0.0, criterion: str = "default", iterations: Any = "default",
        precon: Any = "default", *, method: str | None = None, precond: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(tolerance=tolerance, absolute_tolerance=absolute_tolerance, criterion=criterion, iterations=iterations, precon=precon)
        none = precon is None and not self._direct
        theirs = "none" if none else _PRECONDS.get(type(self.preconditioner).__name__, self._precond)
        self._options = {"method": method or self._method, "precond": precond or theirs, **options}
        self._krylith: Solver | None = None

    def _adaptLegacyTolerance(self, L: Any, x: Any, b: Any) -> Any:
        return self._adaptInitialTolerance(L, x, b)

    def _adaptUnscaledTolerance(self, L: Any, x: Any, b: Any) -> Any:
        return (1.0, None)

    def _adaptRHSTolerance(self, L: Any, x: Any, b: Any) -> Any:
        return (self._rhsNorm(L, x, b), None)

    def _adaptMatrixTolerance(self, L: Any, x: Any, b: Any) -> Any:
        return (self._matrixNorm(L, x, b), None)

    def _adaptInitialTolerance(self, L: Any, x: Any, b: Any) -> Any:
        return (self._residualNorm(L, x, b), None)

    def _solve_(self, L: Any, x: Any, b: Any) -> Any:
        """Return x + d, where A d is the residual of x: near a steady state d keeps its digits."""
        scale, _ = self._adaptTolerance(L, x, b)
        residual = b - L @ x
        norm, wanted = float(np.linalg.norm(residual)), max(self.tolerance * scale, self.absolute_tolerance)
        outcome, iterations = "converged", 0
        if norm > wanted:
            rtol = min(wanted / norm, _DIRECT) if self._direct else wanted / norm
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # FiPy warns itself
                if self._krylith is None:
                    self._krylith = Solver(L, **self._options)
                else:
                    self._krylith.update_values(L, on_new_pattern="rebuild")
                most = None if self._direct else self.iterations
                solution = self._krylith.solve(residual, rtol=max(rtol, 1e-15), max_iters=most)
            x = x + solution.x
            outcome, iterations = solution.outcome, solution.iterations
        self._setConvergence(
            suite="scipy", code=int(np.sign(info_of(outcome, iterations))), actual_code=outcome, iterations=iterations,
            tolerance_scale=scale, residual=self._residualNorm(L, x, b),
        )  # fmt: skip
        self.convergence.warn()
        return x


class LinearLUSolver(LinearKrylithSolver):
    """Direct factors, `precond="lu"`."""

    _precond = "lu"


class _Iterative(LinearKrylithSolver):
    _direct = False


class LinearCGSolver(_Iterative):
    """Conjugate gradients, for symmetric matrices."""

    _method = "cg"

    def _canSolveAsymmetric(self) -> bool:
        return False


class LinearGMRESSolver(_Iterative):
    """GMRES."""

    _method = "gmres"


class LinearBicgstabSolver(_Iterative):
    """BiCGSTAB."""

    _method = "bicgstab"


LinearPCGSolver = LinearCGSolver
LinearCGSSolver = LinearBicgstabSolver


def install() -> None:
    """Make these solvers FiPy's: the defaults and the classes by name, of `fipy` and `fipy.solvers`.

    Names that a program has imported before stay those of FiPy. FiPy must use its suite `scipy`, which the environment
    variable `FIPY_SOLVERS` chooses.
    """
    import fipy
    import fipy.solvers

    if fipy.solvers.solver_suite != "scipy":
        raise InvalidInput(f"FiPy uses its suite {fipy.solvers.solver_suite!r}; set FIPY_SOLVERS=scipy before FiPy is imported")
    names = {name: globals()[name] for name in __all__ if name.startswith("Linear")}
    names |= dict.fromkeys(("DefaultSolver", "DefaultAsymmetricSolver", "GeneralSolver"), LinearKrylithSolver)
    for module in (fipy, fipy.solvers):
        for name, value in names.items():
            if hasattr(module, name):
                setattr(module, name, value)
