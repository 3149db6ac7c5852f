"""`Solver`, for many systems of the same pattern."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from krylith import _native
from krylith._arrays import (
    apart, as_complex, empty_like, is_complex, is_torch, lend, numbers_of, on_device, receiver, zeros_like,
)  # fmt: skip
from krylith._columns import receiver_of, solve_columns, worst
from krylith._comm import any_rank, is_shared, rank_of
from krylith._complex import Form, conjugate, conjugated, dtype_of, form_of, real_vectors, reals, restored
from krylith._errors import Interrupted, InvalidInput, NewPattern, interrupts
from krylith._fields import arrays_of, joined, with_fields
from krylith._keywords import MethodName
from krylith._matrix import (
    KroneckerSum, Parts, block_of_nodes, new_values, nodes_of, system_of, system_of_parts, with_values,
)  # fmt: skip
from krylith._functions import device_of, maps_of, unknowns_of
from krylith._operator import Operator, Preconditioning, function_of, is_function, is_map, refuse_beside_functions
from krylith._options import Options, count, options_text, threads_of
from krylith._record import ClosedSolver, EmptySolver, Memory
from krylith._report import LOG, Callback, check_callback, progress, warn
from krylith._solution import Solution

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Self, Unpack
    else:
        from typing_extensions import Self, Unpack


#: What to do where a preconditioner cannot be a function.
_NAME = "give the name of a preconditioner"


class Solver(Operator):
    """A system on its device, ready for many solves.

    The system is analysed once for its pattern, the device and the options; later solves and new values do
    not repeat the analysis. Calls of several threads on the same solver wait for each other.

    As an operator a solver is A⁻¹, as a factorisation is: `solver @ b`, `solver.matvec(b)` and `solver(b)` are
    `solver.solve(b).x`. `multiply` is the product with A. `with krylith.Solver(A) as solver:` frees its memory at
    the end. A copy, or a solver from a pickle, is set up anew from the current values and the options.

    Parameters
    ----------
    A : sparse matrix, KroneckerSum or operator
        A matrix of SciPy, CuPy or PyTorch in any format. A matrix in the memory of a GPU stays there. Or a linear
        map, as for `krylith.solve`; new values are then those of `precond_matrix`.
    method, precond : str
        The same as for `krylith.solve`, like all other parameters.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50), format="csr")
    >>> solver = krylith.Solver(A, method="cg", precond="jacobi", rtol=1e-10)
    >>> x = solver.solve(np.ones(50)).x
    >>> solver.update_values(2 * A)
    >>> bool(np.allclose(2 * (solver @ np.ones(50)), x))
    True
    """

    #: True to keep the pattern, against which new values are checked.
    _keeps = True
    #: The fields, by name even where the matrix came in blocks.
    _fields: Any = None

    def __init__(
        self,
        A: Any,
        *,
        method: MethodName | str = "auto",
        precond: Preconditioning = "auto",
        precond_matrix: Any = None,
        rtol: float = 1e-6,
        atol: float = 0.0,
        max_iters: int | None = None,
        device: str = "auto",
        block: int | None = None,
        nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
        near_nullspace: str | np.ndarray | Sequence[np.ndarray] | None = None,
        coordinates: np.ndarray | None = None,
        grid: Sequence[int] | None = None,
        fields: Any = None,
        matrices: Mapping[str, Any] | None = None,
        comm: Any = None,
        verbose: bool = False,
        **options: Unpack[Options],
    ) -> None:
        self._named: dict[str, Any] = {
            "method": method, "precond": precond, "rtol": rtol, "atol": atol, "max_iters": max_iters, "device": device,
        }  # fmt: skip
        self._options = dict(options)
        self._system: dict[str, Any] = {
            "block": block, "nullspace": nullspace, "near_nullspace": near_nullspace, "coordinates": coordinates,
            "grid": grid, "fields": fields, "matrices": matrices,
        }  # fmt: skip
        self._comm, self._verbose = comm, verbose
        #: A, if it is a function or an operator.
        self._of = A if is_map(A) else None
        if self._of is None and precond_matrix is not None:
            raise InvalidInput("`precond_matrix` goes with a function as A; the preconditioner of a matrix uses that matrix")
        #: A and the preconditioner as functions that the solver calls.
        self._maps: tuple[Any, Any] = (None, None)
        if is_function(precond) and self._of is None and device_of(precond) is None:
            given = self._named | self._options | self._system | {"comm": comm}
            refuse_beside_functions(given, "the preconditioner", _NAME)
        self._set_up(A if self._of is None else precond_matrix)

    def _set_up(self, A: Any, parts: list[Parts] | None = None) -> None:
        """Set the system up, from a matrix, or from the parts that were kept of one and the coefficients in A."""
        given = self._system
        precond, device = self._named["precond"], self._named["device"]
        function, gpu = is_function(precond), device_of(self._of, precond)
        place = {} if device != "auto" or gpu is None and not function and self._of is None else {"device": gpu or "cpu"}
        named = self._named | ({"precond": "none"} if function else {}) | place
        if self._of is not None and A is None and parts is None:
            self._set_up_map(named)
            return
        self._kronecker = isinstance(A, KroneckerSum)
        self._sum = KroneckerSum(A.A, None, A.B, None, A.tau) if isinstance(A, KroneckerSum) else None
        fields, block, nodes = given["fields"] if parts is None else self._fields, given["block"], None
        if parts is None:
            A, fields = joined(A, fields)
            self._fields = fields
            if tuple(getattr(A, "shape", ())) == (0, 0) and self._comm is None:
                self.dtype = dtype_of(A)
                self._set_up_nothing(named)
                return
            nodes = None if given["grid"] is None else nodes_of(given["grid"])
            if nodes is not None and block is None and self._comm is None:
                block = block_of_nodes(A, math.prod(nodes))
        with interrupts():
            if parts is None:
                # Fields and null vectors are looked at on the host.
                early = fields is None and given["matrices"] is None and given["nullspace"] is None
                text = options_text(named, self._options) if early else None
                system, parts = system_of(A, block, self._comm, threads_of(self._options), text)
            else:
                system = system_of_parts(parts, self._sum, self._block)
        self._block: int = system.block
        self._parts = [one.kept() for one in parts] if self._keeps else parts
        self._stages = system.stages
        self.dtype = dtype_of(self._parts[0].values)
        complex_ = self.dtype.kind == "c"
        reals_each = 2 if complex_ else 1
        #: Number of rows that this process holds, and number of columns.
        self.shape = (system.own // reals_each, system.unknowns // reals_each)
        called = function and self._of is None and gpu is None
        self._function = function_of(precond, self.shape[0], "the preconditioner", self.dtype) if called else None
        if (function or self._of is not None) and not called:
            if complex_ or self._kronecker:
                raise InvalidInput("functions as A, and functions on a GPU, are real and have one stage")
            self._maps = maps_of(self._of, precond, self.shape[0])
        if given["coordinates"] is not None:
            system = system.with_coordinates(np.ascontiguousarray(given["coordinates"], dtype=np.float64))
        if given["grid"] is not None:
            system = system.with_grid(nodes_of(given["grid"]))
        if fields is not None or given["matrices"] is not None:
            with interrupts():
                system = with_fields(system, fields, given["matrices"], complex_)
        if given["nullspace"] is not None:
            system = system.with_null_vectors(self._vectors("nullspace", given["nullspace"], "constant"))
        if given["near_nullspace"] is not None:
            system = system.with_near_null_vectors(self._vectors("near_nullspace", given["near_nullspace"], "rigid"))
        there = self._parts[0].gpu
        if there is not None and called:
            raise InvalidInput(f"the preconditioner is a function of host vectors, and the matrix is on a GPU; {_NAME}")
        if device == "auto" and there is not None and gpu is None:
            named["device"] = f"cuda:{there}"
        with interrupts():
            self._native: Any = _native.Solver(system, options_text(named, self._options))
        LOG.info("set up: %r", self)

    def _set_up_map(self, named: Mapping[str, Any]) -> None:
        """Set up a solver of a function without a matrix."""
        n = unknowns_of(self._of, self._named["precond"])
        self._block, self._parts, self._stages, self.shape, self._function = 1, [], 1, (n, n), None
        self._kronecker, self._sum = False, None
        self._maps = maps_of(self._of, self._named["precond"], n)
        with interrupts():
            self._native = _native.Solver.without_matrix(n, options_text(dict(named), self._options))

    def _set_up_nothing(self, named: Mapping[str, Any]) -> None:
        options_text(dict(named), self._options)  # refuses unknown options
        self._block, self._parts, self._stages, self.shape, self._function = 1, [], 1, (0, 0), None
        self._native = EmptySolver(named["rtol"])

    def _vectors(self, name: str, given: Any, word: str) -> list[np.ndarray] | None:
        complex_ = self.dtype.kind == "c"
        if isinstance(given, str):
            if given != word:
                raise InvalidInput(f"`{name}` is {given!r}; expected {word!r} or vectors")
            if complex_ and word == "rigid":
                raise InvalidInput("near_nullspace='rigid' needs a real A; pass the rigid modes as vectors")
            return None
        if not isinstance(given, (list, tuple)) or len(given) > 0 and np.ndim(given[0]) == 0:
            array = np.asarray(given)
            given = [array] if array.ndim == 1 or self._kronecker and array.ndim == 2 else list(array.T)
        flat = [self._flat(np.asarray(v), name).ravel() for v in given]
        return real_vectors([restored(v, self.dtype) for v in flat]) if complex_ else flat

    def _flat(self, v: Any, name: str) -> Any:
        """Return a vector in the order of the solver, contiguous, as real numbers."""
        n, s = self.shape[0], self._stages
        v = numbers_of(v, self.dtype)
        if self._kronecker and tuple(v.shape) == (n,):
            v = numbers_of(v.reshape(s, n // s).T)
        elif tuple(v.shape) not in ([(n // s, s)] if self._kronecker else [(n,), (n, 1)]):
            shapes = f"({n // s}, {s}) or ({n},)" if self._kronecker else f"({n},)"
            raise InvalidInput(f"{name} has shape {tuple(v.shape)}; expected {shapes}")
        return reals(v)

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        max_iters: int | None = None,
        maxiter: int | None = None,
        callback: Callback | None = None,
        out: Any = None,
        verbose: bool | None = None,
        transpose: bool | Literal["N", "T", "H"] = False,
    ) -> Solution:
        """Solve A x = b, Aᵀ x = b or Aᴴ x = b.

        Parameters
        ----------
        b : array, shape (n,) or (n, k); for a Kronecker sum (N, s) or (N, s, k)
            Right-hand sides, on the host or on a GPU. x is on the same device.
        x0 : array of the same shape, optional
            Initial guess. The default is zero.
        rtol, atol, max_iters : optional
            Tolerances and iteration limit of this solve. The defaults are those of the solver.
        callback : callable, optional
            The same as for `krylith.solve`.
        out : array of the shape of b, optional
            Receives x, and is the `x` of the solution: contiguous numbers on the device of b. Their type is float64,
            or complex128 if A or b is complex. It may be x0.
        verbose : bool, optional
            Print the progress and the solution. The default is that of the solver.
        transpose : bool, "T" or "H"
            Solve Aᵀ x = b (True or "T") or Aᴴ x = b ("H"), with the transpose of the preconditioner for A. Nothing is
            analyzed or factored for it. The first such solve lays out Aᵀ.

        Returns
        -------
        Solution
            The same as for `krylith.solve`.
        """
        if max_iters is None:
            max_iters = count(maxiter, "maxiter")
        elif maxiter is not None:
            raise InvalidInput("`max_iters` is given twice, once as `maxiter`")
        return self._solve(b, x0, form_of(transpose), out, rtol, atol, count(max_iters), callback, verbose)

    def _solve(
        self,
        b: Any,
        x0: Any,
        form: Form,
        out: Any,
        rtol: float | None = None,
        atol: float | None = None,
        max_iters: int | None = None,
        callback: Callback | None = None,
        verbose: bool | None = None,
    ) -> Solution:
        """Solve with a form of A."""
        if hasattr(b, "tocsr"):
            raise InvalidInput("b is a sparse matrix; pass a dense array, such as b.toarray()")
        check_callback(callback)
        verbose = self._verbose if verbose is None else verbose
        callback = progress(callback, verbose, self._comm)
        b = self._array(b)
        if out is not None:
            receiver(out, b, "b")
            b = apart(b, out)
        how = (rtol, atol, max_iters, callback, form)
        if b.ndim == (3 if self._kronecker else 2) and b.shape[-1] != 1:
            solution = solve_columns(self, b, x0, how, out)
        else:
            solution = self._one(b, x0, how, out)
        warn(solution)
        if verbose and rank_of(self._comm) == 0:
            print(solution)
        return solution

    def _array(self, v: Any) -> Any:
        """Return the caller's vector as an array, complex if the system is."""
        v = v if is_torch(v) or on_device(v) else np.asarray(v)
        return as_complex(v) if self.dtype.kind == "c" else v

    def _one(self, b: Any, x0: Any, how: tuple[Any, ...], out: Any) -> Solution:
        if is_complex(b) and self.dtype.kind != "c":
            return self._in_parts(b, x0, how, out)
        flat = self._flat(b, "b")
        # The numbers of a flat vector of stages have another order here.
        direct = out is not None and not (self._kronecker and b.ndim == 1)
        x = reals(receiver(out, b, "b")).reshape(flat.shape) if direct else zeros_like(flat) if x0 is None else empty_like(flat)
        if x0 is not None:
            x[...] = self._flat(x0, "x0").reshape(x.shape)
        elif direct:
            x[...] = 0.0
        right, left = flat.reshape(-1), x.reshape(-1)
        *limits, form = how
        transposed, conjugates = form.of_reals(self.dtype)
        if conjugates:
            right, left = conjugated(right), conjugate(left)
        if self._function is not None:
            if on_device(right):
                raise InvalidInput(f"the preconditioner is a function of host vectors, and b is on a GPU; {_NAME}")
            if transposed:
                raise InvalidInput(f"the preconditioner is a function, whose transpose is not known; {_NAME}")
            done = self._native.solve_with(self._apply_function, right, left, *limits)
        else:
            done = self._native.solve(lend(right), lend(left), *limits, transposed, *self._maps)
        native, raised = done
        if conjugates:
            conjugate(left)
        solution = Solution(self._returned(x, b, out, direct), native)
        if raised is None:
            return solution
        if isinstance(raised, KeyboardInterrupt):
            raise Interrupted(solution) from None
        raise raised

    def _in_parts(self, b: Any, x0: Any, how: tuple[Any, ...], out: Any) -> Solution:
        """Solve a real system for the real and the imaginary part of b, as two right-hand sides."""
        x0 = x0 if x0 is None or hasattr(x0, "real") else np.asarray(x0)
        rtol, atol, *more = how
        if atol or self._named["atol"]:
            # Both residuals together meet a tolerance if each of them meets it divided by √2.
            rtol, atol = (
                (self._named[key] if given is None else given) / math.sqrt(2) for key, given in (("rtol", rtol), ("atol", atol))
            )
        parts = []
        for of, guess in zip((b.real, b.imag), (None, None) if x0 is None else (x0.real, x0.imag)):
            parts.append(self._one(of, guess, (rtol, atol, *more), None))
        x = receiver_of(b, out, "b")
        x.real[...], x.imag[...] = (one.x for one in parts)
        return Solution(x if out is None else out, worst(parts)._native, tuple(parts))

    def _returned(self, x: Any, like: Any, out: Any, direct: bool) -> Any:
        """Return a vector of the solver in the caller's library and ordering, or `out` with its numbers."""
        if direct:
            return out
        x = self._shaped(restored(x, self.dtype), like.shape)
        if out is not None:
            receiver(out, like, "b")[...] = x
            return out
        if is_torch(like) and not is_torch(x):
            import torch

            x = torch.from_numpy(x)
        return x

    def _shaped(self, x: Any, shape: Sequence[int]) -> Any:
        """Return a vector of the solver in the caller's ordering."""
        if self._kronecker and len(shape) == 1:
            x = x.T.reshape(-1)
        return x.reshape(tuple(shape))

    def _apply_function(self, v: np.ndarray) -> np.ndarray:
        """Apply the caller's preconditioner to a vector of the solver."""
        assert self._function is not None
        if not self._kronecker:
            return np.asarray(self._function(v))
        n, s = self.shape[0], self._stages
        z = self._function(v.reshape(n // s, s).T.reshape(-1))
        return np.asarray(self._flat(np.asarray(z).reshape(-1), "the result of the preconditioner")).reshape(-1)

    def multiply(self, x: Any, out: Any = None, *, transpose: bool | Literal["N", "T", "H"] = False) -> Any:
        """Return A x, Aᵀ x or Aᴴ x, computed on the device of the solver.

        x has shape (n,) or (n, k), and is on the host or on a GPU. The product is written to `out` if it is given;
        `out` and `transpose` are those of `solve`.
        """
        return self._apply(False, form_of(transpose), x, out)

    def precondition(self, x: Any, out: Any = None, *, transpose: bool | Literal["N", "T", "H"] = False) -> Any:
        """Return P⁻¹ x, P⁻ᵀ x or P⁻ᴴ x, with the preconditioner that is set up; without one, return a copy of x.

        The result is written to `out` if it is given; `out` and `transpose` are those of `solve`.
        """
        return self._apply(True, form_of(transpose), x, out)

    def _map(self, v: Any, out: Any, form: Form) -> Any:
        return self._solve(v, None, form, out).x

    def _apply(self, preconditioner: bool, form: Form, x: Any, out: Any) -> Any:
        if self._maps[preconditioner] is not None:
            raise InvalidInput(f"{'the preconditioner' if preconditioner else 'A'} is a function; apply it yourself")
        x = self._array(x)
        if out is not None:
            receiver(out, x, "x")
            x = apart(x, out)
        if x.ndim == (3 if self._kronecker else 2) and x.shape[-1] != 1:
            y = receiver_of(x, out, "x")
            for k in range(x.shape[-1]):
                y[..., k] = self._apply(preconditioner, form, x[..., k], None)
            return y if out is None else out
        if is_complex(x) and self.dtype.kind != "c":
            y = receiver_of(x, out, "x")
            y.real[...], y.imag[...] = (self._apply(preconditioner, form, part, None) for part in (x.real, x.imag))
            return y if out is None else out
        flat = self._flat(x, "x")
        direct = out is not None and not (self._kronecker and x.ndim == 1)
        y = reals(receiver(out, x, "x")).reshape(flat.shape) if direct else empty_like(flat)
        right, left = flat.reshape(-1), y.reshape(-1)
        transposed, conjugates = form.of_reals(self.dtype)
        if conjugates:
            right = conjugated(right)
        if preconditioner and self._function is not None:
            if transposed:
                raise InvalidInput(f"the preconditioner is a function, whose transpose is not known; {_NAME}")
            left[...] = self._apply_function(right)
        else:
            with interrupts():
                self._native.apply(preconditioner, lend(right), lend(left), transposed)
        if conjugates:
            conjugate(left)
        return self._returned(y, x, out, direct)

    def update_values(
        self,
        A: Any,
        *,
        refresh: Literal["refresh", "keep", "rebuild"] = "refresh",
        matrices: Mapping[str, Any] | None = None,
        on_new_pattern: Literal["raise", "rebuild"] = "raise",
    ) -> None:
        """Set new values with the same pattern.

        If the new values are rejected, nothing changes.

        Parameters
        ----------
        A : sparse matrix or KroneckerSum of the same pattern, or an array
            An array holds the numbers in the order of the first matrix, like its `data`. A Kronecker sum may
            also have new A, B and τ, with the same number of stages, and its M and L may be arrays. Over ranks,
            each passes its own rows, and an error of one rank is raised on all.
        refresh : {"refresh", "keep", "rebuild"}
            Recompute the preconditioner for the new values in its existing structure, keep it as it is, or
            build it again.
        matrices : dict, optional
            New values of matrices that the preconditioner names, with the pattern of the old ones.
        on_new_pattern : {"raise", "rebuild"}
            If a matrix has another pattern, raise `krylith.InvalidInput`, or set the solver up anew for it with
            the same options. Over ranks all of them set up anew if one has to.
        """
        if on_new_pattern not in ("raise", "rebuild"):
            raise InvalidInput(f"`on_new_pattern` is {on_new_pattern!r}; expected 'raise' or 'rebuild'")
        if self._kronecker and not isinstance(A, KroneckerSum):
            raise InvalidInput("new values of a Kronecker sum must be a KroneckerSum")
        news: list[Any] = []
        problem: InvalidInput | None = None
        try:
            if not self._parts and tuple(np.shape(A)) not in ((0, 0), (0,)):
                raise NewPattern("the first matrix is 0×0; create a new Solver, or pass on_new_pattern='rebuild'")
            olds = (A.M, A.L) if isinstance(A, KroneckerSum) else (A,)
            news = [new_values(matrix, parts) for matrix, parts in zip(olds, self._parts)]
        except InvalidInput as e:
            if on_new_pattern == "raise":
                if is_shared(self._comm):
                    # The other ranks wait for this one in their updates.
                    with contextlib.suppress(InvalidInput):
                        self._native.refuse(str(e))
                raise
            problem = e
        renewed, option = isinstance(problem, NewPattern), "on_new_pattern='rebuild'"
        if on_new_pattern == "rebuild" and any_rank(self._comm, problem is not None and not renewed, option):
            raise problem or InvalidInput("another rank rejects its new values")
        if on_new_pattern == "rebuild" and any_rank(self._comm, renewed, option):
            before = dict(self.__dict__)
            try:
                self._name_matrices(matrices)
                self._set_up(A)
            except BaseException:
                self.__dict__.update(before)
                raise
            return
        for name, matrix in (matrices or {}).items():
            self._native.set_matrix(name, arrays_of(matrix, self.dtype.kind == "c"))
        self._name_matrices(matrices)
        self._native.set_refresh(refresh)
        with interrupts():
            if isinstance(A, KroneckerSum):
                self._native.update_kronecker(A.A, A.B, A.tau, *map(lend, news))
                self._sum = KroneckerSum(A.A, None, A.B, None, A.tau)
            elif news:
                self._native.update(lend(news[0]))
        LOG.debug("new values: %r", self)

    def _name_matrices(self, matrices: Mapping[str, Any] | None) -> None:
        if matrices:
            self._system = self._system | {"matrices": {**(self._system["matrices"] or {}), **matrices}}

    def set_tau(self, tau: float) -> None:
        """Set a new τ of a Kronecker sum; over ranks, the same on every rank."""
        with interrupts():
            self._native.set_tau(tau)
        if self._sum is not None:
            self._sum.tau = float(tau)

    @property
    def memory(self) -> Memory:
        """Bytes of the matrix and its preconditioner on the host and on a GPU, as far as the library knows them."""
        return Memory(*self._native.memory())

    def close(self) -> None:
        """Free the memory of the solver; a later use raises `krylith.InvalidInput`."""
        self._native = ClosedSolver()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if isinstance(self._native, ClosedSolver):
            return "<krylith.Solver, closed>"
        precond = self._named["precond"]
        rows, columns = self.shape
        what = precond if isinstance(precond, str) else type(precond).__name__
        return (
            f"<krylith.Solver {rows}×{columns}, method {self._named['method']}, "
            f"precond {what}, on {self._native.device}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        if self._comm is not None:
            raise TypeError("a solver over ranks cannot be copied or pickled; create it on the ranks")
        if self._maps != (None, None):
            raise TypeError("a solver of a function cannot be copied or pickled")
        if any(one.gpu is not None for one in self._parts):
            raise TypeError("a solver whose matrix is on a GPU cannot be copied or pickled; create it from a host matrix")
        state = {name: getattr(self, name) for name in ("_named", "_options", "_system", "_fields", "_verbose", "_sum", "_block")}
        if isinstance(self._native, ClosedSolver):
            raise TypeError("a closed solver cannot be copied or pickled")
        arrays = self._native.matrices() if self._parts else []
        return state | {"_parts": [with_values(*pair) for pair in zip(self._parts, arrays)]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._comm, self._of, self._maps = None, None, (None, None)
        if self._parts:
            self._set_up(self._sum, self._parts)
        else:
            self._kronecker = self._sum is not None
            self._set_up_nothing(self._named)

    def cancel(self) -> None:
        """End the solve that another thread runs; its outcome is `interrupted`."""
        self._native.cancel()


class Once(Solver):
    """A solver for a single call, which does not accept new values."""

    _keeps = False
