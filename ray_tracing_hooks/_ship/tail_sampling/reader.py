"""Reads the undecided spans of a spool for the tail sampler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

from ray_tracing_hooks._formats.encoded_span.encode import TRACE_ID
from ray_tracing_hooks._ship.folder import Segment
from ray_tracing_hooks._ship.follow import Follower, Position
from ray_tracing_hooks._ship.open_spans import OpenSpan, Scope, begun
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._spool.layout import SPAN, START, segment_name
from ray_tracing_hooks._spool.reader import IDS_SIZE, Parts


class Listener(Protocol):
    """Receives what is read. Segments are named without their folder."""

    def begun(self, trace_id: bytes, segment: str) -> None:
        """A span has begun."""

    def ended(self, scope: Scope, span: bytes, segment: str, offset: int, *, was_open: bool) -> None:
        """A span has ended, whose record is at this offset. It ``was_open`` if its start has been read too."""

    def forgotten(self, trace_id: bytes) -> None:
        """An open span of this trace is not tracked any more, for lack of room."""

    def interrupted(self, process: str, scope: Scope, span: bytes, *, never_ended: bool) -> None:
        """A process has died with this span open; ``never_ended`` if that did not interrupt it."""

    def seen(self, segment: str, offset: int) -> None:
        """A segment has been read up to this offset."""


class UndecidedReader(Follower):
    """Reads the undecided spans and passes them to the listener without keeping them."""

    def __init__(self, listener: Listener, problems: Problems, logs: str | None) -> None:
        super().__init__({}, problems, reports=True, logs=logs)
        self._listener = listener
        self._segment_name = ""

    def open_segments(self) -> set[str]:
        """The segments that contain the starts of open spans."""
        return {
            segment_name(name, open_span.sequence)
            for name, position in self._positions.items()
            for open_span in position.open_spans.values()
        }

    def _segment(self, position: Position, segment: Segment, *, runs_on: bool) -> Iterator[list[Any]]:
        self._segment_name = os.path.basename(segment.path)
        yield from super()._segment(position, segment, runs_on=runs_on)

    def _records(self, position: Position, records: list[Parts]) -> None:
        listener, segment, scopes, open_spans = self._listener, self._segment_name, position.scopes, position.open_spans
        undefined = 0
        for head, ids, rest, offset in records:
            kind = head[0]
            if kind in {SPAN, START}:
                scope = scopes.get(head[1:]) if len(rest) >= IDS_SIZE else None
                if scope is None:
                    undefined += 1
                elif kind == SPAN:
                    open_span = open_spans.pop(ids, None)
                    if open_span is not None:
                        self._ended(position, open_span, rest)
                    listener.ended(scope, rest, segment, offset, was_open=open_span is not None)
                else:
                    open_spans[ids] = begun(open_spans, scope, rest, position.sequence)
                    position.has_begun = True
                    listener.begun(ids[TRACE_ID], segment)
            else:
                undefined += not self._other(position, kind, head[1:] + rest, known=False)
        self._problems.count("{count} records of the spool cannot be decoded and were skipped", undefined)
        if position.reader is not None:
            listener.seen(segment, position.reader.offset)

    def _forgotten(self, open_span: OpenSpan) -> None:
        self._listener.forgotten(open_span.span[TRACE_ID])

    def _left_open(self, process: str, scope: Scope, span: bytes, *, never_ended: bool) -> None:
        self._listener.interrupted(process, scope, span, never_ended=never_ended)

    def _take(self, at_least: int) -> Iterator[list[Any]]:
        # Nothing to deliver, but a point at which the caller may stop.
        if at_least:
            yield []
