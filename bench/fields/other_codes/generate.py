"""Generates systems: `python3 generate.py DIR NAME …` writes each to DIR/NAME. Most need NGSolve."""

import importlib
import sys

from catalogue import CASES


def main():
    where, *names = sys.argv[1:]
    for name in names:
        module = importlib.import_module(CASES[name].module)
        # A generator's name is the system's, in letters that Python allows.
        getattr(module, name.replace("-", "_"))().write(f"{where}/{name}")


if __name__ == "__main__":
    main()
