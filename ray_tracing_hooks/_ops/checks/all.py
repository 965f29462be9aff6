"""The list of all checks, in the order in which their findings of one severity are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ray_tracing_hooks._ops.checks import asked_back, clocks, delivery, disk, hook, nodes, package, settings, spools
from ray_tracing_hooks._ops.facts import Facts
from ray_tracing_hooks._ops.finding import Finding, merged

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    nodes.check,
    package.check,
    hook.check,
    settings.check,
    delivery.check,
    asked_back.check,
    disk.check,
    spools.check,
    clocks.check,
)


def findings(facts: Facts) -> list[Finding]:
    """What all checks find."""
    return merged(finding for check in CHECKS for finding in check(facts))
