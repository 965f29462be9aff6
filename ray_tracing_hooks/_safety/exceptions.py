"""Inspects and changes the program's exceptions without running code of the program.

An exception class may be a frozen dataclass, define ``__setattr__``, ``__getattribute__`` or ``__class__``, or have an
attribute of its own called ``__traceback__``. The functions here bypass all of that.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, NamedTuple, TypeGuard, TypeVar

T = TypeVar("T")

_TRACEBACK: Any = vars(BaseException)["__traceback__"]
_CAUSE: Any = vars(BaseException)["__cause__"]
_CONTEXT: Any = vars(BaseException)["__context__"]
_SUPPRESSES: Any = vars(BaseException)["__suppress_context__"]
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)  # since Python 3.11
_ERRORS: Any = None if _GROUP is None else vars(_GROUP)["exceptions"]
_ARGUMENTS: Any = vars(BaseException)["args"]
_VALUES: Any = vars(BaseException)["__dict__"]
_NAME: Any = vars(type)["__name__"]
_QUALIFIED_NAME: Any = vars(type)["__qualname__"]
_MODULE: Any = vars(type)["__module__"]


def traceback_of(error: BaseException) -> TracebackType | None:
    traceback: TracebackType | None = _TRACEBACK.__get__(error)
    return traceback


def cause_of(error: BaseException) -> BaseException | None:
    """The exception that an exception was raised from."""
    cause: BaseException | None = _CAUSE.__get__(error)
    return cause


class ChainedException(NamedTuple):
    """An exception that came before another one: its cause, or the one that was being handled when it was raised."""

    error: BaseException
    is_cause: bool


def error_before(error: BaseException) -> ChainedException | None:
    """The exception that a traceback shows before this one."""
    cause = cause_of(error)
    if cause is not None:
        return ChainedException(cause, is_cause=True)
    context: BaseException | None = None if _SUPPRESSES.__get__(error) else _CONTEXT.__get__(error)
    return None if context is None else ChainedException(context, is_cause=False)


def errors_of_group(error: BaseException) -> Sequence[BaseException]:
    """The exceptions in an exception group, and none of any other exception."""
    errors: Sequence[BaseException] = _ERRORS.__get__(error) if _ERRORS is not None and is_a(error, _GROUP) else ()
    return errors


def notes_of(error: BaseException) -> Sequence[Any]:
    """What has been added to an exception by ``add_note``."""
    notes = value_of(error, "__notes__")
    return notes if type(notes) is list else ()


def is_a(error: object, *kinds: type[T]) -> TypeGuard[T]:
    """Whether the class of ``error`` is one of ``kinds``; ``isinstance`` would also ask ``error.__class__``."""
    return issubclass(type(error), kinds)


def value_of(error: BaseException, name: str) -> Any:
    """The exception's own attribute of this name, whatever its class defines; None if there is none."""
    return _VALUES.__get__(error).get(name)


def hide_frame(error: BaseException) -> None:
    """Take the caller's frame out of the traceback of an error that it has caught and re-raises with a bare ``raise``.

    Before Python 3.11 that puts the frame back.
    """
    traceback = traceback_of(error)
    if traceback is not None:
        _TRACEBACK.__set__(error, traceback.tb_next)


class _HiddenFrame:
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            hide_frame(error)


hidden_frame = _HiddenFrame()
"""``with hidden_frame:`` does what :func:`hide_frame` does, for an error that leaves the block. A plain ``try`` takes a
tenth of the time, where each call counts.
"""


def text_of(error: object) -> str | None:
    """``str(error)``, which does run code of the program; None if that raises."""
    try:
        # The result may be a subclass of str with methods of the program's own.
        return str.__str__(str(error))
    except BaseException as fault:  # it may raise anything
        if is_interruption(fault):
            raise
        return None


def class_name(error: object) -> str:
    name: str = _NAME.__get__(type(error))
    return name


def qualified_name(cls: type) -> str:
    """``module.Class``, or ``Class`` for a built-in, as ``error.type`` and ``exception.type`` have it."""
    module, name = _MODULE.__get__(cls), _QUALIFIED_NAME.__get__(cls)
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else f"{name}"


def is_interruption(error: BaseException) -> bool:
    """Whether this error interrupted the code that caught it, rather than being a fault in what that code called.

    So do KeyboardInterrupt and SystemExit, and whatever a signal handler or a trace function of the program raises,
    such as a time-out, or another thread (``PyThreadState_SetAsyncExc``).

    The interpreter passes the interrupted frame to the function that it calls, and nothing else passes frames around:
    so a frame of the traceback that has an earlier one as an argument is recognized whatever made it a handler. For a
    function that deletes its argument, the handlers that are installed now are compared. An error set by another thread
    leaves no frame: it is recognized by a class of the program's that is raised, without arguments, in code that is not
    the program's.
    """
    return is_a(error, KeyboardInterrupt, SystemExit) or _is_of_interpreter_call(error) or _is_set_by_thread(error)


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = traceback_of(error)
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_of_interpreter_call(error: BaseException) -> bool:
    handlers = _codes_of_signal_handlers()
    interrupted: set[int] = set()
    for frame in _frames(error):
        if frame.f_code in handlers or any(id(argument) in interrupted for argument in _arguments(frame)):
            return True
        interrupted.add(id(frame))
    return False


def _arguments(frame: FrameType) -> Iterator[Any]:
    """The arguments of the function that runs in a frame, those of ``*args`` one by one."""
    from inspect import CO_VARARGS  # noqa: PLC0415  only needed after an error

    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    takes_more = bool(code.co_flags & CO_VARARGS)
    if not count + takes_more:
        return  # reading the variables of a class body could run code of the program
    variables = frame.f_locals
    for name in code.co_varnames[:count]:
        yield variables.get(name)
    more = variables.get(code.co_varnames[count]) if takes_more else None
    if type(more) is tuple:
        yield from more


def _codes_of_signal_handlers() -> set[Any]:
    """The code objects of the signal handlers that are installed now, as far as they are written in Python."""
    import functools  # noqa: PLC0415  as above
    import signal  # noqa: PLC0415  as above

    codes = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        while type(handler) is functools.partial:
            handler = handler.func
        codes.add(getattr(handler, "__code__", None) or getattr(vars(type(handler)).get("__call__"), "__code__", None))
    return codes


_LIBRARIES = sys.stdlib_module_names | {"google", "grpc", "opentelemetry", "ray", "ray_tracing_hooks"}
"""The packages of Python, of this package, and of those that it calls."""


def _is_set_by_thread(error: BaseException) -> bool:
    if _ARGUMENTS.__get__(error) != () or _is_of_library(_MODULE.__get__(type(error))):
        return False
    return all(_is_of_library(frame.f_globals.get("__name__")) for frame in _frames(error))


def _is_of_library(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


# Errors of the user's functions in the text of what Ray Data raises from them.

_WRAPPED = "\n\nThe above exception was the direct cause of the following exception:"
_BETWEEN = re.compile(r"\n\n(?:The above exception was the direct cause of|During handling of the above).*\n")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_MOST_TEXT = 1000


def without_colours(text: str) -> str:
    """A text without terminal colours, which Ray puts into that of remote errors."""
    return _COLOURS.sub("", text)


def users_error(traceback: str) -> str:
    """``Class: message`` of the error before the last one in a formatted traceback; empty if there is only one."""
    before, found, _ = traceback.rpartition(_WRAPPED)
    if not found:
        return ""
    lines = _BETWEEN.split(before)[-1].strip("\n").splitlines()
    at, is_frame = 0, False
    for number, line in enumerate(lines):
        if line.startswith(("  File ", "  [Previous line", "ray::", "Traceback (most recent")):
            at, is_frame = number + 1, True
        elif is_frame and line.startswith("    "):
            at = number + 1
        else:
            # The message may have several lines, of which some may be indented.
            is_frame = False
    return "\n".join(lines[at:])[:_MOST_TEXT]
