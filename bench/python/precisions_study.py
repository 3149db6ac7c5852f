"""Do preconditioners in f32 give the answers of those in f64? Random systems of many kinds, and collected ones.

    python3 bench/python/precisions_study.py OUT.jsonl [--count N] [--first K] [--seed S] [--only FAMILY]
                                             [--folder FOLDER] [--most UNKNOWNS] [--max-iters N]
    python3 bench/python/precisions_study.py --summary OUT.jsonl…
    python3 bench/python/precisions_study.py OUT.jsonl --flexible [--count N] …

System k of a seed is the same in every run. It has 300 to 6,000 unknowns, and is solved by `krylith.solve(A, b)` alone
and with two named preconditioners, with `precond_precision` f64 and f32, on one CPU thread. `--folder` adds the Matrix
Market files of a folder, up to 20,000 unknowns, with all named preconditioners. `--first` begins at another system, so
that several processes can share the work.

OUT.jsonl has one line per system and setting. For both precisions it has the outcome, the iterations, the residual
|b - A x| / |b|, computed here, and notes of the report. `distance` is |x32 - x64| / |x64|. A setting counts as solved if
the outcome is converged or rounding-limit. It is lost if f64 solves it and f32 does not.

With `--flexible` each system is solved by named methods at 1e-10 instead: GMRES with `ildu` and `amg`, and CG too if A is
symmetric. It compares f64, f32, and f32 with the flexible form of the method.
"""

import argparse
import collections
import gzip
import json
import pathlib
import time
import warnings

import numpy as np
import scipy.io
import scipy.sparse as sp

import krylith

NAMED = ["ildu", "ildu:fill=1", "ras", "amg", "jacobi", "ildu:rows=200", "ras:overlap=2"]
SOLVED = ("converged", "rounding-limit")


def grid(rng, n, dims=None):
    """The sides of a grid of about n cells."""
    dims = dims or rng.integers(2, 4)
    side = max(3, round(n ** (1 / dims)))
    return [side] * dims


def fluxes(sides, k, wind=None):
    """Finite volumes on a grid with coefficients k per axis and cell. An upwinded wind adds to them."""
    dims, n = len(sides), int(np.prod(sides))
    number = np.arange(n).reshape(sides)
    i, j, v, diagonal = [], [], [], np.zeros(sides)
    for axis in range(dims):
        low, high = [slice(None)] * dims, [slice(None)] * dims
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        low, high = tuple(low), tuple(high)
        c = k[axis]
        t = 2 / (1 / c[low] + 1 / c[high])
        w = 0.0 if wind is None else wind[axis]
        i += [number[low].ravel(), number[high].ravel()]
        j += [number[high].ravel(), number[low].ravel()]
        v += [-(t + max(-w, 0)).ravel(), -(t + max(w, 0)).ravel()]
        diagonal[low] += t + max(w, 0)
        diagonal[high] += t + max(-w, 0)
        for end in (0, -1):
            at = [slice(None)] * dims
            at[axis] = end
            diagonal[tuple(at)] += 2 * c[tuple(at)] + max(w if end else -w, 0)
    i.append(number.ravel())
    j.append(number.ravel())
    v.append(diagonal.ravel())
    return sp.csr_matrix((np.concatenate(v), (np.concatenate(i), np.concatenate(j))), shape=(n, n))


def laplace(rng, n, dims=None):
    sides = grid(rng, n, dims)
    return fluxes(sides, [np.ones(sides)] * len(sides))


def jumps(rng, n):
    """Diffusion in boxes of constant coefficients, up to eight decades apart."""
    sides = grid(rng, n)
    parts = [rng.integers(0, rng.integers(2, 6), s) for s in sides]
    at = np.ix_(*parts)
    values = 10 ** (rng.uniform(0, 8) * rng.random([6] * len(sides)))
    return fluxes(sides, [values[at]] * len(sides)), 1


def contrast(rng, n):
    """Diffusion with a random coefficient in each cell."""
    sides = grid(rng, n)
    k = 10 ** (rng.uniform(0, 10) * rng.random(sides))
    return fluxes(sides, [k] * len(sides)), 1


def anisotropic(rng, n):
    sides = grid(rng, n)
    k = [np.full(sides, 10 ** rng.uniform(-5, 0)) for _ in sides]
    return fluxes(sides, k), 1


def convection(rng, n):
    sides = grid(rng, n)
    wind = 10 ** rng.uniform(-1, 3, len(sides)) * rng.choice([-1, 1], len(sides))
    return fluxes(sides, [np.ones(sides)] * len(sides), wind), 1


def blocks(rng, n, b=None, symmetric=False):
    """A graph of a grid whose couplings are random b×b blocks, with a diagonal that dominates to some extent."""
    b = b or int(rng.integers(1, 6))
    a = laplace(rng, max(n // b, 30)).tocoo()
    off = a.row < a.col
    i, j = a.row[off], a.col[off]
    upper = rng.standard_normal((len(i), b, b))
    lower = upper.transpose(0, 2, 1) if symmetric else rng.standard_normal((len(i), b, b))
    nodes = a.shape[0]
    sums = np.zeros((nodes, b))
    np.add.at(sums, i, np.abs(upper).sum(2))
    np.add.at(sums, j, np.abs(lower).sum(2))
    diagonal = np.einsum("nk,kl->nkl", sums * rng.uniform(0.6 if not symmetric else 1.0, 1.3) + 0.1, np.eye(b))
    skew = 0.3 * rng.standard_normal((nodes, b, b))
    diagonal += skew @ skew.transpose(0, 2, 1) if symmetric else skew
    rows = np.concatenate([i, j, np.arange(nodes)])
    cols = np.concatenate([j, i, np.arange(nodes)])
    values = np.concatenate([upper, lower, diagonal])
    order = np.lexsort((cols, rows))
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=nodes))])
    return sp.bsr_matrix((values[order], cols[order], pointers), shape=(nodes * b, nodes * b)).tocsr(), b


def scaled_both(rng, n):
    """D A D with D over many decades; A is symmetric with blocks."""
    a, b = blocks(rng, n, symmetric=True) if rng.random() < 0.6 else elasticity(rng, n)
    decades = rng.uniform(1, 12)
    d = sp.diags(10 ** rng.uniform(-decades, decades, a.shape[0]))
    return (d @ a @ d).tocsr(), b


def graded_nodes(rng, n):
    """D A D with one factor per node."""
    a, b = blocks(rng, n, symmetric=True)
    decades = rng.uniform(1, 12)
    d = sp.diags(np.repeat(10 ** rng.uniform(-decades, decades, a.shape[0] // b), b))
    return (d @ a @ d).tocsr(), b


def graded_rows(rng, n):
    """Rows, and at times columns, over many decades."""
    a, b = blocks(rng, n) if rng.random() < 0.7 else convection(rng, n)
    decades, columns = rng.uniform(1, 12), rng.uniform(0, 6) * (rng.random() < 0.3)
    d = sp.diags(10 ** rng.uniform(-decades, decades, a.shape[0]))
    e = sp.diags(10 ** rng.uniform(-columns, columns, a.shape[0]))
    return (d @ a @ e).tocsr(), b


def smoothly_graded(rng, n):
    """Rows whose scale grows along the numbering, as on a stretched mesh."""
    a, b = blocks(rng, n, symmetric=rng.random() < 0.5)
    decades = rng.uniform(1, 10)
    d = sp.diags(10 ** np.linspace(-decades, decades, a.shape[0]))
    return (d @ a @ (d if rng.random() < 0.5 else sp.identity(a.shape[0]))).tocsr(), b


def species(rng, n):
    """Diffusing unknowns of a node with stiff reactions."""
    b = int(rng.integers(2, 6))
    a = laplace(rng, n // b)
    rates = 10 ** rng.uniform(-3, 6, (b, b))
    reaction = np.diag(rates.sum(1)) - rates
    where = sp.diags(10 ** rng.uniform(-2, 2, a.shape[0]))
    diffusion = sp.diags(10 ** rng.uniform(-3, 1, b))
    return (sp.kron(a, diffusion) + sp.kron(where, reaction)).tocsr(), b


def elasticity(rng, n):
    """Bilinear elements of plane or solid elasticity with jumps, and a clamped side."""
    dims = int(rng.integers(2, 4))
    side = max(3, round((n / dims) ** (1 / dims)))
    nu, contrast = rng.uniform(0.0, 0.49), 10 ** rng.uniform(0, 6)
    lame, shear = nu / ((1 + nu) * (1 - 2 * nu)), 1 / (2 * (1 + nu))
    corners = np.array(np.meshgrid(*[[0, 1]] * dims, indexing="ij")).reshape(dims, -1).T
    points = 0.5 + (corners - 0.5) / np.sqrt(3)
    local = np.zeros((len(corners) * dims,) * 2)
    for p in points:
        g = np.empty((len(corners), dims))
        for c, corner in enumerate(corners):
            shape = np.where(corner == 1, p, 1 - p)
            for k in range(dims):
                g[c, k] = (2 * corner[k] - 1) * np.prod(np.delete(shape, k))
        inner = g @ g.T
        for k in range(dims):
            for m in range(dims):
                local[k::dims, m::dims] += lame * np.outer(g[:, k], g[:, m]) + shear * np.outer(g[:, m], g[:, k])
            local[k::dims, k::dims] += shear * inner
    local /= len(points)
    nodes = [side + 1] * dims
    number = np.arange(np.prod(nodes)).reshape(nodes)
    cells = np.stack([number[tuple(slice(c, c + side) for c in corner)].ravel() for corner in corners], 1)
    young = contrast ** rng.integers(0, 2, len(cells))
    free = (cells[:, :, None] * dims + np.arange(dims)).reshape(len(cells), -1)
    i, j = np.repeat(free, free.shape[1], 1), np.tile(free, (1, free.shape[1]))
    values = (young[:, None] * local.ravel()).ravel()
    a = sp.csr_matrix((values, (i.ravel(), j.ravel())))
    keep = np.setdiff1d(np.arange(a.shape[0]), (number[0].ravel()[:, None] * dims + np.arange(dims)).ravel())
    return a[keep][:, keep].tocsr(), dims


def difference(m):
    return sp.diags([np.ones(m), -np.ones(m)], [0, -1], shape=(m + 1, m))


def saddle(rng, n):
    """Stokes flow or Darcy flow on staggered cells; the pressure is fixed by a small mass."""
    m = max(5, round(np.sqrt(n / 3)))
    d = difference(m - 1)
    eye = sp.identity
    gx, gy = sp.kron(d, eye(m)), sp.kron(eye(m), d)
    b = sp.hstack([gx, gy]).tocsr()
    if rng.random() < 0.5:
        one = sp.diags([2.0, -1.0, -1.0], [0, 1, -1], shape=(m - 1, m - 1))
        two = sp.diags([2.0, -1.0, -1.0], [0, 1, -1], shape=(m, m))
        u = sp.kron(one, eye(m)) + sp.kron(eye(m - 1), two)
        v = sp.kron(eye(m), one) + sp.kron(two, eye(m - 1))
        f = sp.block_diag([u, v]) * 10 ** rng.uniform(-3, 3)
        f = f + eye(f.shape[0]) * 10 ** rng.uniform(-6, 2)
    else:
        f = sp.diags(10 ** (rng.uniform(0, 5) * rng.random(b.shape[1])))
    mass = eye(m * m) * 10 ** rng.uniform(-10, -2)
    return sp.bmat([[f, b.T], [b, -mass]]).tocsr(), 1


def helmholtz(rng, n):
    """A Laplacian less a shift among its first eigenvalues."""
    a = laplace(rng, n)
    first = sp.linalg.eigsh(a, 6, sigma=0.0, return_eigenvectors=False) if a.shape[0] < 4000 else np.full(6, 1e-2)
    shift = rng.uniform(0.5, 0.9) * first.max() + rng.uniform(0.0, 0.1) * first.min()
    return (a - shift * sp.identity(a.shape[0])).tocsr(), 1


def graph(rng, n, degree=None):
    """The Laplacian of a random graph, with weights over some decades."""
    pairs = rng.integers(0, n, (int(n * (degree or rng.uniform(1.2, 4))), 2))
    pairs = np.concatenate([pairs, np.stack([np.arange(n - 1), np.arange(1, n)], 1)])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    w = 10 ** (rng.uniform(0, 6) * rng.random(len(pairs)))
    half = sp.csr_matrix((w, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    half = half + half.T
    return (sp.diags(np.asarray(half.sum(1)).ravel()) - half).tocsr(), 1


def definite_graph(rng, n):
    a, _ = graph(rng, n)
    return (a + sp.diags(a.diagonal().mean() * 10 ** rng.uniform(-8, 0, n))).tocsr(), 1


def markov(rng, n):
    """I - P^T of a random chain, which is singular; b is consistent."""
    a, _ = graph(rng, n)
    a = (sp.diags(a.diagonal()) - a).tocsr()
    a.data *= rng.random(a.nnz)
    a.eliminate_zeros()
    p = sp.diags(1 / np.asarray(a.sum(1)).ravel()) @ a
    return (sp.identity(n) - p.T).tocsr(), 1


def hubs(rng, n):
    """A graph with a few nodes of many edges, and unsymmetric values."""
    a, _ = graph(rng, n, 2.0)
    hub = rng.integers(0, n, 3)
    more = sp.random(n, 3, 0.1, random_state=rng, format="csr") @ sp.csr_matrix(
        (np.ones(3), (np.arange(3), hub)), shape=(3, n)
    )
    a = a + more - 0.5 * more.T
    return (a + sp.diags(1.1 * np.asarray(abs(more).sum(1)).ravel() + 0.1)).tocsr(), 1


def sparse(rng, n):
    """Random entries, with a diagonal about as large as the rest of a row."""
    a = sp.random(n, n, rng.uniform(3, 8) / n, random_state=rng, data_rvs=rng.standard_normal).tocsr()
    sums = np.asarray(abs(a).sum(1)).ravel()
    return (a + sp.diags(rng.uniform(0.5, 1.5) * sums + 0.1)).tocsr(), 1


def plate(rng, n):
    """The square of a Laplacian, with a small elastic foundation."""
    a = laplace(rng, n, 2)
    return (a @ a + 10 ** rng.uniform(-8, 0) * sp.identity(a.shape[0])).tocsr(), 1


def wave(rng, n):
    """A complex shifted Laplacian in its real form, of 2×2 blocks."""
    a = laplace(rng, n // 2)
    shift = rng.uniform(0, 0.3)
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    real = sp.kron(a - shift * sp.identity(a.shape[0]), np.eye(2))
    return (real + 10 ** rng.uniform(-3, 0) * sp.kron(sp.identity(a.shape[0]), turn)).tocsr(), 2


FAMILIES = {f.__name__: f for f in [
    jumps, contrast, anisotropic, convection, blocks, scaled_both, graded_nodes, graded_rows, smoothly_graded,
    species, elasticity, saddle, helmholtz, graph, definite_graph, markov, hubs, sparse, plate, wave,
]}  # fmt: skip


def system(seed, k, only=None):
    """System k: its matrix, right-hand side, block size, a description, the settings and the tolerance."""
    rng = np.random.default_rng([seed, k])
    name = only or list(FAMILIES)[k % len(FAMILIES)]
    n = int(np.exp(rng.uniform(np.log(300), np.log(6000))))
    a, b = FAMILIES[name](rng, n)
    a = sp.csr_matrix(a)
    a.sum_duplicates()
    factor = 10.0 ** int(rng.choice([-200, -100, 100, 200])) if rng.random() < 0.1 else 1.0
    # The norm of b stays away from the limits of f64.
    x = rng.standard_normal(a.shape[0])
    if name.startswith(("scaled", "graded")) and rng.random() < 0.5:
        right = rng.standard_normal(a.shape[0]) * np.asarray(abs(a).sum(1)).ravel()
    else:
        right = a @ x
    described = dict(family=name, k=k, unknowns=a.shape[0], entries=int(a.nnz), block=b, factor=factor)
    named = list(rng.choice(NAMED, 2, replace=False))
    return a * factor, right * factor, b, described, ["auto", *named], float(rng.choice([1e-8, 1e-10], p=[0.8, 0.2]))


def files(folder, most):
    """The square matrices of a folder. b is A x for a random x, and blocks are those that the structure shows."""
    for path in sorted(pathlib.Path(folder).iterdir()):
        opened = gzip.open if path.suffix == ".gz" else open
        if ".mtx" not in path.name:
            continue
        with opened(path, "rb") as f:
            a = scipy.io.mmread(f)
        if not sp.issparse(a) or a.shape[0] != a.shape[1] or a.shape[0] > most or np.iscomplexobj(a):
            continue
        a = sp.csr_matrix(a, dtype=float)
        right = a @ np.random.default_rng(5).standard_normal(a.shape[0])
        described = dict(family="collected", k=path.name, unknowns=a.shape[0], entries=int(a.nnz), block=1, factor=1.0)
        for rtol in (1e-8, 1e-10):
            yield a, right, 1, described, ["auto", *NAMED], rtol


def solved(a, right, b, setting, rtol, precision, max_iters, **more):
    """Solves, and returns the record and x."""
    more = more if setting == "auto" else {"precond": setting, **more}
    begin = time.process_time()
    try:
        found = krylith.solve(
            a, right, rtol=rtol, block=b, device="cpu", threads=1, precond_precision=precision, max_iters=max_iters, **more
        )
    except krylith.Error as e:
        return {"outcome": "error", "why": str(e)[:200]}, None
    seconds = time.process_time() - begin
    size = float(abs(right).max()) or 1.0
    residual = float(np.linalg.norm((right - a @ found.x) / size) / (np.linalg.norm(right / size) or 1.0))
    text = str(found)
    notes = [e.detail for e in found.events if e.kind == "fallback"]
    record = dict(outcome=str(found.outcome), iterations=int(found.iterations), residual=residual, seconds=round(seconds, 4))
    record.update(attempts=len(notes) + 1, promoted=any("in f64" in note for note in notes))
    record.update(range="too large for f32" in text, notes=notes if precision == "f32" or notes else [])
    return record, np.asarray(found.x)


def measure(out, systems, max_iters):
    for a, right, b, described, settings, rtol in systems:
        for setting in settings:
            line = dict(described, setting=str(setting), rtol=rtol)
            xs = {}
            for precision in ("f64", "f32"):
                line[precision], xs[precision] = solved(a, right, b, setting, rtol, precision, max_iters)
            if all(x is not None for x in xs.values()):
                size = float(abs(xs["f64"]).max()) or 1.0
                apart = np.linalg.norm((xs["f32"] - xs["f64"]) / size)
                line["distance"] = float(apart / (np.linalg.norm(xs["f64"] / size) or 1.0))
            out.write(json.dumps(line) + "\n")
            out.flush()
            verdict = told(line)
            if verdict:
                print(f"{verdict}: {name_of(line)}: {shown(line, 'f64')}; {shown(line, 'f32')}", flush=True)


PLAIN_AND_FLEXIBLE = [("gmres:restart=100", "fgmres:restart=100"), ("cg", "cg:form=flexible")]


def measure_flexible(out, systems, max_iters):
    """Iterations at 1e-10 in f64, in f32, and in f32 with the flexible form."""
    sums = collections.defaultdict(list)
    for a, right, b, described, _, _ in systems:
        symmetric = abs(a - a.T).max() <= 1e-14 * abs(a).max()
        for plain, flexible in PLAIN_AND_FLEXIBLE[: 1 + symmetric]:
            for precond in ("ildu", "amg"):
                line = dict(described, setting=f"{precond} with {plain}", rtol=1e-10)
                for name, precision, method in (("f64", "f64", plain), ("f32", "f32", plain), ("flexible", "f32", flexible)):
                    line[name], _ = solved(a, right, b, precond, 1e-10, precision, max_iters, method=method)
                    line[name].pop("notes", None)
                out.write(json.dumps(line) + "\n")
                if all(is_solved(line[name]) for name in ("f64", "f32", "flexible")):
                    sums[line["setting"]].append([line[name]["iterations"] for name in ("f64", "f32", "flexible")])
                elif is_solved(line["f64"]):
                    print(name_of(line), *(line[name]["outcome"] for name in ("f64", "f32", "flexible")), flush=True)
    for setting, counts in sums.items():
        counts = np.array(counts)
        more = counts[:, 1:] / np.maximum(counts[:, :1], 1) - 1
        print(f"{setting}: {len(counts)} systems, iterations in f64, in f32 and flexible: {counts.sum(0).tolist()}")
        shares = [f"{100 * np.mean(m <= 0.1):.1f} %, mean {100 * m.mean():+.1f} %" for m in more.T]
        fewer = [int(np.sum(counts[:, 2] < counts[:, 1])), int(np.sum(counts[:, 2] > counts[:, 1]))]
        print(f"  at most 10 % more than f64: f32 {shares[0]}, flexible {shares[1]}; flexible fewer, more than f32: {fewer}")


def name_of(line):
    return f"{line['family']} {line['k']}, n={line['unknowns']}, b={line['block']}, {line['setting']}, {line['rtol']:g}"


def shown(line, precision):
    of = line[precision]
    return f"{precision} {of['outcome']} {of.get('iterations', '')} {of.get('residual', float('nan')):.1e}"


def is_solved(of):
    return of["outcome"] in SOLVED


def told(line):
    """What is remarkable about a line."""
    one, two = line["f64"], line["f32"]
    if is_solved(one) and not is_solved(two):
        return "lost"
    if is_solved(two) and not is_solved(one):
        return "gained"
    if two["outcome"] == "converged" and not two["residual"] <= 1.01 * line["rtol"] and not one["residual"] > line["rtol"]:
        return "wrong"
    return ""


def more_iterations(line):
    return line["f32"]["iterations"] / max(line["f64"]["iterations"], 1) - 1


def summary(names):
    lines = [json.loads(text) for name in names for text in open(name)]
    groups = collections.defaultdict(list)
    for line in lines:
        groups["collected" if line["family"] == "collected" else "random"].append(line)
        if line["family"] != "collected":
            groups[line["family"]].append(line)
            groups["bare" if line["setting"] == "auto" else line["setting"].split(":")[0]].append(line)
            groups[f"rtol {line['rtol']:g}"].append(line)
    head = ["", "systems", "settings", "f64 solves", "lost", "gained", "wrong", "≤ 10 % more", "median", "90 %", "99 %",
            "sum", "repeated in f64", "range"]  # fmt: skip
    print("| " + " | ".join(head) + " |\n|---" + "|---:" * (len(head) - 1) + "|")
    for name, some in groups.items():
        both = [line for line in some if is_solved(line["f64"]) and is_solved(line["f32"])]
        more = np.array([more_iterations(line) for line in both] or [0.0])
        total = [sum(line[p]["iterations"] for line in both) for p in ("f64", "f32")]
        verdicts = collections.Counter(told(line) for line in some)
        cells = [
            len({line["k"] for line in some}), len(some), sum(is_solved(line["f64"]) for line in some),
            verdicts["lost"], verdicts["gained"], verdicts["wrong"], f"{100 * np.mean(more <= 0.1):.1f} %",
            *(f"{100 * q:+.1f} %" for q in np.quantile(more, [0.5, 0.9, 0.99])),
            f"{100 * (total[1] / max(total[0], 1) - 1):+.1f} %",
            sum(line["f32"].get("promoted", False) for line in some), sum(line["f32"].get("range", False) for line in some),
        ]  # fmt: skip
        print(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    for line in lines:
        if told(line):
            print(f"{told(line)}: {name_of(line)}: {shown(line, 'f64')}; {shown(line, 'f32')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="+")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=51)
    parser.add_argument("--only")
    parser.add_argument("--folder")
    parser.add_argument("--most", type=int, default=20_000)
    parser.add_argument("--max-iters", type=int, default=3000)
    parser.add_argument("--flexible", action="store_true")
    asked = parser.parse_args()
    if asked.summary:
        return summary(asked.out)
    warnings.simplefilter("ignore")
    numbers = range(asked.first, asked.first + asked.count)
    systems = (system(asked.seed, k, asked.only) for k in numbers)
    if asked.folder:
        systems = files(asked.folder, asked.most)
    with open(asked.out[0], "w") as out:
        (measure_flexible if asked.flexible else measure)(out, systems, asked.max_iters)


main()
