"""The extension module, whose functions accept and return arrays and text."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from krylith._keywords import OutcomeName

__version__: str
MAX_BLOCK: int

def main(words: Sequence[str]) -> int: ...
def options() -> list[tuple[str, str, list[str]]]: ...
def names() -> dict[str, list[str]]: ...
def precond_keys(name: str) -> list[tuple[str, str]]: ...
def compiler_folders(folders: list[Path]) -> None: ...
def meant(what: str, text: str, known: Sequence[str]) -> str | None: ...
def same_indices(a: Any, b: Any, threads: int | None = None) -> bool: ...

def solve_operators(
    a: Callable[[np.ndarray], np.ndarray],
    p: Callable[[np.ndarray], np.ndarray] | None,
    b: np.ndarray,
    x: np.ndarray,
    options: str,
    callback: Callable[[int, float], Any] | None,
    view: Callable[[np.ndarray], Any] | None = None,
) -> tuple[str, int, float]: ...
def newton(
    system: System,
    residual: Callable[[Any], Any],
    jacobian: Callable[[Any], Any],
    x: Any,
    rtol: float,
    atol: float,
    max_steps: int,
    forcing: str,
    options: str,
    callback: Callable[[int, float], Any] | None,
) -> dict[str, Any]: ...

class System:
    @staticmethod
    def csr(
        rows: int, columns: int, row_ptr: Any, col: Any, values: Any, block: int | None, threads: int | None = None,
        options: str | None = None,
    ) -> System: ...
    @staticmethod
    def distributed(
        comm: tuple[int, tuple[int, int] | None], rows: int, columns: int, row_ptr: Any, col: Any, values: Any, block: int | None, threads: int | None = None
    ) -> System: ...
    @staticmethod
    def bsr(
        block: int, block_rows: int, block_columns: int, row_ptr: Any, col: Any, values: Any, threads: int | None = None,
        options: str | None = None,
    ) -> System: ...
    @staticmethod
    def kronecker(a: np.ndarray, b: np.ndarray, tau: float, m: System, l: System) -> System: ...
    def with_coordinates(self, points: np.ndarray) -> System: ...
    def with_grid(self, grid: Sequence[int]) -> System: ...
    def with_null_vectors(self, vectors: Sequence[np.ndarray] | None) -> System: ...
    def with_near_null_vectors(self, vectors: Sequence[np.ndarray] | None) -> System: ...
    def with_fields(
        self, fields: Sequence[tuple[str, np.ndarray, int, Sequence[np.ndarray] | None, bool, np.ndarray | None]]
    ) -> System: ...
    def with_matrix(self, name: str, arrays: tuple[int, int, np.ndarray, np.ndarray, np.ndarray]) -> System: ...
    @property
    def unknowns(self) -> int: ...
    @property
    def own(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def stages(self) -> int: ...

class Curve:
    def __init__(
        self,
        subtitle: str,
        residuals: Sequence[float],
        true_residual: float,
        target: float,
        restarts: Sequence[int],
        attempts: Sequence[tuple[int, str]],
        converged: bool,
    ) -> None: ...
    def svg(self, title: str) -> str: ...
    def write(self, title: str, path: str | os.PathLike[str]) -> None: ...

class Solution:
    outcome: OutcomeName
    iterations: int
    restarts: int
    residuals: np.ndarray
    convergence_factor: float | None
    row_scaled_residual: float | None
    true_residual: float
    target: float
    method: str
    precond: str
    device: str
    has_warnings: bool
    def seconds(self) -> tuple[float, float, dict[str, float]]: ...
    def events(self) -> list[tuple[str, int | None, str]]: ...
    def text(self) -> str: ...
    def verdict(self) -> str: ...
    def curve(self) -> Curve: ...
    def system(self) -> str: ...

class Solver:
    def __init__(self, system: System, options: str) -> None: ...
    def solve(
        self,
        b: Any,
        x: Any,
        rtol: float | None = None,
        atol: float | None = None,
        max_iters: int | None = None,
        callback: Callable[[int, float], Any] | None = None,
        transpose: bool = False,
    ) -> tuple[Solution, BaseException | None]: ...
    def solve_columns(
        self,
        b: Any,
        x: Any,
        rtol: float | None = None,
        atol: float | None = None,
        max_iters: int | None = None,
        transpose: bool = False,
    ) -> tuple[list[Solution], BaseException | None]: ...
    def solve_with(
        self,
        p: Callable[[np.ndarray], np.ndarray],
        b: np.ndarray,
        x: np.ndarray,
        rtol: float | None = None,
        atol: float | None = None,
        max_iters: int | None = None,
        callback: Callable[[int, float], Any] | None = None,
    ) -> tuple[Solution, BaseException | None]: ...
    @property
    def device(self) -> str: ...
    def memory(self) -> tuple[int, int | None]: ...
    def matrices(self) -> list[tuple[int, Sequence[int], np.ndarray, np.ndarray, np.ndarray]]: ...
    def apply(self, preconditioner: bool, x: Any, y: Any, transpose: bool = False) -> None: ...
    def update(self, values: Any) -> None: ...
    def update_kronecker(self, a: np.ndarray, b: np.ndarray, tau: float, m: Any, l: Any) -> None: ...
    def set_matrix(self, name: str, arrays: tuple[int, int, np.ndarray, np.ndarray, np.ndarray]) -> None: ...
    def set_tau(self, tau: float) -> None: ...
    def set_refresh(self, refresh: str) -> None: ...
    def cancel(self) -> None: ...
