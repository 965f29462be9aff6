"""The report of ``doctor --json``, for programs: members are added, and not changed.

An object with:

``version``
    1.
``healthy``
    Whether there is no problem; the exit code is then 0.
``address``, ``session``, ``hook``, ``ray``
    The cluster: its address, session, hook and version of Ray; null where unknown, or without a cluster.
``nodes``
    A list with an object for each node: ``name``, ``id``, ``ip``, ``answered``, ``python``, ``ray``, ``package`` (the
    version of this package), ``exporters``, ``clock_offset`` (seconds ahead of this machine) and ``spools``, as
    ``status --json`` has them. Unknown values are null.
``here``
    The same of this machine.
``findings``
    A list of objects: ``id``, which is stable, ``severity`` (``problem``, ``warning`` or ``ok``), ``what``, ``where``
    (names of nodes, ``here`` for this machine; empty for the cluster), ``advice`` and ``details``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ray_tracing_hooks._ops.facts import Facts, Place, Spool
from ray_tracing_hooks._ops.finding import PROBLEM, Finding

VERSION = 1


def as_json(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """The report."""
    head = facts.head
    return {
        "version": VERSION,
        "healthy": not any(finding.severity == PROBLEM for finding in findings),
        "address": facts.address,
        "session": (head.session or None) if head is not None else None,
        "hook": facts.hook,
        "ray": (head.ray_version or None) if head is not None else None,
        "nodes": [_place(node) for node in facts.nodes],
        "here": _place(facts.here),
        "findings": [finding.as_json() for finding in findings],
    }


def _place(place: Place) -> dict[str, Any]:
    examined = place.examined
    return {
        "name": place.name,
        "id": place.node.id if place.node is not None else None,
        "ip": place.node.ip if place.node is not None else None,
        "answered": place.failure is None,
        "python": place.python or None,
        "ray": place.ray or None,
        "package": place.package or None,
        "exporters": list(examined.exporters) if examined is not None else None,
        "clock_offset": place.clock.offset if place.clock is not None else None,
        "spools": [spool_as_json(spool) for spool in examined.spools] if examined is not None else None,
    }


def spool_as_json(spool: Spool) -> dict[str, Any]:
    """One spool: ``path``, ``shipper_runs``, ``exporters`` and the figures of ``status.json``."""
    return {
        "path": spool.path,
        "shipper_runs": spool.runs,
        "exporters": list(spool.exporters),
        "figures": asdict(spool.figures),
    }
