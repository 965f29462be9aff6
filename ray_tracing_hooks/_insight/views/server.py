"""The report from a local server: made anew as spans arrive, asked for in parts where a run is too large for a page.

Whoever has the address, with the random token in it, may see the spans; nobody else. The server listens on this
machine's own address only, answers GET requests to the paths that it knows, and opens no path that a request names. A
page of another site cannot ask it under a name of its own, since it must be asked as ``localhost``.
"""

from __future__ import annotations

import base64
import gzip
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import MappingProxyType
from typing import BinaryIO, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ray_tracing_hooks._insight.ingest.files import UNREADABLE
from ray_tracing_hooks._insight.views.index.answers import Answers, UnknownError
from ray_tracing_hooks._insight.views.index.filters import WrongError

ADDRESS = "127.0.0.1"

_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""What the server may be called in a request. Its port may be another one there, as through a tunnel of SSH."""

_LEAST_PAUSE = 2.0
"""Seconds between the end of one reading and the next. After a long one as long as it took."""

_CHUNK = 1 << 20
_WORTH_PACKING = 1024
_MOST_PARAMETERS = 10
_REQUEST_TIMEOUT = 30

PAGE, INDEX = "page.html", "index"
"""What is in the folder of a report: the page, and for a large run a folder with its index."""


class Made(NamedTuple):
    """What a report is of."""

    spans: int


Make = Callable[[str, Callable[[str], None]], Made]
"""Makes a report in a folder, which is empty, and tells what it is doing. May raise OSError or ValueError."""


class Report(NamedTuple):
    """What was made of what was read."""

    version: int
    made: Made
    page: BinaryIO
    answers: Answers | None
    read_ms: int


class Reports:
    """The report of some files, which is made anew when they have changed and somebody looks."""

    def __init__(self, find: Callable[[], Sequence[str]], make: Make) -> None:
        """``find`` gives the files; it may raise what ``make`` may."""
        self._find, self._make_report = find, make
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_ended = False
        self._report: Report | None = None
        self._seen: object = None
        self._problem = ""
        self._doing = ""
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
            "spans": report.made.spans if report else 0,
            "asks": bool(report and report.answers),
            "read_ms": report.read_ms if report else 0,
            "making": self._is_making,
            "doing": self._doing,
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

    def answers(self, version: int) -> Answers | None:
        """What answers for the report of this version; None where that is gone or asks nothing."""
        report = self._report
        return report.answers if report and report.version == version else None

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._is_ended:
                return
            began = time.monotonic()
            self._is_making = True
            try:
                self._make()
                self._problem = ""
            except UNREADABLE as error:
                self._problem = f"The spans cannot be read: {getattr(error, 'strerror', None) or error}"
            except Exception as error:  # noqa: BLE001  what one reading comes to must not end those after it
                self._problem = f"The page cannot be made: {type(error).__name__}: {error}"
            finally:
                self._not_before = time.monotonic() + max(_LEAST_PAUSE, time.monotonic() - began)
                self._is_making = False
                self._doing = ""

    def _make(self) -> None:
        self._seen = self._signature()
        read_ms = time.time_ns() // 1_000_000
        # What is mapped or open stays as long as somebody uses it, without a name that others could find.
        with tempfile.TemporaryDirectory(prefix="ray-tracing-hooks-") as folder:
            made = self._make_report(folder, self._tell)
            page: BinaryIO = open(os.path.join(folder, PAGE), "rb")  # noqa: SIM115  kept until there is a newer one
            index = os.path.join(folder, INDEX)
            answers = Answers(index) if os.path.exists(index) else None
        with self._lock:
            before = self._report
            self._report = Report((before.version if before else 0) + 1, made, page, answers, read_ms)
        if before:
            before.page.close()

    def _tell(self, doing: str) -> None:
        self._doing = doing

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
        try:
            asked = urlsplit(self.path)
        except ValueError:
            self.send_error(400)
            return
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
        elif rest[0] == "ask" and len(rest) == 3:
            self._ask(rest[1], asked.query)
        else:
            self.send_error(404)

    def _ask(self, what: str, query: str) -> None:
        asked = _asked(query)
        version = asked.pop("version", "") if asked is not None else ""
        if asked is None or not re.fullmatch("[0-9]{1,18}", version):
            self.send_error(400)
            return
        answers = self.server.reports.answers(int(version))
        if answers is None:
            self.send_error(410)
            return
        try:
            found = answers.answer(what, asked)
        except UnknownError:
            self.send_error(404)
        except WrongError:
            self.send_error(400)
        else:
            self._answer("application/octet-stream", found)

    def _answer(self, kind: str, content: bytes, policy: str = "default-src 'none'") -> None:
        is_packed = len(content) > _WORTH_PACKING and "gzip" in self.headers.get("Accept-Encoding", "")
        if is_packed:
            content = gzip.compress(content, 1)
        self._begin(kind, len(content), policy, {"Content-Encoding": "gzip"} if is_packed else {})
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

    def _begin(self, kind: str, size: int, policy: str, more: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(200)
        for name, value in {
            **more,
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


def _asked(query: str) -> dict[str, str] | None:
    """The parameters, each of which may be there once."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS, errors="replace")
    except ValueError:
        return None
    found = dict(pairs)
    return found if len(found) == len(pairs) else None


_SHELL = files(__package__).joinpath("shell.html").read_bytes()


def _hash_of(element: bytes) -> str:
    inside = _SHELL.partition(b"<%b>" % element)[2].partition(b"</%b>" % element)[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; script-src {_hash_of(b'script')}; style-src {_hash_of(b'style')}; connect-src 'self'; "
    "frame-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
