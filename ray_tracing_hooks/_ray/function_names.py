"""The names of functions that calls run. Nothing of the program runs to find them.

Methods that run their first argument, as frameworks on Ray's actors have them, are named by it.
``execute`` and ``apply`` run a function, as do the methods of verl's workers that begin so, and ``__ray_call__``, which
Ray adds to every actor. Others get the name of a method: ``execute_batch`` (OpenRLHF), ``execute_method`` and
``collective_rpc`` (vLLM), ``_fuw_execute`` (verl, where it follows the name of the role).
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from ray_tracing_hooks._ray.dispatch import CallLabel, CallLabeler
from ray_tracing_hooks._ray.templates import shown_class

_LAMBDA = "<lambda>"

_MOST_LAMBDAS = 1000
"""Bounds the cache."""

_MOST_LEVELS = 10
"""Bounds partial functions within each other."""

_CALLS_BY_NAME = {("ray.rllib.utils.actor_manager", "_method_caller.<locals>._call"): "method_name"}
"""Functions of Ray's libraries that call a method by its name, and the variable that has it."""

_called_first: dict[CodeType, str] = {}


def name_of(function: Any) -> str | None:
    """The name of a function; None if ``function`` is something else.

    A lambda is named by the first method that it calls of its first argument, such as ``sample`` for
    ``lambda worker: worker.sample()``.
    """
    kind = type(function)
    for _ in range(_MOST_LEVELS):
        if kind is functools.partial:
            function = function.func
        elif kind is MethodType:
            function = function.__func__
        else:
            break
        kind = type(function)
    if kind is FunctionType:
        # It may be of a class of the program, whose methods would run where it is compared or shown.
        name = str.__str__(function.__name__)
        if name == _LAMBDA:
            return _name_of_lambda(function.__code__)
        variable = _CALLS_BY_NAME.get((function.__module__, function.__qualname__))
        return name if variable is None else _value_in(function, variable) or name
    return str(function.__name__) if kind is BuiltinFunctionType else None


def _value_in(function: FunctionType, variable: str) -> str | None:
    """The text in a variable of the function around this one."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        if name == variable:
            value = cell.cell_contents
            return value if isinstance(value, str) else None
    return None


def _name_of_lambda(code: CodeType) -> str:
    # Equal code is equal as a key, also where it was unpickled anew.
    known = _called_first.get(code)
    if known is None:
        if len(_called_first) >= _MOST_LAMBDAS:
            _called_first.clear()
        known = _called_first[code] = _first_method(code) or _LAMBDA
    return known


def _first_method(code: CodeType) -> str:
    if not code.co_argcount:
        return ""
    first = code.co_varnames[0]
    instructions = list(dis.get_instructions(code))
    for index, (load, attribute) in enumerate(itertools.pairwise(instructions)):
        loaded = load.argval
        # From Python 3.13 on, one instruction may load two variables: the last one is on top.
        loaded = loaded[-1] if isinstance(loaded, tuple) else loaded
        is_of_first = load.opname.startswith("LOAD_FAST") and loaded == first and attribute.opname in _ATTRIBUTES
        if is_of_first and _is_called(attribute, instructions[index + 2 :]):
            return str(attribute.argval)
    return ""


_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


def _is_called(attribute: dis.Instruction, following: list[dis.Instruction]) -> bool:
    """Whether an attribute is loaded to be called."""
    # From Python 3.12 on a flag says so.
    if attribute.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and (attribute.arg or 0) & 1):
        return True
    # With ``**options`` it is loaded as any other attribute.
    return following[0].opname not in _ATTRIBUTES and any(each.opname == "CALL_FUNCTION_EX" for each in following)


PART = "actor"

_OF_RAY = "ray."

_ROLE = "_fwmn_"
"""Stands between the role and the method in the calls of fused workers in verl."""

_LONGEST_NAME = 200
"""A longer text is not the name of a method."""


def labeler_for(module: str, class_name: str, function: str) -> CallLabeler | None:
    """The naming of a method with one of these names, in a class of the program."""
    find = _BY_METHOD.get(function) if class_name and not module.startswith(_OF_RAY) else None
    if find is None:
        return None
    shown = shown_class(class_name)

    def by(args: Any, kwargs: Any) -> CallLabel | None:
        first = args[0] if args else next(iter(kwargs.values()), None)
        name = find(first)
        return CallLabel(f"{shown}.{name}") if name else None

    return CallLabeler(PART, by)


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
