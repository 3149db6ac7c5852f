"""`solve` for one system, and `Solver` for many systems of the same pattern."""

from __future__ import annotations

import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from krylith import _native
from krylith._arrays import empty_like, float64, is_torch, lend, on_device, zeros_like
from krylith._errors import ConvergenceWarning, Interrupted, InvalidInput
from krylith._fields import arrays_of, joined, with_fields
from krylith._matrix import KroneckerSum, new_values, system_of
from krylith._options import Options, count, options_text, threads_of
from krylith._solution import Solution

if TYPE_CHECKING:
    from types import FrameType

    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack


#: A function that is called with the iteration and ‖r‖/‖b‖; a true return value ends the solve.
Callback = Callable[[int, float], Any]


class Solver:
    """A system on its device, ready for many solves.

    The system is analysed once for its pattern, the device and the options; later solves and new values do
    not repeat the analysis. Calls of several threads on the same solver wait for each other.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        A matrix of SciPy, CuPy or PyTorch in any format. A matrix in the memory of a GPU stays there.
    method, precond : str
        The same as for `krylith.solve`, like all other parameters.

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

    #: True to keep the pattern, against which new values are checked.
    _keeps = True

    def __init__(
        self,
        A: Any,
        *,
        method: str = "auto",
        precond: str = "auto",
        rtol: float = 1e-6,
        atol: float = 0.0,
        max_iters: int | None = None,
        device: str = "auto",
        block: int | None = None,
        nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
        near_nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
        coordinates: np.ndarray | None = None,
        grid: Sequence[int] | None = None,
        fields: Any = None,
        matrices: Mapping[str, Any] | None = None,
        comm: Any = None,
        **options: Unpack[Options],
    ) -> None:
        A, fields = joined(A, fields)
        nodes = None if grid is None else _nodes(grid)
        if nodes is not None and block is None and comm is None:
            block = _block_of_nodes(A, math.prod(nodes))
        named = {"method": method, "precond": precond, "rtol": rtol, "atol": atol, "max_iters": max_iters}
        with interrupts():
            # Fields and null vectors are looked at on the host.
            early = fields is None and matrices is None and nullspace is None
            text = options_text(named | {"device": device}, dict(options)) if early else None
            system, parts = system_of(A, block, comm, threads_of(options), text)
        self._parts = [one.kept() for one in parts] if self._keeps else parts
        self._kronecker = isinstance(A, KroneckerSum)
        self._stages = system.stages
        #: Number of rows that this process holds, and number of columns.
        self.shape: tuple[int, int] = (system.own, system.unknowns)
        if coordinates is not None:
            system = system.with_coordinates(np.ascontiguousarray(coordinates, dtype=np.float64))
        if nodes is not None:
            system = system.with_grid(nodes)
        if fields is not None or matrices is not None:
            with interrupts():
                system = with_fields(system, fields, matrices)
        if nullspace is not None:
            system = system.with_null_vectors(self._vectors("nullspace", nullspace, "constant"))
        if near_nullspace is not None:
            system = system.with_near_null_vectors(self._vectors("near_nullspace", near_nullspace, "rigid"))
        gpu = self._parts[0].gpu
        if device == "auto" and gpu is not None:
            device = f"cuda:{gpu}"
        with interrupts():
            self._native = _native.Solver(system, options_text(named | {"device": device}, dict(options)))

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
        """Return a vector in the order of the solver, contiguous."""
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
        max_iters: int | None = None,
        maxiter: int | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        """Solve A x = b.

        Parameters
        ----------
        b : array, shape (n,) or (n, k); for a Kronecker sum (N, s) or (N, s, k)
            Right-hand sides, on the host or on a GPU. x is on the same device.
        x0 : array of the same shape, optional
            Initial guess. The default is zero.
        rtol, atol, max_iters : optional
            Tolerances and iteration limit of this solve. The defaults are those of the solver.
        callback : callable, optional
            The same as for `krylith.solve`.

        Returns
        -------
        Solution
            The same as for `krylith.solve`.
        """
        if hasattr(b, "tocsr"):
            raise InvalidInput("b is a sparse matrix; pass a dense array, such as b.toarray()")
        check_callback(callback)
        if max_iters is None:
            max_iters = count(maxiter, "maxiter")
        elif maxiter is not None:
            raise InvalidInput("`max_iters` is given twice, once as `maxiter`")
        max_iters = count(max_iters)
        b = b if hasattr(b, "shape") else np.asarray(b)
        if b.ndim == (3 if self._kronecker else 2) and b.shape[-1] != 1:
            return self._columns(b, x0, rtol, atol, max_iters, callback)
        solution = self._one(b, x0, rtol, atol, max_iters, callback)
        warn(solution)
        return solution

    def _one(self, b: Any, x0: Any, rtol: Any, atol: Any, max_iters: Any, callback: Callback | None) -> Solution:
        flat = self._flat(b, "b")
        if x0 is None:
            x = zeros_like(flat)
        else:
            guess = self._flat(x0, "x0")
            x = empty_like(flat)
            x[...] = guess.reshape(x.shape)
        native, raised = self._native.solve(lend(flat.reshape(-1)), lend(x.reshape(-1)), rtol, atol, max_iters, callback)
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
        """Return a vector of the solver in the caller's ordering."""
        if self._kronecker and len(shape) == 1:
            x = x.T.reshape(-1)
        return x.reshape(tuple(shape))

    def _columns(self, b: Any, x0: Any, rtol: Any, atol: Any, max_iters: Any, callback: Callback | None) -> Solution:
        if b.shape[-1] == 0:
            raise InvalidInput(f"b has shape {tuple(b.shape)}; expected at least one column")
        x0 = x0 if x0 is None or hasattr(x0, "shape") else np.asarray(x0)
        if x0 is not None and tuple(x0.shape) != tuple(b.shape):
            raise InvalidInput(f"x0 has shape {tuple(x0.shape)}; expected the shape of b, {tuple(b.shape)}")
        x = empty_like(b) if is_torch(b) or on_device(b) else np.empty(b.shape)
        solutions = []
        for k in range(b.shape[-1]):
            guess = None if x0 is None else x0[..., k]
            try:
                solutions.append(self._one(b[..., k], guess, rtol, atol, max_iters, callback))
            except InvalidInput as e:
                raise InvalidInput(f"column {k}: {e}") from None
            x[..., k] = solutions[-1].x
        worst = max(solutions, key=lambda s: (not s.converged, s.true_residual))
        solution = Solution(x, worst._native, tuple(solutions))
        warn(solution)
        return solution

    def multiply(self, x: Any) -> Any:
        """Return A x, computed on the device of the solver, for x of shape (n,) on the host or on a GPU."""
        return self._apply(False, x)

    def precondition(self, x: Any) -> Any:
        """Return P⁻¹ x, with the preconditioner that is set up; without one, return a copy of x."""
        return self._apply(True, x)

    def _apply(self, preconditioner: bool, x: Any) -> Any:
        x = x if hasattr(x, "shape") else np.asarray(x)
        flat = self._flat(x, "x")
        y = empty_like(flat)
        with interrupts():
            self._native.apply(preconditioner, lend(flat.reshape(-1)), lend(y.reshape(-1)))
        return self._shaped(y, x.shape)

    def update_values(self, A: Any, *, refresh: str = "refresh", matrices: Mapping[str, Any] | None = None) -> None:
        """Set new values with the same pattern.

        If the new values are rejected, nothing changes.

        Parameters
        ----------
        A : sparse matrix or KroneckerSum of the same pattern, or an array
            An array holds the numbers in the order of the first matrix, like its `data`. A Kronecker sum may
            also have new A, B and τ, with the same number of stages, and its M and L may be arrays.
        refresh : {"refresh", "keep", "rebuild"}
            Recompute the preconditioner for the new values in its existing structure, keep it as it is, or
            build it again.
        matrices : dict, optional
            New values of matrices that the preconditioner names, with the pattern of the old ones.
        """
        for name, matrix in (matrices or {}).items():
            self._native.set_matrix(name, arrays_of(matrix))
        self._native.set_refresh(refresh)
        if self._kronecker:
            if not isinstance(A, KroneckerSum):
                raise InvalidInput("new values of a Kronecker sum must be a KroneckerSum")
            m, l = (new_values(matrix, parts) for matrix, parts in zip((A.M, A.L), self._parts))
            with interrupts():
                self._native.update_kronecker(A.A, A.B, A.tau, lend(m), lend(l))
            return
        values = new_values(A, self._parts[0])
        with interrupts():
            self._native.update(lend(values))

    def set_tau(self, tau: float) -> None:
        """Set a new τ of a Kronecker sum."""
        with interrupts():
            self._native.set_tau(tau)

    def cancel(self) -> None:
        """End the solve that another thread runs; its outcome is `interrupted`."""
        self._native.cancel()


def _nodes(grid: Sequence[int]) -> list[int]:
    """Return the numbers of nodes in x, y and z."""
    if not 1 <= len(grid) <= 3 or not all(isinstance(n, (int, np.integer)) and 0 < n < 2**63 for n in grid):
        raise InvalidInput(
            f"`grid` is {tuple(grid)}; expected one to three positive integers, the numbers of nodes in x, y and z"
        )
    return [int(n) for n in grid] + [1] * (3 - len(grid))


def _block_of_nodes(A: Any, nodes: int) -> int | None:
    """Return the number of unknowns of each node.

    It may differ from the block size that suits the pattern.

    Return None if A has its own block size, or if its rows cannot be divided among `nodes` nodes.
    """
    rows = A.shape[0] if hasattr(A, "shape") and getattr(A, "format", "") != "bsr" and not isinstance(A, KroneckerSum) else 0
    return rows // nodes if rows % nodes == 0 and 1 <= rows // nodes <= _native.MAX_BLOCK else None


class _Once(Solver):
    """A solver for a single call, which does not accept new values."""

    _keeps = False


@contextmanager
def interrupts() -> Iterator[None]:
    """Turn Ctrl-C outside of a solve into `Interrupted`, without a solution."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(None) from None


def check_callback(callback: Any) -> None:
    """Reject a callback with other arguments before the solve starts."""
    if callback is None:
        return
    if not callable(callback):
        raise InvalidInput(f"`callback` is a {type(callback).__name__}; expected a function")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # the signature is not available
        return
    try:
        signature.bind(0, 1.0)
    except TypeError:
        raise InvalidInput(
            f"`callback` is called with two numbers, the iteration and ‖r‖/‖b‖; the signature is {signature}"
        ) from None


def warn(solution: Solution) -> None:
    """Warn at the caller's line if a solve did not converge, or if its row-scaled residual is too large."""
    if not solution.converged:
        texts = [solution.verdict()]
    elif solution.row_scaled_residual is None or solution.row_scaled_residual <= solution.target:
        return
    else:
        texts = [event.detail for event in solution.events if event.kind == "warning"]
    # Skip the frames of this package.
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
    max_iters: int | None = None,
    device: str = "auto",
    x0: Any = None,
    callback: Callback | None = None,
    block: int | None = None,
    nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
    near_nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
    coordinates: np.ndarray | None = None,
    grid: Sequence[int] | None = None,
    fields: Any = None,
    matrices: Mapping[str, Any] | None = None,
    comm: Any = None,
    **options: Unpack[Options],
) -> Solution:
    """Solve A x = b.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        A matrix of SciPy, CuPy or PyTorch in any format. A matrix in the memory of a GPU is solved on that
        GPU.
    b : array, shape (n,) or (n, k)
        Right-hand sides, on the host or on a GPU. x is on the same device.
    method : str
        `auto`, `cg`, `minres`, `bicgstab`, `gmres` or `cbcg`, with options such as `gmres:restart=50`.
    precond : str
        `auto`, `none`, `jacobi`, `ildu`, `amg`, `ras`, `lu`, …, with options such as `ildu:fill=1`.
    rtol, atol : float
        Stop when ‖b − A x‖ ≤ max(rtol·‖b‖, atol).
    max_iters : int, optional
        Iteration limit. The default is 10 000, and more for large systems.
    device : str
        `auto`, `cpu`, `cuda`, or `cuda:0,1` for GPUs by number.
    x0 : array, optional
        Initial guess. The default is zero.
    callback : callable, optional
        Called with the iteration and ‖r‖/‖b‖. It is called in every iteration on a CPU, and after several
        iterations on a GPU. A true return value ends the solve.
    block : int, optional
        Number of unknowns of a node. The default is the block size of a BSR matrix, or else the one that
        suits the pattern.
    nullspace : "constant" or vectors, optional
        Null vectors of A, for a singular consistent system.
    near_nullspace : "rigid" or vectors, optional
        Near-null vectors of A, for the coarse levels of algebraic multigrid.
    coordinates : array, shape (nodes, 2) or (nodes, 3), optional
        Positions of the nodes.
    grid : sequence of int, optional
        Numbers of nodes in x, y and z; nodes are numbered with x fastest.
    fields : dict, optional
        Names of parts of the unknowns, for preconditioners such as `split(u: amg, p: jacobi; S=selfp)`. Each name
        has a slice, a range, or an array of numbers or booleans. It may also have a dictionary with the keys
        `unknowns`, `block`, `near_nullspace` (vectors or "rigid") and `coordinates`. If A is a list of lists of
        blocks, such as `[[A, B], [C, None]]`, the names alone are enough. In a Kronecker sum, the fields are those
        of one stage.
    matrices : dict, optional
        Matrices that the preconditioner names, such as `{"Mp": M}` for `split(u: amg, p: jacobi; S=Mp)`.
    comm : mpi4py communicator, optional
        The communicator whose ranks share the system. Each rank passes consecutive rows of A, with all
        columns, in the order of the ranks, and its rows of b; x has the same rows. Collective.
    **options
        restart, precision ("f32"), threads, equilibrate, matching, zeros, time_limit, memory_limit and others,
        which the guide lists.

    Returns
    -------
    Solution
        The result, with `x`, `outcome`, `iterations`, `residuals` and `plot()`. A solve that does not
        converge warns and raises no exception.

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
        A, method=method, precond=precond, rtol=rtol, atol=atol, max_iters=max_iters, device=device, block=block,
        nullspace=nullspace, near_nullspace=near_nullspace, coordinates=coordinates, grid=grid,
        fields=fields, matrices=matrices, comm=comm, **options,
    )  # fmt: skip
    return solver.solve(b, x0, callback=callback)
