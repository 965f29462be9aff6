"""Methods that run what their first argument says, as frameworks on Ray's actors have them: their calls are named by
it.

``execute`` and ``apply`` run a function, as do the methods of verl's workers that begin so, and ``__ray_call__``, which
Ray adds to every actor. Others get the name of a method: ``execute_batch`` (OpenRLHF), ``execute_method`` and
``collective_rpc`` (vLLM), ``_fuw_execute`` (verl, where it follows the name of the role).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._ray.dispatch import Naming, Shown
from ray_tracing_hooks._ray.function_names import name_of
from ray_tracing_hooks._ray.templates import shown_class

PART = "actor"

_OF_RAY = "ray."

_ROLE = "_fwmn_"
"""Stands between the role and the method in the calls of fused workers in verl."""

_LONGEST_NAME = 200
"""A longer text is not the name of a method."""


def of(module: str, class_name: str, function: str) -> Naming | None:
    """The naming of a method with one of these names, in a class of the program."""
    find = _BY_METHOD.get(function) if class_name and not module.startswith(_OF_RAY) else None
    if find is None:
        return None
    shown = shown_class(class_name)

    def by(args: Any, kwargs: Any) -> Shown | None:
        first = args[0] if args else next(iter(kwargs.values()), None)
        name = find(first)
        return Shown(f"{shown}.{name}") if name else None

    return Naming(PART, by)


def _named(first: Any) -> str | None:
    """The method that is called by its name."""
    if type(first) is str:
        return first if len(first) <= _LONGEST_NAME and first.isidentifier() else None
    return name_of(first)


def _of_role(first: Any) -> str | None:
    is_short = type(first) is str and len(first) <= _LONGEST_NAME
    return _named(first.replace(_ROLE, "_") if is_short else first)


_BY_METHOD: dict[str, Callable[[Any], str | None]] = {
    "__ray_call__": name_of,
    "apply": name_of,
    "execute": name_of,
    "execute_func_rank_zero": name_of,
    "execute_with_func_generator": name_of,
    "collective_rpc": _named,
    "execute_batch": _named,
    "execute_method": _named,
    "_fuw_execute": _of_role,
}
