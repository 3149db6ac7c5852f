"""`krylith.torch` against dense solves: derivatives, batches, compiled programs. Skipped without PyTorch."""

import threading

import numpy as np
import pytest

import krylith
from krylith import _differentiable as core
from test_solve import random_matrix

torch = pytest.importorskip("torch")
import krylith.torch as kt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
N = 14
F = torch.func


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    kt.clear()
    return torch.device(request.param)


def system(device, seed=1, dtype=torch.float64):
    A = random_matrix(N, seed=seed, density=0.2)
    b = torch.from_numpy(np.random.default_rng(2).standard_normal(N))
    T = torch.sparse_csr_tensor(A.indptr, A.indices, A.data, size=A.shape)
    return T.to(device, dtype), b.to(device, dtype), torch.from_numpy(A.toarray()).to(device, dtype)


def parts(A):
    return A.values(), A.crow_indices(), A.col_indices()


def near(x, y, tolerance=1e-9):
    torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


def pair(A, D, **more):
    """Return the solve as a function of values and b, and the dense one."""
    _, crow, col = parts(A)
    rows = torch.repeat_interleave(torch.arange(N, device=col.device), crow.diff())

    def exact(values, b):
        dense = torch.zeros(N, N, dtype=values.dtype, device=values.device)
        return torch.linalg.solve(dense.index_put((rows, col), values), b)

    return (lambda values, b: kt.spsolve(values, crow, col, b, **({"rtol": 1e-13} | more))), exact


@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("layout", ["csr", "coo", "bsr"])
def test_solve(device, layout, columns):
    A, b, D = system(device)
    given = {"csr": A, "coo": A.to_sparse_coo(), "bsr": A.to_sparse_bsr((2, 2))}[layout]
    b = b if columns is None else torch.stack([b * (k + 1) for k in range(columns)], 1)
    x = kt.solve(given, b)
    assert x.device == b.device and x.dtype == b.dtype and x.shape == b.shape
    near(x, torch.linalg.solve(D, b))
    x, good = kt.solve(given, b, throw=False)
    assert good.shape == b.shape[1:] and good.all()


@pytest.mark.parametrize("kind", ["vector", "columns", "blocks", "complex"])
def test_gradcheck(device, kind):
    A, b, D = system(device)
    if kind == "blocks":
        A = A.to_sparse_bsr((2, 2))
    values, crow, col = parts(A)
    if kind == "complex":
        values, b = values + 0.2j * torch.sin(torch.arange(len(values), device=device)), b + 1j * torch.cos(b)
    if kind == "columns":
        b = torch.stack([b, torch.cos(b)], 1)
    args = (values.detach().requires_grad_(), b.detach().requires_grad_())
    f = lambda values, b: kt.spsolve(values, crow, col, b, rtol=1e-13)  # noqa: E731
    forward = kind in ("vector", "blocks")
    # Indexed sums of PyTorch on a GPU have no fixed order.
    same = 0.0 if device == "cpu" else 1e-9
    assert torch.autograd.gradcheck(f, args, check_forward_ad=forward, fast_mode=True, nondet_tol=same)
    assert torch.autograd.gradgradcheck(f, args, fast_mode=True, nondet_tol=same)


def test_gradients_of_tensors(device):
    for layout in ("csr", "coo"):
        A, b, D = system(device)
        A = (A if layout == "csr" else A.to_sparse_coo().coalesce()).detach().requires_grad_()
        b.requires_grad_()
        D.requires_grad_()
        (kt.solve(A, b) ** 2).sum().backward()
        ours = b.grad.clone()
        b.grad = None
        (torch.linalg.solve(D, b) ** 2).sum().backward()
        near(ours, b.grad)
        assert A.grad.layout == A.layout
        stored = A.detach().to_dense() != 0
        near(A.grad.to_dense()[stored], D.grad[stored])
    with pytest.raises(krylith.InvalidInput, match="requires gradients.*krylith.torch.solve"):
        krylith.solve(A, b)


def test_transforms(device):
    A, b, D = system(device)
    values = A.values()
    f, exact = pair(A, D)
    several, bs = torch.stack([values, 2 * values]), torch.stack([b, -b, 3 * b])
    for dims, args in (((None, 0), (values, bs)), ((0, None), (several, b)), ((0, 0), (several, bs[:2]))):
        near(F.vmap(f, dims)(*args), F.vmap(exact, dims)(*args))
    both = lambda g: F.vmap(F.vmap(g, (None, 0)), (0, None))(several, bs)  # noqa: E731
    near(both(f), both(exact))
    grads = lambda g: F.vmap(F.grad(lambda v, b: (g(v, b) ** 2).sum(), (0, 1)), (None, 0))(values, bs)  # noqa: E731
    for got, wanted in zip(grads(f), grads(exact)):
        near(got, wanted)
    near(F.jacrev(f, 1)(values, b), torch.linalg.inv(D))
    near(F.jacfwd(f)(values, b), F.jacfwd(exact)(values, b))
    change = (values, (torch.sin(values), torch.cos(b)))
    near(F.jvp(f, (change[0], b), change[1])[1], F.jvp(exact, (change[0], b), change[1])[1])
    two = lambda g: F.hessian(lambda v: (g(v, b) ** 3).sum())(values)  # noqa: E731
    near(two(f), two(exact), 1e-7)
    with pytest.raises(krylith.InvalidInput, match="varies the indices of A"):
        _, crow, col = parts(A)
        F.vmap(lambda col: kt.spsolve(values, crow, col, b))(torch.stack([col, col]))


def test_the_operator_is_one_of_the_library(device):
    A, b, _ = system(device)
    values, crow, col = parts(A)
    spec = core.Spec.of(0, {}, 1e-13, True).text
    args = (values[None].detach().requires_grad_(), crow, col, b[None].detach().requires_grad_(), spec, False)
    torch.library.opcheck(torch.ops.krylith.solve, args)


def test_compile(device):
    A, b, D = system(device)
    f, exact = pair(A, D)
    loss = lambda g: lambda values, b: (g(values, b) ** 2).sum()  # noqa: E731
    try:
        run = torch.compile(loss(f), fullgraph=True, backend="aot_eager")
        args = tuple(one.detach().clone().requires_grad_() for one in (A.values(), b))
        got = torch.autograd.grad(run(*args), args)
    except RuntimeError as e:  # without the parts of PyTorch that compile
        pytest.skip(f"torch.compile does not work: {e}")
    for ours, wanted in zip(got, torch.autograd.grad(loss(exact)(*args), args)):
        near(ours, wanted)


def test_32_bits(device):
    A, b, D = system(device, dtype=torch.float32)
    x = kt.solve(A, b)
    assert x.dtype == torch.float32
    near(x, torch.linalg.solve(D, b), 1e-5)
    assert kt.solve(A, b, rtol=1e-12, throw=False)[1].all(), "the limit of the precision counts as solved"


def test_a_solve_that_does_not_converge_raises(device):
    A, b, _ = system(device)
    hard = {"max_iters": 1, "method": "gmres", "precond": "none"}
    with pytest.raises(krylith.ConvergenceError, match="max-iterations after 1"):
        kt.solve(A, b, **hard)
    x, good = kt.solve(A, b, throw=False, **hard)
    assert not good and torch.isfinite(x).all()
    zero = torch.zeros_like(b).requires_grad_()
    with pytest.raises(krylith.ConvergenceError, match="the solve with Aᵀ, for a gradient, ended with max-iterations"):
        kt.solve(A, zero, **hard).sum().backward()


def test_what_is_refused(device):
    A, b, D = system(device)
    for text, f in (
        ("has the layout torch.strided", lambda: kt.solve(D, b)),
        (r"b has layout torch.strided and shape \(13,\)", lambda: kt.solve(A, b[1:])),
        ("expected numbers of 32 or 64 bits", lambda: kt.solve(A.half(), b.half())),
        ("unknown option `precon`", lambda: kt.solve(A, b, precon="amg")),
        ("every value must be finite", lambda: kt.solve(torch.nan * A, b)),
    ):
        with pytest.raises(krylith.InvalidInput, match=text):
            f()


def test_equal_values_are_not_set_again(device, monkeypatch):
    A, b, _ = system(device)
    calls = []
    before = core.SetUp._are_current
    monkeypatch.setattr(core.SetUp, "_are_current", lambda *a: calls.append(before(*a)) or calls[-1])
    b.requires_grad_()
    kt.solve(A, b).sum().backward()
    assert calls == [True]
    kt.solve(2 * A, b)
    assert calls == [True, False] and len(core.SET_UPS) == 1


def test_threads(device):
    systems = [system(device, seed=k) for k in range(3)]
    failed = []

    def work(k):
        A, b, D = systems[k % 3]
        for i in range(1, 6):
            if not torch.allclose(kt.solve(i * A, b), torch.linalg.solve(D, b) / i, rtol=1e-7):
                failed.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_current_stream_comes_first():
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    A, b, D = system(torch.device("cuda"))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late = b * 3.0
        x = kt.solve(A, late) * 1.0
    stream.synchronize()
    near(x, 3 * torch.linalg.solve(D, b))
