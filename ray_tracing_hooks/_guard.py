"""Failing open: a fault of ours never reaches the user's program, which goes on without tracing, and says so once."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._exceptions import class_name, is_a, text_of, traceback_of

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("ray.ray_tracing_hooks")
"""A child of Ray's logger: what is said here shows in the driver, and nobody's logging has to be configured for it."""

MOST_REPORTS = 100
"""After so many different messages a process falls silent, so that one that varies cannot flood a job's log."""

_MOST_TEXT = 1000

_lock = threading.RLock()
"""One that can be taken again: a signal handler or a finalizer may come in between and have something to report."""

# Another thread may hold it when this process is forked. The standard library frees its own locks in this way.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  no stub


class _Reports:
    """How this process reports problems.

    Attributes:
        reporter: What problems are reported to; None for the log.
        is_strict: Whether faults are raised instead of reported.
        reported: The messages so far. Guarded by :data:`_lock`.
    """

    def __init__(self) -> None:
        self.reporter: Callable[[str], None] | None = None
        self.is_strict = False
        self.reported: set[str] = set()


_reports = _Reports()
"""Those of this process."""


def set_reporter(reporter: Callable[[str], None] | None) -> None:
    """From now on reports of this process go to ``reporter``; with None they are warnings of :data:`logger`."""
    _reports.reporter = reporter


def set_strict(strict: bool) -> None:
    """Whether faults are raised in this process, as ``RAY_TRACING_STRICT`` asks, instead of reported."""
    _reports.is_strict = strict


def forget_reports() -> None:
    """Report again what has been reported before."""
    with _lock:
        _reports.reported.clear()


def report(message: str) -> None:
    """Tell the user ``message``, once per process however often it is reported. Never raises.

    A forked child does not say again what its parent has said.
    """
    message = safe(message)  # it may quote what others have said, such as a server
    with _lock:
        reported = _reports.reported
        if message in reported or len(reported) > MOST_REPORTS:
            return
        reported.add(message)
        if len(reported) > MOST_REPORTS:
            message = f"more than {MOST_REPORTS} different problems; further ones are not shown"
    # Outside the lock: a reporter may log, and what handles the log may report in turn.
    reporter = _reports.reporter
    if reporter is not None:
        try:
            reporter(message)
        except Exception as error:  # noqa: BLE001 - the message must get out all the same
            _log(logging.DEBUG, f"the reporter failed: {describe(error)}")
        else:
            return
    _log(logging.WARNING, message)


def failed(doing: str, error: Exception) -> None:
    """For the plain ``try`` of a path that every call takes: does with the error what :class:`guarded` does."""
    if _reports.is_strict or _is_of_signal_handler(error):
        raise error
    report(f"{doing} failed: {describe(error)}; your program goes on without it")
    _log(logging.DEBUG, f"{doing} failed", error)


def _is_of_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program's raised this error: a function, a method, or an object to be called."""
    import signal  # noqa: PLC0415  only where something has failed

    codes = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        codes.add(getattr(handler, "__code__", None) or getattr(vars(type(handler)).get("__call__"), "__code__", None))
    trace = traceback_of(error)
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def describe(error: BaseException) -> str:
    """``Type: text`` of an error, on one line and not endless, even if the error cannot say its text."""
    name, text = class_name(error), " ".join((text_of(error) or "").split())
    return f"{name}: {text[:_MOST_TEXT]}" if text else name


class guarded:  # noqa: N801 - reads as the keyword that it stands for
    """Keeps the faults of a block, or of a function, from the program that is traced.

    ``doing`` says what the block does, such as "setting up tracing". An Exception raised inside is reported and ends
    the block; a guarded function returns None then. With ``strict``, or :func:`set_strict`, it is raised on instead.
    ``strict`` may be set inside the block, for a block that finds out for itself::

        with guarded("setting up tracing") as guard:
            guard.strict = settings().strict

    KeyboardInterrupt, SystemExit and their like are no faults of ours and pass. So does what a signal handler of the
    program's raises, such as a time-out, that came while code of ours was running. Of an async function or a generator
    only the call is guarded, not the body. Meant for set-up and background work: on a path that every call takes a
    plain ``try`` with :func:`failed` costs a tenth.
    """

    __slots__ = ("doing", "strict")

    def __init__(self, doing: str, strict: bool = False) -> None:
        self.doing = doing
        self.strict = strict

    def __enter__(self) -> guarded:  # noqa: PYI034 - typing.Self is there from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not is_a(error, Exception) or self.strict or _reports.is_strict:
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
    """Log, with the name of the package in front since a log shows no more than a file name."""
    # What may fail is a handler or filter of the user's, and then nobody is left to be told.
    with contextlib.suppress(Exception):
        logger.log(level, "ray_tracing_hooks: %s", message, exc_info=error)
