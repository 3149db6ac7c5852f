"""SciPy's own tests of its iterative methods, run on Krylith's `cg`, `bicgstab` and `gmres`.

The tests are those of the installed SciPy. Intended differences are listed in `DIFFERS` and in the guide.
"""

import pathlib
import re

import pytest
import scipy
import scipy.sparse.linalg._isolve as isolve

import krylith

PATH = pathlib.Path(isolve.__file__).parent / "tests" / "test_iterative.py"
SOLVERS = re.compile(r"^_SOLVERS = \[[^]]*\]", re.MULTILINE)

#: Tests, or cases of tests, for which Krylith behaves differently, with the reason.
DIFFERS = {
    r"test_convergence\[sym-nonpd-bicgstab\]": "SciPy's breaks down, Krylith's converges",
    r"test_precond_inverse": "residuals are recomputed from b - A x, which takes three more products",
    r"TestGMRES::test_callback$": "M is applied from the right: residuals are those of the system",
}

source = PATH.read_text() if PATH.exists() else ""
if not scipy.__version__.startswith("1.17.") or len(SOLVERS.findall(source)) != 1:
    pytest.skip(f"the tests of SciPy 1.17 are known, this is {scipy.__version__}", allow_module_level=True)

with pytest.MonkeyPatch.context() as patch:
    for name in ("cg", "bicgstab", "gmres"):
        patch.setattr(isolve, name, getattr(krylith, name))
    exec(compile(SOLVERS.sub("_SOLVERS = [bicgstab, cg, gmres]", source), str(PATH), "exec"), globals())
