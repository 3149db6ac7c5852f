"""Options as the library reads them: words of text."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import numpy as np

from krylith import _native
from krylith._errors import InvalidInput


class Options(TypedDict, total=False):
    """Options beyond those that `solve` names."""

    restart: int
    orthogonalization: str
    reductions: str
    form: str
    s: int
    basis: str
    time_limit: float
    store: str
    format: str
    threads: int
    deterministic: bool
    equilibrate: bool
    matching: str
    zeros: str
    partition: str
    memory_limit: int | str


#: Their names.
_OPTIONS = tuple(Options.__annotations__)


#: What `solve` names, as the library calls it.
_NAMED = {"method": "method", "precond": "precond", "rtol": "rtol", "atol": "atol", "maxiter": "max_iters", "device": "device"}

#: Words of SciPy's signatures that ours have elsewhere.
_ELSEWHERE = {
    "M": "`precond=` takes a name; krylith.cg, gmres and their like take a preconditioner as `M=`",
    "verbose": "print the solution, or give a callback",
    "disp": "print the solution, or give a callback",
}


def options_text(named: dict[str, Any], more: dict[str, Any]) -> str:
    """Options as the library reads them, those that `solve` names and others."""
    for name in more:
        if name not in _OPTIONS:
            raise InvalidInput(f"unknown option `{name}`; {_ELSEWHERE.get(name) or _hint(name)}")
    words = []
    for name, value in {**named, **more}.items():
        if value is None:
            continue
        if name in ("method", "precond"):
            value = _word(name, value)
        elif isinstance(value, (bool, np.bool_)):
            value = str(bool(value)).lower()
        elif isinstance(value, (float, np.floating)):
            # A count may come as 1e3.
            whole = name not in ("rtol", "atol", "time_limit") and float(value).is_integer()
            value = int(value) if whole else repr(float(value))
        elif len(str(value).split()) != 1:
            raise InvalidInput(f"`{name}` is {value!r}; options have no spaces")
        words.append(f"{_NAMED.get(name, name)}={value}")
    return " ".join(words)


def _hint(name: str) -> str:
    # The library knows other programs' words, and calls one thing otherwise than Python does.
    ours = {library: python for python, library in _NAMED.items()}
    known = [*_OPTIONS, *_NAMED.values()]
    near = _native.meant("option", name, known)
    return f"did you mean `{ours.get(near, near)}`?" if near else f"the known ones are {', '.join([*_NAMED, *_OPTIONS])}"


def _word(name: str, value: Any) -> str:
    """A method or a preconditioner, which may be a composition, such as `ildu then amg`."""
    if not isinstance(value, str):
        how = "a preconditioner that is made goes to krylith.gmres and its like as `M=`" if hasattr(value, "matvec") or callable(value) else "as in the guide"
        raise InvalidInput(f"`{name}` is a {type(value).__name__}; expected a name, such as {'ildu:fill=1' if name == 'precond' else 'gmres:restart=50'}: {how}")
    call = re.fullmatch(r"(\w+)\((\d+)\)", value.strip())
    if name == "method" and call:
        raise InvalidInput(f"`method` is {value!r}; GMRES({call[2]}) is written `gmres:restart={call[2]}`")
    if not value.split():
        raise InvalidInput(f"`{name}` is {value!r}; expected a name")
    for word in value.split()[1:]:
        if "=" in word and ":" not in word.partition("=")[0]:
            raise InvalidInput(f"`{name}` is {value!r}; options have no spaces: give {word.partition('=')[0]} by itself")
    return value


def threads_of(options: Any) -> int | None:
    """Threads of the host that options allow; None where they say nothing, or what they say is refused later."""
    threads = options.get("threads")
    is_number = isinstance(threads, (int, float, np.number)) and not isinstance(threads, bool)
    return int(threads) if is_number and threads >= 1 and float(threads).is_integer() else None


def count(maxiter: Any) -> int | None:
    """A limit of iterations, which may come as 1e3."""
    if maxiter is None:
        return None
    if isinstance(maxiter, (int, float, np.number)) and maxiter >= 0 and float(maxiter).is_integer():
        return int(maxiter)
    raise InvalidInput(f"`maxiter` is {maxiter!r}; expected a whole number, 0 or more")
