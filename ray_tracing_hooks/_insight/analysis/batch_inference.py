"""Operators of datasets that call an LLM engine: what all of their generations add up to, also those without a span."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.pipelines import Pipelines
from ray_tracing_hooks._insight.model.span import number
from ray_tracing_hooks._insight.model.table import Table

_PER_OCTAVE = 8
"""Buckets of times, as in the attributes."""


@dataclass
class Generating:
    """The generations of one operator."""

    row: int
    name: str
    count: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens."""
    time: int = 0
    """Nanoseconds from its first task with generations to the end of the last."""
    first: Counter[int] = field(default_factory=Counter)
    """How many had each time to the first chunk, by bucket."""
    queue: Counter[int] = field(default_factory=Counter)
    """The same of the time in the engine's queue."""

    @property
    def per_second(self) -> float:
        """Tokens that were generated each second."""
        return self.output * 1e9 / self.time if self.time else 0.0


def percentile_of(buckets: Counter[int], share: float) -> int | None:
    """The percentile of times in buckets, in nanoseconds, exact to about 5 %; None without any."""
    wanted = share * buckets.total()
    ordered = sorted(buckets)
    reached = zip(ordered, accumulate(buckets[each] for each in ordered), strict=True)
    return next((round(1000 * 2 ** ((each + 0.5) / _PER_OCTAVE)) for each, sofar in reached if sofar >= wanted), None)


def generating_operators(table: Table, pipelines: Pipelines) -> list[Generating]:
    """Those of all executions of datasets, the one with most tokens first."""
    found = []
    for operator in (each for execution in pipelines.executions for each in execution.operators):
        one = Generating(operator.row, operator.name)
        rows = []
        for row in table.as_recorded(operator.executions):
            attributes = table.span(row).attributes
            if count := number(attributes.get(names.RAY_LLM_GENERATIONS)):
                rows.append(row)
                one.count += count
                one.input += number(attributes.get(names.RAY_LLM_TOTAL_INPUT))
                one.output += number(attributes.get(names.RAY_LLM_TOTAL_OUTPUT))
                one.cached += number(attributes.get(names.RAY_LLM_TOTAL_CACHED))
                one.first.update(_pairs(attributes.get(names.RAY_LLM_FIRST_BUCKETS)))
                one.queue.update(_pairs(attributes.get(names.RAY_LLM_QUEUE_BUCKETS)))
        if rows:
            one.time = max(map(table.end_or_now, rows)) - min(table.start[row] for row in rows)
            found.append(one)
    return sorted(found, key=lambda each: (-each.output, each.row))


def _pairs(flat: Any) -> Counter[int]:
    """From ``[bucket, count, ...]``; nothing if it is something else. No time is longer than a century."""
    if (
        not isinstance(flat, (list, tuple))
        or len(flat) % 2
        or not all(type(each) is int and each >= 0 for each in flat)
    ):
        return Counter()
    return Counter({bucket: count for bucket, count in zip(flat[::2], flat[1::2], strict=True) if bucket < 500})
