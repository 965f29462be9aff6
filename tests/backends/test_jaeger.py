"""What Jaeger's own protocols carry from a real run is what the local files of the same run hold."""

from __future__ import annotations

from typing import Any

import pytest
from installed import needs
from jaeger_receivers import KINDS as RECEIVERS
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from peers import Send, local_files, spans_of

pytestmark = needs("definitions")

KINDS = {Span.SPAN_KIND_CLIENT: "client", Span.SPAN_KIND_PRODUCER: "producer", Span.SPAN_KIND_CONSUMER: "consumer"}


@pytest.mark.parametrize("protocol", RECEIVERS)
def test_jaeger_receives_what_the_files_hold(protocol: str, send: Send) -> None:
    """Names, parents, times, attributes of every type, kinds, status, events, links; the Resource as the process."""
    jaeger = RECEIVERS[protocol]()
    try:
        files = send("jaeger", RAY_TRACING_JAEGER_PROTOCOL=protocol, RAY_TRACING_JAEGER_ENDPOINT=jaeger.endpoint)
        expected = list(spans_of(local_files(files)))
        batches = jaeger.batches(len(expected))
    finally:
        jaeger.close()
    received = {span["span"]: (batch, span) for batch in batches for span in batch.spans}
    assert len(expected) >= 60
    assert sum(len(batch.spans) for batch in batches) == len(expected)
    microseconds = 1 if protocol == "grpc" else 1000
    for resource, scope, span in expected:
        batch, found = received[span.span_id.hex()]
        assert batch.service == "job"
        process = {(key, plain(value)) for key, _, value in batch.tags}
        assert process == {(pair.key, plain(value(pair.value))) for pair in resource.attributes} - {
            ("service.name", "job")
        }
        assert (found["trace"], found["name"]) == (span.trace_id.hex(), span.name)
        assert found["parent"] == (span.parent_span_id.hex() or "00" * 8)
        assert found["start"] == span.start_time_unix_nano // microseconds * microseconds
        assert abs(found["duration"] - (span.end_time_unix_nano - span.start_time_unix_nano)) < microseconds
        assert found["links"] == [(1, link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        tags = {key: tag for key, _, tag in found["tags"]}
        for pair in span.attributes:
            assert plain(tags[pair.key]) == plain(value(pair.value)), pair.key
        assert tags["otel.scope.name"] == scope.name
        assert tags.get("span.kind") == KINDS.get(span.kind)
        assert tags.get("error", False) == (span.status.code == 2)
        assert tags.get("otel.status_description", "") == span.status.message
        events = [tags_of for _, tags_of in found["logs"] if "event" in {key for key, _, _ in tags_of}]
        for event, logged in zip(span.events, events, strict=False):
            fields = {key: plain(field) for key, _, field in logged}
            assert fields["event"] == event.name
            assert {pair.key: plain(value(pair.value)) for pair in event.attributes}.items() <= fields.items()


def value(encoded: AnyValue) -> Any:
    kind = str(encoded.WhichOneof("value"))
    return getattr(encoded, kind) if kind != "array_value" else [value(item) for item in encoded.array_value.values]


def plain(found: Any) -> str:
    """Comparable whatever the type: a list is JSON in Jaeger."""
    import json

    return json.dumps(found, separators=(",", ":")) if isinstance(found, list) else str(found)
