"""`solve` for one system, `Solver` for many of one pattern."""

from __future__ import annotations

import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from krylith import _native
from krylith._arrays import empty_like, float64, is_torch, lend, on_device
from krylith._errors import ConvergenceWarning, Interrupted, InvalidInput
from krylith._matrix import KroneckerSum, new_values, system_of
from krylith._options import Options, count, options_text, threads_of
from krylith._solution import Solution

if TYPE_CHECKING:
    from types import FrameType

    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack


#: Calls a function with iteration and ‖r‖/‖b‖; an answer that is true ends the solve.
Callback = Callable[[int, float], Any]


class Solver:
    """A system on its device, to be solved many times.

    What the pattern, the device and the options determine is found out once. Solves and new values then analyse nothing anew. Threads
    that share one take turns.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        SciPy's, CuPy's or PyTorch's in any format. One in the memory of a GPU stays there.
    method, precond : str
        As for `krylith.solve`, and so are the others.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> solver = krylith.Solver(A, method="cg", precond="jacobi", rtol=1e-10)
    >>> x = solver.solve(np.ones(50)).x
    >>> solver.update_values(2 * A)
    >>> bool(np.allclose(2 * solver.solve(np.ones(50)).x, x))
    True
    """

    #: Whether new values may come, for which the pattern is kept.
    _keeps = True

    def __init__(
        self,
        A: Any,
        *,
        method: str = "auto",
        precond: str = "auto",
        rtol: float = 1e-6,
        atol: float = 0.0,
        maxiter: int | None = None,
        device: str = "auto",
        block: int | None = None,
        nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
        near_nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
        coordinates: np.ndarray | None = None,
        grid: Sequence[int] | None = None,
        comm: Any = None,
        **options: Unpack[Options],
    ) -> None:
        nodes = None if grid is None else _nodes(grid)
        if nodes is not None and block is None and comm is None:
            block = _block_of_nodes(A, math.prod(nodes))
        with interrupts():
            system, parts = system_of(A, block, comm, threads_of(options))
        self._parts = [one.kept() for one in parts] if self._keeps else parts
        self._kronecker = isinstance(A, KroneckerSum)
        self._stages = system.stages
        #: Rows that this process has, and columns.
        self.shape: tuple[int, int] = (system.own, system.unknowns)
        if coordinates is not None:
            system = system.with_coordinates(np.ascontiguousarray(coordinates, dtype=np.float64))
        if nodes is not None:
            system = system.with_grid(nodes)
        if nullspace is not None:
            system = system.with_null_vectors(self._vectors("nullspace", nullspace, "constant"))
        if near_nullspace is not None:
            system = system.with_near_null_vectors(self._vectors("near_nullspace", near_nullspace, "rigid"))
        gpu = self._parts[0].gpu
        if device == "auto" and gpu is not None:
            device = f"cuda:{gpu}"
        named = {"method": method, "precond": precond, "rtol": rtol, "atol": atol, "maxiter": count(maxiter), "device": device}
        with interrupts():
            self._native = _native.Solver(system, options_text(named, dict(options)))

    def _vectors(self, name: str, given: Any, word: str) -> list[np.ndarray] | None:
        if isinstance(given, str):
            if given != word:
                raise InvalidInput(f"`{name}` is {given!r}; expected {word!r} or vectors")
            return None
        if not isinstance(given, (list, tuple)) or len(given) > 0 and np.ndim(given[0]) == 0:
            array = np.asarray(given, dtype=np.float64)
            given = [array] if array.ndim == 1 or self._kronecker and array.ndim == 2 else list(array.T)
        return [self._flat(np.asarray(v), name).ravel() for v in given]

    def _flat(self, v: Any, name: str) -> Any:
        """A vector in the solver's order, without gaps."""
        n, s = self.shape[0], self._stages
        v = float64(v)
        if self._kronecker and tuple(v.shape) == (n,):
            v = float64(v.reshape(s, n // s).T)
        elif tuple(v.shape) not in ([(n // s, s)] if self._kronecker else [(n,), (n, 1)]):
            shapes = f"({n // s}, {s}) or ({n},)" if self._kronecker else f"({n},)"
            raise InvalidInput(f"{name} has shape {tuple(v.shape)}; expected {shapes}")
        return v

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        maxiter: int | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        """Solve A x = b.

        Parameters
        ----------
        b : array, shape (n,) or (n, k); of a Kronecker sum (N, s) or (N, s, k)
            On the host or on a GPU, where it stays, and x with it.
        x0 : array of the same shape, optional
            The first guess. The default is zero.
        rtol, atol, maxiter : optional
            Instead of those that the solver was made with, for this solve.
        callback : callable, optional
            As for `krylith.solve`.
        """
        if hasattr(b, "tocsr"):
            raise InvalidInput("b is a sparse matrix; give a dense array, such as b.toarray()")
        check_callback(callback)
        maxiter = count(maxiter)
        b = b if hasattr(b, "shape") else np.asarray(b)
        if b.ndim == (3 if self._kronecker else 2) and b.shape[-1] != 1:
            return self._columns(b, x0, rtol, atol, maxiter, callback)
        solution = self._one(b, x0, rtol, atol, maxiter, callback)
        warn(solution)
        return solution

    def _one(self, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, callback: Callback | None) -> Solution:
        flat = self._flat(b, "b")
        if x0 is None:
            x = empty_like(flat)
            x[...] = 0.0
        else:
            guess = self._flat(x0, "x0")
            x = empty_like(flat)
            x[...] = guess.reshape(x.shape)
        native, raised = self._native.solve(lend(flat.reshape(-1)), lend(x.reshape(-1)), rtol, atol, maxiter, callback)
        x = self._shaped(x, b.shape)
        if is_torch(b) and not is_torch(x):
            import torch

            x = torch.from_numpy(x)
        solution = Solution(x, native)
        if raised is None:
            return solution
        if isinstance(raised, KeyboardInterrupt):
            raise Interrupted(solution) from None
        raise raised

    def _shaped(self, x: Any, shape: Sequence[int]) -> Any:
        """A vector in the solver's order as the caller has his."""
        if self._kronecker and len(shape) == 1:
            x = x.T.reshape(-1)
        return x.reshape(tuple(shape))

    def _columns(self, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, callback: Callback | None) -> Solution:
        if b.shape[-1] == 0:
            raise InvalidInput("b has no columns")
        x0 = x0 if x0 is None or hasattr(x0, "shape") else np.asarray(x0)
        if x0 is not None and tuple(x0.shape) != tuple(b.shape):
            raise InvalidInput(f"x0 has shape {tuple(x0.shape)}; expected {tuple(b.shape)}, as b")
        x = empty_like(b) if is_torch(b) or on_device(b) else np.empty(b.shape)
        solutions = []
        for k in range(b.shape[-1]):
            guess = None if x0 is None else x0[..., k]
            try:
                solutions.append(self._one(b[..., k], guess, rtol, atol, maxiter, callback))
            except InvalidInput as e:
                raise InvalidInput(f"column {k}: {e}") from None
            x[..., k] = solutions[-1].x
        worst = max(solutions, key=lambda s: (not s.converged, s.true_residual))
        solution = Solution(x, worst._native, tuple(solutions))
        warn(solution)
        return solution

    def multiply(self, x: Any) -> Any:
        """A x, by the product of the solves, for x of shape (n,), on the host or on a GPU."""
        return self._apply(False, x)

    def precondition(self, x: Any) -> Any:
        """P⁻¹ x, by the preconditioner that is set up; x itself where there is none."""
        return self._apply(True, x)

    def _apply(self, preconditioner: bool, x: Any) -> Any:
        x = x if hasattr(x, "shape") else np.asarray(x)
        flat = self._flat(x, "x")
        y = empty_like(flat)
        with interrupts():
            self._native.apply(preconditioner, lend(flat.reshape(-1)), lend(y.reshape(-1)))
        return self._shaped(y, x.shape)

    def update_values(self, A: Any, *, refresh: str = "refresh") -> None:
        """Take new values of the same pattern.

        Parameters
        ----------
        A : sparse matrix or KroneckerSum of the same pattern, or an array
            An array has the numbers in the order in which the first matrix had them: its `data`. Of a Kronecker sum A, B and τ may be new too,
            and M and L arrays; the number of stages stays. What is refused changes nothing.
        refresh : {"refresh", "keep", "rebuild"}
            Whether the preconditioner is computed for the new values, stays as it is, or is built anew.
        """
        self._native.set_refresh(refresh)
        if self._kronecker:
            if not isinstance(A, KroneckerSum):
                raise InvalidInput("new values of a Kronecker sum come as a KroneckerSum")
            m, l = (new_values(matrix, parts) for matrix, parts in zip((A.M, A.L), self._parts))
            with interrupts():
                self._native.update_kronecker(A.A, A.B, A.tau, lend(m), lend(l))
            return
        values = new_values(A, self._parts[0])
        with interrupts():
            self._native.update(lend(values))

    def set_tau(self, tau: float) -> None:
        """Take a new τ of a Kronecker sum."""
        with interrupts():
            self._native.set_tau(tau)

    def cancel(self) -> None:
        """End the solve that another thread has under way: its outcome is `interrupted`."""
        self._native.cancel()


def _nodes(grid: Sequence[int]) -> list[int]:
    """Nodes in x, y and z."""
    if not 1 <= len(grid) <= 3 or not all(isinstance(n, (int, np.integer)) and 0 < n < 2**63 for n in grid):
        raise InvalidInput(f"`grid` is {tuple(grid)}; expected one to three whole numbers of nodes")
    return [int(n) for n in grid] + [1] * (3 - len(grid))


def _block_of_nodes(A: Any, nodes: int) -> int | None:
    """Unknowns of each of so many nodes, of a matrix that does not say it itself: what its pattern would suit may be another number."""
    rows = A.shape[0] if hasattr(A, "shape") and getattr(A, "format", "") != "bsr" and not isinstance(A, KroneckerSum) else 0
    return rows // nodes if rows % nodes == 0 and 1 <= rows // nodes <= _native.MAX_BLOCK else None


class _Once(Solver):
    """A system to be solved by one call."""

    _keeps = False


@contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C before there is a solution to go with it."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(None) from None


def check_callback(callback: Any) -> None:
    """Refuse a callback of other arguments before anything is solved."""
    if callback is None:
        return
    if not callable(callback):
        raise InvalidInput(f"`callback` is a {type(callback).__name__}; expected a function")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # one that does not say
        return
    try:
        signature.bind(0, 1.0)
    except TypeError:
        raise InvalidInput(f"`callback` is called with two numbers, the iteration and ‖r‖/‖b‖; this one takes {signature}") from None


def warn(solution: Solution) -> None:
    """Warn where the user's program called, of what did not converge, or converged by a criterion that may not be the one meant."""
    if not solution.converged:
        texts = [solution.verdict()]
    elif solution.row_scaled_residual is None or solution.row_scaled_residual <= solution.target:
        return
    else:
        texts = [event.detail for event in solution.events if event.kind == "warning"]
    # Frames of this package stand between.
    level, here = 1, os.path.dirname(__file__)
    frame: FrameType | None = sys._getframe(0)
    while frame is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    for text in texts:
        warnings.warn(text, ConvergenceWarning, stacklevel=level)


def solve(
    A: Any,
    b: Any,
    *,
    method: str = "auto",
    precond: str = "auto",
    rtol: float = 1e-6,
    atol: float = 0.0,
    maxiter: int | None = None,
    device: str = "auto",
    x0: Any = None,
    callback: Callback | None = None,
    block: int | None = None,
    nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
    near_nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
    coordinates: np.ndarray | None = None,
    grid: Sequence[int] | None = None,
    comm: Any = None,
    **options: Unpack[Options],
) -> Solution:
    """Solve A x = b.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        SciPy's, CuPy's or PyTorch's in any format. One in the memory of a GPU stays there and is solved there.
    b : array, shape (n,) or (n, k)
        Right-hand sides, on the host or on a GPU, where they stay.
    method : str
        `auto`, `cg`, `bicgstab`, `gmres`, `cbcg`, with options as in `gmres:restart=50`.
    precond : str
        `auto`, `none`, `jacobi`, `ildu`, `amg`, `ras`, `lu`, …, with options as in `ildu:fill=1`.
    rtol, atol : float
        Stop when ‖b − A x‖ ≤ max(rtol·‖b‖, atol).
    maxiter : int, optional
        Most iterations. The default is 10 000, and more for large systems.
    device : str
        `auto`, `cpu`, `cuda`, or `cuda:0,1` for GPUs by number.
    x0 : array, optional
        The first guess.
    callback : callable, optional
        Called with iteration and ‖r‖/‖b‖: every iteration on a CPU, every cycle or stretch of iterations on a GPU. An answer that is
        true ends the solve.
    block : int, optional
        Unknowns of a node. The default is the block size of a BSR matrix, else the one that suits the pattern.
    nullspace : "constant" or vectors, optional
        What A maps to zero, of a singular consistent system.
    near_nullspace : "rigid" or vectors, optional
        What A maps nearly to zero, for coarse levels.
    coordinates : array, shape (nodes, 2) or (nodes, 3), optional
        Where nodes lie.
    grid : sequence of int, optional
        Nodes in x, y and z, numbered with x fastest.
    comm : mpi4py communicator, optional
        Its ranks hold the system together: A has this rank's rows and all columns, ranks have runs of rows one after the other, and b
        and x are this rank's. Collective.
    **options
        restart, store ("f32"), threads, equilibrate, matching, zeros, time_limit, memory_limit and what else the guide names.

    Returns
    -------
    Solution
        With `x`, `outcome`, `iterations`, `residuals`, `plot()`. A solve that does not converge is not an error: it warns.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(100, 100))
    >>> solution = krylith.solve(A, np.ones(100))
    >>> solution.outcome
    'converged'
    >>> bool(np.linalg.norm(A @ solution.x - 1) <= 1e-6 * 10)
    True
    """
    solver = _Once(
        A, method=method, precond=precond, rtol=rtol, atol=atol, maxiter=maxiter, device=device, block=block,
        nullspace=nullspace, near_nullspace=near_nullspace, coordinates=coordinates, grid=grid, comm=comm, **options,
    )  # fmt: skip
    return solver.solve(b, x0, callback=callback)
