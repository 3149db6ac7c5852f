"""SciPy's implicit integrators with linear solves by Krylith, against the same with SuperLU."""

import numpy as np
import pytest
import scipy.integrate
import scipy.sparse as sp

import krylith
from krylith.contrib.scipy import BDF, Radau

M = 12


def diffusion():
    line = sp.diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(M, M)).tolil()
    line[0, 0] = line[-1, -1] = -1.0
    plane = sp.kron(line, sp.identity(M)) + sp.kron(sp.identity(M), line)
    return sp.kron(0.02 * M * M * plane, sp.identity(2)).tocsc()


D = diffusion()


def rhs(t, y):
    """The Brusselator: u' = 1 + u²v − 4.4u + α Δu, v' = 3.4u − u²v + α Δv."""
    u, v = y[::2], y[1::2]
    return D @ y + np.stack([1 + u * u * v - 4.4 * u, 3.4 * u - u * u * v], 1).ravel()


def jacobian(t, y):
    u, v = y[::2], y[1::2]
    i = 2 * np.arange(M * M)
    values = np.concatenate([2 * u * v - 4.4, u * u, 3.4 - 2 * u * v, -u * u])
    places = np.concatenate([i, i, i + 1, i + 1]), np.concatenate([i, i + 1, i, i + 1])
    return (D + sp.csc_matrix((values, places), shape=D.shape)).tocsc()


def start():
    x = (np.arange(M) + 0.5) / M
    X, Y = np.meshgrid(x, x, indexing="ij")
    return np.stack([22 * Y * (1 - Y) ** 1.5, 27 * X * (1 - X) ** 1.5], 2).ravel()


@pytest.mark.parametrize("ours", [BDF, Radau])
@pytest.mark.parametrize("options", [None, {"method": "gmres", "precond": "ildu", "rtol": 1e-9}])
@pytest.mark.parametrize("sparsity", [False, True])
def test_trajectories_are_those_of_superlu(ours, options, sparsity, monkeypatch):
    given = {"jac_sparsity": jacobian(0, start() + 1) != 0} if sparsity else {"jac": jacobian}
    given.update(rtol=1e-6, atol=1e-8, t_eval=[0.01, 0.3, 1.0])
    own = scipy.integrate.solve_ivp(rhs, (0, 1), start(), method=ours.__name__, **given)
    for module in (scipy.integrate._ivp.bdf, scipy.integrate._ivp.radau):
        monkeypatch.setattr(module, "splu", None)  # nothing of SuperLU is called
    found = scipy.integrate.solve_ivp(rhs, (0, 1), start(), method=ours, krylith=options, **given)
    assert found.success and (found.nlu, found.nfev) == (own.nlu, own.nfev)
    assert np.abs(found.y - own.y).max() < 1e-8 * np.abs(own.y).max()


def test_errors_have_a_remedy():
    with pytest.raises(krylith.InvalidInput, match="jac_sparsity="):
        scipy.integrate.solve_ivp(lambda t, y: -y, (0, 1), np.ones(2), method=BDF)
    given = {"method": Radau, "jac": jacobian}
    with pytest.raises(krylith.InvalidInput, match="unknown option"):
        scipy.integrate.solve_ivp(rhs, (0, 1), start(), krylith={"tolerance": 1}, **given)
    with pytest.raises(krylith.ConvergenceError):
        options = {"method": "gmres", "precond": "none", "max_iters": 1}
        scipy.integrate.solve_ivp(rhs, (0, 1), start(), krylith=options, **given)
