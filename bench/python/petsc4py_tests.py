"""petsc4py's own tests with Krylith in the place of PETSc's solvers.

    PYTHONPATH=FOLDER-OF-KRYLITH /usr/bin/python3 bench/python/petsc4py_tests.py SOURCES

SOURCES is a folder with petsc4py-3.18.5.tar.gz of PyPI. Two sets of tests run, each with PETSc's own solvers and with
Krylith's types. First, the tests of KSP types and of Python KSPs, with Krylith's KSP as the type, and with its PC
inside every KSP type of PETSc. Then all tests of KSP, PC, SNES, TS, TAO, null spaces and DMs, where options choose the
solver. The exit status is 0 if Krylith passes all but the tests of QCG, which need a preconditioner in symmetric parts.
"""

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

#: The tests of the second set.
FILES = ("test_ksp", "test_ksp_py", "test_pc_py", "test_nsp", "test_snes", "test_snes_py", "test_ts", "test_ts_py", "test_tao", "test_dmshell", "test_mat_py")
OPTIONS = {
    "own": "",
    "KSP": "-ksp_type python -ksp_python_type krylith.petsc.KSP",
    "PC": "-pc_type python -pc_python_type krylith.petsc.PC",
}
#: The first set, which is run in the folder of the tests.
SWAPPED = '''
import sys, unittest
import petsc4py
petsc4py.init(sys.argv[:1])
import krylith.petsc, test_ksp, test_ksp_py
from petsc4py import PETSc


class TestKrylithKSP(test_ksp_py.BaseTestKSPPYTHON, unittest.TestCase):
    ContextClass = krylith.petsc.KSP


def inside(ksp_type):
    class Case(test_ksp.BaseTestKSP, unittest.TestCase):
        KSP_TYPE, PC_TYPE = ksp_type, PETSc.PC.Type.PYTHON

        def setUp(self):
            super().setUp()
            self.ksp.getPC().setPythonContext(krylith.petsc.PC())

    Case.__name__ = Case.__qualname__ = f"TestKrylithPC_{ksp_type}"
    return Case


for case in list(vars(test_ksp).values()):
    if isinstance(case, type) and issubclass(case, test_ksp.BaseTestKSP) and case.KSP_TYPE:
        found = inside(case.KSP_TYPE)
        globals()[found.__name__] = found
del case, found
unittest.main()
'''


def run(words, folder, options):
    env = os.environ | {"PETSC_OPTIONS": options, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    count = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    failed = re.findall(r"^(?:FAIL|ERROR): \S+ \(?(\S+?)\)?$", done.stderr, re.MULTILINE)
    if count is None or done.returncode and not failed:
        failed = [done.stderr.strip()[-200:]]
    return int(count[1]) if count else 0, failed


def main():
    archive = next(pathlib.Path(sys.argv[1]).glob("petsc4py-*.tar.gz"))
    unexpected = []
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(archive) as files:
            files.extractall(place, filter="data") if hasattr(tarfile, "data_filter") else files.extractall(place)
        folder = pathlib.Path(place) / archive.name.removesuffix(".tar.gz") / "test"
        count, failed = run(["-c", SWAPPED], folder, "")
        unexpected += [name for name in failed if "qcg" not in name]
        print(f"types swapped: {count - len(failed)} of {count} pass; the others: {failed}")
        for way, options in OPTIONS.items():
            counts = [run([f"{name}.py"], folder, options) for name in FILES]
            wrong = [name for _, failed in counts for name in failed]
            unexpected += wrong
            print(f"by options, {way:3}: {sum(count for count, _ in counts) - len(wrong)} of {sum(count for count, _ in counts)} pass {wrong}")
    sys.exit(1 if unexpected else 0)


main()
