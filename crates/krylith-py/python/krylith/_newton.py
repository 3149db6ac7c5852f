"""Newton–Krylov methods for F(x) = 0."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from krylith import _native
from krylith._arrays import copy_of, float64, held, is_complex, lend, like, on_device, on_host, remote
from krylith._errors import ConvergenceWarning, InvalidInput
from krylith._functions import caller, like_of, settle
from krylith._matrix import new_values, system_of
from krylith._options import count, options_text, threads_of
from krylith._report import LOG, check_callback


class NewtonStep(NamedTuple):
    """One step of Newton's method."""

    #: ‖F‖ before the step.
    before: float
    #: ‖F‖ after the step.
    after: float
    #: The tolerance η of the linear solve.
    forcing: float
    #: The outcome of the linear solve, its iterations, and the ‖J s + F‖/‖F‖ that it reached.
    linear: tuple[str, int, float]
    #: The step length of the line search.
    damping: float


class NewtonSolution:
    """The result of a Newton solve: x, the outcome and the steps."""

    def __init__(self, x: np.ndarray, report: dict[str, Any]) -> None:
        #: The best x found.
        self.x = x
        #: The outcome: `converged`, `max-steps`, `line-search`, `linear-solve`, `not-finite` or
        #: `interrupted`.
        self.outcome: str = report["outcome"]
        #: All steps.
        self.steps = [NewtonStep(*step) for step in report["steps"]]
        #: Events: the number of the step, and a description.
        self.events: list[tuple[int, str]] = report["events"]
        #: Seconds spent in F, in J, in set-ups of the linear solver and in its solves.
        self.seconds = dict(zip(("residual", "jacobian", "setup", "solve"), report["seconds"]))
        first, self.norm, self.target = report["norms"]
        #: ‖F‖ before the first step and after every step.
        self.norms = np.array([first] + [step.after for step in self.steps])

    @property
    def converged(self) -> bool:
        """True if ‖F(x)‖ meets the tolerance."""
        return self.outcome == "converged"

    @property
    def iterations(self) -> int:
        """Number of iterations of all linear solves."""
        return sum(step.linear[1] for step in self.steps)

    def __repr__(self) -> str:
        lines = [f"{self.outcome} after {len(self.steps)} steps, {self.iterations} linear iterations: ‖F‖ {self.norm:.3e}, wanted {self.target:.3e}"]
        lines += [
            f"  step {k + 1}: ‖F‖ {s.after:.3e}, η {s.forcing:.1e}, {s.linear[1]} iterations, λ {s.damping:.2g}"
            for k, s in enumerate(self.steps)
        ]
        return "\n".join(lines)


def _identity(n: int) -> Callable[[Any], Any]:
    """Return the Jacobian of a method without a matrix: the linear solves do not use it."""
    import scipy.sparse

    matrix = scipy.sparse.eye_array(n, format="csr")
    return lambda _: matrix


def _product(jvp: Callable[[Any, Any], Any], x0: Any) -> Callable[[Any], Callable[..., Any]]:
    """Return a function that takes the numbers of x and returns the product with the Jacobian at x."""
    library = like_of(x0) if on_device(x0) else None

    def at(numbers: Any) -> Callable[..., Any]:
        x = like(x0, numbers)
        if library is not None and type(numbers) is not np.ndarray:
            settle(x)  # the stream of the solver does not wait for that of the copy
            return caller(lambda v: jvp(x, v), library)
        return lambda v: on_host(float64(jvp(x, like(x0, v)))).reshape(-1)

    return at


def newton(
    residual: Callable[[np.ndarray], Any],
    jacobian: Callable[[np.ndarray], Any] | None,
    x0: Any,
    *,
    jvp: Callable[[Any, Any], Any] | None = None,
    method: str = "auto",
    precond: str = "auto",
    rtol: float = 1e-8,
    atol: float = 0.0,
    max_steps: int = 50,
    forcing: str | float = "ew",
    device: str = "auto",
    block: int | None = None,
    callback: Callable[[int, float], Any] | None = None,
    comm: Any = None,
    **options: Any,
) -> NewtonSolution:
    """Solve F(x) = 0 by an inexact Newton method with a line search.

    Parameters
    ----------
    residual : callable
        Returns F(x), an array of the shape of x.
    jacobian : callable
        Returns ∂F/∂x at x, a sparse matrix, on the host or on a GPU. Its pattern must always be the same; it is
        analysed once. Values on a GPU stay there. With `jvp`, the matrix only preconditions, and may be an
        approximation; None then means no preconditioner.
    x0 : array, shape (n,)
        Initial guess. If it is on a GPU, the functions get an x there, and the solution is there.
    jvp : callable, optional
        `jvp(x, v)` returns the product of the Jacobian at x with v, for a Jacobian-free method. Arrays are of the
        library of x0; CuPy and PyTorch work in their current stream. The linear method `auto` is GMRES.
    method, precond, device, block, **options
        Options of the linear solves, the same as for `krylith.solve`.
    rtol, atol : float
        Stop when ‖F(x)‖ ≤ max(rtol·‖F(x0)‖, atol).
    max_steps : int
        Limit of Newton steps.
    forcing : "ew" or float
        Relative tolerance of the linear solves: the choice of Eisenstat and Walker, or a number.
    callback : callable, optional
        Called with the number of finished steps and ‖F‖. If it returns a true value, the solve ends.
    comm : mpi4py communicator, optional
        The communicator whose ranks share the system. x and F have the rows of this rank, and J has consecutive
        rows with all columns, as for `krylith.solve`. The functions exchange ghosts themselves.

    Returns
    -------
    NewtonSolution
        The result, with `x`, `outcome` and `steps`. A solve that does not converge warns.

    Examples
    --------
    The Bratu problem −u″ = eᵘ with u = 0 at both ends:

    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> n = 50
    >>> K = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr") * (n + 1) ** 2
    >>> s = krylith.newton(lambda u: K @ u - np.exp(u), lambda u: K - sp.diags_array(np.exp(u)), np.zeros(n))
    >>> s.outcome, round(float(s.x.max()), 3)
    ('converged', 0.14)
    """
    max_steps = options.pop("maxiter", max_steps)  # the name of earlier versions
    x0 = float64(x0)
    if x0.ndim != 1:
        raise InvalidInput(f"x0 has shape {tuple(x0.shape)}; expected (n,)")
    check_callback(callback)
    if jacobian is None:
        if jvp is None:
            raise InvalidInput("newton needs `jacobian`, or `jvp`, which may have no matrix")
        if precond not in ("auto", "none"):
            raise InvalidInput(f"the preconditioner {precond!r} needs a matrix; pass `jacobian`, which may be an approximation")
        jacobian, precond = _identity(x0.shape[0]), "none"
    system, parts = system_of(jacobian(copy_of(x0)), block, comm, threads_of(options))
    parts = [one.kept() for one in parts]
    if any(is_complex(one.values) for one in parts):
        raise InvalidInput("the Jacobian is complex; split F into real and imaginary parts")
    if len(parts) != 1:
        raise InvalidInput("the Jacobian is a Kronecker sum; expected a matrix")
    gpu = parts[0].gpu
    product = None if jvp is None else _product(jvp, x0)
    if device == "auto" and gpu is not None:
        device = f"cuda:{gpu}"
    elif device == "auto" and jvp is not None:
        device = f"cuda:{remote(x0)[2]}" if on_device(x0) else "cpu"

    def values(v: Any) -> Any:
        new = new_values(jacobian(like(x0, v)), parts[0])
        if gpu is not None and not on_device(new):
            raise InvalidInput("the Jacobian was on a GPU at first and is now on the host; return it in one place")
        return held(new)

    def f(v: Any) -> Any:
        return held(float64(residual(like(x0, v))).reshape(-1))

    linear = options_text({"method": method, "precond": precond, "device": device}, options)
    x = copy_of(x0)
    report = _native.newton(system, f, values, lend(x), rtol, atol, count(max_steps, "max_steps") or 0, str(forcing), linear, callback, product)
    solution = NewtonSolution(x, report)
    for step, detail in solution.events:
        LOG.debug("step %d: %s", step, detail)
    LOG.info("Newton: %s after %d steps: ‖F‖ %.3e, wanted %.3e", solution.outcome, len(solution.steps), solution.norm, solution.target)
    if not solution.converged:
        text = (
            f"krylith: Newton's method did not converge ({solution.outcome}): "
            f"‖F‖ is {solution.norm:.2e}, and the target is {solution.target:.2e}"
        )
        warnings.warn(text, ConvergenceWarning, stacklevel=2)
    return solution
