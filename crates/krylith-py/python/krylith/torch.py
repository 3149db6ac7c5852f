"""Differentiable sparse solves for PyTorch: `solve` and `spsolve` work with autograd, torch.compile and vmap.

A solve is the operator `krylith::solve`. Tensors stay on their device, and the current CUDA stream is respected. The
set-up of a pattern is kept, and new values refresh it. Gradients are those of x = A⁻¹ b with respect to b and to the
stored entries of A. They need solves with Aᵀ, from the same set-up, and can be differentiated again.
"""

# The base classes and decorators are those of a library that a type checker may lack.
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call, no-any-return"

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from krylith import _differentiable as core
from krylith._arrays import lend_indices
from krylith._differentiable import STATUS, Spec, There, clear, keep
from krylith._errors import InvalidInput

__all__ = ["clear", "keep", "solve", "spsolve"]

_WORD = 0xFFFFFFFF


def solve(
    A: torch.Tensor,
    b: torch.Tensor,
    *,
    method: str | None = None,
    precond: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_iters: int | None = None,
    throw: bool = True,
    **options: Any,
) -> Any:
    """Solve A x = b.

    Parameters
    ----------
    A : sparse tensor of layout CSR, COO or BSR
        Real or complex. A COO tensor is coalesced, and the gradient is sparse like A.
    b : tensor, shape (n,) or (n, k)
        One or several right-hand sides, on the device of A.
    method, precond, atol, max_iters
        The same as for `krylith.solve`.
    rtol : float, optional
        The default is 1e-10, or 1e-6 for numbers of 32 bits.
    throw : bool
        Raise `krylith.ConvergenceError` if a solve does not converge, also for a gradient. With False, the result is
        x and a boolean tensor, which is true where a solve converged or reached the limit of its precision.
    **options
        Further options of `krylith.solve` that are numbers or names.

    Returns
    -------
    tensor, or two tensors
        x, of the shape of b and the type of A and b. The solver computes with 64 bits, also if they have 32.
    """
    given = {"method": method, "precond": precond, "atol": atol, "max_iters": max_iters} | options
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInput(f"A has shape {tuple(A.shape)}; expected a square matrix: torch.vmap makes batches")
    if A.layout == torch.sparse_coo:
        A = A.coalesce()
        rows, cols = A.indices()
        edges = torch.arange(A.shape[0] + 1, device=A.device)
        return _solve(A.values(), torch.searchsorted(rows.contiguous(), edges), cols, b, given, rtol, throw)
    if A.layout not in (torch.sparse_csr, torch.sparse_bsr):
        raise InvalidInput(f"A has the layout {A.layout}; expected sparse CSR, COO or BSR: such as A.to_sparse_csr()")
    return _solve(A.values(), A.crow_indices(), A.col_indices(), b, given, rtol, throw)


def spsolve(
    values: torch.Tensor,
    crow: torch.Tensor,
    col: torch.Tensor,
    b: torch.Tensor,
    *,
    rtol: float | None = None,
    throw: bool = True,
    **options: Any,
) -> Any:
    """Solve A x = b, with A as the tensors of `torch.sparse_csr_tensor`, or of `torch.sparse_bsr_tensor`.

    The columns of each row are sorted. The keywords are those of `solve`.
    """
    return _solve(values, crow, col, b, options, rtol, throw)


def _solve(
    values: torch.Tensor,
    crow: torch.Tensor,
    col: torch.Tensor,
    b: torch.Tensor,
    given: dict[str, Any],
    rtol: float | None,
    throw: bool,
) -> Any:
    rows, block = crow.shape[-1] - 1, values.shape[-1] if values.ndim == 3 else 0
    n = rows * max(block, 1)
    if values.ndim not in (1, 3) or block and values.shape[-2] != block:
        raise InvalidInput(f"A has stored numbers of shape {tuple(values.shape)}; expected one, or a square block, each")
    if b.layout != torch.strided or b.ndim not in (1, 2) or b.shape[0] != n:
        raise InvalidInput(f"b has layout {b.layout} and shape {tuple(b.shape)}; expected dense, ({n},) or ({n}, k)")
    dtype = torch.promote_types(values.dtype, b.dtype)
    if dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise InvalidInput(f"A and b have the type {dtype}; expected numbers of 32 or 64 bits")
    if not values.device == crow.device == col.device == b.device or values.device.type not in ("cpu", "cuda"):
        raise InvalidInput(f"A is on {values.device} and b on {b.device}; expected one device, a CPU or a GPU of CUDA")
    values, b = values.to(dtype), b.to(dtype)
    right = b.T if b.ndim == 2 else b[None]
    if dtype.is_complex:  # a + ib as the block [[a, −b], [b, a]]
        if given.get("block") is not None:
            raise InvalidInput("`block` does not work with complex numbers, whose real form has blocks of its own")
        block = max(block, 1)
        of = values.reshape(-1, block, block)
        re, im = of.real, of.imag
        values = torch.stack([torch.stack([re, -im], -1), torch.stack([im, re], -1)], -3).flatten(-2).flatten(-3, -2)
        # The axes are entry, row, part of the row, column, part of the column.
        right = torch.view_as_real(right.resolve_conj()).flatten(-2)
        block *= 2
    narrow = dtype in (torch.float32, torch.complex64)
    default = 1e-6 if narrow else 1e-10
    text = _text(block, tuple(given.items()), default if rtol is None else rtol, throw)
    x, good = _apply(values[None], crow, col, right.contiguous(), text, False)
    if dtype.is_complex:
        x = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    x, good = (x.T, good) if b.ndim == 2 else (x[0], good[0])
    return x if throw else (x, good)


@torch.compiler.assume_constant_result
def _text(block: int, given: tuple[tuple[str, Any], ...], rtol: float, throw: bool) -> str:
    """Return the spec of a call as text, also while a program is compiled."""
    return Spec.of(block, dict(given), rtol, throw).text


@torch.library.custom_op("krylith::solve", mutates_args=())
def _op(
    values: torch.Tensor, crow: torch.Tensor, col: torch.Tensor, b: torch.Tensor, spec: str, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve for each row of b with the row of values of the same number, or with the only one."""
    of = replace(Spec.read(spec), transpose=transpose)
    many = max(len(values), len(b))
    wide = values.detach().double().reshape(len(values), -1).contiguous()
    right = b.detach().double().contiguous()
    x = torch.zeros(many, right.shape[1], dtype=torch.float64, device=b.device)
    status = torch.empty(many, STATUS, dtype=torch.float64)
    place = None
    if b.is_cuda:
        place = (b.get_device(), torch.cuda.current_stream(b.device).cuda_stream)
        known: Any = tuple(_hash(torch.cat([crow, col]))[0].tolist())
        marks: list[Any] = [tuple(row) for row in _hash(wide.view(torch.int32)).tolist()]
    else:
        known, marks = _digest(crow, col), [None] * len(wide)
    arrays = [_lent(crow, place), _lent(col, place), marks, *(_lent(one, place) for one in (wide, right, x)), status.numpy()]
    rows = [[i if len(one) > 1 else 0 for i in range(many)] for one in (wide, right)]
    core.run(of, known, *arrays, *rows)
    success = (status[:, 0] == core.OUTCOMES.index("converged")) | (status[:, 0] == core.OUTCOMES.index("rounding-limit"))
    return x.to(b.dtype), success.to(b.device)


def _lent(tensor: torch.Tensor, place: tuple[int, int] | None) -> Any:
    """Return the array of a contiguous tensor, without a copy."""
    tensor = tensor.detach().contiguous()
    if place is None:
        return tensor.numpy()
    kind = {torch.float64: "<f8", torch.int64: "<i8", torch.int32: "<i4"}[tensor.dtype]
    there = There(kind, tensor.data_ptr(), tuple(tensor.shape), place)
    there.owner = tensor  # which may be a copy
    return there


def _digest(*indices: torch.Tensor) -> bytes:
    """Return 128 bits that identify a pattern on the host."""
    found = hashlib.blake2b(digest_size=16)
    for one in indices:
        found.update(np.ascontiguousarray(one.numpy()).view(np.uint8).data)
    return found.digest()


def _hash(numbers: torch.Tensor) -> torch.Tensor:
    """Return four words that identify each row of integers, as `core.hashed` computes them."""
    words = numbers.reshape(-1, numbers.shape[-1]).long() & _WORD
    at = torch.arange(1, words.shape[-1] + 1, device=words.device)

    def mix(h: torch.Tensor) -> torch.Tensor:
        h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _WORD
        h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _WORD
        return h ^ (h >> 16)

    return torch.stack([mix(words ^ mix((at * c) & _WORD)).sum(-1) & _WORD for c in core.LANES], -1)


@_op.register_fake
def _(
    values: torch.Tensor, crow: torch.Tensor, col: torch.Tensor, b: torch.Tensor, spec: str, transpose: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    many = b.shape[0] if values.shape[0] == 1 else values.shape[0]
    return b.new_empty(many, b.shape[1]), b.new_empty(many, dtype=torch.bool)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    values, crow, col, _, ctx.spec, ctx.transpose = inputs
    ctx.save_for_backward(values, crow, col, output[0])
    ctx.of_b = inputs[3].shape[0]


def _backward(ctx: Any, g: torch.Tensor, _: Any) -> tuple[Any, ...]:
    values, crow, col, x = ctx.saved_tensors
    lam, _ = _apply(values, crow, col, g.contiguous(), ctx.spec, not ctx.transpose)
    of_values = None
    if ctx.needs_input_grad[0]:
        left, right = _at_entries((x, lam) if ctx.transpose else (lam, x), values, crow, col)
        of_values = -left * right if values.ndim == 2 else -left[..., :, None] * right[..., None, :]
        of_values = of_values.sum(0, keepdim=True) if values.shape[0] == 1 else of_values
    of_b = lam.sum(0, keepdim=True) if ctx.of_b == 1 else lam
    return of_values, None, None, of_b, None, None


def _at_entries(
    vectors: tuple[torch.Tensor, torch.Tensor], values: torch.Tensor, crow: torch.Tensor, col: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of one vector in the row, and of another in the column, of each entry or block."""
    rows = _rows(crow, col)
    left, right = (one if values.ndim == 2 else one.unflatten(-1, (-1, values.shape[-1])) for one in vectors)
    return left.index_select(1, rows), right.index_select(1, col)


def _rows(crow: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
    """Return the row of each entry."""
    rows = torch.arange(crow.shape[0] - 1, device=crow.device)
    return torch.repeat_interleave(rows, crow.diff().long(), output_size=col.shape[0])


def _product(values: torch.Tensor, crow: torch.Tensor, col: torch.Tensor, x: torch.Tensor, transpose: bool) -> torch.Tensor:
    """Return A x, or Aᵀ x, for each row of x."""
    left, right = _at_entries((x, x), values, crow, col)
    if values.ndim == 2:
        terms = values * (left if transpose else right)
    else:
        terms = torch.einsum("...ij,...i->...j" if transpose else "...ij,...j->...i", values, left if transpose else right)
    empty = torch.zeros(terms.shape[0], crow.shape[0] - 1, *terms.shape[2:], dtype=terms.dtype, device=terms.device)
    return empty.index_add(1, col.long() if transpose else _rows(crow, col), terms).flatten(1)


class _Solve(torch.autograd.Function):
    """The operator with the transforms of torch.func, which operators of a library do not have."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        return torch.ops.krylith.solve(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _keep(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:3], output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        return _backward(ctx, *g)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        values, crow, col, x = ctx.saved_tensors
        of_values, of_b = tangents[0], tangents[3]
        change = torch.zeros_like(x) if of_b is None else of_b.expand_as(x)
        if of_values is not None:
            change = change - _product(of_values, crow, col, x, ctx.transpose)
        return _apply(values, crow, col, change.contiguous(), ctx.spec, ctx.transpose)[0], None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _batched(info, in_dims, *inputs)


def _apply(*inputs: Any) -> Any:
    """Solve, with derivatives and batches."""
    if torch.compiler.is_compiling():
        return torch.ops.krylith.solve(*inputs)
    return _Solve.apply(*inputs)


def _batched(
    info: Any, in_dims: tuple[int | None, ...], values: Any, crow: Any, col: Any, b: Any, spec: str, transpose: bool
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[int, int]]:
    if in_dims[1] is not None or in_dims[2] is not None:
        raise InvalidInput("torch.vmap varies the indices of A; expected one pattern, with varying numbers")
    size = info.batch_size
    values, b = (one[None] if dim is None else one.movedim(dim, 0) for one, dim in ((values, in_dims[0]), (b, in_dims[3])))
    many = max(values.shape[1], b.shape[1])
    if values.shape[:2] != (1, 1):
        values = values.expand(size, many, *values.shape[2:]).flatten(0, 1)
        b = b.expand(size, many, b.shape[-1])
    else:
        values = values[0]
        b = b.expand(size, many, b.shape[-1])
    x, good = _apply(values, crow, col, b.flatten(0, 1).contiguous(), spec, transpose)
    return (x.unflatten(0, (size, many)), good.unflatten(0, (size, many))), (0, 0)


_op.register_autograd(_backward, setup_context=_keep)
_op.register_vmap(_batched)
