"""A Parquet table with one row per span, by start, and the columns of :data:`COLUMNS`. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.processes import ProcessPlace, places
from ray_tracing_hooks._insight.model.span import KIND_NAMES, STATUS_NAMES, Span
from ray_tracing_hooks._insight.views.exports.selection import Source, as_json, encoded

_ROWS = 50_000
"""Rows in a row group, which is the unit held in memory."""


class _Row(NamedTuple):
    span: Span
    end_ns: int
    place: ProcessPlace
    source: Source


class Column(NamedTuple):
    """One column of the table."""

    name: str
    kind: str
    """``string``, ``category`` (a string with few values), ``int64``, ``timestamp`` (nanoseconds, UTC) or ``json``."""
    value: Callable[[_Row], Any]
    meaning: str


def _attribute(key: str) -> Callable[[_Row], Any]:
    def value(row: _Row) -> Any:
        found = row.source.shown(row.span.attributes).get(key)
        return None if found is None else str(found)

    return value


COLUMNS = (
    Column("trace_id", "category", lambda row: row.span.trace_id, "in hexadecimal"),
    Column("span_id", "string", lambda row: row.span.span_id, "in hexadecimal"),
    Column("parent_span_id", "string", lambda row: row.span.parent_id or None, "null for a span without a parent"),
    Column("name", "category", lambda row: row.span.name, ""),
    Column("kind", "category", lambda row: KIND_NAMES.get(row.span.kind), "PRODUCER for submissions, CONSUMER ..."),
    Column("start_time", "timestamp", lambda row: row.span.start_ns, ""),
    Column("end_time", "timestamp", lambda row: row.span.end_ns or None, "null if unknown"),
    Column("duration_ns", "int64", lambda row: row.end_ns - row.span.start_ns, "for a running span, until it was read"),
    Column(
        "state", "category", lambda row: row.span.state, "ended, running, or lost: its process died before it ended"
    ),
    Column("status", "category", lambda row: STATUS_NAMES.get(row.span.status_code), "OK, ERROR or null"),
    Column("status_message", "string", lambda row: row.source.redaction.message(row.span.status_message) or None, ""),
    Column("error_type", "category", _attribute(names.ERROR_TYPE), "the class of the exception"),
    Column("function", "category", _attribute(names.RAY_FUNCTION), "as in ray.function"),
    Column("task_id", "string", _attribute(names.RAY_TASK_ID), "the task that the call creates"),
    Column("actor_id", "category", _attribute(names.RAY_ACTOR_ID), "the actor that is called"),
    Column("job_id", "category", _attribute(names.RAY_JOB_ID), ""),
    Column("node_id", "category", lambda row: row.place.node or None, "of the process that recorded the span"),
    Column("host", "category", lambda row: row.place.host or None, ""),
    Column("worker_id", "category", lambda row: row.place.worker or None, ""),
    Column("pid", "category", lambda row: row.place.pid or None, ""),
    Column("service", "category", lambda row: row.place.service or None, "service.name"),
    Column("scope", "category", lambda row: row.span.scope or None, "the library that made the span"),
    Column("attributes", "json", lambda row: row.source.shown(row.span.attributes), "all attributes"),
    Column(
        "events",
        "json",
        lambda row: [
            {
                "name": each.name,
                "time_unix_nano": each.time_ns,
                "attributes": row.source.shown(each.attributes),
            }
            for each in row.span.events
        ],
        "a list, null if there are none",
    ),
    Column(
        "links",
        "json",
        lambda row: [
            {
                "trace_id": each.trace_id,
                "span_id": each.span_id,
                "attributes": row.source.shown(each.attributes),
            }
            for each in row.span.links
        ],
        "a list, null if there are none",
    ),
    Column(
        "resource",
        "category",
        lambda row: as_json(row.source.shown(row.span.resource)),
        "its attributes as JSON",
    ),
)
"""The columns, in order."""


def write(source: Source, out: BinaryIO) -> Sequence[str]:
    """Write all spans; returns notes for the user. Raises ImportError without pyarrow."""
    # Imported here because it is large, not needed elsewhere, and not installed where types are checked.
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    kinds = {
        "string": pyarrow.string(),
        "json": pyarrow.string(),
        "category": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "int64": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("ns", tz="UTC"),
    }
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in COLUMNS])
    table = source.table
    where = places(table)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for first in range(0, len(table), _ROWS):
            rows = range(first, min(first + _ROWS, len(table)))
            values: list[list[Any]] = [[None] * len(rows) for _ in COLUMNS]
            for row in table.as_recorded(rows):
                described = _Row(table.span(row), table.end_or_now(row), where.place(row), source)
                for column, into in zip(COLUMNS, values, strict=True):
                    into[row - first] = _stored(column, column.value(described))
            arrays = [pyarrow.array(column, field.type) for column, field in zip(values, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            source.on_spans(len(rows))
    return []


def _stored(column: Column, value: Any) -> Any:
    if column.kind == "json":
        value = as_json(value) if value else None
    # UTF-8 cannot encode lone surrogates.
    return encoded(value).decode() if isinstance(value, str) and not value.isascii() else value
