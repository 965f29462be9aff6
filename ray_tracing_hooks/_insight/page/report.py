"""What the first screen says, from the analysis that the summary is made of."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ray_tracing_hooks._insight import path as paths
from ray_tracing_hooks._insight.analysis import Analysis
from ray_tracing_hooks._insight.findings import failures, unfinished
from ray_tracing_hooks._insight.findings.finding import Finding
from ray_tracing_hooks._insight.page.details import shortened
from ray_tracing_hooks._insight.queues import PHASES
from ray_tracing_hooks._insight.redaction import Redaction
from ray_tracing_hooks._insight.text import count, duration, percent

_LONGEST_NAME = 500
_MOST_QUEUES = 25

Row = Callable[[int], int]
"""The number in the page of a row of the table, -1 for one that the page does not show, or that is none."""

_WHY = {
    paths.BY_SUBMISSION: "since it was submitted",
    paths.BY_ARGUMENT: "since its argument was there",
    paths.BY_CREATION: "since its actor was made",
    paths.BY_ACTOR: "since its actor was free",
    paths.BY_WORKER: "since its worker was free",
    paths.BY_RETRY: "since the attempt before had failed",
    paths.BY_GET: "since what it waited for had ended",
    paths.BY_ITEM: "since the item was there",
    paths.BY_CODE: "",
    paths.BY_NOTHING: "",
}


def facts(analysis: Analysis) -> list[list[Any]]:
    """Labels and figures of the whole run; a third item says that a figure is bad."""
    table, path = analysis.table, analysis.path
    errors = sum(map(table.failed, range(len(table))))
    parallel = analysis.parallelism
    found: list[list[Any]] = [
        ["wall time", duration(path.wall)],
        ["spans", f"{len(table):,}"],
        ["calls", f"{len(analysis.calls):,}"],
        ["errors", f"{errors:,}", bool(errors)],
    ]
    if parallel.workers:
        found += [["workers", f"{parallel.workers:,}"], ["running at once, on average", f"{parallel.average:.1f}"]]
    if parallel.nodes > 1:
        found.append(["nodes", f"{parallel.nodes:,}"])
    if path.steps:
        found.append(["of the time explained", percent(path.coverage)])
    return found


def split(analysis: Analysis) -> dict[str, Any] | None:
    """The wall time by what it was spent on."""
    path = analysis.split
    if not path.wall:
        return None
    return {
        "of": f"The {duration(path.wall)} until the end of the driver, by what it waited for. {_mode(path)} An actor "
        "or worker that was busy counts as such here; the critical path below goes on into what kept it busy.",
        "parts": [
            {"label": paths.MEANINGS[kind], "ns": path.kinds[kind], "share": path.kinds[kind] / path.wall}
            for kind in paths.KINDS
            if path.kinds[kind] > 0
        ],
    }


def queues(analysis: Analysis) -> dict[str, Any] | None:
    """What calls waited for before they ran, by function; None where Ray's states of tasks are not there."""
    found = analysis.queues
    if not found:
        return None
    known = sum(each.calls for each in found)
    dropped = f" Ray has not kept {count(each, 'event')} of tasks." if (each := analysis.states.dropped) else ""
    return {
        "about": f"What calls waited for before they ran, together: {known:,} of {count(len(analysis.calls), 'call')}, "
        f"by Ray's states of tasks.{dropped}",
        "titles": ["Function", "Calls", "Queued", *(phase.capitalize() for phase in PHASES)],
        "rows": [
            [shortened(each.name, _LONGEST_NAME), each.calls, each.total, *(each.times[phase] for phase in PHASES)]
            for each in found[:_MOST_QUEUES]
        ],
    }


def critical_path(
    analysis: Analysis, row: Row, function: Callable[[str], int], most_steps: int = sys.maxsize
) -> dict[str, Any]:
    """The path step by step, and its time by function and by what else it was spent on; of more steps the longest."""
    path, table = analysis.path, analysis.table
    steps = longest_steps(path, most_steps)
    begin = table.start[0] if len(table) else 0
    by: list[dict[str, Any]] = [
        {"label": name, "function": function(name), "ns": ns, "share": ns / path.wall}
        for name, ns in path.functions.most_common()
        if ns > 0
    ]
    by += [
        {"label": paths.MEANINGS[kind], "function": -1, "ns": path.kinds[kind], "share": path.kinds[kind] / path.wall}
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
            for step in steps
        ],
        "by": by[:40],
        "total": path.wall,
        "about": f"What the end of the run waited for, back to its beginning. {_mode(path)} "
        "A function that took no time would make the run shorter by its share at most."
        + (
            f" Drawn are the {len(steps):,} longest of its {len(path.steps):,} steps."
            if len(steps) < len(path.steps)
            else ""
        ),
    }


def longest_steps(path: paths.Path, most: int) -> list[paths.Step]:
    """At most so many steps of a path, in their order."""
    if len(path.steps) <= most:
        return path.steps
    longest = heapq.nlargest(most, range(len(path.steps)), key=lambda at: path.steps[at].end - path.steps[at].start)
    return [path.steps[at] for at in sorted(longest)]


def described(found: Iterable[Finding], row: Row, redaction: Redaction) -> list[dict[str, Any]]:
    """The findings, in their order."""
    return [
        {
            "id": finding.kind,
            "text": _text(finding, redaction) + (" (assumed: waiting was not recorded)" if finding.is_assumed else ""),
            "advice": finding.advice,
            "level": "error" if finding.kind in (*failures.KINDS, unfinished.KIND) else "warning",
            "rows": [shown for each in finding.rows if (shown := row(each)) >= 0],
        }
        for finding in found
    ]


def quality(analysis: Analysis) -> list[str]:
    """What is wrong with the data, in sentences, and what was read."""
    found = analysis.table.quality
    lines = [f"Read {count(found.files, 'file')} with {count(found.lines, 'line')} and {count(found.spans, 'span')}."]
    if found.bad_lines:
        lines.append(f"{count(found.bad_lines, 'bad line')} skipped; the first: {found.problems[0]}")
    for number, one, many in (
        (found.dropped, "span could not be recorded", "spans could not be recorded"),
        (found.orphans, "span names a parent that is missing", "spans name a parent that is missing"),
        (
            found.lost,
            "span was cut off as its process died",
            "spans were cut off as their processes died",
        ),
        (found.running, "span still ran", "spans still ran"),
        (found.circles, "parent would be its own ancestor", "parents would be their own ancestors"),
        (found.negative, "span ended before it began", "spans ended before they began"),
        (found.duplicates, "duplicate", "duplicates"),
    ):
        if number:
            lines.append(f"{count(number, one, many)}.")
    for machine, shift in found.clocks.items():
        lines.append(f"The clock of {machine} was set right by {'-' if shift < 0 else '+'}{duration(abs(shift))}.")
    if analysis.path.clamped:
        lines.append(f"On the critical path causes ended {duration(analysis.path.clamped)} after their effects.")
    return lines


def _mode(path: paths.Path) -> str:
    mode = (
        "Exact: waiting was recorded."
        if path.is_exact
        else "Inferred: waiting was not recorded everywhere; RAY_TRACING_RAY=task,actor,job,get,wait makes it exact."
    )
    return mode + (" Estimated: it goes through spans that have not ended." if path.is_estimated else "")


def _text(finding: Finding, redaction: Redaction) -> str:
    if finding.kind not in failures.KINDS or (redaction.attributes and not redaction.hides("exception.message")):
        return finding.text
    # The sentence quotes the text of an error.
    return f"{count(int(finding.figures['executions']), 'execution')} failed or did not end ({finding.kind})"
