#!/usr/bin/env python3
"""Run MFEM's examples as they are, and with Krylith in the place of their solvers, and compare the solutions.

    python3 examples.py SOURCES --flags "-I… -L… -lmfem …" [--only ex1 ex2 …]

SOURCES is a folder with MFEM's `examples` and `data`. The flags compile and link a program with MFEM and Krylith. For
each example a JSON line has the solver lines that changed, the seconds of both programs and the largest difference of
their grid functions, relative to the largest value. The script fails if a difference is above 1e-3: the examples
solve to 1e-6 in the norm of their preconditioner.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys

#: What stands in the place of a line of an example. A call of MFEM's functions becomes a solver of its own.
CALL = re.compile(r"^(\s*)(?:PCG|GMRES)\((\*?\w+), \w+, (\w+), (\w+),[^;]*;", re.MULTILINE)
CALL_BY = r'\1krylith::mfem::Solver(\2, "rtol=1e-8 threads=1").Mult(\3, \4);'
#: Operators without entries keep MFEM's preconditioner.
NO_ENTRIES = {"ex8", "ex26"}
KEEPING = re.compile(r"^(\s*)PCG\((\*?\w+), (\w+), (\w+), (\w+),[^;]*;", re.MULTILINE)
KEEPING_BY = (
    r'\1krylith::mfem::Solver solver("method=cg rtol=1e-8 threads=1"); solver.SetOperator(\2);'
    r" solver.SetPreconditioner(\3); solver.Mult(\4, \5);"
)
#: A solver with a name keeps its tolerances and its preconditioner of MFEM.
OBJECT = re.compile(r"\b(CG|GMRES|MINRES)Solver(\s+\w+);")
POINTER = re.compile(r"\b(CG|GMRES|MINRES)Solver (\*\s*\w+ = new) (?:CG|GMRES|MINRES)Solver(?:\(\))?;")

EXAMPLES = "ex1 ex2 ex3 ex4 ex5 ex6 ex7 ex8 ex9 ex10 ex14 ex16 ex17 ex19 ex22 ex24 ex26 ex27 ex31 ex39".split()
#: Shorter runs.
ARGUMENTS = {"ex9": ["-tf", "1", "-s", "21"], "ex10": ["-tf", "30"], "ex2": ["-m", "../data/beam-tri.mesh"]}


def replaced(name, text):
    text = KEEPING.sub(KEEPING_BY, text) if name in NO_ENTRIES else CALL.sub(CALL_BY, text)
    text = OBJECT.sub(lambda m: f'krylith::mfem::Solver{m[2]}{{"method={m[1].lower()} threads=1"}};', text)
    text = POINTER.sub(lambda m: f'krylith::mfem::Solver {m[2]} krylith::mfem::Solver("method={m[1].lower()} threads=1");', text)
    return text.replace('#include "mfem.hpp"', '#include "krylith_mfem.hpp"', 1)


def build(name, text, sources, folder, flags):
    source = folder / f"{name}.cpp"
    source.write_text(text)
    here = pathlib.Path(__file__).parent
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", str(source), f"-I{here}", f"-I{sources / 'examples'}", *flags]
    program = folder / name
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True)
    return program if done.returncode == 0 else done.stderr


def run(program, name, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(program), "-no-vis", *ARGUMENTS.get(name, [])], cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (folder / "log").write_text(done.stdout + done.stderr)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.returncode, (done.stdout + done.stderr)[-300:]


def numbers(path):
    """The values of a grid function, after the line that says how they are ordered."""
    body = path.read_text().split("Ordering:", 1)
    return [float(word) for word in body[1].split()[1:]] if len(body) == 2 else []


def difference(own, krylith):
    worst, paths = 0.0, sorted([*own.glob("*.gf"), *own.glob("*.sol")])
    for path in paths:
        a, b = numbers(path), numbers(krylith / path.name) if (krylith / path.name).exists() else []
        if a and len(a) == len(b):
            worst = max(worst, max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a), default=1) if any(a) else 0)
        else:
            worst = float("inf")
    return worst if paths else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("--flags", required=True, type=shlex.split)
    parser.add_argument("--only", nargs="*", default=EXAMPLES)
    words = parser.parse_args()
    sources, failed = words.sources.resolve(), False
    folder = sources / "krylith-build"
    folder.mkdir(exist_ok=True)
    for name in words.only:
        text = (sources / "examples" / f"{name}.cpp").read_text()
        changed = replaced(name, text)
        lines = sum(a != b for a, b in zip(text.splitlines(), changed.splitlines())) - 1
        row = {"example": name, "lines": lines}
        for who, code in (("own", text), ("krylith", changed)):
            program = build(f"{name}-{who}", code, sources, folder, words.flags)
            if isinstance(program, str):  # of another version of MFEM, or a class that has no place for Krylith
                row[f"{who}_status"], row[f"{who}_said"] = None, program[:300]
                continue
            row[f"{who}_seconds"], row[f"{who}_status"], said = run(program, name, sources / f"krylith-{name}-{who}")
            if row[f"{who}_status"] != 0:
                row[f"{who}_said"] = said
        row["difference"] = difference(sources / f"krylith-{name}-own", sources / f"krylith-{name}-krylith")
        differs = row["difference"] is not None and not row["difference"] <= 1e-3
        failed |= row.get("krylith_status") != row.get("own_status") or differs
        print(json.dumps(row), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
