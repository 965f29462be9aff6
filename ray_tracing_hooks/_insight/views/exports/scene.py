"""What a timeline of another viewer shows: spans in lanes, and arrows between them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks._insight.analysis.lanes import Lanes, by_lane, ends_of, lanes
from ray_tracing_hooks._insight.analysis.recorded import INTERRUPTED, STILL_RUNNING, UNENDED
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.model.calls import WAITS, Calls
from ray_tracing_hooks._insight.model.generations import generations
from ray_tracing_hooks._insight.model.processes import Places, ProcessPlace, places
from ray_tracing_hooks._insight.model.span import CONSUMER, STATUS_NAMES, Span, call_name
from ray_tracing_hooks._insight.model.table import LOST, RUNNING, Table
from ray_tracing_hooks._insight.views.exports import gone
from ray_tracing_hooks._insight.views.redaction import Redaction

WAKE_NS = 1000
"""The longest duration of the slice at the end of a wait, to which the arrow from what ended the wait points."""


class Arrow(NamedTuple):
    """An arrow from one span to another that it caused."""

    number: int
    """Unique for each arrow, from 1."""
    source: int
    target: int
    """Rows of the table."""


@dataclass
class Scene:
    """Everything that is drawn of a table. Rows are those of the table."""

    table: Table
    ends: array[int]
    """The drawn end of each span: never before its start, and the current time for running spans."""
    places: Places
    lanes: Lanes
    calls: Calls
    nodes: list[list[int]]
    """The places of each node, in display order."""
    starts: dict[int, Arrow]
    """By row of an execution, the arrow from its submission, or from the previous attempt."""
    wakes: dict[int, Arrow]
    """By row of a wait, the arrow from the execution that ended it: the last one to end of those it waited for."""
    phases: dict[int, list[tuple[str, int, int]]]
    """By row of a generation of an LLM engine, its phases: the name, start and end of each."""
    behind: int
    """How many arrows are left out, since by the clocks of their nodes the effect came before the cause."""

    @property
    def origin_ns(self) -> int:
        return self.table.start[0] if len(self.table) else 0

    def node_of(self, row: int) -> int:
        return self.node_of_place[self.places.of[row]]

    def wake_ns(self, row: int) -> int:
        """The start of the slice at the end of a wait, to which the arrow points: after all else in the wait."""
        return max(self.ends[row] - WAKE_NS, self._ends_inside.get(row, self.table.start[row]))

    def by_lane(self) -> list[list[int]]:
        """The rows of each lane, outer spans before the spans inside them."""
        return by_lane(self.table, self.ends, self.lanes)

    def queues(self) -> Iterator[tuple[int, int, int]]:
        """For each call that waited: the row of its first execution, and the start and end of the wait."""
        calls, start = self.calls, self.table.start
        for call in np.nonzero(calls.queued() > 0)[0].tolist():
            yield calls.first[call], calls.submitted_ns(call), start[calls.first[call]]

    def __post_init__(self) -> None:
        self.node_of_place = {place: node for node, there in enumerate(self.nodes) for place in there}
        self._ends_inside: dict[int, int] = {}
        for row, parent in enumerate(self.table.parent) if self.wakes else ():
            if parent in self.wakes and self.lanes.of[row] == self.lanes.of[parent]:
                self._ends_inside[parent] = max(self.ends[row], self._ends_inside.get(parent, 0))


def scene(table: Table) -> Scene:
    where = places(table)
    ends = ends_of(table)
    nodes: dict[str, list[int]] = {}
    for index, place in enumerate(where.places):
        nodes.setdefault(place.node_key, []).append(index)
    calls = Calls(table)
    starts, wakes, behind = _arrows(calls, ends)
    generated = generations(table)
    phases = generated.phases() if generated is not None else {}
    drawn = lanes(table, where, ends)
    return Scene(table, ends, where, drawn, calls, list(nodes.values()), starts, wakes, phases, behind)


def _arrows(calls: Calls, ends: array[int]) -> tuple[dict[int, Arrow], dict[int, Arrow], int]:
    """The arrows to executions and to waits, and how many would point back in time."""
    start = calls.table.start
    found: tuple[dict[int, Arrow], dict[int, Arrow]] = ({}, {})
    number = behind = 0
    for sort, (source, target) in _edges(calls, ends):
        if start[source] <= (start[target] if sort == _CALL else max(start[target], ends[target] - WAKE_NS)):
            number += 1
            found[sort][target] = Arrow(number, source, target)
        else:
            behind += 1
    return *found, behind


_CALL, _WAKE = 0, 1


def _edges(calls: Calls, ends: array[int]) -> Iterator[tuple[int, tuple[int, int]]]:
    table = calls.table
    for call, submission in enumerate(calls.submission):
        before = submission
        for attempt in calls.attempts(call):
            if before >= 0:
                yield _CALL, (before, attempt)
            before = attempt
    for row in table.objects:
        if calls.role[row] not in WAITS:
            continue
        producers = {call for _, call in calls.made_by(row, table.ready if row in table.ready else table.objects)}
        executions = [calls.execution[call] for call in producers if call >= 0 and calls.execution[call] >= 0]
        decisive = max(executions, key=ends.__getitem__, default=-1)
        # Otherwise it was ready earlier, or something else ended the wait.
        if decisive >= 0 and table.start[row] < ends[decisive] <= ends[row]:
            yield _WAKE, (decisive, row)


def notes(drawn: Scene) -> list[str]:
    """Notes on what a timeline shows differently from what happened."""
    table = drawn.table
    found = gone(table)
    died = int(np.count_nonzero(table.is_dead()))
    for number, words, state in (
        (table.state.count(RUNNING), STILL_RUNNING, "running"),
        (died, INTERRUPTED, "lost"),
        (table.state.count(LOST) - died, UNENDED, "lost"),
    ):
        if number:
            found.append(f"{count(number, *words)}, drawn up to the last known time, with state={state}")
    if drawn.behind:
        found.append(
            f"{drawn.behind:,} arrows are left out: by the clocks of their nodes the effect came before the cause"
        )
    found += [
        f"the clock of {machine} was set {'forward' if shift > 0 else 'back'} by {abs(shift) / 1e6:.3f} ms, "
        "since effects seemed to come before their causes"
        for machine, shift in table.quality.clocks.items()
    ]
    return found


def title(table: Table, row: int) -> str:
    """The label of a span's bar; for an execution, the function."""
    name = table.names[table.name[row]]
    return call_name(name) if table.kind[row] == CONSUMER else name


def lane_label(place: ProcessPlace, number: int) -> str:
    """``Trainer#3f2a (pid 21)``; for further lanes ``Trainer#3f2a (pid 21) lane 2``."""
    return f"{place.label} lane {number + 1}" if number else place.label


def told_of(span: Span, redaction: Redaction) -> dict[str, Any]:
    """Its attributes, ids and outcome, for viewers that only have a list of keys and values."""
    found: dict[str, Any] = {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_id or None,
    }
    ended = None if span.state == "ended" else span.state
    status = STATUS_NAMES.get(span.status_code)
    found |= {
        "state": ended,
        "status": status,
        "status_message": redaction.message(span.status_message) or None,
    }
    if span.links:
        found["links"] = [{"trace_id": link.trace_id, "span_id": link.span_id} for link in span.links]
    return {
        **redaction.shown(span.attributes),
        **{key: value for key, value in found.items() if value is not None},
    }
