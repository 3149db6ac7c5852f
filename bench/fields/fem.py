"""Coupled systems from dolfinx (Debian's python3-dolfinx, 0.5): `python3 fem.py NAME SIZE FOLDER` assembles one.

The folder gets A.npz, b.npy, further matrices, and fields.npz with the unknowns of each field.
"""

import os
import sys

import numpy as np
import scipy.sparse as sp
import ufl
from dolfinx import fem, mesh
from dolfinx.fem.petsc import apply_lifting, assemble_matrix, assemble_vector, set_bc
from mpi4py import MPI

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/krylith-py/python"))


def csr(form, bcs=(), diagonal=1.0):
    m = assemble_matrix(fem.form(form), list(bcs), diagonal)
    m.assemble()
    row_ptr, col, values = m.getValuesCSR()
    return sp.csr_matrix((values, col, row_ptr), shape=m.getSize())


def assembled(a, load, bcs):
    b = assemble_vector(fem.form(load))
    apply_lifting(b, [fem.form(a)], [bcs])
    set_bc(b, bcs)
    return csr(a, bcs), b.array.copy()


def element(m, *parts):
    cell = m.ufl_cell()
    make = {
        "P2v": lambda: ufl.VectorElement("CG", cell, 2),
        "P1": lambda: ufl.FiniteElement("CG", cell, 1),
        "RT": lambda: ufl.FiniteElement("RT", cell, 1),
        "P0": lambda: ufl.FiniteElement("DG", cell, 0),
    }
    return fem.FunctionSpace(m, ufl.MixedElement([make[part]() for part in parts]))


def near(x, k, value):
    return np.isclose(x[k], value)


def vector_field(space, m, u):
    """Near-null vectors and the interpolation from linear elements, for a P2 vector field."""
    import importlib.util

    where = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/krylith-py/python/krylith/_fields.py")
    text = open(where, encoding="utf-8").read()
    # The helper needs no extension module, which this process may lack.
    lines = [line for line in text.splitlines() if not line.startswith("from krylith")]
    text = "\n".join(lines).replace("_native.System", "Any").replace("InvalidInput", "ValueError")
    spec = importlib.util.spec_from_loader("fields", loader=None)
    helper = importlib.util.module_from_spec(spec)
    exec(compile(text, where, "exec"), helper.__dict__)
    dim = m.geometry.dim
    points = space.tabulate_dof_coordinates()[:, :dim]
    m.topology.create_connectivity(dim, 0)
    cells = m.geometry.dofmap.array.reshape(-1, dim + 1)
    p = helper.p2_interpolation(points, m.geometry.x[:, :dim], cells, block=dim)
    x = points - points.mean(0)
    n = len(x)
    modes = np.zeros((n, dim, 6 if dim == 3 else 3))
    for k in range(dim):
        modes[:, k, k] = 1
    if dim == 2:
        modes[:, 0, 2], modes[:, 1, 2] = -x[:, 1], x[:, 0]
    else:
        modes[:, 0, 3], modes[:, 1, 3] = -x[:, 1], x[:, 0]
        modes[:, 1, 4], modes[:, 2, 4] = -x[:, 2], x[:, 1]
        modes[:, 2, 5], modes[:, 0, 5] = -x[:, 0], x[:, 2]
    return {"P": p, "u_modes": modes.reshape(n * dim, -1)}


def box(dim, n):
    return mesh.create_unit_square(MPI.COMM_WORLD, n, n) if dim == 2 else mesh.create_unit_cube(MPI.COMM_WORLD, n, n, n)


def weights(space, factor=1.0):
    """Diagonal of the mass matrix, times a factor inside the integral."""
    u, v = ufl.TrialFunction(space), ufl.TestFunction(space)
    return sp.diags(csr(factor * ufl.inner(u, v) * ufl.dx).diagonal()).tocsr()


def stokes(dim, contrast=1.0, bodies=0):
    def make(n):
        m = box(dim, n)
        eta = fem.Function(fem.FunctionSpace(m, ("DG", 0)))
        eta.x.array[:], at = 1.0, eta.function_space.tabulate_dof_coordinates()[:, :dim]
        for centre in np.random.default_rng(1).uniform(0.25, 0.85, (bodies, dim)):
            eta.x.array[((at - centre) ** 2).sum(1) < 0.1**2] = contrast
        w = element(m, "P2v", "P1")
        (vs, du), (qs, dp) = w.sub(0).collapse(), w.sub(1).collapse()
        (u, p), (v, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
        x = ufl.SpatialCoordinate(m)
        a = (2 * eta * ufl.inner(ufl.sym(ufl.grad(u)), ufl.sym(ufl.grad(v))) - p * ufl.div(v) - q * ufl.div(u)) * ufl.dx
        load = -ufl.sin(3 * x[0]) * v[dim - 1] * ufl.dx
        inflow = fem.Function(vs)
        inflow.interpolate(lambda x: np.vstack([np.where(near(x, 0, 0), 4 * x[1] * (1 - x[1]), 0)] + [0 * x[0]] * (dim - 1)))

        def walls(x):
            sides = near(x, 1, 0) | near(x, 1, 1)
            if dim == 3:
                sides |= near(x, 2, 0) | near(x, 2, 1)
            return near(x, 0, 0) | sides

        bcs = [fem.dirichletbc(inflow, fem.locate_dofs_geometrical((w.sub(0), vs), walls), w.sub(0))]
        k, f = assembled(a, load, bcs)
        pp, qq = ufl.TrialFunction(qs), ufl.TestFunction(qs)
        more = {"Mp": csr(pp * qq / eta * ufl.dx)} | vector_field(vs, m, du)
        if bodies:
            # With rows of equal size, rounding limits the residual 1e4 times later at a contrast of 1e8.
            d = np.ones(len(f))
            d[du] = k.diagonal()[du] ** -0.5
            scale, inverse = sp.diags(d), sp.diags(1 / d[du])
            k, f = (scale @ k @ scale).tocsr(), d * f
            more |= {"P": inverse @ more["P"], "u_modes": inverse @ more["u_modes"]}
            more["Q"] = sp.diags(weights(vs, ufl.sqrt(eta)).diagonal() * d[du] ** 2).tocsr()
        return k, f, {"u": (du, dim), "p": (dp, 1)}, more

    return make


def biot(n):
    m = box(3, n)
    w = element(m, "P2v", "P1")
    (vs, du), (qs, dp) = w.sub(0).collapse(), w.sub(1).collapse()
    (u, p), (v, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
    mu, lam, alpha, storage, conductivity = 0.4, 0.4, 0.9, 1e-3, 1e-6
    strain = lambda u: ufl.sym(ufl.grad(u))
    a = (2 * mu * ufl.inner(strain(u), strain(v)) + lam * ufl.div(u) * ufl.div(v) - alpha * p * ufl.div(v)) * ufl.dx
    a -= (alpha * q * ufl.div(u) + storage * p * q + conductivity * ufl.inner(ufl.grad(p), ufl.grad(q))) * ufl.dx
    load = -ufl.conditional(ufl.gt(ufl.SpatialCoordinate(m)[2], 1 - 1e-8), 1.0, 0.0) * v[2] * ufl.ds
    zero, dry = fem.Function(vs), fem.Function(qs)
    top = lambda x: near(x, 2, 1)
    bcs = [
        fem.dirichletbc(zero, fem.locate_dofs_geometrical((w.sub(0), vs), lambda x: near(x, 2, 0)), w.sub(0)),
        fem.dirichletbc(dry, fem.locate_dofs_geometrical((w.sub(1), qs), top), w.sub(1)),
    ]
    k, f = assembled(a, load, bcs)
    pp, qq = ufl.TrialFunction(qs), ufl.TestFunction(qs)
    fixed = (storage + alpha**2 / (lam + 2 * mu / 3)) * pp * qq * ufl.dx
    fixed += conductivity * ufl.inner(ufl.grad(pp), ufl.grad(qq)) * ufl.dx
    s = -csr(fixed, [fem.dirichletbc(dry, fem.locate_dofs_geometrical(qs, top))])
    return k, f, {"u": (du, 3), "p": (dp, 1)}, {"Sp": s} | vector_field(vs, m, du)


def oseen(reynolds, gamma=0.0):
    """Helical flow through a channel with an open end, ν = 1/Re; streamline diffusion where the cell's Péclet number is
    above 1. With `gamma`, the velocity block is augmented by γ B W⁻¹ C with the diagonal W of the pressure mass."""

    def make(n):
        m = box(3, n)
        w = element(m, "P2v", "P1")
        (vs, du), (qs, dp) = w.sub(0).collapse(), w.sub(1).collapse()
        (u, p), (v, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
        pp, qq = ufl.TrialFunction(qs), ufl.TestFunction(qs)
        x, nu = ufl.SpatialCoordinate(m), 1.0 / reynolds
        y, z = np.pi * x[1], np.pi * x[2]
        speed = 16 * x[1] * (1 - x[1]) * x[2] * (1 - x[2])
        wind = ufl.as_vector([speed, ufl.sin(y) * ufl.cos(z) / 2, -ufl.cos(y) * ufl.sin(z) / 2])
        size = ufl.sqrt(ufl.inner(wind, wind)) + 1e-12
        peclet = size / (4 * n * nu)
        delta = ufl.conditional(ufl.gt(peclet, 1), (1 - 1 / peclet) / (4 * n * size), 0.0)
        along = lambda f: ufl.dot(ufl.grad(f), wind)
        a = (nu * ufl.inner(ufl.grad(u), ufl.grad(v)) + ufl.inner(along(u), v) + delta * ufl.inner(along(u), along(v))) * ufl.dx
        a -= (p * ufl.div(v) + q * ufl.div(u)) * ufl.dx
        inflow = fem.Function(vs)
        inflow.interpolate(lambda x: np.vstack([np.where(near(x, 0, 0), 16 * x[1] * (1 - x[1]) * x[2] * (1 - x[2]), 0)] + [0 * x[0]] * 2))
        walls = lambda x: near(x, 0, 0) | near(x, 1, 0) | near(x, 1, 1) | near(x, 2, 0) | near(x, 2, 1)
        bcs = [fem.dirichletbc(inflow, fem.locate_dofs_geometrical((w.sub(0), vs), walls), w.sub(0))]
        k, f = assembled(a, ufl.inner(ufl.as_vector([0.0, 0.0, ufl.sin(3 * x[0])]), v) * ufl.dx, bcs)
        mass = csr(pp * qq * ufl.dx)
        more = {"Mp": mass, "Q": weights(vs)}
        if gamma:
            b, c, inverse = k[:, dp], k[dp], sp.diags(gamma / mass.diagonal())
            rows = sp.csr_matrix((np.ones(len(du)), (du, du)), shape=k.shape)
            # With these, S = -Mp / (ν + γ).
            more["Mp"] = mass / (nu + gamma)
            k, f = (k + rows @ (b @ inverse @ c)).tocsr(), f + rows @ (b @ (inverse @ f[dp]))
        else:
            # The rows of the inflow have to agree in F = ν L + …, also in their size.
            end = [fem.dirichletbc(fem.Function(qs), fem.locate_dofs_geometrical(qs, lambda x: near(x, 0, 0)))]
            grad = ufl.inner(ufl.grad(pp), ufl.grad(qq))
            more["Lp"] = csr(grad * ufl.dx, end)
            more["Fp"] = csr((nu * grad + along(pp) * qq + delta * along(pp) * along(qq)) * ufl.dx, end, nu)
        return k, f, {"u": (du, 3), "p": (dp, 1)}, more | vector_field(vs, m, du)

    return make


def biot3(conductivity=1e-6, nu=0.25):
    """Displacement, flux and pressure P2–RT0–P0 without storage."""

    def make(n):
        m = box(3, n)
        w = element(m, "P2v", "RT", "P0")
        (vs, du), (zs, dw), (qs, dp) = (w.sub(k).collapse() for k in range(3))
        (u, z, p), (v, t, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
        mu, lam, alpha = 0.5 / (1 + nu), nu / (1 + nu) / (1 - 2 * nu), 0.9
        strain = lambda u: ufl.sym(ufl.grad(u))
        a = (2 * mu * ufl.inner(strain(u), strain(v)) + lam * ufl.div(u) * ufl.div(v) + ufl.inner(z, t) / conductivity) * ufl.dx
        a -= (p * ufl.div(alpha * v + t) + q * ufl.div(alpha * u + z)) * ufl.dx
        load = -ufl.conditional(ufl.gt(ufl.SpatialCoordinate(m)[2], 1 - 1e-8), 1.0, 0.0) * v[2] * ufl.ds
        closed = mesh.locate_entities_boundary(m, 2, lambda x: near(x, 0, 0) | near(x, 0, 1) | near(x, 2, 0))
        bcs = [
            fem.dirichletbc(fem.Function(vs), fem.locate_dofs_geometrical((w.sub(0), vs), lambda x: near(x, 2, 0)), w.sub(0)),
            fem.dirichletbc(fem.Function(zs), fem.locate_dofs_topological((w.sub(1), zs), 2, closed), w.sub(1)),
        ]
        k, f = assembled(a, load, bcs)
        pp, qq = ufl.TrialFunction(qs), ufl.TestFunction(qs)
        flux = k[dw][:, dw].diagonal()
        s = alpha**2 / (lam + 2 * mu / 3) * csr(pp * qq * ufl.dx) + k[dp][:, dw] @ sp.diags(1 / flux) @ k[dw][:, dp]
        return k, f, {"u": (du, 3), "w": (dw, 1), "p": (dp, 1)}, {"Sp": s} | vector_field(vs, m, du)

    return make


def elasticity(n):
    m = mesh.create_box(MPI.COMM_WORLD, [np.zeros(3), np.array([2.0, 1, 1])], [2 * n, n, n])
    w = element(m, "P2v", "P1")
    (vs, du), (qs, dp) = w.sub(0).collapse(), w.sub(1).collapse()
    (u, p), (v, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
    nu = 0.4999
    mu, lam = 0.5 / (1 + nu), nu / (1 + nu) / (1 - 2 * nu)
    strain = lambda u: ufl.sym(ufl.grad(u))
    a = (2 * mu * ufl.inner(strain(u), strain(v)) - p * ufl.div(v) - q * ufl.div(u) - p * q / lam) * ufl.dx
    bcs = [fem.dirichletbc(fem.Function(vs), fem.locate_dofs_geometrical((w.sub(0), vs), lambda x: near(x, 0, 0)), w.sub(0))]
    k, f = assembled(a, -v[2] * ufl.dx, bcs)
    pp, qq = ufl.TrialFunction(qs), ufl.TestFunction(qs)
    mass = csr((1 / (2 * mu) + 1 / lam) * pp * qq * ufl.dx)
    return k, f, {"u": (du, 3), "p": (dp, 1)}, {"Mp": mass} | vector_field(vs, m, du)


def darcy(n, contrast=1e4, anisotropy=1.0):
    m = box(3, n)
    w = element(m, "RT", "P0")
    (zs, dw), (_, dp) = w.sub(0).collapse(), w.sub(1).collapse()
    (w_, p), (t, q) = ufl.TrialFunctions(w), ufl.TestFunctions(w)
    inverse = fem.Function(fem.FunctionSpace(m, ("DG", 0)))
    rng = np.random.default_rng(0)
    x = inverse.function_space.tabulate_dof_coordinates()
    waves = sum(np.cos(x @ (rng.normal(size=3) * 12) + rng.uniform(0, 6.3)) for _ in range(12)) / np.sqrt(6)
    inverse.x.array[:] = np.exp(-np.log(contrast) / 5 * waves)
    # A permeability of 1 : anisotropy along a slanted direction.
    slanted = np.array([3.0, 2.0, 1.0]) / np.sqrt(14)
    tensor = ufl.as_matrix((np.eye(3) + (1 / anisotropy - 1) * np.outer(slanted, slanted)).tolist())
    a = (inverse * ufl.inner(tensor * w_, t) - p * ufl.div(t) - q * ufl.div(w_)) * ufl.dx
    left = ufl.conditional(ufl.lt(ufl.SpatialCoordinate(m)[0], 1e-8), 1.0, 0.0)
    load = -left * ufl.inner(t, ufl.FacetNormal(m)) * ufl.ds
    closed = mesh.locate_entities_boundary(m, 2, lambda x: near(x, 1, 0) | near(x, 1, 1) | near(x, 2, 0) | near(x, 2, 1))
    dofs = fem.locate_dofs_topological((w.sub(0), zs), 2, closed)
    k, f = assembled(a, load, [fem.dirichletbc(fem.Function(zs), dofs, w.sub(0))])
    return k, f, {"w": (dw, 1), "p": (dp, 1)}, {}


def curlcurl(iron):
    def make(n):
        from dolfinx.cpp.fem.petsc import discrete_gradient

        m = box(3, n)
        vs = fem.FunctionSpace(m, ("N1curl", 1))
        u, v = ufl.TrialFunction(vs), ufl.TestFunction(vs)
        nu = fem.Function(fem.FunctionSpace(m, ("DG", 0)))
        nu.x.array[:] = 1.0
        x, mass = ufl.SpatialCoordinate(m), 1e-4
        if iron:
            inside = np.abs(nu.function_space.tabulate_dof_coordinates() - 0.5).max(1) < 0.25
            nu.x.array[inside], mass = 1e-3, 1e-6
        a = (nu * ufl.inner(ufl.curl(u), ufl.curl(v)) + mass * ufl.inner(u, v)) * ufl.dx
        current = [-(x[1] - 0.5), x[0] - 0.5, 0 * x[0]] if iron else [1 + x[0] * x[0], ufl.sin(3 * x[1]), x[0]]
        m.topology.create_connectivity(2, 3)
        outer = mesh.locate_entities_boundary(m, 2, lambda x: np.any([near(x, k, e) for k in range(3) for e in (0, 1)], axis=0))
        bcs = [fem.dirichletbc(fem.Function(vs), fem.locate_dofs_topological(vs, 2, outer))]
        k, f = assembled(a, ufl.inner(ufl.as_vector(current), v) * ufl.dx, bcs)
        nodes = fem.FunctionSpace(m, ("CG", 1))
        try:
            g = discrete_gradient(nodes._cpp_object, vs._cpp_object)
        except TypeError:
            g = discrete_gradient(vs._cpp_object, nodes._cpp_object)
        g.assemble()
        row_ptr, col, values = g.getValuesCSR()
        g = sp.csr_matrix((values, col, row_ptr), shape=g.getSize())
        tangents = g @ nodes.tabulate_dof_coordinates()
        half = abs(g) * 0.5
        spaces = {name: (sp.diags(tangents[:, k]) @ half).tocsr() for k, name in enumerate(("Px", "Py", "Pz"))}
        return k, f, {}, {"G": g} | spaces

    return make


def blackoil(**options):
    """A system of systems.py, which needs no elements."""

    def make(n):
        import systems

        a, b, fields, matrices = systems.blackoil(n, **options)
        return a, b, {name: (np.arange(len(b))[part], 1) for name, part in fields.items()}, matrices

    return make


SYSTEMS = {
    "stokes2d": stokes(2),
    "stokes3d": stokes(3),
    **{f"bodies{d}d-1e{e}-{b}": stokes(d, 10.0**e, b) for d in (2, 3) for e in (4, 6, 8) for b in (8, 24)},
    **{f"oseen-{re}": oseen(re) for re in (100, 500)},
    **{f"oseen-{re}-augmented": oseen(re, 1.0) for re in (100, 500)},
    "biot": biot,
    **{f"biot3-{k}-{nu}": biot3(float(k), float(nu)) for k in ("1", "1e-6", "1e-12") for nu in ("0.2", "0.4999")},
    "elasticity": elasticity,
    "darcy": darcy,
    "darcy-1e6": lambda n: darcy(n, 1e6),
    "darcy-slanted": lambda n: darcy(n, 1e4, 100.0),
    "curlcurl": curlcurl(False),
    "iron": curlcurl(True),
    "blackoil": blackoil(),
    "blackoil-barely": blackoil(compress=1e-9),
    "twophase-wells": blackoil(phases=2, compress=1e-6),
}


def clean(matrix):
    """Leave out the rounding errors of interpolated gradients, for all programs alike."""
    largest = abs(matrix).max(axis=1).toarray().ravel()
    matrix.data[abs(matrix.data) <= 1e-13 * np.repeat(largest, np.diff(matrix.indptr))] = 0
    matrix.eliminate_zeros()
    return matrix


def main():
    name, n, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.makedirs(folder, exist_ok=True)
    a, b, fields, matrices = SYSTEMS[name](n)
    sp.save_npz(f"{folder}/A.npz", a.tocsr(), compressed=False)
    np.save(f"{folder}/b.npy", b)
    np.savez(f"{folder}/fields.npz", **{f: np.asarray(dofs) for f, (dofs, _) in fields.items()}, **{f"block_{f}": b for f, (_, b) in fields.items()})
    for key, matrix in matrices.items():
        if sp.issparse(matrix):
            sp.save_npz(f"{folder}/{key}.npz", clean(sp.csr_matrix(matrix)), compressed=False)
        else:
            np.save(f"{folder}/{key}.npy", matrix)
    print(f"{name}: {a.shape[0]} unknowns, {a.nnz} entries")


if __name__ == "__main__":
    main()
