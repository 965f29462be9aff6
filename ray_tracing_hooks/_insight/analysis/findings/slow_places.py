"""A node or GPU on which the same functions take longer than elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.comparison import mann_whitney
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.functions import Function
from ray_tracing_hooks._insight.analysis.wording import count, duration

KIND = "slow-place"

_CALLS = 5
_TIMES = 1.5
_SURE = 0.01
_COST = 0.05


def find(analysis: Analysis) -> list[Finding]:
    """Nodes and accelerators on which the calls of a function take clearly longer than elsewhere.

    Clearly means a median at least half as long again, and a significant difference by the Mann-Whitney U test.
    """
    calls, table = analysis.calls, analysis.table

    def accelerator(row: int) -> str:
        held = table.attribute(row, names.RAY_ACCELERATOR_IDS)
        return f"{held[0]} of node {calls.place(row).node[:8]}" if isinstance(held, list) and held else ""

    found = []
    for function in analysis.functions:
        node = _slowest(analysis, function, lambda row: calls.place(row).node[:8], "node")
        found += node or _slowest(analysis, function, accelerator, "accelerator")
    return found


def _slowest(analysis: Analysis, function: Function, place_of: Callable[[int], str], what: str) -> list[Finding]:
    by_place: dict[str, list[int]] = {}
    for row in function.executions:
        if place := place_of(row):
            by_place.setdefault(place, []).append(row)
    by_place = {place: rows for place, rows in by_place.items() if len(rows) >= _CALLS}
    if len(by_place) < 2 or not analysis.path.wall:
        return []
    times = {place: [analysis.self_time[row] for row in rows] for place, rows in by_place.items()}
    slowest = max(times, key=lambda place: median(times[place]))
    here = times[slowest]
    elsewhere = [each for place, found in times.items() if place != slowest for each in found]
    usual, slow = round(median(elsewhere)), round(median(here))
    # Only the part on the critical path counts, since other workers could take the calls.
    share = function.on_path / analysis.path.wall * (1 - usual / max(slow, 1))
    if slow < _TIMES * usual or share < _COST or mann_whitney(here, elsewhere) > _SURE / len(times):
        return []
    text = (
        f"{quoted(function.name)} takes {duration(slow)} on {what} {slowest} and {duration(usual)} elsewhere (medians "
        f"of {count(len(here), 'call')} and of {len(elsewhere):,})"
    )
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "place": slowest,
        "what": what,
        "median_ns": slow,
        "elsewhere_median_ns": usual,
        "calls": len(here),
        "calls_elsewhere": len(elsewhere),
    }
    rows = sorted(by_place[slowest], key=lambda row: -analysis.self_time[row])
    advice = f"check what else runs on that {what}, and whether its hardware or the data it has to fetch differs"
    return [Finding(KIND, text, advice, share, rows, figures)]
