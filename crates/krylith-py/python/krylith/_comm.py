"""MPI communicators in the form that the extension module accepts."""

import sys
from typing import Any

from krylith._errors import InvalidInput

#: The Fortran handle of a communicator, and the sizes in bytes of MPI_Comm and MPI_Status if they are known.
Handle = tuple[int, tuple[int, int] | None]


def handle_of(comm: Any) -> Handle | None:
    """Return the handle of a communicator, which is one of mpi4py or petsc4py, or a Fortran handle."""
    if comm is None:
        return None
    if hasattr(comm, "tompi4py"):
        comm = comm.tompi4py()
    if hasattr(comm, "py2f"):
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and mpi.Is_finalized():
            raise InvalidInput("`comm` cannot be used, because the program has finalized MPI")
        sizes = (mpi._sizeof(mpi.Comm), mpi._sizeof(mpi.Status)) if mpi is not None else None
        return int(comm.py2f()), sizes
    try:
        return int(comm), None
    except (TypeError, ValueError):
        raise InvalidInput(f"`comm` is {comm!r}; expected a communicator of mpi4py, or its Fortran handle") from None


def _python(comm: Any) -> Any:
    """Return the communicator as an object with `rank` and `size`, if it has that form."""
    return comm.tompi4py() if hasattr(comm, "tompi4py") else comm


def rank_of(comm: Any) -> int:
    """Return the rank of this process; 0 without a communicator, and if it does not tell."""
    return int(getattr(_python(comm), "rank", 0))


def is_shared(comm: Any) -> bool:
    """Return True if several ranks solve together, or if the communicator does not tell."""
    return comm is not None and getattr(_python(comm), "size", 2) > 1


def any_rank(comm: Any, flag: bool, option: str) -> bool:
    """Return True on every rank if `flag` is true on one. Collective."""
    if not is_shared(comm):
        return flag
    gather = getattr(_python(comm), "allgather", None)
    if gather is None:
        raise InvalidInput(f"{option} over ranks needs a communicator of mpi4py as `comm`")
    return any(gather(flag))
