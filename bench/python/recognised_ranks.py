"""Bare solves of coupled systems over ranks of MPI: what `auto` recognises, and how long it takes.

    python3 recognised_ranks.py make FOLDER SPEC ...
    mpirun -n 2 python3 recognised_ranks.py solve FOLDER cpu SPEC ...

The rows are cut along a breadth-first order of the matrix, as a mesh is cut. Components of a node and unknowns of a
cell stay together. Seconds are those of rank 0 for set-up and solve. The residual is recomputed by SciPy.
"""
import pickle
import re
import sys
import tempfile
import time

import numpy as np
import scipy.sparse as sp


def path(folder, spec):
    return f"{folder}/" + re.sub(r"\W", "_", spec) + ".pkl"


def make(folder, specs):
    import bare_gpu

    for spec in specs:
        with tempfile.TemporaryDirectory() as where, open(path(folder, spec), "wb") as out:
            pickle.dump(bare_gpu.generated(spec, where), out)


def cut(A, toml, spec, ranks):
    """The rank of each row."""
    n = A.shape[0]
    owner = np.empty(n, int)
    owner[sp.csgraph.reverse_cuthill_mckee(sp.csr_matrix(A), symmetric_mode=False)] = np.arange(n) * ranks // n
    for block, first, last, step in re.findall(r"\w+\[(\d+)\]=(\d+):(\d+):(\d+)", toml.get("fields", "")):
        block, first, last = int(block), int(first), int(last)
        if int(step) == 1 and block > 1:
            owner[first:last] = np.repeat(owner[first:last:block], block)
    cell = int(toml.get("block", "1"))
    cell = 3 if spec.startswith("blackoil") else cell
    whole = n // cell * cell
    owner[:whole] = np.repeat(owner[:whole:cell], cell)
    owner[whole:] = owner[whole - 1]
    return owner


def solve(folder, device, specs):
    from mpi4py import MPI

    import krylith

    comm = MPI.COMM_WORLD
    for spec in specs:
        parts = None
        if comm.rank == 0:
            with open(path(folder, spec), "rb") as file:
                A, b, toml = pickle.load(file)
            owner = cut(A, toml, spec, comm.size)
            order = np.argsort(owner, kind="stable")
            parts = sp.csr_matrix(A)[order][:, order].tocsr(), b[order], np.bincount(owner, minlength=comm.size)
        A, b, counts = comm.bcast(parts)
        first = counts[: comm.rank].sum()
        own = slice(first, first + counts[comm.rank])
        comm.Barrier()
        cpu, wall = time.process_time(), time.perf_counter()
        found = krylith.solve(A[own], b[own], comm=comm, rtol=1e-8, device=device, time_limit=120)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        x = np.concatenate(comm.allgather(found.x))
        if comm.rank == 0:
            residual = np.linalg.norm(b - A @ x) / np.linalg.norm(b)
            print(f"{spec}: {len(b)} unknowns, {found.outcome} after {found.iterations} iterations, {cpu:.2f} s of CPU, ", end="")
            print(f"{wall:.2f} s, residual {residual:.1e}, {found.precond} with {found.method}", flush=True)
            print(*(f"    {event.kind}: {event.detail}" for event in found.events if event.kind != "restart"), sep="\n", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3:])
    else:
        solve(sys.argv[2], sys.argv[3], sys.argv[4:])
