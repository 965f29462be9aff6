"""Tasks, actors, generators and failures: the results are right, and the trace is exactly what happened."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from conftest import Cluster
from packaging.version import Version
from support import CONSUMER, HOOK, PRODUCER, by_name, check_links, run_program, spans_in, tree

from ray_tracing_hooks import names

pytestmark = pytest.mark.xdist_group("runs")  # files that look at the same runs of programs


def test_tasks_of_every_kind_make_a_submission_and_an_execution_span(cluster: Cluster) -> None:
    """Every way to call a task gives its result, and one PRODUCER with one CONSUMER below it, nested as the calls
    were.
    """
    run = cluster.once("tasks")
    assert run.result == [
        *(2, 15, 6, 2, 4, "none", 2, [1, 2, 3], None, 5, True, None, 1.0, "put", 10, "plain", "lambda", 3),
    ]
    check_links(run.spans)
    assert tree(run.spans) == TASKS.strip()


TASKS = """
__main__.<lambda> call
__main__.add call x7
__main__.current_span call
__main__.first call
__main__.mean call
__main__.nested call
  __main__.nested call
    __main__.nested call
__main__.no_arguments call x2
__main__.nothing call
__main__.plain call
__main__.renamed ray.remote
  a better name
__main__.spans call
  outer
    __main__.add call
    inner
      __main__.add call
__main__.three call
library.in_library call
  library.in_library_too call
"""


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (
            "task",
            """
            __main__.double call x2
            ray.get
            """,
        ),
        (
            "actor",
            """
            Actor.__init__ call
            Actor.one call
            ray.get
            """,
        ),
        (
            "put",
            """
            ray.get
            ray.put
            """,
        ),
    ],
)
def test_the_call_that_connects_a_driver_is_traced_like_others(first: str, expected: str, cluster: Cluster) -> None:
    """Where a program never calls ``ray.init()``, Ray connects within its first call."""
    run = cluster.run("connecting_late", first, RAY_ADDRESS=cluster.address, RAY_TRACING_RAY="task,actor,get,put")
    assert tree(run.spans) == dedent(expected).strip()
    check_links(run.spans)


def test_the_span_of_a_task_is_a_full_span_for_the_code_inside(cluster: Cluster) -> None:
    """Attributes, events, links, status and a new name that user code gives to the current span are on it."""
    spans = cluster.once("tasks").spans
    (span,) = by_name(spans, "__main__.current_span ray.remote_worker")
    assert span.attributes["mine"] == "yes"
    assert span.attributes["n"] == 1
    assert list(span.attributes["list"]) == [1, 2]
    assert [(event.name, event.attributes) for event in span.events] == [("step", {"at": 1})]
    assert [(link.trace_id, link.span_id) for link in span.links] == [(f"{1:032x}", f"{2:016x}")]
    (renamed,) = by_name(spans, "a better name")
    assert renamed.status_code == 1
    assert [event.attributes["exception.type"] for event in renamed.events] == ["ValueError"]
    (outer,) = by_name(spans, "outer")
    assert outer.attributes["size"] == 3
    assert outer.scope == "tasks"


def test_both_spans_of_a_call_have_the_attributes_of_rays_own_tracing(cluster: Cluster) -> None:
    """The keys of Ray's own tracing are there; the task id is that of the task which the call makes, on both spans."""
    spans = cluster.once("tasks").spans
    (submission,) = by_name(spans, "__main__.spans ray.remote")
    (execution,) = by_name(spans, "__main__.spans ray.remote_worker")
    (driver,) = by_name(spans, "tasks.py ray.driver")
    for span, kind in ((submission, PRODUCER), (execution, CONSUMER)):
        assert span.kind == kind
        assert span.scope == names.SCOPE
        assert span.attributes[names.RAY_REMOTE] == "function"
        assert span.attributes[names.RAY_FUNCTION] == "__main__.spans"
        assert span.attributes[names.RAY_PID] == str(span.resource["process.pid"])
        assert span.attributes[names.RAY_NODE_ID] == span.resource[names.RESOURCE_NODE_ID]
        assert span.attributes[names.RAY_WORKER_ID] == span.resource[names.RESOURCE_WORKER_ID]
        assert span.attributes[names.RAY_JOB_ID] == driver.attributes[names.RAY_JOB_ID]
        assert span.attributes[names.RAY_TASK_ID] == submission.attributes[names.RAY_TASK_ID]
        assert span.attributes[names.RAY_PARENT_TASK_ID] == driver.attributes[names.RAY_TASK_ID]
        assert not any(key.startswith("_") for key in span.attributes)
    assert 0 < submission.attributes[names.RAY_FUNCTION_SIZE] < 100_000, "it was the first call of the function"
    assert names.RAY_FUNCTION_SIZE not in execution.attributes
    assert driver.attributes[names.RAY_ENTRYPOINT].endswith("/programs/tasks.py")
    assert driver.attributes[names.RAY_NAMESPACE]
    assert names.RAY_SUBMISSION_ID not in driver.attributes
    assert submission.resource[names.RESOURCE_PROCESS_TYPE] == "driver"
    assert execution.resource[names.RESOURCE_PROCESS_TYPE] == "worker"
    assert submission.start_ns <= execution.start_ns <= execution.end_ns
    # A call made by the task, also under a span of the user's: its caller is the task.
    inner = [span for span in by_name(spans, "__main__.add ray.remote") if span.trace_id and span.parent_id]
    callers = {span.attributes[names.RAY_PARENT_TASK_ID] for span in inner}
    assert execution.attributes[names.RAY_TASK_ID] in callers
    # What a call need not carry its worker does not know, except that the driver made it.
    by_id = {span.span_id: span for span in spans}
    carried = 0
    for span in by_name(spans, "__main__.add ray.remote_worker"):
        made = by_id[span.parent_id]
        made_by = made.attributes[names.RAY_PARENT_TASK_ID]
        if names.RAY_NAME in made.attributes:
            carried += 1
            assert span.attributes[names.RAY_SUBMIT_TIME] == made.start_ns
            assert span.attributes[names.RAY_PARENT_TASK_ID] == made_by
        else:
            is_drivers = made_by == driver.attributes[names.RAY_TASK_ID]
            assert names.RAY_SUBMIT_TIME not in span.attributes
            assert span.attributes.get(names.RAY_PARENT_TASK_ID) == (made_by if is_drivers else None)
    assert carried


def test_actors_of_every_kind_make_a_submission_and_an_execution_span(cluster: Cluster) -> None:
    """Creation and methods: inherited, decorated, static, of the class, async, threaded, grouped, on passed handles."""
    run = cluster.once("actors")
    assert run.result == [
        *(1, 3, 4, 5, None, "inherited", "derived base", 1, 2, 3, [1, 2], 11, 6, True, 111, "hello", 3, 4),
        *(["a", "b"], 7, "inherited", 16, ["met", "met"], 1, ["a", "b", "c"]),
    ]
    check_links(run.spans)
    assert tree(run.spans) == ACTORS.strip()
    for name in ("work a", "work b", "meet a", "meet b", "meet c"):
        (span,) = by_name(run.spans, name)
        assert span.attributes["who"] == name[-1], "the current span of a call is its own, whatever runs beside it"
    assert [span.attributes["who"] for span in by_name(run.spans, "Grouped.meet ray.remote_worker")] == ["met", "met"]


ACTORS = """
Async.__init__ call
Async.arrive call
Async.calls call
  Plain.add call
Async.inherited call
Async.sync call
Async.work call
  work a
Async.work call
  work b
Grouped.__init__ call
Grouped.compute call
Grouped.meet call x2
Outer.NoInit.__init__ call
Outer.NoInit.hello call
Plain.__init__ call x4
Plain.add call x7
Plain.call call
  Plain.add call
Plain.decorated call
Plain.inherited call
Plain.none call
Plain.of_class call
Plain.overridden call
Plain.spans call
  in actor
Plain.static call
Plain.two call
Threaded.__init__ call
Threaded.meet call
  meet a
Threaded.meet call
  meet b
Threaded.meet call
  meet c
__main__.use call
  Plain.add call
"""


def test_the_spans_of_an_actor_name_the_actor(cluster: Cluster) -> None:
    """Creation and methods of one actor have one actor id, on both spans, and the task id that contains it."""
    spans = cluster.once("actors").spans
    actors = {span.attributes[names.RAY_ACTOR_ID] for span in spans if span.name.startswith("Async.")}
    assert len(actors) == 1
    for span in (span for span in spans if span.name.startswith("Async.")):
        assert span.attributes[names.RAY_TASK_ID].endswith(span.attributes[names.RAY_ACTOR_ID])
        assert span.attributes[names.RAY_REMOTE] == "actor"
        assert span.attributes[names.RAY_ACTOR_CLASS] == "Async"
        assert span.attributes[names.RAY_FUNCTION] == f"Async.{span.attributes[names.RAY_ACTOR_METHOD]}"


def test_a_detached_actor_is_traced_for_each_driver_that_calls_it(cluster: Cluster) -> None:
    """One driver makes a named actor, another looks it up: each has its own trace, and get_if_exists makes no span."""
    created = cluster.run("actors", "create")
    assert created.result == 6
    assert tree(created.spans) == DETACHED.strip()
    found = cluster.run("actors", "lookup")
    assert found.result == 7
    assert tree(found.spans) == "Plain.add call"
    assert found.spans[0].trace_id != created.spans[0].trace_id


DETACHED = """
Plain.__init__ call
Plain.add call
"""


def test_the_span_of_a_generator_lasts_until_it_is_done(cluster: Cluster) -> None:
    """Generator tasks and methods, sync and async: the body runs inside the span, to its end, its failure or its
    closing.
    """
    run = cluster.once("generators")
    assert run.result == [
        *([0, 1], [], [1, 2], [0, 1, 2], [1, "RayTaskError(ValueError)"], [0], [0, 1, 2], [1, 2], [["x"]], 4),
        *([0, 1], [1, 2], [1, "RayTaskError(KeyError)"], [0, 1]),
    ]
    check_links(run.spans)
    # Cancelled while the worker either runs the body or waits for its consumer: an interrupt, or a closed generator.
    (cancelled,) = by_name(run.spans, "__main__.endless ray.remote_worker")
    assert cancelled.state == "ended"
    assert cancelled.attributes.pop("error.type", CANCELLED) == CANCELLED
    cancelled.status_code = 0
    assert tree(run.spans) == GENERATORS.strip()
    for across in by_name(run.spans, "across"):
        assert (across.attributes["before"], across.attributes["after"]) == (True, True)
    counted = {
        span.attributes[names.RAY_FUNCTION]: span.attributes[names.RAY_GENERATOR_ITEMS]
        for span in run.spans
        if names.RAY_GENERATOR_ITEMS in span.attributes
    }
    for span in run.spans:
        if span.attributes.get(names.RAY_GENERATOR_ITEMS):
            assert 0 < span.attributes[names.RAY_GENERATOR_HELD] < (span.end_ns - span.start_ns) / 1e9
    assert counted["Actor.generate"] == 3
    assert counted["AsyncActor.generate"] == 2
    assert counted["__main__.empty"] == 0
    assert counted["__main__.failing"] == 1
    for outer in by_name(run.spans, "__main__.streaming ray.remote_worker"):
        items = [span for span in run.spans if span.parent_id == outer.span_id]
        assert all(outer.start_ns <= item.start_ns <= item.end_ns <= outer.end_ns for item in items)


CANCELLED = "ray.exceptions.TaskCancelledError"

GENERATORS = """
Actor.__init__ call
Actor.generate call
Actor.span_across_yields call
  across
Actor.static call
Actor.with_kwargs call
AsyncActor.__init__ call
AsyncActor.failing call !KeyError
AsyncActor.generate call
  async item 0
    __main__.one call
  async item 1
    __main__.one call
AsyncActor.span_across_yields call
  across
__main__.dynamic call
__main__.empty call
__main__.endless call
__main__.failing call !ValueError
__main__.fixed call
__main__.streaming call
  item 0
    __main__.one call
__main__.streaming call
  item 0
    __main__.one call
  item 1
    __main__.one call
"""


def test_failures_are_on_the_span_where_they_happened(cluster: Cluster, tmp_path: Path) -> None:
    """Errors, retries, cancellations and killed workers have their type; intended exits are no errors."""
    run = cluster.run("failures", str(tmp_path))
    assert run.result == [
        *("RayTaskError(ValueError)", "RayTaskError(ValueError)", "RayTaskError(KeyError)", 2, 2),
        *("RayTaskError(RuntimeError)", "RayTaskError(KeyError)", "RayTaskError(KeyError)", "ActorDiedError"),
        *("WorkerCrashedError", "missing a required argument: 'a'", "got an unexpected keyword argument 'unknown'"),
        *("too many positional arguments", "ActorDiedError", "ActorDiedError", "ActorDiedError"),
        *("RayTaskError(TaskCancelledError)", "RayTaskError(TaskCancelledError)", "WorkerCrashedError"),
        "ActorDiedError",
    ]
    check_links(run.spans)
    again = max(by_name(run.spans, "Restarts.__init__ ray.remote_worker"), key=lambda span: span.start_ns)
    if Version(version("ray")) < Version("2.54"):  # It counts no attempts of a creation.
        assert names.RAY_ATTEMPT not in again.attributes
        again.attributes[names.RAY_ATTEMPT] = 1
    else:
        assert [event.name for event in again.events] == [names.ACTOR_RESTARTED]
    assert tree(run.spans) == FAILURES.strip()
    inner, outer = sorted(
        (span for span in run.spans if span.status_message == "ValueError: bad inner"), key=lambda span: span.end_ns
    )
    assert (inner.attributes["error.type"], outer.attributes["error.type"]) == ("ValueError", "ValueError")
    (event,) = inner.events
    assert event.attributes["exception.type"] == "ValueError"
    assert event.attributes["exception.message"] == "bad inner"
    assert "in fails" in event.attributes["exception.stacktrace"]
    assert "ray_tracing_hooks" not in event.attributes["exception.stacktrace"]
    (killed,) = by_name(run.spans, "__main__.killed ray.remote_worker")
    assert killed.status_message == "worker died"
    assert killed.attributes[names.RAY_END_ESTIMATED] is True
    assert killed.end_ns >= killed.start_ns


FAILURES = """
Actor.__init__ call x2
Actor.exits call
Actor.fails call !KeyError
Actor.fails ray.remote !TypeError
Actor.sys_exits call
AsyncActor.__init__ call x2
AsyncActor.exits call
AsyncActor.fails call !KeyError
AsyncActor.waits call !ray.exceptions.TaskCancelledError
  Signal.set call
FailsInit.__init__ call !RuntimeError
FailsInit.never ray.remote
Restarts.__init__ ray.remote
  Restarts.__init__ ray.remote_worker
  Restarts.__init__ ray.remote_worker #1
Restarts.dies call !worker_died
Signal.__init__ call
Signal.wait call
__main__.chained call !KeyError
__main__.fails call !ValueError
__main__.fails ray.remote !TypeError x2
__main__.interrupted call !ray.exceptions.TaskCancelledError
  Signal.set call
__main__.killed call !worker_died
  Signal.set call
__main__.odd call !__main__.Odd
__main__.once call x2
__main__.passes_on call !ValueError
  __main__.fails call !ValueError
__main__.retried ray.remote
  __main__.retried ray.remote_worker !OSError
  __main__.retried ray.remote_worker !OSError #1
  __main__.retried ray.remote_worker #2
__main__.terminated call !worker_died
"""


PLACED_KEYS = {
    names.RAY_NAME,
    names.RAY_ACTOR_NAME,
    names.RAY_ASYNCIO,
    names.RAY_MAX_CONCURRENCY,
    names.RAY_CONCURRENCY_GROUP,
    names.RAY_ASSIGNED_RESOURCES,
    names.RAY_ACCELERATOR_IDS,
    names.RAY_PLACEMENT_GROUP_ID,
    names.RAY_ARGUMENT_IDS,
    names.RAY_ARGUMENT_COUNT,
}


def test_executions_say_what_they_hold_and_submissions_what_they_are_given(tmp_path: Path) -> None:
    """Of actors and of tasks alike: resources, accelerators, placement group; of actors their name and concurrency; of
    submissions the objects among the arguments; of both the name that the call was given. Each as far as there is any.
    """
    run = run_program("placed", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path))
    results, group, first, second = run.result
    assert results == [1, 2, 3, [2, 0], [3, 1], 1, 16, 11]
    spans = spans_in(tmp_path)
    said: dict[str, list[dict[str, Any]]] = {}
    for span in sorted(spans, key=lambda span: span.start_ns):
        said.setdefault(span.name, []).append(
            {key: value for key, value in span.attributes.items() if key in PLACED_KEYS}
        )
    of_actor = {
        names.RAY_ACTOR_NAME: "the placed one",
        names.RAY_ASYNCIO: True,
        names.RAY_MAX_CONCURRENCY: 3,
        names.RAY_ASSIGNED_RESOURCES: '{"CPU": 0.5, "GPU": 0.5}',
        names.RAY_PLACEMENT_GROUP_ID: group,
    }
    of_read = {names.RAY_CONCURRENCY_GROUP: "io", names.RAY_NAME: "a read"}
    for method, more in (("__init__", {}), ("work", {}), ("read", of_read)):
        (placed,) = said[f"Placed.{method} ray.remote_worker"]
        (accelerator,) = placed.pop(names.RAY_ACCELERATOR_IDS)
        assert accelerator in {"GPU:0", "GPU:1"}
        assert placed == {**of_actor, **more}
    named = {names.RAY_NAME: "the placed one", names.RAY_ACTOR_NAME: "the placed one"}
    assert said["Placed.__init__ ray.remote"] == [named]
    assert said["Placed.read ray.remote"] == [{names.RAY_NAME: "a read", names.RAY_CONCURRENCY_GROUP: "io"}]
    assert said["Placed.work ray.remote"] == [{}]
    for method in ("__init__", "work"):
        assert said[f"Plain.{method} ray.remote_worker"] == [{}]
    # The two run at once, in any order.
    plainly, with_gpu = sorted(said["__main__.held ray.remote_worker"], key=len)
    assert plainly == {names.RAY_ASSIGNED_RESOURCES: '{"CPU": 1.0}'}
    assert with_gpu.pop(names.RAY_ACCELERATOR_IDS)[0].startswith("GPU:")
    assert with_gpu == {names.RAY_ASSIGNED_RESOURCES: '{"CPU": 1.0, "GPU": 1.0}'}
    quarter = {names.RAY_ASSIGNED_RESOURCES: '{"CPU": 0.25}'}
    # By drivers, which carry nothing, and by tasks, which do.
    assert said["__main__.one ray.remote_worker"].count(quarter) == 3
    assert {names.RAY_NAME: "the one"} in said["__main__.one ray.remote"]
    of_one = {**quarter, names.RAY_PLACEMENT_GROUP_ID: group, names.RAY_NAME: "the one"}
    assert of_one in said["__main__.one ray.remote_worker"]
    assert said["__main__.add ray.remote_worker"] == [{}, {}]
    assert said["__main__.add ray.remote"] == [
        {names.RAY_ARGUMENT_IDS: [first, second], names.RAY_ARGUMENT_COUNT: 2},
        {},
    ]
    (root,) = by_name(spans, "placed.py ray.driver")
    assert root.resource["host.ip"] == [root.resource[names.RESOURCE_GCS_ADDRESS].rpartition(":")[0]]
