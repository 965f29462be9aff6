"""Findings: what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

PROBLEM, WARNING, GOOD = "problem", "warning", "ok"
"""Severities. A problem loses or delays spans, or tracing itself; a warning may; what is good is said in short."""

_ORDER = (PROBLEM, WARNING, GOOD)


class Diagnosis(NamedTuple):
    """One finding.

    Attributes:
        id: Which check found what, such as ``package-missing``. It is stable, for programs.
        what: What is wrong, as the beginning of a sentence that ends with where.
        where: The names of the nodes; empty for the cluster as a whole.
        advice: What to do, with the command or variable; empty for what is good.
        details: Further lines, such as the text of an error.
    """

    id: str
    severity: str
    what: str
    where: tuple[str, ...] = ()
    advice: str = ""
    details: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "where": list(self.where), "details": list(self.details)}


def merged(findings: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The findings by severity, and those that say the same of several nodes as one."""
    found: dict[tuple[str, ...], Diagnosis] = {}
    for each in findings:
        key = (each.severity, each.id, each.what, each.advice)
        before = found.get(key)
        if before is None:
            found[key] = each
            continue
        found[key] = before._replace(
            where=tuple(dict.fromkeys((*before.where, *each.where))),
            details=tuple(dict.fromkeys((*before.details, *each.details))),
        )
    return sorted(found.values(), key=lambda finding: _ORDER.index(finding.severity))


def where(places: tuple[str, ...], nodes: Mapping[str, Any], shown: int = 4) -> str:
    """Where something is, in words. ``nodes`` are the names of all nodes, and ``shown`` how many are named at most.

    What is on no node is on this machine.
    """
    if not places:
        return ""
    on_nodes = [name for name in places if name in nodes]
    elsewhere = [name for name in places if name not in nodes]
    parts = []
    if len(on_nodes) == len(nodes) > 1:
        parts.append(f"on all {len(nodes)} nodes")
    elif on_nodes:
        rest = len(on_nodes) - shown
        named = ", ".join(on_nodes[:shown]) + (f" and {rest} more" if rest > 0 else "")
        parts.append(f"on {named}")
    if elsewhere:
        parts.append("on this machine")
    return " and ".join(parts)
