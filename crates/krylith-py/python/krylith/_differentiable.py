"""Solves inside the programs of JAX and PyTorch: set-ups by pattern, which later calls give new values.

The arrays come and go with each call, and are never kept. A program contains only the text of a `Spec`.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from krylith import _native
from krylith._arrays import lend, lend_indices
from krylith._errors import ConvergenceError, InvalidInput, interrupts
from krylith._matrix import Parts, Pattern
from krylith._options import options_text, threads_of
from krylith._order import Order
from krylith._report import LOG
from krylith._solution import Solution, is_success
from krylith._solver import Solver

#: Numbers that describe a solve: index of the outcome, iterations, relative residual, tolerance.
STATUS = 4
#: Names of the outcomes, by their index in the status.
OUTCOMES: list[str] = _native.names()["outcome"]
#: Parts of a system that can stand in a program. The other ones are arrays.
_WORDS = ("block", "nullspace", "grid")


@dataclass(frozen=True)
class Spec:
    """All of a solve except its arrays."""

    #: Size of the blocks that the matrix stores; 0 for scalar rows.
    block: int
    #: Options of the solver, sorted by name.
    options: tuple[tuple[str, Any], ...]
    #: True to solve with Aᵀ.
    transpose: bool = False
    #: True to raise an exception for a solve that did not converge.
    throw: bool = True

    @staticmethod
    def of(block: int, given: Mapping[str, Any], rtol: float, throw: bool) -> Spec:
        """Return the spec of a call with these keywords; refuse keywords that need arrays, and unknown ones."""
        options = {"rtol": rtol} | {name: value for name, value in given.items() if value is not None}
        named = {name: value for name, value in options.items() if name not in _WORDS}
        for name in ("x0", "callback", "out", "comm", "fields", "matrices", "coordinates", "near_nullspace"):
            if name in named:
                raise InvalidInput(f"`{name}` does not work in a differentiable solve; use krylith.Solver")
        if not isinstance(options.get("nullspace", ""), str):
            raise InvalidInput("`nullspace` is an array; a differentiable solve takes nullspace='constant' alone")
        options_text({}, named)  # refuses unknown options
        plain = {name: _plain(value) for name, value in options.items()}
        return Spec(block, tuple(sorted(plain.items())), throw=throw)

    @property
    def text(self) -> str:
        """The spec as text, for a compiled program."""
        return json.dumps([self.block, self.options, self.transpose, self.throw])

    @staticmethod
    @lru_cache(maxsize=256)
    def read(text: str) -> Spec:
        """Return the spec of a text."""
        block, options, transpose, throw = json.loads(text)
        pairs = ((name, tuple(value) if isinstance(value, list) else value) for name, value in options)
        return Spec(block, tuple(pairs), transpose, throw)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return tuple(_plain(one) for one in value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidInput(f"an option is of type {type(value).__name__}; a differentiable solve takes numbers and names")


class There:
    """Numbers at an address of a GPU or of the host, contiguous, which the caller keeps during a call."""

    #: An object that owns the memory.
    owner: Any = None

    def __init__(self, kind: str, pointer: int, shape: Sequence[int], place: tuple[int, int] | None) -> None:
        self.shape, self.dtype, self._kind, self._place = tuple(shape), np.dtype(kind), kind, place
        self.pointer = pointer
        interface = {"data": (pointer, False), "shape": self.shape, "typestr": kind, "version": 3}
        if place is None:
            self.__array_interface__ = interface
        else:
            self.ordinal = place[0]
            # NumPy and CUDA call the default stream 0 and 1.
            self.__cuda_array_interface__ = interface | {"stream": place[1] or 1}

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and the number of the device."""
        return (1, 0) if self._place is None else (2, self.ordinal)

    def rows(self) -> list[There]:
        """Return the rows of an array of two dimensions."""
        bytes_ = self.shape[1] * self.dtype.itemsize
        return [There(self._kind, self.pointer + i * bytes_, self.shape[1:], self._place) for i in range(self.shape[0])]

    def first(self, count: int) -> There:
        """Return the first numbers of an array of one dimension."""
        return self if count == self.shape[0] else There(self._kind, self.pointer, (count,), self._place)


def _rows(array: Any) -> Sequence[Any]:
    return array.rows() if isinstance(array, There) else array


def _first(array: Any, count: int) -> Any:
    return array.first(count) if isinstance(array, There) else array[:count]


@dataclass
class SetUp:
    """A solver for one pattern and set of options, and its current values."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    solver: Solver | None = None
    #: Number of stored numbers.
    stored: int = 0
    #: The current values: a fingerprint, or a copy on the host.
    values: Any = None

    def set(self, spec: Spec, row_ptr: Any, col: Any, values: Any, mark: Any) -> Solver:
        """Set the solver up for the first values, or give it new ones."""
        if self.solver is None:
            with interrupts():
                self.solver = self._made(spec, row_ptr, col, values)
        elif not self._are_current(values, mark):
            self.values = None
            with interrupts():
                self.solver._native.update(lend(_first(values, self.stored)))
        else:
            return self.solver
        self.values = mark if mark is not None else np.array(_first(values, self.stored))
        return self.solver

    def _are_current(self, values: Any, mark: Any) -> bool:
        if mark is not None:
            return bool(self.values == mark)
        return isinstance(self.values, np.ndarray) and np.array_equal(self.values, _first(values, self.stored))

    def _made(self, spec: Spec, row_ptr: Any, col: Any, values: Any) -> Solver:
        rows = len(row_ptr) - 1
        n = rows * max(spec.block, 1)
        entries = read_indices(row_ptr, rows, 1)[0] if rows > 0 else 0
        self.stored = entries * max(spec.block, 1) ** 2
        pattern = Pattern(row_ptr, _first(col, entries))
        options = dict(spec.options)
        text = None
        if options.get("nullspace") is None:
            text = options_text({}, {name: value for name, value in options.items() if name not in _WORDS})
        order = Order("csr", same=True)
        parts = Parts((n, n), spec.block, pattern, _first(values, self.stored), order, False)
        return _OfParts(parts._replace(threads=threads_of(options), options=text), options)


class _OfParts(Solver):
    """A solver of arrays that are gone after the set-up."""

    _keeps = False

    def __init__(self, parts: Parts, options: dict[str, Any]) -> None:
        named = {"method": "auto", "precond": "auto", "atol": 0.0, "max_iters": None, "device": "auto"}
        self._named = {name: options.pop(name, default) for name, default in (named | {"rtol": None}).items()}
        self._system = {name: options.pop(name, None) for name in (*_WORDS, "near_nullspace", "fields", "matrices", "coordinates")}
        self._options, self._comm, self._verbose = options, None, False
        self._of, self._maps = None, (None, None)
        self._block = self._system["block"]
        self._set_up(None, [parts])
        self._parts = []


def read_indices(array: Any, start: int, count: int) -> list[int]:
    """Return a few indices as numbers of Python, from the host or from a GPU."""
    if isinstance(array, There):
        at = array.pointer + start * array.dtype.itemsize
        array = There(array._kind, at, (count,), array._place)
        return _native.read_indices(lend_indices(array))
    return [int(i) for i in array[start : start + count]]


class Cache:
    """The set-ups that were used last, up to a number of them."""

    def __init__(self, most: int) -> None:
        self._most, self._lock, self._kept = most, threading.Lock(), OrderedDict[Any, SetUp]()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Any) -> SetUp:
        """Return the set-up for a key, which may be new and empty."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = SetUp()
            self._kept.move_to_end(key)
            gone = self._shortened()
        del gone  # outside the lock, because freeing takes time
        return found

    def drop(self, key: Any, failed: SetUp) -> None:
        """Forget a set-up that failed."""
        with self._lock:
            if self._kept.get(key) is failed:
                del self._kept[key]

    def keep(self, most: int) -> None:
        """Keep at most this number of set-ups."""
        if not isinstance(most, int) or most < 1:
            raise InvalidInput(f"`most` is {most!r}; expected a whole number, 1 or more")
        with self._lock:
            self._most = most
            gone = self._shortened()
        del gone

    def clear(self) -> None:
        """Forget all set-ups and free their memory. A solve that is running keeps its own to its end."""
        with self._lock:
            gone, self._kept = self._kept, OrderedDict()
        del gone

    def _shortened(self) -> list[SetUp]:
        gone = []
        while len(self._kept) > self._most:
            gone.append(self._kept.popitem(last=False)[1])
        return gone


#: The set-ups of this process, for both libraries.
SET_UPS = Cache(8)


def clear() -> None:
    """Forget all set-ups of `krylith.jax` and `krylith.torch`, and free their memory."""
    SET_UPS.clear()


def keep(most: int) -> None:
    """Keep at most `most` set-ups, each for one pattern, set of options and device; the default is 8."""
    SET_UPS.keep(most)


def run(
    spec: Spec,
    digest: Any,
    row_ptr: Any,
    col: Any,
    marks: Sequence[Any],
    values: Any,
    b: Any,
    x: Any,
    status: Any,
    of_values: Sequence[int],
    of_b: Sequence[int],
) -> None:
    """Solve several systems of one pattern, and write their x and status.

    `values`, `b`, `x` and `status` have two dimensions. System i takes the rows `of_values[i]` and `of_b[i]`, and
    writes row i of x, which holds zeros. `marks` has a fingerprint of each row of values, or None on the host.
    """
    device = x.ordinal if isinstance(x, There) else None
    options = dict(spec.options)
    if device is not None and options.get("device") in (None, "auto"):
        options["device"] = f"cuda:{device}"
    spec = replace(spec, options=tuple(sorted(options.items())))
    key = (digest, len(row_ptr), spec.block, spec.options, device)
    set_up = SET_UPS.get(key)
    rows_of_values, rights, lefts = _rows(values), _rows(b), _rows(x)
    found = np.empty((len(lefts), STATUS))
    with set_up.lock:
        # Systems with the same values one after the other.
        for at in sorted(range(len(lefts)), key=of_values.__getitem__):
            mine = of_values[at]
            try:
                solver = set_up.set(spec, row_ptr, col, rows_of_values[mine], marks[mine])
            except BaseException:
                set_up.values = None
                if set_up.solver is None:
                    SET_UPS.drop(key, set_up)
                raise
            found[at] = _solve(solver, spec, rights[of_b[at]], lefts[at])
    if isinstance(status, There):
        flat = There("<f8", status.pointer, (found.size,), status._place)
        _native.write_numbers(found.reshape(-1), lend(flat))
    else:
        status[...] = found


def _solve(solver: Solver, spec: Spec, right: Any, left: Any) -> tuple[float, ...]:
    """Solve one system, and return its status."""
    native, raised = solver._native.solve(lend(right), lend(left), None, None, None, None, spec.transpose)
    if raised is not None:
        raise raised
    LOG.debug("%s after %d iterations: %r", native.outcome, native.iterations, solver)
    if spec.throw and not is_success(native.outcome):
        which = "the solve with Aᵀ, for a gradient, ended with " if spec.transpose else ""
        raise ConvergenceError(Solution(None, native), which)
    return OUTCOMES.index(native.outcome), native.iterations, native.true_residual, native.target


#: One odd number for each lane of a hash.
LANES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)


def hashed(xp: Any, words: Any, count: Any = None) -> Any:
    """Return four words that identify unsigned words of 32 bits, or `count` of them.

    Each lane is Σ mix(wᵢ ⊕ mix(i·c)), where c is an odd number of the lane and mix is the end of MurmurHash3.
    Equal words have equal hashes; different ones agree with a probability of about 2⁻¹²⁸.
    """
    at = xp.arange(1, words.shape[-1] + 1, dtype=np.uint32)

    def mix(h: Any) -> Any:
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return h ^ (h >> np.uint32(16))

    def lane(c: int) -> Any:
        mixed = mix(words ^ mix(at * np.uint32(c)))
        mixed = mixed if count is None else xp.where(at <= count, mixed, np.uint32(0))
        return mixed.sum(-1, dtype=np.uint32)

    return xp.stack([lane(c) for c in LANES], -1)


class Entries(NamedTuple):
    """The pattern of stored entries as rows of sorted columns, and where each entry belongs."""

    row_ptr: np.ndarray
    col: np.ndarray
    #: The entries in the order of the rows, and the number that each adds to; None if they agree.
    order: np.ndarray | None
    into: np.ndarray | None

    @staticmethod
    def of(rows: np.ndarray, cols: np.ndarray, n: int) -> Entries:
        """Sort the entries, and join those of the same place; entries outside the n×n matrix are dropped."""
        inside = (rows >= 0) & (rows < n) & (cols >= 0) & (cols < n)
        place = np.where(inside, rows.astype(np.int64) * n + cols, np.int64(n) * n)
        order = into = None
        if inside.all() and (np.diff(place) > 0).all():
            kept = place
        else:
            order = np.argsort(place, kind="stable")
            place = place[order]
            first = np.diff(place, prepend=-1) > 0
            into = np.cumsum(first) - 1
            kept = place[first & (place < np.int64(n) * n)]
            into = np.where(place < np.int64(n) * n, into, len(kept)).astype(np.int32)
            order = order.astype(np.int32)
        row_ptr = np.searchsorted(kept, np.arange(n + 1) * np.int64(n)).astype(np.int32)
        return Entries(row_ptr, (kept % max(n, 1)).astype(np.int32), order, into)

    def digest(self) -> np.ndarray:
        """Return 128 bits that identify the pattern, as four indices."""
        words = np.concatenate([self.row_ptr, self.col]).astype(np.uint32)
        return np.asarray(hashed(np, words).view(np.int32))
