"""The compiled part of the hot path: calls are recorded the same with it and without it, and nothing crashes or leaks.

Tests with the fixture ``each_way`` are about what calls do, whichever part records them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import inspect
import os
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
from types import SimpleNamespace
from typing import Any

import pytest
import stand_ins
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from recording import run
from stand_ins import DRIVER_TASK_ID, JOB_ID, TASK_ID, ObjectRef, driver_of_job, tracing_of, worker_of_job

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._ray import execution, generators, submission, targets, tracing
from ray_tracing_hooks._ray.arguments import KEY, outgoing
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.propagation import TASK_KEY
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import carrier, ids, sampling
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.patching import Patches
from ray_tracing_hooks._spool.layout import DROPPED, SPAN, START, U64
from ray_tracing_hooks._spool.reader import SegmentReader, iterate
from ray_tracing_hooks._spool.writer import SpoolWriter

needs_compiled = pytest.mark.skipif(not _compiled.use.is_loaded, reason="this installation is pure Python")
each_way = pytest.mark.usefixtures("each_way", "in_cluster")

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


@contextmanager
def cluster_with(trace: JobTrace) -> Iterator[None]:
    """A cluster in which every process is traced, and this is the trace of the job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "all_traced", True)
        patch.setattr(Cluster, "publish", lambda _self, _job_id, _trace: True)
        patch.setattr(Cluster, "published", lambda _self, _job_id: trace)
        yield
    tracing.active = None


@pytest.fixture
def in_cluster() -> Iterator[None]:
    with cluster_with(JOB):
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


def driver_of(folder: Path, trace: JobTrace = JOB) -> Tracing:
    tracing.active = driver = driver_of_job(folder, trace)
    return driver


def remote(original: Callable[..., Any]) -> Callable[..., Any]:
    return submission.traced(targets._describe_method, key_of=targets._key_of)(original)


def begin_of(*names: str) -> Callable[..., Any]:
    return execution.Beginning(*(names or ("Actor", "method"))).begin


def raise_(error: BaseException) -> Any:
    raise error


class Refused(BaseException):
    pass


RESULTS: dict[str, Callable[[], Any]] = {
    "a reference": lambda: ObjectRef(TASK_ID),
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


def returns(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def raises(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def task(*_args: Any, **_kwargs: Any) -> Any:
        try:
            int("first")
        except ValueError:
            raise error()  # noqa: B904  its context is what is looked at

    return task


def generates(*args: Any, **kwargs: Any) -> Iterator[Any]:
    yield args
    yield kwargs


async def generates_asynchronously(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    yield args
    yield kwargs


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
        return type(error), error.args, functions[2:], repr(error.__context__), repr(error.__cause__)


async def _items(generator: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in generator]


# --- with it and without it -------------------------------------------------------------------------------------------


def both_ways(program: Callable[[Path], Any], trace: JobTrace, number: int) -> None:
    """A program must return the same, and leave the same in its folder. All random ids are made of the ``number``."""
    came = []
    for is_on in (True, False):
        with (
            compiled(is_on),
            cluster_with(trace),
            pytest.MonkeyPatch.context() as patch,
            tempfile.TemporaryDirectory() as folder,
        ):
            patch.setattr(ids, "_generator", SimpleNamespace(getrandbits=lambda _bits: number))
            patch.setattr(ids, "random_64", lambda: number)
            patch.setattr(generators, "perf_counter", lambda: 0.0)
            came.append((program(Path(folder)), timeless(folder)))
    assert came[0] == came[1]


class Core(stand_ins.CoreWorker):
    """A core worker with a task like this."""

    def __init__(self, task_id: bytes, depth: int, attempt: int) -> None:
        super().__init__(task_id)
        self.depth, self.attempt = depth, attempt

    def get_current_task_attempt_number(self) -> int:
        return self.attempt


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
    runs=st.none() | st.tuples(st.sampled_from(["", "f"]), st.sampled_from([b"", encode.attribute("a", 1)])),
)
held_resources = st.sampled_from(
    [b"", encode.attribute("ray.resources", "CPU"), encode.attribute("ray.resources", "r" * 4000)]
)
call_sites = st.sampled_from(
    [("Actor", "method"), ("", "module.f"), ("Actor", "m" * 5000), ("", "\N{GREEK SMALL LETTER MU}")]
)


@needs_compiled
@settings(max_examples=150)
@given(
    trace=st.builds(
        JobTrace,
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=8, max_size=8),
        st.integers(0, 3),
        task_ids | st.just(b""),
    ),
    core=st.builds(Core, task_ids, depth=st.integers(0, 3), attempt=st.sampled_from([0, 0, 0, 1])),
    names=call_sites,
    held=held_resources,
    carried=st.none() | contexts | st.binary(min_size=57, max_size=59) | contexts.map(lambda context: context[:-1]),
    result=st.sampled_from(sorted(RESULTS)),
    arguments=st.sampled_from(ARGUMENTS),
    module=st.sampled_from(["__main__", "ray.serve._private.replica"]),
    task=st.sampled_from(sorted(TASKS)),
    number=st.integers(0, (1 << 64) - 1),
)
def test_calls_are_the_same(
    trace: JobTrace,
    core: Core,
    names: tuple[str, str],
    held: bytes,
    carried: bytes | None,
    result: str,
    arguments: tuple[Any, ...],
    module: str,
    task: str,
    number: int,
) -> None:
    """Whatever is called, passed and returned: what both sides see, the records, and the span's own view."""

    def submits(folder: Path) -> Any:
        driver_of(folder, trace).calls.join_serve = lambda: True
        found: list[Any] = []
        method = stand_ins.Method()
        method._actor._ray_actor_creation_function_descriptor.module_name = module

        def original(*given: Any, **options: Any) -> Any:
            found.append((given[1:], options, outgoing.carried is None))
            return RESULTS[result]()

        call = remote(original)
        for around in (None, None, b"of the call around"):
            outgoing.carried = around
            found.append(outcome(lambda: [type(call(method, *arguments))]))
            assert outgoing.carried == around
        outgoing.carried = None
        return [*found, outcome(lambda: [type(call(method, args=(), kwargs={}, num_returns=1))])]

    def executes(folder: Path) -> Any:
        tracing.active = active = tracing_of(folder)
        active.process.worker.core_worker = core
        active.job.load_job_trace(JOB_ID, task_is_there=True)
        active.held.encoded = held
        begin = begin_of(*names)
        execute = execution._function_executor(TASKS[task], begin)
        keywords = {} if carried is None else {KEY: carried}
        found = [outcome(lambda: execute(1, a=2, **keywords)) for _ in range(2)]
        begun = begin(carried)
        if begun is None:
            return found
        context, span = begun
        found += [sorted(context), context.get(TASK_KEY), span is None]
        if span is not None:
            assert type(span) is RecordedSpan
            assert context[SPAN_KEY] is span
            found += [span.trace_id, span.span_id, span.trace_flags, span.name, span.kind, span.is_recording()]
            found += [span.parent, span.template is active.templates.of(5, *names), span._added, span._context]
            span.end()
            span.end()
            found += [span.end_time is not None, span.is_recording()]
        return found

    both_ways(submits, trace, number)
    both_ways(executes, trace, number)


# --- what calls do ----------------------------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("carried", [{}, {KEY: CONTEXT}, {KEY: b"nonsense"}], ids=["nothing", "context", "nonsense"])
@pytest.mark.parametrize("task", TASKS)
def test_a_task_runs_as_without_tracing(task: str, carried: dict[str, bytes], tmp_path: Path) -> None:
    """The context around it is there again afterwards."""
    tracing.active = worker_of_job(tmp_path)
    function = TASKS[task]
    execute = execution._function_executor(function, begin_of())
    before = attach(Context({"around": 1}))
    try:
        assert outcome(lambda: execute(1, a=2, **carried)) == outcome(lambda: function(1, a=2))
        assert get_current() == {"around": 1}
    finally:
        detach(before)


@each_way
def test_what_runs_a_task_looks_like_its_function(tmp_path: Path) -> None:
    """And leaves alone the dictionary of arguments that C code passes."""

    def task(first: int, **_named: int) -> int:
        """Add one."""
        return first + 1

    tracing.active = worker_of_job(tmp_path)
    execute: Any = execution._function_executor(task, begin_of())
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


@each_way
@pytest.mark.parametrize("place", ["begin", "attach", "fail", "reset"])
def test_an_interruption_of_a_task_reaches_ray(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the program's handler of a signal. The task does not run if it has not begun."""
    ran: list[str] = []

    def task() -> None:
        ran.append("task")
        raise IndexError

    def interrupted(*_arguments: Any) -> None:
        raise KeyboardInterrupt(place)

    tracing.active = worker_of_job(tmp_path)
    begin = interrupted if place == "begin" else begin_of()
    execute = execution._function_executor(task, begin)
    before = attach(Context({"around": 1}))
    try:
        if place != "begin":
            monkeypatch.setattr(execution, place, interrupted)
        with pytest.raises(KeyboardInterrupt, match=place):
            execute()
    finally:
        detach(before)
    assert ran == (["task"] if place in {"fail", "reset"} else [])


@each_way
@pytest.mark.parametrize("fails", ["get_current_task_id", "get_current_task_attempt_number", "get_task_depth"])
def test_a_fault_while_a_task_begins_is_reported(fails: str, tmp_path: Path, reports: list[str]) -> None:
    core = stand_ins.CoreWorker(TASK_ID)
    setattr(core, fails, lambda: raise_(ValueError(fails)))
    tracing.active = worker = worker_of_job(tmp_path)
    worker.process.worker.core_worker = core
    assert begin_of()(None) is None
    assert reports == [f"tracing a task failed: ValueError: {fails}; your program continues without it"]


@each_way
@pytest.mark.parametrize("result", RESULTS)
def test_a_call_returns_what_it_returns_without_tracing(result: str, tmp_path: Path) -> None:
    """Its span is there in any case, unless it cannot be known which task it made."""
    driver_of(tmp_path)
    call, method = remote(lambda *_: RESULTS[result]()), stand_ins.Method()
    for _ in range(2):
        came, expected = outcome(lambda: [type(call(method, (), {}))]), outcome(lambda: [type(RESULTS[result]())])
        assert (came[:2], came[3:]) == (expected[:2], expected[3:])
    assert len(records(str(tmp_path))) == (2 if "short" not in result else 0)


class Broken(ObjectRef):
    """A reference whose id cannot be read."""

    fault: BaseException = ValueError("no id")

    def binary(self) -> Any:
        raise self.fault

    task_id = binary


FAULTS = {"fault": ValueError("ours"), "interruption": KeyboardInterrupt("the program's")}


@each_way
@pytest.mark.parametrize("place", ["key", "call", "refused call"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_errors_around_a_call(
    fault: BaseException, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """Those of this package are reported, and those of the program reach it, as what its signal handlers raise."""
    faults: list[BaseException] = []

    def failing(at: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: raise_(faults[0]) if faults and place == at else function(*arguments)

    def original(*_: Any) -> Any:
        if faults and place == "refused call":
            raise OSError("refused")
        return Broken(TASK_ID) if faults and place == "call" else ObjectRef(TASK_ID)

    monkeypatch.setattr(Broken, "fault", fault)
    monkeypatch.setattr(stand_ins.Process, "object_ref", lambda _self: Broken if place == "call" else ObjectRef)
    driver_of(tmp_path)
    describe = failing("key", failing("refused call", targets._describe_method))
    call = submission.traced(describe, key_of=failing("key", targets._key_of))(original)
    call(stand_ins.Method(), (), {})
    faults.append(fault)
    expected = type(fault) if not isinstance(fault, Exception) else OSError if place == "refused call" else None
    with pytest.raises(expected) if expected is not None else contextlib.nullcontext():
        call(stand_ins.Method(), (), {})
    assert bool(reports) is isinstance(fault, Exception)
    assert all("ValueError: ours; your program continues without it" in report for report in reports)


# --- changes ----------------------------------------------------------------------------------------------------------


def sampler(name: str) -> Any:
    """A new one, as each change makes one."""
    return sampling.from_environment({"OTEL_TRACES_SAMPLER": name})


def change(recorder: Recorder) -> None:
    """What the last step of a change does in a process: what calls use from now on, and record with."""
    active = tracing.active
    assert active is not None
    tracing.active = active.changed(recorder, tracing.Options(active.selection))


def kinds(folder: Path) -> list[int]:
    return [kind for kind, _ in records(str(folder))]


@each_way
def test_tasks_notice_a_change_of_settings_at_once(tmp_path: Path) -> None:
    """Between its steps, too. Spans that are open then end in the spool that they began in, and nowhere else."""
    tracing.active = first = worker_of_job(tmp_path / "first")
    begin = begin_of()

    def tasks(expected: bool) -> None:
        for carried in (None, CONTEXT) * 2:
            context, span = begin(carried)
            assert context[TASK_KEY] == TASK_ID
            assert (span is not None) is expected
            if span is not None:
                span.end()

    tasks(True)
    still_open = [begin(carried)[1] for carried in (None, CONTEXT)]
    for name, is_recorded in (("always_off", False), ("parentbased_always_on", True), ("always_off", False)):
        first.recorder.sampler = sampler(name)
        tasks(is_recorded)
        change(first.recorder)
        tasks(is_recorded)
    change(stand_ins.recorder(tmp_path / "second"))
    tasks(True)
    writer: Any = first.recorder._writer
    number = writer._descriptor
    writer.close()
    tasks(True)
    own = tmp_path / "own"
    with own.open("xb") as file:
        os.dup2(file.fileno(), number)  # as the program may, after it has closed what it does not know
        for span in still_open:
            span.end()
            span.end()
        os.close(number)
    tracing.active = None
    assert begin(None) is begin(CONTEXT) is None
    assert kinds(tmp_path / "first") == [START, SPAN] * 4 + [START] * 2 + [START, SPAN] * 8 + [SPAN] * 2
    assert kinds(tmp_path / "second") == [START, SPAN] * 8
    assert own.stat().st_size == 0


@each_way
def test_calls_notice_a_change_of_settings_at_once(tmp_path: Path) -> None:
    """Between its steps, and while Ray submits a call: that is recorded as it began. The end of the driver, too."""
    first = driver_of(tmp_path / "first")
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
    second = stand_ins.recorder(tmp_path / "second")
    second.fallback = first.recorder.fallback
    meanwhile.append(lambda: change(second))
    calls()
    calls()
    second.fallback = None
    calls()
    tracing.active = None
    calls()
    assert inherits == [True] * 3 + [False] * 3 + [True] * 8 + [False] * 2 + [True] * 2
    assert kinds(tmp_path / "first") == [SPAN] * (2 + 1 + 2 + 2 + 1)
    assert kinds(tmp_path / "second") == [SPAN] * (1 + 2 + 2)


@each_way
@pytest.mark.parametrize("of", ["this package", "the SDK"])
def test_calls_notice_that_the_span_around_them_is_over(of: str, tmp_path: Path) -> None:
    """Each of them is then a trace of its own that links to it, and carries its context."""
    driver = driver_of(tmp_path)
    carried: list[bytes | None] = []

    def original(*_: Any) -> ObjectRef:
        carried.append(outgoing.carried)
        return ObjectRef(TASK_ID)

    call, parent = remote(original), driver.recorder.fallback
    assert parent is not None
    span: Any
    if of == "this package":
        span = driver.recorder.start(Template("around", 1, {}), *driver.recorder.decide(parent), parent)
    else:
        above = trace.set_span_in_context(trace.NonRecordingSpan(parent.span_context()))
        span = TracerProvider().get_tracer("").start_span("around", above)
    token = attach(Context({SPAN_KEY: span}))
    call(stand_ins.Method(), (), {})
    span.end(time.time_ns() - 1_500_000_000)
    for _ in range(2):
        call(stand_ins.Method(), (), {})
    detach(token)
    assert [each is None for each in carried] == [True, False, False]
    found = [decode_span(payload[2:]) for kind, payload in records(str(tmp_path)) if kind == SPAN]
    below, *after = [each for each in found if each.name == "Actor.method ray.remote"]
    over = span.get_span_context().span_id.to_bytes(8, "big")
    assert (below.trace_id, below.parent_span_id) == (JOB.trace_id, over)
    assert len({JOB.trace_id, *(each.trace_id for each in after)}) == 3
    for each in after:
        assert [(link.trace_id, link.span_id) for link in each.links] == [(JOB.trace_id, over)]


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
        method, begin = stand_ins.Method(), begin_of()
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


@each_way
def test_changes_while_many_threads_record(tmp_path: Path) -> None:
    """Whatever has begun ends, in its spool; and nothing is recorded once nothing is to be recorded."""
    folders = [tmp_path / str(number) for number in range(5)]
    quiet = []
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


@each_way
def test_a_record_of_which_only_a_part_is_written_is_counted_as_dropped(tmp_path: Path) -> None:
    """As on a full disk: the record after it says so, and the part is no damage."""
    (said,) = run(CUT, tmp_path)
    assert "No space left on device" in said
    found = []
    for _, paths, _ in iterate(str(tmp_path)):
        for path in paths:
            found += [(kind, payload) for kind, payload, _ in SegmentReader(path).read()]
    names = [decode_span(payload[2:]).name for kind, payload in found if kind == SPAN]
    assert names == ["first", "last"]
    assert [U64.unpack(payload) for kind, payload in found if kind == DROPPED] == [(1,)]


# --- what only C can do wrong -----------------------------------------------------------------------------------------


@needs_compiled
def test_a_method_is_in_place_as_the_function_that_it_replaces(tmp_path: Path) -> None:
    """Below a decorator as in Ray, or as an attribute of a class; not twice; and taken out again."""
    calls = []

    class Owner(stand_ins.Method):
        def _remote(self, args: Any, kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return ObjectRef(TASK_ID)

    original = Owner._remote
    with compiled(True), cluster_with(JOB):
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


@needs_compiled
def test_nonsense_in_its_objects_is_no_crash(tmp_path: Path) -> None:
    """The program can set every attribute: then there may be an error, as from Python, and nothing worse."""
    nonsense = [None, 0, -1, b"", b"x" * 9000, "text", (), object(), [], 1.5, True, 1 << 70, RecordedSpan, tmp_path]
    chosen = random.Random(5)
    with compiled(True), cluster_with(JOB):
        for _ in range(5 * settings().max_examples):
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


@needs_compiled
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Neither by calls nor by what makes them, whose parts refer to each other."""

    def program(folder: Path) -> list[weakref.ref[Any]]:
        worker, driver = worker_of_job(folder / "worker"), driver_of(folder / "driver")
        call, failing = (
            remote(original) for original in (lambda *_: ObjectRef(TASK_ID), lambda *_: raise_(KeyError()))
        )
        begin = begin_of()
        execute, execute_failing = (execution._function_executor(each, begin) for each in (returns, raises(KeyError)))
        method, of_serve, template = stand_ins.Method(), stand_ins.Method(), Template("name", 1, {})
        of_serve._actor._ray_actor_creation_function_descriptor.module_name = "ray.serve._private.replica"
        driver.calls.join_serve = lambda: True

        def round_() -> None:
            tracing.active = driver
            call(method, (1,), {"a": 2})
            call(method, (ObjectRef(TASK_ID),), {})
            call(of_serve, (1,), {})
            driver.recorder.start(template, bytes(16), 3, driver.recorder.fallback, b"").end()
            driver.recorder.record(template, b"", 1, 2, bytes(9000))
            with pytest.raises(KeyError):
                failing(method, (), {})
            tracing.active = worker
            for carried in (None, CONTEXT, b"x" * 58):
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

    with compiled(True), cluster_with(JOB):
        left = program(tmp_path)
    gc.collect()
    assert [each() for each in left] == [None] * 4


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
