#!/usr/bin/env python3
"""Assembles the systems and writes DIR/NAME-SIZE/{A.npz,b.npy,about.json}.

Existing systems are kept. A module whose package is missing is reported and skipped: dolfinx is often
installed in a different Python from NGSolve and MFEM, so run this once with each.
"""

import argparse
import json
import logging
import pathlib
import sys
import time
import traceback

import numpy as np
import scipy.sparse

from systems import registry


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("pattern", nargs="?", default="", help="only systems whose NAME-SIZE contains this")
    words.add_argument("--sizes", default="012", help="which sizes, a digit each: 0 is 20 thousand unknowns, 1 is 100")
    words.add_argument("--out", type=pathlib.Path, default=pathlib.Path("coupled-systems"))
    words.add_argument("--list", action="store_true", help="names only")
    asked = words.parse_args()
    # dolfinx tells of every form that it compiles.
    logging.disable(logging.INFO)
    for package, modules in registry.load().items():
        print(f"no {package} in this Python: left out {', '.join(modules)}", file=sys.stderr)
    made, failed = 0, 0
    for full, system, size in chosen(asked.pattern, asked.sizes):
        folder = asked.out / full
        if asked.list:
            print(f"{full:26s} {system.title()}")
        elif not (folder / "about.json").exists():
            try:
                write(folder, system, size)
                made += 1
            # One that fails does not keep the others from being made.
            except Exception:  # noqa: BLE001
                traceback.print_exc()
                print(f"{full}: not generated", file=sys.stderr)
                failed += 1
    if asked.list:
        return 0
    print(f"{made} generated, {failed} failed")
    return 0 if made and not failed else 1


def chosen(pattern, sizes):
    """(NAME-SIZE, system, size), small ones first."""
    for size in sorted(int(digit) for digit in sizes):
        for name, system in sorted(registry.SYSTEMS.items()):
            full = f"{name}-{size}"
            if pattern in full and size < len(system.sizes) and system.sizes[size] is not None:
                yield full, system, size


def write(folder, system, size):
    begin = time.monotonic()
    a, b = system.make(size)
    a = scipy.sparse.csr_matrix(a)
    a.sort_indices()
    assert a.shape == (len(b), len(b)) and np.isfinite(a.data).all() and np.isfinite(b).all() and b.any()
    folder.mkdir(parents=True, exist_ok=True)
    scipy.sparse.save_npz(folder / "A.npz", a, compressed=False)
    np.save(folder / "b.npy", b)
    about = {
        "name": system.name,
        "size": size,
        "n": a.shape[0],
        # Stored zeros count: codes store them, and a bare call has to cope.
        "nnz": a.nnz,
        "zeros": int((a.data == 0).sum()),
        "norm_A": float(np.linalg.norm(a.data)),
        "norm_b": float(np.linalg.norm(b)),
        "title": system.title(),
        "truthful": size in system.truthful,
    }
    # Last, for it says that the folder is complete.
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    seconds = time.monotonic() - begin
    print(f"{folder.name:26s} n {about['n']:7d}  nnz {about['nnz']:9d}  {seconds:5.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
