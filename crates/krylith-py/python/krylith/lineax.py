"""Sparse matrices and Krylith's solver for lineax.

>>> import jax.numpy as jnp, lineax as lx, krylith.lineax
>>> from jax.experimental import sparse
>>> A = krylith.lineax.SparseLinearOperator(sparse.BCSR.fromdense(jnp.array([[4.0, -1.0], [-2.0, 4.0]])))
>>> print(lx.linear_solve(A, jnp.array([3.0, 2.0]), krylith.lineax.Krylith()).value)
[1. 1.]
"""

# The base classes and decorators are those of a library that a type checker may lack.
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call, no-any-return"

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import lineax as lx

from krylith import _differentiable as core
from krylith import jax as ours
from krylith._errors import InvalidInput

__all__ = ["Krylith", "SparseLinearOperator"]


class SparseLinearOperator(lx.AbstractLinearOperator):
    """A BCOO or BCSR matrix of JAX as an operator; gradients are with respect to its stored entries.

    `tags` are lineax's tags, such as `lineax.symmetric_tag`.
    """

    matrix: Any
    tags: frozenset[object] = eqx.field(static=True)
    transposed: bool = eqx.field(static=True)

    def __init__(self, matrix: Any, tags: object = (), transposed: bool = False) -> None:
        ours._taken_apart(matrix)  # refuses other objects
        self.matrix, self.transposed = matrix, transposed
        self.tags = tags if isinstance(tags, frozenset) else frozenset(tags if isinstance(tags, tuple) else [tags])

    def mv(self, vector: Any) -> Any:
        """Return the product with a vector."""
        _, data, pattern = ours._taken_apart(self.matrix)
        dtype = jnp.result_type(data, vector)
        return ours.product(pattern, data.astype(dtype), vector.astype(dtype), self.transposed)

    def as_matrix(self) -> Any:
        """Return the matrix as a dense array."""
        dense = self.matrix.todense()
        return dense.T if self.transposed else dense

    def transpose(self) -> SparseLinearOperator:
        """Return the transposed operator, which has the same set-up."""
        if lx.is_symmetric(self):
            return self
        return SparseLinearOperator(self.matrix, lx.transpose_tags(self.tags), not self.transposed)

    def in_structure(self) -> Any:
        """Return the shape and the type of a vector."""
        return jax.ShapeDtypeStruct((self.matrix.shape[0],), self.matrix.data.dtype)

    def out_structure(self) -> Any:
        """Return the shape and the type of a product."""
        return self.in_structure()


def _has(*tags: object) -> Any:
    return lambda operator: any(tag in operator.tags for tag in tags)


for _function, _answer in (
    (lx.linearise, lambda operator: operator),
    (lx.materialise, lambda operator: operator),
    (lx.diagonal, lambda operator: jnp.diagonal(operator.as_matrix())),
    (
        lx.tridiagonal,
        lambda operator: tuple(jnp.diagonal(operator.as_matrix(), offset) for offset in (0, -1, 1)),
    ),
    (lx.is_symmetric, _has(lx.symmetric_tag, lx.positive_semidefinite_tag, lx.negative_semidefinite_tag)),
    (lx.is_diagonal, _has(lx.diagonal_tag)),
    (lx.is_tridiagonal, _has(lx.tridiagonal_tag, lx.diagonal_tag)),
    (lx.has_unit_diagonal, _has(lx.unit_diagonal_tag)),
    (lx.is_lower_triangular, _has(lx.lower_triangular_tag, lx.diagonal_tag)),
    (lx.is_upper_triangular, _has(lx.upper_triangular_tag, lx.diagonal_tag)),
    (lx.is_positive_semidefinite, _has(lx.positive_semidefinite_tag)),
    (lx.is_negative_semidefinite, _has(lx.negative_semidefinite_tag)),
):
    _function.register(SparseLinearOperator)(_answer)


@lx.conj.register(SparseLinearOperator)
def _(operator: SparseLinearOperator) -> SparseLinearOperator:
    return eqx.tree_at(lambda o: o.matrix.data, operator, operator.matrix.data.conj())


#: lineax's result for an outcome; others are `singular`.
_RESULTS = {
    "max-iterations": lx.RESULTS.max_steps_reached,
    "breakdown": lx.RESULTS.breakdown,
    "stagnated": lx.RESULTS.stagnation,
}


class Krylith(lx.AbstractLinearSolver[Any]):
    """A solver for `lineax.linear_solve` and a `SparseLinearOperator`.

    The keywords are those of `krylith.jax.solve`, without `throw`, which is one of `linear_solve`. The statistics
    have `num_steps` and the `krylith.jax.Status` of the solve, as `status`.
    """

    rtol: float | None = eqx.field(static=True)
    given: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(self, *, rtol: float | None = None, **options: Any) -> None:
        self.rtol, self.given = rtol, tuple(sorted(options.items()))
        core.Spec.of(0, options, 1.0, False)  # refuses unknown options

    def init(self, operator: Any, options: dict[str, Any]) -> Any:
        """Return the state: stored numbers, pattern, and whether to transpose and to conjugate."""
        while isinstance(operator, lx.TaggedLinearOperator):
            operator = operator.operator
        if not isinstance(operator, SparseLinearOperator):
            raise InvalidInput(
                f"the operator is a {type(operator).__name__}; expected a krylith.lineax.SparseLinearOperator"
            )
        _, data, pattern = ours._taken_apart(operator.matrix)
        return data, pattern, eqxi.Static(operator.transposed)

    def compute(self, state: Any, vector: Any, options: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Solve; return x, lineax's result and the statistics."""
        data, pattern, transposed = state
        dtype = jnp.result_type(data, vector)
        data, vector = data.astype(dtype), vector.astype(dtype)
        is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
        rtol = (1e-6 if jnp.finfo(dtype).bits == 32 else 1e-10) if self.rtol is None else self.rtol
        spec = core.Spec.of(2 if is_complex else 0, dict(self.given), rtol, False)
        # The transpose of the real form is the adjoint.
        turned = transposed.value and is_complex
        b = ours.reals(vector.conj() if turned else vector)
        x, status = ours.call(replace(spec, transpose=transposed.value), pattern, ours.real_blocks(data), b)
        x = ours.restored(x, dtype)
        result: Any = lx.RESULTS.singular
        for name, one in _RESULTS.items():
            result = lx.RESULTS.where(status.outcome == core.OUTCOMES.index(name), one, result)
        result = lx.RESULTS.where(status.success, lx.RESULTS.successful, result)
        return x.conj() if turned else x, result, {"num_steps": status.iterations, "status": status}

    def transpose(self, state: Any, options: dict[str, Any]) -> Any:
        """Return the state of the transposed operator."""
        data, pattern, transposed = state
        return (data, pattern, eqxi.Static(not transposed.value)), {}

    def conj(self, state: Any, options: dict[str, Any]) -> Any:
        """Return the state of the conjugated operator."""
        data, pattern, transposed = state
        return (data.conj(), pattern, transposed), {}

    def assume_full_rank(self) -> bool:
        """Return True: the matrix is square and nonsingular."""
        return True
