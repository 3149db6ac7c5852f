"""Krylith as the direct solver of devsim: `krylith.contrib.devsim.install()`."""

from __future__ import annotations

import warnings
from array import array
from typing import Any

import numpy as np
import scipy.sparse as sp

from krylith._errors import ConvergenceWarning, Error
from krylith._solver import Solver

__all__ = ["install"]

#: Default options: devsim's rows have unlike units, and its Newton method expects a direct solver.
_DEFAULTS: dict[str, Any] = {"precond": "lu", "equilibrate": True, "rtol": 1e-12, "criterion": "rows"}


class _System:
    """A matrix of devsim, and its solver."""

    def __init__(self, size: int, transpose: bool) -> None:
        self.size, self.transpose = size, transpose
        self.solver: Solver | None = None
        self.dtype: type = float


def install(**options: Any) -> None:
    """Let devsim solve its linear systems with Krylith.

    Parameters
    ----------
    **options
        Options of `krylith.Solver`. By default rows are compared with their own size (`criterion="rows"`), and direct
        factors of the scaled matrix precondition (`precond="lu"`, `equilibrate=True`). A later matrix of the same pattern takes the analysis of the one before.

    Raises
    ------
    krylith.InvalidInput
        An unknown option.
    """
    import devsim

    whole = {**_DEFAULTS, **options}
    Solver(sp.identity(1, format="csr"), **whole)  # checks the options

    def callback(*, action: str, **given: Any) -> dict[str, Any]:
        if action == "init":
            system = _System(given["n"], given["transpose"])
            return {"solver_object": system, "matrix_format": "csr", "status": True, "message": None}
        system = given["solver_object"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                if action == "factor":
                    values, columns, rows = (np.asarray(given[name]) for name in ("Ax", "Ai", "Ap"))
                    before, system.dtype = system.dtype, complex if given["is_complex"] else float
                    # Parts of complex numbers alternate.
                    matrix = sp.csr_matrix((values.view(system.dtype), columns, rows), shape=(system.size, system.size))
                    if system.solver is None or system.dtype is not before:
                        system.solver = Solver(matrix, **whole)
                    else:
                        system.solver.update_values(matrix, on_new_pattern="rebuild")
                    return {"status": True, "message": None}
                b = np.asarray(given["b"]).view(system.dtype)
                solution = system.solver.solve(b, transpose=system.transpose).check()
                return {"status": True, "message": None, "x": array("d", solution.x.view(float).tobytes())}
        except Error as error:
            return {"status": False, "message": f"Krylith: {error}"}

    devsim.set_parameter(name="direct_solver", value="custom")
    devsim.set_parameter(name="solver_callback", value=callback)
