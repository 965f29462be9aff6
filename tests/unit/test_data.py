"""What is recorded of Ray Data, with stand-ins for its executor and operators. See also tests/ray/test_data.py."""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.context import Context
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.data import executions, iteration, operators, statistics, tasks
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._safety import guard
from ray_tracing_hooks._safety.exceptions import users_error

MIB = 1024 * 1024


class Metrics(SimpleNamespace):
    """The metrics of an operator."""

    def __init__(self, **values: Any) -> None:
        super().__init__(
            **{
                "num_tasks_running": 0,
                "num_tasks_submitted": 0,
                "row_outputs_taken": 0,
                "num_tasks_failed": 0,
                **values,
            }
        )


class Operator:
    """A physical operator of Ray Data."""

    _in_task_submission_backpressure = False

    def __init__(self, name: str, *inputs: Operator, **metrics: Any) -> None:
        self.name, self.input_dependencies = name, list(inputs)
        self._metrics = Metrics(**metrics)
        self.calls: list[str] = []

    def add_input(self, what: str) -> str:
        at_work = operators.at_work.operator
        self.calls.append(at_work.name if at_work is not None else "")
        return what

    def incremental_resource_usage(self) -> Any:
        return SimpleNamespace(cpu=1, gpu=0, memory=0, object_store_memory=0.5)


class InputDataBuffer(Operator):
    """An operator that has no work."""


class State:
    """What an executor keeps of an operator."""

    def __init__(self) -> None:
        self.input_queues: list[list[int]] = [[1]]

    def total_enqueued_input_blocks(self) -> int:
        return len(self.input_queues[0])

    def total_enqueued_input_blocks_bytes(self) -> int:
        return MIB


class Executor:
    """``StreamingExecutor``, whose thread is the caller's."""

    _execution_started = False
    _shutdown = False

    def __init__(self, dataset_id: str = "numbers_7_2") -> None:
        self._dataset_id = dataset_id
        self._has_op_completed: dict[Operator, bool] = {}
        self._resource_manager = SimpleNamespace(_op_resource_allocator=SimpleNamespace(_op_budgets={}))

    def execute(self, dag: Operator, fails: BaseException | None = None) -> str:
        if fails is not None:
            raise fails
        self._topology = {op: State() for op in [*dag.input_dependencies, dag]}
        self._output_node = dag, self._topology[dag]
        self._execution_started = True
        return "iterator"

    def run(self) -> None:
        while self._scheduling_loop_step(self._topology):
            pass

    def _scheduling_loop_step(self, topology: dict[Operator, State]) -> bool:
        for op in topology:
            op.add_input("block")
            self._has_op_completed[op] = True
        return False

    def shutdown(self, force: bool, exception: BaseException | None = None) -> str:
        self._shutdown = True
        return f"shut down {force}"


for wrapped in ("execute", "run", "_scheduling_loop_step", "shutdown"):
    wrapper: Any = executions.WRAPPERS[f"StreamingExecutor.{wrapped}"]
    setattr(Executor, wrapped, wrapper(getattr(Executor, wrapped)))


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """The spans of a traced process, as they end."""
    active = tracing_of(tmp_path, selection=Selection(("task", "actor", "data")))
    found: list[Span] = []
    active.recorder.observer = lambda encoded: found.append(decode_span(encoded))
    monkeypatch.setattr(tracing, "active", active)
    return found


@pytest.fixture
def reports() -> list[str]:
    found: list[str] = []
    guard.set_reporter(found.append)
    return found


def named(spans: list[Span], name: str) -> Span:
    (span,) = [each for each in spans if each.name == name]
    return span


def executed(executor: Executor | None = None) -> Executor:
    executor = executor or Executor()
    read = InputDataBuffer("Input")
    executor.execute(Operator("Write", Operator("Read", read), row_outputs_taken=40))
    executor.run()
    return executor


def test_nothing_of_ours_stays_on_what_is_rays(spans: list[Span]) -> None:
    executor, op = Executor(), Operator("Read")
    before = set(vars(op))
    executor.execute(op)
    assert set(vars(op)) > before
    executor.run()
    executor.shutdown(force=True)
    assert set(vars(op)) == before
    assert len(spans) == 2


class Pool:
    """A pool of actors, which gets the function that makes one."""

    def __init__(self, create: Any) -> None:
        self._create_actor_fn = create


def test_what_is_rays_can_be_pickled_meanwhile(spans: list[Span]) -> None:
    """Old shuffles pickle the pool of their operator. Where the copies arrive, this package need not be."""
    executor, op = Executor(), Operator("Read")
    pool = op._actor_pool = Pool(str)  # type: ignore[attr-defined]
    executor.execute(op)
    pickled = pickle.dumps((op, pool))
    assert b"ray_tracing_hooks." not in pickled
    copy, copied_pool = pickle.loads(pickled)
    assert copy.add_input("block") == "block"
    assert (copy.calls, op.calls) == ([""], [])
    assert copied_pool._create_actor_fn(1) == "1"
    assert vars(copy)[statistics.HELD_BACK] is None
    executor.shutdown(force=True)
    assert vars(pool) == {"_create_actor_fn": str}


def test_an_executor_ends_when_its_program_drops_it(spans: list[Span]) -> None:
    """Ray shuts an execution down when nothing refers to its executor: nothing of ours does."""
    gc.collect()
    gc.disable()
    try:
        executor = Executor()
        executor.execute(Operator("Read"))
        dropped = weakref.ref(executor)
        del executor
        # Operators refer to each other, and to what is theirs; the executor refers to them.
        assert dropped() is None
    finally:
        gc.enable()
    assert not spans


def test_an_execution_that_cannot_begin_has_failed(spans: list[Span]) -> None:
    with pytest.raises(ValueError, match="no actors") as raised:
        Executor().execute(Operator("Read"), fails=ValueError("no actors"))
    assert [frame.name for frame in raised.traceback][1:] == ["execute"]
    assert named(spans, "numbers ray.data").attributes[names.ERROR_TYPE] == "ValueError"


def test_what_failed_in_the_thread_of_the_executor_is_the_error_of_an_execution_that_nobody_consumes(
    spans: list[Span],
) -> None:
    executor = executed()
    executor._has_op_completed.clear()
    executor._output_node[1]._exception = ValueError("x")  # type: ignore[attr-defined]
    executor.run()
    executor.shutdown(force=False)
    assert named(spans, "numbers ray.data").attributes[names.RAY_DATA_OUTCOME] == "failed"


def test_only_the_operator_whose_tasks_failed_has_the_error(spans: list[Span]) -> None:
    executor = Executor()
    good = Operator("Read")
    executor.execute(Operator("Map", good, num_tasks_failed=1))
    for op in executor._topology:
        op.add_input("block")
    executor.shutdown(force=True, exception=ValueError("x"))
    assert named(spans, "Map ray.data.operator").status_code == 2
    assert named(spans, "Read ray.data.operator").status_code != 2


def test_a_fault_in_tracing_does_not_reach_an_execution(spans: list[Span], reports: list[str]) -> None:
    executor, op = Executor(), Operator("Read")
    del op._metrics
    assert executor.execute(op) == "iterator"
    executor._has_op_completed = None  # type: ignore[assignment]
    executor._scheduling_loop_step({})
    assert executor.shutdown(force=True) == "shut down True"
    assert reports
    assert named(spans, "numbers ray.data").attributes[names.RAY_DATA_OUTCOME] == "stopped"
    del op.name
    assert Executor("others_1_0").execute(op) == "iterator"


@pytest.mark.parametrize(
    ("dataset_id", "name", "run"),
    [("a_b_xyz_3", "a_b", 3), ("dataset_1_-1", "dataset", None), ("dataset12", "dataset", None), ("", "dataset", None)],
)
def test_the_name_of_a_dataset_is_in_its_id(dataset_id: str, name: str, run: int | None) -> None:
    assert executions._name_and_run(dataset_id) == (name, run)


class Clock:
    """Time as the test wants it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Noted:
    """Stands in for the span of an operator."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def add_event(self, name: str, attributes: dict[str, Any], _time: int) -> None:
        self.events.append((name, attributes))


class TestBackpressure:
    """``PhysicalOperator.notify_in_task_submission_backpressure`` and its like."""

    @pytest.fixture(autouse=True)
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        clock = Clock()
        monkeypatch.setattr(statistics, "monotonic", clock)
        return clock

    @pytest.fixture
    def executor(self) -> Executor:
        executor = Executor()
        op = Operator("Map", num_tasks_running=1)
        executor._topology = {op: State()}
        return executor

    def held(self, executor: Executor) -> statistics.HeldBack:
        (op,) = executor._topology
        held = statistics.HeldBack(op, lambda: executor)
        held.span = Noted()  # type: ignore[assignment]
        return held

    def say(
        self, held: statistics.HeldBack, clock: Clock, seconds: float, *policy: str, kind: str = "submission"
    ) -> None:
        held.notice(kind, policy[0] if policy else "", in_backpressure=bool(policy))
        clock.now += seconds

    def test_times_that_follow_closely_are_one_event(self, executor: Executor, clock: Clock) -> None:
        held = self.held(executor)
        for seconds in (1.0, 0.1):
            self.say(held, clock, seconds, "ResourceBudget")
            self.say(held, clock, 0.1)
        clock.now += 5
        self.say(held, clock, 2.0, "ResourceBudget")
        held.end()
        noted: Any = held.span
        assert [round(each[names.RAY_DATA_BACKPRESSURE_DURATION], 3) for _, each in noted.events] == [1.1, 2.0]
        assert noted.attributes[names.RAY_DATA_BACKPRESSURE_BY_TIME] == [pytest.approx(3.1)]
        assert not held.is_held

    def test_an_operator_without_work_is_not_held_back(self, executor: Executor, clock: Clock) -> None:
        held = self.held(executor)
        (state,) = executor._topology.values()
        self.say(held, clock, 1.0, "ResourceBudget")
        state.input_queues = [[]]
        self.say(held, clock, 1.0, "ResourceBudget")
        held.end()
        noted: Any = held.span
        assert noted.attributes[names.RAY_DATA_BACKPRESSURE_BY_TIME] == [1.0]

    def test_another_policy_is_another_event(self, executor: Executor, clock: Clock) -> None:
        held = self.held(executor)
        self.say(held, clock, 1.0, "ResourceBudget")
        self.say(held, clock, 2.0, "DownstreamCapacity")
        held.end()
        noted: Any = held.span
        assert [each[names.RAY_DATA_BACKPRESSURE_POLICY] for _, each in noted.events] == [
            "ResourceBudget",
            "DownstreamCapacity",
        ]

    @pytest.mark.parametrize(
        ("budget", "resource"),
        [
            ({"cpu": 0.5, "gpu": 1, "memory": 1, "object_store_memory": 1}, "CPU"),
            ({"cpu": 5, "gpu": 1, "memory": 1, "object_store_memory": 0}, "object store memory"),
            ({"cpu": 0, "gpu": 1, "memory": 1, "object_store_memory": 0}, "CPU and object store memory"),
            ({"cpu": 5, "gpu": 1, "memory": 1, "object_store_memory": 9}, "object store memory"),
            (None, ""),
        ],
    )
    def test_the_resource_is_the_one_that_the_budget_lacks(
        self, budget: dict[str, float] | None, resource: str, executor: Executor
    ) -> None:
        held = self.held(executor)
        (op,) = executor._topology
        if budget is not None:
            executor._resource_manager._op_resource_allocator._op_budgets[op] = SimpleNamespace(**budget)
        assert held._resource("submission", "ResourceBudget") == resource
        assert held._resource("output", "ResourceBudget") == "object store memory"

    def test_what_is_lacking_may_change_meanwhile(self, executor: Executor, clock: Clock) -> None:
        held = self.held(executor)
        (op,) = executor._topology
        budgets = executor._resource_manager._op_resource_allocator._op_budgets
        budgets[op] = SimpleNamespace(cpu=0.5, gpu=1, memory=1, object_store_memory=1)
        self.say(held, clock, 1.0, "ResourceBudget")
        budgets[op].cpu, budgets[op].object_store_memory = 5, 0
        for _ in range(3):
            self.say(held, clock, 0.05, "ResourceBudget")
        held.end()
        noted: Any = held.span
        assert noted.attributes[names.RAY_DATA_BACKPRESSURE_BY] == [
            "submission, ResourceBudget, CPU",
            "submission, ResourceBudget, object store memory",
        ]
        assert noted.attributes[names.RAY_DATA_BACKPRESSURE_BY_TIME] == [1.0, pytest.approx(0.15)]

    @pytest.mark.usefixtures("spans")
    def test_the_method_of_ray_is_called_as_before(self, executor: Executor, reports: list[str]) -> None:
        calls: list[Any] = []

        class Notified(Operator):
            def notify(self, in_backpressure: bool, policy_name: str | None = None) -> str:
                calls.append((in_backpressure, policy_name))
                return "result"

        notify = statistics._noticing("submission")(Notified.notify)
        op = Notified("Map")
        assert notify(op, True, "ResourceBudget") == "result"
        op.__dict__[statistics.HELD_BACK] = SimpleNamespace(is_held=False)
        assert notify(op, True, policy_name="ResourceBudget") == "result"
        assert notify(op, False) == "result"
        assert calls == [(True, "ResourceBudget"), (True, "ResourceBudget"), (False, None)]
        assert len(reports) == 1


def test_a_long_execution_is_looked_at_less_often() -> None:
    op = Operator("Read", num_tasks_running=3)
    executor = Executor()
    executor._topology = {op: State()}
    moments, seen = statistics.Moments(), statistics.Timeline(op, lambda: executor)
    now = moments._began
    looks = 0
    for _ in range(100_000):
        now += 0.1
        if now >= moments.next:
            moments.look(now, [seen])
            looks += 1
    attributes = seen.attributes()
    seconds = attributes[names.RAY_DATA_TIMELINE_SECONDS]
    assert 60 <= len(seconds) <= 120
    assert looks < 1000
    assert seconds[-1] > 0.9 * 10_000
    gaps = [later - earlier for earlier, later in itertools.pairwise(seconds)]
    assert max(gaps) < 4 * min(gaps)
    assert set(attributes[names.RAY_DATA_TIMELINE_RUNNING_TASKS]) == {3}
    assert set(attributes[names.RAY_DATA_TIMELINE_QUEUED_BYTES]) == {MIB}


def function_of(module: str, name: str, calls: Any) -> Any:
    """A function of a module that need not be there."""
    code = compile(f"def {name}():\n    return calls()", module, "exec")
    space: dict[str, Any] = {"__name__": module, "calls": calls}
    exec(code, space)
    return space[name]


def test_the_consumer_is_the_method_that_the_program_called() -> None:
    def asked() -> str:
        return operators.consumer_in(sys._getframe(1))

    inner = function_of("ray.data._internal.plan", "execute", asked)
    private = function_of("ray.data.dataset", "_execute", inner)
    assert function_of("ray.data.dataset", "materialize", private)() == "materialize"
    assert function_of("ray.data.dataset", "start_epoch", private)() == "streaming_split"
    decorator = function_of("ray.data.exceptions", "handle_trace", private)
    assert function_of("ray.data.dataset", "materialize", decorator)() == "materialize"
    alone = function_of("ray.data.exceptions", "handle_trace", function_of("ray.data.dataset", "_execute", asked))
    assert function_of("program", "main", alone)() == ""
    # What the program itself calls such a thing is no method of Ray Data.
    assert function_of("program", "materialize", function_of("ray.data.dataset", "count", private))() == "count"
    assert asked() == ""


def metadata(rows: int, **more: Any) -> Any:
    made = type("BlockMetadata", (SimpleNamespace,), {})
    return made(num_rows=rows, size_bytes=10 * rows, exec_stats=SimpleNamespace(cpu_time_s=0.5), **more)


class BlockMetadata:
    """As Ray pickles it: its class is found by its name."""

    exec_stats = None

    def __init__(self, rows: int) -> None:
        self.num_rows, self.size_bytes = rows, rows * 10


def test_the_rows_and_bytes_of_a_task_are_in_what_it_returns(spans: list[Span]) -> None:
    active = tracing.active
    assert active is not None
    template = active.templates.of_waiting("task")

    def of(*results: Any) -> dict[str, Any]:
        span = active.recorder.start(template, bytes(16), 1, None)
        for result in results:
            tasks.made(span, result)
        span.end()
        return {key: value for key, value in spans[-1].attributes.items() if key.startswith("ray.data.")}

    yielded = of("block", pickle.dumps(BlockMetadata(3)), "block", pickle.dumps(BlockMetadata(4)))
    assert yielded == {names.RAY_DATA_ROWS: 7, names.RAY_DATA_BYTES: 70, names.RAY_DATA_BLOCKS: 2}
    assert of("block", metadata(3))[names.RAY_DATA_ROWS] == 3
    assert of(["slice", "slice", metadata(5)])[names.RAY_DATA_ROWS] == 5
    assert of(((metadata(9), {0: (4, 40), 1: (5, 50)}, "schema"), "shard", "shard"))[names.RAY_DATA_BYTES] == 90
    peak = of(metadata(1, task_exec_stats=SimpleNamespace(max_uss_bytes=77)))
    assert (peak[names.RAY_DATA_PEAK_MEMORY], peak[names.RAY_DATA_CPU_TIME]) == (77, 0.5)
    assert of(b"no pickle", None, [], (), 5) == {}


class Batches:
    """What ``DataIterator._iter_batches`` returns."""

    def __init__(self, make: Any) -> None:
        self.iterator_gen = make

    def __iter__(self) -> Any:
        return self.iterator_gen()


class Source:
    """A ``DataIterator``."""

    _output_split_idx = 1
    _active_epoch = 4

    def __init__(self, make: Any) -> None:
        self._make = make

    def _iter_batches(self) -> Batches:
        return Batches(self._make)


Source._iter_batches = iteration.WRAPPERS["DataIterator._iter_batches"](Source._iter_batches)  # type: ignore[method-assign]


def test_a_consumer_of_batches_can_do_all_that_it_could_before(spans: list[Span]) -> None:
    got: list[Any] = []

    def make() -> Generator[Any, Any, str]:
        try:
            got.append((yield 1))
            yield 2
        except KeyError:
            yield 3
        finally:
            got.append("closed")
        return "result"

    def steps() -> Any:
        return iter(Source(make)._iter_batches())

    sent = steps()
    assert (next(sent), sent.send("sent")) == (1, 2)
    thrown = steps()
    assert (next(thrown), thrown.throw(KeyError())) == (1, 3)
    with pytest.raises(StopIteration) as stopped:
        next(thrown)
    assert stopped.value.value == "result"
    sent.close()
    assert got == ["sent", "closed", "closed"]
    assert [span.attributes[names.RAY_DATA_OUTCOME] for span in spans] == ["finished", "stopped"]


@pytest.mark.parametrize("waits", [False, True])
def test_an_iteration_that_the_program_abandons_counts_all_until_then(
    waits: bool, spans: list[Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another thread of it waits for a batch."""
    clock = Clock()
    monkeypatch.setattr(iteration, "monotonic", clock)

    def make() -> Iterator[int]:
        clock.now += 2
        yield 1
        clock.now += 3
        if waits:
            iteration.give_up()
        yield 2

    steps = iter(Source(make)._iter_batches())
    next(steps)
    clock.now += 5
    next(steps)
    if not waits:
        clock.now += 7
        iteration.give_up()
    steps.close()
    (span,) = spans
    assert span.attributes[names.RAY_DATA_OUTCOME] == operators.ABANDONED
    assert span.attributes[names.RAY_DATA_BATCHES] == (1 if waits else 2)
    assert span.attributes[names.RAY_DATA_WAIT_TIME] == 5
    assert span.attributes[names.RAY_DATA_USER_TIME] == (5 if waits else 12)
    assert span.attributes[names.RAY_DATA_FIRST_BATCH_TIME] == 2


def batches_of(executor: Executor, ends: BaseException | None = None) -> Generator[int, None, None]:
    """Two batches, before which an execution begins, and after which it is shut down: as ``_iter_batches`` does it."""
    executor.execute(Operator("Read"))
    try:
        yield 1
        if ends is not None:
            raise ends
        yield 2
    finally:
        executor.shutdown(force=True)


def outcomes_of(spans: list[Span]) -> tuple[Any, Any]:
    """The outcomes of the only iteration and of its execution."""
    names_of = f"iterate {names.DATA_ITERATION}", f"numbers {names.DATASET}"
    iterated, executed = (named(spans, name).attributes[names.RAY_DATA_OUTCOME] for name in names_of)
    return iterated, executed


@pytest.mark.parametrize("closes", [False, True])
def test_an_error_that_the_program_handles_meanwhile_is_none_of_an_iteration(closes: bool, spans: list[Span]) -> None:
    steps = iter(Source(lambda: batches_of(Executor()))._iter_batches())
    try:
        int("no number")
    except ValueError:
        if closes:
            next(steps)
            steps.close()
        else:
            assert list(steps) == [1, 2]
    assert outcomes_of(spans) == (operators.STOPPED if closes else operators.FINISHED, operators.STOPPED)
    assert named(spans, f"numbers {names.DATASET}").status_code != 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback there")
@pytest.mark.usefixtures("spans")
def test_an_error_that_a_consumer_throws_into_an_iteration_has_no_line_of_ours() -> None:
    def make() -> Generator[int, None, None]:
        yield 1

    steps = iter(Source(make)._iter_batches())
    next(steps)
    with pytest.raises(KeyError) as caught:
        steps.throw(KeyError("thrown"))
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)[1:]] == ["make"]


def test_an_iteration_that_has_not_begun_can_be_pickled(spans: list[Span]) -> None:
    """Where the copy arrives, as in a task, this package need not be."""
    batches = Source(two_numbers)._iter_batches()
    pickled = pickle.dumps(batches)
    assert b"ray_tracing_hooks" not in pickled
    assert list(pickle.loads(pickled)) == list(batches) == [0, 1]
    assert len(spans) == 1


def two_numbers() -> Iterator[int]:
    yield from range(2)


def in_thread(function: Any) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def test_functions_of_the_user_in_threads_have_the_context_of_their_task(spans: list[Span]) -> None:
    def make_async_gen(base_iterator: Any, fn: Any, num_workers: int = 1) -> list[Any]:
        return list(in_thread(lambda: list(fn(base_iterator))))

    def read(paths: Any) -> Any:
        for path in paths:
            yield path, get_current().get("key")

    def paths() -> Any:
        yield get_current().get("key")

    traced = tasks._in_threads(make_async_gen)
    assert traced(iter(["a"]), read) == [("a", None)]
    token = attach(Context({"key": "value"}))
    try:
        assert traced(iter(["a", "b"]), fn=read, num_workers=2) == [("a", "value"), ("b", "value")]
        assert traced(paths(), read) == [("value", "value")]
    finally:
        detach(token)
    with pytest.raises(TypeError):
        traced()


@pytest.mark.usefixtures("spans")
def test_an_instance_that_ray_runs_in_a_thread_of_its_own_has_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    class _SingleThreadedWrapper:
        def __init__(self) -> None:
            self.thread_pool_executor = ThreadPoolExecutor(1)

        def __call__(self, **keywords: Any) -> Any:
            return self.thread_pool_executor.submit(lambda **_: get_current().get("key"), **keywords).result()

    class Users(_SingleThreadedWrapper):
        """A class of the user's with a pool of its own, of the same name."""

    wrapped, users = _SingleThreadedWrapper(), Users()
    made = SimpleNamespace(udf_instances={1: wrapped, 2: users})
    monkeypatch.setitem(sys.modules, "ray.data", SimpleNamespace(_map_actor_context=made))

    class MapTransformer:
        def init(self) -> str:
            return "result"

    init = tasks.THREADS["MapTransformer.init"](MapTransformer.init)
    assert init(MapTransformer()) == "result"
    assert init(MapTransformer()) == "result"
    token = attach(Context({"key": "value"}))
    try:
        assert (wrapped(), users()) == ("value", None)
        assert wrapped(function=1, submit=2, fn=3) == "value", "keywords of the user's function"
    finally:
        detach(token)
        wrapped.thread_pool_executor.shutdown()
        users.thread_pool_executor.shutdown()


WRAPPED = "\n\nThe above exception was the direct cause of the following exception:"
BEFORE = "\n\nDuring handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    ("traceback", "error"),
    [
        (f"ray::f()\n  File x\n    raise\nKeyError: 'a'{WRAPPED}\n\nray::f()\nUserCodeException: x", "KeyError: 'a'"),
        (f"  File x\nmy.Error: two\nlines{WRAPPED}\n", "my.Error: two\nlines"),
        (f"  File x\n    raise\n    ^^^\nE: a\n  at b\n    c{WRAPPED}\n", "E: a\n  at b\n    c"),
        (
            f"  File x\nKeyError: 1{WRAPPED}\n\nray::f()\n  File x\nValueError: 2{WRAPPED}\n\nray::f()\nX: x",
            "ValueError: 2",
        ),
        (f"ray::f()\n  File x\nKeyError: 1{BEFORE}\n\nray::f()\n  File x\nValueError: 2{WRAPPED}\n", "ValueError: 2"),
        ("  File x\nValueError: alone", ""),
        ("", ""),
    ],
)
def test_the_users_error_is_the_one_before_the_last_of_a_traceback(traceback: str, error: str) -> None:
    assert users_error(traceback) == error
