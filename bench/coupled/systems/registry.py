"""The list of systems: a builder says its name and sizes with the decorator `system`."""

import collections
import dataclasses
import importlib
import typing

MODULES = (
    "stokes",
    "oseen",
    "elasticity",
    "poromechanics",
    "darcy",
    "maxwell",
    "advection",
    "reactions",
    "cells",
    "runge_kutta",
    "helmholtz",
    "diffusion",
    "with_ngsolve",
    "with_mfem",
    "with_skfem",
)
# What a package is known as, where a part of it is missed first.
PACKAGES = {"ufl": "dolfinx", "petsc4py": "dolfinx", "mpi4py": "dolfinx", "netgen": "ngsolve", "skfem": "scikit-fem"}


@dataclasses.dataclass(frozen=True)
class System:
    """A builder with all that it is given but the size."""

    name: str
    sizes: tuple
    build: typing.Callable
    keywords: dict
    truthful: tuple

    def make(self, size):
        """The matrix and the right-hand side of one of the sizes."""
        return self.build(self.sizes[size], **self.keywords)

    def title(self):
        """The first paragraph of the builder's docstring, on one line."""
        return " ".join((self.build.__doc__ or "").strip().split("\n\n")[0].split())


SYSTEMS = {}


def system(name, sizes, truthful=(), **keywords):
    """Registers a builder `f(n, **keywords) -> (A, b)` under `name`.

    `sizes` holds the builder's n for size 0 (about 20,000 unknowns), 1 (about 100,000) and 2 (about 300,000);
    None marks a missing size. `truthful` lists the sizes that no solver solves: there a failure with its
    reason counts as an answer.
    """

    def register(build):
        assert name not in SYSTEMS, name
        SYSTEMS[name] = System(name, sizes, build, keywords, truthful)
        return build

    return register


def load():
    """Fills SYSTEMS; returns {a missing package: the modules that need it}."""
    missing = collections.defaultdict(list)
    for module in MODULES:
        try:
            importlib.import_module(f"systems.{module}")
        except ModuleNotFoundError as error:
            # A module of ours that is gone is a defect, not a package to install.
            if error.name.split(".")[0] == "systems":
                raise
            package = error.name.split(".")[0]
            missing[PACKAGES.get(package, package)].append(module)
    return missing
