"""The tail sampling policy: decides by an ended span whether its trace is kept."""

from __future__ import annotations

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import CONSUMER
from ray_tracing_hooks._formats.encoded_span.read import may_be_call_or_root, may_have_failed, outline
from ray_tracing_hooks._formats.protobuf import FormatError

ERROR, SLOW = "error", "slow"

_DRIVER = names.driver_name("").encode()


def reason_of(span: bytes, *, keep_errors: bool, slower: float | None) -> str:
    """Why the trace of this encoded span is to be kept; empty if this span is no reason.

    ``keep_errors`` and ``slower``, in seconds, are the settings.
    """
    # Most spans need not be decoded.
    is_candidate = (keep_errors and may_have_failed(span)) or (slower is not None and may_be_call_or_root(span))
    if not is_candidate:
        return ""
    try:
        found = outline(span)
    except FormatError:
        return ""
    if found.failed and keep_errors:
        return ERROR
    # A driver's span lasts as long as its program.
    is_call = found.kind == CONSUMER or (found.is_root and not found.name.endswith(_DRIVER))
    return SLOW if slower is not None and is_call and found.end_ns - found.start_ns >= slower * 1e9 else ""


def attribute(reason: str) -> bytes:
    """The encoded ``ray.kept``."""
    return encode.attribute(names.RAY_KEPT, reason)
