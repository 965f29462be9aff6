"""The attributes for arguments and result of a function or method, where they are recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record.argument_text import Redactor
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import failed

_MOST_DECORATORS = 100
"""Bounds the chain of decorators, since a function may claim to wrap itself."""


class RecordedArguments:
    """Renders the arguments and the result of one function or method. A method's first argument is its actor."""

    def __init__(self, redactor: Redactor, function: Any, name: str, *, is_method: bool) -> None:
        self._redactor = redactor
        self._name = name
        self._names = _parameters(function)
        self._is_method = is_method
        self._drops_first: bool | None = None if is_method else False

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], bytes]:
        """A function that returns the encoded attribute of these arguments."""

        def encoded() -> bytes:
            try:
                if self._drops_first is None:
                    static = inspect.getattr_static(type(args[0]), self._name, None)
                    self._drops_first = not isinstance(static, staticmethod)
                text = self._redactor.arguments(self._names[self._drops_first :], args[self._is_method :], kwargs)
                return encode.attribute(names.RAY_ARGUMENTS, text) if text else b""
            except Exception as error:  # noqa: BLE001  the user's code must run whatever fails here
                failed("recording the arguments of a task", error)
                return b""

        return encoded

    def result(self, span: RecordedSpan, result: Any) -> None:
        """Record the result."""
        try:
            span.set_attribute(names.RAY_RESULT, self._redactor.result(self._name, result))
        except Exception as error:  # noqa: BLE001  as above
            failed("recording the result of a task", error)


def _parameters(function: Any) -> tuple[str, ...]:
    """The names of the positional parameters, the last one with a ``*`` if it takes further arguments.

    A decorator with ``__wrapped__`` is followed if it takes further arguments, since its own parameters have no names
    that indicate secrets.
    """
    found: tuple[str, ...] = ()
    rest = ""
    for _ in range(_MOST_DECORATORS):
        code = getattr(function, "__code__", None)
        if code is None:
            break
        count = code.co_argcount
        found += code.co_varnames[len(found) : count]
        if not code.co_flags & inspect.CO_VARARGS:
            return found
        rest = f"*{code.co_varnames[count + code.co_kwonlyargcount]}"
        function = getattr(function, "__wrapped__", None)
    return (*found, rest) if rest else found
