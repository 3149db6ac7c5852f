"""Systems distributed over MPI ranks, with communicators of mpi4py."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp

import krylith

#: Two ways to get the communicator: mpi4py, and MPI's C interface for libraries with the standard ABI, for
#: which there are no wheels of mpi4py yet.
BY_MPI4PY = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
"""

BY_C = """
import atexit, ctypes, os
library = ctypes.CDLL(os.environ["KRYLITH_TEST_LIBRARY"])
serialized, provided, world = 2048, ctypes.c_int(), ctypes.c_void_p(0x101)
assert library.MPI_Init_thread(None, None, serialized, ctypes.byref(provided)) == 0 and provided.value >= serialized
atexit.register(library.MPI_Finalize)


def number(function):
    found = ctypes.c_int()
    assert function(world, ctypes.byref(found)) == 0
    return found.value


class World:
    rank, size = number(library.MPI_Comm_rank), number(library.MPI_Comm_size)

    def py2f(self):
        return library.MPI_Comm_toint(world)


comm = World()
"""

SYSTEM = """
import numpy as np, scipy.sparse as sp, krylith
rank, n = comm.rank, 41
T = sp.diags_array([-1.0, 2.2, -1.0], offsets=[-1, 0, 1], shape=(n, n))
A = sp.kron(sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T), [[2.0, 0.5], [0.4, 1.0]]).tocsr()
starts = np.linspace(0, n * n, comm.size + 1).astype(int) * 2
own = slice(starts[comm.rank], starts[comm.rank + 1])
b = np.cos(np.arange(A.shape[0]))


def say(*words):
    with open(f"rank{rank}", "a") as file:
        print(*words, file=file)
"""


class Launcher:
    """An MPI launcher and its library."""

    def __init__(self, name, program, library=None):
        self.name, self.program, self.library = name, program, library
        version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        self.open_mpi = "Open MPI" in version
        self.by_c = name.endswith("_abi")

    def env(self):
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if self.library is not None:
            # The first is for mpi4py, the second for the test; Krylith uses the loaded library.
            env.update(MPI4PY_LIBMPI=str(self.library), KRYLITH_TEST_LIBRARY=str(self.library))
        return env

    def words(self, count):
        more = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"] if self.open_mpi else []
        return [self.program, *more, "-n", str(count)]


def launchers():
    """Return `mpirun` as the shell finds it, and the launchers in the folders of KRYLITH_TEST_MPI."""
    found = []
    if program := shutil.which("mpirun"):
        launcher = Launcher("mpirun", program)
        # mpi4py searches only the folder of Python.
        launcher.library = "libmpi.so.40" if launcher.open_mpi else "libmpi.so.12"
        found.append(launcher)
    for folder in filter(None, os.environ.get("KRYLITH_TEST_MPI", "").split(os.pathsep)):
        folder = pathlib.Path(folder)
        for name in ("libmpi.so.40", "libmpi.so.12", "libmpi_abi.so.1"):
            if (library := folder / "lib" / name).exists():
                abi = "_abi" if "abi" in name else ""
                found.append(Launcher(folder.name + abi, str(folder / "bin/mpirun"), library))
    return found


@pytest.fixture(params=launchers() or [None], ids=lambda launcher: launcher.name if launcher else "none")
def ranks(request, tmp_path):
    """Run a program on ranks, and return their lines in the order of ranks.

    Each rank writes to its own file, because mpirun may mix their output.
    """
    launcher = request.param
    if launcher is None:
        pytest.skip("mpirun is missing")
    if not launcher.by_c:
        pytest.importorskip("mpi4py")

    def run(program, count=3):
        text = (BY_C if launcher.by_c else BY_MPI4PY) + SYSTEM + textwrap.dedent(program)
        words = [*launcher.words(count), sys.executable, "-c", text]
        done = subprocess.run(words, env=launcher.env(), cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for rank in range(count) for line in (tmp_path / f"rank{rank}").read_text().splitlines()]

    run.launcher = launcher
    return run


def test_ranks_solve_as_one(ranks):
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

        class Wrapped:  # as petsc4py has it
            def tompi4py(self):
                return comm

        wrapped = krylith.solve(A[own], b[own], comm=Wrapped(), rtol=1e-12, device="cpu", threads=1)
        assert np.abs(wrapped.x - whole.x[own]).max() < 1e-9
        two = krylith.solve(A[own], np.stack([b, 3 * b], axis=1)[own], comm=comm, rtol=1e-12, device="cpu", threads=1)
        assert np.abs(two.x[:, 1] - 3 * whole.x[own]).max() < 1e-9
        say(comm.rank, "blocks 2×2" in str(solution))
        """,
    )
    assert said == ["0 True", "1 True", "2 True"]


def test_a_new_pattern_of_one_rank_builds_anew_on_all(ranks):
    if ranks.launcher.by_c:
        pytest.skip("needs a communicator of mpi4py")
    said = ranks(
        """
        solver = krylith.Solver(A[own], comm=comm, rtol=1e-12, device="cpu", threads=1)
        far = sp.coo_array(([0.1], ([0], [A.shape[0] - 1])), shape=A.shape)  # only the first rank has this row
        B = (A + far).tocsr()
        for new in (B, 2 * B):
            solver.update_values(new[own], on_new_pattern="rebuild")
            x = solver.solve(b[own]).x
            whole = krylith.solve(new, b, rtol=1e-12, device="cpu", threads=1).x
            assert np.abs(x - whole[own]).max() < 1e-9
        try:
            solver.update_values(A[own].data[1:] if rank == 1 else A[own], on_new_pattern="rebuild")
        except krylith.InvalidInput as e:
            say("another rank rejects" in str(e) or "one value per stored entry" in str(e))
        try:
            krylith.Solver(A[own], comm=comm, precond=lambda v: v)
        except krylith.InvalidInput as e:
            say("several ranks" in str(e))
        import io, contextlib
        with contextlib.redirect_stdout(io.StringIO()) as out:
            solver.solve(b[own], verbose=True)
        say(comm.rank, "converged" in out.getvalue())
        """,
    )
    assert said == ["True", "True", "0 True", "True", "True", "1 False", "True", "True", "2 False"]


def test_an_error_of_one_rank_is_that_of_all(ranks):
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
    )
    assert len(said) == 9 and sum("finite" in line for line in said) == 3, said


def test_newton_finds_the_x_of_one_process(ranks):
    said = ranks(
        """
        counts = np.diff(starts)

        def whole(x):  # every rank gets all of x; a simulation code exchanges ghosts instead
            if hasattr(comm, "allgather"):
                return np.concatenate(comm.allgather(x))
            return None

        cubes = lambda x: A @ x + x**3 - b
        slopes = lambda x: (A + sp.diags_array(3 * x**2)).tocsr()
        one = krylith.newton(cubes, slopes, np.zeros_like(b), rtol=1e-11, device="cpu", threads=1)
        if whole(b[own]) is None:
            say(True)
        else:
            f = lambda x: A[own] @ whole(x) + x**3 - b[own]
            j = lambda x: slopes(whole(x))[own]
            many = krylith.newton(f, j, np.zeros(counts[rank]), rtol=1e-11, comm=comm, device="cpu", threads=1)
            assert many.converged and abs(many.norms[0] - one.norms[0]) < 1e-12 * one.norms[0]
            say(bool(np.abs(many.x - one.x[own]).max() < 1e-8))
            # An exception on one rank ends all.
            def fails(x):
                all = f(x)
                if rank == 1:
                    raise ArithmeticError("no such state")
                return all
            try:
                krylith.newton(fails, j, np.zeros(counts[rank]), comm=comm, device="cpu", threads=1)
                say("not reached")
            except ArithmeticError:
                assert rank == 1
            except krylith.Error as e:
                assert rank != 1 and "rank 1" in str(e), e
        """,
    )
    assert said == ["True"] * 3


def test_columns_in_any_order(ranks):
    said = ranks(
        """
        rows = A[own]
        order = np.concatenate([np.arange(rows.indptr[i + 1] - 1, rows.indptr[i] - 1, -1) for i in range(rows.shape[0])])
        turned = sp.csr_array((rows.data[order], rows.indices[order], rows.indptr), shape=rows.shape)
        x = [krylith.solve(r, b[own], comm=comm, rtol=1e-12, device="cpu", threads=1).x for r in (rows, turned)]
        say(np.abs(x[0] - x[1]).max() < 1e-9)
        """,
        count=2,
    )
    assert said == ["True", "True"]


def test_what_is_no_communicator_is_refused():
    one = sp.eye_array(4, format="csr")
    with pytest.raises(krylith.InvalidInput, match="expected a communicator"):
        krylith.solve(one, np.ones(4), comm="world")


def test_without_mpi_a_communicator_is_refused():
    program = """
        import numpy as np, scipy.sparse as sp, krylith
        maps = lambda: [line for line in open("/proc/self/maps") if "/libmpi" in line]
        krylith.solve(sp.eye_array(4, format="csr"), np.ones(4))
        try:
            krylith.solve(sp.eye_array(4, format="csr"), np.ones(4), comm=0)
        except krylith.Error as e:
            print(e, maps())
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert "no MPI library is loaded in this process" in done.stdout and done.stdout.endswith("[]\n"), done.stdout + done.stderr


def test_handles_of_another_library_are_refused(ranks):
    if ranks.launcher.by_c:
        pytest.skip("mpi4py alone says how wide its handles are")
    said = ranks(
        """
        width = MPI._sizeof(MPI.Comm)
        MPI._sizeof = lambda type: 12 - width if type is MPI.Comm else 28
        try:
            krylith.solve(A[own], b[own], comm=comm)
        except krylith.Error as e:
            say("-byte handles" in str(e), f"has {width}-byte handles and" in str(e))
        """
    )
    assert said == ["True True"] * 3


def test_the_command_of_the_package_finds_the_launchers_library(ranks, tmp_path):
    launcher = ranks.launcher
    env = launcher.env()
    if launcher.by_c:
        env["KRYLITH_MPI"] = str(launcher.library)
    words = [*launcher.words(2), str(pathlib.Path(sys.executable).parent / "krylith"), "solve", "laplace:12x12x12", "--report", "report.json"]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    family = "Open MPI" if launcher.open_mpi else "MPICH"
    assert report["run"]["ranks"] == 2 and family in report["versions"]["mpi"], report["versions"]


def test_a_solver_may_outlive_mpi(ranks):
    if ranks.launcher.by_c:
        end = "atexit.unregister(library.MPI_Finalize), library.MPI_Finalize()"
    else:
        end = "MPI.Finalize()"
    said = ranks(
        f"""
        handle = comm.py2f()
        solver = krylith.Solver(A[own], comm=comm, device="cpu", threads=1)
        x = solver.solve(b[own]).x
        {end}
        try:
            solver.solve(b[own])
        except krylith.Error as e:
            say(e)
        del solver
        for ended in (handle, comm) if hasattr(comm, "Get_rank") else (handle,):
            try:
                krylith.Solver(A[own], comm=ended)
            except krylith.Error as e:
                say(e)
        """,
        count=2,
    )
    assert len(said) >= 4 and all("inalize" in line for line in said), said


def test_rows_gather_on_leaders(ranks):
    """Several ranks for each device; on CPUs the option says how many."""
    said = ranks(
        """
        from scipy.sparse.linalg import spsolve
        exact, again = spsolve(A.tocsc(), b), spsolve((A + 0.5 * sp.eye_array(A.shape[0])).tocsc(), b)
        points = np.stack(np.divmod(np.arange(own.start // 2, own.stop // 2), n), axis=1).astype(float)
        numbers = np.arange(own.start, own.stop)
        for share in (1, 2, "4", "auto"):
            solver = krylith.Solver(A[own], comm=comm, ranks_per_gpu=share, rtol=1e-12, device="cpu", threads=1)
            solution = solver.solve(b[own])
            assert np.abs(solution.x - exact[own]).max() < 1e-9
            together = share in (2, "4") and comm.size > 1
            assert ("gather on rank" in str(solution)) == together, str(solution)
            shifted = (A + 0.5 * sp.eye_array(A.shape[0])).tocsr()[own]
            solver.update_values(shifted)
            assert np.abs(solver.solve(b[own]).x - again[own]).max() < 1e-9
            assert np.abs(solver.multiply(b[own]) - shifted @ b).max() < 1e-12
            both = solver.solve(np.stack([b[own], 2 * b[own]], axis=1)).x
            assert np.abs(both - again[own, None] * [1, 2]).max() < 1e-8
            bad = b[own].copy()
            if rank == comm.size - 1:
                bad[3] = np.nan
            try:
                solver.solve(bad)
                say("no error")
            except krylith.Error as e:
                assert "3" in str(e)
            coupled = krylith.solve(
                A[own], b[own], comm=comm, ranks_per_gpu=share, device="cpu", rtol=1e-10, block=2,
                precond="split(u: amg, p: jacobi; schur=upper, S=selfp)", method="fgmres",
                fields={"u": numbers[::2], "p": numbers[1::2]}, coordinates=points,
            )
            assert coupled.converged and np.abs(coupled.x - exact[own]).max() < 1e-6
            say(share, solution.iterations, coupled.iterations)
        """,
        4,
    )
    lines = len(said) // 4
    assert lines == 4
    assert all(said[k :: lines] == [said[k]] * 4 for k in range(lines)), said
