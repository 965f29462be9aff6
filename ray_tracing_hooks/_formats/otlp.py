"""The signals of OpenTelemetry that are recorded and delivered, and OTLP export requests and responses of them.

A request is assembled from encoded spans, or log records, without decoding them. The messages are those of
``opentelemetry/proto/collector/trace/v1/trace_service.proto`` and its counterpart for logs, which differ only in names
and items: corresponding fields have the same numbers. Protobuf allows encoded parts to be concatenated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple

from ray_tracing_hooks._formats.encoded_span.read import trace_id
from ray_tracing_hooks._formats.otlp_json import log_record_json, resource_json, scope_json, span_json
from ray_tracing_hooks._formats.protobuf import FormatError, field, fields, varint


class Signal(NamedTuple):
    """One signal.

    Attributes:
        name: In lower case, as in the names of environment variables.
        items: The word for its items in messages.
        item_json: Converts an encoded item to a JSON object. Raises FormatError if it is malformed.
        of_resources: The member of OTLP-JSON with the list of resources.
        of_scopes: The member of a resource with its list of scopes.
        of_items: The member of a scope with its list of items.
        rejected: The member of a response with the count of rejected items.
    """

    name: str
    items: str
    item_json: Callable[[bytes], str]
    of_resources: str
    of_scopes: str
    of_items: str
    rejected: str

    def line(self, resource: str, scope: str, items: Sequence[str]) -> str:
        """One line of a file, newline included."""
        # Half a megabyte, so it is not copied more often than needed.
        before, after = self._around(resource, scope)
        return "".join((self.beginning, before, ",".join(items), after, "]}\n"))

    def document(self, parts: Sequence[str]) -> str:
        """Parts of one resource each as OTLP-JSON: a ``TracesData``, or its counterpart for this signal."""
        return f"{self.beginning}{','.join(parts)}]}}"

    def part(self, resource: str, scope: str, items: Sequence[str]) -> str:
        """The items of one resource and scope, all given as JSON."""
        before, after = self._around(resource, scope)
        return f"{before}{','.join(items)}{after}"

    @property
    def beginning(self) -> str:
        """What each line of a file begins with."""
        return f'{{"{self.of_resources}":['

    def _around(self, resource: str, scope: str) -> tuple[str, str]:
        return f'{{"resource":{resource},"{self.of_scopes}":[{{"scope":{scope},"{self.of_items}":[', "]}]}"


TRACES = Signal("traces", "spans", span_json, "resourceSpans", "scopeSpans", "spans", "rejectedSpans")
LOGS = Signal("logs", "log records", log_record_json, "resourceLogs", "scopeLogs", "logRecords", "rejectedLogRecords")


def _no_item(_encoded: bytes) -> str:
    raise FormatError("metrics are not recorded as encoded items")


METRICS = Signal("metrics", "metrics", _no_item, "resourceMetrics", "scopeMetrics", "metrics", "rejectedDataPoints")
"""Computed by the shipper from spans."""


class Group(NamedTuple):
    """Encoded spans of one encoded resource and scope."""

    resource: bytes
    scope: bytes
    spans: Sequence[bytes]


class ExportResponse(NamedTuple):
    """The response to an accepted request: how many of its spans were rejected, and a message."""

    rejected: int
    message: str


def cut(groups: Sequence[Group], max_bytes: int, max_spans: int | None = None) -> Iterator[list[Group]]:
    """Split the groups into portions of about equal size with at most ``max_bytes`` and ``max_spans`` each.

    A span that alone is larger becomes a portion of its own.
    """
    groups = [group for group in groups if group.spans]
    size = sum(map(_size, groups))
    most_spans = max_spans or 1 << 62
    if size <= max_bytes and count(groups) <= most_spans:
        if groups:
            yield groups
        return
    # A little more than its share, or what does not fit into the others would be a portion of its own.
    wanted = min(max_bytes, _SLACK * size / -(-size // max_bytes))
    portion: list[Group] = []
    bytes_left, spans_left = wanted, most_spans
    for group in groups:
        head = _OVERHEAD + len(group.resource) + len(group.scope)
        bytes_left -= head
        begin = 0
        for index, span in enumerate(group.spans):
            needed = len(span) + _SPAN_OVERHEAD
            if (needed > bytes_left or not spans_left) and (portion or index > begin):
                if index > begin:
                    portion.append(group._replace(spans=group.spans[begin:index]))
                yield portion
                portion, begin = [], index
                bytes_left, spans_left = wanted - head, most_spans
            bytes_left -= needed
            spans_left -= 1
        portion.append(group._replace(spans=group.spans[begin:]) if begin else group)
    if portion:
        yield portion


def halves(groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """The same spans as two portions. There must be more than one span."""
    left = count(groups) // 2
    first, second = [], []
    for group in groups:
        head, tail = group.spans[: max(0, left)], group.spans[max(0, left) :]
        left -= len(group.spans)
        if head:
            first.append(group._replace(spans=head))
        if tail:
            second.append(group._replace(spans=tail))
    return first, second


def halves_by_trace(groups: Sequence[Group]) -> Sequence[list[Group]]:
    """The same spans as two portions that have no trace in common; as one if they are of one trace."""
    traces = {trace_id(span) for group in groups for span in group.spans}
    first = set(islice(sorted(traces), len(traces) // 2))
    portions: list[list[Group]] = []
    for is_first in (True, False):
        chosen = [
            group._replace(spans=[span for span in group.spans if (trace_id(span) in first) is is_first])
            for group in groups
        ]
        portions.append([group for group in chosen if group.spans])
    return [portion for portion in portions if portion]


def count(groups: Sequence[Group]) -> int:
    return sum(len(group.spans) for group in groups)


def encode(groups: Sequence[Group]) -> bytes:
    """An ``ExportTraceServiceRequest``, with each resource and each of its scopes written once."""
    resources: dict[bytes, dict[bytes, list[bytes]]] = {}
    for group in groups:
        spans = resources.setdefault(group.resource, {}).setdefault(group.scope, [])
        spans += chain.from_iterable(zip(map(_span_head, map(len, group.spans)), group.spans, strict=True))
    parts: list[bytes] = []
    for resource, scopes in resources.items():
        # scope_spans = 2 of ResourceSpans; in it scope = 1 and spans = 2.
        encoded: list[bytes] = []
        for scope, spans in scopes.items():
            body = b"".join((field(0x0A, scope), *spans))
            encoded += (b"\x12" + varint(len(body)), body)
        head = field(0x0A, resource)
        parts += (b"\x0a" + varint(len(head) + sum(map(len, encoded))), head, *encoded)
    return b"".join(parts)


def encode_json(groups: Sequence[Group], signal: Signal = TRACES) -> tuple[bytes, int]:
    """The same request as OTLP-JSON, and how many spans were left out because they could not be decoded."""
    bad = 0
    texts = []
    for group in groups:
        spans = []
        for span in group.spans:
            try:
                spans.append(signal.item_json(span))
            except FormatError:
                bad += 1
        texts.append(signal.part(_json(resource_json, group.resource), _json(scope_json, group.scope), spans))
    return signal.document(texts).encode(), bad


def decode_answer(body: bytes) -> ExportResponse:
    """Decode an ``ExportTraceServiceResponse``. A malformed one counts as empty."""
    rejected, message = 0, ""
    try:
        # partial_success = 1; in it rejected_spans = 1 and error_message = 2.
        for tag, part in fields(body):
            if tag == 0x0A:
                for inner, value in fields(part):
                    if inner == 0x08:
                        rejected = value
                    elif inner == 0x12:
                        message = value.decode("utf-8", "replace")
    except FormatError:
        return ExportResponse(0, "")
    return ExportResponse(rejected if rejected < 1 << 63 else 0, message)


def decode_json_answer(body: bytes, signal: Signal = TRACES) -> ExportResponse:
    """The same for a response in JSON."""
    try:
        found = json.loads(body or b"{}")
        partial = found.get("partialSuccess") or {}
        return ExportResponse(max(0, int(partial.get(signal.rejected) or 0)), str(partial.get("errorMessage") or ""))
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return ExportResponse(0, "")


_SLACK = 1.02

_OVERHEAD = 24
"""An upper bound of the tags and lengths around a resource, a scope and its spans."""

_SPAN_OVERHEAD = 4
"""The tag and the length of a span of less than 2 MiB."""


def _size(group: Group) -> int:
    return (
        _OVERHEAD
        + len(group.resource)
        + len(group.scope)
        + sum(map(len, group.spans))
        + _SPAN_OVERHEAD * len(group.spans)
    )


@lru_cache(maxsize=1 << 14)
def _span_head(size: int) -> bytes:
    return b"\x12" + varint(size)


@lru_cache(maxsize=1024)
def _json(write: object, message: bytes) -> str:
    assert callable(write)
    try:
        return str(write(message))
    except FormatError:
        return "{}"
