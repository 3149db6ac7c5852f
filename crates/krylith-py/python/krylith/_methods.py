"""Methods with SciPy's signatures, for matrices, operators and functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from krylith import _native
from krylith._arrays import numbers_of, on_device
from krylith._complex import dtype_of, reals, restored
from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._functions import device_of
from krylith._operator import function_of, is_matrix, refuse_beside_functions
from krylith._options import options_text
from krylith._report import Callback, progress
from krylith._solution import info_of
from krylith._solver import Once

#: SciPy's default restart length of GMRES.
_RESTART = 20

#: What a callback of a method gets: x after each iteration or restart cycle, or ‖r‖/‖b‖ after each iteration.
CallbackType = Literal["x", "pr_norm", "legacy"]

#: Options that a solve with functions uses; others belong to a matrix.
_OF_METHODS = ("restart", "orthogonalization", "reductions", "form", "s", "basis", "threads", "max_iters")


def _krylov(
    method: str,
    A: Any,
    b: Any,
    x0: Any,
    rtol: float,
    atol: float,
    maxiter: int | None,
    M: Any,
    callback: Callable[[Any], Any] | None,
    callback_type: CallbackType = "pr_norm",
    precond: Any = None,
    verbose: bool = False,
    **options: Any,
) -> tuple[Any, int, int]:
    """Solve, and return x, SciPy's `info` and the number of iterations."""
    if not isinstance(atol, (int, float, np.number)) or not atol >= 0:
        raise InvalidInput(f"`atol` is {atol!r}; expected a number of at least 0")
    if M is not None and precond is not None:
        raise InvalidInput("`precond` and `M` are both given; they are the same")
    for name in ("criterion", "relative_to"):
        if options.get(name) is not None:
            raise InvalidInput(
                f"`{name}` is not an option of krylith.{method}, which stops by SciPy's rule, ‖b − A x‖ ≤ max(rtol·‖b‖, atol); "
                "use krylith.solve"
            )
    M = precond if M is None else M
    b = b if hasattr(b, "shape") else np.asarray(b)
    n = b.shape[0] if b.ndim > 0 else 0
    if tuple(b.shape) not in ((n,), (n, 1)):
        raise InvalidInput(f"b has shape {tuple(b.shape)}; expected (n,) or (n, 1)")
    if isinstance(x0, str):
        if x0 != "Mb":
            raise InvalidInput(f"x0 is {x0!r}; expected an array or 'Mb'")
        guess = dtype_of(A, M, b)
        if M is not None and not isinstance(M, str) and device_of(A, M) is None:
            x0 = restored(function_of(M, n, "M", guess)(reals(numbers_of(b, guess)).reshape(-1)), guess)
        else:
            x0 = b
    if callback_type == "x" and callback is not None and on_device(b):
        raise InvalidInput("a callback gets x on the host, and b is on a GPU; pass callback_type='pr_norm'")
    tell: Callback | None = None
    view = callback if callback_type == "x" else None
    if callback is not None and view is None:
        told = callback

        # A SciPy callback cannot end a solve, and is not called before the first iteration.
        def after(iteration: int, residual: float) -> None:
            if iteration > 0:
                told(np.float64(residual))

        tell = after

    tell = progress(tell, verbose, options.get("comm"))
    named: dict[str, Any] = {"method": method, "rtol": _finite(rtol), "atol": _finite(atol), "max_iters": maxiter}
    a, p = A, M
    on_gpu = device_of(A, M) is not None
    if on_gpu or is_matrix(A) and (M is None or isinstance(M, str)):
        if on_gpu and (view is not None or isinstance(x0, str)):
            raise InvalidInput("functions of GPU vectors need callback_type='pr_norm', and x0 as an array")
        if view is not None:
            refuse_beside_functions(options, "a callback that gets x", "pass callback_type='pr_norm'")
            if M is not None and M.strip() == "auto":
                raise InvalidInput("M='auto' does not fit a callback that gets x; name a preconditioner, such as 'ildu'")
            options = {"device": "cpu", **options}
        solver = Once(A, precond="none" if M is None else M, **named, **options)
        if solver.shape[0] != n:
            raise InvalidInput(f"A is {solver.shape[0]}×{solver.shape[1]}, but b has {n} numbers")
        if view is None or n == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                solution = solver.solve(b.reshape(-1), None if x0 is None else np.reshape(x0, -1) if not hasattr(x0, "reshape") else x0.reshape(-1), callback=tell)
            return solution.x, info_of(solution.outcome, solution.iterations), solution.iterations
        a, p = solver.multiply, None if M is None else solver.precondition
        options = {key: options[key] for key in _OF_METHODS if key in options}
    if isinstance(p, str):
        raise InvalidInput(f"M={p!r} needs the entries of A; pass A as a matrix, or M as an operator")
    dtype = dtype_of(A, M, b, x0)
    a = function_of(a, n, "A", dtype)
    p = None if p is None else function_of(p, n, "M", dtype)
    b = numbers_of(b, dtype).reshape(-1)
    x = np.zeros(n, dtype) if x0 is None else np.array(x0, dtype=dtype).reshape(-1)
    if x.shape != b.shape:
        raise InvalidInput(f"x0 has {x.size} numbers, but b has {n}")
    if n == 0:
        return x, 0, 0
    if view is not None and dtype.kind == "c":
        shown, view = view, lambda of: shown(restored(of, dtype))
    text = options_text(named, options)
    outcome, iterations, _ = _native.solve_operators(a, p, reals(b), reals(x), text, tell, view)
    return x, info_of(outcome, iterations), iterations


def _finite(tolerance: float) -> float:
    """Replace an infinite tolerance by a finite one that every x meets."""
    return 1e300 if tolerance == np.inf else tolerance


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
    callback_type: Literal["x", "pr_norm"] = "x",
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by conjugate gradients, with the signature of `scipy.sparse.linalg.cg`.

    Parameters
    ----------
    A : matrix or operator
        A matrix of SciPy, CuPy or PyTorch, a `LinearOperator`, or a function of vectors.
    b, x0 : array, shape (n,) or (n, 1)
        Right-hand side and initial guess. If A, b, x0 or M is complex, x is complex128, and functions see complex
        vectors.
    rtol, atol : float
        Stop when ‖b − A x‖ ≤ max(rtol·‖b‖, atol), with the residual recomputed from x.
    maxiter : int, optional
        Iteration limit.
    M : operator or str, optional
        Approximation of the inverse of A: a preconditioner such as `krylith.ILDU`, a `LinearOperator`, a
        function, or, if A is a matrix, the name of a preconditioner. `precond` is another name of it.
    callback : callable, optional
        Called after each iteration.
    callback_type : {"x", "pr_norm"}
        What the callback gets: x, as in SciPy, or ‖r‖/‖b‖. For x, the vectors of the method stay on the host, and
        products with A and M are calls.
    **options
        The same as for `krylith.solve`, `verbose` included.

    Returns
    -------
    x : array, shape (n,)
    info : int
        0 if the solve converged or reached the limit of double precision, the number of iterations if it did not, -1
        after a breakdown.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> x, info = krylith.cg(A, np.ones(50), M=krylith.Jacobi(A))
    >>> info, bool(np.linalg.norm(A @ x - 1) <= 1e-5 * np.sqrt(50))
    (0, True)
    """
    _check_type(callback_type)
    return _krylov("cg", A, b, x0, rtol, atol, maxiter, M, callback, callback_type, **options)[:2]


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
    callback_type: Literal["x", "pr_norm"] = "x",
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by BiCGSTAB, with the signature of `scipy.sparse.linalg.bicgstab`.

    For the parameters, see `krylith.cg`.
    """
    _check_type(callback_type)
    return _krylov("bicgstab", A, b, x0, rtol, atol, maxiter, M, callback, callback_type, **options)[:2]


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
    callback_type: Literal["x", "pr_norm"] = "x",
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by communication-avoiding conjugate gradients with a Chebyshev basis.

    For the parameters, see `krylith.cg`.
    """
    _check_type(callback_type)
    return _krylov("cbcg", A, b, x0, rtol, atol, maxiter, M, callback, callback_type, **options)[:2]


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
    callback_type: Literal["x", "pr_norm"] = "x",
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
    _check_type(callback_type)
    return _krylov("minres", A, b, x0, rtol, atol, maxiter, M, callback, callback_type, **options)[:2]


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
    callback_type: CallbackType | None = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by restarted GMRES, with the signature of `scipy.sparse.linalg.gmres`.

    The preconditioner is applied from the right. For other parameters, see `krylith.cg`.

    Parameters
    ----------
    restart : int, optional
        Iterations between restarts. The default is 20.
    maxiter : int, optional
        Limit of restart cycles, as in SciPy; `info` counts them, too. With a callback of the type `legacy`, it is the
        limit of iterations.
    callback_type : {"x", "pr_norm", "legacy"}, optional
        What the callback gets: x after each restart cycle, or ‖r‖/‖b‖ after each iteration. `legacy`, the default, is
        `pr_norm` with `maxiter` as the limit of iterations; as in SciPy, relying on it warns.
    """
    return _restarted("gmres", A, b, x0, rtol, atol, restart, maxiter, M, callback, callback_type, options)


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
    callback_type: CallbackType | None = None,
    **options: Any,
) -> tuple[Any, int]:
    """Solve A x = b by flexible GMRES, for an M that varies between applications.

    For the parameters, see `krylith.gmres`.
    """
    return _restarted("fgmres", A, b, x0, rtol, atol, restart, maxiter, M, callback, callback_type or "pr_norm", options)


def _check_type(callback_type: Any, *more: str) -> None:
    known = ("x", "pr_norm", *more)
    if callback_type not in known:
        raise InvalidInput(f"callback_type is {callback_type!r}; expected {' or '.join(map(repr, known))}")


def _restarted(
    method: str, A: Any, b: Any, x0: Any, rtol: float, atol: float, restart: int | None, maxiter: int | None, M: Any,
    callback: Any, callback_type: CallbackType | None, options: Mapping[str, Any],
) -> tuple[Any, int]:  # fmt: skip
    """Solve by GMRES or FGMRES, whose `maxiter` and `info` count restart cycles."""
    if callback is not None and callback_type is None:
        text = "krylith.gmres called without specifying `callback_type`. SciPy will change its default from 'legacy' to 'x'"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    callback_type = callback_type or "legacy"
    _check_type(callback_type, "legacy")
    b = b if hasattr(b, "shape") else np.asarray(b)
    numbers = max(b.shape[0] if b.ndim > 0 else 0, 1) * (2 if dtype_of(A, M, b, x0).kind == "c" else 1)
    cycle = min(restart or _RESTART, numbers)
    counts_cycles = callback is None or callback_type != "legacy"
    most = maxiter * cycle if counts_cycles and maxiter is not None else maxiter
    x, info, iterations = _krylov(
        method, A, b, x0, rtol, atol, most, M, callback, callback_type, restart=cycle, **options
    )
    return x, -(-iterations // cycle) if info > 0 and counts_cycles and maxiter is not None else info
