"""Calls that run something else than their function's name says, such as a block of a Ray Data operator, or a function
that is an argument of ``actor.apply``: their spans are named by what they run.

Both sides of a call name it by its arguments, or its caller does, and the call carries what it runs. A row of
:data:`NAMINGS` names a module of this package with a function ``labeler_for(module, class_name, function)`` that
returns the :class:`CallLabeler` of a function or method, or None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed


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

    part: str
    """The part in ``RAY_TRACING_RAY`` that these calls belong to."""
    by: Callable[[Any, Any], CallLabel | None]
    """Names a call by its arguments and keyword arguments, those of a method without ``self``. None if they do not say
    what it runs; such a call is named by its function. The creation of an actor is named where it is submitted."""
    returns: Callable[[RecordedSpan, Any], None] | None = None
    """Called in the worker with the span of a call that is recorded, and what it returns, for a generator each item."""

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


class Source(NamedTuple):
    """Where the namings of a library are."""

    part: str
    """The part in ``RAY_TRACING_RAY`` that it belongs to."""
    modules: str
    """How the names of the modules begin whose functions and classes it names."""
    module: str
    """The module of this package."""


NAMINGS: tuple[Source, ...] = (
    *(
        Source(library.part, modules, f"{library.part}.{module}")
        for library in LIBRARIES
        for modules, module in library.naming
    ),
    Source("actor", "", "function_names"),
)

_MOST_NAMES = 1000
"""Bounds the cache of a function, since what it runs may have any name."""


class Namings:
    """The namings of this connection. ``parts`` are those of ``RAY_TRACING_RAY``."""

    def __init__(self, parts: Iterable[str]) -> None:
        self._sources = tuple(source for source in NAMINGS if source.part in parts)

    def of(self, module: str, class_name: str, function: str) -> CallLabeler | None:
        """The naming of the calls of a function, or of a method if there is a ``class_name``; for most there is none.

        ``module`` is that of the function or of the class. Never raises.
        """
        for source in self._sources:
            if module.startswith(source.modules):
                try:
                    naming: CallLabeler | None = import_module(f"{__package__}.{source.module}").labeler_for(
                        module, class_name, function
                    )
                except Exception as error:  # noqa: BLE001  as above
                    failed("naming calls of a library", error)
                    continue
                if naming is not None:
                    return naming
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
        try:
            return make(shown)(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return execute
