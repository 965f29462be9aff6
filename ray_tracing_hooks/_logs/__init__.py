"""What becomes of the records of the standard ``logging`` that are made while a span is current."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray_tracing_hooks._record.recorder import Recorder


def begin(parts: frozenset[str], recorder: Recorder) -> Callable[[], None]:
    """Do with log records what the setting ``logs`` names; returns what ends that."""
    from ray_tracing_hooks._logs import records  # noqa: PLC0415  only where it is asked for

    looks: list[records.Look] = []
    if "ids" in parts:
        looks.append(records.ids(recorder))
    records.watch(looks)
    return records.unwatch
