"""Calls that were ready to run but had to wait for free resources or for the lease of a worker."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_CODE, SCHEDULING, STARTING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.findings.large_arguments import CLOSURE, large_functions
from ray_tracing_hooks._insight.analysis.findings.large_arguments import KIND as ARGUMENTS
from ray_tracing_hooks._insight.analysis.findings.tiny_tasks import tiny_functions
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.call_names import is_creation
from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls
from ray_tracing_hooks._insight.model.worker_starts import Workers

KIND = "waiting-for-resources"

_COST = 0.1
_LEAST = 1_000_000_000
_NAMED = 3
_NEARLY_ALL = 0.9


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


def find(analysis: Analysis) -> list[Finding]:
    """Functions whose calls the run waited for in this way, for at least a second and a tenth of its time.

    It measures the time on the critical path in which all that a call depends on was there, and no worker process was
    starting. Ray's task states say whether it was resources; without them the finding says that it is not known. An
    actor holds its resources from its creation until its process ends, which no span records: it held them for certain
    until its last call, and may have held them afterwards. Tiny calls are another finding, which has this time: they
    wait for each other, and for what Ray does for each.
    """
    wall = analysis.path.wall
    found = []
    large, tiny = large_functions(analysis, CLOSURE, ARGUMENTS), tiny_functions(analysis)
    for function, waiting in _waiting(analysis).items():
        if function in tiny:
            continue
        if function in large and waiting.known < len(waiting.rows):
            continue  # all of the time may have gone by while nodes fetched its arguments, or workers loaded it
        waited = sum(waiting.rows.values())
        if waiting.known == len(waiting.rows):
            waited = min(waited, waiting.for_resources)
        if waited >= _LEAST and waited / wall >= _COST:
            found.append(_finding(analysis, function, waiting, waited))
    return found


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
            starting[step.row] += step.end - step.start
    found: dict[str, _Waiting] = {}
    for step in analysis.path.steps:
        if step.kind != SCHEDULING or step.edge == BY_CODE or not _needs_resources(calls, step.row):
            continue
        if started[table.resource[step.row]] is None:
            continue
        end = min(step.end, analysis.loading_since(step.row) or step.end)
        if end <= step.start:
            continue
        waiting = found.setdefault(calls.function_of(step.row), _Waiting())
        if step.row not in waiting.rows:
            states = analysis.queued(step.row)
            waiting.known += states is not None
            waiting.for_resources += max(0, states.scheduling - starting[step.row]) if states is not None else 0
        waiting.rows[step.row] = waiting.rows.get(step.row, 0) + end - step.start
        waiting.spans.append((step.start, end))
    return found


def _needs_resources(calls: Calls, row: int) -> bool:
    return calls.role[row] == EXECUTION and (not calls.place(row).actor or is_creation(calls.function_of(row)))


def _finding(analysis: Analysis, function: str, waiting: _Waiting, waited: int) -> Finding:
    rows = sorted(waiting.rows, key=lambda row: -waiting.rows[row])
    needs = str(analysis.table.attribute(rows[0], names.RAY_ASSIGNED_RESOURCES) or "")
    is_known = waiting.known == len(waiting.rows)
    why = "no resources were free, or no worker was leased" if is_known else "no worker process was starting for them"
    who = f"{count(len(rows), 'call')} of {quoted(function)}"
    text = f"the run waited {duration(waited)} for {who} to start: {why}"
    if needs:
        text += f"; each needs {quoted(needs)}"
    holders, possible = _holders(analysis, waiting, needs)
    if holders:
        text += f", and {_several(holders)} held some of that during the wait"
    if possible:
        text += f"; {_several(possible)} had been created before and may still have held some, without any call"
    advice = "end actors that are not used, request less for each call (num_cpus, resources), or add resources"
    if not is_known:
        advice = (
            "Ray's task states show whether it was resources (ray-tracing-hooks states, while the cluster runs); if it "
            f"was, {advice}"
        )
    figures: dict[str, float | int | str] = {
        "function": function,
        "calls": len(rows),
        "waited_ns": waited,
        "calls_with_states": waiting.known,
        "needs": needs,
        "holders": len(holders),
        "possible_holders": len(possible),
    }
    share = min(1.0, waited / analysis.path.wall)
    quotes = {names.RAY_ASSIGNED_RESOURCES: quoted(needs)}
    title = f"Calls of {quoted(function)} wait to start"
    return Finding(KIND, text, advice, share, rows, figures, not is_known, quotes=quotes, title=title)


def _holders(analysis: Analysis, waiting: _Waiting, needs: str) -> tuple[list[str], list[str]]:
    """The actors that held a resource these calls need for nearly all of the wait, by amount held, largest first; and
    those that may have held one, since they had been created before and their end is not recorded.
    """
    calls, table = analysis.calls, analysis.table
    wanted = _resources(needs)
    begin, until = max(waiting.spans, key=lambda span: span[1] - span[0])
    is_dead = table.is_dead()
    lives: dict[str, tuple[int, int, float, str]] = {}
    for row, role in enumerate(calls.role):
        place = calls.place(row)
        if role != EXECUTION or not place.actor:
            continue
        held = _resources(str(table.attribute(row, names.RAY_ASSIGNED_RESOURCES) or ""))
        if not wanted.keys() & held.keys() or (is_dead[row] and table.end_or_now(row) < until):
            held = {}
        start, end = table.start[row], table.end_or_now(row)
        first, last, *_ = lives.get(place.actor, (start, end))
        name = f"{place.actor_class.rpartition('.')[2]}#{place.actor[:8]}"
        lives[place.actor] = min(start, first), max(end, last), sum(held.values()), name
    enough = _NEARLY_ALL * (until - begin)
    certain: list[str] = []
    possible: list[str] = []
    for start, end, amount, name in sorted(lives.values(), key=lambda each: (-each[2], each[3])):
        if amount and until - max(start, begin) >= enough:
            (certain if min(end, until) - max(start, begin) >= enough else possible).append(name)
    return certain, possible


def _several(holders: list[str]) -> str:
    more = f" and {count(len(holders) - _NAMED, 'other')}" if len(holders) > _NAMED else ""
    return f"{', '.join(map(quoted, holders[:_NAMED]))}{more}"


def _resources(told: str) -> dict[str, float]:
    try:
        found = json.loads(told or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, (int, float))}
