"""Finds the step at which a server cannot be reached: its name, the connection, or TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from ray_tracing_hooks._ship.sink import Tls

T = TypeVar("T")

_TIMEOUT = 3.0
"""Seconds for each step."""

SPEAKS_TLS = "the server speaks TLS"
"""The error of the step ``TLS`` where an address does not begin with ``https``."""

_PORTS = {"http": 80, "https": 443}


class Step(NamedTuple):
    """One step on the way to a server.

    Attributes:
        step: ``name``, ``connection`` or ``TLS``.
        error: Why it failed; None if it did not.
    """

    step: str
    error: str | None


def steps(addresses: Sequence[str], tls: Tls | None) -> list[Step]:
    """The steps to the first of these servers, up to one that fails. None if the environment names a proxy for it."""
    return list(_steps(addresses[0], tls)) if addresses else []


def _steps(address: str, tls: Tls | None) -> Iterator[Step]:
    parts = urlsplit(address)
    if parts.scheme not in _PORTS or not parts.hostname:
        return  # a unix socket, or UDP, where nothing answers
    host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    if not {parts.scheme, "grpc", "all"}.isdisjoint(getproxies_environment()) and not proxy_bypass(host):
        return  # the proxy resolves the name, and connects
    try:
        _in_time(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        yield Step("name", f"{host} cannot be resolved: {getattr(error, 'strerror', None) or error}")
        return
    yield Step("name", None)
    try:
        connection = socket.create_connection((host, port), timeout=_TIMEOUT)
    except OSError as error:
        yield Step("connection", f"no connection to {host} port {port}: {error.strerror or error}")
        return
    with connection:
        yield Step("connection", None)
        if parts.scheme != "https":
            if _speaks_tls(connection):
                yield Step("TLS", SPEAKS_TLS)
            return
        try:
            context = _context(tls)
        except (OSError, ssl.SSLError) as error:
            yield Step("TLS", f"the certificates of this side cannot be used: {_reason(error)}")
            return
        try:
            with context.wrap_socket(connection, server_hostname=host):
                yield Step("TLS", None)
        except ssl.SSLCertVerificationError as error:
            yield Step("TLS", f"its certificate is not accepted: {error.verify_message}")
        except (OSError, ssl.SSLError) as error:
            yield Step("TLS", f"no TLS there: {_reason(error)}")


def _speaks_tls(connection: socket.socket) -> bool:
    """Whether a server that should not speaks TLS. Nothing is sent to it, so its certificate does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(connection):
            return True
    except (OSError, ssl.SSLError):
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


def _in_time(resolve: Callable[[], T]) -> T:
    """The result of a look-up of a name, which has no time limit of its own. Raises OSError without one."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(resolve())
        except (OSError, UnicodeError) as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_TIMEOUT)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError(None, f"no answer from the name server within {_TIMEOUT:g} s")
    return results[0]
