"""Jaeger's Thrift messages, ``jaeger.thrift`` and ``agent.thrift`` of its IDL, written with Apache Thrift.

Needs the package ``thrift``. Times are in microseconds, ids signed 64-bit numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from ray_tracing_hooks._formats.jaeger import SAMPLED, JaegerSpan, Process, Tag

_INT64 = (-(1 << 63), (1 << 63) - 1)


def batch(process: Process, spans: Sequence[JaegerSpan]) -> bytes:
    """A ``Batch`` in the binary protocol, as Jaeger's collector takes it by HTTP."""
    buffer = TMemoryBuffer()
    _write_batch(TBinaryProtocol(buffer), process, spans)
    return bytes(buffer.getvalue())


def emit_batch(process: Process, spans: Sequence[JaegerSpan]) -> bytes:
    """The call ``Agent.emitBatch`` in the compact protocol, as Jaeger's agent takes it by UDP."""
    buffer = TMemoryBuffer()
    protocol = TCompactProtocol(buffer)
    protocol.writeMessageBegin("emitBatch", TMessageType.ONEWAY, 0)
    protocol.writeStructBegin("emitBatch_args")
    _field(protocol, 1, TType.STRUCT, lambda: _write_batch(protocol, process, spans))
    _end(protocol)
    protocol.writeMessageEnd()
    return bytes(buffer.getvalue())


def _write_batch(protocol: Any, process: Process, spans: Sequence[JaegerSpan]) -> None:
    protocol.writeStructBegin("Batch")
    _field(protocol, 1, TType.STRUCT, lambda: _write_process(protocol, process))
    _list(protocol, 2, spans, _write_span)
    _end(protocol)


def _write_process(protocol: Any, process: Process) -> None:
    protocol.writeStructBegin("Process")
    _field(protocol, 1, TType.STRING, lambda: protocol.writeBinary(_utf8(process.service)))
    _list(protocol, 2, process.tags, _write_tag)
    _end(protocol)


def _write_span(protocol: Any, span: JaegerSpan) -> None:
    protocol.writeStructBegin("Span")
    for number, id_ in enumerate((span.trace_id[8:], span.trace_id[:8], span.span_id, span.parent_span_id), start=1):
        _i64(protocol, number, _number(id_))
    _field(protocol, 5, TType.STRING, lambda: protocol.writeBinary(_utf8(span.name)))
    if span.links:
        _list(protocol, 6, span.links, _write_reference)
    _field(protocol, 7, TType.I32, lambda: protocol.writeI32(SAMPLED))
    _i64(protocol, 8, span.start_ns // 1000)
    _i64(protocol, 9, span.duration_ns // 1000)
    _list(protocol, 10, span.tags, _write_tag)
    if span.logs:
        _list(protocol, 11, span.logs, _write_log)
    _end(protocol)


def _write_reference(protocol: Any, reference: Any) -> None:
    protocol.writeStructBegin("SpanRef")
    _field(protocol, 1, TType.I32, lambda: protocol.writeI32(reference.kind))
    for number, id_ in enumerate((reference.trace_id[8:], reference.trace_id[:8], reference.span_id), start=2):
        _i64(protocol, number, _number(id_))
    _end(protocol)


def _write_log(protocol: Any, log: Any) -> None:
    protocol.writeStructBegin("Log")
    _i64(protocol, 1, log.time_ns // 1000)
    _list(protocol, 2, log.fields, _write_tag)
    _end(protocol)


def _write_tag(protocol: Any, tag: Tag) -> None:
    key, value = tag
    # TagType: STRING, DOUBLE, BOOL, LONG, BINARY; each has a field of its own, from 3 on.
    if isinstance(value, bool):
        kind, write, type_ = 2, protocol.writeBool, TType.BOOL
    elif isinstance(value, int) and _INT64[0] <= value <= _INT64[1]:
        kind, write, type_ = 3, protocol.writeI64, TType.I64
    elif isinstance(value, float):
        kind, write, type_ = 1, protocol.writeDouble, TType.DOUBLE
    elif isinstance(value, bytes):
        kind, write, type_ = 4, protocol.writeBinary, TType.STRING
    else:
        kind, write, type_, value = 0, protocol.writeBinary, TType.STRING, _utf8(str(value))
    protocol.writeStructBegin("Tag")
    _field(protocol, 1, TType.STRING, lambda: protocol.writeBinary(_utf8(key)))
    _field(protocol, 2, TType.I32, lambda: protocol.writeI32(kind))
    _field(protocol, 3 + kind, type_, lambda: write(value))
    _end(protocol)


def _field(protocol: Any, number: int, type_: int, write: Callable[[], None]) -> None:
    protocol.writeFieldBegin("", type_, number)
    write()
    protocol.writeFieldEnd()


def _i64(protocol: Any, number: int, value: int) -> None:
    protocol.writeFieldBegin("", TType.I64, number)
    protocol.writeI64(value)
    protocol.writeFieldEnd()


def _list(protocol: Any, number: int, items: Sequence[Any], write: Callable[[Any, Any], None]) -> None:
    protocol.writeFieldBegin("", TType.LIST, number)
    protocol.writeListBegin(TType.STRUCT, len(items))
    for item in items:
        write(protocol, item)
    protocol.writeListEnd()
    protocol.writeFieldEnd()


def _end(protocol: Any) -> None:
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _number(id_: bytes) -> int:
    return int.from_bytes(id_, "big", signed=True)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
