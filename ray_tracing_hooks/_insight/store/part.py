"""A part of a run in a store as a run of its own, for views that hold spans in memory. DuckDB chooses and copies it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._insight.ingest.kept_runs import RUN_FILE, KeptRun
from ray_tracing_hooks._insight.store.tables import opened, quoted

_FILE = "traces-part.parquet"


class Part(NamedTuple):
    """What was copied."""

    file: str
    spans: int
    until_ns: int | None
    """If a trace has too many spans: when the last span of the part began, from the first of the run or trace on."""
    is_sample: bool
    """Whether it has only some of the traces."""


def traces_of(run: KeptRun, beginning: str) -> list[str]:
    """The ids of its traces that start with this. Raises as :func:`copied` does."""
    with opened(run.files) as database:
        rows = database.execute("SELECT DISTINCT trace_id FROM spans WHERE starts_with(trace_id, ?)", [beginning])
        return [trace for (trace,) in rows.fetchall()]


def copied(
    run: KeptRun, folder: str, most: int, *, trace: str | None = None, begin: int | None = None, end: int | None = None
) -> Part:
    """Copy the spans of a trace, or those that ran between two times, with their ancestors; at most about ``most``.

    If there are more, they are whole traces that their ids choose. If a trace has more than ``most``, they are the
    first ones. Times are nanoseconds from the first span of the run on, or of the trace. Raises ImportError without
    DuckDB, and OSError if files cannot be read or written.
    """
    into = os.path.join(folder, os.path.basename(os.path.abspath(run.folder)))
    os.makedirs(into)
    with opened(run.files) as database:
        (first,) = database.execute(
            "SELECT min(epoch_ns(start_time_unix_nano)) FROM spans WHERE trace_id = coalesce(?, trace_id)", [trace]
        ).fetchone()
        spans, until, is_sample = _choose(database, most, *_which(first, trace, begin, end))
        if until is not None or begin is not None or end is not None:
            spans += database.execute(_ADD_ANCESTORS).fetchone()[0]
        path = os.path.join(into, _FILE)
        database.execute(
            "COPY (SELECT spans.* EXCLUDE (file, file_row_number) FROM spans JOIN chosen USING (file, file_row_number)"  # noqa: S608  as in `tables`
            f") TO {quoted(path)} (FORMAT parquet, ROW_GROUP_SIZE 16384)"
        )
    with open(os.path.join(into, RUN_FILE), "w", encoding="utf-8") as described:
        json.dump(run.document | {"files": [{"name": _FILE, "rows": spans}]}, described)
    return Part(path, spans, None if until is None else until - first, is_sample)


def _which(first: int, trace: str | None, begin: int | None, end: int | None) -> tuple[str, list[Any]]:
    """The condition for the spans that are wanted, and its parameters."""
    wanted: list[tuple[str, Any]] = []
    if trace is not None:
        wanted.append(("trace_id = ?", trace))
    if end is not None:
        wanted.append(("epoch_ns(start_time_unix_nano) < ?", first + max(end, 1)))
    if begin is not None:
        ended = "epoch_ns(start_time_unix_nano) + duration_time_unix_nano"
        wanted.append((f"coalesce({ended} >= ?, true)", first + begin))
    return " AND ".join(["true", *(each for each, _ in wanted)]), [value for _, value in wanted]


def _choose(database: Any, most: int, which: str, values: Sequence[Any]) -> tuple[int, int | None, bool]:
    """Make the table ``chosen``; the number of its spans, when the last one began if they are the first ones, and
    whether they are of some traces.
    """
    database.execute(
        f"CREATE TEMP TABLE traces AS SELECT trace_id, count(*) AS many FROM spans WHERE {which} GROUP BY ALL",  # noqa: S608
        values,
    )
    largest, total = database.execute("SELECT coalesce(max(many), 0), coalesce(sum(many), 0) FROM traces").fetchone()
    is_cut = largest > most
    is_sample = total > most and not is_cut
    if is_sample:
        database.execute(
            "DELETE FROM traces WHERE trace_id NOT IN (SELECT trace_id FROM (SELECT trace_id, sum(many) OVER "
            "(ORDER BY hash(trace_id), trace_id) AS upto FROM traces) WHERE upto <= ?)",
            [most],
        )
    if is_cut:
        # By its place, as DuckDB holds in memory what it sorts up to a limit.
        file, row = database.execute(
            f"SELECT file, file_row_number FROM spans WHERE {which} ORDER BY ALL LIMIT 1 OFFSET {most - 1}",  # noqa: S608
            values,
        ).fetchone()
        which += f" AND (file < {file} OR file = {file} AND file_row_number <= {row})"
    database.execute(
        "CREATE TEMP TABLE chosen AS SELECT file, file_row_number, trace_id, span_id, parent_span_id, "  # noqa: S608
        f"epoch_ns(start_time_unix_nano) AS start FROM spans SEMI JOIN traces USING (trace_id) WHERE {which}",
        values,
    )
    spans, last = database.execute("SELECT count(*), max(start) FROM chosen").fetchone()
    return spans, last if is_cut else None, is_sample


_ADD_ANCESTORS = """
WITH RECURSIVE missing AS (
    SELECT trace_id, parent_span_id AS span_id FROM chosen EXCEPT SELECT trace_id, span_id FROM chosen
), inside AS MATERIALIZED (
    SELECT file, file_row_number, trace_id, span_id, parent_span_id, epoch_ns(start_time_unix_nano) AS start
    FROM spans SEMI JOIN missing USING (trace_id)
), above AS (
    SELECT inside.* FROM inside SEMI JOIN missing USING (trace_id, span_id)
    UNION
    SELECT inside.* FROM inside JOIN above ON inside.trace_id = above.trace_id AND inside.span_id = above.parent_span_id
)
INSERT INTO chosen SELECT * FROM above ANTI JOIN chosen USING (file, file_row_number)
"""
"""Adds the spans above those that are chosen. Traces may have circles of parents."""
