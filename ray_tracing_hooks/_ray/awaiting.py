"""``await ref``: replaces the name ``asyncio`` of ``ray._raylet`` (Ray 2.60 ``includes/object_ref.pxi``).

``ObjectRef`` is an extension type, so its ``__await__`` cannot be replaced; it calls ``as_future()``, which calls
``asyncio.wrap_future(self.future())`` through the names of its module. The replacement overrides this one function,
with the same result, and looks up everything else in asyncio. The program's own asyncio is not changed.
``asyncio.gather``, ``wait`` and ``wait_for`` await the references that they are given.

``ref.future()`` makes the class of its result by the name ``concurrent``, which is replaced likewise. Whether and when
the program waits for that is unknown, so it makes a span without a duration: a sign that there may be such waits.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import cause
from ray_tracing_hooks._ray.objects import begin_get, end
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame, traceback_of
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_END_OF_GENERATOR = "ObjectRefStreamEndOfStreamError"
"""The error that Ray's own code gets at the end of a generator. It is not a failure."""


_open: set[RecordedSpan] = set()
"""The spans of current waits."""


def patch(patches: Patches) -> bool:
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
        try:
            wrapped = self._module.wrap_future(future, **options)
        except BaseException as error:
            hide_frame(error)
            raise
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
