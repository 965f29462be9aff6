"""Plans of delivery for tests."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.plan import ShipPlan


def made_plan(
    exporters: tuple[str, ...] = ("local",),
    local_dir: str = "/spans",
    local_file_max_bytes: int = 1 << 20,
    local_max_bytes: int = 1 << 30,
    spool_max_bytes: int = 1 << 30,
    **others: Any,
) -> ShipPlan:
    """A plan of these exporters; ``others`` are settings, or fields of a plan."""
    fields = {name: others.pop(name) for name in ShipPlan._fields if name in others}
    sizes = {
        "local_file_max_bytes": local_file_max_bytes,
        "local_max_bytes": local_max_bytes,
        "spool_max_bytes": spool_max_bytes,
    }
    return ShipPlan(exporters, Settings(local_dir=local_dir, **sizes, **others), **fields)
