"""The order in which a matrix of the caller stores its numbers, so that new values may be a bare array."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krylith._arrays import is_complex, is_torch, numbers_of, on_device
from krylith._errors import InvalidInput, NewPattern

#: Names of the index arrays of a format in SciPy and CuPy.
_INDICES = {
    "csr": ("indptr", "indices"),
    "csc": ("indptr", "indices"),
    "bsr": ("indptr", "indices"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}


@dataclass
class Order:
    """The positions of the numbers that the first matrix stores, which an array of new values follows."""

    #: The format; for a format without an array of numbers, its name.
    kind: str
    #: Shape of the array of numbers; `None` if the format has no such array.
    shape: tuple[int, ...] | None = None
    #: Index arrays; emptied once they are no longer needed.
    arrays: tuple[Any, ...] = ()
    #: Rows and columns of a block.
    block: tuple[int, int] = (1, 1)
    #: True if the solver has the same order.
    same: bool = False
    _index: Any = field(default=None, repr=False)

    @staticmethod
    def of(A: Any) -> Order:
        """Return the order of a matrix of SciPy, CuPy or PyTorch; the index arrays are shared with it."""
        if is_torch(A):
            return _of_torch(A)
        names = _INDICES.get(getattr(A, "format", "dense"))
        if names is None:
            return Order(getattr(A, "format", "dense"))
        block = tuple(A.blocksize) if A.format == "bsr" else (1, 1)
        return Order(A.format, tuple(A.data.shape), tuple(getattr(A, name) for name in names), block)

    def kept(self, threads: int | None) -> Order:
        """Copy the index arrays, so that the caller cannot change them, and return self."""
        self.arrays = () if self.same else tuple(copied(a, threads) for a in self.arrays)
        return self

    def means(self, given: Any, shape: tuple[int, int]) -> bool:
        """Return True if `given` is an array of stored numbers, False if it is a matrix of this shape."""
        if hasattr(given, "tocsr") or is_torch(given) and str(given.layout) != "torch.strided":
            return False
        given_shape = tuple(given.shape) if hasattr(given, "shape") else np.shape(given) if isinstance(given, (list, tuple)) else ()
        return len(given_shape) == 1 or given_shape == self.shape != shape

    def values(self, given: Any, pattern: tuple[Any, Any], shape: tuple[int, int], block: int) -> Any:
        """Convert an array in the order of the first matrix to the order of the solver's pattern."""
        if self.shape is None:
            raise InvalidInput(
                f"a {self.kind} matrix has no array of stored numbers; pass the new values as a matrix"
            )
        numbers = numbers_of(given).reshape(-1)
        stored, count = int(np.prod(self.shape)), block * block * len(pattern[1])
        # The array may lack the unused space after the last row.
        if len(numbers) != stored and not (self.same and len(numbers) == count):
            raise InvalidInput(f"{len(numbers)} new values for a matrix that stores {stored}; expected one value per stored entry")
        if self.same:
            return numbers[:count]
        if self._index is None:
            self._index = self._find(on_host(pattern[0]), on_host(pattern[1]), shape, block)
            self.arrays = ()
        if on_device(numbers):
            return self._on_device(numbers, count)
        index = self._index
        if (numbers[index == _OTHER] != 0).any():
            first = int(np.flatnonzero((index == _OTHER) & (numbers != 0))[0])
            raise NewPattern(
                f"the new values have another pattern: stored number {first} is nonzero where the first matrix had no "
                "entry; create a new Solver, or pass on_new_pattern='rebuild'"
            )
        inside = index >= 0
        # Duplicate entries are summed, as elsewhere.
        return _sums(index[inside], numbers[inside], count)

    def _on_device(self, numbers: Any, count: int) -> Any:
        index = self._index
        if len(index) != count or len(np.unique(index)) != count or index.min(initial=0) < 0:
            raise InvalidInput(
                f"the {self.kind} matrix has duplicate entries, or entries outside its shape, "
                "so new values cannot be an array on a GPU; pass them as a matrix"
            )
        order = np.argsort(index)
        if is_torch(numbers):
            import torch

            return numbers[torch.as_tensor(order, device=numbers.device)]
        import cupy

        return numbers[cupy.asarray(order)]

    def _find(self, row_ptr: np.ndarray, col: np.ndarray, shape: tuple[int, int], b: int) -> np.ndarray:
        """Return the index among the solver's numbers of each number of the caller."""
        rows, cols = _PLACES[self.kind](self)
        inside = (rows >= 0) & (rows < shape[0]) & (cols >= 0) & (cols < shape[1])
        across = shape[1] // b
        known = np.repeat(np.arange(len(row_ptr) - 1), np.diff(row_ptr)) * across + col
        wanted = np.where(inside, rows // b * across + cols // b, -1)
        at = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        found = inside & (known[at] == wanted) if len(known) else np.zeros(len(rows), dtype=bool)
        return np.where(found, (at * b + rows % b) * b + cols % b, np.where(inside, _OTHER, _NOWHERE))


def _sums(index: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """Return the sums of the numbers of each index."""
    if is_complex(numbers):
        return _sums(index, numbers.real, count) + 1j * _sums(index, numbers.imag, count)
    return np.bincount(index, weights=numbers, minlength=count)


#: Index of an entry inside the matrix but not in the pattern, and of one outside the matrix, as in diagonals.
_OTHER, _NOWHERE = -1, -2


def _of_torch(A: Any) -> Order:
    import torch

    if A.layout in (torch.sparse_csr, torch.sparse_bsr):
        kind, arrays, values = ("csr" if A.layout == torch.sparse_csr else "bsr"), (A.crow_indices(), A.col_indices()), A.values()
    elif A.layout in (torch.sparse_csc, torch.sparse_bsc):
        kind, arrays, values = ("csc" if A.layout == torch.sparse_csc else "bsc"), (A.ccol_indices(), A.row_indices()), A.values()
    elif A.layout == torch.sparse_coo:
        kind, arrays, values = "coo", tuple(A._indices()), A._values()
    else:
        return Order("dense")
    return Order(kind, tuple(values.shape), arrays, tuple(values.shape[1:]) or (1, 1))


def _by_rows(order: Order) -> tuple[np.ndarray, np.ndarray]:
    pointers, minor = (on_host(a) for a in order.arrays)
    major = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    # The unused space at the end has no row.
    return _beyond(order, major, minor[: len(major)])


def _by_columns(order: Order) -> tuple[np.ndarray, np.ndarray]:
    cols, rows = _by_rows(order)
    return rows, cols


def _block_columns(order: Order) -> tuple[np.ndarray, np.ndarray]:
    pointers, rows = (on_host(a) for a in order.arrays)
    return _in_blocks(order, rows, np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)))


def _block_rows(order: Order) -> tuple[np.ndarray, np.ndarray]:
    pointers, cols = (on_host(a) for a in order.arrays)
    rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    return _in_blocks(order, rows, cols[: len(rows)])


def _in_blocks(order: Order, rows: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r, c = order.block
    i = (rows[:, None, None] * r + np.arange(r)[:, None]) + np.zeros((1, c), dtype=np.int64)
    j = (cols[:, None, None] * c + np.arange(c)) + np.zeros((r, 1), dtype=np.int64)
    return _beyond(order, i.reshape(-1), j.reshape(-1))


def _beyond(order: Order, rows: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Append the unused space at the end, whose entries are outside the matrix."""
    spare = np.full(int(np.prod(order.shape or (0,))) - len(rows), _NOWHERE)
    return np.concatenate([rows, spare]), np.concatenate([cols, spare])


def _coordinates(order: Order) -> tuple[np.ndarray, np.ndarray]:
    rows, cols = (on_host(a) for a in order.arrays)
    return rows, cols


def _diagonals(order: Order) -> tuple[np.ndarray, np.ndarray]:
    offsets, shape = on_host(order.arrays[0]), order.shape or (0, 0)
    cols = np.broadcast_to(np.arange(shape[1]), shape)
    return (cols - offsets[:, None]).reshape(-1), cols.reshape(-1)


_PLACES: dict[str, Callable[[Order], tuple[np.ndarray, np.ndarray]]] = {
    "csr": _by_rows,
    "csc": _by_columns,
    "bsr": _block_rows,
    "bsc": _block_columns,
    "coo": _coordinates,
    "dia": _diagonals,
}


def on_host(indices: Any) -> np.ndarray:
    """Return indices as a NumPy array of 64-bit integers."""
    if is_torch(indices):
        indices = indices.cpu().numpy()
    elif on_device(indices):
        indices = indices.get()
    return np.asarray(indices, dtype=np.int64)


#: Indices that a thread copies at once, and most threads that copy.
_PIECE, _MOST = 1 << 20, 8


def copied(indices: Any, threads: int | None) -> Any:
    """Return a copy of indices in the same memory, made by this number of threads or by up to eight."""
    if is_torch(indices):
        return indices.clone()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(_MOST, threads or cores)
    if on_device(indices) or most == 1 or len(indices) <= 2 * _PIECE:
        return indices.copy()
    # One thread would spend most of the time on page faults of the new array.
    copy = np.empty_like(indices)

    def piece(at: int) -> None:
        np.copyto(copy[at : at + _PIECE], indices[at : at + _PIECE])

    with ThreadPoolExecutor(most) as pool:
        list(pool.map(piece, range(0, len(indices), _PIECE)))
    return copy
