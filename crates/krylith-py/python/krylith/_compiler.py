"""Where NVRTC and cuDSS are, if they were installed from PyPI: `pip install krylith[cuda13]`, `krylith[cudss]`."""

from importlib.util import find_spec
from pathlib import Path

from krylith import _native

#: Folders below the package `nvidia`: of nvidia-cuda-nvrtc, nvidia-cudss-cu13, and the wheels for CUDA 12.
_FOLDERS = ("cu13/lib", "cu12/lib", "cuda_nvrtc/lib")


def _installed() -> list[Path]:
    try:
        found = find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = found.submodule_search_locations if found is not None else None
    return [Path(root) / folder for root in roots or () for folder in _FOLDERS]


_native.compiler_folders(_installed())
