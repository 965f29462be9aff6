"""Asks test spans back from a back end, through the query API of Jaeger or Tempo.

Both answer ``GET /api/traces/<trace id>``, with the spans somewhere in JSON: Jaeger's own, or OTLP with ids in
hexadecimal or base64.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator, Mapping
from typing import Any

import requests

from ray_tracing_hooks._ops.facts import Asked

_KEYS = frozenset({"spanID", "spanId", "span_id"})
_PAUSE = 0.5
_REQUEST = 5.0
_NOT_YET = frozenset({404, 204})


def ask_back(url: str, trace_id: str, spans: Mapping[str, str], timeout: float) -> Asked:
    """Wait until the back end finds all spans of a trace, for at most ``timeout`` seconds.

    ``spans`` are the names of the places that sent one, by the id of the span.
    """
    began = time.monotonic()
    left = dict(spans)
    while True:
        error = None
        try:
            answer = requests.get(
                f"{url.rstrip('/')}/api/traces/{trace_id}",
                timeout=_REQUEST,
                headers={"Accept": "application/json"},
            )
            if answer.ok and answer.status_code not in _NOT_YET:
                found = set(_ids(answer.json()))
                left = {span: place for span, place in left.items() if span not in found}
            elif answer.status_code not in _NOT_YET:
                error = f"HTTP {answer.status_code} {answer.reason}"
        except requests.JSONDecodeError:
            error = "its answer is no JSON"
        except requests.RequestException as failure:
            error = _why(failure)
        seconds = time.monotonic() - began
        if not left or seconds > timeout:
            return Asked(url, error, tuple(dict.fromkeys(left.values())), seconds)
        time.sleep(_PAUSE)


def _why(failure: requests.RequestException) -> str:
    text = str(failure)
    if "Name or service not known" in text or "NameResolutionError" in text:
        return "its name cannot be resolved"
    if "Connection refused" in text:
        return "connection refused"
    return type(failure).__name__


def _ids(found: Any) -> Iterator[str]:
    """The ids of all spans in an answer, in hexadecimal."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key in _KEYS and isinstance(value, str):
                yield _hexadecimal(value)
            else:
                yield from _ids(value)
    elif isinstance(found, list):
        for each in found:
            yield from _ids(each)


def _hexadecimal(span_id: str) -> str:
    # Jaeger leaves out zeros at the beginning; eight bytes in base64 have twelve characters.
    if len(span_id) == 12 and span_id.endswith("="):
        try:
            return base64.b64decode(span_id, validate=True).hex()
        except binascii.Error:
            pass
    return span_id.lower().rjust(16, "0")
