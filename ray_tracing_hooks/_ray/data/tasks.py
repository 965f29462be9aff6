"""The calls of operators, their tasks and the actors that they make: how they are named, and what they made.

The tasks of map operators, which are nearly all, say whose they are in their arguments (Ray 2.60
``data/_internal/execution/interfaces/task_context.py``). The others are named by the operator that submits them. Actors
that only manage something, such as those for statistics, make no spans.

Ray Data measures the rows and bytes of blocks, and what they took, itself. A task of a map operator yields a block and
its metadata alternately, and the others return metadata with their blocks (Ray 2.60 ``data/block.py``,
``BlockMetadata``).

The context of a task in the threads in which Ray Data runs functions of the user.

- Instances of classes as functions run in a thread of their own (Ray 2.60 ``data/_internal/execution/util.py``,
  ``make_callable_class_single_threaded``), which exists when ``MapTransformer.init`` has made them.
- ``make_async_gen`` (``data/_internal/util.py``) reads files, and ``iter_threaded``
  (``data/_internal/block_batching/util.py``) makes batches, in several threads.

Async functions need nothing: the call that hands them to their event loop copies the context.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.data.operators import Operator, at_work, shown_name
from ray_tracing_hooks._ray.labels import CallLabel, CallLabeler
from ray_tracing_hooks._ray.libraries import when_imported
from ray_tracing_hooks._ray.library_spans import followed_by, in_context
from ray_tracing_hooks._record.current import attach, detach, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.patching import Patches

_MAP_TASKS = {"_map_task": 2, "submit": 1}
"""The function or method of map operators, and the position of the ``TaskContext`` among its arguments."""

_WORKERS = ("MapWorker", "_MapWorker", "HashShuffleAggregator", "FooterReader")
"""How the names of the classes begin whose actors work on blocks."""

_NO_WORK = frozenset({"get_location", "__ray_ready__"})
"""Methods of such actors that only ask whether they are there."""

_NO_STAGE = frozenset({"_map_task", "_shuffle_map_task", "_shuffle_reduce_task", "submit", "finalize"})
"""Functions whose name says no more than the operator's."""


def labeler_for(module: str, class_name: str, function: str) -> CallLabeler | None:
    """The naming of the calls of a function or method of Ray Data, or of the creation of its actors."""
    if not class_name:
        # Functions inside of functions are named with the outer one.
        if function == "_map_task":
            return CallLabeler(_named_by_context(_MAP_TASKS[function]), made)
        return CallLabeler(_named_by_operator(_stage(function)), made)
    class_name = class_name.rpartition(".")[2] if "(" not in class_name else class_name
    if not class_name.startswith(_WORKERS) or function in _NO_WORK:
        return None
    if function == "__init__":
        return CallLabeler(_named_as_creation(class_name))
    if function == "submit" and "MapWorker" in class_name:
        return CallLabeler(_named_by_context(_MAP_TASKS[function]), made)
    return CallLabeler(_named_by_operator(_stage(function)), made)


def _count(operator: Operator | None) -> None:
    if operator is not None:
        operator.submitted += 1


def _stage(function: str) -> str:
    return "" if function in _NO_STAGE else function.strip("_")


def _named_by_context(position: int) -> Any:
    def by(args: Any, _kwargs: Any) -> CallLabel | None:
        _count(at_work.operator)
        context = args[position]
        name, encoded = _of_operator(context.op_name)
        return CallLabel(name, encoded + encode.attribute(names.RAY_DATA_TASK_INDEX, context.task_idx))

    return by


@lru_cache(maxsize=1000)
def _of_operator(name: str) -> tuple[str, bytes]:
    name = shown_name(name)
    return name, encode.attribute(names.RAY_DATA_OPERATOR, name)


def _named_by_operator(stage: str) -> Any:
    attribute = encode.attribute(names.RAY_DATA_STAGE, stage) if stage else b""

    def by(_args: Any, _kwargs: Any) -> CallLabel | None:
        operator = at_work.operator
        _count(operator)
        return CallLabel(operator.name, operator.encoded + attribute, is_carried=True) if operator is not None else None

    return by


def _named_as_creation(class_name: str) -> Any:
    def by(_args: Any, _kwargs: Any) -> CallLabel | None:
        operator = at_work.operator
        if operator is None:
            return None
        operator.actors += 1
        # Older versions of Ray use one class for all operators.
        shown = class_name if operator.name in class_name else f"{class_name.strip('_')}({operator.name})"
        return CallLabel(shown_name(f"{shown}.__init__"), operator.encoded, is_carried=True)

    return by


_PICKLE = b"\x80"
"""The first byte of a pickle."""

_METADATA = ("BlockMetadata", "BlockMetadataWithSchema")
"""The classes of metadata in the versions of Ray."""


class _Made:
    """What one task has made so far."""

    __slots__ = ("blocks", "cpu_time", "memory", "rows", "size")

    def __init__(self) -> None:
        self.rows = self.size = self.blocks = self.memory = 0
        self.cpu_time = 0.0

    def add(self, metadata: Any) -> None:
        self.blocks += 1
        self.rows += getattr(metadata, "num_rows", None) or 0
        self.size += getattr(metadata, "size_bytes", None) or 0
        self.cpu_time += getattr(getattr(metadata, "exec_stats", None), "cpu_time_s", None) or 0.0
        of_task = getattr(metadata, "task_exec_stats", None) or getattr(metadata, "exec_stats", None)
        self.memory = max(self.memory, getattr(of_task, "max_uss_bytes", None) or 0)

    def show(self, span: RecordedSpan) -> None:
        span.set_attributes(
            {
                names.RAY_DATA_ROWS: self.rows,
                names.RAY_DATA_BYTES: self.size,
                names.RAY_DATA_BLOCKS: self.blocks,
                **({names.RAY_DATA_CPU_TIME: round(self.cpu_time, 6)} if self.cpu_time else {}),
                **({names.RAY_DATA_PEAK_MEMORY: self.memory} if self.memory else {}),
            }
        )


_tasks: WeakKeyDictionary[RecordedSpan, _Made] = WeakKeyDictionary()
"""By the spans of the tasks that are running."""


def made(span: RecordedSpan, result: Any) -> None:
    """Add to ``span`` what its task has made: ``result`` is what it returned, or an item that it yielded."""
    if type(result) is bytes:
        found = [pickle.loads(result)] if result.startswith(_PICKLE) else []  # noqa: S301  the task has pickled it
    elif isinstance(result, (tuple, list)):
        found = [each for each in result if _is_metadata(each)] or _shards(result)
    else:
        found = [result]
    found = [each for each in found if _is_metadata(each) or type(each) is _Shards]
    if not found:
        return
    so_far = _tasks.get(span)
    if so_far is None:
        so_far = _tasks[span] = _Made()
    for each in found:
        so_far.add(each)
    so_far.show(span)


def _is_metadata(value: Any) -> bool:
    return type(value).__name__ in _METADATA


class _Shards:
    """The metadata of all parts into which a task has split its input for a shuffle."""

    task_exec_stats = None

    def __init__(self, num_rows: int, size_bytes: int, exec_stats: Any) -> None:
        self.num_rows, self.size_bytes, self.exec_stats = num_rows, size_bytes, exec_stats


def _shards(result: Any) -> list[_Shards]:
    """From ``((metadata of the input, {partition: (rows, bytes)}, schema), part, ...)``."""
    first = result[0] if result else None
    if not (isinstance(first, tuple) and len(first) > 1 and _is_metadata(first[0]) and isinstance(first[1], dict)):
        return []
    sizes = list(first[1].values())
    return [_Shards(sum(rows for rows, _ in sizes), sum(size for _, size in sizes), first[0].exec_stats)]


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
            with guarded("propagating the context to threads of Ray Data"):
                bound = parameters.bind(*args, **kwargs).arguments
                iterator, function = bound["base_iterator"], bound["fn"]
                bound["base_iterator"] = _Steps(iterator, context)
                bound["fn"] = lambda items: _Steps(iter(in_context(function, context)(items)), context)
                args, kwargs = (), dict(bound)
        with hidden_frame:
            return original(*args, **kwargs)

    return call


class _Steps(Iterator[Any]):
    """An iterator, with a context attached during each step."""

    __slots__ = ("_context", "_steps")

    def __init__(self, steps: Iterator[Any], context: Context) -> None:
        self._steps, self._context = steps, context

    def __next__(self) -> Any:
        token = attach(self._context)
        try:
            with hidden_frame:
                return next(self._steps)
        finally:
            detach(token)


def _share_contexts(*_arguments: Any) -> None:
    for instance in _instances():
        _share_context(instance)


THREADS = {"MapTransformer.init": followed_by(_share_contexts, "propagating the context to functions of Ray Data")}


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
