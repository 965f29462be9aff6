"""The figures of delivery in Prometheus' text format, at an address or in a file.

A node may have several spools, each with its shipper: those of jobs with other settings. The first shipper that can
listen at the address answers for all that have their folder beside its own; when it ends, another one takes over.
In a folder, for the node exporter's textfile collector, each shipper writes a file of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from ray_tracing_hooks._reference import Metric
from ray_tracing_hooks._ship.files import is_shipper_running
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._ship.status.figures import Figures, read
from ray_tracing_hooks._ship.status.series import METRICS, samples

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

RUNNING = "ray_tracing_shipper_running"
"""Whether the shipper of a spool runs. Only Prometheus has this metric: OTLP is sent by the shipper itself."""

_AGAIN = 10.0
"""Seconds after which an address that another process has is tried again, or a file is written without news."""

_REQUEST = 5.0
"""Seconds that a request may take."""

_CONNECTIONS = 16
"""How many there may be at once. Beyond that, the oldest are closed."""

_SUFFIXES = {"By": "_bytes", "s": "_seconds"}
"""What OpenTelemetry's units become at the end of a name."""


def text(spools: Mapping[str, tuple[Figures, bool]]) -> str:
    """The figures of these spools, by their names, and whether the shipper of each runs."""
    lines: dict[str, list[str]] = {metric: [] for metric in METRICS}
    running = []
    for spool, (figures, runs) in spools.items():
        place = (("spool", spool), ("node", spool.partition("-")[0]))
        for metric, attributes, value in samples(figures):
            lines[metric.name].append(f"{_name(metric)}{_labels((*attributes, *place))} {value:.15g}")
        running.append(f"{RUNNING}{_labels(place)} {int(runs)}")
    parts = [
        f"# HELP {_name(metric)} {metric.meaning.replace('`', '')}\n# TYPE {_name(metric)} {metric.instrument}\n"
        + "".join(f"{line}\n" for line in lines[metric.name])
        for metric in METRICS.values()
        if lines[metric.name]
    ]
    if running:
        parts.append(f"# HELP {RUNNING} whether the shipper of the spool runs\n# TYPE {RUNNING} gauge\n")
        parts.extend(f"{line}\n" for line in running)
    return "".join(parts)


def _name(metric: Metric) -> str:
    """The name that the same metric has when it comes by OTLP."""
    total = "_total" if metric.instrument == "counter" else ""
    return metric.name.replace(".", "_") + _SUFFIXES.get(metric.unit, "") + total


def _labels(attributes: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{key.replace(".", "_")}="{_escaped(value)}"' for key, value in attributes) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class TextFile:
    """A file in a folder of the node exporter's textfile collector, which anybody may read.

    ``folder`` is that folder, ``spool`` the name of the spool.
    """

    def __init__(self, folder: str, spool: str, problems: Problems) -> None:
        self._folder = folder
        self._spool = spool
        self._problems = problems
        self._next = 0.0
        self._path = os.path.join(folder, f"ray_tracing_hooks-{re.sub(r'[^-.@+0-9A-Z_a-z]', '_', spool)}.prom")

    def update(self, figures: Figures, *, changed: bool) -> None:
        """Replace the file, if the figures have ``changed``, or for the age of what waits."""
        is_waiting = any(each.oldest_ns for each in figures.destinations)
        if not changed and not (is_waiting and time.monotonic() >= self._next):
            return
        self._next = time.monotonic() + _AGAIN
        temporary = f"{self._path}.{secrets.token_hex(4)}.new"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text({self._spool: (figures, True)}))
                os.fchmod(descriptor, 0o644)
            os.rename(temporary, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._problems.set(
                "prometheus",
                f"metrics are not written to {self._folder!r} (RAY_TRACING_PROMETHEUS): {error.strerror}",
            )
        else:
            self._problems.clear("prometheus")

    def close(self) -> None:
        """Remove the file: a figure that no longer changes is none."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


class Listener:
    """Answers ``GET /metrics`` at an address, with the figures of all spools in a folder.

    ``address`` is ``host:port``, ``spool_dir`` the folder of this shipper's spool, and ``figures`` returns its latest
    figures. Nothing here raises.
    """

    def __init__(self, address: str, spool_dir: str, figures: Callable[[], Figures], problems: Problems) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._address = address
        self._beside, self._own = os.path.split(spool_dir)
        self._figures = figures
        self._problems = problems
        self._server: ThreadingTCPServer | None = None
        self._thread: threading.Thread | None = None
        self._next = 0.0

    def update(self, _figures: Figures, *, changed: bool) -> None:
        """Listen at the address as soon as it is free."""
        if time.monotonic() < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = time.monotonic() + _AGAIN
        # In a thread, since what is at the address may take its time to answer, or never end.
        self._thread = threading.Thread(target=self._serve, name="metrics-listener", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._server = self._listen()
        except OSError as error:
            if self._is_answered():
                self._problems.clear("prometheus")
                return
            self._problems.set(
                "prometheus",
                f"metrics are not served: cannot listen at {self._address} (RAY_TRACING_PROMETHEUS): {error.strerror}",
            )
            return
        self._problems.clear("prometheus")
        logger.info("metrics are at http://%s/metrics", self._address)
        self._server.serve_forever()

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _listen(self) -> ThreadingTCPServer:
        listener, address = self, (self._host, self._port)

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST
            server_version, sys_version = "ray_tracing_hooks", ""

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404)
                    return
                body = listener.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_said: object) -> None:
                """A log of every scrape would fill the disk."""

        class Server(ThreadingTCPServer):
            # Not http.server's, which looks up a name for the address.
            allow_reuse_address = daemon_threads = True
            address_family = socket.AF_INET6 if ":" in self._host else socket.AF_INET

            def __init__(self) -> None:
                self.open_until: dict[Any, float] = {}
                super().__init__(address, Handler)

            def process_request(self, request: Any, client_address: Any) -> None:
                self.open_until[request] = time.monotonic() + _REQUEST
                super().process_request(request, client_address)

            def service_actions(self) -> None:
                """Called after each request, and twice a second."""
                connections = list(self.open_until.items())
                for number, (request, until) in enumerate(connections, start=1):
                    if number <= len(connections) - _CONNECTIONS or until < time.monotonic():
                        with contextlib.suppress(OSError):  # it has just been closed
                            request.shutdown(socket.SHUT_RDWR)

            def shutdown_request(self, request: Any) -> None:
                self.open_until.pop(request, None)
                super().shutdown_request(request)

            def handle_error(self, *_request: object) -> None:
                """A client that disconnects is no problem of ours."""

        return Server()

    def text(self) -> str:
        """What a request is answered with."""
        return text({self._own: (self._figures(), True), **self._others()})

    def _others(self) -> dict[str, tuple[Figures, bool]]:
        found = {}
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._beside)):
                folder = os.path.join(self._beside, name)
                figures = read(folder) if name != self._own else None
                if figures is not None:
                    with contextlib.suppress(OSError):
                        found[name] = figures, is_shipper_running(folder)
        return found

    def _is_answered(self) -> bool:
        """Whether another shipper answers at the address, for this spool too."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104  it is compared
        connection = http.client.HTTPConnection(host, self._port, timeout=_REQUEST)
        try:
            connection.request("GET", "/metrics")
            return f'spool="{self._own}"'.encode() in connection.getresponse().read(1 << 20)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


Exposition = TextFile | Listener


def exposition(place: str, spool_dir: str, figures: Callable[[], Figures], problems: Problems) -> Exposition:
    """What shows the figures at the place that ``RAY_TRACING_PROMETHEUS`` names: a folder, or an address."""
    if place.startswith("/"):
        return TextFile(place, os.path.basename(spool_dir), problems)
    return Listener(place, spool_dir, figures, problems)
