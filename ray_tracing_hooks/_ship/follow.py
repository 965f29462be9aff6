"""Reads one signal of a spool for one sink, from where the last reader stopped, and closes interrupted spans."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_tracing_hooks._formats.encoded_span.encode import END_SIZE, SPAN_ID
from ray_tracing_hooks._formats.otlp import TRACES, Signal
from ray_tracing_hooks._ship.folder import FolderSnapshot, ProcessSnapshot, Segment, examine, is_running
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.open_spans import (
    WORKER,
    OpenSpan,
    OpenSpans,
    Scope,
    begun,
    cause_of_death,
    closed,
    identity,
    left_open,
    restored,
    size,
    stored,
    to_forget,
    was_interrupted,
)
from ray_tracing_hooks._ship.sink import Batch, DeliveryError
from ray_tracing_hooks._spool.layout import (
    DROPPED,
    EXIT,
    FORKED,
    LOG,
    MAX_SEGMENT,
    RESOURCE,
    SCOPE,
    SPAN,
    START,
    U16,
    U64,
    segment_name,
)
from ray_tracing_hooks._spool.reader import IDS_SIZE, Parts, SegmentReader

_READ_BYTES = 256 * 1024
"""Bytes that are read at once: they, and the spans cut out of them, fit into the cache of a processor."""

_PORTION_BYTES = 600 * 1024
"""A portion takes at least this many bytes, and with another read still fits into one request."""

_MOST_FAILURES = 3
"""How often a complete segment may fail to be read before what it still has is given up."""

_MOST_OPEN = 4 * 1024 * 1024
"""Approximate bytes of memory for the open spans in all processes of a node: some 7,000 spans."""


@dataclass
class Position:
    """How far one process has been read."""

    sequence: int = 0
    resume: int = 0
    """Records of the segment before this offset were delivered earlier, and are read only for their definitions."""
    reader: SegmentReader | None = None
    resources: dict[bytes, bytes] = field(default_factory=dict)
    """By their ids, as encoded; so are the scopes."""
    scopes: dict[bytes, Scope] = field(default_factory=dict)
    open_spans: OpenSpans = field(default_factory=dict)
    resources_before: dict[bytes, bytes] = field(default_factory=dict)
    """The resources that the previous segment defined."""
    interrupted: set[bytes] = field(default_factory=set)
    """The ids of spans of this package that report the end of the process as their error."""
    maybe_ended: set[bytes] = field(default_factory=set)
    """The ids of open spans that began before records that are missing: their ends may be among these."""
    in_order: bool = False
    """Whether the process has written its ``EXIT`` record."""
    stored: list[Any] | None = None
    """The encoded open spans, cached as long as they have not changed."""
    has_begun: bool = False
    """Whether spans have begun since the open ones were measured."""
    size: int = 0
    """Bytes of memory that the open spans took when they were measured."""
    failures: int = 0
    """How often the segment, complete, could not be read."""
    newest: int = -1
    """The newest segment that a snapshot has had, whether it could be read or not."""

    @property
    def offset(self) -> int:
        """The offset up to which the segment has been read, by this or an earlier shipper."""
        return max(self.resume, self.reader.offset if self.reader is not None else 0)

    def records_are_missing(self) -> None:
        """Some were not written, or cannot be read: the ends of spans that are open now may be among them."""
        self.maybe_ended = {each.span[SPAN_ID] for each in self.open_spans.values()}

    def next_segment(self) -> None:
        self.sequence += 1
        self.resume = self.failures = 0
        self.reader = None
        self.resources_before = self.resources or self.resources_before
        self.resources = {}
        self.scopes = {}


class Follower:
    """Reads all processes of a spool folder, each from its own position on.

    ``stored`` is the result of :meth:`positions` in an earlier shipper. ``reports`` says whether this follower counts
    damaged and lost data; only one of several does, since all read the same. ``logs`` is the folder of Ray's logs,
    which may contain the cause of a process's death. ``signal`` is the signal to read; ``dropped`` is the word for the
    items that processes could not write.

    Attributes:
        unread: The complete segments that the disk did not give, or that are none of this version, by path.
        unwritten: How many items processes could not write, if this follower counts losses.
        given_bytes: The size of all items in the portions so far.
    """

    def __init__(
        self,
        stored: Mapping[str, Any],
        problems: Problems,
        *,
        reports: bool,
        logs: str | None = None,
        signal: Signal = TRACES,
        dropped: str = TRACES.items,
    ) -> None:
        self._take_in = self._records if signal is TRACES else self._log_records
        self._dropped = dropped
        self._problems = problems
        self._reports = reports
        self._logs = logs
        self._positions = {name: _restored(entry) for name, entry in stored.items()}
        self._open_size = 0
        for position in self._positions.values():
            self._measure(position)
        self._portion: dict[Scope, list[bytes]] = {}
        self._bytes = 0
        self.unread: set[str] = set()
        self.unwritten = self.given_bytes = 0

    def follow(self, snapshot: FolderSnapshot) -> Iterator[list[Batch]]:
        """What is new in ``snapshot``, in portions of about a mebibyte.

        Raises DeliveryError if a segment cannot be read, after everything else.
        """
        failure: DeliveryError | None = None
        if self.unread:
            self.unread &= {segment.path for process in snapshot.processes.values() for segment in process.segments}
        for name, process in snapshot.processes.items():
            try:
                yield from self._process(name, process)
            except OSError as error:
                segment_file = os.path.basename(str(error.filename))
                failure = DeliveryError(f"cannot read {segment_file!r} in the spool: {error.strerror}")
        yield from self._take(0)
        for name in self._positions.keys() - snapshot.processes.keys():
            # A running process recreates removed segments, and reading continues at this position.
            if not self._positions[name].open_spans and not is_running(name):
                self._open_size -= self._positions.pop(name).size
        if failure is not None:
            raise failure

    def positions(self) -> dict[str, Any]:
        """The state from which another follower can continue, as JSON."""
        return {
            name: {
                "sequence": position.sequence,
                "offset": position.offset,
                "openings": _stored(position),
                "in_order": position.in_order,
                **_ids("interrupted", position.interrupted),
                **_ids("maybe_ended", position.maybe_ended),
            }
            for name, position in self._positions.items()
        }

    def sequences(self) -> dict[str, int]:
        """For each process, the sequence of its current segment: all earlier ones have been read."""
        return {name: position.sequence for name, position in self._positions.items()}

    def read_offset(self, process: str, sequence: int) -> int:
        """The offset in this segment up to which everything has been read, whether delivered yet or not."""
        position = self._positions.get(process)
        if position is None or position.sequence < sequence:
            return 0
        return position.offset if position.sequence == sequence else 1 << 62

    def open_processes(self) -> set[str]:
        return {name for name, position in self._positions.items() if position.open_spans}

    def _process(self, name: str, process: ProcessSnapshot) -> Iterator[list[Batch]]:
        """What is new of one process. Raises OSError if a segment cannot be read or examined, after those before it."""
        position = self._positions.get(name)
        if process.segments:
            if position is None:
                position = self._positions[name] = Position(_first(name, process.segments[0]))
            position.newest = max(position.newest, process.segments[-1].sequence)
            for segment in process.segments:
                if segment.sequence >= position.sequence:
                    if any(_exists(name, number, segment) for number in range(position.sequence, segment.sequence)):
                        return  # the next snapshot has it
                    yield from self._segment(position, segment)
        if process.error is not None:
            raise process.error
        ended_at = process.ended_at
        if position is not None and ended_at is not None and position.open_spans and _is_read(position, process):
            yield from self._close(name, position, ended_at)

    def _segment(self, position: Position, segment: Segment) -> Iterator[list[Batch]]:
        if segment.sequence > position.sequence:
            # The expected segment has been removed, to keep the spool below its cap.
            position.records_are_missing()
            position.sequence = segment.sequence - 1
            position.next_segment()
        reader = position.reader
        if reader is None:
            reader = position.reader = SegmentReader(segment.path)
        if segment.size < reader.offset and _size_now(segment) < reader.offset:
            # It has been truncated, and has other contents now. A snapshot that is older than the last read is no sign
            # of that: the segment was read to its end then, and has grown since.
            reader.offset = position.resume = 0
        damaged = reader.damaged
        try:
            while reader.offset < segment.size:
                before = reader.offset
                known = position.resume - before
                limit = min(_READ_BYTES, known) if known > 0 else _READ_BYTES
                self._take_in(position, reader.read_parts(final=segment.complete, limit=limit))
                if position.has_begun:
                    self._forget(position)
                if known > 0:
                    damaged = reader.damaged  # counted by an earlier shipper, or in delivered parts
                yield from self._take(_PORTION_BYTES)
                if reader.offset == before:
                    break
        except FileNotFoundError:
            if segment.complete:
                position.records_are_missing()  # a segment that is being written to is made anew
        except OSError as error:
            error.filename = segment.path  # that of a read has none
            if error.errno != errno.EIO or not segment.complete:
                raise
            position.failures += 1
            if position.failures < _MOST_FAILURES:
                raise
            position.records_are_missing()
            self._unread(segment, f"cannot be read to its end: {error.strerror}")
        if self._reports:
            self._problems.count("{count} bytes of the spool were damaged and are lost", reader.damaged - damaged)
        if segment.complete:
            if reader.refusal:
                self._unread(segment, reader.refusal)
            position.next_segment()

    def _unread(self, segment: Segment, why: str) -> None:
        self.unread.add(segment.path)
        if self._reports:
            self._problems.warn_once(f"{os.path.basename(segment.path)!r} {why}")

    def _records(self, position: Position, records: list[Parts]) -> None:
        open_spans, resume, sequence = position.open_spans, position.resume, position.sequence
        taken: dict[bytes, list[bytes]] = {}
        undefined = 0
        for head, ids, rest, offset in records:
            kind = head[0]
            if kind == SPAN:
                open_span = open_spans.pop(ids, None)
                if open_span is not None:
                    self._ended(position, open_span, rest)
                if offset < resume:
                    continue
                spans = taken.get(head)
                if spans is None:
                    if not rest or head[1:] not in position.scopes:
                        undefined += 1
                        continue
                    spans = taken[head] = []
                spans.append(rest)
            elif kind == START:
                if offset < resume:
                    continue
                scope = position.scopes.get(head[1:])
                if scope is None or len(rest) < IDS_SIZE:
                    undefined += 1
                    continue
                open_spans[ids] = begun(open_spans, scope, rest, sequence)
                position.has_begun, position.stored = True, None
            else:
                self._add(position, taken)
                undefined += not self._other(position, kind, head[1:] + rest, known=offset < resume)
        self._add(position, taken)
        if self._reports:
            self._problems.count("{count} records of the spool cannot be decoded and were skipped", undefined)

    def _ended(self, position: Position, open_span: OpenSpan, span: bytes) -> None:
        position.stored = None
        if position.maybe_ended:
            position.maybe_ended.discard(span[SPAN_ID])
        # Most spans have gained nothing but their end.
        if len(span) - len(open_span.span) > END_SIZE and open_span.scope.is_ours and was_interrupted(span):
            position.interrupted.add(span[SPAN_ID])

    def _add(self, position: Position, taken: dict[bytes, list[bytes]]) -> None:
        """Move the items of these scopes to the portion."""
        for head, items in taken.items():
            self._portion.setdefault(position.scopes[head[1:]], []).extend(items)
            self._bytes += sum(map(len, items))
        taken.clear()

    def _log_records(self, position: Position, records: list[Parts]) -> None:
        taken: dict[bytes, list[bytes]] = {}
        for head, _, rest, offset in records:
            kind = head[0]
            if kind == LOG:
                if rest and head[1:] in position.scopes and offset >= position.resume:
                    taken.setdefault(head, []).append(rest)
            elif kind not in {SPAN, START}:
                self._add(position, taken)
                self._other(position, kind, head[1:] + rest, known=offset < position.resume)
        self._add(position, taken)

    def _other(self, position: Position, kind: int, payload: bytes, *, known: bool) -> bool:
        """Process a definition or a count, and skip records of another signal; False if the record is malformed."""
        if kind == RESOURCE and len(payload) >= 2:
            position.resources[payload[:2]] = payload[2:]
        elif kind == SCOPE and len(payload) >= 4:
            position.scopes[payload[:2]] = Scope(position.resources.get(payload[2:4], b""), payload[4:])
        elif kind == DROPPED and len(payload) == U64.size:
            if not known:
                position.records_are_missing()
            if self._reports and not known:
                text = (
                    f"{{count}} {self._dropped} could not be written to the spool by their processes: they are lost, "
                    "or shown without an end if their start was written"
                )
                self._problems.count(text, U64.unpack(payload)[0])
                self.unwritten += U64.unpack(payload)[0]
        elif kind == EXIT:
            position.in_order = True
        elif kind == LOG and len(payload) > U16.size:
            pass
        else:
            return False
        return True

    def _forget(self, position: Position) -> None:
        """Forget open spans of the process with most of them, if there are too many."""
        position.has_begun = False
        self._measure(position)
        if self._open_size > _MOST_OPEN:
            # Spans of other processes may have ended since these were measured.
            for each in self._positions.values():
                self._measure(each)
        while self._open_size > _MOST_OPEN:
            largest = max(self._positions.values(), key=lambda each: each.size)
            for ids in (forgotten := to_forget(largest.open_spans)):
                del largest.open_spans[ids]
                largest.maybe_ended.discard(ids[SPAN_ID])
            largest.stored = None
            self._measure(largest)
            if self._reports:
                self._problems.count(
                    f"{{count}} open spans are no longer tracked, since they exceed {_MOST_OPEN >> 20} MiB: "
                    "they are missing if they never end",
                    len(forgotten),
                )

    def _measure(self, position: Position) -> None:
        before, position.size = position.size, size(position.open_spans)
        self._open_size += position.size - before

    def _close(self, name: str, position: Position, ended_at: int) -> Iterator[list[Batch]]:
        if position.sequence <= position.newest:
            position.records_are_missing()  # the last segments were removed before they were read
        resources = [open_span.scope.resource for open_span in position.open_spans.values()]
        resources += [*position.resources.values(), *position.resources_before.values()]
        distinct = list(dict.fromkeys(resources))
        death = cause_of_death(self._logs, name.partition("-")[0], distinct)
        # Ray does not end processes that were forked from a worker.
        is_worker = identity(distinct)[0] == WORKER and not name.endswith(FORKED)
        found = left_open(
            position.open_spans,
            position.interrupted,
            position.maybe_ended,
            is_worker=is_worker,
            in_order=position.in_order,
        )
        for ids, is_interrupted in list(found):
            open_span = position.open_spans.pop(ids)
            encoded = closed(open_span.span, ended_at, death if is_interrupted else None)
            self._portion.setdefault(open_span.scope, []).append(encoded)
            self._bytes += len(encoded)
            position.stored = None
            yield from self._take(_PORTION_BYTES)
        self._measure(position)

    def _take(self, at_least: int) -> Iterator[list[Batch]]:
        if self._portion and self._bytes >= at_least:
            self.given_bytes += self._bytes
            portion, self._portion, self._bytes = self._portion, {}, 0
            yield [Batch(scope.resource, scope.scope, spans) for scope, spans in portion.items()]


def _stored(position: Position) -> list[Any]:
    if position.stored is None:
        position.stored = stored(position.open_spans.values())
    return position.stored


def _ids(key: str, ids: set[bytes]) -> dict[str, list[str]]:
    """An entry with these ids for a progress file, if there are any."""
    return {key: sorted(map(bytes.hex, ids))} if ids else {}


def _size_now(segment: Segment) -> int:
    try:
        return os.stat(segment.path).st_size
    except OSError:  # removed, not truncated: its process may recreate it
        return MAX_SEGMENT


def _first(process: str, seen: Segment) -> int:
    """The sequence of the first segment of a process, where ``seen`` is the first in a snapshot: see `_exists`."""
    sequence = seen.sequence
    while sequence and _exists(process, sequence - 1, seen):
        sequence -= 1
    return sequence


def _exists(process: str, sequence: int, beside: Segment) -> bool:
    """Whether a process has this segment, in the folder of ``beside``, although a snapshot of the folder lacks it.

    A list of many files is not of one moment: it may lack a segment that was begun meanwhile and have the next one.
    Raises OSError where that cannot be found out.
    """
    return examine(os.path.join(os.path.dirname(beside.path), segment_name(process, sequence))) is not None


def _is_read(position: Position, process: ProcessSnapshot) -> bool:
    return not process.segments or position.sequence > process.segments[-1].sequence


def _restored(entry: Any) -> Position:
    return Position(
        int(entry["sequence"]),
        int(entry["offset"]),
        open_spans=restored(entry),
        interrupted=set(map(bytes.fromhex, entry.get("interrupted", []))),
        maybe_ended=set(map(bytes.fromhex, entry.get("maybe_ended", []))),
        in_order=entry["in_order"],
    )
