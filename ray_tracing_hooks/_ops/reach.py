"""Delivers a test span to each destination of a node, through the same sinks and transports as any other span.

Where that fails, it finds the step at which the server cannot be reached: its name, the connection, or TLS.
"""

from __future__ import annotations

import concurrent.futures
import os
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ops.effective import Effective
from ray_tracing_hooks._safety.guard import SettingError, TracingError, describe
from ray_tracing_hooks._ship.log import Secrets, with_count
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import destination_of, make_sink, usable
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, Destination, RefusesAllError, SinkContext, Tls
from ray_tracing_hooks._version import __version__

_TIMEOUT = 3.0
"""Seconds for each step."""

SPEAKS_TLS = "the server speaks TLS"
"""The error of the step ``TLS`` where an address does not begin with ``https``."""

_PORTS = {"http": 80, "https": 443}


class Step(NamedTuple):
    """A step on the way to a server, ``name``, ``connection`` or ``TLS``, and why it failed."""

    step: str
    error: str


def failed_step(address: str, tls: Tls | None) -> Step | None:
    """The step to this server that fails; None if none does, or if the environment names a proxy for it."""
    parts = urlsplit(address)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None  # a unix socket, or UDP, where nothing answers
    host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    if not {parts.scheme, "grpc", "all"}.isdisjoint(getproxies_environment()) and not proxy_bypass(host):
        return None  # the proxy resolves the name, and connects
    try:
        _resolve(host, port)
    except (OSError, UnicodeError) as error:
        return Step("name", f"{host} cannot be resolved: {getattr(error, 'strerror', None) or error}")
    try:
        connection = socket.create_connection((host, port), timeout=_TIMEOUT)
    except OSError as error:
        return Step("connection", f"no connection to {host} port {port}: {error.strerror or error}")
    with connection:
        if parts.scheme != "https":
            return Step("TLS", SPEAKS_TLS) if _speaks_tls(connection) else None
        try:
            context = _context(tls)
        except OSError as error:  # ssl.SSLError is one
            return Step("TLS", f"the certificates of this side cannot be used: {_reason(error)}")
        try:
            with context.wrap_socket(connection, server_hostname=host):
                return None
        except ssl.SSLCertVerificationError as error:
            return Step("TLS", f"its certificate is not accepted: {error.verify_message}")
        except OSError as error:
            return Step("TLS", f"no TLS there: {_reason(error)}")


def _speaks_tls(connection: socket.socket) -> bool:
    """Whether a server that should not speaks TLS. Nothing is sent to it, so its certificate does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(connection):
            return True
    except OSError:
        return False


def _reason(error: OSError) -> object:
    return getattr(error, "reason", None) or error.strerror or error


def _context(tls: Tls | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.certificate if tls is not None else None)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if tls is not None and tls.client_certificate is not None:
        # Without a password, OpenSSL would prompt for that of an encrypted key on the terminal.
        context.load_cert_chain(tls.client_certificate, tls.client_key, password="")
    return context


def _resolve(host: str, port: int) -> None:
    """Look up a name, which has no time limit of its own. Raises OSError or UnicodeError without a result."""
    threads = concurrent.futures.ThreadPoolExecutor(1)
    try:
        threads.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM).result(_TIMEOUT)
    except concurrent.futures.TimeoutError:
        raise TimeoutError(None, f"no answer from the name server within {_TIMEOUT:g} s") from None
    finally:
        threads.shutdown(wait=False)


NAME = "ray-tracing-hooks doctor"
"""The name of test spans, and of their service: they are not among those of any program."""

_INTERNAL = 1
"""The kind of the span, by OTLP's number."""

_WRITES_FILES = frozenset({"local", "console"})
"""Exporters that get no test span, which would stay in the user's files. Their folder is checked."""


@dataclass
class _Heard:
    """What a sink reports."""

    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def count(self, text: str, number: int) -> None:
        self.problems.append(with_count(text, number))

    def lose(self, text: str, number: int) -> None:
        if number:
            self.lost.append(with_count(text, number))


def trial(found: Effective, trace_id: str | None, timeout: float, secrets: Secrets) -> list[dict[str, Any]]:
    """What becomes of a test span at each destination of these settings. Without a trace id none is sent.

    Destinations are tried at the same time, each for at most the time-out of its requests, or ``timeout`` seconds.
    """
    exporters, _ = usable(found.plan.exporters)
    environ = _hurried(found.environ, timeout)
    try_one = partial(_try, found.plan, environ, trace_id, secrets)
    threads = concurrent.futures.ThreadPoolExecutor(max(1, len(exporters)))
    tried = [(name, threads.submit(try_one, name)) for name in exporters]
    until = time.monotonic() + timeout
    results: list[dict[str, Any]] = []
    for name, each in tried:
        try:
            results.append(each.result(max(0.1, until - time.monotonic())))
        except concurrent.futures.TimeoutError:  # an installed exporter may take any time
            text = secrets.mask(_destination(name, found.plan, environ).text)
            results.append({"exporter": name, "text": text, "sent": True, "error": f"no result within {timeout:g} s"})
    threads.shutdown(wait=False)
    return results


def _hurried(environ: dict[str, str], timeout: float) -> dict[str, str]:
    """The variables of delivery, with requests that take no longer than ``timeout`` seconds."""
    given = environ.get("OTEL_BSP_EXPORT_TIMEOUT", "")
    least = min(float(given), timeout * 1000) if given.isdigit() and int(given) else timeout * 1000
    return {**environ, "OTEL_BSP_EXPORT_TIMEOUT": str(max(1, int(least)))}


def _try(plan: ShipPlan, environ: dict[str, str], trace_id: str | None, secrets: Secrets, name: str) -> dict[str, Any]:
    heard = _Heard()
    destination = _destination(name, plan, environ)
    found: dict[str, Any] = {"exporter": name, "text": secrets.mask(destination.text), "sent": False, "error": None}
    if name in _WRITES_FILES or trace_id is None:
        return found
    began = time.monotonic()
    found["sent"] = True
    try:
        _deliver(plan, environ, name, heard, _batch(bytes.fromhex(trace_id)))
    except RefusesAllError as error:
        found |= {"error": error.reason, "is_refused": True}
    except TracingError as error:
        found["error"] = str(error)
        found["is_setting"] = isinstance(error, SettingError)
        found["is_refused"] = False
    except Exception as error:  # noqa: BLE001  installed exporters raise whatever they like
        found["error"] = describe(error)
    else:
        if heard.lost:
            found |= {"error": heard.lost[0], "is_refused": True}
    found["seconds"] = time.monotonic() - began
    found["warnings"] = [secrets.mask(text) for text in heard.problems]
    if found["error"] is not None:
        found["error"] = secrets.mask(found["error"])
        failed = failed_step(destination.addresses[0], destination.tls) if destination.addresses else None
        if failed is not None:
            found |= {"step": failed.step, "step_error": failed.error}
    return found


def _destination(name: str, plan: ShipPlan, environ: dict[str, str]) -> Destination:
    return destination_of(name, plan, environ, lambda _problem: None)


def _deliver(plan: ShipPlan, environ: dict[str, str], name: str, heard: _Heard, batches: Sequence[Batch]) -> None:
    # What the settings have wrong has been reported.
    context = SinkContext(
        plan,
        {},
        lambda _state: None,
        heard.count,
        environ,
        lambda _problem: None,
        lost=heard.lose,
    )
    sink = make_sink(name, context)
    try:
        for _ in range(2):
            try:
                sink.deliver(batches)
            except DeliveryError:
                # An installed exporter wants another attempt to tell a bad span from a bad server.
                if not sink.needs_more_to_judge:
                    raise
            else:
                return
        sink.deliver(batches)
    finally:
        sink.close()


def _batch(trace_id: bytes) -> list[Batch]:
    now = time.time_ns()
    span = (
        encode.identity_of(trace_id, os.urandom(8), None)
        + encode.start_and_end(now - 1_000_000, encode.END_TAG, now)
        + encode.name_and_kind(NAME, _INTERNAL)
        + encode.attributes({"host.name": socket.gethostname()})
    )
    resource = encode.resource(
        {
            "service.name": NAME.replace(" ", "-"),
            "host.name": socket.gethostname(),
            names.DISTRO_NAME: "ray_tracing_hooks",
            names.DISTRO_VERSION: __version__,
        }
    )
    return [Batch(resource, encode.scope(names.SCOPE, __version__), [span])]
