"""How long the critical path was in certain spans, or in certain processes at certain times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ray_tracing_hooks._insight.analysis.critical_path import REPLICA_QUEUE, REQUEST_DELIVERY, Path
from ray_tracing_hooks._insight.analysis.functions import covered
from ray_tracing_hooks._insight.model.serve_spans import ServeSpans
from ray_tracing_hooks._insight.model.table import Table

Times = Sequence[tuple[int, int]]


def around(table: Table, row: int, rows: Collection[int]) -> int:
    """The nearest of these rows that a row is, or is below; -1 if there is none."""
    if row >= len(table):
        return -1
    while row >= 0 and row not in rows:
        row = table.parent[row]
    return row


def within(table: Table, path: Path, rows: Collection[int]) -> Counter[int]:
    """For each of these rows the time of the path in it and in all that is below it, but in none of the others."""
    found: Counter[int] = Counter()
    for step in path.steps if rows else ():
        if (row := around(table, step.row, rows)) >= 0:
            found[row] += step.end - step.start
    return found


def in_replicas(spans: ServeSpans, path: Path, times: Mapping[int, Times]) -> int:
    """The time of the path in requests that replicas of Ray Serve ran, and in what these called as tasks or methods of
    actors, as far as it is in ``times`` of the process of the replica.
    """
    found = 0
    for step in path.steps:
        if 0 <= step.row < len(spans.table) and step.kind not in (REPLICA_QUEUE, REQUEST_DELIVERY):
            frame = spans.around(step.row)
            its = times.get(int(spans.resource[frame]), ()) if frame >= 0 else ()
            found += covered(its, step.start, step.end) if its else 0
    return found
