"""What it costs to record one span, from its start until it cannot be lost any more.

    python tests/benchmarks/record_cost.py

Contenders take turns in one process, so that a slow moment of the machine hits all of them alike; the figures are
medians of the rounds, in microseconds a span, with eight attributes each. The batch processor is charged with its
export: until then a killed process loses what it holds.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.sampling import from_environment
from ray_tracing_hooks._spool.writer import SpoolWriter

SPANS, ROUNDS = 1000, 15
CONSTANT = {f"ray.attribute_{index}": f"value number {index}" for index in range(6)}
TASK_ID = "c8ef45ccd0112571ffffffffffffffffffffffff01000000"


def ours(folder: str) -> dict[str, Callable[[int], None]]:
    sampler = from_environment({})
    assert sampler is not None
    recorder = Recorder(
        SpoolWriter(folder),
        resource=encode.resource({"service.name": "bench"}),
        scope=encode.scope("bench"),
        sampler=sampler,
        limits=SpanLimits(),
    )
    template = Template("module.function ray.remote_worker", 5, CONSTANT)
    prefix = encode.text_attribute_prefix("ray.task_id", 48)
    parent_prefix = encode.text_attribute_prefix("ray.parent_task_id", 48)
    trace_id, span_id = bytes(range(16)), bytes(range(8))

    def with_start_record(count: int) -> None:
        for _ in range(count):
            first = prefix + TASK_ID.encode() + parent_prefix + TASK_ID.encode()
            recorder.start(template, trace_id, 3, None, first).end()

    def one_record(count: int) -> None:
        for _ in range(count):
            start = time.time_ns()
            additions = prefix + TASK_ID.encode() + parent_prefix + TASK_ID.encode()
            recorder.record(template, identity_of(trace_id, span_id, None), start, time.time_ns(), additions)

    return {
        "ours, execution (a start record and an end record)": with_start_record,
        "ours, submission (one record)": one_record,
    }


def sdk(name: str, processor: SimpleSpanProcessor | BatchSpanProcessor) -> dict[str, Callable[[int], None]]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("bench")
    attributes = {**CONSTANT, "ray.task_id": TASK_ID, "ray.parent_task_id": TASK_ID}

    def record(count: int) -> None:
        for _ in range(count):
            tracer.start_span(
                "module.function ray.remote_worker", kind=trace.SpanKind.CONSUMER, attributes=attributes
            ).end()
        provider.force_flush()

    return {name: record}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "spans.json"), "a") as out:
        exporter = ConsoleSpanExporter(out=out)
        contenders = {
            **ours(folder),
            **sdk("SDK, SimpleSpanProcessor to a file", SimpleSpanProcessor(exporter)),
            **sdk(
                "SDK, BatchSpanProcessor to a file (export included)",
                BatchSpanProcessor(exporter, max_queue_size=4 * SPANS, max_export_batch_size=512),
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for round_ in range(ROUNDS + 1):
            for name, record in contenders.items():
                begin = time.perf_counter()
                record(SPANS)
                if round_:
                    times[name].append((time.perf_counter() - begin) / SPANS * 1e6)
            if sys.stderr.isatty():
                print(f"\rround {round_} of {ROUNDS}", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(file=sys.stderr)
    base = statistics.median(times[next(iter(times))])
    print("| recorder | us a span | spread | against ours |\n| --- | --- | --- | --- |")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.1f} | {min(values):.1f} to {max(values):.1f} | {median / base:.1f} |")


if __name__ == "__main__":
    main()
