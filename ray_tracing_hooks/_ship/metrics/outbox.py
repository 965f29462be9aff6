"""Sends requests in its own thread, so that a slow or unavailable server delays nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

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
        self._failing = self._ending = False
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
                self._changed.wait_for(lambda: self._given is not None or self._ending, rest)
                if self._given is not None:
                    requests, self._given, number = self._given, None, self._number
                elif self._ending and (is_last or not requests or time.monotonic() < earliest):
                    break
                is_last = self._ending
            asked = 0.0
            try:
                if transport is None:
                    transport = self._connect()
                self._send(transport, requests)
                transport.close()  # the next ones are a minute away
            except Exception as error:  # noqa: BLE001  whatever fails, the next attempt may succeed
                rest, asked = backoff.next(), retry_after(error)
                self._trouble(reason(error))
                self._failing = True  # waiting flushes are answered with the problem
            else:
                backoff.reset()
                rest = None
                self._failing = False
                self._sent_number = number
                self._trouble(None)
            self._tried_number = number
            self._tried()
            if asked:
                earliest = time.monotonic() + asked
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, asked)
        if transport is not None:
            transport.close()

    def _send(self, transport: Transport, requests: deque[bytes]) -> None:
        while requests:
            try:
                answer = transport.send(requests[0])
            except Refused as refusal:
                self._refused(refusal.reason)
            else:
                self._accepted(answer)
            requests.popleft()
