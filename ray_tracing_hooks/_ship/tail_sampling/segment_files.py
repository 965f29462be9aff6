"""Reads spans from a whole segment, and builds a whole segment."""

from __future__ import annotations

import contextlib

from ray_tracing_hooks._formats.encoded_span.encode import TRACE_ID
from ray_tracing_hooks._ship.open_spans import Scope
from ray_tracing_hooks._spool.layout import MAGIC, RESOURCE, SCOPE, SPAN, TWO_U16, U16, in_payload
from ray_tracing_hooks._spool.reader import SegmentReader
from ray_tracing_hooks._spool.writer import frame

_TRACE_ID = in_payload(TRACE_ID)


def spans_of(path: str, end: int, traces: set[bytes]) -> list[tuple[Scope, bytes]]:
    """The spans of these traces in a segment before this offset. Empty if the segment is gone."""
    resources: dict[int, bytes] = {}
    scopes: dict[int, Scope] = {}
    found = []
    with contextlib.suppress(FileNotFoundError):
        for kind, payload, offset in SegmentReader(path).read(final=True):
            if offset >= end:
                break
            if kind == SPAN and payload[_TRACE_ID] in traces:
                if (scope := scopes.get(payload[0] | payload[1] << 8)) is not None:
                    found.append((scope, payload[2:]))
            elif kind == RESOURCE and len(payload) >= 2:
                resources[U16.unpack_from(payload)[0]] = payload[2:]
            elif kind == SCOPE and len(payload) >= 4:
                number, resource = TWO_U16.unpack_from(payload)
                scopes[number] = Scope(resources.get(resource, b""), payload[4:])
    return found


def encoded(portion: dict[Scope, list[bytes]]) -> bytes:
    """An encoded segment with these spans."""
    out = [MAGIC]
    resources: dict[bytes, int] = {}
    scopes: dict[tuple[int, bytes], int] = {}
    for scope, spans in portion.items():
        if scope.resource not in resources:
            resources[scope.resource] = len(resources)
            out.append(frame(RESOURCE, U16.pack(resources[scope.resource]) + scope.resource))
        key = resources[scope.resource], scope.scope
        if key not in scopes:
            scopes[key] = len(scopes)
            out.append(frame(SCOPE, TWO_U16.pack(scopes[key], key[0]) + scope.scope))
        prefix = U16.pack(scopes[key])
        out += [frame(SPAN, prefix + span) for span in spans]
    return b"".join(out)
