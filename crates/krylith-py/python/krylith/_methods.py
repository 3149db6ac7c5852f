"""Methods with SciPy's signatures, for matrices, operators and functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from krylith import _native
from krylith._arrays import float64, is_torch, on_device
from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._precond import Preconditioner
from krylith._options import options_text
from krylith._solver import Callback, _Once

#: SciPy's default restart length of GMRES.
_RESTART = 20


def _is_matrix(A: Any) -> bool:
    return hasattr(A, "tocsr") or is_torch(A) or isinstance(A, np.ndarray) or on_device(A)


def _function(operator: Any, n: int, name: str) -> Any:
    """Return a function of host vectors that applies a matrix, LinearOperator, preconditioner or function."""
    if isinstance(operator, Preconditioner):
        return operator.matvec
    if _is_matrix(operator):
        return _Once(operator, method="bicgstab", precond="none", device="cpu").multiply
    shape = getattr(operator, "shape", (n, n))
    if tuple(shape) != (n, n):
        raise InvalidInput(f"{name} is {shape[0]}×{shape[1]}, but b has {n} numbers")
    multiply = getattr(operator, "matvec", operator if callable(operator) else None)
    if multiply is None:
        raise InvalidInput(f"{name} is not an operator: {type(operator).__name__} has no matvec")
    return lambda v: float64(multiply(v)).reshape(-1)


def _krylov(
    method: str,
    A: Any,
    b: Any,
    x0: Any,
    rtol: float,
    atol: float,
    maxiter: int | None,
    M: Any,
    callback: Callable[[np.float64], Any] | None,
    **options: Any,
) -> tuple[Any, int]:
    if not isinstance(atol, (int, float, np.number)) or not atol >= 0:
        raise InvalidInput(f"`atol` is {atol!r}; expected a number of at least 0")
    b = b if hasattr(b, "shape") else np.asarray(b)
    n = b.shape[0] if b.ndim > 0 else 0
    if tuple(b.shape) not in ((n,), (n, 1)):
        raise InvalidInput(f"b has shape {tuple(b.shape)}; expected (n,) or (n, 1)")
    if isinstance(x0, str):
        if x0 != "Mb":
            raise InvalidInput(f"x0 is {x0!r}; expected an array or 'Mb'")
        x0 = b if M is None or isinstance(M, str) else _function(M, n, "M")(float64(b).reshape(-1))
    tell: Callback | None = None
    if callback is not None:
        told = callback

        # A SciPy callback cannot end a solve, and is not called before the first iteration.
        def tell(iteration: int, residual: float) -> None:
            if iteration > 0:
                told(np.float64(residual))

    if _is_matrix(A) and (M is None or isinstance(M, str)):
        solver = _Once(A, method=method, precond=M or "none", rtol=_finite(rtol), atol=_finite(atol), max_iters=maxiter, **options)
        if solver.shape[0] != n:
            raise InvalidInput(f"A is {solver.shape[0]}×{solver.shape[1]}, but b has {n} numbers")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solver.solve(b.reshape(-1), None if x0 is None else np.reshape(x0, -1) if not hasattr(x0, "reshape") else x0.reshape(-1), callback=tell)
        return solution.x, _info(solution.outcome, solution.iterations)
    if isinstance(M, str):
        raise InvalidInput(f"M={M!r} needs the entries of A; pass A as a matrix, or M as an operator")
    a = _function(A, n, "A")
    p = None if M is None else _function(M, n, "M")
    b = float64(b).reshape(-1)
    x = np.zeros(n) if x0 is None else np.array(x0, dtype=np.float64).reshape(-1)
    if x.shape != b.shape:
        raise InvalidInput(f"x0 has {x.size} numbers, but b has {n}")
    named = {"method": method, "rtol": _finite(rtol), "atol": _finite(atol), "max_iters": maxiter}
    outcome, iterations, _ = _native.solve_operators(a, p, b, x, options_text(named, options), tell)
    return x, _info(outcome, iterations)


def _finite(tolerance: float) -> float:
    """Replace an infinite tolerance by a finite one that every x meets."""
    return 1e300 if tolerance == np.inf else tolerance


def _info(outcome: str, iterations: int) -> int:
    """Return SciPy's `info`: 0 if converged, the iterations if it ended without breakdown, else -1."""
    if outcome == "converged":
        return 0
    return max(iterations, 1) if outcome in ("max-iterations", "interrupted", "stagnated", "rounding-limit") else -1


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by conjugate gradients, with the signature of `scipy.sparse.linalg.cg`.

    Parameters
    ----------
    A : matrix or operator
        A matrix of SciPy, CuPy or PyTorch, a `LinearOperator`, or a function of vectors.
    b, x0 : array, shape (n,) or (n, 1)
        Right-hand side and initial guess.
    rtol, atol : float
        Stop when ‖b − A x‖ ≤ max(rtol·‖b‖, atol), with the residual recomputed from x.
    maxiter : int, optional
        Iteration limit.
    M : operator or str, optional
        Approximation of the inverse of A: a preconditioner such as `krylith.ILDU`, a `LinearOperator`, a
        function, or, if A is a matrix, the name of a preconditioner.
    callback : callable, optional
        Called with ‖r‖/‖b‖. SciPy passes x instead, which is not available in every iteration here.
    **options
        The same as for `krylith.solve`.

    Returns
    -------
    x : array, shape (n,)
    info : int
        0 if the solve converged, the number of iterations if it did not, -1 after a breakdown.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = krylith.cg(A, np.ones(50), M=krylith.Jacobi(A))
    >>> info, bool(np.linalg.norm(A @ x - 1) <= 1e-5 * np.sqrt(50))
    (0, True)
    """
    return _krylov("cg", A, b, x0, rtol, atol, maxiter, M, callback, **options)


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by BiCGSTAB, with the signature of `scipy.sparse.linalg.bicgstab`.

    For the parameters, see `krylith.cg`.
    """
    return _krylov("bicgstab", A, b, x0, rtol, atol, maxiter, M, callback, **options)


def cbcg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by communication-avoiding conjugate gradients with a Chebyshev basis.

    For the parameters, see `krylith.cg`.
    """
    return _krylov("cbcg", A, b, x0, rtol, atol, maxiter, M, callback, **options)


def minres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by MINRES for a symmetric A that may be indefinite, as `scipy.sparse.linalg.minres`.

    M must be symmetric and positive definite. SciPy's `shift`, `show` and `check` are not available. For the
    parameters, see `krylith.cg`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array(np.where(np.arange(50) < 20, -1.0, 2.0), format="csr")
    >>> x, info = krylith.minres(A, np.ones(50))
    >>> info, bool(abs(A @ x - 1).max() < 1e-4)
    (0, True)
    """
    return _krylov("minres", A, b, x0, rtol, atol, maxiter, M, callback, **options)


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    callback_type: str | None = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by restarted GMRES, with the signature of `scipy.sparse.linalg.gmres`.

    The preconditioner is applied from the right. For other parameters, see `krylith.cg`.

    Parameters
    ----------
    restart : int, optional
        Iterations between restarts. The default is 20.
    maxiter : int, optional
        Limit of restart cycles, as in SciPy. With a callback whose type is not `pr_norm`, it is the limit of
        iterations.
    callback_type : str, optional
        `pr_norm` or `legacy`. The type `x` is not supported.
    """
    if callback_type not in (None, "legacy", "pr_norm"):
        raise InvalidInput(
            f"callback_type is {callback_type!r}; expected 'pr_norm' or 'legacy', "
            "as x is not available in every iteration"
        )
    cycle, most = _cycles(restart, maxiter, b)
    if callback is not None and callback_type != "pr_norm":
        most = maxiter
    return _krylov("gmres", A, b, x0, rtol, atol, most, M, callback, restart=cycle, **options)


def fgmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by flexible GMRES, for an M that varies between applications.

    For the parameters, see `krylith.gmres`.
    """
    cycle, most = _cycles(restart, maxiter, b)
    return _krylov("fgmres", A, b, x0, rtol, atol, most, M, callback, restart=cycle, **options)


def _cycles(restart: int | None, maxiter: int | None, b: Any) -> tuple[int, int | None]:
    cycle = min(restart or _RESTART, max(np.shape(b)[0] if not hasattr(b, "shape") else b.shape[0], 1))
    return cycle, None if maxiter is None else maxiter * cycle
