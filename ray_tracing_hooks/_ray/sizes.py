"""How large objects are: wraps ``SerializationContext._serialize_to_msgpack`` (Ray 2.60 ``_private/serialization.py``)
and ``Worker.deserialize_objects`` (``_private/worker.py``), which ``ray.put`` of anything but bytes and ``ray.get``
call, and which know it.

Arguments and results of tasks pass there too, so each thread keeps the size of what it has had in its hands last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches


def patch(patches: Patches, parts: Collection[str]) -> bool:
    """Note the sizes of what ``put`` stores and ``get`` fetches, if ``parts`` names them."""
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
    """What this thread has had in its hands does not count for what comes, of which ``size`` is known, or nothing."""
    _last.size = size


def last() -> int | None:
    """The bytes of what this thread has serialized or deserialized last, if that is known."""
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
            # Only now: code of the program's that was called meanwhile may have had others in its hands.
            try:
                _last.size = size(given, result)
            except Exception as error:  # noqa: BLE001  the call is the user's, the fault would be ours
                _last.size = None
                failed("looking at the size of an object", error)
            return result

        return note

    return wrap


def _serialized(_value: Any, serialized: Any) -> int:
    size: int = serialized.total_bytes
    return size


def _fetched(serialized: Any, _values: Any) -> int:
    # Each is a tuple that begins with the data, None where there is none, such as of an error without text.
    return sum(len(each[0]) for each in serialized if each[0] is not None)
