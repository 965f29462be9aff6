"""The columns of calls for spans of a table that has none, such as one with only the columns of OTLP.

Each trace is analyzed by itself, so the result is the same however traces are shared out to processes. A run of one
trace comes to what a store has of it. Of several traces, each has a critical path of its own. Needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.ingest.load import collector_paused
from ray_tracing_hooks._insight.ingest.parquet import read_rows, span_of, typed
from ray_tracing_hooks._insight.model.columns import Columns, Origins
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.store.columns import COLUMNS, of_calls

OF_CALLS = (
    *("ray_role", "ray_function", "ray_queue_ns", "ray_self_ns", "ray_path_ns", "ray_self_is_assumed"),
    *("ray_run_ns", "ray_is_call", "ray_failed"),
)
"""The names of the columns that summaries need."""

TOOK = "duration_time_unix_nano"

_ABOUT = ("spans", "unreadable", "start", "end")

_Rows = dict[str, list[Any]]


def computed(spans: Any, now_ns: int | None = None) -> Any:
    """The columns ``OF_CALLS`` and ``TOOK`` of the spans of calls, as a table of pyarrow. Its last row has others: the
    number of ``spans``, how many rows are ``unreadable``, the first ``start`` and the last ``end``.

    ``spans`` are whole traces in such a table, with the columns that ``read_rows`` takes. ``now_ns`` is when they were
    read first, if that is known.
    """
    arrow = import_module("pyarrow")
    kinds = {"string": arrow.string(), "boolean": arrow.bool_(), "int64": arrow.int64()}
    columns = [(each.name, kinds[each.kind]) for each in COLUMNS if each.name in OF_CALLS]
    schema = arrow.schema([*columns, *((name, arrow.int64()) for name in (TOOK, *_ABOUT))])
    found: _Rows = {name: [] for name in schema.names}
    known, bad, starts, ends = 0, 0, [], []
    with collector_paused():
        for trace in _traces(spans):
            read = Columns()
            read_rows(read, trace)
            bad += read.quality.bad_spans
            if len(read):
                table = Table([("", read)], Quality(), now_ns, _Details(trace))
                known += len(table)
                starts.append(table.start[0])
                ends.append(max(table.ends))
                _add(found, table)
    about = dict(zip(_ABOUT, (known, bad, min(starts, default=None), max(ends, default=None)), strict=True))
    calls = len(found[TOOK])
    return arrow.table(
        {name: [*(values or [None] * calls), about.get(name)] for name, values in found.items()}, schema=schema
    )


def _traces(spans: Any) -> Iterator[Any]:
    """The rows of each trace."""
    compute, spans = import_module("pyarrow.compute"), typed(spans)
    spans = spans.append_column("trace", compute.utf8_lower(spans["trace_id"]))
    spans = spans.take(compute.sort_indices(spans["trace"])).combine_chunks()
    ids = spans["trace"].to_numpy(zero_copy_only=False)
    begins = np.nonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))[0].tolist() if len(ids) else []
    for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
        yield spans.slice(begin, end - begin)


class _Details:
    """The rest of the spans of some rows."""

    def __init__(self, rows: Any) -> None:
        self._rows, self._origins = rows, Origins()

    def add(self, _path: str, origins: Origins, _first: int) -> None:
        self._origins = origins

    def span(self, number: int, resource: dict[str, Any], scope: str) -> Span | None:
        (row,) = self._rows.slice(self._origins.of(number)[1], 1).to_pylist()
        try:
            return span_of(row, resource, scope)
        except (*MALFORMED, msgspec.MsgspecError):
            return None


def _add(found: _Rows, table: Table) -> None:
    analysis = Analysis.corrected(table)
    rows = np.nonzero(as_numpy(analysis.calls.call_of) >= 0)[0]
    columns = of_calls(analysis)
    for name in OF_CALLS:
        values, is_known = columns[name]
        found[name] += np.where(is_known, values, None)[rows].tolist()
    table = analysis.table
    found[TOOK] += (as_numpy(table.ends) - as_numpy(table.start))[rows].tolist()
