"""Calls that run something else than their function's name says are named by what they run, on both sides."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import stand_ins
from stand_ins import DRIVER_TASK_ID, JOB_ID, TASK_ID, Id, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import execution, labels, submission, targets, tracing
from ray_tracing_hooks._ray.arguments import KEY, arrivals
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.rates import RateLimits
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._safety import guard

PARTS = ("task", "actor", "data")


def by_first(args: Any, _kwargs: Any) -> labels.CallLabel | None:
    return labels.CallLabel(args[0].format(), encode.attribute("runs", args[0])) if args else None


def by_caller(_args: Any, _kwargs: Any) -> labels.CallLabel:
    return labels.CallLabel("Sort", encode.attribute("runs", "Sort"), is_carried=True)


def labeler_for(module: str, _class_name: str, function: str) -> labels.CallLabeler | None:
    if function in {"helper", "__init__"} and "library" in module:
        return labels.CallLabeler(by_caller)
    return labels.CallLabeler(by_first) if function in {"generic", "method"} and "library" in module else None


@pytest.fixture(autouse=True)
def naming(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = ModuleType("made")
    made.labeler_for = labeler_for  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray_tracing_hooks._ray.made", made)
    monkeypatch.setattr(labels, "_NAMINGS", (("data", "library.", "ray_tracing_hooks._ray.made"),))
    yield
    tracing.active = None


class Task:
    """``library.generic.remote``."""

    _is_cross_language = False
    _decorator = None
    _function_name = "library.tasks.generic"
    _last_export_cluster_and_job = "this"


def method() -> Any:
    made = stand_ins.Method()
    made._actor._ray_actor_creation_function_descriptor = SimpleNamespace(
        class_name="Pool", module_name="library.actor"
    )
    return made


def recorded(active: tracing.Tracing) -> list[Span]:
    found: list[Span] = []
    active.recorder.observer = lambda encoded: found.append(decode_span(encoded))
    return found


def submit(active: tracing.Tracing, describe: Any, target: Any, args: Any, **options: Any) -> submission.Submission:
    call = submission.begin(active.calls, describe, target, args, {}, (), options)
    assert call is not None
    call.submitted(stand_ins.ObjectRef(TASK_ID), submission.task_of, args, {})
    return call


@pytest.mark.parametrize(
    ("describe", "target", "otherwise"),
    [(targets._describe_task, Task(), "library.tasks.generic"), (targets._describe_method, method(), "Pool.method")],
    ids=["task", "method"],
)
def test_submissions_are_named_by_their_arguments(describe: Any, target: Any, otherwise: str, tmp_path: Path) -> None:
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS))
    spans = recorded(active)
    for args in (("Read",), ("Write",), ("Read",), ()):
        submit(active, describe, target, args)
    assert [span.name for span in spans] == [f"{name} ray.remote" for name in ("Read", "Write", "Read", otherwise)]
    assert [span.attributes.get("runs") for span in spans] == ["Read", "Write", "Read", None]
    assert spans[0].attributes[names.RAY_FUNCTION] == "Read"


def test_what_only_the_caller_knows_is_carried(tmp_path: Path) -> None:
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS))
    active.recorder.fallback = Parent(os.urandom(16), os.urandom(8), 3, None, remote=False)
    spans = recorded(active)

    class Helper(Task):
        _function_name = "library.tasks.helper"

    call = submit(active, targets._describe_task, Helper(), ())
    assert call.carried is not None

    def helper() -> None:
        pass

    helper.__module__ = "library.tasks"
    tracing.active = worker = tracing_of(tmp_path, selection=Selection(PARTS))
    spans_there = recorded(worker)
    executor_of(helper, class_name="", function_name="helper", module_name="library.tasks")(**{KEY: call.carried})
    assert [span.name for span in (*spans, *spans_there)] == ["Sort ray.remote", "Sort ray.remote_worker"]
    assert [span.attributes["runs"] for span in (*spans, *spans_there)] == ["Sort", "Sort"]


def test_the_creation_of_an_actor_is_named_where_it_is_submitted(tmp_path: Path) -> None:
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS))
    spans = recorded(active)

    class Pool:
        pass

    Pool.__module__ = "library.actor"
    made = SimpleNamespace(
        __ray_metadata__=SimpleNamespace(is_cross_language=False, class_name="Pool", modified_class=Pool)
    )
    call = submission.begin(active.calls, targets._describe_creation, made, (), {}, (), {})
    assert call is not None
    call.submitted(SimpleNamespace(), lambda _result: b"", (), {})
    assert call.carried is not None
    assert carrier.decode(call.carried).runs == "Sort"

    def __init__(_self: Any) -> None:  # noqa: N807  as in an actor
        pass

    tracing.active = worker = tracing_of(tmp_path, selection=Selection(PARTS))
    spans_there = recorded(worker)
    execute = executor_of(__init__, class_name="Pool", function_name="__init__", module_name="library.actor")
    arrivals._creation = call.carried
    execute(object())
    assert [span.name for span in (*spans, *spans_there)] == ["Sort ray.remote", "Sort ray.remote_worker"]


def test_what_a_call_returns_is_shown_to_its_naming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def returns(_span: Any, result: Any) -> None:
        seen.append(result)
        raise KeyError

    reports: list[str] = []
    guard.set_reporter(reports.append)
    naming = labels.CallLabeler(by_first, returns)
    monkeypatch.setattr(sys.modules["ray_tracing_hooks._ray.made"], "labeler_for", lambda *_names: naming)
    tracing.active = tracing_of(tmp_path, selection=Selection(PARTS))

    def generic(*_args: Any) -> int:
        return 5

    def generator(*_args: Any) -> Iterator[int]:
        yield 6
        yield 7

    generic.__module__ = generator.__module__ = "library.tasks"
    execute, iterate = (
        executor_of(function, class_name="", function_name="generic", module_name="library.tasks")
        for function in (generic, generator)
    )
    assert execute("Read", **carried()) == 5
    assert list(iterate("Read", **carried())) == [6, 7]
    assert seen == [5, 6, 7]
    assert len(reports) == 1


def test_a_part_that_is_not_selected_is_named_by_its_function(tmp_path: Path) -> None:
    active = tracing_of(tmp_path, DRIVER, selection=Selection({"task"}))
    spans = recorded(active)
    submit(active, targets._describe_task, Task(), ("Read",))
    assert [span.name for span in spans] == ["library.tasks.generic ray.remote"]


def test_a_name_that_the_span_has_already_is_not_recorded_again(tmp_path: Path) -> None:
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS))
    spans = recorded(active)
    submit(active, targets._describe_task, Task(), ("Read",), name="Read")
    submit(active, targets._describe_task, Task(), ("Read",), name="another")
    assert [span.attributes.get(names.RAY_NAME) for span in spans] == [None, "another"]


def test_a_name_too_long_to_travel_is_on_the_submission_alone(tmp_path: Path) -> None:
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS))
    spans = recorded(active)
    submit(active, targets._describe_task, Task(), ("Read",), name="x" * 70_000)
    assert [span.attributes[names.RAY_NAME] for span in spans] == ["x" * 70_000]


def test_each_name_has_a_rate_limit_of_its_own(tmp_path: Path) -> None:
    limits = RateLimits((("*", 0.001),))
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS), rate_limits=limits)
    active.recorder.fallback = Parent(os.urandom(16), os.urandom(8), 3, None, remote=False)
    spans = recorded(active)
    for args in (("Read",), ("Read",), ("Write",)):
        submit(active, targets._describe_task, Task(), args)
    assert [span.name for span in spans] == ["Read ray.remote", "Write ray.remote"]
    assert limits.unreported() == {"Read": 1}


def test_a_fault_in_naming_does_not_reach_the_call(tmp_path: Path) -> None:
    reports: list[str] = []
    guard.set_reporter(reports.append)
    active = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS))
    spans = recorded(active)
    submit(active, targets._describe_task, Task(), ({},))
    assert [span.name for span in spans] == ["library.tasks.generic ray.remote"]
    assert len(reports) == 1


def executor_of(function: Any, **descriptor: str) -> Any:
    return execution._executor(function, SimpleNamespace(**descriptor))


def carried() -> dict[str, Any]:
    return {KEY: carrier.encode(os.urandom(16), os.urandom(8), 3, 0, b"", None)}


def test_executions_are_named_by_their_arguments(tmp_path: Path) -> None:
    def generic(*args: Any) -> Any:
        return args

    tracing.active = active = tracing_of(tmp_path, selection=Selection(PARTS))
    spans = recorded(active)
    generic.__module__ = "library.tasks"
    execute = executor_of(generic, class_name="", function_name="generic", module_name="library.tasks")
    for args in (("Read", 1), ("Write", 2), ("Read", 3), ()):
        assert execute(*args, **carried()) == args
    assert [span.name for span in spans] == [
        f"{name} ray.remote_worker" for name in ("Read", "Write", "Read", "library.tasks.generic")
    ]
    assert [span.attributes.get("runs") for span in spans] == ["Read", "Write", "Read", None]


def test_the_instance_is_no_argument_of_a_method(tmp_path: Path) -> None:
    def method(_self: Any, what: str) -> str:
        return what

    method.method = method  # type: ignore[attr-defined]
    tracing.active = active = tracing_of(tmp_path, selection=Selection(PARTS))
    spans = recorded(active)
    execute = executor_of(method, class_name="Pool", function_name="method", module_name="library.actor")
    assert execute(object(), "Read", **carried()) == "Read"
    (span,) = spans
    assert span.name == "Read ray.remote_worker"
    assert span.attributes[names.RAY_ACTOR_METHOD] == "method"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback there")
def test_errors_have_no_frame_of_this_package(tmp_path: Path) -> None:
    def generic(_what: str) -> None:
        raise KeyError

    tracing.active = tracing_of(tmp_path, selection=Selection(PARTS))
    execute = executor_of(generic, class_name="", function_name="generic", module_name="library.tasks")
    with pytest.raises(KeyError) as raised:
        execute("Read", **carried())
    assert [frame.name for frame in raised.traceback][1:] == ["generic"]


def test_a_worker_of_the_job_names_what_carries_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobTrace(os.urandom(16), os.urandom(8), 3, DRIVER_TASK_ID)
    monkeypatch.setattr(Cluster, "published", lambda _self, _job_id: job)

    def generic(what: str) -> str:
        return what

    tracing.active = active = tracing_of(tmp_path, selection=Selection(PARTS))
    active.job.load_job_trace("01000000", task_is_there=True)
    spans = recorded(active)
    execute = executor_of(generic, class_name="", function_name="generic", module_name="library.tasks")
    for what in ("Read", "Write"):
        execute(what)
    assert [span.name for span in spans] == ["Read ray.remote_worker", "Write ray.remote_worker"]
    assert [span.attributes["runs"] for span in spans] == ["Read", "Write"]


def test_the_call_with_which_ray_serializes_a_function_says_how_large_that_is(tmp_path: Path) -> None:
    """Also if a function of the same name was serialized before, and if the call has a name."""
    active = tracing_of(tmp_path, DRIVER)
    spans = recorded(active)

    def call(task: Any, **options: Any) -> None:
        call = submission.begin(active.calls, targets._describe_task, task, (), {}, (), options)
        assert call is not None
        task._pickled_function, task._last_export_cluster_and_job = bytes(1000), "this"
        call.submitted(stand_ins.ObjectRef(TASK_ID), submission.task_of, (), {})

    for number in range(2):
        task = Task()
        task._last_export_cluster_and_job = None  # type: ignore[assignment]
        call(task, **({"name": "first"} if number else {}))
        call(task)
    assert [span.attributes.get(names.RAY_FUNCTION_SIZE) for span in spans] == [1000, None, 1000, None]


# The names of functions that are arguments of calls.

OPTIONS: dict[str, Any] = {}


def plain(worker: Any) -> None:
    pass


class Tool:
    def method(self) -> None:
        pass

    def __call__(self) -> None:
        pass


NAMED = [
    (plain, "plain"),
    (functools.partial(plain, 1), "plain"),
    (functools.partial(functools.partial(plain), 1), "plain"),
    (Tool().method, "method"),
    (len, "len"),
    (lambda worker: worker.sample(), "sample"),
    (lambda worker: worker.sample(**OPTIONS), "sample"),
    (lambda worker: (worker.sample(**OPTIONS), worker.get_metrics()), "sample"),
    (lambda worker: print(worker.sample(1)), "sample"),
    (lambda worker, ref=0: worker.set_state(OPTIONS.get(ref)), "set_state"),
    (lambda worker: worker.roles.keys(), "roles"),
    (lambda worker: worker.size, "size"),
    (lambda worker: len(str(worker)), "<lambda>"),
    (lambda: 1, "<lambda>"),
]


@pytest.mark.parametrize(("function", "name"), NAMED, ids=map(str, range(len(NAMED))))
def test_a_function_has_a_name(function: Any, name: str) -> None:
    """A lambda has that of the first method or attribute of its first argument that it uses."""
    assert labels.name_of(function) == name


@pytest.mark.parametrize("value", [None, "text", 1, Tool(), Tool, pickle, b"pickled"])
def test_anything_else_has_none(value: Any) -> None:
    """Nothing of the program runs to find out: an object that can be called may do anything when it is asked."""
    assert labels.name_of(value) is None


class Name(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __format__(self, spec: str) -> str:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_a_name_of_another_class_is_a_text() -> None:
    def named() -> None:
        pass

    named.__name__ = Name("named")
    assert type(labels.name_of(named)) is str
    assert labels.name_of(named) == "named"


def test_partial_functions_within_each_other_have_an_end() -> None:
    made: Any = plain
    for _ in range(20):
        made = functools.partial(made)
        made.__setstate__((made.func, (), {}, {"not": "joined"}))
    assert labels.name_of(made) is None


# Calls of generic methods.


def forward() -> None:
    pass


class Callable:
    """Any look at it may fail."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def shown(method: str, *args: Any, **kwargs: Any) -> str | None:
    naming = labels.labeler_for("program", "Outer.Worker", method)
    assert naming is not None
    found = naming.by(args, kwargs)
    return found.name if found is not None else None


@pytest.mark.parametrize(
    ("method", "first", "name"),
    [
        ("execute", forward, "Outer.Worker.forward"),
        ("execute_batch", "forward", "Outer.Worker.forward"),
        ("collective_rpc", forward, "Outer.Worker.forward"),
        ("_fuw_execute", "actor_fwmn_generate", "Outer.Worker.actor_generate"),
        ("execute", "forward", None),
        ("execute_batch", "select * from t", None),
        ("execute_batch", "a" * 1_000_000, None),
        ("_fuw_execute", "a" * 1_000_000, None),
        ("apply", Callable(), None),
        ("execute_batch", Callable(), None),
        ("_fuw_execute", Callable(), None),
    ],
    ids=range(11),
)
def test_a_call_is_named_by_its_first_argument(method: str, first: Any, name: str | None) -> None:
    """If that is a function, or a text that may be the name of a method; nothing of the program runs to find out."""
    assert shown(method, first) == name
    assert shown(method, first=first) == name
    assert shown(method) is None


# What runs a task in the place of Ray's own executor.

TASK = SimpleNamespace(class_name="", function_name="function", module_name="__main__")
METHOD = SimpleNamespace(class_name="Actor", function_name="method", module_name="__main__")


class Info(NamedTuple):
    """As Ray's function manager has it."""

    function: Any


def made_for(function: Any, descriptor: Any) -> Any:
    get = execution._get_execution_info(lambda *_: Info(function))
    return get(None, Id(bytes.fromhex(JOB_ID)), descriptor).function


@pytest.mark.parametrize("descriptor", [TASK, METHOD], ids=["task", "method"])
def test_a_fault_while_it_is_made_does_not_reach_the_task(
    descriptor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """Which runs without a span, and without the context that its call carried."""

    def fault(*_: Any) -> Any:
        raise ValueError("of ours")

    def function(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    function.method = fault  # type: ignore[attr-defined]
    monkeypatch.setattr(tracing, "active", active := tracing_of(tmp_path))
    monkeypatch.setattr(active.job, "load_job_trace", lambda *_, **__: None)
    monkeypatch.setattr(execution, "_executor", fault)
    execute = made_for(function, descriptor)
    assert execute(1, a=2, **{KEY: TASK_ID}) == ((1,), {"a": 2})
    assert execute.method is fault
    (report,) = reports
    assert report.startswith("tracing a function failed: ValueError: of ours;")


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "active", active := tracing_of(tmp_path))
    monkeypatch.setattr(active.job, "load_job_trace", lambda *_, **__: None)
    execute = made_for(lambda: None, TASK)
    assert made_for(execute, TASK) is execute
