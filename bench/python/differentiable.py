"""Times of differentiable solves in JAX and PyTorch, beside other solvers of these libraries and SciPy.

Usage: python bench/python/differentiable.py [--device cpu|cuda] [--nodes 100] [--out rows.json] [--clock cpu|wall]
       [--libraries host,jax,torch] [--without "jax spsolve"]

The system is diffusion with a coefficient that varies by 100, on nodes² nodes. Each row has the seconds of the first
call, with compilation and set-up, of a later call with the same values, of one with new values, and of the gradients
with respect to the stored entries and b of ‖x‖², with new values. Least of three. The answers are checked first,
against SciPy's direct solve. `digest` is what a pattern costs that is known only to the running program. `tiny` rows
are microseconds of one call for 10 unknowns. On a GPU, arrays are there before and after each call.
"""

import argparse
import json
import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

import krylith

RTOL = 1e-10


def diffusion(m: int) -> sp.csr_array:
    """Return diffusion with a rough coefficient on m² nodes."""
    k = np.exp(np.random.default_rng(0).uniform(0, np.log(100), (m, m))).reshape(-1)
    node = np.arange(m * m).reshape(m, m)
    pairs = [(node[1:].ravel(), node[:-1].ravel()), (node[:, 1:].ravel(), node[:, :-1].ravel())]
    i, j = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    w = 2 / (1 / k[i] + 1 / k[j])
    A = sp.coo_array((np.r_[-w, -w], (np.r_[i, j], np.r_[j, i])), shape=(m * m, m * m)).tocsr()
    return sp.csr_array(A + sp.diags_array(-A.sum(axis=1) + 0.01 * k))


class Wanted:
    """The answers for the values of A times a factor."""

    def __init__(self, A: sp.csr_array, b: np.ndarray) -> None:
        self.rows, self.lu = np.repeat(np.arange(len(b)), np.diff(A.indptr)), splu(A.tocsc())
        self.A, self.x = A, self.lu.solve(b)
        self.of_b = self.lu.solve(2 * self.x, "T")
        self.of_values = -self.of_b[self.rows] * self.x[A.indices]

    def check(self, name: str, x, gradients) -> None:
        found = [(x, self.x), *zip(gradients, (self.of_values, self.of_b))]
        for what, (got, exact) in zip(("x", "gradient of A", "gradient of b"), found):
            error = np.linalg.norm(np.asarray(got) - exact) / np.linalg.norm(exact)
            if not error < 1e-6:
                sys.exit(f"{name}: the {what} is wrong by {error:.1e}")


def times(name: str, solve, gradients, values, b, clock, wait, wanted: Wanted, to_host) -> dict:
    """Return the times of functions of values and b."""

    def once(f, factor: float) -> float:
        args = (values * factor, b)
        wait(args)
        begin = clock()
        wait(f(*args))
        return clock() - begin

    row = {"name": name, "first": once(solve, 1.0), "first_gradient": once(gradients, 1.0)}
    wanted.check(name, to_host(solve(values, b)), [to_host(g) for g in gradients(values, b)])
    row["same"] = min(once(solve, 1.0) for _ in range(3))
    row["new"] = min(once(solve, 1.0 + 0.1 * k) for k in range(1, 4))
    row["gradient"] = min(once(gradients, 1.0 + 0.1 * k) for k in range(4, 7))
    return row


def of_jax(args, A, b, wanted, clock) -> list[dict]:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from jax.experimental import sparse
    from jax.experimental.sparse.linalg import spsolve

    import krylith.jax as kj

    rows = []
    with jax.default_device(jax.devices(args.device)[0]):
        indices, indptr = jnp.asarray(A.indices), jnp.asarray(A.indptr)
        values, right = jnp.asarray(A.data), jnp.asarray(b)
        to = jnp.asarray(wanted.rows)

        def product(values, x):
            return jnp.zeros_like(x).at[to].add(values * x[indices])

        def cg(values, b):
            return jax.scipy.sparse.linalg.cg(lambda x: product(values, x), b, tol=RTOL, maxiter=20000)[0]

        def known(values, b):
            return kj.solve(sparse.BCSR((values, indices, indptr), shape=A.shape), b, rtol=RTOL)

        given = jax.jit(lambda v, i, p, b: kj.spsolve(v, i, p, b, rtol=RTOL))
        of_given = jax.jit(jax.grad(lambda v, i, p, b: (kj.spsolve(v, i, p, b, rtol=RTOL) ** 2).sum(), (0, 3)))
        functions = {
            "krylith.jax, pattern known": (jax.jit(known), None),
            "krylith.jax, pattern an argument": (
                lambda v, b: given(v, indices, indptr, b),
                lambda v, b: of_given(v, indices, indptr, b),
            ),
            "jax cg": (jax.jit(cg), None),
            "jax spsolve": (jax.jit(lambda v, b: spsolve(v, indices, indptr, b, tol=RTOL)), None),
        }
        for name, (solve, gradients) in functions.items():
            if name in args.without:
                continue
            if gradients is None:
                gradients = jax.jit(jax.grad(lambda v, b, f=solve: (f(v, b) ** 2).sum(), (0, 1)))
            try:
                rows.append(times(name, solve, gradients, values, right, clock, jax.block_until_ready, wanted, np.asarray))
            except (NotImplementedError, jax.errors.JaxRuntimeError, ImportError) as e:
                rows.append({"name": name, "failed": str(e)[:200]})
            print(rows[-1], flush=True)
        digest = jax.jit(lambda i, p: kj._pattern(len(b), "csr", (i, p), False).digest)
        rows.append({"name": "krylith.jax, digest", "same": least(lambda: jax.block_until_ready(digest(indices, indptr)), clock)})
        small = tiny()
        B = sparse.BCSR.from_scipy_sparse(small)
        one = jax.jit(kj.solve)
        ones = jnp.ones(10)
        call = lambda: one(B, ones).block_until_ready()  # noqa: E731
        rows.append({"name": "krylith.jax, tiny", "microseconds": 1e6 * least(call, clock, 200)})
        nothing = jax.jit(lambda v, b: b * 2)
        call = lambda: nothing(B.data, ones).block_until_ready()  # noqa: E731
        rows.append({"name": "jax, an empty program", "microseconds": 1e6 * least(call, clock, 200)})
    return rows


def of_torch(args, A, b, wanted, clock) -> list[dict]:
    import torch

    import krylith.torch as kt

    device = torch.device(args.device)
    crow, col = (torch.from_numpy(a.astype(np.int64)).to(device) for a in (A.indptr, A.indices))
    values, right = (torch.from_numpy(a).to(device) for a in (A.data, b))

    def wait(_):
        if device.type == "cuda":
            torch.cuda.synchronize()

    def with_gradients(f):
        def gradients(values, b):
            given = [one.detach().requires_grad_() for one in (values, b)]
            return torch.autograd.grad((f(*given) ** 2).sum(), given)

        return gradients

    functions = {"krylith.torch": lambda v, b: kt.spsolve(v, crow, col, b, rtol=RTOL)}

    def direct(v, b):
        return torch.sparse.spsolve(torch.sparse_csr_tensor(crow, col, v, size=A.shape), b)

    functions["torch spsolve"] = direct
    if len(b) <= 4096:
        dense = lambda v, b: torch.linalg.solve(torch.sparse_csr_tensor(crow, col, v, size=A.shape).to_dense(), b)  # noqa: E731
        functions["torch dense"] = dense
    rows = []
    for name, f in functions.items():
        to_host = lambda one: one.detach().cpu().numpy()  # noqa: E731
        try:
            rows.append(times(name, f, with_gradients(f), values, right, clock, wait, wanted, to_host))
        except (RuntimeError, NotImplementedError, AttributeError) as e:
            rows.append({"name": name, "failed": str(e)[:200]})
        print(rows[-1], flush=True)
    small = tiny()
    crow10, col10, v10 = (torch.from_numpy(a).to(device) for a in (small.indptr, small.indices, small.data))
    ones = torch.ones(10, dtype=torch.float64, device=device)

    def call():
        kt.spsolve(v10, crow10, col10, ones)
        wait(None)

    rows.append({"name": "krylith.torch, tiny", "microseconds": 1e6 * least(call, clock, 200)})
    return rows


def of_host(args, A, b, wanted, clock) -> list[dict]:
    rows = []
    begin = clock()
    lu = splu(A.tocsc())
    x = lu.solve(b)
    once = clock() - begin
    rows.append({"name": "scipy splu", "first": once, "new": once, "gradient": once + least(lambda: lu.solve(x, "T"), clock)})
    device = "cpu" if args.device == "cpu" else "cuda"
    begin = clock()
    solver = krylith.Solver(A, rtol=RTOL, device=device)
    solver.solve(b)
    row = {"name": "krylith.Solver, arrays on the host", "first": clock() - begin, "same": least(lambda: solver.solve(b), clock)}

    def new():
        solver.update_values(1.1 * A)
        solver.solve(b)

    rows.append(row | {"new": least(new, clock), "chosen": f"{solver.solve(b).method} {solver.solve(b).precond}"})
    small, ones = krylith.Solver(tiny(), rtol=RTOL, device=device), np.ones(10)
    rows.append({"name": "krylith.Solver, tiny", "microseconds": 1e6 * least(lambda: small.solve(ones), clock, 200)})
    return rows


def tiny() -> sp.csr_array:
    return sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(10, 10)).tocsr()


def least(f, clock, calls: int = 1) -> float:
    """Return the seconds of a call: the least of three means, after one call that is not measured."""
    f()
    found = []
    for _ in range(3):
        begin = clock()
        for _ in range(calls):
            f()
        found.append((clock() - begin) / calls)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--clock", choices=["cpu", "wall"])
    parser.add_argument("--libraries", default="host,jax,torch")
    parser.add_argument("--without", action="append", default=[], help="the name of a row of JAX to leave out")
    parser.add_argument("--out")
    args = parser.parse_args()
    wall = (args.clock or ("cpu" if args.device == "cpu" else "wall")) == "wall"
    clock = time.perf_counter if wall else time.process_time
    warnings.simplefilter("ignore")
    A = diffusion(args.nodes)
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    wanted = Wanted(A, b)
    rows = []
    for library in args.libraries.split(","):
        try:
            rows += {"host": of_host, "jax": of_jax, "torch": of_torch}[library](args, A, b, wanted, clock)
        except ImportError as e:
            print(f"{library}: {e}")
    for row in rows:
        print(json.dumps(row))
    if args.out:
        about = {"device": args.device, "nodes": args.nodes, "rows": A.shape[0], "entries": A.nnz, "clock": "wall" if wall else "cpu"}
        with open(args.out, "w", encoding="utf-8") as out:
            json.dump(about | {"krylith": krylith.__version__, "times": rows}, out, indent=1)


if __name__ == "__main__":
    main()
