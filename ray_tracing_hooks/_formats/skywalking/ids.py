"""Trace and span ids of SkyWalking and of OpenTelemetry, converted both ways.

SkyWalking's ids are texts. Those of its agents since 8.0 are 32 hexadecimal digits, or these with two numbers; those of
6.x and 7.x are three 64-bit integers. A text that has no room for an OpenTelemetry id of its own gets a hash as its id,
and the text itself travels beside it. Rules 2 and 3 of :func:`trace_id_of` are those of the OpenTelemetry Collector.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

LONGEST_ID = 150
"""SkyWalking stores no longer ids of traces and segments."""

_MARK = 1 << 52
"""The first part of an id of ours in the form of three integers is this or more. Agents put a 32-bit number there."""

_FIRST, _REST = 44, 42
"""How many of 128 bits are in the first part, and in each of the other two: JavaScript can hold each part."""

_HEX = re.compile(r"[0-9a-fA-F]{32}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OF_AGENT = re.compile(r"([0-9a-fA-F]{32})\.(\d{1,10})\.(\d{1,20})", re.ASCII)
_THREE = re.compile(r"(-?\d{1,19})\.(-?\d{1,19})\.(-?\d{1,19})", re.ASCII)


def trace_id_of(text: str) -> bytes:
    """The 16 bytes for a trace id of SkyWalking; the same for the same text."""
    return _marked(text) or _bytes_of(text) or _hashed(b"sw-trace\0" + _utf8(text), 16)


def span_id_of(segment_id: str, number: int) -> bytes:
    """The 8 bytes for a span of a segment. For a segment of ours, they are the id that the span already has."""
    marked = _marked(segment_id)
    if marked and not number:
        return marked[8:] if any(marked[8:]) else _hashed_span(segment_id, number)
    found = _halves(segment_id, number)
    return found if found and any(found) else _hashed_span(segment_id, number)


def in_trace_state(value: str, trace_id: bytes) -> str:
    """SkyWalking's own id of this trace, in a value of its trace state; empty if the value is not one."""
    text = unquote(value)
    return text if is_id(text) and trace_id_of(text) == trace_id else ""


def is_id(text: str) -> bool:
    """Whether this may be the id of a trace or a segment: ids get into logs, so lines and colors are none."""
    return 0 < len(text) <= LONGEST_ID and text.isprintable()


def trace_text(trace_id: bytes) -> str:
    """The trace id of SkyWalking 8 and newer for one of ours."""
    return trace_id.hex()


def trace_numbers(trace_id: bytes) -> str:
    """The trace id of SkyWalking 6 and 7 for one of ours."""
    return _in_three(int.from_bytes(trace_id, "big"))


def segment_text(trace_id: bytes, span_id: bytes) -> str:
    """The id of a span's segment, for SkyWalking 8 and newer.

    The OpenTelemetry Collector, which reads the segments of other agents, finds the span's own id in it.
    """
    half = trace_id[:8]
    return half.hex() + bytes(a ^ b for a, b in zip(half, span_id, strict=True)).hex()


def segment_numbers(trace_id: bytes, span_id: bytes) -> str:
    """The id of a span's segment, for SkyWalking 6 and 7."""
    return _in_three(int.from_bytes(trace_id[:8] + span_id, "big"))


def three_numbers(text: str) -> tuple[int, int, int] | None:
    """The parts of an id of SkyWalking 6 and 7; None if it is not one."""
    match = _THREE.fullmatch(text)
    if match is None:
        return None
    first, second, third = (int(part) for part in match.groups())
    least, most = -(1 << 63), (1 << 63) - 1
    return (first, second, third) if all(least <= part <= most for part in (first, second, third)) else None


def _in_three(number: int) -> str:
    mask = (1 << _REST) - 1
    return f"{_MARK + (number >> 2 * _REST)}.{number >> _REST & mask}.{number & mask}"


def _marked(text: str) -> bytes:
    """The 16 bytes in an id of ours in the form of three integers; empty if it is none."""
    numbers = three_numbers(text)
    if numbers is None:
        return b""
    first, second, third = numbers
    if not _MARK <= first < _MARK + (1 << _FIRST) or not all(0 <= part < 1 << _REST for part in (second, third)):
        return b""
    found = (first - _MARK << 2 * _REST) + (second << _REST) + third
    return found.to_bytes(16, "big") if found else b""


def _bytes_of(text: str) -> bytes:
    """The 16 bytes of a UUID, or of an agent's id; empty if it is neither, or zero."""
    found = _mixed(text)
    return found if any(found) else b""


def _halves(segment_id: str, number: int) -> bytes:
    found = _mixed(segment_id, number)
    return bytes(a ^ b for a, b in zip(found[:8], found[8:], strict=True))


def _mixed(text: str, span: int = 0) -> bytes:
    """The 16 bytes of a UUID, or of an agent's id with its two numbers, and the number of a span; empty if it is
    neither.
    """
    if _HEX.fullmatch(text) or _UUID.fullmatch(text):
        found, thread, number = bytearray.fromhex(text.replace("-", "")), 0, 0
    elif match := _OF_AGENT.fullmatch(text):
        found, thread, number = bytearray.fromhex(match[1]), int(match[2]), int(match[3])
    else:
        return b""
    if thread >= 1 << 32 or number >= 1 << 64:
        return b""
    _mix(found, 0, 4, span)
    _mix(found, 4, 4, thread)
    _mix(found, 8, 8, number)
    return bytes(found)


def _mix(into: bytearray, begin: int, size: int, number: int) -> None:
    for index, byte in enumerate(number.to_bytes(size, "little"), start=begin):
        into[index] ^= byte


def _hashed_span(segment_id: str, number: int) -> bytes:
    return _hashed(b"sw-span\0%d\0" % number + _utf8(segment_id), 8)


def _hashed(text: bytes, size: int) -> bytes:
    return hashlib.sha256(text).digest()[:size]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
