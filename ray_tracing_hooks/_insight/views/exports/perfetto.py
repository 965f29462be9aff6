"""Perfetto's own format, a protobuf ``Trace``: named tracks, interned strings, nanoseconds since the epoch.

Nodes become processes, Ray's processes become threads, and their other lanes become tracks below these. Each span is a
slice with its ids and attributes as arguments; its events are instants. Arrows connect a submission to its execution,
and an execution to the end of the ``ray.get`` that waited for it, where a slice named ``wake`` of at most 1 us is their
target. The phases of a generation are slices inside of it. Queued calls have tracks of their own.
https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ray_tracing_hooks._formats.protobuf import field, pack_double, utf8, varint
from ray_tracing_hooks._insight.analysis.lanes import Lanes, by_lane, ends_of, lanes
from ray_tracing_hooks._insight.analysis.recorded import INTERRUPTED, STILL_RUNNING, UNENDED
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.model.calls import WAITS, Calls
from ray_tracing_hooks._insight.model.clocks import correct
from ray_tracing_hooks._insight.model.generations import generations
from ray_tracing_hooks._insight.model.processes import Places, ProcessPlace, places
from ray_tracing_hooks._insight.model.span import CONSUMER, KIND_NAMES, STATUS_NAMES, Span, call_name
from ray_tracing_hooks._insight.model.table import LOST, RUNNING, Table
from ray_tracing_hooks._insight.views.exports import as_json, gone
from ray_tracing_hooks._insight.views.redaction import Redaction

_BEGIN, _END, _INSTANT = 1, 2, 3
_REALTIME, _BOOTTIME = 1, 6
_MANY = 1000
_MOST_VALUES = 100_000
_LONGEST_VALUE = 256
"""Characters. Attribute values up to this length, and up to a limit on their number, are interned."""
_MOST_NS = (1 << 63) - 1
_pack_arrow = struct.Struct("<Q").pack

# All packets are in one sequence, and all but the first refer to interned strings of earlier packets.
_FIRST = b"\x50\x01\x68\x01"
_FURTHER = b"\x50\x01\x68\x02"
_EXPLICIT_ORDER = b"\x58\x03"

WAKE_NS = 1000
"""The longest duration of the slice at the end of a wait, to which the arrow from what ended the wait points."""


def write(table: Table, redaction: Redaction, out: BinaryIO, on_spans: Callable[[int], None]) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    drawn = scene(correct(table))
    _Writer(drawn, redaction, out, on_spans).write()
    return notes(drawn)


# --- What is drawn -----------------------------------------------------------------------------------------------


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


# --- How it is written -------------------------------------------------------------------------------------------


class _Strings:
    """Interned strings of one kind: written at their first occurrence, and by number from then on."""

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._numbers: dict[str, int] = {}

    def number(self, text: str, new: list[bytes]) -> bytes:
        """The number as a varint; at the first occurrence its definition is added to ``new``."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._numbers) + 1
            described = _int(0x08, number) + field(0x12, utf8(text))
            new.append(self._tag + varint(len(described)) + described)
        return varint(number)


class _Writer:
    def __init__(self, drawn: Scene, redaction: Redaction, out: BinaryIO, on_spans: Callable[[int], None]) -> None:
        self._drawn = drawn
        self._redaction = redaction
        self._out, self._on_spans = out, on_spans
        self._packets: list[bytes] = []
        self._categories = _Strings(b"\x0a")
        self._names = _Strings(b"\x12")
        self._keys = _Strings(b"\x1a")
        self._values = _Strings(b"\xea\x01")
        self._seen: set[str] = set()
        self._written: dict[tuple[str, str], bytes] = {}
        """Interned pairs of key and value."""
        # Track uuids: nodes from 1, then lanes, then the tracks of queued calls.
        self._first_lane = len(drawn.nodes) + 1
        self._first_queue = self._first_lane + len(drawn.lanes.lanes)

    def write(self) -> None:
        self._clocks()
        self._tracks()
        self._spans()
        self._queues()
        self._flush()

    def _packet(self, content: bytes) -> None:
        self._packets.append(field(0x0A, content))
        if len(self._packets) >= _MANY:
            self._flush()

    def _flush(self) -> None:
        self._out.write(b"".join(self._packets))
        self._packets.clear()

    def _clocks(self) -> None:
        """Declare that event times use the realtime clock; the default is the boot time clock."""
        now = _int(0x10, _within(self._drawn.origin_ns))
        clocks = b"".join(field(0x0A, _int(0x08, clock) + now) for clock in (_BOOTTIME, _REALTIME))
        self._packet(_timestamp(self._drawn.origin_ns) + field(0x32, clocks) + _FIRST)

    def _tracks(self) -> None:
        drawn, places = self._drawn, self._drawn.places.places
        for node, there in enumerate(drawn.nodes):
            process = _int(0x08, node + 1) + field(0x32, utf8(places[there[0]].node_label))
            self._track(node + 1, field(0x1A, process) + _EXPLICIT_ORDER)
        threads: dict[int, int] = {}
        for index, lane in enumerate(drawn.lanes.lanes):
            uuid, node = self._first_lane + index, drawn.node_of_place[lane.place] + 1
            name = utf8(lane_label(places[lane.place], lane.number))
            if lane.number == 0:
                threads[lane.place] = uuid
                thread = _int(0x08, node) + _int(0x10, uuid) + field(0x2A, name)
                self._track(uuid, _int(0x28, node) + field(0x22, thread) + _int(0x60, index))
            else:
                self._track(uuid, _int(0x28, threads[lane.place]) + field(0x12, name) + _int(0x60, lane.number))

    def _track(self, uuid: int, fields: bytes) -> None:
        descriptor = _int(0x08, uuid) + fields
        self._packet(_FURTHER + b"\xe2\x03" + varint(len(descriptor)) + descriptor)

    def _event(self, kind: int, time_ns: int, track: int, fields: bytes = b"", new: Sequence[bytes] = ()) -> None:
        event = field(0x5A, bytes((0x48, kind)) + _int(0x58, track) + fields)
        strings = field(0x62, b"".join(new)) if new else b""
        self._packet(_timestamp(time_ns) + _FURTHER + strings + event)

    def _spans(self) -> None:
        drawn = self._drawn
        outgoing: dict[int, list[int]] = {}
        for arrow in (*drawn.starts.values(), *drawn.wakes.values()):
            outgoing.setdefault(arrow.source, []).append(arrow.number)
        done = 0
        # Lane by lane: readers keep the file order for equal times, and where one span ends as the next starts, the end
        # must come first.
        for track, rows in enumerate(drawn.by_lane(), self._first_lane):
            open_rows: list[int] = []
            for row in rows:
                while len(open_rows) > drawn.lanes.depth[row]:
                    self._end(open_rows.pop(), track)
                self._begin(row, track, outgoing.get(row, ()))
                open_rows.append(row)
                done += 1
                if done % _MANY == 0:
                    self._on_spans(_MANY)
            while open_rows:
                self._end(open_rows.pop(), track)
        self._on_spans(done % _MANY)

    def _begin(self, row: int, track: int, outgoing: Sequence[int]) -> None:
        drawn, table, shown = self._drawn, self._drawn.table, self._redaction.shown
        span = table.span(row)
        new: list[bytes] = []
        fields = [
            b"\x18" + self._categories.number(KIND_NAMES.get(span.kind, "INTERNAL").lower(), new),
            b"\x50" + self._names.number(title(table, row), new),
            *self._annotations(told_of(span, self._redaction), new),
            *(b"\xf9\x02" + _pack_arrow(arrow) for arrow in outgoing),
        ]
        if (call := drawn.starts.get(row)) is not None:
            fields.append(_terminating(call.number))
        self._event(_BEGIN, table.start[row], track, b"".join(fields), new)
        for event in span.events:
            new = []
            fields = [b"\x50" + self._names.number(event.name, new), *self._annotations(shown(event.attributes), new)]
            self._event(_INSTANT, event.time_ns, track, b"".join(fields), new)

    def _end(self, row: int, track: int) -> None:
        drawn = self._drawn
        new: list[bytes] = []
        if (wake := drawn.wakes.get(row)) is not None:
            fields = b"\x50" + self._names.number("wake", new) + _terminating(wake.number)
            self._event(_BEGIN, drawn.wake_ns(row), track, fields, new)
            self._event(_END, drawn.ends[row], track)
        for name, begin, end in drawn.phases.get(row, ()):
            new = []
            self._event(_BEGIN, begin, track, b"\x50" + self._names.number(name, new), new)
            self._event(_END, end, track)
        self._event(_END, drawn.ends[row], track)

    def _annotations(self, attributes: Mapping[str, Any], new: list[bytes]) -> list[bytes]:
        return [self._annotation(key, value, new) for key, value in attributes.items()]

    def _annotation(self, key: str, value: Any, new: list[bytes]) -> bytes:
        # Only for text: 1, 1.0 and True would be the same dictionary key.
        text = (key, value) if isinstance(value, str) and value in self._seen else None
        if text is None or (written := self._written.get(text)) is None:
            written = field(0x22, b"\x08" + self._keys.number(key, new) + self._value(value, new))
            if text is not None and len(self._written) < _MOST_VALUES:
                self._written[text] = written
        return written

    def _value(self, value: Any, new: list[bytes]) -> bytes:
        if isinstance(value, bool):
            return b"\x10\x01" if value else b"\x10\x00"
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return _int(0x20, value & 0xFFFF_FFFF_FFFF_FFFF)
        if isinstance(value, float):
            return b"\x29" + pack_double(value)
        text = value if isinstance(value, str) else as_json(value)
        if text in self._seen:
            return b"\x88\x01" + self._values.number(text, new)
        if len(text) <= _LONGEST_VALUE and len(self._seen) < _MOST_VALUES:
            self._seen.add(text)
        return field(0x32, utf8(text))

    def _queues(self) -> None:
        """Write queued calls, in as many tracks of their node as waited at once; tracks with one name are merged."""
        drawn = self._drawn
        tracks = 0
        free: list[list[int]] = [[] for _ in drawn.nodes]
        busy: list[list[tuple[int, int]]] = [[] for _ in drawn.nodes]
        for since, until, row in sorted((since, until, row) for row, since, until in drawn.queues()):
            node = drawn.node_of(row)
            while busy[node] and busy[node][0][0] <= since:
                free[node].append(heappop(busy[node])[1])
            if free[node]:
                track = free[node].pop()
            else:
                track = self._first_queue + tracks
                tracks += 1
                self._track(track, _int(0x28, node + 1) + field(0x12, b"queued"))
            heappush(busy[node], (until, track))
            new: list[bytes] = []
            fields = b"\x50" + self._names.number(f"queued {title(drawn.table, row)}", new)
            self._event(_BEGIN, since, track, fields, new)
            self._event(_END, until, track)


def _timestamp(time_ns: int) -> bytes:
    return _int(0x40, _within(time_ns))


def _within(time_ns: int) -> int:
    """The time, or the nearest that the format can express: nothing is before 1970."""
    return max(0, min(time_ns, _MOST_NS))


def _int(tag: int, number: int) -> bytes:
    return bytes((tag,)) + varint(number)


def _terminating(arrow: int) -> bytes:
    return b"\x81\x03" + _pack_arrow(arrow)
