"""Jaeger's Thrift messages: ``jaeger.thrift`` and ``agent.thrift`` of its IDL, written by Apache Thrift.

Needs the package ``thrift``, which is many times faster if it was built with its C extension. Times are in
microseconds. A span id is one signed 64-bit number, a trace id two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from thrift.protocol.TBase import TBase
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

from ray_tracing_hooks._formats import jaeger
from ray_tracing_hooks._formats.jaeger import SAMPLED, Encoder
from ray_tracing_hooks._formats.protobuf import utf8

_id = struct.Struct(">q").unpack
_trace_id = struct.Struct(">qq").unpack


# What follows is what Thrift's compiler would generate from the IDL. Text is given as UTF-8.
def _spec(*fields: tuple[str, int, Any]) -> tuple[Any, ...]:
    """The fields 1, 2, ... of a struct: name, type, and element type."""
    return (None, *((number, type_, name, of, None) for number, (name, type_, of) in enumerate(fields, start=1)))


def _text(name: str) -> tuple[str, int, Any]:
    return name, TType.STRING, "BINARY"


def _numbers(type_: int, *names: str) -> list[tuple[str, int, Any]]:
    return [(name, type_, None) for name in names]


def _list(name: str, of: type[TBase]) -> tuple[str, int, Any]:
    return name, TType.LIST, (TType.STRUCT, [of, of.thrift_spec], False)


class _Tag(TBase):  # type: ignore[misc]  # thrift has no types
    thrift_spec = _spec(
        _text("key"),
        *_numbers(TType.I32, "type"),
        _text("text"),
        *_numbers(TType.DOUBLE, "double"),
        *_numbers(TType.BOOL, "boolean"),
        *_numbers(TType.I64, "long"),
        _text("binary"),
    )
    text: bytes | None = None
    double: float | None = None
    boolean: bool | None = None
    long: int | None = None
    binary: bytes | None = None

    def __init__(self, tag: jaeger.Tag) -> None:
        key, value = tag
        self.key = utf8(key)
        # TagType: STRING, DOUBLE, BOOL, LONG, BINARY.
        if isinstance(value, str):
            self.type, self.text = 0, utf8(value)
        elif value is True or value is False:
            self.type, self.boolean = 2, value
        elif isinstance(value, int):
            self.type, self.long = 3, value
        elif isinstance(value, float):
            self.type, self.double = 1, value
        else:
            self.type, self.binary = 4, value


class _Log(TBase):  # type: ignore[misc]  # as above
    thrift_spec = _spec(*_numbers(TType.I64, "time"), _list("fields", _Tag))

    def __init__(self, log: jaeger.Log) -> None:
        self.time = log.time_ns // 1000
        self.fields = [_Tag(tag) for tag in log.fields]


class _Reference(TBase):  # type: ignore[misc]  # as above
    thrift_spec = _spec(*_numbers(TType.I32, "kind"), *_numbers(TType.I64, "trace_low", "trace_high", "span"))

    def __init__(self, reference: jaeger.Reference) -> None:
        self.kind = reference.kind
        self.trace_high, self.trace_low = _trace_id(reference.trace_id)
        (self.span,) = _id(reference.span_id)


class _Span(TBase):  # type: ignore[misc]  # as above
    thrift_spec = _spec(
        *_numbers(TType.I64, "trace_low", "trace_high", "span", "parent"),
        _text("name"),
        _list("references", _Reference),
        *_numbers(TType.I32, "flags"),
        *_numbers(TType.I64, "start", "duration"),
        _list("tags", _Tag),
        _list("logs", _Log),
    )
    flags = SAMPLED

    def __init__(self, span: jaeger.JaegerSpan) -> None:
        self.trace_high, self.trace_low = _trace_id(span.trace_id)
        (self.span,) = _id(span.span_id)
        (self.parent,) = _id(span.parent_span_id)
        self.name = utf8(span.name)
        self.references = [_Reference(link) for link in span.links] or None
        self.start = span.start_ns // 1000
        self.duration = span.duration_ns // 1000
        self.tags = [_Tag(tag) for tag in span.tags]
        self.logs = [_Log(log) for log in span.logs] or None


class _Process(TBase):  # type: ignore[misc]  # as above
    thrift_spec = _spec(_text("service"), _list("tags", _Tag))

    def __init__(self, process: jaeger.Process) -> None:
        self.service = utf8(process.service)
        self.tags = [_Tag(tag) for tag in process.tags]


_MakeProtocol = Callable[[TMemoryBuffer], Any]


def _encoded(make_protocol: _MakeProtocol, struct_of: Callable[[Any], TBase], value: Any) -> bytes:
    buffer = TMemoryBuffer()
    struct_of(value).write(make_protocol(buffer))
    return bytes(buffer.getvalue())


def _batch(process: bytes, spans: Sequence[bytes]) -> bytes:
    buffer = TMemoryBuffer()
    _write_batch(TBinaryProtocolAccelerated(buffer), process, spans)
    return bytes(buffer.getvalue())


def _emit_batch(process: bytes, spans: Sequence[bytes]) -> bytes:
    buffer = TMemoryBuffer()
    protocol = TCompactProtocolAccelerated(buffer)
    protocol.writeMessageBegin("emitBatch", TMessageType.ONEWAY, 0)
    protocol.writeStructBegin("emitBatch_args")
    protocol.writeFieldBegin("batch", TType.STRUCT, 1)
    _write_batch(protocol, process, spans)
    protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    return bytes(buffer.getvalue())


def _write_batch(protocol: Any, process: bytes, spans: Sequence[bytes]) -> None:
    protocol.writeStructBegin("Batch")
    protocol.writeFieldBegin("process", TType.STRUCT, 1)
    protocol.trans.write(process)
    protocol.writeFieldEnd()
    protocol.writeFieldBegin("spans", TType.LIST, 2)
    protocol.writeListBegin(TType.STRUCT, len(spans))
    protocol.trans.write(b"".join(spans))
    protocol.writeListEnd()
    protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def _encoder(make_protocol: _MakeProtocol, request: Callable[[bytes, Sequence[bytes]], bytes]) -> Encoder:
    return Encoder(partial(_encoded, make_protocol, _Process), partial(_encoded, make_protocol, _Span), request)


BINARY = _encoder(TBinaryProtocolAccelerated, _batch)
"""A ``Batch`` in the binary protocol, which Jaeger's collector accepts over HTTP."""

COMPACT = _encoder(TCompactProtocolAccelerated, _emit_batch)
"""The call ``Agent.emitBatch`` in the compact protocol, which Jaeger's agent accepts over UDP."""
