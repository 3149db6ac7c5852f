"""Types of the options, written from their declarations in Rust: do not edit.

`KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes this file.
"""

from __future__ import annotations

from typing import Literal, TypedDict

#: Names of methods, which options may follow: `gmres:restart=50`.
MethodName = Literal[
    "auto",
    "gmres",
    "fgmres",
    "bicgstab",
    "cg",
    "cbcg",
    "minres",
]
#: Names of preconditioners, which keys may follow: `ildu:fill=1`.
PrecondName = Literal[
    "auto",
    "none",
    "jacobi",
    "block-jacobi",
    "ildu",
    "stage",
    "ras",
    "amg",
    "coarse",
    "lu",
    "vanka",
    "split",
    "cpr",
    "aux",
    "cg",
    "chebyshev",
]
#: How a solve ends.
OutcomeName = Literal[
    "converged",
    "max-iterations",
    "breakdown",
    "stagnated",
    "rounding-limit",
    "inconsistent",
    "diverged",
    "not-finite",
    "interrupted",
]


class Options(TypedDict, total=False):
    """Options beyond those in the signature of `solve`."""

    restart: int
    orthogonalization: Literal["lowsync", "cgs2", "mgs"]
    reductions: Literal["merged", "classical"]
    form: Literal["textbook", "one-reduction", "flexible", "pipelined"]
    s: int
    basis: Literal["chebyshev", "monomial"]
    criterion: Literal["residual", "rows", "backward"]
    relative_to: Literal["b", "r0"]
    time_limit: float
    precision: Literal["f64", "f32"]
    precond_precision: Literal["f64", "f32", "bf16"]
    format: Literal["auto", "csr", "dia", "dia-full"]
    ranks_per_gpu: int | Literal["auto"]
    threads: int
    deterministic: bool
    equilibrate: bool
    matching: Literal["auto", "on", "off"]
    zeros: Literal["auto", "keep", "drop"]
    partition: Literal["auto", "boxes", "rows", "nonzeros", "geometric", "multilevel", "graph"]
    share: str
    memory_limit: int | str
    #: SciPy's name of `max_iters`.
    maxiter: int


class IlduKeys(TypedDict, total=False):
    """Keys of `ildu`."""

    fill: int
    rows: int
    cut: str
    shift: float


class RasKeys(TypedDict, total=False):
    """Keys of `ras`."""

    overlap: int
    parts: int
    sub: Literal["ilu", "lu"]
    fill: int
    order: Literal["natural", "rcm"]
    factor: Literal["random", "exact"]
    eta: int
    solve: Literal["auto", "random", "jacobi", "exact"]
    gamma: int
    fdp: int
    deterministic: bool


class AmgKeys(TypedDict, total=False):
    """Keys of `amg`."""

    cycle: Literal["v", "w", "k"]
    coarsen: Literal["classical", "aggregation", "smoothed", "air", "air1"]
    strength: float
    truncate: int
    aggressive: int
    filter: float
    relax: int
    border: Literal["auto", "global", "local"]
    smoother: Literal["jacobi", "chebyshev", "ildu", "ffc"]
    sweeps: int
    degree: int
    coarsest: int
    levels: int
    precision: Literal["f64", "f32"]
    compute: Literal["f64", "f32", "bf16"]


class LuKeys(TypedDict, total=False):
    """Keys of `lu`."""

    most: int
    over: Literal["auto", "mumps", "one", "gpus"]
    on: Literal["auto", "device", "host"]
