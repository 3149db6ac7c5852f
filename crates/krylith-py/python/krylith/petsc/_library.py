"""The library of PETSc that petsc4py has loaded, and its types."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from petsc4py import PETSc

#: The types of PETSc's numbers and indices.
SCALAR, INDEX = np.dtype(PETSc.ScalarType), np.dtype(PETSc.IntType)


def functions(names: Sequence[str]) -> dict[str, Any]:
    """Return functions of PETSc's library, or none if it does not have them all."""
    try:
        library = ctypes.CDLL(PETSc.__file__)  # names are looked up in the libraries that it needs, too
        return {name: getattr(library, name) for name in names}
    except (OSError, AttributeError):
        return {}


def check(code: int) -> None:
    """Raise the error of a function of PETSc that fails."""
    if code:
        raise PETSc.Error(code)
