"""Failing open."""

from __future__ import annotations

import ast
import ctypes
import functools
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ray_tracing_hooks._record import limits
from ray_tracing_hooks._safety import guard
from ray_tracing_hooks._safety.guard import MOST_REPORTS, describe, failed, guarded, report, set_reporter, set_strict


class UnspeakableError(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_fault_ends_the_block_and_not_the_program(reports: list[str]) -> None:
    """The message says what was being done, what went wrong, and that the program continues."""
    with guarded("setting up tracing"):
        raise ValueError("no room")
    assert reports == ["setting up tracing failed: ValueError: no room; your program continues without it"]


def test_a_guarded_function_gives_its_result_or_none(reports: list[str]) -> None:
    """Arguments, result and name of a guarded function are its own; where it fails it returns None."""

    @guarded("halving")
    def half(number: int, *, by: int = 2) -> int:
        return number // by

    assert half(8) == 4
    assert half(9, by=3) == 3
    assert half.__name__ == "half"
    assert half(8, by=0) is None
    assert len(reports) == 1


def test_a_block_that_fails_before_the_settings_are_known_asks_whether_it_is_strict(reports: list[str]) -> None:
    """It reports the error once: by raising it, or as any other."""
    with pytest.raises(ValueError, match="no room"), guarded("setting up", strict=lambda: True):
        raise ValueError("no room")
    assert reports == []
    with guarded("setting up", strict=lambda: False):
        raise ValueError("no room")
    assert len(reports) == 1


def test_a_strict_process_raises_everywhere(reports: list[str]) -> None:
    """In blocks that are guarded and in those that are not worth the cost."""
    set_strict(True)
    with pytest.raises(ValueError, match="no room"), guarded("setting up"):
        raise ValueError("no room")
    with pytest.raises(ValueError, match="no room"):
        failed("recording a span", ValueError("no room"))
    assert reports == []


def test_a_failure_on_the_hot_path_is_reported_alike(reports: list[str]) -> None:
    """A plain `try` says what the guard says."""
    failed("recording a span", ValueError("no room"))
    assert reports == ["recording a span failed: ValueError: no room; your program continues without it"]


class SlowError(Exception):
    """A time-out of the program."""


class Interrupting:
    """A value whose text sends a signal to this process."""

    def __str__(self) -> str:
        signal.raise_signal(signal.SIGUSR1)
        return "text"


@pytest.fixture
def timeout() -> Iterator[None]:
    """The signal that :class:`Interrupting` sends raises :class:`SlowError`, from a handler that is removed first."""

    def late(text: str, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SlowError(text)

    before = signal.signal(signal.SIGUSR1, functools.partial(late, "late"))
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("timeout")
def test_a_timeout_of_the_program_passes(reports: list[str]) -> None:
    """It is no fault of the code that it interrupts."""
    with pytest.raises(SlowError, match="late"), guarded("setting up"):
        str(Interrupting())
    assert reports == []


@pytest.mark.usefixtures("timeout")
def test_a_timeout_passes_where_the_text_of_an_error_is_asked_for() -> None:
    """The text of an error may fail in any way; a time-out that arrives meanwhile is another matter."""
    with pytest.raises(SlowError, match="late"):
        describe(ValueError(Interrupting()))


def test_an_error_that_a_trace_function_raises_passes(reports: list[str]) -> None:
    """Such as that of a debugger that quits."""

    def trace(_frame: object, _event: str, _argument: object) -> None:
        raise SlowError

    @guarded("recording")
    def record() -> None:
        sys.settrace(trace)
        limits.clean("value", None)

    before = sys.gettrace()
    try:
        with pytest.raises(SlowError):
            record()
    finally:
        sys.settrace(before)
    assert reports == []


def test_an_error_that_another_thread_sets_passes(reports: list[str]) -> None:
    """Such as a time-out of a thread. It is raised in our code, right after a call that is written in C."""

    class Value:
        shape = ()
        item = staticmethod(  # later versions of Python make a partial a method
            functools.partial(
                ctypes.pythonapi.PyThreadState_SetAsyncExc,
                ctypes.c_ulong(threading.get_ident()),
                ctypes.py_object(SlowError),
            )
        )

    with pytest.raises(SlowError):
        guarded("setting an attribute")(limits.clean)(Value(), None)
    assert reports == []


def test_an_error_of_a_value_is_reported(reports: list[str]) -> None:
    """Without arguments and of a class of the program's too: it comes from code that was called on purpose."""

    class Value:
        def __str__(self) -> str:
            raise SlowError

    with guarded("recording"):
        str(Value())
    assert reports == ["recording failed: SlowError; your program continues without it"]


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_fault_passes(passing: type[BaseException], reports: list[str]) -> None:
    """An interrupt or exit goes where the program wants it."""
    with pytest.raises(passing), guarded("waiting"):
        raise passing
    assert reports == []


def test_a_message_is_reported_once(reports: list[str]) -> None:
    """However many threads report the same at the same time."""
    barrier = threading.Barrier(8)

    def shout() -> None:
        barrier.wait()
        for _ in range(100):
            report("the disk is full")

    threads = [threading.Thread(target=shout) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reports == ["the disk is full"]


def test_a_message_that_varies_cannot_flood_the_log(reports: list[str]) -> None:
    """After a hundred different messages comes one that says that there are more, and then silence."""
    for number in range(3 * MOST_REPORTS):
        report(f"request {number} failed")
    assert len(reports) == MOST_REPORTS + 1
    assert reports[-1] == "more than 100 different problems; further ones are not shown"


def test_reports_are_warnings_under_rays_logger(caplog: pytest.LogCaptureFixture) -> None:
    """By default, a report is a warning of a child of Ray's logger, with the name of the package."""
    set_reporter(None)
    with caplog.at_level(logging.WARNING, logger="ray"):
        report("the disk is full")
    assert caplog.record_tuples == [
        ("ray.ray_tracing_hooks", logging.WARNING, "ray_tracing_hooks: the disk is full"),
    ]


def test_the_traceback_is_there_for_who_asks(caplog: pytest.LogCaptureFixture) -> None:
    """At debug level the log has the traceback of what was caught."""
    with caplog.at_level(logging.DEBUG, logger="ray.ray_tracing_hooks"), guarded("setting up"):
        raise ValueError("no room")
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.exc_info
    assert isinstance(record.exc_info[1], ValueError)


def test_a_reporter_that_fails_is_replaced_by_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The message gets out all the same."""

    def broken(message: str) -> None:
        raise OSError("no terminal")

    set_reporter(broken)
    report("the disk is full")
    assert "ray_tracing_hooks: the disk is full" in caplog.messages


def test_a_log_that_fails_hurts_nobody() -> None:
    """A handler of the user's that raises does not turn a report into an error."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no terminal")

    set_reporter(None)
    handler = Broken()
    guard.logger.addHandler(handler)
    try:
        report("the disk is full")
    finally:
        guard.logger.removeHandler(handler)


def test_a_reporter_may_report(reports: list[str]) -> None:
    """Reporting is not done under the lock."""

    def chatty(message: str) -> None:
        reports.append(message)
        report("said by the reporter")

    set_reporter(chatty)
    report("the disk is full")
    assert reports == ["the disk is full", "said by the reporter"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_a_thread_reports_can_report() -> None:
    """The lock that another thread held at the fork does not hang the child."""

    def child() -> None:
        report("said by the child")
        os._exit(7)

    with guard._lock:
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
    process.join(30)
    assert process.exitcode == 7


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no room"), "ValueError: no room"),
        (ValueError(), "ValueError"),
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (UnspeakableError(), "UnspeakableError"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 1000),
    ],
    ids=["text", "empty", "lines", "unspeakable", "endless"],
)
def test_an_error_is_described_on_one_line(error: Exception, text: str) -> None:
    """Whatever the error is."""
    assert describe(error) == text


def test_the_guard_is_cheap_to_import() -> None:
    """It stands before every heavy import, so it brings nothing along but what every process of Ray has."""
    program = (
        "import sys, contextlib, logging, typing; old = {*sys.modules}; import ray_tracing_hooks._safety.guard; "
        "print({*sys.modules} - old)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == {
        *("__future__", "ray_tracing_hooks"),
        *(f"ray_tracing_hooks.{name}" for name in ("_safety", "_safety.guard", "_safety.exceptions")),
    }
