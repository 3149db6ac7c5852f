"""Krylov solvers for the sparse point-block systems of multiphysics simulation, on CPUs and GPUs.

>>> import numpy as np, scipy.sparse as sp, krylith
>>> A = sp.diags_array([-1.0, 4.0, -2.0], offsets=[-1, 0, 1], shape=(1000, 1000))
>>> solution = krylith.solve(A, np.ones(1000), rtol=1e-8)
>>> solution.converged
True
"""

from krylith import _compiler as _compiler
from krylith._errors import ConvergenceWarning, DeviceError, Error, Interrupted, InvalidInput, OutOfMemory
from krylith._fields import edge_interpolation, p2_interpolation
from krylith._matrix import KroneckerSum
from krylith._methods import bicgstab, cbcg, cg, fgmres, gmres, minres
from krylith._native import __version__
from krylith._newton import NewtonSolution, NewtonStep, newton
from krylith._precond import AMG, ILDU, LU, Jacobi, Preconditioner, Schwarz
from krylith._solution import Event, Plot, Seconds, Solution
from krylith._solver import Solver, solve

__all__ = [
    "AMG",
    "ConvergenceWarning",
    "DeviceError",
    "Error",
    "Event",
    "ILDU",
    "Interrupted",
    "InvalidInput",
    "Jacobi",
    "KroneckerSum",
    "LU",
    "NewtonSolution",
    "NewtonStep",
    "OutOfMemory",
    "Plot",
    "Preconditioner",
    "Schwarz",
    "Seconds",
    "Solution",
    "Solver",
    "__version__",
    "bicgstab",
    "cbcg",
    "cg",
    "edge_interpolation",
    "fgmres",
    "gmres",
    "minres",
    "newton",
    "p2_interpolation",
    "solve",
]
