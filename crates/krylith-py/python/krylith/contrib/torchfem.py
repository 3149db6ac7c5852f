"""Krylith as the linear solver of torch-fem: `install()` puts it in the place of torch-fem's own.

    import krylith.contrib.torchfem
    krylith.contrib.torchfem.install()
    u, f, sigma, F, alpha = model.solve()
"""

# torch-fem and PyTorch may be missing where types are checked.
# mypy: disable-error-code="misc, no-any-return"

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torchfem.sparse

from krylith._errors import ConvergenceError, ConvergenceWarning
from krylith._solver import Solver

__all__ = ["install", "sparse_solve"]

#: The tolerance in place of a direct solve.
_DIRECT = 1e-12
#: The largest number of near-null vectors of Krylith.
_MODES = 8


def sparse_solve(**options: Any) -> Callable[..., Any]:
    """Return a function in place of `torchfem.sparse.sparse_solve`.

    Parameters
    ----------
    **options
        Options of `krylith.Solver`, such as `precond="amg"`.

    Returns
    -------
    callable
        A function with the arguments and results of torch-fem's. Krylith chooses the method and the preconditioner by
        its options alone. `stol` is the tolerance of ‖b − A x‖/‖b‖, and 1e-12 in place of a direct solve. The rigid
        modes `B` are near-null vectors. A matrix of the same pattern takes the set-up of the one before, and its
        transpose too. If a solve does not converge, it raises `torchfem.sparse.ConvergenceError`.
    """
    Solver(sp.identity(1, format="csr"), **options)  # checks the options
    kept: list[Any] = []
    lock = threading.Lock()

    def set_up(A: Any, B: Any, given: dict[str, Any]) -> Any:
        if kept and kept[0] == given and _same(kept[1], B):
            if not _same(kept[2], A):  # the matrix of an adjoint is that of before
                kept[3].update_values(A, on_new_pattern="rebuild")
        else:
            near = {} if B is None or not 0 < B.shape[1] <= _MODES else {"near_nullspace": list(B.T.double().numpy())}
            kept[:] = [given, B, A, Solver(A, **{**near, **given})]
        kept[2] = A.clone()  # torch-fem may write new values to the old ones
        return kept[3]

    def solve(
        A: Any,
        b: Any,
        B: Any = None,
        stol: float = 1e-10,
        device: str | None = None,
        method: str | None = None,
        preconditioner: str | None = None,
        M: Any = None,
        solver: Any = None,
    ) -> tuple[Any, Any, Any, int]:
        transpose = A.layout == torch.sparse_csc
        A = (A.t() if transpose else A).detach().cpu()
        B = None if B is None else B.detach().cpu()
        direct = torchfem.sparse.resolve_method(A.shape[0], method) == "direct"
        given = {"rtol": _DIRECT if direct else stol, **options}
        with warnings.catch_warnings(), lock:
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = set_up(A, B, given).solve(b.detach().cpu().double().numpy(), transpose=transpose)
        try:
            solution.check()
        except ConvergenceError as error:  # torch-fem tries a smaller increment
            raise torchfem.sparse.ConvergenceError(str(error)) from error
        x = torch.from_numpy(np.ascontiguousarray(solution.x)).to(dtype=b.dtype, device=b.device)
        return x, M, solver, 0 if direct else solution.iterations

    return solve


def _same(one: Any, other: Any) -> bool:
    """Return whether two tensors, sparse ones by rows, or None, are equal."""
    if one is None or other is None:
        return one is other
    if one.layout == torch.sparse_csr:
        parts = [(A.crow_indices(), A.col_indices(), A.values()) for A in (one, other)]
        return all(torch.equal(p, q) for p, q in zip(*parts))
    return torch.equal(one, other)


def install(**options: Any) -> None:
    """Make Krylith the linear solver of torch-fem's models, with options of `krylith.Solver`."""
    torchfem.sparse.sparse_solve = sparse_solve(**options)
