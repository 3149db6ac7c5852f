"""Preconditioners as operators, for methods of Krylith and of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylith._arrays import empty_like, float64
from krylith._errors import InvalidInput
from krylith._solver import Solver


class Preconditioner:
    """The operator P⁻¹ ≈ A⁻¹, the base class of preconditioners.

    Use `P @ v` or `P.matvec(v)`, or pass `M=P` to a method of SciPy or Krylith.

    Parameters
    ----------
    A : sparse matrix or KroneckerSum
        The matrix to approximate.
    device : str
        The same as for `krylith.solve`; vectors may be on the host or on a GPU.
    block : int, optional
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
        words = ",".join(f"{key}={value}" for key, value in parameters.items())
        self._spec = f"{self._name}:{words}" if words else self._name
        self._solver = Solver(A, method="bicgstab", precond=self._spec, device=device, block=block, **system)
        self.shape = self._solver.shape
        self.dtype = np.dtype(np.float64)

    def matvec(self, v: Any) -> Any:
        """Return P⁻¹ v for a vector of shape (n,) or (n, 1), on the device of v."""
        return self._solver.precondition(v)

    def matmat(self, V: Any) -> Any:
        """Return P⁻¹ V, column by column."""
        V = float64(V)
        Y = empty_like(V)
        for k in range(V.shape[1]):
            Y[:, k] = self.matvec(V[:, k])
        return Y

    def __matmul__(self, v: Any) -> Any:
        v = v if hasattr(v, "shape") else np.asarray(v)
        return self.matvec(v) if v.ndim == 1 or v.shape[1] == 1 else self.matmat(v)

    def __call__(self, v: Any) -> Any:
        """Return P⁻¹ v for a vector, or for the columns of a matrix."""
        return self @ v

    def update_values(self, A: Any) -> None:
        """Set new values with the same pattern; the analysis is not repeated."""
        self._solver.update_values(A)

    def __repr__(self) -> str:
        return f"<krylith.{type(self).__name__} {self._spec}, {self.shape[0]}×{self.shape[1]}>"


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


class Schwarz(Preconditioner):
    """Restricted additive Schwarz, such as `Schwarz(A, overlap=1, fill=1)`; the guide calls it `ras`."""

    _name = "ras"


class AMG(Preconditioner):
    """One cycle of algebraic multigrid."""

    _name = "amg"


class LU(Preconditioner):
    """Sparse direct factors."""

    _name = "lu"
