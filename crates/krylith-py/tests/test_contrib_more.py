"""Adapters for nutils, pymatsolver and devsim, against direct solvers. Codes that are not installed are skipped."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import krylith


def flow(n, dtype=float):
    T = sp.diags([-1.3, 2.2, -0.8], [-1, 0, 1], shape=(n, n))
    A = sp.kron(T, sp.identity(n)) + sp.kron(sp.identity(n), T)
    return (A + (0.3j * sp.identity(n * n) if dtype is complex else 0)).tocsr()


def test_nutils_solves_matrices_and_problems():
    pytest.importorskip("nutils")
    from nutils import function, matrix, mesh

    from krylith.contrib.nutils import solver

    A = flow(9)
    ours = matrix.assemble_csr(A.data, A.indptr, A.indices, A.shape[1])
    solve, b = solver(precond="ildu"), np.arange(81.0)
    exact = spsolve(A.tocsc(), b)
    for tolerance in ({}, {"rtol": 1e-9}, {"atol": 1e-6}):
        x = ours.solve(b, solver=solve, **tolerance)
        assert np.abs(x - exact).max() < 1e-5 * np.abs(exact).max()
    columns = np.stack([b, 2 * b], 1)
    assert np.abs(ours.solve(columns, solver=solve) - np.stack([exact, 2 * exact], 1)).max() < 1e-8
    held = np.zeros(81, bool)
    held[:5] = True
    assert np.abs((A @ ours.solve(b, solver=solve, constrain=held) - b)[5:]).max() < 1e-8 * np.abs(b).max()
    with pytest.raises(matrix.MatrixError):
        ours.solve(b, solver=solver(precond="jacobi", max_iters=1))

    domain, geometry = mesh.rectilinear([np.linspace(0, 1, 9)] * 2)
    basis = domain.basis("std", degree=1)
    stiffness = domain.integral(
        (basis.grad(geometry)[:, None] * basis.grad(geometry)[None]).sum(-1) * function.J(geometry), degree=2
    )
    load = domain.integral(basis * function.J(geometry), degree=2)
    A, b = function.eval([stiffness, load])
    held = np.zeros(81, bool)
    held[[i * 9 + j for i in range(9) for j in range(9) if i in (0, 8) or j in (0, 8)]] = True
    rows = sp.csr_matrix(A) if isinstance(A, np.ndarray) else sp.csr_matrix(A.export("csr"), shape=A.shape)
    assembled = matrix.assemble_csr(rows.data, rows.indptr, rows.indices, rows.shape[1])
    x = assembled.solve(b, solver=solver(precond="amg"), constrain=held)
    assert np.abs((rows @ x - b)[~held]).max() < 1e-10


@pytest.mark.parametrize("dtype", [float, complex])
def test_pymatsolver_solves_with_the_matrix_and_its_transpose(dtype):
    pytest.importorskip("pymatsolver")
    from krylith.contrib.pymatsolver import Krylith

    A = flow(8, dtype)
    b = np.arange(64.0) + (1j if dtype is complex else 0)
    S = Krylith(A, check_accuracy=True)
    exact = spsolve(A.tocsc(), b)
    assert np.abs(S @ b - exact).max() < 1e-9 * np.abs(exact).max()
    turned = spsolve(A.T.tocsc(), b)
    assert S.T.solver is S.solver
    assert np.abs(S.T @ b - turned).max() < 1e-9 * np.abs(turned).max()
    assert np.abs(b @ S - turned).max() < 1e-9 * np.abs(turned).max()
    assert np.abs(S.T.T @ b - exact).max() < 1e-9 * np.abs(exact).max()
    columns = np.stack([b, -b], 1)
    assert np.abs(S @ columns - np.stack([exact, -exact], 1)).max() < 1e-9 * np.abs(exact).max()
    conjugate = spsolve(A.conj().tocsc(), b)
    assert np.abs(S.conj() @ b - conjugate).max() < 1e-9 * np.abs(conjugate).max()


def test_pymatsolver_raises_if_a_solve_does_not_converge():
    pytest.importorskip("pymatsolver")
    from krylith.contrib.pymatsolver import Krylith

    with pytest.raises(krylith.ConvergenceError):
        Krylith(flow(20), precond="jacobi", max_iters=2) @ np.ones(400)
    with pytest.raises(krylith.InvalidInput, match="unknown option"):
        Krylith(flow(4), tolerance=1e-3)


#: Runs an example of devsim, and prints numbers of contacts: currents, charges and capacitances.
DEVSIM = """
import pathlib, runpy, sys
folder, name, ours = sys.argv[1:]
sys.path.insert(0, folder)
if ours == "krylith":
    import krylith.contrib.devsim
    krylith.contrib.devsim.install()
runpy.run_path(str(pathlib.Path(folder) / name), run_name="__main__")
"""


@pytest.mark.parametrize("name", ["diode_1d.py", "ssac_diode.py", "tran_diode.py"])
def test_devsim_runs_its_examples(name, tmp_path):
    pytest.importorskip("devsim")
    folder = pathlib.Path(sys.prefix) / "devsim_data/examples/diode"
    if not (folder / name).exists():
        pytest.skip("devsim's examples are missing")
    found = []
    for solver in ("own", "krylith"):
        command = [sys.executable, "-c", DEVSIM, str(folder), name, solver]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        of_contacts = ("top\t", "bot\t", "capacitance ", "V1.I")
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith(of_contacts)]
        # The conductance is ill-conditioned: solvers differ in its sixth digit.
        lines = [line for line in lines if "ssac_real" not in line]
        words = [word for line in lines for word in line[1:]]
        found.append([float(word) for word in words if word[0] in "-0123456789"])
    own, ours = map(np.array, found)
    assert own.size > 0 and own.shape == ours.shape
    assert np.allclose(ours, own, rtol=1e-8, atol=1e-14)


def test_devsim_checks_options():
    pytest.importorskip("devsim")
    import krylith.contrib.devsim

    with pytest.raises(krylith.InvalidInput, match="unknown option"):
        krylith.contrib.devsim.install(tolerance=1e-3)
