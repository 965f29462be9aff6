"""Sizes of objects: wraps ``SerializationContext._serialize_to_msgpack`` (Ray 2.60 ``_private/serialization.py``) and
``Worker.deserialize_objects`` (``_private/worker.py``), which know the sizes and which ``ray.put`` of anything but
bytes and ``ray.get`` call.

Arguments and results of tasks pass through them too, so each thread keeps the size of the last object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches, parts: Collection[str]) -> bool:
    """Record the sizes of objects that ``put`` stores and ``get`` fetches, if ``parts`` contains them."""
    from ray._private.serialization import SerializationContext  # noqa: PLC0415  only where there is Ray
    from ray._private.worker import Worker  # noqa: PLC0415  as above

    places = {
        "put": (SerializationContext, "_serialize_to_msgpack", _serialized),
        "get": (Worker, "deserialize_objects", _fetched),
    }
    wrapped = [
        patches.wrap(owner, method, _noting(size)) for part, (owner, method, size) in places.items() if part in parts
    ]
    return all(wrapped)


def begin(size: int | None = None) -> None:
    """Forget the last object of this thread; the next one has this ``size`` if it is already known."""
    _last.size = size


def last() -> int | None:
    """The size of the object that this thread serialized or deserialized last, if known."""
    return getattr(_last, "size", None)


_last = threading.local()


def _noting(size: Callable[[Any, Any], int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def note(self: Any, given: Any, *rest: Any, **others: Any) -> Any:
            try:
                result = original(self, given, *rest, **others)
            except BaseException as error:
                hide_frame(error)
                raise
            # Only now, since code of the program that was called meanwhile may have handled other objects.
            try:
                _last.size = size(given, result)
            except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
                _last.size = None
                failed("reading the size of an object", error)
            return result

        return note

    return wrap


def _serialized(_value: Any, serialized: Any) -> int:
    size: int = serialized.total_bytes
    return size


def _fetched(serialized: Any, _values: Any) -> int:
    # Each is a tuple that begins with the data, or None without data, such as for an error without text.
    return sum(len(each[0]) for each in serialized if each[0] is not None)
