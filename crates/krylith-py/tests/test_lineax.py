"""`krylith.lineax` against dense solves of lineax. Skipped without lineax."""

import numpy as np
import pytest

import krylith
from test_jax import jax, jnp, near, system, wide, with_values

lx = pytest.importorskip("lineax")
import krylith.lineax as kx  # noqa: E402

__all__ = ["wide"]


@pytest.mark.parametrize(("kind", "dtype"), [("bcsr", "complex128"), ("bcoo", "float64")])
def test_linear_solve(kind, dtype):
    A, b, _ = system(kind=kind)
    data, b = A.data.astype(dtype), b.astype(dtype)
    if dtype == "complex128":
        data, b = data + 0.2j * jnp.sin(jnp.arange(len(data))), b + 1j * jnp.cos(b)
    solver = kx.Krylith(rtol=1e-13)

    def ours(data, b, form=lambda op: op):
        return lx.linear_solve(form(kx.SparseLinearOperator(with_values(A, data))), b, solver).value

    def wanted(data, b, form=lambda op: op):
        return lx.linear_solve(form(lx.MatrixLinearOperator(with_values(A, data).todense())), b, lx.LU()).value

    near(ours(data, b), wanted(data, b))
    near(jax.jit(ours)(data, b), wanted(data, b))
    transposed = lambda op: op.T  # noqa: E731
    near(ours(data, b, transposed), wanted(data, b, transposed))
    near(ours(data, b, lx.conj), wanted(data, b, lx.conj))
    loss = lambda f: lambda d, b: (abs(f(d, b)) ** 2).sum()  # noqa: E731
    for got, exact in zip(jax.grad(loss(ours), (0, 1))(data, b), jax.grad(loss(wanted), (0, 1))(data, b)):
        near(got, exact)
    if dtype == "float64":
        pair = ((data, b), (jnp.sin(data), jnp.cos(b)))
        near(jax.jvp(ours, *pair)[1], jax.jvp(wanted, *pair)[1])
        near(jax.vmap(ours, (None, 0))(data, jnp.stack([b, 2 * b])), jnp.stack([ours(data, b), 2 * ours(data, b)]))


def test_the_operator_and_its_state():
    A, b, D = system()
    op = kx.SparseLinearOperator(A)
    near(op.mv(b), D @ b)
    near(op.T.mv(b), D.T @ b)
    near(op.T.as_matrix(), D.T)
    near(lx.diagonal(op), jnp.diagonal(D))
    assert op.in_size() == op.out_size() == len(b) and not lx.is_symmetric(op)
    assert lx.is_symmetric(kx.SparseLinearOperator(A, lx.symmetric_tag))
    solver = kx.Krylith(precond="ildu")
    state = solver.init(op, {})
    same = jax.tree.map(lambda a, b: bool((a == b).all()), solver.init(op.T, {}), solver.transpose(state, {})[0])
    assert jax.tree.all(same)
    near(lx.linear_solve(op, b, solver, state=state).value, jnp.linalg.solve(D, b))
    tagged = lx.TaggedLinearOperator(op, lx.symmetric_tag)
    near(solver.compute(solver.init(tagged, {}), b, {})[0], jnp.linalg.solve(D, b))


def test_results():
    A, b, _ = system()
    op, solver = kx.SparseLinearOperator(A), kx.Krylith(method="gmres", precond="none", max_iters=1)
    s = lx.linear_solve(op, b, solver, throw=False)
    assert s.result == lx.RESULTS.max_steps_reached and int(s.stats["num_steps"]) == 1
    assert np.isfinite(s.value).all()
    with pytest.raises(Exception, match="maximum number of"):
        jax.block_until_ready(lx.linear_solve(op, b, solver).value)
    assert lx.linear_solve(op, b, kx.Krylith()).result == lx.RESULTS.successful
    with pytest.raises(krylith.InvalidInput, match="expected a krylith.lineax.SparseLinearOperator"):
        lx.linear_solve(lx.MatrixLinearOperator(jnp.eye(3)), jnp.ones(3), solver)
    with pytest.raises(krylith.InvalidInput, match="unknown option `precon`"):
        kx.Krylith(precon="amg")
