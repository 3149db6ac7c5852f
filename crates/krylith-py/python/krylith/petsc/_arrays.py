"""The rows of a matrix of PETSc, as arrays.

petsc4py copies the arrays of a matrix, and row by row where it has blocks. The functions here are those of PETSc's C
interface, found in the library that petsc4py has loaded. Arrays of AIJ are then PETSc's own, and BAIJ and SBAIJ keep
their blocks. If the library does not tell its functions, matrices are read as scalar rows by petsc4py.
"""

# petsc4py has no types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from petsc4py import PETSc

from krylith._errors import InvalidInput
from krylith.petsc import _memory
from krylith.petsc._library import INDEX, SCALAR, check, functions

_Index = ctypes.c_int64 if INDEX.itemsize == 8 else ctypes.c_int32

#: Types of matrices without entries, which only multiply.
_MAPS = (
    "shell", "mffd", "python", "schurcomplement", "composite", "lrc", "transpose", "hermitiantranspose", "normal", "normalh",
)  # fmt: skip

_FUNCTIONS = (
    "MatGetNonzeroState", "MatGetRowIJ", "MatRestoreRowIJ", "MatSeqAIJGetArrayRead", "MatSeqBAIJGetArray",
    "MatSeqSBAIJGetArray", "PetscObjectReference",
)  # fmt: skip


C = functions(_FUNCTIONS)


@dataclass
class Matrix:
    """Arrays of a CSR or BSR matrix, named as in SciPy, whose constructors take long for small matrices."""

    shape: tuple[int, int]
    #: Arrays of NumPy, or all three in the memory of a GPU.
    indptr: Any
    indices: Any
    #: Numbers of shape (entries,), or (blocks, b, b).
    data: Any

    ndim: ClassVar[int] = 2

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def format(self) -> str:
        return "csr" if self.data.ndim == 1 else "bsr"

    @property
    def blocksize(self) -> tuple[int, int]:
        return (self.data.shape[1], self.data.shape[2])

    def tocsr(self) -> Any:
        """Return the matrix itself if it has no blocks, otherwise one of SciPy."""
        return self if self.data.ndim == 1 else self.scipy().tocsr()

    def scipy(self) -> Any:
        """Return a matrix of SciPy with these arrays."""
        from scipy.sparse import bsr_array, csr_array

        return (csr_array if self.data.ndim == 1 else bsr_array)((self.data, self.indices, self.indptr), shape=self.shape, copy=False)

    def copy(self) -> Any:
        """Return a matrix of SciPy with its own arrays."""
        return self.scipy().copy()


class Rows(NamedTuple):
    """The rows of this process."""

    #: The matrix of the own rows, in CSR or BSR.
    matrix: Any
    #: Returns later values of a matrix of the same pattern, in the order of `matrix.data`; None if unknown.
    values: Callable[[Any], Any] | None


def has_entries(mat: Any) -> bool:
    """Return True if a matrix has entries, and False if it only multiplies."""
    kind = mat.getType()
    if kind == "nest":
        blocks = [block for row in _blocks(mat) for block in row]
        return all(block is None or has_entries(block) for block in blocks)
    return kind not in _MAPS


def _blocks(nest: Any) -> list[list[Any]]:
    """Return the blocks of a MATNEST, None for a zero block."""
    rows, columns = nest.getNestSize()
    found = [[nest.getNestSubMatrix(i, j) for j in range(columns)] for i in range(rows)]
    return [[block if block is not None and block.handle else None for block in row] for row in found]


def state_of(mat: Any) -> Any:
    """Return what changes whenever a matrix changes: the state that PETSc counts, or those of the parts."""
    kind = mat.getType()
    if kind == "nest":
        return tuple(None if b is None else (b.handle, state_of(b)) for row in _blocks(mat) for b in row)
    if kind == "is":
        return (mat.stateGet(), mat.getISLocalMat().stateGet())
    return mat.stateGet()


def pattern_of(mat: Any) -> tuple[int | None, ...] | None:
    """Return what changes whenever the pattern of a matrix changes; None if PETSc does not tell.

    It is the state that PETSc counts, and the addresses of index arrays that are used where they are.
    """
    kind = mat.getType()
    if not C or kind in ("nest", "is"):
        return None
    state = ctypes.c_int64()
    check(C["MatGetNonzeroState"](ctypes.c_void_p(mat.handle), ctypes.byref(state)))
    if not kind.startswith(("seqaij", "seqbaij", "seqsbaij")):
        return (state.value,)
    count, row_ptr, col = _addresses(mat, in_blocks=not kind.startswith("seqaij"))
    return state.value, count, row_ptr, col


def rows_of(mat: Any, at: _memory.Memory | None = None) -> Rows:
    """Return the rows of this process, with all their columns, in the memory of a GPU or on the host.

    The index arrays of sequential AIJ, BAIJ and SBAIJ matrices are those of PETSc. The matrix must stay alive and keep
    its pattern while they are used.
    """
    if SCALAR not in (np.dtype(np.float64), np.dtype(np.complex128)):
        raise InvalidInput(f"this PETSc has scalars of type {SCALAR}; Krylith needs one that is configured with double precision")
    kind = mat.getType()
    if C and at is not None:
        return _of_aij_there(mat, at)
    if C and kind.startswith("seqaij"):
        return _of_aij(mat)
    if C and kind.startswith("seqbaij"):
        return _of_baij(mat)
    if C and kind.startswith("seqsbaij"):
        return _of_sbaij(mat)
    if kind.startswith(("seqaij", "mpiaij", "seqbaij", "mpibaij")):
        return _by_rows(mat)
    assembled = _assembled(mat)
    # The arrays are those of a matrix that ends here.
    return Rows(rows_of(assembled).matrix.copy(), None)


def _assembled(mat: Any) -> Any:
    """Return a matrix as AIJ, whose product with a vector is compared."""
    kind = mat.getType()
    try:
        # Without `out`, petsc4py changes the matrix of the caller.
        found = _of_upper(mat) if kind == "mpisbaij" else mat.convert("aij", out=PETSc.Mat())
        x, y = mat.createVecs()
        own = slice(*x.getOwnershipRange())
        x.setArray(np.cos(np.arange(own.start, own.stop)))
        mat.mult(x, y)
        z = y.duplicate()
        found.mult(x, z)
        z.axpy(-1.0, y)
        wrong, size = z.norm(), y.norm()
    except PETSc.Error as error:
        raise InvalidInput(f"PETSc cannot convert a matrix of type {kind} to AIJ ({error}); assemble an AIJ matrix") from None
    if wrong > 1e-6 * size:
        raise InvalidInput(f"PETSc converts this matrix of type {kind} to another matrix of type aij; assemble an AIJ matrix")
    return found


def _of_upper(mat: Any) -> Any:
    """Return an MPISBAIJ matrix as AIJ; PETSc 3.18 converts its diagonal blocks wrongly."""
    mat.setOption(PETSc.Mat.Option.GETROW_UPPERTRIANGULAR, True)
    row_ptr, col, values = mat.getValuesCSR()
    mat.setOption(PETSc.Mat.Option.GETROW_UPPERTRIANGULAR, False)
    first, last = mat.getOwnershipRange()
    row = np.repeat(np.arange(first, last), np.diff(row_ptr))
    upper = col >= row  # diagonal blocks are stored whole
    kept = np.concatenate([[0], np.cumsum(upper)])[row_ptr].astype(INDEX)
    found = PETSc.Mat().createAIJ(mat.getSizes(), csr=(kept, col[upper], values[upper]), comm=mat.comm)
    lower = found.transpose(PETSc.Mat())
    lower.setDiagonal(lower.createVecLeft())
    found.axpy(1.0, lower)
    return found


def _by_rows(mat: Any) -> Rows:
    row_ptr, col, values = mat.getValuesCSR()
    matrix = Matrix((len(row_ptr) - 1, mat.getSize()[1]), row_ptr, col, values)
    return Rows(matrix, lambda mat: mat.getValuesCSR()[2])


def _of_aij(mat: Any) -> Rows:
    row_ptr, col = _pattern(mat, in_blocks=False)

    def values(mat: Any) -> np.ndarray:
        return _numbers(mat, "MatSeqAIJGetArrayRead", len(col))

    return Rows(Matrix(mat.getSize(), row_ptr, col, values(mat)), values)


def _of_aij_there(mat: Any, at: _memory.Memory) -> Rows:
    pattern = _pattern(mat, in_blocks=False)  # on the host, which has it, too
    count, entries = (len(one) for one in pattern)
    *places, data = _memory.arrays_of(mat, count - 1, entries, at)
    row_ptr, col = (_memory.Numbers(place, len(one), INDEX, at, one) for place, one in zip(places, pattern))

    def values(mat: Any) -> _memory.Numbers:
        return _memory.arrays_of(mat, count - 1, entries, at)[2]

    return Rows(Matrix(mat.getSize(), row_ptr, col, data), values)


def _of_baij(mat: Any) -> Rows:
    (row_ptr, col), block = _pattern(mat, in_blocks=True), mat.getBlockSize()

    def values(mat: Any) -> np.ndarray:
        # PETSc stores the columns of a block one after the other.
        return np.ascontiguousarray(_blocks_of(mat, "MatSeqBAIJGetArray", len(col), block).transpose(0, 2, 1))

    return Rows(Matrix(mat.getSize(), row_ptr, col, values(mat)), values)


def _of_sbaij(mat: Any) -> Rows:
    """Return all blocks of a matrix of which PETSc stores the upper triangle."""
    (row_ptr, col), block = _pattern(mat, in_blocks=True), mat.getBlockSize()
    row = np.repeat(np.arange(len(row_ptr) - 1), np.diff(row_ptr))
    above = np.flatnonzero(row != col)
    rows, cols = np.concatenate([row, col[above]]), np.concatenate([col, row[above]])
    order = np.lexsort((cols, rows))
    diagonal = np.flatnonzero(row == col)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(row_ptr) - 1))]).astype(INDEX)

    def values(mat: Any) -> np.ndarray:
        stored = _blocks_of(mat, "MatSeqSBAIJGetArray", len(col), block)
        upper = stored.transpose(0, 2, 1).copy()
        # PETSc reads the upper triangle of a diagonal block.
        on = np.triu(upper[diagonal])
        upper[diagonal] = on + np.triu(on, 1).transpose(0, 2, 1)
        return np.concatenate([upper, upper[above].transpose(0, 2, 1)])[order]

    return Rows(Matrix(mat.getSize(), pointers, cols[order].astype(INDEX), values(mat)), values)


def _pattern(mat: Any, *, in_blocks: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and columns of a sequential matrix, or of its blocks."""
    count, row_ptr, col = _addresses(mat, in_blocks=in_blocks)
    pointers = _at(row_ptr, count + 1, INDEX)
    return pointers, _at(col, int(pointers[-1]), INDEX)


def _addresses(mat: Any, *, in_blocks: bool) -> tuple[int, int | None, int | None]:
    """Return the number of rows, or rows of blocks, and the addresses of row pointers and columns."""
    rows, row_ptr, col, done = _Index(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    arguments = (
        ctypes.c_void_p(mat.handle), _Index(0), ctypes.c_int(0), ctypes.c_int(in_blocks),
        ctypes.byref(rows), ctypes.byref(row_ptr), ctypes.byref(col), ctypes.byref(done),
    )  # fmt: skip
    check(C["MatGetRowIJ"](*arguments))
    found = rows.value, row_ptr.value, col.value
    check(C["MatRestoreRowIJ"](*arguments))  # forgets the addresses, and frees nothing here
    return found


def _blocks_of(mat: Any, function: str, count: int, block: int) -> np.ndarray:
    return _numbers(mat, function, count * block * block).reshape(count, block, block)


def _numbers(mat: Any, function: str, count: int) -> np.ndarray:
    pointer = ctypes.c_void_p()
    check(C[function](ctypes.c_void_p(mat.handle), ctypes.byref(pointer)))
    return _at(pointer.value, count, SCALAR)


def _at(address: int | None, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the numbers at an address, which nothing writes to."""
    if not count or address is None:
        return np.empty(0, dtype)
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    array: np.ndarray = np.frombuffer(memory, dtype)
    array.flags.writeable = False
    return array
