"""Krylith's bare call beside named ways, PETSc and MUMPS: `python3 bare.py [NAME …]` prints a table.

Each solve runs in a process of its own on one thread, to a relative residual of 1e-8 that is recomputed with SciPy.
Bare means `kr.solve(a, b)` with a tolerance only. Times are process CPU seconds with the set-up, the median of three
runs, which alternate between the programs. `KRYLITH_FEM` names the folder of the assembled systems.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import peers

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 300
P2 = peers.P2
MASS = peers.SCHUR + "-fieldsplit_p_pc_type jacobi"
ILU = "-ksp_type gmres -ksp_pc_side right -ksp_gmres_restart 100 -pc_type ilu -pc_factor_levels "
FLOW = [f"split(u: {P2.format(d=d)}, p: chebyshev(jacobi); schur=upper, S=Mp)" for d in (2, 3)]
POROUS = f"split(u: {P2.format(d=3)}, p: amg; schur=upper, S=Sp)"
DARCY = "split(w: chebyshev(jacobi), p: amg; schur=upper, S=selfp)"
#: Name: system, size, the best named way, PETSc's options, the matrix of its Schur complement, MUMPS or not.
CASES = {
    "darcy-25": ("darcy", 11, DARCY, peers.DARCY, "", True),
    "darcy-107": ("darcy", 18, DARCY, peers.DARCY, "", False),
    "twophase-19": ("twophase", 27, "cpr(p: amg) then ildu", ILU + "0", "", True),
    "twophase-97": ("twophase", 46, "cpr(p: amg) then ildu", ILU + "0", "", False),
    "stokes3d-22": ("stokes3d", 9, FLOW[1], MASS, "Mp", True),
    "stokes3d-113": ("stokes3d", 16, FLOW[1], MASS, "Mp", False),
    "stokes2d-98": ("stokes2d", 104, FLOW[0], MASS, "Mp", True),
    "enclosed2d-21": ("enclosed2d", 48, FLOW[0], MASS, "Mp", False),
    "enclosed3d-22": ("enclosed3d", 9, FLOW[1], MASS, "Mp", False),
    "elasticity-21": ("elasticity", 7, FLOW[1], MASS, "Mp", True),
    "biot-22": ("biot", 9, POROUS, peers.SCHUR + "-fieldsplit_p_pc_type hypre", "Sp", True),
    "biot-113": ("biot", 16, POROUS, peers.SCHUR + "-fieldsplit_p_pc_type hypre", "Sp", False),
    "reaction6-21": ("reaction6", 58, "ildu", ILU + "0", "", True),
    "reaction9-22": ("reaction9", 48, "ildu", ILU + "0", "", True),
    "cahn-hilliard-20": ("cahn-hilliard", 100, "ildu", ILU + "1", "", True),
    "supg3d-20": ("supg3d", 26, "ildu", ILU + "0", "", False),
    "bodies3d-1e6-8": ("bodies3d-1e6-8", 9, None, None, "", True),
}


def bare(folder):
    import krylith as kr

    a, b, _, _ = peers.load(folder)
    start = time.process_time()
    s = kr.solve(a, b, rtol=1e-8, threads=1, device="cpu")
    seconds = time.process_time() - start
    tried = [e.detail for e in s.events if e.kind == "fallback"]
    return seconds, s.iterations, a, b, s.x, f"{s.precond} with {s.method}; {s.outcome}; {len(tried)} fallbacks"


def one(who, folder, spec, schur):
    import numpy as np

    if who == "bare":
        seconds, iterations, a, b, x, what = bare(folder)
    elif who == "krylith":
        seconds, iterations, a, b, x, what = peers.krylith(folder, spec)
    else:
        seconds, iterations, a, b, x, what = peers.petsc(folder, spec, schur or None)
    residual = float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))
    print(json.dumps({"seconds": seconds, "iterations": iterations, "residual": residual, "what": what, "unknowns": len(b)}))


def main():
    if len(sys.argv) > 3 and sys.argv[1] in ("bare", "krylith", "petsc"):
        return one(*sys.argv[1:5])
    names, cache = sys.argv[1:] or list(CASES), os.environ.get("KRYLITH_FEM", "fem-systems")
    limits = {key: "1" for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    for name in names:
        system, size, precond, options, schur, direct = CASES[name]
        folder = f"{cache}/{system}-{size}"
        if not os.path.exists(f"{folder}/fields.npz"):
            command = [sys.executable, f"{HERE}/more.py", system, str(size), folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        runs = {"bare": ("bare", ""), "named": ("krylith", precond), "PETSc": ("petsc", options), "MUMPS": ("petsc", peers.MUMPS)}
        left_out = {"named": precond is None, "PETSc": options is None, "MUMPS": not direct}
        runs = {label: run for label, run in runs.items() if not left_out.get(label)}
        results = {label: [] for label in runs}
        for turn in range(3):
            for label, (who, spec) in runs.items():
                # What takes half a minute or fails is run once.
                if turn > 0 and results[label][0].get("seconds", 1e9) > 30:
                    continue
                command = [sys.executable, __file__, who, folder, spec, schur if label == "PETSc" else ""]
                try:
                    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | limits, timeout=LIMIT)
                    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
                    why = " ".join(done.stderr.strip().splitlines()[-1:])
                    results[label].append(json.loads(lines[-1]) if lines else {"error": why})
                except subprocess.TimeoutExpired:
                    results[label].append({"error": f"more than {LIMIT} s"})
        for label, all_runs in results.items():
            good = [r for r in all_runs if "seconds" in r]
            out = {"case": name, "program": label, "way": runs[label][1]}
            if not good:
                print(json.dumps(out | {"error": all_runs[0]["error"]}), flush=True)
                continue
            out |= {"unknowns": good[0]["unknowns"], "seconds": round(statistics.median(r["seconds"] for r in good), 3)}
            out |= {"all": [round(r["seconds"], 3) for r in good], "iterations": good[0]["iterations"]}
            print(json.dumps(out | {"residual": good[0]["residual"], "what": good[0]["what"]}), flush=True)


if __name__ == "__main__":
    main()
