"""When worker processes were created, and when they were ready for work, as recorded in their Resource."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
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
            self._of_node[node] = _most(times)

    def full(self, node: str, start: int, end: int) -> list[tuple[int, int]]:
        """The intervals between ``start`` and ``end`` in which another process may have had to wait to start, in order.

        Ray starts no more at once than the node has CPUs, which are not recorded. Where it starts fewer than half of
        the most that it ever did, others could start too.
        """
        its = self._of_node.get(node, [])
        first = bisect_right(its, start, key=lambda each: each[1])
        last = bisect_left(its, end, key=lambda each: each[0])
        return [(max(begun, start), min(ready, end)) for begun, ready in its[first:last]]


def _most(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals in which at least half as many of these are open as ever are."""
    changes = sorted([(begun, 1) for begun, _ in times] + [(ready, -1) for _, ready in times])
    opened = list(accumulate(change for _, change in changes))
    most, found = max(opened), list[tuple[int, int]]()
    for (at, _), (later, _), number in zip(changes, changes[1:], opened, strict=False):
        if 2 * number < most or later == at:
            continue
        if found and found[-1][1] == at:
            found[-1] = found[-1][0], later
        else:
            found.append((at, later))
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
