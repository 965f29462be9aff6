"""Exports totals, figures of delivery and samples of the node, to files and over OTLP: at intervals and on flush."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._formats.signals import METRICS
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.metrics.delivery import DeliveryMetrics, Marks
from ray_tracing_hooks._ship.metrics.message import as_json, messages, refused
from ray_tracing_hooks._ship.metrics.outbox import Outbox
from ray_tracing_hooks._ship.metrics.settings import MetricsSettings
from ray_tracing_hooks._ship.metrics.totals import Key, Totals, from_rows, rows
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.sink import Batch, Surroundings
from ray_tracing_hooks._ship.sinks.local import LocalSink
from ray_tracing_hooks._ship.sinks.otlp import connect
from ray_tracing_hooks._ship.transport.contract import Transport, one_line

if TYPE_CHECKING:
    from ray_tracing_hooks._ship.metrics.utilization import Utilization

_LAST_TRY = 4.0
"""Seconds that sending may take when the shipper ends."""

_MOST_TEXTS = 5
"""Bounds the reports: a server may put a time or a number into each of its responses."""

_MOST_MESSAGES = 100
"""Bounds the samples of the node that cannot be written or sent, each message with 1,000 of them."""

_SHARE = 10
"""Files of metrics may take this fraction of the limit for those of spans."""


class MetricsExport:
    """Writes totals to ``metrics`` in the folder of local files, and passes them to a thread that sends them.

    ``stored`` is an earlier :meth:`state`. ``remember`` stores a state at once, and ``wake`` is called in the sending
    thread after each attempt. ``delivery`` and ``utilization`` are there if their metrics are asked for. Nothing here
    raises because of a file or a server.

    Attributes:
        interval: Seconds between two exports.
    """

    def __init__(
        self,
        totals: Totals,
        settings: MetricsSettings,
        stored: Mapping[str, Any],
        plan: ShipPlan,
        problems: Problems,
        *,
        remember: Callable[[Mapping[str, Any]], None],
        wake: Callable[[], None],
        delivery: DeliveryMetrics | None = None,
        utilization: Utilization | None = None,
    ) -> None:
        self.interval = settings.interval
        self._totals = totals
        self._settings = settings
        self._plan = plan
        self._problems = problems
        self._delivery = delivery
        self._remember = remember
        self._utilization = utilization
        # Samples of the node that have not been written, or not been passed to the thread that sends them.
        self._unwritten: deque[Any] = deque(maxlen=_MOST_MESSAGES)
        self._unsent: deque[Any] = deque(maxlen=_MOST_MESSAGES)
        self._next = time.monotonic() + settings.interval
        # The totals of an earlier shipper may not have been written or sent yet.
        self._written = self._given = -1
        self._files: LocalSink | None = None
        self._files_state: Mapping[str, Any] = stored.get("files") or {}
        self._sent: tuple[int, dict[Key, Any]] = (0, {})
        self._in_flight: tuple[int, dict[Key, Any]] | None = None
        # Those of the delivery begin with this shipper, whatever an earlier one has sent.
        self._delivery_sent: tuple[int, Marks] = (0, {})
        self._delivery_given: tuple[int, Marks] = (0, {})
        if settings.delta and totals.series and "sent" in stored:
            self._sent = (int(stored["sent"][0]), from_rows(stored["sent"][1]))
        self._reported: set[str] = set()
        self._outbox: Outbox | None = None
        if settings.otlp is not None:
            self._address = settings.otlp.address
            self._outbox = Outbox(
                self._connect,
                trouble=self._sending_failed,
                refused=self._refused,
                accepted=self._accepted,
                tried=wake,
            )

    @property
    def is_sending(self) -> bool:
        """Whether an export is in flight whose result is not known yet."""
        return self._outbox is not None and self._outbox.is_waiting

    @property
    def is_due(self) -> bool:
        """Whether :meth:`turn` has something to do even if nothing was counted."""
        return time.monotonic() >= self._next or self._has_settled()

    def note(self, batches: Sequence[Batch]) -> None:
        """Learn the resource of this node from spans of its processes, which samples of the node have too."""
        if self._utilization is not None and not self._totals.resources and batches:
            self._totals.resource(batches[0].resource)

    def state(self) -> Mapping[str, Any]:
        """The totals and the progress of their export, as JSON."""
        state: dict[str, Any] = {"totals": self._totals.state(), "files": self._files_state}
        if self._settings.delta:
            time_ns, marks = self._sent
            state["sent"] = [time_ns, rows(marks)]
        return state

    def turn(self, *, hurry: bool) -> bool:
        """Export if it is due, or in any case with ``hurry``. Returns whether the state has changed."""
        changed = self._settle()
        if not hurry and time.monotonic() < self._next:
            return changed
        self._next = time.monotonic() + self.interval
        self._sample()
        changed |= self._write()
        self._send(only_news=hurry)
        for instrument in self._totals.series.values():
            instrument.forget_exemplars()
        return changed

    def close(self) -> None:
        """Export what has not been exported yet."""
        if self._utilization is not None:
            self._utilization.close()
        self._sample()
        self._write(is_last=True)
        if self._files is not None:
            self._files.close()
        if self._outbox is not None:
            deadline = time.monotonic() + _LAST_TRY
            if self._settings.delta:
                self._outbox.hurry(_LAST_TRY)  # what has been counted since can only be sent after it
            self._send(only_news=True, is_last=True)
            self._outbox.close(max(0.0, deadline - time.monotonic()))
            self._settle()

    def _sample(self) -> None:
        """Take what has been sampled, once the resource of this node is known."""
        if self._utilization is not None and self._totals.resources:
            sampled = self._utilization.take(self._totals.resources[-1])
            if self._settings.local:
                self._unwritten.extend(sampled)
            if self._outbox is not None:
                self._unsent.extend(sampled)

    def _write(self, *, is_last: bool = False) -> bool:
        """Write changes to the files; returns whether the state has changed.

        What has been delivered since the totals were written is written at the end.
        """
        has_news = self._written != self._totals.changes
        is_needed = has_news or self._unwritten or (is_last and self._delivery is not None)
        if not self._settings.local or not is_needed or not self._totals.resources:
            return False
        self._totals.is_told = True
        try:
            if self._files is None:
                self._files = self._open_files()
            now = time.time_ns()
            found = (messages(self._totals, now) if has_news else (), self._of_delivery(now), self._unwritten)
            self._files.append(as_json(message) + b"\n" for message in itertools.chain(*found))
        except Exception as error:  # noqa: BLE001  the next export is soon, and contains everything again
            text = str(error) if isinstance(error, TracingError) else f"metrics are not written: {describe(error)}"
            self._problems.set("metrics-local", text)
        else:
            self._problems.clear("metrics-local")
            self._written = self._totals.changes
            self._unwritten.clear()
        if self._files is not None:
            self._files_state = self._files.checkpoint()
        return True

    def _open_files(self) -> LocalSink:
        return LocalSink(
            Surroundings(
                self._plan.with_settings(local_max_bytes=max(1, self._plan.settings.local_max_bytes // _SHARE)),
                self._files_state,
                self._remember_files,
                self._problems.count,
                {},
                self._problems.say,
                METRICS,
            )
        )

    def _remember_files(self, state: Mapping[str, Any]) -> None:
        self._files_state = state
        self._remember(self.state())

    def _send(self, *, only_news: bool, is_last: bool = False) -> None:
        """Pass the totals to the outbox; with ``only_news`` only if they have changed, or at the end the figures of
        delivery have.
        """
        outbox, totals = self._outbox, self._totals
        if outbox is None or not totals.resources:
            return
        is_needed = not only_news or self._given != totals.changes or not (outbox.is_empty or outbox.is_waiting)
        has_delivered = is_last and self._delivery_marks() != self._delivery_given[1]
        if not (is_needed or has_delivered or self._unsent):
            return
        self._settle()
        if self._settings.delta and not outbox.is_empty:
            return  # the delta in flight must arrive first
        now = time.time_ns()
        if self._settings.delta:
            found = [*messages(totals, now, self._sent[1], self._sent[0]), *self._of_delivery(now, delta=True)]
        else:
            # The outbox gives up what it has not sent.
            is_needed = is_needed or not outbox.is_empty
            found = [*(messages(totals, now) if is_needed else ()), *self._of_delivery(now)]
        assert self._settings.otlp is not None
        write = as_json if self._settings.otlp.protocol == "http/json" else _as_protobuf
        self._given, self._delivery_given = totals.changes, (now, self._delivery_marks())
        totals.is_told = True
        requests = [write(message) for message in itertools.chain(found, self._unsent)]
        self._unsent.clear()
        if requests:
            self._in_flight = (now, totals.marks()) if self._settings.delta else None
            outbox.give(requests)

    def _has_settled(self) -> bool:
        return self._in_flight is not None and self._outbox is not None and self._outbox.is_empty

    def _settle(self) -> bool:
        """Record the arrival of a delta in flight; returns whether there was one."""
        if not self._has_settled():
            return False
        assert self._in_flight is not None
        self._sent, self._in_flight = self._in_flight, None
        self._delivery_sent = self._delivery_given
        return True

    def _delivery_marks(self) -> Marks:
        return self._delivery.marks() if self._delivery is not None else {}

    def _of_delivery(self, now_ns: int, *, delta: bool = False) -> Iterator[pb.MetricsData]:
        if self._delivery is None:
            return
        since_ns, since = self._delivery_sent
        resource = self._totals.resources[0]
        message = self._delivery.message(resource, now_ns, since if delta else None, since_ns)
        if message is not None:
            yield message

    # In the thread of the outbox.

    def _connect(self) -> Transport:
        assert self._settings.otlp is not None
        return connect(self._settings.otlp, METRICS)

    def _sending_failed(self, why: str | None) -> None:
        if why is None:
            self._problems.clear("metrics-otlp")
        else:
            self._problems.set("metrics-otlp", f"metrics are not sent: {why}")

    def _refused(self, why: str) -> None:
        self._say(f"metrics were refused by {self._address}: {why}")

    def _accepted(self, answer: bytes) -> None:
        assert self._settings.otlp is not None
        points, message = refused(answer, is_json=self._settings.otlp.protocol == "http/json")
        if points or message:
            what = "rejected some metrics" if points else "accepted the metrics with a warning"
            self._say(f"{self._address} {what}: {one_line(message) or 'no reason given'}")

    def _say(self, text: str) -> None:
        if len(self._reported) < _MOST_TEXTS:
            self._reported.add(text)
        if text in self._reported:
            self._problems.say(text)


def _as_protobuf(message: Any) -> bytes:
    found: bytes = message.SerializeToString()
    return found
