"""How much of a node was in use over time, as its shipper sampled it (``RAY_TRACING_UTILIZATION``)."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.table import Table

PROCESSORS, MEMORY = "CPU", "Memory"

_GPU, _GPU_MEMORY, _PROCESSORS, _MEMORY = range(4)

_MEMORY_LABEL = " memory"

_GAP = 3
"""Between samples that are this many intervals apart, nothing is known."""


class Key(NamedTuple):
    """What was sampled: sorted, the GPUs of a node come first."""

    node: str
    """Ray's id of the node."""
    order: int
    label: str
    """``GPU:0``, as Ray names it, ``GPU:0 memory``, ``CPU`` or ``Memory``."""

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share already; the memory of a GPU is recorded in bytes."""
        return self.order != _GPU_MEMORY


@dataclass
class Series:
    """The samples of one of them, by time. A sample is about the time since the one before it."""

    times: array[int] = field(default_factory=lambda: array("q"))
    """In nanoseconds since the epoch."""
    values: array[float] = field(default_factory=lambda: array("d"))
    """Shares from 0 to 1."""

    def pieces(self) -> Iterator[tuple[int, int, float]]:
        """Start, end and value of each sample."""
        longest = _GAP * self.resolution
        before = self.times[0] if self.times else 0
        for time, value in zip(self.times, self.values, strict=True):
            if 0 < time - before <= longest:
                yield before, time, value
            before = time

    def within(self, intervals: list[tuple[int, int]]) -> int:
        """How many samples are about disjoint intervals, by start."""
        ends = [end for _, end in intervals]
        places = ((bisect_right(ends, start), until) for start, until, _ in self.pieces())
        return sum(place < len(ends) and intervals[place][0] < until for place, until in places)

    @property
    def resolution(self) -> int:
        """The usual time between two samples, in nanoseconds; 0 with less than two."""
        gaps = sorted(after - before for before, after in zip(self.times, self.times[1:], strict=False))
        return gaps[len(gaps) // 2] if gaps else 0

    def mean(self, intervals: list[tuple[int, int]]) -> float | None:
        """The mean over disjoint intervals, by start; None without a sample of them."""
        total = covered = 0.0
        pieces = list(self.pieces())
        at = 0
        for begin, end in intervals:
            while at and pieces[at - 1][1] > begin:
                at -= 1
            while at < len(pieces) and pieces[at][0] < end:
                start, until, value = pieces[at]
                part = max(0, min(end, until) - max(begin, start))
                total, covered = total + part * value, covered + part
                at += 1
        return total / covered if covered else None


Utilization = dict[Key, Series]


def of_accelerator(found: Utilization, node: str, name: str) -> Series | None:
    """The samples of an accelerator of a node."""
    return found.get(Key(node, _GPU, name))


def key(node: str, metric: str, accelerator: str) -> Key | None:
    """The key of a metric of a node or one of its accelerators; None for any other metric."""
    found: dict[str, Key] = {
        names.GPU_UTILIZATION: Key(node, _GPU, accelerator),
        names.GPU_MEMORY_USAGE: Key(node, _GPU_MEMORY, accelerator + _MEMORY_LABEL),
        names.CPU_UTILIZATION: Key(node, _PROCESSORS, PROCESSORS),
        names.MEMORY_UTILIZATION: Key(node, _MEMORY, MEMORY),
    }
    return found.get(metric)


def of_table(found: Utilization, table: Table) -> Utilization:
    """The samples with the ids of nodes and accelerators, and the clocks, that the table has."""
    return _shifted({_hidden(each, table): series for each, series in found.items()}, table)


def _hidden(found: Key, table: Table) -> Key:
    node, label = table.shown(names.RESOURCE_NODE_ID, found.node), found.label
    if found.order == _GPU:
        label = table.shown(names.RAY_ACCELERATOR_IDS, label)
    elif found.order == _GPU_MEMORY:
        label = table.shown(names.RAY_ACCELERATOR_IDS, label.removesuffix(_MEMORY_LABEL)) + _MEMORY_LABEL
    return Key(node, found.order, label)


def _shifted(found: Utilization, table: Table) -> Utilization:
    if not any(table.shifts):
        return found
    shifts = {
        str(resource.get(names.RESOURCE_NODE_ID)): shift
        for resource, shift in zip(table.resources, table.shifts, strict=False)
    }
    return {
        each: Series(array("q", [time + shifts.get(each.node, 0) for time in series.times]), series.values)
        for each, series in found.items()
    }
