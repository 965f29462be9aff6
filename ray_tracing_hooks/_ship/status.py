"""The status of delivery: counts the backlog, takes the figures of a shipper, and stores them in the spool folder."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ray_tracing_hooks._formats.encoded_span.read import end_time, log_time
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._safety.private import write_atomically
from ray_tracing_hooks._ship.figures import DestinationFigures, Figures
from ray_tracing_hooks._ship.files import STATUS
from ray_tracing_hooks._ship.folder import FolderSnapshot
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import destination_of
from ray_tracing_hooks._ship.stage import SinkStage
from ray_tracing_hooks._ship.stages import RECORDS, Stages
from ray_tracing_hooks._spool.layout import LOG, SPAN, U16
from ray_tracing_hooks._spool.reader import walk
from ray_tracing_hooks._version import __version__

_AT_LEAST = 1 << 18
"""Bytes that are counted whatever the time is."""

_MOST_LOOKED_AT = 200
"""Most processes whose oldest span is looked for: each takes a file to be opened."""


class Unread(NamedTuple):
    """The part of a segment that has not been delivered."""

    path: str
    offset: int
    size: int
    """The size of the whole segment."""


class Backlog(NamedTuple):
    """How many spans or log records wait, and their bytes in the spool with all other records there.

    Attributes:
        is_estimate: Whether ``items`` is extrapolated: not everything was counted in time.
        oldest_ns: When the oldest of them ended, in nanoseconds since the epoch; 0 if that is unknown.
    """

    items: int = 0
    bytes: int = 0
    is_estimate: bool = False
    oldest_ns: int = 0


def measure(processes: Iterable[Sequence[Unread]], kind: int, seconds: float) -> Backlog:
    """The backlog of these processes, each with its unread segments from the oldest on.

    ``kind`` is that of the records to count. After ``seconds``, the rest is extrapolated.
    """
    until = time.monotonic() + seconds
    unread = [parts for each in processes if (parts := [part for part in each if part.offset < part.size])]
    total = sum(part.size - part.offset for parts in unread for part in parts)
    if not total:
        return Backlog()
    items = walked = oldest = 0
    # In turns over the processes, so that the oldest of each is looked at before the time is over.
    for number, parts in enumerate(unread):
        found = walk(*parts[0], kind, until, at_least=_AT_LEAST if not walked else 0)
        items, walked = items + found.records, walked + found.size
        if number < _MOST_LOOKED_AT and found.first and (ended := _ended(found.first, kind)):
            oldest = min(oldest or ended, ended)
    for parts in unread:
        for part in parts[1:]:
            found = walk(*part, kind, until)
            items, walked = items + found.records, walked + found.size
    if walked >= total:
        return Backlog(items, total, oldest_ns=oldest)
    return Backlog(items * total // max(1, walked), total, is_estimate=True, oldest_ns=oldest)


def _ended(payload: bytes, kind: int) -> int:
    """When the span of this record ended, or when this log record was made."""
    return end_time(payload[U16.size :]) if kind == SPAN else log_time(payload[U16.size :]) if kind == LOG else 0


_INTERVAL = 1.0
"""Seconds between two figures."""

_TOUCHED = 5.0
"""Seconds after which figures that have not changed get a new modification time: it shows that the shipper works."""

_COUNTING = 0.01
"""Seconds that counting what waits for one destination may take."""


class StatusFile:
    """Takes the figures of ``stages`` once a second, and writes them where they have changed.

    Otherwise the file gets a new modification time every few seconds.

    ``within`` is the spool folder.

    Attributes:
        figures: The latest ones. Other threads read them.
    """

    def __init__(
        self, within: str, plan: ShipPlan, environ: Mapping[str, str], stages: Stages, problems: Problems
    ) -> None:
        self._path = os.path.join(within, STATUS)
        self._stages = stages
        self._problems = problems
        self._addresses = {stage.exporter: _address(stage.exporter, plan, environ) for stage in stages.exporting}
        self._next = self._touch_at = 0.0
        self._written = Figures()
        self.figures = Figures(
            release=__version__, pid=os.getpid(), began_ns=time.time_ns(), limit_bytes=plan.settings.spool_max_bytes
        )

    def latest(self) -> Figures:
        """The figures, with the counts of this moment. May be called in any thread."""
        figures = self.figures
        stages = self._stages.exporting
        if len(figures.destinations) != len(stages):
            return figures  # none have been taken yet
        return replace(figures, destinations=tuple(replace(stage.counters.figures) for stage in stages))

    def publish(self, snapshot: FolderSnapshot) -> None:
        """Take the figures of this snapshot if it is time. A file that cannot be written is left as it is."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        try:
            self._publish(snapshot)
        except Exception as error:  # noqa: BLE001  deliveries must go on
            self._problems.warn_once(f"the counts of delivery cannot be taken: {describe(error)}")

    def _publish(self, snapshot: FolderSnapshot) -> None:
        self.figures = figures = replace(
            self.figures,
            updated_ns=time.time_ns(),
            writers=sum(process.alive for process in snapshot.processes.values()),
            bytes=snapshot.size,
            unwritten=self._stages.unwritten,
            destinations=tuple(self._destination(stage, snapshot) for stage in self._stages.exporting),
            problems=tuple(self._problems.active()),
            messages=tuple(self._problems.messages()),
        )
        changed = replace(figures, updated_ns=self._written.updated_ns) != self._written
        if changed or not os.path.lexists(self._path):
            with contextlib.suppress(OSError):
                write_atomically(self._path, figures.as_json().encode())
                self._written = figures
        if time.monotonic() >= self._touch_at:
            self._touch_at = time.monotonic() + _TOUCHED
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def _destination(self, stage: SinkStage, snapshot: FolderSnapshot) -> DestinationFigures:
        """Besides what waits in segments, some spans are in the hands of the stage, whose segments may be gone."""
        segments = [(name, segment) for name, process in snapshot.processes.items() for segment in process.segments]
        unread = [
            [
                Unread(segment.path, stage.read_offset(name, segment.sequence), segment.size)
                for segment in process.segments
            ]
            for name, process in snapshot.processes.items()
        ]
        waiting = measure(unread, RECORDS[stage.signal], _COUNTING)
        counters, figures = stage.counters, stage.counters.figures
        figures.exporter, figures.address = stage.exporter, self._addresses[stage.exporter]
        figures.waiting = waiting.items + counters.in_hand
        figures.waiting_bytes = sum(max(0, each.size - stage.read_of(name, each.sequence)) for name, each in segments)
        figures.is_estimate = waiting.is_estimate
        figures.oldest_ns = min(filter(None, (waiting.oldest_ns, counters.oldest_ns)), default=0)
        return replace(figures)


def _address(exporter: str, plan: ShipPlan, environ: Mapping[str, str]) -> str:
    try:
        return destination_of(exporter, plan, environ, lambda _problem: None).text
    except Exception:  # noqa: BLE001  as above; the sink reports what is wrong
        return exporter
