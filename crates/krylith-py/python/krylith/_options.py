"""Options as the library reads them: words of text.

The library declares the options. `_keywords.py` has their types, written from the same declarations.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from krylith import _native
from krylith._errors import InvalidInput
from krylith._keywords import Options

__all__ = ["Options", "count", "options_text", "threads_of"]

#: The kind of each option, by its name or a name of an earlier version.
_KINDS = {name: kind for option, kind, old in _native.options() for name in (option, *old)}

#: SciPy's names of options.
_ALIASES = {"maxiter": "max_iters"}

#: Words of SciPy's signatures that name something else here.
_ELSEWHERE = {
    "M": "give the preconditioner, a function or a name as `precond=`; krylith.cg, gmres and the like take `M=`",
    "disp": "`verbose=True` prints the progress",
    "show": "`verbose=True` prints the progress",
}


def options_text(named: dict[str, Any], more: dict[str, Any]) -> str:
    """Options as the library reads them: those of a signature, and others."""
    given = {name: value for name, value in named.items() if value is not None}
    for name, value in more.items():
        if value is None:
            continue
        ours = _ALIASES.get(name, name)
        if ours not in _KINDS:
            raise InvalidInput(f"unknown option `{name}`; {_ELSEWHERE.get(name) or _hint(name)}")
        if ours in given:
            raise InvalidInput(f"`{ours}` is given twice, once as `{name}`")
        given[ours] = count(value, name) if _KINDS[ours] == "count" and not isinstance(value, bool) else value
    return " ".join(f"{name}={_value(name, value)}" for name, value in given.items())


def _value(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if name in ("method", "precond"):
        return _word(name, value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if kind == "count":
        return count(value, name)
    if isinstance(value, (float, np.floating)):
        # A number of bytes may come as 1e9.
        return int(value) if kind == "bytes" and float(value).is_integer() else repr(float(value))
    if len(str(value).split()) != 1:
        raise InvalidInput(f"`{name}` is {value!r}; the value of an option has no spaces")
    return value


def _hint(name: str) -> str:
    # The library knows other programs' words.
    near = _native.meant("option", name, list(_KINDS))
    return f"did you mean `{near}`?" if near else f"the known ones are {', '.join(name for name, _, _ in _native.options())}"


def _word(name: str, value: Any) -> str:
    """A method or a preconditioner, which may be a composition, such as `ildu then amg`."""
    if not isinstance(value, str):
        how = (
            "only krylith.solve, Solver and the methods by name take preconditioner objects and functions"
            if hasattr(value, "matvec") or callable(value)
            else "the guide lists the names"
        )
        example = "ildu:fill=1" if name == "precond" else "gmres:restart=50"
        raise InvalidInput(f"`{name}` is of type {type(value).__name__}; expected a name, such as {example}: {how}")
    call = re.fullmatch(r"(\w+)\((\d+)\)", value.strip())
    if name == "method" and call:
        raise InvalidInput(f"`method` is {value!r}; GMRES({call[2]}) is written `gmres:restart={call[2]}`")
    if not value.split():
        raise InvalidInput(f"`{name}` is {value!r}; expected a name")
    open_parentheses = 0
    for place, word in enumerate(value.split()):
        inside = open_parentheses > 0
        open_parentheses += word.count("(") - word.count(")")
        if place > 0 and not inside and "=" in word and ":" not in word.partition("=")[0]:
            option = word.partition("=")[0]
            raise InvalidInput(f"`{name}` is {value!r}; the value of an option has no spaces: give {option} by itself")
    return value


def threads_of(options: Any) -> int | None:
    """Threads of the host that options allow; None if they do not say, or if the library will refuse the number."""
    threads = options.get("threads")
    is_number = isinstance(threads, (int, float, np.number)) and not isinstance(threads, bool)
    return int(threads) if is_number and threads >= 1 and float(threads).is_integer() else None


def count(value: Any, name: str = "max_iters") -> int | None:
    """A whole number, which may come as 1e3."""
    if value is None:
        return None
    if isinstance(value, (int, float, np.number)) and value >= 0 and float(value).is_integer():
        return int(value)
    raise InvalidInput(f"`{name}` is {value!r}; expected a whole number, 0 or more")
