"""Krylith as a solver of PyMFEM, for its serial module `mfem.ser`.

    from krylith.contrib.mfem import Solver, solve

    solve(A, B, X, rtol=1e-8)                      # in place of mfem.PCG(A, M, B, X, 1, 200, 1e-12, 0.0)

    solver = Solver(rtol=1e-8, precond="amg")      # in place of mfem.CGSolver(), mfem.GMRESSolver()
    solver.SetOperator(A)
    solver.Mult(B, X)
"""

# PyMFEM has no types.
# mypy: disable-error-code="misc"

from __future__ import annotations

import warnings
from typing import Any

import mfem.ser as mfem
import numpy as np
import scipy.sparse as sp

from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._solution import Solution
from krylith._solver import Solver as _Solver

__all__ = ["Preconditioner", "Solver", "rows", "solve"]


def rows(op: Any) -> tuple[Any, list[int]]:
    """Return the entries of an operator as a CSR matrix, and where its blocks begin and end.

    The operator is a SparseMatrix, a BlockOperator or BlockMatrix of them, or a handle to one. A block of another kind is
    taken for the transpose of the block across the diagonal if their products agree.
    """
    if isinstance(op, mfem.OperatorHandle):
        op = op.AsSparseMatrix() if op.Type() == mfem.Operator.MFEM_SPARSEMAT else op.Ptr()
    if isinstance(op, (mfem.BlockOperator, mfem.BlockMatrix)):
        # The names of the counts differ between the two classes.
        down, across = op.RowOffsets().ToList(), op.ColOffsets().ToList()
        blocks = [[_block(op, i, j) for j in range(len(across) - 1)] for i in range(len(down) - 1)]
        for i, row in enumerate(blocks):
            for j, block in enumerate(row):
                if block is None and not op.IsZeroBlock(i, j):
                    row[j] = _transposed(op, i, j, blocks)
        return sp.block_array(blocks, format="csr"), down
    entries = _entries(op)
    if entries is None:
        raise InvalidInput(f"{type(op).__name__} has no entries; Krylith takes a SparseMatrix, or a BlockOperator of them")
    return entries, [0, op.Height()]


def _entries(op: Any) -> Any:
    if not isinstance(op, mfem.SparseMatrix):
        op = mfem.Opr2SparseMat(op) if isinstance(op, mfem.Operator) else None
    if op is None or op.Height() == 0:
        return None
    op.Finalize()
    data = (op.GetDataArray(), op.GetJArray(), op.GetIArray())
    return sp.csr_array(data, shape=(op.Height(), op.Width()), copy=True)


def _block(op: Any, i: int, j: int) -> Any:
    if op.IsZeroBlock(i, j):
        return None
    entries = _entries(op.GetBlock(i, j))
    return entries if entries is None or isinstance(op, mfem.BlockMatrix) else op.GetBlockCoef(i, j) * entries


def _transposed(op: Any, i: int, j: int, blocks: Any) -> Any:
    block = op.GetBlock(i, j)
    across = blocks[j][i] if j < len(blocks) and i < len(blocks[j]) else None
    if across is not None and across.shape == (block.Width(), block.Height()):
        x, y = mfem.Vector(block.Width()), mfem.Vector(block.Height())
        x.Assign(1 + np.sin(np.arange(block.Width())))
        block.Mult(x, y)
        entries = across.T / op.GetBlockCoef(j, i)
        if np.allclose(entries @ x.GetDataArray(), y.GetDataArray(), rtol=1e-10):
            return op.GetBlockCoef(i, j) * entries
    raise InvalidInput(f"block {i}, {j} has no entries; Krylith takes a BlockOperator of matrices")


class Solver(mfem.PyIterativeSolver):
    """A solver for `SetOperator` and `Mult`, also inside a NewtonSolver or another solver of MFEM.

    `SetRelTol`, `SetAbsTol` and `SetMaxIter` replace the options. The tolerance is that of ‖b − A x‖/‖b‖, by default
    1e-12. A matrix of the same pattern refreshes the set-up. The result of the last solve is `solution`. A solve that
    does not converge is none of Python's errors: `GetConverged()` is then false.

    Parameters
    ----------
    op : mfem.ser.Operator, optional
        The operator, if it is known already.
    iterative_mode : bool
        True to take x as the initial guess, as MFEM's iterative solvers do by default.
    **options
        Options of `krylith.Solver`. A BlockOperator has the fields b0, b1, …, which `precond="split(b0: …, b1: …)"` names.
    """

    def __init__(self, op: Any = None, *, iterative_mode: bool = True, **options: Any) -> None:
        super().__init__()
        self.iterative_mode = iterative_mode
        self._options: dict[str, Any] = {"rtol": 1e-12, **options}
        self._limits: dict[str, Any] = {}
        self._solver: _Solver | None = None
        self.solution: Solution | None = None
        if op is not None:
            self.SetOperator(op)

    def SetRelTol(self, value: float) -> None:
        """Set the tolerance of ‖b − A x‖/‖b‖."""
        self._limits["rtol"] = value

    def SetAbsTol(self, value: float) -> None:
        """Set the tolerance of ‖b − A x‖."""
        self._limits["atol"] = value

    def SetMaxIter(self, value: int) -> None:
        """Set the iteration limit."""
        self._limits["max_iters"] = value

    def SetOperator(self, op: Any) -> None:
        """Take the matrix."""
        A, blocks = rows(op)
        if self._solver is None:
            options = dict(self._options)
            if len(blocks) > 2:
                options["fields"] = {f"b{i}": slice(*blocks[i : i + 2]) for i in range(len(blocks) - 1)}
            self._solver = _Solver(A, **options)
        else:
            self._solver.update_values(A, on_new_pattern="rebuild")

    def Mult(self, b: Any, x: Any) -> None:
        """Solve A x = b."""
        self._solve(b, x, False)

    def MultTranspose(self, b: Any, x: Any) -> None:
        """Solve Aᵀ x = b."""
        self._solve(b, x, True)

    def _solve(self, b: Any, x: Any, transpose: bool) -> None:
        values = x.GetDataArray()
        guess = values.copy() if self.iterative_mode else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.solution = self._known().solve(b.GetDataArray(), guess, transpose=transpose, **self._limits)
        values[:] = self.solution.x

    def GetConverged(self) -> bool:
        """Return whether the last solve met the tolerance."""
        return self.solution is not None and self.solution.converged

    def GetNumIterations(self) -> int:
        """Return the iterations of the last solve."""
        return 0 if self.solution is None else self.solution.iterations

    def _known(self) -> _Solver:
        if self._solver is None:
            raise InvalidInput("SetOperator comes before Mult")
        return self._solver


class Preconditioner(Solver):
    """A preconditioner for a solver of MFEM: `cg.SetPreconditioner(Preconditioner(precond="amg"))`."""

    def __init__(self, op: Any = None, *, precond: str = "amg", **options: Any) -> None:
        super().__init__(op, iterative_mode=False, precond=precond, **options)

    def _solve(self, b: Any, x: Any, transpose: bool) -> None:
        P = self._known()
        x.GetDataArray()[:] = P.precondition(b.GetDataArray().copy(), transpose=transpose)


def solve(A: Any, B: Any, X: Any, **options: Any) -> Solution:
    """Solve A X = B from the initial guess X, as `mfem.PCG(A, M, B, X, …)` does, and return the result.

    `A`, `B` and `X` are those of `FormLinearSystem`. The options are those of `krylith.Solver`; `rtol` is 1e-12 by
    default. If the solve does not converge, it raises `krylith.ConvergenceError`.
    """
    solver = Solver(A, **options)
    solver.Mult(B, X)
    assert solver.solution is not None
    return solver.solution.check()
