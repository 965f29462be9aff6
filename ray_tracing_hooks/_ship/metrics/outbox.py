"""Sending requests in a thread of its own: a server that is slow or away holds nothing up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from ray_tracing_hooks._ship.retry import Backoff, reason, retry_after
from ray_tracing_hooks._ship.transport.contract import Refused, Transport

_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0
"""Seconds to wait at most before the next attempt."""


class Outbox:
    """Sends what it is given last; what is older and has not left by then is given up.

    ``connect`` makes the transport, in the thread. ``trouble`` is called with what is wrong, and with None when that is
    over; ``refused`` with why the server will never take something; ``accepted`` with each answer; ``tried`` after each
    attempt, good or bad.
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
        """Whether something has been given and there is no telling yet whether it can be sent."""
        return self._tried_number < self._number and not self._failing

    @property
    def is_empty(self) -> bool:
        """Whether all that was given has been sent, or refused."""
        return self._sent_number == self._number

    def give(self, requests: Iterable[bytes]) -> None:
        with self._changed:
            self._given = deque(requests)
            self._number += 1
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Send what was just given, with one attempt, for at most so many seconds."""
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._given is not None or self._ending, rest)
                if self._given is not None:
                    requests, self._given, number = self._given, None, self._number
                elif self._ending:
                    break
            left_alone = 0.0
            try:
                if transport is None:
                    transport = self._connect()
                self._send(transport, requests)
            except Exception as error:  # noqa: BLE001  whatever fails, the next attempt may work
                rest, left_alone = backoff.next(), retry_after(error)
                self._trouble(reason(error))
                self._failing = True  # from here on nobody waits, and whoever did hears why
            else:
                backoff.reset()
                rest = None
                self._failing = False
                self._sent_number = number
                self._trouble(None)
            self._tried_number = number
            self._tried()
            if left_alone:
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, left_alone)
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
