"""Many small systems with one pattern."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from krylith import _native
from krylith._arrays import empty_like, is_complex, is_torch, lend, numbers_of, on_device, on_host
from krylith._complex import conjugate, form_of, reals
from krylith._errors import ConvergenceError, InvalidInput

#: Seconds of work between two looks for Ctrl-C, and the number of systems to begin with.
_SECONDS, _FIRST = 0.2, 64


class BatchSolution:
    """The result of `krylith.solve_batch`.

    Attributes
    ----------
    x : ndarray of shape (k, n)
        The solutions; 0 for a system without factors.
    residuals : ndarray of shape (k,)
        ‖b − A x‖/‖b‖ of each x as returned, in double precision; NaN for a system without factors.
    converged : ndarray of bool, of shape (k,)
        Which residuals are at most `rtol`.
    errors : dict of int to str
        The numbers of systems that could not be solved, and why.
    seconds : float
        The time of the call.
    """

    def __init__(self, x: Any, residuals: Any, rtol: float, errors: dict[int, str], seconds: float) -> None:
        self.x, self.residuals, self.errors, self.seconds = x, residuals, errors, seconds
        self.converged = residuals <= rtol
        self._rtol = rtol

    def __len__(self) -> int:
        return len(self.residuals)

    def __bool__(self) -> bool:
        """Return True if all systems converged."""
        return bool(self.converged.all())

    def check(self) -> BatchSolution:
        """Return self, or raise `ConvergenceError` for the first system that did not converge."""
        if self:
            return self
        raise ConvergenceError(self)

    def _failure(self) -> str:
        """Return which system failed first, and why."""
        bad = np.flatnonzero(~self.converged)
        if not len(bad):
            return "all systems converged"
        k = int(bad[0])
        why = self.errors.get(k, f"system {k}: ‖b − A x‖/‖b‖ is {self.residuals[k]:.1e}, wanted {self._rtol:.1e}")
        return f"{len(bad)} of {len(self)} systems did not converge; {why}"

    def __repr__(self) -> str:
        good = int(self.converged.sum())
        return f"<krylith.BatchSolution: {good} of {len(self)} systems converged, {self.seconds:.3g} s>"


def solve_batch(
    A: Any,
    B: Any,
    values: Any = None,
    *,
    rtol: float = 1e-10,
    transpose: bool | Literal["N", "T", "H"] = False,
    threads: int | None = None,
    out: Any = None,
) -> BatchSolution:
    """Solve many small systems Aₖ xₖ = bₖ with one sparsity pattern by direct factors.

    On the host, all threads solve them, and each analyses the pattern once. If `values` and `B` are in the memory of a
    GPU, cuDSS solves them there, and x stays there. Its pivots come only from within blocks, so systems that it does
    not solve to the tolerance are solved on the host. Solutions are refined in double precision. A system that cannot
    be solved does not end the call: see `errors` and `check` of the result.

    Parameters
    ----------
    A : sparse matrix or sequence of sparse matrices
        The pattern, if `values` are given, else the k matrices. SciPy matrices or sparse arrays of any format; blocks
        of BSR are kept. With `values` the format must be CSR, CSC, COO or BSR without duplicates. With `values` on a
        GPU it is a CSR matrix of SciPy, CuPy or PyTorch with sorted columns.
    B : array of shape (k, n), or (n,) for one right-hand side of all systems
        The right-hand sides.
    values : array of shape (k, nnz), optional
        The values of all matrices, in the order of `A.data`. Those on a GPU are real.
    rtol : float
        The tolerance for ‖b − A x‖/‖b‖.
    transpose : bool, "N", "T" or "H"
        Solve with the transposes ("T" or True) or with the adjoints ("H") of the matrices.
    threads : int, optional
        The largest number of threads.
    out : ndarray of shape (k, n), optional
        A contiguous array for x.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array([-1.0, 4.0, -2.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> values = np.outer(np.linspace(1, 2, 1000), A.data)  # 1000 matrices
    >>> solution = krylith.solve_batch(A, np.ones(50), values)
    >>> solution.x.shape, bool(solution)
    ((1000, 50), True)
    """
    start = time.perf_counter()
    if values is not None and on_device(values) and on_device(B):
        return _on_device(A, B, values, rtol, transpose, threads, out, start)
    if any(on_device(one) for one in (A, B, values)):
        raise InvalidInput("solve_batch takes `values` and B both on a GPU, or A, B and `values` all on the host")
    block, nodes, row_ptr, col, numbers = _systems(A, values)
    rhs = np.asarray(B)
    count, n = len(numbers), nodes * block
    if rhs.shape not in ((n,), (count, n)):
        raise InvalidInput(f"B has shape {rhs.shape}; {count} systems of {n} unknowns need ({count}, {n}) or ({n},)")
    is_complex = numbers.dtype.kind == "c" or rhs.dtype.kind == "c"
    dtype = np.dtype("complex128" if is_complex else "float64")
    rhs = np.ascontiguousarray(np.broadcast_to(rhs, (count, n)), dtype)
    if is_complex:
        numbers, block = _real_blocks(numbers, block), 2 * block
    x = np.empty((count, n), dtype) if out is None else out
    if not (isinstance(x, np.ndarray) and x.shape == (count, n) and x.dtype == dtype and x.flags.c_contiguous):
        raise InvalidInput(f"`out` must be a contiguous array of {dtype} with shape ({count}, {n})")
    transposed, conjugated = form_of(transpose).of_reals(dtype)
    batch = _native.Batch(block, nodes, row_ptr, col, threads)
    b, to = reals(rhs.reshape(-1)), reals(x.reshape(-1))
    if conjugated:
        b = conjugate(b.copy())
    residuals, errors = np.empty(count), {}
    width, stored, done, share = len(b) // max(count, 1), numbers.shape[1], 0, _FIRST
    flat = numbers.reshape(-1)
    while done < count:
        end, began = min(done + share, count), time.perf_counter()
        own = slice(done * width, end * width)
        found, bad = batch.solve(flat[done * stored : end * stored], b[own], to[own], float(rtol), transposed)
        residuals[done:end] = found
        errors.update({done + k: why.replace(f"system {k}:", f"system {done + k}:") for k, why in bad})
        share *= 2 if time.perf_counter() - began < _SECONDS / 2 else 1
        done = end
    if conjugated:
        conjugate(to)
    return BatchSolution(x, residuals, rtol, errors, time.perf_counter() - start)


def _on_device(
    A: Any, B: Any, values: Any, rtol: float, transpose: Any, threads: int | None, out: Any, start: float
) -> BatchSolution:
    """Solve a batch in the memory of a GPU, and on the host the systems that are not solved there."""
    if is_complex(values) or is_complex(B):
        raise InvalidInput("a batch of complex systems is solved on the host: copy `values` and B there")
    row_ptr, col = _rows_of(A)
    n, stored, count = len(row_ptr) - 1, len(col), len(values)
    if tuple(values.shape) != (count, stored):
        raise InvalidInput(f"`values` has shape {tuple(values.shape)}; the pattern has {stored} numbers, so it needs (k, "
                           f"{stored})")  # fmt: skip
    if tuple(B.shape) not in ((n,), (count, n)):
        raise InvalidInput(f"B has shape {tuple(B.shape)}; {count} systems of {n} unknowns need ({count}, {n}) or ({n},)")
    numbers, rhs = numbers_of(values), numbers_of(B)
    if rhs.ndim == 1:
        rhs = rhs.expand(count, n).contiguous() if is_torch(rhs) else rhs[None, :].repeat(count, axis=0)
    x = empty_like(rhs) if out is None else out
    if not on_device(x) or tuple(x.shape) != (count, n) or str(x.dtype).rpartition(".")[2] != "float64":
        raise InvalidInput(f"`out` must be a contiguous array of float64 with shape ({count}, {n}) on the GPU")
    transposed = form_of(transpose).of_reals(np.dtype("float64"))[0]
    ordinal = lend(numbers.reshape(-1))[2]
    batch = _native.DeviceBatch(ordinal, row_ptr, col)
    lent = [lend(one.reshape(-1)) for one in (numbers, rhs, x)]
    residuals = np.array(batch.solve(lent[0], lent[1], lent[2], float(rtol), transposed))
    errors: dict[int, str] = {}
    bad = [int(k) for k in np.flatnonzero(~(residuals <= rtol))]
    if bad:
        again, own = _native.Batch(1, n, row_ptr, col, threads), np.empty((len(bad), n))
        left, right = (on_host(one[bad]).reshape(-1) for one in (numbers, rhs))
        residuals[bad], failed = again.solve(left, right, own.reshape(-1), float(rtol), transposed)
        errors = {bad[k]: why.replace(f"system {k}:", f"system {bad[k]}:") for k, why in failed}
        for k, solution in zip(bad, own):
            if is_torch(x):
                import torch

                x[k] = torch.from_numpy(solution).to(x.device)
            else:
                x[k].set(solution)
    return BatchSolution(x, residuals, rtol, errors, time.perf_counter() - start)


def _rows_of(A: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and columns of a pattern in CSR, on the host."""
    if is_torch(A):
        arrays = (A.crow_indices(), A.col_indices())
        shape = tuple(A.shape)
    elif getattr(A, "format", None) == "csr":
        arrays, shape = (A.indptr, A.indices), A.shape
    else:
        raise InvalidInput("with `values` on a GPU, A must be a CSR matrix of SciPy, CuPy or PyTorch")
    if shape[0] != shape[1]:
        raise InvalidInput(f"a batch needs square matrices; these have shape {shape}")
    row_ptr, col = (np.ascontiguousarray(on_host(one), np.int64) for one in arrays)
    inside = np.ones(max(len(col) - 1, 0), bool)
    inside[[p - 1 for p in row_ptr[1:-1] if 0 < p < len(col)]] = False
    if np.any(inside & (np.diff(col) <= 0)):
        raise InvalidInput("with `values` on a GPU, the columns of each row must be sorted, without duplicates")
    return row_ptr, col


def _systems(A: Any, values: Any) -> tuple[int, int, Any, Any, Any]:
    """Return block size, block rows, offsets, columns, and the values of all matrices in block rows."""
    if values is None:
        if hasattr(A, "tocsr"):
            raise InvalidInput("A is one matrix: pass `values` of shape (k, nnz), or a sequence of matrices")
        if not isinstance(A, Sequence) or not A or not all(hasattr(one, "tocsr") for one in A):
            raise InvalidInput("A must be a sparse matrix with `values`, or a sequence of sparse matrices")
        rows = [_by_rows(one) for one in A]
        first = rows[0]
        for k, one in enumerate(rows):
            alike = one.shape == first.shape and _block(one) == _block(first)
            if not alike or not (np.array_equal(one.indptr, first.indptr) and np.array_equal(one.indices, first.indices)):
                raise InvalidInput(f"matrix {k} has another pattern than matrix 0; store its zeros explicitly")
        numbers = np.stack([one.data.reshape(-1) for one in rows])
        return _pattern(first, numbers)
    if not hasattr(A, "tocsr") or A.format not in ("csr", "csc", "coo", "bsr"):
        raise InvalidInput("with `values`, A must be a sparse matrix in the format CSR, CSC, COO or BSR")
    given = np.asarray(values)
    if given.ndim == A.data.ndim + 1 and given.shape[1:] == A.data.shape:
        given = given.reshape(len(given), A.data.size)
    if given.ndim != 2 or given.shape[1] != A.data.size:
        raise InvalidInput(f"`values` has shape {given.shape}; the pattern has {A.data.size} numbers, so it needs (k, "
                           f"{A.data.size})")  # fmt: skip
    numbered = A.copy()
    numbered.data = np.arange(1.0, A.data.size + 1.0).reshape(A.data.shape)
    rows = _by_rows(numbered)
    if rows.data.size != A.data.size:
        raise InvalidInput("the pattern has duplicates: call A.sum_duplicates() before taking its values")
    order = rows.data.reshape(-1).astype(np.int64) - 1
    in_order = np.array_equal(order, np.arange(len(order)))
    return _pattern(rows, given if in_order else given[:, order])


def _by_rows(A: Any) -> Any:
    """Return a matrix in CSR or BSR with sorted columns."""
    if A.format == "bsr" and A.blocksize[0] == A.blocksize[1]:
        rows = A.copy()
        rows.sum_duplicates()
    else:
        rows = A.tocsr(copy=True)
        rows.sum_duplicates()
    rows.sort_indices()
    return rows


def _block(A: Any) -> int:
    return int(A.blocksize[0]) if A.format == "bsr" else 1


def _pattern(rows: Any, numbers: Any) -> tuple[int, int, Any, Any, Any]:
    block = _block(rows)
    if rows.shape[0] != rows.shape[1]:
        raise InvalidInput(f"a batch needs square matrices; these have shape {rows.shape}")
    numbers = np.ascontiguousarray(numbers, np.complex128 if numbers.dtype.kind == "c" else np.float64)
    return block, rows.shape[0] // block, rows.indptr.astype(np.int64), rows.indices.astype(np.int64), numbers


def _real_blocks(numbers: Any, block: int) -> Any:
    """Return the blocks of the real form, [[a, −b], [b, a]] for a + ib, of all matrices."""
    z = numbers.reshape(len(numbers), numbers.shape[1] // block**2, block, block)
    real = np.empty((*z.shape[:2], block, 2, block, 2))
    real[..., :, 0, :, 0] = real[..., :, 1, :, 1] = z.real
    real[..., :, 1, :, 0] = z.imag
    real[..., :, 0, :, 1] = -z.imag
    return real.reshape(len(numbers), 4 * numbers.shape[1])
