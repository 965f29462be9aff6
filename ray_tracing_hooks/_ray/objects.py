"""Spans for waiting for objects and storing them: wraps ``ray.get``, ``ray.wait`` and ``ray.put`` (Ray 2.60
``_private/worker.py``), in a Ray Client the methods of ``_ClientAPI`` (``util/client/api.py``) that these call.

Only the functions in ``RAY_TRACING_RAY`` are wrapped, so the others cost nothing. They are wrapped below their
decorator ``client_mode_hook``, because programs hold references to these functions through ``from ray import get``, and
Ray pickles code that uses them.

The sizes of objects: wraps ``SerializationContext._serialize_to_msgpack`` (Ray 2.60 ``_private/serialization.py``) and
``Worker.deserialize_objects`` (``_private/worker.py``), which know the sizes and which ``ray.put`` of anything but
bytes and ``ray.get`` call.

Arguments and results of tasks pass through them too, so each thread keeps the size of the last object.

Placement groups: wraps ``PlacementGroup.ready`` (Ray 2.60 ``util/placement_group.py``), whose result is an object that
no call makes, and ``PlacementGroup.wait``, which waits in the core of Ray.

``await ref``: replaces the name ``asyncio`` of ``ray._raylet`` (Ray 2.60 ``includes/object_ref.pxi``).

``ObjectRef`` is an extension type, so its ``__await__`` cannot be replaced; it calls ``as_future()``, which calls
``asyncio.wrap_future(self.future())`` through the names of its module. The replacement overrides this one function,
with the same result, and looks up everything else in asyncio. The program's own asyncio is not changed.
``asyncio.gather``, ``wait`` and ``wait_for`` await the references that they are given.

``ref.future()`` makes the class of its result by the name ``concurrent``, which is replaced likewise. Whether and when
the program waits for that is unknown, so it makes a span without a duration: a sign that there may be such waits.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import cause
from ray_tracing_hooks._ray.library_spans import followed_by
from ray_tracing_hooks._ray.propagation import QUIET_KEY, caller_attribute
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame, hide_frame, traceback_of
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


def patch_sizes(patches: Patches, parts: Collection[str]) -> bool:
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


def begin_size(size: int | None = None) -> None:
    """Forget the last object of this thread; the next one has this ``size`` if it is already known."""
    _last_object.size = size


def last_size() -> int | None:
    """The size of the object that this thread serialized or deserialized last, if known."""
    return getattr(_last_object, "size", None)


_last_object = threading.local()


def _noting(size: Callable[[Any, Any], int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(result: Any, _self: Any, given: Any, *_rest: Any, **_others: Any) -> None:
        # Only now, since code of the program that was called meanwhile may have handled other objects.
        _last_object.size = None
        _last_object.size = size(given, result)

    return followed_by(note, "reading the size of an object")


def _serialized(_value: Any, serialized: Any) -> int:
    size: int = serialized.total_bytes
    return size


def _fetched(serialized: Any, _values: Any) -> int:
    # Each is a tuple that begins with the data, or None without data, such as for an error without text.
    return sum(len(each[0]) for each in serialized if each[0] is not None)


_MOST_IDS = 64
"""At most this many objects are listed by id; further ones are only counted."""

_QUIET = tuple(modules for library in LIBRARIES for modules in library.quiet)

_OF_SERVE = "ray.serve."
_FOR_PROGRAM = frozenset({"get_async", "__anext__"})
"""The functions of Ray Serve that ``await`` what the program asked for. With others, its routers ask replicas whether
they have room, many times for a request.
"""

_BETWEEN = (f"{__name__.partition('.')[0]}.", "ray._private.")
"""The modules of the frames between our code and the one that waits."""

_WAITING = frozenset({"threading", "queue", "concurrent", "selectors", "asyncio", "multiprocessing"})
"""The modules whose functions wait for threads and event loops."""

_GENERATORS = frozenset({"ObjectRefGenerator", "DynamicObjectRefGenerator", "StreamingObjectRefGenerator"})
"""Ray's generator classes, by name, since they differ between versions."""


def patch(patches: Patches, parts: Collection[str]) -> bool:
    """Wrap the functions named in ``parts``; False if this Ray lacks one of them."""
    from ray._private import worker  # noqa: PLC0415  the hook's module must be importable without Ray

    wrapped = [patches.wrap_within(worker, part, _traced(f"ray.{part}", *_FUNCTIONS[part])) for part in sorted(parts)]
    return all([*wrapped, *_patch_placement_groups(patches, parts)])


def _patch_placement_groups(patches: Patches, parts: Collection[str]) -> Iterator[bool]:
    from ray.util.placement_group import PlacementGroup  # noqa: PLC0415  as above

    yield patches.wrap(PlacementGroup, "ready", followed_by(_note_group, "tracing a placement group"))
    if "wait" in parts:
        yield patches.wrap(
            PlacementGroup, "wait", _traced(names.PLACEMENT_GROUP_WAIT, _describe_group_wait, _finish_group_wait)
        )


_groups: dict[str, str] = {}
"""The placement groups whose readiness this process may wait for last, by the id of the object that stands for it."""

_MOST_GROUPS = 1000


def _note_group(ready: Any, group: Any) -> None:
    while len(_groups) >= _MOST_GROUPS:
        _groups.pop(next(iter(_groups)), None)
    _groups[ready.hex()] = group.id.hex()


def patch_client(patches: Patches, parts: Collection[str]) -> bool:
    """The same for a Ray Client."""
    from ray.util.client.api import _ClientAPI  # noqa: PLC0415  as above

    def of_method(describe: Callable[..., bytes]) -> Callable[..., bytes]:
        return lambda _self, *args, **kwargs: describe(*args, **kwargs)

    wrapped = []
    for part in sorted(parts):
        describe, finish = _FUNCTIONS[part]
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
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                if span is not None and active is not None:
                    span.fail(cause(error), traceback_of(error))
                    end(active, span)
                raise
            if span is not None and active is not None:
                try:
                    finish(span, result)
                except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
                    failed(f"tracing {name}", error)
                end(active, span)
            return result

        return call

    return wrap


def _begin(
    active: Tracing, name: str, describe: Callable[..., bytes], args: Sequence[Any], kwargs: dict[str, Any]
) -> RecordedSpan | None:
    """Begin the span of a call; None if it has no parent or is not recorded, or on failure."""
    try:
        if not active.waits or (not active.selection.shows_internal and _is_internal(sys._getframe(1), name)):  # noqa: SLF001
            return None
        context, recorder = get_current(), active.recorder
        parent = recorder.parent(context)
        if parent is None or QUIET_KEY in context:
            return None
        trace_id, flags = recorder.decide(parent)
        recording = recorder.of(flags)
        if recording is None:
            return None
        first = caller_attribute(active.calls.caller(context)) + describe(*args, **kwargs) + active.thread_attribute()
        return recording.start(active.templates.of_waiting(name), trace_id, flags, parent, first)
    except Exception as error:  # noqa: BLE001  as above
        failed(f"tracing {name}", error)
        return None


def _is_internal(frame: FrameType | None, name: str) -> bool:
    """Whether code of a library of Ray waits, such as Ray Data's loop for the blocks of a dataset: that is no wait of
    the program, and there are many in a second.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if not module.startswith(_BETWEEN):
            if name == names.AWAIT and module.startswith(_OF_SERVE):
                return frame.f_code.co_name not in _FOR_PROGRAM
            return module.startswith(_QUIET)
        frame = frame.f_back
    return False


def end(active: Tracing, span: RecordedSpan) -> None:
    """End the span of a wait. In another thread of a driver, it also says whether the driver's own code waited then."""
    try:
        if active.is_in_other_thread() and _waits_for_threads(active.thread):
            span.set_attribute(names.RAY_DRIVER_WAITED, True)
    except Exception as error:  # noqa: BLE001  as above
        failed("tracing a wait", error)
    span.end()


def _waits_for_threads(thread: int) -> bool:
    """Whether code of Python's own that waits for threads, coroutines or sockets is the innermost of a thread."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  documented
    module = str(frame.f_globals.get("__name__")) if frame is not None else ""
    return module.partition(".")[0] in _WAITING


def begin_get(active: Tracing, name: str, ref: Any) -> RecordedSpan | None:
    """Begin the span ``name`` of a wait for one object; None in the same cases as for ``ray.get``."""
    return _begin(active, name, _objects, (ref,), {})


def begin_unnamed(active: Tracing, name: str) -> RecordedSpan | None:
    """The same where the object is not known yet."""
    return _begin(active, name, bytes, (), {})


def _describe_get(object_refs: Any = None, *, timeout: Any = None, **_others: Any) -> bytes:
    begin_size()
    return _objects(object_refs) + _timeout(timeout)


def _describe_wait(
    ray_waitables: Any = None, *, num_returns: Any = 1, timeout: Any = None, object_refs: Any = None, **_others: Any
) -> bytes:
    waitables = ray_waitables if ray_waitables is not None else object_refs
    return _objects(waitables) + encode.attribute(names.RAY_NUM_RETURNS, num_returns) + _timeout(timeout)


def _describe_put(value: Any = None, **_others: Any) -> bytes:
    begin_size(bytes.__len__(value) if isinstance(value, bytes) else None)
    return b""


def _finish_get(span: RecordedSpan, _result: Any) -> None:
    _set_size(span, last_size())


def _set_size(span: RecordedSpan, size: int | None) -> None:
    if size is not None:
        span.set_attribute(names.RAY_OBJECT_SIZE, size)


def _finish_wait(span: RecordedSpan, result: Any) -> None:
    ready = result[0]
    span.set_attribute(names.RAY_READY_OBJECT_IDS, _ids(ready))
    span.set_attribute(names.RAY_READY_OBJECT_COUNT, len(ready))


def _finish_put(span: RecordedSpan, result: Any) -> None:
    span.set_attribute(names.RAY_OBJECT_IDS, _ids([result]))
    _set_size(span, last_size())


def _objects(refs: Any) -> bytes:
    """The encoded ids and the count of the objects that are waited for."""
    several = refs if isinstance(refs, (list, tuple)) else [refs]
    found = _ids(several)
    count = encode.attribute(names.RAY_OBJECT_COUNT, len(several))
    if _groups and (group := next(filter(None, map(_groups.get, found)), None)):
        count += encode.attribute(names.RAY_PLACEMENT_GROUP_ID, group)
    return encode.attribute(names.RAY_OBJECT_IDS, found) + count if found else count


def _ids(refs: Sequence[Any]) -> list[str]:
    found = []
    for ref in refs[:_MOST_IDS]:
        # A generator has the reference of its task, for which Ray waits instead.
        named = getattr(ref, "_generator_ref", ref) if type(ref).__name__ in _GENERATORS else ref
        # Reading the id of a client's reference blocks on the server as long as a future for it is pending. Objects of
        # the program are not touched.
        if hasattr(type(named), "hex") and getattr(named, "_id_future", None) is None:
            found.append(named.hex())
    return found


def _describe_group_wait(group: Any, timeout_seconds: Any = 30) -> bytes:
    return encode.attribute(names.RAY_PLACEMENT_GROUP_ID, group.id.hex()) + _timeout(timeout_seconds)


def _finish_group_wait(span: RecordedSpan, result: Any) -> None:
    span.set_attribute(names.RAY_READY_OBJECT_COUNT, int(result))


def _timeout(seconds: Any) -> bytes:
    return encode.attribute(names.RAY_TIMEOUT, float(seconds)) if seconds is not None else b""


_FUNCTIONS: dict[str, tuple[Callable[..., bytes], Callable[[RecordedSpan, Any], None]]] = {
    "get": (_describe_get, _finish_get),
    "wait": (_describe_wait, _finish_wait),
    "put": (_describe_put, _finish_put),
}
"""For each function, how to describe its call and how to describe its result."""


_END_OF_GENERATOR = "ObjectRefStreamEndOfStreamError"
"""The error that Ray's own code gets at the end of a generator. It is not a failure."""


_open: set[RecordedSpan] = set()
"""The spans of current waits."""


def patch_await(patches: Patches) -> bool:
    """Make a span of each ``await ref``; False if this Ray lacks the wrapped name."""
    from ray import _raylet  # noqa: PLC0415  the hook's module must be importable without Ray

    found = vars(_raylet)
    if hasattr(getattr(found.get("concurrent"), "futures", None), "Future"):
        patches.wrap(_raylet, "concurrent", _Concurrent)
    return hasattr(found.get("asyncio"), "wrap_future") and patches.wrap(_raylet, "asyncio", _Asyncio)


def give_up() -> None:
    """End the open spans when this process disconnects, since its event loop has stopped or drops its tasks."""
    for span in _open.copy():
        _open.discard(span)
        span.set_attribute(names.RAY_CANCELLED, True)
        span.end()


class _StandIn(ModuleType):
    """Stands in for a module for callers of its name."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


class _Here(threading.local):
    is_awaiting = False
    """Whether the future that it makes next is for ``await``, which looks up what wraps it first."""
    marked: bytes = b""
    """The span below which the last ``ref.future()`` was seen."""


_here = _Here()


class _Concurrent(_StandIn):
    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self.futures = _Futures(module.futures)


class _Futures(_StandIn):
    @property
    def Future(self) -> Any:  # noqa: N802  its name there
        """The class, which is looked up to make a future."""
        if _here.is_awaiting:
            _here.is_awaiting = False
        elif (active := tracing.active) is not None:
            _mark(active)
        return self._module.Future


def _mark(active: Tracing) -> None:
    """Note that the program has a future for whose result it may wait; once where there are many in a row."""
    parent = active.recorder.parent(get_current())
    around = parent.span_id if parent is not None else b""
    if around != _here.marked:
        _here.marked = around
        span = begin_get(active, names.FUTURE, None)
        if span is not None:
            span.end()


class _Asyncio(_StandIn):
    @property
    def wrap_future(self) -> Any:
        _here.is_awaiting = True
        return self._wrap_future

    def _wrap_future(self, future: Any, **options: Any) -> Any:
        _here.is_awaiting = False
        with hidden_frame:
            wrapped = self._module.wrap_future(future, **options)
        active = tracing.active
        if active is not None:
            ref = getattr(future, "object_ref", None)
            span = begin_get(active, names.AWAIT, ref) if ref is not None else None
            if span is not None:
                _end_with(active, span, wrapped, future)
        return wrapped


def _end_with(active: Tracing, span: RecordedSpan, wrapped: Any, future: Any) -> None:
    """End ``span`` when the loop is about to resume the code that waits for ``wrapped``, or when that is cancelled."""

    def ended(_wrapped: Any) -> None:
        _open.discard(span)
        try:
            if wrapped.cancelled():
                span.set_attribute(names.RAY_CANCELLED, True)
            # Reading the error of asyncio's future would mark it as retrieved by the program.
            elif (
                future.done()
                and (error := future.exception()) is not None
                and type(error).__name__ != _END_OF_GENERATOR
            ):
                span.fail(cause(error), traceback_of(error))
        except Exception as error:  # noqa: BLE001  a fault here must not reach the user's event loop
            failed(f"tracing {names.AWAIT}", error)
        end(active, span)

    _open.add(span)
    try:
        wrapped.add_done_callback(ended)
    except Exception as error:  # noqa: BLE001  as above
        failed(f"tracing {names.AWAIT}", error)
