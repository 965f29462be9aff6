"""A node, a GPU or an actor on which the same functions take longer than on its peers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import Function
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_numpy

KIND = "slow-place"

_CALLS = 5
_TIMES = {"node": 1.1, "accelerator": 1.1, "actor": 1.5}
"""The least factor. Actors of a class differ in their data, so that small differences between them mean little."""
_SURE = 0.01
_COST = 0.025


def find(analysis: Analysis) -> list[Finding]:
    """Nodes, accelerators and actors on which the calls of a function take clearly longer than on the others.

    Clearly means a median longer by a tenth, by half for actors, and a significant difference by the Mann-Whitney U
    test, corrected for the number of places that are compared. That needs five calls in each of two places. It measures
    the excess over the others' median on the critical path, from a fortieth of the run on. Work that differs by place
    looks the same, so the advice names that too. Where waits were not recorded, times are assumed.
    """
    places = analysis.calls.places
    nodes = [place.node[:8] for place in places]
    held = [site.get(names.RAY_ACCELERATOR_IDS) for site in analysis.table.sites]
    accelerators = [
        f"{ids[0]} of node {node}" if isinstance(ids, list) and ids else ""
        for ids, node in zip(held, nodes, strict=True)
    ]
    actors = [place.actor for place in places]
    found = []
    for function in analysis.functions:
        for places_of, what in ((nodes, "node"), (accelerators, "accelerator"), (actors, "actor")):
            if slowest := _slowest(analysis, function, places_of, what):
                found += slowest
                break
    return found


def _slowest(analysis: Analysis, function: Function, place_of: Sequence[str], what: str) -> list[Finding]:
    """``place_of``: for each site of the table the name of the place, empty if it is unknown."""
    wall = analysis.path.wall
    if not wall or function.on_path / wall < _COST:
        return []
    executions, places = as_numpy(function.executions), list(dict.fromkeys(place_of))
    number = {place: index for index, place in enumerate(places)}
    of = np.array([number[place] for place in place_of], np.int64)[as_numpy(analysis.table.site)[executions]]
    (members,) = split(of, len(places), executions)
    by_place = {places[each]: members[each] for each in by_first(of) if places[each] and len(members[each]) >= _CALLS}
    if len(by_place) < 2:
        return []
    times = {place: as_numpy(analysis.self_time)[rows] for place, rows in by_place.items()}
    slowest = max(times, key=lambda place: _median(times[place]))
    here = times[slowest]
    elsewhere = np.concatenate([found for place, found in times.items() if place != slowest])
    usual, slow = round(_median(elsewhere)), round(_median(here))
    excess = 1 - usual / max(slow, 1)
    # Calls that are not on the path may have left others to workers that are, so that all were delayed alike.
    on_path = max(
        sum(analysis.ran_on_path[row] for row in by_place[slowest].tolist()),
        function.on_path * int(here.sum()) // max(1, function.self_time),
    )
    share = min(1.0, on_path * excess / wall)
    if slow < _TIMES[what] * usual or share < _COST:
        return []
    if mann_whitney(here.tolist(), elsewhere.tolist()) > _SURE / len(times) / len(analysis.functions):
        return []
    place = analysis.calls.place(int(by_place[slowest][0]))
    shown = f"{place.actor_class.rpartition('.')[2]}#{place.actor[:8]}" if what == "actor" else slowest
    text = (
        f"{quoted(function.name)} takes {duration(slow)} on {what} {shown} and {duration(usual)} elsewhere (medians "
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
    rows = sorted(by_place[slowest].tolist(), key=lambda row: -analysis.self_time[row])
    advice = (
        "check whether it gets more or larger work in each call than the other actors, and what else runs on its node"
        if what == "actor"
        else f"check what else runs on that {what}, and whether its hardware or the data it has to fetch differs"
    )
    is_assumed = analysis.is_assumed(executions)
    title = f"{what.capitalize()} {shown} is slow"
    return [Finding(KIND, seems(text, is_assumed=is_assumed), advice, share, rows, figures, is_assumed, title=title)]


def _median(times: Any) -> float:
    ordered = np.sort(times)
    middle: list[int] = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1].tolist()
    return median(middle)


def mann_whitney(one: Sequence[int], other: Sequence[int]) -> float:
    """The two-sided p-value that both samples come from the same distribution; 1 if one is empty.

    By the Mann-Whitney U test (rank sum), with the normal approximation, corrected for ties and continuity.
    """
    many, more = len(one), len(other)
    if not many or not more:
        return 1.0
    ordered = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    total = many + more
    ranks = 0.0
    ties = 0
    first = 0
    while first < total:
        last = first
        while last < total and ordered[last][0] == ordered[first][0]:
            last += 1
        size = last - first
        ties += size**3 - size
        ranks += (first + 1 + last) / 2 * sum(1 for place in range(first, last) if ordered[place][1] == 0)
        first = last
    surplus = abs(ranks - many * (many + 1) / 2 - many * more / 2)
    variance = many * more / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    return math.erfc(max(0.0, surplus - 0.5) / math.sqrt(2 * variance))
