"""What the tests of endings share: beginning a driver, and looking at what it and its worker left."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from support import PROGRAMS, by_name, check_links, environment

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import Span

ENDED = 20
CALLS = 50


class Way(NamedTuple):
    """What is expected of an end.

    ``outcome`` is the result that the caller of a worker gets, or the exit status of a driver. ``error`` and
    ``message`` are the ``error.type`` and a pattern of the status of the span that covers the work, the execution or
    the driver. ``cut_off`` tells that it was not the process itself that ended that span. None is for what may be
    either way.
    """

    outcome: str | int | None
    error: str | None = None
    message: str = ""
    cut_off: bool | None = False


class Ended(NamedTuple):
    """The spans of what has ended, its outcomes, and the folder in which it said how far it came."""

    spans: list[Span]
    outcomes: dict[str, str | int]
    folder: Path
    output: str = ""


def no_process_is_left(folder: Path) -> None:
    """Everything that runs for the session in this folder ends, the shipper too."""
    deadline = time.monotonic() + 120
    while left := [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in part for part in process.info["cmdline"] or [])
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def closed(spans: Sequence[Span], wanted: set[str]) -> bool:
    """Whether a span of each of these names is there, and its parent, which may come by itself."""
    known = {span.span_id for span in spans}
    return {span.name for span in spans if span.parent_id in known} >= wanted


def check(ended: Ended, how: str, way: Way, label: str) -> None:
    """Every span that ``label`` ended is there, its open one is closed, and what covers it says how it ended."""
    counted = int((ended.folder / f"{label}.count").read_text())
    found = Counter(span.name for span in ended.spans)
    print(f"{label}: ended spans expected {counted + ENDED}, found {found[f'batch {label}'] + found[f'ended {label}']}")
    assert way.outcome in {ended.outcomes[how], None}, ended.output
    assert found[f"ended {label}"] == ENDED
    # The kill may come between the end of a span and the moment at which it is counted.
    assert found[f"batch {label}"] - counted in {0, 1}
    (opened,) = by_name(ended.spans, f"open {label}")
    (around,) = [span for span in ended.spans if span.span_id == opened.parent_id]
    assert (around.status_code == 2) == (way.error is not None), around
    assert around.attributes.get(names.ERROR_TYPE) == way.error
    assert re.fullmatch(way.message, around.status_message), around.status_message
    assert way.cut_off in {bool(around.attributes.get(names.RAY_END_ESTIMATED)), None}
    if way.cut_off:
        assert (opened.status_code, opened.status_message) == (2, around.status_message)
    (forgotten,) = by_name(ended.spans, f"forgotten {label}")
    assert forgotten.parent_id == around.span_id
    # Whatever ended its process cut it off too, unless nothing did: then it is its program that has not ended it.
    if way.cut_off or way.error in {names.WORKER_DIED, names.DRIVER_DIED}:
        assert (forgotten.status_code, forgotten.never_ended) == (2, False)
        assert forgotten.attributes[names.ERROR_TYPE] == way.error
    elif way.cut_off is not None:
        assert (forgotten.status_code, forgotten.state, forgotten.never_ended) == (0, "ended", True)


def check_once(spans: Sequence[Span], restarted: str = "") -> None:
    """Parents are there, no span is there twice, and each call has one execution. One ``restarted`` may have two."""
    check_links(spans)
    found = Counter(span.name for span in spans)
    for name in [name for name in found if name.endswith(" ray.remote")]:
        # The program may have ended before Ray has made the actor anew.
        assert found[f"{name}_worker"] - found[name] in ({0, 1} if name == restarted else {0}), name


def begin(how: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """A driver that will end in this way, with what it says in ``<how>.log``."""
    with open(folder / f"{how}.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, str(PROGRAMS / "endings.py"), how, str(folder)],
            env=environment(**variables),
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )


def of_trace(spans: Sequence[Span], label: str) -> list[Span]:
    """The spans of the trace that has the open span of ``label``, and the ``batch`` spans after it: on a busy machine,
    ``ray.shutdown()`` takes longer than a context lasts whose span has ended, and each of them is a trace of its own.
    """
    trace_id = next((span.trace_id for span in spans if span.name == f"open {label}"), None)
    after = [span for span in spans if span.name == f"batch {label}" and names.RAY_AFTER_END in span.attributes]
    return [*(span for span in spans if span.trace_id == trace_id), *after]


def heard(folder: Path, name: str) -> int:
    """The number in a file that a program writes, as soon as it is there."""
    deadline = time.monotonic() + 200
    while not (folder / name).exists():
        assert time.monotonic() < deadline, sorted(path.name for path in folder.iterdir())
        time.sleep(0.05)
    return int((folder / name).read_text())
