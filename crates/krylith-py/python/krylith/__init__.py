"""Krylov solvers for the sparse point-block systems of multiphysics simulation, on CPUs and GPUs.

>>> import numpy as np, scipy.sparse as sp, krylith
>>> A = sp.diags_array([-1.0, 4.0, -2.0], offsets=[-1, 0, 1], shape=(1000, 1000))
>>> solution = krylith.solve(A, np.ones(1000), rtol=1e-8)
>>> solution.converged
True
"""

from krylith import _compiler as _compiler
from krylith._batch import BatchSolution, solve_batch
from krylith._direct import Factors, factorized, splu, spsolve
from krylith._errors import (
    ConvergenceError,
    ConvergenceWarning,
    DeviceError,
    Error,
    Interrupted,
    InvalidInput,
    OutOfMemory,
)
from krylith._fields import edge_interpolation, p2_interpolation
from krylith._functions import DeviceOperator, DeviceVector
from krylith._keywords import MethodName, OutcomeName, PrecondName
from krylith._matrix import KroneckerSum
from krylith._methods import bicgstab, cbcg, cg, fgmres, gmres, minres
from krylith._native import __version__
from krylith._newton import NewtonSolution, NewtonStep, newton
from krylith._options import Options
from krylith._precond import AMG, ILDU, LU, Jacobi, Preconditioner, Schwarz
from krylith._record import Memory
from krylith._solution import Event, Plot, Seconds, Solution
from krylith._solve import solve
from krylith._solver import Solver

__all__ = [
    "AMG",
    "BatchSolution",
    "ConvergenceError",
    "ConvergenceWarning",
    "DeviceError",
    "DeviceOperator",
    "DeviceVector",
    "Error",
    "Event",
    "Factors",
    "ILDU",
    "Interrupted",
    "InvalidInput",
    "Jacobi",
    "KroneckerSum",
    "LU",
    "Memory",
    "MethodName",
    "NewtonSolution",
    "NewtonStep",
    "Options",
    "OutOfMemory",
    "OutcomeName",
    "Plot",
    "PrecondName",
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
    "factorized",
    "fgmres",
    "gmres",
    "minres",
    "newton",
    "p2_interpolation",
    "solve",
    "solve_batch",
    "splu",
    "spsolve",
]
