"""The own tests of scikit-fem, FiPy and SfePy, with their solvers and with Krylith in the place of these.

    PYTHONPATH=FOLDER-OF-KRYLITH python bench/python/codes_own_tests.py skfem SOURCES
    PYTHONPATH=FOLDER-OF-KRYLITH python bench/python/codes_own_tests.py fipy
    PYTHONPATH=FOLDER-OF-KRYLITH python bench/python/codes_own_tests.py sfepy

SOURCES is a clone of scikit-fem at the tag of the installed version: its tests and examples are not in the wheel. Each
run prints the closing line, the tests that fail and the processor seconds of the whole program. Needs the code, pytest
and meshio; SfePy is built from its sources where it has no wheel.
"""

import os
import pathlib
import resource
import subprocess
import sys

SKFEM = ("examples", "utils", "convergence", "convergence_h2", "convergence_hdiv", "convergence_nk", "manufactured", "p_convergence")
SFEPY = ("declarative_examples", "laplace_unit_disk", "laplace_unit_square", "elasticity_small_strain", "hyperelastic_tlul")
PYTEST = ["-q", "--no-header", "--tb=no", "-rf", "-p", "no:cacheprovider"]


def put_in_place(code):
    """Put Krylith in the place of the code's own solvers."""
    if code == "skfem":
        import skfem.utils

        from krylith.contrib.skfem import solver

        skfem.utils.solver_direct_scipy = lambda **more: solver(threads=1)
    elif code == "fipy":
        import krylith.contrib.fipy

        krylith.contrib.fipy.install()
    else:
        import krylith.contrib.sfepy

        krylith.contrib.sfepy.install("ls.auto_direct", "ls.auto_iterative", "ls.scipy_direct", "ls.scipy_superlu")


# Processes that a test starts import this file again, and need Krylith in the same place.
if os.environ.get("WITH") == "krylith":
    put_in_place(os.environ["CODE"])


def tests(code, sources):
    if code == "fipy":
        from fipy.tests.test import app

        sys.argv = ["fipy_test", "--modules", "--scipy"]
        app()
    import pytest

    if code == "skfem":
        os.chdir(sources)
        sys.exit(pytest.main([*PYTEST, *(f"tests/test_{name}.py" for name in SKFEM)]))
    import sfepy

    folder = pathlib.Path(sfepy.__file__).parent / "tests"
    sys.exit(pytest.main([*PYTEST, *(str(folder / f"test_{name}.py") for name in SFEPY), "--output-dir=output"]))


def main():
    code, *sources = sys.argv[1:]
    if "WITH" in os.environ:
        tests(code, *sources or [None])
    for who in ("own", "krylith"):
        env = os.environ | {"WITH": who, "CODE": code, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "FIPY_SOLVERS": "scipy"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-W", "ignore", *sys.argv], env=env, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        said = (done.stdout + done.stderr).splitlines()
        count = [line for line in said if " passed" in line or line.startswith("Ran ")][-1:]
        failed = [line for line in said if line.startswith(("FAILED ", "FAIL: ", "ERROR: "))]
        print(f"{code} {who}: {count} {seconds:.1f} s", *failed, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
