"""Reads spans from Parquet files with the columns of duckdb-otlp's ``read_otlp_traces()``. Needs pyarrow.

A file of a store of runs has more columns (:mod:`~ray_tracing_hooks._insight.store.columns`). Of these, only ``state``
is read: the others are computed from the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

import msgspec

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._insight.ingest.files import UNREADABLE, FilePart, reason
from ray_tracing_hooks._insight.ingest.otlp_json import explain, id_text
from ray_tracing_hooks._insight.model.columns import ENDED, LOST, MOST_TIME, RUNNING, STATES, Columns, Row, as_byte
from ray_tracing_hooks._insight.model.span import Event, Link, Span

START, DURATION = "start_time_unix_nano", "duration_time_unix_nano"

NEEDED = (
    *(START, DURATION, "trace_id", "span_id", "parent_span_id", "name", "kind", "status_code"),
    *("resource_attributes", "scope_name", "span_attributes"),
)
"""The columns that a table is made of; without any of them, a file is not one of spans."""

STATE = "state"
"""A column of a store, which other programs do not write."""

_NUMBERS = frozenset(
    {
        *(START, DURATION, "kind", "status_code", "flags"),
        *("dropped_attributes_count", "dropped_events_count", "dropped_links_count"),
    }
)

_OF_SPANS = _NUMBERS | {
    *NEEDED,
    STATE,
    *("trace_state", "status_status_message", "scope_version", "scope_attributes", "events_json", "links_json"),
}
"""The columns that a span is made of."""

_decoded = msgspec.json.Decoder(dict[str, Any]).decode
_decoded_list = msgspec.json.Decoder(list[dict[str, Any]]).decode


def read_stored(part: FilePart) -> Columns:
    """The spans of a file. What cannot be read of it is in ``quality``. Raises one of ``UNREADABLE``."""
    columns = Columns()
    file = _opened(part.path)
    adder = _Adder(columns, part.path)
    for number in range(file.num_row_groups):
        try:
            adder.add(number, _group(file, number, [*NEEDED, STATE]))
        except UNREADABLE as error:
            columns.quality.incomplete(part.path, 0, f"row group {number} cannot be read: {reason(error)}")
    return columns


def _opened(path: str) -> Any:
    """The file. Raises one of ``UNREADABLE``."""
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise OSError("reading it needs pyarrow: pip install 'ray-tracing-hooks[insight]'") from None
    # Read as a whole into memory that is freed, and not mapped: another process may replace the file.
    file = parquet.ParquetFile(path, memory_map=False)
    if missing := [name for name in NEEDED if name not in file.schema_arrow.names]:
        raise ValueError(f"it is not a table of spans: it has no column {missing[0]}")
    return file


def _group(file: Any, number: int, wanted: list[str]) -> dict[str, list[Any]]:
    """The values of a row group, by column. Raises one of ``UNREADABLE``."""
    table = file.read_row_group(number, columns=[name for name in wanted if name in file.schema_arrow.names])
    return _typed(table).to_pydict()  # type: ignore[no-any-return, unused-ignore]


def _typed(table: Any) -> Any:
    """The table with the columns that a span is made of, as texts and integers; times are in nanoseconds. Raises
    ValueError if a column has a type for something else.
    """
    arrow = import_module("pyarrow")
    for place, name in enumerate(table.column_names):
        if name in _OF_SPANS:
            column = table.column(name)
            # Pandas has floats in place of integers some of which are missing.
            is_number = arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)
            try:
                if name == START and not is_number:
                    column = column.cast(arrow.timestamp("ns"))
                column = column.cast(arrow.int64() if name in _NUMBERS else arrow.string())
            except arrow.ArrowNotImplementedError:
                expected = "a number" if name in _NUMBERS else "text"
                raise ValueError(f"{name} has the type {column.type}: expected {expected}") from None
            table = table.set_column(place, name, column)
    return table


class _Adder:
    """Adds the rows of a file to columns."""

    def __init__(self, columns: Columns, path: str) -> None:
        self._columns, self._path = columns, path
        self._resources: dict[str | None, int] = {}

    def add(self, number: int, found: Mapping[str, list[Any]]) -> None:
        """Add a row group."""
        columns = self._columns
        columns.origins.begin(number, len(columns))
        states = found.get(STATE) or [None] * len(found[START])
        rows: list[Row] = []
        for place, values in enumerate(zip(*(found[name] for name in NEEDED), states, strict=True)):
            try:
                rows.append(self._row(len(columns) + len(rows), *values))
            except (*MALFORMED, msgspec.MsgspecError) as error:
                columns.quality.bad(self._path, 0, f"row {place} of row group {number}: {explain(error)}", 1)
                columns.origins.begin(number, len(columns) + len(rows), place + 1)
        columns.add(rows)

    def _row(
        self,
        row: int,
        start: int,
        duration: int | None,
        trace_id: str,
        span_id: str,
        parent_id: str | None,
        name: str | None,
        kind: int | None,
        status: int | None,
        resource: str | None,
        scope: str | None,
        attributes: str | None,
        state: str | None,
    ) -> Row:
        columns = self._columns
        ids = int(id_text(span_id, 8), 16), int(id_text(parent_id or "", 8) or "0", 16)
        end = 0 if duration is None else start + duration
        if not (0 < start <= MOST_TIME and 0 <= end <= MOST_TIME):
            raise ValueError("an invalid time")
        plain = _decoded(attributes) if attributes else {}
        pairs, task, caller, submitted = columns.values_of(row, plain.items())
        its_resource = self._resources.get(resource)
        if its_resource is None:
            its_resource = columns.resource_index(_decoded(resource) if resource else {})
            self._resources[resource] = its_resource
        trace = columns.traces.setdefault(id_text(trace_id, 16), len(columns.traces))
        named = columns.names.setdefault(name or "", len(columns.names))
        its_scope = columns.scopes.setdefault(scope or "", len(columns.scopes))
        of_span = its_state(end, plain, state)
        where = trace, named, its_resource, its_scope, columns.site_index(pairs), task, caller
        return start, end, *ids, *where, submitted, as_byte(kind or 0), as_byte(status or 0), of_span


def its_state(end: int, attributes: Mapping[str, Any], state: str | None) -> int:
    """The state of a span, which other programs do not write."""
    if state == STATES[RUNNING] and not end:
        return RUNNING
    return LOST if not end or attributes.get(names.RAY_END_ESTIMATED) else ENDED


# --- Spans with all that they have --------------------------------------------------------------------------------

_MOST_GROUPS = 4

_BLOCK = 256
"""How many rows become objects at once."""


def span_of(row: Mapping[str, Any], resource: dict[str, Any], scope: str) -> Span:
    """The span of a row, which may lack columns that are not ``NEEDED``. Raises one of ``MALFORMED``."""
    attributes = _decoded(row["span_attributes"]) if row["span_attributes"] else {}
    end = row[START] + row[DURATION] if row[DURATION] is not None else 0
    return Span(
        trace_id=id_text(row["trace_id"], 16),
        span_id=id_text(row["span_id"], 8),
        parent_id=id_text(row["parent_span_id"] or "", 8),
        name=row["name"] or "",
        kind=row["kind"] or 0,
        start_ns=row[START],
        end_ns=end,
        status_code=row["status_code"] or 0,
        status_message=row.get("status_status_message") or "",
        attributes=attributes,
        events=[
            Event(str(each.get("name") or ""), int(each.get("time_unix_nano") or 0), each.get("attributes") or {})
            for each in _decoded_list(row.get("events_json") or b"[]")
        ],
        links=[
            Link(
                id_text(each.get("trace_id") or "", 16),
                id_text(each.get("span_id") or "", 8),
                each.get("attributes") or {},
                str(each.get("trace_state") or ""),
            )
            for each in _decoded_list(row.get("links_json") or b"[]")
        ],
        resource=resource,
        scope=scope,
        state=STATES[its_state(end, attributes, row.get(STATE))],
        trace_state=row.get("trace_state") or "",
        flags=row.get("flags") or 0,
        dropped=(
            row.get("dropped_attributes_count") or 0,
            row.get("dropped_events_count") or 0,
            row.get("dropped_links_count") or 0,
        ),
        scope_version=row.get("scope_version") or "",
        scope_attributes=_decoded(row["scope_attributes"]) if row.get("scope_attributes") else {},
    )


class Groups:
    """Row groups of files, for their single spans. The last few that were read are kept."""

    def __init__(self) -> None:
        self._file = lru_cache(None)(_opened)
        self._table = lru_cache(_MOST_GROUPS)(self._read_table)
        self._rows = lru_cache(1)(self._read_rows)

    def span(self, path: str, number: int, place: int, resource: dict[str, Any], scope: str) -> Span | None:
        """A span of a row group, given its resource and scope; None if it no longer exists.

        Raises one of ``UNREADABLE`` or ``MALFORMED``.
        """
        rows = self._rows(path, number, place // _BLOCK)
        if place % _BLOCK >= len(rows):
            return None
        return span_of(rows[place % _BLOCK], resource, scope)

    def close(self) -> None:
        for each in (self._file, self._table, self._rows):
            each.cache_clear()

    def _read_rows(self, path: str, number: int, block: int) -> list[dict[str, Any]]:
        """Some rows of a row group: most spans are wanted with those around them."""
        rows: list[dict[str, Any]] = self._table(path, number).slice(block * _BLOCK, _BLOCK).to_pylist()
        return rows

    def _read_table(self, path: str, number: int) -> Any:
        file = self._file(path)
        return _typed(file.read_row_group(number, [each for each in file.schema_arrow.names if each in _OF_SPANS]))
