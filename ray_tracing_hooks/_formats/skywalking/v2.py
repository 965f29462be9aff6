"""SkyWalking's protocol 2, of 6.x and 7.x: ``language-agent-v2/trace.proto`` and ``register/Register.proto`` of 6.6.0.

Services and instances have numbers there, which the back end gives out when they register.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray_tracing_hooks._formats.protobuf import field, fields, varint
from ray_tracing_hooks._formats.skywalking.headers import NO_ENDPOINT
from ray_tracing_hooks._formats.skywalking.ids import three_numbers
from ray_tracing_hooks._formats.skywalking.segments import Pair, Segment, SegmentReference, SegmentSpan
from ray_tracing_hooks._formats.skywalking.v3 import encoded, log, number, pair, text

_NONE = -1


def upstream_segment(found: Segment, service_id: int, instance_id: int) -> bytes:
    """An ``UpstreamSegment``, whose second part is an encoded ``SegmentObject``."""
    body = b"".join(
        (
            field(0x0A, _unique_id(found.segment_id)),
            *(field(0x12, _span(span)) for span in found.spans),
            number(0x18, service_id),
            number(0x20, instance_id),
        )
    )
    return field(0x0A, _unique_id(found.trace_id)) + field(0x12, body)


def _unique_id(text: str) -> bytes:
    parts = three_numbers(text) or (0, 0, 0)
    return field(0x0A, b"".join([varint(part & 0xFFFF_FFFF_FFFF_FFFF) for part in parts]))


def _span(span: SegmentSpan) -> bytes:
    return b"".join(
        (
            number(0x08, span.number),
            number(0x10, span.parent),
            number(0x18, span.start_ms),
            number(0x20, span.end_ms),
            *(field(0x2A, _reference(reference)) for reference in span.references),
            text(0x3A, span.name),
            text(0x4A, span.peer),
            number(0x50, span.type),
            number(0x58, span.layer),
            number(0x60, span.component),
            number(0x70, span.is_error),
            *(field(0x7A, encoded(pair(*tag))) for tag in span.tags),
            *(b"\x82\x01" + varint(len(each)) + each for each in map(encoded, map(log, span.logs))),
        )
    )


def _reference(reference: SegmentReference) -> bytes:
    to = reference.to
    return b"".join(
        (
            number(0x08, reference.type),
            field(0x12, _unique_id(to.segment_id)),
            number(0x18, to.span),
            number(0x20, to.instance_id),
            _name(0x2A, 0x30, to.address),
            number(0x38, to.entry_instance_id),
            _name(0x42, 0x48, to.entry_endpoint),
            _name(0x52, 0x58, to.parent_endpoint),
        )
    )


def _name(literal: int, id_: int, given: str) -> bytes:
    """A name as its header has it: ``#`` and a literal, or an id; nothing for an empty one."""
    if given.startswith("#"):
        return text(literal, given[1:])
    return number(id_, _NONE if given == NO_ENDPOINT else int(given)) if given else b""


# --- registration -----------------------------------------------------------------------------------------------------


def services(name: str) -> bytes:
    """A ``Services`` with one service."""
    return field(0x0A, text(0x0A, name))


def instances(service_id: int, uuid: str, time_ms: int, properties: Sequence[Pair]) -> bytes:
    """A ``ServiceInstances`` with one instance."""
    more = b"".join([field(0x2A, encoded(pair(*each))) for each in properties])
    return field(0x0A, number(0x08, service_id) + text(0x12, uuid) + number(0x18, time_ms) + more)


def ping(instance_id: int, time_ms: int, uuid: str) -> bytes:
    """A ``ServiceInstancePingPkg``."""
    return number(0x08, instance_id) + number(0x10, time_ms) + text(0x1A, uuid)


def given_id(answer: bytes, key: str) -> int:
    """The id of ``key`` in the answer to a registration; 0 as long as there is none. Raises FormatError."""
    for tag, mapping in fields(answer):
        if tag == 0x0A:
            found: dict[int, Any] = dict(fields(mapping))
            if found.get(0x0A, b"").decode("utf-8", "replace") == key:
                return int(found.get(0x10, 0)) & 0x7FFF_FFFF
    return 0


def commands(answer: bytes) -> list[str]:
    """The names of the commands in a ``Commands``. Raises FormatError."""
    return [
        name.decode("utf-8", "replace")
        for tag, command in fields(answer)
        if tag == 0x0A
        for inner, name in fields(command)
        if inner == 0x0A
    ]


RESET = "ServiceMetadataReset"
"""The command for an instance that the back end does not know: it has to register again."""
