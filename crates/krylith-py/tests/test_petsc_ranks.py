"""The PC and KSP types for petsc4py on MPI ranks, and the programs of the document."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("petsc4py")

#: How each program of ranks begins.
RANKS = """
import sys
import numpy as np, scipy.sparse as sp
from mpi4py import MPI  # before PETSc, which starts MPI for one thread
import petsc4py
petsc4py.init([sys.argv[0]])
from petsc4py import PETSc
import krylith, krylith.petsc
comm = PETSc.COMM_WORLD
n, b = 14, 2
T = sp.diags([-1.0, 2.1, -1.2], [-1, 0, 1], shape=(n, n))
S = sp.kron(sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T), [[2.0, 0.5], [0.4, 1.0]]).tobsr((2, 2))
N = S.shape[0]


def spread(S, kind):
    A = PETSc.Mat().create(comm)
    A.setSizes(S.shape, bsize=2)
    A.setType(kind)
    A.setPreallocationNNZ(12)
    first, last = A.getOwnershipRange()
    coo = S.tocoo()
    for i, j, v in zip(coo.row, coo.col, coo.data):
        if first <= i < last and (kind != "sbaij" or j >= i):
            A.setValue(i, j, v)
    A.assemble()
    return A


def solved(ksp, right, transpose=False):
    A = ksp.getOperators()[0]
    x, rhs = A.createVecs()
    own = slice(*A.getOwnershipRange())
    rhs.setArray(right[own])
    (ksp.solveTranspose if transpose else ksp.solve)(rhs, x)
    return x.getArray().copy(), own


right = np.cos(np.arange(N))
"""


def mpirun(program, count, tmp_path, before=RANKS):
    """Run a program on ranks, and return what it prints."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing")
    pytest.importorskip("mpi4py")
    words = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", str(count)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, sys.executable, "-c", before + textwrap.dedent(program)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_solve_as_one(count, tmp_path):
    said = mpirun(
        """
        from scipy.sparse.linalg import spsolve
        symmetric = (S + S.T).tobsr((2, 2))
        for kind in ("aij", "baij", "sbaij"):
            matrix = symmetric if kind == "sbaij" else S
            A = spread(matrix, kind)
            exact = spsolve(matrix.tocsc(), right)
            for inside in (False, True):
                ksp = PETSc.KSP().create(comm)
                ksp.setOperators(A)
                ksp.setTolerances(rtol=1e-10)
                if inside:
                    ksp.setType("fgmres")
                    context = krylith.petsc.PC(precond="amg" if kind == "aij" else "ildu")
                    ksp.getPC().setType("python")
                    ksp.getPC().setPythonContext(context)
                else:
                    context = krylith.petsc.KSP()
                    ksp.setType("python")
                    ksp.setPythonContext(context)
                x, own = solved(ksp, right)
                assert ksp.reason > 0 and np.abs(x - exact[own]).max() < 1e-6 * np.abs(exact).max(), (kind, inside, ksp.reason)
                A.scale(2.0)
                x, own = solved(ksp, right)
                assert ksp.reason > 0 and np.abs(2 * x - exact[own]).max() < 1e-6 * np.abs(exact).max()
                A.scale(0.5)
                assert (context.set_ups, context.updates) == (1, 1)
                if not inside:
                    x, own = solved(ksp, right, transpose=True)
                    exact_t = spsolve(matrix.T.tocsc(), right)
                    assert np.abs(x - exact_t[own]).max() < 1e-6 * np.abs(exact_t).max()
        # Another matrix of the same pattern, and one of another.
        ksp.setOperators(spread(3 * symmetric, "sbaij"))
        x, own = solved(ksp, right)
        assert np.abs(3 * x - exact[own]).max() < 1e-6 * np.abs(exact).max() and context.set_ups == 1
        PETSc.Sys.Print("all the same")
        """,
        count,
        tmp_path,
    )
    assert said == "all the same\n"


def test_null_spaces_blocks_and_nest_over_ranks(tmp_path):
    said = mpirun(
        """
        from scipy.sparse.linalg import spsolve
        D = S.tocsr()[::2, ::2].tocsr()
        m = D.shape[0]

        def own_rows(S, bsize=1):
            A = PETSc.Mat().create(comm)
            A.setSizes(S.shape)
            A.setType("aij")
            A.setUp()
            first, last = A.getOwnershipRange()
            rows = S.tocsr()[first:last]
            return PETSc.Mat().createAIJ(((rows.shape[0], m), (rows.shape[0], m)), csr=(rows.indptr, rows.indices, rows.data), comm=comm)

        L = sp.identity(m, format="csr")
        N = PETSc.Mat().createNest([[own_rows(D), own_rows(L)], [own_rows(L), None]], comm=comm)
        N.assemble()
        PETSc.Options()["krylith_fields"] = "u,p"
        PETSc.Options()["krylith_precond"] = "split(u: ildu, p: jacobi; schur=full, S=selfp)"
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(N)
        ksp.setTolerances(rtol=1e-10)
        ksp.setType("python")
        ksp.setPythonContext(krylith.petsc.KSP())
        ksp.setFromOptions()
        x, rhs = N.createVecs()
        u = own_rows(L).createVecLeft()
        own = slice(*u.getOwnershipRange())
        k = own.stop - own.start
        local = np.r_[right[own], right[m:][own]]
        rhs.setArray(local)
        ksp.solve(rhs, x)
        exact = spsolve(sp.bmat([[D, L], [L, None]], format="csc"), np.r_[right[:m], right[m : 2 * m]])
        found = x.getArray()
        assert ksp.reason > 0
        assert np.abs(found[:k] - exact[:m][own]).max() < 1e-6 and np.abs(found[k:] - exact[m:][own]).max() < 1e-6
        PETSc.Options().delValue("krylith_fields"), PETSc.Options().delValue("krylith_precond")
        # A pure Neumann problem, whose null space is on the ranks.
        r = sp.diags([-np.ones(m - 1), np.r_[1.0, np.full(m - 2, 2.0), 1.0], -np.ones(m - 1)], [-1, 0, 1]).tocsr()
        A = own_rows(r)
        A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=comm))
        c = right[:m] - right[:m].mean()
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(A)
        ksp.setType("python")
        ksp.setPythonContext(krylith.petsc.KSP())
        x, rhs = A.createVecs()
        rhs.setArray(c[own])
        ksp.solve(rhs, x)
        residual = rhs.duplicate()
        A.mult(x, residual)
        residual.axpy(-1.0, rhs)
        assert ksp.reason > 0 and residual.norm() <= 1.01e-5 * rhs.norm()
        PETSc.Sys.Print("done")
        """,
        2,
        tmp_path,
    )
    assert said == "done\n"


def test_a_parallel_matrix_that_krylith_cannot_share_is_refused(tmp_path):
    said = mpirun(
        """
        A = spread(S, "aij")

        def fails(text, comm):
            for cls, kind in ((krylith.petsc.KSP, "ksp"), (krylith.petsc.PC, "pc")):
                ksp = PETSc.KSP().create(comm)
                ksp.setOperators(A)
                if kind == "ksp":
                    ksp.setType("python")
                    ksp.setPythonContext(cls())
                else:
                    ksp.getPC().setType("python")
                    ksp.getPC().setPythonContext(cls())
                try:
                    ksp.setUp()
                    raise SystemExit("not refused")
                except krylith.Error as error:
                    assert text in str(error), error

        mpi4py = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "mpi4py"}
        sys.modules["mpi4py"] = None
        fails("mpi4py is missing", comm)
        # Each process alone is not a parallel matrix.
        sys.modules.pop("mpi4py")
        sys.modules.update(mpi4py)
        one = PETSc.Mat().createAIJ((3, 3), csr=([0, 1, 2, 3], [0, 1, 2], [1.0, 2.0, 4.0]), comm=PETSc.COMM_SELF)
        ksp = PETSc.KSP().createPython(krylith.petsc.KSP(), comm=PETSc.COMM_SELF)
        ksp.setOperators(one)
        x, y = one.createVecs()
        y.set(4.0)
        ksp.solve(y, x)
        assert x.getArray().tolist() == [4.0, 2.0, 1.0]
        PETSc.Sys.Print("refused")
        """,
        2,
        tmp_path,
    )
    assert said == "refused\n"


@pytest.mark.parametrize("count", [1, 2])
def test_programs_of_the_document(count, tmp_path):
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/petsc.md"
    if not page.exists():
        pytest.skip("docs/petsc.md is not here")
    programs = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if importlib.util.find_spec("dolfinx") is None:
        programs = [program for program in programs[:1] if "dolfinx" not in program]
    # In a process of its own, and with mpi4py before PETSc.
    mpirun("\n".join(["import mpi4py.MPI", *programs]), count, tmp_path, before="")


def test_ranks_share_a_device(tmp_path):
    """Without GPUs, the option says how many ranks gather."""
    said = mpirun(
        """
        from scipy.sparse.linalg import spsolve
        exact, exact_t = spsolve(S.tocsc(), right), spsolve(S.T.tocsc(), right)
        options = PETSc.Options()
        options["krylith_device"] = "cpu"
        for share in ("1", "2", "auto"):
            options["krylith_ranks_per_gpu"] = share
            A = spread(S, "aij")
            for inside in (False, True)[: 2 if share == "2" else 1]:
                context = krylith.petsc.PC(precond="ildu") if inside else krylith.petsc.KSP()
                ksp = PETSc.KSP().create(comm)
                ksp.setOperators(A)
                ksp.setTolerances(rtol=1e-10)
                ksp.setType("fgmres" if inside else "python")
                if inside:
                    ksp.getPC().setType("python")
                (ksp.getPC() if inside else ksp).setPythonContext(context)
                ksp.setFromOptions()
                x, own = solved(ksp, right)
                assert ksp.reason > 0 and np.abs(x - exact[own]).max() < 1e-6 * np.abs(exact).max(), (share, inside)
                A.scale(2.0)
                x, own = solved(ksp, right)
                assert ksp.reason > 0 and np.abs(2 * x - exact[own]).max() < 1e-6 * np.abs(exact).max(), (share, inside)
                A.scale(0.5)
                assert (context.set_ups, context.updates) == (1, 1)
                if not inside:
                    PETSc.Sys.Print(share, "gather on rank" in str(context.solution))
                    x, own = solved(ksp, right, transpose=True)
                    assert np.abs(x - exact_t[own]).max() < 1e-6 * np.abs(exact_t).max(), share
        options["krylith_ranks_per_gpu"] = "0"
        try:
            ksp.setFromOptions()
            ksp.setUp()
            solved(ksp, right)
        except PETSc.Error:
            PETSc.Sys.Print("refused")
        except krylith.Error as error:
            PETSc.Sys.Print("refused")
        """,
        2,
        tmp_path,
    )
    assert said.split() == ["1", "False", "2", "True", "auto", "False", "refused"]


def test_new_values_of_one_rank_are_taken_by_all(tmp_path):
    said = mpirun(
        """
        n, rank = 40, comm.rank
        own = PETSc.LGMap().create(list(range(rank * n - (rank > 0), (rank + 1) * n)), comm=comm)
        A = PETSc.Mat().createIS((comm.size * n, comm.size * n), lgmapr=own, lgmapc=own, comm=comm)
        A.setPreallocationNNZ(4)
        for i in range(own.size):
            A.setValueLocal(i, i, 2.0, addv=True)
            if i + 1 < own.size:
                A.setValueLocal(i, i + 1, -1.0, addv=True)
                A.setValueLocal(i + 1, i, -1.0, addv=True)
        A.assemble()
        x, rhs = A.createVecs()
        rhs.set(1.0)
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(A)
        ksp.setTolerances(rtol=1e-9)
        ksp.setType("python")
        ksp.setPythonContext(krylith.petsc.KSP(precond="jacobi"))
        ksp.solve(rhs, x)
        local = A.getISLocalMat()
        if rank == 1:
            local.setValue(3, 3, 5.0, addv=True)
            local.assemble()
        ksp.solve(rhs, x)
        residual = rhs.duplicate()
        A.mult(x, residual)
        residual.axpy(-1.0, rhs)
        assert ksp.reason > 0 and residual.norm() <= 1.01e-9 * rhs.norm()
        PETSc.Sys.Print("done")
        """,
        2,
        tmp_path,
    )
    assert said == "done\n"
