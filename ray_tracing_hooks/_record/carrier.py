"""The trace context of a call, as one ``bytes`` argument: Ray's cheapest kind of argument.

Layout, integers little endian::

    u8   form             CALL or CREATION, plus HEADERS if the last part is present, WITHOUT_SPAN if the submission
                          was left out, so that the execution makes no span either, PARENT and RUNS if these parts
                          are present
    u8   trace flags      of the W3C trace context: bit 0 is "sampled"
    16   trace id
    8    span id          of the submission's span, or of the span around it where the submission itself has none
    u64  submit time      nanoseconds since the epoch
    24   parent task id   the task that made the call; zeros if unknown
    8    parent span id   of the span around the call, zeros for none: of a call in a trace that is not sampled, whose
                          worker records the submission together with the execution, if that failed or was slow
    ...  runs             what only the caller of a call knows: two texts, each after its u16 length, the name of what
                          it runs, or nothing, and further encoded attributes of its spans
    ...  headers          what the global propagators injected (tracestate, baggage, ...), see :func:`pack_headers`

A call that belongs to no trace carries :data:`NO_TRACE`, the form alone, where its worker would otherwise take it for a
call by the driver of its job.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CALL = 0x40
CREATION = 0x41
HEADERS = 0x02
WITHOUT_SPAN = 0x04
RUNS = 0x10
PARENT = 0x20
NO_TRACE = bytes((CALL,))

_LAYOUT = struct.Struct("<BB16s8sQ24s")
_LENGTH = struct.Struct("<H")
MOST_BYTES = 0xFFFF
"""The most bytes that one part of ``runs`` may have."""

_NO_TASK, _NO_SPAN = bytes(24), bytes(8)
_NOT_OPTIONAL = ~(HEADERS | WITHOUT_SPAN | RUNS | PARENT | 0x01)


class Carried(NamedTuple):
    """The trace context of a call as it arrives in the worker."""

    without_span: bool
    """Whether the execution makes no span even if it is sampled; spans inside it are children of the caller's span."""
    flags: int
    trace_id: bytes
    span_id: bytes
    submit_time_ns: int
    parent_task_id: bytes
    """24 bytes, or empty if the caller is unknown."""
    headers: dict[str, str]
    runs: str = ""
    """What the call runs, if its caller has said so."""
    attributes: bytes = b""
    """Further encoded attributes that the caller has said together with it."""
    parent_id: bytes | None = None
    """The id of the span around the call, empty for none, if the worker is to record the submission; else None."""


def encode(
    trace_id: bytes,
    span_id: bytes,
    flags: int,
    submit_time_ns: int,
    parent_task_id: bytes,
    headers: dict[str, str] | None,
    *,
    creation: bool = False,
    without_span: bool = False,
    runs: tuple[str, bytes] | None = None,
    parent_id: bytes | None = None,
) -> bytes:
    """The argument that carries this context. ``runs`` has two parts of :data:`MOST_BYTES` at most."""
    form = CREATION if creation else CALL
    if without_span:
        form |= WITHOUT_SPAN
    rest = b""
    if parent_id is not None:
        form |= PARENT
        rest = parent_id or _NO_SPAN
    if runs is not None:
        form |= RUNS
        rest += b"".join(_LENGTH.pack(len(part)) + part for part in (runs[0].encode("utf-8", "replace"), runs[1]))
    if headers:
        form |= HEADERS
        rest += pack_headers(headers)
    return _LAYOUT.pack(form, flags, trace_id, span_id, submit_time_ns, parent_task_id or _NO_TASK) + rest


def decode(argument: bytes) -> Carried:
    """The context in an argument made by :func:`encode`.

    Raises:
        ValueError: The argument was not made by it.
    """
    try:
        form, flags, trace_id, span_id, submit_time_ns, parent_task_id = _LAYOUT.unpack_from(argument)
    except struct.error as error:
        raise ValueError(str(error)) from None
    if form & _NOT_OPTIONAL != CALL:
        raise ValueError(f"unknown form {form:#x}")
    if parent_task_id == _NO_TASK:
        parent_task_id = b""
    ids = bool(form & WITHOUT_SPAN), flags, trace_id, span_id, submit_time_ns, parent_task_id
    if form & (RUNS | PARENT):
        # So that these parts take no time of calls without them.
        return _with_more(argument, form, ids)
    headers = unpack_headers(argument[_LAYOUT.size :]) if form & HEADERS else {}
    return Carried(*ids, headers)


def _with_more(argument: bytes, form: int, ids: tuple[bool, int, bytes, bytes, int, bytes]) -> Carried:
    end, parent_id, name, attributes = _LAYOUT.size, None, b"", b""
    if form & PARENT:
        parent_id, end = _part(argument, end, len(_NO_SPAN))
        if parent_id == _NO_SPAN:
            parent_id = b""
    if form & RUNS:
        name, end = _text(argument, end)
        attributes, end = _text(argument, end)
    headers = unpack_headers(argument[end:]) if form & HEADERS else {}
    return Carried(*ids, headers, name.decode("utf-8", "replace"), attributes, parent_id)


def _text(argument: bytes, start: int) -> tuple[bytes, int]:
    """The text whose length is at ``start``, and where it ends."""
    try:
        (length,) = _LENGTH.unpack_from(argument, start)
    except struct.error as error:
        raise ValueError(str(error)) from None
    return _part(argument, start + _LENGTH.size, length)


def _part(argument: bytes, start: int, length: int) -> tuple[bytes, int]:
    """So many bytes from ``start`` on, and where they end."""
    end = start + length
    if end > len(argument):
        raise ValueError("it is cut off")
    return argument[start:end], end


def pack_headers(headers: dict[str, str]) -> bytes:
    """Names and values, each ended by a zero byte, which no header can contain."""
    return "".join(f"{name}\0{value}\0" for name, value in headers.items()).encode("utf-8", "replace")


def unpack_headers(packed: bytes) -> dict[str, str]:
    """The reverse of :func:`pack_headers`."""
    parts = packed.decode("utf-8", "replace").split("\0")
    return dict(zip(parts[0:-1:2], parts[1:-1:2], strict=False))
