"""Vectors of the caller: NumPy arrays on the host, or arrays in the memory of a GPU, which are not moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylith._errors import InvalidInput


def on_device(array: Any) -> bool:
    """Return True for an array in the memory of a GPU, such as one of CuPy or PyTorch."""
    if type(array) is np.ndarray or is_jax(array):
        return False  # arrays of JAX are immutable, so they are read as arrays of NumPy
    is_cuda = getattr(array, "is_cuda", None)  # PyTorch raises where others lack the attribute
    return is_cuda if is_cuda is not None else hasattr(array, "__cuda_array_interface__")


def is_torch(array: Any) -> bool:
    """Return True for a PyTorch tensor."""
    return type(array).__module__.partition(".")[0] == "torch"


def is_jax(array: Any) -> bool:
    """Return True for an array or a matrix of JAX."""
    return type(array).__module__.partition(".")[0] in ("jax", "jaxlib")


def is_complex(array: Any) -> bool:
    """Return True for an array, a matrix or an operator of complex numbers."""
    return array.is_complex() if is_torch(array) else getattr(getattr(array, "dtype", None), "kind", "") == "c"


def numbers_of(array: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """Return numbers as a contiguous array in the same memory, of float64, or of complex128 if they are complex.

    `dtype` is one of both: real numbers become complex, and complex ones are refused where real ones are needed.
    """
    array = array if is_torch(array) or on_device(array) else np.asarray(array)
    found = is_complex(array)
    if found and dtype is not None and dtype.kind != "c":
        raise InvalidInput("the numbers are complex; expected real numbers")
    dtype = np.dtype(np.complex128 if found else np.float64) if dtype is None else dtype
    if is_torch(array):
        _check_gradients(array)
        array = array.detach()
        array = (array.cdouble().resolve_conj() if dtype.kind == "c" else array.double()).contiguous()
        return array if array.is_cuda else array.numpy()
    if on_device(array):
        return array.astype(dtype, order="C", copy=False)
    if array.dtype.kind not in "fiubc":
        raise InvalidInput(f"numbers of type {array.dtype} are not supported; convert them to float64")
    return aligned(np.ascontiguousarray(array, dtype=dtype))


def float64(array: Any) -> Any:
    """Return the numbers as a contiguous float64 array in the same memory; reject complex numbers."""
    return numbers_of(array, np.dtype(np.float64))


def as_complex(array: Any) -> Any:
    """Return an array of complex128 of the same library and shape; the same one if it has this type."""
    if is_torch(array):
        return array.cdouble()
    return array.astype("complex128", copy=False)


def zeros_of_reals(like: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of float64 in the memory of an array, on the host or on a GPU."""
    if is_torch(like):
        return like.new_zeros(shape, dtype=like.real.dtype).double()
    if not on_device(like):
        return np.zeros(shape)
    if type(like).__module__.partition(".")[0] != "cupy":
        kind = f"{type(like).__module__}.{type(like).__name__}"
        raise InvalidInput(f"complex numbers on a GPU are in a {kind}; pass an array of CuPy or a tensor of PyTorch")
    import cupy

    with like.device:
        return cupy.zeros(shape)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return the numbers at aligned addresses; numbers in a packed file may be misaligned."""
    return array if array.flags.aligned else array.copy()


def _check_gradients(array: Any) -> None:
    import torch

    if array.requires_grad and torch.is_grad_enabled():
        raise InvalidInput(
            "a tensor requires gradients, which this function does not compute; "
            "call krylith.torch.solve, or pass tensor.detach()"
        )


def remote(array: Any) -> tuple[int, int, int, int | None]:
    """Return the address, length, GPU and stream of a contiguous array on a GPU."""
    if is_torch(array):
        import torch

        device = array.device.index
        return array.data_ptr(), array.numel(), device, torch.cuda.current_stream(device).cuda_stream
    interface = array.__cuda_array_interface__
    size = 1
    for n in interface["shape"]:
        size *= n
    if interface.get("strides") is not None and size > 0 and not _is_contiguous(interface):
        raise InvalidInput("an array on a GPU is not contiguous; pass a contiguous array")
    # DLPack identifies a GPU by (2, its number).
    ordinal = array.__dlpack_device__()[1] if hasattr(array, "__dlpack_device__") else array.device.id
    return interface["data"][0], size, ordinal, interface.get("stream")


def _is_contiguous(interface: dict[str, Any]) -> bool:
    step = int(interface["typestr"][2:])
    for n, stride in zip(reversed(interface["shape"]), reversed(interface["strides"])):
        if n > 1 and stride != step:
            return False
        step *= n
    return True


def lend(array: Any) -> Any:
    """Return an array in the form that the extension module accepts."""
    return array if type(array) is np.ndarray else remote(array)


def lend_indices(array: Any) -> Any:
    """Return indices of 32 or 64 bits in the form that the extension module accepts."""
    if is_torch(array):
        if array.is_cuda:
            return remote(array), array.element_size()
        array = array.numpy()
    elif on_device(array):
        return remote(array), array.dtype.itemsize
    dtype = array.dtype if array.dtype in (np.int32, np.int64) else np.int64
    return aligned(np.ascontiguousarray(array, dtype=dtype))


def on_host(array: Any) -> np.ndarray:
    """Return a float64 array as a contiguous NumPy array."""
    if is_torch(array):
        array = array.cpu().numpy()
    elif on_device(array):
        array = array.get() if hasattr(array, "get") else np.asarray(array)
    return np.ascontiguousarray(array)


def copy_like(array: Any, numbers: np.ndarray) -> Any:
    """Return a copy of a NumPy array in the library and on the device of `array`, which has its shape."""
    if is_torch(array):
        import torch

        return torch.from_numpy(numbers.copy()).to(array.device)
    if not on_device(array):
        return numbers.copy()
    out = empty_like(array)
    if hasattr(out, "set"):
        out.set(numbers)
        return out
    out[...] = numbers
    return out


class _Lent:
    """Numbers at a place on a GPU, for libraries that read `__cuda_array_interface__`."""

    def __init__(self, pointer: int, size: int, stream: int | None) -> None:
        self.__cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": (size,),
            "typestr": "<f8",
            "version": 3,
            "stream": stream or None,
        }


def like(array: Any, numbers: Any) -> Any:
    """Return a copy of numbers in the library and on the device of `array`, which has their shape.

    The numbers are a NumPy array, or the address, length, GPU and stream of numbers on a GPU.
    """
    if type(numbers) is np.ndarray:
        return copy_like(array, numbers)
    pointer, size, ordinal, stream = numbers
    there = _Lent(pointer, size, stream)
    if is_torch(array):
        import torch

        return torch.as_tensor(there, device=f"cuda:{ordinal}").to(array.device, copy=True)
    out = empty_like(array)
    out[...] = __import__(type(array).__module__.partition(".")[0]).asarray(there)
    return out


def receiver(given: Any, model: Any, what: str) -> Any:
    """Return the array of numbers of `out`, which receives a result like `model`; refuse any other `out`."""
    out: Any = given
    if is_torch(given):
        _check_gradients(given)
        out = given.detach() if given.is_cuda else given.detach().numpy()
    elif isinstance(given, np.ndarray):
        out = np.asarray(given)  # a map of a file, for example
    there = on_device(model)
    if on_device(out) != there or not there and type(out) is not np.ndarray:
        place = "an array on the GPU, like b" if there else "an array of NumPy"
        raise InvalidInput(f"`out` is a {type(out).__module__}.{type(out).__name__}; expected {place}")
    if tuple(out.shape) != tuple(model.shape):
        raise InvalidInput(f"`out` has shape {tuple(out.shape)}; expected that of {what}, {tuple(model.shape)}")
    expected = "complex128" if is_complex(model) else "float64"
    if str(out.dtype).rpartition(".")[2] != expected:
        raise InvalidInput(f"`out` has numbers of type {out.dtype}; expected {expected}")
    if not there and not out.flags.writeable:
        raise InvalidInput("`out` is read-only; pass an array that may be written")
    if not there and not out.flags.aligned:
        raise InvalidInput("`out` is not aligned in memory; pass an array that NumPy has allocated")
    of_torch = getattr(out, "is_contiguous", None)
    if not (out.flags.c_contiguous if of_torch is None else of_torch()):
        raise InvalidInput(
            "`out` is not contiguous in the order of C; pass whole rows of an array, or an array of its own"
        )
    return out


def apart(array: Any, out: Any) -> Any:
    """Return numbers that a result in `out` does not overwrite: a copy if they may share memory."""
    shared = type(array) is np.ndarray and type(out) is np.ndarray and np.may_share_memory(array, out)
    return array.copy() if shared else array


def copy_of(array: Any) -> Any:
    """Return a copy in the same library and memory."""
    return array.clone() if is_torch(array) else array.copy()


def stacked(arrays: list[Any]) -> Any:
    """Return flat arrays of one library and device as the rows of an array."""
    first = arrays[0]
    module: Any = np if type(first) is np.ndarray else __import__(type(first).__module__.partition(".")[0])
    return module.stack(arrays)


def held(array: Any) -> Any:
    """Return numbers as a NumPy array, or their place on a GPU with their array."""
    array = float64(array)
    return array if type(array) is np.ndarray else (remote(array), array)


def zeros_like(array: Any) -> Any:
    """Return zeros of the same library, shape and device."""
    if type(array) is np.ndarray:
        return np.zeros(array.shape)  # unlike zeros_like, this leaves the first touch of the memory to its user
    out = empty_like(array)
    out[...] = 0.0
    return out


def empty_like(array: Any) -> Any:
    """Return a new array of the same library, shape and device."""
    if type(array) is np.ndarray:
        return np.empty_like(array)
    if is_torch(array):
        import torch

        return torch.empty_like(array)
    module = __import__(type(array).__module__.partition(".")[0])
    return module.empty_like(array)
