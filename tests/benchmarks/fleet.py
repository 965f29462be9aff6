"""Many nodes that send to one collector: what each shipper and the collector take, and how late spans arrive.

    python tests/benchmarks/fleet.py [--nodes 100] [--rate 100] [--seconds 60] [--outage 60] [--protocol grpc]
                                     [--compression none]

Each node is a spool with a shipper process of its own, as a traced program starts it, and gets ``rate`` spans a second.
The collector is one process that answers at once; it counts requests and bytes, and reads one request in twenty to see
how long ago its spans ended. After ``seconds`` the collector is away for ``outage`` seconds, and comes back at the same
port: the second line is from then until the shippers have nothing left to deliver.

100 shippers hold about 4 GiB. Bytes are those of requests, with gRPC before compression. What follows for larger
clusters is in docs/guides/sizing.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from ports import free_port
from shipper_throughput import Node, Program, otlp, serve

_READ_ONE_IN = 20


class Arrivals:
    """What has come to a collector."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = self.bytes = 0
        self.ages: list[float] = []
        self.per_second: dict[int, int] = {}

    def take(self, body: bytes, encoding: str | None) -> None:
        now = time.time()
        with self._lock:
            self.requests += 1
            self.bytes += len(body)
            self.per_second[int(now)] = self.per_second.get(int(now), 0) + 1
            is_read = self.requests % _READ_ONE_IN == 1
        if is_read:
            request = ExportTraceServiceRequest.FromString(gzip.decompress(body) if encoding == "gzip" else body)
            ages = [
                now - span.end_time_unix_nano / 1e9
                for of_resource in request.resource_spans
                for of_scope in of_resource.scope_spans
                for span in of_scope.spans
            ]
            with self._lock:
                self.ages += ages

    def summary(self) -> dict[str, Any]:
        with self._lock:
            ages = sorted(self.ages)
            return {
                "requests": self.requests,
                "bytes": self.bytes,
                "busiest_second": max(self.per_second.values(), default=0),
                "age_median": statistics.median(ages) if ages else 0.0,
                "age_99": ages[len(ages) * 99 // 100] if ages else 0.0,
            }


def collect(protocol: str, port: int) -> None:
    """Be a collector at this port until standard input ends, and print what has come."""
    arrivals = Arrivals()
    serve(protocol, arrivals.take, port, threads=8)
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps(arrivals.summary()), flush=True)
    os._exit(0)


class Collector:
    """A collector in another process."""

    def __init__(self, protocol: str, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--collect", protocol, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self.process = psutil.Process(self._process.pid)
        self._start = sum(self.process.cpu_times()[:2])

    def end(self) -> dict[str, Any]:
        """End it; returns what has come to it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        processor_time = sum(self.process.cpu_times()[:2]) - self._start
        self._process.stdin.close()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        self._process.wait()
        return {**found, "processor_time": processor_time}


class Load:
    """Gives each node its spans, a tenth of a second's at a time, in turn."""

    def __init__(self, programs: Sequence[Program], rate: float) -> None:
        self._programs = programs
        self._calls = max(1, round(rate / 20))  # a call is two spans
        self.spans = 0
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        pause = 0.1 / len(self._programs)
        due = time.monotonic()
        while not self._is_ending.is_set():
            for program in self._programs:
                program.calls(self._calls)
                self.spans += 2 * self._calls
                due += pause
                if (wait := due - time.monotonic()) > 0:
                    self._is_ending.wait(wait)

    def end(self) -> None:
        self._is_ending.set()
        self._thread.join()


@contextmanager
def fleet(count: int, environ: dict[str, str]) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        nodes = []
        for number in range(count):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rth-"))
            nodes.append(stack.enter_context(closing(Node(folder, "otlp", environ))))
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {count} shippers", end="", file=sys.stderr, flush=True)
        yield nodes


def processor_time(nodes: Sequence[Node]) -> float:
    return sum(sum(node.process.cpu_times()[:2]) for node in nodes)


def deliver(nodes: Sequence[Node]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Node.deliver, nodes))


def show(what: str, seconds: float, spans: int, shippers: float, came: dict[str, Any]) -> None:
    requests = came["requests"] or 1
    print(
        f"| {what} | {seconds:.0f} | {spans / seconds:,.0f} | {spans / requests:.0f} | {requests / seconds:,.0f} "
        f"| {came['busiest_second']:,} | {came['bytes'] / spans:.0f} | {came['bytes'] / seconds / 1e6:.1f} "
        f"| {shippers / spans * 1e6:.1f} | {came['processor_time'] / requests * 1e6:.0f} "
        f"| {came['age_median']:.2f} | {came['age_99']:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=100, help="spans a second of each node")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--outage", type=float, default=60, help="seconds that the collector is away; 0: never")
    parser.add_argument("--protocol", choices=["grpc", "http/protobuf"], default="grpc")
    parser.add_argument("--compression", choices=["none", "gzip"], default="none")
    chosen = parser.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    port = free_port()
    environ = otlp(chosen.protocol, port, chosen.compression)
    collector = Collector(chosen.protocol, port)
    with fleet(chosen.nodes, environ) as nodes, ExitStack() as stack:
        programs = [stack.enter_context(closing(Program(node.spool))) for node in nodes]
        memory = statistics.median(node.memory() for node in nodes)
        collector.end()
        collector = Collector(chosen.protocol, port)
        before, begun = processor_time(nodes), time.monotonic()
        load = Load(programs, chosen.rate)
        try:
            time.sleep(chosen.seconds)
            came, passed, sent, spent = collector.end(), time.monotonic() - begun, load.spans, processor_time(nodes)
            print(f"{chosen.nodes} shippers with {memory:.0f} MiB each, {chosen.protocol}\n")
            print(
                "| | seconds | spans a second | spans a request | requests a second | in the busiest second "
                "| bytes a span | MB a second | us a span, shippers | us a request, collector "
                "| age, median (s) | age, 99 % (s) |\n" + "| --- " * 12 + "|"
            )
            show("all is well", passed, sent, spent - before, came)
            time.sleep(chosen.outage)
        finally:
            load.end()
        collector, begun = Collector(chosen.protocol, port), time.monotonic()
        deliver(nodes)
        passed, late = time.monotonic() - begun, load.spans - sent
        show(f"after {chosen.outage:.0f} s away", passed, late, processor_time(nodes) - spent, collector.end())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--collect"]:
        collect(sys.argv[2], int(sys.argv[3]))
    else:
        main()
