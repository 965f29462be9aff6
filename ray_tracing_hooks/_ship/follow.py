"""Reading a spool for one sink: from where it stopped, one signal, with the spans that were cut off closed."""

from __future__ import annotations

import base64
import errno
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats import wire
from ray_tracing_hooks._formats.signals import TRACES, Signal
from ray_tracing_hooks._formats.wire import FormatError, fields
from ray_tracing_hooks._ship.folder import Look, ProcessLook, Segment, is_running
from ray_tracing_hooks._ship.last_words import Death, last_words
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.sinks import Batch, DeliveryError
from ray_tracing_hooks._spool.layout import DROPPED, LOG, MAX_SEGMENT, RESOURCE, SCOPE, SPAN, START, TWO_U16, U16, U64
from ray_tracing_hooks._spool.reader import Record, SegmentReader

_READ_BYTES = 1024 * 1024
_PORTION_BYTES = 1024 * 1024

_IDS = slice(2, 30)
"""Trace id and span id with their tags, in the payload of a START or SPAN. They are the first 28 bytes of the span."""

_START_TIME = 0x39
_end_time = struct.Struct("<cQ").pack


class Scope:
    """A scope of one segment; compared by identity, which is cheaper than by its bytes."""

    __slots__ = ("resource", "scope")

    def __init__(self, resource: bytes, scope: bytes) -> None:
        self.resource = resource
        self.scope = scope


class Opening(NamedTuple):
    """A span that has begun: its scope, its encoding without an end, and the sequence of its segment."""

    scope: Scope
    span: bytes
    sequence: int


@dataclass
class Position:
    """How far one process has been read."""

    sequence: int = 0
    resume: int = 0
    """Records of the segment before this offset were delivered earlier, and are read only for what they define."""
    reader: SegmentReader | None = None
    resources: dict[int, bytes] = field(default_factory=dict)
    scopes: dict[int, Scope] = field(default_factory=dict)
    openings: dict[bytes, Opening] = field(default_factory=dict)
    torn: bool = False
    """The writer says that it could not write some spans: a record that is cut short is one of them."""

    def next_segment(self) -> None:
        self.sequence += 1
        self.resume = 0
        self.reader = None
        self.resources = {}
        self.scopes = {}
        self.torn = False


class Follower:
    """Reads every process of a spool folder, each from its own position on.

    ``stored`` is what :meth:`positions` gave to an earlier shipper. ``reports`` says whether this follower counts what
    is damaged or lost; one of several does, since all read the same. ``logs`` is the folder of Ray's logs, which may
    tell why a process died. Of ``signal`` are the items of the batches; ``dropped`` is what processes count that they
    could not write.

    Attributes:
        unread: The complete segments that could not be read, or not in full, by path.
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
        self._portion: dict[Scope, list[bytes]] = {}
        self._bytes = 0
        self.unread: set[str] = set()

    def follow(self, look: Look) -> Iterator[list[Batch]]:
        """What is new in ``look``, in portions of about a mebibyte.

        Raises DeliveryError where a segment cannot be read, after everything else.
        """
        failure: DeliveryError | None = None
        if self.unread:
            self.unread &= {segment.path for process in look.processes.values() for segment in process.segments}
        for name, process in look.processes.items():
            position = self._positions.get(name)
            if position is None:
                if not process.segments:
                    continue
                position = self._positions[name] = Position(process.segments[0].sequence)
            try:
                for segment in process.segments:
                    if segment.sequence >= position.sequence:
                        yield from self._segment(position, segment, runs_on=process.ended_at is None)
            except OSError as error:
                segment_file = os.path.basename(str(error.filename))
                failure = DeliveryError(f"cannot read {segment_file!r} in the spool: {error.strerror}")
                continue
            if process.ended_at is not None and position.openings and _is_read(position, process):
                self._close(name, position, process.ended_at)
        yield from self._take(0)
        for name in self._positions.keys() - look.processes.keys():
            # A process that runs writes again what somebody has removed, and it goes on here.
            if not self._positions[name].openings and not is_running(name):
                del self._positions[name]
        if failure is not None:
            raise failure

    def positions(self) -> dict[str, Any]:
        """What to store for a follower that goes on from here. Openings in current segments it reads again."""
        return {
            name: {
                "sequence": position.sequence,
                "offset": max(position.resume, position.reader.offset if position.reader is not None else 0),
                "openings": [
                    [_text(opening.scope.resource), _text(opening.scope.scope), _text(opening.span)]
                    for opening in position.openings.values()
                    if opening.sequence < position.sequence
                ],
            }
            for name, position in self._positions.items()
        }

    def sequences(self) -> dict[str, int]:
        """For each process the sequence of the segment it is at: all before have been read."""
        return {name: position.sequence for name, position in self._positions.items()}

    def open_processes(self) -> set[str]:
        """The processes that have begun spans and not ended them."""
        return {name for name, position in self._positions.items() if position.openings}

    def _segment(self, position: Position, segment: Segment, *, runs_on: bool) -> Iterator[list[Batch]]:
        if segment.sequence > position.sequence:
            # The one that was expected has been removed.
            position.sequence = segment.sequence - 1
            position.next_segment()
        reader = position.reader
        if reader is None:
            reader = position.reader = SegmentReader(segment.path)
        if segment.size < reader.offset and _size_now(segment) < reader.offset:
            # Somebody has cut it, and what stands there now is something else. A look that is older than the last
            # reading is none of that: it was read to its end then, and it has grown.
            reader.offset = position.resume = 0
        damaged = reader.damaged
        try:
            while reader.offset < segment.size:
                before = reader.offset
                self._take_in(position, reader.read(final=segment.complete, limit=_READ_BYTES))
                yield from self._take(_PORTION_BYTES)
                if reader.offset == before:
                    break
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.EIO or not segment.complete:
                raise
            self._unread(segment, f"cannot be read to its end: {error.strerror}")
        if self._reports:
            self._problems.count("{count} bytes of the spool were damaged and are lost", reader.damaged - damaged)
        if segment.complete:
            if reader.refusal:
                self._unread(segment, reader.refusal)
            elif reader.damaged and not position.torn and not (runs_on and reader.damaged == reader.torn):
                self.unread.add(segment.path)
            position.next_segment()

    def _unread(self, segment: Segment, why: str) -> None:
        self.unread.add(segment.path)
        if self._reports:
            self._problems.say(f"{os.path.basename(segment.path)!r} {why}")

    def _records(self, position: Position, records: list[Record]) -> None:
        scopes, openings, portion, resume = position.scopes, position.openings, self._portion, position.resume
        undefined = 0
        for kind, payload, offset in records:
            if kind == SPAN:
                openings.pop(payload[_IDS], None)
                if offset < resume:
                    continue
                scope = scopes.get(payload[0] | payload[1] << 8) if len(payload) > 2 else None
                if scope is None:
                    undefined += 1
                    continue
                spans = portion.get(scope)
                if spans is None:
                    spans = portion[scope] = []
                spans.append(payload[2:])
                self._bytes += len(payload)
            elif kind == START:
                scope = scopes.get(payload[0] | payload[1] << 8) if len(payload) >= 30 else None
                if scope is None:
                    undefined += 1
                    continue
                openings[payload[_IDS]] = Opening(scope, payload[2:], position.sequence)
            else:
                undefined += not self._other(position, kind, payload, known=offset < resume)
        if self._reports:
            self._problems.count("{count} records of the spool make no sense and were skipped", undefined)

    def _log_records(self, position: Position, records: list[Record]) -> None:
        for kind, payload, offset in records:
            if kind == LOG:
                scope = position.scopes.get(payload[0] | payload[1] << 8) if len(payload) > 2 else None
                if scope is not None and offset >= position.resume:
                    self._portion.setdefault(scope, []).append(payload[2:])
                    self._bytes += len(payload)
            elif kind not in {SPAN, START}:
                self._other(position, kind, payload, known=offset < position.resume)

    def _other(self, position: Position, kind: int, payload: bytes, *, known: bool) -> bool:
        """Take in a definition or a count, pass over what is of another signal; whether it makes sense."""
        if kind == RESOURCE and len(payload) >= 2:
            position.resources[U16.unpack_from(payload)[0]] = payload[2:]
        elif kind == SCOPE and len(payload) >= 4:
            scope, resource = TWO_U16.unpack_from(payload)
            position.scopes[scope] = Scope(position.resources.get(resource, b""), payload[4:])
        elif kind == DROPPED and len(payload) == U64.size:
            position.torn = True
            if self._reports and not known:
                text = f"{{count}} {self._dropped} could not be written to the spool by their processes and are lost"
                self._problems.count(text, U64.unpack(payload)[0])
        elif kind == LOG and len(payload) > U16.size:
            pass
        else:
            return False
        return True

    def _close(self, name: str, position: Position, ended_at: int) -> None:
        resources = {opening.scope.resource for opening in position.openings.values()}
        death = last_words(self._logs, name.partition("-")[0], resources)
        for opening in position.openings.values():
            self._cut_off(name, opening.scope, closed(opening.span, ended_at, death))
        position.openings.clear()

    def _cut_off(self, _process: str, scope: Scope, span: bytes) -> None:
        self._portion.setdefault(scope, []).append(span)
        self._bytes += len(span)

    def _take(self, at_least: int) -> Iterator[list[Batch]]:
        if self._portion and self._bytes >= at_least:
            portion, self._portion, self._bytes = self._portion, {}, 0
            yield [Batch(scope.resource, scope.scope, spans) for scope, spans in portion.items()]


def closed(opening: bytes, ended_at: int, death: Death) -> bytes:
    """The encoded span that was cut off by the death of its process, with an end and the error appended.

    ``ended_at`` is in nanoseconds since the epoch; a span never ends before it has begun.
    """
    try:
        times = [int.from_bytes(value, "little") for tag, value in fields(opening) if tag == _START_TIME]
    except FormatError:
        times = []
    return opening + _end_time(b"\x41", max([ended_at, *times])) + _error(death)


@lru_cache(maxsize=100)
def _error(death: Death) -> bytes:
    """The attributes ``ray.end_estimated`` and ``error.type``, and the status ERROR."""
    error_type = wire.field(0x0A, wire.utf8(death.error_type))
    return (
        _attribute(names.RAY_END_ESTIMATED, b"\x10\x01")
        + _attribute(names.ERROR_TYPE, error_type)
        + wire.field(0x7A, wire.field(0x12, wire.utf8(death.message)) + b"\x18\x02")
    )


def _attribute(key: str, value: bytes) -> bytes:
    return wire.field(0x4A, wire.field(0x0A, key.encode()) + wire.field(0x12, value))


def _size_now(segment: Segment) -> int:
    try:
        return os.stat(segment.path).st_size
    except OSError:  # gone, and not cut: its process may write it again as it was
        return MAX_SEGMENT


def _is_read(position: Position, process: ProcessLook) -> bool:
    return not process.segments or position.sequence > process.segments[-1].sequence


def _restored(entry: Any) -> Position:
    openings = [
        Opening(Scope(base64.b64decode(resource), base64.b64decode(scope)), base64.b64decode(span), -1)
        for resource, scope, span in entry["openings"]
    ]
    return Position(
        int(entry["sequence"]), int(entry["offset"]), openings={opening.span[:28]: opening for opening in openings}
    )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
