#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run tutorials of OpenFOAM with its own solvers and with Krylith, and compare the fields.

    python3 test.py                     # small cases: some minutes
    python3 test.py --measure           # larger cases, times on one core, to standard output as JSON lines

OpenFOAM's programs must be in PATH, and libKrylithFoam.so and libkrylith.so where the loader finds them.
`--tutorials FOLDER` names OpenFOAM's tutorials if FOAM_TUTORIALS does not. Parallel cases need mpirun.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

LIBRARY = "libKrylithFoam.so"
#: The line of a solve in OpenFOAM's output: the field, the initial and final residual, the iterations.
SOLVE = re.compile(r"Solving for (\w+), Initial residual = (\S+), Final residual = (\S+), No Iterations (\d+)")


class Case:
    """A copy of a tutorial in a folder of its own."""

    def __init__(self, tutorial, folder, program):
        folder = folder.with_name(re.sub(r"\W", "_", folder.name))  # OpenFOAM refuses spaces
        self.program, self.folder = program, folder
        shutil.copytree(tutorial, folder)
        for packed in folder.rglob("*.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
            packed.unlink()
        for start in (folder / "0.orig", folder / "0" / "0.orig"):
            if start.exists():
                shutil.copytree(start, folder / "0", dirs_exist_ok=True)
        self.set("system/controlDict", writePrecision="12", runTimeModifiable="false")
        self.edit("system/controlDict", r"functions\s*\{.*?\n\}", "")

    def edit(self, name, pattern, by):
        path = self.folder / name
        path.write_text(re.sub(pattern, lambda _: by, path.read_text(), flags=re.DOTALL))

    def set(self, name, **entries):
        for key, value in entries.items():
            self.edit(name, rf"\b{key}\s+[^;{{}}]*;", f"{key} {value};")

    def solvers(self, text):
        path = self.folder / "system/fvSolution"
        old = path.read_text()
        begin = old.index("solvers")
        depth, end = 0, old.index("{", begin)
        while True:
            depth += {"{": 1, "}": -1}.get(old[end], 0)
            end += 1
            if depth == 0:
                break
        path.write_text(f"{old[:begin]}solvers\n{{\n{text}\n}}\n{old[end:]}")
        control = self.folder / "system/controlDict"
        if "Krylith" in text and LIBRARY not in control.read_text():
            control.write_text(control.read_text() + f'\nlibs ("{LIBRARY}");\n')

    def call(self, *command, fails=False):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env=os.environ | {"PWD": str(self.folder)})
        said = done.stdout + done.stderr
        if (done.returncode != 0) != fails:
            sys.exit(f"{self.folder.name}: {' '.join(command)} ended with {done.returncode}\n{said[-3000:]}")
        return said

    def run(self, ranks=1, preload=True, fails=False):
        """Run the program; return the seconds of the processor, those of the clock, and the output."""
        command, begin = [self.program], time.perf_counter()
        if ranks > 1:
            table = "FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\n"
            table += f"numberOfSubdomains {ranks};\nmethod simple;\n"
            table += f"simpleCoeffs {{ n ({ranks} 1 1); delta 0.001; }}\ncoeffs {{ n ({ranks} 1 1); }}\n"
            (self.folder / "system/decomposeParDict").write_text(table)
            self.call("decomposePar", "-force")
            loaded = ["-x", f"LD_PRELOAD={LIBRARY}"] if preload else []
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), *loaded, self.program, "-parallel"]
        said = self.call(*command, fails=fails)
        if ranks > 1 and not fails:
            self.call("reconstructPar", "-latestTime")
        (self.folder / "log").write_text(said)
        seconds = re.findall(r"ExecutionTime = (\S+) s", said)
        return float(seconds[-1]) if seconds else None, time.perf_counter() - begin, said

    def fields(self, *names):
        """The fields at the latest time."""
        times = [path for path in self.folder.iterdir() if re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", path.name)]
        latest = max(times, key=lambda path: float(path.name))
        return {name: numbers(latest / name) for name in names}


def numbers(path):
    text = path.read_text()
    found = re.search(r"internalField\s+nonuniform List<\w+>\s*\d+\s*\(", text)
    body = text[found.end() : text.index("\n)", found.end())]
    values = [float(number) for number in body.replace("(", " ").replace(")", " ").split()]
    # A pressure without a reference is known up to a constant.
    mean = sum(values) / len(values) if path.name == "p" else 0
    return [value - mean for value in values]


def difference(a, b):
    """The largest difference of each field, relative to its largest value."""
    return {name: max(abs(x - y) for x, y in zip(a[name], b[name])) / max(map(abs, a[name])) for name in a}


def counts(said):
    """Solves and iterations of each field."""
    table = {}
    for field, _, _, iterations in SOLVE.findall(said):
        solves, all_iterations = table.get(field, (0, 0))
        table[field] = (solves + 1, all_iterations + int(iterations))
    return table


def expect(right, what):
    print(("ok    " if right else "WRONG ") + what, flush=True)
    if not right:
        sys.exit(1)


def close(what, a, b, most):
    found = difference(a, b)
    expect(all(value <= most for value in found.values()), what + ": " + ", ".join(f"{k} {v:.1e}" for k, v in found.items()))


def cavity(tutorials, folder):
    case = Case(tutorials / "incompressible/icoFoam/cavity/cavity", folder, "icoFoam")
    case.set("system/controlDict", endTime="0.1")
    case.call("blockMesh")
    return case


def box(tutorials, folder, program="dnsFoam"):
    """Decaying turbulence with cyclic interfaces on all sides: without a reference pressure in dnsFoam."""
    case = Case(tutorials / "DNS/dnsFoam/boxTurb16", folder, program)
    case.edit("system/fvSolution", r"PISO\s*\{", "PISO { pRefCell 0; pRefValue 0;")
    case.set("system/controlDict", endTime="0.25", writeControl="runTime", writeInterval="0.25")
    case.call("blockMesh")
    case.call("boxTurb")
    return case


def moving_box(tutorials, folder):
    return box(tutorials, folder, "icoFoam")


def duct(tutorials, folder):
    case = Case(tutorials / "incompressible/simpleFoam/pitzDaily", folder, "simpleFoam")
    case.edit("system/fvSolution", r"residualControl\s*\{.*?\n\s*\}", 'residualControl { }')
    case.set("system/controlDict", endTime="600", writeInterval="600")
    case.call("blockMesh")
    return case


def insulated(tutorials, folder):
    """Steady heat conduction without a fixed temperature: constants vanish under the matrix."""
    case = cavity(tutorials, folder)
    case.program = "laplacianFoam"
    values = "\n".join(str((7 * i) % 13) for i in range(400))
    head = "FoamFile { version 2.0; format ascii; class %s; object %s; }\n"
    (case.folder / "0/T").write_text(
        head % ("volScalarField", "T") + "dimensions [0 0 0 1 0 0 0];\n"
        f"internalField nonuniform List<scalar> 400 (\n{values}\n);\n"
        "boundaryField { \".*\" { type zeroGradient; } frontAndBack { type empty; } }\n")
    (case.folder / "constant/transportProperties").write_text(
        head % ("dictionary", "transportProperties") + "DT DT [0 2 -1 0 0 0 0] 1;\n")
    (case.folder / "system/fvSchemes").write_text(
        head % ("dictionary", "fvSchemes") + "ddtSchemes { default steadyState; } gradSchemes { default Gauss linear; }\n"
        "divSchemes { default none; } laplacianSchemes { default Gauss linear corrected; }\n"
        "interpolationSchemes { default linear; } snGradSchemes { default corrected; }\n")
    path = case.folder / "system/fvSolution"
    path.write_text(path.read_text() + "SIMPLE { nNonOrthogonalCorrectors 0; }\n")
    case.set("system/controlDict", endTime="1", deltaT="1", writeControl="timeStep", writeInterval="1")
    case.solvers("T { solver Krylith; tolerance 1e-12; relTol 0; }")
    return case


KRYLITH = "p { solver Krylith; tolerance 1e-9; relTol 0; } pFinal { $p; } U { solver Krylith; tolerance 1e-9; relTol 0; }"
OWN = """p { solver PCG; preconditioner DIC; tolerance 1e-9; relTol 0; } pFinal { $p; }
U { solver PBiCGStab; preconditioner DILU; tolerance 1e-9; relTol 0; }"""


def test(tutorials, folder):
    for make, name, tolerance in ((cavity, "cavity", 1e-6), (moving_box, "periodic box", 1e-6), (box, "box without reference", 1e-6)):
        own = make(tutorials, folder / f"{name} own")
        own.solvers(OWN)
        own.run()
        krylith = make(tutorials, folder / f"{name} krylith")
        krylith.solvers(KRYLITH)
        _, _, said = krylith.run()
        right = own.fields("U", "p")
        close(f"{name}, fields against PCG and PBiCGStab", right, krylith.fields("U", "p"), tolerance)
        reached = all(float(final) < 1e-9 for _, _, final, _ in SOLVE.findall(said))
        expect(reached and len(SOLVE.findall(said)) > 10, f"{name}, {len(SOLVE.findall(said))} solves to tolerance 1e-9")
        expect("FOAM Warning" not in said, f"{name}, no warnings")
        if shutil.which("mpirun") and make is not box:  # dnsFoam runs on one processor
            for ranks in (2, 3):
                ranked = make(tutorials, folder / f"{name} {ranks}")
                ranked.solvers(KRYLITH)
                ranked.run(ranks)
                same = make(tutorials, folder / f"{name} own {ranks}")
                same.solvers(OWN)
                same.run(ranks)
                close(f"{name}, fields on {ranks} processors", same.fields("U", "p"), ranked.fields("U", "p"), tolerance)
    if shutil.which("mpirun"):
        _, _, said = ranked.run(2, preload=False, fails=True)
        expect("LD_PRELOAD" in said, "a parallel run with MPI for one thread is refused")

    for ranks in (1, 2) if shutil.which("mpirun") else (1,):
        case = insulated(tutorials, folder / f"insulated {ranks}")
        case.run(ranks)
        values = case.fields("T")["T"]
        mean = sum((7 * i) % 13 for i in range(400)) / 400
        expect(max(abs(v - mean) for v in values) < 1e-9 * mean, f"a singular matrix keeps the mean, {ranks} processors")

    case = cavity(tutorials, folder / "limits")
    case.solvers("p { solver Krylith; tolerance 1e-14; relTol 0; maxIter 2; krylith \"method=cg precond=jacobi\"; } pFinal { $p; }"
                 "U { solver Krylith; tolerance 1e9; relTol 0; minIter 3; }")
    _, _, said = case.run()
    found = SOLVE.findall(said)
    expect(all(int(n) <= 2 for field, _, _, n in found if field == "p"), "maxIter bounds the iterations")
    expect(all(int(n) >= 3 for field, _, _, n in found if field == "Ux"), "minIter makes a solve run on")

    case = cavity(tutorials, folder / "options")
    case.solvers("p { solver Krylith; tolerance 1e-9; krylith \"precond=nothing\"; } pFinal { $p; } U { solver Krylith; tolerance 1e-9; }")
    _, _, said = case.run(fails=True)
    expect("nothing" in said and "FATAL" in said, "a wrong option is a fatal error with its name")

    case = box(tutorials, folder / "overlap")
    case.edit("system/blockMeshDict", r"type\s+cyclic;", "type cyclicAMI; transform noOrdering;")
    case.call("blockMesh")
    case.edit("0/U", r"type\s+cyclic;", "type cyclicAMI;"), case.edit("0/p", r"type\s+cyclic;", "type cyclicAMI;")
    case.solvers(KRYLITH)
    _, _, said = case.run(fails=True)
    expect("cyclicAMI" in said and "FATAL" in said, "an interface that interpolates is refused")

    own, krylith = duct(tutorials, folder / "duct own"), duct(tutorials, folder / "duct krylith")
    _, _, said = own.run()
    krylith.solvers("p { solver Krylith; tolerance 1e-6; relTol 0.1; }\n"
                    '"(U|k|epsilon)" { solver Krylith; tolerance 1e-5; relTol 0.1; }')
    _, _, again = krylith.run()
    names = ("U", "p", "k", "epsilon")
    steps = [len(re.findall(r"^Time = ", text, re.MULTILINE)) for text in (said, again)]
    close(f"duct, steady fields after {steps[0]} and {steps[1]} steps", own.fields(*names), krylith.fields(*names), 5e-3)


def scaled(case, factor, **control):
    """Refine the mesh in x and y."""
    path = case.folder / "system/blockMeshDict"
    finer = re.sub(r"(hex \([^)]*\)\s*)\((\d+) (\d+) (\d+)\)",
                   lambda m: f"{m[1]}({factor * int(m[2])} {factor * int(m[3])} {m[4]})", path.read_text())
    path.write_text(finer)
    case.set("system/controlDict", **control)
    case.call("blockMesh")
    return case


def cube(tutorials, folder, cells):
    case = cavity(tutorials, folder)
    path = case.folder / "system/blockMeshDict"
    text = re.sub(r"\(20 20 1\)", f"({cells} {cells} {cells})", path.read_text()).replace("0.1)", "1)")
    path.write_text(re.sub(r"type empty", "type wall", text))
    for name, kind in (("0/U", "noSlip"), ("0/p", "zeroGradient")):
        case.edit(name, r"type\s+empty", f"type {kind}")
    case.set("system/controlDict", endTime=str(10 * 0.05 / cells), deltaT=str(0.05 / cells), writeControl="timeStep", writeInterval="10")
    case.call("blockMesh")
    return case


def measure(tutorials, folder, ranks, only):
    """Whole runs with solvers of OpenFOAM and with Krylith, on one core or on ranks."""
    ico = "tolerance 1e-6; relTol 0.05;"
    gamg = "solver GAMG; smoother GaussSeidel;"
    u = {"own": "U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-5; relTol 0; }",
         "krylith": "U { solver Krylith; tolerance 1e-5; relTol 0; }"}
    transient = {
        "PCG": (f"p {{ solver PCG; preconditioner DIC; {ico} }} pFinal {{ $p; relTol 0; }} {u['own']}"),
        "GAMG": (f"p {{ {gamg} {ico} }} pFinal {{ $p; relTol 0; }} {u['own']}"),
        "Krylith": (f"p {{ solver Krylith; {ico} }} pFinal {{ $p; relTol 0; }} {u['krylith']}"),
        "Krylith for p": (f"p {{ solver Krylith; {ico} }} pFinal {{ $p; relTol 0; }} {u['own']}"),
    }
    steady = {
        "GAMG": None,
        "Krylith": "p { solver Krylith; tolerance 1e-6; relTol 0.1; }\n"
                   '"(U|k|epsilon)" { solver Krylith; tolerance 1e-5; relTol 0.1; }',
        "Krylith for p": "p { solver Krylith; tolerance 1e-6; relTol 0.1; }\n"
                   '"(U|k|epsilon)" { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-5; relTol 0.1; }',
    }
    short = {"writeControl": "timeStep", "writeInterval": "1000000"}
    cases = [
        ("cavity 20², 100 steps", transient, lambda to: scaled(cavity(tutorials, to), 1, endTime="0.5", **short)),
        ("cavity 200², 20 steps", transient, lambda to: scaled(cavity(tutorials, to), 10, endTime="0.002", deltaT="0.0001", **short)),
        ("cavity 48³, 10 steps", transient, lambda to: cube(tutorials, to, 48)),
        ("pitzDaily, 12,225 cells, 200 steps", steady, lambda to: scaled(duct(tutorials, to), 1, endTime="200", **short)),
        ("pitzDaily, 110,025 cells, 40 steps", steady, lambda to: scaled(duct(tutorials, to), 3, endTime="40", **short)),
    ]
    for name, ways, make in (case for case in cases if only in case[0]):
        for way, solvers in ways.items():
            case = make(folder / f"{name} {way}")
            if solvers is not None:
                case.solvers(solvers)
            seconds, clock, said = case.run(ranks)
            table = {field: {"solves": n, "iterations": k} for field, (n, k) in counts(said).items()}
            row = {"case": name, "solver": way, "ranks": ranks, "execution_seconds": seconds, "clock_seconds": round(clock, 2), "fields": table}
            row["courant"] = re.findall(r"Courant Number mean: \S+ max: (\S+)", said)[-1:]  # grows if a run is not stable
            print(json.dumps(row, ensure_ascii=False), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tutorials", type=pathlib.Path, default=os.environ.get("FOAM_TUTORIALS"))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the name of the cases to measure")
    words = parser.parse_args()
    if words.tutorials is None:
        sys.exit("name OpenFOAM's tutorials by --tutorials or FOAM_TUTORIALS")
    with tempfile.TemporaryDirectory() as folder:
        if words.measure:
            measure(pathlib.Path(words.tutorials), pathlib.Path(folder), words.ranks, words.only)
        else:
            test(pathlib.Path(words.tutorials), pathlib.Path(folder))


if __name__ == "__main__":
    main()
