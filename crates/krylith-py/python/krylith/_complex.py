"""Complex numbers as the real numbers that the library computes with.

The entry a + ib is the block [[a, −b], [b, a]]. A complex vector in memory is then the real vector of point blocks of
two, without a copy. The transpose of the real form is that of the adjoint Aᴴ.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from krylith._arrays import copy_of, is_complex, is_torch, numbers_of, zeros_of_reals
from krylith._errors import InvalidInput


class Form(enum.Flag):
    """An operator, its transpose, its conjugate, or both: its adjoint."""

    PLAIN = 0
    TRANSPOSED = enum.auto()
    CONJUGATED = enum.auto()
    ADJOINT = TRANSPOSED | CONJUGATED

    def of_reals(self, dtype: np.dtype[Any]) -> tuple[bool, bool]:
        """Return whether to transpose the real form, and whether to conjugate vectors before and after.

        The transpose of the real form is the adjoint, so that the transpose and the conjugate are those of conjugated
        vectors. Real numbers are their own conjugates.
        """
        transposed = Form.TRANSPOSED in self
        return transposed, dtype.kind == "c" and transposed != (Form.CONJUGATED in self)


#: SciPy's words for the forms of an operator.
FORMS = {"N": Form.PLAIN, "T": Form.TRANSPOSED, "H": Form.ADJOINT}


def form_of(transpose: Any) -> Form:
    """Return the form that a caller names: True or "T" for the transpose, "H" for the adjoint."""
    if isinstance(transpose, str):
        if transpose not in FORMS:
            raise InvalidInput(f"`transpose` is {transpose!r}; expected True, False, 'N', 'T' or 'H'")
        return FORMS[transpose]
    return Form.TRANSPOSED if transpose else Form.PLAIN


def dtype_of(*given: Any) -> np.dtype[Any]:
    """Return complex128 if one of the matrices, operators or vectors is complex, else float64."""
    return np.dtype(np.complex128 if any(is_complex(one) for one in given) else np.float64)


def reals(array: Any) -> Any:
    """Return contiguous numbers as real ones in the same memory; the last axis is twice as long for complex ones."""
    if not is_complex(array):
        return array
    if is_torch(array):
        import torch

        return torch.view_as_real(array).flatten(-2)
    return array.view("float64")


def restored(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return contiguous real numbers as numbers of this type in the same memory, the inverse of `reals`."""
    if dtype.kind != "c":
        return array
    if is_torch(array):
        import torch

        return torch.view_as_complex(array.unflatten(-1, (-1, 2)))
    return array.view("complex128")


def conjugate(flat: Any) -> Any:
    """Conjugate complex numbers in the form of real ones, in place."""
    flat[1::2] *= -1.0
    return flat


def conjugated(flat: Any) -> Any:
    """Return a conjugated copy of complex numbers in the form of real ones."""
    return conjugate(copy_of(flat))


def real_blocks(values: Any, m: int) -> Any:
    """Return the real blocks of 2m×2m of complex blocks of m×m, flat, in the memory of the values."""
    of = values.reshape(-1, m, m)
    blocks = zeros_of_reals(of, (len(of), m, 2, m, 2))
    blocks[:, :, 0, :, 0] = of.real
    blocks[:, :, 1, :, 1] = of.real
    blocks[:, :, 1, :, 0] = of.imag
    blocks[:, :, 0, :, 1] -= of.imag
    return blocks.reshape(-1)


def complex_blocks(values: np.ndarray, m: int) -> np.ndarray:
    """Return the complex blocks of m×m of real blocks of 2m×2m, flat: the inverse of `real_blocks`."""
    blocks = values.reshape(-1, m, 2, m, 2)
    return (blocks[:, :, 0, :, 0] + 1j * blocks[:, :, 1, :, 0]).reshape(-1)


def real_form(A: Any) -> Any:
    """Return the scalar rows of the real form of a sparse matrix of SciPy."""
    from scipy.sparse import bsr_array

    A = A.tocsr()
    blocks = real_blocks(numbers_of(A.data), 1).reshape(-1, 2, 2)
    return bsr_array((blocks, A.indices, A.indptr), shape=(2 * A.shape[0], 2 * A.shape[1])).tocsr()


def real_vectors(vectors: Sequence[Any]) -> list[np.ndarray]:
    """Return the real vectors that span complex ones: n and i·n of each."""
    return [reals(factor * numbers_of(v, np.dtype(np.complex128)).reshape(-1)) for v in vectors for factor in (1.0, 1j)]
