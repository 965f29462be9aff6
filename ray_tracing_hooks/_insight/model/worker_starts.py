"""When worker processes were created, and when they were ready for work, as recorded in their Resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.table import Table


@dataclass(frozen=True)
class Start:
    """The start of one worker process. Times are nanoseconds since the epoch."""

    created: int
    ready: int
    """When it had connected to Ray."""
    node: str
    processors: int
    """How many processors its node has; 0 if unknown."""


class Workers:
    """The workers that recorded the spans of a table."""

    def __init__(self, table: Table) -> None:
        shifts = table.shifts or [0] * len(table.resources)
        self.of_resource = [_start(resource, shift) for resource, shift in zip(table.resources, shifts, strict=True)]
        """For each resource of the table the start of its worker; None if not recorded."""
        self._of_node: dict[str, list[tuple[int, int]]] = {}
        for index in dict.fromkeys(table.resource):
            if (start := self.of_resource[index]) is not None:
                self._of_node.setdefault(start.node, []).append((start.created, start.ready))
        for node, times in self._of_node.items():
            self._of_node[node] = _merged(times)

    def starting(self, node: str, start: int, end: int) -> list[tuple[int, int]]:
        """The intervals between ``start`` and ``end`` in which processes of the node were starting, in order."""
        return [
            (max(begun, start), min(ready, end))
            for begun, ready in self._of_node.get(node, ())
            if begun < end and ready > start
        ]


def _merged(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begun, ready in sorted(times):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ready)
        else:
            found.append((begun, ready))
    return found


def _start(resource: Mapping[str, Any], shift: int) -> Start | None:
    ready, told = resource.get(names.RESOURCE_WORKER_READY), resource.get(names.RESOURCE_CREATION_TIME)
    if not isinstance(ready, int) or not isinstance(told, str):
        return None
    try:
        created = round(datetime.fromisoformat(told.replace("Z", "+00:00")).timestamp() * 1000) * 1_000_000
    except (ValueError, OverflowError):
        return None
    if not 0 < created < ready:
        return None
    processors = resource.get(names.RESOURCE_PROCESSORS)
    node = str(resource.get(names.RESOURCE_NODE_ID) or resource.get("host.name") or "")
    return Start(created + shift, ready + shift, node, processors if isinstance(processors, int) else 0)
