"""How executions of datasets and iterations over them end."""

from __future__ import annotations

from ray_tracing_hooks._exceptions import class_name, is_a

FINISHED = "finished"
STOPPED = "stopped"
"""The consumer stopped before the end."""
FAILED = "failed"
CANCELLED = "cancelled"
ABANDONED = "abandoned"
"""The program ended, or disconnected from Ray, before the end."""


def of(error: BaseException | None, *, is_complete: bool) -> str:
    """The outcome of what ``error`` ended, if anything did."""
    if error is None or is_a(error, StopIteration, GeneratorExit):
        return FINISHED if is_complete else STOPPED
    if is_a(error, KeyboardInterrupt) or class_name(error) in {"TaskCancelledError", "CancelledError"}:
        return CANCELLED
    return FAILED
