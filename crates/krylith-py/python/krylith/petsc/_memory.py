"""Arrays of PETSc in the memory of a GPU: matrices of type AIJCUSPARSE, and vectors of type CUDA.

PETSc tells where its arrays are by functions of its C interface. Without them, or with a PETSc without CUDA, or with
complex scalars, arrays are read on the host.
"""

# petsc4py has no types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from petsc4py import PETSc

from krylith.petsc._library import INDEX, SCALAR, check, functions

_FUNCTIONS = (
    "PetscDeviceContextGetCurrentContext", "PetscDeviceContextGetDeviceType", "PetscDeviceContextGetDevice",
    "PetscDeviceGetDeviceId", "PetscDeviceContextGetStreamHandle", "MatSeqAIJGetCSRAndMemType", "MatBoundToCPU",
    "VecBoundToCPU", "VecGetArrayReadAndMemType", "VecRestoreArrayReadAndMemType", "VecGetArrayAndMemType",
    "VecRestoreArrayAndMemType", "VecGetArrayWriteAndMemType", "VecRestoreArrayWriteAndMemType",
)  # fmt: skip

#: PETSC_DEVICE_CUDA of PetscDeviceType, and the bit of a device in PetscMemType.
_CUDA, _DEVICE = 1, 1

#: The types of matrices and vectors whose arrays are on a GPU.
_MATRICES, _VECTORS = ("seqaijcusparse",), ("seqcuda", "mpicuda")

_D = functions(_FUNCTIONS) if PETSc.Sys.hasExternalPackage("cuda") and SCALAR == np.float64 else {}


class Memory(NamedTuple):
    """The memory of a GPU, which CUDA counts from 0, and the stream in which PETSc works."""

    gpu: int
    stream: int


class _Flags(NamedTuple):
    c_contiguous: bool = True


class Numbers:
    """Numbers in the memory of a GPU, with what `krylith._arrays` asks of an array there."""

    ndim, flags = 1, _Flags()

    def __init__(
        self, address: int | None, count: int, dtype: np.dtype[Any], at: Memory, host: np.ndarray | None = None
    ) -> None:
        self.shape, self.dtype, self._at = (count,), dtype, at
        #: A copy on the host, which index arrays have.
        self._host = host
        self.__cuda_array_interface__ = {
            "data": (address or 0, False),
            "shape": self.shape,
            "typestr": dtype.str,
            "version": 3,
            "stream": at.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._at.gpu

    def __len__(self) -> int:
        return self.shape[0]

    def astype(self, dtype: Any, order: str = "C", copy: bool = False) -> Numbers:
        """Return the same numbers, which have this type."""
        assert np.dtype(dtype) == self.dtype and not copy, (dtype, order)
        return self

    def reshape(self, *shape: Any) -> Numbers:
        """Return the same numbers, which are flat."""
        assert shape in ((-1,), ((-1,),), self.shape, (self.shape,)), shape
        return self

    def __setitem__(self, where: Any, numbers: Any) -> None:
        """Accept the numbers that are here already, as an initial guess in the array of the solution."""
        same = isinstance(numbers, Numbers) and numbers.__cuda_array_interface__ == self.__cuda_array_interface__
        assert where is Ellipsis and same

    def get(self) -> np.ndarray:
        """Return indices on the host."""
        assert self._host is not None
        return self._host

    def copy(self) -> Numbers:
        """Return the same indices, which their matrix keeps."""
        return self

    def __eq__(self, other: object) -> Any:
        return np.equal(self.get(), other.get()) if isinstance(other, Numbers) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def memory() -> Memory | None:
    """Return the memory of the GPU that PETSc uses; None if it uses none of CUDA."""
    context, kind, device, number, stream = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p(), _index(), ctypes.c_void_p()
    check(_D["PetscDeviceContextGetCurrentContext"](ctypes.byref(context)))
    check(_D["PetscDeviceContextGetDeviceType"](context, ctypes.byref(kind)))
    if kind.value != _CUDA:
        return None
    check(_D["PetscDeviceContextGetDevice"](context, ctypes.byref(device)))
    check(_D["PetscDeviceGetDeviceId"](device, ctypes.byref(number)))
    check(_D["PetscDeviceContextGetStreamHandle"](context, ctypes.byref(stream)))
    assert stream.value is not None
    handle = ctypes.c_void_p.from_address(stream.value)
    return Memory(number.value, handle.value or 0)


def _index() -> Any:
    return ctypes.c_int64() if INDEX.itemsize == 8 else ctypes.c_int32()


def place_of(mat: Any, device: str | None) -> Memory | None:
    """Return the memory that Krylith reads the values of a matrix from, for its option `device`.

    It is that of the GPU where they are, if Krylith solves on the same one; None is the host.
    """
    if not _D or mat.getType() not in _MATRICES or _bound(mat, "MatBoundToCPU"):
        return None
    device = (device or "auto").strip()
    there = memory() if device == "auto" or device.startswith("cuda") and "," not in device else None
    named = device.partition(":")[2] or "0"
    return there if there is not None and (device == "auto" or named == str(there.gpu)) else None


def _bound(obj: Any, function: str) -> bool:
    """Return True if an object for a GPU is held on the host."""
    bound = ctypes.c_int()
    check(_D[function](ctypes.c_void_p(obj.handle), ctypes.byref(bound)))
    return bound.value != 0


def arrays_of(mat: Any, count: int, entries: int, at: Memory) -> tuple[int | None, int | None, Numbers]:
    """Return the addresses of row pointers and columns of a matrix of type AIJCUSPARSE on its GPU, and its values."""
    row_ptr, col, values, kind = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    check(
        _D["MatSeqAIJGetCSRAndMemType"](
            ctypes.c_void_p(mat.handle), ctypes.byref(row_ptr), ctypes.byref(col), ctypes.byref(values), ctypes.byref(kind)
        )
    )
    assert kind.value & 1 == _DEVICE, f"the arrays of a matrix of {count} rows are not on the GPU"
    return row_ptr.value, col.value, Numbers(values.value, entries, SCALAR, at)


@contextmanager
def vectors(gpu: int | None, given: Any, found: Any, *, kept: bool) -> Iterator[tuple[Any, Any]]:
    """Lend the numbers of two vectors: on this GPU if both are there, otherwise on the host.

    `kept` says that the old numbers of `found` are needed.
    """
    at = memory() if gpu is not None and _there(given) and _there(found) else None
    if at is None or at.gpu != gpu:
        yield given.getArray(readonly=True), found.getArray()
        return
    ways = ("VecGetArrayReadAndMemType", "VecRestoreArrayReadAndMemType")
    word = "" if kept else "Write"
    more = (f"VecGetArray{word}AndMemType", f"VecRestoreArray{word}AndMemType")
    with _lent(given, ways, at) as right, _lent(found, more, at) as left:
        yield right, left


def _there(vec: Any) -> bool:
    return vec.getType() in _VECTORS and not _bound(vec, "VecBoundToCPU")


@contextmanager
def _lent(vec: Any, ways: tuple[str, str], at: Memory) -> Iterator[Numbers]:
    handle, address = ctypes.c_void_p(vec.handle), ctypes.c_void_p()
    check(_D[ways[0]](handle, ctypes.byref(address), None))
    try:
        yield Numbers(address.value, vec.getLocalSize(), SCALAR, at)
    finally:
        check(_D[ways[1]](handle, ctypes.byref(address)))
