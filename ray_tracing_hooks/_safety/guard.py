"""Failing open: an internal error is reported once, and the user's program continues without tracing.

A traced program sees none of the errors of this package, unless ``RAY_TRACING_STRICT=1`` is set.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, TypeVar

from ray_tracing_hooks._safety.exceptions import class_name, is_a, is_interruption, text_of

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("ray.ray_tracing_hooks")
"""A child of Ray's logger, so that messages show in the driver without any logging configuration."""

MOST_REPORTS = 100
"""After this many different messages a process reports no more, so that a varying message cannot flood a job's log."""

_MOST_TEXT = 1000

_lock = threading.RLock()
"""Reentrant: a signal handler or a finalizer may interrupt the holder and report something itself."""

# Another thread may hold it when this process forks. The standard library resets its own locks in the same way.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  no stub


class TracingError(Exception):
    """Tracing itself failed. The message is one sentence for the user."""


class SettingError(TracingError):
    """A setting, or the settings file, cannot be used."""


class _Reports:
    """How this process reports problems.

    Attributes:
        reporter: Receives the problems; None for the log.
        reported: The messages so far, guarded by :data:`_lock`.
    """

    def __init__(self) -> None:
        self.reporter: Callable[[str], None] | None = None
        self.is_strict = False
        self.reported: set[str] = set()


_reports = _Reports()


class _Held(threading.local):
    """The reports of this thread that wait; None where they do not."""

    calls: list[Callable[[], None]] | None = None


_held = _Held()


def set_reporter(reporter: Callable[[str], None] | None) -> None:
    """Send the reports of this process to ``reporter`` from now on; with None they are warnings of :data:`logger`."""
    _reports.reporter = reporter


def set_strict(strict: bool) -> None:
    """Set whether this process raises internal errors instead of reporting them, as ``RAY_TRACING_STRICT`` asks."""
    _reports.is_strict = strict


def forget_reports() -> None:
    """Forget what has been reported, so that it is reported again."""
    with _lock:
        _reports.reported.clear()


def reported() -> set[str]:
    """What this process has reported so far, shown or not."""
    with _lock:
        return set(_reports.reported)


@contextmanager
def reports_held() -> Iterator[None]:
    """What this thread reports inside is reported at the end: for code that holds a lock.

    Handlers of ``logging`` hold locks of their own, and may need ours, as one does that sends records in spans.
    """
    if _held.calls is not None:
        yield
        return
    calls: list[Callable[[], None]] = []
    _held.calls = calls
    try:
        yield
    finally:
        _held.calls = None
        for call in calls:
            call()


def report(message: str) -> None:
    """Report ``message`` to the user, once per process however often this is called. Never raises.

    A forked child does not repeat what its parent has reported.
    """
    message = safe(message)  # it may quote untrusted text, such as a server's response
    with _lock:
        reported = _reports.reported
        if message in reported or len(reported) > MOST_REPORTS:
            return
        reported.add(message)
        if len(reported) > MOST_REPORTS:
            message = f"more than {MOST_REPORTS} different problems; further ones are not shown"
    # Outside the lock: a reporter may log, and what handles the log may report in turn.
    if _held.calls is not None:
        _held.calls.append(functools.partial(_tell, message))
    else:
        _tell(message)


def _tell(message: str) -> None:
    reporter = _reports.reporter
    if reporter is not None:
        try:
            reporter(message)
        except Exception as error:
            if is_interruption(error):
                raise
            _log(logging.DEBUG, f"the reporter failed: {describe(error)}")
        else:
            return
    _log(logging.WARNING, message)


def failed(doing: str, error: Exception) -> None:
    """Handle the error as :class:`guarded` does: for a plain ``try`` on the hot path."""
    if _reports.is_strict or is_interruption(error):
        raise error
    report(f"{doing} failed: {describe(error)}; your program continues without it")
    _log(logging.DEBUG, f"{doing} failed", error)


def describe(error: BaseException) -> str:
    """``Type: text`` of an error, on one line and of bounded length, even if its ``__str__`` fails."""
    name, text = class_name(error), " ".join((text_of(error) or "").split())
    return f"{name}: {text[:_MOST_TEXT]}" if text else name


class guarded:  # noqa: N801 - reads as the keyword that it stands for
    """Keeps the errors of a block, or of a function, from the traced program.

    ``doing`` says what the block does, such as "setting up tracing". An Exception raised inside is reported and ends
    the block; a guarded function then returns None. After :func:`set_strict` it is re-raised instead, and so it is if
    ``strict`` says so: a block that may fail before the settings are known reads them there.

    KeyboardInterrupt, SystemExit and the like are not internal errors and pass through. So does an exception of the
    program that interrupts code of this package, such as a time-out that a signal handler raises. For an async function
    or a generator only the call is guarded, not the body. Meant for set-up and background work: on the hot path a plain
    ``try`` with :func:`failed` costs a tenth.
    """

    __slots__ = ("doing", "strict")

    def __init__(self, doing: str, strict: Callable[[], bool] | None = None) -> None:
        self.doing = doing
        self.strict = strict

    def __enter__(self) -> guarded:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not is_a(error, Exception) or _reports.is_strict or (self.strict and self.strict()):
            return False
        failed(self.doing, error)
        return True

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
            with self:
                return function(*args, **kwargs)
            return None

        return call


def _log(level: int, message: str, error: BaseException | None = None) -> None:
    """Log with the name of the package in front, since Ray's log shows only a file name."""
    if _held.calls is not None:
        _held.calls.append(functools.partial(_log, level, message, error))
        return
    try:
        logger.log(level, "ray_tracing_hooks: %s", message, exc_info=error)
    except Exception as fault:
        # Otherwise a handler or filter of the user's has failed, and there is nowhere left to report it.
        if is_interruption(fault):
            raise


_UNSAFE = r"[^\x20-\x7e]"
_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control and formatting characters (ESC, bidirectional overrides, zero-width), lone surrogates, line separators."""


def safe(text: str) -> str:
    """Escape everything that could control a terminal, begin a new line or hide part of the text."""
    return re.sub(_UNSAFE, lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    import unicodedata  # noqa: PLC0415  most processes never need it, since most text is plain

    if unicodedata.category(character) in _UNSAFE_CATEGORIES:
        return character.encode("unicode_escape").decode("ascii")
    return character
