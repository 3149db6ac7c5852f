"""The set-up that PC and KSP share: a solver of Krylith that follows the matrices of PETSc."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import weakref
from typing import Any

import numpy as np
from petsc4py import PETSc

from krylith._arrays import lend
from krylith._comm import any_rank
from krylith._errors import InvalidInput, interrupts
from krylith._solver import Once, Solver
from krylith.petsc import _system
from krylith.petsc._arrays import C, has_entries, pattern_of, rows_of, state_of
from krylith.petsc._library import SCALAR
from krylith.petsc._memory import Memory, place_of
from krylith.petsc._options import known, options_of

#: Words of a preconditioner that names fields.
_OF_FIELDS = ("split", "cpr")


class Map:
    """A matrix of PETSc without entries, as a linear operator of host vectors."""

    def __init__(self, mat: Any) -> None:
        self._mat = mat
        self._right, self._left = mat.createVecs()
        self.shape, self.dtype = mat.getSize(), SCALAR

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Return the product with a vector."""
        self._right.setArray(v)
        self._mat.mult(self._right, self._left)
        return np.array(self._left.getArray(readonly=True))

    def rmatvec(self, v: np.ndarray) -> np.ndarray:
        """Return the product of the adjoint with a vector."""
        self._left.setArray(v)
        self._mat.multHermitian(self._left, self._right)
        return np.array(self._right.getArray(readonly=True))


class Follower:
    """A solver of Krylith for the matrices of a PC or a KSP.

    Parameters
    ----------
    **options
        Options of `krylith.Solver`, such as `precond="amg"`. Those of PETSc's database come before them.
    """

    #: True for a KSP, False for a PC.
    _of_ksp = False

    def __init__(self, **options: Any) -> None:
        for name in options:
            known(name, self._of_ksp, name)
        self._given, self._options = dict(options), dict(options)
        self._sets: dict[str, Any] = {}
        self._points: np.ndarray | None = None
        self._named: dict[str, Any] = {}
        #: Numbers of set-ups and of updates to new values of the same pattern, so far.
        self.set_ups, self.updates = 0, 0
        #: The solver of Krylith; None before the first set-up.
        self.solver: Solver | None = None
        #: The address of the PC or KSP, while it lives.
        self._handle = 0
        self._number = next(_NUMBERS)
        self._forget()
        _ALIVE.add(self)

    def _forget(self) -> None:
        self.solver = None
        #: The matrix and the operator of the last set-up or update, and what changes with them.
        self._mat: Any = None
        self._operator: Any = None
        self._state: Any = None
        self._handles: tuple[int, ...] = ()
        #: The matrix of the last set-up, whose arrays it uses, its pattern as PETSc counts it, and the
        #: function that reads its values.
        self._first: Any = None
        self._pattern: Any = None
        self._values: Any = None
        #: The GPU of the solver, if the matrix was read there.
        self._gpu: int | None = None
        self._system: dict[str, Any] = {}

    def setFieldSplitIS(self, *fields: tuple[str, Any]) -> None:
        """Name fields by index sets, as `PCFieldSplitSetIS` does: pairs of a name and a `PETSc.IS`."""
        self._sets.update(fields)
        self._forget()

    def setCoordinates(self, points: Any) -> None:
        """Set the coordinates of the own nodes, an array of shape (nodes, 2) or (nodes, 3), as `PCSetCoordinates` does."""
        self._points = np.ascontiguousarray(points, dtype=np.float64)
        self._forget()

    def setMatrix(self, name: str, mat: Any) -> None:
        """Give a matrix that the preconditioner names, such as the mass matrix in `S=Mp`."""
        self._named[name] = mat
        self._forget()

    def create(self, obj: Any) -> None:
        """Begin to serve a PC or a KSP. PETSc calls it."""
        self._handle = obj.handle

    def destroy(self, obj: Any) -> None:
        """Free the memory of the solver. PETSc calls it."""
        self._handle = 0
        self._forget()

    def reset(self, obj: Any) -> None:
        """Free the memory of the solver; the next use sets up anew. PETSc calls it."""
        self._forget()

    def setFromOptions(self, obj: Any) -> None:
        """Read the options with the prefix of the object. PETSc calls it."""
        options = self._given | options_of(obj.getOptionsPrefix(), self._of_ksp)
        if options != self._options:
            self._options = options
            self._forget()

    def _follow(self, obj: Any, operator: Any, mat: Any, dm: Any) -> Solver:
        """Return a solver for the current values: the last one, the same with new values, or a new one.

        After an error no solver is left: PETSc may go on as if the set-up had succeeded.
        """
        try:
            return self._followed(obj, operator, mat, dm)
        except BaseException:
            self._forget()
            raise

    def _followed(self, obj: Any, operator: Any, mat: Any, dm: Any) -> Solver:
        maps = self._of_ksp and not has_entries(operator)
        matrix = operator if self._of_ksp and not maps else mat
        same = self.solver is not None and matrix == self._mat and operator == self._operator
        same = same and state_of(matrix) == self._state and _system.handles(operator, matrix) == self._handles
        if same and matrix.comm.size == 1:
            assert self.solver is not None
            return self.solver
        comm = _system.communicator(matrix, obj)
        # The states of local parts, as of MATIS, may differ between ranks.
        if not any_rank(comm, not same, "a new matrix"):
            assert self.solver is not None
            return self.solver
        if maps and comm is not None:
            raise InvalidInput(f"the operator is of type {operator.getType()}, which several ranks cannot share; assemble it")
        if maps and not has_entries(matrix):
            if matrix != operator:
                raise _without_entries(matrix)
            self._set_up_map(operator)
        elif not has_entries(matrix):
            raise _without_entries(matrix)
        else:
            system, named = self._described(operator, mat, matrix, dm, _system.handles(operator, matrix))
            other = self.solver is None or maps and operator != self._operator
            other = other or system is not self._system and _system.differ(self._system, system)
            # A matrix without entries multiplies on the host.
            at = None if maps else place_of(matrix, self._options.get("device"))
            other = other or (at.gpu if at else None) != self._gpu
            if any_rank(comm, other, "a null space of the matrix") or not self._update(matrix, named, at):
                self._set_up(matrix, operator if maps else None, system, named, comm, at)
        self._mat, self._operator, self._state = matrix, operator, state_of(matrix)
        self._handles = _system.handles(operator, matrix)
        assert self.solver is not None
        return self.solver

    def _update(self, matrix: Any, named: dict[str, Any], at: Memory | None) -> bool:
        """Take new values of the same pattern; return False if a set-up is needed instead. Collective."""
        assert self.solver is not None
        if matrix == self._first and self._values is not None:
            if pattern_of(matrix) != self._pattern:  # on all ranks or none
                return False
            values = self._values(matrix)
            if self.solver._parts[0].order.same and values.dtype == np.float64 and not named:
                self.solver._native.set_refresh("refresh")
                with interrupts():
                    self.solver._native.update(lend(values.reshape(-1)))  # PETSc has told that the pattern is the same
            else:
                self.solver.update_values(values, matrices=named or None)
            self.updates += 1
            return True
        if self._pattern is not None and pattern_of(self._first) != self._pattern:
            return False  # the arrays of the set-up are gone
        rows, before = rows_of(matrix, at), self.solver._native
        self.solver.update_values(rows.matrix, matrices=named or None, on_new_pattern="rebuild")
        if self.solver._native is before:
            self.updates += 1
        else:
            self.set_ups += 1
            self._first, self._pattern = matrix, pattern_of(matrix)
            self._values = rows.values if self._pattern is not None else None
        return True

    def _set_up(
        self, matrix: Any, operator: Any, system: dict[str, Any], named: dict[str, Any], comm: Any, at: Memory | None
    ) -> None:
        rows = rows_of(matrix, at)
        whole = {**system, **self._solver_options(), **({"matrices": named} if named else {})}
        self.solver = None  # frees the memory of the last one
        # PETSc tells whether its pattern changes, so that no copy of it is kept.
        if operator is None:
            self.solver = Once(rows.matrix, comm=comm, **whole)
        else:
            self.solver = Once(Map(operator), precond_matrix=rows.matrix, **whole)
        self.set_ups += 1
        self._gpu = at.gpu if at else None
        self._first, self._pattern, self._system = matrix, pattern_of(matrix), system
        self._values = rows.values if self._pattern is not None else None

    def _set_up_map(self, operator: Any) -> None:
        """Set up a solver of a matrix without entries, without a preconditioner."""
        self._forget()
        self.solver = Once(Map(operator), **{"precond": "none", **self._solver_options()})
        self.set_ups += 1

    def _solver_options(self) -> dict[str, Any]:
        """Return the options of the solver, without those that only describe the system."""
        return {name: value for name, value in self._options.items() if name != "fields"}

    def _described(
        self, operator: Any, mat: Any, matrix: Any, dm: Any, handles: tuple[int, ...]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what describes the system, and the matrices that the preconditioner names."""
        if matrix == self._mat and mat == matrix and handles == self._handles and not self._named:
            return self._system, {}  # new values alone
        own = matrix.getLocalSize()[0]
        block = self._options.get("block") or _system.block_of(matrix)
        system = _system.spaces(operator, matrix) | _system.points_of(dm, own // (block or 1))
        if block is not None:
            system["block"] = block
        if self._points is not None:
            system["coordinates"] = self._points
        names = self._options.get("fields")
        names = names.split(",") if isinstance(names, str) else names
        asked = names is not None or str(self._options.get("precond", "")).startswith(_OF_FIELDS)
        fields = {name: _system.field_of(numbers) for name, numbers in self._sets.items()}
        if not fields:
            fields = _system.fields_of(matrix, dm, names, asked)
        if fields:
            system["fields"] = fields
        named = _system.matrices_of(matrix, mat, list(fields))
        named |= {name: rows_of(one).matrix.tocsr().copy() for name, one in self._named.items()}
        return system, named

    def _said(self) -> str:
        """Return lines for `view`."""
        options = " ".join(f"{name}={value}" for name, value in self._options.items()) or "defaults"
        lines = [f"  Krylith: {options}"]
        if self.solver is not None:
            lines.append(f"  {self.solver!r}")
            taken = [f"{key} of {len(value)}" if key == "fields" or "null" in key else key for key, value in self._system.items()]
            lines.append(f"  taken from the matrix and its DM: {', '.join(taken) or 'nothing else'}")
            lines.append(f"  {self.set_ups} set-ups, {self.updates} updates of values")
        return "".join(line + "\n" for line in lines)


#: The contexts of PCs and KSPs, and the numbers that they get.
_ALIVE: weakref.WeakSet[Follower] = weakref.WeakSet()
_NUMBERS = itertools.count()


@atexit.register
def _end() -> None:
    """Free the memory of all solvers, and keep PETSc from destroying their PCs and KSPs.

    PETSc destroys what is left when the interpreter has ended, and petsc4py 3.18 then crashes for Python types.
    """
    # In one order on all ranks; that of a set differs.
    for one in sorted(_ALIVE, key=lambda one: one._number):
        one._forget()
        if one._handle and C and not PETSc.Sys.isFinalized():
            C["PetscObjectReference"](ctypes.c_void_p(one._handle))


def _without_entries(matrix: Any) -> InvalidInput:
    return InvalidInput(
        f"the matrix is of type {matrix.getType()}, which has no entries; give an assembled one as the second of setOperators"
    )
