"""Sends requests in its own thread, so that a slow or unavailable server delays nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from ray_tracing_hooks._ship.retry import Backoff, reason, retry_after
from ray_tracing_hooks._ship.transport.contract import Refused, Transport

_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0
"""Seconds to wait at most before the next attempt."""


class Outbox:
    """Sends the latest requests that it is given; older ones that have not been sent by then are given up.

    ``connect`` creates the transport, in the thread. ``trouble`` is called with each problem, and with None when it is
    over; ``refused`` with the reason why the server will never accept a request; ``accepted`` with each response;
    ``tried`` after each attempt, successful or not.
    """

    def __init__(
        self,
        connect: Callable[[], Transport],
        *,
        trouble: Callable[[str | None], None],
        refused: Callable[[str], None],
        accepted: Callable[[bytes], None],
        tried: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._trouble = trouble
        self._refused = refused
        self._accepted = accepted
        self._tried = tried
        self._changed = threading.Condition()
        self._given: deque[bytes] | None = None
        self._number = self._tried_number = self._sent_number = 0
        self._failing = self._hurried = self._ending = False
        self._thread = threading.Thread(target=self._run, name="send-metrics", daemon=True)
        self._thread.start()

    @property
    def is_waiting(self) -> bool:
        """Whether requests have been given whose result is not known yet."""
        return self._tried_number < self._number and not self._failing

    @property
    def is_empty(self) -> bool:
        """Whether all given requests have been sent or refused."""
        return self._sent_number == self._number

    def give(self, requests: Iterable[bytes]) -> None:
        with self._changed:
            self._given = deque(requests)
            self._number += 1
            self._changed.notify()

    def hurry(self, timeout: float) -> None:
        """Attempt at once to send what has not been sent, and wait for the result for at most ``timeout`` seconds.

        A pause that the server has asked for is kept.
        """
        with self._changed:
            self._hurried = not self.is_empty
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._hurried, timeout)
            self._hurried = False

    def close(self, timeout: float) -> None:
        """Make one last attempt to send the pending requests, for at most ``timeout`` seconds."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        transport: Transport | None = None
        requests: deque[bytes] = deque()
        number = 0
        backoff = Backoff(_FIRST_RETRY, _LAST_RETRY)
        rest: float | None = None
        earliest = 0.0
        is_last = False
        while True:
            with self._changed:
                pause = earliest - time.monotonic()
                self._changed.wait_for(partial(self._is_time, pause), pause if pause > 0 else rest)
                if self._ending and (is_last or self.is_empty or time.monotonic() < earliest):
                    break
                was_hurried, is_last = self._hurried, self._ending
                if time.monotonic() < earliest:
                    self._answer_hurry()
                    continue
                if self._given is not None:
                    requests, self._given, number = self._given, None, self._number
            try:
                if transport is None:
                    transport = self._connect()
                self._send(transport, requests)
                transport.close()  # the next ones are a minute away
            except Exception as error:  # noqa: BLE001  whatever fails, the next attempt may succeed
                rest, earliest = backoff.next(), time.monotonic() + retry_after(error)
                self._trouble(reason(error))
                self._failing = True  # waiting flushes are answered with the problem
            else:
                backoff.reset()
                rest = None
                self._failing = False
                self._sent_number = number
                self._trouble(None)
            self._tried_number = number
            # One that was on its way when the hurry began counts if it has arrived.
            if was_hurried or not requests:
                self._answer_hurry()
            self._tried()
        if transport is not None:
            transport.close()

    def _is_time(self, pause: float) -> bool:
        """Whether there is something to do now, where the server has asked for a pause of so many seconds."""
        return self._ending or self._hurried or (pause <= 0 and self._given is not None)

    def _answer_hurry(self) -> None:
        with self._changed:
            self._hurried = False
            self._changed.notify_all()

    def _send(self, transport: Transport, requests: deque[bytes]) -> None:
        while requests:
            try:
                answer = transport.send(requests[0])
            except Refused as refusal:
                self._refused(refusal.reason)
            else:
                self._accepted(answer)
            requests.popleft()
