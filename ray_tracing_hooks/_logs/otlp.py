"""Log records as OTLP's, written to the spool by the process that makes them, one append each.

The messages are those of ``opentelemetry/proto/logs/v1/logs.proto``.
"""

from __future__ import annotations

import logging
import struct
import time
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._logs.described import describe, extras
from ray_tracing_hooks._logs.records import Look, current_ids
from ray_tracing_hooks._record import wire
from ray_tracing_hooks._record.recorder import Recorder
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter

_MOST_SCOPES = 256
"""So many loggers are scopes of their own: what all segments define must stay small, whatever loggers are called."""

_pack_fixed32 = struct.Struct("<I").pack


def otlp(recorder: Recorder, writer: SpoolWriter, resource: bytes) -> Look:
    """Writes each record, with the ids of the current span of ``recorder``'s process if there is one."""
    prefixes: dict[str, bytes] = {}

    def prefix(name: str) -> bytes:
        known = prefixes.get(name)
        if known is None:
            known = U16.pack(writer.scope(resource, wire.scope(name)))
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
    said = describe(record)
    given, dropped = extras(record, recorder.limits.other_value_length)
    attributes = {
        **given,
        **said.attributes,
        names.THREAD_ID: record.thread,
        names.THREAD_NAME: record.threadName,
        **more,
    }
    parts = [
        wire.fixed64(0x09, said.time_ns),
        b"\x10" + wire.varint(said.severity_number) if said.severity_number else b"",
        wire.field(0x1A, wire.utf8(said.severity_text)) if said.severity_text else b"",
        wire.field(0x2A, wire.any_value(said.body) or b""),
        wire.attributes({key: value for key, value in attributes.items() if value is not None}, 0x32),
        b"\x38" + wire.varint(dropped) if dropped else b"",
        wire.fixed64(0x59, time.time_ns()),
    ]
    if (ids := current_ids(recorder)) is not None:
        trace_id, span_id, flags = ids
        parts.append(b"\x45" + _pack_fixed32(flags) + b"\x4a\x10" + trace_id + b"\x52\x08" + span_id)
    return b"".join(parts)
