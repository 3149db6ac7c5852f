"""What the generators share: a system, how codes impose Dirichlet values, and grids in NumPy."""

import os
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

PENALTY = 1e30


@dataclass
class System:
    """A x = b, the unknowns of each field, and matrices that PETSc's Schur complements take."""

    a: sp.csr_matrix
    b: np.ndarray
    fields: dict = field(default_factory=dict)
    matrices: dict = field(default_factory=dict)

    def __post_init__(self):
        self.a = sp.csr_matrix(self.a)
        self.a.sum_duplicates()
        self.a.sort_indices()
        self.b = np.asarray(self.b, float).ravel()

    def reordered(self, order):
        """The same system with row and column `order[k]` at place k."""
        order = np.asarray(order)
        place = np.empty(len(order), int)
        place[order] = np.arange(len(order))
        fields = {name: np.sort(place[unknowns]) for name, unknowns in self.fields.items()}
        return System(self.a[order][:, order], self.b[order], fields, self.matrices)

    def shuffled(self):
        return self.reordered(np.random.default_rng(0).permutation(len(self.b)))

    def by_bandwidth(self):
        """In reverse Cuthill-McKee order."""
        order = reverse_cuthill_mckee(self.a, symmetric_mode=False)
        return self.reordered(order)

    def write(self, folder):
        """Write the files that `peers.load` reads."""
        os.makedirs(folder, exist_ok=True)
        sp.save_npz(f"{folder}/A.npz", self.a, compressed=False)
        np.save(f"{folder}/b.npy", self.b)
        for name, matrix in self.matrices.items():
            sp.save_npz(f"{folder}/{name}.npz", sp.csr_matrix(matrix))
        unknowns = {name: np.asarray(k, np.int32) for name, k in self.fields.items()}
        blocks = {f"block_{name}": 1 for name in self.fields}
        np.savez(f"{folder}/fields.npz", **unknowns, **blocks)


def eliminated(a, b, free, values=None):
    """The rows and columns of the free unknowns, with the load of the given values."""
    a = sp.csr_matrix(a)
    kept = np.flatnonzero(free)
    load = b if values is None else b - a @ values
    return a[kept][:, kept].tocsr(), load[kept]


def identity_rows(a, b, free, values=None):
    """Rows of the identity for given unknowns. Their columns stay, so the matrix is unsymmetric."""
    values = np.zeros(len(b)) if values is None else values
    a = (sp.diags(free.astype(float)) @ a + sp.diags((~free).astype(float))).tocsr()
    a.eliminate_zeros()
    return a, np.where(free, b, values)


def symmetric_identity_rows(a, b, free, values=None):
    """Rows and columns of the identity for given unknowns."""
    values = np.zeros(len(b)) if values is None else values
    keep = sp.diags(free.astype(float))
    load = np.where(free, b - a @ values, values)
    a = (keep @ a @ keep + sp.diags((~free).astype(float))).tocsr()
    a.eliminate_zeros()
    return a, load


def penalised(a, b, free, values=None, penalty=PENALTY):
    """A large number on the diagonal of given unknowns, like FreeFem's tgv. One may come per unknown."""
    weight = np.where(free, 0, penalty)
    load = b.copy() if values is None else b + weight * values
    return (a + sp.diags(weight)).tocsr(), load


def from_parts(parts, shape):
    """A matrix from a list of (rows, columns, values). Each part broadcasts; equal places add up."""
    parts = [np.broadcast_arrays(*part) for part in parts]
    rows, cols, values = (np.concatenate([np.ravel(part[k]) for part in parts]) for k in range(3))
    return sp.csr_matrix((values.astype(float), (rows, cols)), shape=shape)


def second_difference(n):
    return sp.diags([-np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1)], [-1, 0, 1]).tocsr()


def laplacian(*sizes):
    """The Laplacian with zero boundary values by central differences, without the spacing."""
    a = second_difference(sizes[0])
    for n in sizes[1:]:
        a = sp.kron(sp.eye(a.shape[0]), second_difference(n)) + sp.kron(a, sp.eye(n))
    return a.tocsr()


def neighbours(nx, ny, nz=1):
    """For z, y and x, the pairs of cells that share a face in that direction. Cells count with x fastest."""
    cells = np.arange(nx * ny * nz).reshape(nz, ny, nx)
    pairs = []
    for axis in range(3):
        left = np.take(cells, range(cells.shape[axis] - 1), axis)
        right = np.take(cells, range(1, cells.shape[axis]), axis)
        pairs.append(np.c_[left.ravel(), right.ravel()])
    return pairs


def graph_laplacian(pairs, weights, n):
    w = sp.csr_matrix((np.broadcast_to(weights, len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    w = w + w.T
    return (sp.diags(np.asarray(w.sum(1)).ravel()) - w).tocsr()


def as_real(a, b):
    """A complex system as a real one of twice the size: the real parts first."""
    real = sp.bmat([[a.real, -a.imag], [a.imag, a.real]])
    return real.tocsr(), np.r_[b.real, b.imag]
