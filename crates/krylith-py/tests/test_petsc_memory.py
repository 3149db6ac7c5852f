"""Arrays of PETSc on a GPU: what krylith.petsc asks PETSc for, on a machine without one.

The functions of PETSc are its own, and its host arrays stand for those on a GPU.
"""

import ctypes

import numpy as np
import pytest

pytest.importorskip("petsc4py")

from krylith import _matrix, _solver
from krylith.petsc import KSP, PC, _arrays, _memory, _setup
from krylith.petsc._library import functions
from petsc4py import PETSc
from petsc_cases import SELF, aij, poisson

CONTEXT = tuple(name for name in _memory._FUNCTIONS if name.startswith("PetscDevice"))


def host(numbers):
    """Return the numbers that stand for those on a GPU as an array of NumPy."""
    if not isinstance(numbers, _memory.Numbers):
        return numbers
    address, count = numbers.__cuda_array_interface__["data"][0], len(numbers)
    memory = (ctypes.c_char * (count * numbers.dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, numbers.dtype)


@pytest.fixture
def gpu(monkeypatch):
    """Let arrays of AIJ and of sequential vectors stand for arrays on GPU 0, and count what reads them."""
    read = []
    real = functions([name for name in _memory._FUNCTIONS if name not in CONTEXT])
    assert real

    def counted(name):
        def call(*arguments):
            read.append(name)
            return real[name](*arguments)

        return call

    monkeypatch.setattr(_memory, "_D", {name: counted(name) for name in real})
    monkeypatch.setattr(_memory, "memory", lambda: _memory.Memory(0, 0))
    monkeypatch.setattr(_memory, "_MATRICES", ("seqaij",))
    monkeypatch.setattr(_memory, "_VECTORS", ("seq",))
    monkeypatch.setattr(_memory, "_DEVICE", 0)
    monkeypatch.setattr(_memory, "_bound", lambda *_: False)  # without CUDA, PETSc says that all are
    monkeypatch.setitem(_arrays.C, "MatSeqAIJGetArrayRead", None)  # reads values on the host
    lend_indices = _matrix.lend_indices
    monkeypatch.setattr(_matrix, "lend_indices", lambda array: lend_indices(host(array)))
    for module in (_matrix, _solver, _setup):
        monkeypatch.setattr(module, "lend", host)
    monkeypatch.setattr(_matrix.Parts, "gpu", property(lambda _: None))
    return read


def solver_of(A, context, kind="python"):
    ksp = PETSc.KSP().create(SELF)
    ksp.setOperators(A)
    ksp.setTolerances(rtol=1e-10)
    ksp.setType(kind)
    if kind != "python":
        ksp.getPC().setType("python")
    (ksp if kind == "python" else ksp.getPC()).setPythonContext(context)
    return ksp


@pytest.mark.parametrize("inside", [False, True])
def test_nothing_passes_through_the_host(gpu, inside):
    S = poisson(12)
    A, other = aij(S), aij(3 * S)
    x, b = A.createVecs()
    exact = np.cos(np.arange(S.shape[0]))
    b.setArray(S @ exact)
    context = PC(precond="amg") if inside else KSP(precond="amg")
    ksp = solver_of(A, context, "cg" if inside else "python")
    x.set(np.nan)  # no part of the answer
    ksp.solve(b, x)
    assert ksp.reason > 0 and np.abs(x.getArray() - exact).max() < 1e-7
    assert gpu.count("MatSeqAIJGetCSRAndMemType") == 1
    ways = {name for name in gpu if name.startswith("VecGet")}
    assert ways == {"VecGetArrayReadAndMemType", "VecGetArrayWriteAndMemType" if inside else "VecGetArrayAndMemType"}
    lent, back = ([name for name in gpu if name.startswith(word)] for word in ("VecGet", "VecRestore"))
    assert len(lent) == len(back) > 0

    A.scale(2.0)
    ksp.solve(b, x)
    assert ksp.reason > 0 and np.abs(2 * x.getArray() - exact).max() < 1e-7
    assert gpu.count("MatSeqAIJGetCSRAndMemType") == 2
    ksp.setOperators(other)  # another matrix of the same pattern
    ksp.solve(b, x)
    assert ksp.reason > 0 and np.abs(3 * x.getArray() - exact).max() < 1e-7
    assert (context.set_ups, context.updates) == (1, 2)
    if not inside:
        guess = x.getArray().copy()
        ksp.setInitialGuessNonzero(True)
        ksp.solve(b, x)
        assert ksp.its == 0 and (x.getArray() == guess).all()
        ksp.setInitialGuessNonzero(False)
    ksp.solveTranspose(b, x)
    assert ksp.reason > 0 and np.abs(3 * x.getArray() - exact).max() < 1e-7


@pytest.mark.parametrize("device, there", [("cpu", False), ("cuda", True), ("cuda:0", True), ("cuda:1", False), ("cuda:0,1", False), (None, True), ("auto", True)])
def test_krylith_solves_on_the_gpu_of_the_matrix(gpu, device, there):
    assert (_memory.place_of(aij(poisson(3)), device) is not None) == there


def test_other_matrices_are_read_on_the_host(gpu, monkeypatch):
    A = PETSc.Mat().createBAIJ((4, 4), 2, nnz=1, comm=SELF)
    assert _memory.place_of(A, "cuda") is None
    monkeypatch.setattr(_memory, "_D", {})  # PETSc without CUDA
    assert _memory.place_of(aij(poisson(3)), "cuda") is None
