"""Open spans, which have begun and not ended: what is kept of them, and what they become when their process has gone.

Most of them end. The others were interrupted by the end of their process, or their program has forgotten them, which
only happens to spans of the API: those are no errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import IDS, SPAN_ID
from ray_tracing_hooks._formats.encoded_span.read import parent_id, start_time
from ray_tracing_hooks._ship.cause_of_death import Death
from ray_tracing_hooks._spool.progress import StoredSpan, encode_open_spans, open_spans

_OURS = encode.scope(names.SCOPE)
_SAME_TRACE = slice(IDS.start, SPAN_ID.start)

_OVERHEAD = 400
"""Bytes that an open span takes besides its encoding."""


class Scope:
    """A scope of one segment; compared by identity, which is cheaper than by its bytes."""

    __slots__ = ("is_ours", "resource", "scope")

    def __init__(self, resource: bytes, scope: bytes) -> None:
        self.resource = resource
        self.scope = scope
        self.is_ours = scope.startswith(_OURS)


class OpenSpan(NamedTuple):
    """A span that has begun: its scope, its encoding without an end, and the sequence of its segment.

    ``within`` is the id of the span of ours around it, a task's for instance, if it is one of the API and that was open
    when it began.
    """

    scope: Scope
    span: bytes
    sequence: int
    within: bytes = b""


OpenSpans = dict[bytes, OpenSpan]
"""By trace id and span id with their tags, as a span begins."""


def begun(spans: OpenSpans, scope: Scope, span: bytes, sequence: int) -> OpenSpan:
    """A span that has just begun, where ``spans`` are open in its process."""
    within = b""
    if spans and not scope.is_ours:
        around = spans.get(span[_SAME_TRACE] + parent_id(span))
        if around is not None:
            within = around.span[SPAN_ID] if around.scope.is_ours else around.within
    return OpenSpan(scope, span, sequence, within)


def size(spans: OpenSpans) -> int:
    """Bytes of memory, about."""
    return sum(len(each.span) for each in spans.values()) + _OVERHEAD * len(spans)


def to_forget(spans: OpenSpans) -> list[bytes]:
    """The half that matters less: the oldest of the API, which pile up where they are never ended."""
    order = sorted(spans, key=lambda ids: spans[ids].scope.is_ours)
    return order[: -(-len(order) // 2)]


def stored(spans: Iterable[OpenSpan]) -> list[Any]:
    """As they stand in a progress file."""
    return encode_open_spans(
        StoredSpan(each.scope.resource, each.scope.scope, each.span, each.within) for each in spans
    )


def restored(process: Mapping[str, Any]) -> OpenSpans:
    """Those of this process in a progress file. Raises ValueError, TypeError or KeyError for what is none."""
    found: OpenSpans = {}
    scopes: dict[tuple[bytes, bytes], Scope] = {}
    for resource, scope, span, within in open_spans(process):
        shared = scopes.get((resource, scope)) or scopes.setdefault((resource, scope), Scope(resource, scope))
        found[span[IDS]] = OpenSpan(shared, span, -1, within)
    return found


def was_interrupted(span: bytes) -> bool:
    """Whether a span of ours that has ended says that the end of its process interrupted it."""
    # For each span of ours, so the rare case is found out fast.
    return _DIED in span and (_WORKER_DIED in span or _DRIVER_DIED in span)


def left_open(
    spans: OpenSpans, interrupted: AbstractSet[bytes], *, is_worker: bool, in_order: bool
) -> Iterator[tuple[bytes, bool]]:
    """The ids of what a process that has gone left open, and whether its end interrupted the span.

    If not, the program never ended the span. A span of ours was interrupted, and so was one of the API that began
    inside of one that was, or inside of one of ``interrupted``: the ids of spans of ours that ended and say so
    themselves. The others depend on the process: in one that ended ``in_order``, and in a worker, which Ray ends
    without a word when it has nothing to do, their program had not ended them.

    Those of the API come first, since they depend on the others: whoever stops in between finds the same for the rest.
    """
    ours = {each.span[SPAN_ID]: start_time(each.span) for each in spans.values() if each.scope.is_ours}
    first = min(ours.values(), default=None)
    for ids, each in sorted(spans.items(), key=lambda item: item[1].scope.is_ours):
        if each.scope.is_ours or not (is_worker or in_order):
            yield ids, True
        elif each.within:
            yield ids, each.within in ours or each.within in interrupted
        else:
            # What began while nothing of ours was open in its process was not interrupted in the middle of that.
            yield ids, bool(interrupted) or (first is not None and first <= start_time(each.span))


def closed(span: bytes, ended_at: int, death: Death | None) -> bytes:
    """The encoded span with an end appended, and with the error if the death of its process interrupted it.

    ``ended_at`` is in nanoseconds since the epoch; a span never ends before it has begun.
    """
    end = encode.end_time(max(ended_at, start_time(span)))
    return span + end + (_error(death) if death is not None else _NEVER_ENDED)


@lru_cache(maxsize=100)
def _error(death: Death) -> bytes:
    """The attributes ``ray.end_estimated`` and ``error.type``, and the status ERROR."""
    return (
        encode.attribute(names.RAY_END_ESTIMATED, True)
        + encode.attribute(names.ERROR_TYPE, death.error_type)
        + encode.status(encode.STATUS_ERROR, death.message)
    )


_DIED = b"r_died"
_WORKER_DIED, _DRIVER_DIED = (
    encode.attribute(names.ERROR_TYPE, error_type) for error_type in (names.WORKER_DIED, names.DRIVER_DIED)
)
_NEVER_ENDED = encode.attribute(names.RAY_NEVER_ENDED, True)
