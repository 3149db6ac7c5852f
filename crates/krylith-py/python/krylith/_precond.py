"""Preconditioners as operators, for methods of Krylith and of SciPy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from krylith._complex import Form
from krylith._errors import InvalidInput
from krylith._keywords import AmgKeys, IlduKeys, LuKeys, RasKeys
from krylith._operator import Operator
from krylith._record import Memory
from krylith._solver import Solver

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack


class _System(TypedDict, total=False):
    """Keywords of every preconditioner."""

    device: str
    block: int | None
    coordinates: Any
    grid: Sequence[int] | None
    near_nullspace: Any
    threads: int


class _ILDU(_System, IlduKeys, total=False):
    """Keywords of `ILDU`."""


class _Schwarz(_System, RasKeys, total=False):
    """Keywords of `Schwarz`."""


class _AMG(_System, AmgKeys, total=False):
    """Keywords of `AMG`."""


class _LU(_System, LuKeys, total=False):
    """Keywords of `LU`."""


class Preconditioner(Operator):
    """The operator P⁻¹ ≈ A⁻¹, the base class of preconditioners.

    Use `P @ v` or `P.matvec(v)`, pass `precond=P` to `krylith.solve` or `krylith.Solver`, or `M=P` to a method of
    SciPy or Krylith. A preconditioner can be copied and pickled: it is then built anew from the current values.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        The matrix to approximate.
    device : str
        The same as for `krylith.solve`; vectors may be on the host or on a GPU.
    block : int, optional
        The same as for `krylith.solve`.
    coordinates, grid, near_nullspace, threads : optional
        The same as for `krylith.solve`.
    **parameters
        Options of the preconditioner, which the guide lists.
    """

    _name = ""

    def __init__(self, A: Any, *, device: str = "auto", block: int | None = None, **parameters: Any) -> None:
        if not self._name:
            raise InvalidInput(
                "Preconditioner is a base class; create an ILDU, Jacobi, Schwarz, AMG or LU instead"
            )
        system = {key: parameters.pop(key) for key in ("coordinates", "grid", "near_nullspace", "threads") if key in parameters}
        words = ",".join(f"{key}={_text(value)}" for key, value in parameters.items() if value is not None)
        self._spec = f"{self._name}:{words}" if words else self._name
        self._solver = Solver(A, method="bicgstab", precond=self._spec, device=device, block=block, **system)
        self.shape, self.dtype = self._solver.shape, self._solver.dtype

    def _map(self, v: Any, out: Any, form: Form) -> Any:
        return self._solver._apply(True, form, v, out)

    def update_values(self, A: Any, *, on_new_pattern: Literal["raise", "rebuild"] = "raise") -> None:
        """Set new values with the same pattern; the analysis is not repeated.

        With `on_new_pattern="rebuild"`, a matrix of another pattern builds the preconditioner anew.
        """
        self._solver.update_values(A, on_new_pattern=on_new_pattern)
        self.shape, self.dtype = self._solver.shape, self._solver.dtype

    @property
    def memory(self) -> Memory:
        """Bytes of the matrix and the preconditioner, as `krylith.Solver.memory` tells them."""
        return self._solver.memory

    def close(self) -> None:
        """Free the memory; a later use raises `krylith.InvalidInput`."""
        self._solver.close()

    def __repr__(self) -> str:
        return f"<krylith.{type(self).__name__} {self._spec}, {self.shape[0]}×{self.shape[1]}>"


def _text(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return value


class Jacobi(Preconditioner):
    """The inverse of the diagonal, or of the diagonal blocks.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> P = krylith.Jacobi(sp.diags_array([2.0, 4.0]))
    >>> (P @ np.ones(2)).tolist()
    [0.5, 0.25]
    """

    _name = "jacobi"

    def __init__(self, A: Any, **options: Unpack[_System]) -> None:
        super().__init__(A, **options)


class ILDU(Preconditioner):
    """Incomplete factors of subdomains, such as `ILDU(A, fill=1)`.

    Examples
    --------
    In SciPy's GMRES:

    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> from scipy.sparse.linalg import gmres
    >>> A = sp.diags_array([-1.0, 4.0, -2.0], offsets=[-1, 0, 1], shape=(200, 200), format="csr")
    >>> P = krylith.ILDU(A)
    >>> x, info = gmres(A, np.ones(200), M=P)
    >>> info
    0
    >>> P.update_values(1.5 * A)
    """

    _name = "ildu"

    def __init__(self, A: Any, **options: Unpack[_ILDU]) -> None:
        super().__init__(A, **options)


class Schwarz(Preconditioner):
    """Restricted additive Schwarz, such as `Schwarz(A, overlap=1, fill=1)`; the guide calls it `ras`."""

    _name = "ras"

    def __init__(self, A: Any, **options: Unpack[_Schwarz]) -> None:
        super().__init__(A, **options)


class AMG(Preconditioner):
    """One cycle of algebraic multigrid."""

    _name = "amg"

    def __init__(self, A: Any, **options: Unpack[_AMG]) -> None:
        super().__init__(A, **options)


class LU(Preconditioner):
    """Sparse direct factors."""

    _name = "lu"

    def __init__(self, A: Any, **options: Unpack[_LU]) -> None:
        super().__init__(A, **options)
