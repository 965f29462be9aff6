"""The columns of a store of runs.

The first :data:`OF_OTLP` are those of duckdb-otlp's ``read_otlp_traces()``, with the same names, types and JSON, so a
query that was written for it runs on a store. The others are this package's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.measured import ProgramSpans, program_spans
from ray_tracing_hooks._insight.model.calls import DRIVER, EXECUTION, FUTURE, GET, OTHER, PUT, SUBMISSION, WAIT
from ray_tracing_hooks._insight.model.processes import ProcessPlace, places
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import STATES, Table
from ray_tracing_hooks._insight.views.exports.selection import as_json, encoded
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
        self.analysis = analysis
        self.places = places(recorded)
        self._resources: dict[int, str | None] = {}
        # Correcting clocks changes the order of rows, and what the analysis says belongs to its own.
        own = analysis.table
        self._row_of = {(own.trace[row], own.span_id[row]): row for row in range(len(own))} if own.shifts else None
        calls = analysis.calls
        self._queued = {
            calls.first[call]: int(time)
            for call, time in enumerate(calls.queued().tolist())
            if time >= 0 and calls.first[call] >= 0
        }

    def row(self, row: int) -> StoredRow:
        """A span of ``recorded``."""
        table = self.recorded
        own = row if self._row_of is None else self._row_of[table.trace[row], table.span_id[row]]
        return StoredRow(self, table.recorded(row), row, own, self.places.place(row))

    def queued(self, own: int) -> int | None:
        return self._queued.get(own)

    def is_assumed(self, own: int) -> bool:
        return self.analysis.is_assumed([own])

    def is_call(self, own: int) -> bool | None:
        calls = self.analysis.calls
        call = calls.call_of[own]
        if call < 0:
            return None
        first = calls.submission[call] if calls.submission[call] >= 0 else calls.first[call]
        return bool(first == own)

    def shift(self, own: int) -> int:
        table = self.analysis.table
        return table.shifts[table.resource[own]] if table.shifts else 0

    @cached_property
    def of_program(self) -> ProgramSpans:
        return program_spans(self.analysis)

    @cached_property
    def place_of_program(self) -> Any:
        """For each row of the analysis, its place in :attr:`of_program`; -1 without one."""
        found = np.full(len(self.analysis.table), -1)
        found[self.of_program.rows] = np.arange(len(self.of_program.rows))
        return found

    def is_retry(self, own: int) -> bool:
        calls = self.analysis.calls
        return bool(calls.first[calls.call_of[own]] != own)

    def failed(self, own: int) -> bool | None:
        calls = self.analysis.calls
        call = calls.call_of[own]
        if call < 0:
            return None
        is_refused = calls.submission[call] == own and calls.execution[call] < 0
        return bool(self.analysis.is_failed[own]) and (calls.role[own] == EXECUTION or is_refused)

    def resource(self, attributes: dict[str, Any]) -> str | None:
        """A Resource as JSON. Its spans share the dictionary."""
        key = id(attributes)
        if key not in self._resources:
            self._resources[key] = _object(self.shown(attributes))
        return self._resources[key]

    def shown(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.redaction.shown(attributes)


class StoredRow(NamedTuple):
    """A span with what is known of it."""

    run: Stored
    span: Span
    row: int
    """In the table as it was recorded."""
    own: int
    """In the table of the analysis."""
    place: ProcessPlace

    @property
    def is_execution(self) -> bool:
        return self.run.analysis.calls.role[self.own] == EXECUTION

    def of_resource(self, key: str) -> str | None:
        found = self.run.shown(self.span.resource).get(key)
        return None if found is None else str(found)

    def of_span(self, key: str) -> str | None:
        found = self.run.shown(self.span.attributes).get(key)
        return None if found is None else str(found)

    def function(self) -> str | None:
        """The function of a call, as the summary names it."""
        calls = self.run.analysis.calls
        return calls.function_of(self.own) if calls.call_of[self.own] >= 0 else None

    def of_program(self, value: Callable[[ProgramSpans, int], Any]) -> Any:
        """What a span of the program or a method of a deployment has; None for any other span."""
        place = self.run.place_of_program[self.own]
        return value(self.run.of_program, place) if place >= 0 else None


class Column(NamedTuple):
    """One column."""

    name: str
    kind: str
    """``string``, ``boolean``, ``int32``, ``int64`` or ``timestamp`` (nanoseconds without a zone: UTC)."""
    value: Callable[[StoredRow], Any]
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
        lambda each: _ROLES[each.run.analysis.calls.role[each.own]],
        "`driver`, `submission`, `execution`, `get`, `wait`, `put` or `await`; null for other spans",
    ),
    Column("ray_function", "string", StoredRow.function, "of a call, as the summary names it"),
    Column("ray_task_id", "string", lambda each: each.of_span(names.RAY_TASK_ID), "the task that the call makes"),
    Column("ray_actor_id", "string", lambda each: each.of_span(names.RAY_ACTOR_ID), "the actor that is called"),
    Column("ray_job_id", "string", lambda each: each.of_span(names.RAY_JOB_ID), "the job"),
    Column(
        "ray_queue_ns",
        "int64",
        lambda each: each.run.queued(each.own),
        "from the submission of a call to its start, on its first execution",
    ),
    Column(
        "ray_self_ns",
        "int64",
        lambda each: each.run.analysis.self_time[each.own] if each.is_execution else None,
        "the self time of an execution",
    ),
    Column(
        "ray_path_ns",
        "int64",
        lambda each: each.run.analysis.ran_on_path.get(each.own, 0) if each.is_execution else None,
        "how long the code of an execution ran on the critical path",
    ),
    Column(
        "ray_self_is_assumed",
        "boolean",
        lambda each: each.run.is_assumed(each.own) if each.is_execution else None,
        "whether the self time is assumed, since its waits were not recorded",
    ),
    Column(
        "ray_run_ns",
        "int64",
        lambda each: each.run.analysis.table.duration(each.own) if each.is_execution else None,
        "the duration of an execution; without an end, as long as is known",
    ),
    Column(
        "ray_is_call",
        "boolean",
        lambda each: each.run.is_call(each.own),
        "true on one span of each call: its submission, or its first execution",
    ),
    Column(
        "ray_failed",
        "boolean",
        lambda each: each.run.failed(each.own),
        "of a call's spans: whether an execution failed, or a submission whose call did not run",
    ),
    Column(
        "ray_is_retry",
        "boolean",
        lambda each: each.run.is_retry(each.own) if each.is_execution else None,
        "whether an execution is not the first of its call",
    ),
    Column(
        "subject_kind",
        "string",
        lambda each: each.of_program(ProgramSpans.kind),
        "`deployment` for a request in a replica, `span` for a span of the program; null for other spans",
    ),
    Column(
        "subject",
        "string",
        lambda each: each.of_program(lambda found, place: found.labels[found.label[place]]),
        "the name that `compare` gives it: that of the method, or of the span",
    ),
    Column(
        "subject_self_ns",
        "int64",
        lambda each: each.of_program(lambda found, place: int(found.own[place])),
        "its time in which no span below it ran",
    ),
    Column(
        "subject_makes_calls",
        "boolean",
        lambda each: each.of_program(lambda found, place: bool(found.makes_calls[place])),
        "whether a submission is directly below it",
    ),
    Column(
        "clock_shift_ns",
        "int64",
        lambda each: each.run.shift(each.own),
        "what the commands add to its times, since the clock of its machine differs",
    ),
    Column("ray_node_id", "string", lambda each: each.place.node or None, "of the process that recorded the span"),
    Column("ray_worker_id", "string", lambda each: each.place.worker or None, "likewise"),
    Column("host_name", "string", lambda each: each.place.host or None, "likewise"),
    Column("process_pid", "string", lambda each: each.place.pid or None, "likewise"),
)
"""All columns, in order."""

OF_OTLP = 24


def stored(value: Any) -> Any:
    """A value as a column takes it: UTF-8 cannot encode lone surrogates."""
    return encoded(value).decode() if isinstance(value, str) and not value.isascii() else value
