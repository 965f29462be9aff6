"""The sink that counts spans, and sends and writes what it has counted from time to time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._formats.signals import METRICS
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.metrics import settings as metrics_settings
from ray_tracing_hooks._ship.metrics.calls import Calls
from ray_tracing_hooks._ship.metrics.message import as_json, messages, refused
from ray_tracing_hooks._ship.metrics.outbox import Outbox
from ray_tracing_hooks._ship.metrics.settings import MetricsSettings
from ray_tracing_hooks._ship.metrics.totals import Key, Totals, from_rows, rows
from ray_tracing_hooks._ship.sinks import Batch, Sink, Surroundings
from ray_tracing_hooks._ship.sinks.local import LocalSink
from ray_tracing_hooks._ship.sinks.otlp import connect
from ray_tracing_hooks._ship.transport import Transport, one_line

_DELAY = 1.0
_LAST_TRY = 4.0
"""Seconds that sending may take when the shipper ends."""

_MOST_TEXTS = 5
"""A server may put a time or a number into each of its answers."""

_SHARE = 10
"""Files of metrics may take this part of what those of spans may."""


def make(surroundings: Surroundings) -> Sink:
    """The sink that the standard variables ask for. Metrics that cannot be made hold nothing up."""
    try:
        plan, environ, problem = surroundings.plan, surroundings.environ, surroundings.problem
        return MetricsSink(metrics_settings.read(plan.exporters, environ, problem), surroundings)
    except Exception as error:  # noqa: BLE001  it would be tried again and again, and no segment removed meanwhile
        surroundings.problem(f"metrics cannot be made: {describe(error)}; spans are delivered without")
    return _NoMetrics()


class _NoMetrics:
    """Takes spans and does nothing with them."""

    delay = _DELAY

    def deliver(self, batches: Sequence[Batch]) -> None: ...

    def checkpoint(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None: ...


class MetricsSink:
    """Counts spans in its state, so that the next shipper goes on from there and counts none of them again.

    Every interval, and when somebody is in a hurry, it writes to ``metrics`` in the folder of local files, and gives
    what it has counted to a thread that sends it. It never fails to deliver.
    """

    may_forget = True

    def __init__(self, settings: MetricsSettings, surroundings: Surroundings) -> None:
        self._settings = settings
        self._surroundings = surroundings
        stored = surroundings.state
        self._totals = Totals(stored.get("totals"), exponential=settings.exponential)
        self._calls = Calls(self._totals, exemplars=settings.exemplars)
        self.delay = min(_DELAY, settings.interval / 2)
        self._next = time.monotonic() + settings.interval
        # What was counted and has not been written or sent yet is so from the beginning.
        self._written = self._given = -1
        self._files: LocalSink | None = None
        self._files_state: Mapping[str, Any] = stored.get("files") or {}
        self._sent: tuple[int, dict[Key, Any]] = (0, {})
        self._on_its_way: tuple[int, dict[Key, Any]] | None = None
        if settings.delta and self._totals.series and "sent" in stored:
            self._sent = (int(stored["sent"][0]), from_rows(stored["sent"][1]))
        self._said: set[str] = set()
        self._outbox: Outbox | None = None
        if settings.otlp is not None:
            self._address = settings.otlp.address
            self._outbox = Outbox(
                self._connect,
                trouble=self._trouble,
                refused=self._refused,
                accepted=self._accepted,
                tried=surroundings.wake,
            )

    @property
    def is_sending(self) -> bool:
        return self._outbox is not None and self._outbox.is_waiting

    def deliver(self, batches: Sequence[Batch]) -> None:
        bad = self._calls.read(batches)
        self._surroundings.count("{count} spans could not be decoded for metrics and were not counted", bad)

    def checkpoint(self) -> Mapping[str, Any]:
        state: dict[str, Any] = {"totals": self._totals.state(), "files": self._files_state}
        if self._settings.delta:
            time_ns, marks = self._sent
            state["sent"] = [time_ns, rows(marks)]
        return state

    def turned(self, *, hurry: bool) -> bool:
        changed = self._settle()
        if not hurry and time.monotonic() < self._next:
            return changed
        self._next = time.monotonic() + self._settings.interval
        changed |= self._write()
        self._send(only_news=hurry)
        for instrument in self._totals.series.values():
            instrument.forget_exemplars()
        return changed

    def close(self) -> None:
        self._write()
        if self._files is not None:
            self._files.close()
        if self._outbox is not None:
            self._send(only_news=True)
            self._outbox.close(_LAST_TRY)
            self._settle()

    def _write(self) -> bool:
        """Write to the files what is new there; whether the state is another one."""
        if not self._settings.local or self._written == self._totals.changes or not self._totals.series:
            return False
        self._totals.is_told = True
        try:
            if self._files is None:
                self._files = self._open_files()
            self._files.append(as_json(message) + b"\n" for message in messages(self._totals, time.time_ns()))
        except Exception as error:  # noqa: BLE001  the next time is soon, and they hold no more than the next do
            text = str(error) if isinstance(error, TracingError) else f"metrics are not written: {describe(error)}"
            self._surroundings.trouble("metrics-local", text)
        else:
            self._surroundings.trouble("metrics-local", None)
            self._written = self._totals.changes
        if self._files is not None:
            self._files_state = self._files.checkpoint()
        return True

    def _open_files(self) -> LocalSink:
        surroundings = self._surroundings
        plan = surroundings.plan
        return LocalSink(
            dataclasses.replace(
                surroundings,
                plan=plan._replace(local_max_bytes=max(1, plan.local_max_bytes // _SHARE)),
                state=self._files_state,
                remember=self._remember_files,
                signal=METRICS,
            )
        )

    def _remember_files(self, state: Mapping[str, Any]) -> None:
        self._files_state = state
        self._surroundings.remember(self.checkpoint())

    def _send(self, *, only_news: bool) -> None:
        """Give what has been counted to the outbox; ``only_news``: not if that has been done already."""
        outbox, totals = self._outbox, self._totals
        if outbox is None or not totals.series:
            return
        if only_news and self._given == totals.changes and (outbox.is_empty or outbox.is_waiting):
            return
        self._settle()
        if self._settings.delta and not outbox.is_empty:
            return  # what is on its way must get there first
        now = time.time_ns()
        found = messages(totals, now, self._sent[1], self._sent[0]) if self._settings.delta else messages(totals, now)
        assert self._settings.otlp is not None
        write = as_json if self._settings.otlp.protocol == "http/json" else _as_protobuf
        self._given = totals.changes
        totals.is_told = True
        requests = [write(message) for message in found]
        if requests:
            self._on_its_way = (now, totals.marks()) if self._settings.delta else None
            outbox.give(requests)

    def _settle(self) -> bool:
        """Take note of what has arrived, where that matters; whether it does."""
        if self._on_its_way is None or self._outbox is None or not self._outbox.is_empty:
            return False
        self._sent, self._on_its_way = self._on_its_way, None
        return True

    # In the thread of the outbox.

    def _connect(self) -> Transport:
        assert self._settings.otlp is not None
        return connect(self._settings.otlp, METRICS)

    def _trouble(self, text: str | None) -> None:
        self._surroundings.trouble("metrics-otlp", None if text is None else f"metrics are not sent: {text}")

    def _refused(self, reason: str) -> None:
        self._say(f"metrics were refused by {self._address}: {reason}")

    def _accepted(self, answer: bytes) -> None:
        assert self._settings.otlp is not None
        points, message = refused(answer, is_json=self._settings.otlp.protocol == "http/json")
        if points or message:
            what = "did not take all metrics" if points else "took the metrics and says"
            self._say(f"{self._address} {what}: {one_line(message) or 'nothing more'}")

    def _say(self, text: str) -> None:
        if len(self._said) < _MOST_TEXTS:
            self._said.add(text)
        if text in self._said:
            self._surroundings.problem(text)


def _as_protobuf(message: Any) -> bytes:
    found: bytes = message.SerializeToString()
    return found
