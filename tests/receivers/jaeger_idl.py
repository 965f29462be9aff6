"""Jaeger's own interface definitions, to read what we write with them. None of their text is kept here.

The ``.thrift`` files are those of jaegertracing/jaeger-idl, as the package ``aiojaeger`` carries them. They are read by
thriftpy2, which shares no code with Apache Thrift. The protobuf messages come from the descriptors in
``opentelemetry-exporter-jaeger-proto-grpc``, whose code is too old to run with the protobuf of today. Both packages are
in the folder ``definitions`` of the tests' environment, without what they depend on.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from protobuf_json import generated

DEFINITIONS = Path(sys.prefix) / "definitions"

_THRIFT = "aiojaeger/jaeger-idl/thrift"
_PROTO = "opentelemetry/exporter/jaeger/proto/grpc/gen"


@lru_cache(maxsize=1)
def thrift() -> tuple[Any, Any]:
    """The modules of ``jaeger.thrift`` and ``agent.thrift``."""
    import thriftpy2

    definitions = DEFINITIONS / _THRIFT
    return (
        thriftpy2.load(str(definitions / "jaeger.thrift"), module_name="jaeger_thrift"),
        thriftpy2.load(str(definitions / "agent.thrift"), module_name="agent_thrift"),
    )


def decode_batch(body: bytes) -> Any:
    """The ``Batch`` in the body of a request by HTTP."""
    from thriftpy2.protocol import TBinaryProtocolFactory
    from thriftpy2.utils import deserialize

    return deserialize(thrift()[0].Batch(), body, TBinaryProtocolFactory())


def decode_datagram(datagram: bytes) -> Any:
    """The ``Batch`` of a datagram that calls ``Agent.emitBatch``."""
    from thriftpy2.protocol import TCompactProtocolFactory
    from thriftpy2.thrift import TMessageType
    from thriftpy2.transport import TMemoryBuffer

    protocol = TCompactProtocolFactory().get_protocol(TMemoryBuffer(datagram))
    name, kind, _ = protocol.read_message_begin()
    assert (name, kind) == ("emitBatch", TMessageType.ONEWAY)
    arguments = thrift()[1].Agent.emitBatch_args()
    protocol.read_struct(arguments)
    protocol.read_message_end()
    return arguments.batch


@lru_cache(maxsize=1)
def post_spans_request() -> Any:
    """The class of ``jaeger.api_v2.PostSpansRequest``."""
    from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2

    needed = (any_pb2, descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2)
    return generated(DEFINITIONS / _PROTO, *needed)("jaeger.api_v2.PostSpansRequest")
