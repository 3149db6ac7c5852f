"""Functions of vectors in the memory of a GPU, as linear operators of a solve."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import numpy as np

from krylith import _native
from krylith._arrays import on_device, remote
from krylith._complex import Form
from krylith._errors import InvalidInput
from krylith._operator import Operator, function_of, is_function

#: The library whose arrays a function gets.
Like = Literal["cupy", "torch", "jax"]

#: The number of CUDA among the kinds of devices of DLPack.
_CUDA = 2
#: Views of addresses that are kept. A method uses the same vectors again.
_VIEWS = 512


class DeviceVector:
    """A vector of a solve in the memory of a GPU: float64 numbers that belong to Krylith.

    It has `__cuda_array_interface__`, `__dlpack__` and `__dlpack_device__`, by which other libraries use the memory
    without a copy. It is valid during the call of the function that gets it, and in work of `stream`.
    """

    def __init__(self, pointer: int, size: int, gpu: int, stream: int) -> None:
        #: Address of the numbers, their count, and the number of the GPU.
        self.pointer, self.size, self.gpu = pointer, size, gpu
        #: The CUDA stream in which the function must work, as an integer.
        self.stream = stream

    shape = property(lambda self: (self.size,))
    dtype = np.dtype(np.float64)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.pointer, False),
            "shape": (self.size,),
            "strides": None,
            "typestr": "<f8",
            "version": 3,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.gpu

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """Return a capsule. Work of the consumer's stream waits for what Krylith's stream has now."""
        if stream != -1 and stream != self.stream:
            _native.order(self.gpu, self.stream, 1 if stream is None else stream)
        return _native.capsule(self.pointer, self.size, self.gpu)


class DeviceOperator(Operator):
    """A linear map that is a function of vectors in the memory of a GPU.

    `krylith.solve`, `krylith.Solver`, `krylith.cg` and the other methods take it as A or as the preconditioner.
    The vectors of the solve stay on the GPU. The function works in the stream of the solver, which is the current
    stream of CuPy or PyTorch during the call.

    Parameters
    ----------
    function : callable
        The map. With `like`, it gets x as an array of that library and returns A x, an array of the same library.
        With `out=True` it gets x and y and writes A x to y, which saves a copy. Without `like`, it gets x and y as
        objects with `__cuda_array_interface__` and `__dlpack__`, writes y, and works in `x.stream`. It must not
        change x, nor keep x or y.
    n : int
        Number of unknowns.
    like : {"cupy", "torch", "jax"}, optional
        The library of the arrays. JAX needs its option `jax_enable_x64`.
    capturable : bool
        True if the function puts all of its work in the current stream, and the same work for every x. It is then
        recorded in a CUDA graph with the rest of the iteration, and not called in each iteration. It must not wait
        for the GPU, read numbers on the host, or use arrays that are freed before the operator. What it allocates
        during a recording by CuPy or PyTorch stays with the operator. JAX works in streams of its own, so its
        functions cannot be recorded.
    transpose : callable, optional
        The transposed map, with the same arguments, for solves with Aᵀ.
    out : bool
        True for a function of x and y.
    device : int
        Number of the GPU.

    Examples
    --------
    A matrix of CuPy as a function; `matvec` is the function itself:

    >>> import krylith
    >>> A = krylith.DeviceOperator(lambda x: 2 * x, 100, like="cupy")  # doctest: +SKIP
    >>> A.shape  # doctest: +SKIP
    (100, 100)
    """

    _on_gpu = True

    def __init__(
        self,
        function: Callable[..., Any],
        n: int,
        *,
        like: Like | None = None,
        capturable: bool = False,
        transpose: Callable[..., Any] | None = None,
        out: bool = False,
        device: int = 0,
    ) -> None:
        if not callable(function) or transpose is not None and not callable(transpose):
            raise InvalidInput("a DeviceOperator needs a function")
        if like not in (None, "cupy", "torch", "jax"):
            raise InvalidInput(f"`like` is {like!r}; expected 'cupy', 'torch', 'jax' or None")
        if like == "jax":
            _check_jax(capturable, out)
        n, device = int(n), int(device)
        if n < 1 or device < 0:
            raise InvalidInput("`n` is at least 1, and `device` at least 0")
        self.shape, self.device = (n, n), device
        self._function, self._turned, self._like, self._out = function, transpose, like, out
        turned = None if transpose is None else caller(transpose, like, out)
        #: The operator of the extension module.
        self._native = _native.Function(caller(function, like, out), turned, True, bool(capturable))

    def _map(self, v: Any, out: Any, form: Form) -> Any:
        """Apply the function to a vector of its library, outside of a solve."""
        turned = Form.TRANSPOSED in form
        function = self._turned if turned else self._function
        if function is None:
            raise InvalidInput("the operator has no transpose; give one as `transpose=`")
        if self._out or self._like is None or not on_device(v) and self._like != "jax":
            raise InvalidInput("only a function that returns arrays of its library applies to arrays, which are of that library")
        found = function(v)
        if out is None:
            return found
        out[...] = found
        return out

    def __repr__(self) -> str:
        return f"<krylith.DeviceOperator {self.shape[0]}×{self.shape[1]}, of {self._like or 'addresses'}>"

    def __getstate__(self) -> Any:
        raise TypeError("a function of GPU vectors cannot be copied or pickled")


def _check_jax(capturable: bool, out: bool) -> None:
    import jax

    if capturable or out:
        raise InvalidInput("functions of JAX work in streams of their own, and return arrays; omit `capturable` and `out`")
    config: Any = jax.config
    if not config.jax_enable_x64:
        raise InvalidInput("JAX rounds float64 numbers to float32; set jax.config.update('jax_enable_x64', True) first")


def caller(function: Callable[..., Any], like: Like | None, out: bool = False) -> Callable[..., None]:
    """Return a function of addresses that calls a function of arrays."""
    if like == "cupy":
        return _OfCupy(function, out)
    if like == "torch":
        return _OfTorch(function, out)
    return _of_jax(function) if like == "jax" else _of_addresses(function)


def native_of(operator: Any, n: int, name: str) -> _native.Function:
    """Return an operator or a function, which has n unknowns, as the extension module takes it."""
    if isinstance(operator, DeviceOperator):
        if operator.shape != (n, n):
            raise InvalidInput(f"{name} is {operator.shape[0]}×{operator.shape[1]}, and the system has {n} unknowns")
        return operator._native
    real = np.dtype(np.float64)
    call = function_of(operator, n, name, real)
    turned = getattr(operator, "rmatvec", None)
    return _native.Function(call, None if turned is None else function_of(turned, n, name, real), False, False)


def maps_of(A: Any, precond: Any, n: int) -> tuple[_native.Function | None, _native.Function | None]:
    """Return A and the preconditioner as functions of the extension module, where they are functions."""
    return (
        None if A is None else native_of(A, n, "A"),
        native_of(precond, n, "the preconditioner") if is_function(precond) else None,
    )


def unknowns_of(A: Any, precond: Any) -> int:
    """Return the number of unknowns of a function without a matrix; refuse a preconditioner by name."""
    if isinstance(precond, str) and precond.strip() not in ("auto", "none"):
        raise InvalidInput(f"the preconditioner {precond!r} needs a matrix; pass one as `precond_matrix=`")
    if not hasattr(A, "shape") or A.shape[0] == 0:
        raise InvalidInput("a function as A has no shape; pass a LinearOperator or a krylith.DeviceOperator")
    return int(A.shape[0])


def device_of(*operators: Any) -> str | None:
    """Return the GPU of the operators that are functions of GPU vectors, as an option; refuse several GPUs."""
    found = {operator.device for operator in operators if isinstance(operator, DeviceOperator)}
    if len(found) > 1:
        raise InvalidInput(f"A and the preconditioner are on different GPUs, {sorted(found)}")
    return f"cuda:{found.pop()}" if found else None


def settle(array: Any) -> None:
    """Wait for work in the current stream of an array's library."""
    library = like_of(array)
    if library == "cupy":
        import cupy

        cupy.cuda.get_current_stream().synchronize()
    elif library == "torch":
        import torch

        torch.cuda.current_stream(array.device).synchronize()
    elif library == "jax":
        array.block_until_ready()


def like_of(array: Any) -> Like | None:
    """Return the name of an array's library, if functions may get its arrays."""
    name: Any = type(array).__module__.partition(".")[0]
    name = "jax" if name == "jaxlib" else name
    return name if name in ("cupy", "torch", "jax") else None


def _of_addresses(function: Callable[..., Any]) -> Callable[..., None]:
    def call(x: int, y: int, n: int, gpu: int, stream: int, _: bool) -> None:
        function(DeviceVector(x, n, gpu, stream), DeviceVector(y, n, gpu, stream))

    return call


def _of_jax(function: Callable[..., Any]) -> Callable[..., None]:
    import jax

    # A result is freed when work of JAX after it has waited for its copy.
    kept: list[Any] = []

    def call(x: int, y: int, n: int, gpu: int, stream: int, _: bool) -> None:
        found = function(jax.dlpack.from_dlpack(DeviceVector(x, n, gpu, stream)))
        if like_of(found) != "jax":
            raise InvalidInput(f"a function returned a {type(found).__name__}; expected an array of jax")
        taken = found.__dlpack__(stream=stream)
        pointer, size = _native.numbers_of(taken, gpu)
        _check_size(size, n)
        _native.copy(gpu, y, pointer, n, stream)
        kept[:] = [*kept[-2:], (found, taken)]

    return call


def _check_size(size: int, n: int) -> None:
    if size != n:
        raise InvalidInput(f"a function returned {size} numbers; expected {n}")


class _OfLibrary:
    """A function of arrays of CuPy or PyTorch, whose streams and memory follow those of the solver."""

    def __init__(self, function: Callable[..., Any], out: bool, name: str) -> None:
        self._function, self._out, self._name = function, out, name
        self._views: dict[tuple[int, int], Any] = {}
        self._streams: dict[tuple[int, int], Any] = {}
        self._rehearsed: set[tuple[int, int]] = set()
        self._pool: Any = None

    def _make_view(self, pointer: int, n: int, gpu: int) -> Any:
        raise NotImplementedError

    def _make_stream(self, gpu: int, stream: int) -> Any:
        raise NotImplementedError

    def _within(self, gpu: int, stream: Any) -> ExitStack:
        """Return the context of a call: the GPU and the stream."""
        raise NotImplementedError

    def _recording(self, gpu: int) -> Any:
        """Return the context of a call that is recorded, whose memory the operator keeps."""
        raise NotImplementedError

    def _rehearse(self, x: Any, gpu: int) -> None:
        """Call the function in a stream of its own, and wait: a first call may compile kernels and make handles."""
        raise NotImplementedError

    def _view(self, pointer: int, n: int, gpu: int) -> Any:
        view = self._views.get((pointer, n))
        if view is None:
            if len(self._views) >= _VIEWS:
                self._views.clear()
            view = self._views[pointer, n] = self._make_view(pointer, n, gpu)
        return view

    def __call__(self, x: int, y: int, n: int, gpu: int, stream: int, recording: bool) -> None:
        work = self._streams.get((gpu, stream))
        if work is None:
            work = self._streams[gpu, stream] = self._make_stream(gpu, stream)
        from_, to = self._view(x, n, gpu), self._view(y, n, gpu)
        if recording and (gpu, stream) not in self._rehearsed:
            self._rehearsed.add((gpu, stream))  # each solver has a thread, for which libraries make handles
            self._rehearse(from_, gpu)
        with self._within(gpu, work) as context:
            if recording:
                context.enter_context(self._recording(gpu))
            if self._out:
                self._function(from_, to)
                return
            found = self._function(from_)
            if not on_device(found) or str(getattr(found, "dtype", "")).rpartition(".")[2] != "float64":
                kind = getattr(found, "dtype", "no numbers")
                raise InvalidInput(f"a function returned a {type(found).__name__} of {kind}; expected float64 on the GPU")
            if type(found).__module__.partition(".")[0] == "torch":
                found = found.detach().contiguous()
            elif not found.flags.c_contiguous:
                found = found.copy()
            pointer, size, *_ = remote(found)
            _check_size(size, n)
            _native.copy(gpu, y, pointer, n, stream)


class _OfCupy(_OfLibrary):
    def __init__(self, function: Callable[..., Any], out: bool) -> None:
        import cupy

        super().__init__(function, out, "cupy")
        self._cupy = cupy

    def _make_view(self, pointer: int, n: int, gpu: int) -> Any:
        cupy = self._cupy
        memory = cupy.cuda.UnownedMemory(pointer, 8 * n, self, gpu)
        return cupy.ndarray((n,), np.float64, cupy.cuda.MemoryPointer(memory, 0))

    def _make_stream(self, gpu: int, stream: int) -> Any:
        return self._cupy.cuda.ExternalStream(stream, gpu)

    def _within(self, gpu: int, stream: Any) -> ExitStack:
        context = ExitStack()
        context.enter_context(self._cupy.cuda.Device(gpu))
        context.enter_context(stream)
        return context

    def _recording(self, gpu: int) -> Any:
        if self._pool is None:
            self._pool = self._cupy.cuda.MemoryPool()
        return self._cupy.cuda.using_allocator(self._pool.malloc)

    def _rehearse(self, x: Any, gpu: int) -> None:
        cupy = self._cupy
        with cupy.cuda.Device(gpu), cupy.cuda.Stream(non_blocking=True) as stream:
            copy = cupy.zeros(x.shape)
            self._function(copy, cupy.empty_like(copy)) if self._out else self._function(copy)
            stream.synchronize()


class _OfTorch(_OfLibrary):
    def __init__(self, function: Callable[..., Any], out: bool) -> None:
        import torch

        super().__init__(function, out, "torch")
        self._torch = torch

    def _make_view(self, pointer: int, n: int, gpu: int) -> Any:
        return self._torch.as_tensor(DeviceVector(pointer, n, gpu, 1), device=f"cuda:{gpu}")

    def _make_stream(self, gpu: int, stream: int) -> Any:
        return self._torch.cuda.ExternalStream(stream, device=gpu)

    def _within(self, gpu: int, stream: Any) -> ExitStack:
        context = ExitStack()
        context.enter_context(self._torch.no_grad())
        context.enter_context(self._torch.cuda.stream(stream))
        return context

    def _recording(self, gpu: int) -> Any:
        if self._pool is None:
            self._pool = self._torch.cuda.MemPool()
        return self._torch.cuda.use_mem_pool(self._pool, gpu)

    def _rehearse(self, x: Any, gpu: int) -> None:
        torch = self._torch
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream(gpu)):
            copy = torch.zeros(x.shape, dtype=torch.float64, device=f"cuda:{gpu}")
            self._function(copy, torch.empty_like(copy)) if self._out else self._function(copy)
            torch.cuda.current_stream(gpu).synchronize()
