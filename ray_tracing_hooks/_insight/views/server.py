"""Serves the report locally: it is rebuilt as spans arrive, and sent in parts if a run is too large for one page.

Only those who have the address, which contains a random token, can see the spans. The server listens on the loopback
address only, answers GET requests to the paths that it knows, and never opens a path taken from a request. It checks
the ``Host`` header, so that another site cannot reach it through DNS rebinding.
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
"""The accepted host names in a request. The port may differ, for example through an SSH tunnel."""

_LEAST_PAUSE = 2.0
"""The least pause in seconds between two reads. After a read that took longer, the pause is as long as the read."""

_CHUNK = 1 << 20
_WORTH_PACKING = 1024
_MOST_PARAMETERS = 10
_REQUEST_TIMEOUT = 30

PAGE, INDEX = "page.html", "index"
"""The names in a report's folder: the page, and for a large run a folder with its index."""


class Made(NamedTuple):
    """What a report was made from."""

    spans: int


Make = Callable[[str, Callable[[str], None]], Made]
"""Makes a report in an empty folder, and reports its progress. May raise OSError or ValueError."""


class Report(NamedTuple):
    """A finished report."""

    version: int
    made: Made
    page: BinaryIO
    answers: Answers | None
    read_ms: int


class Reports:
    """The report of some files. It is rebuilt if they have changed when a browser asks for the state."""

    def __init__(self, find: Callable[[], Sequence[str]], make: Make) -> None:
        """``find`` returns the files; it may raise the same errors as ``make``."""
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
        """Start reading."""
        self._wanted.set()
        self._thread.start()

    def end(self) -> None:
        """Stop, after the report that is being made."""
        self._is_ended = True
        self._wanted.set()
        self._thread.join()
        with self._lock:
            if self._report:
                self._report.page.close()
                self._report = None

    def state(self) -> dict[str, object]:
        """The state for the browser. If the files have changed, a new read starts."""
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
        """A descriptor of the newest page, None if there is none yet."""
        with self._lock:
            found = os.dup(self._report.page.fileno()) if self._report else None
        try:
            yield found
        finally:
            if found is not None:
                os.close(found)

    def answers(self, version: int) -> Answers | None:
        """The answers for the report of this version; None if that version is gone or has no index."""
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
            except Exception as error:  # noqa: BLE001  a failed read must not prevent later ones
                self._problem = f"The page cannot be made: {type(error).__name__}: {error}"
            finally:
                self._not_before = time.monotonic() + max(_LEAST_PAUSE, time.monotonic() - began)
                self._is_making = False
                self._doing = ""

    def _make(self) -> None:
        self._seen = self._signature()
        read_ms = time.time_ns() // 1_000_000
        # Mapped and open files stay usable after the folder is removed, without a name that others could find.
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
        """The same as long as the files have not changed."""
        found = []
        try:
            for path in self._find():
                told = os.stat(path)
                found.append((path, told.st_size, told.st_mtime_ns))
        except OSError as error:
            found.append((str(error), 0, 0))
        return found


class Server(ThreadingHTTPServer):
    """Serves reports; ``address`` is the URL for a browser."""

    daemon_threads = True

    def __init__(self, reports: Reports, port: int = 0) -> None:
        """``port`` 0 means any free port. Raises OSError if the port is in use."""
        self.reports = reports
        self.token = secrets.token_urlsafe(24)
        super().__init__((ADDRESS, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Report the error, unless the browser has closed the connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _REQUEST_TIMEOUT

    def parse_request(self) -> bool:
        """Whether to answer this request; any other is refused here, whatever it asks for."""
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
        # The page contains its own content security policy.
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
            "Referrer-Policy": "no-referrer",  # the address contains the token
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "ray-tracing-hooks"

    def log_message(self, *_arguments: object) -> None:
        """Print nothing for a request, because the address contains the token."""


def _asked(query: str) -> dict[str, str] | None:
    """The parameters; None if one occurs more than once or the query is malformed."""
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
