"""Precisions of a preconditioner: multigrid in f64, stored in f32, computed in f32, and stored in bf16.

    python3 bench/python/precisions.py OUT.json [--small] [--cpu THREADS] [--applications] [--only SYSTEM] [--precond NAMES]

With `--applications` it measures single applications of AMG cycles, ildu and ras (`measure_applications`). `--only`
names one of the systems, and `--precond` some of the preconditioners, such as `amg,ildu`.

On a GPU it needs CuPy, and the matrix is on the GPU. For each system and each of four settings: the set-up, the best
of seven solves of one Solver, and the best of three whole calls `krylith.solve(A, b)`, in seconds of wall clock with
the GPU idle before and after. `residual` is |b - A x| / |b|, computed here.
"""

import json
import re
import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp

import krylith

CPU = int(sys.argv[sys.argv.index("--cpu") + 1]) if "--cpu" in sys.argv else 0
if not CPU:
    import cupy as cp
    import cupyx.scipy.sparse as cs

SETTINGS = {
    "f64": "amg:compute=f64",
    "stored": "amg:precision=f32",
    "f32": "amg:compute=f32",
    "bf16": "amg:compute=bf16",
}


def diffusion(side, contrast=1.0, wind=0.0, seed=1):
    """Seven-point diffusion on side^3 cells with random coefficients, and an upwinded wind along x."""
    rng = np.random.default_rng(seed)
    k = contrast ** (rng.random((side, side, side)) - 0.5)
    n = side**3
    number = np.arange(n, dtype=np.int32).reshape(k.shape)
    rows, cols, values, diagonal = [], [], [], np.zeros(k.shape)
    for axis in range(3):
        low, high = [slice(None)] * 3, [slice(None)] * 3
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        low, high = tuple(low), tuple(high)
        t = 2 / (1 / k[low] + 1 / k[high])
        more = wind if axis == 0 else 0.0
        rows += [number[low].ravel(), number[high].ravel()]
        cols += [number[high].ravel(), number[low].ravel()]
        values += [-t.ravel(), -(t + more).ravel()]
        diagonal[low] += t
        diagonal[high] += t + more
        for end in (0, -1):
            at = [slice(None)] * 3
            at[axis] = end
            diagonal[tuple(at)] += 2 * k[tuple(at)] + (more if end == 0 else 0)
    rows.append(number.ravel())
    cols.append(number.ravel())
    values.append(diagonal.ravel())
    return assembled(np.concatenate(rows), np.concatenate(cols), np.concatenate(values), n)


def tetrahedra(side, window, seed=2):
    """Linear elements on a cube of 6 side^3 tetrahedra with moved nodes. Windows of nodes are numbered at random."""
    rng = np.random.default_rng(seed)
    m = side + 1
    points = np.stack(np.meshgrid(*[np.arange(m)] * 3, indexing="ij"), -1).reshape(-1, 3).astype(float)
    points += 0.25 * (rng.random(points.shape) - 0.5)
    base = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    at = base @ [m * m, m, 1]
    steps = [m * m, m, 1]
    cells = []
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        corner = np.cumsum([0] + [steps[k] for k in order])
        cells.append(at[:, None] + corner[None, :])
    cells = np.concatenate(cells)
    p = points[cells]
    edges = p[:, 1:] - p[:, :1]
    inverse = np.linalg.inv(edges)
    gradients = np.concatenate([-inverse.sum(2, keepdims=True), inverse], 2)
    volume = np.abs(np.linalg.det(edges)) / 6
    local = np.einsum("edi,edj,e->eij", gradients, gradients, volume)
    new = np.arange(m**3, dtype=np.int32)
    for first in range(0, m**3, window):
        rng.shuffle(new[first : first + window])
    i = np.repeat(new[cells], 4, 1).ravel()
    j = np.tile(new[cells], (1, 4)).ravel()
    values = local.ravel()
    border = (points.round() == 0).any(1) | (points.round() == side).any(1)
    border = border[np.argsort(new)]
    keep = ~(border[i] | border[j])
    ends = np.nonzero(border)[0].astype(np.int32)
    i, j = np.concatenate([i[keep], ends]), np.concatenate([j[keep], ends])
    return assembled(i, j, np.concatenate([values[keep], np.ones(len(ends))]), m**3)


def species(side, count=3):
    """`count` diffusing unknowns a node that react with one another."""
    a = diffusion(side, 10.0)
    a = a if CPU else a.get()
    reaction = 0.5 * (np.eye(count) * count - np.ones((count, count)))
    made = (sp.kron(a, sp.eye(count)) + sp.kron(sp.eye(a.shape[0]), reaction)).tocsr()
    return made if CPU else cs.csr_matrix(made)


def assembled(i, j, values, n):
    a = sp.coo_matrix((values, (i, j)), shape=(n, n)).tocsr()
    return a if CPU else cs.csr_matrix(a)


def wait():
    if not CPU:
        cp.cuda.Device().synchronize()


def timed(work, times):
    best = []
    for _ in range(times):
        wait()
        start = time.perf_counter()
        result = work()
        wait()
        best.append(time.perf_counter() - start)
    return min(best), result


def measure(a, settings, **more):
    n = a.shape[0]
    b = np.random.default_rng(3).standard_normal(n)
    b = b if CPU else cp.asarray(b)
    known = dict(rtol=1e-8, **(dict(device="cpu", threads=CPU) if CPU else dict(device="cuda")), **more)
    found = {"unknowns": n, "entries": int(a.nnz)}
    for name, precond in settings.items():
        if "block" in more and name == "bf16":
            continue  # blocks have no form in bf16
        krylith.solve(a, b, precond=precond, **known)  # compiles
        setup, solver = timed(lambda: krylith.Solver(a, precond=precond, **known), 1)
        solver.solve(b)
        solve, x = timed(lambda: solver.solve(b), 7)
        del solver
        whole, _ = timed(lambda: krylith.solve(a, b, precond=precond, **known), 3)
        norm = np.linalg.norm if CPU else cp.linalg.norm
        residual = float(norm(b - a @ (x.x if CPU else cp.asarray(x.x))) / norm(b))
        found[name] = {
            "setup": setup,
            "solve": solve,
            "whole": whole,
            "iterations": x.iterations,
            "outcome": str(x.outcome),
            "residual": residual,
            "levels_in_f32": levels_in_f32(str(x)) if name == "bf16" else None,
        }
    return found


def levels_in_f32(text):
    """The number of levels that a cycle in bf16 has in f32, from the description of the preconditioner."""
    found = re.search(r"(\d+) of \d+ levels? in f32", text)
    return int(found[1]) if found else 0


# For each preconditioner and each setting, the keywords of a solver.
APPLICATIONS = {
    "amg": {
        "f64": dict(precond="amg:compute=f64"),
        "stored": dict(precond="amg:precision=f32"),
        "f32": dict(precond="amg:compute=f32"),
        "bf16": dict(precond="amg:compute=bf16"),
    },
    **{
        name: {
            "f64": dict(precond=name),
            "stored": dict(precond=name, precision="f32"),
            "f32": dict(precond=name, precond_precision="f32"),
        }
        for name in ("ildu", "ras:solve=exact", "ras:solve=jacobi,gamma=5", "ras:solve=random,gamma=5")
    },
}
# Largest distance from the result in f64, relative to its norm. Randomized sweeps differ from run to run.
TOLERANCE, OF_BF16, OF_RANDOM = 1e-4, 0.03, 0.3
# Applications of one measurement.
TIMES = 50


def number(text):
    return float(re.sub(r"[^\d.]", "", text))


def blocks_of(a, b):
    """The number of b×b blocks that have an entry."""
    a = (a if CPU else a.get()).tocoo()
    return len(np.unique(a.row.astype(np.int64) // b * a.shape[1] + a.col // b))


def bytes_of_application(name, setting, a, b, text):
    """The bytes that one application must move. A cycle is a lower bound: its smoothing steps alone.

    `text` describes the preconditioner: the blocks that it drops, or the levels of a hierarchy. Each block of a factor
    has a column of 2 bytes. Columns of a hierarchy have 4 bytes, and those of its finest level are not counted,
    because diagonals need none. In bf16 the finest level is taken without its main diagonal, and the others have theirs
    in f32 beside the entries.
    """
    n, nodes, blocks = a.shape[0], a.shape[0] // b, blocks_of(a, b)
    value = {"f64": 8, "bf16": 2}.get(setting, 4)
    of_vector = 4 if setting in ("f32", "bf16") else 8
    if name == "amg":
        degree = int(re.search(r"Chebyshev\((\d+)\)", text)[1])
        found = 0
        levels = re.findall(r"level (\d+): ([\d\s]+) nodes?, ([\d\s]+) stored, [\d.]+ a row\n", text)
        for k, points, stored in levels:
            columns = 0 if k == "0" else 4
            matrix = number(stored) * (value * b**2 + columns)
            if setting == "bf16":
                matrix += (4 if columns else -2) * number(points)
            found += (2 * degree - 1) * matrix + 2 * degree * 4 * of_vector * number(points) * b
        return found + 16 * n
    if name == "ildu":
        dropped = number(re.search(r"([\d.]+) % of the blocks dropped", text)[1]) / 100
        return blocks * (1 - dropped) * (value * b**2 + 2) + 16 * n + 4 * nodes
    sweeps = 5 if "jacobi" in name else 1
    triangles = (blocks - nodes) * (value * b**2 + 2)
    once = triangles + 16 * nodes + 4 * of_vector * n
    return sweeps * once + nodes * value * b**2 + 8 * nodes + (16 + 4 * of_vector) * n


def bandwidth():
    """Bytes per second of a copy, which reads and writes 1 GiB; on a CPU that of one thread."""
    xp = np if CPU else cp
    x = xp.ones(2**27)
    y = xp.empty_like(x)
    seconds, _ = timed(lambda: xp.copyto(y, x), 5)
    return 2 * x.nbytes / seconds


def measure_applications(a, copied, **more):
    """Times one application of each preconditioner in each setting.

    `Solver.precondition(x, out=y)` is called TIMES times, and each call waits. `seconds` is the mean time of a call, the
    best of seven. Besides the application, a call costs launches, the wait, and copies of x and y: 80 µs or more on a
    GPU, which overlap with an application in part. So shares of the bandwidth and ratios are lower bounds. Results are
    compared with those in f64 before they are timed.
    """
    n, b = a.shape[0], more.get("block", 1)
    x = np.random.default_rng(4).standard_normal(n)
    x = x if CPU else cp.asarray(x)
    y, xp = (np if CPU else cp).empty_like(x), np if CPU else cp
    where = dict(device="cpu", threads=CPU) if CPU else dict(device="cuda")
    known = dict(method="bicgstab", max_iters=2, **where, **more)
    warnings.simplefilter("ignore", krylith.ConvergenceWarning)  # two iterations do not converge

    def calls(solver):
        def run():
            for _ in range(TIMES):
                solver.precondition(x, out=y)

        solver.precondition(x, out=y)
        return timed(run, 7)[0] / TIMES

    found = {"unknowns": n, "entries": int(a.nnz)}
    wanted = sys.argv[sys.argv.index("--precond") + 1].split(",") if "--precond" in sys.argv else APPLICATIONS
    for name, settings in ((name, APPLICATIONS[name]) for name in wanted):
        if "block" in more and name == "amg" and CPU:
            continue  # blocks are computed in f32 on GPUs alone
        found[name], reference = {}, None
        for setting, options in settings.items():
            if "block" in more and setting == "bf16":
                continue  # blocks have no form in bf16
            solver = krylith.Solver(a, **known, **options)
            text = str(solver.solve(x))
            solver.precondition(x, out=y)
            reference = y.copy() if reference is None else reference
            distance = float(xp.linalg.norm(y - reference) / xp.linalg.norm(reference))
            limit = OF_RANDOM if "random" in name else OF_BF16 if setting == "bf16" else TOLERANCE
            assert distance <= limit, f"{name} in {setting} differs from f64 by {distance:e}"
            seconds, moved = calls(solver), bytes_of_application(name, setting, a, b, text)
            found[name][setting] = {
                "seconds": seconds,
                "bytes": moved,
                "share": moved / seconds / copied if CPU <= 1 else None,
                "distance": distance,
                "promoted": "too large for f32" in text,
                "levels_in_f32": levels_in_f32(text) if setting == "bf16" else None,
            }
            del solver
        of = found[name]
        for setting in of:
            of[setting]["ratio"] = of["f64"]["seconds"] / of[setting]["seconds"]
    return found


def applications(out, systems, device):
    results = {"device": device, "krylith": krylith.__version__, "bandwidth": bandwidth(), "systems": {}}
    for name, make in systems.items():
        found = measure_applications(make(), results["bandwidth"], **({"block": 3} if "species" in name else {}))
        results["systems"][name] = found
        print(f"{name}: {found['unknowns']} unknowns, {found['entries']} entries")
        for precond, of in found.items():
            for setting, v in of.items() if isinstance(of, dict) else ():
                share = f", {100 * v['share']:.0f} % of a copy" if v["share"] else ""
                text = f"{1e6 * v['seconds']:.1f} µs, {v['bytes'] / 1e6:.1f} MB{share}, x{v['ratio']:.2f}"
                print(f"  {precond} {setting}: {text}, {v['distance']:.1e} from f64", flush=True)
        with open(out, "w") as f:
            json.dump(results, f, indent=1)


def main():
    out, small = sys.argv[1], "--small" in sys.argv
    systems = {
        "laplace 128": lambda: diffusion(128),
        "laplace 256": lambda: diffusion(256),
        "contrast 128": lambda: diffusion(128, 1e4),
        "convection 128": lambda: diffusion(128, 1.0, 0.5),
        "tetrahedra 64": lambda: tetrahedra(64, 4096),
        "tetrahedra 100": lambda: tetrahedra(100, 4096),
        "tetrahedra 100 at random": lambda: tetrahedra(100, 10**9),
        "three species 64": lambda: species(64),
        "three species 100": lambda: species(100),
    }
    if small:
        systems = {
            "laplace 32": lambda: diffusion(32),
            "tetrahedra 12": lambda: tetrahedra(12, 500),
            "three species 16": lambda: species(16),
        }
    device = f"{CPU} threads" if CPU else cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    if CPU and not small:
        systems = {
            "laplace 64": lambda: diffusion(64),
            "laplace 100": lambda: diffusion(100),
            "contrast 64": lambda: diffusion(64, 1e4),
            "convection 64": lambda: diffusion(64, 1.0, 0.5),
            "tetrahedra 48": lambda: tetrahedra(48, 4096),
            "tetrahedra 80": lambda: tetrahedra(80, 4096),
        }
    if "--only" in sys.argv:
        only = sys.argv[sys.argv.index("--only") + 1]
        systems = {only: systems[only]}
    if "--applications" in sys.argv:
        return applications(out, systems, device)
    results = {"device": device, "krylith": krylith.__version__, "systems": {}}
    for name, make in systems.items():
        found = measure(make(), SETTINGS, **({"block": 3} if "species" in name else {}))
        results["systems"][name] = found
        ratios = [found[k]["solve"] / found["f32"]["solve"] for k in ("f64", "stored")]
        wholes = [found[k]["whole"] / found["f32"]["whole"] for k in ("f64", "stored")]
        named = [(k, v) for k, v in found.items() if isinstance(v, dict)]
        each = ", ".join(f"{k} {1e3 * v['solve']:.2f} ms in {v['iterations']}" for k, v in named)
        texts = [f"x{solve:.2f} x{whole:.2f}" for solve, whole in zip(ratios, wholes)]
        print(f"{name}: {each}; solve and whole over f64 {texts[0]}, over stored {texts[1]}", flush=True)
        if "bf16" in found:
            solve, whole = (found["f32"][k] / found["bf16"][k] for k in ("solve", "whole"))
            print(f"  bf16 over f32: x{solve:.2f} x{whole:.2f}", flush=True)
        with open(out, "w") as f:
            json.dump(results, f, indent=1)


main()
