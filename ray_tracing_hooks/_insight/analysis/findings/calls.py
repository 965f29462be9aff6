"""Calls that take longer than others of their function, and accelerators that are held but idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.actors import Accelerator
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.data import skewed_blocks
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import Function, are_always_longer, percentile
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, shortened
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.span import QUEUE
from ray_tracing_hooks._insight.model.table import LOST

STRAGGLER = "straggler"

_STRAGGLER_CALLS = 4
_ACTOR_CALLS = 8
"""So many calls of one actor are compared with each other, and not with those of other actors."""
_STRAGGLER_TIMES = 3.0
_LONGEST_ARGUMENTS = 160
_STRAGGLER_FEW = 0.2
"""The largest share of calls that count as stragglers. If more are slow, the function's durations simply vary."""
_STRAGGLER_MOST = 0.5
"""The share of all excess over the median that the few must have."""


def stragglers(analysis: Analysis) -> list[Finding]:
    """Functions with a few calls that take far longer than the others, while the run waits for them.

    Measures: how much longer than the median these calls ran, on the critical path.
    Threshold: 4 calls, and a twentieth of the run. The slow calls take 3 times the median. They are at most a fifth of
    the calls, with half of the excess.
    Looks the same: calls with two kinds of work, one of them rare. Lost workers and larger blocks are other findings.
    Advice: split the work, or start the longest call first if others ran before it.
    Needs: executions. Without waits, the finding is an assumption.
    """
    found, on_path = [], analysis.ran_on_path
    loops = {rank.row for run in analysis.train_runs for attempt in run.attempts for rank in attempt.ranks}
    for function in analysis.functions:
        if len(function.executions) < _STRAGGLER_CALLS or function.executions[0] in loops:
            continue
        if function.name.startswith(QUEUE):
            continue
        for rows in _alike(analysis, function):
            times = as_numpy(analysis.self_time)[rows]
            usual = percentile(as_array(np.sort(times), "q"), 0.5)
            # A call whose process died is a finding of its own.
            slow = [row for row in _few(times, usual, rows) if analysis.table.state[row] != LOST]
            excess = sum(max(0, min(on_path[row], analysis.self_time[row]) - usual) for row in slow)
            if slow and is_costly(analysis, excess, 0.05):
                skewed = skewed_blocks(analysis, rows, slow, usual, excess)
                found.append(skewed or _straggler_finding(analysis, function, usual, rows, slow, excess))
    return found


def _few(times: Any, usual: int, rows: list[int]) -> list[int]:
    """The calls that took far longer than the others, the longest first; none if they are not few.

    To those that have most of the excess belong all others that took at least half as long.
    """
    order = np.argsort(-times, kind="stable")
    excess = np.maximum(times[order] - usual, 0)
    if not excess[0]:
        return []
    last = int(np.searchsorted(np.cumsum(excess), _STRAGGLER_MOST * excess.sum()))
    least = max(times[order[last]] / 2, _STRAGGLER_TIMES * max(usual, 1))
    few = order[times[order] > least]
    return np.array(rows)[few].tolist() if len(few) <= max(1, _STRAGGLER_FEW * len(rows)) else []


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
    if max(map(len, by_actor)) < _ACTOR_CALLS:
        return [rows.tolist()]
    return [own for own in by_actor if len(own) >= _ACTOR_CALLS]


def _straggler_finding(
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
    advice = _straggler_advice(analysis, rows, slow[0])
    if not given and slow[0] not in analysis.pipelines.of_task:
        advice = f"look at the arguments of these calls (RAY_TRACING_ARGUMENTS=1 records them): {advice}"
    about = {"function": function.name}
    quotes = {names.RAY_ARGUMENTS: given}
    is_assumed = analysis.is_assumed(rows)
    text = seems(text, is_assumed=is_assumed)
    title = f"{count(len(slow), 'straggler')} of {quoted(function.name)}"
    return Finding(
        STRAGGLER, text, advice, excess / analysis.path.wall, slow, about, is_assumed, quotes=quotes, title=title
    )


def _straggler_advice(analysis: Analysis, rows: list[int], longest: int) -> str:
    table = analysis.table
    if longest in analysis.pipelines.of_task:
        return "see whether one key or file has most of its rows: group by a finer key, or treat that one separately"
    is_late = min(map(table.end_or_now, rows)) <= table.start[longest]
    return "split its work into smaller pieces" + ("; or start it first" if is_late else "")


def _given(analysis: Analysis, row: int) -> str:
    """The arguments of a call, empty if not recorded."""
    given = analysis.table.attribute(row, names.RAY_ARGUMENTS)
    return shortened(str(given), _LONGEST_ARGUMENTS) if given else ""


def _itself(analysis: Analysis, row: int, *, among: list[int]) -> str:
    """What distinguishes the longest call from the others: its name, and where it ran if not all ran there."""
    calls = analysis.calls
    name, place = calls.name_of(row), calls.place(row)
    parts = [f'named "{shortened(name)}"'] if name and not calls.function_of(row).endswith(f'"{name}"') else []
    if place.node and any(calls.place(other).node != place.node for other in among):
        parts.append(f"on node {place.node[:8]}")
    elif place.worker:
        parts.append(f"on worker {place.worker[:8]}")
    return "".join(f", {each}" for each in parts)


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


SLOW_PLACE = "slow-place"

_PLACE_CALLS = 5
_PLACE_TIMES = {"node": 1.1, "accelerator": 1.1, "actor": 1.5}
"""The least factor. Actors of a class differ in their data, so that small differences between them mean little."""
_PLACE_PARTS = 4
"""Into how many parts the calls of a place are divided, by time. Calls of one run share its machines and their load, so
a test that takes them for independent would find differences that another run does not have."""


def slow_places(analysis: Analysis) -> list[Finding]:
    """Nodes, accelerators and actors on which the calls of a function take clearly longer than on their peers.

    Measures: the excess over the median elsewhere, on the critical path.
    Threshold: a fortieth of the run. The median is longer by 10 % (actors: 50 %), and longer in each quarter of the
    calls by time.
    Looks the same: work that differs by place.
    Advice: check what else runs there, the hardware, and the data that it fetches. For an actor, check its share of the
    work.
    Needs: 5 executions in each of two places. Without waits, the finding is an assumption.
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
    for function in (each for each in analysis.functions if not each.name.startswith(QUEUE)):
        for places_of, what in ((nodes, "node"), (accelerators, "accelerator"), (actors, "actor")):
            if slowest := _slowest(analysis, function, places_of, what):
                found += slowest
                break
    return found


def _slowest(analysis: Analysis, function: Function, place_of: Sequence[str], what: str) -> list[Finding]:
    """``place_of``: for each site of the table the name of the place, empty if it is unknown."""
    if not is_costly(analysis, function.on_path, 0.025):
        return []
    executions, places = as_numpy(function.executions), list(dict.fromkeys(place_of))
    number = {place: index for index, place in enumerate(places)}
    of = np.array([number[place] for place in place_of], np.int64)[as_numpy(analysis.table.site)[executions]]
    (members,) = split(of, len(places), executions)
    by_place = {
        places[each]: members[each] for each in by_first(of) if places[each] and len(members[each]) >= _PLACE_CALLS
    }
    if len(by_place) < 2:
        return []
    times = {place: as_numpy(analysis.self_time)[rows] for place, rows in by_place.items()}
    slowest = max(times, key=lambda place: float(np.median(times[place])))
    here = times[slowest]
    others = np.sort(np.concatenate([rows for place, rows in by_place.items() if place != slowest]))  # by start
    elsewhere = as_numpy(analysis.self_time)[others]
    usual, slow = round(float(np.median(elsewhere))), round(float(np.median(here)))
    excess = 1 - usual / max(slow, 1)
    # Calls that are not on the path may have left others to workers that are, so that all were delayed alike.
    on_path = max(
        sum(analysis.ran_on_path[row] for row in by_place[slowest].tolist()),
        function.on_path * int(here.sum()) // max(1, function.self_time),
    )
    if slow < _PLACE_TIMES[what] * usual or not is_costly(analysis, on_path * excess, 0.025):
        return []
    # Actors of which each has few calls, such as trials, have parts of at least two.
    parts = min(_PLACE_PARTS, len(here) // 2) if what == "actor" else _PLACE_PARTS
    if not are_always_longer(here, elsewhere, parts):
        return []
    place = analysis.calls.place(int(by_place[slowest][0]))
    shown = place.label if what == "actor" else slowest
    text = (
        f"{quoted(function.name)} takes {duration(slow)} on {what} {shown} and {duration(usual)} elsewhere (medians "
        f"of {count(len(here), 'call')} and of {len(elsewhere):,})"
    )
    rows = sorted(by_place[slowest].tolist(), key=lambda row: -analysis.self_time[row])
    is_assumed = analysis.is_assumed(executions)
    return [
        Finding(
            SLOW_PLACE,
            seems(text, is_assumed=is_assumed),
            "check whether each of its calls gets more work than in the other actors, and what else runs on its node"
            if what == "actor"
            else f"check what else runs on that {what}, and whether its hardware or the data it has to fetch differs",
            on_path * excess / analysis.path.wall,
            rows,
            {"function": function.name, "place": slowest, "what": what},
            is_assumed,
            title=f"{what.capitalize()} {shown} is slow",
        )
    ]


_ACCELERATOR_BUSY = 0.5


def idle_accelerators(analysis: Analysis) -> list[Finding]:
    """GPUs whose holders do not run, or hardly use them while they run.

    Measures: the time that a GPU was held and idle, as a share of the run.
    Threshold: a fifth of the run, and less than half in use.
    Looks the same: a GPU that another process uses, if the node was not sampled.
    Advice: prepare the next input early, use larger batches, or share the GPU (num_gpus below 1).
    Needs: the ids of accelerators. With 10 samples or more, the use of the GPU counts; otherwise, the runs of its
    holders.
    """
    return [
        _accelerator_finding(each, (1 - _busy_share(each)) * each.held / analysis.path.wall)
        for each in analysis.accelerators
        if _busy_share(each) < _ACCELERATOR_BUSY and is_costly(analysis, (1 - _busy_share(each)) * each.held, 0.2)
    ]


def _busy_share(accelerator: Accelerator) -> float:
    return accelerator.busy_share if accelerator.used is None else accelerator.used


def _accelerator_finding(accelerator: Accelerator, share: float) -> Finding:
    held_by = quoted(accelerator.holders[0])
    if others := len(accelerator.holders) - 1:
        held_by += f" and {count(others, 'other')}"
    busy = f"{duration(accelerator.busy)} ({percent(accelerator.busy_share)})"
    text = f"{accelerator.name} of node {accelerator.node[:8]} was held by {held_by} for {duration(accelerator.held)}, "
    if accelerator.used is None:
        text += f"but its holders ran for only {busy}"
    else:
        text += (
            f"but only {percent(accelerator.used)} of it was in use on average "
            f"({count(accelerator.samples, 'sample')}, one in {duration(accelerator.resolution)}); its holders ran for "
            f"{busy}"
        )
    text += f"; the longest gap was {duration(accelerator.longest_gap)}"
    advice = (
        "prepare the next input before it is needed, use larger batches, or let several tasks or actors share it "
        "(num_gpus below 1)"
    )
    about = {"accelerator": accelerator.name, "node": accelerator.node}
    title = f"{accelerator.name} is idle"
    return Finding("idle-accelerator", text, advice, share, accelerator.executions, about, title=title)
