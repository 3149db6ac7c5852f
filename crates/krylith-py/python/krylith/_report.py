"""Events in Python's logging, progress on the terminal, and warnings."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from krylith._comm import rank_of
from krylith._errors import ConvergenceWarning, InvalidInput

if TYPE_CHECKING:
    from types import FrameType

    from krylith._solution import Solution

#: A function that is called with the iteration and ‖r‖/‖b‖; a true return value ends the solve.
Callback = Callable[[int, float], Any]

#: Gets the events of solvers: choices and restarts at level DEBUG, set-ups, fallbacks and outcomes at INFO,
#: and warnings at WARNING.
LOG = logging.getLogger("krylith")

_LEVELS = {"choice": logging.DEBUG, "restart": logging.DEBUG, "refinement": logging.DEBUG, "warning": logging.WARNING}

#: Seconds after which a line about progress follows, and the number of first iterations that all have one.
_EVERY, _FIRST = 0.5, 3


def check_callback(callback: Any) -> None:
    """Reject a callback that cannot be called with two numbers, before the solve."""
    if callback is None:
        return
    if not callable(callback):
        raise InvalidInput(f"`callback` is a {type(callback).__name__}; expected a function")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # the signature is not available
        return
    try:
        signature.bind(0, 1.0)
    except TypeError:
        raise InvalidInput(
            f"`callback` is called with two numbers, the iteration and ‖r‖/‖b‖; the signature is {signature}; "
            "a function of x alone is a callback of krylith.cg and the other methods by name"
        ) from None


def warn(solution: Solution) -> None:
    """Warn at the caller's line if a solve did not converge, or if its row-scaled residual is too large."""
    texts: list[str] = []
    if not solution.converged:
        texts = [solution.verdict()]
    elif solution.row_scaled_residual is not None and solution.row_scaled_residual > solution.target:
        texts = [event.detail for event in solution.events if event.kind == "warning"]
    log(solution, texts)
    if not texts:
        return
    # Skip the frames of this package.
    level, here = 1, os.path.dirname(__file__)
    frame: FrameType | None = sys._getframe(0)
    while frame is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    for text in texts:
        warnings.warn(text, ConvergenceWarning, stacklevel=level)


def log(solution: Solution, warned: list[str]) -> None:
    """Log the events of a solve and its outcome. Texts that are warnings too have level INFO here."""
    if not LOG.isEnabledFor(logging.INFO) and not solution._native.has_warnings:
        return  # events are copied at some cost
    for event in solution.events:
        level = logging.INFO if event.detail in warned else _LEVELS.get(event.kind, logging.INFO)
        LOG.log(level, "%s", event.detail)
    if LOG.isEnabledFor(logging.INFO):
        LOG.info(
            "%s after %d iterations: %s %.3e, wanted %.3e; %s with %s on %s, %.3g s",
            solution.outcome, solution.iterations,
            "‖b − A x‖/‖b‖" if (solution.criterion, solution.relative_to) == ("residual", "b") else solution.criterion,
            solution.criterion_value, solution.target,
            solution.method, solution.precond, solution.device, solution.seconds.solve,
        )  # fmt: skip


class Printer:
    """A callback that prints the progress of a solve, and calls the callback of the user."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback
        self._last = time.perf_counter()
        print("iteration  ‖r‖/‖b‖")

    def __call__(self, iteration: int, residual: float) -> Any:
        now = time.perf_counter()
        if iteration <= _FIRST or now - self._last > _EVERY:
            self._last = now
            print(f"{iteration:9}  {residual:.3e}", flush=True)
        return None if self._callback is None else self._callback(iteration, residual)


def progress(callback: Callback | None, verbose: bool, comm: Any) -> Callback | None:
    """Return a callback that also prints, if `verbose` asks for it; only the first rank prints."""
    return Printer(callback) if verbose and rank_of(comm) == 0 else callback
