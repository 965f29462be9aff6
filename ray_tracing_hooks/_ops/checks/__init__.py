"""All checks, in the order in which their findings of one severity are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ray_tracing_hooks._ops.checks import delivery, nodes, settings
from ray_tracing_hooks._ops.diagnosis import Diagnosis, merged
from ray_tracing_hooks._ops.facts import Facts

CHECKS: tuple[Callable[[Facts], Iterator[Diagnosis]], ...] = (
    nodes.check,
    nodes.check_packages,
    settings.check_hook,
    settings.check,
    delivery.check,
    delivery.check_folders,
    delivery.check_spools,
    nodes.check_clocks,
)


def findings(facts: Facts) -> list[Diagnosis]:
    """What all checks find."""
    return merged(finding for check in CHECKS for finding in check(facts))
