"""All stages of one shipper: a delivery for each exporter and signal, and one stage for metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ray_tracing_hooks._formats.otlp import LOGS, TRACES, Signal
from ray_tracing_hooks._safety.guard import describe
from ray_tracing_hooks._ship.figures import Figures
from ray_tracing_hooks._ship.folder import FolderSnapshot, Segment
from ray_tracing_hooks._ship.registry import takes, usable
from ray_tracing_hooks._ship.stage import SinkStage, Stage, StageContext
from ray_tracing_hooks._spool.layout import LOG, SPAN
from ray_tracing_hooks._spool.progress import WHOLE
from ray_tracing_hooks._spool.reader import count_spans

if TYPE_CHECKING:
    from ray_tracing_hooks._ship.metrics.provider import Metrics
    from ray_tracing_hooks._ship.metrics.stage import MetricsStage

RECORDS = {TRACES: SPAN, LOGS: LOG}
"""The signals that are delivered, and the kind of their records in a spool."""

_LAST_DELIVERY = 1.0
"""Seconds that a delivery may take to end."""


class Stages:
    """The stages of a plan, which share ``context``. ``figures`` is called in their threads for the latest figures."""

    def __init__(self, context: StageContext, figures: Callable[[], Figures]) -> None:
        exporters, wrong = usable(context.plan.exporters)
        self._problems = context.problems
        for text in wrong:
            self._problems.warn_once(text)
        plan = context.plan._replace(exporters=exporters)
        context = context._replace(plan=plan)
        self.signals: list[Signal] = [signal for signal in RECORDS if signal is TRACES or plan.log_records]
        self._exporting = [
            SinkStage(name, context, reports=signal is TRACES and name == exporters[0], signal=signal)
            for signal in self.signals
            for name in exporters
            if takes(name, signal)
        ]
        self._metrics = self._make_metrics(context, figures) if plan.has_metrics else None
        self._calls: MetricsStage | None = None
        if self._metrics is not None and plan.settings.metrics and self._metrics.has_destination:
            from ray_tracing_hooks._ship.metrics.stage import MetricsStage  # noqa: PLC0415  most need no SDK

            self._calls = MetricsStage(context, self._metrics)
        self._stages: list[Stage] = [*self._exporting, *([self._calls] if self._calls is not None else [])]

    def _make_metrics(self, context: StageContext, figures: Callable[[], Figures]) -> Metrics | None:
        try:
            from ray_tracing_hooks._ship.metrics.provider import Metrics  # noqa: PLC0415  most need no SDK

            return Metrics(context, figures)
        except Exception as error:  # noqa: BLE001  a fault in the SDK must not end the stages
            self._problems.warn_once(f"there are no metrics: {describe(error)}; spans are delivered without them")
            return None

    def begin_metrics(self) -> None:
        """Begin with metrics as soon as the resource of this node is known. Called again and again; never raises."""
        if self._metrics is None:
            return
        resource = next((each.counters.resource for each in self._exporting if each.counters.resource), b"")
        try:
            self._metrics.begin(resource)
        except Exception as error:  # noqa: BLE001  deliveries must go on
            self._problems.warn_once(f"there are no metrics: {describe(error)}; spans are delivered without them")

    def start(self) -> None:
        for stage in self._stages:
            stage.start()

    def submit(self, snapshot: FolderSnapshot, *, flush: bool) -> None:
        """Deliver what is new in ``snapshot``; with ``flush`` at once."""
        for stage in self._stages:
            stage.submit(snapshot, flush=flush)

    def store_again(self) -> None:
        """Store the progress of all stages again, since the files have been removed."""
        for stage in self._stages:
            stage.store_again()

    def end(self) -> None:
        """End all stages, abandon those that are busy for too long, and export the last metrics."""
        for stage in self._stages:
            stage.end(_LAST_DELIVERY)
        if self._metrics is not None:
            self._metrics.close()

    # How far they are.

    @property
    def portions(self) -> int:
        return sum(stage.portions for stage in self._stages)

    @property
    def open_processes(self) -> set[str]:
        return set().union(*(stage.open_processes for stage in self._stages))

    @property
    def exporting(self) -> tuple[SinkStage, ...]:
        """The stages that deliver, one for each exporter and signal."""
        return tuple(self._exporting)

    @property
    def unwritten(self) -> int:
        """How many spans and log records processes could not write to the spool."""
        return sum(stage.unwritten for stage in self._stages)

    @property
    def written(self) -> int | None:
        """How many spans this and earlier shippers have written to local files; None without local files."""
        found = [each.written for each in self._exporting if each.exporter == "local" and each.signal is TRACES]
        return found[0] if found else None

    def are_drained(self, number: int) -> bool:
        """Whether everything in this snapshot has been delivered."""
        return all(stage.drained >= number for stage in self._stages)

    def is_done(self, number: int) -> bool:
        """The same, and the metrics of this snapshot, submitted with ``flush``, have been sent, or cannot be."""
        return self._are_exported(number) and self.are_drained(number)

    def _are_exported(self, number: int) -> bool:
        return self._calls is None or self._calls.flushed >= number

    def delivered_below(self, process: str) -> int:
        """The sequence below which all stages have processed the segments of this process."""
        return min((stage.delivered.get(process, -1) for stage in self._stages), default=WHOLE)

    def read_of(self, process: str, segment: Segment) -> int:
        """The offset up to which all stages have processed this segment, as stored."""
        return min((stage.read_of(process, segment.sequence) for stage in self._stages), default=0)

    def exported_of(self, process: str, segment: Segment) -> int:
        """The offset up to which all exporters have processed this segment, not counting metrics."""
        return min((each.read_of(process, segment.sequence) for each in self._exporting), default=0)

    def could_not_read(self, path: str) -> bool:
        """Whether a stage could not read this segment, or not in full."""
        return any(stage.could_not_read(path) for stage in self._stages)

    def given_up(self, process: str, segment: Segment, signal: Signal) -> int:
        """Count the items of this signal in a segment that is about to be removed as dropped for each exporter that has
        not read them. Returns how many some exporter has not read.
        """
        counted: dict[int, int] = {}
        for each in self._exporting:
            if each.signal is signal:
                offset = each.read_offset(process, segment.sequence)
                if offset not in counted:
                    counted[offset] = count_spans(segment.path, offset, kind_of_record=RECORDS[signal])[0]
                each.counters.figures.dropped += counted[offset]
        return max(counted.values(), default=0)

    def waiting(self, snapshot: FolderSnapshot, spool_dir: str, until: float) -> list[str]:
        """How many spans, or log records, wait for each exporter, as far as counted by the monotonic time ``until``."""
        texts = []
        for each in self._exporting:
            if each.drained >= snapshot.number:
                continue
            spans, complete = 0, True
            for name, process in snapshot.processes.items():
                for segment in process.segments:
                    offset = each.read_of(name, segment.sequence)
                    counted, finished = count_spans(segment.path, offset, until, RECORDS[each.signal])
                    spans += counted
                    complete = complete and finished
            if spans:
                number = f"{'' if complete else 'at least '}{spans:,} {_wait(each.signal, spans)}"
                text = f"{number} in {spool_dir} for the exporter {each.exporter!r}; delivery continues"
                if each.signal is TRACES:
                    text += f", and `ray-tracing-hooks replay {spool_dir}` delivers what is left once Ray has ended"
                texts.append(text)
        if not self._are_exported(snapshot.number):
            texts.append("the last metrics have not been accepted yet; sending continues")
        return texts


def _wait(signal: Signal, count: int) -> str:
    return f"{signal.items.removesuffix('s')} waits" if count == 1 else f"{signal.items} wait"
