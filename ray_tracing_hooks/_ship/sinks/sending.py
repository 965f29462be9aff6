"""The base of sinks that send requests to a server: it handles failures and refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ray_tracing_hooks._formats.otlp import Group, count, halves
from ray_tracing_hooks._formats.signals import TRACES
from ray_tracing_hooks._ship.sink import Batch, RefusesAllError, Surroundings
from ray_tracing_hooks._ship.transport.contract import Refused, Transport

REQUEST_BYTES = 900_000
"""Most bytes per request, before compression: gRPC servers accept 4 MiB, some vendors one megabyte."""

BUSY = ("HTTP 500", "RESOURCE_EXHAUSTED", "UNKNOWN")
"""How servers that are no OTLP collectors refuse requests while their queue is full or their storage fails."""

_MOST_SPLITS = 100
"""How often in a row requests are halved to find the spans that a server refuses, while it accepts none at all."""

_MOST_TEXTS = 20


class SendingSink(ABC):
    """Sends each portion as several requests. Accepted ones are not sent again if a later one fails."""

    wants_more = False

    def __init__(self, surroundings: Surroundings, transport: Transport, delay: float) -> None:
        self.delay = delay
        self._transport = transport
        self._lose = surroundings.lose
        self._problem = surroundings.problem
        self._items = surroundings.signal.items
        # Many servers take spans and no log records, which then must not fill the spool.
        self._waits_for_method = surroundings.signal is TRACES
        self._refusal = ""
        """Why the server refuses everything, if it does."""
        self._batches: Sequence[Batch] | None = None
        self._requests: deque[list[Group]] = deque()
        self._splits = 0
        self._texts: set[str] = set()

    @abstractmethod
    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        """The spans of each request."""

    @abstractmethod
    def encode(self, groups: Sequence[Group]) -> bytes:
        """The body of a request."""

    @abstractmethod
    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        """Called when the server has accepted this request."""

    def deliver(self, batches: Sequence[Batch]) -> None:
        if batches is not self._batches:
            self._batches = batches
            self._requests = deque(self.cut([Group(*batch) for batch in batches]))
        while self._requests:
            groups = self._requests[0]
            try:
                answer = self._send(groups)
            except Refused as refusal:
                self._refused(groups, refusal)
                continue
            self._requests.popleft()
            self._splits = 0
            self.accepted(groups, answer)
        self._batches = None

    def checkpoint(self) -> Mapping[str, Any]:
        return {}

    def rest(self) -> None:
        self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def refuse(self, spans: int, reason: str) -> None:
        """Count spans that the server will never accept."""
        if reason not in self._texts:
            if len(self._texts) >= _MOST_TEXTS:
                reason = "for various reasons"
            self._texts.add(reason)
        self._lose(f"{{count}} {self._items} were refused by {self._transport.address} and are lost: {reason}", spans)

    def _send(self, groups: Sequence[Group]) -> bytes:
        if self._refusal:
            self._knock(groups)
        try:
            return self._transport.send(self.encode(groups))
        except Refused as refusal:
            if self._may_be_all(refusal):
                self._knock(groups)
            raise

    def _knock(self, groups: Sequence[Group]) -> None:
        """Send a request without spans. Raises RefusesAllError if the server refuses that too.

        A firewall may refuse a request for what is in it, with the status of a wrong password.
        """
        resource, scope, _ = groups[0]
        try:
            self._transport.send(self.encode([Group(resource, scope, [])]))
        except Refused as refusal:
            if self._may_be_all(refusal):
                # The text of the first one, so that the message stays the same.
                self._refusal = self._refusal or refusal.reason
                message = f"{self._transport.address} refuses all {self._items}, which wait: {self._refusal}"
                raise RefusesAllError(message, self._refusal) from None
        self._refusal = ""

    def _may_be_all(self, refusal: Refused) -> bool:
        return refusal.credentials or (refusal.method and self._waits_for_method)

    def _refused(self, groups: list[Group], refusal: Refused) -> None:
        self._requests.popleft()
        # One bad span must not cost the other spans of the request.
        if (refusal.too_large or refusal.request) and count(groups) > 1 and self._splits < _MOST_SPLITS:
            self._splits += 1
            self._requests.extendleft(reversed(halves(groups)))
        else:
            self.refuse(count(groups), refusal.reason)
