"""Times field preconditioners on the systems of `systems.py`: python run.py CASE SIZE DEVICE[,DEVICE] prints JSON."""

import json
import sys
import time
import warnings

import numpy as np
from systems import CASES

import krylith


def main():
    case, size, devices = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
    make, precond, options = CASES[case]
    a, b, fields, matrices = make(size)
    warnings.simplefilter("ignore")
    given = dict(precond=precond, fields=fields, matrices=matrices, rtol=1e-8, method="auto", restart=50) | options
    for device in devices:
        out = {"case": case, "size": size, "device": device, "unknowns": a.shape[0], "entries": int(a.nnz), "precond": precond}
        print(json.dumps(out | timed(a, b, given | {"device": device})), flush=True)


def timed(a, b, given):
    out = {}
    wall, cpu = time.perf_counter(), time.process_time()
    solver = krylith.Solver(a, **given)
    out["first_setup"] = time.perf_counter() - wall
    times = []
    for _ in range(3):
        wall = time.perf_counter()
        s = solver.solve(b)
        times.append(time.perf_counter() - wall)
    out["solve"] = sorted(times)[1]
    out["cpu"] = time.process_time() - cpu
    wall = time.perf_counter()
    again = krylith.Solver(a, **given)
    out["second_setup"] = time.perf_counter() - wall
    wall = time.perf_counter()
    solver.update_values(a)
    out["update"] = time.perf_counter() - wall
    del again
    out |= {"iterations": s.iterations, "outcome": s.outcome, "method": str(s.method)}
    out["residual"] = float(np.linalg.norm(b - a @ s.x) / np.linalg.norm(b))
    return out


if __name__ == "__main__":
    main()
