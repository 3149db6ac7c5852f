"""Where NVRTC is, if it was installed from PyPI: `pip install krylith[cuda12]` or `krylith[cuda13]`."""

from importlib.util import find_spec
from pathlib import Path

from krylith import _native

#: Folders of the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, below the package `nvidia`.
_FOLDERS = ("cu13/lib", "cuda_nvrtc/lib")


def _installed() -> list[Path]:
    try:
        found = find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = found.submodule_search_locations if found is not None else None
    return [Path(root) / folder for root in roots or () for folder in _FOLDERS]


_native.compiler_folders(_installed())
