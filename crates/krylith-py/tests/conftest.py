"""What SciPy's suite expects otherwise is known, and told by pytest as expected failures."""

import re

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        differs = getattr(item.module, "DIFFERS", {}) if hasattr(item, "module") else {}
        for name, why in differs.items():
            if re.search(name, item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=why, strict=False))
