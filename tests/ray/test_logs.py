"""From a log line to its trace: Ray's own JSON logs, of all processes of a program."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Cluster
from support import HOOK, by_name, logs_in_json, run_program, spans_in


def driver_lines(stderr: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["filename"] == "saying.py"]


@pytest.mark.skipif(not logs_in_json(), reason="this Ray does not write its logs as JSON")
def test_rays_json_logs_say_the_span_that_they_were_written_in(cluster: Cluster) -> None:
    """Each line once, with nothing set for it: those of the driver, its threads and forked children, of tasks and of
    overlapping calls of an async actor. What the program says itself is left as it is.
    """
    run = cluster.run("saying")
    drivers = [span for span in spans_in(cluster.spans) if span.name == "saying.py ray.driver"]
    first, second = sorted(drivers, key=lambda span: span.start_ns)
    lines = {line["message"]: line for line in driver_lines(run.stderr)}
    assert len(lines) == len(driver_lines(run.stderr)) == 5
    for message in ("in the driver", "in a thread of the driver", "in a fork"):
        said = lines[message]
        assert (said["trace_id"], said["span_id"]) == (first.trace_id, first.span_id), message
        assert said["trace_flags"] in {"01", "03"}
    assert not {"trace_id", "span_id", "trace_flags"} & {*lines["after the end"]}
    assert lines["again"]["trace_id"] == second.trace_id != first.trace_id

    of_workers = {line["message"]: line for line in run.result}
    assert len(of_workers) == len(run.result) == 6
    spans = [span for span in spans_in(cluster.spans) if span.trace_id == first.trace_id]
    known = {span.span_id: span for span in spans}
    for message, name in {
        "before inner": "__main__.outer ray.remote_worker",
        "inner": "__main__.inner ray.remote_worker",
        "failed": "__main__.outer ray.remote_worker",
        "first": "Together.say ray.remote_worker",
        "second": "Together.say ray.remote_worker",
    }.items():
        said = of_workers[message]
        assert said["trace_id"] == first.trace_id
        span = known[said["span_id"]]
        assert span.name == name
        assert span.attributes["ray.task_id"] == said["task_id"]
    assert of_workers["first"]["span_id"] != of_workers["second"]["span_id"]
    assert of_workers["after inner"]["span_id"] == "the program's own"
    assert "trace_id" not in of_workers["after inner"]


def log_records(folder: Path) -> dict[str, dict[str, Any]]:
    """The log records in the files of a folder, by their messages."""
    return {
        record["body"]["stringValue"]: record
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
        for resource_logs in json.loads(line)["resourceLogs"]
        for scope_logs in resource_logs["scopeLogs"]
        for record in scope_logs["logRecords"]
    }


def test_log_records_are_delivered_with_the_ids_of_their_span(tmp_path: Path) -> None:
    run = run_program("saying_plainly", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(tmp_path), RAY_TRACING_LOGS="otlp")
    spans = spans_in(tmp_path)
    (driver,) = by_name(spans, "saying_plainly.py ray.driver")
    (task,) = by_name(spans, "__main__.task ray.remote_worker")
    records = log_records(tmp_path / "logs")
    of_driver = ["in the driver", "by Ray's logger in the driver"]
    of_task = ["in a task", "failed", "by Ray's logger in a task"]
    for span, messages in ((driver, of_driver), (task, of_task)):
        for message in messages:
            assert (records[message]["traceId"], records[message]["spanId"]) == (span.trace_id, span.span_id)
    assert "FileNotFoundError: no/such/file" in run.result, "as it was"
    assert records["failed"]["severityNumber"] == 17
    assert not [body for body in records if re.search("not shown|ray_tracing_hooks", body)]
