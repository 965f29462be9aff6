"""The stage that counts spans for metrics of calls, in parallel with the deliveries of the spans."""

from __future__ import annotations

import time
from collections.abc import Callable

from ray_tracing_hooks._ship.folder import Look
from ray_tracing_hooks._ship.metrics.calls import Calls
from ray_tracing_hooks._ship.metrics.provider import Metrics
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.stage import Stage

_LABEL = "metrics"

_DELAY = 1.0
"""Seconds that spans may wait to be counted."""

_STORE_SECONDS = 1.0
"""Seconds between two stores of the progress while there is more to count."""


class MetricsStage(Stage):
    """Records calls with the instruments of ``metrics``, and has them exported when a flush waits.

    Metrics delay nothing: if they cannot be computed, written or sent, spans are delivered without them.
    """

    def __init__(
        self, spool_dir: str, plan: ShipPlan, problems: Problems, metrics: Metrics, *, turn_ended: Callable[[], None]
    ) -> None:
        super().__init__(_LABEL, spool_dir, plan, problems, reports=False, turn_ended=turn_ended)
        self._metrics = metrics
        self._calls = Calls(metrics.meter)
        self._stored_at = 0.0
        self._has_news = False

    @property
    def delay(self) -> float:
        return _DELAY

    def _turn(self, look: Look, *, hurry: bool) -> None:
        if self._is_unstored:
            self._checkpoint()
        before = self._follower.sequences()
        for batches in self._follower.follow(look):
            bad = self._calls.read(batches)
            self._problems.count("{count} spans could not be decoded for metrics and were not counted", bad)
            self.portions += 1
            self._has_news = True
            if time.monotonic() < self._stored_at + _STORE_SECONDS:
                self._is_unstored = True
            else:
                self._checkpoint()
        if self._is_unstored or self._follower.sequences() != before or before.keys() != self.delivered.keys():
            self._checkpoint()
        self.open_processes = self._follower.open_processes()
        if hurry and self._has_news:
            self._has_news = False
            self._metrics.flush()

    def _close(self) -> None:
        if self._is_unstored:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._stored_at = time.monotonic()
        self._store({}, must=False)
