"""Calls that a loop makes and waits for one by one, so that only one runs at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RETRYING, RUN, SCHEDULING, STARTING
from ray_tracing_hooks._insight.analysis.findings.blocked_event_loop import stalls
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import covered
from ray_tracing_hooks._insight.analysis.trials import is_made_by_trial
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import GET, SUBMISSION, WAIT, Calls

KIND = "get-in-loop"

_ROUNDS = 5
_COST = 0.05
_PAUSE = 0.25
"""Where waiting is not recorded: the longest pause between the end of a call and the next submission in such a loop, as
a share of the call."""


def find(analysis: Analysis) -> list[Finding]:
    """For each function, the loops that submit one call of it and wait for it before they submit the next one.

    It measures the time on the critical path in which these calls waited to start, ran, and handed over their results,
    without the start of workers, the delay before retries, and the wait of the first call: those are there in any
    order. So is the time of calls that cannot run at once, since one actor runs them all, one at a time or on an event
    loop that they block. From a twentieth of the run on that is worth a change. Calls that need the result of the one
    before look the same, so the advice depends on that. It needs recorded waits of the caller; otherwise it is assumed
    from the times of the calls.
    """
    calls, wall = analysis.calls, analysis.path.wall
    others: Counter[int] = Counter()
    for step in analysis.path.steps:
        if step.kind in (STARTING, RETRYING):
            others[step.row] += step.end - step.start
    loops: dict[int, list[tuple[int, int, int]]] = {}
    assumed = set()
    for frame in calls.frames_with_members(_ROUNDS):
        for function, rounds in _loops(calls, frame):
            # Ray Data decides when it submits the next task, and Ray Tune when a trial goes on.
            if calls.functions[function] in analysis.pipelines.operator_names or _is_of_trial(calls, rounds):
                continue
            loops.setdefault(function, []).extend(rounds)
            if not calls.records_waits(frame):
                assumed.add(function)
    blocked = stalls(analysis) if loops else {}
    found = []
    for function, rounds in loops.items():
        waited = sum(end - start for _, start, end in rounds)
        rows = {row for row, _, _ in rounds}
        on_path = sum(analysis.path.executions[row] - others[row] for row in rows)
        on_path -= _first_scheduling(analysis, calls.functions[function], rows) + _in_turn(analysis, rows, blocked)
        if wall and on_path / wall >= _COST:
            found.append(
                _finding(analysis, calls.functions[function], rounds, waited, on_path, is_assumed=function in assumed)
            )
    return found


def _first_scheduling(analysis: Analysis, function: str, rows: set[int]) -> int:
    """How long the first call of a function on the path waited for Ray, if it is one of these."""
    steps = (step for step in analysis.path.steps if step.kind in (SCHEDULING, STARTING) and step.row >= 0)
    first = next((step.row for step in steps if analysis.calls.function_of(step.row) == function), -1)
    if first not in rows:
        return 0
    return sum(step.end - step.start for step in analysis.path.steps if step.row == first and step.kind == SCHEDULING)


def _in_turn(analysis: Analysis, rows: set[int], blocked: dict[str, list[tuple[int, int]]]) -> int:
    """How long the code of these calls ran on the path that can only run in turn: the most of one actor."""
    ran: Counter[str] = Counter()
    for step in analysis.path.steps:
        if step.kind == RUN and step.row in rows and (place := analysis.calls.place(step.row)).actor:
            time = step.start, step.end
            turns = [time] if place.slots == 1 else blocked.get(place.actor, ())
            ran[place.actor] += covered(turns, *time)
    return max(ran.values(), default=0)


def _loops(calls: Calls, frame: int) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """The loops of a frame: the function, and for each round the execution, and the start and end of the wait."""
    rounds: list[tuple[int, int, int]] = []
    function = -1
    for call, start, end in _rounds(calls, frame) if calls.records_waits(frame) else _likely_rounds(calls, frame):
        if call < 0 or calls.function[call] != function:
            if len(rounds) >= _ROUNDS:
                yield function, rounds
            rounds, function = [], calls.function[call] if call >= 0 else -1
        if call >= 0:
            rounds.append((calls.execution[call], start, end))
    if len(rounds) >= _ROUNDS:
        yield function, rounds


def _rounds(calls: Calls, frame: int) -> Iterator[tuple[int, int, int]]:
    """The calls that a frame waits for right after their submission; a call of -1 ends a series of them."""
    table = calls.table
    submitted: list[int] = []
    for row in calls.members(frame):
        role = calls.role[row]
        if role == SUBMISSION:
            submitted.append(calls.call_of[row])
            continue
        if role not in (GET, WAIT):
            continue
        objects = calls.made_by(row)
        call = objects[0][1] if len(objects) == 1 and not calls.is_cut(row) else -1
        if role == GET and len(submitted) == 1 and call == submitted[0] and calls.execution[call] >= 0:
            yield call, table.start[row], table.end_or_now(row)
        elif objects:
            yield -1, 0, 0
        submitted.clear()


def _likely_rounds(calls: Calls, frame: int) -> Iterator[tuple[int, int, int]]:
    """The same where waiting is not recorded: each call is submitted soon after the previous one has ended."""
    table = calls.table
    ended = 0
    for row in calls.members(frame):
        if calls.role[row] != SUBMISSION or (execution := calls.execution[calls.call_of[row]]) < 0:
            continue
        start, end = calls.submitted_ns(calls.call_of[row]), table.end_or_now(execution)
        pause = table.start[row] - ended
        if ended and not 0 <= pause <= _PAUSE * (end - start):
            yield -1, 0, 0
        yield calls.call_of[row], start, end
        ended = end


def _is_of_trial(calls: Calls, rounds: list[tuple[int, int, int]]) -> bool:
    """Whether Ray Tune makes these calls, for one of its trials."""
    execution, *_ = rounds[0]
    submission = calls.submission[calls.call_of[execution]]
    return submission >= 0 and is_made_by_trial(calls.table, submission)


def _caller(calls: Calls, execution: int) -> int:
    """The frame that made a call; -1 if unknown."""
    submission = calls.submission[calls.call_of[execution]]
    return calls.frame[submission] if submission >= 0 else -1


def _finding(
    analysis: Analysis,
    function: str,
    rounds: list[tuple[int, int, int]],
    waited: int,
    on_path: int,
    *,
    is_assumed: bool,
) -> Finding:
    calls = analysis.calls
    frame = _caller(calls, rounds[0][0])
    caller = calls.frame_name(frame) if frame >= 0 else "a caller"
    each = round(median(end - start for _, start, end in rounds))
    loops = len({_caller(calls, row) for row, _, _ in rounds})
    of_loops = f" in {loops:,} such loops, which may run at once" if loops > 1 else " one after the other"
    text = (
        f"{quoted(caller)} calls {quoted(function)} in a loop and waits for each call before it makes the next: "
        f"{count(len(rounds), 'call')}{of_loops}, {duration(each)} each (median), {duration(waited)} in all"
    )
    advice = "if a call does not need the result of the previous one: submit all calls first, then wait for all at once"
    figures: dict[str, float | int | str] = {
        "function": function,
        "caller": caller,
        "rounds": len(rounds),
        "loops": loops,
        "median_wait_ns": each,
        "waited_ns": waited,
        "on_path_ns": on_path,
    }
    share = min(1.0, on_path / analysis.path.wall)
    rows = [row for row, _, _ in rounds]
    title = f"{quoted(function)} runs one call at a time, in a loop"
    return Finding(KIND, seems(text, is_assumed=is_assumed), advice, share, rows, figures, is_assumed, title=title)
