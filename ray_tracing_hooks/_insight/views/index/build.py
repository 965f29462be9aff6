"""Makes the index of a run, and the page that uses it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from operator import sub as minus
from typing import Any, BinaryIO

import numpy as np

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.graph import edges
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.views import page
from ray_tracing_hooks._insight.views.index.answers import Answers
from ray_tracing_hooks._insight.views.index.bars import laid_out, rows_of_lanes
from ray_tracing_hooks._insight.views.index.figures import figures, queues, strip
from ray_tracing_hooks._insight.views.index.mapped import opened, save, save_table
from ray_tracing_hooks._insight.views.page import datasets, ranks, requests
from ray_tracing_hooks._insight.views.page.breakdown import rows_of
from ray_tracing_hooks._insight.views.page.content import Whole, described, on_path, whole
from ray_tracing_hooks._insight.views.page.flags import ON_PATH, flags_of
from ray_tracing_hooks._insight.views.page.pack import plain
from ray_tracing_hooks._insight.views.page.report import longest_steps
from ray_tracing_hooks._insight.views.redaction import Redaction

_MOST_STEPS = 2_000
_MOST_ROWS = 50_000
"""The most spans in the page itself: of the critical path, requests, datasets, and those that findings refer to."""

_MOST_EVIDENCE = 200

Told = Callable[[str], None]


def build(folder: str, file: BinaryIO, analysis: Analysis, *, source: str, on_step: Told = lambda _step: None) -> None:
    """Write the index of a run into a folder, and the page that requests its spans from a server.

    ``on_step`` is called with the name of each step when it starts.
    """
    redaction = Redaction()
    source = page.truncated(analysis.name, 100) or source
    table = analysis.table
    # Columns are written as soon as they are known and then used from their files, so that memory holds few of them.
    on_step("files")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    save_table(folder, table)
    on_step("critical path")
    steps = longest_steps(analysis.path, _MOST_STEPS)
    on_step("findings, lanes and stacks")
    drawn = whole(analysis)
    on_step("tables")
    evidence = [row for finding in drawn.findings for row in finding.rows[:_MOST_EVIDENCE]]
    chosen = dict.fromkeys(
        row
        for row in (
            *on_path(analysis, steps),
            *datasets.rows_of(analysis.pipelines),
            *requests.rows_of(analysis.requests),
            *evidence,
            *rows_of(drawn.split),
        )
        if 0 <= row < len(table)
    )
    rows = sorted(list(chosen)[:_MOST_ROWS])
    position = {row: number for number, row in enumerate(rows)}

    def number(row: int) -> int:
        return position.get(row, -1)

    meta, name_of, resource_of = described(analysis, drawn, source, number, redaction, _MOST_STEPS)
    meta |= ranks.described(analysis, int)  # the page requests the spans that it does not hold
    meta["deepest"] = rows_of_lanes(drawn.lanes)
    on_step("columns")
    save(folder, _columns(analysis, drawn, name_of, resource_of))
    del drawn
    on_step("bars")
    save(folder, laid_out(opened(folder), meta["deepest"]))
    save(folder, _edges(analysis))
    on_step("figures")
    columns = opened(folder)
    extent, lanes, count = meta["extent"], meta["lanes"], len(meta["places"])
    sizes = len(meta["flame"]["parent"]), count, len(meta["graph"]["functions"])
    found = figures(columns, range(len(table)), 0, extent, lanes, sizes)
    failed = strip(columns, table.parent, range(len(table)), extent, has_calls=bool(meta["executions"]))[1]
    waiting = queues(columns, lanes, count, extent)
    on_step("page")
    with open(os.path.join(folder, "meta.json"), "w", encoding="utf-8") as text:
        json.dump(plain(meta, is_exact=False), text)
    answers = Answers(folder)
    embedded: dict[str, Any] = {**answers.spans(rows), "begins": columns["bar_begins"]}
    for name in ("busy", "calls", "errors"):
        embedded[f"place_{name}"] = getattr(found, name)
    embedded["strip_failed"] = failed
    embedded["waited"] = [
        each for queue in waiting if queue for each in map(minus, queue.waited, [0, *queue.waited[:-1]])
    ]
    meta["waiting"] = [queue.most if queue else 0 for queue in waiting]
    meta["traces"] = []
    meta["running"] = table.quality.running > 0
    meta["served"] = True
    kept_edges = [edge for row in rows for edge in answers.edges(row) if edge[0] in position and edge[1] in position]
    for part, name in enumerate(("edge_from", "edge_to", "edge_kind")):
        embedded[name] = [edge[part] for edge in dict.fromkeys(kept_edges)]
    page.write_served(file, meta, embedded, source=source)


def _columns(analysis: Analysis, drawn: Whole, name_of: dict[int, int], resource_of: dict[int, int]) -> dict[str, Any]:
    table, calls = analysis.table, analysis.calls
    begin = table.start[0] if len(table) else 0
    start, ends = as_numpy(table.start), as_numpy(drawn.ends)
    flags = flags_of(table.kind, table.status, table.state, calls.role)
    for step in analysis.shown_steps:
        if 0 <= step.row < len(table):
            flags[step.row] |= ON_PATH
    submission, queued = np.zeros(len(table), np.uint32), np.zeros(len(table), np.int64)
    # A retry did not wait since the submission.
    made_by, first = as_numpy(calls.submission), as_numpy(calls.first)
    is_whole = (made_by >= 0) & (first >= 0)
    made_by, first = made_by[is_whole], first[is_whole]
    submission[first] = made_by + 1
    queued[first] = np.maximum(0, start[first] - ends[made_by]) + 1
    return {
        "start": as_array(start - begin, "q"),
        "took": as_array(ends - start, "q"),
        "flags": flags,
        "name": as_array(_looked_up(name_of, table.name), "I"),
        "resource": as_array(_looked_up(resource_of, table.resource), "I"),
        "function": as_array(as_numpy(drawn.called.of) + 1, "I"),
        "flame": as_array(as_numpy(drawn.stacks.of), "I"),
        "lane": drawn.lanes.of,
        "depth": drawn.lanes.depth,
        "submission": as_array(submission, "I"),
        "queued": as_array(queued, "q"),
    }


def _looked_up(index: dict[int, int], column: Sequence[int]) -> Any:
    found = np.zeros(max(index, default=-1) + 1, np.uint32)
    found[list(index)] = list(index.values())
    return found[as_numpy(column)]


def _edges(analysis: Analysis) -> dict[str, Sequence[int]]:
    source, to, kind = edges(analysis.calls)
    order = np.lexsort((kind, to, source))
    found = np.stack([source, to, kind])[:, order]
    is_new = np.ones(len(source), bool)
    is_new[1:] = (found[:, 1:] != found[:, :-1]).any(axis=0)
    source, to, kind = found[:, is_new]
    return {
        "edge_from": as_array(source, "I"),
        "edge_to": as_array(to, "I"),
        "edge_kind": bytearray(kind.astype(np.uint8)),
        "edge_by_to": as_array(np.argsort(to, kind="stable"), "I"),
    }
