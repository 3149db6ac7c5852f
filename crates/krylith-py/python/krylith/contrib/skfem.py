"""Krylith as a solver of scikit-fem: `solve(A, b, solver=solver())`.

>>> import numpy as np, scipy.sparse as sp
>>> from krylith.contrib.skfem import solver
>>> A = sp.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(50, 50), format="csr")
>>> x = solver()(A, np.ones(50))            # as skfem.solve(A, b, solver=solver()) calls it
>>> bool(np.abs(A @ x - 1).max() < 1e-10)
True
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

from krylith._errors import ConvergenceWarning
from krylith._solver import Solver

__all__ = ["solver"]

#: Words of SciPy's spsolve, which callers of scikit-fem pass on. They choose how it works, not what it
#: returns.
_OF_SPSOLVE = ("use_umfpack", "permc_spec")


def solver(*, rtol: float = 1e-12, **options: Any) -> Callable[..., Any]:
    """Return a solver for `skfem.solve`, in place of SciPy's direct solver.

    Parameters
    ----------
    rtol : float
        The tolerance of ‖b − A x‖/‖b‖. Its default is that of a direct solver.
    **options
        Options of `krylith.Solver`, such as `precond="amg"`.

    Returns
    -------
    callable
        A function of A, b of shape (n,) or (n, k), and options, that returns x. A later A of the same pattern takes the
        set-up of the one before. If a solve does not converge, it raises `krylith.ConvergenceError`.
    """
    kept: list[tuple[dict[str, Any], Solver]] = []
    lock = threading.Lock()

    def solve(A: Any, b: Any, **more: Any) -> Any:
        given = {"rtol": rtol, **options, **{key: value for key, value in more.items() if key not in _OF_SPSOLVE}}
        with warnings.catch_warnings(), lock:
            warnings.simplefilter("ignore", ConvergenceWarning)
            if kept and kept[0][0] == given:
                kept[0][1].update_values(A, on_new_pattern="rebuild")
            else:
                kept[:] = [(given, Solver(A, **given))]
            solution = kept[0][1].solve(b)
        return solution.check().x

    return solve
