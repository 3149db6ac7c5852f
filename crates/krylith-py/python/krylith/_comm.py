"""Communicators of MPI, as Krylith takes them."""

import sys
from typing import Any

from krylith._errors import InvalidInput

#: A communicator's Fortran handle, and the bytes of a handle and of a status in its MPI library where they are known.
Handle = tuple[int, tuple[int, int] | None]


def handle_of(comm: Any) -> Handle | None:
    """What a communicator of mpi4py or petsc4py, or a Fortran handle, is known by."""
    if comm is None:
        return None
    if hasattr(comm, "tompi4py"):
        comm = comm.tompi4py()
    if hasattr(comm, "py2f"):
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Is_finalized():
            raise InvalidInput("`comm` is of a program that has ended MPI")
        sizes = (mpi._sizeof(mpi.Comm), mpi._sizeof(mpi.Status)) if mpi is not None else None
        return int(comm.py2f()), sizes
    try:
        return int(comm), None
    except (TypeError, ValueError):
        raise InvalidInput(f"`comm` is {comm!r}; expected a communicator of mpi4py, or its Fortran handle") from None
