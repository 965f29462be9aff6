"""The context of a task in the threads in which Ray Data runs functions of the user.

- Instances of classes as functions run in a thread of their own (Ray 2.60 ``data/_internal/execution/util.py``,
  ``make_callable_class_single_threaded``), which exists when ``MapTransformer.init`` has made them.
- ``make_async_gen`` (``data/_internal/util.py``) reads files, and ``iter_threaded``
  (``data/_internal/block_batching/util.py``) makes batches, in several threads.

Async functions need nothing: the call that hands them to their event loop copies the context.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.libraries import when_imported
from ray_tracing_hooks._ray.library_calls import in_context
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import Patches

_WRAPPERS = frozenset({"_SingleThreadedWrapper", "_Wrapper"})
"""The classes that Ray makes of the user's, now and in older versions."""

_UTIL, _BATCHING = "ray.data._internal.util", "ray.data._internal.block_batching.util"

_HOLDERS = {
    (_UTIL, "make_async_gen"): (
        "ray.data.datasource.file_based_datasource",
        "ray.data._internal.datasource_v2.common.file_reader",
        "ray.data._internal.planner.plan_download_op",
        "ray.data._internal.block_batching.iter_batches",
    ),
    (_BATCHING, "iter_threaded"): ("ray.data._internal.block_batching.iter_batches",),
}
"""The functions by their modules, and the modules that have imported them by name."""


def patch(patches: Patches) -> bool:
    """Wrap the making of instances; False if this Ray lacks it."""
    from ray.data._internal.execution.operators.map_transformer import MapTransformer  # noqa: PLC0415

    return patches.wrap(MapTransformer, "init", _init)


def patch_files(patches: Patches) -> bool:
    """Wrap the function that reads files; False if this Ray lacks it."""
    return _wrap_everywhere(patches, _UTIL, "make_async_gen")


def patch_batches(patches: Patches) -> bool:
    """Wrap the function that makes batches. Older versions of Ray use the one that reads files instead."""
    _wrap_everywhere(patches, _BATCHING, "iter_threaded")
    return True


def _wrap_everywhere(patches: Patches, module: str, name: str) -> bool:
    """Wrap a function in its module and where others hold it: one object everywhere, so that it is pickled by name."""
    owner = sys.modules[module]
    original = vars(owner).get(name)
    if not patches.wrap(owner, name, _in_threads):
        return False

    def wrap_in(holder: str) -> None:
        holding = sys.modules[holder]
        if name in vars(holding):
            patches.set(holding, name, vars(owner)[name], back=original)

    for holder in _HOLDERS[module, name]:
        when_imported(patches, holder, partial(wrap_in, holder))
    return True


def _in_threads(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs its argument ``fn`` on its argument ``base_iterator`` in threads."""
    parameters = signature(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        context = get_current() if tracing.active is not None else None
        if context:
            try:
                bound = parameters.bind(*args, **kwargs).arguments
                iterator, function = bound["base_iterator"], bound["fn"]
                bound["base_iterator"] = _Steps(iterator, context)
                bound["fn"] = lambda items: _Steps(iter(in_context(function, context)(items)), context)
                args, kwargs = (), dict(bound)
            except Exception as error:  # noqa: BLE001  the function must be called whatever fails here
                failed("propagating the context to threads of Ray Data", error)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return call


class _Steps(Iterator[Any]):
    """An iterator, with a context attached during each step."""

    __slots__ = ("_context", "_steps")

    def __init__(self, steps: Iterator[Any], context: Context) -> None:
        self._steps, self._context = steps, context

    def __next__(self) -> Any:
        token = attach(self._context)
        try:
            return next(self._steps)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            detach(token)


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any) -> Any:
        try:
            result = original(self)
        except BaseException as error:
            hide_frame(error)
            raise
        with guarded("propagating the context to functions of Ray Data"):
            for instance in _instances():
                _share_context(instance)
        return result

    return init


def _instances() -> list[Any]:
    """The instances that this worker has made of the user's classes."""
    context = getattr(sys.modules.get("ray.data"), "_map_actor_context", None)
    made = getattr(context, "udf_instances", None)
    return list(made.values()) if isinstance(made, dict) else [getattr(context, "udf_map_fn", None)]


def _share_context(instance: Any) -> None:
    pool = getattr(instance, "thread_pool_executor", None) if type(instance).__name__ in _WRAPPERS else None
    if pool is None or "submit" in vars(pool):
        return
    submit = pool.submit

    def submit_in_context(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(in_context(function, get_current()), *args, **kwargs)

    pool.submit = submit_in_context
