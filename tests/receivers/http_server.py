"""An HTTP server for tests, which answers as a function says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """By their names in lower case; the values of one that came several times are joined by a comma."""
    body: bytes
    port: int
    """Of the client."""


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


@contextmanager
def http_server(
    answer: Callable[[Request], Answer],
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    keeps_alive: bool = False,
) -> Iterator[str]:
    """Serves on a port of this machine, each connection in a thread of its own, and gives the URL without a path.

    ``keeps_alive``: connections are kept open, also after the end, by those who send.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keeps_alive else "HTTP/1.0"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
            status, content, more = answer(Request(self.command, self.path, headers, body, self.client_address[1]))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_arguments: Any) -> None: ...

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = keeps_alive
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def port_of(url: str) -> int:
    """The port of the URL of a server."""
    port = urlsplit(url).port
    assert port is not None
    return port
