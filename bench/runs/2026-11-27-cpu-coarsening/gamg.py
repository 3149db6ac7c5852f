"""PETSc's GAMG on the elastic bar: `krylith problem elasticity:NxNxN DIR`, then `gamg.py DIR [options of PETSc]`."""
import sys, time
import numpy as np
import petsc4py
petsc4py.init(sys.argv[:1] + sys.argv[2:])
from petsc4py import PETSc

where = sys.argv[1]
viewer = PETSc.Viewer().createBinary(f"{where}/A.petsc", "r")
a = PETSc.Mat().create()
a.setType("baij" if "-baij" in sys.argv else "aij")
a.setBlockSize(3)
a.load(viewer)
a.setBlockSize(3)
points = np.load(f"{where}/coordinates.npy")
rhs = np.load(f"{where}/rhs.npy").ravel()
x, b = a.createVecs()
b.array[:] = rhs
coords = PETSc.Vec().createWithArray(np.ascontiguousarray(points).ravel(), bsize=3)
a.setNearNullSpace(PETSc.NullSpace().createRigidBody(coords))
for again in range(2):
    ksp = PETSc.KSP().create()
    ksp.setType("cg"); ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    ksp.getPC().setType("gamg"); ksp.setTolerances(rtol=1e-8, max_it=500)
    ksp.setOperators(a); ksp.setFromOptions()
    t = time.process_time(); ksp.setUp(); ksp.getPC().setUp(); setup = time.process_time() - t
    x.set(0.0)
    t = time.process_time(); ksp.solve(b, x); solve = time.process_time() - t
    r = b.duplicate(); a.mult(x, r); r.aypx(-1.0, b)
    print(f"{where}: GAMG {ksp.getIterationNumber()} iterations, set-up {setup:.3f} s, solve {solve:.3f} s, "
          f"residual {r.norm()/b.norm():.2e}", flush=True)
