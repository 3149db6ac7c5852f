"""Functions with the signatures of SciPy's direct solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from krylith._arrays import is_torch, on_device
from krylith._complex import FORMS, Form
from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._operator import Operator
from krylith._solver import Once, Solver

#: The default tolerance: callers of a direct solver do not look at residuals.
_RTOL = 1e-10


class Factors(Operator):
    """The result of `krylith.splu`: sparse direct factors of a matrix, as an operator A⁻¹.

    It has the `solve` of SciPy's `SuperLU`. The factors themselves (`L`, `U`, `perm_c`) are not available.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.shape, self.dtype = solver.shape, solver.dtype

    def solve(self, rhs: Any, trans: Literal["N", "T", "H"] = "N", *, out: Any = None) -> Any:
        """Return x with A x = rhs, for rhs of shape (n,) or (n, k).

        Parameters
        ----------
        rhs : array
            Right-hand sides.
        trans : {"N", "T", "H"}
            Solve with A, with its transpose or with its adjoint.
        out : array, optional
            The same as for `krylith.Solver.solve`.
        """
        if trans not in FORMS:
            raise InvalidInput(f"`trans` is {trans!r}; expected 'N', 'T' or 'H'")
        return self._map(rhs, out, FORMS[trans])

    def _map(self, v: Any, out: Any, form: Form) -> Any:
        return _checked(self._solver, v, out, form)

    def update_values(self, A: Any, *, on_new_pattern: Literal["raise", "rebuild"] = "raise") -> None:
        """Factor a matrix with new values and the same pattern, as `krylith.Solver.update_values` does."""
        self._solver.update_values(A, on_new_pattern=on_new_pattern)
        self.shape, self.dtype = self._solver.shape, self._solver.dtype

    def __repr__(self) -> str:
        return f"<krylith.Factors {self.shape[0]}×{self.shape[1]}>"


def _checked(solver: Solver, b: Any, out: Any = None, form: Form = Form.PLAIN) -> Any:
    """Return x; an exception, and no warning, says that there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = solver._solve(b, None, form, out)
    return solution.check().x


def spsolve(
    A: Any, b: Any, permc_spec: Any = None, use_umfpack: Any = True, *, rtol: float = _RTOL, out: Any = None, **options: Any
) -> Any:
    """Solve A x = b, with the signature of `scipy.sparse.linalg.spsolve`.

    Krylith chooses among direct factors and iterative methods, as in `krylith.solve`.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        The same as for `krylith.solve`.
    b : array or sparse matrix, shape (n,) or (n, k)
        Right-hand sides.
    permc_spec, use_umfpack
        Not used: they choose among the orderings and libraries of SciPy.
    rtol : float
        The relative residual to reach. A residual at the limit of double precision is accepted, too.
    out : array, optional
        The same as for `krylith.solve`.
    **options
        The same as for `krylith.solve`.

    Returns
    -------
    x : array of the shape of b, or (n,) if b has one column; sparse if b is sparse

    Raises
    ------
    krylith.ConvergenceError
        If no x was found that is good enough. SciPy warns of a singular matrix, and returns NaN.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.csc_array([[3.0, 2, 0], [1, -1, 0], [0, 5, 1]])
    >>> krylith.spsolve(A, [2.0, 4, -1]).round(9).tolist()
    [2.0, -2.0, 9.0]
    """
    sparse = b if hasattr(b, "tocsr") else None
    b = b.toarray() if sparse is not None else b if is_torch(b) or on_device(b) else np.asarray(b)
    x = _checked(Once(A, rtol=rtol, **options), b, out)
    if sparse is not None:
        return type(sparse)(x)
    return x.reshape(-1) if out is None and b.ndim == 2 and b.shape[1] == 1 else x


def splu(
    A: Any,
    permc_spec: Any = None,
    diag_pivot_thresh: Any = None,
    relax: Any = None,
    panel_size: Any = None,
    options: Any = None,
    **krylith_options: Any,
) -> Factors:
    """Factor a sparse matrix, with the signature of `scipy.sparse.linalg.splu`.

    The factors precondition a method that refines x to a relative residual of 1e-12, or to the limit of double
    precision. The factors are on the CPU.

    Parameters
    ----------
    A : sparse matrix
        The same as for `krylith.solve`.
    permc_spec, diag_pivot_thresh, relax, panel_size, options
        Not used: they are those of SuperLU.
    **krylith_options
        Options of `krylith.Solver`, such as `rtol` or `threads`.

    Returns
    -------
    Factors
        An object with `solve(b)`, `shape` and `update_values(A)`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> lu = krylith.splu(sp.csc_array([[2.0, 1], [0, 4]]))
    >>> lu.solve(np.array([3.0, 4.0])).round(9).tolist()
    [1.0, 1.0]
    """
    given: dict[str, Any] = {"precond": "lu", "device": "cpu", "rtol": 1e-12} | krylith_options
    return Factors(Solver(A, **given))


def factorized(A: Any, **options: Any) -> Callable[[Any], Any]:
    """Return a function that solves A x = b, as `scipy.sparse.linalg.factorized`.

    The options are those of `krylith.splu`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> solve = krylith.factorized(sp.csc_array([[2.0, 1], [0, 4]]))
    >>> solve(np.array([3.0, 4.0])).round(9).tolist()
    [1.0, 1.0]
    """
    return splu(A, **options).solve
