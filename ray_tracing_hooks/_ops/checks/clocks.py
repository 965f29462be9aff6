"""Whether the clocks of the nodes agree: times of spans are by the clock of their node."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low

from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._ops.facts import HERE, Clock, Facts
from ray_tracing_hooks._ops.finding import GOOD, PROBLEM, WARNING, Finding

_NOTICEABLE, _WRONG = 0.1, 10.0
"""Seconds from which on a difference shows in traces, and from which on back ends may refuse or hide spans."""


def check(facts: Facts) -> Iterator[Finding]:
    """Each node, and this machine, against the median of all of them."""
    clocks = {node.name: node.clock for node in facts.answered if node.clock is not None}
    if not clocks:
        return
    clocks[HERE] = Clock(0.0, 0.0)
    middle = median_low(clock.offset for clock in clocks.values())
    furthest = 0.0
    for name, clock in clocks.items():
        apart = clock.offset - middle
        sure = abs(apart) - clock.uncertainty
        furthest = max(furthest, abs(apart), clock.uncertainty)
        if sure > _NOTICEABLE:
            yield Finding(
                "clock",
                PROBLEM if sure > _WRONG else WARNING,
                f"the clock is {duration(abs(apart) * 1e9)} {'ahead' if apart > 0 else 'behind'}",
                (name,),
                "synchronise it, for example with chrony: spans of this node have wrong times, "
                "and back ends may refuse them",
            )
    if furthest <= _NOTICEABLE:
        yield Finding("clocks", GOOD, f"clocks agree within {duration(furthest * 1e9)}")
