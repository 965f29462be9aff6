"""The processor that writes spans of the SDK to the spool of the connection that there is."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
from ray_tracing_hooks._spool.layout import SCOPE, SPAN, START, U16
from ray_tracing_hooks._spool.reader import SegmentReader, iterate
from ray_tracing_hooks._spool.writer import SpoolWriter

CONNECTIONS = 20


def processor_and_tracer() -> tuple[SpoolSpanProcessor, Tracer]:
    """The processor, and a tracer of a provider that has it."""
    processor, provider = SpoolSpanProcessor(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return processor, provider.get_tracer("program")


def test_each_span_has_its_scope_in_its_segment_however_often_the_writer_changes(tmp_path: Path) -> None:
    """Also where a writer takes the place in memory of an earlier one, and by a span that began with that one."""
    processor, tracer = processor_and_tracer()
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


def names_in(folder: Path) -> list[tuple[int, bytes]]:
    """The kinds of the records of spans in a spool, with the names of the spans, which are one letter."""
    found = []
    for _process, paths, _lives in iterate(str(folder)):
        for path in paths:
            for kind, payload, _ in SegmentReader(path).read():
                if kind in {START, SPAN}:
                    found.append((kind, next(name for name in (b"A", b"B", b"C", b"D") if b"*\x01" + name in payload)))
    return found


def test_spans_that_are_open_end_in_the_spool_that_they_began_in(tmp_path: Path) -> None:
    """Where the settings of a connection change: otherwise one that has ended would count as interrupted there."""
    processor, tracer = processor_and_tracer()
    before, after = SpoolWriter(str(tmp_path / "before")), SpoolWriter(str(tmp_path / "after"))
    processor.write_to(before)
    first = tracer.start_span("A")
    processor.write_to(after, open_ones_stay=True)
    second = tracer.start_span("B")
    first.end()
    second.end()
    assert names_in(tmp_path / "before") == [(START, b"A"), (SPAN, b"A")]
    assert names_in(tmp_path / "after") == [(START, b"B"), (SPAN, b"B")]


def test_in_a_pause_only_spans_that_are_open_end(tmp_path: Path) -> None:
    processor, tracer = processor_and_tracer()
    writer = SpoolWriter(str(tmp_path))
    processor.write_to(writer)
    first = tracer.start_span("A")
    processor.is_paused = True
    first.end()
    tracer.start_span("B").end()
    processor.is_paused = False
    tracer.start_span("C").end()
    assert names_in(tmp_path) == [(START, b"A"), (SPAN, b"A"), (START, b"C"), (SPAN, b"C")]


def test_however_many_spans_are_open_each_ends_in_its_spool_and_dropped_ones_are_forgotten(tmp_path: Path) -> None:
    processor, tracer = processor_and_tracer()
    writer = SpoolWriter(str(tmp_path))
    processor.write_to(writer)
    spans = [tracer.start_span("A") for _ in range(10_050)]
    processor.is_paused = True
    for span in spans:
        span.end()
    assert names_in(tmp_path).count((SPAN, b"A")) == len(spans)
    assert not processor.has_open()
    processor.is_paused = False
    for _ in range(100):
        tracer.start_span("B")
    assert processor.has_open(), "it is not known to have ended"
    assert len(processor._open) < 3
