"""`krylith.solve` on matrices of every format, compared with a direct solve."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, spsolve

import krylith


def random_matrix(n, seed=1, density=0.05):
    """Return a diagonally dominant matrix that is not symmetric."""
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(seed), format="csr")
    return (A + sp.diags_array(1.0 + abs(A).sum(axis=1))).tocsr()


def poisson(n):
    T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return (sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T)).tocsr()


def close(A, x, b, rtol=1e-6):
    return np.linalg.norm(A @ x - b) <= 1.01 * rtol * np.linalg.norm(b)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_every_format(form, kind):
    A = random_matrix(60)
    b = np.random.default_rng(2).standard_normal(60)
    given = getattr(sp, f"{form}_{kind}")(A)
    before = given.copy()
    s = krylith.solve(given, b, rtol=1e-10)
    assert s.outcome == "converged" and s.converged
    np.testing.assert_allclose(s.x, spsolve(A.tocsc(), b), rtol=1e-8)
    assert (abs(given - before)).sum() == 0, "the caller's matrix is as it was"


@pytest.mark.parametrize("block", [1, 2, 3, 4, 8])
def test_blocks(block):
    n = 24
    A = random_matrix(n, density=0.3)
    b = np.ones(n)
    expected = spsolve(A.tocsc(), b)
    for given in (A.tobsr(blocksize=(block, block)), A):
        s = krylith.solve(given, b, rtol=1e-10, block=block)
        np.testing.assert_allclose(s.x, expected, rtol=1e-8)
        assert f"blocks {block}×{block}" in repr(s)
    # A block size that does not suit the matrix, and blocks that are not square.
    np.testing.assert_allclose(krylith.solve(A.tobsr(blocksize=(2, 3)), b, rtol=1e-10).x, expected, rtol=1e-8)
    np.testing.assert_allclose(krylith.solve(A.tobsr(blocksize=(2, 2)), b, rtol=1e-10, block=4).x, expected, rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32, np.uint8, bool])
def test_types_of_numbers(dtype):
    A = sp.csr_array(np.array([[4, 1, 0], [0, 3, 1], [1, 0, 2]]).astype(dtype))
    b = np.array([1, 0, 1]).astype(dtype)
    exact = np.linalg.solve(A.toarray().astype(float), b.astype(float))
    s = krylith.solve(A, b, rtol=1e-12)
    assert s.x.dtype == np.float64
    np.testing.assert_allclose(s.x, exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_widths_of_indices(index):
    A = random_matrix(40)
    wide = A.copy()
    wide.indptr, wide.indices = A.indptr.astype(index), A.indices.astype(index)
    assert close(A, krylith.solve(wide, np.ones(40)).x, np.ones(40))


def test_unsorted_and_repeated_entries():
    rows, columns = np.array([0, 0, 0, 1, 2, 2]), np.array([2, 0, 2, 1, 2, 0])
    A = sp.csr_array((3, 3))
    A.data, A.indices, A.indptr = np.array([1.0, 4, 1, 2, 5, 1]), columns, np.array([0, 3, 4, 6])
    before = A.indices.copy()
    dense = np.zeros((3, 3))
    np.add.at(dense, (rows, columns), A.data)
    s = krylith.solve(A, np.ones(3), rtol=1e-12)
    np.testing.assert_allclose(s.x, np.linalg.solve(dense, np.ones(3)), rtol=1e-10)
    assert (A.indices == before).all()


def test_shapes_of_b():
    A = random_matrix(30)
    rng = np.random.default_rng(3)
    b = rng.standard_normal((30, 3))
    exact = spsolve(A.tocsc(), b)
    for given in (b, np.asfortranarray(b), b.astype(np.float32)):
        s = krylith.solve(A, given, rtol=1e-10)
        assert s.x.shape == (30, 3) and len(s.columns) == 3 and s.converged
        np.testing.assert_allclose(s.x, exact, rtol=1e-5 if given.dtype == np.float32 else 1e-8, atol=1e-7)
    one = krylith.solve(A, b[:, :1], rtol=1e-10)
    assert one.x.shape == (30, 1) and one.columns == ()
    np.testing.assert_allclose(krylith.solve(A, b[:, 1], rtol=1e-10).x, exact[:, 1], rtol=1e-8)  # with gaps
    np.testing.assert_allclose(krylith.solve(A, list(b[:, 1]), rtol=1e-10).x, exact[:, 1], rtol=1e-8)
    for shape in [(29,), (31, 1), (30, 2, 2), (), (30, 0)]:
        with pytest.raises(krylith.InvalidInput):
            krylith.solve(A, np.ones(shape))


def test_first_guess():
    A, b = random_matrix(50), np.ones(50)
    exact = spsolve(A.tocsc(), b)
    before = exact.copy()
    s = krylith.solve(A, b, x0=exact)
    assert s.iterations == 0 and (exact == before).all() and s.x is not exact
    with pytest.raises(krylith.InvalidInput, match="x0 has shape"):
        krylith.solve(A, b, x0=np.ones(49))
    two = krylith.solve(A, np.ones((50, 2)), x0=np.stack([exact, exact], axis=1))
    assert two.iterations == 0
    listed = krylith.solve(A, np.ones((50, 2)).tolist(), x0=np.stack([exact, exact], axis=1).tolist())
    assert listed.iterations == 0
    assert krylith.solve(A, np.zeros(50)).x.tolist() == [0.0] * 50


def test_methods_and_options():
    A, b = poisson(20), np.ones(400)
    for method in ["cg", "bicgstab", "gmres", "gmres:restart=20", "cbcg", "minres"]:
        for precond in ["none", "jacobi", "ildu", "amg"]:
            if method == "cbcg" and precond not in ("none", "jacobi"):
                continue
            s = krylith.solve(A, b, method=method, precond=precond, rtol=1e-8, threads=1)
            assert s.converged and close(A, s.x, b, 1e-8), (method, precond)
    s = krylith.solve(A, b, method="gmres", restart=7, precond="none", precision="f32", rtol=1e-8, maxiter=5000)
    assert "GMRES(7)" in s.method and s.converged and s.restarts > 0
    assert s.residuals[0] == 1.0 and len(s.residuals) == s.iterations + 1
    assert s.true_residual <= s.target == 1e-8
    assert s.device == "cpu" and s.seconds.total == s.seconds.setup + s.seconds.solve > 0
    assert {e.kind for e in s.events} <= {"choice", "fallback", "refinement", "restart"}


def test_what_does_not_converge_warns_where_it_was_called():
    A, b = poisson(30), np.ones(900)
    with pytest.warns(krylith.ConvergenceWarning, match="max-iterations.*max_iters") as told:
        s = krylith.solve(A, b, method="cg", precond="none", maxiter=3)
    assert told[0].filename == __file__
    assert s.outcome == "max-iterations" and s.iterations == 3 and not s.converged
    assert "max_iters" in s.verdict()
    solver = krylith.Solver(A, method="cg", precond="none", maxiter=3)
    with pytest.warns(krylith.ConvergenceWarning) as told:
        solver.solve(b)
    assert told[0].filename == __file__


def test_wrong_input_is_refused_in_words():
    A, b = random_matrix(10), np.ones(10)
    cases = [
        (dict(method="gmers"), "unknown method `gmers`"),
        (dict(precond="ilu3"), "unknown preconditioner"),
        (dict(tol=1e-3), "did you mean `rtol`"),
        (dict(restrat=3), "did you mean `restart`"),
        (dict(quux=3), "the known ones are"),
        (dict(device="gpu"), "unknown device `gpu`"),
        (dict(maxiter=-1), "max"),
        (dict(rtol=float("nan")), "rtol"),
        (dict(block=9), "`block` is 9"),
        (dict(method="cg rtol=1"), "no spaces"),
        (dict(nullspace="rigid"), "expected 'constant'"),
        (dict(nullspace=np.ones(9)), "9"),
        (dict(coordinates=np.ones((10, 4))), "the points have 4"),
        (dict(coordinates=np.ones((9, 3))), "9 points for 10 nodes"),
    ]
    for options, text in cases:
        with pytest.raises(krylith.InvalidInput) as e:
            krylith.solve(A, b, **options)
        assert text in str(e.value), options
        assert isinstance(e.value, ValueError) and isinstance(e.value, krylith.Error)
    for matrix, text in [
        (sp.random_array((10, 9), density=0.5), "10×9"),
        (A * float("nan"), "NaN"),
        (sp.csr_array((0, 0)), r"expected \(0,\)"),
        (np.array(["a"]), "not a matrix"),
        (object(), "not a matrix"),
    ]:
        with pytest.raises(krylith.InvalidInput, match=text):
            krylith.solve(matrix, b)
    zero = A.tolil()
    zero[4, :] = 0
    zero[4, 5] = 1.0
    with pytest.raises(krylith.InvalidInput, match="row 4.*precond=\"none\""):
        krylith.solve(zero.tocsr(), b, precond="jacobi", method="gmres")


def test_a_gpu_that_is_not_there():
    try:
        krylith.solve(random_matrix(10), np.ones(10), device="cuda:99")
    except krylith.Error as e:
        assert isinstance(e, krylith.DeviceError)
        assert "cuda:99" in str(e) or "no NVIDIA driver was found" in str(e)
    else:
        pytest.fail("there is no GPU 99")


def test_dense_matrices_are_taken():
    A = random_matrix(12)
    assert close(A, krylith.solve(A.toarray(), np.ones(12)).x, np.ones(12))
    assert close(A, krylith.solve(A.toarray().tolist(), np.ones(12)).x, np.ones(12))


def test_singular_systems():
    n = 16
    A = poisson(n).tolil()
    A.setdiag(0)
    A.setdiag(-np.asarray(A.sum(axis=1)).ravel())
    A = A.tocsr()
    b = np.random.default_rng(5).standard_normal(n * n)
    b -= b.mean()
    for null in ("constant", np.ones(n * n), np.ones((n * n, 1)), [np.ones(n * n)]):
        s = krylith.solve(A, b, nullspace=null, rtol=1e-9)
        assert s.converged and close(A, s.x, b, 1e-9) and abs(s.x.mean()) < 1e-9
    with pytest.raises(krylith.InvalidInput, match="not a null vector"):
        krylith.solve(poisson(n), b, nullspace=np.ones(n * n))


def test_callback():
    A, b = poisson(30), np.ones(900)
    told = []
    s = krylith.solve(A, b, method="cg", precond="none", callback=lambda i, r: told.append((i, r)))
    assert [i for i, _ in told] == list(range(s.iterations + 1))
    np.testing.assert_allclose([r for _, r in told], s.residuals)
    with pytest.warns(krylith.ConvergenceWarning, match="interrupted"):
        s = krylith.solve(A, b, method="cg", precond="none", callback=lambda i, r: i == 5)
    assert s.outcome == "interrupted" and s.iterations == 5

    def fails(i, r):
        raise RuntimeError("of the callback")

    with pytest.raises(RuntimeError, match="of the callback"):
        krylith.solve(A, b, callback=fails)


def test_pictures_and_text(tmp_path):
    s = krylith.solve(poisson(20), np.ones(400), method="cg", precond="none")
    assert "converged after" in repr(s) and "CG" in repr(s) and "400 unknowns" in repr(s)
    svg = s.plot(tmp_path / "r.svg", title="a <test>").svg
    assert svg.startswith("<svg") and "a &lt;test&gt;" in svg
    assert (tmp_path / "r.svg").read_text(encoding="utf-8") == svg
    assert s._repr_html_().count("<svg") == 1
    s.plot(tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(krylith.InvalidInput, match=".svg"):
        s.plot(tmp_path / "r.pdf")


def test_kronecker_sums():
    rng = np.random.default_rng(7)
    n, s = 40, 3
    M, L = random_matrix(n, 1), random_matrix(n, 2)
    A, B, tau = np.eye(s), rng.standard_normal((s, s)) * 0.1 + np.eye(s), 0.25
    K = krylith.KroneckerSum(A, M, B, L, tau)
    whole = np.kron(A, M.toarray()) + tau * np.kron(B, L.toarray())  # stage after stage
    F = rng.standard_normal((n, s))
    exact = np.linalg.solve(whole, F.T.ravel())
    x = krylith.solve(K, F, rtol=1e-10).x
    np.testing.assert_allclose(x.T.ravel(), exact, rtol=1e-7, atol=1e-9)
    flat = krylith.solve(K, F.T.ravel(), rtol=1e-10).x
    np.testing.assert_allclose(flat, exact, rtol=1e-7, atol=1e-9)
    several = krylith.solve(K, np.stack([F, 2 * F], axis=2), rtol=1e-10).x
    np.testing.assert_allclose(several[:, :, 1].T.ravel(), 2 * exact, rtol=1e-7, atol=1e-9)
    blocks = krylith.KroneckerSum(A, M.tobsr(blocksize=(2, 2)), B, L, tau)
    assert K.shape == (n * s, n * s) and "3 stages" in repr(K)
    with pytest.raises(krylith.InvalidInput, match="expected \\(40, 3\\)"):
        krylith.solve(K, np.ones((3, n)))
    np.testing.assert_allclose(krylith.solve(blocks, F, rtol=1e-10).x.T.ravel(), exact, rtol=1e-7, atol=1e-9)
    solver = krylith.Solver(K, rtol=1e-10)
    solver.set_tau(2 * tau)
    whole = np.kron(A, M.toarray()) + 2 * tau * np.kron(B, L.toarray())
    np.testing.assert_allclose(solver.solve(F).x.T.ravel(), np.linalg.solve(whole, F.T.ravel()), rtol=1e-7, atol=1e-9)
    solver.update_values(krylith.KroneckerSum(A, 3 * M, B, 3 * L, tau))
    np.testing.assert_allclose(solver.solve(F).x.T.ravel(), exact / 3, rtol=1e-7, atol=1e-9)


def test_the_command_is_in_the_wheel():
    run = [sys.executable, "-m", "krylith"]
    done = subprocess.run([*run, "solve", "laplace:8x8x8"], capture_output=True, text=True)
    assert done.returncode == 0 and "converged" in done.stdout, done.stderr
    done = subprocess.run([*run, "solve", "missing.mtx"], capture_output=True, text=True)
    assert done.returncode == 2 and "missing.mtx" in done.stderr


def test_the_compiler_of_wheels_is_found(tmp_path, monkeypatch):
    from krylith import _compiler

    for folder in ("cu13/lib", "cu12/lib", "cuda_nvrtc/lib"):
        (tmp_path / "nvidia" / folder).mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = [folder for folder in _compiler._installed() if folder.is_relative_to(tmp_path)]
    assert [folder.parent.name for folder in found] == ["cu13", "cu12", "cuda_nvrtc"]
    assert all(folder.is_dir() for folder in found)
