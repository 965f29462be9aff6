"""Stragglers: calls that take far longer than other calls of the same function, while the run waits for them.

If they are tasks for blocks of a dataset that are larger than the others, that is another finding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN
from ray_tracing_hooks._insight.analysis.findings import skewed_blocks
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration, shortened
from ray_tracing_hooks._insight.model.calls import SUBMISSION, WAITS
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy

KIND = "straggler"

_CALLS = 8
_TIMES = 3.0
_COST = 0.05
_LONGEST_ARGUMENTS = 160
_FEW = 0.2
"""The largest share of calls that count as stragglers. If more are slow, the function's durations simply vary."""
_MOST = 0.5
"""The share of all excess over the median that the few must have."""


def find(analysis: Analysis) -> list[Finding]:
    """Functions with a few calls on the critical path that took at least three times the median.

    It measures by how much the code of these calls ran longer than the median on the critical path: from a twentieth
    of the run on. The few are the longest calls that have half of all excess over the median, so that many calls that
    are a little longer than a tiny median hide none. Calls that take turns at two kinds of work look the same if one
    kind is rare. It needs no more than executions; where waits were not recorded, it is assumed.
    """
    wall = analysis.path.wall
    found = []
    on_path = analysis.ran_on_path
    for function in analysis.functions:
        if len(function.executions) < _CALLS or not wall:
            continue
        for rows in _alike(analysis, function):
            times = as_numpy(analysis.self_time)[rows]
            usual = percentile(as_array(np.sort(times), "q"), 0.5)
            slow = _few(times, usual, rows)
            excess = sum(max(0, min(on_path[row], analysis.self_time[row]) - usual) for row in slow)
            if slow and excess / wall >= _COST:
                skewed = skewed_blocks.finding(analysis, rows, slow, usual, excess)
                found.append(skewed or _finding(analysis, function, usual, rows, slow, excess))
    return found


def _few(times: Any, usual: int, rows: list[int]) -> list[int]:
    """The calls that took far longer than the others, the longest first; none if they are not few.

    To those that have most of the excess belong all others that took at least half as long.
    """
    order = np.argsort(-times, kind="stable")
    excess = np.maximum(times[order] - usual, 0)
    if not excess[0]:
        return []
    last = int(np.searchsorted(np.cumsum(excess), _MOST * excess.sum()))
    least = max(times[order[last]] / 2, _TIMES * max(usual, 1))
    few = order[times[order] > least]
    return np.array(rows)[few].tolist() if len(few) <= max(1, _FEW * len(rows)) else []


def _alike(analysis: Analysis, function: Function) -> list[list[int]]:
    """Groups of a function's executions that should take about equally long.

    All executions of a task; all of a method if its actors have few calls each; else those of each actor. The
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
    if max(map(len, by_actor)) < _CALLS:
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
    advice = _advice(analysis, rows, slow[0])
    if not given and slow[0] not in analysis.pipelines.of_task:
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
    title = f"{count(len(slow), 'straggler')} of {quoted(function.name)}"
    return Finding(
        KIND, text, advice, excess / analysis.path.wall, slow, figures, is_assumed, quotes=quotes, title=title
    )


def _advice(analysis: Analysis, rows: list[int], longest: int) -> str:
    """To start it first helps if it was not; to take other results first helps if its caller took
    them itself and then had work to do.
    """
    calls, table = analysis.calls, analysis.table
    if longest in analysis.pipelines.of_task:
        return "see whether one key or file has most of its rows: group by a finer key, or treat that one by itself"
    told = ["split its work into smaller pieces"]
    if min(map(table.end_or_now, rows)) <= table.start[longest]:
        told.append("start it first")
    submission = calls.submission[calls.call_of[longest]]
    caller, end = calls.frame[submission] if submission >= 0 else -1, table.end_or_now(longest)
    later = sum(
        step.end - max(step.start, end)
        for step in analysis.path.steps
        if step.kind == RUN and step.row == caller and step.end > end
    )
    if caller >= 0 and later >= _COST * analysis.path.wall and not _is_only_passed_on(analysis, longest):
        told.append(
            f"take results as they become ready with ray.wait: its caller ran for {duration(later)} afterwards, and "
            "could have begun with other results"
        )
    return "; or ".join(told)


def _is_only_passed_on(analysis: Analysis, row: int) -> bool:
    """Whether the result of an execution is an argument of other calls, and no recorded wait is for itself."""
    calls, objects = analysis.calls, analysis.table.objects
    rows, ids = objects.flat()
    users = {calls.role[each] for each in rows[calls.producers(objects)[ids] == calls.call_of[row]].tolist()}
    return SUBMISSION in users and not users.intersection(WAITS)


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
