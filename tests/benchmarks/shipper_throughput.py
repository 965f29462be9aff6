"""How many spans a second of one core's time the shipper reads from a spool and sends by OTLP, or writes to files.

    python tests/benchmarks/shipper_throughput.py

The last line is what sending by gRPC is with ``RAY_TRACING_METRICS=1``, where the spans are read once more and counted.

The collector is another process and answers at once. What counts is the processor time of the sending process, all its
threads included. Ours reads a full spool; the official exporters are given the same spans as objects, in batches of 512
as their batch processor does it. Contenders take turns, so that a slow moment of the machine hits all of them alike;
the figures are medians of the rounds, and so are the ratios, which are those of one round each.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.sampling import from_environment
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._ship.folder import Folder
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.metrics.calls import Calls
from ray_tracing_hooks._ship.metrics.totals import Totals
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.sink import Batch, Sink, Surroundings
from ray_tracing_hooks._ship.sinks.local import LocalSink
from ray_tracing_hooks._ship.sinks.otlp import OtlpSink, make
from ray_tracing_hooks._spool.writer import SpoolWriter

SPANS, OFFICIAL_SPANS, ROUNDS = 200_000, 8_192, 7
CONSTANT = {
    names.RAY_REMOTE: "function",
    names.RAY_FUNCTION: "module.function",
    names.RAY_PID: "12345",
    names.RAY_JOB_ID: "01000000",
    names.RAY_NODE_ID: "5" * 56,
    names.RAY_WORKER_ID: "6" * 56,
}
TASK_ID = "c8ef45ccd0112571ffffffffffffffffffffffff01000000"
SUBMISSION, EXECUTION = names.submission_name("module.function"), names.execution_name("module.function")
TRACES = "opentelemetry.proto.collector.trace.v1.TraceService"
METRICS = "opentelemetry.proto.collector.metrics.v1.MetricsService"

Contender = Callable[[], int]
"""Sends spans, and says how many."""

Take = Callable[[Sequence[Batch]], None]
"""Takes in a portion of spans."""


def collect(protocol: str) -> None:
    """Be a collector: print the port, take everything."""
    if protocol == "grpc":
        handler = grpc.unary_unary_rpc_method_handler(lambda _body, _context: b"")
        handlers = [grpc.method_handlers_generic_handler(name, {"Export": handler}) for name in (TRACES, METRICS)]
        server = grpc.server(ThreadPoolExecutor(1), handlers=handlers)
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        server.start()
        server.wait_for_termination()
        return

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        print(http.server_port, flush=True)
        http.serve_forever()


@contextmanager
def collector(protocol: str) -> Iterator[int]:
    """The port of a collector in another process, for one client."""
    command = [sys.executable, os.path.abspath(__file__), "--collect", protocol]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def fill(spool: str) -> None:
    """Calls as Ray makes them: a span of the caller, and one of the worker with a start record. Eight attributes."""
    sampler = from_environment({})
    assert sampler is not None
    writer = SpoolWriter(spool)
    recorder = Recorder(
        writer,
        resource=encode.resource({"service.name": "bench"}),
        scope=encode.scope(names.SCOPE),
        sampler=sampler,
        limits=SpanLimits(),
    )
    submission, execution = Template(SUBMISSION, 4, CONSTANT), Template(EXECUTION, 5, CONSTANT)
    prefix = encode.text_attribute_prefix("ray.task_id", 48)
    parent_prefix = encode.text_attribute_prefix("ray.parent_task_id", 48)
    additions = prefix + TASK_ID.encode() + parent_prefix + TASK_ID.encode()
    for number in range(1, SPANS // 2 + 1):
        trace_id, span_id = number.to_bytes(16, "big"), number.to_bytes(8, "big")
        now = time.time_ns()
        recorder.record(submission, identity_of(trace_id, span_id, None), now, now + 1, additions)
        recorder.start(execution, trace_id, 3, Parent(trace_id, span_id, 3, None, remote=True), additions).end()
    writer.close()


def sink(protocol: str, port: int, compression: str) -> OtlpSink:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
    }
    plan = ShipPlan(("otlp",), "", 1, 1, 1)
    return make(Surroundings(plan, {}, lambda _: None, complain, environ, print))


def files(folder: str) -> LocalSink:
    plan = ShipPlan(("local",), folder, 64 << 20, 256 << 20, 1)
    # Its oldest files are removed on the way, and it says so.
    return LocalSink(Surroundings(plan, {}, lambda _: None, lambda _text, _number: None, {}, print))


def complain(text: str, number: int) -> None:
    if number:
        raise AssertionError(text.replace("{count}", str(number)))


def counting() -> Take:
    """What counts spans for metrics. These are not sent: that is once in a minute, however many spans there are."""
    calls = Calls(Totals(), exemplars=True)
    return lambda batches: complain("{count} spans could not be decoded", calls.read(batches))


def with_metrics(sending: Contender, spool: str) -> Contender:
    """Sends, and counts what it sends."""
    count = ours(spool, counting())

    def send() -> int:
        count()
        return sending()

    return send


def ours(spool: str, take: Take | None) -> Contender:
    def send() -> int:
        follower = Follower({}, Problems(), reports=True)
        count = 0
        for batches in follower.follow(Folder(spool).look(set())):
            count += sum(len(batch.spans) for batch in batches)
            if take is not None:
                take(batches)
        assert count == SPANS
        return count

    return send


def official(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> Contender:
    def send() -> int:
        for begin in range(0, len(spans), 512):
            assert exporter.export(spans[begin : begin + 512]) is SpanExportResult.SUCCESS
        return len(spans)

    return send


def readable_spans() -> Sequence[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "bench"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    attributes = {**CONSTANT, "ray.task_id": TASK_ID, "ray.parent_task_id": TASK_ID}
    tracer = provider.get_tracer("bench")
    for _ in range(OFFICIAL_SPANS):
        tracer.start_span(EXECUTION, kind=trace.SpanKind.CONSUMER, attributes=attributes).end()
    return memory.get_finished_spans()


def contenders(stack: ExitStack) -> tuple[dict[str, Contender], dict[str, Contender]]:
    """Ours and the official ones, by what they do. Reading alone and files have no counterpart."""
    spool = stack.enter_context(tempfile.TemporaryDirectory())
    fill(spool)
    spans = readable_spans()
    ports = {name: stack.enter_context(collector(name)) for name in ("grpc", "http/protobuf", "http/json")}
    # An HTTP collector serves one connection.
    official_http = [stack.enter_context(collector("http/protobuf")) for _ in range(2)]
    gzip_http = stack.enter_context(collector("http/protobuf"))
    sinks: dict[str, Sink] = {
        "local files": files(stack.enter_context(tempfile.TemporaryDirectory())),
        "grpc": sink("grpc", ports["grpc"], "none"),
        "grpc, gzip": sink("grpc", ports["grpc"], "gzip"),
        "http/protobuf": sink("http/protobuf", ports["http/protobuf"], "none"),
        "http/protobuf, gzip": sink("http/protobuf", gzip_http, "gzip"),
        "http/json": sink("http/json", ports["http/json"], "none"),
    }
    grpc_url = f"http://127.0.0.1:{ports['grpc']}"
    http_urls = [f"http://127.0.0.1:{port}/v1/traces" for port in official_http]
    exporters: dict[str, SpanExporter] = {
        "grpc": GrpcExporter(endpoint=grpc_url, insecure=True),
        "grpc, gzip": GrpcExporter(endpoint=grpc_url, insecure=True, compression=grpc.Compression.Gzip),
        "http/protobuf": HttpExporter(endpoint=http_urls[0], compression=Compression.NoCompression),
        "http/protobuf, gzip": HttpExporter(endpoint=http_urls[1], compression=Compression.Gzip),
    }
    for each in sinks.values():
        stack.callback(each.close)
    for exporter in exporters.values():
        stack.callback(exporter.shutdown)
    sending = {name: ours(spool, each.deliver) for name, each in sinks.items()}
    return (
        {
            "(reading the spool alone)": ours(spool, None),
            "(reading and counting for metrics)": ours(spool, counting()),
            **sending,
            "grpc, with metrics": with_metrics(sending["grpc"], spool),
        },
        {name: official(exporter, spans) for name, exporter in exporters.items()},
    )


def rate(send: Contender) -> float:
    """Spans a second of processor time."""
    begin = time.process_time()
    count = send()
    return count / (time.process_time() - begin)


def shown(values: Sequence[float], unit: float = 1, digits: int = 0) -> str:
    low, median, high = (round(each / unit, digits) for each in (min(values), statistics.median(values), max(values)))
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> None:
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    with ExitStack() as stack:
        our, their = contenders(stack)
        # The spans that wait for the official exporters are no garbage of a shipper's, and not to be walked through.
        gc.collect()
        gc.freeze()
        ours_at: dict[str, list[float]] = {name: [] for name in our}
        theirs_at: dict[str, list[float]] = {name: [] for name in their}
        for round_ in range(ROUNDS + 1):
            for name in our:
                for group, measured in ((our, ours_at), (their, theirs_at)):
                    if name in group:
                        speed = rate(group[name])
                        if round_:  # the first one warms up
                            measured[name].append(speed)
            if sys.stderr.isatty():
                print(f"\rround {round_} of {ROUNDS}", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print(file=sys.stderr)
    print("Thousands of spans a second of one core: the median, and the lowest and highest of the rounds.\n")
    print("| where to | ours | official exporter | ours against it |\n| --- | --- | --- | --- |")
    for name, rates in ours_at.items():
        others = theirs_at.get(name)
        ratios = [mine / other for mine, other in zip(rates, others, strict=True)] if others else None
        print(
            f"| {name} | {shown(rates, 1000)} | {shown(others, 1000, 1) if others else ''} "
            f"| {shown(ratios, 1, 1) if ratios else ''} |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--collect"]:
        collect(sys.argv[2])
    else:
        main()
