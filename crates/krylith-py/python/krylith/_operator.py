"""Solvers and preconditioners as linear operators, with the interface of SciPy's `LinearOperator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from krylith._arrays import is_complex, is_torch, numbers_of, on_device
from krylith._comm import is_shared
from krylith._complex import Form, reals, restored
from krylith._errors import InvalidInput
from krylith._keywords import PrecondName


class Operator:
    """A linear map with the interface of SciPy's `LinearOperator`; sums and multiples of it are SciPy's."""

    shape: tuple[int, int]
    #: The type of the numbers: float64 or complex128.
    dtype: np.dtype[Any] = np.dtype(np.float64)
    ndim = 2
    #: True for a function of vectors in the memory of a GPU.
    _on_gpu = False
    #: NumPy leaves `array @ operator` to the operator.
    __array_ufunc__ = None

    def _map(self, v: Any, out: Any, form: Form) -> Any:
        """Apply a form of the operator to a vector or to columns. Write the result to `out` if it is given."""
        raise NotImplementedError

    def matvec(self, v: Any, out: Any = None) -> Any:
        """Apply the operator to a vector of shape (n,) or (n, 1). The result is written to `out` if it is given."""
        return self._map(v, out, Form.PLAIN)

    def matmat(self, V: Any, out: Any = None) -> Any:
        """Apply the operator to the columns of V. The result is written to `out` if it is given."""
        return self._map(V, out, Form.PLAIN)

    def rmatvec(self, v: Any) -> Any:
        """Apply the adjoint operator to a vector."""
        return self._map(v, None, Form.ADJOINT)

    def rmatmat(self, V: Any) -> Any:
        """Apply the adjoint operator to the columns of V."""
        return self._map(V, None, Form.ADJOINT)

    @property
    def T(self) -> Any:
        """The transposed operator, which works from the set-up of this one."""
        return _formed(self, Form.TRANSPOSED)

    @property
    def H(self) -> Any:
        """The adjoint operator, which for real numbers is the transposed one."""
        return _formed(self, Form.ADJOINT)

    def transpose(self) -> Any:
        """Return the transposed operator."""
        return self.T

    def adjoint(self) -> Any:
        """Return the adjoint operator."""
        return self.H

    def dot(self, other: Any) -> Any:
        """Apply the operator to a vector, or to columns; return the product with another operator or a scalar."""
        if _is_operator(other):
            return _scipy(self) @ _scipy(other)
        if np.ndim(other) == 0:
            return _scipy(self) * other
        return self._map(other, None, Form.PLAIN)

    def __matmul__(self, other: Any) -> Any:
        if not _is_operator(other) and np.ndim(other) == 0:
            raise InvalidInput("`@` takes a vector, columns or an operator; multiply by a number with `*`")
        return self.dot(other)

    __mul__ = __call__ = dot

    def __rmul__(self, factor: Any) -> Any:
        return _scipy(self) * factor if np.ndim(factor) == 0 else NotImplemented

    def __add__(self, other: Any) -> Any:
        return _scipy(self) + _scipy(other)

    def __sub__(self, other: Any) -> Any:
        return _scipy(self) - _scipy(other)

    def __neg__(self) -> Any:
        return -_scipy(self)


class Transposed(Operator):
    """The transpose, the adjoint or the conjugate of an operator, which refers to it."""

    def __init__(self, operator: Operator, form: Form) -> None:
        self._operator, self._form = operator, form
        rows, columns = operator.shape
        self.shape = (columns, rows) if Form.TRANSPOSED in form else (rows, columns)
        self.dtype = operator.dtype

    def _map(self, v: Any, out: Any, form: Form) -> Any:
        return self._operator._map(v, out, self._form ^ form)

    @property
    def T(self) -> Any:
        """The transpose of this operator."""
        return _formed(self._operator, self._form ^ Form.TRANSPOSED)

    @property
    def H(self) -> Any:
        """The adjoint of this operator."""
        return _formed(self._operator, self._form ^ Form.ADJOINT)

    def __repr__(self) -> str:
        word = {Form.TRANSPOSED: "transpose", Form.ADJOINT: "adjoint", Form.CONJUGATED: "conjugate"}[self._form]
        return f"<{word} of {self._operator!r}>"


def _formed(operator: Operator, form: Form) -> Operator:
    """Return a form of an operator; the conjugate of real numbers is the numbers themselves."""
    form = form if operator.dtype.kind == "c" else form & Form.TRANSPOSED
    return Transposed(operator, form) if form else operator


#: A preconditioner: a name with keys, such as `ildu:fill=1`, an operator with `matvec`, or a function.
Preconditioning: TypeAlias = PrecondName | str | Operator | Callable[[np.ndarray], Any]


def _is_operator(other: Any) -> bool:
    return hasattr(other, "matvec") and hasattr(other, "shape")


def _scipy(operator: Any) -> Any:
    from scipy.sparse.linalg import aslinearoperator

    return aslinearoperator(operator)


def is_matrix(A: Any) -> bool:
    """Return True for a matrix with entries, sparse or dense."""
    return hasattr(A, "tocsr") or is_torch(A) or isinstance(A, np.ndarray) or on_device(A)


def function_of(operator: Any, n: int, name: str, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """Return a function of host vectors that applies a matrix, an operator or a function.

    The function takes and returns vectors of real numbers; the operator sees vectors of this type.
    """
    if is_matrix(operator):
        from krylith._solver import Once

        operator = Once(operator, method="bicgstab", precond="none", device="cpu").multiply
    if isinstance(operator, type):
        raise InvalidInput(f"{name} is the class {operator.__name__}; pass an object of it, such as {operator.__name__}(A)")
    shape = getattr(operator, "shape", (n, n))
    if tuple(shape) != (n, n):
        raise InvalidInput(f"{name} is {shape[0]}×{shape[1]}, but b has {n} numbers")
    if getattr(operator, "_on_gpu", False):
        raise InvalidInput(f"{name} is a function of GPU vectors, which needs a solve on the GPU; omit device='cpu', and give A as a matrix or a DeviceOperator")
    multiply = getattr(operator, "matvec", operator if callable(operator) else None)
    if multiply is None:
        raise InvalidInput(f"{name} is not an operator: {type(operator).__name__} has no matvec")


    def apply(v: Any) -> Any:
        found = multiply(restored(v, dtype))
        if is_complex(found) and dtype.kind != "c":
            raise InvalidInput(f"{name} returns complex numbers for a real vector; pass a complex b, or a complex A")
        return reals(numbers_of(found, dtype)).reshape(-1)

    return apply


#: Keywords that need the library's own preconditioner or its own vectors, with values that change nothing.
_NEEDS_LIBRARY: Mapping[str, tuple[Any, ...]] = {
    "nullspace": (),
    "precision": ("f64",),
    "equilibrate": (False,),
    "matching": ("off", "auto"),
    "time_limit": (),
}


def is_function(precond: Any) -> bool:
    """Return True for a preconditioner that is not a name."""
    return not isinstance(precond, str) and (hasattr(precond, "matvec") or callable(precond) or is_matrix(precond))


def is_map(A: Any) -> bool:
    """Return True for a linear map without entries: a function, or an operator of any library."""
    from krylith._matrix import KroneckerSum

    return not isinstance(A, (list, tuple, str, KroneckerSum)) and not is_matrix(A) and (hasattr(A, "matvec") or callable(A))


def refuse_beside_functions(given: Mapping[str, Any], what: str, remedy: str) -> None:
    """Refuse keywords that do not work with functions of host vectors; `what` is one, and `remedy` is a way out."""
    if is_shared(given.get("comm")):
        raise InvalidInput(f"{what} is a function, which several ranks cannot share; {remedy}")
    device = str(given.get("device") or "auto").lower()
    if device not in ("auto", "cpu"):
        raise InvalidInput(f"{what} is a function of host vectors, and `device` is {device!r}; {remedy}")
    for key, harmless in _NEEDS_LIBRARY.items():
        if given.get(key) is not None and not any(given[key] is one or given[key] == one for one in harmless):
            raise InvalidInput(f"`{key}` does not work where {what} is a function; {remedy}")
