"""The content of the page: every figure of the whole run is computed here, and the browser only draws it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis import findings, recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, PathStep
from ray_tracing_hooks._insight.analysis.deadlocks import deadlocks
from ray_tracing_hooks._insight.analysis.findings.finding import Finding
from ray_tracing_hooks._insight.analysis.flame import Flame, flame, own_times
from ray_tracing_hooks._insight.analysis.functions import means, percentile, running
from ray_tracing_hooks._insight.analysis.graph import Graph, caller_of, edges, graph, median_and_most
from ray_tracing_hooks._insight.analysis.lanes import Lanes, ends_of, lanes
from ray_tracing_hooks._insight.model.calls import EXECUTION, WAITS, Calls
from ray_tracing_hooks._insight.model.generations import PHASES
from ray_tracing_hooks._insight.model.grouped import distinct, nearest, split, sums
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.processes import Places, places
from ray_tracing_hooks._insight.model.serve_spans import without_suffix
from ray_tracing_hooks._insight.model.span import CONSUMER, call_name
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.page import libraries, nodes, report
from ray_tracing_hooks._insight.views.page.actors import Apart, apart, without_actor
from ray_tracing_hooks._insight.views.page.pack import CHUNK, LONGEST_NAME, differences, plain, truncated, zigzag
from ray_tracing_hooks._insight.views.page.report import NumberOf
from ray_tracing_hooks._insight.views.page.sample import sample
from ray_tracing_hooks._insight.views.redaction import Redaction

_TOP = 25
_MOST_EDGES = 500_000

# The flags of a span, beside its kind and its state: in one byte, as in assets/figures.js.
_FAILED, _STATE_SHIFT, _WAITING, _ON_PATH = 8, 4, 64, 128


@dataclass
class Content:
    """The content of a page, except for the attributes of its spans."""

    meta: dict[str, Any]
    columns: dict[str, Sequence[int]]
    rows: list[int]
    """The rows of the table that the page shows; a row's position in this list is its number in the page."""
    ends: array[int]
    """The end of each span of the table, or the time up to which it is shown."""


class Whole(NamedTuple):
    """What is computed from all spans of a run, however many of them the page holds."""

    ends: array[int]
    places: Places
    lanes: Lanes
    stacks: Flame
    called: Graph
    apart: Apart | None
    findings: list[Finding]


def whole(analysis: Analysis) -> Whole:
    """The position of each span of a run in each view."""
    table = analysis.table
    ends = ends_of(table)
    where = places(table)
    found = [] if analysis.is_part else findings.find(analysis)
    called = graph(analysis.calls, ends, analysis.is_failed)
    stacks = flame(table, ends, analysis.is_failed)
    split = apart(analysis.calls, where, ends, analysis.is_failed, called)
    return Whole(ends, where, lanes(table, where, ends), stacks, called, split, found)


def content(analysis: Analysis, source: str, most_spans: int, redaction: Redaction) -> Content:
    """The content of the page of this analysis, with at most ``most_spans`` spans. Figures cover all spans."""
    table, calls, path = analysis.table, analysis.calls, analysis.path
    drawn = whole(analysis)
    wanted = (
        *on_path(analysis, path.steps),
        *libraries.rows_of_datasets(analysis.pipelines),
        *libraries.rows_of_requests(analysis.requests, analysis.engines),
    )
    rows = sample(table, drawn.ends, most_spans, wanted)
    position = _positions(table, rows)

    def number(row: int) -> int:
        """The number of a row in the page, -1 if the page does not show it."""
        return position[row] if 0 <= row < len(table) and rows[position[row]] == row else -1

    meta, name_of, resource_of = described(analysis, drawn, source, number, redaction)
    if redaction.attributes:
        meta |= libraries.training(analysis, number)
    traces, trace_of = _used(table.trace, table.traces)
    meta["traces"] = traces
    meta["notes"] += _notes(table, rows)
    columns = _columns(table, calls, drawn.ends, rows, position, drawn.lanes, drawn.stacks, drawn.called)
    if drawn.apart:
        columns["function_apart"] = [drawn.apart.called.of[row] + 1 for row in rows]
        columns["flame_apart"] = [drawn.apart.stacks.of[row] for row in rows]
    columns["name"] = [name_of[table.name[row]] for row in rows]
    columns["trace"] = [trace_of[table.trace[row]] for row in rows]
    columns["resource"] = [resource_of[table.resource[row]] for row in rows]
    ends_shown = ((number(made_by), number(to), kind) for made_by, to, kind in _listed(edges(calls)))
    found = [edge for edge in ends_shown if edge[0] >= 0 <= edge[1]]
    if len(found) > _MOST_EDGES:
        meta["notes"].append(f"Arrows are shown for {_MOST_EDGES:,} of {len(found):,} objects and waits.")
    for part, name in enumerate(("edge_from", "edge_to", "edge_kind")):
        columns[name] = [edge[part] for edge in found[:_MOST_EDGES]]
    phases = _phases(analysis, number)
    for part, name in enumerate(("phase_span", "phase_kind", "phase_from", "phase_to")):
        columns[name] = [phase[part] for phase in phases]
    for step in analysis.shown_steps:
        if (at := number(step.row)) >= 0:
            columns["flags"][at] |= _ON_PATH
    return Content(meta, columns, rows, drawn.ends)


def _phases(analysis: Analysis, number: NumberOf) -> list[tuple[int, int, int, int]]:
    """The phases of generations: the number of the span, which phase, and when it began and ended in the run."""
    found, begin = analysis.generations, analysis.table.start[0] if len(analysis.table) else 0
    return [
        (number(row), PHASES.index(name), since - begin, until - begin)
        for row, phases in (found.phases() if found is not None else {}).items()
        if number(row) >= 0
        for name, since, until in phases
    ]


def described(
    analysis: Analysis, drawn: Whole, source: str, number: NumberOf, redaction: Redaction
) -> tuple[dict[str, Any], dict[int, int], dict[int, int]]:
    """The metadata of the page, and the page's indexes of names and Resources by their indexes in the table.

    ``number`` returns the number of a table row in the page, -1 if the page does not show it.
    """
    table, calls = analysis.table, analysis.calls
    ends, called = drawn.ends, drawn.called
    begin = table.start[0] if len(table) else 0
    end = int(as_numpy(ends).max(initial=begin))
    names, name_of = _used(table.name, [truncated(name, LONGEST_NAME) for name in table.names])
    resources, resource_of = _used(table.resource, table.resources)
    colours = _colour_order(table, ends, name_of)
    function_of = {each.label: index for index, each in enumerate(called.functions)}

    def function(label: str) -> int:
        return function_of.get(label, function_of.get(without_suffix(label), -1))

    meta = {
        "source": source,
        "documentation": report.documentation(),
        "trace_url": "",
        "comparison": None,
        "whole": [],
        "start_ms": begin / 1e6,
        "extent": end - begin,
        "spans": len(table),
        "executions": calls.role.count(EXECUTION) + int(np.count_nonzero(calls.is_in_replica)),
        "chunk": CHUNK,
        "resources": [plain(redaction.shown(resource)) for resource in resources],
        "lanes": [lane.place for lane in drawn.lanes.lanes],
        **nodes.places(drawn.places, analysis.accelerators if redaction.attributes else ()),
        "flame": _flame(drawn.stacks, names, begin),
        "graph": _graph(called, name_of),
        "apart": None,
        "colour_order": colours,
        "strip": strip(analysis, ends, begin),
        "peak": analysis.parallelism.peak if analysis.parallelism.workers else 0,
        "facts": report.facts(analysis),
        "queues": report.queues(analysis),
        "datasets": libraries.datasets_shown(analysis.pipelines, number, begin, redaction),
        "requests": libraries.requests_shown(analysis.requests, analysis.engines, number),
        "serves": analysis.serves,
        "findings": report.described(drawn.findings, number, redaction, analysis.path.wall),
        "ran": recorded.ran(calls),
        "nothing_found": report.nothing_found(analysis),
        "path": report.critical_path(analysis, number, function),
        "quality": report.quality(analysis),
        "deadlocks": [[number(row) for row in circle] for circle in deadlocks(calls)],
        "notes": [] if redaction.attributes else ["Made with --no-attributes: only names, times and places are shown."],
        "details_note": "",
        "names": names,
        "training": [],
        "trainings": 0,
        **nodes.utilization(analysis.utilization, drawn.places, begin, end),
    }
    meta["top_about"], meta["top"] = _top(analysis, ends, drawn.stacks, name_of)
    _mark_path(meta, analysis, drawn.places, drawn.stacks, called)
    if (split := drawn.apart) is not None:
        known = len(names)
        of_actors = {"flame": _flame(split.stacks, names, begin), "graph": _graph(split.called, name_of), "path": {}}
        _mark_path(of_actors, analysis, drawn.places, split.stacks, split.called)
        meta["apart"] = {"graph": of_actors["graph"], "flame": of_actors["flame"], "first": split.is_first}
        group_of = {call_name(names[index]): group for group in colours for index in group}
        for index, label in enumerate(names[known:], known):
            group_of.get(call_name(without_actor(label, drawn.places.places)), []).append(index)
    return meta, name_of, resource_of


STRIP = 600
"""The number of slices in which the page draws how many calls ran at the same time."""


def strip(analysis: Analysis, ends: array[int], begin: int) -> list[float]:
    """How many calls, with those of deployments, ran on average in each slice of the whole time.

    In a trace without any it is spans.
    """
    calls, table = analysis.calls, analysis.table
    extent = int(as_numpy(ends).max(initial=begin)) - begin
    has_requests = calls.is_in_replica.any()
    if EXECUTION in calls.role or has_requests:
        rows, begins, until = running(calls, with_requests=True) if has_requests else analysis.running
        until = np.minimum(until, as_numpy(ends)[rows])
    else:
        begins, until = as_numpy(table.start), as_numpy(ends)
    is_long = until > begins
    return [round(each, 3) for each in means(begins[is_long], until[is_long], begin, extent, STRIP)]


def _listed(columns: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of NumPy columns as Python numbers."""
    return zip(*(column.tolist() for column in columns), strict=True)


def on_path(analysis: Analysis, steps: Iterable[PathStep]) -> list[int]:
    """The rows of the steps and their ancestors, which the page always keeps."""
    size = len(analysis.table)
    wanted = dict.fromkeys(row for step in steps for row in (step.row, step.source) if 0 <= row < size)
    for row in list(wanted):
        above = analysis.table.parent[row]
        while above >= 0 and above not in wanted:
            wanted[above] = None
            above = analysis.table.parent[above]
    return list(wanted)


def _used(column: Sequence[int], values: Sequence[Any]) -> tuple[list[Any], dict[int, int]]:
    """The values that a column refers to, and the new index of each; other runs in the folder use other values."""
    indexes = distinct(column).tolist()
    return [values[index] for index in indexes], {index: number for number, index in enumerate(indexes)}


def _mark_path(meta: dict[str, Any], analysis: Analysis, where: Places, stacks: Flame, called: Graph) -> None:
    """Add to each view the time that the critical path spent there in running code, if the page shows the path.

    The calls of a function by a caller get the time in which the path ran them, waited for their start, or fetched
    their results.
    """
    size = len(analysis.table)
    in_place: dict[int, int] = {}
    on_edge: dict[tuple[int, int], int] = {}
    functions, on_stack = meta["graph"]["functions"], meta["flame"]["path"]
    steps = analysis.shown_steps
    for step in steps:
        row = step.row
        if step.kind != RUN or not 0 <= row < size:
            continue
        length = step.took
        in_place[where.of[row]] = in_place.get(where.of[row], 0) + length
        on_stack[stacks.of[row]] += length
        functions[called.of[row]]["path"] += length
    for row, length in analysis.path.executions.items() if steps else ():
        if 0 <= row < size and analysis.calls.role[row] == EXECUTION:
            edge = caller_of(analysis.calls, called.of, row), called.of[row]
            on_edge[edge] = on_edge.get(edge, 0) + length
    meta["path"]["places"] = in_place
    for edge in meta["graph"]["calls"]:
        edge["path"] = on_edge.get((edge["from"], edge["to"]), 0)


def _positions(table: Table, rows: Sequence[int]) -> array[int]:
    """The number of each table row in the page; for a row that is not shown, that of its nearest ancestor, or -1."""
    number = np.full(len(table) + 1, -1)
    number[list(rows)] = np.arange(len(rows))
    return as_array(number[nearest(number[:-1] >= 0, as_numpy(table.parent))], "q")


def _columns(
    table: Table,
    calls: Calls,
    ends: array[int],
    rows: Sequence[int],
    position: array[int],
    in_lanes: Lanes,
    stacks: Flame,
    called: Graph,
) -> dict[str, Any]:
    is_whole = len(rows) == len(table)
    start = table.start if is_whole else array("q", [table.start[row] for row in rows])

    def taken(column: Sequence[int]) -> Sequence[int]:
        return column if is_whole else [column[row] for row in rows]

    def back(number: int, row: int) -> int:
        parent = table.parent[row]
        above = position[parent] if parent >= 0 else -1
        return 0 if above < 0 or above == number else zigzag(number - above) + 1

    def submitted(row: int) -> int:
        # A retry did not wait since the submission.
        call = calls.call_of[row] if calls.role[row] == EXECUTION else -1
        made_by = calls.submission[call] if call >= 0 and calls.attempts(call)[0] == row else -1
        if made_by < 0:
            return 0
        if made_by == table.parent[row]:
            return 1
        return position[made_by] + 2 if rows[position[made_by]] == made_by else 0

    return {
        "start": differences(start),
        "took": [ends[row] - table.start[row] for row in rows],
        "flags": _flags(table, calls)[rows].tolist(),
        "parent": [back(number, row) for number, row in enumerate(rows)],
        "submission": [submitted(row) for row in rows],
        "lane": taken(in_lanes.of),
        "depth": taken(in_lanes.depth),
        "function": [called.of[row] + 1 for row in rows],
        "flame": taken(stacks.of),
    }


def _flags(table: Table, calls: Calls) -> Any:
    """The flags of each span of the table, except whether it is on the critical path, as a NumPy column."""
    kind, state = as_numpy(table.kind), as_numpy(table.state)
    found = np.where(kind <= CONSUMER, kind, 0) | state << _STATE_SHIFT
    waits = np.isin(as_numpy(calls.role), WAITS)
    return found | np.where(table.is_failed(), _FAILED, 0) | np.where(waits, _WAITING, 0)


def _flame(stacks: Flame, labels: list[str], begin: int) -> dict[str, Any]:
    """The stacks; labels that are not names of spans are added to ``labels``."""
    index = {label: number for number, label in reversed(list(enumerate(labels)))}
    name = []
    for label in stacks.label:
        short = truncated(label, LONGEST_NAME)
        if short not in index:
            index[short] = len(labels)
            labels.append(short)
        name.append(index[short])
    return {
        "name": name,
        "parent": stacks.parent,
        "first": [first - begin for first in stacks.first],
        "errors": stacks.errors,
        "wait": list(map(int, stacks.is_wait)),
        "path": [0] * len(name),
    }


def _graph(found: Graph, name_of: dict[int, int]) -> dict[str, Any]:
    functions = []
    for each in found.functions:
        median, most = median_and_most(each.queue)
        functions.append(
            {
                "label": truncated(each.label, LONGEST_NAME),
                "kind": each.kind,
                "name": name_of[each.name],
                "actor": truncated(each.actor, LONGEST_NAME),
                "method": truncated(each.method, LONGEST_NAME),
                "actors": len(each.actors),
                "queue_p50": median,
                "queue_max": most,
                "path": 0,
                **each.times.figures(),
            }
        )
    calls = [
        {"from": caller, "to": function, "path": 0, **times.figures()}
        for (caller, function), times in found.calls.items()
    ]
    data = [
        {"from": source, "to": to, "count": len(each.objects), "readers": each.readers}
        for (source, to), each in found.data.items()
    ]
    return {"functions": functions, "calls": calls, "data": data}


def _top(
    analysis: Analysis, ends: array[int], stacks: Flame, name_of: dict[int, int]
) -> tuple[str, list[dict[str, Any]]]:
    """The largest self times, and what they mean: of Ray functions, or of spans in a trace without any."""
    table = analysis.table
    if analysis.functions:
        said = "Time in which a function's own code ran, without waits in ray.get and ray.wait"
        about = f"{said}{recorded.own_time(analysis)}."
        return about, [
            _figures(each.name, name_of[table.name[each.executions[0]]], each.self_time, each.self_times, each.failed)
            for each in analysis.functions[:_TOP]
            if each.executions
        ]
    number: dict[str, int] = {}
    of_label = np.array([number.setdefault(label, len(number)) for label in stacks.label], np.int64)
    rows, alone = split(of_label[as_numpy(stacks.of)], len(number), np.arange(len(table)), own_times(table, ends))
    found = [(sum(own.tolist()), label, its, own) for label, its, own in zip(number, rows, alone, strict=True)]
    found.sort(key=lambda each: (-each[0], each[1]))
    is_failed = table.is_failed()
    return "Time in which a span ran and none of its children did.", [
        _figures(label, name_of[table.name[its[0]]], total, np.sort(own).tolist(), int(is_failed[its].sum()))
        for total, label, its, own in found[:_TOP]
    ]


def _figures(label: str, name: int, own: int, times: Sequence[int], errors: int) -> dict[str, Any]:
    """``times`` are the self times, sorted, that add up to ``own``."""
    return {
        "label": truncated(label, LONGEST_NAME),
        "name": name,
        "self": own,
        "count": len(times),
        "errors": errors,
        "p50": percentile(times, 0.5),
        "p95": percentile(times, 0.95),
        "max": times[-1] if times else 0,
    }


def _colour_order(table: Table, ends: array[int], name_of: dict[int, int]) -> list[list[int]]:
    """Groups of names that share a colour, such as the names of one call; largest time first."""
    total = sums(as_numpy(table.name), as_numpy(ends) - as_numpy(table.start), len(table.names))
    groups: dict[str, list[int]] = {}
    for index in name_of:
        groups.setdefault(call_name(table.names[index]), []).append(index)
    ordered = sorted(groups.values(), key=lambda group: -sum(total[index] for index in group))
    return [[name_of[index] for index in group] for group in ordered]


def _notes(table: Table, rows: Sequence[int]) -> list[str]:
    if len(rows) == len(table):
        return []
    note = (
        f"{len(rows):,} of {len(table):,} spans are drawn: the critical path, errors, the slowest of each name, "
        "and a sample of the rest. Findings and the tables of functions and calls cover all spans."
    )
    return [note]
