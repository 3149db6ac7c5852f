"""Writes scaled.mtx, a 30³ Laplacian with rows and columns scaled by exp of normal numbers, and its vectors."""
import numpy as np
import scipy.io as sio
import scipy.sparse as sp

n = 30
e = np.ones(n)
line = sp.diags([-e[1:], 2 * e, -e[1:]], [-1, 0, 1])
one = sp.identity(n)
a = sp.kron(sp.kron(line, one), one) + sp.kron(sp.kron(one, line), one) + sp.kron(sp.kron(one, one), line)
s = np.exp(np.random.default_rng(0).normal(size=n**3))
sio.mmwrite("scaled.mtx", (sp.diags(s) @ a @ sp.diags(s)).tocsr())
sio.mmwrite("ones.mtx", np.ones((n**3, 1)))
sio.mmwrite("true.mtx", (1 / s).reshape(-1, 1))
