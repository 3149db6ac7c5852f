"""Options by prefix: `-<prefix>krylith_<option>`, one for each option of Krylith."""

# petsc4py has no types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

from petsc4py import PETSc

from krylith import _native
from krylith._errors import InvalidInput

#: The kind of each option of a solve.
_KINDS: dict[str, str] = {name: kind for option, kind, old in _native.options() for name in (option, *old)}

#: What describes the system; PETSc's matrix and DM have the rest.
_SYSTEM = {"block": "count", "nullspace": "text", "near_nullspace": "text", "fields": "text"}

#: What the KSP itself has a name for.
_OF_KSP = {"rtol": "-ksp_rtol", "atol": "-ksp_atol", "max_iters": "-ksp_max_it", "maxiter": "-ksp_max_it"}

#: What belongs to the iterations of a whole solve, which a preconditioner does not make.
_OF_SOLVE = (
    "method", "restart", "orthogonalization", "reductions", "form", "s", "basis", "criterion", "relative_to", "time_limit",
    "equilibrate", "matching", "rtol", "atol", "max_iters", "maxiter",
)  # fmt: skip

#: Monitors that compute with an x, which Krylith has only at the end.
_MONITORS = ("ksp_monitor_true_residual", "ksp_monitor_true_residual_max", "ksp_monitor_solution", "ksp_monitor_error", "ksp_monitor_singular_value")

_YES, _NO = ("", "1", "true", "yes", "on"), ("0", "false", "no", "off")


def known(name: str, of_ksp: bool, said: str) -> str:
    """Return the kind of an option; refuse one that is not known, or that belongs elsewhere.

    `said` is how the user wrote it.
    """
    if of_ksp and name in _OF_KSP:
        raise InvalidInput(f"`{said}` is one of the KSP itself; give {_OF_KSP[name]}")
    if not of_ksp and name in _OF_SOLVE:
        raise InvalidInput(
            f"`{said}` has no effect on a preconditioner; whole solves are those of -ksp_type python "
            "-ksp_python_type krylith.petsc.KSP, or inside another KSP of -pc_type ksp"
        )
    kind = _KINDS.get(name) or _SYSTEM.get(name)
    if kind is None:
        names = [*_KINDS, *_SYSTEM]
        near = _native.meant("option", name, names)
        raise InvalidInput(f"unknown option `{said}`; " + (f"did you mean `{near}`?" if near else f"the known ones are {', '.join(names)}"))
    return kind


def options_of(prefix: str | None, of_ksp: bool) -> dict[str, Any]:
    """Return the options of a KSP or a PC with this prefix."""
    database = PETSc.Options(f"{prefix or ''}krylith_")
    found: dict[str, Any] = {}
    for name in database.getAll():
        said = f"-{prefix or ''}krylith_{name}"
        kind = known(name, of_ksp, said)
        found[name] = _value(kind, database.getString(name, ""), said)
    return found


def _value(kind: str, text: str, said: str) -> Any:
    text = text.strip()
    if kind == "flag":
        if text.lower() in _YES + _NO:
            return text.lower() in _YES
        raise InvalidInput(f"`{said}` is {text!r}; expected true or false")
    if not text:
        raise InvalidInput(f"`{said}` has no value")
    if kind not in ("count", "real"):
        return text
    try:
        number = float(text)
    except ValueError:
        number = -1.0 if kind == "count" else float("nan")
    if kind == "count" and not (number >= 0 and number.is_integer()) or number != number:
        raise InvalidInput(f"`{said}` is {text!r}; expected a {'whole number, 0 or more' if kind == 'count' else 'number'}")
    return int(number) if kind == "count" else number


def has_monitors(prefix: str | None) -> bool:
    """Return True if options ask for monitors of a KSP; refuse those that need x during the solve."""
    database = PETSc.Options(prefix or "")
    names = [name for name in database.getAll() if name.startswith("ksp_monitor")]
    for name in names:
        if name in _MONITORS:
            raise InvalidInput(
                f"`-{prefix or ''}{name}` computes with x, which Krylith has at the end only; -ksp_monitor shows ‖b − A x‖"
            )
    return any(name != "ksp_monitor_cancel" for name in names)
