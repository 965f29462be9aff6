"""The stage that counts spans for metrics, in parallel with the deliveries of the spans, and has the node sampled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.folder import Look
from ray_tracing_hooks._ship.metrics.settings import read
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.stage import Stage
from ray_tracing_hooks._ship.status.figures import Figures

if TYPE_CHECKING:
    from ray_tracing_hooks._ship.metrics.calls import Calls
    from ray_tracing_hooks._ship.metrics.export import MetricsExport
    from ray_tracing_hooks._ship.metrics.utilization import Utilization

_LABEL = "metrics"

_DELAY = 1.0
"""Seconds that spans may wait to be counted."""

_STORE_SECONDS = 1.0
"""Seconds between two stores of the totals, which may be large, while there is more to count."""


class MetricsStage(Stage):
    """Counts spans, and exports the totals at every interval and when a flush is waiting.

    The totals are stored with the progress, so the next shipper does not count spans again. Metrics delay nothing: if
    they cannot be computed, stored, written or sent, spans are delivered without them. ``figures`` returns the latest
    figures of the delivery, which are exported with the metrics of calls.
    """

    def __init__(
        self,
        spool_dir: str,
        plan: ShipPlan,
        environ: Mapping[str, str],
        problems: Problems,
        figures: Callable[[], Figures],
        *,
        turn_ended: Callable[[], None],
    ) -> None:
        super().__init__(_LABEL, spool_dir, plan, problems, reports=False, turn_ended=turn_ended)
        self._environ = environ
        self._figures = figures
        self._calls: Calls | None = None
        self._export: MetricsExport | None = None
        self._has_begun = False
        self._stored_at = 0.0

    @property
    def is_sending(self) -> bool:
        """Whether an export is in flight whose result is not known yet."""
        return self._export is not None and self._export.is_sending

    @property
    def delay(self) -> float:
        return min(_DELAY, self._export.interval / 2) if self._export is not None else _DELAY

    def _is_due(self) -> bool:
        return super()._is_due() or (self._export is not None and self._export.is_due)

    def _turn(self, look: Look, *, hurry: bool) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._begin()
        if self._is_unstored:
            self._checkpoint()
        before = self._follower.sequences()
        for batches in self._follower.follow(look):
            if self._export is not None:
                self._export.note(batches)
            if self._calls is not None:
                bad = self._calls.read(batches)
                self._problems.count("{count} spans could not be decoded for metrics and were not counted", bad)
            self.portions += 1
            if time.monotonic() < self._stored_at + _STORE_SECONDS:
                self._is_unstored = True
            else:
                self._checkpoint()
        if self._is_unstored or self._follower.sequences() != before or before.keys() != self.delivered.keys():
            self._checkpoint()
        self.open_processes = self._follower.open_processes()
        if self._export is not None and self._export.turn(hurry=hurry):
            self._checkpoint()

    def _close(self) -> None:
        if self._export is not None:
            self._export.close()
            # The next shipper must not send again what was sent at the end.
            self._checkpoint()

    def _begin(self) -> None:
        state = self._stored.state
        try:
            # Imported here because most shippers do not need these libraries, and a fault in one of them must not end
            # the deliveries.
            from ray_tracing_hooks._ship.metrics.calls import Calls  # noqa: PLC0415
            from ray_tracing_hooks._ship.metrics.delivery import DeliveryMetrics  # noqa: PLC0415
            from ray_tracing_hooks._ship.metrics.export import MetricsExport  # noqa: PLC0415
            from ray_tracing_hooks._ship.metrics.totals import Totals  # noqa: PLC0415

            settings = read(self._plan.exporters, self._environ, self._problems.say)
            totals = Totals(state.get("totals"), exponential=settings.exponential)
            self._export = MetricsExport(
                totals,
                settings,
                state,
                self._plan,
                self._problems,
                remember=self._remember,
                wake=self._turn_ended,
                delivery=DeliveryMetrics(self._figures) if self._plan.settings.metrics else None,
                utilization=self._utilization(),
            )
            if self._plan.settings.metrics:
                self._calls = Calls(totals, exemplars=settings.exemplars)
        except Exception as error:  # noqa: BLE001  otherwise every turn would fail, and no segment would be removed
            self._problems.say(f"metrics cannot be computed: {describe(error)}; spans are delivered without them")

    def _utilization(self) -> Utilization | None:
        if self._plan.settings.utilization is None:
            return None
        from ray_tracing_hooks._ship.metrics.utilization import Utilization  # noqa: PLC0415  opt-in

        return Utilization(self._plan.settings.utilization, self._problems.say)

    def _checkpoint(self) -> None:
        self._stored_at = time.monotonic()
        self._store(self._export.state() if self._export is not None else {}, must=False)
