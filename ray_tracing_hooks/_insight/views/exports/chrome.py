"""Trace event JSON, which Perfetto, vizviewer and ``chrome://tracing`` open.

Nodes become processes of the format and lanes become threads. Each span is a complete event (``X``), with its ids and
attributes as arguments; its events are instants. Arrows connect a submission to its execution, and an execution to the
end of the ``ray.get`` that waited for it, where a slice named ``wake`` of at most 1 us is their target. Queued calls
are asynchronous slices; running and queued calls of each node are counters.

Times are in microseconds with the nanoseconds as decimals, relative to the first span, whose time since the epoch in
nanoseconds is ``otherData.start_unix_nano``: a double could not hold absolute times with nanoseconds.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from ray_tracing_hooks._insight.analysis.data_quality import INTERRUPTED, STILL_RUNNING, UNENDED
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.model.clocks import correct
from ray_tracing_hooks._insight.model.span import KIND_NAMES
from ray_tracing_hooks._insight.model.table import LOST, RUNNING, Table
from ray_tracing_hooks._insight.views.exports.scene import Scene, lane_label, scene, title, told_of
from ray_tracing_hooks._insight.views.exports.selection import Source, as_json, encoded

_MANY = 1000


def write(source: Source, out: BinaryIO) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    drawn = scene(correct(source.table))
    head = {
        "start_unix_nano": str(drawn.origin_ns),
        "resources": [source.shown(r) for r in drawn.table.resources],
    }
    out.write(encoded(f'{{"displayTimeUnit":"ns","otherData":{as_json(head)},"traceEvents":['))
    separator = "\n"
    lines: list[str] = []
    for line in _events(drawn, source):
        lines.append(separator + line)
        separator = ",\n"
        if len(lines) == _MANY:
            out.write(encoded("".join(lines)))
            lines.clear()
    out.write(encoded("".join(lines) + "\n]}\n"))
    return notes(drawn)


def notes(drawn: Scene) -> list[str]:
    """Notes on what a timeline shows differently from what happened."""
    told = []
    table = drawn.table
    died = int(np.count_nonzero(table.is_dead()))
    for number, words, state in (
        (table.state.count(RUNNING), STILL_RUNNING, "running"),
        (died, INTERRUPTED, "lost"),
        (table.state.count(LOST) - died, UNENDED, "lost"),
    ):
        if number:
            told.append(f"{count(number, *words)}, drawn up to the last known time, with state={state}")
    if drawn.behind:
        told.append(
            f"{drawn.behind:,} arrows are left out: by the clocks of their nodes the effect came before the cause"
        )
    return told + clocks(drawn.table)


def clocks(table: Table) -> list[str]:
    """Notes on corrected clocks."""
    return [
        f"the clock of {machine} was set {'forward' if shift > 0 else 'back'} by {abs(shift) / 1e6:.3f} ms, "
        "since effects seemed to come before their causes"
        for machine, shift in table.quality.clocks.items()
    ]


def _events(drawn: Scene, source: Source) -> Iterator[str]:
    yield from _tracks(drawn)
    table, start, ends, origin = drawn.table, drawn.table.start, drawn.ends, drawn.origin_ns
    first_tid = _first_tid(drawn)
    for done, row in enumerate(chain.from_iterable(drawn.by_lane()), 1):
        span = table.span(row)
        where = f'"pid":{drawn.node_of(row) + 1},"tid":{drawn.lanes.of[row] + first_tid}'
        begin = start[row] - origin
        told = {**told_of(span, source), "resource": table.resource[row]}
        yield (
            f'{{"ph":"X","name":{as_json(title(table, row))},"cat":"{KIND_NAMES.get(span.kind, "INTERNAL").lower()}",'
            f'"ts":{_us(begin)},"dur":{_us(ends[row] - start[row])},{where},"args":{as_json(told)}}}'
        )
        for event in span.events:
            at = max(0, event.time_ns - origin)
            yield (
                f'{{"ph":"i","s":"t","name":{as_json(event.name)},"cat":"event","ts":{_us(at)},{where},'
                f'"args":{as_json(source.shown(event.attributes))}}}'
            )
        if (wake := drawn.wakes.get(row)) is not None:
            at = drawn.wake_ns(row)
            yield (
                f'{{"ph":"X","name":"wake","cat":"wake","ts":{_us(at - origin)},"dur":{_us(ends[row] - at)},{where}}}'
            )
            yield from _arrow(drawn, "get", wake.number, (wake.source, start[wake.source]), (row, at))
        if (call := drawn.starts.get(row)) is not None:
            yield from _arrow(drawn, "submit", call.number, (call.source, start[call.source]), (row, start[row]))
        if done % _MANY == 0:
            source.on_spans(_MANY)
    source.on_spans(len(table) % _MANY)
    for number, (row, since, until) in enumerate(drawn.queues(), 1):
        what = f'"cat":"queue","name":{as_json("queued " + title(table, row))},"id":{number}'
        where = f'"pid":{drawn.node_of(row) + 1},"tid":{drawn.lanes.of[row] + first_tid}'
        yield f'{{"ph":"b",{what},"ts":{_us(since - origin)},{where}}}'
        yield f'{{"ph":"e",{what},"ts":{_us(until - origin)},{where}}}'
    for node, counts in enumerate(drawn.counts()):
        for counted in counts:
            where = f'"pid":{node + 1},"ts":{_us(max(0, counted.time_ns - origin))}'
            yield f'{{"ph":"C","name":"running executions",{where},"args":{{"running":{counted.running}}}}}'
            yield f'{{"ph":"C","name":"queued calls",{where},"args":{{"queued":{counted.queued}}}}}'


def _tracks(drawn: Scene) -> Iterator[str]:
    places = drawn.places.places
    first_tid = _first_tid(drawn)
    for node, there in enumerate(drawn.nodes):
        yield _named("process_name", f'"pid":{node + 1}', name=places[there[0]].node_label)
        yield _named("process_sort_index", f'"pid":{node + 1}', sort_index=node)
    for index, lane in enumerate(drawn.lanes.lanes):
        where = f'"pid":{drawn.node_of_place(lane.place) + 1},"tid":{index + first_tid}'
        yield _named("thread_name", where, name=lane_label(places[lane.place], lane.number))
        yield _named("thread_sort_index", where, sort_index=index)


def _first_tid(drawn: Scene) -> int:
    # Viewers treat a thread with the number of its process as the main thread.
    return len(drawn.nodes) + 1


def _named(what: str, where: str, **told: Any) -> str:
    return f'{{"ph":"M","name":"{what}",{where},"args":{as_json(told)}}}'


def _arrow(drawn: Scene, kind: str, number: int, source: tuple[int, int], target: tuple[int, int]) -> Iterator[str]:
    first_tid = _first_tid(drawn)
    for (row, at), how in ((source, '"ph":"s"'), (target, '"ph":"f","bp":"e"')):
        where = f'"pid":{drawn.node_of(row) + 1},"tid":{drawn.lanes.of[row] + first_tid}'
        yield f'{{{how},"name":"{kind}","cat":"{kind}","id":{number},"ts":{_us(at - drawn.origin_ns)},{where}}}'


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"
