"""Differentiable sparse solves for JAX: `solve` and `spsolve` work with jit, grad, jvp and vmap.

A solve is a call of XLA's foreign function interface, so arrays stay where they are. The set-up of a pattern is kept,
and new values refresh it. Derivatives are those of x = A⁻¹ b with respect to b and to the stored entries of A. They
need solves with A and with Aᵀ, from the same set-up, and can be differentiated again.

>>> import jax, jax.numpy as jnp, krylith.jax
>>> from jax.experimental import sparse
>>> A = sparse.BCSR.fromdense(jnp.array([[4.0, -1.0], [-2.0, 4.0]]))
>>> print(krylith.jax.solve(A, jnp.array([3.0, 2.0])))
[1. 1.]
"""

# The base classes and decorators are those of a library that a type checker may lack.
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call, no-any-return"

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse

from krylith import _differentiable as core
from krylith import _native
from krylith._differentiable import OUTCOMES, STATUS, Entries, Spec, There, clear, hashed, keep
from krylith._arrays import lend_indices
from krylith._errors import InvalidInput

__all__ = ["OUTCOMES", "Status", "clear", "keep", "solve", "spsolve"]

#: XLA's name of the call.
_TARGET = "krylith_solve"
if not hasattr(jax, "enable_x64"):
    raise ImportError(f"krylith.jax needs JAX 0.8 or later, and JAX is {jax.__version__}: update jax")


class Status(NamedTuple):
    """How solves ended: arrays with one number for each solve."""

    #: Index of the outcome in `krylith.jax.OUTCOMES`.
    outcome: Any
    iterations: Any
    #: The relative residual ‖b − A x‖/‖b‖ of the returned x.
    residual: Any
    #: The largest relative residual that counts as converged.
    target: Any

    @property
    def success(self) -> Any:
        """True where a solve converged, or reached the limit of its precision."""
        return (self.outcome == _CONVERGED) | (self.outcome == _ROUNDING)


#: The outcomes whose x is good.
_CONVERGED, _ROUNDING = (OUTCOMES.index(name) for name in ("converged", "rounding-limit"))


class _Pattern(NamedTuple):
    """Rows and columns of the entries as they are stored, and the pattern of the solver; see `Entries`."""

    rows: Any
    cols: Any
    row_ptr: Any
    col: Any
    digest: Any
    order: Any
    into: Any


def solve(
    A: Any,
    b: Any,
    *,
    method: str | None = None,
    precond: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_iters: int | None = None,
    symmetric: bool = False,
    throw: bool = True,
    **options: Any,
) -> Any:
    """Solve A x = b.

    Parameters
    ----------
    A : BCOO or BCSR matrix of `jax.experimental.sparse`
        Real or complex. Duplicate entries are summed, and padding is ignored. If the indices are known while JAX
        traces, or A is an argument of a compiled function, a known pattern needs no analysis.
    b : array, shape (n,) or (n, k)
        One or several right-hand sides.
    method, precond, atol, max_iters
        The same as for `krylith.solve`.
    rtol : float, optional
        The default is 1e-10, or 1e-6 for numbers of 32 bits.
    symmetric : bool
        True if A is symmetric; gradients then need no solves with Aᵀ.
    throw : bool
        If a solve does not converge, also for a gradient, the program ends with an error that contains the text of
        `krylith.ConvergenceError`. With False, the result is x and a `Status`, and no error is raised.
    **options
        Further options of `krylith.solve` that are numbers or names.

    Returns
    -------
    array, or array and `Status`
        x, of the shape of b and the type of A and b. The solver computes with 64 bits, also if they have 32.
    """
    n, data, pattern = _taken_apart(A)
    given = {"method": method, "precond": precond, "atol": atol, "max_iters": max_iters} | options
    return _solve_any(n, data, pattern, b, given, rtol, symmetric, throw)


def spsolve(
    data: Any,
    indices: Any,
    indptr: Any,
    b: Any,
    *,
    rtol: float | None = None,
    symmetric: bool = False,
    throw: bool = True,
    **options: Any,
) -> Any:
    """Solve A x = b, with A as three arrays in the order of `jax.experimental.sparse.linalg.spsolve`.

    The keywords are those of `solve`.
    """
    data, indices, indptr = map(jnp.asarray, (data, indices, indptr))
    n = indptr.shape[0] - 1
    pattern = _pattern(n, "csr", (indices, indptr), False)
    return _solve_any(n, data, pattern, b, options, rtol, symmetric, throw)


def _taken_apart(A: Any) -> tuple[int, Any, _Pattern]:
    """Return the size, the stored numbers and the pattern of a matrix."""
    if not isinstance(A, (sparse.BCOO, sparse.BCSR)):
        raise InvalidInput(f"A is of type {type(A).__name__}; expected BCOO or BCSR of jax.experimental.sparse")
    if A.n_batch or A.n_dense:
        raise InvalidInput(
            f"A has {A.n_batch} batch and {A.n_dense} dense dimensions; expected none: "
            "apply jax.vmap to a function of the stored numbers"
        )
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInput(f"A has shape {tuple(A.shape)}; expected a square matrix")
    ordered = A.indices_sorted and A.unique_indices
    if isinstance(A, sparse.BCOO):
        return A.shape[0], A.data, _pattern(A.shape[0], "coo", (A.indices,), ordered)
    return A.shape[0], A.data, _pattern(A.shape[0], "csr", (A.indices, A.indptr), ordered)


#: Patterns of index arrays that exist, by the addresses of the objects.
_known: dict[tuple[Any, ...], tuple[list[Any], _Pattern]] = {}


def _pattern(n: int, kind: str, indices: Sequence[Any], ordered: bool) -> _Pattern:
    """Return the pattern of index arrays, computed once if they are known now, and else in the program."""
    if any(isinstance(array, jax.core.Tracer) for array in indices):
        rows, cols = _coordinates(jnp, n, kind, indices)
        return _traced(n, rows, cols, ordered)
    key = (n, *map(id, indices))
    known = _known.get(key)
    if known is not None and all(there() is array for there, array in zip(known[0], indices)):
        return known[1]
    rows, cols = _coordinates(np, n, kind, [np.asarray(array) for array in indices])
    entries = Entries.of(rows, cols, n)
    with jax.ensure_compile_time_eval():
        arrays = (rows.astype(np.int32), cols.astype(np.int32), entries.row_ptr, entries.col, entries.digest())
        pattern = _Pattern(*map(jnp.asarray, arrays), *(x if x is None else jnp.asarray(x) for x in entries[2:]))
    _known[key] = ([weakref.ref(array, lambda _: _known.pop(key, None)) for array in indices], pattern)
    return pattern


def _coordinates(xp: Any, n: int, kind: str, indices: Sequence[Any]) -> tuple[Any, Any]:
    """Return the row and the column of each entry; those of unused space are outside the matrix."""
    if kind == "coo":
        return indices[0][:, 0], indices[0][:, 1]
    cols, row_ptr = indices
    if xp is np:
        rows = np.full(len(cols), n)
        rows[: row_ptr[-1]] = np.repeat(np.arange(n), np.diff(row_ptr))
        return rows, cols
    return jnp.cumsum(jnp.zeros(cols.shape, jnp.int32).at[row_ptr].add(1, mode="drop")) - 1, cols


def _traced(n: int, rows: Any, cols: Any, ordered: bool) -> _Pattern:
    """Return the pattern of entries that are known when the program runs."""
    stored = rows.shape[0]
    rows, cols = rows.astype(jnp.int32), cols.astype(jnp.int32)
    inside = (rows >= 0) & (rows < n) & (cols >= 0) & (cols < n)
    r, c = jnp.where(inside, rows, n), jnp.where(inside, cols, 0)
    at = jnp.arange(stored, dtype=jnp.int32)

    def as_stored(r: Any, c: Any) -> Any:
        return r, c, at, jnp.where(r < n, at, stored)

    def sorted_(r: Any, c: Any) -> Any:
        r, c, order = lax.sort((r, c, at), num_keys=2)
        first = jnp.concatenate([jnp.ones(1, bool), (r[1:] != r[:-1]) | (c[1:] != c[:-1])])
        into = jnp.cumsum(first, dtype=jnp.int32) - 1
        rows_of = jnp.full(stored, n, jnp.int32).at[into].set(r)
        return rows_of, jnp.zeros(stored, jnp.int32).at[into].set(c), order, jnp.where(r < n, into, stored)

    order = into = None
    if not ordered and stored > 0:
        grows = (r[:-1] < r[1:]) | (r[:-1] == r[1:]) & (c[:-1] < c[1:]) | (r[1:] == n)
        r, c, order, into = lax.cond(grows.all(), as_stored, sorted_, r, c)
    row_ptr = jnp.searchsorted(r, jnp.arange(n + 1, dtype=jnp.int32)).astype(jnp.int32)
    words = jnp.concatenate([row_ptr, c]).astype(jnp.uint32)
    digest = hashed(jnp, words, (row_ptr[-1] + n + 1).astype(jnp.uint32))
    return _Pattern(rows, cols, row_ptr, c, lax.bitcast_convert_type(digest, jnp.int32), order, into)


def _solve_any(
    n: int, data: Any, pattern: _Pattern, b: Any, given: dict[str, Any], rtol: float | None, symmetric: bool, throw: bool
) -> Any:
    data, b = jnp.asarray(data), jnp.asarray(b)
    if data.shape != pattern.rows.shape:
        raise InvalidInput(f"A has {pattern.rows.shape[0]} indices and numbers of shape {data.shape}; expected one each")
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise InvalidInput(f"b has shape {b.shape}; expected ({n},) or ({n}, k)")
    dtype = jnp.result_type(data.dtype, b.dtype, jnp.float32)
    if dtype not in (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128):
        raise InvalidInput(f"A and b have the type {dtype}; expected numbers of 32 or 64 bits")
    narrow = dtype in (jnp.float32, jnp.complex64)
    is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
    if is_complex and given.get("block") is not None:
        raise InvalidInput("`block` does not work with complex numbers, whose real form has blocks of its own")
    default = 1e-6 if narrow else 1e-10
    spec = Spec.of(2 if is_complex else 0, given, default if rtol is None else rtol, throw)
    data, b = data.astype(dtype), b.astype(dtype)
    return _solve(spec, symmetric, pattern, data, b)


def reals(vector: Any) -> Any:
    """Return a vector as real numbers; those of a complex one are twice as many."""
    return jnp.stack([vector.real, vector.imag], -1).reshape(-1) if jnp.iscomplexobj(vector) else vector


def restored(vector: Any, dtype: Any) -> Any:
    """Return real numbers as a vector of this type, the inverse of `reals`."""
    return lax.complex(vector[0::2], vector[1::2]) if jnp.issubdtype(dtype, jnp.complexfloating) else vector


def real_blocks(data: Any) -> Any:
    """Return stored numbers as real ones; a + ib is the block [[a, −b], [b, a]]."""
    if not jnp.iscomplexobj(data):
        return data
    re, im = data.real, data.imag
    return jnp.stack([jnp.stack([re, -im], -1), jnp.stack([im, re], -1)], -2)


def _compiled(spec: Spec, symmetric: bool, pattern: _Pattern, data: Any, b: Any) -> Any:
    blocks = real_blocks(data)

    def one(b: Any) -> Any:
        answer = _one(spec, symmetric, pattern, blocks, reals(b))
        return restored(answer, b.dtype) if spec.throw else (restored(answer[0], b.dtype), answer[1])

    if b.ndim == 1:
        return one(b)
    return jax.vmap(one, in_axes=1, out_axes=1 if spec.throw else (1, 0))(b)


_solve = jax.jit(_compiled, static_argnums=(0, 1))


def _one(spec: Spec, symmetric: bool, pattern: _Pattern, data: Any, b: Any) -> Any:
    """Solve for one vector of real numbers; differentiable."""
    adjoint = replace(spec, transpose=not spec.transpose)

    def through(spec: Spec) -> Any:
        def run(_: Any, b: Any) -> Any:
            x, status = call(spec, pattern, data, b)
            return x if spec.throw else (x, status)

        return run

    return lax.custom_linear_solve(
        lambda x: product(pattern, data, x), b, through(spec), through(adjoint), symmetric=symmetric, has_aux=not spec.throw
    )


def product(pattern: _Pattern, data: Any, x: Any, transpose: bool = False) -> Any:
    """Return A x, from the stored entries, so that derivatives are with respect to these."""
    to, of = (pattern.cols, pattern.rows) if transpose else (pattern.rows, pattern.cols)
    if data.ndim == 1:
        return jnp.zeros(x.shape, x.dtype).at[to].add(data * x.at[of].get(mode="fill", fill_value=0), mode="drop")
    m = data.shape[-1]
    blocks = x.reshape(-1, m)
    letters = "eji,ej->ei" if transpose else "eij,ej->ei"
    terms = jnp.einsum(letters, data, blocks.at[of].get(mode="fill", fill_value=0))
    return jnp.zeros(blocks.shape, x.dtype).at[to].add(terms, mode="drop").reshape(-1)


def call(spec: Spec, pattern: _Pattern, data: Any, b: Any) -> tuple[Any, Status]:
    """Solve for one vector of real numbers, in a call that has no derivatives; return x and the status."""
    dtype = b.dtype
    # Numbers of 32 bits become numbers of 64 bits here, also where JAX does not use these by default.
    with jax.enable_x64(True):
        wide, right = data.astype(jnp.float64), b.astype(jnp.float64)
        values = wide
        if pattern.order is not None:
            stored = pattern.col.shape[0]
            values = jax.ops.segment_sum(wide[pattern.order], pattern.into, stored)
        values = values.reshape(-1)
        mark = lax.platform_dependent(values, cpu=lambda v: jnp.zeros(4, jnp.int32), default=_mark)
        # Zeros that are batched as the result is: its memory is that of these.
        first = values[:1].sum()
        zeros = jnp.where(jnp.zeros(right.shape, bool), right + first, 0.0)
        shapes = jax.ShapeDtypeStruct(right.shape, jnp.float64), jax.ShapeDtypeStruct((STATUS,), jnp.float64)
        run = jax.ffi.ffi_call(_TARGET, shapes, vmap_method="expand_dims", input_output_aliases={6: 0})
        arrays = (pattern.row_ptr, pattern.col, pattern.digest, values, mark, right, zeros)
        answer, said = run(*arrays, spec=spec.text)
        x = answer.astype(dtype)
        outcome, residual, target = said[0].astype(jnp.int32), said[2], said[3]
        if dtype == jnp.float32:
            # The certificate is that of the rounded x.
            r = right - product(pattern, wide, x.astype(jnp.float64), spec.transpose)
            norm = jnp.linalg.norm(right)
            residual = jnp.linalg.norm(r) / jnp.where(norm > 0, norm, 1.0)
            good = (outcome == _CONVERGED) | (outcome == _ROUNDING)
            outcome = jnp.where(good, jnp.where(residual <= target, _CONVERGED, _ROUNDING), outcome).astype(jnp.int32)
        status = Status(outcome, said[1].astype(jnp.int32), residual.astype(dtype), target.astype(dtype))
    return x, status


def _mark(values: Any) -> Any:
    """Return a fingerprint of numbers on a GPU, which tells whether they are new."""
    words = lax.bitcast_convert_type(values, jnp.uint32).reshape(-1)
    return lax.bitcast_convert_type(hashed(jnp, words), jnp.int32)


def _lent(described: tuple[str, int, list[int]], columns: int | None, place: Any) -> Any:
    """Return the array of a buffer, of one dimension, or of two if the rows have `columns` numbers."""
    kind, pointer, shape = described
    size = math.prod(shape)
    flat = (size,) if columns is None else (size // columns if columns else math.prod(shape[:-1]), columns)
    there = There(kind, pointer, flat, place)
    return there if place is not None else np.asarray(there) if size else np.empty(flat, kind)


def _called(
    text: str, arguments: list[tuple[str, int, list[int]]], results: list[tuple[str, int, list[int]]], place: Any
) -> None:
    """Solve for the buffers of a call, which XLA describes by type, address and dimensions."""
    for _, _, shape in arguments[:3]:
        if math.prod(shape) != shape[-1]:
            raise InvalidInput("jax.vmap varies the indices of A; expected one pattern, with varying numbers")
    row_ptr, col, digest = (_lent(one, None, place) for one in arguments[:3])
    values, marks, b = arguments[3:6]
    batch = results[0][2][:-1]

    def rows_of(shape: Sequence[int]) -> list[int]:
        """Return which row of an argument each system takes."""
        count = math.prod(shape[:-1])
        return np.broadcast_to(np.arange(count).reshape(shape[:-1]), batch).reshape(-1).tolist()

    if place is None:
        tokens: list[Any] = [None] * math.prod(values[2][:-1])
    else:
        numbers = _native.read_indices(lend_indices(_lent(marks, None, place)))
        tokens = [tuple(numbers[i : i + 4]) for i in range(0, len(numbers), 4)]
    stored, right, x, status = (_lent(one, one[2][-1], place) for one in (values, b, *results))
    rows = rows_of(values[2]), rows_of(b[2])
    known = tuple(core.read_indices(digest, 0, 4))
    core.run(Spec.read(text), known, row_ptr, col, tokens, stored, right, x, status, *rows)


def _register() -> None:
    """Register the call with XLA."""
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    found = re.search(r"XLA_FFI_API_MAJOR (\d+)", header.read_text(encoding="utf-8")) if header.exists() else None
    if found and int(found[1]) != _MAJOR:
        raise ImportError(
            f"jaxlib has version {found[1]} of XLA's foreign function interface; this Krylith knows version {_MAJOR}: "
            "update krylith, or install another jaxlib"
        )
    for platform, address in zip(("cpu", "CUDA"), _native.xla_handlers(_called)):
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(address), platform=platform)


#: The major version of XLA's interface that the extension module knows.
_MAJOR = 0
_register()
