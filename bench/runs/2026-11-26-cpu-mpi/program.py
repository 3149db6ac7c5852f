from mpi4py import MPI
import krylith, numpy as np, scipy.sparse as sp
comm, n = MPI.COMM_WORLD, 200
T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
A = (sp.kron(T, sp.eye_array(n)) + sp.kron(sp.eye_array(n), T)).tocsr()
b = np.ones(n * n)
own = slice(comm.rank * n * n // comm.size, (comm.rank + 1) * n * n // comm.size)
s = krylith.solve(A[own], b[own], comm=comm, rtol=1e-10)
x = np.concatenate(comm.allgather(s.x))
if comm.rank == 0:
    print(MPI.Get_library_version().split("\n")[0][:40], "|", comm.size, "ranks,", s.iterations, "iterations, residual by SciPy", np.linalg.norm(b - A @ x) / np.linalg.norm(b))
