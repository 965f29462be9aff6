"""Calls that could have run, and for which no resources were free, or no worker was leased."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_CODE, SCHEDULING, STARTING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import EXECUTION, Calls
from ray_tracing_hooks._insight.model.worker_starts import Workers

KIND = "waiting-for-resources"

_COST = 0.1
_LEAST = 1_000_000_000
_NAMED = 3
_NEARLY_ALL = 0.9


@dataclass
class _Waiting:
    """The calls of one function that the run waited for while they had not begun. Times are nanoseconds."""

    rows: dict[int, int] = field(default_factory=dict)
    """How long, by execution."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    for_resources: int = 0
    """How long of that they had no node and worker yet, by Ray's states of tasks."""
    known: int = 0
    """How many of the calls these tell of."""


def find(analysis: Analysis) -> list[Finding]:
    """Functions whose calls the run waited for so, a second and a tenth of its time or more."""
    wall = analysis.path.wall
    found = []
    for function, waiting in _waiting(analysis).items():
        waited = sum(waiting.rows.values())
        if waiting.known == len(waiting.rows):
            waited = min(waited, waiting.for_resources)
        if waited >= _LEAST and waited / wall >= _COST:
            found.append(_finding(analysis, function, waiting, waited))
    return found


def _waiting(analysis: Analysis) -> dict[str, _Waiting]:
    """By function. Methods of actors that have been made need no resources. What is left out: what a worker takes that
    has just started, and all where the start of workers is not recorded, which would be most of it.
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
        waiting = found.setdefault(calls.function_of(step.row), _Waiting())
        if step.row not in waiting.rows:
            states = analysis.states.first.get(str(table.attribute(step.row, names.RAY_TASK_ID)))
            waiting.known += states is not None
            waiting.for_resources += max(0, states.scheduling - starting[step.row]) if states is not None else 0
        waiting.rows[step.row] = waiting.rows.get(step.row, 0) + step.end - step.start
        waiting.spans.append((step.start, step.end))
    return found


def _needs_resources(calls: Calls, row: int) -> bool:
    return calls.role[row] == EXECUTION and (not calls.place(row).actor or calls.function_of(row).endswith(".__init__"))


def _finding(analysis: Analysis, function: str, waiting: _Waiting, waited: int) -> Finding:
    rows = sorted(waiting.rows, key=lambda row: -waiting.rows[row])
    needs = str(analysis.table.attribute(rows[0], names.RAY_ASSIGNED_RESOURCES) or "")
    is_known = waiting.known == len(waiting.rows)
    why = "no resources were free, or no worker was leased" if is_known else "no process was started"
    who = f"{count(len(rows), 'call')} of {quoted(function)}"
    text = f"the run waited {duration(waited)} for {who} to begin, for which {why}"
    if needs:
        text += f"; each needs {quoted(needs)}"
    if holders := _holders(analysis, waiting, needs):
        several = ", ".join(map(quoted, holders[:_NAMED]))
        more = f" and {count(len(holders) - _NAMED, 'other')}" if len(holders) > _NAMED else ""
        text += f", and {several}{more} held some of it meanwhile"
    advice = (
        "give back what is held and not used (actors hold their resources as long as they live), let each ask for less "
        "(num_cpus, resources), or give the cluster more"
    )
    if not is_known:
        advice = (
            "what they waited for is not recorded: Ray's states of tasks say whether it was resources "
            f"(ray-tracing-hooks states, while the cluster runs). If it was: {advice}"
        )
    figures: dict[str, float | int | str] = {
        "function": function,
        "calls": len(rows),
        "waited_ns": waited,
        "calls_with_states": waiting.known,
        "needs": needs,
        "holders": len(holders),
    }
    share = min(1.0, waited / analysis.path.wall)
    quotes = {names.RAY_ASSIGNED_RESOURCES: quoted(needs)}
    return Finding(KIND, text, advice, share, rows, figures, not is_known, quotes)


def _holders(analysis: Analysis, waiting: _Waiting, needs: str) -> list[str]:
    """The actors that held, nearly all the while, a resource that these calls need; those that hold most first."""
    calls, table = analysis.calls, analysis.table
    wanted = _resources(needs)
    longest = max(waiting.spans, key=lambda span: span[1] - span[0])
    lives: dict[str, tuple[int, int, float, str]] = {}
    for row, role in enumerate(calls.role):
        place = calls.place(row)
        if role != EXECUTION or not place.actor:
            continue
        held = _resources(str(table.attribute(row, names.RAY_ASSIGNED_RESOURCES) or ""))
        if not wanted.keys() & held.keys():
            continue
        start, end = table.start[row], table.end_or_now(row)
        known = lives.get(place.actor, (start, end, 0.0, ""))
        name = f"{place.actor_class.rpartition('.')[2]}#{place.actor[:8]}"
        lives[place.actor] = min(start, known[0]), max(end, known[1]), sum(held.values()), name
    enough = _NEARLY_ALL * (longest[1] - longest[0])
    found = [
        (held, name)
        for start, end, held, name in lives.values()
        if min(end, longest[1]) - max(start, longest[0]) >= enough
    ]
    return [name for _, name in sorted(found, key=lambda each: (-each[0], each[1]))]


def _resources(told: str) -> dict[str, float]:
    try:
        found = json.loads(told or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, (int, float))}
