"""A stage: reads the whole spool in its own thread, and stores its progress."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.encoded_span.read import end_time, log_time
from ray_tracing_hooks._formats.otlp import LOGS, TRACES, Signal
from ray_tracing_hooks._safety.guard import TracingError, describe
from ray_tracing_hooks._ship.figures import DestinationFigures
from ray_tracing_hooks._ship.files import read_patiently, write_with_room
from ray_tracing_hooks._ship.folder import FolderSnapshot
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems, logger
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import make_sink
from ray_tracing_hooks._ship.sink import Backoff, Batch, DeliveryError, Sink, SinkContext, retry_after
from ray_tracing_hooks._spool.progress import Progress, decode, encode, file_name


class DeliveryCounters:
    """Counts for one destination: spans, or log records, and attempts.

    Attributes:
        figures: What was counted.
        resource: The encoded resource of the first item that was read.
    """

    def __init__(self, exporter: str, signal: Signal) -> None:
        self.figures = DestinationFigures(exporter, signal.name)
        self.resource = b""
        self._ended = end_time if signal is TRACES else log_time
        self._oldest_ns = 0

    @property
    def in_hand(self) -> int:
        """How many have been read from the spool, and neither been accepted nor refused yet."""
        return self.figures.received - self.figures.delivered - self.figures.refused

    @property
    def oldest_ns(self) -> int:
        """When the first of those ended, in nanoseconds since the epoch; 0 if there is none."""
        return self._oldest_ns if self.in_hand else 0

    def read(self, batches: Sequence[Batch]) -> None:
        """Count a portion that has been read from the spool."""
        if not self.in_hand and batches and batches[0].spans:
            self._oldest_ns = self._ended(batches[0].spans[0])
        if not self.resource and batches:
            self.resource = batches[0].resource
        self.figures.received += sum(len(batch.spans) for batch in batches)

    def lost(self, count: int) -> None:
        """Count items that the destination will never accept."""
        self.figures.refused += min(count, self.in_hand)

    def accepted(self, size: int) -> None:
        """The destination has accepted all that is in hand, of ``size`` bytes."""
        self.figures.delivered += self.in_hand
        self.figures.delivered_bytes += size
        self.figures.delivered_ns = time.time_ns()
        self.figures.is_failing = False

    def failed(self, error: str) -> None:
        self.figures.retries += 1
        self.figures.failed_ns = time.time_ns()
        self.figures.error = error
        self.figures.is_failing = True


_REST_AFTER = 10.0
"""Seconds without anything new after which a stage rests."""


class StageContext(NamedTuple):
    """What all stages of a shipper share.

    Attributes:
        environ: The variables that configure delivery.
        turn_ended: Called in a stage's thread after each turn, successful or not.
    """

    spool_dir: str
    plan: ShipPlan
    environ: Mapping[str, str]
    problems: Problems
    turn_ended: Callable[[], None]

    def __repr__(self) -> str:
        # Without variables, which may be secrets.
        return f"StageContext({self.spool_dir!r}, {self.plan})"


class Stage(ABC):
    """Reads from each look at the spool what is new to it, and stores its progress.

    A slow or failing stage does not delay the others. The main thread offers snapshots and reads the attributes.
    ``reports`` says whether this
    stage counts damaged and lost data of the spool; only one of several does, since all read the same.

    Attributes:
        label: Its name in logs and in the name of its progress file.
        signal: The signal that it reads from the spool.
        drained: Number of the newest snapshot that has been processed and stored completely.
        flushed: Number of the newest snapshot that was offered with ``flush`` and has been processed.
        delivered: For each process, the sequence below which its segments have been processed, as stored.
        open_processes: The processes with open spans.
        portions: How many portions of spans have been processed.
        counters: What has been done since the shipper began.
    """

    def __init__(self, label: str, context: StageContext, *, reports: bool, signal: Signal = TRACES) -> None:
        self.label = label
        self.signal = signal
        self.drained = self.flushed = self.portions = 0
        self.counters = DeliveryCounters(label, signal)
        self._context = context
        self._problems = context.problems
        self._file = ProgressFile(context.spool_dir, label)
        self._stored = self._file.load()
        try:
            self._follower = self._follow_from(self._stored.processes, reports=reports)
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("the progress in %r is malformed, starting again: %s", self._file.name, describe(error))
            self._stored = Progress({}, self._stored.state)
            self._follower = self._follow_from({}, reports=reports)
        self.delivered: dict[str, int] = self._follower.sequences()
        self.open_processes: set[str] = self._follower.open_processes()
        if not self._file.exists:
            # Allocate its space before the disk may be full.
            with contextlib.suppress(DeliveryError):
                self._file.store(self._stored)
        self._is_unstored = False
        self._news = threading.Condition()
        self._snapshot: FolderSnapshot | None = None
        self._processed: FolderSnapshot | None = None  # the last one, unless another is being processed or failed
        self._rests = True
        self._is_ending = self._is_flush = False
        self._thread = threading.Thread(target=self._run, name=f"deliver-{label}", daemon=True)

    def _follow_from(self, processes: Mapping[str, Any], *, reports: bool) -> Follower:
        plan = self._context.plan
        return Follower(
            processes,
            self._problems,
            reports=reports,
            logs=plan.logs,
            signal=self.signal,
            dropped=f"{TRACES.items} and {LOGS.items}" if plan.log_records else TRACES.items,
        )

    # Called by the main thread.

    def start(self) -> None:
        self._thread.start()

    def submit(self, snapshot: FolderSnapshot, *, flush: bool = False) -> None:
        """Process what is new in ``snapshot``; with ``flush`` immediately, even if an attempt has just failed.

        A server's ``Retry-After`` is respected in any case. If there is nothing new, the thread is not woken up.
        """
        with self._news:
            before = self._processed
            if before is not None and not flush and snapshot.processes == before.processes and not self._is_unstored:
                self.drained = snapshot.number
                return
            self._snapshot = snapshot
            self._is_flush = self._is_flush or flush
            self._news.notify()

    def store_again(self) -> None:
        """Store the progress in the next turn, since its file has been removed."""
        self._is_unstored = True

    def end(self, timeout: float) -> None:
        """End the thread, waiting at most ``timeout`` seconds for it."""
        with self._news:
            self._is_ending = True
            self._news.notify()
        self._thread.join(timeout)

    def could_not_read(self, path: str) -> bool:
        """Whether this segment could not be read, or not in full."""
        return path in self._follower.unread

    def read_offset(self, process: str, sequence: int) -> int:
        """The offset in this segment up to which everything is delivered, or waits in memory for delivery."""
        return self._follower.read_offset(process, sequence)

    @property
    def unwritten(self) -> int:
        """How many spans, or log records, processes could not write; 0 if this stage does not count losses."""
        return self._follower.unwritten

    def read_of(self, process: str, sequence: int) -> int:
        """The offset up to which this segment has been processed, as stored."""
        return self._stored.read_of(process, sequence)

    # In the thread of the stage.

    @property
    @abstractmethod
    def delay(self) -> float:
        """How many seconds spans may wait in the spool to be processed in larger portions."""

    @abstractmethod
    def _turn(self, snapshot: FolderSnapshot, *, flush: bool) -> None:
        """Process and store what is new in ``snapshot``. Raises any exception on failure, and is then retried."""

    def _on_idle(self) -> None:  # noqa: B027  not every stage holds something
        """Release what takes processor time while nothing comes."""

    @abstractmethod
    def _close(self) -> None:
        """Release resources at the end."""

    def _run(self) -> None:
        key = f"sink-{self.label}"
        backoff = Backoff()
        rest = asked = 0.0
        while (submitted := self._next(rest, asked)) is not None:
            snapshot, flush = submitted
            asked = 0.0
            try:
                self._turn(snapshot, flush=flush)
            except BaseException as error:  # noqa: BLE001  whatever an exporter raises, the next attempt may succeed
                expected = isinstance(error, TracingError)
                text = str(error) if expected else f"sink {self.label!r} failed: {describe(error)}"
                self.counters.failed(self._problems.mask(text))
                self._problems.set(key, text)
                rest, asked = backoff.next(), retry_after(error)
            else:
                self._problems.clear(key)
                self.counters.figures.is_failing = False
                if flush:
                    self.flushed = snapshot.number
                with self._news:
                    self.drained = snapshot.number
                    self._processed = snapshot if self._snapshot is None else None
                backoff.reset()
                rest = self.delay
            self._context.turn_ended()
        self._close()

    def _next(self, rest: float, asked: float) -> tuple[FolderSnapshot, bool] | None:
        """The next snapshot and whether it is urgent, or None at the end.

        It waits ``rest`` seconds unless the snapshot is urgent, and the ``asked`` seconds of a server in any case.
        """
        now = time.monotonic()
        earliest = now + asked
        until = max(now + rest, earliest)
        with self._news:
            while not self._is_ending:
                wait = (earliest if self._is_flush else until) - time.monotonic()
                if self._snapshot is not None and wait <= 0:
                    submitted = self._snapshot, self._is_flush
                    self._snapshot, self._is_flush = None, False
                    self._processed, self._rests = None, False
                    return submitted
                if wait > 0 or self._rests:
                    self._news.wait(wait if wait > 0 else None)
                elif not self._news.wait(_REST_AFTER):
                    self._rests = True
                    with contextlib.suppress(Exception):  # there is nobody to report it to
                        self._on_idle()
        return None

    def _store(self, state: Mapping[str, Any], *, must: bool) -> None:
        """Store the progress with this sink state. Raises DeliveryError only if it ``must`` be stored.

        Otherwise the stage continues, since that may be what makes room on a full disk. A shipper that takes over
        before this can be stored processes some spans again.
        """
        self._is_unstored = True
        progress, sequences = Progress(self._follower.positions(), state), self._follower.sequences()
        key = f"progress-{self.label}"
        try:
            self._file.store(progress)
        except DeliveryError as error:
            if must and self._file.exists:
                raise
            self._problems.set(key, str(error))
        else:
            self._problems.clear(key)
            self._is_unstored = False
        self._stored = progress
        self.open_processes = self._follower.open_processes()
        self.delivered = sequences

    def _remember(self, state: Mapping[str, Any]) -> None:
        """Store a sink state between two portions, with the last stored progress."""
        try:
            self._file.store(Progress(self._stored.processes, state))
        except DeliveryError:
            if self._file.exists:
                raise


class ProgressFile:
    """The progress file with this label in a spool folder."""

    def __init__(self, spool_dir: str, label: str) -> None:
        self.name = file_name(label)
        self._path = os.path.join(spool_dir, self.name)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def load(self) -> Progress:
        """The progress that an earlier shipper has stored; a file that cannot be read is logged and counts as empty."""
        try:
            return decode(read_patiently(self._path))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning("the progress in %r cannot be read, starting again: %s", self.name, describe(error))
        return Progress({}, {})

    def store(self, progress: Progress) -> None:
        """Replace the stored progress. Raises DeliveryError."""
        try:
            # Segments can only be removed once progress is stored, so storing it must work on a full disk.
            write_with_room(self._path, encode(progress))
        except OSError as error:
            raise DeliveryError(f"cannot write {self.name!r} in the spool: {error.strerror}") from error


def label_of(exporter: str, signal: Signal) -> str:
    """The label of the stage that delivers a signal with an exporter."""
    return exporter if signal is TRACES else f"{signal.name}-{exporter}"


class SinkStage(Stage):
    """Delivers one portion after another to a sink, and stores the progress after each.

    Attributes:
        exporter: The name of the sink.
    """

    def __init__(self, exporter: str, context: StageContext, *, reports: bool, signal: Signal = TRACES) -> None:
        self.exporter = exporter
        self._sink: Sink | None = None
        self._pending: list[Batch] = []
        self._counted_bytes = 0
        super().__init__(label_of(exporter, signal), context, reports=reports, signal=signal)

    @property
    def written(self) -> int | None:
        """How many spans, or log records, this and earlier shippers have written to files; None for other sinks."""
        items = self._stored.state.get("items")
        return items if isinstance(items, int) else None

    @property
    def delay(self) -> float:
        return self._sink.delay if self._sink is not None else 0.0

    def _turn(self, snapshot: FolderSnapshot, *, flush: bool) -> None:
        if self._sink is None:
            self._sink = self._make_sink()
        sink = self._sink
        if self._pending and sink.needs_more_to_judge:
            # In place, so that the sink need not repeat what it has already done of the portion.
            more = next(self._follower.follow(snapshot), [])
            self.counters.read(more)
            self._pending.extend(more)
        if self._pending or self._is_unstored:
            self._deliver(sink)
        before = self._follower.sequences()
        for batches in self._follower.follow(snapshot):
            self.counters.read(batches)
            self._pending = batches
            self._deliver(sink)
        if self._follower.sequences() != before or before.keys() != self.delivered.keys():
            self._checkpoint(sink)
        self.open_processes = self._follower.open_processes()

    def _on_idle(self) -> None:
        if self._sink is not None:
            self._sink.on_idle()

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _make_sink(self) -> Sink:
        return make_sink(
            self.exporter,
            SinkContext(
                self._context.plan,
                self._stored.state,
                self._remember,
                self._problems.count,
                self._context.environ,
                self._problems.warn_once,
                self.signal,
                self._lost,
            ),
        )

    def _lost(self, text: str, number: int) -> None:
        self._problems.count(text, number)
        self.counters.lost(number)

    def _deliver(self, sink: Sink) -> None:
        if self._pending:
            sink.deliver(self._pending)
            given = self._follower.given_bytes
            self.counters.accepted(given - self._counted_bytes)
            self._counted_bytes = given
            self._pending = []
            self.portions += 1
        self._checkpoint(sink)

    def _checkpoint(self, sink: Sink) -> None:
        # Only a sink with a state depends on the stored one.
        state = sink.checkpoint()
        self._store(state, must=bool(state))
