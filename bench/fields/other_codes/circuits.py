"""Networks and optimisation: circuits, power flow, queues, and an optimality system."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from common import System, from_parts, graph_laplacian, laplacian, neighbours


def circuit_mna():
    """Modified nodal analysis: resistors of 1e-9 to 10 S, 2500 voltage sources, controlled sources."""
    side, sources, grounded, controlled = 160, 2500, 200, 4000
    nodes, random = side * side, np.random.default_rng(5)
    pairs = np.vstack(neighbours(side, side))
    pairs = pairs[random.random(len(pairs)) < 0.9]
    conductance = 10 ** random.uniform(-9, 1, len(pairs))
    conductance[random.random(len(pairs)) < 0.3] = 1e-3
    resistors = graph_laplacian(pairs, conductance, nodes) + 1e-12 * sp.eye(nodes)
    ends, count = random.permutation(nodes)[: 2 * sources], np.arange(sources)
    ground = random.permutation(nodes)[:grounded]
    currents = [(ends[:sources], count, 1.0), (ends[sources:], count, -1.0)]
    currents += [(ground, sources + np.arange(grounded), 1.0)]
    currents = from_parts(currents, (nodes, sources + grounded))
    into, out, *_ = random.integers(0, nodes, (controlled, 4)).T
    gain = from_parts([(into, (into + 1) % nodes, 2e-3), (out, (into + 1) % nodes, -2e-3)], (nodes, nodes))
    a = sp.bmat([[resistors + gain, currents], [currents.T, None]])
    b = np.r_[np.zeros(nodes), random.choice([0, 1, 5.0], sources), np.zeros(grounded)]
    return System(a, b).shuffled()


def powerflow():
    """The Jacobian of a power flow: the angles of all buses, then the free magnitudes."""
    n, random = 14000, np.random.default_rng(6)
    points = random.random((n, 2))
    _, near = cKDTree(points).query(points, 4)
    lines = np.sort(np.c_[np.repeat(np.arange(n), 2), near[:, 1:3].ravel()], axis=1)
    chain = np.arange(0, n - 1, 7)
    lines = np.vstack([np.unique(lines, axis=0), np.c_[chain, chain + 1]])
    reactance = 10 ** random.uniform(-3, -0.5, len(lines)) * 1j
    admittance = 1 / (reactance + 10 ** random.uniform(-4, -2, len(lines)))
    links = sp.csr_matrix((admittance, (lines[:, 0], lines[:, 1])), shape=(n, n))
    links = links + links.T
    _, label = connected_components(abs(links))
    kept = np.flatnonzero(label == np.argmax(np.bincount(label)))
    n, links = len(kept), links[kept][:, kept]
    bus = (sp.diags(np.asarray(links.sum(1)).ravel() + 1e-3j) - links).tocsr()
    voltage = (1 + 0.03 * random.normal(size=n)) * np.exp(0.1j * random.normal(size=n))
    current, by_voltage, direction = (
        sp.diags(bus @ voltage),
        sp.diags(voltage),
        sp.diags(voltage / abs(voltage)),
    )
    by_angle = 1j * by_voltage @ np.conj(current - bus @ by_voltage)
    by_magnitude = by_voltage @ np.conj(bus @ direction) + np.conj(current) @ direction
    held = np.zeros(n, bool)
    held[random.permutation(n)[: n // 8]] = held[0] = True
    angles, magnitudes = np.arange(1, n), np.flatnonzero(~held)
    blocks = [[m.tocsr()[rows] for m in (by_angle, by_magnitude)] for rows in (angles, magnitudes)]
    active, reactive = ([left[:, angles], right[:, magnitudes]] for left, right in blocks)
    a = sp.bmat([[m.real for m in active], [m.imag for m in reactive]])
    return System(a, 0.01 * random.normal(size=a.shape[0]))


def markov_tandem():
    """The transposed generator of two queues in tandem: singular, with a consistent right-hand side."""
    n = 200
    states = np.arange(n * n).reshape(n, n)
    moves = [(states[:-1], states[1:], 0.9), (states[1:, :-1], states[:-1, 1:], 1.0)]
    rates = from_parts([*moves, (states[:, 1:], states[:, :-1], 0.95)], (n * n, n * n))
    generator = (rates - sp.diags(np.asarray(rates.sum(1)).ravel())).T.tocsr()
    return System(-generator, -(generator @ np.random.default_rng(4).normal(size=n * n)))


def control_kkt_1e_8():
    """Distributed control of Poisson's equation: state, control and adjoint, regularisation 1e-8."""
    n, beta = 110, 1e-8
    nodes, h = n * n, 1 / (n + 1)
    stiffness = laplacian(n, n)
    line = sp.diags([np.ones(n - 1) / 6, np.ones(n) * 4 / 6, np.ones(n - 1) / 6], [-1, 0, 1])
    mass = sp.kron(line, line) * h * h
    a = sp.bmat([[mass, None, -stiffness.T], [None, beta * mass, mass], [-stiffness, mass, None]])
    xs, ys = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n))
    b = np.r_[mass @ ((xs < 0.5) & (ys < 0.5)).ravel().astype(float), np.zeros(2 * nodes)]
    return System(a, b, {"u": np.arange(2 * nodes), "p": np.arange(2 * nodes, 3 * nodes)})
