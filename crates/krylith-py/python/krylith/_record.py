"""Results of solves apart from the library: for pickles, and for systems without unknowns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from krylith import _native
from krylith._errors import InvalidInput
from krylith._keywords import OutcomeName


@dataclass(frozen=True)
class Record:
    """What a solution of the extension module tells, with the same attributes and methods."""

    outcome: OutcomeName
    iterations: int
    restarts: int
    residuals: np.ndarray
    convergence_factor: float | None
    row_scaled_residual: float | None
    true_residual: float
    target: float
    method: str
    precond: str
    device: str
    has_warnings: bool
    _seconds: tuple[float, float, dict[str, float]]
    _events: list[tuple[str, int | None, str]]
    _text: str
    _verdict: str
    _curve: _native.Curve
    _system: str
    criterion: str = "residual"
    relative_to: str = "b"
    criterion_value: float = 0.0

    @staticmethod
    def of(native: _native.Solution | Record) -> Record:
        """Return the record of a solution."""
        if isinstance(native, Record):
            return native
        return Record(
            native.outcome, native.iterations, native.restarts, native.residuals, native.convergence_factor,
            native.row_scaled_residual, native.true_residual, native.target, native.method, native.precond,
            native.device, native.has_warnings, native.seconds(), native.events(), native.text(), native.verdict(), native.curve(),
            native.system(), native.criterion, native.relative_to, native.criterion_value,
        )  # fmt: skip

    def seconds(self) -> tuple[float, float, dict[str, float]]:
        return self._seconds

    def events(self) -> list[tuple[str, int | None, str]]:
        return list(self._events)

    def text(self) -> str:
        return self._text

    def verdict(self) -> str:
        return self._verdict

    def curve(self) -> _native.Curve:
        return self._curve

    def system(self) -> str:
        return self._system


def empty_record(rtol: float) -> Record:
    """Return the record of a solve without unknowns, which has converged."""
    system, outcome = "0 unknowns", "converged after 0 iterations"
    curve = _native.Curve(outcome, [0.0], 0.0, rtol, [], [], True)
    text = f"system    {system}\noutcome   {outcome}\nresidual  0 true, wanted {rtol:.3e}"
    return Record(
        "converged", 0, 0, np.zeros(1), None, None, 0.0, rtol, "none", "none", "cpu", False, (0.0, 0.0, {}), [], text,
        f"krylith: {outcome}", curve, system,
    )  # fmt: skip


class EmptySolver:
    """The solver of a system without unknowns, with the methods of the extension module's solver."""

    device = "cpu"

    def __init__(self, rtol: float) -> None:
        self._rtol = rtol

    def solve(self, b: Any, x: Any, rtol: float | None = None, *_: Any) -> tuple[Record, None]:
        return empty_record(self._rtol if rtol is None else rtol), None

    def solve_with(self, p: Any, b: Any, x: Any, *rest: Any) -> tuple[Record, None]:
        return self.solve(b, x, *rest)

    def memory(self) -> tuple[int, int | None]:
        return 0, None

    def _nothing(self, *_: Any) -> None:
        """There are no numbers to compute or to keep."""

    apply = update = update_kronecker = set_matrix = set_tau = set_refresh = cancel = _nothing


class Memory(NamedTuple):
    """Bytes that a solver holds, as far as the library knows them."""

    #: On the host: the matrix, and the preconditioner if the CPU solves.
    host: int
    #: The largest number on a GPU, once a GPU has solved; else None.
    device: int | None


class ClosedSolver:
    """Stands for the solver of the extension module after `close`."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidInput("the solver is closed; create a new Solver")
