"""The base of sinks that send requests to a server: it handles failures and refusals."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ray_tracing_hooks._formats.encoded_span.decode import Scope, decode_resource, decode_scope
from ray_tracing_hooks._formats.otlp import TRACES, Group, count, halves
from ray_tracing_hooks._formats.protobuf import FormatError
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, RefusesAllError, Sink, SinkContext
from ray_tracing_hooks._ship.transport.contract import Refused, Transport

REQUEST_BYTES = 900_000
"""Most bytes per request, before compression: gRPC servers accept 4 MiB, some vendors one megabyte."""

_MOST_SPLITS = 100
"""How often in a row requests are halved to find the spans that a server refuses, while it accepts none at all."""

_MOST_FAILURES = 12
"""How many failures in a row, after the server has accepted something, end an attempt. As many halvings find one span
of 4,096."""

_TRIES = 8
"""How often spans to which the server answers with a failure are tried alone, after it has accepted others."""

_MOST_TEXTS = 20

_TOO_LARGE_TRACE = (
    "their trace is larger than it accepts (TRACE_TOO_LARGE); RAY_TRACING_ROOT_SPAN=0 makes each call of a driver a "
    "trace of its own, and Tempo's max_bytes_per_trace sets the limit"
)
"""Without the words of the server, which name a trace."""


@dataclass(eq=False)
class _Request:
    """Spans that the server has neither accepted nor refused for good.

    Attributes:
        has_failed: Whether it has failed since the server last accepted any request.
        failures: How often it has failed since the server accepted another one after its first failure; None before.
    """

    groups: list[Group]
    has_failed: bool = False
    failures: int | None = None


class SendingSink(Sink):
    """Sends each portion as several requests. Accepted ones are not sent again if a later one fails.

    The server may refuse a request for a span in it, or refuse everything. A probe, which is a request without spans,
    finds out. If the server refuses the probe too, all spans wait. Otherwise the request is halved until the bad spans
    are found, which are lost.

    A failure of the server, such as HTTP 500, may pass, and a server whose storage fails may still accept the probe. So
    such a span is lost only if others were accepted after it failed, and it then fails several times more, with pauses
    in between and while no other spans fail.

    Attributes:
        probes: Whether there are probes.
    """

    probes = True

    def __init__(self, context: SinkContext, transport: Transport, delay: float) -> None:
        self.delay = delay
        self._transport = transport
        self._lose = context.lose
        self._problem = context.problem
        self._items = context.signal.items
        # Many servers take spans and no log records, which then must not fill the spool.
        self._waits_for_method = context.signal is TRACES
        self._refusal = ""
        """Why the server refuses everything, if it does."""
        self._batches: Sequence[Batch] | None = None
        self._requests: deque[_Request] = deque()
        self._splits = 0
        self._known = 0
        """How many of the batches have become requests."""
        self._texts: set[str] = set()

    @abstractmethod
    def cut(self, groups: Sequence[Group]) -> Iterable[list[Group]]:
        """The spans of each request. A format other than OTLP is encoded here: once, and so that sizes are exact."""

    @abstractmethod
    def encode(self, groups: Sequence[Group]) -> Any:
        """The body of a request, or without spans, of a probe: bytes, unless the transport takes something else."""

    def parts(self, groups: Sequence[Group], refusal: Refused) -> Sequence[list[Group]]:
        """The spans of a refused request as smaller requests; fewer than two if there are none."""
        return halves(groups) if count(groups) > 1 else ()

    @abstractmethod
    def accepted(self, groups: Sequence[Group], answer: bytes) -> None:
        """Called when the server has accepted this request."""

    def deliver(self, batches: Sequence[Batch]) -> None:
        self.needs_more_to_judge = False
        if batches is not self._batches:
            self._batches, self._known = batches, 0
            self._requests.clear()
        if len(batches) > self._known:
            groups = [Group(*batch) for batch in batches[self._known :]]
            self._requests.extendleft(reversed([_Request(each) for each in self.cut(groups)]))
            self._known = len(batches)
        # Until the server has accepted something, one failure is enough to wait.
        failures = _MOST_FAILURES
        tried: list[_Request] = []
        while self._requests:
            request = self._requests[0]
            try:
                answer = self._send(request.groups)
            except Refused as refusal:
                self._requests.popleft()
                if not refusal.transient:
                    self._refused(request, refusal)
                    continue
                tried.append(request)
                failures += self._failed(request, refusal)
                if failures > _MOST_FAILURES or (self._requests and self._requests[0] in tried):
                    # Others may show whether these spans or the server are to blame.
                    self.needs_more_to_judge = all(each.failures is not None for each in self._requests)
                    raise self._later(refusal) from None
                continue
            self._requests.popleft()
            failures = self._splits = 0
            for each in self._requests:
                if each.has_failed:
                    each.has_failed, each.failures = False, 0
            self.accepted(request.groups, answer)
        self._batches = None

    def on_idle(self) -> None:
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
            self._probe(groups)
        try:
            return self._transport.send(self.encode(groups))
        except Refused as refusal:
            if self._may_be_all(refusal):
                self._probe(groups)
            raise

    def _probe(self, groups: Sequence[Group]) -> None:
        """Send a request without spans. Raises DeliveryError if the server refuses that too.

        A firewall may refuse a request for what is in it, with the status of a wrong password.
        """
        resource, scope, _ = groups[0]
        try:
            self._transport.send(self.encode([Group(resource, scope, [])]))
        except Refused as refusal:
            if self._may_be_all(refusal):
                if refusal.reason.partition(":")[0] != self._refusal.partition(":")[0]:
                    # Otherwise the text of the first one, so that the message stays the same.
                    self._refusal = refusal.reason
                if refusal.transient:
                    raise self._later(refusal) from None
                message = f"{self._transport.address} refuses all {self._items}, which wait: {self._refusal}"
                raise RefusesAllError(message, self._refusal) from None
        self._refusal = ""

    def _later(self, refusal: Refused) -> DeliveryError:
        return DeliveryError(f"{self._transport.address} accepts nothing at present: {refusal.reason}")

    def _may_be_all(self, refusal: Refused) -> bool:
        """Whether the server may refuse everything, so that a probe has to tell."""
        return self.probes and not refusal.is_of_size and not self._is_for_good(refusal)

    def _is_for_good(self, refusal: Refused) -> bool:
        """Whether the server has nothing that takes such requests, and they do not wait for it."""
        return refusal.method and not self._waits_for_method

    def _refused(self, request: _Request, refusal: Refused) -> None:
        # One bad span must not cost the other spans of the request.
        parts = [] if self._is_for_good(refusal) else self._parts(request, refusal)
        self._requests.extendleft(reversed(parts))
        if not parts:
            self.refuse(count(request.groups), _TOO_LARGE_TRACE if refusal.too_large_trace else refusal.reason)

    def _failed(self, request: _Request, refusal: Refused) -> bool:
        """Deal with a request that the server has answered with a failure; False if the request is to blame for it."""
        parts = self._parts(request, refusal)
        if not parts and request.failures is not None:
            request.failures += 1
            if request.failures < _TRIES:
                self._requests.append(request)
            else:
                self.refuse(count(request.groups), refusal.reason)
            return False
        for each in self._requests:
            if each.failures is not None:
                each.failures = 0
        for each in parts or [request]:
            each.has_failed = True
            self._requests.append(each)  # at the end, so that the server is tried with other spans next
        return True

    def _parts(self, request: _Request, refusal: Refused) -> list[_Request]:
        """The spans of a refused request as smaller ones; empty if there are none, or there were too many."""
        parts = self.parts(request.groups, refusal)
        if len(parts) < 2 or self._splits >= _MOST_SPLITS:
            return []
        self._splits += 1
        return [_Request(each) for each in parts]


@lru_cache(maxsize=1024)
def resource_of(encoded: bytes) -> Mapping[str, Any]:
    """The attributes of an encoded resource."""
    try:
        return decode_resource(encoded)
    except FormatError:
        return {}


@lru_cache(maxsize=1024)
def scope_of(encoded: bytes) -> Scope:
    """An encoded scope."""
    try:
        return decode_scope(encoded)
    except FormatError:
        return Scope("", "", {})
