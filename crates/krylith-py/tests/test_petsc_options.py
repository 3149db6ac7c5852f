"""The PC and KSP types for petsc4py: options, reasons, monitors, views and forms of a solve."""

import numpy as np
import pytest

pytest.importorskip("petsc4py")
import scipy.sparse as sp  # noqa: E402
from petsc4py import PETSc  # noqa: E402
from scipy.sparse.linalg import spsolve  # noqa: E402

from petsc_cases import INSIDE, SELF, WHOLE, aij, baij, blocks, new_ksp, poisson, solved, stokes, vector  # noqa: E402

import krylith  # noqa: E402
import krylith.petsc  # noqa: E402

REASON = PETSc.KSP.ConvergedReason


def test_options_by_prefix():
    A = aij(poisson(10))
    ksp = new_ksp(A, prefix="flow_", **WHOLE, krylith_method="gmres:restart=7", krylith_precond="ildu:fill=1", krylith_threads=1)
    ksp.solve(vector(A, np.ones(100)), A.createVecRight())
    solution = ksp.getPythonContext().solution
    assert (solution.method, solution.precond) == ("GMRES(7)", "ILDU(1)")
    # Words with spaces, and an option of another prefix, which is not this KSP's.
    PETSc.Options()["heat_krylith_nonsense"] = "1"
    ksp = new_ksp(A, prefix="flow_", **WHOLE, krylith_precond="jacobi then amg")
    ksp.solve(vector(A, np.ones(100)), A.createVecRight())
    assert "then algebraic multigrid" in ksp.getPythonContext().solution.precond
    PETSc.Options().delValue("heat_krylith_nonsense")
    ksp = new_ksp(A, prefix="flow_", **INSIDE, krylith_precond="lu")
    solved(ksp, np.ones(100))
    assert ksp.its == 1


@pytest.mark.parametrize(
    "options, text",
    [
        ({"krylith_precnod": "amg"}, "unknown option `-a_krylith_precnod`; did you mean `precond`"),
        ({"krylith_precond": "agm"}, "agm"),
        ({"krylith_threads": "many"}, "`-a_krylith_threads` is 'many'; expected a whole number"),
        ({"krylith_deterministic": "perhaps"}, "`-a_krylith_deterministic` is 'perhaps'; expected true or false"),
        ({"krylith_rtol": "1e-3"}, "give -ksp_rtol"),
        ({"krylith_fields": "u,p"}, "neither the matrix nor its DM has fields"),
        ({"ksp_monitor_true_residual": None}, "computes with x"),
    ],
)
def test_wrong_options_are_named(options, text):
    A = aij(poisson(5))
    try:
        with pytest.raises(krylith.InvalidInput, match="^.*" + text.replace("(", r"\(").replace("?", r"\?")):
            new_ksp(A, prefix="a_", **WHOLE, **options).setUp()
    finally:
        for name in options:
            PETSc.Options("a_").delValue(name)


def test_options_of_a_solve_are_refused_by_the_preconditioner():
    with pytest.raises(krylith.InvalidInput, match="has no effect on a preconditioner"):
        krylith.petsc.PC(method="gmres")
    with pytest.raises(krylith.InvalidInput, match="unknown option `presond`"):
        krylith.petsc.KSP(presond="lu")


def test_reasons():
    S = poisson(20)
    A, b = aij(S), np.ones(400)
    ksp = new_ksp(A, **WHOLE, krylith_precond="jacobi")
    solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_RTOL and ksp.norm <= 1e-10 * np.linalg.norm(b)
    ksp.setTolerances(rtol=1e-30, atol=1e-3)
    x = solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_ATOL and abs(ksp.norm - np.linalg.norm(b - S @ x)) < 1e-10
    ksp.setTolerances(rtol=1e-10, atol=0.0, max_it=3)
    solved(ksp, b)
    assert ksp.reason == REASON.DIVERGED_MAX_IT and ksp.its == 3
    ksp.setTolerances(rtol=1e-30, max_it=10000)
    solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_HAPPY_BREAKDOWN
    ksp.setTolerances(rtol=1e-8)
    solved(ksp, 0 * b)
    assert ksp.reason > 0
    bad = b.copy()
    bad[7] = np.nan
    solved(ksp, bad)
    assert ksp.reason == REASON.DIVERGED_NANORINF
    with pytest.raises(PETSc.Error):
        ksp.setErrorIfNotConverged(True)
        solved(ksp, bad)
    ksp.setErrorIfNotConverged(False)
    A.setValue(3, 3, np.nan)
    A.assemble()
    solved(ksp, b)
    assert ksp.reason == REASON.DIVERGED_NANORINF
    A.setValue(3, 3, S[3, 3])
    A.assemble()
    solved(ksp, b)
    assert ksp.reason == REASON.CONVERGED_RTOL
    # An inconsistent singular system.
    n = 30
    T = sp.diags([-np.ones(n - 1), np.r_[1.0, np.full(n - 2, 2.0), 1.0], -np.ones(n - 1)], [-1, 0, 1])
    ksp = new_ksp(aij(T.tocsr()), **WHOLE)
    solved(ksp, np.ones(n))
    assert ksp.reason < 0


def test_after_a_failed_set_up_nothing_old_is_applied():
    A = aij(poisson(5))
    pc = PETSc.PC().createPython(krylith.petsc.PC(precond="lu"), comm=SELF)
    pc.setOperators(A)
    x, y = A.createVecs()
    x.set(1.0)
    pc.apply(x, y)
    A.setValue(3, 3, np.nan)
    A.assemble()
    for _ in range(2):
        with pytest.raises(krylith.InvalidInput, match="must be finite"):
            pc.apply(x, y)


def test_initial_guess_and_criteria():
    S = poisson(12)
    A, b = aij(S), np.ones(144)
    exact = spsolve(S.tocsc(), b)
    for more in ({}, {"krylith_relative_to": "r0"}, {"krylith_criterion": "backward"}):
        ksp = new_ksp(A, **WHOLE, ksp_initial_guess_nonzero=True, krylith_precond="jacobi", **more)
        ksp.setConvergenceHistory()
        x = A.createVecRight()
        x.setArray(exact + 1e-3)
        first = np.linalg.norm(b - S @ x.getArray())
        ksp.solve(vector(A, b), x)
        history = ksp.getConvergenceHistory()
        assert ksp.reason > 0 and np.abs(x.getArray() - exact).max() < 1e-7
        assert "krylith_criterion" in more or abs(history[0] - first) < 1e-9 * first
        assert len(history) == ksp.its + 1


def test_monitors_and_history():
    S = poisson(16)
    A, b, seen = aij(S), np.ones(256), []
    ksp = new_ksp(A, **WHOLE, krylith_precond="jacobi")
    ksp.setConvergenceHistory()
    solved(ksp, b)
    after = ksp.getConvergenceHistory()
    ksp.setConvergenceHistory(reset=True)
    ksp.setMonitor(lambda ksp, its, norm: seen.append((its, norm)))
    x = solved(ksp, b)
    history = ksp.getConvergenceHistory()
    assert [its for its, _ in seen] == list(range(ksp.its + 1)) and np.array_equal([norm for _, norm in seen], history)
    assert np.array_equal(after, history)
    assert abs(history[0] - np.linalg.norm(b)) < 1e-12 and abs(history[-1] - np.linalg.norm(b - S @ x)) < 1e-10


def test_a_convergence_test_of_the_user_ends_the_solve():
    A = aij(poisson(20))
    ksp = new_ksp(A, **WHOLE, krylith_precond="jacobi")
    ksp.setConvergenceTest(lambda ksp, its, norm: REASON.CONVERGED_ITS if its == 5 else 0)
    solved(ksp, np.ones(400))
    assert ksp.its == 5 and ksp.reason == REASON.CONVERGED_ITS
    ksp.setConvergenceTest(None)


def test_views(tmp_path):
    A = aij(poisson(6))
    for options in (WHOLE, INSIDE):
        ksp = new_ksp(A, **options, krylith_precond="ildu")
        solved(ksp, np.ones(36))
        viewer = PETSc.Viewer().createASCII(str(tmp_path / "view"), comm=SELF)
        ksp.view(viewer)
        viewer.destroy()
        text = (tmp_path / "view").read_text(encoding="utf-8")
        assert "Krylith: precond=ildu" in text and "1 set-ups, 0 updates" in text
        assert ("converged after" in text) == (options is WHOLE)


def test_columns():
    S = poisson(10)
    A = aij(S)
    B = PETSc.Mat().createDense((100, 5), comm=SELF).setUp()
    B.getDenseArray()[...] = np.random.default_rng(1).random((100, 5))
    B.assemble()
    X = B.duplicate()
    X.assemble()
    ksp = new_ksp(A, **WHOLE)
    ksp.getPythonContext().matSolve(ksp, B, X)
    given = B.getDenseArray()
    assert ksp.reason > 0 and np.abs(S @ X.getDenseArray() - given).max() < 1e-8
    pc = PETSc.PC().createPython(krylith.petsc.PC(precond="lu"), comm=SELF)
    pc.setOperators(A)
    X.zeroEntries()
    pc.matApply(B, X)
    assert np.abs(S @ X.getDenseArray() - given).max() < 1e-10


@pytest.mark.parametrize("precond", ["jacobi", "ildu", "amg", "lu"])
def test_the_transpose_of_the_preconditioner(precond):
    S = blocks(8, 2)
    pc = PETSc.PC().createPython(krylith.petsc.PC(precond=precond), comm=SELF)
    pc.setOperators(baij(S, 2))
    u, v = np.random.default_rng(2).random((2, S.shape[0]))
    A = pc.getOperators()[0]
    x, y = A.createVecs()
    pc.apply(vector(A, u), x)
    pc.applyTranspose(vector(A, v), y)
    assert abs(v @ x.getArray() - u @ y.getArray()) < 1e-10 * np.abs(x.getArray()).sum()
    ksp = new_ksp(A, **{**INSIDE, "ksp_type": "bicg", "ksp_pc_side": "left"}, krylith_precond=precond)
    x = solved(ksp, u)
    assert ksp.reason > 0 and np.abs(S @ x - u).max() < 1e-6


def test_a_preconditioner_that_varies_needs_a_flexible_method():
    A, b = aij(poisson(16)), np.ones(256)
    ksp = new_ksp(A, ksp_type="fgmres", pc_type="ksp", ksp_ksp_type="python", ksp_ksp_python_type="krylith.petsc.KSP", ksp_ksp_rtol=1e-3)
    x = solved(ksp, b)
    assert ksp.reason > 0 and ksp.its <= 5 and np.abs(poisson(16) @ x - b).max() < 1e-8


def test_the_pc_of_the_ksp_is_not_set_up():
    """PETSc's ILU, the default, fails on this matrix."""
    A, B = stokes(5)
    K = sp.bmat([[A, B], [B.T, None]], format="csr")
    b = np.ones(K.shape[0])
    for order in ("options", "calls"):
        if order == "options":
            ksp = new_ksp(aij(K), **WHOLE, pc_type="ilu")
        else:
            ksp = new_ksp(aij(K))
            ksp.setType("python")
            ksp.setPythonContext(krylith.petsc.KSP())
            ksp.getPC().setType("ilu")
        assert np.abs(solved(ksp, b) - spsolve(K.tocsc(), b)).max() < 1e-5 and ksp.reason > 0
