"""Waiting for objects and storing them: wraps ``ray.get``, ``ray.wait`` and ``ray.put`` (Ray 2.60
``_private/worker.py``), in a Ray Client the methods of ``_ClientAPI`` (``util/client/api.py``) that these call.

Only those that ``RAY_TRACING_RAY`` names are wrapped, so the others cost nothing. They are wrapped below their
decorator ``client_mode_hook``: programs hold these functions by ``from ray import get``, and have Ray pickle what uses
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._exceptions import hide_frame, traceback_of
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import sizes, tracing
from ray_tracing_hooks._ray.errors import cause
from ray_tracing_hooks._ray.propagation import caller_attribute
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan

_MOST_IDS = 64
"""Of more objects than these the ids are not named, only counted."""

_GENERATORS = frozenset({"ObjectRefGenerator", "DynamicObjectRefGenerator", "StreamingObjectRefGenerator"})
"""Ray's, by name, since each of its versions has others."""


def patch(patches: Patches, parts: Iterable[str]) -> bool:
    """Wrap those of the functions that ``parts`` names; False if this Ray has not all of them."""
    from ray._private import worker  # noqa: PLC0415  the hook's module must be importable without Ray

    wrapped = [patches.wrap_within(worker, part, _traced(f"ray.{part}", *_WAYS[part])) for part in sorted(parts)]
    return all(wrapped)


def patch_client(patches: Patches, parts: Iterable[str]) -> bool:
    """The same for a Ray Client."""
    from ray.util.client.api import _ClientAPI  # noqa: PLC0415  as above

    def of_method(describe: Callable[..., bytes]) -> Callable[..., bytes]:
        return lambda _self, *args, **kwargs: describe(*args, **kwargs)

    wrapped = []
    for part in sorted(parts):
        describe, finish = _WAYS[part]
        wrapped.append(patches.wrap(_ClientAPI, part, _traced(f"ray.{part}", of_method(describe), finish)))
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
                span.fail(cause(error), traceback_of(error))
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
        first = caller_attribute(active.calls.caller(context)) + describe(*args, **kwargs)
        return recording.start(active.templates.of_waiting(name), trace_id, flags, parent, first)
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
    return _objects(waitables) + encode.attribute(names.RAY_NUM_RETURNS, num_returns) + _timeout(timeout)


def _describe_put(value: Any = None, **_others: Any) -> bytes:
    sizes.begin(bytes.__len__(value) if isinstance(value, bytes) else None)
    return b""


def _finish_get(span: RecordedSpan, _result: Any) -> None:
    _tell_size(span, sizes.last())


def _tell_size(span: RecordedSpan, size: int | None) -> None:
    if size is not None:
        span.set_attribute(names.RAY_OBJECT_SIZE, size)


def _finish_wait(span: RecordedSpan, result: Any) -> None:
    ready = result[0]
    span.set_attribute(names.RAY_READY_OBJECT_IDS, _ids(ready))
    span.set_attribute(names.RAY_READY_OBJECT_COUNT, len(ready))


def _finish_put(span: RecordedSpan, result: Any) -> None:
    span.set_attribute(names.RAY_OBJECT_IDS, _ids([result]))
    _tell_size(span, sizes.last())


def _objects(refs: Any) -> bytes:
    """The encoded ids of what is waited for, and how many these are."""
    several = refs if isinstance(refs, (list, tuple)) else [refs]
    found = _ids(several)
    count = encode.attribute(names.RAY_OBJECT_COUNT, len(several))
    return encode.attribute(names.RAY_OBJECT_IDS, found) + count if found else count


def _ids(refs: Sequence[Any]) -> list[str]:
    found = []
    for ref in refs[:_MOST_IDS]:
        # A generator has the reference of its task, which Ray waits for in its place.
        named = getattr(ref, "_generator_ref", ref) if type(ref).__name__ in _GENERATORS else ref
        # To ask a client's reference for its id is to wait for the server, as long as it has a future for it. Of an
        # object of the program's nothing is asked.
        if hasattr(type(named), "hex") and getattr(named, "_id_future", None) is None:
            found.append(named.hex())
    return found


def _timeout(seconds: Any) -> bytes:
    return encode.attribute(names.RAY_TIMEOUT, float(seconds)) if seconds is not None else b""


_WAYS: dict[str, tuple[Callable[..., bytes], Callable[[RecordedSpan, Any], None]]] = {
    "get": (_describe_get, _finish_get),
    "wait": (_describe_wait, _finish_wait),
    "put": (_describe_put, _finish_put),
}
"""For each function what is said of it before it is called, and what of its result."""
