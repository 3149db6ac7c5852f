"""Several right-hand sides, which the solver solves together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from krylith._arrays import empty_like, is_complex, is_torch, lend, on_device, receiver, stacked, zeros_like
from krylith._complex import conjugate, conjugated, dtype_of
from krylith._errors import InvalidInput, Interrupted
from krylith._solution import Solution

if TYPE_CHECKING:
    from krylith._solver import Solver

#: Numbers in the columns that are passed at once. They are copied, column by column.
_AT_ONCE = 1 << 28


def solve_columns(solver: Solver, b: Any, x0: Any, how: tuple[Any, ...], out: Any) -> Solution:
    """Solve for the columns of b: together, or one after the other if Python is called in between."""
    if b.shape[-1] == 0:
        raise InvalidInput(f"b has shape {tuple(b.shape)}; expected at least one column")
    x0 = x0 if x0 is None or hasattr(x0, "shape") else np.asarray(x0)
    if x0 is not None and tuple(x0.shape) != tuple(b.shape):
        raise InvalidInput(f"x0 has shape {tuple(x0.shape)}; expected the shape of b, {tuple(b.shape)}")
    x = receiver_of(b, out, "b")
    *_, callback, _ = how
    halves = is_complex(b) and solver.dtype.kind != "c"
    calls = callback is not None or solver._function is not None or any(a is not None for a in solver._maps)
    if calls or halves or solver.shape[0] == 0:
        solutions = [_one(solver, b, x0, how, x, k) for k in range(b.shape[-1])]
    else:
        solutions = _together(solver, b, x0, how, x)
    return Solution(x if out is None else out, worst(solutions)._native, tuple(solutions))


def receiver_of(like: Any, out: Any, what: str) -> Any:
    """Return the array that receives columns: `out`, or a new one like the right-hand sides."""
    if out is not None:
        return receiver(out, like, what)
    return empty_like(like) if is_torch(like) or on_device(like) else np.empty(like.shape, dtype_of(like))


def worst(solutions: list[Solution]) -> Solution:
    """Return the solution that describes several: the one with the worst convergence."""
    return max(solutions, key=lambda s: (not s, not s.converged, s.criterion_value))


def _one(solver: Solver, b: Any, x0: Any, how: tuple[Any, ...], x: Any, k: int) -> Solution:
    """Solve for column k, and write the solution to column k of x."""
    try:
        solution = solver._one(b[..., k], None if x0 is None else x0[..., k], how, None)
    except InvalidInput as e:
        raise InvalidInput(f"column {k}: {e}") from None
    x[..., k] = solution.x
    return solution


def _together(solver: Solver, b: Any, x0: Any, how: tuple[Any, ...], x: Any) -> list[Solution]:
    """Solve for the columns of b, write the solutions to the columns of x, and return them."""
    n, count = solver.shape[0], b.shape[-1]
    width = max(1, min(count, _AT_ONCE // n))
    solutions = []
    for first in range(0, count, width):
        solutions += _group(solver, b, x0, how, x, range(first, min(first + width, count)))
    return solutions


def _group(
    solver: Solver, b: Any, x0: Any, how: tuple[Any, ...], x: Any, columns: range
) -> list[Solution]:
    """Solve for some columns."""
    rtol, atol, max_iters, _, form = how
    transposed, conjugates = form.of_reals(solver.dtype)
    right = stacked([_flat(solver, b, k, "b") for k in columns])
    left = zeros_like(right) if x0 is None else stacked([_flat(solver, x0, k, "x0") for k in columns])
    flat, found = right.reshape(-1), left.reshape(-1)
    if conjugates:
        flat, found = conjugated(flat), conjugate(found)
    try:
        natives, raised = solver._native.solve_columns(lend(flat), lend(found), rtol, atol, max_iters, transposed)
    except InvalidInput as e:
        raise InvalidInput(_in_column(str(e), columns.start)) from None
    if conjugates:
        conjugate(found)
    solutions = []
    for native, own, k in zip(natives, found.reshape(left.shape), columns):
        like = b[..., k]
        x[..., k] = solver._returned(own.reshape(_shape(solver, like)), like, None, False)
        solutions.append(Solution(x[..., k], native))
    if raised is None:
        return solutions
    if isinstance(raised, KeyboardInterrupt) and solutions:
        raise Interrupted(solutions[-1]) from None
    raise raised


def _flat(solver: Solver, v: Any, k: int, name: str) -> Any:
    """Return column k in the order of the solver, as flat real numbers."""
    try:
        return solver._flat(v[..., k], name).reshape(-1)
    except InvalidInput as e:
        raise InvalidInput(f"column {k}: {e}") from None


def _shape(solver: Solver, like: Any) -> tuple[int, ...]:
    """Return the shape of a vector of the solver as real numbers."""
    parts = 2 if solver.dtype.kind == "c" else 1
    if solver._kronecker:
        return (solver.shape[0] // solver._stages, parts * solver._stages)
    return (*like.shape[:-1], parts * like.shape[-1])


def _in_column(message: str, first: int) -> str:
    """Return a message about a column, counted from the first column of b."""
    head, colon, rest = message.partition(":")
    number = head.removeprefix("column ")
    return f"column {first + int(number)}{colon}{rest}" if number.isdecimal() else message
