"""Calls that run something else than their function's name says, such as a block of a Ray Data operator, or a function
that is an argument of ``actor.apply``: their spans are named by what they run.

Both sides of a call name it by its arguments, or its caller does, and the call carries what it runs. The descriptor of
a library names the module that has the labelers of its calls (``Library.naming``). :func:`labeler_for` is that of
classes of the program.

Nothing of the program runs to find the name of a function that a call runs. Methods that run their first argument, as
frameworks on Ray's actors have them, are named by it. ``execute`` and ``apply`` run a function, as do the methods of
verl's workers that begin so, and ``__ray_call__``, which Ray adds to every actor. Others get the name of a method:
``execute_batch`` (OpenRLHF), ``execute_method`` and ``collective_rpc`` (vLLM), ``_fuw_execute`` (verl, where it follows
the name of the role).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from importlib import import_module
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._ray.templates import shown_class
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import failed, guarded


class CallLabel(NamedTuple):
    """What a call runs."""

    name: str
    """Names its spans, and is their ``ray.function``."""
    attributes: bytes = b""
    """Further encoded attributes of both spans."""
    is_carried: bool = False
    """Whether the call carries all of this to its worker, which cannot find it out from the arguments."""


class CallLabeler(NamedTuple):
    """Names the calls of one function or method."""

    by: Callable[[Any, Any], CallLabel | None]
    """Names a call by its arguments and keyword arguments, those of a method without ``self``. None if they do not say
    what it runs; such a call is named by its function. The creation of an actor is named where it is submitted."""
    returns: Callable[[RecordedSpan, Any], None] | None = None
    """Called in the worker with the span of a call that is recorded, and what it returns, for a generator each item."""
    part: str = ""
    """The part in ``RAY_TRACING_RAY`` that these calls belong to, which :meth:`Namings.of` sets."""

    def shown(self, args: Any, kwargs: Any) -> CallLabel | None:
        """What a call with these arguments runs, None if that is unknown. Never raises."""
        try:
            return self.by(args or (), kwargs or {})
        except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
            failed("naming a call", error)
            return None

    def returned(self, span: RecordedSpan, result: Any) -> None:
        """Call :attr:`returns`, if there is one. Never raises."""
        try:
            if self.returns is not None:
                self.returns(span, result)
        except Exception as error:  # noqa: BLE001  as above
            failed("describing the result of a call", error)


_NAMINGS: tuple[tuple[str, str, str], ...] = (
    *(
        (library.part, modules, f"{__package__}.{library.part}.{module}")
        for library in LIBRARIES
        for modules, module in library.naming
    ),
    ("actor", "", __name__),
)
"""Parts in ``RAY_TRACING_RAY``, how the names of the modules begin whose functions and classes are named, and the
modules of this package that name them."""

_MOST_NAMES = 1000
"""Bounds the caches, since what calls run may have any name."""


class Namings:
    """The namings of this connection. ``parts`` are those of ``RAY_TRACING_RAY``."""

    def __init__(self, parts: Iterable[str]) -> None:
        self._namings = tuple(naming for naming in _NAMINGS if naming[0] in parts)

    def of(self, module: str, class_name: str, function: str) -> CallLabeler | None:
        """The naming of the calls of a function, or of a method if there is a ``class_name``; for most there is none.

        ``module`` is that of the function or of the class. Never raises.
        """
        for part, modules, ours in self._namings:
            if module.startswith(modules):
                found: CallLabeler | None = None
                with guarded("naming calls of a library"):
                    found = import_module(ours).labeler_for(module, class_name, function)
                if found is not None:
                    return found._replace(part=part)
        return None


class Begins:
    """What begins the tasks of one function or method, for each that they run.

    ``make`` returns it for the name of what runs, empty if the arguments do not say that, and the part of a library.
    """

    def __init__(self, make: Callable[[str, str], Callable[..., Any]], part: str) -> None:
        self._make, self._part = make, part
        self._made: dict[str, Callable[..., Any]] = {}

    def of(self, runs: CallLabel | None) -> Callable[..., Any]:
        """What begins a task that runs this."""
        name = runs.name if runs is not None else ""
        begin = self._made.get(name)
        if begin is None:
            if len(self._made) >= _MOST_NAMES:
                self._made.clear()
            begin = self._made[name] = self._make(name, self._part)
        if runs is None or not runs.attributes:
            return begin
        attributes, known = runs.attributes, begin

        def begin_with_attributes(carried: bytes | None, more: Callable[[], bytes] | None = None) -> Any:
            return known(carried, lambda: attributes + more() if more is not None else attributes)

        return begin_with_attributes


def executor(
    function: Callable[..., Any],
    naming: CallLabeler,
    make: Callable[[CallLabel | None], Callable[..., Any]],
    *,
    is_method: bool,
) -> Callable[..., Any]:
    """An executor of ``function`` that runs each call with the one that ``make`` returns for what the call runs."""

    @functools.wraps(function)
    def execute(*args: Any, **kwargs: Any) -> Any:
        shown = naming.shown(args[1:] if is_method else args, kwargs)
        with hidden_frame:
            return make(shown)(*args, **kwargs)

    return execute


_LAMBDA = "<lambda>"

_MOST_LEVELS = 10
"""Bounds partial functions within each other."""

_CALLS_BY_NAME = {(module, function): variable for library in LIBRARIES for module, function, variable in library.calls}


def name_of(function: Any) -> str | None:
    """The name of a function; None if ``function`` is something else.

    A lambda is named by the first method or attribute of its first argument that it uses, such as ``sample`` for
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
            return _first_attribute(function.__code__) or _LAMBDA
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


@functools.lru_cache(maxsize=_MOST_NAMES)
def _first_attribute(code: CodeType) -> str:
    # Equal code is equal as a key, also where it was unpickled anew.
    if not code.co_argcount:
        return ""
    from dis import get_instructions  # noqa: PLC0415  few programs pass lambdas to actors

    first = code.co_varnames[0]
    for load, attribute in itertools.pairwise(get_instructions(code)):
        # From Python 3.13 on, one instruction may load two variables: the last one is on top.
        loaded = load.argval[-1] if isinstance(load.argval, tuple) else load.argval
        if load.opname.startswith("LOAD_FAST") and loaded == first and attribute.opname in _ATTRIBUTES:
            return str(attribute.argval)
    return ""


_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}


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

    return CallLabeler(by)


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
