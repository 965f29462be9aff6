"""Backends that others wrote, started on ports of this machine, and what they received.

They live in an environment of their own, ``peers`` in that of the tests: ``make`` installs both.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import installed
from google.protobuf import json_format
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from ports import free_port
from protobuf_json import with_protobuf_ids

ENVIRONMENT = Path(sys.prefix) / "peers"
BIN = ENVIRONMENT / "bin"

Send = Callable[..., Path]
"""Sends a recorded run to an exporter, as variables set it up, and gives the folder of its files."""

_PRINTED_ID = re.compile(r"^Span #\d+\n    Trace ID .*\n    Parent ID .*\n    ID             : (\w{16})", re.MULTILINE)


def site_packages() -> Path:
    (found,) = (ENVIRONMENT / "lib").glob("python3.*/site-packages")
    return found


def until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{process.args!r} does not listen at port {port}") from error
            time.sleep(0.02)
        else:
            return


class Peer:
    """A server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        installed.folder("peers")
        self.folder = folder
        self.grpc_port = free_port()
        self.http_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        with open(self.folder / "peer.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self.folder, env={**os.environ, "NO_COLOR": "1"}
            )
        for port in (self.grpc_port, self.http_port):
            until_open(port, self.process)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def variables(self, protocol: str) -> dict[str, str]:
        port = self.grpc_port if protocol == "grpc" else self.http_port
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}


class Rotel(Peer):
    """A collector that prints what it has decoded."""

    def command(self) -> list[str]:
        return [
            str(site_packages() / "rotel" / "rotel-agent"),
            *("start", "--otlp-grpc-endpoint", f"127.0.0.1:{self.grpc_port}"),
            *("--otlp-http-endpoint", f"127.0.0.1:{self.http_port}", "--exporter", "blackhole"),
            *("--disable-batching", "--debug-log", "traces", "--debug-log", "metrics"),
            *("--debug-log-verbosity", "detailed"),
        ]

    def printed(self) -> str:
        return (self.folder / "peer.log").read_text(errors="replace")

    def span_ids(self) -> list[str]:
        """The ids of the spans that it has taken, as often as it has taken them."""
        return _PRINTED_ID.findall(self.printed())


class TestAgent(Peer):
    """Datadog's test agent: keeps what it has received, to be asked for."""

    __test__ = False

    def command(self) -> list[str]:
        return [
            str(BIN / "ddapm-test-agent"),
            *("--host", "127.0.0.1", "-p", str(free_port()), "--snapshot-dir", str(self.folder / "snapshots")),
            *("--otlp-http-port", str(self.http_port), "--otlp-grpc-port", str(self.grpc_port)),
        ]

    def received(self) -> list[TracesData]:
        return [_request(found) for found in self._ask("traces")]

    def requests(self) -> list[dict[str, Any]]:
        """Method, url and headers of each request."""
        found: list[dict[str, Any]] = self._ask("requests")
        return found

    def clear(self) -> None:
        self._ask("clear")

    def _ask(self, what: str) -> Any:
        url = f"http://127.0.0.1:{self.http_port}/test/session/{what}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text.strip().startswith((b"[", b"{")) else None


def _request(found: dict[str, Any]) -> TracesData:
    # A body in JSON comes back as it was sent, one in protobuf as protobuf's own JSON, with snake_case and base64.
    if "resourceSpans" in found:
        return parsed(found)
    return json_format.ParseDict(found, TracesData())


def parsed(line: dict[str, Any]) -> TracesData:
    """OTLP-JSON, read by protobuf's parser: hexadecimal ids are the one difference in its way."""
    return json_format.ParseDict(with_protobuf_ids(line), TracesData(), ignore_unknown_fields=False)


def local_files(folder: Path) -> list[TracesData]:
    """What the local exporter wrote."""
    return [
        parsed(json.loads(line)) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def spans_of(received: list[TracesData]) -> Iterator[tuple[Resource, Any, Span]]:
    """Every span, with its Resource and scope."""
    for data in received:
        for resource_spans in data.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    yield resource_spans.resource, scope_spans.scope, span


def comparable(received: list[TracesData]) -> dict[str, tuple[Any, ...]]:
    """Every span by its id: all that is known of it, whatever the order of attributes."""
    found: dict[str, tuple[Any, ...]] = {}
    for resource, scope, span in spans_of(received):
        found[span.span_id.hex()] = (
            span.trace_id.hex(),
            span.parent_span_id.hex(),
            span.trace_state,
            span.name,
            span.kind,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.flags,
            (span.status.code, span.status.message),
            _sorted(span.attributes),
            [(event.name, event.time_unix_nano, _sorted(event.attributes)) for event in span.events],
            [
                (link.trace_id, link.span_id, link.trace_state, _sorted(link.attributes), link.flags)
                for link in span.links
            ],
            (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count),
            _sorted(resource.attributes),
            (scope.name, scope.version, _sorted(scope.attributes)),
        )
    return found


def _sorted(attributes: Any) -> list[bytes]:
    return sorted(KeyValue.SerializeToString(pair, deterministic=True) for pair in attributes)
