"""The processor that writes spans of the SDK to the spool of the connection that there is."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
from ray_tracing_hooks._spool.layout import SCOPE, SPAN, START, U16
from ray_tracing_hooks._spool.reader import SegmentReader, iterate
from ray_tracing_hooks._spool.writer import SpoolWriter

CONNECTIONS = 20


def test_each_span_has_its_scope_in_its_segment_however_often_the_writer_changes(tmp_path: Path) -> None:
    """Also where a writer takes the place in memory of an earlier one, and by a span that began with that one."""
    processor = SpoolSpanProcessor()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("program")
    places = set()
    for _ in range(CONNECTIONS):
        writer = SpoolWriter(str(tmp_path))
        places.add(id(writer))
        processor.write_to(writer)
        tracer.start_span("step").end()
        writer.close()
        processor.write_to(None)
        del writer
    assert len(places) < CONNECTIONS, "some writer was where another one had been"
    found = []
    for _process, (path,), _lives in iterate(str(tmp_path)):
        records = SegmentReader(path).read()
        scopes = {payload[: U16.size] for kind, payload, _ in records if kind == SCOPE}
        spans = [(kind, payload[: U16.size] in scopes) for kind, payload, _ in records if kind in {START, SPAN}]
        found.append(spans)
    assert found == [[(START, True), (SPAN, True)]] * CONNECTIONS
