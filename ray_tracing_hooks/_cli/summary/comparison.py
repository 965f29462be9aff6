"""What a summary says of its run compared with an earlier one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ray_tracing_hooks._cli.screen import Row, aligned
from ray_tracing_hooks._cli.summary.document import run
from ray_tracing_hooks._insight.analysis.comparison import METHOD, Change, Comparison, FunctionChange
from ray_tracing_hooks._insight.analysis.critical_path import MEANINGS
from ray_tracing_hooks._insight.analysis.findings import Finding
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, plain, shortened

_SHOWN_KINDS = 4
_SHOWN_FINDINGS = 3
_SHOWN_TIMES = 4
_SHOWN_NAMES = 3
_NAME_WIDTH = 40


def lines(found: Comparison) -> Iterator[str | Row]:
    """What differs from the earlier run, on some fifteen lines."""
    now, before = found.now.path.wall, found.before.path.wall
    start = datetime.fromtimestamp(found.before.path.start / 1e9).astimezone()
    yield ""
    yield f"Against {_name(found.before.name)} of {start:%Y-%m-%d %H:%M:%S}"
    if found.differences:
        yield f" These runs cannot be compared in full: {'; '.join(found.differences)}."
    ratio = f" (x{now / before:.2f})" if before else ""
    yield (
        f" The run took {duration(before)} before and {duration(now)} now{ratio}. One run of each does not tell a "
        "change of the program from one of the machine's load: repeat both."
    )
    yield from _split(found)
    yield from _findings(found)
    yield from _times(found)


def _split(found: Comparison) -> Iterator[Row]:
    rows = [
        (
            MEANINGS[each.kind].partition(":")[0],
            duration(each.before),
            duration(each.now),
            _difference(each.now - each.before),
        )
        for each in found.split[:_SHOWN_KINDS]
        if each.now or each.before
    ]
    if rows:
        yield from aligned(("WHERE THE TIME WENT, WITH QUEUES", "BEFORE", "NOW", "DIFFERENCE"), rows)


def _findings(found: Comparison) -> Iterator[str | Row]:
    changed = [each for each in found.findings if not (each.now and each.before)]
    kept = len(found.findings) - len(changed)
    in_both = f"{kept:,} in both runs" if kept else ""
    if not changed:
        yield f" Findings: {in_both or 'none in either run'}."
        return
    rows = [
        (
            f"{each.kind} {_name(each.subject)}".rstrip(),
            _cost(each.before, each.cost_before),
            _cost(each.now, each.cost),
            "came" if each.now else "gone",
        )
        for each in changed[:_SHOWN_FINDINGS]
    ]
    yield from aligned(("FINDINGS, WITH THE MOST THEY COST", "BEFORE", "NOW", "CHANGE"), rows)
    more = f"{count(len(changed) - len(rows), 'other')} came or went" if len(changed) > len(rows) else ""
    if more or in_both:
        yield f" and {listed([each for each in (more, in_both) if each])}"


def _times(found: Comparison) -> Iterator[str | Row]:
    changed = sorted(
        (
            (function, which, change)
            for function in found.functions
            for which, change in (
                ("self time", function.own),
                ("queued", function.queued),
                (".remote()", function.submitting),
            )
            if change is not None and (change.is_longer or change.is_shorter)
        ),
        key=lambda each: -abs(each[2].cost),
    )
    rows = [
        (
            _name(function.function),
            which,
            duration(change.median_before),
            duration(change.median),
            f"x{change.ratio:.2f}",
            f"x{change.low:.2f} to x{change.high:.2f}",
            f"{function.calls_before:,} / {function.calls:,}",
        )
        for function, which, change in changed[:_SHOWN_TIMES]
    ]
    if rows:
        titles = ("MEDIANS THAT CHANGED", "OF", "BEFORE", "NOW", "RATIO", "RANGE", "CALLS")
        yield from aligned(titles, rows)
    parts = list(_others(found.functions, len(changed) - len(rows)))
    if parts:
        yield f" {'; '.join(parts)}."


def _others(functions: Sequence[FunctionChange], more: int) -> Iterator[str]:
    """Functions that the table leaves out, in groups."""
    if more:
        yield f"and {count(more, 'other median')}"
    groups: Counter[str] = Counter()
    for each in functions:
        if not (each.calls and each.calls_before):
            continue
        if not each.is_comparable:
            groups["self times not compared, since waits were not recorded in both runs alike"] += 1
        elif all(one.low is None for one in each.changes):
            groups["too few calls to tell"] += 1
        elif not any(one.is_longer or one.is_shorter for one in each.changes):
            groups["no clear change"] += 1
    for what, many in groups.most_common():
        yield f"{what}: {count(many, 'function')}"
    for when, only in (
        ("before", [each for each in functions if not each.calls]),
        ("now", [each for each in functions if not each.calls_before]),
    ):
        if only:
            some = [_name(each.function) for each in only[:_SHOWN_NAMES]]
            others = [count(len(only) - len(some), "other")] if len(only) > len(some) else []
            yield f"called only {when}: {listed([*some, *others])}"


def _difference(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else "+"
    return f"{sign}{duration(abs(nanoseconds))}" if nanoseconds else ""


def _cost(finding: Finding | None, cost: int) -> str:
    """The cost of a finding, which may have none."""
    return "none" if finding is None else duration(cost) if cost else "found"


def _name(name: str) -> str:
    return shortened(plain(name), _NAME_WIDTH)


def document(found: Comparison) -> dict[str, Any]:
    """The member ``against`` of the JSON."""
    return {
        "run": run(found.before),
        "method": METHOD,
        "differences": found.differences,
        "time_split": [{"kind": each.kind, "ns": each.now, "before_ns": each.before} for each in found.split],
        "findings": [
            {
                "kind": each.kind,
                "subject": each.subject,
                "change": "stayed" if each.now and each.before else "came" if each.now else "went",
                "text": each.now.text if each.now else None,
                "text_before": each.before.text if each.before else None,
                "cost_ns": each.cost,
                "cost_before_ns": each.cost_before,
            }
            for each in found.findings
        ],
        "functions": [
            {
                "function": each.function,
                "calls": each.calls,
                "calls_before": each.calls_before,
                "self_ns": each.self_time,
                "self_before_ns": each.self_time_before,
                "on_path_ns": each.on_path,
                "on_path_before_ns": each.on_path_before,
                "is_comparable": each.is_comparable,
                "self": _change(each.own),
                "queued": _change(each.queued),
                "submitting": _change(each.submitting),
            }
            for each in found.functions
        ],
    }


def _change(found: Change | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "median_ns": found.median,
        "median_before_ns": found.median_before,
        "ratio": found.ratio,
        "ratio_low": found.low,
        "ratio_high": found.high,
        "cost_ns": found.cost,
        "is_longer": found.is_longer,
        "is_shorter": found.is_shorter,
    }
