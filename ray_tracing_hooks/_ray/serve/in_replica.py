"""The context of a request in a replica, and the end of its span, however the request arrived."""

from __future__ import annotations

import asyncio
from binascii import hexlify as _hex
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.serve.server import only_standard_headers
from ray_tracing_hooks._ray.serve.spans import of_status
from ray_tracing_hooks._record.current import REQUEST, SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import is_a
from ray_tracing_hooks._safety.guard import failed


def with_context(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a request, with the current span as their context."""
    span = get_current().get(SPAN_KEY)
    if type(span) is RecordedSpan and only_standard_headers():
        trace_id, span_id, flags, _, _ = span.as_parent()
        traceparent = b"00-%b-%b-%02x" % (_hex(trace_id), _hex(span_id), flags)
        return [*[pair for pair in headers if pair[0] != b"traceparent"], (b"traceparent", traceparent)]
    injected: dict[str, str] = {}
    propagate.inject(injected)
    injected.pop("baggage", None)  # unchanged
    added = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in injected.items()}
    if any(map(_is_of_b3, added)):
        # The other form of B3 would take precedence over this one.
        headers = [pair for pair in headers if not _is_of_b3(pair[0])]
    return [*[pair for pair in headers if pair[0] not in added], *added.items()]


def _is_of_b3(name: bytes) -> bool:
    return name == b"b3" or name.startswith(b"x-b3-")


class InReplica(AbstractContextManager[Any]):
    """Wraps Serve's context manager of a request, and attaches the request's context inside of it."""

    def __init__(self, inner: AbstractContextManager[Any], context: Context, span: RecordedSpan | None) -> None:
        self._inner, self._context, self._span = inner, context, span
        self._token: Any = None
        self._status: Any = None

    def __enter__(self) -> Any:
        self._token = attach(self._context)
        REQUEST.set(self._span)
        try:
            callback = self._inner.__enter__()
        except BaseException as error:
            self._end(error)
            raise
        if not callable(callback):
            return callback

        def status_code_callback(status: Any) -> Any:
            """Serve's callback for the status of a response, which also records the status here."""
            self._status = status
            return callback(status)

        return status_code_callback

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, traceback)
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        detach(self._token)
        span = self._span
        if span is None:
            return
        try:
            self._finish(span, error)
        except Exception as fault:  # noqa: BLE001  a fault here must not reach the user's request
            failed("ending the span of a request", fault)

    def _finish(self, span: RecordedSpan, error: BaseException | None) -> None:
        status = 0
        if self._status is not None:
            status, encoded = _outcome(str(self._status))
            span.add_encoded(encoded)
        if is_a(error, asyncio.CancelledError):
            # Who made the request has left or waits no more, as the span of that says. This deployment has not failed.
            span.set_attribute(names.ERROR_TYPE, names.TASK_CANCELLED)
            span.record_exception(error, escaped=True)
        elif error is not None and not is_a(error, GeneratorExit):
            fail(span, of_user(error))
            return
        if 500 <= status < 600:
            span.set_status(trace.StatusCode.ERROR)
            span.set_attribute(names.ERROR_TYPE, str(status))
        span.end()


@lru_cache(maxsize=1000)
def _outcome(text: str) -> tuple[int, bytes]:
    """The HTTP status that Serve reports, as a number and encoded; 0 and empty if it is not a number."""
    status = int(text) if text.isascii() and text.isdigit() else 0
    return status, of_status(status) if status else b""


def of_user(error: BaseException) -> BaseException:
    """The error of the user's code, without Serve's wrapper for errors with a gRPC code."""
    original = getattr(error, "original_exception", None) if type(error).__name__ == "gRPCStatusError" else None
    return original if is_a(original, BaseException) else error
