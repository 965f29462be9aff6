"""The compiled part of the hot path records the same as the Python code beside it, and leaves it what is uncommon."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ctypes
import gc
import inspect
import itertools
import os
import pickle
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import ray.cloudpickle
import stand_ins
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from ray._private.serialization import SerializationContext
from ray._raylet import RawSerializedObject  # type: ignore[attr-defined]  # not in its stub
from recording import run
from stand_ins import DRIVER_TASK_ID, JOB_ID, TASK_ID, ObjectRef, tracing_of, worker_of_job

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._ray import arguments as passing
from ray_tracing_hooks._ray import execution, generators, submission, targets, tracing
from ray_tracing_hooks._ray.arguments import KEY, outgoing
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.propagation import TASK_KEY
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import carrier, ids, sampling
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._spool.layout import DROPPED, SPAN, START, U64
from ray_tracing_hooks._spool.reader import SegmentReader, iterate
from ray_tracing_hooks._spool.writer import SpoolWriter

needs_compiled = pytest.mark.skipif(not _compiled.use.is_loaded, reason="this installation is pure Python")

JOB = JobTrace(bytes(range(16)), b"root span"[:8], 0x03, DRIVER_TASK_ID)
CONTEXT = carrier.encode(JOB.trace_id, JOB.root_span_id, 3, 1 << 60, DRIVER_TASK_ID, None)
Record = tuple[int, bytes]


@contextmanager
def compiled(is_on: bool) -> Iterator[None]:
    before = _compiled.use.is_on
    _compiled.use.allow(is_on)
    try:
        yield
    finally:
        _compiled.use.allow(before)
        tracing.active = None


@contextmanager
def in_cluster(trace: JobTrace) -> Iterator[None]:
    """In a cluster in which every process is traced, and this is the trace of the job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "all_traced", True)
        patch.setattr(Cluster, "publish", lambda _self, _job_id, _trace: True)
        patch.setattr(Cluster, "published", lambda _self, _job_id: trace)
        yield


@contextmanager
def random_ids(number: int) -> Iterator[None]:
    """All ids are made of this number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "_generator", SimpleNamespace(getrandbits=lambda _bits: number))
        patch.setattr(ids, "random_64", lambda: number)
        yield


def records(folder: str) -> list[Record]:
    """The kinds and payloads of what was written of spans."""
    return [
        (kind, payload)
        for _, paths, _ in iterate(folder)
        for path in paths
        for kind, payload, _ in SegmentReader(path).read()
        if kind in {START, SPAN}
    ]


def timeless(folder: str) -> list[Record]:
    """The same without their times."""
    found = []
    for kind, payload in records(folder):
        span = decode_span(payload[2:])
        assert abs(span.start_ns - time.time_ns()) < 60e9
        assert span.end_ns >= span.start_ns or kind == START
        for moment in {span.start_ns, span.end_ns, *(event.time_ns for event in span.events)} - {0}:
            payload = payload.replace(struct.pack("<Q", moment), bytes(8))  # noqa: PLW2901
        found.append((kind, payload))
    return found


def both_ways(program: Callable[[Path], Any], trace: JobTrace = JOB, random: int = 1) -> tuple[Any, list[Record]]:
    """What a program returns and leaves in the folder, which must be the same with and without the compiled part.

    Random ids are all made of the number ``random``.
    """
    came = []
    for is_on in (True, False):
        with compiled(is_on), in_cluster(trace), random_ids(random), tempfile.TemporaryDirectory() as folder:
            result = program(Path(folder))
            came.append((result, timeless(folder)))
    assert came[0] == came[1]
    return came[0]


# --- executions -------------------------------------------------------------------------------------------------------


class Core(stand_ins.CoreWorker):
    """A core worker with a task like this."""

    def __init__(self, task_id: bytes, depth: int, attempt: int) -> None:
        super().__init__(task_id)
        self.depth, self.attempt = depth, attempt

    def get_current_task_attempt_number(self) -> int:
        return self.attempt


def worker_with(core_worker: Any, folder: Path, held: bytes = b"") -> Tracing:
    made = tracing_of(folder)
    made.process.worker.core_worker = core_worker
    made.job.load_job_trace(JOB_ID, task_is_there=True)
    made.held.encoded = held
    return made


task_ids = st.binary(min_size=24, max_size=24)
contexts = st.builds(
    carrier.encode,
    trace_id=st.binary(min_size=16, max_size=16),
    span_id=st.binary(min_size=8, max_size=8),
    flags=st.integers(0, 255),
    submit_time_ns=st.sampled_from([0, 1]) | st.integers(0, (1 << 64) - 1) | st.integers(1 << 60, 1 << 62),
    parent_task_id=task_ids | st.sampled_from([b"", bytes(24)]),
    headers=st.sampled_from([None, {}, {"tracestate": "a=b"}]),
    without_span=st.booleans(),
    named=st.booleans(),
    runs=st.none() | st.tuples(st.sampled_from(["", "f"]), st.sampled_from([b"", encode.attribute("a", 1)])),
)


@needs_compiled
@settings(max_examples=100)
@given(
    task_id=task_ids,
    trace=st.builds(
        JobTrace,
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=8, max_size=8),
        st.integers(0, 3),
        task_ids | st.just(b""),
    ),
    depth=st.integers(0, 3),
    attempt=st.sampled_from([0, 0, 0, 1]),
    names=st.sampled_from(
        [("Actor", "method"), ("", "module.f"), ("Actor", "m" * 5000), ("", "\N{GREEK SMALL LETTER MU}")]
    ),
    held=st.sampled_from(
        [b"", encode.attribute("ray.resources", "CPU"), encode.attribute("ray.resources", "r" * 4000)]
    ),
    carried=st.none() | contexts | st.binary(min_size=57, max_size=59) | contexts.map(lambda context: context[:-1]),
    more=st.sampled_from([None, lambda: b""]),
    random=st.integers(0, (1 << 64) - 1),
)
def test_executions_are_the_same(
    task_id: bytes,
    trace: JobTrace,
    depth: int,
    attempt: int,
    names: tuple[str, str],
    held: bytes,
    carried: bytes | None,
    more: Any,
    random: int,
) -> None:
    """Whatever the task, its trace and what its call carried: the records, the context, and the span's own view."""

    def program(folder: Path) -> Any:
        tracing.active = active = worker_with(Core(task_id, depth, attempt), folder, held)
        begin = execution.Beginning(*names).begin
        found: list[Any] = []
        for _ in range(3):
            begun = begin(carried, more)
            if begun is None:
                found.append(None)
                continue
            context, span = begun
            found.append((sorted(context), context.get(TASK_KEY), span is None))
            if span is not None:
                assert type(span) is RecordedSpan
                assert context[SPAN_KEY] is span
                found.append((span.trace_id, span.span_id, span.trace_flags, span.name, span.kind, span.is_recording()))
                found.append((span.parent, span.template is active.templates.of(5, *names), span._added, span._context))
                span.end()
                span.end()
                found.append((span.end_time is not None, span.is_recording()))
        return found

    both_ways(program, trace, random)


@needs_compiled
@pytest.mark.parametrize("fails", ["get_current_task_id", "get_current_task_attempt_number", "get_task_depth"])
def test_a_fault_while_a_task_begins_is_reported(fails: str, tmp_path: Path, reports: list[str]) -> None:
    class Broken(stand_ins.CoreWorker):
        def __getattribute__(self, name: str) -> Any:
            if name != fails:
                return super().__getattribute__(name)

            def fail() -> Any:
                raise ValueError(name)

            return fail

    with compiled(True), in_cluster(JOB):
        tracing.active = worker_with(Broken(TASK_ID), tmp_path)
        assert execution.Beginning("Actor", "method").begin(None) is None
    assert reports == [f"tracing a task failed: ValueError: {fails}; your program continues without it"]


# --- running them -----------------------------------------------------------------------------------------------------


def returns(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs, sorted(get_current())


def raises(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def task(*_args: Any, **_kwargs: Any) -> Any:
        try:
            int("first")
        except ValueError:
            raise error()  # noqa: B904  its context is what is looked at

    return task


def generates(*args: Any, **_kwargs: Any) -> Iterator[Any]:
    yield sorted(get_current())
    yield args


async def generates_asynchronously(*args: Any, **_kwargs: Any) -> AsyncIterator[Any]:
    yield sorted(get_current())
    yield args


def is_interrupted(*_args: Any, **_kwargs: Any) -> Iterator[Any]:
    yield 1
    raise KeyboardInterrupt


TASKS: dict[str, Callable[..., Any]] = {
    "result": returns,
    "error": raises(ValueError),
    "interruption": raises(KeyboardInterrupt),
    "intended exit": raises(SystemExit),
    "exit": raises(partial(SystemExit, 3)),
    "generator": generates,
    "interrupted generator": is_interrupted,
    "async generator": generates_asynchronously,
}


def outcome(call: Callable[[], Any]) -> Any:
    """What comes of it, with the functions in the traceback of an error."""
    try:
        result = call()
        if isinstance(result, AsyncIterator):
            result = asyncio.run(_items(result))
        return list(result)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is compared
        functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        if sys.version_info < (3, 11):  # where a frame cannot be taken out
            functions = [name for name in functions if name != "execute"]
        assert "execute" not in functions
        return type(error), error.args, functions, repr(error.__context__), repr(error.__cause__)


async def _items(generator: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in generator]


@needs_compiled
@pytest.mark.parametrize("carried", [{}, {KEY: CONTEXT}, {KEY: b"nonsense"}], ids=["nothing", "context", "nonsense"])
@pytest.mark.parametrize("flags", [0x03, 0x02], ids=["sampled", "not sampled"])
@pytest.mark.parametrize("task", TASKS)
def test_tasks_run_the_same(
    task: str, flags: int, carried: dict[str, bytes], reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their context; the one around it is there again afterwards."""
    monkeypatch.setattr(generators, "perf_counter", lambda: 0.0)

    def program(folder: Path) -> Any:
        tracing.active = worker_with(Core(TASK_ID, 1, 0), folder)
        execute = execution._function_executor(TASKS[task], execution.Beginning("Actor", "method").begin)
        before = attach(Context({"around": 1}))
        try:
            found = [outcome(lambda: execute(**carried)), outcome(lambda: execute(1, a=2, **carried))]
            assert get_current() == {"around": 1}
        finally:
            detach(before)
        tracing.active = None
        return [*found, outcome(lambda: execute(1, a=2, **carried))]

    both_ways(program, JOB._replace(flags=flags))
    assert len(reports) <= 1


@needs_compiled
@pytest.mark.parametrize("place", ["fail", "reset"])
@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_an_interruption_after_a_task_has_failed(
    fault: type[BaseException], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reaches Ray; its context leads to the error of the task, which is being handled meanwhile."""

    def interrupted(*_arguments: Any) -> None:
        handled = type(sys.exc_info()[1]).__name__
        try:
            int("first")
        except ValueError:
            raise fault(handled)  # noqa: B904  its context is what is looked at

    monkeypatch.setattr(execution, place, interrupted)

    def program(folder: Path) -> Any:
        tracing.active = worker_with(Core(TASK_ID, 1, 0), folder)
        execute = execution._function_executor(raises(IndexError), execution.Beginning("Actor", "method").begin)
        before = attach(Context())
        try:
            with pytest.raises(fault) as caught:
                execute()
        finally:
            detach(before)
        error = caught.value
        assert error.__context__ is not None
        return repr(error), repr(error.__context__.__context__), sys.exc_info()

    found, _ = both_ways(program)
    assert found[:2] == (f"{fault.__name__}('IndexError')", "IndexError()")


@needs_compiled
@pytest.mark.parametrize("place", ["begin", "attach"])
def test_an_interruption_before_a_task_runs_reaches_ray(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task does not run, and what was attached before still is."""
    ran: list[str] = []

    def interrupted(*_arguments: Any) -> None:
        raise KeyboardInterrupt(place)

    def program(folder: Path) -> Any:
        tracing.active = worker_with(Core(TASK_ID, 1, 0), folder)
        begin: Any = execution.Beginning("Actor", "method").begin if place == "attach" else interrupted
        before = attach(Context({"around": 1}))
        try:
            with monkeypatch.context() as patched:
                if place == "attach":
                    patched.setattr(execution, "attach", interrupted)
                execute = execution._function_executor(lambda: ran.append("task"), begin)
                with pytest.raises(KeyboardInterrupt, match=place):
                    execute()
            return dict(get_current())
        finally:
            detach(before)

    attached, _ = both_ways(program)
    assert (attached, ran) == ({"around": 1}, [])


def test_a_coroutine_of_an_untraced_task_has_no_line_of_ours_in_its_traceback() -> None:
    async def task() -> None:
        raise ValueError

    tracing.active = None
    execute = execution._coroutine_executor(task, execution.Beginning("Actor", "method").begin)
    kind, _, functions, *_ = outcome(lambda: asyncio.run(execute()))
    assert (kind, functions[-1]) == (ValueError, "task")


@pytest.mark.parametrize("is_on", [pytest.param(True, marks=needs_compiled), False])
def test_what_runs_a_task_looks_like_its_function(is_on: bool, tmp_path: Path) -> None:
    """And leaves alone the dictionary of arguments that C code passes."""

    def task(first: int, **_named: int) -> int:
        """Add one."""
        return first + 1

    with compiled(is_on), in_cluster(JOB):
        tracing.active = worker_of_job(tmp_path)
        execute: Any = execution._function_executor(task, execution.Beginning("Actor", "method").begin)
        assert (execute.__name__, execute.__qualname__, execute.__module__) == (*("task", task.__qualname__, __name__),)
        assert (execute.__doc__, execute.__wrapped__) == ("Add one.", task)
        assert inspect.signature(execute) == inspect.signature(task)
        execute.method = len
        dressed: Any = execution._dressed(execute, execute)
        assert (dressed.method, dressed.__ray_tracing_hooks__) == (len, True)
        keywords = {KEY: CONTEXT, "named": 1}
        call = ctypes.pythonapi.PyObject_Call
        call.restype, call.argtypes = ctypes.py_object, [ctypes.py_object] * 3
        assert call(execute, (1,), keywords) == 2
        assert keywords == {KEY: CONTEXT, "named": 1}


# --- submissions ------------------------------------------------------------------------------------------------------


def driver_of(folder: Path, trace: JobTrace = JOB) -> Tracing:
    driver = tracing_of(folder, DRIVER)
    driver.recorder.fallback = Parent(trace.trace_id, trace.root_span_id, trace.flags, None, remote=False)
    driver.calls.publish_job_trace()
    tracing.active = driver
    return driver


def remote(original: Callable[..., Any]) -> Callable[..., Any]:
    return submission.traced(targets._describe_method, key_of=targets._key_of)(original)


class Refused(BaseException):
    pass


def raise_(error: BaseException) -> Any:
    raise error


RESULTS: dict[str, Callable[[], Any]] = {
    "a reference": lambda: ObjectRef(TASK_ID),
    "another id": lambda: ObjectRef(TASK_ID[::-1]),
    "an id of zeros": lambda: ObjectRef(bytes(24)),
    "an id that is too short": lambda: ObjectRef(b"short"),
    "a list of references": lambda: [ObjectRef(TASK_ID)] * 2,
    "nothing": lambda: None,
    "something else": lambda: SimpleNamespace(task_id=lambda: stand_ins.Id(TASK_ID)),
    "an error": lambda: raise_(ValueError("refused")),
    "an error that is no Exception": lambda: raise_(Refused("refused")),
}
ARGUMENTS: list[tuple[Any, ...]] = [
    ((), {}),
    ((1, "a"), {"b": [1]}),
    ((1, ObjectRef(TASK_ID)), {}),
    ((), {"b": ObjectRef(TASK_ID)}),
    ([1, ObjectRef(TASK_ID)], None),
    (None, None),
]


@needs_compiled
@pytest.mark.parametrize("flags", [0x03, 0x02], ids=["sampled", "not sampled"])
@pytest.mark.parametrize("result", RESULTS)
def test_submissions_are_the_same(result: str, flags: int) -> None:
    """Whatever is passed and comes back: the records, what was reported, and what the caller sees."""
    trace = JOB._replace(flags=flags)

    def program(folder: Path) -> Any:
        driver_of(folder, trace)
        called: list[Any] = []

        def original(*arguments: Any, **options: Any) -> Any:
            called.append((arguments[1:], options, outgoing.carried is None))
            return RESULTS[result]()

        call, method = remote(original), stand_ins.Method()
        found: list[Any] = []
        for arguments in ARGUMENTS * 2:
            try:
                found.append((type(call(method, *arguments)), "", None))
            except BaseException as error:  # noqa: BLE001  whatever is raised
                found.append((type(error), str(error), error.__context__))
        call(method, args=(), kwargs={}, num_returns=1) if "error" not in result else None
        return called, found

    (called, _), found = both_ways(program, trace)
    assert len(called) >= len(ARGUMENTS) * 2
    assert {kind for kind, _ in found} == ({SPAN} if flags & 1 and "short" not in result else set())


@needs_compiled
def test_a_traceback_of_a_refused_call_has_no_line_of_ours(tmp_path: Path) -> None:
    """Also before Python 3.11, where a wrapper in Python cannot take itself out."""
    with compiled(True), in_cluster(JOB):
        driver_of(tmp_path)
        method, refusing = stand_ins.Method(), list[bool]()
        call = remote(lambda *_: raise_(ValueError("refused")) if refusing else ObjectRef(TASK_ID))
        call(method, (), {})
        refusing.append(True)
        with pytest.raises(ValueError, match="refused") as caught:
            call(method, (), {})
    assert {str(entry.path) for entry in caught.traceback} == {__file__}


@needs_compiled
def test_a_call_inside_of_another_call_that_carries_its_context_carries_none(tmp_path: Path) -> None:
    """Pickling the arguments of a call may make a call."""
    with compiled(True), in_cluster(JOB):
        driver_of(tmp_path)
        seen = []

        def original(*_: Any) -> ObjectRef:
            seen.append(outgoing.carried)
            return ObjectRef(TASK_ID)

        call = remote(original)
        call(stand_ins.Method(), (), {})
        outgoing.carried = b"of the call around"
        try:
            call(stand_ins.Method(), (), {})
            assert outgoing.carried == b"of the call around"
        finally:
            outgoing.carried = None
    assert seen == [None, None]


@needs_compiled
def test_a_fault_after_a_call_is_reported_and_its_result_returned(tmp_path: Path, reports: list[str]) -> None:
    class Broken(ObjectRef):
        def binary(self) -> Any:
            raise ValueError("no id")

        task_id = binary

    with compiled(True), in_cluster(JOB), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_ins.Process, "object_ref", lambda _self: Broken)
        driver_of(tmp_path)
        result = Broken(TASK_ID)
        call = remote(lambda *_: result)
        assert [call(stand_ins.Method(), (), {}) for _ in range(3)] == [result] * 3
    assert reports == ["recording a call failed: ValueError: no id; your program continues without it"]


@needs_compiled
def test_an_interruption_after_a_call_reaches_the_program(tmp_path: Path) -> None:
    class Interrupted(ObjectRef):
        def binary(self) -> Any:
            raise KeyboardInterrupt

        task_id = binary

    with compiled(True), in_cluster(JOB), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_ins.Process, "object_ref", lambda _self: Interrupted)
        driver_of(tmp_path)
        call = remote(lambda *_: Interrupted(TASK_ID))
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                call(stand_ins.Method(), (), {})


@needs_compiled
@pytest.mark.parametrize("fault", [ValueError("no description"), KeyboardInterrupt()])
def test_a_fault_after_a_refused_call(fault: BaseException, tmp_path: Path, reports: list[str]) -> None:
    """An error of ours is reported, and the program gets Ray's; an interruption comes on top of that, as in Python."""
    faults: list[BaseException] = []
    handled: list[str] = []

    def describe(*arguments: Any) -> Any:
        if faults:
            handled.append(repr(sys.exc_info()[1]))
            raise faults[0]
        return targets._describe_method(*arguments)

    def original(*_: Any) -> Any:
        if not faults:
            return ObjectRef(TASK_ID)
        raise OSError("refused")

    with compiled(True), in_cluster(JOB):
        driver_of(tmp_path)
        call, method = submission.traced(describe, key_of=targets._key_of)(original), stand_ins.Method()
        call(method, (), {})
        faults.append(fault)
        with pytest.raises(OSError if isinstance(fault, Exception) else KeyboardInterrupt) as caught:
            call(method, (), {})
    assert handled == ["OSError('refused')"]
    if isinstance(fault, Exception):
        assert caught.value.__context__ is None
        assert reports == ["recording a call failed: ValueError: no description; your program continues without it"]
    else:
        assert str(caught.value.__context__) == "refused"
        assert reports == []


@needs_compiled
@pytest.mark.parametrize("interrupts", [True, False])
def test_an_interruption_before_a_call_reaches_the_program(
    interrupts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a time-out that a signal handler raises. Any other error before a call leaves the call to Python."""
    errors: list[Exception] = []

    def key_of(method: Any) -> Any:
        if errors:
            raise errors[0]
        return targets._key_of(method)

    monkeypatch.setattr(submission, "is_interruption", lambda error: interrupts and error is errors[0])
    with compiled(True), in_cluster(JOB):
        driver_of(tmp_path)
        call = submission.traced(targets._describe_method, key_of=key_of)(lambda *_: ObjectRef(TASK_ID))
        call(stand_ins.Method(), (), {})
        errors.append(TimeoutError("now"))
        if interrupts:
            with pytest.raises(TimeoutError, match="now"):
                call(stand_ins.Method(), (), {})
        else:
            call(stand_ins.Method(), (), {})
    assert [kind for kind, _ in records(str(tmp_path))] == [SPAN] * (1 if interrupts else 2)


@needs_compiled
def test_a_method_is_in_place_as_the_function_that_it_replaces(tmp_path: Path) -> None:
    """Below a decorator as in Ray, or as an attribute of a class; not twice; and taken out again."""
    calls = []

    class Owner(stand_ins.Method):
        def _remote(self, args: Any, kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return ObjectRef(TASK_ID)

    original = Owner._remote
    with compiled(True), in_cluster(JOB):
        driver_of(tmp_path)
        patches = Patches()
        for _ in range(2):
            assert patches.wrap_within(Owner, "_remote", remote)
        assert isinstance(vars(Owner)["_remote"], _compiled.hotpath.Method)
        assert Owner._remote is vars(Owner)["_remote"]
        assert Owner._remote.__qualname__ == original.__qualname__
        for _ in range(3):
            Owner()._remote((1,), {})
        patches.undo()
        assert Owner._remote is original
    assert calls == [((1,), {})] * 3
    assert [kind for kind, _ in records(str(tmp_path))] == [SPAN] * 3


def serve_method() -> stand_ins.Method:
    """A method of an actor of Serve, whose calls Ray makes without us."""
    method = stand_ins.Method()
    method._actor._ray_actor_creation_function_descriptor.module_name = "ray.serve._private.replica"
    return method


@needs_compiled
@pytest.mark.parametrize("around", [None, b"of the call around"])
def test_calls_that_make_no_span_are_the_same(around: bytes | None) -> None:
    """They carry nothing, with whatever options, and also inside of a call that carries its context."""

    def program(folder: Path) -> Any:
        driver_of(folder).calls.join_serve = lambda: True
        seen: list[Any] = []

        def original(_self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            seen.append((args, kwargs, options, outgoing.carried))
            if "fails" in options:
                raise ValueError("refused")
            return "the result"

        call, method = remote(original), serve_method()
        outgoing.carried = around
        try:
            made: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
                (((1,), {"a": 2}), {}),
                (((1,), {"a": 2}), {"num_returns": "streaming", "name": "a name"}),
                ((), {"args": (1,), "kwargs": {}}),
            ]
            for arguments, options in made * 2:
                seen.append(call(method, *arguments, **options))
            with pytest.raises(ValueError, match="refused"):
                call(method, (), {}, fails=True)
            assert outgoing.carried == around
        finally:
            outgoing.carried = None
        return seen

    seen, found = both_ways(program)
    assert seen.count("the result") == 6
    assert [each[3] for each in seen if isinstance(each, tuple)] == [None] * 7
    assert found == []


# --- arguments --------------------------------------------------------------------------------------------------------

LABEL = passing._LABEL


class Serialized(NamedTuple):
    data: bytes
    metadata: Any


CARRYING = Serialized(b"data", LABEL + b"context")


@pytest.mark.parametrize(
    "serialized",
    [
        *([], (), None, [CARRYING], [CARRYING] * 2, (CARRYING,), [(*CARRYING, "more")]),
        *([Serialized(b"data", metadata)] for metadata in (None, b"", b"RAW", LABEL, LABEL[:-1])),
        [Serialized(b"data", b"RAW"), CARRYING],
    ],
)
def test_a_context_is_found_in_the_first_of_the_results(serialized: Any) -> None:
    replaced = passing._deserialize_objects(lambda _self, _serialized, *rest: ["object", *rest])
    carries = bool(serialized) and serialized[0][:2] == CARRYING
    assert replaced("self", serialized, 1) == ["object", 1, *([b"context"] if carries else [])]


def test_arguments_are_passed_with_a_context_and_without_one() -> None:
    """As Ray passes them: flattened and serialized, and with errors of the program."""
    unpicklable = object()

    def to_msgpack(_self: Any, value: Any) -> Any:
        if value is unpicklable:
            raise ValueError("not to be pickled")
        return "serialized", value

    def parameters(*args: Any, **kwargs: Any) -> None:
        pass

    def passed(carried: bytes | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        signature = passing.signature_module()
        serializing = SerializationContext.__new__(SerializationContext)
        patches = Patches()
        try:
            assert passing.patch(patches, Cluster())
            outgoing.carried = carried
            flat = signature.flatten_args(signature.extract_signature(parameters), args, kwargs)
            return [
                f"{each.metadata}" if isinstance(each, RawSerializedObject) else each
                for each in map(serializing.serialize, flat)
            ]
        except ValueError as error:
            return str(error)
        finally:
            outgoing.carried = None
            patches.undo()

    given_ones: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        *(((), {}), ((1, "a"), {}), ((1,), {"b": 2}), ((), {"b": b"bytes"}), ((unpicklable,), {})),
    ]
    for all_traced, carried, (args, kwargs) in itertools.product((True, False), (None, b"context"), given_ones):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cluster, "all_traced", all_traced)
            patch.setattr(SerializationContext, "_serialize_to_msgpack", to_msgpack)
            came = passed(carried, args, kwargs)
        assert (came == "not to be pickled") == (unpicklable in args)
        assert ("context" in str(came)) == bool(carried and args and unpicklable not in args), came


def test_functions_that_refer_to_replacements_by_name_are_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a function with ``@serve.batch``, whose module has imported them: while they are replaced, and afterwards."""
    signature = passing.signature_module()
    originals = signature.flatten_args, signature.recover_args
    batching: Any = ModuleType("ray.serve.batching")
    monkeypatch.setitem(sys.modules, "ray.serve.batching", batching)

    def unpickled() -> Any:
        code = "def batched(): return flatten_args, recover_args"
        exec(code, vars(batching))
        batching.batched.__module__ = "__main__"
        return pickle.loads(ray.cloudpickle.dumps(batching.batched))()

    for _ in range(2):
        patches = Patches()
        assert passing.patch(patches, Cluster())
        batching.flatten_args, batching.recover_args = signature.flatten_args, signature.recover_args
        assert unpickled() == (signature.flatten_args, signature.recover_args) != originals
        patches.undo()
        assert unpickled() == originals


@needs_compiled
def test_a_replacement_is_pickled_with_the_bytes_of_what_it_replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("of_ray")
    monkeypatch.setitem(sys.modules, "of_ray", module)

    def function(*_: Any) -> None:
        pass

    function.__module__, function.__qualname__ = "of_ray", "function"
    with compiled(True):
        with pytest.raises(TypeError, match="has no name"):
            pickle.dumps(remote(function))
        module.function = function
        before, patches = pickle.dumps(function), Patches()
        assert patches.wrap(module, "function", remote)
        assert module.function is not function
        assert pickle.dumps(module.function) == before
        assert pickle.loads(before) is copy.copy(module.function) is module.function
        patches.undo()


# --- clocks -----------------------------------------------------------------------------------------------------------

LATER = 4_000_000_000_000_000_000


@contextmanager
def function_replaced() -> Iterator[None]:
    """Another clock, as freezegun sets it: another function, wherever the one of the system is known."""
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            for name in ("time_ns", "_time_ns"):
                if getattr(module, name, None) is time.time_ns and module is not time:
                    patch.setattr(module, name, lambda: LATER)
        patch.setattr(time, "time_ns", lambda: LATER)
        yield


class Method(ctypes.Structure):
    """``PyMethodDef`` of CPython, as far as it is needed."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p))


class BuiltIn(ctypes.Structure):
    """``PyCFunctionObject``, as far as it is needed."""

    _fields_ = (("references", ctypes.c_ssize_t), ("type", ctypes.c_void_p), ("method", ctypes.POINTER(Method)))


@contextmanager
def code_replaced() -> Iterator[None]:
    """Another clock, as time-machine sets it: the function is the same object, and calls other code."""
    method = BuiltIn.from_address(id(time.time_ns)).method.contents
    clock = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(lambda _self, _nothing: LATER)
    before, method.function = method.function, ctypes.cast(clock, ctypes.c_void_p).value
    try:
        yield
    finally:
        method.function = before


@needs_compiled
@pytest.mark.parametrize("replaced", [function_replaced, code_replaced])
def test_a_clock_that_the_program_has_set_is_not_that_of_spans(
    replaced: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    """As tests and simulations do."""

    def program(folder: Path) -> list[bool]:
        tracing.active = worker = worker_of_job(folder / "worker")
        driver = driver_of(folder / "driver")
        call, begin = remote(lambda *_: ObjectRef(TASK_ID)), execution.Beginning("Actor", "method").begin
        found: list[bool] = []

        def round_() -> None:
            tracing.active = driver
            call(stand_ins.Method(), (), {})
            tracing.active = worker
            for carried in (None, CONTEXT):
                begun = begin(carried)
                assert begun is not None
                span = begun[1]
                assert span is not None
                span.end()
                found.extend(moment == LATER for moment in (span.start_time, span.end_time))

        round_()
        with replaced():
            round_()
        round_()
        of_calls = [decode_span(payload[2:]) for _, payload in records(str(folder / "driver"))]
        return found + [moment == LATER for span in of_calls for moment in (span.start_ns, span.end_ns)]

    found, _ = both_ways(program)
    assert found == [False] * 18


# --- changes ----------------------------------------------------------------------------------------------------------


def sampler(name: str) -> Any:
    """A new one, as each change makes one."""
    return sampling.from_environment({"OTEL_TRACES_SAMPLER": name})


def change(recorder: Recorder) -> None:
    """What the last step of a change does in a process: what calls use from now on, and record with."""
    active = tracing.active
    assert active is not None
    tracing.active = active.changed(recorder, tracing.Options(active.selection))


@needs_compiled
def test_tasks_notice_a_change_of_settings_at_once() -> None:
    """Between its steps, too. Spans that are open then end in the spool that they began in, and nowhere else."""

    def program(folder: Path) -> Any:
        tracing.active = first = worker_of_job(folder / "first")
        begin = execution.Beginning("Actor", "method").begin
        found: list[bool] = []

        def tasks(expected: bool) -> None:
            for carried in (None, CONTEXT) * 2:
                begun = begin(carried)
                assert begun is not None
                context, span = begun
                assert context[TASK_KEY] == TASK_ID
                assert (span is not None) is expected
                if span is not None:
                    span.end()
                found.append(expected)

        tasks(True)
        still_open = [begun[1] for begun in map(begin, (None, CONTEXT)) if begun is not None]
        for name, records in (("always_off", False), ("parentbased_always_on", True), ("always_off", False)):
            first.recorder.sampler = sampler(name)
            tasks(records)
            change(first.recorder)
            tasks(records)
        change(stand_ins.recorder(folder / "second"))
        tasks(True)
        writer: Any = first.recorder._writer
        number = writer._descriptor
        writer.close()
        tasks(True)
        with (folder / "own").open("xb") as own:
            os.dup2(own.fileno(), number)  # as the program may, after it has closed what it does not know
            for span in still_open:
                assert span is not None
                span.end()
                span.end()
            os.close(number)
        tracing.active = None
        assert begin(None) is None
        assert begin(CONTEXT) is None
        in_spools = timeless(str(folder / "first")), timeless(str(folder / "second"))
        return found, *in_spools, (folder / "own").stat().st_size

    (found, first, second, own), _ = both_ways(program)
    assert len(found) == 4 * 9
    kinds = [[kind for kind, _ in each] for each in (first, second)]
    assert kinds == [[START, SPAN] * 4 + [START] * 2 + [START, SPAN] * 8 + [SPAN] * 2, [START, SPAN] * 8]
    assert own == 0


@needs_compiled
def test_calls_notice_a_change_of_settings_at_once() -> None:
    """Between its steps, and while Ray submits a call: that is recorded as it began. The end of the driver, too."""

    def program(folder: Path) -> Any:
        first = driver_of(folder / "first")
        meanwhile: list[Callable[[], None]] = []
        inherits: list[bool] = []

        def original(*_: Any) -> ObjectRef:
            inherits.append(outgoing.carried is None)
            while meanwhile:
                meanwhile.pop()()
            return ObjectRef(TASK_ID)

        call, method = remote(original), stand_ins.Method()

        def calls() -> None:
            for _ in range(2):
                call(method, (), {})

        calls()
        meanwhile.append(lambda: setattr(first.recorder, "sampler", sampler("always_off")))
        calls()
        change(first.recorder)
        calls()
        first.recorder.sampler = sampler("parentbased_always_on")
        calls()
        change(first.recorder)
        calls()
        second = stand_ins.recorder(folder / "second")
        second.fallback = first.recorder.fallback
        meanwhile.append(lambda: change(second))
        calls()
        calls()
        second.fallback = None
        calls()
        tracing.active = None
        calls()
        return inherits, timeless(str(folder / "first")), timeless(str(folder / "second"))

    (inherits, first, second), _ = both_ways(program)
    kinds = [[kind for kind, _ in each] for each in (first, second)]
    assert kinds == [[SPAN] * (2 + 1 + 2 + 2 + 1), [SPAN] * (1 + 2 + 2)]
    assert inherits == [True] * 3 + [False] * 3 + [True] * 8 + [False] * 2 + [True] * 2


@pytest.mark.parametrize("of", ["this package", "the SDK"])
@pytest.mark.parametrize("is_on", [pytest.param(True, marks=needs_compiled), False])
def test_calls_notice_that_the_span_around_them_is_over(is_on: bool, of: str, tmp_path: Path) -> None:
    """Each of them is then a trace of its own that links to it, and carries its context; those in the second after its
    end are still below it.
    """
    with compiled(is_on), in_cluster(JOB):
        driver = driver_of(tmp_path)
        carried: list[bytes | None] = []

        def original(*_: Any) -> ObjectRef:
            carried.append(outgoing.carried)
            return ObjectRef(TASK_ID)

        call, parent = remote(original), driver.recorder.fallback
        assert parent is not None

        def around() -> Any:
            if of == "this package":
                return driver.recorder.start(Template("around", 1, {}), *driver.recorder.decide(parent), parent)
            above = trace.set_span_in_context(trace.NonRecordingSpan(parent.span_context()))
            return TracerProvider().get_tracer("").start_span("around", above)

        ends = (time.time_ns() + 3600 * 10**9, time.time_ns() - 1_500_000_000)
        spans = [around() for _ in ends]
        for span, end in zip(spans, ends, strict=True):
            token = attach(Context({SPAN_KEY: span}))
            for has_ended in (False, True):
                if has_ended:
                    span.end(end)
                for _ in range(2):
                    call(stand_ins.Method(), (), {})
            detach(token)
    assert [each is None for each in carried] == [True] * 6 + [False] * 2
    found = [decode_span(payload[2:]) for kind, payload in records(str(tmp_path)) if kind == SPAN]
    calls = [each for each in found if each.name == "Actor.method ray.remote"]
    recent, over = (span.get_span_context().span_id.to_bytes(8, "big") for span in spans)
    assert [each.parent_span_id for each in calls] == [recent] * 4 + [over] * 2 + [b""] * 2
    assert len({JOB.trace_id, *(each.trace_id for each in calls)}) == 3
    for each, context in zip(calls[-2:], carried[-2:], strict=True):
        assert [(link.trace_id, link.span_id) for link in each.links] == [(JOB.trace_id, over)]
        assert 1.5 <= each.attributes["ray.after_end"] < 60
        assert context is not None
        decoded = carrier.decode(context)
        assert (decoded.trace_id, decoded.span_id) == (each.trace_id, each.span_id)


class Deciding:
    """A sampler that records all, during whose decision another thread changes something."""

    root = is_constant = True

    def __init__(self, change: Callable[[], None]) -> None:
        self._change = change

    def child(self, parent_sampled: bool, _trace_id: bytes) -> bool:
        self._change()
        return parent_sampled


class Following(Deciding):
    """The same, where the decision is that of the parent."""

    @property
    def follows_parent(self) -> bool:
        self._change()
        return True


Deciding.follows_parent = False  # type: ignore[attr-defined]


@needs_compiled
@pytest.mark.parametrize("carried", [None, CONTEXT], ids=["nothing carried", "context carried"])
def test_a_sampler_that_is_set_while_another_one_decides_on_tasks(carried: bytes | None) -> None:
    """What the first one has decided does not stand for the second one."""

    def program(folder: Path) -> Any:
        tracing.active = worker = worker_of_job(folder)
        recorder: Any = worker.recorder
        recorder.sampler = (Deciding if carried is None else Following)(
            lambda: setattr(recorder, "sampler", sampler("always_off"))
        )
        begin = execution.Beginning("Actor", "method").begin
        found = []
        for _ in range(4):
            begun = begin(carried)
            assert begun is not None
            found.append(begun[1] is not None)
        return found

    found, _ = both_ways(program)
    assert found[1:] == [False] * 3


@needs_compiled
@pytest.mark.parametrize("changed", ["sampler", "fallback"])
def test_what_is_set_while_a_sampler_decides_on_calls(changed: str) -> None:
    """The same; and the end of a driver sets no parent in place of its root span."""

    def program(folder: Path) -> Any:
        driver = driver_of(folder)
        recorder: Any = driver.recorder
        other = sampler("always_off") if changed == "sampler" else None
        call, method = remote(lambda *_: ObjectRef(TASK_ID)), stand_ins.Method()
        recorder.sampler = Deciding(lambda: setattr(recorder, changed, other))
        if changed == "fallback":
            recorder.sampler.root = lambda _trace_id: False
        for _ in range(4):
            call(method, (), {})

    _, found = both_ways(program)
    assert [kind for kind, _ in found] == [SPAN]


class Load:
    """Threads that run tasks, each of which makes a call, until the end.

    Attributes:
        begun: How many of their tasks have begun a span.
    """

    def __init__(self, threads: int) -> None:
        self.begun = 0
        self._rounds = [0] * threads
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(place,)) for place in range(threads)]

    @contextmanager
    def running(self) -> Iterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            sys.setswitchinterval(before)
            self._is_over.set()
            for thread in self._threads:
                thread.join()

    def go_on(self) -> None:
        """Wait until each thread has begun and ended a round from now on."""
        until = time.monotonic() + 60
        wanted = [number + 2 for number in self._rounds]
        while any(number < least for number, least in zip(self._rounds, wanted, strict=True)):
            assert time.monotonic() < until, self._rounds
            time.sleep(0.001)

    def _work(self, place: int) -> None:
        call = remote(lambda *_: ObjectRef(os.urandom(20) + TASK_ID[20:]))
        method, begin = stand_ins.Method(), execution.Beginning("Actor", "method").begin
        while not self._is_over.is_set():
            begun = begin(None if self._rounds[place] % 2 else CONTEXT)
            assert begun is not None
            token = attach(begun[0])
            call(method, (), {})
            detach(token)
            if begun[1] is not None:
                begun[1].end()
                with self._lock:
                    self.begun += 1
            self._rounds[place] += 1


@pytest.mark.parametrize("is_on", [pytest.param(True, marks=needs_compiled), False])
def test_changes_while_many_threads_record(is_on: bool, tmp_path: Path) -> None:
    """Whatever has begun ends, in its spool; and nothing is recorded once nothing is to be recorded."""
    folders = [tmp_path / str(number) for number in range(8)]
    quiet = []
    with compiled(is_on), in_cluster(JOB):
        tracing.active = worker = worker_of_job(folders[0])
        recorder = worker.recorder
        load = Load(threads=4)
        with load.running():
            for folder in folders[1:]:
                load.go_on()
                recorder.sampler = sampler("always_off")
                change(recorder)
                load.go_on()
                began = time.time_ns()
                load.go_on()
                quiet.append((began, time.time_ns()))
                recorder.sampler = sampler("parentbased_always_on")
                change(recorder)
                load.go_on()
                writer: Any = recorder._writer
                recorder = stand_ins.recorder(folder)
                change(recorder)
                writer.close()
    executions = calls = 0
    for folder in folders:
        found = [(kind, decode_span(payload[2:])) for kind, payload in records(str(folder))]
        started = sorted(span.span_id for kind, span in found if kind == START)
        of_tasks = sorted(span.span_id for kind, span in found if kind == SPAN and "remote_worker" in span.name)
        assert of_tasks == started
        executions += len(of_tasks)
        calls += len(found) - 2 * len(of_tasks)
        assert not [span for _, span in found for began, ended in quiet if began <= span.start_ns <= ended]
    assert executions == load.begun > 0
    assert calls > 0


# --- faults -----------------------------------------------------------------------------------------------------------


CUT = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
begin("first").end()
room = os.stat(writer._descriptor).st_size + 100
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
begin("cut").end()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
begin("last").end()
tell(said)
"""


@pytest.mark.parametrize("is_on", [pytest.param(True, marks=needs_compiled), False])
def test_a_record_of_which_only_a_part_is_written_is_counted_as_dropped(is_on: bool, tmp_path: Path) -> None:
    """As on a full disk: the record after it says so, and the part is no damage."""
    with compiled(is_on):
        (said,) = run(CUT, tmp_path)
    assert "No space left on device" in said
    found = []
    for _, paths, _ in iterate(str(tmp_path)):
        for path in paths:
            found += [(kind, payload) for kind, payload, _ in SegmentReader(path).read()]
    names = [decode_span(payload[2:]).name for kind, payload in found if kind == SPAN]
    assert names == ["first", "last"]
    assert [U64.unpack(payload) for kind, payload in found if kind == DROPPED] == [(1,)]


@needs_compiled
def test_nonsense_in_its_objects_is_no_crash(tmp_path: Path) -> None:
    """The program can set every attribute: then there may be an error, as from Python, and nothing worse."""
    nonsense = [None, 0, -1, b"", b"x" * 9000, "text", (), object(), [], 1.5, True, 1 << 70, RecordedSpan, tmp_path]
    chosen = random.Random(5)
    with compiled(True), in_cluster(JOB):
        for _ in range(15 * settings().max_examples):
            tracing.active = active = worker_of_job(tmp_path)
            recorder = active.recorder
            beginning = execution.Beginning("Actor", "method")
            begin = beginning.begin
            begun = begin(None)
            assert begun is not None
            assert begun[1] is not None
            places: list[tuple[Any, list[str]]] = [
                (recorder, ["sampler", "fallback", "observer", "_writer", "_prefix", "_end_tag"]),
                (beginning, ["_tracing", "_inheriting", "_carrying", "_active"]),
                (begun[1], ["_recorder", "template", "trace_flags", "start_time", "end_time", "_head", "_added"]),
                (recorder._writer, ["_failing", "_written", "_segment_bytes", "_look_at", "_is_compiled"]),
            ]
            for place, names in chosen.sample(places, chosen.randint(1, 3)):
                for name in chosen.sample(names, chosen.randint(1, 2)):
                    with contextlib.suppress(TypeError, OverflowError, AttributeError):
                        if chosen.random() < 0.2:
                            delattr(place, name)
                        else:
                            setattr(place, name, chosen.choice(nonsense))
            template, context = Template("name", 1, {}), Context({SPAN_KEY: begun[1]})
            decide: Callable[..., Any] = recorder.decide
            acts: tuple[Callable[[], Any], ...] = (
                *(begun[1].as_parent, begun[1].end, partial(begin, None), partial(begin, bytes(58))),
                partial(recorder.start, template, bytes(16), 3, None),
                partial(recorder.record, template, b"identity", 1, 2, b""),
                partial(recorder.parent, context),
                partial(decide, chosen.choice([None, recorder.fallback, (), (1, 2, 3, 4, 5)])),
            )
            for act in acts:
                with contextlib.suppress(Exception):  # whatever Python makes of it
                    act()
            active.recorder._writer = None


@needs_compiled
def test_wrong_arguments_are_errors(tmp_path: Path) -> None:
    recorder: Any = stand_ins.recorder(tmp_path)
    span: Any = RecordedSpan(recorder, Template("n", 1, {}), 1, None, 1, b"")
    writer: Any = SpoolWriter(str(tmp_path))
    made: tuple[Any, ...] = (_compiled.hotpath.Execution, _compiled.hotpath.Submissions, _compiled.hotpath.Method)
    wrong: list[Callable[[], Any]] = [
        lambda: span.end(1, 2),
        lambda: span.end(other=1),
        lambda: span.end(1, end_time=2),
        lambda: writer.span(b""),
        lambda: writer.start(b"", b"", b""),
        *made,
        *(partial(kind, *range(30)) for kind in made),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()


def of_requests(recorder: Recorder, template: Template, context: Context) -> None:
    recorder.decide(recorder.parent(context))
    recorder.decide(None)
    recorder.record(template, b"", 1, 2, bytes(9000))
    recorder.record(template, b"", 1, 2, b"")


@needs_compiled
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Neither by calls nor by what makes them, whose parts refer to each other."""

    def program(folder: Path) -> list[weakref.ref[Any]]:
        worker = worker_of_job(folder / "worker")
        driver = driver_of(folder / "driver")
        call = remote(lambda *_: ObjectRef(TASK_ID))
        failing = remote(lambda *_: raise_(ValueError("refused")))
        begin = execution.Beginning("Actor", "method").begin
        execute, execute_failing = (execution._function_executor(each, begin) for each in (returns, raises(KeyError)))
        context = carrier.encode(JOB.trace_id, JOB.root_span_id, 3, time.time_ns(), DRIVER_TASK_ID, None)

        method, of_serve, template = stand_ins.Method(), serve_method(), Template("name", 1, {})
        driver.calls.join_serve = lambda: True
        context_ = Context({SPAN_KEY: driver.recorder.start(template, bytes(16), 3, None)})

        def round_() -> None:
            tracing.active = driver
            call(method, (1,), {"a": 2})
            call(method, (ObjectRef(TASK_ID),), {})
            call(of_serve, (1,), {})
            driver.recorder.start(template, bytes(16), 3, driver.recorder.fallback, b"").end()
            driver.recorder.start(template, bytes(16), 3, None, start_time=1).end()
            of_requests(driver.recorder, template, context_)
            with pytest.raises(ValueError, match="refused"):
                failing(method, (), {})
            tracing.active = worker
            for carried in (None, context, b"x" * 58):
                begun = begin(carried)
                if begun is not None and begun[1] is not None:
                    begun[1].end()
                keywords = {} if carried is None else {KEY: carried}
                execute(1, a=2, **keywords)
                with pytest.raises(KeyError):
                    execute_failing(**keywords)

        for _ in range(50):
            round_()
        more_objects, more_blocks = 50, 250
        for _ in range(3):  # what is left behind is so each time; a cache that grows takes memory once
            gc.collect()
            objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
            for _ in range(500):
                round_()
            gc.collect()
            more_objects, more_blocks = len(gc.get_objects()) - objects, sys.getallocatedblocks() - blocks
            if more_objects < 50 and more_blocks < 250:
                break
        assert more_objects < 50
        assert more_blocks < 250
        return [weakref.ref(each) for each in (worker, driver, worker.recorder, driver.recorder)]

    with compiled(True), in_cluster(JOB):
        left = program(tmp_path)
    gc.collect()
    assert [each() for each in left] == [None] * 4


@needs_compiled
def test_calls_and_tasks_of_many_threads(tmp_path: Path) -> None:
    """While others begin new segments all the time."""
    with compiled(True), in_cluster(JOB):
        driver = driver_of(tmp_path)
        writer = driver.recorder._writer
        assert isinstance(writer, SpoolWriter)
        writer._most_bytes = writer._segment_bytes = 20_000
        call = remote(lambda *_: ObjectRef(TASK_ID))

        def work() -> None:
            method = stand_ins.Method()
            for _ in range(500):
                call(method, (), {})

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
    assert [kind for kind, _ in records(str(tmp_path))] == [SPAN] * 4000


def test_a_settings_file_decides_for_what_is_made_later(tmp_path: Path) -> None:
    for allowed in (False, True):
        with compiled(allowed):
            writer = SpoolWriter(str(tmp_path))
        assert writer._is_compiled == (allowed and _compiled.use.is_loaded)


OF_AN_INTERPRETER = """
import sys
sys.path[:] = {path!r}
from ray_tracing_hooks import _compiled
from ray_tracing_hooks._spool.writer import SpoolWriter
writer = SpoolWriter({folder!r})
prefix = writer.scope(b"", b"").to_bytes(2, "little")
for _ in range(3):
    writer.start(prefix, bytes(100))
    writer.span(prefix, bytes(100))
"""

INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
program = sys.argv[1]
exec(program.format(path=sys.path, folder=sys.argv[2] + "/main"))
assert _compiled.use.is_on
for number in range(3):
    interpreter = interpreters.create()
    other = program.format(path=sys.path, folder=f"{sys.argv[2]}/{number}")
    failed = interpreters.run_string(interpreter, other)
    assert not failed, failed
    interpreters.destroy(interpreter)
    writer.start(prefix, bytes(100))
    writer.span(prefix, bytes(100))
"""


@needs_compiled
def test_other_interpreters_of_a_process(tmp_path: Path) -> None:
    """They have the compiled part too, or do the same in Python if they have a GIL of their own."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", INTERPRETERS, OF_AN_INTERPRETER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for folder in tmp_path.iterdir():
        kinds = [kind for path in folder.glob("*.spool") for kind, _, _ in SegmentReader(str(path)).read()]
        found[folder.name] = [kind for kind in kinds if kind in {START, SPAN}]
    assert found == {"main": [START, SPAN] * 6, **{str(number): [START, SPAN] * 3 for number in range(3)}}
