"""Kronecker sums distributed over MPI ranks."""

from test_mpi import ranks  # noqa: F401

#: A mass and a stiffness matrix with different patterns, two stages, and a dense reference.
SUM = """
M = (sp.diags_array([0.1, 1.0, 0.2], offsets=[-2, 0, 2], shape=(n, n)) + 0.5 * sp.eye_array(n)).tocsr()
L = sp.diags_array([-1.0, 2.5, -0.5], offsets=[-1, 0, 1], shape=(n, n), format="csr")
M, L = sp.kron(M, [[1.0, 0.3], [0.2, 2.0]]).tocsr(), sp.kron(L, [[1.0, 0.25], [0.0, 1.0]]).tocsr()
a, c = np.array([[2.0, 0.0], [0.3, 1.0]]), np.array([[5.0, -1.0], [9.0, 3.0]]) / 12
ends = [0] + [2 * (n * (k + 1) * (k + 2) // (comm.size * (comm.size + 1))) for k in range(comm.size)]
own = slice(ends[comm.rank], ends[comm.rank + 1])
F = np.stack([np.cos(np.arange(2 * n)), np.sin(np.arange(2 * n))], axis=1)
options = dict(rtol=1e-12, device="cpu", threads=1)


def dense(M, L, a, c, tau):
    # Flat vectors have one stage after the other.
    whole = np.kron(a, M.toarray()) + tau * np.kron(c, L.toarray())
    return np.linalg.solve(whole, F.T.ravel()).reshape(2, -1).T


def mine(M, L, a, c, tau, rows=own, **more):
    return krylith.KroneckerSum(a, M[rows], c, L[rows], tau, **more)


def error(x, *of):
    return np.abs(x - dense(*of)[own]).max()
"""


def test_ranks_solve_a_kronecker_sum(ranks):  # noqa: F811
    for count in (2, 3):
        said = ranks(
            SUM
            + """
of = (M, L, a, c, 0.5)
assert own.stop - own.start != 2 * n // comm.size
for block in (None, 2, 1):
    solver = krylith.Solver(mine(*of, block=block), comm=comm, **options)
    assert solver.shape == (2 * (own.stop - own.start), 4 * n)
    solution = solver.solve(F[own])
    assert solution.converged and error(solution.x, *of) < 1e-9
    flat = solver.solve(F[own].T.ravel()).x
    assert np.abs(flat.reshape(2, -1).T - solution.x).max() < 1e-9
    K = krylith.KroneckerSum(a, M, c, L, 0.5)
    assert np.abs(solver.multiply(F[own]) - (K @ F)[own]).max() < 1e-12
    both = solver.solve(np.stack([F, 3 * F], axis=2)[own]).x
    assert np.abs(both[..., 1] - 3 * solution.x).max() < 1e-8
    solver.set_tau(0.25)
    assert error(solver.solve(F[own]).x, M, L, a, c, 0.25) < 1e-9
    M2, L2 = M.copy(), L.copy()
    M2.data *= 1 + 0.05 * (np.arange(M.nnz) % 7)
    L2.data *= 1 - 0.04 * (np.arange(L.nnz) % 5)
    new = (M2, L2, a + 0.5 * np.eye(2), c, 0.125)
    solver.update_values(mine(*new))
    assert error(solver.solve(F[own]).x, *new) < 1e-9
x = krylith.solve(mine(*of), F[own], comm=comm, precond="stage", **options).x
blocks = krylith.KroneckerSum(a, M[own].tobsr((2, 2)), c, L[own].tobsr((2, 2)), 0.5)
y = krylith.solve(blocks, F[own], comm=comm, **options)
assert error(x, *of) < 1e-9 and error(y.x, *of) < 1e-9
# The last rank has no rows.
own = slice(0, 2 * n) if rank == 0 else slice(2 * n, 2 * n)
z = krylith.solve(mine(*of, rows=own), F[own], comm=comm, **options).x
assert z.shape == F[own].shape and (rank > 0 or error(z, *of) < 1e-9)
say(rank, "2 stages" in str(y), "blocks 2×2" in str(y))
""",
            count,
        )
        assert said[-1] == f"{count - 1} True True", said


def test_an_error_of_one_rank_is_that_of_all(ranks):  # noqa: F811
    said = ranks(
        SUM
        + """
def refused(call):
    try:
        call()
        say("accepted")
    except krylith.InvalidInput as e:
        say(str(e).replace("\\n", " "))


last = rank == comm.size - 1
new = lambda *of, **more: krylith.Solver(mine(*of, **more), comm=comm, **options)
refused(lambda: new(M, L, np.eye(3 if last else 2), np.eye(3 if last else 2), 0.5))
refused(lambda: new(M, L, a, c, 0.75 if last else 0.5))
refused(lambda: new(M, L, np.nan * a if last else a, c, 0.5))
other = slice(0, 6) if rank == 0 else slice(6, 2 * n)
refused(lambda: krylith.Solver(krylith.KroneckerSum(a, M[own], c, L[other], 0.5), comm=comm, **options))
solver = new(M, L, a, c, 0.5)
refused(lambda: solver.set_tau(1.0 if last else 0.5))
refused(lambda: solver.update_values(mine(M, L, np.nan * a if last else a, c, 0.5)))
refused(lambda: solver.update_values(krylith.KroneckerSum(a, M[own].data[1:] if last else M[own], c, L[own], 0.5)))
assert error(solver.solve(F[own]).x, M, L, a, c, 0.5) < 1e-9
""",
        count=2,
    )
    expected = [
        "rank 1 has 3 stages; rank 0 has 2", "tau is 0.75 on rank 1, and 0.5 on rank 0", "dense matrix",
        "the same rows on every rank", "tau is 1 on rank 1", "dense matrix", "",
    ]  # fmt: skip
    assert len(said) == 2 * len(expected), said
    for rank in range(2):
        texts = said[rank * len(expected) :][: len(expected)]
        assert "accepted" not in texts and all(part in text for part, text in zip(expected, texts)), texts
