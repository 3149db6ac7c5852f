"""Vectors of the caller: on the host as NumPy has them, or in the memory of a GPU, where they stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylith._errors import InvalidInput


def on_device(array: Any) -> bool:
    """True for an array in the memory of a GPU, such as CuPy's and PyTorch's."""
    if type(array) is np.ndarray:
        return False
    is_cuda = getattr(array, "is_cuda", None)  # PyTorch raises where others lack the attribute
    return is_cuda if is_cuda is not None else hasattr(array, "__cuda_array_interface__")


def is_torch(array: Any) -> bool:
    """True for PyTorch's tensors."""
    return type(array).__module__.partition(".")[0] == "torch"


def float64(array: Any) -> Any:
    """The same numbers as f64, without gaps, where they are; complex ones are refused."""
    if is_torch(array):
        if array.is_complex():
            raise InvalidInput(_COMPLEX)
        _check_gradients(array)
        array = array.detach().double().contiguous()
        return array if array.is_cuda else array.numpy()
    if on_device(array):
        if array.dtype.kind == "c":
            raise InvalidInput(_COMPLEX)
        return array.astype("float64", order="C", copy=False)
    array = np.asarray(array)
    if array.dtype.kind == "c":
        raise InvalidInput(_COMPLEX)
    if array.dtype.kind not in "fiub":
        raise InvalidInput(f"numbers of type {array.dtype} are none that a solve knows; convert them to float64")
    return aligned(np.ascontiguousarray(array, dtype=np.float64))


def aligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at addresses that they can be read from, as those of a packed file are not."""
    return array if array.flags.aligned else array.copy()


def _check_gradients(array: Any) -> None:
    import torch

    if array.requires_grad and torch.is_grad_enabled():
        raise InvalidInput("a tensor requires gradients, and a solve gives none: pass tensor.detach(), or solve under torch.no_grad()")


_COMPLEX = "complex numbers are not supported; solve for real and imaginary parts as 2×2 blocks"


def remote(array: Any) -> tuple[int, int, int, int | None]:
    """Address, length, GPU and stream of an array on a GPU, without gaps."""
    if is_torch(array):
        import torch

        device = array.device.index
        return array.data_ptr(), array.numel(), device, torch.cuda.current_stream(device).cuda_stream
    interface = array.__cuda_array_interface__
    size = 1
    for n in interface["shape"]:
        size *= n
    if interface.get("strides") is not None and size > 0 and not _is_contiguous(interface):
        raise InvalidInput("an array on a GPU with gaps between its numbers; give a contiguous one")
    # DLPack names the GPU: (2, its number).
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
    """An array as the extension module takes it."""
    return array if type(array) is np.ndarray else remote(array)


def lend_indices(array: Any) -> Any:
    """Indices of 32 or 64 bits as the extension module takes them."""
    if is_torch(array):
        if array.is_cuda:
            return remote(array), array.element_size()
        array = array.numpy()
    elif on_device(array):
        return remote(array), array.dtype.itemsize
    dtype = array.dtype if array.dtype in (np.int32, np.int64) else np.int64
    return aligned(np.ascontiguousarray(array, dtype=dtype))


def empty_like(array: Any) -> Any:
    """A new array of the same kind, shape and place."""
    if type(array) is np.ndarray:
        return np.empty_like(array)
    if is_torch(array):
        import torch

        return torch.empty_like(array)
    module = __import__(type(array).__module__.partition(".")[0])
    return module.empty_like(array)
