"""What becomes of the records of the standard ``logging`` that are made while a span is current."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from ray_tracing_hooks._record.recorder import Recorder


def begin(
    parts: frozenset[str], recorder: Recorder, *, least: str = "INFO", root: Callable[[], Span | None] = lambda: None
) -> Callable[[], None]:
    """Do with log records what the setting ``logs`` names; returns what ends that.

    ``least`` is the level that records must have to be recorded. ``root`` gives the span of a driver, which is current
    where no other is.
    """
    from ray_tracing_hooks._logs import records  # noqa: PLC0415  only what is asked for

    looks: list[records.Look] = []
    if parts & {"ids", "plain"}:
        looks.append(records.ids(recorder))
    if "events" in parts:
        from ray_tracing_hooks._logs import described  # noqa: PLC0415  as above
        from ray_tracing_hooks._logs.events import events  # noqa: PLC0415

        looks.append(described.selected(events(root), described.level(least)))
    records.watch(looks)
    if "plain" not in parts:
        return records.unwatch
    from ray_tracing_hooks._logs.plain import lines  # noqa: PLC0415  as above

    lines.put()

    def end() -> None:
        lines.take_back()
        records.unwatch()

    return end
