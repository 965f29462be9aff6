"""What a program starts by itself: processes, threads, coroutines, signal handlers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from support import (
    HOOK,
    INSIDE,
    LEAN,
    await_spans,
    by_name,
    path_with,
    run_program,
    spans_in,
)


def test_every_process_thread_and_handler_of_a_program_records(tmp_path: Path) -> None:
    """All spans are there, in the right process and under the right call, and nothing is said, also strictly."""
    run = run_program(
        "processes",
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        PYTHONDEVMODE="1",
    )
    (codes, beside), pools, programs, (between, handled) = (
        run.result[name] for name in ("forks", "pools", "programs", "signals")
    )
    assert codes == [4] * 5
    assert pools == [[1] * 4, [2.0], [3.0]]
    assert programs == [[], []], "a program that is started has the same environment, and no file of ours"
    assert run.result["pool of the driver"] == [1] * 4
    assert (run.result["child of the driver"], run.result["last child"]) == (2, 1)
    ours = [line for line in run.stderr.splitlines() if "ray_tracing_hooks" in line]
    assert [line for line in ours if "tracing is on" not in line and "next: " not in line] == []

    wanted = {
        "beside a fork": beside,
        "child of a task": 15,
        "grandchild of a task": 5,
        "in a pool of a task": 4,
        "before a program": 1,
        "between signals": between,
        "in a handler": handled,
        "in a pool of the driver": 4,
        "child of the driver": 3,
        "after the driver's end": 1,
        "child of a driver that has shut down": 1,
        "of a thread that outlives its call": 1,
        "of a coroutine that outlives its call": 1,
        "in a coroutine that outlives its call": 1,
    }
    # The child that outlives the driver still has something to record.
    spans = await_spans(tmp_path / "spans", lambda spans: bool(by_name(spans, "after the driver's end")))
    found = Counter(span.name for span in spans if span.scope == "processes")
    print(f"spans of the program's own: {sum(wanted.values())} expected, {found.total()} found")
    assert found == wanted
    assert len({span.span_id for span in spans}) == len(spans)
    assert {span.state for span in spans} == {"ended"}
    assert {span.status_code for span in spans} == {0}

    by_id = {span.span_id: span for span in spans}
    pids = {name: {span.resource["process.pid"] for span in by_name(spans, name)} for name in wanted}
    assert len(pids["child of a task"]) == len(pids["grandchild of a task"]) == 5
    for child, parent in (
        ("child of a task", "__main__.forks ray.remote_worker"),
        ("grandchild of a task", "__main__.forks ray.remote_worker"),
        ("in a pool of a task", "__main__.pools ray.remote_worker"),
        ("child of the driver", "processes.py ray.driver"),
        ("after the driver's end", "processes.py ray.driver"),
        ("of a coroutine that outlives its call", "OutlivedCoroutine.start ray.remote_worker"),
        ("in a coroutine that outlives its call", None),
    ):
        for span in by_name(spans, child):
            above = by_id[span.parent_id]
            assert above.name == (parent or "of a coroutine that outlives its call")
            is_forked = child.startswith(("child", "grandchild", "in a pool", "after"))
            for key in ("process.pid", "service.instance.id"):
                assert (span.resource[key] != above.resource[key]) is is_forked, (child, key)
            assert span.resource["ray.worker.process_type"] == above.resource["ray.worker.process_type"]
    (outlived,) = by_name(spans, "of a coroutine that outlives its call")
    assert outlived.end_ns > by_id[outlived.parent_id].end_ns


def test_workers_that_spill_and_restore_objects_are_left_alone(tmp_path: Path) -> None:
    """Ray calls the hook in them too, and there is nothing to trace."""
    said = tmp_path / "said"
    said.mkdir()
    run = run_program(
        "../inside/spilling",
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        SPILLING_FOLDER=str(said),
        PYTHONPATH=path_with(LEAN, INSIDE),
    )
    is_right, modes = run.result
    assert is_right
    found = [json.loads(path.read_text()) for path in said.iterdir()]
    assert {row["mode"] for row in found} == {0, 1, *modes}, "there was no such worker"
    for row in found:
        if row["mode"] in modes:
            assert row["same"]
            assert len(row["modules"]) <= 10
            assert "ray_tracing_hooks._connection" not in row["modules"]
    assert len(by_name(spans_in(tmp_path / "spans"), "__main__.length ray.remote_worker")) == 10
