"""A store of spans and log records for tests: takes OTLP over HTTP into an SQLite database, which is asked by trace id.

No store of both that can be asked by trace id installs from a package index. It decodes with OpenTelemetry's protobuf.
"""

from __future__ import annotations

import gzip
import json
import socket
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from ports import free_port

_TABLES = """
CREATE TABLE IF NOT EXISTS spans (trace_id, span_id, parent_id, name, resource);
CREATE TABLE IF NOT EXISTS logs (trace_id, span_id, time, severity, number, body, resource, attributes);
CREATE INDEX IF NOT EXISTS spans_of ON spans (trace_id);
CREATE INDEX IF NOT EXISTS logs_of ON logs (trace_id);
"""


class Store:
    """Listens at ``port`` of this machine, or at a given socket, between :meth:`open` and :meth:`close`.

    Attributes:
        traces: The requests with spans as they came.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.traces: list[TracesData] = []
        self._file = folder / "store.sqlite"
        self._server: ThreadingHTTPServer | None = None
        self._lock = threading.Lock()
        with sqlite3.connect(self._file) as database:
            database.executescript(_TABLES)

    def open(self, listener: socket.socket | None = None) -> None:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                store.keep(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.send_header("Connection", "close")  # so that nothing is served once it is closed
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the base class
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler, bind_and_activate=listener is None)
        if listener is not None:
            server.socket.close()
            server.socket = listener
        server.daemon_threads = True
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def keep(self, path: str, body: bytes) -> None:
        with self._lock, sqlite3.connect(self._file) as database:
            if path == "/v1/logs":
                database.executemany("INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _logs(body))
            elif path == "/v1/traces":
                self.traces.append(TracesData.FromString(body))
                database.executemany("INSERT INTO spans VALUES (?, ?, ?, ?, ?)", _spans(body))

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query in SQL."""
        with self._lock, sqlite3.connect(self._file) as database:
            return database.execute(query, values).fetchall()


def _logs(body: bytes) -> list[tuple[Any, ...]]:
    request = ExportLogsServiceRequest.FromString(body)
    return [
        (
            *(record.trace_id.hex(), record.span_id.hex()),
            *(record.time_unix_nano, record.severity_text, int(record.severity_number)),
            record.body.string_value,
            _json(resource.resource.attributes),
            _json(record.attributes),
        )
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def _spans(body: bytes) -> list[tuple[Any, ...]]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        (
            *(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name),
            _json(resource.resource.attributes),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _json(attributes: Any) -> str:
    return json.dumps({pair.key: _value(pair.value) for pair in attributes})


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind in {"array_value", "kvlist_value", "bytes_value"}:
        return json_format.MessageToDict(value)
    return getattr(value, kind) if kind else None
