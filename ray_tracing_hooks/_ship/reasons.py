"""Why a trace that is not sampled is kept: by one span of it that has ended."""

from __future__ import annotations

from ray_tracing_hooks import names
from ray_tracing_hooks._formats import wire
from ray_tracing_hooks._formats.wire import FormatError, fields
from ray_tracing_hooks._spool.layout import SPAN_ID

ERROR, SLOW = "error", "slow"

_PARENT, _NAME, _KIND, _START, _END, _STATUS = 0x22, 0x2A, 0x30, 0x39, 0x41, 0x7A
_CODE = 0x18
"""Tags of a span, and of its status."""

_CONSUMER, _FAILED = 5, 2
_CONSUMER_SOMEWHERE, _FAILED_SOMEWHERE = bytes((_KIND, _CONSUMER)), bytes((_CODE, _FAILED))
_PARENT_TAG = bytes((_PARENT,))
_AFTER_IDS = slice(SPAN_ID.stop, SPAN_ID.stop + 1)
"""Where the parent stands in a span that has one, unless it has a trace state too."""
_DRIVER = names.driver_name("").encode()


def reason_of(span: bytes, *, keep_errors: bool, slower: float | None) -> str:
    """Why the trace of this encoded span is to be kept; empty if it is not because of this one.

    ``keep_errors`` and ``slower``, in seconds, are what is asked for.
    """
    # Most spans need not be taken apart.
    may_have_failed = keep_errors and _FAILED_SOMEWHERE in span
    may_be_slow = slower is not None and (_CONSUMER_SOMEWHERE in span or span[_AFTER_IDS] != _PARENT_TAG)
    if not may_have_failed and not may_be_slow:
        return ""
    kind = start = end = 0
    name = b""
    is_root, failed = True, False
    try:
        for tag, value in fields(span):
            if tag == _KIND:
                kind = value
            elif tag == _START:
                start = int.from_bytes(value, "little")
            elif tag == _END:
                end = int.from_bytes(value, "little")
            elif tag == _NAME:
                name = value
            elif tag == _PARENT:
                is_root = False
            elif tag == _STATUS:
                failed = any(part == (_CODE, _FAILED) for part in fields(value))
    except FormatError:
        return ""
    if failed and keep_errors:
        return ERROR
    # A driver lasts as long as its program.
    is_call = kind == _CONSUMER or (is_root and not name.endswith(_DRIVER))
    return SLOW if slower is not None and is_call and end - start >= slower * 1e9 else ""


def attribute(reason: str) -> bytes:
    """The encoded ``ray.kept``."""
    value = wire.field(0x0A, reason.encode())
    return wire.field(0x4A, wire.field(0x0A, names.RAY_KEPT.encode()) + wire.field(0x12, value))
