import sys, os

sys.path.insert(0, "bench/python")
import numpy as np, cupy as cp, time
import cudss as K, krylith
from cupyx.scipy.sparse import csr_matrix
import scipy.sparse as sp

for name, make in K.systems(False, False, []):
    h = sp.csr_matrix(make())
    h.eliminate_zeros()
    h.sort_indices()
    a = csr_matrix(h)
    kind = K.kind_of(h)
    b = cp.asarray(np.random.default_rng(1).standard_normal(a.shape[0]))
    for rep in range(3):
        t, s = K.timed(lambda: krylith.Solver(a, device="cuda", precond="lu", rtol=1e-10))
        d = K.Cudss(a, kind)
        ta = K.timed(lambda: d.run(3))[0]
        tf = K.timed(lambda: d.run(4))[0]
        d.close()
        sol = s.solve(b)
        print(name, kind, rep, "solver %.3f" % t, "cudss %.3f + %.3f" % (ta, tf), flush=True)
    print(sol.report() if hasattr(sol, "report") else sol, flush=True)
    del s, sol, a
    cp.get_default_memory_pool().free_all_blocks()
