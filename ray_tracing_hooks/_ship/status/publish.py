"""Takes the figures of a shipper, and stores them in the spool folder for whoever looks at it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace

from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._safety.private import write_atomically
from ray_tracing_hooks._ship.deliveries import RECORDS, Deliveries
from ray_tracing_hooks._ship.files import STATUS
from ray_tracing_hooks._ship.folder import Look
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.sinks.registry import destination_of
from ray_tracing_hooks._ship.stage import SinkStage
from ray_tracing_hooks._ship.status.backlog import Unread, measure
from ray_tracing_hooks._ship.status.figures import Destination, Figures
from ray_tracing_hooks._ship.status.tally import Tally
from ray_tracing_hooks._version import __version__

_INTERVAL = 1.0
"""Seconds between two figures."""

_TOUCHED = 5.0
"""Seconds after which figures that have not changed get a new modification time: it shows that the shipper works."""

_COUNTING = 0.01
"""Seconds that counting what waits for one destination may take."""


class StatusFile:
    """Takes the figures of ``deliveries`` once a second, and writes them where they have changed.

    Otherwise the file gets a new modification time every few seconds.

    ``within`` is the spool folder, and ``spool_dir`` its path for other processes.

    Attributes:
        figures: The latest ones. Other threads read them.
    """

    def __init__(
        self,
        within: str,
        spool_dir: str,
        plan: ShipPlan,
        environ: Mapping[str, str],
        deliveries: Deliveries,
        problems: Problems,
    ) -> None:
        self._path = os.path.join(within, STATUS)
        self._deliveries = deliveries
        self._problems = problems
        self._addresses = {stage.exporter: _address(stage.exporter, plan, environ) for stage in deliveries.exporting}
        self._next = self._touch_at = 0.0
        self._written = Figures()
        self.figures = Figures(
            release=__version__, pid=os.getpid(), began_ns=time.time_ns(), limit_bytes=plan.settings.spool_max_bytes
        )

    def latest(self) -> Figures:
        """The figures, with the counts of this moment. May be called in any thread."""
        figures = self.figures
        stages = self._deliveries.exporting
        if len(figures.destinations) != len(stages):
            return figures  # none have been taken yet
        counted = zip(figures.destinations, stages, strict=True)
        return replace(figures, destinations=tuple(_counted(each, stage.tally) for each, stage in counted))

    def publish(self, look: Look) -> None:
        """Take the figures of this look if it is time. A file that cannot be written is left as it is."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        try:
            self._publish(look)
        except Exception as error:  # noqa: BLE001  deliveries must go on
            self._problems.say(f"the figures of delivery cannot be taken: {describe(error)}")

    def _publish(self, look: Look) -> None:
        self.figures = figures = replace(
            self.figures,
            updated_ns=time.time_ns(),
            writers=sum(process.alive for process in look.processes.values()),
            bytes=look.size,
            unwritten=self._deliveries.unwritten,
            destinations=tuple(self._destination(stage, look) for stage in self._deliveries.exporting),
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

    def _destination(self, stage: SinkStage, look: Look) -> Destination:
        """Besides what waits in segments, some spans are in the hands of the stage, whose segments may be gone."""
        segments = [(name, segment) for name, process in look.processes.items() for segment in process.segments]
        unread = [
            [Unread(segment.path, stage.taken_of(name, segment.sequence), segment.size) for segment in process.segments]
            for name, process in look.processes.items()
        ]
        waiting = measure(unread, RECORDS[stage.signal], _COUNTING)
        tally = stage.tally
        found = Destination(
            exporter=stage.exporter,
            signal=stage.signal.name,
            address=self._addresses[stage.exporter],
            waiting=waiting.items + tally.in_hand,
            waiting_bytes=sum(max(0, each.size - stage.read_of(name, each.sequence)) for name, each in segments),
            is_estimate=waiting.is_estimate,
            oldest_ns=min(filter(None, (waiting.oldest_ns, tally.oldest_ns)), default=0),
        )
        return _counted(found, tally)


def _counted(destination: Destination, tally: Tally) -> Destination:
    """The same, with these counts."""
    return replace(destination, **tally.counts())


def _address(exporter: str, plan: ShipPlan, environ: Mapping[str, str]) -> str:
    try:
        return destination_of(exporter, plan, environ, _ignore).text
    except Exception:  # noqa: BLE001  as above; the sink reports what is wrong
        return exporter


def _ignore(_problem: str) -> None:
    """The sink has reported it."""
