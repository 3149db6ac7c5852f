"""Types of the options, written from their declarations in Rust: do not edit.

`KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes this file.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Options(TypedDict, total=False):
    """Options beyond those in the signature of `solve`."""

    restart: int
    orthogonalization: Literal["lowsync", "cgs2", "mgs"]
    reductions: Literal["merged", "classical"]
    form: Literal["textbook", "one-reduction", "flexible", "pipelined"]
    s: int
    basis: Literal["chebyshev", "monomial"]
    time_limit: float
    precision: Literal["f64", "f32"]
    format: Literal["auto", "csr", "dia", "dia-full"]
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
