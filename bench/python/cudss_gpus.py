"""Direct factors on several GPUs of one process: Krylith's `lu:over=gpus` beside one GPU, and beside cuDSS.

    KRYLITH_CUDSS=…/libcudss.so.1 python3 bench/python/cudss_gpus.py OUT.json [--small]

Seconds of wall clock: the first factors of a second solver, the best of three factorisations of new values and of five
solves. Megabytes: what each GPU has more after the factors, without the matrix for direct calls. Krylith's solves are
certified.
"""

import json
import pathlib
import sys

import cupy as cp
import cudss
import krylith
import numpy as np
import scipy.sparse as sp
from cupyx.scipy.sparse import csr_matrix

GPUS = list(range(cp.cuda.runtime.getDeviceCount()))


def wait():
    for gpu in GPUS:
        with cp.cuda.Device(gpu):
            cp.cuda.Device().synchronize()


def used():
    out = []
    for gpu in GPUS:
        with cp.cuda.Device(gpu):
            free, total = cp.cuda.runtime.memGetInfo()
            out.append((total - free) / 1e6)
    return np.array(out)


def direct(a, kind, b, devices):
    before = used()
    c = cudss.Cudss(a, kind, devices)
    try:
        c.b[:] = b
        row = {"analysis": cudss.timed(lambda: c.run(cudss.ANALYSIS))[0]}
        row["factors"] = cudss.timed(lambda: c.run(cudss.FACTORS))[0]
        row["megabytes"] = (used() - before).tolist()
        row["solve"] = min(cudss.timed(lambda: c.run(cudss.SOLVE))[0] for _ in range(5))
        row["residual"] = cudss.residual(a, b, c.x)
        row["new_values"] = min(cudss.timed(lambda: c.run(cudss.NEW_FACTORS))[0] for _ in range(3))
        return row
    finally:
        c.close()


def ours(host, b, device, precond):
    options = dict(device=device, precond=precond, rtol=1e-10)
    krylith.Solver(host, **options).solve(b)
    wait()
    before = used()
    first, solver = cudss.timed(lambda: krylith.Solver(host, **options))
    megabytes = (used() - before).tolist()
    solution = solver.solve(b)
    row = {"first": first, "megabytes": megabytes, "outcome": solution.outcome, "precond": solution.precond}
    row["details"] = repr(solution)
    row["residual"] = float(np.linalg.norm(b - host @ solution.x) / np.linalg.norm(b))
    row["solve"] = min(cudss.timed(lambda: solver.solve(b))[0] for _ in range(5))
    row["new_values"] = min(cudss.timed(lambda: solver.update_values(host.data))[0] for _ in range(3))
    row["report"] = solution.report() if hasattr(solution, "report") else ""
    return row


def main():
    out, rows = pathlib.Path(sys.argv[1]), []
    many = "cuda:" + ",".join(map(str, GPUS))
    for name, make in cudss.systems("--small" in sys.argv, False, []):
        host = sp.csr_matrix(make())
        host.eliminate_zeros()
        host.sort_indices()
        kind, b = cudss.kind_of(host), np.random.default_rng(1).standard_normal(host.shape[0])
        a, row = csr_matrix(host), {"system": name, "kind": kind, "unknowns": host.shape[0]}
        ways = {
            "cuDSS, one GPU": lambda: direct(a, kind, cp.asarray(b), ()),
            "cuDSS, all GPUs": lambda: direct(a, kind, cp.asarray(b), GPUS),
            "cuda:0": lambda: ours(host, b, "cuda:0", "lu"),
            f"{many} over=one": lambda: ours(host, b, many, "lu:over=one"),
            f"{many} over=gpus": lambda: ours(host, b, many, "lu:over=gpus"),
        }
        for way, run in ways.items():
            try:
                row[way] = r = run()
                parts = [
                    f"{key} {r[key]:.3g}"
                    for key in ("analysis", "factors", "first", "new_values", "solve", "residual")
                    if key in r
                ]
                print(f"{name}, {way}: " + ", ".join(parts), [round(m) for m in r["megabytes"]], flush=True)
            except Exception as e:  # noqa: BLE001 - a failure is a result
                row[way] = {"error": str(e)}
                print(f"{name}, {way}: {e}", flush=True)
        rows.append(row)
        out.write_text(json.dumps(rows, indent=1))
        del a
        cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
