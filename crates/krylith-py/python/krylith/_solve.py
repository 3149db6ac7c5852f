"""`solve`, for one system."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from krylith._keywords import MethodName
from krylith._operator import Preconditioning, is_map
from krylith._options import Options
from krylith._report import Callback
from krylith._solution import Solution
from krylith._solver import Once

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack


def solve(
    A: Any,
    b: Any,
    *,
    method: MethodName | str = "auto",
    precond: Preconditioning = "auto",
    precond_matrix: Any = None,
    rtol: float = 1e-6,
    atol: float = 0.0,
    max_iters: int | None = None,
    device: str = "auto",
    x0: Any = None,
    callback: Callback | None = None,
    out: Any = None,
    verbose: bool = False,
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
    A : sparse matrix, KroneckerSum or operator
        A matrix of SciPy, CuPy or PyTorch in any format. A matrix in the memory of a GPU is solved on that
        GPU. A may be complex; sizes such as `block` then count complex unknowns. Or a linear map:
        a `krylith.DeviceOperator` on a GPU, or a `LinearOperator` or a function of host vectors, on the CPU. The
        method `auto` is then GMRES.
    b : array, shape (n,) or (n, k)
        Right-hand sides, on the host or on a GPU. x is on the same device.
    method : str
        `auto`, `cg`, `minres`, `bicgstab`, `gmres` or `cbcg`, with options such as `gmres:restart=50`.
    precond : str, operator or callable
        `auto`, `none`, `jacobi`, `ildu`, `amg`, `ras`, `lu`, …, with options such as `ildu:fill=1`. Or P⁻¹ as a
        preconditioner such as `krylith.ILDU(A)`, a `LinearOperator`, or a function of host vectors: then one
        process solves on the CPU, and the method `auto` is GMRES. Choose `fgmres` if P varies. A
        `krylith.DeviceOperator` is a function of vectors on a GPU.
    precond_matrix : sparse matrix, optional
        The matrix of the preconditioner, where A is a function: an approximation of A, of which `precond` names a
        preconditioner.
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
    out : array of the shape of b, optional
        Receives x, and is the `x` of the solution: contiguous numbers on the device of b. Their type is float64, or
        complex128 if A or b is complex. It may be x0.
    verbose : bool
        Print the progress and the solution.
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
        columns, in the order of the ranks, and its rows of b; x has the same rows. Of a KroneckerSum it passes
        these rows of M and L. Collective.
    **options
        restart, precision ("f32"), threads, equilibrate, matching, zeros, time_limit, memory_limit and others,
        which the guide lists.

    Returns
    -------
    Solution
        The result, with `x`, `outcome`, `iterations`, `residuals` and `plot()`. A solve that does not
        converge warns and raises no exception; the solution is then false, and `solution.check()` raises one.
        `x, info = krylith.solve(A, b)` unpacks it.

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
    if is_map(A) and not hasattr(A, "shape"):
        A = _WithShape(A, np.shape(b)[:1] * 2)
    solver = Once(
        A, method=method, precond=precond, precond_matrix=precond_matrix, rtol=rtol, atol=atol, max_iters=max_iters, device=device, block=block,
        nullspace=nullspace, near_nullspace=near_nullspace, coordinates=coordinates, grid=grid,
        fields=fields, matrices=matrices, comm=comm, verbose=verbose, **options,
    )  # fmt: skip
    return solver.solve(b, x0, callback=callback, out=out)


class _WithShape:
    """A function of host vectors with a shape."""

    def __init__(self, function: Any, shape: tuple[int, ...]) -> None:
        self.matvec, self.shape = function, shape
