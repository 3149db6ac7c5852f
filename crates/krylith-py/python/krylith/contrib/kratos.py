"""Krylith inside Kratos: `solve(A, x, b)` for its matrices, and `NewtonStrategy` in the place of its strategies.

    strategy = krylith.contrib.kratos.NewtonStrategy(model_part, scheme, criterion, builder, precond="amg")
    strategy.Initialize()
    strategy.Solve()

Kratos calls its linear solvers from C++, which no solver in Python can be. So the loop of Newton's method is here.
"""

# Kratos has no types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from krylith._errors import InvalidInput
from krylith.contrib.skfem import solver as kept

__all__ = ["NewtonStrategy", "solver"]


def solver(*, rtol: float = 1e-12, **options: Any) -> Callable[[Any, Any, Any], None]:
    """Return a function that solves A x = b for a matrix and vectors of Kratos.

    Parameters
    ----------
    rtol : float
        The tolerance of ‖b − A x‖/‖b‖. Its default is that of a direct solver.
    **options
        Options of `krylith.Solver`, such as `precond="amg"`.

    Returns
    -------
    callable
        A function of A, x and b, as `Solve` of a linear solver of Kratos. It overwrites x. A later A of the same pattern
        takes the set-up of the one before. If a solve does not converge, it raises `krylith.ConvergenceError`.
    """
    solve = kept(rtol=rtol, **options)

    def into(A: Any, x: Any, b: Any) -> None:
        size = A.Size1()
        rows = sp.csr_matrix((A.value_data(), A.index2_data(), A.index1_data()), shape=(size, A.Size2()))
        rows.sort_indices()
        np.asarray(x)[:] = solve(rows, np.array(b))

    return into


class NewtonStrategy:
    """Newton's method for a model part, with the methods that Kratos's stages and solvers call.

    Parameters
    ----------
    model_part, scheme, criterion, builder
        Those of `ResidualBasedNewtonRaphsonStrategy`, with a builder of `ResidualBasedBlockBuilderAndSolver`. The linear
        solver of the builder is not used.
    max_iterations : int
        The most iterations of a step. 1 is enough for a linear problem.
    reform_dofs : bool
        Number the unknowns anew at each step.
    move_mesh : bool
        Move the nodes by their displacements.
    reactions : bool
        Compute the reactions after each step.
    rtol, **options
        As for `solver`.
    """

    def __init__(
        self,
        model_part: Any,
        scheme: Any,
        criterion: Any,
        builder: Any,
        *,
        max_iterations: int = 30,
        reform_dofs: bool = False,
        move_mesh: bool = False,
        reactions: bool = False,
        rtol: float = 1e-12,
        **options: Any,
    ) -> None:
        """Set up no system yet."""
        import KratosMultiphysics as KM

        self._kratos, self._space = KM, KM.UblasSparseSpace()
        self._part, self._scheme, self._criterion, self._builder = model_part, scheme, criterion, builder
        self._most, self._reform, self._move, self._reactions = max_iterations, reform_dofs, move_mesh, reactions
        self._solve = solver(rtol=rtol, **options)
        space = self._space
        self._system = (
            space.CreateEmptyMatrixPointer(), space.CreateEmptyVectorPointer(), space.CreateEmptyVectorPointer()
        )  # fmt: skip
        self._initialized = self._begun = self._converged = False
        builder.SetCalculateReactionsFlag(reactions)

    def Initialize(self) -> None:
        """Initialise the elements and conditions, at the first call."""
        if self._initialized:
            return
        for part in ("", "Elements", "Conditions"):
            if not getattr(self._scheme, f"{part or 'Scheme'}{'Are' if part else 'Is'}Initialized")():
                getattr(self._scheme, f"Initialize{part}")(self._part)
        self._criterion.Initialize(self._part)
        self._initialized = True

    def Check(self) -> int:
        """Check the builder and the scheme."""
        self._builder.Check(self._part)
        return self._scheme.Check(self._part)

    def InitializeSolutionStep(self) -> None:
        """Number the unknowns, and begin a step."""
        if self._begun:
            return
        if self._part.NumberOfMasterSlaveConstraints() > 0:
            raise InvalidInput("constraints of masters and slaves need a strategy of Kratos with a solver of its own")
        builder, scheme, (A, dx, b) = self._builder, self._scheme, self._system
        if self._reform or not builder.GetDofSetIsInitializedFlag():
            builder.SetUpDofSet(scheme, self._part)
            builder.SetUpSystem(self._part)
            builder.ResizeAndInitializeVectors(scheme, A, dx, b, self._part)
        builder.InitializeSolutionStep(self._part, A, dx, b)
        scheme.InitializeSolutionStep(self._part, A, dx, b)
        if self._criterion.GetActualizeRHSflag():  # residuals are compared with the first one
            self._space.SetToZeroVector(b)
            builder.BuildRHS(scheme, self._part, b)
        self._criterion.InitializeSolutionStep(self._part, builder.GetDofSet(), A, dx, b)
        self._begun = True

    def Predict(self) -> None:
        """Let the scheme predict the unknowns of the step."""
        self.Initialize()
        self.InitializeSolutionStep()
        self._scheme.Predict(self._part, self._builder.GetDofSet(), *self._system)
        self.MoveMesh()

    def SolveSolutionStep(self) -> bool:
        """Iterate until the criterion is met, and return whether it was."""
        self._converged, iteration = False, 0
        while not self._converged and iteration < self._most:
            iteration += 1
            self._part.ProcessInfo[self._kratos.NL_ITERATION_NUMBER] = iteration
            self._converged = self._iterate()
        if self._reactions:
            self._builder.CalculateReactions(self._scheme, self._part, *self._system)
        return self._converged

    def _iterate(self) -> bool:
        part, scheme, builder, criterion, (A, dx, b) = (
            self._part, self._scheme, self._builder, self._criterion, self._system
        )  # fmt: skip
        of_criterion = (part, builder.GetDofSet(), A, dx, b)
        scheme.InitializeNonLinIteration(part, A, dx, b)
        criterion.InitializeNonLinearIteration(*of_criterion)
        converged = criterion.PreCriteria(*of_criterion)
        self._space.SetToZeroMatrix(A)
        self._space.SetToZeroVector(dx)
        self._space.SetToZeroVector(b)
        builder.Build(scheme, part, A, b)
        builder.ApplyDirichletConditions(scheme, part, A, dx, b)
        self._solve(A, dx, b)
        scheme.Update(*of_criterion)
        self.MoveMesh()
        scheme.FinalizeNonLinIteration(part, A, dx, b)
        criterion.FinalizeNonLinearIteration(*of_criterion)
        if converged and criterion.GetActualizeRHSflag():
            self._space.SetToZeroVector(b)
            builder.BuildRHS(scheme, part, b)
        return bool(converged and criterion.PostCriteria(*of_criterion))

    def FinalizeSolutionStep(self) -> None:
        """End a step."""
        self._scheme.FinalizeSolutionStep(self._part, *self._system)
        self._builder.FinalizeSolutionStep(self._part, *self._system)
        self._criterion.FinalizeSolutionStep(self._part, self._builder.GetDofSet(), *self._system)
        self._scheme.Clean()
        self._begun = False
        if self._reform:
            self.Clear()

    def Solve(self) -> bool:
        """Do a whole step, and return whether it converged."""
        self.Initialize()
        self.InitializeSolutionStep()
        self.Predict()
        converged = self.SolveSolutionStep()
        self.FinalizeSolutionStep()
        return converged

    def IsConverged(self) -> bool:
        """Return whether the last step converged."""
        return self._converged

    def MoveMesh(self) -> None:
        """Move the nodes by their displacements, if asked for."""
        if self._move:
            self._kratos.VariableUtils().UpdateCurrentPosition(self._part.Nodes)

    def Clear(self) -> None:
        """Forget the numbering of the unknowns."""
        self._builder.SetDofSetIsInitializedFlag(False)
        self._builder.Clear()
        self._scheme.Clear()

    def SetEchoLevel(self, level: int) -> None:
        """Set how much the builder and the criterion print."""
        self._builder.SetEchoLevel(level)
        self._criterion.SetEchoLevel(level)

    def GetSystemMatrix(self) -> Any:
        """Return the matrix of the last iteration."""
        return self._system[0]

    def GetSolutionVector(self) -> Any:
        """Return the last increment."""
        return self._system[1]

    def GetSystemVector(self) -> Any:
        """Return the right-hand side of the last iteration."""
        return self._system[2]
