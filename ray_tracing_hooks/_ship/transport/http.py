"""Requests by HTTP. Proxies are those of the environment, as ``requests`` reads it."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import requests
from requests.adapters import HTTPAdapter

from ray_tracing_hooks import __version__
from ray_tracing_hooks._formats.wire import FormatError, fields
from ray_tracing_hooks._ship.sinks import DeliveryError
from ray_tracing_hooks._ship.transport import Refused, Tls

_RETRYABLE = frozenset({429, 502, 503, 504})
"""Of the OTLP specification, https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes."""

_GZIP = 31
"""The ``wbits`` of zlib that make it write gzip."""

_OF_THE_REQUEST = frozenset({400, 422})
_MOST_TEXT = 200
_LONGEST_ANSWER = 1 << 20


class _NoNetrc(requests.auth.AuthBase):
    """Says that the headers are as they shall be: otherwise ``requests`` adds credentials of the user's netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class HttpTransport:
    """Posts bodies to one URL. ``timeout`` is in seconds, for connecting and for each wait for an answer."""

    def __init__(
        self,
        url: str,
        *,
        address: str,
        content_type: str,
        headers: Mapping[str, str],
        timeout: float,
        gzip: bool,
        tls: Tls,
    ) -> None:
        self.address = address
        self._url = url
        self._timeout = timeout
        self._gzip = gzip
        self._session = requests.Session()
        # Retrying is the caller's business.
        adapter = HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        self._session.auth = _NoNetrc()
        self._session.headers.update(
            {"User-Agent": f"ray-tracing-hooks/{__version__}", "Content-Type": content_type, **headers}
        )
        if gzip:
            self._session.headers["Content-Encoding"] = "gzip"
        self._verify: str | bool = tls.certificate or True
        self._cert = (tls.client_certificate, tls.client_key) if tls.client_key else tls.client_certificate

    def send(self, body: bytes) -> bytes:
        if self._gzip:
            compressor = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
            body = compressor.compress(body) + compressor.flush()
        try:
            with self._session.post(
                self._url,
                data=body,
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
                # Here and not in the session, where a variable of the environment would win.
                verify=self._verify,
                cert=self._cert,  # type: ignore[arg-type]  # None in the pair is not meant, and not made
            ) as response:
                answer = response.raw.read(_LONGEST_ANSWER, decode_content=True)
        except (requests.RequestException, OSError) as error:
            raise DeliveryError(f"cannot reach {self.address}: {self._why(error)}") from error
        except ValueError as error:  # of urllib3 for a URL or a header
            raise Refused(str(error)) from error
        status = response.status_code
        if 200 <= status < 300:
            return bytes(answer)
        said = _said(status, response, answer)
        if status in _RETRYABLE:
            raise DeliveryError(
                f"{self.address} does not take spans at present: {said}", _seconds(response.headers.get("Retry-After"))
            )
        raise Refused(said, too_large=status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE, request=status in _OF_THE_REQUEST)

    def close(self) -> None:
        self._session.close()

    def _why(self, error: Exception) -> str:
        """What went wrong, in words that stay the same from one attempt to the next."""
        text = str(error)
        if isinstance(error, requests.exceptions.ProxyError):
            return "the proxy that HTTP_PROXY or HTTPS_PROXY names cannot be reached or does not let us through"
        if isinstance(error, requests.exceptions.SSLError):
            if "CERTIFICATE_VERIFY_FAILED" in text:
                return (
                    "its certificate is not trusted, or is not for this name; name the authority that signed it in the "
                    "CERTIFICATE variable of this exporter"
                )
            if "WRONG_VERSION_NUMBER" in text or "wrong version number" in text:
                return "it does not speak TLS; should the endpoint begin with http://?"
            return f"TLS failed: {_ssl_reason(text)}"
        if isinstance(error, requests.exceptions.ConnectTimeout):
            return f"no connection within {self._timeout:g} s"
        if isinstance(error, requests.exceptions.Timeout):
            return f"no answer within {self._timeout:g} s"
        if "NameResolutionError" in text or "Name or service not known" in text or "getaddrinfo" in text:
            return "its name cannot be resolved"
        if "Connection refused" in text:
            return "connection refused"
        if "alert certificate required" in text or "ALERT" in text:
            return "it asks for a client certificate"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        if "Connection aborted" in text or "Connection reset" in text or "RemoteDisconnected" in text:
            return "it closed the connection without an answer"
        return type(error).__name__


def _said(status: int, response: requests.Response, answer: bytes) -> str:
    """The status line and what the body tells: a ``google.rpc.Status`` as OTLP wants it, or text."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = str(response.reason or "")
    said = f"HTTP {status} {phrase}".rstrip()
    if 300 <= status < 400:
        return f"{said} to {response.headers.get('Location', 'nowhere')!r}; name that address in the endpoint"
    kind = response.headers.get("Content-Type", "")
    text = ""
    if kind.startswith("application/x-protobuf"):
        try:
            text = next((value.decode("utf-8", "replace") for tag, value in fields(answer) if tag == 0x12), "")
        except (FormatError, AttributeError):
            text = ""
    elif kind.startswith("application/json"):
        try:
            found = json.loads(answer)
            text = str(found.get("message") or found.get("error") or "") if isinstance(found, dict) else ""
        except ValueError:
            text = ""
    elif kind.startswith("text/plain"):
        text = answer.decode("utf-8", "replace")
    text = " ".join(text.split())[:_MOST_TEXT]
    return f"{said}: {text}" if text else said


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After header: a number of seconds, or a date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _ssl_reason(text: str) -> str:
    # "... SSLError(1, '[SSL: REASON] words (_ssl.c:1006)') ..."
    begin = text.find("[SSL: ")
    return text[begin + 6 :].partition("]")[0].lower().replace("_", " ") if begin >= 0 else "no connection"
