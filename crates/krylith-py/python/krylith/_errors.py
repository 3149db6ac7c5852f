"""Exceptions and warnings. A solve that does not converge raises no exception; it warns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krylith._batch import BatchSolution
    from krylith._solution import Solution


class Error(Exception):
    """The base class of Krylith's exceptions; the text names the cause and the remedy."""


class InvalidInput(Error, ValueError):
    """An error that the caller can correct.

    Examples are sizes, indices or values that do not match, an unknown name, and a preconditioner that cannot
    be built.
    """


class DeviceError(Error, RuntimeError):
    """A driver, library or device is missing or fails."""


class OutOfMemory(Error, MemoryError):
    """The host or a device has not enough free memory."""


class NewPattern(InvalidInput):
    """New values do not fit the pattern that a solver has analysed; `on_new_pattern="rebuild"` takes them."""


class ConvergenceError(Error, RuntimeError):
    """A solve did not converge, and `Solution.check`, `spsolve` or a differentiable solve was called for its x.

    The text names the outcome and the residual; `solution` is the result, or that of a batch.
    """

    def __init__(self, solution: Solution | BatchSolution, which: str = "") -> None:
        super().__init__(which + solution._failure())
        self.solution, self._which = solution, which

    def __reduce__(self) -> tuple[type[ConvergenceError], tuple[Solution | BatchSolution, str]]:
        return type(self), (self.solution, self._which)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a solve or a set-up.

    After a solve, `solution` has the best x found so far; after a set-up it is None.
    """

    def __init__(self, solution: Solution | None) -> None:
        before = "interrupted before the first iteration; there is no x"
        after = (
            f"interrupted after {solution.iterations} iterations; "
            "the best x found so far is in the exception's `solution`"
            if solution is not None
            else before
        )
        super().__init__(after)
        self.solution = solution


class ConvergenceWarning(UserWarning):
    """A solve did not converge, or some rows are far from convergence.

    The text names the outcome and what to try.
    """


@contextmanager
def interrupts() -> Iterator[None]:
    """Turn Ctrl-C outside of a solve into `Interrupted`, without a solution."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(None) from None
