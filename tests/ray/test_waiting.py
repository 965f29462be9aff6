"""Spans for ``ray.get``, ``ray.wait`` and ``ray.put``, where they are asked for."""

from __future__ import annotations

from pathlib import Path

from support import HOOK, by_name, check_links, run_program, spans_in

from ray_tracing_hooks import names

ERRORS = ["RayTaskError(KeyError)", "GetTimeoutError"]
RESULT = [0, [0, 1, 2], *ERRORS, [1, 1], [1, 2], 2, "ValueError", "TypeError", True]


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
    first, several, failed, late, _put, _nested, wrong = of_driver
    (task, *_) = by_name(spans, "__main__.number ray.remote")
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
    ready, refused = by_name(spans, "ray.wait")
    assert ready.attributes[names.RAY_READY_OBJECT_IDS] == ready.attributes[names.RAY_OBJECT_IDS][:1]
    assert ready.attributes[names.RAY_NUM_RETURNS] == 1
    assert refused.attributes[names.ERROR_TYPE] == "TypeError"
    (put,) = by_name(spans, "ray.put")
    assert len(put.attributes[names.RAY_OBJECT_IDS]) == 1


def test_what_is_not_asked_for_makes_no_span(tmp_path: Path) -> None:
    run = run_program("waiting", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), RAY_TRACING_RAY="task,wait")
    assert run.result == RESULT
    made = {span.name for span in spans_in(tmp_path)}
    assert {"ray.get", "ray.wait", "ray.put"} & made == {"ray.wait"}
