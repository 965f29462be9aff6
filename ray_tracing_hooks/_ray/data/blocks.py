"""What the tasks of operators made, in the workers: the rows and bytes of their blocks, and what they took.

Ray Data measures that itself. A task of a map operator yields a block and its metadata alternately, and the others
return metadata with their blocks (Ray 2.60 ``data/block.py``, ``BlockMetadata``).
"""

from __future__ import annotations

import pickle
from typing import Any
from weakref import WeakKeyDictionary

from ray_tracing_hooks import names
from ray_tracing_hooks._record.span import RecordedSpan

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
