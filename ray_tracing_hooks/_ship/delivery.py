"""Delivery to one sink, in a thread of its own: a slow or failing sink holds no other one back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ray_tracing_hooks._errors import TracingError
from ray_tracing_hooks._formats.signals import LOGS, TRACES, Signal
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._private import read_file
from ray_tracing_hooks._ship.files import write_with_room
from ray_tracing_hooks._ship.folder import Look
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._ship.sinks import Batch, DeliveryError, Sink, Surroundings, make_sink

_FIRST_RETRY, _LAST_RETRY = 0.2, 10.0
"""Seconds to wait at most before the next attempt: twice as long after each failure. The wait is drawn from the upper
half, so that the shippers of many nodes do not come back to a collector all at once."""

_SELDOM = 1.0
"""Seconds between two times that a large state is stored while there is more to deliver."""


class Delivery:
    """Takes what each look at the spool has that is new to one sink, and remembers how far it came.

    The progress is stored after every delivery, in ``progress-<sink>.json``; that of another ``signal`` than spans in
    ``progress-<signal>-<sink>.json``. The main thread reads the attributes.

    Attributes:
        signal: What it delivers of the spool.
        drained: Number of the newest look of which everything was delivered and stored.
        delivered: For each process, the sequence below which its segments were delivered and stored.
        open_processes: The processes with spans that have begun and not ended.
        portions: How many portions have been delivered.
        hurried: Number of the newest look that was offered in a hurry and taken in.
        resting: It waits for more spans to come together, or for the next attempt after a failure.
    """

    def __init__(
        self,
        name: str,
        spool_dir: str,
        plan: ShipPlan,
        environ: Mapping[str, str],
        problems: Problems,
        *,
        reports: bool,
        turn_ended: Callable[[], None],
        signal: Signal = TRACES,
    ) -> None:
        self.name = name
        self.signal = signal
        self._label = name if signal is TRACES else f"{signal.name}-{name}"
        self.drained = 0
        self.portions = 0
        self.hurried = 0
        self.resting = False
        self._path = os.path.join(spool_dir, f"progress-{self._label.replace(os.sep, '_')}.json")
        self._plan = plan
        self._environ = environ
        self._problems = problems
        self._turn_ended = turn_ended
        stored = self._load()
        self._stored_processes: Mapping[str, Any] = stored["processes"]
        self._state: Mapping[str, Any] = stored["sink"]
        try:
            self._follower = self._follow_from(self._stored_processes, reports=reports)
        except (ValueError, TypeError, KeyError) as error:
            name = os.path.basename(self._path)
            logger.warning("the progress in %r makes no sense, starting anew: %s", name, describe(error))
            self._follower = self._follow_from({}, reports=reports)
        self.delivered: dict[str, int] = self._follower.sequences()
        self.open_processes: set[str] = self._follower.open_processes()
        if not os.path.lexists(self._path):
            # Its room is taken before the disk may be full.
            with contextlib.suppress(DeliveryError):
                self._write(self._stored_processes, self._state)
        self._sink: Sink | None = None
        self._pending: list[Batch] = []
        self._unstored = False
        self._stored_at = 0.0
        self._news = threading.Condition()
        self._look: Look | None = None
        self._ending = self._hurried = self._in_hurry = False
        self._thread = threading.Thread(target=self._run, name=f"deliver-{self._label}", daemon=True)
        self._thread.start()

    def _follow_from(self, stored: Mapping[str, Any], *, reports: bool) -> Follower:
        return Follower(
            stored,
            self._problems,
            reports=reports,
            logs=self._plan.logs,
            signal=self.signal,
            dropped=f"{TRACES.items} and {LOGS.items}" if self._plan.log_records else TRACES.items,
        )

    def offer(self, look: Look, *, hurry: bool = False) -> None:
        """Deliver what is new in ``look``; with ``hurry`` now, even if an attempt has just failed.

        A server that asked to be left alone for a while is.
        """
        with self._news:
            self._look = look
            self._hurried = self._hurried or hurry
            self._news.notify()

    @property
    def is_sending(self) -> bool:
        """Whether something is on its way that the sink sends in its own time."""
        return bool(getattr(self._sink, "is_sending", False))

    @property
    def _may_forget(self) -> bool:
        return bool(getattr(self._sink, "may_forget", False))

    def could_not_read(self, path: str) -> bool:
        """Whether this segment could not be read, or not in full."""
        return path in self._follower.unread

    def store_again(self) -> None:
        """Store the progress in the next turn, since somebody has removed it."""
        self._unstored = True

    def end(self, timeout: float) -> None:
        """Close the sink, unless it is busy for longer than ``timeout`` seconds."""
        with self._news:
            self._ending = True
            self._news.notify()
        self._thread.join(timeout)

    def read_of(self, process: str, sequence: int) -> int:
        """The offset up to which this segment was read."""
        entry = self._stored_processes.get(process)
        if entry is None or entry["sequence"] < sequence:
            return 0
        return int(entry["offset"]) if entry["sequence"] == sequence else 1 << 62

    def _run(self) -> None:
        key = f"sink-{self._label}"
        retry = 0.0
        rest = forced = 0.0
        while (look := self._next(rest, forced)) is not None:
            forced = 0.0
            try:
                self._turn(look)
            except BaseException as error:  # noqa: BLE001  whatever an exporter raises, the next attempt goes on
                expected = isinstance(error, TracingError)
                self._problems.set(key, str(error) if expected else f"sink {self._label!r} failed: {describe(error)}")
                retry = min(max(_FIRST_RETRY, 2 * retry), _LAST_RETRY)
                rest = retry * random.uniform(0.5, 1.0)  # noqa: S311  no secret
                if isinstance(error, DeliveryError) and error.retry_after:
                    forced = error.retry_after
            else:
                self._problems.clear(key)
                self.drained = look.number
                if self._in_hurry:
                    self.hurried = look.number
                retry = 0.0
                rest = self._sink.delay if self._sink is not None else 0.0
            self._turn_ended()
        if self._sink is not None:
            self._sink.close()
            if self._may_forget:
                # What it has sent at the end, the next shipper must not send again.
                self._store(self._sink.checkpoint())

    def _next(self, rest: float, forced: float) -> Look | None:
        """The next look to deliver, after ``rest`` seconds unless there is a hurry, and after ``forced`` in any case.

        None at the end.
        """
        now = time.monotonic()
        earliest = now + forced
        until = max(now + rest, earliest)
        with self._news:
            while not self._ending:
                wait = (earliest if self._hurried else until) - time.monotonic()
                self.resting = wait > 0
                if self._look is not None and wait <= 0:
                    self._in_hurry, self._hurried = self._hurried, False
                    look, self._look = self._look, None
                    return look
                self._news.wait(wait if wait > 0 else None)
        return None

    def _turn(self, look: Look) -> None:
        if self._sink is None:
            self._sink = make_sink(
                self.name,
                Surroundings(
                    self._plan,
                    self._state,
                    self._remember,
                    self._problems.count,
                    self._environ,
                    self._problems.say,
                    self._trouble,
                    self._turn_ended,
                    self.signal,
                ),
            )
        if self._pending and getattr(self._sink, "needs_company", False):
            # In place: what the sink has done of the portion so far it has not to do again.
            self._pending.extend(next(self._follower.follow(look), []))
        if self._pending or self._unstored:
            self._deliver(self._sink)
        before = self._follower.sequences()
        for batches in self._follower.follow(look):
            self._pending = batches
            self._deliver(self._sink)
        is_late = self._may_forget and self._unstored
        if is_late or self._follower.sequences() != before or before.keys() != self.delivered.keys():
            self._store(self._sink.checkpoint())
        self.open_processes = self._follower.open_processes()
        turned = getattr(self._sink, "turned", None)
        if turned is not None and turned(hurry=self._in_hurry):
            self._store(self._sink.checkpoint())

    def _deliver(self, sink: Sink) -> None:
        if self._pending:
            sink.deliver(self._pending)
            self._pending = []
            self.portions += 1
            if self._may_forget and time.monotonic() < self._stored_at + _SELDOM:
                self._unstored = True
                return
        self._store(sink.checkpoint())

    def _store(self, state: Mapping[str, Any]) -> None:
        self._unstored = True
        self._stored_at = time.monotonic()
        processes = self._follower.positions()
        sequences = self._follower.sequences()
        key = f"progress-{self._label}"
        try:
            self._write(processes, state)
        except DeliveryError as error:
            if state and os.path.lexists(self._path) and not self._may_forget:
                raise
            # Where a sink has no state, or none that another shipper would go back to, delivery goes on: it may be what
            # makes room on a full disk. A shipper that takes over before this can be stored delivers some spans again.
            self._problems.set(key, str(error))
        else:
            self._problems.clear(key)
            self._unstored = False
        self._stored_processes, self._state = processes, state
        self.open_processes = self._follower.open_processes()
        self.delivered = sequences

    def _remember(self, state: Mapping[str, Any]) -> None:
        try:
            self._write(self._stored_processes, state)
        except DeliveryError:
            if os.path.lexists(self._path):
                raise

    def _trouble(self, name: str, text: str | None) -> None:
        if text is None:
            self._problems.clear(name)
        else:
            self._problems.set(name, text)

    def _write(self, processes: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        try:
            # Progress is what lets segments be removed, so a full disk must not keep it from being stored.
            write_with_room(self._path, json.dumps({"processes": processes, "sink": state}))
        except OSError as error:
            name = os.path.basename(self._path)
            raise DeliveryError(f"cannot write {name!r} in the spool: {error.strerror}") from error

    def _load(self) -> dict[str, Any]:
        try:
            found = json.loads(read_file(self._path))
            return {"processes": dict(found["processes"]), "sink": dict(found["sink"])}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError) as error:
            name = os.path.basename(self._path)
            logger.warning("the progress in %r cannot be read, starting anew: %s", name, describe(error))
        return {"processes": {}, "sink": {}}
