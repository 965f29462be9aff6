"""Correlates records of the standard ``logging`` with traces, and records them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._spool.writer import SpoolWriter


class Process(NamedTuple):
    """The parts of this process that log records are correlated with.

    Attributes:
        recorder: The recorder of this process.
        writer: Its spool writer.
        resource: Its encoded resource.
        skywalking_id: Returns SkyWalking's id of the trace of a context, or of the trace with this id.
    """

    recorder: Recorder
    writer: SpoolWriter
    resource: bytes
    skywalking_id: Callable[[Context, bytes], str] | None = None


def begin(parts: frozenset[str], process: Process, *, least: str = "INFO") -> Callable[[], None]:
    """Handle log records as the setting ``logs`` asks; returns a function that ends it.

    ``least`` is the lowest level that is recorded.
    """
    from ray_tracing_hooks._logs import records  # noqa: PLC0415  opt-in

    observers: list[records.Observer] = []
    if "ids" in parts:
        observers.append(records.ids(process.recorder))
    if "tid" in parts and process.skywalking_id is not None:
        observers.append(records.skywalking_ids(process.recorder, process.skywalking_id))
    if "otlp" in parts:
        from ray_tracing_hooks._logs.otlp import otlp  # noqa: PLC0415  as above

        observers.append(otlp(process.recorder, process.writer, process.resource, least))
    records.watch(observers)
    return records.unwatch
