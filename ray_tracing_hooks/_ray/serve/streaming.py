"""Streaming responses of a replica: when its code made the first item, how many, and how long it made none.

Each item of a streaming call passes the function by which the event loop of the deployment hands it on, and each part
of a response over HTTP or WebSocket the ``send`` of its application (Ray 2.60 ``serve/_private/replica.py``,
``_call_user_generator`` and ``_call_http_entrypoint``). Where the replica has no such loop of its own
(``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD``), items come out of a generator.

This runs for each item, so it is one function that reads the clock once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.generators import watched
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame

Handed = Callable[[Any], Any]
"""Takes one item."""

_first_item = encode.double_attribute(names.RAY_SERVE_FIRST_ITEM)
_longest_pause = encode.double_attribute(names.RAY_SERVE_LONGEST_PAUSE)


def items(hand_on: Handed, span: RecordedSpan) -> Handed:
    """``hand_on``, which takes the items of a streaming call, and adds their times to ``span`` when that ends."""
    count = first = last = longest = 0

    def of_item(item: Any) -> Any:
        nonlocal count, first, last, longest
        now = now_ns()
        if count == 0:
            first = now
        elif now - last > longest:
            longest = now - last
        last = now
        count += 1
        return hand_on(item)

    span.add_at_end(lambda: _encoded(span, count, first, longest))
    return of_item


def parts(send: Handed, span: RecordedSpan) -> Handed:
    """The same for the ASGI messages of a response. One that is not streamed adds nothing."""
    count = first = last = longest = 0

    def of_message(message: Any) -> Any:
        nonlocal count, first, last, longest
        try:
            is_part = message.get("more_body") or message["type"] == "websocket.send" or (count and message.get("body"))
        except (AttributeError, LookupError):  # no message of ASGI, for Serve to refuse
            is_part = False
        if is_part:
            now = now_ns()
            if count == 0:
                first = now
                span.add_at_end(lambda: _encoded(span, count, first, longest))
            elif now - last > longest:
                longest = now - last
            last = now
            count += 1
        return send(message)

    return of_message


async def generated(making: Awaitable[Any], span: RecordedSpan) -> Any:
    """What ``making`` returns; if that is a generator, one that yields the same and adds the times to ``span``."""
    try:
        body = await making
    except BaseException as error:
        hide_frame(error)
        raise
    return watched(body, items(_nothing, span)) if hasattr(body, "aclose") else body


def _nothing(_: Any) -> None:
    """Hands nothing on."""


def _encoded(span: RecordedSpan, count: int, first: int, longest: int) -> bytes:
    found = encode.attribute(names.RAY_SERVE_ITEMS, count)
    if count > 0:
        found += _first_item((first - span.start_time) / 1e9)
    return found + _longest_pause(longest / 1e9) if count > 1 else found
