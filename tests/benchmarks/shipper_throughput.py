"""What the shipper costs: spans a second of one core's time.

    python tests/benchmarks/shipper_throughput.py

Each row is a shipper of its own, a whole process as a traced program starts it. It finds a full
spool, and what counts is the processor time that it takes until everything is delivered, all its threads included. The
collector is another process and answers at once. The official exporters are given the same spans as objects, in batches
of 512 as their batch processor does it, and count in the same way. All take turns, so that a slow moment of the machine
hits them alike; the figures are medians of the rounds, and so are the ratios, which are those of one round each.

Takes about five minutes.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import psutil
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
from ray_tracing_hooks._ship.files import SOCKET
from ray_tracing_hooks._ship.flush import flush
from ray_tracing_hooks._ship.start import ensure_running
from ray_tracing_hooks._spool.layout import segment_name
from ray_tracing_hooks._spool.reader import segments
from ray_tracing_hooks._spool.writer import SpoolWriter

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from plans import made_plan

SPANS, OFFICIAL_SPANS, ROUNDS = 300_000, 8_192, 7
MIB = 1 << 20
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

METRICS_ON: dict[str, Any] = {"metrics": True}


def serve(protocol: str, take: Callable[[bytes, str | None], None], port: int = 0, threads: int = 1) -> int:
    """Be a collector in threads of this process, which gives each body and its encoding to a function; its port."""
    if protocol == "grpc":

        def export(body: bytes, _context: object) -> bytes:
            take(body, None)
            return b""

        handler = grpc.unary_unary_rpc_method_handler(export)
        handlers = [grpc.method_handlers_generic_handler(name, {"Export": handler}) for name in (TRACES, METRICS)]
        server = grpc.server(ThreadPoolExecutor(threads), handlers=handlers)
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        _served.append(server)
        return port

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            take(self.rfile.read(int(self.headers["Content-Length"])), self.headers["Content-Encoding"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=http.serve_forever).start()
    return http.server_port


_served: list[grpc.Server] = []
"""They end with what refers to them."""


def collect(protocol: str) -> None:
    """Be a collector: print the port, take everything."""
    print(serve(protocol, lambda _body, _encoding: None), flush=True)
    threading.Event().wait()


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


class Program:
    """A process with Ray's calls."""

    def __init__(self, spool: str) -> None:
        sampler = from_environment({})
        assert sampler is not None
        self._writer = SpoolWriter(spool)
        self._recorder = Recorder(
            self._writer,
            resource=encode.resource({"service.name": "bench"}),
            scope=encode.scope(names.SCOPE),
            sampler=sampler,
            limits=SpanLimits(),
        )
        self._submission, self._execution = Template(SUBMISSION, 4, CONSTANT), Template(EXECUTION, 5, CONSTANT)
        prefix = encode.text_attribute_prefix("ray.task_id", 48)
        parent_prefix = encode.text_attribute_prefix("ray.parent_task_id", 48)
        self._additions = prefix + TASK_ID.encode() + parent_prefix + TASK_ID.encode()

    def calls(self, count: int) -> None:
        """A span of the caller each, and one of the worker with a start record. Eight attributes."""
        for number in range(1, count + 1):
            trace_id, span_id = number.to_bytes(16, "big"), number.to_bytes(8, "big")
            now = time.time_ns()
            self._recorder.record(self._submission, identity_of(trace_id, span_id, None), now, now + 1, self._additions)
            self._start(trace_id, span_id).end()

    def _start(self, trace_id: bytes, span_id: bytes) -> Any:
        parent = Parent(trace_id, span_id, 3, None, remote=True)
        return self._recorder.start(self._execution, trace_id, 3, parent, self._additions)

    def close(self) -> None:
        self._writer.close()


class Node:
    """A spool with its shipper, which ends when the raylet that it watches does: here, with this process."""

    def __init__(self, folder: str, exporter: str, environ: Mapping[str, str], **changes: Any) -> None:
        self._folder = folder
        self.spool = os.path.join(folder, "spool")
        os.mkdir(self.spool, mode=0o700)
        self._raylet = socket.socket(socket.AF_UNIX)
        self._raylet.bind(os.path.join(folder, "raylet"))
        self._raylet.listen()
        plan = made_plan(
            exporters=(exporter,),
            local_dir=os.path.join(folder, "spans"),
            local_file_max_bytes=64 * MIB,
            local_max_bytes=256 * MIB,
            spool_max_bytes=1024 * MIB,
            raylet_socket=os.path.join(folder, "raylet"),
            log_file=os.path.join(folder, "ship.log"),
            **changes,
        )
        ensure_running(self.spool, plan, environ)
        self.process = self._shipper()
        self._links = 0
        self.deliver()

    def _shipper(self) -> psutil.Process:
        """The shipper, once it listens."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    found = process.cmdline()
                    is_ours = found[1:3] == ["-m", "ray_tracing_hooks._ship"] and found[-1] == self.spool
                    if is_ours and os.path.exists(os.path.join(self.spool, SOCKET)):
                        return process
            time.sleep(0.05)
        raise AssertionError("no shipper runs")

    def rate(self, segments: Sequence[str]) -> float:
        """Spans a second of processor time for these segments."""
        before = self.process.cpu_times()
        # The process that wrote them is none that runs, and another one each time.
        self._links += 1
        for number, path in enumerate(segments):
            os.link(path, os.path.join(self.spool, segment_name(f"99999999-{time.time_ns():x}-{self._links}", number)))
        self.deliver()
        after = self.process.cpu_times()
        return SPANS / (after.user + after.system - before.user - before.system)

    def deliver(self) -> None:
        """Have everything delivered."""
        until = time.monotonic() + 600
        while not (result := flush(self.spool, 60)).done:
            # It says so when old local files are removed, which is as it should be.
            problems = [text for text in result.problems if "RAY_TRACING_LOCAL_MAX_BYTES" not in text]
            if time.monotonic() > until or any("does not answer" not in text for text in problems):
                raise AssertionError(result)

    def memory(self) -> float:
        """The most memory that the shipper has had at any time, in MiB."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024

    def close(self) -> None:
        self._raylet.close()
        self.process.terminate()
        self.process.wait(60)


def otlp(protocol: str, port: int, compression: str = "none") -> dict[str, str]:
    """The variables of an OTLP exporter."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "NO_PROXY": "*",
    }


def official(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> Callable[[], float]:
    """Sends the spans, and gives the spans a second of processor time."""

    def rate() -> float:
        before = time.process_time()
        for begin in range(0, len(spans), 512):
            assert exporter.export(spans[begin : begin + 512]) is SpanExportResult.SUCCESS
        return len(spans) / (time.process_time() - before)

    return rate


def readable_spans() -> Sequence[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "bench"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    attributes = {**CONSTANT, "ray.task_id": TASK_ID, "ray.parent_task_id": TASK_ID}
    tracer = provider.get_tracer("bench")
    for _ in range(OFFICIAL_SPANS):
        tracer.start_span(EXECUTION, kind=trace.SpanKind.CONSUMER, attributes=attributes).end()
    return memory.get_finished_spans()


class Bench:
    """Collectors and shippers. They end with ``stack``."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def node(self, exporter: str, environ: Mapping[str, str] | None = None, **changes: Any) -> Node:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        return self._stack.enter_context(closing(Node(folder, exporter, environ or {}, **changes)))

    def otlp(self, protocol: str, compression: str = "none", **changes: Any) -> Node:
        """With a collector of its own."""
        port = self._stack.enter_context(collector(protocol))
        return self.node("otlp", otlp(protocol, port, compression), **changes)

    def program(self, spool: str) -> Program:
        return self._stack.enter_context(closing(Program(spool)))

    def nodes(self) -> dict[str, Node]:
        return {
            "local files": self.node("local"),
            "grpc": self.otlp("grpc"),
            "grpc, gzip": self.otlp("grpc", "gzip"),
            "http/protobuf": self.otlp("http/protobuf"),
            "http/protobuf, gzip": self.otlp("http/protobuf", "gzip"),
            "http/json": self.otlp("http/json"),
            "local files, with metrics": self.node("local", **METRICS_ON),
            "grpc, with metrics": self.otlp("grpc", **METRICS_ON),
            "http/protobuf, with metrics": self.otlp("http/protobuf", **METRICS_ON),
        }

    def exporters(self) -> dict[str, SpanExporter]:
        def port(protocol: str) -> int:
            return self._stack.enter_context(collector(protocol))

        def url() -> str:
            return f"http://127.0.0.1:{port('http/protobuf')}/v1/traces"

        grpc_url = f"http://127.0.0.1:{port('grpc')}"
        exporters: dict[str, SpanExporter] = {
            "grpc": GrpcExporter(endpoint=grpc_url, insecure=True),
            "grpc, gzip": GrpcExporter(endpoint=grpc_url, insecure=True, compression=grpc.Compression.Gzip),
            "http/protobuf": HttpExporter(endpoint=url(), compression=Compression.NoCompression),
            "http/protobuf, gzip": HttpExporter(endpoint=url(), compression=Compression.Gzip),
        }
        for exporter in exporters.values():
            self._stack.callback(exporter.shutdown)
        return exporters


def show_throughput(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as spool:
        with closing(Program(spool)) as program:
            program.calls(SPANS // 2)
        ((_, found),) = segments(spool).items()
        paths = [path for _, path in found]
        spans = readable_spans()
        ours: dict[str, Callable[[], float]] = {name: partial(node.rate, paths) for name, node in bench.nodes().items()}
        theirs = {name: official(exporter, spans) for name, exporter in bench.exporters().items()}
        # The spans that wait for the official exporters are not to be walked through.
        gc.collect()
        gc.freeze()
        at: list[tuple[dict[str, float], dict[str, float]]] = []
        for round_ in range(ROUNDS):
            at.append(({}, {}))
            for name in ours:
                for group, measured in zip((ours, theirs), at[-1], strict=True):
                    if name in group:
                        measured[name] = group[name]()
            progress(f"round {round_ + 1} of {ROUNDS}")
    print("Thousands of spans a second of one core: the median, and the lowest and highest of the rounds.\n")
    print("| where to | ours | official exporter | ours against it |\n| --- | --- | --- | --- |")
    for name in ours:
        mine = [measured[name] for measured, _ in at]
        other = [measured[name] for _, measured in at if name in measured]
        ratios = [one / another for one, another in zip(mine, other, strict=bool(other))]
        print(
            f"| {name} | {shown(mine, 1000)} | {shown(other, 1000, 1) if other else ''} "
            f"| {shown(ratios, 1, 1) if ratios else ''} |"
        )


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def shown(values: Sequence[float], unit: float = 1, digits: int = 0) -> str:
    low, median, high = (round(each / unit, digits) for each in (min(values), statistics.median(values), max(values)))
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", choices=("grpc", "http/protobuf", "http/json"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.collect is not None:
        collect(chosen.collect)
        return
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    with ExitStack() as stack:
        show_throughput(Bench(stack))


if __name__ == "__main__":
    main()
