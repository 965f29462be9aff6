"""Spans for ``ray.get``, ``await``, ``ray.wait`` and ``ray.put``, where they are asked for."""

from __future__ import annotations

from pathlib import Path

from support import HOOK, by_name, check_links, run_program, spans_in

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import Span

ERRORS = ["RayTaskError(KeyError)", "GetTimeoutError"]
UNSEEN = ["Future exception was never retrieved"]
AWAITED = [4, 3, "RayTaskError(KeyError)", "TimeoutError", 6, 7, [0, 1, 2], UNSEEN]
RESULT = [0, [0, 1, 2], *ERRORS, [1, 1], [0, 1], [1, 0], 1_000_000, 2, "ValueError", "TypeError", True, AWAITED, 17]


def test_what_is_waited_for_and_stored_is_told(tmp_path: Path) -> None:
    run = run_program(
        "waiting", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), RAY_TRACING_RAY="task,actor,get,wait,put"
    )
    assert run.result == RESULT
    spans = spans_in(tmp_path)
    check_links(spans)
    (driver,) = by_name(spans, "waiting.py ray.driver")
    gets = by_name(spans, "ray.get")
    of_driver = [span for span in gets if span.parent_id == driver.span_id]
    first, several, failed, late, fetched, _nested, wrong, _sum = of_driver
    (task, *_) = by_name(spans, "__main__.number ray.remote")
    assert names.RAY_OBJECT_SIZE not in late.attributes
    small, large = (span.attributes[names.RAY_OBJECT_SIZE] for span in (first, fetched))
    assert 0 < small < 1000
    assert 1_000_000 < large < 1_010_000
    (ref,) = first.attributes[names.RAY_OBJECT_IDS]
    assert ref.startswith(task.attributes[names.RAY_TASK_ID])
    assert first.attributes[names.RAY_PARENT_TASK_ID] == driver.attributes[names.RAY_TASK_ID]
    assert (several.attributes[names.RAY_OBJECT_COUNT], several.attributes[names.RAY_TIMEOUT]) == (3, 60.0)
    assert names.RAY_TIMEOUT not in first.attributes
    assert [span.attributes.get(names.ERROR_TYPE) for span in (first, failed, late, wrong)] == [
        None,
        "KeyError",
        "ray.exceptions.GetTimeoutError",
        "ValueError",
    ]
    (inside,) = [span for span in gets if span not in of_driver]
    (waits,) = by_name(spans, "__main__.waits ray.remote_worker")
    assert inside.parent_id == waits.span_id
    ready, empty, of_generator, refused = by_name(spans, "ray.wait")
    assert ready.attributes[names.RAY_READY_OBJECT_IDS] == ready.attributes[names.RAY_OBJECT_IDS][:1]
    assert ready.attributes[names.RAY_NUM_RETURNS] == ready.attributes[names.RAY_READY_OBJECT_COUNT] == 1
    assert empty.attributes[names.RAY_READY_OBJECT_COUNT] == 0
    assert not empty.attributes.get(names.RAY_READY_OBJECT_IDS)
    (counting, *_) = by_name(spans, "__main__.count ray.remote")
    (awaited,) = of_generator.attributes[names.RAY_READY_OBJECT_IDS]
    assert awaited.startswith(counting.attributes[names.RAY_TASK_ID])
    assert {span.resource[names.RESOURCE_PARTS] for span in spans} == {"actor,get,put,task,wait"}
    assert refused.attributes[names.ERROR_TYPE] == "TypeError"
    put, of_bytes = by_name(spans, "ray.put")
    assert len(put.attributes[names.RAY_OBJECT_IDS]) == 1
    assert put.attributes[names.RAY_OBJECT_SIZE] == large
    assert of_bytes.attributes[names.RAY_OBJECT_SIZE] == 3
    awaits_are_told(spans)
    assert driver.span_id in {span.parent_id for span in by_name(spans, names.FUTURE)}


def awaits_are_told(spans: list[Span]) -> None:
    """Of the driver and of an async actor: below what awaits, with what is awaited, and as long as it takes."""
    (driver,) = by_name(spans, "waiting.py ray.driver")
    (gathering,) = by_name(spans, "gathering")
    awaits = by_name(spans, names.AWAIT)
    of_driver = [span for span in awaits if span.parent_id == driver.span_id]
    gathered = [span for span in awaits if span.parent_id == gathering.span_id]
    (iterating,) = by_name(spans, "iterating")
    iterated = [span for span in awaits if span.parent_id == iterating.span_id]
    assert len(of_driver) + len(gathered) + len(iterated) == len(awaits)
    assert len(iterated) >= 3
    assert {span.status_code for span in iterated} == {0}, "the end of a generator is no failure"
    result, put, failed, late, waited, unseen, abandoned = of_driver
    tasks = {span.attributes[names.RAY_TASK_ID] for span in by_name(spans, "__main__.number ray.remote")}
    for span in (result, waited, *gathered):
        (awaited,) = span.attributes[names.RAY_OBJECT_IDS]
        assert awaited[:48] in tasks
        assert span.attributes[names.RAY_OBJECT_COUNT] == 1
        assert span.status_code == 0
    (stored,) = put.attributes[names.RAY_OBJECT_IDS]
    assert stored in {each for span in by_name(spans, "ray.put") for each in span.attributes[names.RAY_OBJECT_IDS]}
    assert [span.attributes.get(names.ERROR_TYPE) for span in (failed, unseen)] == ["KeyError"] * 2
    for given_up in (late, abandoned):
        assert given_up.attributes[names.RAY_CANCELLED] is True
        assert (given_up.status_code, given_up.state) == (0, "ended")
    assert late.end_ns - late.start_ns >= 90_000_000
    assert len(gathered) == 2
    (summing,) = by_name(spans, "Awaiting.sum ray.remote_worker")
    assert {span.attributes[names.RAY_PARENT_TASK_ID] for span in gathered} == {summing.attributes[names.RAY_TASK_ID]}
    assert result.attributes[names.RAY_PARENT_TASK_ID] == driver.attributes[names.RAY_TASK_ID]


def test_waits_name_the_placement_group_that_they_are_for(tmp_path: Path) -> None:
    """By the object that ``ready()`` returns, which no call makes, or in ``wait()``, which waits in the core of Ray."""
    run = run_program(
        "grouped", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), RAY_TRACING_RAY="task,actor,get,wait"
    )
    same, other, waits, frames = run.result
    assert waits == [False, True]
    assert not [frame for frame in frames if "ray_tracing_hooks" in frame]
    spans = spans_in(tmp_path)
    for name in ("ray.get", names.AWAIT, "ray.wait"):
        assert {span.attributes[names.RAY_PLACEMENT_GROUP_ID] for span in by_name(spans, name)} == {same[0]}
    early, late = by_name(spans, names.PLACEMENT_GROUP_WAIT)
    assert early.attributes[names.RAY_PLACEMENT_GROUP_ID] == late.attributes[names.RAY_PLACEMENT_GROUP_ID] == other
    assert (early.attributes[names.RAY_TIMEOUT], early.attributes[names.RAY_READY_OBJECT_COUNT]) == (0.0, 0)
    assert late.attributes[names.RAY_READY_OBJECT_COUNT] == 1
    assert late.end_ns - late.start_ns > 200_000_000
