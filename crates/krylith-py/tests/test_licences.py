"""The wheel contains the licences of all works that it includes."""

import importlib.metadata


def test_licences_are_inside():
    files = {file.name: file for file in importlib.metadata.files("krylith") or []}
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.md"):
        assert name in files, f"{name} is not among {sorted(files)}"
    text = files["THIRD-PARTY-LICENSES.md"].read_text(encoding="utf-8")
    for work in ("METIS", "faer ", "pyo3 ", "DejaVu Sans"):
        assert work in text, f"{work} is not named"
