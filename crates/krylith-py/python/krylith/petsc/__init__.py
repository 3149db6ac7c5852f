"""Krylith inside PETSc: a PC and a KSP type for petsc4py and every program that calls PETSc with it.

`-pc_type python -pc_python_type krylith.petsc.PC` is the preconditioner, for any KSP.
`-ksp_type python -ksp_python_type krylith.petsc.KSP` is the whole solve. Options of Krylith have the prefix of the
object and `krylith_`, such as `-krylith_precond amg`.

>>> from petsc4py import PETSc
>>> import krylith.petsc
>>> A = PETSc.Mat().createAIJ((2, 2), csr=([0, 1, 2], [0, 1], [2.0, 4.0]), comm=PETSc.COMM_SELF)
>>> A.assemble()
>>> ksp = PETSc.KSP().createPython(krylith.petsc.KSP(), comm=PETSc.COMM_SELF)
>>> ksp.setOperators(A)
>>> x, b = A.createVecs()
>>> b.set(8.0)
>>> ksp.solve(b, x)
>>> x.getArray().tolist()
[4.0, 2.0]
"""

# petsc4py has no types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from petsc4py import PETSc

from krylith._columns import solve_columns
from krylith._complex import Form
from krylith._errors import InvalidInput
from krylith._report import log
from krylith._solution import Solution
from krylith._solver import Solver
from krylith.petsc._memory import vectors
from krylith.petsc._options import has_monitors
from krylith.petsc._setup import Follower

__all__ = ["KSP", "PC"]

_REASON = PETSc.KSP.ConvergedReason

#: The default of -ksp_atol.
_NO_ATOL = 1e-50

#: KSPConvergedReason of an outcome; `converged` is by rtol or by atol. At the limit of double precision x is
#: as good as that of a direct solver, though the tolerance is smaller.
_REASONS = {
    "rounding-limit": _REASON.CONVERGED_HAPPY_BREAKDOWN,
    "max-iterations": _REASON.DIVERGED_MAX_IT,
    "breakdown": _REASON.DIVERGED_BREAKDOWN,
    "stagnated": _REASON.DIVERGED_BREAKDOWN,
    "inconsistent": _REASON.DIVERGED_BREAKDOWN,
    "diverged": _REASON.DIVERGED_DTOL,
    "not-finite": _REASON.DIVERGED_NANORINF,
    "interrupted": _REASON.DIVERGED_BREAKDOWN,  # a time limit
}


class PC(Follower):
    """The preconditioner of Krylith as a PC: `-pc_type python -pc_python_type krylith.petsc.PC`.

    It is made from the second matrix of `setOperators`. PETSc's KSP does the iterations. Some preconditioners differ
    from one application to the next, such as `cg(…)` and cycles `k` of `amg`: they need `-ksp_type fgmres`.
    """

    def setUp(self, pc: Any) -> None:
        """Set up, take new values, or do nothing if the matrix has not changed. PETSc calls it."""
        operator, mat = pc.getOperators()
        self._follow(pc, operator, mat, pc.getDM())

    def apply(self, pc: Any, x: Any, y: Any) -> None:
        """Compute y = P⁻¹ x. PETSc calls it."""
        self._apply(pc, x, y, Form.PLAIN)

    def applyTranspose(self, pc: Any, x: Any, y: Any) -> None:
        """Compute y = P⁻ᵀ x from the same set-up. PETSc calls it."""
        self._apply(pc, x, y, Form.TRANSPOSED)

    def matApply(self, pc: Any, X: Any, Y: Any) -> None:
        """Compute the columns of Y = P⁻¹ X for dense matrices. PETSc calls it."""
        given, found = X.getDenseArray(readonly=True), Y.getDenseArray()
        for k in range(given.shape[1]):
            self._solver(pc)._apply(True, Form.PLAIN, given[:, k], found[:, k])

    def _apply(self, pc: Any, x: Any, y: Any, form: Form) -> None:
        solver = self._solver(pc)
        with vectors(self._gpu, x, y, kept=False) as (given, found):
            solver._apply(True, form, given, found)

    def _solver(self, pc: Any) -> Solver:
        if self.solver is None:  # forgotten since PETSc's set-up
            self.setUp(pc)
        assert self.solver is not None
        return self.solver

    def _solver_options(self) -> dict[str, Any]:
        return {"method": "auto", **super()._solver_options()}

    def view(self, pc: Any, viewer: Any) -> None:
        """Print the options and the state. PETSc calls it."""
        if viewer.getType() == "ascii":
            viewer.printfASCII(self._said())


class KSP(Follower):
    """A whole solve by Krylith as a KSP: `-ksp_type python -ksp_python_type krylith.petsc.KSP`.

    Tolerances, iteration limit, monitors, initial guess and reasons are those of the KSP. The residual is that of
    b − A x, and a positive reason means that it was recomputed from x. The preconditioner is Krylith's, so the PC of
    this KSP is set to `none`. If the first matrix of `setOperators` has no entries, it is called for products, and the
    preconditioner is made from the second.
    """

    _of_ksp = True
    _monitored = False
    #: The last solution: its `outcome`, `method`, `precond` and text. Its `x` is not kept.
    solution: Solution | None = None

    def create(self, ksp: Any) -> None:
        """Begin to serve a KSP. PETSc calls it."""
        super().create(ksp)
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        ksp.getPC().setType("none")  # PETSc would set up its own ILU beside

    def setFromOptions(self, ksp: Any) -> None:
        """Read the options with the prefix of the KSP. PETSc calls it."""
        super().setFromOptions(ksp)
        self._monitored = has_monitors(ksp.getOptionsPrefix())

    def setUp(self, ksp: Any) -> None:
        """Set up, take new values, or do nothing if the matrix has not changed. PETSc calls it."""
        if ksp.getPC().getType() != "none":
            ksp.getPC().setType("none")
        self._ready(ksp)

    def _ready(self, ksp: Any) -> Solver | None:
        """Return the solver for the current values, or None if these are not finite."""
        pc = ksp.getPC()
        operator, mat = pc.getOperators()
        try:
            return self._follow(ksp, operator, mat, pc.getDM())
        except InvalidInput as error:
            if "must be finite" not in str(error):
                raise
            return None

    def solve(self, ksp: Any, b: Any, x: Any) -> None:
        """Solve A x = b. PETSc calls it."""
        self._solve(ksp, b, x, Form.PLAIN)

    def solveTranspose(self, ksp: Any, b: Any, x: Any) -> None:
        """Solve Aᵀ x = b from the same set-up. PETSc calls it."""
        self._solve(ksp, b, x, Form.TRANSPOSED)

    def _solve(self, ksp: Any, b: Any, x: Any, form: Form) -> None:
        norm = b.norm()
        solver = self._ready(ksp) if math.isfinite(norm) else None
        if solver is None:
            ksp.setResidualNorm(math.inf)
            ksp.setConvergedReason(_REASON.DIVERGED_NANORINF)
            return
        rtol, atol, _, most = ksp.getTolerances()
        guess = ksp.getInitialGuessNonzero()
        scale = self._scale(ksp, b, x, guess, form, norm)
        test = ksp.getConvergenceTest()
        progress = _Progress(ksp, scale, test) if test or self._monitored or ksp.getMonitor() else None
        limits = (0.0 if test else rtol, 0.0 if test or atol <= _NO_ATOL else atol, most)
        there = self._gpu is not None
        if there and not guess:
            x.set(0.0)  # on the GPU, as the initial guess
        with vectors(self._gpu, b, x, kept=True) as (given, found):
            solution = solver._one(given, found if guess or there else None, (*limits, progress, form), found)
        del given, found  # gives the arrays back to PETSc
        self._tell(ksp, solution, norm, progress, scale)

    def _scale(self, ksp: Any, b: Any, x: Any, guess: bool, form: Form, norm: float) -> float:
        """Return the factor from the residuals that Krylith reports to those that PETSc does."""
        if self._options.get("criterion", "residual") != "residual":
            return 1.0
        if self._options.get("relative_to") != "r0" or not guess:
            return norm
        operator, r = ksp.getOperators()[0], b.duplicate()
        (operator.multTranspose if form is Form.TRANSPOSED else operator.mult)(x, r)
        r.aypx(-1.0, b)
        return float(r.norm())

    def _tell(self, ksp: Any, solution: Solution, norm: float, progress: _Progress | None, scale: float) -> None:
        """Give the KSP its history, iterations, residual and reason."""
        log(solution, [])
        if progress is None:
            for iteration, residual in enumerate((solution.residuals * scale).tolist()):
                ksp.setIterationNumber(iteration)
                ksp.logConvergenceHistory(residual)
                ksp.monitor(iteration, residual)
        solution.x = None
        self.solution = solution
        ksp.setIterationNumber(solution.iterations)
        residual = solution.true_residual * norm
        ksp.setResidualNorm(residual)
        if progress is not None and progress.reason:
            ksp.setConvergedReason(progress.reason)
            return
        reason = _REASONS.get(solution.outcome)
        if reason is None:
            rtol, atol, *_ = ksp.getTolerances()
            by_atol = residual <= atol and solution.criterion_value > rtol
            reason = _REASON.CONVERGED_ATOL if by_atol else _REASON.CONVERGED_RTOL
        ksp.setConvergedReason(reason)

    def matSolve(self, ksp: Any, B: Any, X: Any) -> None:
        """Solve A X = B for the columns of dense matrices, up to 16 of them together.

        The reason is that of the worst column. petsc4py 3.18 has no function for it: call the `matSolve` of
        `ksp.getPythonContext()`.
        """
        ksp.setUp()
        solver = self._ready(ksp)
        given, found = B.getDenseArray(readonly=True), X.getDenseArray()
        norms = np.linalg.norm(given, axis=0)
        if solver is None or not np.isfinite(norms).all():
            ksp.setConvergedReason(_REASON.DIVERGED_NANORINF)
            return
        rtol, atol, _, most = ksp.getTolerances()
        atol = 0.0 if atol <= _NO_ATOL else atol
        solution = solve_columns(solver, given, None, (rtol, atol, most, None, Form.PLAIN), None)
        found[...] = solution.x
        del given, found
        self._tell(ksp, solution, 1.0, None, 1.0)

    def view(self, ksp: Any, viewer: Any) -> None:
        """Print the options, the state and the last solution. PETSc calls it."""
        if viewer.getType() != "ascii":
            return
        viewer.printfASCII(self._said())
        if self.solution is not None:
            lines = repr(self.solution).splitlines()
            viewer.printfASCII("".join(f"    {line}\n" for line in lines).replace("%", "%%"))


class _Progress:
    """Passes residuals on to the history, the monitors and the convergence test of a KSP."""

    def __init__(self, ksp: Any, scale: float, test: Any) -> None:
        self._ksp, self._scale, self._test = ksp, scale, test
        #: The reason of the test of the user, once it ends the solve.
        self.reason = 0

    def __call__(self, iteration: int, residual: float) -> bool:
        residual *= self._scale
        self._ksp.setIterationNumber(iteration)
        self._ksp.setResidualNorm(residual)
        self._ksp.logConvergenceHistory(residual)
        self._ksp.monitor(iteration, residual)
        if self._test:
            self.reason = self._ksp.callConvergenceTest(iteration, residual)
        return self.reason != 0
