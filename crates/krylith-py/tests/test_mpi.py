"""Rows of MPI ranks, by mpi4py's communicators."""

import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp

import krylith
from krylith import _native

ENV = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
}

SYSTEM = """
from mpi4py import MPI
import numpy as np, scipy.sparse as sp, krylith
comm = MPI.COMM_WORLD
n = 41
T = sp.diags_array([-1.0, 2.2, -1.0], offsets=[-1, 0, 1], shape=(n, n))
A = sp.kron(sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T), [[2.0, 0.5], [0.4, 1.0]]).tocsr()
starts = np.linspace(0, n * n, comm.size + 1).astype(int) * 2
own = slice(starts[comm.rank], starts[comm.rank + 1])
b = np.cos(np.arange(A.shape[0]))


def say(*words):
    with open(f"rank{comm.rank}", "a") as file:
        print(*words, file=file)
"""


def ranks(program, folder, count=3):
    """Lines that ranks say, in the order of ranks: each in a file of its own, since mpirun may mix their output."""
    if not _native.HAS_MPI:
        pytest.skip("the package was built without MPI")
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing")
    pytest.importorskip("mpi4py")
    run = ["mpirun", "--oversubscribe", "-n", str(count), sys.executable, "-c", SYSTEM + textwrap.dedent(program)]
    done = subprocess.run(run, env=ENV, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for rank in range(count) for line in (folder / f"rank{rank}").read_text().splitlines()]


def test_ranks_solve_as_one(tmp_path):
    said = ranks(
        """
        whole = krylith.solve(A, b, rtol=1e-12, device="cpu", threads=1)
        for rows in (A[own], sp.coo_array(A[own]), A[own].tobsr((2, 2))):
            solver = krylith.Solver(rows, comm=comm, rtol=1e-12, device="cpu", threads=1)
            assert solver.shape == (rows.shape[0], A.shape[0])
            solution = solver.solve(b[own])
            assert solution.converged and np.abs(solution.x - whole.x[own]).max() < 1e-9
            solver.update_values(2 * rows)
            assert np.abs(2 * solver.solve(b[own]).x - whole.x[own]).max() < 1e-9
            assert np.abs(solver.multiply(b[own]) - 2 * (A @ b)[own]).max() < 1e-12
        two = krylith.solve(A[own], np.stack([b, 3 * b], axis=1)[own], comm=comm, rtol=1e-12, device="cpu", threads=1)
        assert np.abs(two.x[:, 1] - 3 * whole.x[own]).max() < 1e-9
        say(comm.rank, "blocks 2×2" in str(solution))
        """,
        tmp_path,
    )
    assert said == ["0 True", "1 True", "2 True"]


def test_an_error_of_one_rank_is_that_of_all(tmp_path):
    said = ranks(
        """
        rows = A[own].copy()
        if comm.rank == 1:
            rows.data[5] = np.nan
        for wrong, options in ((rows, {}), (A[own][:, :-2], {}), (A[own], {"block": 7})):
            try:
                krylith.solve(wrong, b[own], comm=comm, device="cpu", threads=1, **options)
            except krylith.InvalidInput as e:
                say(comm.rank, str(e)[-60:])
        """,
        tmp_path,
    )
    assert len(said) == 9 and sum("finite" in line for line in said) == 3, said


def test_columns_in_any_order(tmp_path):
    said = ranks(
        """
        rows = A[own]
        order = np.concatenate([np.arange(rows.indptr[i + 1] - 1, rows.indptr[i] - 1, -1) for i in range(rows.shape[0])])
        turned = sp.csr_array((rows.data[order], rows.indices[order], rows.indptr), shape=rows.shape)
        x = [krylith.solve(r, b[own], comm=comm, rtol=1e-12, device="cpu", threads=1).x for r in (rows, turned)]
        say(np.abs(x[0] - x[1]).max() < 1e-9)
        """,
        tmp_path,
        count=2,
    )
    assert said == ["True", "True"]


def test_a_sum_is_refused_and_so_is_a_build_without_ranks():
    one = sp.eye_array(4, format="csr")
    with pytest.raises(krylith.InvalidInput, match="one matrix"):
        krylith.solve(krylith.KroneckerSum(np.eye(1), one, np.eye(1), one, 1.0), np.ones((4, 1)), comm=0)
    if not _native.HAS_MPI:
        with pytest.raises(krylith.InvalidInput, match="without MPI"):
            krylith.solve(one, np.ones(4), comm=0)
