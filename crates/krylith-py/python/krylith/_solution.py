"""Results of solves."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from krylith import _native
from krylith._arrays import on_host
from krylith._errors import ConvergenceError
from krylith._keywords import OutcomeName
from krylith._record import Record


def is_success(outcome: str) -> bool:
    """Return True if x meets the tolerance, or is as good as double precision allows."""
    return outcome in ("converged", "rounding-limit")


def info_of(outcome: str, iterations: int) -> int:
    """Return SciPy's `info`: 0 after success, the iterations if the solve ended without breakdown, else -1."""
    if is_success(outcome):
        return 0
    return max(iterations, 1) if outcome in ("max-iterations", "interrupted", "stagnated") else -1


class Event(NamedTuple):
    """An event during a solve."""

    #: The kind: `choice`, `fallback`, `refinement`, `restart`, `inconsistent`, `warning` or `interrupted`.
    kind: str
    #: The iteration at which it happened first, or None.
    iteration: int | None
    #: A description, with how often it happened if more than once.
    detail: str


class Seconds(NamedTuple):
    """Times of a solve, in seconds."""

    #: The set-up, from the arrays in memory to the first iteration.
    setup: float
    #: The iterations.
    solve: float
    #: The parts of the set-up, by name.
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds of set-up and iterations together."""
        return self.setup + self.solve


class Plot:
    """A plot of the residuals, which notebooks display."""

    def __init__(self, curve: _native.Curve, title: str) -> None:
        self._curve, self._title = curve, title
        #: The plot as SVG text.
        self.svg = curve.svg(title)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plot to a file whose name ends in .png or .svg."""
        self._curve.write(self._title, path)


class Solution:
    """The result of a solve.

    Its text is the summary that the `krylith` command prints; a notebook also displays the plot. For several
    right-hand sides, `columns` has a solution for each of them, and the other attributes describe the one
    with the worst convergence. For a real A and a complex b, `columns` has the solution of the real part and that of
    the imaginary part.

    A solution is true if x is as good as was asked for, or as good as double precision allows: the outcome is
    `converged` or `rounding-limit`. It can be unpacked as SciPy's results, `x, info = krylith.solve(A, b)`.
    """

    def __init__(self, x: Any, native: _native.Solution | Record, columns: tuple[Solution, ...] = ()) -> None:
        #: The solution x, with the shape, array type and device of b.
        self.x = x
        #: A solution for each column of b, if b has several columns.
        self.columns = columns
        self._native = native

    def __bool__(self) -> bool:
        return all(is_success(one.outcome) for one in self.columns or (self,))

    def check(self) -> Solution:
        """Return the solution if it is true; otherwise raise `krylith.ConvergenceError`, which names the outcome."""
        if not self:
            raise ConvergenceError(self)
        return self

    @property
    def info(self) -> int:
        """SciPy's `info`: 0 if the solution is true, the iterations if it is not, -1 after a breakdown."""
        return 0 if self else info_of(self.outcome, self.iterations)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.info))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        x = on_host(self.x)
        return x.astype(dtype) if dtype is not None else x.copy() if copy else x

    def __reduce__(self) -> tuple[type[Solution], tuple[Any, ...]]:
        return type(self), (self.x, Record.of(self._native), self.columns)

    @property
    def outcome(self) -> OutcomeName:
        """How the solve ended.

        `converged`, `max-iterations`, `breakdown`, `stagnated`, `rounding-limit`, `inconsistent`, `diverged`,
        `not-finite` or `interrupted`.
        """
        return self._native.outcome

    @property
    def converged(self) -> bool:
        """True if b − A x, recomputed from x, meets the tolerance for every column, in the chosen criterion."""
        return self.outcome == "converged"

    @property
    def iterations(self) -> int:
        """Number of iterations of all attempts."""
        return self._native.iterations

    @property
    def restarts(self) -> int:
        """Number of restarts of the method."""
        return self._native.restarts

    @property
    def residuals(self) -> np.ndarray:
        """The relative residuals ‖r‖/‖b‖ before the first iteration and after every iteration.

        With another criterion, these are values of its quantity, estimated between restarts.
        """
        return self._native.residuals

    @property
    def true_residual(self) -> float:
        """The relative residual ‖b − A x‖/‖b‖, recomputed from x at the end."""
        return self._native.true_residual

    @property
    def criterion(self) -> str:
        """The criterion of convergence: `residual`, `rows` or `backward`."""
        return self._native.criterion

    @property
    def relative_to(self) -> str:
        """The vector whose norm divides the residual: `b`, or `r0` for the residual of the initial guess."""
        return self._native.relative_to

    @property
    def criterion_value(self) -> float:
        """The value of the criterion, recomputed from x at the end. It is compared with `target`."""
        return self._native.criterion_value

    @property
    def convergence_factor(self) -> float | None:
        """The mean factor by which an iteration reduced the residual; None without iterations."""
        return self._native.convergence_factor

    @property
    def row_scaled_residual(self) -> float | None:
        """The row-scaled residual ‖D⁻¹(b − A x)‖/‖D⁻¹b‖, where D has the 1-norms of the rows.

        It is computed for converged solves whose rows differ in scale by more than 1e6, and is None
        otherwise.
        """
        return self._native.row_scaled_residual

    @property
    def target(self) -> float:
        """The largest value of the criterion that counts as converged; by default of ‖r‖/‖b‖."""
        return self._native.target

    @property
    def method(self) -> str:
        """The method of the last attempt."""
        return self._native.method

    @property
    def precond(self) -> str:
        """The preconditioner of the last attempt."""
        return self._native.precond

    @property
    def device(self) -> str:
        """The kind of device, `cpu` or `cuda`."""
        return self._native.device

    @property
    def seconds(self) -> Seconds:
        """Times of the set-up and of the iterations, in seconds."""
        return Seconds(*self._native.seconds())

    @property
    def events(self) -> list[Event]:
        """Events of the solve, sorted by kind: choices, fallbacks, refinements, restarts, then the others."""
        return [Event(*event) for event in self._native.events()]

    def verdict(self) -> str:
        """Return a line that says why the solve did not converge, and what to try."""
        return self._native.verdict()

    def _failure(self) -> str:
        worst = f"; the worst of {len(self.columns)} columns" if self.columns else ""
        return (
            f"{self.outcome} after {self.iterations} iterations: ‖b − A x‖/‖b‖ is {self.true_residual:.2e}, wanted "
            f"{self.target:.2e}{worst}\n{self.verdict()}"
        )

    def plot(self, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> Plot:
        """Return a plot of the residuals over the iterations.

        If `path` is given, the plot is also written to it; its name ends in .png or .svg.
        """
        plot = Plot(self._native.curve(), title or self._native.system())
        if path is not None:
            plot.save(path)
        return plot

    def __repr__(self) -> str:
        return self._native.text().rstrip("\n")

    def _repr_html_(self) -> str:
        text = f'<pre style="line-height:1.3">{html.escape(repr(self))}</pre>'
        return f'<div>{text}<div style="max-width:640px">{self.plot().svg}</div></div>'
