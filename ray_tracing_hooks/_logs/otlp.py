"""Log records as OTLP log records, which each process appends to its spool.

The messages are those of ``opentelemetry/proto/logs/v1/logs.proto``.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.tags import LogRecordTag
from ray_tracing_hooks._formats.protobuf import pack_fixed32
from ray_tracing_hooks._logs.described import describe, extras, place
from ray_tracing_hooks._logs.records import Look
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

_MOST_SCOPES = 256
"""At most this many loggers get their own scope: every segment defines all scopes, which must stay small."""

_FLAGS = bytes((LogRecordTag.FLAGS,))
_TRACE_ID, _SPAN_ID = bytes((LogRecordTag.TRACE_ID, 16)), bytes((LogRecordTag.SPAN_ID, 8))
"""The tags and lengths of the ids of the current span."""


def otlp(recorder: Recorder, writer: SpoolWriter, resource: bytes) -> Look:
    """Writes each record with the ids of the current span, if any."""
    prefixes: dict[str, bytes] = {}

    def prefix(name: str) -> bytes:
        known = prefixes.get(name)
        if known is None:
            known = U16.pack(writer.scope(resource, encode.scope(name)))
            prefixes[name] = known
        return known

    def write(record: logging.LogRecord) -> None:
        name = str(record.name)
        more: dict[str, Any] = {}
        if len(prefixes) >= _MOST_SCOPES and name not in prefixes:
            name, more = "", {names.OTEL_SCOPE_NAME: name}
        writer.log(prefix(name), _encoded(recorder, record, more))

    return write


def _encoded(recorder: Recorder, record: logging.LogRecord, more: dict[str, Any]) -> bytes:
    described = describe(record)
    given, dropped = extras(record, recorder.limits.other_value_length)
    parts = [
        protobuf.fixed64(LogRecordTag.TIME, described.time_ns),
        _severity(described.severity_number, described.severity_text),
        protobuf.field(LogRecordTag.BODY, encode.any_value(described.body) or b""),
        encode.attributes({**given, **more, **described.attributes}, LogRecordTag.ATTRIBUTES),
        _place(record.pathname, record.funcName, record.lineno),
        _thread(record.thread, record.threadName),
        bytes((LogRecordTag.DROPPED_ATTRIBUTES_COUNT,)) + protobuf.varint(dropped) if dropped else b"",
        protobuf.fixed64(LogRecordTag.OBSERVED_TIME, now_ns()),
    ]
    if (current := recorder.current(get_current())) is not None:
        trace_id, span_id, flags, _, _ = current
        parts += _FLAGS, pack_fixed32(flags), _TRACE_ID, trace_id, _SPAN_ID, span_id
    return b"".join(parts)


# Cached encodings: the same for all records of a level, of a line of code, and of a thread.


@lru_cache(maxsize=64)
def _severity(number: int, text: str) -> bytes:
    encoded = bytes((LogRecordTag.SEVERITY_NUMBER,)) + protobuf.varint(number) if number else b""
    return encoded + protobuf.field(LogRecordTag.SEVERITY_TEXT, protobuf.utf8(text)) if text else encoded


@lru_cache(maxsize=1024)
def _place(path: Any, function: Any, line: Any) -> bytes:
    return encode.attributes(place(path, function, line), LogRecordTag.ATTRIBUTES)


@lru_cache(maxsize=64)
def _thread(ident: int | None, name: str | None) -> bytes:
    attributes = {names.THREAD_ID: ident, names.THREAD_NAME: name}
    known = {key: value for key, value in attributes.items() if value is not None}
    return encode.attributes(known, LogRecordTag.ATTRIBUTES)
