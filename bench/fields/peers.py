"""Krylith beside PETSc and MUMPS on the systems of fem.py: `python3 peers.py [NAME …]` prints a table.

Each solve runs in a process of its own on one thread, to a relative residual of 1e-8 that is recomputed. Times are
process CPU seconds with the set-up, the median of three runs, which alternate between the programs.
"""

import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
P2 = "symmetric(chebyshev(jacobi:block=1; degree=3, low=0.2) then aux(P: amg; block={d}))"
HX = "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) + aux(Py: amg) + aux(Pz: amg))"
SPLIT = "-ksp_type fgmres -ksp_gmres_restart 100 -pc_type fieldsplit -pc_fieldsplit_type schur "
SCHUR = SPLIT + "-pc_fieldsplit_schur_fact_type upper -fieldsplit_u_ksp_type preonly -fieldsplit_p_ksp_type preonly -fieldsplit_u_pc_type gamg "
DARCY = SPLIT + "-pc_fieldsplit_schur_fact_type full -pc_fieldsplit_schur_precondition selfp -fieldsplit_w_ksp_type preonly "
DARCY += "-fieldsplit_w_pc_type icc -fieldsplit_p_ksp_type preonly -fieldsplit_p_pc_type hypre"
LSC = SPLIT + "-pc_fieldsplit_schur_fact_type upper -fieldsplit_u_ksp_type preonly -pc_fieldsplit_schur_precondition self "
LSC += "-fieldsplit_p_ksp_type preonly -fieldsplit_p_pc_type lsc -fieldsplit_p_lsc_ksp_type preonly -fieldsplit_p_lsc_pc_type hypre "
FACTORS = SPLIT + "-pc_fieldsplit_schur_fact_type upper -fieldsplit_u_ksp_type preonly -fieldsplit_u_pc_type lu "
FACTORS += "-fieldsplit_u_pc_factor_mat_solver_type mumps -fieldsplit_p_ksp_type preonly -fieldsplit_p_pc_type jacobi"
#: For contrasts: linear elements with direct factors, and the smoother that suits them.
BODIES = "symmetric(ildu:cut=whole then aux(P: lu; block={d}))"
AMS = "-ksp_type cg -ksp_norm_type unpreconditioned -pc_type hypre -pc_hypre_type ams"
MUMPS = "-ksp_type gmres -ksp_pc_side right -pc_type lu -pc_factor_mat_solver_type mumps -mat_mumps_icntl_14 60"
#: Name: system, size, Krylith's preconditioner, PETSc's options, the matrix of its Schur complement. Without
#: options the case is another preconditioner for a system that stands above it; with empty ones, only MUMPS
#: stands beside it.
CASES = {
    "stokes2d": ("stokes2d", 104, f"split(u: {P2.format(d=2)}, p: chebyshev(jacobi); schur=upper, S=Mp)", SCHUR + "-fieldsplit_p_pc_type jacobi", "Mp"),
    "stokes3d": ("stokes3d", 16, f"split(u: {P2.format(d=3)}, p: chebyshev(jacobi); schur=upper, S=Mp)", SCHUR + "-fieldsplit_p_pc_type jacobi", "Mp"),
    "biot": ("biot", 16, f"split(u: {P2.format(d=3)}, p: amg; schur=upper, S=Sp)", SCHUR + "-fieldsplit_p_pc_type hypre", "Sp"),
    "elasticity": ("elasticity", 7, f"split(u: {P2.format(d=3)}, p: chebyshev(jacobi); schur=upper, S=Mp)", SCHUR + "-fieldsplit_p_pc_type jacobi", "Mp"),
    "darcy": ("darcy", 18, "split(w: ildu, p: amg; schur=full, S=selfp)", DARCY, None),
    "darcy fast": ("darcy", 18, "split(w: chebyshev(jacobi), p: amg; schur=upper, S=selfp)", None, None),
    "darcy few": ("darcy", 18, "split(w: chebyshev(jacobi), p: amg:aggressive=0,degree=3; schur=upper, S=selfp)", None, None),
    "darcy-1e6": ("darcy-1e6", 18, "split(w: chebyshev(jacobi), p: amg; schur=upper, S=selfp)", DARCY, None),
    "darcy-slanted": ("darcy-slanted", 18, "split(w: ildu:cut=whole, p: amg:aggressive=0,degree=3; schur=full, S=lsc)", DARCY, None),
    "curlcurl": ("curlcurl", 23, HX, AMS, None),
    "iron": ("iron", 14, HX, AMS, None),
}
for _d, _size, _options in ((2, 48, FACTORS), (3, 9, LSC + "-fieldsplit_u_pc_type gamg")):
    for _e in (4, 6, 8):
        for _n in (8, 24):
            _name, _u = f"bodies{_d}d-1e{_e}-{_n}", BODIES.format(d=_d)
            _last = {"S=Mp": "chebyshev(jacobi)", "S=lsc": "lu", "S=lsc(Q)": "lu"}
            _best = "S=Mp" if _d == 2 else "S=lsc"
            if _d == 3 and _n == 8:
                # GAMG does not converge for these.
                _options = LSC + "-fieldsplit_u_pc_type cholesky -fieldsplit_u_pc_factor_mat_solver_type mumps"
            elif _d == 3:
                _options = LSC + "-fieldsplit_u_pc_type gamg"
            CASES[_name] = (_name, _size, f"split(u: {_u}, p: {_last[_best]}; schur=upper, {_best})", _options, "Mp" if _d == 2 else None)
            for _s, _p in _last.items():
                CASES[f"{_name} cg {_s}"] = (_name, _size, f"split(u: cg({_u}; iterations=10), p: {_p}; schur=upper, {_s})", None, None)
for _re in (100, 500):
    _name = f"oseen-{_re}"
    CASES[_name] = (_name, 9, "split(u: ildu, p: amg; schur=upper, S=lsc)", LSC + "-fieldsplit_u_pc_type ilu", None)
    CASES[f"{_name} ras"] = (_name, 9, "split(u: ras, p: amg; schur=upper, S=lsc)", None, None)
    CASES[f"{_name} pcd"] = (_name, 9, "split(u: ildu:cut=whole, p: amg; schur=upper, S=pcd(Fp, Lp, Mp))", None, None)
    _name += "-augmented"
    CASES[_name] = (_name, 9, "split(u: lu, p: jacobi; schur=upper, S=Mp)", FACTORS, "Mp")
for _k in ("1", "1e-6", "1e-12"):
    for _nu in ("0.2", "0.4999"):
        _u = P2.format(d=3) if _nu == "0.2" else "lu"
        _three = f"split(u+w: split(u: {_u}, w: chebyshev(jacobi); form=diagonal), p: lu; schur=upper, S=lsc)"
        CASES[f"biot3-{_k}-{_nu}"] = (f"biot3-{_k}-{_nu}", 9, _three, "", None)
ILU = "-ksp_type gmres -ksp_pc_side right -ksp_gmres_restart 100 -pc_type ilu -pc_factor_levels 1"
for _name in ("blackoil", "blackoil-barely", "twophase-wells"):
    CASES[_name] = (_name, 20, "cpr(p: amg) then ildu:cut=whole,fill=1", ILU, None)
    _rest = "p+sw" if "two" in _name else "p+sw+sg"
    _wells = f"split(wells: jacobi, {_rest}: cpr(p: amg) then ildu:cut=whole; schur=upper, S=selfp)"
    CASES[f"{_name} wells"] = (_name, 20, _wells, None, None)
    CASES[f"{_name} 30"] = (_name, 30, "cpr(p: amg) then ildu:cut=whole,fill=1", None, None)


def load(folder):
    import numpy as np
    import scipy.sparse as sp

    a, b = sp.load_npz(f"{folder}/A.npz").tocsr(), np.load(f"{folder}/b.npy")
    known = np.load(f"{folder}/fields.npz")
    fields = {k: {"unknowns": known[k], "block": int(known[f"block_{k}"])} for k in known.files if not k.startswith("block_")}
    if os.path.exists(f"{folder}/u_modes.npy"):
        fields["u"]["near_nullspace"] = np.load(f"{folder}/u_modes.npy")
    names = [f[:-4] for f in os.listdir(folder) if f.endswith(".npz") and f not in ("A.npz", "fields.npz")]
    return a, b, fields, {name: sp.load_npz(f"{folder}/{name}.npz").tocsr() for name in names}


def krylith(folder, precond):
    import krylith as kr

    a, b, fields, matrices = load(folder)
    start, method = time.process_time(), "fgmres" if "cg(" in precond else "auto"
    more = dict(fields=fields or None, matrices=matrices, rtol=1e-8, threads=1, device="cpu", method=method, restart=100)
    s = kr.solve(a, b, precond=precond, **more)
    return time.process_time() - start, s.iterations, a, b, s.x, f"{s.method}"


def with_diagonal(a):
    """The matrix with a stored zero where a diagonal entry is missing: PETSc's incomplete factors need one."""
    import numpy as np
    import scipy.sparse as sp

    missing, parts = np.flatnonzero(a.diagonal() == 0), a.tocoo()
    rows, cols = np.r_[parts.row, missing], np.r_[parts.col, missing]
    return sp.csr_matrix((np.r_[parts.data, np.zeros(len(missing))], (rows, cols)), shape=a.shape)


def petsc(folder, options, schur, block=1):
    """PETSc's solve. With `block` above 1, the incomplete factors are of blocks, and GAMG knows the block size."""
    import numpy as np
    import petsc4py

    petsc4py.init(["x", *options.split()])
    from petsc4py import PETSc

    a, b, fields, matrices = load(folder)
    order = np.arange(a.shape[0])
    if "fieldsplit" in options:
        order = np.concatenate([f["unknowns"] for f in fields.values()])
        a, b = a[order][:, order].tocsr(), b[order]
    a.sort_indices()

    def matrix(m, block=None):
        return PETSc.Mat().createAIJ(m.shape, csr=(m.indptr.astype("i4"), m.indices.astype("i4"), m.data), bsize=block)

    # A code that uses these would assemble blocks and the diagonal itself, so that is not timed.
    incomplete = PETSc.Options().getString("pc_type", "") in ("ilu", "icc")
    in_blocks = incomplete and block > 1
    stored = a.tobsr((block, block)) if in_blocks else with_diagonal(a) if incomplete else a
    stored.sort_indices()
    start = time.process_time()
    if in_blocks:
        parts = (stored.indptr.astype("i4"), stored.indices.astype("i4"), stored.data)
        operator = PETSc.Mat().createBAIJ(stored.shape, block, csr=parts)
    else:
        operator = matrix(stored, block)
    ksp = PETSc.KSP().create()
    ksp.setOperators(operator)
    ksp.setTolerances(rtol=1e-8, max_it=1500)
    ksp.setFromOptions()
    pc = ksp.getPC()
    if pc.getType() == "fieldsplit":
        at = 0
        for name, field in fields.items():
            n = len(field["unknowns"])
            index = PETSc.IS().createStride(n, at, 1)
            index.setBlockSize(field["block"])
            if "near_nullspace" in field:
                q, _ = np.linalg.qr(field["near_nullspace"])
                vectors = [PETSc.Vec().createWithArray(np.ascontiguousarray(q[:, k])) for k in range(q.shape[1])]
                index.compose("nearnullspace", PETSc.NullSpace().create(vectors=vectors))
            pc.setFieldSplitIS((name, index))
            at += n
        if schur:
            pc.setFieldSplitSchurPreType(PETSc.PC.SchurPreType.USER, matrix(matrices[schur]))
    if "ams" in options:
        pc.setHYPREDiscreteGradient(matrix(matrices["G"]))
        ones = [matrices[k] @ np.ones(matrices[k].shape[1]) for k in ("Px", "Py", "Pz")]
        pc.setHYPRESetEdgeConstantVectors(*[PETSc.Vec().createWithArray(v) for v in ones])
    x, rhs = operator.createVecs()
    rhs[:] = b
    ksp.solve(rhs, x)
    return time.process_time() - start, ksp.getIterationNumber(), a, b, x.array.copy(), "PETSc"


def one(who, folder, spec, schur):
    import numpy as np

    seconds, iterations, a, b, x, what = krylith(folder, spec) if who == "krylith" else petsc(folder, spec, schur or None)
    residual = float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))
    print(json.dumps({"seconds": seconds, "iterations": iterations, "residual": residual, "what": what, "unknowns": len(b)}))


def main():
    if len(sys.argv) > 3 and sys.argv[1] in ("krylith", "petsc"):
        return one(*sys.argv[1:5])
    names, cache = sys.argv[1:] or list(CASES), os.environ.get("KRYLITH_FEM", "fem-systems")
    limits = {key: "1" for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    for name in names:
        system, size, precond, options, schur = CASES[name]
        folder = f"{cache}/{system}-{size}"
        if not os.path.exists(f"{folder}/fields.npz"):
            subprocess.run([sys.executable, f"{HERE}/fem.py", system, str(size), folder], check=True, stdout=subprocess.DEVNULL)
        runs = {"Krylith": ("krylith", precond)} | ({"PETSc": ("petsc", options)} if options else {})
        # Factors of larger systems in 3-D take minutes.
        if options is not None and len(load(folder)[1]) < 100_000:
            runs["MUMPS"] = ("petsc", MUMPS)
        results = {label: [] for label in runs}
        for _ in range(3):
            for label, (who, spec) in runs.items():
                command = [sys.executable, __file__, who, folder, spec, schur if label == "PETSc" and schur else ""]
                done = subprocess.run(command, capture_output=True, text=True, env=os.environ | limits, timeout=600)
                lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
                results[label].append(json.loads(lines[-1]) if lines else {"error": done.stderr.strip().splitlines()[-1:]})
        for label, all_runs in results.items():
            good = [r for r in all_runs if "seconds" in r]
            if not good:
                print(json.dumps({"case": name, "program": label, "error": all_runs[0]["error"]}), flush=True)
                continue
            middle = statistics.median(r["seconds"] for r in good)
            out = {"case": name, "program": label, "precond": runs[label][1], "unknowns": good[0]["unknowns"], "seconds": round(middle, 3)}
            out |= {"all": [round(r["seconds"], 3) for r in good], "iterations": good[0]["iterations"], "residual": good[0]["residual"]}
            print(json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
