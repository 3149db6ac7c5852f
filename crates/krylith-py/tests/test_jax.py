"""`krylith.jax` against dense solves of JAX: derivatives, batches, compiled programs, threads. Skipped without JAX."""

import gc
import os
import re
import subprocess
import sys
import sysconfig
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import krylith
from krylith import _differentiable as core
from krylith import _native
from test_solve import random_matrix

# Most of the time goes to the compilation of programs that run once.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.experimental import sparse  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import krylith.jax as kj  # noqa: E402

N = 31
#: JAX raises the second one where it has executed a program at once.
FAILED = (jax.errors.JaxRuntimeError, ValueError)


@pytest.fixture(autouse=True)
def wide():
    """Compute with 64 bits, and begin without set-ups."""
    kj.clear()
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
    kj.keep(8)


@pytest.fixture(params=["cpu", "cuda"], autouse=True)
def device(request):
    """Run each test on the host and on a GPU."""
    try:
        there = jax.devices(request.param)[0]
    except RuntimeError:
        pytest.skip(f"JAX has no {request.param}")
    with jax.default_device(there):
        yield request.param


def system(seed=1, kind="bcsr"):
    A = random_matrix(N, seed=seed, density=0.1)
    b = jnp.asarray(np.random.default_rng(2).standard_normal(N))
    make = sparse.BCSR if kind == "bcsr" else sparse.BCOO
    return make.from_scipy_sparse(A), b, jnp.asarray(A.toarray())


def with_values(A, data):
    """Return a matrix with the pattern of A and other numbers."""
    if isinstance(A, sparse.BCSR):
        return sparse.BCSR((data, A.indices, A.indptr), shape=A.shape)
    return sparse.BCOO((data, A.indices), shape=A.shape)


def solved(A, data, b, **more):
    return kj.solve(with_values(A, data), b, **({"rtol": 1e-13} | more))


def dense(A, data, b):
    return jnp.linalg.solve(with_values(A, data).todense(), b)


def near(x, y, tolerance=1e-9):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["bcsr", "bcoo"])
@pytest.mark.parametrize("columns", [None, 3])
def test_solve(kind, columns):
    A, b, D = system(kind=kind)
    b = b if columns is None else jnp.stack([b * (k + 1) for k in range(columns)], 1)
    exact = jnp.linalg.solve(D, b)
    x = kj.solve(A, b)
    assert isinstance(x, jax.Array) and x.dtype == b.dtype and x.shape == b.shape
    near(x, exact)
    near(jax.jit(kj.solve)(A, b), exact)
    assert len(core.SET_UPS) == 1, "a known and a traced pattern share a set-up"
    if kind == "bcsr":
        near(kj.spsolve(A.data, A.indices, A.indptr, b), exact)
        near(jax.jit(kj.spsolve)(A.data, A.indices, A.indptr, b), exact)


def test_derivatives_of_first_and_second_order():
    A, b, _ = system()
    check_grads(lambda data, b: solved(A, data, b), (A.data, b), order=2, modes=("fwd", "rev"))
    loss = lambda f: lambda data, b: (f(A, data, b) ** 3).sum()  # noqa: E731
    ours, wanted = loss(solved), loss(dense)
    for got, exact in zip(jax.grad(ours, (0, 1))(A.data, b), jax.grad(wanted, (0, 1))(A.data, b)):
        near(got, exact)
    near(jax.jit(jax.hessian(ours, 1))(A.data, b), jax.hessian(wanted, 1)(A.data, b), 1e-7)
    v = jnp.cos(jnp.arange(len(A.data), dtype=b.dtype))
    times = lambda f: jax.jvp(lambda d: jax.grad(f)(d, b), (A.data,), (v,))[1]  # noqa: E731
    near(times(ours), times(wanted), 1e-7)
    near(jax.jacrev(lambda b: solved(A, A.data, b))(b), jax.jacfwd(lambda b: dense(A, A.data, b))(b))


def test_gradients_through_an_argument_of_a_compiled_function():
    A, b, _ = system(kind="bcoo")
    f = jax.jit(jax.grad(lambda A, b: (kj.solve(A, b, rtol=1e-13) ** 2).sum(), allow_int=True))
    exact = jax.grad(lambda d: (dense(A, d, b) ** 2).sum())(A.data)
    near(f(A, b).data, exact)
    near(f(with_values(A, 2 * A.data), b).data, exact / 8)
    assert len(core.SET_UPS) == 1


@pytest.mark.parametrize("jit", [False, True])
def test_batches(jit):
    A, b, _ = system()
    datas, bs = jnp.stack([A.data, 2 * A.data]), jnp.stack([b, -b, 3 * b])
    f, exact = (lambda data, b: solved(A, data, b)), (lambda data, b: dense(A, data, b))
    for axes, args in (((None, 0), (A.data, bs)), ((0, None), (datas, b)), ((0, 0), (datas, bs[:2]))):
        mapped = jax.vmap(f, axes)
        near((jax.jit(mapped) if jit else mapped)(*args), jax.vmap(exact, axes)(*args))
    both = lambda g: jax.vmap(jax.vmap(g, (None, 0)), (0, None))  # noqa: E731
    near(both(f)(datas, bs), both(exact)(datas, bs))
    grads = lambda g: jax.vmap(jax.grad(lambda d, b: (g(d, b) ** 2).sum(), (0, 1)), (None, 0))  # noqa: E731
    for got, wanted in zip(grads(f)(A.data, bs), grads(exact)(A.data, bs)):
        near(got, wanted)
    two = jnp.stack([jnp.stack([b, 2 * b], 1)] * 2)
    near(jax.vmap(f)(datas, two), jax.vmap(exact)(datas, two))


def disordered(A):
    """Return the entries of a matrix in no order, one of them in two parts, and padding."""
    coo = sp.coo_array(A)
    order = np.random.default_rng(3).permutation(coo.nnz)
    rows, cols, data = coo.row[order], coo.col[order], coo.data[order]
    rows, cols = (np.r_[a, a[0], [N, N]].astype(np.int32) for a in (rows, cols))
    data = np.r_[data[0] / 4, data[1:], data[0] * 3 / 4, 7.0, 8.0]
    return sparse.BCOO((jnp.asarray(data), jnp.asarray(np.stack([rows, cols], 1))), shape=A.shape)


@pytest.mark.parametrize("traced", [False, True])
def test_entries_in_no_order_twice_and_outside(traced):
    A, b, D = system()
    B = disordered(A.to_bcoo().todense())
    near(B.todense(), D, 1e-14)
    if traced:
        run = jax.jit(lambda data, indices, b: kj.solve(sparse.BCOO((data, indices), shape=A.shape), b, rtol=1e-13))
        f = lambda data, b: run(data, B.indices, b)  # noqa: E731
    else:
        f = lambda data, b: solved(B, data, b)  # noqa: E731
    near(f(B.data, b), jnp.linalg.solve(D, b))
    got = jax.grad(lambda d: (f(d, b) ** 2).sum())(B.data)
    near(got, jax.grad(lambda d: (dense(B, d, b) ** 2).sum())(B.data))
    assert got[-1] == got[-2] == 0, "padding has no gradient"
    near(f(B.data, b), kj.solve(A, b))
    assert len(core.SET_UPS) == 2, "one for each tolerance: the sorted patterns are the same"


def test_columns_of_rows_in_no_order_and_unused_space():
    data, indices, indptr = jnp.array([1.0, 4.0, 5.0, -1.0, 9.0]), jnp.array([1, 0, 1, 0, 0]), jnp.array([0, 2, 4])
    b = jnp.array([5.0, 4.0])
    for f in (kj.spsolve, jax.jit(kj.spsolve)):
        near(f(data, indices, indptr, b), [1.0, 1.0])  # 4 + 1 and −1 + 5


def test_32_bits():
    jax.config.update("jax_enable_x64", False)
    A, b, D = system()
    assert A.data.dtype == b.dtype == jnp.float32
    for f in (kj.solve, jax.jit(kj.solve)):
        x = f(A, b)
        assert x.dtype == jnp.float32
        near(x, jnp.linalg.solve(D, b), 1e-4)
    got = jax.jit(jax.grad(lambda d: (solved(A, d, b, rtol=1e-6) ** 2).sum()))(A.data)
    near(got, jax.grad(lambda d: (dense(A, d, b) ** 2).sum())(A.data), 1e-3)
    x, status = kj.solve(A, b, rtol=1e-12, throw=False)
    r = np.asarray(b, float) - np.asarray(D, float) @ np.asarray(x, float)
    assert core.OUTCOMES[int(status.outcome)] == "rounding-limit" and bool(status.success)
    near(status.residual, np.linalg.norm(r) / np.linalg.norm(b), 1e-3)
    assert float(kj.solve(A, b, rtol=1e-4, throw=False)[1].residual) <= 1e-4


@pytest.mark.parametrize("bits", [64, 128])
def test_complex(bits):
    A, b, _ = system()
    data = (A.data + 0.2j * jnp.sin(jnp.arange(len(A.data)))).astype(f"complex{bits}")
    c = (b + 1j * jnp.cos(b)).astype(data.dtype)
    x = solved(A, data, c, rtol=1e-12 if bits == 128 else 1e-6)
    assert x.dtype == data.dtype
    near(x, dense(A, data, c), 1e-9 if bits == 128 else 1e-4)
    if bits == 128:
        loss = lambda f: lambda d, b: (abs(f(A, d, b)) ** 2).sum()  # noqa: E731
        for got, exact in zip(jax.grad(loss(solved), (0, 1))(data, c), jax.grad(loss(dense), (0, 1))(data, c)):
            near(got, exact)
        near(jax.vmap(lambda b: solved(A, data, b))(jnp.stack([c, 2 * c]))[1], 2 * x)
        check_grads(lambda d, b: solved(A, d, b), (data, c), order=1, modes=("fwd", "rev"))


def test_a_solve_that_does_not_converge_ends_the_program():
    A, b, _ = system()
    hard = {"max_iters": 1, "method": "gmres", "precond": "none", "rtol": 1e-13}
    for f in (solved, jax.jit(lambda A, d, b: solved(A, d, b, **hard)).__call__):
        with pytest.raises(FAILED, match="krylith.ConvergenceError: max-iterations after 1"):
            f(A, A.data, b, **({} if f is not solved else hard)).block_until_ready()
    x, status = solved(A, A.data, b, throw=False, **hard)
    assert not bool(status.success) and int(status.iterations) == 1 and x.shape == b.shape
    r = b - with_values(A, A.data) @ x
    near(status.residual, jnp.linalg.norm(r) / jnp.linalg.norm(b))
    many = jax.vmap(lambda b: solved(A, A.data, b, throw=False, **hard)[1].success)(jnp.stack([b, 0 * b]))
    assert many.tolist() == [False, True], "each solve has its own status"


def test_an_adjoint_that_does_not_converge_ends_the_program():
    A, b, _ = system()
    g = jax.grad(lambda b: kj.solve(A, b, method="gmres", precond="none", max_iters=1).sum())
    with pytest.raises(FAILED, match="the solve with Aᵀ, for a gradient, ended with max-iter"):
        g(0 * b).block_until_ready()  # x = 0 takes no iteration


def test_what_is_refused():
    A, b, _ = system()
    for text, f in (
        ("expected BCOO or BCSR", lambda: kj.solve(A.todense(), b)),
        ("1 batch and 0 dense dimensions", lambda: kj.solve(sparse.BCOO.fromdense(jnp.ones((2, 3, 3)), n_batch=1), b)),
        (r"shape \(2, 3\); expected a square", lambda: kj.solve(sparse.BCOO.fromdense(jnp.ones((2, 3))), b)),
        (r"b has shape \(30,\); expected \(31,\)", lambda: kj.solve(A, b[1:])),
        ("unknown option `precon`; did you mean `precond`", lambda: kj.solve(A, b, precon="amg")),
        ("`coordinates` does not work in a differentiable solve", lambda: kj.solve(A, b, coordinates=np.ones((3, 2)))),
        ("takes nullspace='constant' alone", lambda: kj.solve(A, b, nullspace=np.ones(N))),
        ("indices and numbers of shape", lambda: kj.spsolve(A.data[1:], A.indices, A.indptr, b)),
        ("`most` is 0", lambda: kj.keep(0)),
    ):
        with pytest.raises(krylith.InvalidInput, match=text):
            f()
    with pytest.raises(FAILED, match="krylith.InvalidInput: .*NaN"):
        solved(A, A.data.at[0].set(jnp.nan), b).block_until_ready()
    with pytest.raises(FAILED, match="varies the indices of A"):
        two = jnp.stack([A.indices, A.indices])
        jax.jit(jax.vmap(lambda i: kj.spsolve(A.data, i, A.indptr, b)))(two).block_until_ready()
    near(solved(A, A.data, b), dense(A, A.data, b))


@pytest.mark.parametrize("n", [0, 1])
def test_small_systems(n):
    A = sparse.BCSR.fromdense(2.0 * jnp.eye(n))
    b = jnp.arange(1.0, n + 1)
    near(kj.solve(A, b), b / 2)
    near(jax.jit(kj.solve)(A, b), b / 2)


def test_set_ups_are_kept_up_to_a_number():
    A, b, _ = system()
    kj.keep(2)
    for precond in ("jacobi", "ildu", "none"):
        kj.solve(A, b, precond=precond).block_until_ready()
    assert len(core.SET_UPS) == 2
    made = weakref.ref(next(iter(core.SET_UPS._kept.values())).solver)
    assert made() is not None
    kj.clear()
    gc.collect()
    assert len(core.SET_UPS) == 0 and made() is None


def test_equal_values_are_not_set_again(monkeypatch):
    A, b, _ = system()
    calls = []
    before = core.SetUp._are_current
    monkeypatch.setattr(core.SetUp, "_are_current", lambda *a: calls.append(before(*a)) or calls[-1])
    f = jax.jit(jax.grad(lambda d, b: solved(A, d, b).sum(), (0, 1)))
    jax.block_until_ready(f(A.data, b))
    assert calls == [True], "the solve with the transpose takes the values of the first one"
    jax.block_until_ready(f(2 * A.data, b))
    assert calls == [True, False, True]


def test_threads():
    systems = [system(seed=k) for k in range(3)]
    f = jax.jit(kj.solve)
    failed = []

    def work(k):
        A, b, D = systems[k % 3]
        for i in range(10):
            x = f(with_values(A, (1 + i) * A.data), b)
            if not np.allclose(x, np.linalg.solve(D, b) / (1 + i), rtol=1e-7):
                failed.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_symmetric_matrices_share_the_solve():
    T = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(N, N))
    A, b = sparse.BCSR.from_scipy_sparse(T.tocsr()), jnp.ones(N)
    f = lambda **more: jax.grad(lambda d: solved(A, d, b, method="cg", **more).sum())(A.data)  # noqa: E731
    near(f(symmetric=True), f())


@pytest.mark.parametrize("kind", ["bcsr", "bcoo"])
def test_arrays_of_jax_in_other_functions(kind, device):
    A, b, D = system(kind=kind)
    exact = np.linalg.solve(D, b)
    s = krylith.solve(A, b, rtol=1e-10)
    near(s.x, exact)
    near(jnp.from_dlpack(s.x), exact)
    solver = krylith.Solver(A, rtol=1e-10)
    solver.update_values(with_values(A, 2 * A.data))
    near(solver.solve(b).x, exact / 2)
    near(krylith.solve(disordered(A.todense()), b, rtol=1e-10).x, exact)
    near(krylith.solve(D, b, rtol=1e-10).x, exact)


def test_the_layout_is_that_of_the_header(tmp_path):
    """The structures of the extension module have the offsets of the header that jaxlib ships."""
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    layout = _native.xla_layout()
    lines = [f'  printf("%zu\\n", offsetof({struct}, {field}));' for struct, field, _ in layout]
    source = "#include <stdio.h>\n#include <stddef.h>\n#include \"xla/ffi/api/c_api.h\"\nint main(void) {\n"
    (tmp_path / "layout.c").write_text(source + "\n".join(lines) + "\n}\n")
    build = [compiler, "-I", jax.ffi.include_dir(), str(tmp_path / "layout.c"), "-o", str(tmp_path / "layout")]
    try:
        subprocess.run(build, check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no compiler of C: {e}")
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    wanted = [int(line) for line in said.split()]
    assert [offset for *_, offset in layout] == wanted
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    assert int(re.search(r"XLA_FFI_API_MAJOR (\d+)", header)[1]) == kj._MAJOR


def test_krylith_imports_neither_library():
    check = "import sys, krylith; print([m for m in ('jax', 'torch', 'lineax') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout.strip() == "[]"
