"""Pending flush requests, and when each is answered."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from ray_tracing_hooks._processes import UNKNOWN
from ray_tracing_hooks._ship.deliveries import Deliveries
from ray_tracing_hooks._ship.flush_messages import Answer, Request
from ray_tracing_hooks._ship.folder import Look
from ray_tracing_hooks._ship.inbox import Inbox
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._spool.layout import FORKED, parse_process_name

_COUNTING = 0.1
"""Seconds for counting what is waiting, if a request is answered because of its time-out."""

_TO_ANSWER = 0.5
"""Seconds before the end of its time-out at which a request is answered: this process has a low priority."""

_EXITING = 0.3
"""A process that released its lock this many seconds ago or less may be one that is just being killed."""


@dataclass
class _Waiting:
    """A pending request. ``look`` is the number of the look that contains everything it asks for."""

    request: Request
    deadline: float
    look: int | None = None


class FlushRequests:
    """The requests from ``inbox``, answered once ``deliveries`` are done. ``spool_dir`` is only for messages.

    Attributes:
        hurry: Whether a request has arrived since this was last set to False: the next look is delivered at once.
    """

    def __init__(self, spool_dir: str, inbox: Inbox, deliveries: Deliveries, problems: Problems) -> None:
        self.hurry = False
        self._path = spool_dir
        self._inbox = inbox
        self._deliveries = deliveries
        self._problems = problems
        self._waiting: list[_Waiting] = []

    def __bool__(self) -> bool:
        """Whether requests are pending."""
        return bool(self._waiting)

    @property
    def are_for_writers(self) -> bool:
        """Whether a request waits for processes to end."""
        return any(each.look is None for each in self._waiting)

    @property
    def deadline(self) -> float:
        """The monotonic time at which the first pending request has to be answered."""
        return min(each.deadline for each in self._waiting)

    def take(self) -> None:
        """Read the requests that have arrived."""
        for line in self._inbox.heard():
            try:
                request = Request.decode(line)
            except (ValueError, TypeError, KeyError) as error:
                logger.warning("a request is malformed: %r", error)
                continue
            self._waiting.append(_Waiting(request, _time_to_answer(request.timeout)))
            self.hurry = True

    def answer(self, look: Look, everything: Look, *, seen: bool) -> None:
        """Answer the requests whose spans are delivered, and those that time out.

        ``everything`` is the ``look`` with the spans that the tail sampler has not decided on; ``seen`` says that both
        are up to date.
        """
        for each in list(self._waiting):
            ended = not each.request.until_writers_end or not _is_writing(everything, each.request)
            if seen and each.look is None and ended:
                each.look = look.number
                # Again, for spans that came after the request: they must not wait for a batch either.
                self.hurry = True
            done = each.look is not None and self._deliveries.is_done(each.look)
            if done or time.monotonic() >= each.deadline:
                self._waiting.remove(each)
                waiting = [] if done else self._deliveries.waiting(look, self._path, time.monotonic() + _COUNTING)
                self._send(each.request, waiting, done=done)

    def answer_all(self, *, done: bool) -> None:
        """Answer all pending requests, since the shipper ends."""
        for each in self._waiting:
            self._send(each.request, [], done=done)

    def _send(self, request: Request, waiting: list[str], *, done: bool) -> None:
        def line() -> bytes:
            return Answer(done, self._problems.tell(), waiting, self._deliveries.written).encode()

        # The requester may be gone. Then the next answer contains the messages that are reported only once.
        with contextlib.suppress(OSError):
            self._inbox.answer(request.answer, line)


def _time_to_answer(timeout: float) -> float:
    """The monotonic time at which to answer a request with this time-out."""
    return time.monotonic() + max(0.0, timeout - max(_COUNTING, min(_TO_ANSWER, timeout / 10)))


def _is_writing(look: Look, request: Request) -> bool:
    """Whether a process other than the requester holds a segment, or closed one a moment ago and is still running.

    A process that was forked from one of Ray's does not count: it may run for any time.
    """
    now = time.monotonic()
    return any(
        process.alive or (process.ended_at is None and now - process.unlocked_at < _EXITING)
        for name, process in look.processes.items()
        if not _is_of(request, name) and not name.endswith(FORKED)
    )


def _is_of(request: Request, name: str) -> bool:
    """Whether this is the name of the requesting process."""
    process = parse_process_name(name)
    if process is None or process.pid != request.pid:
        return False
    return process.namespace == request.namespace or UNKNOWN in {process.namespace, request.namespace}
