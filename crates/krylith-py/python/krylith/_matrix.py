"""Conversion of matrices of SciPy, CuPy and PyTorch to three arrays each, which are not moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from krylith import _native
from krylith._arrays import float64, is_complex, is_torch, lend, lend_indices, numbers_of, on_device
from krylith._comm import Handle, handle_of
from krylith._complex import complex_blocks, real_blocks, real_form
from krylith._errors import InvalidInput, NewPattern
from krylith._order import Order, copied

#: Part of the library's error text for rows that SciPy allows and the library does not.
_UNSORTED = "are not sorted or repeat"


class KroneckerSum:
    """The operator A⊗M + τ B⊗L of a space-time method, which is never formed.

    Parameters
    ----------
    A, B : array_like, shape (s, s)
        Coefficients of the stages.
    M, L : sparse matrix, shape (N, N)
        Matrices of the space discretisation, with the same block size.
    tau : float
        The factor of B⊗L.
    block : int, optional
        Number of unknowns of a node. The default is the block size of BSR matrices, or else one that suits
        both patterns.

    Notes
    -----
    Vectors have shape (N, s), with one column for each stage. Flat vectors hold one stage after the other.

    With `comm`, M and L are the rows of this rank with all columns: the same rows of both, and the same A, B and
    τ on every rank. Vectors then have this rank's rows. `K @ v` is for whole sums; over ranks it is
    `solver.multiply(v)`.

    Examples
    --------
    Two stages of the Radau IIA method for u' + u = 0 at one node, with time step 1/2:

    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> B = np.array([[5, -1], [9, 3]]) / 12
    >>> K = krylith.KroneckerSum(np.eye(2), sp.eye_array(1), B, sp.eye_array(1), tau=0.5)
    >>> s = krylith.solve(K, -np.ones((1, 2)), rtol=1e-12)
    >>> float(np.round(1 + 0.5 * s.x @ [3 / 4, 1 / 4], 4)[0]), float(np.round(np.exp(-0.5), 4))
    (0.6061, 0.6065)
    """

    def __init__(self, A: Any, M: Any, B: Any, L: Any, tau: float, *, block: int | None = None) -> None:
        self.A, self.B = (np.array(float64(C), ndmin=2) for C in (A, B))
        self.M, self.L, self.tau, self.block = M, L, float(tau), block

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns of the whole operator."""
        s = self.A.shape[0]
        return (self.M.shape[0] * s, self.M.shape[1] * s)

    #: Numbers are float64.
    dtype = np.dtype(np.float64)

    def matvec(self, v: Any) -> Any:
        """Return the product with a vector of shape (N, s) or (N·s,)."""
        v = numbers_of(v)
        s, n = self.A.shape[0], self.M.shape[1]
        if v.shape not in ((n, s), (n * s,)):
            raise InvalidInput(f"the vector has shape {v.shape}; expected ({n}, {s}) or ({n * s},)")
        V = v if v.ndim == 2 else v.reshape(s, n).T
        product = (self.M @ V) @ self.A.T + self.tau * ((self.L @ V) @ self.B.T)
        return product if v.ndim == 2 else product.T.reshape(-1)

    __matmul__ = matvec

    def __repr__(self) -> str:
        s = self.A.shape[0]
        return f"<KroneckerSum A⊗M + τB⊗L: {s} stages, M and L of {self.M.shape[0]} rows, τ = {self.tau:g}>"


class Pattern(NamedTuple):
    """Index arrays of a matrix, kept to check that new values have the same pattern."""

    row_ptr: Any
    col: Any

    def is_that_of(self, other: Pattern, threads: int | None) -> bool:
        return all(_same(a, b, threads) for a, b in zip(self, other))


def _same(a: Any, b: Any, threads: int | None) -> bool:
    if len(a) != len(b):
        return False
    if on_device(a) or on_device(b):
        return on_device(a) and on_device(b) and bool((a == b).all())
    return _native.same_indices(lend_indices(a), lend_indices(b), threads)


class Parts(NamedTuple):
    """The arrays of a matrix, which may be complex; the system is then its real form."""

    shape: tuple[int, int]
    #: Block size of BSR; 0 for CSR.
    block: int
    pattern: Pattern
    values: Any
    #: The order in which an array of new values stores its numbers.
    order: Order
    #: True if the caller shares the index arrays, and may change them.
    shared: bool
    #: Number of threads that check the arrays; None for all.
    threads: int | None = None
    #: Options of the solver that the matrix is for, as text; None if it is made on the host.
    options: str | None = None

    def kept(self) -> Parts:
        """Return parts that do not share index arrays with the caller, to check new values against."""
        pattern = Pattern(*(copied(a, self.threads) for a in self.pattern)) if self.shared else self.pattern
        return self._replace(pattern=pattern, order=self.order.kept(self.threads), shared=False)

    @property
    def gpu(self) -> int | None:
        """The GPU that holds the matrix, or None."""
        return lend(self.values)[2] if on_device(self.values) else None

    def system(self, block: int | None, comm: Handle | None = None) -> _native.System:
        """Return the system of this matrix, or of this rank's rows of a distributed matrix."""
        row_ptr, col = (lend_indices(a) for a in self.pattern)
        rows, columns = self.shape
        if is_complex(self.values):
            return self._real_form(comm, block).system(2 * block if block and comm is not None else None, comm)
        if comm is not None:
            return _native.System.distributed(comm, rows, columns, row_ptr, col, lend(self.values), block, self.threads)
        if self.block == 0:
            return _native.System.csr(rows, columns, row_ptr, col, lend(self.values), block, self.threads, self.options)
        rows, columns = rows // self.block, columns // self.block
        return _native.System.bsr(self.block, rows, columns, row_ptr, col, lend(self.values), self.threads, self.options)

    def _real_form(self, comm: Handle | None, block: int | None) -> Parts:
        """Return the parts of the real form, in blocks, or in scalar rows for a distributed matrix."""
        if self.gpu is not None and comm is not None:
            raise InvalidInput("a complex matrix over ranks is on a GPU; pass its rows on the host")
        m = max(self.block, 1)
        whole = self._replace(shape=(2 * self.shape[0], 2 * self.shape[1]))
        if comm is None:
            return whole._replace(block=2 * m, values=real_blocks(self.values, m))
        from scipy.sparse import csr_array

        rows = real_form(csr_array((self.values, self.pattern.col, self.pattern.row_ptr), shape=self.shape))
        return whole._replace(block=0, pattern=Pattern(rows.indptr, rows.indices), values=rows.data)


def most_block(A: Any) -> int:
    """Return the largest number of unknowns of a node."""
    return _native.MAX_BLOCK // (2 if is_complex(A) else 1)


def take_apart(A: Any, block: int | None) -> Parts:
    """Return the arrays of a sparse or dense matrix."""
    most = most_block(A)
    if is_torch(A):
        return _torch_parts(A, block)
    if hasattr(A, "to_scipy_sparse"):
        A = A.to_scipy_sparse()
    order = Order.of(A)
    if not hasattr(A, "tocsr"):
        A = _dense(A)
    _check_dimensions(A)
    if A.format == "bsr":
        b, c = A.blocksize
        if b == c <= most and block in (None, b):
            order.same = True
            return _of_rows(A, b, order, shared=True)
    rows = A.tocsr()
    if is_complex(rows) and block not in (None, 1):
        if on_device(rows.data):
            raise InvalidInput("`block` of a complex matrix needs the matrix on the host; omit it, or pass A.get()")
        return _of_rows(_in_blocks(rows, block), block, order, shared=False)
    order.same = A.format == "csr"
    return _of_rows(rows, 0, order, shared=rows is A)


def _in_blocks(rows: Any, block: int) -> Any:
    if rows.shape[0] % block or rows.shape[1] % block:
        raise InvalidInput(f"`block` is {block}, which does not divide the {rows.shape[0]}×{rows.shape[1]} matrix")
    blocks = rows.tobsr((block, block))
    blocks.sort_indices()
    return blocks


def _of_rows(A: Any, block: int, order: Order, *, shared: bool) -> Parts:
    """Return the arrays of a CSR or BSR matrix, without unused space after the last row."""
    indices, data = A.indices, A.data
    if not on_device(data) and len(A.indptr) > 0 and 0 <= A.indptr[-1] < len(indices):
        indices, data = indices[: A.indptr[-1]], data[: A.indptr[-1]]
    return Parts(A.shape, block, Pattern(A.indptr, indices), numbers_of(data).reshape(-1), order, shared)


def matrix_of(A: Any) -> Any:
    """Return a sparse matrix of JAX as one of SciPy, and any other matrix as it is."""
    if not type(A).__module__.startswith("jax.experimental.sparse"):
        return A
    from scipy.sparse import coo_array, csr_array

    _check_dimensions(A)
    if getattr(A, "n_batch", 0) or getattr(A, "n_dense", 0) or not hasattr(A, "indices"):
        raise InvalidInput(f"A is a {type(A).__name__} with {A.n_batch} batch and {A.n_dense} dense dimensions; expected a matrix without")
    data, indices = np.asarray(A.data), np.asarray(A.indices)
    if hasattr(A, "indptr"):
        row_ptr = np.asarray(A.indptr)
        return csr_array((data[: row_ptr[-1]], indices[: row_ptr[-1]], row_ptr), shape=A.shape)
    inside = (indices < np.array(A.shape)).all(axis=1)  # padding is outside
    return coo_array((data[inside], tuple(indices[inside].T)), shape=A.shape)


def _dense(A: Any) -> Any:
    """Convert a dense matrix to CSR; reject other objects before anything iterates over them."""
    if on_device(A):
        from cupyx.scipy.sparse import csr_matrix

        return csr_matrix(A)
    if hasattr(A, "matvec") or callable(A):
        raise InvalidInput(
            "A is an operator, which has no entries; "
            "pass operators and functions to krylith.gmres or another method by name"
        )
    if not isinstance(A, (list, tuple)) and not hasattr(A, "__array__"):
        raise InvalidInput(
            f"{type(A).__name__} is not a matrix; "
            "pass a sparse matrix of SciPy, CuPy, PyTorch or JAX, or a dense array"
        )
    from scipy.sparse import csr_array

    A = np.asarray(A)
    if A.dtype.kind not in "fiubc":
        raise InvalidInput(f"{type(A).__name__} of {A.dtype} is not a matrix; expected an array of numbers")
    _check_dimensions(A)
    return csr_array(numbers_of(A))


def _check_dimensions(A: Any) -> None:
    if A.ndim != 2:
        raise InvalidInput(
            f"the matrix has {A.ndim} dimensions; expected 2: solve(A, b) takes the matrix first"
        )


def _torch_parts(A: Any, block: int | None) -> Parts:
    import torch

    def flat(a: Any) -> Any:
        return a if a.is_cuda else a.numpy()

    order = Order.of(A)
    if A.layout == torch.sparse_bsr:
        b, c = A.values().shape[1:]
        if b == c <= most_block(A) and block in (None, b):
            order.same = True
            pattern = Pattern(flat(A.crow_indices()), flat(A.col_indices()))
            return Parts(tuple(A.shape), b, pattern, numbers_of(A.values().contiguous().reshape(-1)), order, True)
    order.same = A.layout == torch.sparse_csr
    rows = A if order.same else A.to_sparse_csr()
    return Parts(tuple(A.shape), 0, Pattern(flat(rows.crow_indices()), flat(rows.col_indices())), numbers_of(rows.values()), order, order.same)


def _canonical(A: Any) -> Any:
    """Return the matrix with sorted columns and without duplicate entries."""
    if is_torch(A):
        return A.to_sparse_coo().coalesce().to_sparse_csr()
    A = A.tocsr() if A.format != "bsr" else A
    A = A.copy()
    A.sum_duplicates()
    return A


def system_of(
    A: Any, block: int | None, comm: Any = None, threads: int | None = None, options: str | None = None
) -> tuple[_native.System, list[Parts]]:
    """Return the system of a matrix or a Kronecker sum, and the parts of its matrices.

    Uses `threads` threads, or all. `options` are those of the solver, as text.
    """
    handle, A = handle_of(comm), matrix_of(A)
    if isinstance(A, KroneckerSum):
        block = block if block is not None else A.block
        (m, m_parts), (l, l_parts) = (system_of(X, block, comm, threads=threads) for X in (A.M, A.L))
        if any(is_complex(one.values) for one in m_parts + l_parts):
            raise InvalidInput("M or L of a Kronecker sum is complex; pass real matrices, or the whole sum as one matrix")
        if m.block != l.block:
            return system_of(A, math.gcd(m.block, l.block), comm, threads=threads)
        return _native.System.kronecker(A.A, A.B, A.tau, m, l), m_parts + l_parts
    most = most_block(A)
    if block is not None and not 1 <= block <= most:
        numbers = " for complex numbers" if is_complex(A) else ""
        raise InvalidInput(f"`block` is {block}; expected a whole number from 1 to {most}{numbers}")
    apart = block
    if handle is not None:
        # A distributed matrix is passed as scalar rows; the library forms the blocks.
        block = A.blocksize[0] if block is None and getattr(A, "format", "") == "bsr" else block
        apart = 1
    parts = take_apart(A, apart)._replace(threads=threads, options=options)
    try:
        return parts.system(block, handle), [parts]
    except InvalidInput as e:
        if _UNSORTED not in str(e):
            raise
    # The order of the caller's values differs from that of the sorted rows.
    parts = take_apart(_canonical(A), apart)._replace(order=Order.of(A), threads=threads, options=options)
    return parts.system(block, handle), [parts]


def _difference(new: Parts, known: Parts) -> str:
    if new.shape != known.shape:
        return f"they are {new.shape[0]}×{new.shape[1]}, and the first matrix is {known.shape[0]}×{known.shape[1]}"
    return f"they have {len(new.pattern.col)} entries, and the first matrix has {len(known.pattern.col)}"


def system_of_parts(parts: list[Parts], sum_of: KroneckerSum | None, block: int) -> _native.System:
    """Return the system of parts that were kept; `sum_of` has the coefficients of a Kronecker sum."""
    systems = [one.system(None if one.block else block) for one in parts]
    return systems[0] if sum_of is None else _native.System.kronecker(sum_of.A, sum_of.B, sum_of.tau, *systems)


def with_values(parts: Parts, arrays: tuple[int, Any, Any, Any, Any]) -> Parts:
    """Return parts with the values of a solver's matrix: block size, shape, offsets, block columns, values."""
    from scipy.sparse import bsr_array

    block, shape, row_ptr, col, values = arrays
    if is_complex(parts.values):
        block, shape = block // 2, parts.shape
        values = complex_blocks(values, block)
    A = bsr_array((values.reshape(-1, block, block), col, row_ptr), shape=shape).tocsr()
    values = Order.of(A).values(A.data, parts.pattern, parts.shape, parts.block or 1)
    return parts._replace(values=values)


def new_values(A: Any, known: Parts) -> Any:
    """Return new values in the order of the solver, as real numbers.

    `A` is a matrix with the pattern of `known`, or an array of values in the order of the first matrix.
    """
    values = _new_values(matrix_of(A), known)
    if not is_complex(known.values):
        if is_complex(values):
            raise NewPattern(
                "the new values are complex, and the first matrix is real; create a new Solver, or pass "
                "on_new_pattern='rebuild'"
            )
        return values
    return real_blocks(numbers_of(values, np.dtype(np.complex128)), max(known.block, 1))


def _new_values(A: Any, known: Parts) -> Any:
    block = known.block or 1
    if known.order.means(A, known.shape):
        return known.order.values(A, known.pattern, known.shape, block)
    parts = take_apart(A, block)
    if parts.shape == known.shape and len(parts.values) == len(known.values) and known.pattern.is_that_of(parts.pattern, known.threads):
        return parts.values
    if hasattr(A, "tocsr") or is_torch(A):
        parts = take_apart(_canonical(A), block)
    if parts.shape == known.shape and known.pattern.is_that_of(parts.pattern, known.threads):
        return parts.values
    if parts.shape != known.shape or parts.gpu is not None or is_torch(A):
        raise NewPattern(
            f"the new values have another pattern: {_difference(parts, known)}; create a new Solver, or pass "
            "on_new_pattern='rebuild'"
        )
    # Entries that the new matrix does not store are zero.
    rows = _canonical(A).tocsr() if hasattr(A, "tocsr") else _dense(A)
    return Order.of(rows).values(rows.data, known.pattern, known.shape, block)


def nodes_of(grid: Sequence[int]) -> list[int]:
    """Return the numbers of nodes in x, y and z."""
    if not 1 <= len(grid) <= 3 or not all(isinstance(n, (int, np.integer)) and 0 < n < 2**63 for n in grid):
        raise InvalidInput(
            f"`grid` is {tuple(grid)}; expected one to three positive integers, the numbers of nodes in x, y and z"
        )
    return [int(n) for n in grid] + [1] * (3 - len(grid))


def block_of_nodes(A: Any, nodes: int) -> int | None:
    """Return the number of unknowns of each node.

    It may differ from the block size that suits the pattern.

    Return None if A has its own block size, or if its rows cannot be divided among `nodes` nodes.
    """
    rows = A.shape[0] if hasattr(A, "shape") and getattr(A, "format", "") != "bsr" and not isinstance(A, KroneckerSum) else 0
    return rows // nodes if rows % nodes == 0 and 1 <= rows // nodes <= most_block(A) else None
