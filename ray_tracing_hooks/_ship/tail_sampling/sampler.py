"""The tail sampler, which decides after their spans have ended which unsampled traces are kept.

Their spans wait in the subfolder ``undecided`` of the spool, which is a spool of its own. A trace is kept once one of
its spans on this node failed, was interrupted, or took too long: all of its spans here, also later ones, are written to
segments of the main spool, and go from there to the sinks like others. A trace is dropped when none of its spans is
open and nothing has come for a while. A segment is removed when no undecided span is left in it.

However the shipper ends, kept spans are neither lost nor duplicated. The next one reads all remaining segments again,
and knows from its progress file how far they were read and which traces were kept. That file and a new segment of the
main spool take effect together: the segment has a temporary name until the progress that names it is stored.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._formats.encoded_span.encode import TRACE_ID
from ray_tracing_hooks._private import open_file
from ray_tracing_hooks._ship.folder import SHORTAGES, Folder, Look, Segment, is_gone
from ray_tracing_hooks._ship.open_spans import Scope
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._ship.retention import Quarantine
from ray_tracing_hooks._ship.tail_sampling.policy import ERROR, SLOW, attribute, reason_of
from ray_tracing_hooks._ship.tail_sampling.progress import FILE, SamplerProgress, load
from ray_tracing_hooks._ship.tail_sampling.reader import UndecidedReader
from ray_tracing_hooks._ship.tail_sampling.segment_files import encoded, spans_of
from ray_tracing_hooks._spool.layout import (
    SPAN,
    UNDECIDED,
    in_payload,
    segment_name,
)
from ray_tracing_hooks._spool.reader import SegmentReader, segments

_TRACE_ID = in_payload(TRACE_ID)

_KEPT_BY = "0-"
"""The prefix of the names of the sampler's segments, where others have the pid of their process."""

_TURN = 0.2
"""Seconds that one turn may take, since requests may be waiting for an answer."""

_PORTION_BYTES = 1024 * 1024
_REST = 1.0
"""Seconds between two segments of kept spans, unless there are many, or a request is waiting."""

_MOST_FAILURES = 3
"""Turns in which a segment may fail to be read before the spans in it are given up."""

_EXPIRE_SECONDS = 0.5
_MOST_TRACES = 100_000
_MOST_MORE = 5_000
"""A turn that reads this many traces beyond :data:`_MOST_TRACES` ends, so that the oldest are dropped before memory
fills with more of them.
"""
_REMEMBER_SECONDS = 3600.0
_MOST_REMEMBERED = 5_000
"""A kept trace whose segments are gone is known for so long after its last span, so that later spans are kept too,
while no more than so many kept traces are known: each store of the progress contains them all.
"""
_MOST_HELD_BYTES = 2 * 1024 * 1024
"""Of interrupted spans, whose ends are nowhere on disk, in traces without a decision."""

_SHARE = 4
"""Undecided spans may take this fraction of the spool's cap."""


class _Trace:
    """The state of a trace.

    Attributes:
        reason: Why it is kept; empty as long as it is not.
        open: How many of its spans are open.
        spans: How many ended spans wait for a decision.
        segments: The segments with records of it.
        touched: The monotonic time of its last activity.
    """

    __slots__ = ("open", "reason", "segments", "spans", "touched")

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.open = self.spans = 0
        self.segments: AbstractSet[str] = frozenset()
        self.touched = time.monotonic()


_FEW = 16
"""The most segments of a trace whose set of segments is shared with other traces."""

_MANY = 64
"""At each multiple of so many segments of a trace, which may last for weeks, those that are gone are removed."""


def _with(known: AbstractSet[str], segment: str) -> AbstractSet[str]:
    """These segments and another one. Small sets are shared, since most traces are in one segment, and a set of its own
    takes 216 bytes. A larger one is changed in place.
    """
    if isinstance(known, frozenset) and len(known) < _FEW:
        return _shared(known, segment)
    if not isinstance(known, set):
        known = set(known)
    known.add(segment)
    return known


@lru_cache(maxsize=1000)
def _shared(known: frozenset[str], segment: str) -> frozenset[str]:
    return known | {segment}


@contextlib.contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Add what goes wrong to the problems, and continue."""
    try:
        yield
    except OSError as error:
        problems.append(f"spans of traces that are not sampled cannot be kept: {error.strerror}")
    except TracingError as error:
        problems.append(str(error))


class TailSampler:
    """Decides on the undecided spans of one spool folder.

    ``within`` is the path of the spool folder, and ``quarantine`` takes segments that cannot be read.

    Attributes:
        look: The look at the beginning of the last turn.
        size: The bytes of undecided spans.
        behind: Whether the last turn ran out of time, so that there is more to read or to write.
        failed: Whether something could not be read or written in the last turn, so that the next one tries it again.
    """

    def __init__(self, within: str, plan: ShipPlan, problems: Problems, quarantine: Quarantine) -> None:
        self.look = Look(0, {})
        self.size = 0
        self.behind, self.failed = True, False
        self._within = within
        self._plan = plan
        self._problems = problems
        self._quarantine = quarantine
        self._folder = Folder(os.path.join(within, UNDECIDED))
        self._reader = UndecidedReader(self, problems, plan.logs)
        # Segments are keyed by their names.
        self._traces: dict[bytes, _Trace] = {}  # those without activity for longest first
        self._waiting: Counter[str] = Counter()  # how many undecided traces are in each segment
        self._read: dict[str, int] = {}  # how far each was read, including earlier shippers
        self._known: dict[str, int] = {}  # how far each was read by earlier shippers
        self._closed: set[str] = set()  # the processes whose open spans were closed, including earlier shippers
        self._known_closed: frozenset[str] = frozenset()
        self._known_kept: frozenset[bytes] = frozenset()  # the traces that earlier shippers have kept
        self._collecting: set[bytes] = set()  # the kept traces whose spans are being collected
        self._collect: list[tuple[str, int]] = []  # where their spans are: segments, up to an offset
        self._failures: Counter[str] = Counter()  # how often each of these could not be read
        self._held: dict[bytes, list[tuple[Scope, bytes]]] = {}  # interrupted spans of undecided traces
        self._held_bytes = 0
        self._portion: dict[Scope, list[bytes]] = {}  # the kept spans to be written
        self._bytes = 0
        self._process = f"{_KEPT_BY}{time.time_ns():x}-{secrets.token_hex(2)}"
        self._sequence = 0
        self._unseen: tuple[str, str] | None = None  # a stored segment under its temporary name, and its name
        self._published_at = self._expire_at = 0.0
        self._numbers: Counter[str] = Counter()
        self._take_over()

    def turn(self, *, hurry: bool, ending: bool) -> None:
        """Read what is new, and decide. Raises OSError if the folder cannot be read.

        With ``hurry``, all kept spans are in the spool afterwards, unless this is still :attr:`behind` or has
        :attr:`failed`. ``ending`` says that Ray has ended: once no process writes any more, undecided traces are
        dropped without waiting.
        """
        self.look = self._folder.look(self._reader.open_processes())
        # By this look: an earlier one may be from before the processes began to write.
        final = ending and not any(process.alive for process in self.look.processes.values())
        hurry = hurry or final
        until = time.monotonic() + _TURN
        problems: list[str] = []
        self.behind = False
        with _noted(problems):
            self._show()
        if self._bytes >= _PORTION_BYTES:
            # As long as a full disk does not take these, memory must not fill with more of them.
            with _noted(problems):
                self._publish()
        if not problems:
            with _noted(problems):
                self.behind = not self._collected(until)
        # Not while there is more to collect, which reading lists anew.
        if not (problems or self.behind):
            with _noted(problems):
                self.behind = not self._followed(until)
            if not self.behind:
                # Also if a segment cannot be read: what the others have had to be kept must not wait for it.
                with _noted(problems):
                    self.behind = not self._collected(until)
        if self._portion and (hurry or time.monotonic() >= self._published_at + _REST):
            with _noted(problems):
                self._publish()
        self.failed = bool(problems)
        if problems:
            self._problems.set("sampling", problems[0])
        else:
            self._problems.clear("sampling")
        self._expire(final=final)
        self._remove()

    def clean_up(self) -> bool:
        """Log the totals, and remove our files if no segments are left; returns whether that is so."""
        self._log()
        if segments(self._folder.path):
            return False
        # Removing the folder fails if a process has just created a segment in it.
        for remove, path in ((os.unlink, os.path.join(self._within, FILE)), (os.rmdir, self._folder.path)):
            with contextlib.suppress(OSError):
                remove(path)
        return True

    # Called by the reader.

    def begun(self, trace_id: bytes, segment: str) -> None:
        """A span has begun."""
        self._touch(trace_id, segment).open += 1

    def ended(self, scope: Scope, span: bytes, segment: str, offset: int, *, was_open: bool) -> None:
        """A span has ended, whose record is at this offset."""
        trace_id = span[TRACE_ID]
        trace = self._touch(trace_id, segment)
        trace.open -= was_open
        if trace.reason and trace_id not in self._collecting:
            if offset >= self._known.get(segment, 0):
                self._keep(scope, span, trace.reason)
            return
        trace.spans += 1
        if not trace.reason:
            self._decide(trace_id, trace, span)

    def forgotten(self, trace_id: bytes) -> None:
        """An open span of this trace is not tracked any more, for lack of room."""
        if trace_id in self._traces:
            self._traces[trace_id].open -= 1

    def interrupted(self, process: str, scope: Scope, span: bytes, *, never_ended: bool) -> None:
        """A process has died with this span open. If the program never ended it, its duration is unknown."""
        trace_id = span[TRACE_ID]
        trace = self._touch(trace_id)
        trace.open -= 1
        if not trace.reason and not never_ended:
            self._decide(trace_id, trace, span)
        if not trace.reason:
            self._hold(trace_id, scope, span)
        elif process not in self._known_closed or trace_id not in self._known_kept:
            self._keep(scope, span, trace.reason)
        self._closed.add(process)

    def _hold(self, trace_id: bytes, scope: Scope, span: bytes) -> None:
        """Hold a span that is nowhere on disk with its end, in case its trace is kept later."""
        if self._held_bytes + len(span) > _MOST_HELD_BYTES:
            self._problems.count(
                "{count} interrupted spans of traces that are not sampled were dropped without a decision, since they "
                f"exceed {_MOST_HELD_BYTES >> 20} MiB",
                1,
            )
            return
        self._held.setdefault(trace_id, []).append((scope, span))
        self._held_bytes += len(span)

    def _held_of(self, trace_id: bytes) -> list[tuple[Scope, bytes]]:
        """The spans of this trace that were held, and are not any more."""
        found = self._held.pop(trace_id, [])
        self._held_bytes -= sum(len(span) for _, span in found)
        return found

    def seen(self, segment: str, offset: int) -> None:
        """A segment has been read up to this offset."""
        self._read[segment] = max(offset, self._known.get(segment, 0))

    def _touch(self, trace_id: bytes, segment: str = "") -> _Trace:
        trace = self._traces.pop(trace_id, None) or _Trace()
        self._traces[trace_id] = trace
        trace.touched = time.monotonic()
        if segment and segment not in trace.segments:
            trace.segments = _with(trace.segments, segment)
            if len(trace.segments) % _MANY == 0:
                trace.segments &= self._there()
            if not trace.reason:
                self._waiting[segment] += 1
        return trace

    def _decide(self, trace_id: bytes, trace: _Trace, span: bytes) -> None:
        asked = self._plan.settings
        if reason := reason_of(span, keep_errors=asked.keep_errors, slower=asked.keep_slower):
            trace.reason = reason
            for scope, held in self._held_of(trace_id):
                self._keep(scope, held, reason)
            self._collecting.add(trace_id)
            self._release(trace)
            self._count(reason, 1)

    def _release(self, trace: _Trace) -> None:
        """Mark the spans of this trace as decided."""
        trace.spans = 0
        for segment in trace.segments:
            if self._waiting[segment] <= 1:
                del self._waiting[segment]
            else:
                self._waiting[segment] -= 1

    def _keep(self, scope: Scope, span: bytes, reason: str) -> None:
        kept = span + attribute(reason)
        self._portion.setdefault(scope, []).append(kept)
        self._bytes += len(kept)

    # The steps of a turn. Each returns whether it has finished in time.

    def _followed(self, until: float) -> bool:
        try:
            for _ in self._reader.follow(self.look):
                if self._bytes >= _PORTION_BYTES:
                    self._collect = self._to_collect()
                    self._publish()
                if time.monotonic() > until or len(self._traces) > _MOST_TRACES + _MOST_MORE:
                    return False
        finally:
            self._collect = self._to_collect()
        return True

    def _to_collect(self) -> list[tuple[str, int]]:
        """Where the spans of the traces being collected are; later ones are kept when they are read."""
        found = set().union(*(self._traces[trace_id].segments for trace_id in self._collecting))
        return [(segment, self._read.get(segment, 0)) for segment in sorted(found, reverse=True)]

    def _collected(self, until: float) -> bool:
        """Raises OSError if a segment cannot be read, after everything else: the next turn tries it again."""
        failure: OSError | None = None
        for place in reversed(range(len(self._collect))):
            segment, end = self._collect[place]
            found: list[tuple[Scope, bytes]] = []
            try:
                found = spans_of(os.path.join(self._folder.path, segment), end, self._collecting)
            except OSError as error:
                if not self._is_given_up(segment, error):
                    failure = error
                    continue
            del self._collect[place]
            self._failures.pop(segment, None)
            for scope, span in found:
                self._keep(scope, span, self._traces[span[TRACE_ID]].reason)
            if self._bytes >= _PORTION_BYTES:
                self._publish()
            if time.monotonic() > until and self._collect:
                return False
        if failure is not None:
            raise failure
        self._collecting.clear()
        return True

    def _is_given_up(self, segment: str, error: OSError) -> bool:
        """Whether a segment has failed often enough, for a reason that is not a shortage of this machine."""
        if error.errno in SHORTAGES:
            return False
        self._failures[segment] += 1
        if self._failures[segment] < _MOST_FAILURES:
            return False
        self._problems.say(f"spans of kept traces were lost, since {segment!r} could not be read: {error.strerror}")
        return True

    def _publish(self) -> None:
        """Write the kept spans to a segment of the spool and store the progress, atomically. Raises OSError."""
        self._show()
        name = segment_name(self._process, self._sequence)
        path = os.path.join(self._within, name)
        unseen = f"{path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unseen)
        with open(open_file(unseen, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(encoded(self._portion))
        self._store(name)
        self._sequence += 1
        self._count("kept", sum(map(len, self._portion.values())))
        self._portion, self._bytes = {}, 0
        self._published_at = time.monotonic()
        self._unseen = unseen, path
        self._show()

    def _show(self) -> None:
        """Make the segment that was stored last visible. Raises OSError."""
        if self._unseen is None:
            return
        try:
            os.rename(*self._unseen)
        except FileNotFoundError:
            self._unseen = None  # somebody has removed it
            raise
        self._unseen = None

    def _expire(self, *, final: bool) -> None:
        now = time.monotonic()
        too_many = len(self._traces) - _MOST_TRACES
        if (self.behind or self.failed or (now < self._expire_at and not final)) and too_many <= 0:
            return  # unread records may belong to them
        self._expire_at = now + _EXPIRE_SECONDS
        there = self._there()
        early = 0
        gone = []
        too_many_kept = sum(1 for trace in self._traces.values() if trace.reason) - _MOST_REMEMBERED
        for trace_id, trace in self._traces.items():
            if too_many <= 0 and not final and now - trace.touched < self._plan.settings.keep_wait:
                break
            if trace_id in self._collecting or (too_many <= 0 and trace.open > 0):
                continue
            if trace.reason:
                # As long as its segments can be read again, it must be known, so that it is not kept twice.
                can_be_read = not trace.segments.isdisjoint(there)
                is_old = final or too_many_kept > 0 or now - trace.touched >= _REMEMBER_SECONDS
                if too_many <= 0 and (can_be_read or not is_old):
                    continue
                too_many_kept -= 1
            else:
                early += trace.spans if too_many > 0 else 0
                self._count("dropped", trace.spans)
                self._count("traces dropped", 1)
                self._release(trace)
            gone.append(trace_id)
            too_many -= 1
        for trace_id in gone:
            del self._traces[trace_id]
            self._held_of(trace_id)
        self._problems.count(
            f"{{count}} spans of traces that are not sampled were dropped early, since more than {_MOST_TRACES:,} such "
            "traces wait for a decision",
            early,
        )

    def _there(self) -> set[str]:
        """The names of all segments of the last look."""
        return {os.path.basename(segment.path) for each in self.look.processes.values() for segment in each.segments}

    def _remove(self) -> None:
        """Remove the segments without undecided spans, and the oldest of the others if they exceed the limit."""
        removed = set()
        sequences, open_in = self._reader.sequences(), self._reader.open_segments()
        # Decided spans in segments that are still being written must not cause undecided ones to be dropped.
        waiting = {
            segment: segment.size if own_name in self._waiting or own_name in open_in else max(0, segment.size - read)
            for process in self.look.processes.values()
            for segment in process.segments
            for own_name in [os.path.basename(segment.path)]
            for read in [self._read.get(own_name, 0)]
        }
        self.size = sum(waiting.values())
        for name, process in self.look.processes.items():
            if self._portion or self._collecting or self._unseen is not None:
                break  # the kept spans in them are not stored yet
            for segment in process.segments:
                own_name = os.path.basename(segment.path)
                is_read = segment.complete and segment.sequence < sequences.get(name, -1)
                if is_read and own_name not in self._waiting and own_name not in open_in and self._unlink(segment):
                    removed.add(segment)
        self._closed &= self.look.processes.keys()
        excess = self.size - self._plan.settings.spool_max_bytes // _SHARE
        if excess <= 0:
            return
        lost = 0
        to_collect = {name for name, _ in self._collect}
        for segment in sorted(waiting.keys() - removed, key=lambda each: each.mtime_ns):
            if excess <= 0:
                break
            if not segment.complete or not waiting[segment] or os.path.basename(segment.path) in to_collect:
                continue
            undecided = self._undecided_in(segment)
            if self._unlink(segment):
                self.size -= waiting[segment]
                excess -= waiting[segment]
                lost += sum(undecided.values())
                for trace_id, spans in undecided.items():
                    if trace_id in self._traces:
                        self._traces[trace_id].spans -= spans
        self._problems.count(
            "{count} spans of traces that are not sampled were dropped without a decision, since they exceeded 1/"
            f"{_SHARE} of RAY_TRACING_SPOOL_MAX_BYTES",
            lost,
        )

    def _undecided_in(self, segment: Segment) -> Counter[bytes]:
        """How many spans of each undecided trace are in this segment; ``b""`` counts those not read yet."""
        found: Counter[bytes] = Counter()
        reader = SegmentReader(segment.path)
        read = self._read.get(os.path.basename(segment.path), 0)
        with contextlib.suppress(OSError):
            while reader.offset < segment.size:
                before = reader.offset
                for kind, payload, offset in reader.read(final=True, limit=_PORTION_BYTES):
                    trace_id = payload[_TRACE_ID] if offset < read else b""
                    trace = self._traces.get(trace_id)
                    if kind == SPAN and (not trace_id or (trace is not None and not trace.reason)):
                        found[trace_id] += 1
                if reader.offset == before:
                    break
        return found

    def _unlink(self, segment: Segment) -> bool:
        name = os.path.basename(segment.path)
        try:
            if segment.path in self._reader.unread:
                self._quarantine.keep(segment.path)
            else:
                os.unlink(segment.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._problems.set("sampling: removal", f"cannot remove {name!r} from the spool: {error.strerror}")
            return False
        for known in (self._waiting, self._read, self._known):
            known.pop(name, None)
        return True

    def _count(self, what: str, number: int) -> None:
        before = self._numbers[what]
        self._numbers[what] += number
        if before.bit_length() != self._numbers[what].bit_length() and what == "traces dropped":
            self._log()

    def _log(self) -> None:
        numbers = self._numbers
        logger.info(
            "of traces that are not sampled, %d were kept for an error and %d for being slow (%d spans); "
            "%d were dropped (%d spans)",
            *(numbers[what] for what in (ERROR, SLOW, "kept", "traces dropped", "dropped")),
        )

    def _store(self, published: str) -> None:
        """Store the progress, which makes the segment of this name effective."""
        SamplerProgress(
            published=published,
            read={**self._known, **self._read},
            closed=self._closed,
            kept={trace_id: trace.reason for trace_id, trace in self._traces.items() if trace.reason},
            collecting=self._collecting,
            collect=self._collect,
        ).store(self._within)

    def _take_over(self) -> None:
        """Continue where an earlier shipper stopped."""
        found = load(self._within)
        self._traces = {trace_id: _Trace(reason) for trace_id, reason in found.kept.items()}
        self._collecting, self._collect = set(found.collecting & found.kept.keys()), list(found.collect)
        self._known = {
            segment: offset
            for segment, offset in found.read.items()
            if not is_gone(os.path.join(self._folder.path, segment))
        }
        self._known_closed, self._closed = frozenset(found.closed), set(found.closed)
        self._known_kept = frozenset(found.kept)
        with contextlib.suppress(OSError):
            for name in os.listdir(self._within):
                if name.startswith(_KEPT_BY) and name.endswith(".new"):
                    path = os.path.join(self._within, name)
                    if name == f"{found.published}.new":
                        os.rename(path, path.removesuffix(".new"))
                    else:
                        os.unlink(path)
