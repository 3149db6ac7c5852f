"""Marks the tests of SciPy's suite that expect other results as expected failures of pytest."""

import re

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        differs = getattr(item.module, "DIFFERS", {}) if hasattr(item, "module") else {}
        for name, why in differs.items():
            if re.search(name, item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=why, strict=False))
