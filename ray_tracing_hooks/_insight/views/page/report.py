"""The content of the first screen, from the same analysis as the summary."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

from ray_tracing_hooks._insight.analysis import critical_path as paths
from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, PathStep
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.queues import PHASES
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.calls import WAITS, Calls
from ray_tracing_hooks._insight.views.page.pack import LONGEST_NAME, truncated
from ray_tracing_hooks._insight.views.redaction import Redaction

_MOST_QUEUES = 25

NumberOf = Callable[[int], int]
"""The number of a table row in the page, -1 for no row, or if the page does not show it."""

IndexOf = Callable[[str], int]
"""The index of the function with this name in the graph, -1 for none."""

_WHY = {
    paths.BY_SUBMISSION: "from its submission",
    paths.BY_ARGUMENT: "from when its argument was available",
    paths.BY_CREATION: "from when its actor was created",
    paths.BY_ACTOR: "from when its actor was free",
    paths.BY_WORKER: "from when its worker was free",
    paths.BY_RETRY: "from when the previous attempt failed",
    paths.BY_GET: "from when what it waited for ended",
    paths.BY_ITEM: "from when the item was available",
    paths.BY_RANK: "from when the last rank came to the step",
    paths.BY_CODE: "",
    paths.BY_NOTHING: "",
}


def facts(analysis: Analysis) -> list[list[Any]]:
    """Labels and figures of the run; a third item marks a bad figure."""
    path = analysis.path
    failed = int(np.count_nonzero(analysis.is_failed))
    parallel = analysis.parallelism
    found: list[list[Any]] = [] if analysis.is_part else [["wall time", duration(path.wall)]]
    if (served := analysis.requests) is not None:
        found.append(["requests", f"{served.count + served.running + served.unrecorded:,}"])
        found.append(["failed requests", f"{served.failed:,}", bool(served.failed)])
    found.append(["failed spans", f"{failed:,}", bool(failed)])
    if parallel.workers and not analysis.is_part:
        found.append([f"calls running on average, at most {parallel.peak:,}", f"{parallel.average:.1f}"])
    return found


def queues(analysis: Analysis) -> dict[str, Any] | None:
    """What calls waited for before they ran, by function; None without Ray's task states."""
    found = analysis.queues
    if not found:
        return None
    known = sum(each.calls for each in found)
    dropped = f" Ray dropped {count(each, 'task event')}." if (each := analysis.states.dropped) else ""
    return {
        "about": "What calls waited for before they ran, added up over "
        f"{known:,} of {count(len(analysis.calls), 'call')}, from the task states that Ray recorded.{dropped}",
        "titles": ["Function", "Calls", "Queued", *(phase.capitalize() for phase in PHASES)],
        "rows": [
            [truncated(each.name, LONGEST_NAME), each.calls, each.total, *(each.times[phase] for phase in PHASES)]
            for each in found[:_MOST_QUEUES]
        ],
    }


def critical_path(analysis: Analysis, row: NumberOf, function: IndexOf) -> dict[str, Any]:
    """The path: its time by function and by kind of wait, each wait with its breakdown; and its steps.

    It has no steps if the run ends with a request: ``requests`` says what its time went to.
    """
    path, table = analysis.path, analysis.table
    if not analysis.shown_steps:
        return {"steps": [], "by": [], "total": path.wall, "about": ""}
    begin = table.start[0] if len(table) else 0
    groups = breakdown(analysis.calls, path.steps)

    def group(found: TimeGroup) -> dict[str, Any]:
        rows = [shown for each in found.rows(len(table)) if (shown := row(each)) >= 0]
        label = truncated(found.function, LONGEST_NAME)
        figures = {"ns": found.ns, "most": found.most, "calls": len(found.of), "rows": rows}
        return {"label": label, "function": function(found.function), **figures}

    by: list[dict[str, Any]] = [
        {"label": name, "kind": paths.RUN, "function": function(name), "ns": ns, "share": ns / path.wall, "by": []}
        for name, ns in path.functions.most_common()
        if ns > 0
    ]
    by += [
        {
            "label": paths.MEANINGS[kind],
            "kind": kind,
            "function": -1,
            "ns": path.kinds[kind],
            "share": path.kinds[kind] / path.wall,
            "by": [group(each) for each in groups.get(kind, ())[:MOST_GROUPS]],
        }
        for kind in paths.KINDS
        if kind not in (paths.RUN, paths.SUBMIT) and path.kinds[kind] > 0
    ]
    by.sort(key=lambda each: -each["ns"])
    return {
        "steps": [
            {
                "cause": step.kind,
                "start": step.start - begin,
                "end": step.end - begin,
                "row": row(step.row),
                "from": row(step.source) if step.edge not in (paths.BY_CODE, paths.BY_NOTHING) else -1,
                "why": _WHY[step.edge] + (" (assumed)" if step.is_assumed else ""),
            }
            for step in path.steps
        ],
        "by": by[:40],
        "total": path.wall,
        "about": "The work and waits that determined when the run ended; the cost of a finding is a part of this. "
        + recorded.bound(analysis.calls, path),
    }


def described(found: Iterable[Finding], row: NumberOf, redaction: Redaction, wall: int) -> list[dict[str, Any]]:
    """The findings of a run of ``wall`` nanoseconds for the page, in their order."""
    return [
        {
            "kind": finding.kind,
            "title": finding.headline,
            "text": _text(finding, redaction),
            "cost": (cost := finding.cost(wall)),
            "share": percent(finding.share) if cost else "",
            "advice": finding.advice,
            "level": "error" if finding.is_failure else "warning",
            "rows": [shown for each in finding.rows if (shown := row(each)) >= 0],
        }
        for finding in found
    ]


def documentation() -> str:
    """The address of the page on findings, by the installed package; empty if that does not name the documentation."""
    try:
        urls = metadata.metadata("ray-tracing-hooks").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return ""
    base = dict(each.split(", ", 1) for each in urls).get("Documentation", "")
    return base and f"{base}/reference/findings.md"


def nothing_found(analysis: Analysis) -> str:
    """The text if there are no findings; empty if there may be some in the rest of the run."""
    if analysis.is_part:
        return ""
    gaps = recorded.gaps(analysis)
    failures = "" if analysis.is_failed.any() else "no failures, "
    return f"Nothing stands out{gaps}: {failures}no stragglers, no bottlenecks, and no costly patterns."


def quality(analysis: Analysis) -> list[str]:
    """What was read and what is wrong with it, in sentences."""
    found = analysis.table.quality
    lines = [f"Read {count(found.files, 'file')} with {count(found.lines, 'line')} and {count(found.spans, 'span')}."]
    lines += [f"{each}." for each in recorded.of_all(found)]
    if (parallel := analysis.parallelism).workers:
        where = f"{count(parallel.workers, 'worker')} on {count(max(1, parallel.nodes), 'node')}"
        lines.append(f"{count(len(analysis.calls), 'call')} ran in {where}.")
    if analysis.shown_steps:
        lines.append(f"The critical path explains {percent(analysis.path.coverage)} of the time.")
    if (several := len(analysis.calls.drivers())) > 1:
        lines.append(
            f"There are {several:,} drivers: the critical path, the split of the time and the shares of findings are "
            "of the one that ended last."
        )
    if len(analysis.table) != found.spans:
        lines.append("All this is for all runs that were read; the rest is for what is shown.")
    return (
        lines
        if analysis.is_part
        else [*lines, *(f"{each[:1].upper()}{each[1:]}." for each in recorded.of_run(analysis))]
    )


def _text(finding: Finding, redaction: Redaction) -> str:
    """The evidence as a sentence: its first word has a capital letter, unless it is a name."""
    text = redaction.evidence(finding)
    word = _FIRST_WORD.match(text)
    names_of = set(map(quoted, finding.about.values()))
    return text[:1].upper() + text[1:] if word and word[0] not in names_of else text


_FIRST_WORD = re.compile(r"[a-z]+(?=[ ,])")


MOST_GROUPS = 20
MOST_ROWS = 20


@dataclass
class TimeGroup:
    """Time of one kind in one function, in nanoseconds."""

    function: str
    ns: int = 0
    most: int = 0
    """The longest single part of it."""
    of: dict[int, int] = field(default_factory=dict)
    """The part of each span, by its row; the row is -1 or beyond the table where there is no span."""

    def rows(self, size: int) -> list[int]:
        """The rows of spans in a table of this size, largest time first; at most ``MOST_ROWS``."""
        return heapq.nlargest(MOST_ROWS, (row for row in self.of if 0 <= row < size), key=self.of.__getitem__)


def breakdown(calls: Calls, steps: Sequence[PathStep]) -> dict[str, list[TimeGroup]]:
    """The groups of each kind of wait among these steps of a path, largest first."""
    found: dict[str, dict[str, TimeGroup]] = {}
    for step in steps:
        length = step.took
        if step.kind == RUN or length <= 0:
            continue
        function = _function(calls, step.row)
        group = found.setdefault(step.kind, {}).setdefault(function, TimeGroup(function))
        group.ns += length
        group.most = max(group.most, length)
        group.of[step.row] = group.of.get(step.row, 0) + length
    return {kind: sorted(groups.values(), key=lambda each: (-each.ns, each.function)) for kind, groups in found.items()}


def _function(calls: Calls, row: int) -> str:
    """The function that a step belongs to; for a wait, the function that waited."""
    if row < 0:
        return "no span"
    if row < len(calls.table) and calls.role[row] in WAITS:
        return calls.frame_name(calls.frame[row])
    return calls.frame_name(row)
