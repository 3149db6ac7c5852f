"""What a solve answers."""

from __future__ import annotations

import html
import os
from typing import Any, NamedTuple

import numpy as np

from krylith import _native


class Event(NamedTuple):
    """Something that happened on the way."""

    #: `choice`, `fallback`, `refinement`, `restart`, `inconsistent`, `warning` or `interrupted`.
    kind: str
    #: When, where there is a when.
    iteration: int | None
    #: In words.
    detail: str


class Seconds(NamedTuple):
    """Where the time went."""

    #: From the arrays in memory to the first iteration.
    setup: float
    #: Iterations.
    solve: float
    #: Parts of the set-up by name.
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """Set-up and iterations."""
        return self.setup + self.solve


class Plot:
    """A convergence picture, which notebooks show."""

    def __init__(self, native: _native.Solution, title: str) -> None:
        self._native, self._title = native, title
        #: The picture as text.
        self.svg = native.svg(title)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file that ends in .png or .svg."""
        self._native.plot(self._title, path)


class Solution:
    """How a solve went, and its x.

    Its text is that of the `krylith` command, and a notebook shows it with its picture. Of several right-hand sides, `columns` has one
    for each; the rest then tells of the one that converged worst.
    """

    def __init__(self, x: Any, native: _native.Solution, columns: tuple[Solution, ...] = ()) -> None:
        #: The solution, of the shape, kind and place of b.
        self.x = x
        #: One for each column of b, if b has several.
        self.columns = columns
        self._native = native

    @property
    def outcome(self) -> str:
        """`converged`, `max-iterations`, `breakdown`, `stagnated`, `rounding-limit`, `inconsistent`, `diverged`, `not-finite` or `interrupted`."""
        return self._native.outcome

    @property
    def converged(self) -> bool:
        """True where ‖b − A x‖ was recomputed and is within the tolerance, for every column."""
        return self.outcome == "converged"

    @property
    def iterations(self) -> int:
        """Iterations of all attempts."""
        return self._native.iterations

    @property
    def restarts(self) -> int:
        """Times that the method began anew."""
        return self._native.restarts

    @property
    def residuals(self) -> np.ndarray:
        """‖r‖/‖b‖ before the first and after every iteration."""
        return self._native.residuals

    @property
    def true_residual(self) -> float:
        """‖b − A x‖/‖b‖, recomputed at the end."""
        return self._native.true_residual

    @property
    def row_scaled_residual(self) -> float | None:
        """‖D⁻¹(b − A x)‖/‖D⁻¹b‖, D the 1-norms of the rows, of a converged solve whose rows differ in scale by more than 1e6."""
        return self._native.row_scaled_residual

    @property
    def target(self) -> float:
        """‖r‖/‖b‖ that was to be reached."""
        return self._native.target

    @property
    def method(self) -> str:
        """The method that ended the solve."""
        return self._native.method

    @property
    def precond(self) -> str:
        """Its preconditioner."""
        return self._native.precond

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return self._native.device

    @property
    def seconds(self) -> Seconds:
        """Where the time went."""
        return Seconds(*self._native.seconds())

    @property
    def events(self) -> list[Event]:
        """Choices, fallbacks, refinements and restarts, in that order."""
        return [Event(*event) for event in self._native.events()]

    def verdict(self) -> str:
        """Why there is no answer, and what to try."""
        return self._native.verdict()

    def plot(self, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> Plot:
        """The residuals over the iterations; written to `path`, a .png or .svg, where one is given."""
        plot = Plot(self._native, title or self._native.system())
        if path is not None:
            plot.save(path)
        return plot

    def __repr__(self) -> str:
        return self._native.text().rstrip("\n")

    def _repr_html_(self) -> str:
        text = f'<pre style="line-height:1.3">{html.escape(repr(self))}</pre>'
        return f'<div>{text}<div style="max-width:640px">{self.plot().svg}</div></div>'
