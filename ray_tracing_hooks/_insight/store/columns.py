"""The columns of a store of runs.

The first :data:`OF_OTLP` are those of duckdb-otlp's ``read_otlp_traces()``, with the same names, types and JSON, so a
query that was written for it runs on a store. The others are this package's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.measured import DEPLOYMENT, SPAN, program_spans
from ray_tracing_hooks._insight.model.calls import DRIVER, EXECUTION, FUTURE, GET, OTHER, PUT, SUBMISSION, WAIT
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.processes import ProcessPlace, places
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import STATES, Table
from ray_tracing_hooks._insight.views.exports import as_json, encoded
from ray_tracing_hooks._insight.views.redaction import Redaction

VERSION = 1
"""Of the columns and of ``run.json``. Columns and members may be added within a version, and none changes."""

_ROLES = {
    SUBMISSION: "submission",
    EXECUTION: "execution",
    GET: "get",
    WAIT: "wait",
    PUT: "put",
    DRIVER: "driver",
    FUTURE: "await",
    OTHER: None,
}


class Stored:
    """The spans of a run, as rows of a store."""

    def __init__(self, analysis: Analysis, recorded: Table, redaction: Redaction) -> None:
        """``recorded`` is the table as it was read; that of ``analysis`` may have corrected times."""
        self.recorded = recorded
        self.redaction = redaction
        self.places = places(recorded)
        self._resources: dict[int, str | None] = {}
        # Correcting clocks changes the order of rows, and what the analysis says belongs to its own.
        own = analysis.table
        self._own = np.arange(len(own))
        if own.shifts:
            row_of = {(own.trace[row], own.span_id[row]): row for row in range(len(own))}
            self._own = np.array([row_of[key] for key in zip(recorded.trace, recorded.span_id, strict=True)])
        self._of_analysis = of_calls(analysis) | _of_program(analysis)

    def columns(self, rows: range) -> Iterator[tuple[Column, Any, Any]]:
        """Each column with its values for these rows of ``recorded``, and which of them are null, if that is not in the
        values.
        """
        spans: list[list[Any]] = [[None] * len(rows) for _ in COLUMNS]
        for row in self.recorded.as_recorded(rows):
            found = StoredRow(self, self.recorded.recorded(row), row, self.places.place(row))
            for column, values in zip(COLUMNS, spans, strict=True):
                if column.value is not None:
                    values[row - rows.start] = _stored(column.value(found))
        own = self._own[rows.start : rows.stop]
        for column, values in zip(COLUMNS, spans, strict=True):
            if column.value is not None:
                yield column, values, None
            else:
                found_values, is_known = self._of_analysis[column.name]
                yield column, found_values[own], ~is_known[own]

    def resource(self, attributes: dict[str, Any]) -> str | None:
        """A Resource as JSON. Its spans share the dictionary."""
        key = id(attributes)
        if key not in self._resources:
            self._resources[key] = _object(self.shown(attributes))
        return self._resources[key]

    def shown(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.redaction.shown(attributes)


OfAnalysis = dict[str, tuple[Any, Any]]
"""Columns by name: NumPy columns with a value for each row of the table of an analysis, and whether it has one."""


def of_calls(analysis: Analysis) -> OfAnalysis:
    """The columns of calls."""
    calls, table = analysis.calls, analysis.table
    role, call, row = as_numpy(calls.role), as_numpy(calls.call_of), np.arange(len(table))
    is_call, is_execution = call >= 0, role == EXECUTION

    def of_call(column: Any) -> Any:
        """For each row the item of its call; -1 for other rows."""
        return np.append(as_numpy(column), -1)[call]

    submission, first = of_call(calls.submission), of_call(calls.first)
    queued = np.where(is_execution & (first == row), of_call(calls.queued()), -1)
    on_path = np.zeros(len(table), np.int64)
    for each, time in analysis.ran_on_path.items():
        if each < len(table):
            on_path[each] = time
    is_assumed = np.zeros(len(table), bool)
    is_assumed[is_execution] = [analysis.is_assumed([each]) for each in np.nonzero(is_execution)[0].tolist()]
    is_refused = (submission == row) & (of_call(calls.execution) < 0)
    functions = np.array([*map(_stored, calls.functions), None], object)
    return {
        "ray_role": (np.array([_ROLES[each] for each in range(len(_ROLES))], object)[role], role != OTHER),
        "ray_function": (functions[of_call(as_numpy(calls.function).astype(np.int64))], is_call),
        "ray_queue_ns": (queued, queued >= 0),
        "ray_self_ns": (as_numpy(analysis.self_time), is_execution),
        "ray_path_ns": (on_path, is_execution),
        "ray_self_is_assumed": (is_assumed, is_execution),
        "ray_run_ns": (as_numpy(table.ends) - as_numpy(table.start), is_execution),
        "ray_is_call": (np.where(submission >= 0, submission, first) == row, is_call),
        "ray_failed": (analysis.is_failed & (is_execution | is_refused), is_call),
        "ray_is_retry": (first != row, is_execution),
    }


def _of_program(analysis: Analysis) -> OfAnalysis:
    """The columns of spans of the program and methods of deployments, and how far clocks were moved."""
    table, found = analysis.table, program_spans(analysis)
    place = np.full(len(table), -1)
    place[found.rows] = np.arange(len(found.rows))
    is_one = place >= 0
    labels = np.array([*map(_stored, found.labels), None], object)
    kinds = np.array([SPAN, DEPLOYMENT], object)
    shifts = np.array(table.shifts or [0] * len(table.resources), np.int64)

    def of_span(column: Any) -> Any:
        return np.append(column, column.dtype.type(0))[place]

    return {
        "subject_kind": (kinds[of_span(found.is_method).astype(np.int64)], is_one),
        "subject": (labels[of_span(found.label)], is_one),
        "subject_self_ns": (of_span(found.own), is_one),
        "subject_makes_calls": (of_span(found.makes_calls), is_one),
        "clock_shift_ns": (shifts[as_numpy(table.resource)], np.ones(len(table), bool)),
    }


class StoredRow(NamedTuple):
    """A span with what is known of it."""

    run: Stored
    span: Span
    row: int
    """In the table as it was recorded."""
    place: ProcessPlace

    def of_resource(self, key: str) -> str | None:
        found = self.run.shown(self.span.resource).get(key)
        return None if found is None else str(found)

    def of_span(self, key: str) -> str | None:
        found = self.run.shown(self.span.attributes).get(key)
        return None if found is None else str(found)


class Column(NamedTuple):
    """One column."""

    name: str
    kind: str
    """``string``, ``boolean``, ``int32``, ``int64`` or ``timestamp`` (nanoseconds without a zone: UTC)."""
    value: Callable[[StoredRow], Any] | None
    """None for a column of the analysis: see :func:`of_calls`."""
    meaning: str


def _object(found: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str | None:
    return as_json(found) if found else None


def _events(each: StoredRow) -> str | None:
    return _object(
        [
            {"attributes": each.run.shown(event.attributes), "name": event.name, "time_unix_nano": event.time_ns}
            for event in each.span.events
        ]
    )


def _links(each: StoredRow) -> str | None:
    shows_all = each.run.redaction.attributes
    return _object(
        [
            {
                "attributes": each.run.shown(link.attributes),
                "span_id": link.span_id,
                "trace_id": link.trace_id,
                "trace_state": link.trace_state if shows_all else "",
            }
            for link in each.span.links
        ]
    )


def _duration(each: StoredRow) -> int | None:
    return each.span.end_ns - each.span.start_ns if each.span.end_ns else None


COLUMNS = (
    Column("start_time_unix_nano", "timestamp", lambda each: each.span.start_ns, "start, in UTC"),
    Column("duration_time_unix_nano", "int64", _duration, "nanoseconds; null without an end"),
    Column("trace_id", "string", lambda each: each.span.trace_id, "in hexadecimal"),
    Column("span_id", "string", lambda each: each.span.span_id, "in hexadecimal"),
    Column("parent_span_id", "string", lambda each: each.span.parent_id or None, "null for a span without a parent"),
    Column(
        "trace_state",
        "string",
        lambda each: (each.span.trace_state if each.run.redaction.attributes else "") or None,
        "of W3C's trace context",
    ),
    Column("service_name", "string", lambda each: each.place.service or None, "`service.name` of the Resource"),
    Column("service_namespace", "string", lambda each: each.of_resource("service.namespace"), "likewise"),
    Column("service_instance_id", "string", lambda each: each.of_resource("service.instance.id"), "likewise"),
    Column("name", "string", lambda each: each.span.name, "of the span"),
    Column("kind", "int32", lambda each: each.span.kind, "1 internal, 2 server, 3 client, 4 producer, 5 consumer"),
    Column("status_code", "int32", lambda each: each.span.status_code, "0 unset, 1 OK, 2 error"),
    Column(
        "status_status_message",
        "string",
        lambda each: each.run.redaction.message(each.span.status_message) or None,
        "the message of the status",
    ),
    Column("resource_attributes", "string", lambda each: each.run.resource(each.span.resource), "as a JSON object"),
    Column("scope_name", "string", lambda each: each.span.scope or None, "the library that made the span"),
    Column("scope_version", "string", lambda each: each.span.scope_version or None, "its version"),
    Column("scope_attributes", "string", lambda each: _object(each.run.shown(each.span.scope_attributes)), "as JSON"),
    Column("span_attributes", "string", lambda each: _object(each.run.shown(each.span.attributes)), "as a JSON object"),
    Column("events_json", "string", _events, "a JSON list of `attributes`, `name`, `time_unix_nano`"),
    Column("links_json", "string", _links, "a JSON list of `attributes`, `span_id`, `trace_id`, `trace_state`"),
    Column("dropped_attributes_count", "int32", lambda each: each.span.dropped[0], "what the recorder dropped"),
    Column("dropped_events_count", "int32", lambda each: each.span.dropped[1], "likewise"),
    Column("dropped_links_count", "int32", lambda each: each.span.dropped[2], "likewise"),
    Column("flags", "int32", lambda each: each.span.flags, "of the span"),
    Column(
        "state",
        "string",
        lambda each: STATES[each.run.recorded.state[each.row]],
        "`ended`, `running` when it was read, or `lost`: its process died before it ended",
    ),
    Column("error_type", "string", lambda each: each.of_span(names.ERROR_TYPE), "the class of the exception"),
    Column(
        "ray_role",
        "string",
        None,
        "`driver`, `submission`, `execution`, `get`, `wait`, `put` or `await`; null for other spans",
    ),
    Column("ray_function", "string", None, "of a call, as the summary names it"),
    Column("ray_task_id", "string", lambda each: each.of_span(names.RAY_TASK_ID), "the task that the call makes"),
    Column("ray_actor_id", "string", lambda each: each.of_span(names.RAY_ACTOR_ID), "the actor that is called"),
    Column("ray_job_id", "string", lambda each: each.of_span(names.RAY_JOB_ID), "the job"),
    Column("ray_queue_ns", "int64", None, "from the submission of a call to its start, on its first execution"),
    Column("ray_self_ns", "int64", None, "the self time of an execution"),
    Column("ray_path_ns", "int64", None, "how long the code of an execution ran on the critical path"),
    Column(
        "ray_self_is_assumed", "boolean", None, "whether the self time is assumed, since its waits were not recorded"
    ),
    Column("ray_run_ns", "int64", None, "the duration of an execution; without an end, as long as is known"),
    Column("ray_is_call", "boolean", None, "true on one span of each call: its submission, or its first execution"),
    Column(
        "ray_failed",
        "boolean",
        None,
        "of a call's spans: whether an execution failed, or a submission whose call did not run",
    ),
    Column("ray_is_retry", "boolean", None, "whether an execution is not the first of its call"),
    Column(
        "subject_kind",
        "string",
        None,
        "`deployment` for a request in a replica, `span` for a span of the program; null for other spans",
    ),
    Column("subject", "string", None, "the name that `compare` gives it: that of the method, or of the span"),
    Column("subject_self_ns", "int64", None, "its time in which no span below it ran"),
    Column("subject_makes_calls", "boolean", None, "whether a submission is directly below it"),
    Column(
        "clock_shift_ns", "int64", None, "what the commands add to its times, since the clock of its machine differs"
    ),
    Column("ray_node_id", "string", lambda each: each.place.node or None, "of the process that recorded the span"),
    Column("ray_worker_id", "string", lambda each: each.place.worker or None, "likewise"),
    Column("host_name", "string", lambda each: each.place.host or None, "likewise"),
    Column("process_pid", "string", lambda each: each.place.pid or None, "likewise"),
)
"""All columns, in order."""

OF_OTLP = 24


def _stored(value: Any) -> Any:
    """A value as a column takes it: UTF-8 cannot encode lone surrogates."""
    return encoded(value).decode() if isinstance(value, str) and not value.isascii() else value
