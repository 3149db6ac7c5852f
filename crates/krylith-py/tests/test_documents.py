"""Runs the programs in the documents."""

import pathlib
import re
import warnings

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = ["README.md", "crates/krylith-py/README.md"]
PAGES = ("python", "first-solve", "elasticity", "stokes", "coupled", "physics", "newton", "differentiable")
DOCUMENTS += [f"docs/{name}.md" for name in PAGES]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_programs(name, tmp_path, monkeypatch, request):
    if not (ROOT / name).exists():
        pytest.skip(f"{name} is not here")
    if name == "docs/differentiable.md":
        pytest.importorskip("lineax")
        jax = pytest.importorskip("jax")
        request.addfinalizer(lambda: jax.config.update("jax_enable_x64", False))  # the program turns it on
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert programs
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for program in programs:
            exec(compile(program, name, "exec"), names)
    if any("residuals.svg" in program for program in programs):
        assert (tmp_path / "residuals.svg").read_text(encoding="utf-8").startswith("<svg")
