"""The stage that delivers one signal to one sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ray_tracing_hooks._formats.signals import TRACES, Signal
from ray_tracing_hooks._ship.folder import Look
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.sink import Batch, Sink, Surroundings
from ray_tracing_hooks._ship.sinks.registry import make_sink
from ray_tracing_hooks._ship.stage import Stage


def label_of(exporter: str, signal: Signal) -> str:
    """The label of the stage that delivers a signal with an exporter."""
    return exporter if signal is TRACES else f"{signal.name}-{exporter}"


class SinkStage(Stage):
    """Delivers one portion after another to a sink, and stores the progress after each.

    Attributes:
        exporter: The name of the sink.
    """

    def __init__(
        self,
        exporter: str,
        spool_dir: str,
        plan: ShipPlan,
        environ: Mapping[str, str],
        problems: Problems,
        *,
        reports: bool,
        turn_ended: Callable[[], None],
        signal: Signal = TRACES,
    ) -> None:
        self.exporter = exporter
        self._environ = environ
        self._sink: Sink | None = None
        self._pending: list[Batch] = []
        self._counted_bytes = 0
        super().__init__(
            label_of(exporter, signal), spool_dir, plan, problems, reports=reports, turn_ended=turn_ended, signal=signal
        )

    @property
    def written(self) -> int | None:
        """How many spans, or log records, this and earlier shippers have written to files; None for other sinks."""
        items = self._stored.state.get("items")
        return items if isinstance(items, int) else None

    @property
    def delay(self) -> float:
        return self._sink.delay if self._sink is not None else 0.0

    def _turn(self, look: Look, *, hurry: bool) -> None:
        if self._sink is None:
            self._sink = self._make_sink()
        sink = self._sink
        if self._pending and sink.wants_more:
            # In place, so that the sink need not repeat what it has already done of the portion.
            more = next(self._follower.follow(look), [])
            self.tally.read(more)
            self._pending.extend(more)
        if self._pending or self._is_unstored:
            self._deliver(sink)
        before = self._follower.sequences()
        for batches in self._follower.follow(look):
            self.tally.read(batches)
            self._pending = batches
            self._deliver(sink)
        if self._follower.sequences() != before or before.keys() != self.delivered.keys():
            self._checkpoint(sink)
        self.open_processes = self._follower.open_processes()

    def _rest(self) -> None:
        if self._sink is not None:
            self._sink.rest()

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _make_sink(self) -> Sink:
        return make_sink(
            self.exporter,
            Surroundings(
                self._plan,
                self._stored.state,
                self._remember,
                self._problems.count,
                self._environ,
                self._problems.say,
                self.signal,
                self._lost,
            ),
        )

    def _lost(self, text: str, number: int) -> None:
        self._problems.count(text, number)
        self.tally.refused(number)

    def _deliver(self, sink: Sink) -> None:
        if self._pending:
            sink.deliver(self._pending)
            given = self._follower.given_bytes
            self.tally.accepted(given - self._counted_bytes)
            self._counted_bytes = given
            self._pending = []
            self.portions += 1
        self._checkpoint(sink)

    def _checkpoint(self, sink: Sink) -> None:
        # Only a sink with a state depends on the stored one.
        state = sink.checkpoint()
        self._store(state, must=bool(state))
