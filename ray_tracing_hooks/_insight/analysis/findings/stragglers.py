"""Stragglers: calls that take far longer than other calls of the same function, while the run waits for them.

If they are tasks for blocks of a dataset that are larger than the others, that is another finding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import skewed_blocks
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration, shortened
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy

KIND = "straggler"

_CALLS = 8
_TIMES = 3.0
_COST = 0.05
_LONGEST_ARGUMENTS = 160
_FEW = 0.2
"""The largest share of calls that count as stragglers. If more are slow, the function's durations simply vary."""


def find(analysis: Analysis) -> list[Finding]:
    """Functions with a few calls on the critical path that took at least three times the median."""
    wall = analysis.path.wall
    found = []
    on_path = analysis.path.executions
    for function in analysis.functions:
        if len(function.executions) < _CALLS or not wall:
            continue
        for rows in _alike(analysis, function):
            times = as_numpy(analysis.self_time)[rows]
            usual = percentile(as_array(np.sort(times), "q"), 0.5)
            slow = np.array(rows)[times > _TIMES * max(usual, 1)].tolist()
            excess = sum(max(0, min(on_path[row], analysis.self_time[row]) - usual) for row in slow)
            if slow and len(slow) <= max(1, _FEW * len(rows)) and excess / wall >= _COST:
                slow.sort(key=lambda row: -analysis.self_time[row])
                skewed = skewed_blocks.finding(analysis, rows, slow, usual, excess)
                found.append(skewed or _finding(analysis, function, usual, rows, slow, excess))
    return found


def _alike(analysis: Analysis, function: Function) -> list[list[int]]:
    """Groups of a function's executions that should take about equally long.

    All executions of a task; all of a method if it has many actors with few calls each; else those of each actor. The
    tasks of an operator of a dataset may be of several stages.
    """
    rows, table = as_numpy(function.executions), analysis.table
    stages: dict[Any, int] = {}
    of_site = np.array([stages.setdefault(site.get(names.RAY_DATA_STAGE), len(stages)) for site in table.sites])
    (by_stage,) = split(of_site[as_numpy(table.site)[rows]], len(stages), rows)
    return [group for each in by_stage if len(each) for group in _by_actor(analysis, each)]


def _by_actor(analysis: Analysis, rows: Any) -> list[list[int]]:
    table = analysis.table
    actors: dict[str, int] = {}
    of_site = np.array([actors.setdefault(place.actor, len(actors)) for place in analysis.calls.places], np.int64)
    of_run = of_site[as_numpy(table.site)[rows]]
    (found,) = split(of_run, len(actors), rows)
    by_actor = [found[number].tolist() for number in by_first(of_run)]
    if len(by_actor) >= _CALLS and max(map(len, by_actor)) < _CALLS:
        return [rows.tolist()]
    return [own for own in by_actor if len(own) >= _CALLS]


def _finding(
    analysis: Analysis, function: Function, usual: int, rows: list[int], slow: list[int], excess: int
) -> Finding:
    longest = analysis.self_time[slow[0]]
    where = _in_common(analysis, rows, slow) or _itself(analysis, slow[0], among=rows)
    up_to, them = ("up to ", "them") if len(slow) > 1 else ("", "it")
    text = (
        f"{count(len(slow), 'call')} of {quoted(function.name)} took {up_to}{duration(longest)}, "
        f"{longest / max(usual, 1):.1f} times the median of {duration(usual)} "
        f"({count(len(rows), 'call')}){where}; the run waited {duration(excess)} longer because of {them}"
    )
    given = _given(analysis, slow[0])
    if given:
        text += f"; arguments of the longest: {given}"
    advice = "split large pieces, start with them, or take results as they become ready with ray.wait"
    if not given:
        advice = f"look at the arguments of these calls (RAY_TRACING_ARGUMENTS=1 records them): {advice}"
    figures: dict[str, float | int | str] = {
        "function": function.name,
        "slow_calls": len(slow),
        "calls": len(rows),
        "longest_ns": longest,
        "median_ns": usual,
        "excess_ns": excess,
        "name": analysis.calls.name_of(slow[0]),
        "node": analysis.calls.place(slow[0]).node,
        "worker": analysis.calls.place(slow[0]).worker,
        "arguments": given,
    }
    quotes = {names.RAY_ARGUMENTS: given}
    is_assumed = analysis.is_assumed(rows)
    text = seems(text, is_assumed=is_assumed)
    return Finding(KIND, text, advice, excess / analysis.path.wall, slow, figures, is_assumed, quotes=quotes)


def _given(analysis: Analysis, row: int) -> str:
    """The arguments of a call, empty if not recorded."""
    given = analysis.table.attribute(row, names.RAY_ARGUMENTS)
    return shortened(str(given), _LONGEST_ARGUMENTS) if given else ""


def _itself(analysis: Analysis, row: int, *, among: list[int]) -> str:
    """What distinguishes the longest call from the others: its name, and where it ran if not all ran there."""
    calls = analysis.calls
    name, place = calls.name_of(row), calls.place(row)
    told = [f'named "{shortened(name)}"'] if name and not calls.function_of(row).endswith(f'"{name}"') else []
    if place.node and any(calls.place(other).node != place.node for other in among):
        told.append(f"on node {place.node[:8]}")
    elif place.worker:
        told.append(f"on worker {place.worker[:8]}")
    return "".join(f", {each}" for each in told)


def _in_common(analysis: Analysis, rows: list[int], slow: list[int]) -> str:
    """What all of the slow calls have in common, but not all calls: a worker or a node."""
    if len(slow) < 2:
        return ""
    calls = analysis.calls
    workers = {row: calls.place(row).worker for row in rows}
    nodes = {row: calls.place(row).node for row in rows}
    for what, place_of in (("worker", workers), ("node", nodes)):
        here = {place_of[row] for row in slow}
        if len(here) == 1 and "" not in here and len(set(place_of.values())) > 1:
            return f", all of them on {what} {here.pop()[:8]}"
    return ""
