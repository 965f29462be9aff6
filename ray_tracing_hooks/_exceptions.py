"""Inspects and changes the program's exceptions without running code of the program.

An exception class may be a frozen dataclass, define ``__setattr__``, ``__getattribute__`` or ``__class__``, or have an
attribute of its own called ``__traceback__``. The functions here bypass all of that.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")

_TRACEBACK: Any = vars(BaseException)["__traceback__"]
_VALUES: Any = vars(BaseException)["__dict__"]
_NAME: Any = vars(type)["__name__"]
_QUALIFIED_NAME: Any = vars(type)["__qualname__"]
_MODULE: Any = vars(type)["__module__"]


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an exception."""
    traceback: TracebackType | None = _TRACEBACK.__get__(error)
    return traceback


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


def text_of(error: BaseException) -> str | None:
    """``str(error)``, which does run code of the program; None if that raises."""
    try:
        # The result may be a subclass of str with methods of the program's own.
        return str.__str__(str(error))
    except (KeyboardInterrupt, SystemExit):  # raised by a signal handler that interrupted this
        raise
    except BaseException:  # noqa: BLE001  it may raise anything
        return None


def class_name(error: object) -> str:
    """The name of the class of ``error``."""
    name: str = _NAME.__get__(type(error))
    return name


def qualified_name(cls: type) -> str:
    """``module.Class``, or ``Class`` for a built-in, as ``error.type`` and ``exception.type`` have it."""
    module, name = _MODULE.__get__(cls), _QUALIFIED_NAME.__get__(cls)
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else f"{name}"
