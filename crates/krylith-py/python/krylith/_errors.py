"""What can go wrong. Where a solve does not converge, that is an outcome and a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krylith._solution import Solution


class Error(Exception):
    """What the caller or the machine did wrong; its text names the thing and the remedy."""


class InvalidInput(Error, ValueError):
    """What the caller can mend: sizes, indices or values that do not fit, an unknown name, a preconditioner that cannot be built."""


class DeviceError(Error, RuntimeError):
    """The machine's part: a driver, library or device that is missing or fails."""


class OutOfMemory(Error, MemoryError):
    """There is no room on the host or on a device."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a solve, whose best x so far is in `solution`; or a set-up, and `solution` is None."""

    def __init__(self, solution: Solution | None) -> None:
        before = "before there was anything to solve with; there is no x"
        after = f"after {solution.iterations} iterations; the best x so far is in the exception's `solution`" if solution else before
        super().__init__(after)
        self.solution = solution


class ConvergenceWarning(UserWarning):
    """A solve ended without convergence, or with some rows far from it; its text names the outcome and what to try."""
