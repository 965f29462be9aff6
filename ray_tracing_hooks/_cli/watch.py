"""Serves a report on this machine, and writes it again when files with spans change: ``view --watch``.

Only those who have the address, which contains a random token, can see the report. The server listens on the loopback
address only, answers GET requests to the three paths that it knows, and opens no file but the report. It checks the
``Host`` header, so that another site cannot reach it through DNS rebinding.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click

from ray_tracing_hooks._cli.screen import SafeError
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._safety.private import open_file

ADDRESS = "127.0.0.1"

_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The accepted host names in a request. The port may differ, for example through an SSH tunnel."""

_PAUSE = 1.0
"""The least time in seconds between two looks at the files. After a report that took longer, it is as long as that."""

_REQUEST_TIMEOUT = 30

_STYLE = "html, body, iframe { width: 100%; height: 100%; margin: 0; border: 0; display: block; }"
# Spans and functions are numbered differently in another report, so only the rest of the state is kept.
_SCRIPT = """
const report = document.querySelector("iframe");
let shown = "";
async function look() {
  const answer = await fetch("version").catch(() => null);
  const version = answer && answer.ok ? await answer.text() : shown;
  if (version !== shown) {
    const state = new URLSearchParams((shown ? report.contentWindow.location : location).hash.slice(1));
    if (shown) for (const name of ["span", "function", "flame", "place", "name"]) state.delete(name);
    shown = version;
    report.contentWindow.location.replace(`report?${version}#${state}`);
  }
  setTimeout(look, 1000);
}
report.onload = () => report.contentWindow.focus();
look();
"""
_SHELL = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>ray-tracing-hooks</title>'
    f'<link rel="icon" href="data:,"><style>{_STYLE}</style><iframe title="Report"></iframe><script>{_SCRIPT}</script>'
).encode()


def watch(
    write: Callable[[], None], paths: Sequence[str], output: str, port: int, begun: Callable[[str], None]
) -> None:
    """Call ``write``, which writes the report to ``output``, and again when files below ``paths`` change, until Ctrl-C.

    ``begun`` is called with the address for a browser. If the first report cannot be written, the error of ``write``
    is raised; later ones are printed, and the previous report stays.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    seen = _signature(paths)
    pause = _timed(write)
    try:
        server = Server(output, port)
    except OSError as error:
        raise SafeError(f"cannot listen on {ADDRESS}:{port}: {error.strerror}") from None
    with server:
        thread = threading.Thread(target=server.serve_forever, name="ray-tracing-hooks server", daemon=True)
        thread.start()
        try:
            begun(server.address)
            while True:
                time.sleep(max(_PAUSE, pause))
                if (found := _signature(paths)) != seen:
                    seen = found
                    try:
                        pause = _timed(write)
                    except click.ClickException as error:
                        error.show()
        except KeyboardInterrupt:
            pass
        finally:
            server.shutdown()
            thread.join()


def _timed(write: Callable[[], None]) -> float:
    """The seconds that it took."""
    began = time.monotonic()
    write()
    return time.monotonic() - began


def _signature(paths: Sequence[str]) -> object:
    """The same as long as the files have not changed."""
    try:
        found = [(path, os.stat(path)) for path in span_files(paths, with_subfolders=True)]
    except OSError as error:
        return str(error)
    return [(path, stat.st_size, stat.st_mtime_ns) for path, stat in found]


class Server(ThreadingHTTPServer):
    """Serves the report at ``path``; ``address`` is the URL for a browser."""

    daemon_threads = True

    def __init__(self, path: str, port: int = 0) -> None:
        """``port`` 0 means any free port. Raises OSError if the port is in use."""
        self.path = path
        self.token = secrets.token_urlsafe(24)
        super().__init__((ADDRESS, port), _Handler)
        self.address = f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Report the error, unless the browser has closed the connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _REQUEST_TIMEOUT

    def do_GET(self) -> None:
        host = self.headers.get_all("Host") or []
        if len(host) != 1 or re.sub(r":\d+$", "", host[0]).lower() not in _NAMES:
            self.send_error(421)
            return
        _, token, *rest = [*self.path.partition("?")[0].split("/"), ""]
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        try:
            if not known or rest not in ([""], ["", ""], ["version", ""], ["report", ""]):
                self.send_error(404)
            elif rest[0] == "version":
                self._answer(str(os.stat(self.server.path).st_mtime_ns).encode(), "text/plain", "default-src 'none'")
            elif rest[0] == "report":
                with open(open_file(self.server.path, os.O_RDONLY), "rb") as report:
                    self._begin(os.fstat(report.fileno()).st_size, "text/html", "frame-ancestors 'self'")
                    shutil.copyfileobj(report, self.wfile)
            else:
                self._answer(_SHELL, "text/html", _POLICY)
        except FileNotFoundError:
            self.send_error(404)

    def _answer(self, content: bytes, kind: str, policy: str) -> None:
        self._begin(len(content), kind, policy)
        self.wfile.write(content)

    def _begin(self, size: int, kind: str, policy: str) -> None:
        self.send_response(200)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(size),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",  # the address contains the token
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "ray-tracing-hooks"

    def log_message(self, *_arguments: object) -> None:
        """Print nothing for a request, because the address contains the token."""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; "
    "frame-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
