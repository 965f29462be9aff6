"""The report from a local server: made anew as spans arrive, and in parts where a run does not fit into one page.

Whoever has the address, with the random token in it, may see the spans; nobody else. The server listens on this
machine's own address only, answers GET requests to the four paths that it knows, and opens no path that a request
names. A page of another site cannot ask it under a name of its own, since it must be asked as ``localhost``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

from ray_tracing_hooks._insight.analysis import Analysis
from ray_tracing_hooks._insight.lanes import ends_of
from ray_tracing_hooks._insight.read import UNREADABLE, collector_paused
from ray_tracing_hooks._insight.table import Table

ADDRESS = "127.0.0.1"

_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""What the server may be called in a request. Its port may be another one there, as through a tunnel of SSH."""

_LEAST_PAUSE = 2.0
"""Seconds between the end of one reading and the next. After a long one as long as it took."""

_CHUNK = 1 << 20
_REQUEST_TIMEOUT = 30

WritePage = Callable[[BinaryIO, Analysis], int]
"""Writes the page of a run and returns how many of its spans it shows."""


class Report(NamedTuple):
    """What was read, and the page of it."""

    version: int
    analysis: Analysis
    shown: int
    page: BinaryIO
    read_ms: int


class Reports:
    """The report of some files, which is made anew when they have changed and somebody looks."""

    def __init__(
        self, find: Callable[[], Sequence[str]], analyse: Callable[[Sequence[str]], Analysis], write: WritePage
    ) -> None:
        """``find`` gives the files, ``analyse`` what is to be shown of them. Both may raise OSError or ValueError."""
        self._find, self._analyse, self._write = find, analyse, write
        self._lock = threading.Lock()
        self._making_part = threading.Lock()
        self._wanted = threading.Event()
        self._is_ended = False
        self._report: Report | None = None
        self._seen: object = None
        self._problem = ""
        self._is_making = False
        self._not_before = 0.0
        self._thread = threading.Thread(target=self._run, name="ray-tracing-hooks report", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._wanted.set()
        self._thread.start()

    def end(self) -> None:
        """Stop; waits for what is being made."""
        self._is_ended = True
        self._wanted.set()
        self._thread.join()
        with self._lock:
            if self._report:
                self._report.page.close()
                self._report = None

    def state(self) -> dict[str, object]:
        """What there is to show. If the files have changed, their reading begins."""
        if not self._is_making and time.monotonic() >= self._not_before and self._signature() != self._seen:
            self._wanted.set()
        report = self._report
        return {
            "version": report.version if report else 0,
            "spans": len(report.analysis.table) if report else 0,
            "shown": report.shown if report else 0,
            "read_ms": report.read_ms if report else 0,
            "making": self._is_making,
            "problem": self._problem,
        }

    @contextmanager
    def page(self) -> Iterator[int | None]:
        """A descriptor of the newest page, None while there is none."""
        with self._lock:
            found = os.dup(self._report.page.fileno()) if self._report else None
        try:
            yield found
        finally:
            if found is not None:
                os.close(found)

    @contextmanager
    def part(self, version: int, first: int, last: int) -> Iterator[int | None]:
        """The same of a page of what lies between two times, in nanoseconds from the start of the run.

        None where the report of this version is gone.
        """
        report = self._report
        if report is None or report.version != version:
            yield None
            return
        table = report.analysis.table
        with tempfile.TemporaryFile() as file:
            with self._making_part:
                begin = table.start[0]
                self._write(cast("BinaryIO", file), Analysis(_between(table, begin + first, begin + last)))
            file.flush()
            yield file.fileno()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._is_ended:
                return
            began = time.monotonic()
            self._is_making = True
            try:
                with collector_paused():
                    self._make()
                self._problem = ""
            except UNREADABLE as error:
                self._problem = f"The spans cannot be read: {getattr(error, 'strerror', None) or error}"
            except Exception as error:  # noqa: BLE001  what one reading comes to must not end those after it
                self._problem = f"The page cannot be made: {type(error).__name__}: {error}"
            finally:
                self._not_before = time.monotonic() + max(_LEAST_PAUSE, time.monotonic() - began)
                self._is_making = False

    def _make(self) -> None:
        self._seen = self._signature()
        read_ms = time.time_ns() // 1_000_000
        analysis = self._analyse(self._find())
        page = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  kept until there is a newer one
        shown = self._write(page, analysis)
        page.flush()
        with self._lock:
            before = self._report
            self._report = Report((before.version if before else 0) + 1, analysis, shown, page, read_ms)
        if before:
            before.page.close()

    def _signature(self) -> object:
        """Equal as long as the files are."""
        found = []
        try:
            for path in self._find():
                told = os.stat(path)
                found.append((path, told.st_size, told.st_mtime_ns))
        except OSError as error:
            found.append((str(error), 0, 0))
        return found


def _between(table: Table, first: int, last: int) -> Table:
    """The spans that go on between two times, with those that they are part of."""
    ends = ends_of(table)
    wanted = bytearray(len(table))
    for row, begin in enumerate(table.start):
        if begin <= last and ends[row] >= first:
            here = row
            while here >= 0 and not wanted[here]:
                wanted[here] = 1
                here = table.parent[here]
    return table.part(row for row, is_wanted in enumerate(wanted) if is_wanted)


class Server(ThreadingHTTPServer):
    """Serves reports; ``address`` is where a browser finds them."""

    daemon_threads = True

    def __init__(self, reports: Reports, port: int = 0) -> None:
        """``port`` 0 is any that is free. Raises OSError for one that is not."""
        self.reports = reports
        self.token = secrets.token_urlsafe(24)
        super().__init__((ADDRESS, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say what went wrong, unless it is that a browser has gone away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _REQUEST_TIMEOUT

    def parse_request(self) -> bool:
        """Whether this is a request to answer; others are refused here, whatever they ask for."""
        if not super().parse_request():
            return False
        host = self.headers.get_all("Host") or []
        if self.command not in ("GET", "HEAD"):
            self.send_error(405)
        elif len(host) != 1 or re.sub(r":\d+$", "", host[0]).lower() not in _NAMES:
            self.send_error(421)
        else:
            return True
        return False

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        _, token, *rest = [*asked.path.split("/"), ""]
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            self.send_error(404)
            return
        path = "/".join(rest[:-1])
        if path == "":
            self._answer("text/html; charset=utf-8", _SHELL, policy=_POLICY)
        elif path == "state":
            self._answer("application/json", json.dumps(self.server.reports.state()).encode())
        elif path == "report":
            with self.server.reports.page() as page:
                self._answer_file(page)
        elif path == "part":
            numbers = _numbers(asked.query, ("version", "from", "to"))
            if numbers is None:
                self.send_error(400)
                return
            with self.server.reports.part(*numbers) as page:
                self._answer_file(page)
        else:
            self.send_error(404)

    def _answer(self, kind: str, content: bytes, policy: str = "default-src 'none'") -> None:
        self._begin(kind, len(content), policy)
        if self.command == "GET":
            self.wfile.write(content)

    def _answer_file(self, page: int | None) -> None:
        if page is None:
            self.send_error(404)
            return
        size = os.fstat(page).st_size
        # What the page itself may do stands in it.
        self._begin("text/html; charset=utf-8", size, "frame-ancestors 'self'")
        position = 0
        while self.command == "GET" and (chunk := os.pread(page, _CHUNK, position)):
            self.wfile.write(chunk)
            position += len(chunk)

    def _begin(self, kind: str, size: int, policy: str) -> None:
        self.send_response(200)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(size),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",  # the address has the token in it
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "ray-tracing-hooks"

    def log_message(self, *_arguments: object) -> None:
        """Nothing is printed for a request: the address has the token in it."""


def _numbers(query: str, names: Sequence[str]) -> tuple[int, ...] | None:
    asked = parse_qs(query)
    found = [asked.get(name, [""])[0] for name in names]
    if all(re.fullmatch(r"[0-9]{1,18}", each) for each in found):
        return tuple(map(int, found))
    return None


_SHELL = files(__package__).joinpath("shell.html").read_bytes()


def _hash_of(element: bytes) -> str:
    inside = _SHELL.partition(b"<%b>" % element)[2].partition(b"</%b>" % element)[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; script-src {_hash_of(b'script')}; style-src {_hash_of(b'style')}; connect-src 'self'; "
    "frame-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
