"""Requests over HTTP. Proxies are those of the environment, as ``requests`` reads them."""

from __future__ import annotations

import functools
import html
import io
import json
import os
import re
import socket
import time
import zlib
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any

import requests
import urllib3
from requests import adapters
from requests.adapters import HTTPAdapter

from ray_tracing_hooks._formats.protobuf import FormatError, fields
from ray_tracing_hooks._ship.sink import DeliveryError, Tls
from ray_tracing_hooks._ship.transport.contract import (
    LONGEST_ANSWER,
    Refused,
    ServerSettings,
    bounded_wait,
    check,
    distrust,
    one_line,
)
from ray_tracing_hooks._version import __version__

_RETRYABLE = frozenset({429, 502, 503, 504})
"""Of the OTLP specification, https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes."""

_EXPECTS_TLS = re.compile(rb"to an HTTPS server|to (an )?HTTPS port|plain HTTP to an SSL", re.IGNORECASE)
"""How the ports for TLS of Go's servers, nginx and Apache answer a request without it."""

_TITLE = re.compile(rb"<title[^>]*>([^<]*)", re.IGNORECASE)

_GZIP = 31
"""The ``wbits`` of zlib for writing gzip."""

_FAILURES = frozenset({408, 425})
"""These and all from 500 on, but those of the method, are failures of the server or of a proxy, which may pass."""

_OF_CREDENTIALS = frozenset({401, 403, 407})
_OF_THE_METHOD = frozenset({404, 405, 501})
_ANY_WBITS = 47
"""The ``wbits`` of zlib for reading both zlib and gzip."""


# Time-outs of urllib3, also its ``total``, are socket time-outs: each byte that arrives restarts them, so a server that
# sends one now and then would hold a request forever. Neither urllib3 nor requests limits the time of a whole response,
# so its stream does; the hook of http.client used here also covers the responses of proxies to CONNECT.


class _InTime(io.RawIOBase):
    """The stream of a connection, which fails once the connection's time-out has passed, whatever arrives."""

    def __init__(self, stream: io.BufferedReader, connection: socket.socket) -> None:
        super().__init__()
        self._stream = stream
        self._connection = connection
        self._until = time.monotonic() + (connection.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._stream.raw.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _response(connection: socket.socket, *args: Any, **kwargs: Any) -> HTTPResponse:
    """A response that has to arrive completely within the connection's time-out."""
    response = HTTPResponse(connection, *args, **kwargs)
    response.fp = io.BufferedReader(_InTime(response.fp, connection))
    return response


def _in_time(pool: type[urllib3.HTTPConnectionPool]) -> type[urllib3.HTTPConnectionPool]:
    """The same pool, but with responses limited in time."""
    connection = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"response_class": staticmethod(_response)})
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})


_POOLS = {"http": _in_time(urllib3.HTTPConnectionPool), "https": _in_time(urllib3.HTTPSConnectionPool)}


class _Adapter(HTTPAdapter):
    """One connection, no retries, which the caller handles, and responses limited in time."""

    def __init__(self) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _NoNetrc(requests.auth.AuthBase):
    """Keeps the headers unchanged: otherwise ``requests`` adds credentials from the user's netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


@functools.cache
def _default_authorities() -> str:
    """A path to the CA certificates that ``requests`` trusts by default, valid as long as this process lives.

    They are in an installed package, and the environment of a Ray worker can be removed while its shipper runs.
    """
    path: str = adapters.DEFAULT_CA_BUNDLE_PATH
    try:
        with open(path, "rb") as file:
            contents = file.read()
        copy = os.memfd_create("certificates")
        with open(copy, "wb", closefd=False) as file:
            file.write(contents)
    except OSError:
        return path
    return f"/proc/self/fd/{copy}"


class HttpTransport:
    """Posts bodies to one URL. The time-out is for connecting and the response together.

    ``over_grpc`` is the setting of the exporter for a server that speaks gRPC, for a message.
    """

    def __init__(self, settings: ServerSettings, content_type: str, *, over_grpc: str = "PROTOCOL=grpc") -> None:
        tls = settings.tls or Tls()
        check(tls)
        self._over_grpc = over_grpc
        self.address = settings.address
        self._url = settings.target
        self._timeout = settings.timeout
        self._gzip = settings.gzip
        self._session = requests.Session()
        adapter = _Adapter()
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        self._session.auth = _NoNetrc()
        self._session.headers.update(
            {
                "User-Agent": f"ray-tracing-hooks/{__version__}",
                **settings.headers,
                "Content-Type": content_type,
                "Accept-Encoding": "identity",
            }
        )
        if settings.gzip:
            self._session.headers["Content-Encoding"] = "gzip"
        self._verify = tls.certificate
        if self._verify is None and self._url.lower().startswith("https:"):
            # Applies if no environment variable names another file.
            self._session.verify = _default_authorities()
        self._cert: tuple[str, str] | None = None
        if tls.client_certificate is not None:
            self._cert = (tls.client_certificate, tls.client_key or tls.client_certificate)

    def send(self, body: bytes) -> bytes:
        if self._gzip:
            compressor = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
            body = compressor.compress(body) + compressor.flush()
        try:
            with self._session.post(
                self._url,
                data=body,
                timeout=urllib3.Timeout(total=self._timeout),  # type: ignore[arg-type]  # as its documentation allows
                allow_redirects=False,
                stream=True,
                # Here and not in the session, where an environment variable would take precedence.
                verify=self._verify,
                cert=self._cert,
            ) as response:
                answer = _body(response)
        except (requests.RequestException, OSError, ValueError) as error:  # ValueError for an invalid host
            raise DeliveryError(f"cannot reach {self.address}: {self._why(error)}") from error
        status = response.status_code
        if 200 <= status < 300:
            if answer and response.headers.get("Content-Type", "").lower().startswith("text/html"):
                raise DeliveryError(
                    f"{self.address} answers with a web page, as no collector does: is this the endpoint, or does a "
                    "proxy ask for a login?"
                )
            return answer
        text = _status_text(status, response, answer)
        if status in _RETRYABLE:
            raise DeliveryError(
                f"{self.address} accepts nothing at present: {text}", _seconds(response.headers.get("Retry-After"))
            )
        raise Refused(
            text,
            too_large=status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            transient=status in _FAILURES or (status >= 500 and status not in _OF_THE_METHOD),
            credentials=status in _OF_CREDENTIALS,
            method=status in _OF_THE_METHOD or 300 <= status < 400,
        )

    def close(self) -> None:
        self._session.close()

    def _why(self, error: Exception) -> str:
        """Why there was no response, in a text that is the same for each attempt."""
        text = str(error)
        if isinstance(error, requests.exceptions.ProxyError):
            return "the proxy in HTTP_PROXY or HTTPS_PROXY cannot be reached or refuses the connection"
        if isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
            return f"no response within {self._timeout:g} s"
        if "Hostname mismatch" in text or "IP address mismatch" in text:
            return "its certificate is for another name"
        if (reason := distrust(text)) is not None:
            return reason
        if "WRONG_VERSION_NUMBER" in text:
            return "it does not speak TLS; should the endpoint begin with http://?"
        if "BadStatusLine" in text:
            return f"it does not speak HTTP; is this its port for gRPC, which is {self._over_grpc}?"
        if "NameResolutionError" in text or "Name or service not known" in text:
            return "its name cannot be resolved"
        if "Connection refused" in text:
            return "connection refused"
        # A server may disconnect in different ways at random: the end of the stream, a reset, or a TLS alert.
        if isinstance(error, requests.exceptions.SSLError) or "Connection aborted" in text:
            return "it closed the connection without a response; " + (
                "does it ask for a client certificate, or is this its port for gRPC?"
                if self._url.startswith("https:")
                else f"does it expect TLS, which is https://, or is this its port for gRPC, which is {self._over_grpc}?"
            )
        return f"no connection ({type(error).__name__})"


def _body(response: requests.Response) -> bytes:
    """The body; empty if it cannot be read, since the status alone tells the result of the request."""
    try:
        body = b""
        while part := response.raw.read(LONGEST_ANSWER - len(body), decode_content=False):
            body += part
        if response.headers.get("Content-Encoding", "") in {"gzip", "deflate"}:
            # Not requested, but decompress it here, where the size of the result is bounded too.
            body = zlib.decompressobj(_ANY_WBITS).decompress(body, LONGEST_ANSWER)
    except (urllib3.exceptions.HTTPError, OSError, zlib.error):
        return b""
    return body


def _status_text(status: int, response: requests.Response, answer: bytes) -> str:
    """The status line and the message of the body: a ``google.rpc.Status`` as OTLP specifies, or text."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = one_line(str(response.reason or ""))
    line = f"HTTP {status} {phrase}".rstrip()
    if _EXPECTS_TLS.search(answer):
        return f"{line}: the server speaks TLS; begin the endpoint with https://"
    if 300 <= status < 400:
        return f"{line} to {one_line(response.headers.get('Location', 'nowhere'))!r}; set the endpoint to that address"
    kind = response.headers.get("Content-Type", "").lower()
    text = ""
    if kind.startswith("application/x-protobuf"):
        try:
            text = next((value.decode("utf-8", "replace") for tag, value in fields(answer) if tag == 0x12), "")
        except (FormatError, AttributeError):
            text = ""
    elif kind.startswith("application/json"):
        try:
            found = json.loads(answer)
            text = _message(found)
        except (ValueError, RecursionError):
            text = ""
    elif kind.startswith("text/html"):
        title = _TITLE.search(answer)
        text = html.unescape(title[1].decode("utf-8", "replace")) if title else ""
    elif kind.startswith("text/plain") or not kind:
        text = answer.decode("utf-8", "replace")
    text = one_line(text)
    # Titles of web pages often only repeat the status.
    return f"{line}: {text}" if text and text.removeprefix("HTTP ") not in line else line


def _message(found: object) -> str:
    """The message of a JSON response, either a ``google.rpc.Status`` or in the form of common gateways."""
    if not isinstance(found, dict):
        return ""
    error = found.get("error")
    return str(found.get("message") or (error.get("message") if isinstance(error, dict) else error) or "")


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After header: a number of seconds, or a date."""
    if retry_after is None:
        return None
    try:
        return bounded_wait(float(retry_after))
    except ValueError:
        pass
    try:
        return bounded_wait(parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
