"""Waiting for objects and storing them: wraps ``ray.get``, ``ray.wait`` and ``ray.put`` (``_private/worker.py``).

Only those that ``RAY_TRACING_RAY`` names are wrapped, so the others cost nothing. They are wrapped where ``ray`` and
that module (Ray 2.60) have them: a function that a program has taken from there before is Ray's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import sizes, tracing
from ray_tracing_hooks._ray.errors import hide_frame
from ray_tracing_hooks._ray.execution import cause
from ray_tracing_hooks._ray.tracing import Tracing, caller_attribute
from ray_tracing_hooks._record import wire
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan

_MOST_IDS = 64
"""Of more objects than these the ids are not named, only counted."""


def patch(patches: Patches, parts: Iterable[str]) -> bool:
    """Wrap those of the functions that ``parts`` names; False if this Ray has not all of them."""
    import ray  # noqa: PLC0415  the hook's module must be importable without Ray
    from ray._private import worker  # noqa: PLC0415

    wrapped = [
        patches.wrap(owner, part, _traced(f"ray.{part}", *_WAYS[part]))
        for part in sorted(parts)
        for owner in (worker, ray)
    ]
    return all(wrapped)


def _traced(
    name: str, describe: Callable[..., bytes], finish: Callable[[RecordedSpan, Any], None]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            active = tracing.active
            span = _begin(active, name, describe, args, kwargs) if active is not None else None
            if span is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                span.fail(cause(error), error.__traceback__)
                span.end()
                raise
            try:
                finish(span, result)
            except Exception as error:  # noqa: BLE001  the call is the user's, the fault would be ours
                failed(f"tracing {name}", error)
            span.end()
            return result

        return call

    return wrap


def _begin(
    active: Tracing, name: str, describe: Callable[..., bytes], args: Sequence[Any], kwargs: dict[str, Any]
) -> RecordedSpan | None:
    """The span of a call that is about to be made; None where there is none that it could belong to, or that failed."""
    try:
        if not active.waits:
            return None
        context, recorder = get_current(), active.recorder
        parent = recorder.parent(context)
        if parent is None:
            return None
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        if recording is None:
            return None
        first = caller_attribute(active.caller(context)) + describe(*args, **kwargs)
        return recording.start(active.template_of_waiting(name), trace_id, flags, parent, first)
    except Exception as error:  # noqa: BLE001  as above
        failed(f"tracing {name}", error)
        return None


def begin_get(active: Tracing, name: str, ref: Any) -> RecordedSpan | None:
    """The span ``name`` of a wait for one object that begins now, or None as that of ``ray.get``."""
    return _begin(active, name, _objects, (ref,), {})


def _describe_get(object_refs: Any, *, timeout: Any = None, **_others: Any) -> bytes:
    sizes.begin()
    return _objects(object_refs) + _timeout(timeout)


def _describe_wait(
    ray_waitables: Any = None, *, num_returns: Any = 1, timeout: Any = None, object_refs: Any = None, **_others: Any
) -> bytes:
    waitables = ray_waitables if ray_waitables is not None else object_refs
    return _objects(waitables) + wire.attribute(names.RAY_NUM_RETURNS, num_returns) + _timeout(timeout)


def _describe_put(value: Any = None, **_others: Any) -> bytes:
    sizes.begin(bytes.__len__(value) if isinstance(value, bytes) else None)
    return b""


def _finish_get(span: RecordedSpan, _result: Any) -> None:
    _tell_size(span, sizes.last())


def _tell_size(span: RecordedSpan, size: int | None) -> None:
    if size is not None:
        span.set_attribute(names.RAY_OBJECT_SIZE, size)


def _finish_wait(span: RecordedSpan, result: Any) -> None:
    span.set_attribute(names.RAY_READY_OBJECT_IDS, _ids(result[0]))


def _finish_put(span: RecordedSpan, result: Any) -> None:
    span.set_attribute(names.RAY_OBJECT_IDS, _ids([result]))
    _tell_size(span, sizes.last())


def _objects(refs: Any) -> bytes:
    """The encoded ids of what is waited for, and how many these are."""
    several = refs if isinstance(refs, (list, tuple)) else [refs]
    found = _ids(several)
    count = wire.attribute(names.RAY_OBJECT_COUNT, len(several))
    return wire.attribute(names.RAY_OBJECT_IDS, found) + count if found else count


def _ids(refs: Sequence[Any]) -> list[str]:
    # To ask a client's reference for its id is to wait for the server, as long as it has a future for it.
    return [ref.hex() for ref in refs[:_MOST_IDS] if hasattr(ref, "hex") and getattr(ref, "_id_future", None) is None]


def _timeout(seconds: Any) -> bytes:
    return wire.attribute(names.RAY_TIMEOUT, float(seconds)) if seconds is not None else b""


_WAYS: dict[str, tuple[Callable[..., bytes], Callable[[RecordedSpan, Any], None]]] = {
    "get": (_describe_get, _finish_get),
    "wait": (_describe_wait, _finish_wait),
    "put": (_describe_put, _finish_put),
}
"""For each function what is said of it before it is called, and what of its result."""
