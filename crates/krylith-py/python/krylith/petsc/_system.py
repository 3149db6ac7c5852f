"""What PETSc's objects tell about a system: blocks, null spaces, coordinates, fields and their matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from krylith import _native
from krylith._errors import InvalidInput
from krylith.petsc._arrays import rows_of
from krylith.petsc._library import SCALAR


def communicator(mat: Any, of: Any) -> Any:
    """Return the communicator of mpi4py that a parallel matrix lies on; None for a matrix of one process.

    `of` is the PC or KSP, which must be on the same ranks.
    """
    if mat.comm != of.comm:
        raise InvalidInput(
            f"the matrix is on a communicator of {mat.comm.size} ranks, and the {type(of).__name__} on another of "
            f"{of.comm.size}; create both on the same one"
        )
    if mat.comm.size == 1:
        return None
    try:
        from mpi4py import MPI
    except ImportError:
        raise InvalidInput(
            f"the matrix lies on {mat.comm.size} ranks, and mpi4py is missing; install mpi4py for the MPI library of "
            "PETSc, or run one process"
        ) from None
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise InvalidInput(
            "PETSc has started MPI for one thread, and Krylith calls it from another; import mpi4py.MPI before petsc4py, "
            "or start MPI with MPI_THREAD_SERIALIZED"
        )
    return mat.comm.tompi4py()


def block_of(mat: Any) -> int | None:
    """Return the block size that a matrix was given; None if it has none that Krylith stores."""
    rows, columns = mat.getBlockSizes()
    most = _native.MAX_BLOCK // (2 if SCALAR.kind == "c" else 1)
    return rows if rows == columns and 1 < rows <= most else None


def vectors_of(space: Any, own: int) -> list[np.ndarray]:
    """Return the vectors of a null space, the own numbers of each; none for the null space None of PETSc."""
    if not space.handle:
        return []
    constant = [np.ones(own, SCALAR)] if space.hasConstant() else []
    return constant + [np.array(vector.getArray(readonly=True)) for vector in space.getVecs()]


def spaces(operator: Any, mat: Any) -> dict[str, Any]:
    """Return the null vectors of the operator, and the near-null vectors of the matrix of the preconditioner."""
    found: dict[str, Any] = {}
    null = vectors_of(operator.getNullSpace(), operator.getLocalSize()[0])
    if null:
        found["nullspace"] = null
    near = vectors_of(mat.getNearNullSpace(), mat.getLocalSize()[0])
    if len(near) > 1 or near and not mat.getNearNullSpace().hasConstant():  # a lone constant is the default
        found["near_nullspace"] = near
    return found


def handles(operator: Any, mat: Any) -> tuple[int, ...]:
    """Return what changes when other null spaces are attached."""
    return (operator.getNullSpace().handle, mat.getNearNullSpace().handle)


def points_of(dm: Any, nodes: int) -> dict[str, Any]:
    """Return the coordinates and, on one rank, the grid of a DMDA with one point for each of the own nodes."""
    if not dm or not dm.handle or dm.getType() != "da":
        return {}
    found: dict[str, Any] = {}
    sizes = [int(n) for n in dm.getSizes()]
    if dm.comm.size == 1 and int(np.prod(sizes)) == nodes:
        found["grid"] = sizes
    points = dm.getCoordinates()
    if points.handle:
        dimension = dm.getCoordinateDim()
        if points.getLocalSize() == nodes * dimension:
            found["coordinates"] = np.array(points.getArray(readonly=True)).real.reshape(nodes, dimension)
    return found


def fields_of(mat: Any, dm: Any, names: Sequence[str] | None, asked: bool) -> dict[str, Any]:
    """Return the fields of a MATNEST or a DM, by name.

    The components of a DMDA are fields only if the user asks for fields. `names` are those of the user.
    """
    if mat.getType() == "nest":
        sets, found, blocks = mat.getNestISs()[0], [None] * mat.getNestSize()[0], mat
    elif dm and dm.handle and (asked or dm.getType() != "da"):
        found, sets, _ = dm.createFieldDecomposition()
        blocks = None
    else:
        sets, found, blocks = [], [], None
    if len(sets) < 2:
        if names:
            raise InvalidInput(f"`fields` is {','.join(names)}, and neither the matrix nor its DM has fields; use MATNEST, a DM, or setFieldSplitIS")
        return {}
    if names and len(names) != len(sets):
        raise InvalidInput(f"`fields` has {len(names)} names, and the system has {len(sets)} fields")
    named = [name if name and re.fullmatch(r"[A-Za-z]\w*", name) else f"f{k}" for k, name in enumerate(names or found)]
    fields: dict[str, Any] = {}
    for k, name in enumerate(named):
        block = blocks.getNestSubMatrix(k, k) if blocks is not None else None
        fields[name] = field_of(sets[k], block if block is not None and block.handle else None)
    return fields


def field_of(numbers: Any, block: Any = None) -> dict[str, Any]:
    """Return a field as a dictionary, from its index set and its diagonal block."""
    unknowns = np.array(numbers.getIndices(), dtype=np.int64)
    field: dict[str, Any] = {"unknowns": unknowns}
    size = block_of(block) if block is not None else None
    if size is None:
        own = numbers.getBlockSize()
        size = own if 1 < own <= _native.MAX_BLOCK else None
    if size is not None:
        field["block"] = size
    if block is not None:
        near = vectors_of(block.getNearNullSpace(), len(unknowns))
        if len(near) > 1 or near and not block.getNearNullSpace().hasConstant():
            field["near_nullspace"] = near
    return field


def matrices_of(matrix: Any, mat: Any, fields: Sequence[str]) -> dict[str, Any]:
    """Return the diagonal blocks of a MATNEST that the preconditioner is made from, as `P_<field>`.

    They are given where a KSP takes the operator for its own: mass matrices for a Schur complement, for example.
    """
    if mat == matrix or mat.getType() != "nest" or len(fields) != mat.getNestSize()[0]:
        return {}
    blocks = {name: mat.getNestSubMatrix(k, k) for k, name in enumerate(fields)}
    return {f"P_{name}": rows_of(block).matrix.tocsr().copy() for name, block in blocks.items() if block is not None and block.handle}


def differ(old: Any, new: Any) -> bool:
    """Return True if two descriptions of a system differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() != new.keys() or any(differ(old[key], new[key]) for key in old)
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) != len(new) or any(differ(a, b) for a, b in zip(old, new))
    return not np.array_equal(old, new)
