"""The queues of an operator over time, from its first work on, looked at by the thread of its executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._ray.data.executor import state_of

_MOST = 120
"""The most moments: then every second one is dropped, and the interval doubles."""

_FIRST_INTERVAL = 0.2


class Moments:
    """The moments in an execution at which all its operators are looked at.

    Attributes:
        next: The next one, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._began = monotonic()
        self._interval = _FIRST_INTERVAL
        self.next = self._began + self._interval
        self._count = 0

    def look(self, now: float, timelines: list[Timeline]) -> None:
        """Look at the operators that are at work."""
        if self._count >= _MOST:
            self._count //= 2
            self._interval *= 2
            for timeline in timelines:
                timeline.halve()
        self._count += 1
        self.next = now + self._interval
        for timeline in timelines:
            timeline.look(round(now - self._began, 3))


class Timeline:
    """What was seen of one operator of an executor, a row for each moment."""

    def __init__(self, op: Any, executor: Callable[[], Any]) -> None:
        self._op, self._executor = op, executor
        self._rows: list[tuple[float, int, int, int, int]] = []

    def halve(self) -> None:
        """Drop every second row."""
        self._rows = self._rows[1::2]

    def look(self, seconds: float) -> None:
        """Add a row for this moment of the execution."""
        state, metrics = state_of(self._op, self._executor()), self._op._metrics  # noqa: SLF001  as in `totals`
        self._rows.append(
            (
                seconds,
                _call(state, "total_enqueued_input_blocks", "total_enqueued_input_bundles"),
                _call(state, "total_enqueued_input_blocks_bytes", "input_queue_bytes", "inqueue_memory_usage"),
                getattr(metrics, "num_tasks_running", 0),
                getattr(metrics, "row_outputs_taken", getattr(metrics, "rows_task_outputs_generated", 0)),
            )
        )

    def attributes(self) -> dict[str, Any]:
        """What was seen, as attributes of the operator; nothing if it was over before the first look."""
        if not self._rows:
            return {}
        seconds, blocks, size, running, rows = zip(*self._rows, strict=True)
        return {
            names.RAY_DATA_TIMELINE_SECONDS: seconds,
            names.RAY_DATA_TIMELINE_QUEUED_BLOCKS: blocks,
            names.RAY_DATA_TIMELINE_QUEUED_BYTES: size,
            names.RAY_DATA_TIMELINE_RUNNING_TASKS: running,
            names.RAY_DATA_TIMELINE_ROWS: rows,
        }


def _call(state: Any, *methods: str) -> int:
    """The result of the first of these methods that this version of Ray has."""
    for name in methods:
        method = getattr(state, name, None)
        if method is not None:
            return int(method())
    return 0
