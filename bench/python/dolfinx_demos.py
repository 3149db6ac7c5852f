"""The demos of dolfinx 0.5 with their own solvers, and with the types of krylith.petsc: norms and processor seconds.

    PYTHONPATH=FOLDER-OF-KRYLITH /usr/bin/python3 bench/python/dolfinx_demos.py DEMOS [OUT.json]
    PETSC_OPTIONS="-dll_append libkrylith_petsc.so" /usr/bin/python3 bench/python/dolfinx_demos.py DEMOS [OUT.json]

With `libkrylith_petsc` in PETSC_OPTIONS, the types are those in C, and the Stokes program is left out.
DEMOS is the folder of demo_*.py: /usr/share/dolfinx/demo-python of Debian's dolfinx-doc. Each demo runs on one process
and on two ranks. It passes if it ends without an error, and if each norm that it prints agrees with one that it prints
with its own solver, to six digits or to 1e-12. A time is the processor time of the whole demo on all ranks, mesh, forms
and output included. Then the Stokes program of docs/petsc.md follows, with its split and with `auto`. The exit status
is 1 if a demo passes with its own solver alone.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

KSP = '"ksp_type": "python", "ksp_python_type": "krylith.petsc.KSP", "ksp_rtol": 1e-12'
DIRECT = ('"ksp_type": "preonly", "pc_type": "lu"', KSP)
SETS_DIRECT = (
    'ksp.setType("preonly")\nksp.getPC().setType("lu")\nksp.getPC().setFactorSolverType("superlu_dist")',
    'ksp.setType("python")\nksp.setPythonContext(krylith.petsc.KSP(precond="lu"))\nksp.setTolerances(rtol=1e-9)',
)
INNER = (
    'ksp_u.getPC().setType("gamg")',
    'ksp_u.getPC().setType("python"), ksp_u.getPC().setPythonContext(krylith.petsc.PC(precond="amg"))',
)
#: The types in C in the place of those in Python.
IN_C = (
    ("import mpi4py.MPI\nimport krylith.petsc\n", "import mpi4py.MPI\n"),
    ('"ksp_type": "python", "ksp_python_type": "krylith.petsc.KSP"', '"ksp_type": "krylith"'),
    ('opts["ksp_type"] = "python"; opts["ksp_python_type"] = "krylith.petsc.KSP"', 'opts["ksp_type"] = "krylith"'),
    ('opts["pc_type"] = "python"; opts["pc_python_type"] = "krylith.petsc.PC"', 'opts["pc_type"] = "krylith"'),
    ('ksp_type"] = "python"; opts[f"{option_prefix}ksp_python_type"] = "krylith.petsc.KSP"', 'ksp_type"] = "krylith"'),
    ('solver.setType("python"); solver.setPythonContext(krylith.petsc.KSP())', 'solver.setType("krylith")'),
    ('ksp.setType("python")\nksp.setPythonContext(krylith.petsc.KSP(precond="lu"))',
     'PETSc.Options()["krylith_precond"] = "lu"\nksp.setType("krylith")\nksp.setFromOptions()'),
    ('ksp_u.getPC().setType("python"), ksp_u.getPC().setPythonContext(krylith.petsc.PC(precond="amg"))',
     'PETSc.Options()["krylith_precond"] = "amg"; ksp_u.getPC().setType("krylith"); ksp_u.getPC().setFromOptions()'),
)
#: A norm for demos that print none.
PRINTS = {
    "demo_poisson": "print('norm', uh.x.norm())\n",
    "demo_cahn-hilliard": "print('norm', u.x.norm())\n",
    "demo_static-condensation": "print('norm', uc.x.norm())\n",
}
#: What makes two runs the same: a tolerance for six digits, and values that depend on the place alone.
SAME = {
    "demo_static-condensation": ("solver.setOperators(A_cond)", "solver.setOperators(A_cond); solver.setTolerances(rtol=1e-10)"),
    "demo_cahn-hilliard": ("np.random.rand(x.shape[1])", "np.modf(abs(1e4 * np.sin(12.9898 * x[0] + 78.233 * x[1])))[0]"),
}
#: The lines that change in each demo: the PC, where PETSc iterates, and the KSP.
CHANGES = {
    "demo_poisson": {"KSP": [DIRECT]},
    "demo_helmholtz": {"KSP": [DIRECT]},
    "demo_elasticity": {
        "PC": [('opts["pc_type"] = "gamg"', 'opts["pc_type"] = "python"; opts["pc_python_type"] = "krylith.petsc.PC"; opts["krylith_precond"] = "amg"')],
        "KSP": [('opts["ksp_type"] = "cg"', 'opts["ksp_type"] = "python"; opts["ksp_python_type"] = "krylith.petsc.KSP"; opts["krylith_precond"] = "amg"')],
    },
    "demo_stokes": {"PC": [INNER, SETS_DIRECT]},
    "demo_static-condensation": {
        "KSP": [("solver.solve(b, uc.vector)", 'solver.setType("python"); solver.setPythonContext(krylith.petsc.KSP()); solver.solve(b, uc.vector)')],
    },
    "demo_lagrange_variants": {"KSP": [DIRECT]},
    # Errors of the elements down to 1e-13 show that of the solver.
    "demo_tnt-elements": {"KSP": [(DIRECT[0], KSP.replace("1e-12", "1e-15"))]},
    "demo_cahn-hilliard": {
        "KSP": [('opts[f"{option_prefix}ksp_type"] = "preonly"', 'opts[f"{option_prefix}ksp_type"] = "python"; opts[f"{option_prefix}ksp_python_type"] = "krylith.petsc.KSP"')],
    },
}


def run(text, name, ranks, folder):
    """Run a demo; return its processor seconds, the numbers that it prints, and its error."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    words = [sys.executable, f"{name}.py"]
    if ranks > 1:
        words = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", str(ranks), *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (folder / "said").write_text(done.stdout, encoding="utf-8")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Lines that begin with a space are those of -ksp_view and -ksp_monitor.
    printed = re.findall(r"^(?!\s).*(?:[Nn]orm|error).*\s([-+]?(?:\d\S*|inf|nan))$", done.stdout, re.MULTILINE)
    norms = [float(number) for number in printed]
    return seconds, norms, done.stderr.strip().splitlines()[-1:] if done.returncode else []


def main():
    demos, out = pathlib.Path(sys.argv[1]), sys.argv[2:]
    rows, passes, in_c = [], True, "libkrylith_petsc" in os.environ.get("PETSC_OPTIONS", "")
    for name, kinds in CHANGES.items():
        own = (demos / f"{name}.py").read_text(encoding="utf-8") + PRINTS.get(name, "")
        own = own.replace(*SAME.get(name, ("\0", "")))
        for ranks in (1, 2):
            found = {}
            for kind, changes in {"own": [], **kinds}.items():
                text = own
                for old, new in changes:
                    assert old in text, (name, old)
                    text = text.replace(old, new)
                if changes:
                    text = "import mpi4py.MPI\nimport krylith.petsc\n" + text
                    for old, new in IN_C if in_c else ():
                        text = text.replace(old, new)
                    assert not in_c or "krylith.petsc" not in text, name
                with tempfile.TemporaryDirectory() as folder:
                    if (demos / "data").exists():
                        shutil.copytree(demos / "data", pathlib.Path(folder) / "data")
                    found[kind] = run(text, name, ranks, pathlib.Path(folder))
            for kind, (seconds, norms, error) in found.items():
                others = found["own"][1]
                near = bool(norms) and all(any(a == b or abs(a - b) <= 1e-6 * abs(b) + 1e-12 for b in others) for a in norms)
                passes = passes and (near and not error or bool(found["own"][2]))
                rows.append({"demo": name, "ranks": ranks, "solver": kind, "cpu_s": seconds, "norms": norms, "agree": near, "error": error})
                print(f"{name:26} {ranks} {kind:4} {seconds:7.2f} s  {'same' if near else 'DIFFERS'} {norms} {error}", flush=True)
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/petsc.md").read_text(encoding="utf-8")
    program = "".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1:])
    program = re.sub(r"^assert .*\n", "", program, flags=re.MULTILINE) + "print('its norm', ksp.its, x.norm())\n"
    for ranks in () if in_c else (1, 2):
        for kind in ("split", "auto"):
            text = program if kind == "split" else re.sub(r'^options\["flow_krylith_.*\n', "", program, flags=re.MULTILINE)
            text = text.replace("print('its", "print(ksp.getPythonContext().solution if ksp.comm.rank == 0 else '')\nprint('its")
            with tempfile.TemporaryDirectory() as folder:
                before = pathlib.Path(folder)
                seconds, norms, error = run(text, "stokes", ranks, before)
                said = re.findall(r"after (\d+) iterations", (before / "said").read_text(encoding="utf-8"))
            rows.append({"demo": "docs/petsc.md", "ranks": ranks, "solver": kind, "cpu_s": seconds, "norms": norms, "iterations": said, "error": error})
            print(f"{'Stokes of docs/petsc.md':26} {ranks} {kind:5} {seconds:6.2f} s  {said} iterations {norms} {error}", flush=True)
    if out:
        pathlib.Path(out[0]).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    sys.exit(0 if passes else 1)


main()
