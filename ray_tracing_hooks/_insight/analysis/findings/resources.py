"""Time until calls run: for resources that others hold, or that nobody uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    BY_CODE,
    BY_WORKER,
    RESERVING,
    RUN,
    SCHEDULING,
    STARTING,
    WORKER_QUEUE,
    PathStep,
)
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted, seems
from ray_tracing_hooks._insight.analysis.findings.order import callers, takes_any
from ray_tracing_hooks._insight.analysis.findings.sizes import (
    LARGE_ARGUMENTS,
    LARGE_CLOSURE,
    large_functions,
    tiny_functions,
)
from ray_tracing_hooks._insight.analysis.functions import resources_of
from ray_tracing_hooks._insight.analysis.intervals import covered, in_both
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls
from ray_tracing_hooks._insight.model.grouped import by_first, most_at_once
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.processes import Workers
from ray_tracing_hooks._insight.model.span import is_creation
from ray_tracing_hooks._insight.model.table import Table

_RESOURCES_NAMED = 3
_RESOURCES_NEARLY_ALL = 0.9
_RESOURCES_IN_USE = 0.8
"""The share of a wait in which others run that hold the resource: Ray takes time between them, as the wait does."""
_UNLIKE_OTHERS = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources that each program may use up, in the names of those that are assigned."""


@dataclass
class _Waiting:
    """The calls of one function that the run waited for before they started. Times are nanoseconds."""

    rows: dict[int, int] = field(default_factory=dict)
    """How long the run waited for each execution."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    for_resources: int = 0
    """How long of that they had no node and worker yet, according to Ray's task states."""
    known: int = 0
    """How many of the calls have task states."""


def waiting_for_resources(analysis: Analysis) -> list[Finding]:
    """Calls that were ready to run, but had to wait for resources, or for Ray to assign a worker to them.

    Measures: the time on the critical path in which a call had all that it depends on, and no worker started.
    Threshold: 1 s and a tenth of the run, by function. Calls that wait for each other count only if one resource can be
    the reason.
    Looks the same: calls whose arguments are large, and tiny calls. Those findings have this time.
    Advice: end idle actors, which the finding names if they held the resources. Or request less, or add resources.
    Needs: the start of workers. Without Ray's task states, the finding is an assumption. The end of an actor is not
    recorded.
    """
    found = []
    large, tiny = large_functions(analysis, LARGE_CLOSURE, LARGE_ARGUMENTS), tiny_functions(analysis)
    for function, waiting in _waiting(analysis).items():
        if function in tiny:
            continue
        if function in large and waiting.known < len(waiting.rows):
            continue  # all of the time may have gone by while nodes fetched its arguments, or workers loaded it
        waited = sum(waiting.rows.values())
        if waiting.known == len(waiting.rows):
            waited = min(waited, waiting.for_resources)
        if is_costly(analysis, waited, seconds=1):
            found.append(_resources_finding(analysis, function, waiting, waited))
    return [*found, *_waiting_in_turn(analysis)]


def placement_groups(analysis: Analysis) -> Iterator[Finding]:
    """Placement groups that callers wait for.

    Measures: these waits on the critical path, from the start of the wait until the group was ready.
    Threshold: 1 s and a tenth of the run.
    Looks the same: groups that Ray takes long to reserve although resources are free, for example while nodes are
    added.
    Advice: remove groups once their calls have ended, reserve less, or add resources.
    Needs: waits. The holder of the resources is not known.
    """
    calls, table, path = analysis.calls, analysis.table, analysis.path
    steps = [step for step in path.steps if step.kind == RESERVING]
    cost = sum(step.took for step in steps)
    if not is_costly(analysis, cost, seconds=1):
        return
    rows = _longest(steps)
    groups = {table.attribute(row, names.RAY_PLACEMENT_GROUP_ID) for row in rows}
    caller = quoted(calls.frame_name(calls.frame[rows[0]]))
    text = (
        f"the run waited {duration(cost)} for {count(len(groups), 'placement group')}, longest in {caller}, until Ray "
        "had reserved the resources of all bundles"
    )
    advice = (
        "remove each placement group as soon as its calls have ended (remove_placement_group), reserve less, or add "
        "resources; ray status shows which ones are held while the program runs"
    )
    about = {"caller": caller}
    title = "Placement groups wait to be reserved"
    yield Finding("waiting-for-resources", text, advice, cost / path.wall, rows, about, title=title)


def _waiting_in_turn(analysis: Analysis) -> Iterator[Finding]:
    """Functions whose calls waited for each other's resources, or for processors that idle actors held."""
    calls, table, split = analysis.calls, analysis.table, analysis.split
    by_function: dict[str, list[PathStep]] = {}
    for step in split.steps:
        if step.kind == WORKER_QUEUE:
            by_function.setdefault(calls.function_of(step.row), []).append(step)
    for function, steps in by_function.items():
        waited = sum(step.took for step in steps)
        if not is_costly(analysis, waited, seconds=1):
            continue
        assigned = str(table.attribute(steps[0].row, names.RAY_ASSIGNED_RESOURCES) or "")
        needs = resources_of(assigned)
        resource, *others = [each for each in needs if each != "CPU"] or ["CPU"]
        is_cpu = resource == "CPU"
        if not needs or others or (not is_cpu and resource.startswith(_UNLIKE_OTHERS)):
            continue
        amount, node = needs[resource], calls.place(steps[0].row).node
        held = _held(*_holding(analysis, resource, node))
        if is_cpu and (idle := _idle_holders(analysis, node, steps)):
            yield from _idle_finding(analysis, function, steps, held, idle)
            continue
        # Most programs use up their processors, and should.
        if amount <= 1 if is_cpu else "CPU" in needs and _are_used_up(analysis, steps, needs["CPU"]):
            continue
        most = max((amount for _, amount in held), default=0.0)
        if is_cpu and most >= 2 * amount:
            continue
        full = [(at, later) for (at, has), (later, _) in pairwise(held) if has + amount > most]
        if in_both(full, [step.time for step in steps]) < _RESOURCES_IN_USE * waited:
            continue
        rows = _longest(steps)
        which = "it" if len(needs) == 1 else "the resource besides CPU"
        text = (
            f"the run waited {duration(waited)} for {count(len(rows), 'call')} of {quoted(function)} to start; each "
            f"needs {quoted(assigned)}, and meanwhile other calls held as much of {which} as calls ever held"
        )
        advice = "request less for each call (num_cpus, resources), or add resources"
        states = [analysis.queued(row) for row in rows]
        about = {"function": function}
        yield Finding(
            "waiting-for-resources",
            text,
            advice,
            waited / split.wall,
            rows,
            about,
            is_assumed=None in states,
            quotes={names.RAY_ASSIGNED_RESOURCES: quoted(assigned)},
            title=f"Calls of {quoted(function)} wait for each other's resources",
        )


def _idle_holders(analysis: Analysis, node: str, steps: list[PathStep]) -> list[_Life]:
    """The actors of a node that held processors from their start to nearly the end of these steps, mostly idle."""
    begin, until = min(step.start for step in steps), max(step.end for step in steps)
    within = (1 - _RESOURCES_NEARLY_ALL) * (until - begin)
    return [
        actor
        for actor in _lives(analysis, {"CPU"}, begin, until, node)
        if actor.end >= until - within and 2 * actor.busy < until - max(begin, actor.start)
    ]


def _idle_finding(
    analysis: Analysis,
    function: str,
    steps: list[PathStep],
    held: list[tuple[int, float]],
    idle: list[_Life],
) -> Iterator[Finding]:
    """The finding for calls that waited while tasks held as many processors as usual, and idle actors others."""
    waited, wall = sum(step.took for step in steps), analysis.split.wall
    whole = max(step.end for step in steps) - min(step.start for step in steps)
    # Until the last of these actors has started, the calls may have waited for other reasons.
    since = max(actor.start for actor in idle)
    steps = [step._replace(start=max(step.start, since)) for step in steps if step.end > since]
    if not steps:
        return
    begin, until = min(step.start for step in steps), max(step.end for step in steps)
    usual = _usual(held, begin, until)
    needs = str(analysis.table.attribute(steps[0].row, names.RAY_ASSIGNED_RESOURCES) or "")
    amount = resources_of(needs).get("CPU", 0.0)
    full = [(at, later) for (at, has), (later, _) in pairwise(held) if has + amount > usual]
    explained = in_both(full, [step.time for step in steps])
    explained = min(explained, waited - _starting(analysis, analysis.calls.place(steps[0].row).node, steps))
    of_actors = sum(actor.held for actor in idle)
    cost = int(waited * of_actors / (of_actors + usual))
    if not amount or 2 * explained < waited or not is_costly(analysis, cost, seconds=1):
        return
    rows = _longest(steps)
    busy = sum(actor.busy for actor in idle) / len(idle)
    share = percent(min(1.0, busy / whole))
    text = (
        f"the run waited {duration(waited)} for {count(len(rows), 'call')} of {quoted(function)} to start, while tasks "
        f"held up to {usual:g} CPU most of the time; {_several([actor.name for actor in idle])} held {of_actors:g}, "
        f"and ran {share} of the time"
    )
    advice = "create these actors with num_cpus=0, or end them once they are not needed"
    about = {"function": function}
    quotes = {names.RAY_ASSIGNED_RESOURCES: quoted(needs)}
    title = f"Idle actors hold CPUs that {quoted(function)} waits for"
    # Ray may have been started with fewer CPUs than the node has processors.
    is_assumed = not _are_used_up(analysis, steps, amount)
    text = seems(text, is_assumed=is_assumed)
    yield Finding(
        "waiting-for-resources", text, advice, cost / wall, rows, about, is_assumed, quotes=quotes, title=title
    )


def _usual(held: list[tuple[int, float]], begin: int, until: int) -> float:
    """The amount that was exceeded in a fifth of this time at most: a task that waits for its calls holds none then."""
    times: Counter[float] = Counter()
    for (at, amount), (later, _) in pairwise([*held, (until, 0.0)]):
        times[amount] += max(0, min(later, until) - max(at, begin))
    enough = _RESOURCES_IN_USE * sum(times.values())
    below = accumulate(times[amount] for amount in sorted(times))
    return next((amount for amount, time in zip(sorted(times), below, strict=True) if time >= enough), 0.0)


def _processors(table: Table, row: int) -> int:
    """How many processors the node of a span has; 0 if unknown."""
    number = table.resources[table.resource[row]].get(names.RESOURCE_PROCESSORS)
    return number if isinstance(number, int) else 0


def _are_used_up(analysis: Analysis, steps: list[PathStep], more: float) -> bool:
    """Whether their node lacks so many processors more than were held during these steps; also if it is not known."""
    row = steps[0].row
    held = _held(*_holding(analysis, "CPU", analysis.calls.place(row).node, steps, with_actors=True))
    return max((amount for _, amount in held), default=0.0) + more > _processors(analysis.table, row)


def _starting(analysis: Analysis, node: str, steps: list[PathStep]) -> int:
    """For how much of these steps the calls may have waited for other workers of the node to start."""
    workers = Workers(analysis.table)
    return sum(end - start for step in steps for start, end in workers.full(node, step.start, step.end))


def _holding(
    analysis: Analysis, resource: str, node: str, steps: Sequence[PathStep] = (), *, with_actors: bool = False
) -> tuple[Any, Any, Any]:
    """Since when, until when and how much of a resource of a node, or of all, each task held, by start.

    With actors, until the end of the path: the end of an actor is not recorded. With steps, only during these.
    """
    calls, table = analysis.calls, analysis.table
    site = as_numpy(table.site)
    amounts = np.zeros(len(table.sites))
    actor = np.full(len(table.sites), -1)
    numbers: dict[str, int] = {}
    for each, place in enumerate(calls.places):
        if (place.node == node or not node) and (with_actors or not place.actor):
            assigned = str(table.sites[each].get(names.RAY_ASSIGNED_RESOURCES) or "")
            amounts[each] = resources_of(assigned).get(resource, 0.0)
        if place.actor:
            actor[each] = numbers.setdefault(place.actor, len(numbers))
    rows = np.nonzero((as_numpy(calls.role) == EXECUTION) & (amounts[site] > 0))[0]
    rows = rows[np.argsort(as_numpy(table.start)[rows], kind="stable")]
    of_actor = actor[site[rows]]
    _, first = np.unique(of_actor, return_index=True)
    is_held = of_actor < 0
    is_held[first] = True
    rows, of_actor = rows[is_held], of_actor[is_held]
    begins, ends = as_numpy(table.start)[rows], as_numpy(table.ends)[rows]
    ends = np.where(of_actor >= 0, np.maximum(ends, analysis.path.end), ends)
    held = amounts[site[rows]]
    if steps:
        begin, end = min(step.start for step in steps), max(step.end for step in steps)
        is_then = (begins < end) & (ends > begin)
        begins, ends, held = begins[is_then], ends[is_then], held[is_then]
    return begins, ends, held


def _held(begins: Any, ends: Any, amounts: Any) -> list[tuple[int, float]]:
    """How much was held since each moment, in order."""
    times, changes = np.concatenate([begins, ends]), np.concatenate([amounts, -amounts])
    order = np.lexsort((changes, times))
    return list(zip(times[order].tolist(), np.cumsum(changes[order]).tolist(), strict=True))


_FEW_CALLS = 8
_FEW_ROUNDS = 4
_FEW_QUEUED = 0.2
"""The part of its time that a call waits at most, in the median, where nothing but its caller holds calls back."""
_FEW_IN_USE = 0.5


def few_at_once(analysis: Analysis) -> list[Finding]:
    """Callers that keep few calls under way, and wait for one before they submit the next, while processors are free.

    Measures: these calls on the critical path, times the share of the processors that is not in use meanwhile.
    Threshold: 0.5 s and a tenth of the run, and 8 calls, 4 times as many as are under way. At most half of the CPUs
    that tasks once held are in use.
    Looks the same: calls that need earlier results, or other resources. One call at a time is another finding.
    Advice: keep more calls under way.
    Needs: waits of the caller, and the arguments and resources of tasks. The number of CPUs is not recorded.
    """
    calls, table, found = analysis.calls, analysis.table, []
    site = as_numpy(table.site)
    assigned = [resources_of(str(each.get(names.RAY_ASSIGNED_RESOURCES) or "")) for each in table.sites]
    needs = np.array([each.get("CPU", 0.0) for each in assigned])
    # How much there is of other resources was not recorded.
    needs_others = np.array([len(each) > 1 for each in assigned], bool)
    is_task = (needs > 0) & np.array([not place.actor for place in calls.places], bool)
    tiny = tiny_functions(analysis)
    for frame in callers(analysis):
        members = as_numpy(calls.members(frame))
        made = as_numpy(calls.call_of)[members]
        ran = as_numpy(calls.execution)[made[made >= 0]]
        ran = ran[ran >= 0]
        ran = ran[is_task[site[ran]]]
        of = as_numpy(calls.function)[as_numpy(calls.call_of)[ran]]
        for function in by_first(of):
            rows = ran[of == function]
            on_path = sum(analysis.ran_on_path[row] for row in rows.tolist())
            if (
                len(rows) < _FEW_CALLS
                or not is_costly(analysis, on_path, seconds=0.5)
                or calls.functions[function] in tiny
            ):
                continue
            submitted = calls.submitted_at()[as_numpy(calls.call_of)[rows]]
            starts, ends = as_numpy(table.start)[rows], as_numpy(table.ends)[rows]
            under_way = most_at_once(submitted, np.maximum(ends, submitted + 1))
            is_held_back = np.median(starts - submitted) > _FEW_QUEUED * np.median(ends - starts)
            if under_way < 2 or len(rows) < _FEW_ROUNDS * under_way or is_held_back or needs_others[site[rows]].any():
                continue
            step = PathStep(RUN, int(starts.min()), int(ends.max()), -1, "", -1)
            used = max(amount for _, amount in _held(*_holding(analysis, "CPU", "", [step], with_actors=True)))
            most = _most_held(analysis, needs)
            cost = on_path * (1 - used / most) if most else 0.0
            own = set(as_numpy(calls.call_of)[rows].tolist())
            is_worth = used <= _FEW_IN_USE * most and is_costly(analysis, cost, seconds=0.5)
            if is_worth and not takes_any(calls, own, own, set()):
                found.append(_few_finding(analysis, frame, rows.tolist(), under_way, used, most, cost))
    return found


def _most_held(analysis: Analysis, needs: Any) -> float:
    """How many CPUs tasks held at once that made no calls: those that wait for theirs do not hold any."""
    rows = analysis.calls.rows_of(EXECUTION)
    rows = rows[~np.isin(rows, analysis.calls.frames_with_members(1))]
    rows = rows[
        np.array([not place.actor for place in analysis.calls.places], bool)[as_numpy(analysis.table.site)[rows]]
    ]
    amounts = needs[as_numpy(analysis.table.site)[rows]]
    held = _held(as_numpy(analysis.table.start)[rows], as_numpy(analysis.table.ends)[rows], amounts)
    return max((amount for _, amount in held), default=0.0)


def _few_finding(
    analysis: Analysis, frame: int, rows: list[int], under_way: int, used: float, most: float, cost: float
) -> Finding:
    caller, function = quoted(analysis.calls.frame_name(frame)), analysis.calls.function_of(rows[0])
    text = (
        f"{caller} had at most {under_way:,} of its {count(len(rows), 'call')} of {quoted(function)} under way, and "
        f"each began without a wait: meanwhile, up to {used:g} CPUs were in use, and {most:g} at another time"
    )
    advice = (
        "submit more calls before it waits for one, unless they need its result: as many as there are CPUs, or more"
    )
    about = {"caller": analysis.calls.frame_name(frame), "function": function}
    title = f"{caller} keeps few calls of {quoted(function)} under way"
    return Finding("few-at-once", text, advice, cost / analysis.path.wall, rows, about, title=title)


def _waiting(analysis: Analysis) -> dict[str, _Waiting]:
    """The waiting calls by function, without methods of existing actors, which need no resources.

    The time after the start of a new worker is left out, and that in which the worker had the call. So are workers
    whose start is not recorded, since most of the time might be their start.
    """
    calls, table = analysis.calls, analysis.table
    started = Workers(table).of_resource
    starting: Counter[int] = Counter()
    for step in analysis.path.steps:
        if step.kind == STARTING:
            starting[step.row] += step.took
    found: dict[str, _Waiting] = {}
    for step in analysis.path.steps:
        if step.kind != SCHEDULING or step.edge == BY_CODE or not _needs_resources(calls, step.row):
            continue
        if started[table.resource[step.row]] is None:
            continue
        if step.edge == BY_WORKER and analysis.queued(step.row) is None:
            continue
        start, end = step.start, min(step.end, analysis.loading_since(step.row) or step.end)
        if step.edge == BY_WORKER:
            start = max(start, analysis.finished(step.source))
        if end <= start:
            continue
        waiting = found.setdefault(calls.function_of(step.row), _Waiting())
        if step.row not in waiting.rows:
            states = analysis.queued(step.row)
            waiting.known += states is not None
            waiting.for_resources += max(0, states.scheduling - starting[step.row]) if states is not None else 0
        waiting.rows[step.row] = waiting.rows.get(step.row, 0) + end - start
        waiting.spans.append((start, end))
    return found


def _needs_resources(calls: Calls, row: int) -> bool:
    return calls.role[row] == EXECUTION and (not calls.place(row).actor or is_creation(calls.function_of(row)))


def _resources_finding(analysis: Analysis, function: str, waiting: _Waiting, waited: int) -> Finding:
    rows = sorted(waiting.rows, key=lambda row: -waiting.rows[row])
    needs = str(analysis.table.attribute(rows[0], names.RAY_ASSIGNED_RESOURCES) or "")
    is_known = waiting.known == len(waiting.rows)
    why = "no worker was assigned yet" if is_known else "no worker process was starting for them"
    who = f"{count(len(rows), 'call')} of {quoted(function)}"
    text = f"the run waited {duration(waited)} for {who} to start: {why}"
    if needs:
        text += f"; each needs {quoted(needs)}"
    if holders := _holders(analysis, waiting, needs):
        text += f"; {_several(holders)} had been created before, and held some of these unless they had ended"
    advice = (
        "see whether the resources are free (ray status, while the program runs); if not, end unused actors and "
        "placement groups, request less for each call (num_cpus, resources), or add resources"
    )
    if not is_known:
        advice = (
            "run ray-tracing-hooks states while the cluster runs: Ray's task states show whether calls waited for "
            f"resources; if they did, {advice}"
        )
    about = {"function": function}
    share = waited / analysis.path.wall
    quotes = {names.RAY_ASSIGNED_RESOURCES: quoted(needs)}
    title = f"Calls of {quoted(function)} wait to start"
    return Finding("waiting-for-resources", text, advice, share, rows, about, not is_known, quotes=quotes, title=title)


def _holders(analysis: Analysis, waiting: _Waiting, needs: str) -> list[str]:
    """The actors that held a resource these calls need for nearly all of the wait, by amount held, largest first; those
    too whose last call had ended, since the end of an actor is not recorded.
    """
    begin, until = max(waiting.spans, key=lambda span: span[1] - span[0])
    lives = _lives(analysis, resources_of(needs).keys(), begin, until)
    enough = _RESOURCES_NEARLY_ALL * (until - begin)
    return [actor.name for actor in lives if until - max(actor.start, begin) >= enough]


@dataclass
class _Life:
    """An actor that held resources, from the start of its first call to the end of its last. Times are nanoseconds."""

    name: str
    start: int
    end: int
    held: float = 0.0
    busy: int = 0
    """How long its calls ran in the time that was asked for, added up."""


def _lives(analysis: Analysis, resources: Collection[str], begin: int, until: int, node: str = "") -> list[_Life]:
    """The actors that held some of these resources, by amount, largest first, without those that died before the end.

    Of one node, or of all.
    """
    calls, table = analysis.calls, analysis.table
    is_dead = table.is_dead()
    lives: dict[str, _Life] = {}
    for row, role in enumerate(calls.role):
        place = calls.place(row)
        if role != EXECUTION or not place.actor or (node and place.node != node):
            continue
        held = resources_of(str(table.attribute(row, names.RAY_ASSIGNED_RESOURCES) or ""))
        start, end = table.start[row], table.end_or_now(row)
        name = place.label
        life = lives.setdefault(place.actor, _Life(name, start, end))
        life.start, life.end = min(start, life.start), max(end, life.end)
        life.busy += covered([(begin, until)], start, end)
        is_gone = is_dead[row] and end < until
        life.held = 0.0 if is_gone else sum(held.get(each, 0.0) for each in resources)
    return sorted((life for life in lives.values() if life.held), key=lambda life: (-life.held, life.name))


def _longest(steps: Sequence[PathStep]) -> list[int]:
    """The rows of these steps, the longest first."""
    return list(dict.fromkeys(step.row for step in sorted(steps, key=lambda step: -step.took)))


def _several(holders: list[str]) -> str:
    more = f" and {count(len(holders) - _RESOURCES_NAMED, 'other')}" if len(holders) > _RESOURCES_NAMED else ""
    return f"{', '.join(map(quoted, holders[:_RESOURCES_NAMED]))}{more}"
