"""Waits for objects (``ray.get`` and its like) that fail, or that are in other threads; and futures of objects."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._ray import objects, tracing
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.span import Parent


@pytest.fixture(params=["not connected", "no parent", "not sampled", "sampled"])
def connection(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active = tracing_of(tmp_path)
    active.waits = True
    if request.param.endswith("sampled"):
        flags = 2 if request.param == "not sampled" else 3
        active.recorder.fallback = Parent(bytes(range(16)), bytes(8), flags, None, remote=False)
    monkeypatch.setattr(tracing, "active", None if request.param == "not connected" else active)


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("function", ["get", "wait", "put"])
def test_an_error_has_no_line_of_ours(function: str, reports: list[str]) -> None:
    """Whether the wait makes a span or not; nor does a call without arguments blame us."""

    def original() -> Any:
        raise TypeError("one argument is missing")

    call = objects._traced(f"ray.{function}", *objects._FUNCTIONS[function])(original)
    with pytest.raises(TypeError, match="one argument is missing") as caught:
        call()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)[1:]]
    # Before Python 3.11, raising an error again puts the frame back.
    assert frames == (["original"] if sys.version_info >= (3, 11) else ["call", "original"])
    assert reports == []


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracing:
    active = tracing_of(tmp_path, DRIVER)
    active.recorder.fallback = Parent(bytes(range(16)), bytes(8), 3, None, remote=False)
    monkeypatch.setattr(tracing, "active", active)
    return active


def recorded(folder: Path) -> list[Span]:
    return sorted(read(span_files([str(folder)]))[0], key=lambda span: span.start_ns)


def wait() -> None:
    objects._traced("ray.get", *objects._FUNCTIONS["get"])(lambda *_args: None)([])


@pytest.mark.usefixtures("driver")
def test_a_wait_in_a_thread_of_a_driver_says_so_and_whether_the_driver_waited(tmp_path: Path) -> None:
    """One of its own code, one of a thread that it joins, one while it runs code of its own."""
    wait()
    joined = threading.Thread(target=wait)
    joined.start()
    joined.join()
    begin, ended = threading.Lock(), []
    begin.acquire()

    def other() -> None:
        begin.acquire()
        wait()
        ended.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    begin.release()
    while not ended:
        pass
    thread.join()
    own, first, second = recorded(tmp_path)
    assert names.THREAD_ID not in own.attributes
    assert first.attributes[names.THREAD_ID] == joined.ident
    assert names.THREAD_ID in second.attributes
    assert names.RAY_DRIVER_WAITED not in own.attributes
    assert names.RAY_DRIVER_WAITED not in second.attributes


def test_the_driver_waits_where_its_thread_is_in_a_function_that_waits() -> None:
    """In that of Python's for threads, and not in code of the program, whatever that does."""
    ready = threading.Event()
    thread = threading.Thread(target=ready.wait)
    thread.start()
    assert thread.ident is not None
    found = False
    while not found:  # until the thread is there
        found = objects._waits_for_threads(thread.ident)
    ready.set()
    thread.join()
    assert not objects._waits_for_threads(threading.get_ident())
    assert not objects._waits_for_threads(0)


@pytest.mark.usefixtures("driver")
def test_a_future_of_an_object_is_told_and_not_that_of_an_await(tmp_path: Path) -> None:
    """As Ray's code makes them: `await` looks up what wraps the future first. Several in a row are told once."""
    asyncio_, concurrent_ = objects._Asyncio(asyncio), objects._Concurrent(concurrent)

    async def awaits() -> None:
        asyncio_.wrap_future(concurrent_.futures.Future())

    asyncio.run(awaits())
    assert recorded(tmp_path) == []
    assert concurrent_.futures.Future is concurrent.futures.Future
    assert concurrent_.futures.Future is concurrent.futures.Future
    assert concurrent_.futures.wait is concurrent.futures.wait
    (span,) = recorded(tmp_path)
    assert span.name == names.FUTURE
