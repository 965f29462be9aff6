"""Callers: code of the driver that the run waits for, and the way in which calls are made."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from statistics import median
from typing import NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    RETRYING,
    RUN,
    SCHEDULING,
    STARTING,
    PathStep,
    submissions,
)
from ray_tracing_hooks._insight.analysis.findings.actors import stalls
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted, seems
from ray_tracing_hooks._insight.analysis.findings.order import saved_by_order, saved_by_waiting, takes_any
from ray_tracing_hooks._insight.analysis.functions import Function, percentile
from ray_tracing_hooks._insight.analysis.intervals import covered, in_both
from ray_tracing_hooks._insight.analysis.training import is_made_by_trial
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import GET, SUBMISSION, WAIT, WAITS, Calls
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import ENDED

_DRIVER_CALLS = 8


def serial_drivers(analysis: Analysis) -> list[Finding]:
    """Drivers whose own code the run waits for: before each call, for longer than the call runs, or at another time.

    Measures: the time on the critical path in which the driver's code ran, without .remote() and waits.
    Threshold: before calls, a tenth of the run, and 8 calls that are shorter than the code before them. At other times,
    a fifth of the run and 0.5 s.
    Looks the same: a driver that sleeps, or waits for something other than Ray. Idle time of a notebook after its last
    result does not count.
    Advice: move the work into tasks, or submit the next calls before it.
    Needs: waits. Without them, the first case is assumed, and the second is not reported. With Ray Data and Serve, only
    code between batches, or between requests of handles, counts.
    """
    found: list[Finding] = []
    by_name = {function.name: function for function in analysis.functions}
    saved = saved_by_order(analysis) + saved_by_waiting(analysis)
    for driver in analysis.calls.drivers():
        if driver in analysis.calls.with_futures:
            continue  # what seems to be its code may be a wait
        serial = len(found)
        for name, (between, rows) in _between(analysis.calls, driver).items():
            if len(between) < _DRIVER_CALLS or name in analysis.pipelines.operator_names:
                continue  # Ray Data decides when to submit the tasks of operators, as Ray Tune does for its trials
            usual, runs = percentile(sorted(between), 0.5), percentile(by_name[name].self_times, 0.5)
            # The critical path includes this time if the run waits for it.
            own = min(sum(between), analysis.path.functions[analysis.calls.frame_name(driver)])
            if usual <= runs or not is_costly(analysis, own):
                continue
            if not all(is_made_by_trial(analysis.table, row) for row in rows):
                found.append(_driver_finding(analysis, driver, by_name[name], usual, runs, own, rows))
        if len(found) == serial:
            found += _own_code(analysis, driver, saved[driver])
    return found


_RESUMED = 20_000_000
"""A driver goes on this much later, in nanoseconds, once a thread has what the driver waits for."""


def _own_code(analysis: Analysis, driver: int, saved: int) -> list[Finding]:
    """The own code of a driver, less the time ``saved`` by another order of its waits, which is another finding."""
    calls, table, path = analysis.calls, analysis.table, analysis.path
    if driver >= len(table) or not calls.records_waits(driver) or analysis.experiments:
        return []
    steps = [step for step in path.steps if step.kind == RUN and step.row == driver]
    if analysis.pipelines.executions:
        return _between_batches(analysis, driver, steps)
    if recorded.libraries(calls):
        return []
    if analysis.serve_spans is not None:
        made = _requests_alone(analysis, driver)
    else:
        made = [row for row in calls.members(driver) if calls.role[row] in {SUBMISSION, *WAITS}]
    if not made:
        return []
    ends_alone = analysis.serve_spans is None and table.state[driver] == ENDED and _is_program(calls.frame_name(driver))
    first, last = table.start[made[0]], path.end if ends_alone else max(map(table.end_or_now, made))
    own = sum(max(0, min(step.end, last) - max(step.start, first)) for step in steps)
    own -= sum(took for step in steps for _, took in submissions(calls, step))
    if is_costly(analysis, own, 0.2, seconds=0.5):
        aside = _waited_aside(calls, made, steps)
        own -= in_both([*_unwaited(calls, made), *aside], [step.time for step in steps]) + saved
    if not is_costly(analysis, own, 0.2, seconds=0.5):
        return []
    name = quoted(calls.frame_name(driver))
    text = f"{name} ran its own code for {duration(own)} after its first call, while the run waited for it"
    return [_own_finding(analysis, driver, text, own)]


def _own_finding(analysis: Analysis, driver: int, text: str, own: int) -> Finding:
    advice = (
        "if it computes there, move the computation into tasks, or submit the next calls first; if it sleeps, or waits "
        "for something other than Ray, shorten that"
    )
    name = analysis.calls.frame_name(driver)
    about = {"driver": name}
    title = f"The run waits for code of {quoted(name)}"
    return Finding("driver-code", text, advice, own / analysis.path.wall, [driver], about, title=title)


def _is_program(name: str) -> bool:
    """Whether a driver of this name is a file or a module, and no notebook or console."""
    return "." in name and not name.endswith(".ipynb")


_BATCHES_WAITED = 0.25
"""The share of the time after the first batch for which a driver waits at most that is slower than its dataset."""


def _between_batches(analysis: Analysis, driver: int, steps: list[PathStep]) -> list[Finding]:
    """The code of a driver between the batches of its iterations over datasets."""
    calls = analysis.calls
    own = waited = 0
    for each in analysis.pipelines.iterations:
        later = max(0, each.waited - each.first)
        is_slower = later <= _BATCHES_WAITED * (later + each.used)
        if calls.frame[each.row] == driver and is_slower and not calls.is_aside(each.row):
            own += min(each.used, covered([step.time for step in steps], each.start, each.end))
            waited += each.waited
    if not is_costly(analysis, own, 0.2, seconds=0.5):
        return []
    text = (
        f"{quoted(calls.frame_name(driver))} ran its own code for {duration(own)} between the batches of its datasets, "
        f"and waited {duration(waited)} for these batches"
    )
    return [_own_finding(analysis, driver, text, own)]


def _requests_alone(analysis: Analysis, driver: int) -> list[int]:
    """The requests that a driver made by handles, and the waits for them, by start; none if there may be others.

    A request over HTTP, or a call of Ray Serve such as ``serve.run``, waits without a span that says for what.
    """
    spans, calls, table = analysis.serve_spans, analysis.calls, analysis.table
    if spans is None or analysis.requests is None:
        return []
    rows = [row for route in analysis.requests.routes for row in route.rows]
    called = set(spans.called.tolist())
    if not rows or any(calls.frame[row] != driver or row not in called for row in rows):
        return []
    first = min(map(table.start.__getitem__, rows))
    waits = [row for row in calls.own_waits(driver) if table.start[row] >= first]
    return sorted([*rows, *waits]) if all(analysis.served.awaited(row) for row in waits) else []


def _waited_aside(calls: Calls, made: list[int], steps: list[PathStep]) -> list[tuple[int, int]]:
    """When threads of the driver waited in steps of its own code that ended with the last of these waits.

    The driver may have waited for the threads then, unless they go on to wait.
    """
    table = calls.table
    threads = [row for row in made if calls.role[row] in WAITS and table.attribute(row, names.THREAD_ID) is not None]
    aside = [table.time(row) for row in threads if calls.is_aside(row)]
    begun, starts = [table.start[row] for row in threads], [start for start, _ in aside]
    ends = list(accumulate((end for _, end in aside), max))
    found: list[tuple[int, int]] = []
    for step in steps:
        first, until = bisect_right(ends, step.start), bisect_left(starts, step.end)
        if first >= until or not 0 <= step.end - ends[until - 1] <= _RESUMED:
            continue
        later = bisect_left(begun, ends[until - 1])
        if later == len(begun) or begun[later] > step.end + _RESUMED:
            found += aside[first:until]
    return found


def _unwaited(calls: Calls, made: list[int]) -> list[tuple[int, int]]:
    """When calls ran whose results no recorded wait was for: the driver may have waited for them in another way."""
    table = calls.table
    waited = {call for row in made if calls.role[row] in WAITS for _, call in calls.made_by(row)}
    submitted = {calls.call_of[row] for row in made if calls.role[row] == SUBMISSION}
    rows = (calls.execution[call] for call in submitted - waited)
    return [table.time(row) for row in rows if row >= 0]


def _between(calls: Calls, driver: int) -> dict[str, tuple[list[int], list[int]]]:
    """How long the driver's own code ran before each submission that follows another one without a wait, by function.

    If waiting was not recorded, the time in which the previous call ran is left out, since the driver may have waited
    for it.
    """
    role, ends = as_numpy(calls.role), as_numpy(calls.table.ends)
    rows = as_numpy(calls.members(driver))
    rows = rows[np.isin(role[rows], (SUBMISSION, *WAITS))]
    is_submission = role[rows] == SUBMISSION
    follows = is_submission[1:] & is_submission[:-1]
    previous, rows = rows[:-1][follows], rows[1:][follows]
    before = ends[previous]
    if not calls.records_waits(driver):
        execution = as_numpy(calls.execution)[as_numpy(calls.call_of)[previous]]
        before = np.where(execution >= 0, np.maximum(before, ends[execution]), before)
    between = np.maximum(0, as_numpy(calls.table.start)[rows] - before)
    function = as_numpy(calls.function)[as_numpy(calls.call_of)[rows]]
    # Only its own functions, since there may be thousands of drivers and of functions.
    own, number = np.unique(function, return_inverse=True)
    between_of, rows_of = split(number, len(own), between, rows)
    return {
        calls.functions[own[each]]: (between_of[each].tolist(), rows_of[each].tolist()) for each in by_first(number)
    }


def _driver_finding(
    analysis: Analysis, driver: int, function: Function, usual: int, runs: int, own: int, rows: list[int]
) -> Finding:
    name = analysis.calls.frame_name(driver)
    text = (
        f"{quoted(name)} runs its own code for {duration(usual)} before each call of {quoted(function.name)}, which "
        f"takes {duration(runs)} (medians of {count(len(rows), 'call')}): workers wait for the driver, "
        f"{duration(own)} in all"
    )
    advice = "move that work into the tasks, or into separate tasks"
    about = {"driver": name, "function": function.name}
    # It may also have waited for something else in that time.
    is_assumed = not analysis.calls.records_waits(driver) or function.is_assumed
    text = seems(text, is_assumed=is_assumed)
    title = f"{quoted(name)} is slower than its workers"
    return Finding("serial-driver", text, advice, own / analysis.path.wall, rows, about, is_assumed, title=title)


_LOOP_ROUNDS = 5
_LOOP_PAUSE = 0.25
"""Where waiting is not recorded: the longest pause between the end of a call and the next submission in such a loop, as
a share of the call."""


def get_in_loop(analysis: Analysis) -> list[Finding]:
    """Callers that wait for each call before they submit the next one. A call may come with others that it needs.

    Measures: these calls on the critical path. Time that any order takes, such as the start of workers, does not count.
    Threshold: 5 rounds and a twentieth of the run: less is not worth a change.
    Looks the same: calls that need a value from the previous result, and threads that take turns. Calls that another
    call releases do not count. Nor do loops that wait for several functions in turn, since one may need the other's
    value.
    Advice: if no call needs the previous result, submit all calls first, then wait for all at once.
    Needs: arguments that are references, and waits of the caller. Without waits, it is assumed from the times of the
    calls.
    """
    calls = analysis.calls
    others: Counter[int] = Counter()
    for step in analysis.path.steps:
        if step.kind in (STARTING, RETRYING):
            others[step.row] += step.took
    loops: dict[int, list[_LoopRound]] = {}
    assumed = set()
    for frame in calls.frames_with_members(_LOOP_ROUNDS):
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
        waited = sum(each.end - each.start for each in rounds)
        rows = {row for each in rounds for row in each.rows} - analysis.path.released
        on_path = sum(analysis.path.executions[row] - others[row] for row in rows)
        on_path -= _first_scheduling(analysis, calls.functions[function], rows) + _ran_in_turn(analysis, rows, blocked)
        if is_costly(analysis, on_path, 0.05):
            found.append(
                _loop_finding(
                    analysis, calls.functions[function], rounds, waited, on_path, is_assumed=function in assumed
                )
            )
    return found


def _first_scheduling(analysis: Analysis, function: str, rows: set[int]) -> int:
    """How long the first call of a function on the path waited for Ray, if it is one of these."""
    steps = (step for step in analysis.path.steps if step.kind in (SCHEDULING, STARTING) and step.row >= 0)
    first = next((step.row for step in steps if analysis.calls.function_of(step.row) == function), -1)
    if first not in rows:
        return 0
    return sum(step.took for step in analysis.path.steps if step.row == first and step.kind == SCHEDULING)


def _ran_in_turn(analysis: Analysis, rows: set[int], blocked: dict[str, list[tuple[int, int]]]) -> int:
    """How long the code of these calls ran on the path that can only run in turn: the most of one actor."""
    ran: Counter[str] = Counter()
    for step in analysis.path.steps:
        if step.kind == RUN and step.row in rows and (place := analysis.calls.place(step.row)).actor:
            time = step.start, step.end
            turns = [time] if place.slots == 1 else blocked.get(place.actor, ())
            ran[place.actor] += covered(turns, *time)
    return max(ran.values(), default=0)


class _LoopRound(NamedTuple):
    """One round of such a loop. Times are nanoseconds."""

    rows: list[int]
    """The executions: that of the call that was waited for, and those of the calls that it needs."""
    start: int
    end: int


def _loops(calls: Calls, frame: int) -> Iterator[tuple[int, list[_LoopRound]]]:
    """The loops of a frame, with the function that each waits for. No round of one takes a result of another."""
    rounds: list[_LoopRound] = []
    before, known = set[int](), set[int]()
    function = -1
    for each in _loop_rounds(calls, frame) if calls.records_waits(frame) else _likely_rounds(calls, frame):
        made = {calls.call_of[row] for row in each.rows} if each else set()
        found = calls.function[calls.call_of[each.rows[0]]] if each else -1
        if found < 0 or found != function or takes_any(calls, made, before, known):
            if len(rounds) >= _LOOP_ROUNDS:
                yield function, rounds
            rounds, function = [], found
            before, known = set(), set()
        if each:
            rounds.append(each)
            before |= made
    if len(rounds) >= _LOOP_ROUNDS:
        yield function, rounds


def _loop_rounds(calls: Calls, frame: int) -> Iterator[_LoopRound | None]:
    """The calls that a frame waits for right after their submission; None ends a series of them."""
    table = calls.table
    submitted: list[int] = []
    waited_for = -1
    for row in calls.members(frame):
        role = calls.role[row]
        if role == SUBMISSION:
            submitted.append(calls.call_of[row])
            continue
        if role not in (GET, WAIT):
            continue
        objects = calls.made_by(row)
        call = objects[0][1] if len(objects) == 1 and not calls.is_cut(row) else -1
        execution = calls.execution[call] if call >= 0 else -1
        if execution >= 0 and _needs_all(calls, call, submitted):
            if role == WAIT and table.end_or_now(row) < table.end_or_now(execution):
                continue  # it gave up, and may wait again
            waited_for = call
            others = (calls.execution[each] for each in submitted if each != call)
            yield _LoopRound(
                [execution, *(each for each in others if each >= 0)], table.start[row], table.end_or_now(row)
            )
        elif objects and call != waited_for:
            yield None
        submitted.clear()


def _needs_all(calls: Calls, call: int, submitted: list[int]) -> bool:
    """Whether a call is the last of those that were submitted, and the others are there for its arguments."""
    needed = {call}
    for each in reversed(submitted):
        if each not in needed:
            return False
        needed.update(made for _, made in calls.made_by(calls.submission[each]))
    return call in submitted


def _likely_rounds(calls: Calls, frame: int) -> Iterator[_LoopRound | None]:
    """The same where waiting is not recorded: each call is submitted soon after the previous one has ended."""
    table = calls.table
    ended = 0
    for row in calls.members(frame):
        if calls.role[row] != SUBMISSION or (execution := calls.execution[calls.call_of[row]]) < 0:
            continue
        start, end = calls.submitted_ns(calls.call_of[row]), table.end_or_now(execution)
        pause = table.start[row] - ended
        if ended and not 0 <= pause <= _LOOP_PAUSE * (end - start):
            yield None
        yield _LoopRound([execution], start, end)
        ended = end


def _is_of_trial(calls: Calls, rounds: list[_LoopRound]) -> bool:
    """Whether Ray Tune makes these calls, for one of its trials."""
    submission = calls.made(rounds[0].rows[0])
    return submission >= 0 and is_made_by_trial(calls.table, submission)


def _loop_finding(
    analysis: Analysis,
    function: str,
    rounds: list[_LoopRound],
    waited: int,
    on_path: int,
    *,
    is_assumed: bool,
) -> Finding:
    calls = analysis.calls
    frame = calls.caller(rounds[0].rows[0])
    caller = calls.frame_name(frame) if frame >= 0 else "a caller"
    usual = round(median(each.end - each.start for each in rounds))
    loops = len({calls.caller(each.rows[0]) for each in rounds})
    of_loops = f" by {loops:,} such callers, which may run at once" if loops > 1 else " one after the other"
    text = (
        f"{quoted(caller)} waits for each call of {quoted(function)} before it makes the next: "
        f"{count(len(rounds), 'call')}{of_loops}, {duration(usual)} each (median), {duration(waited)} in all"
    )
    advice = "if a call does not need the previous result, submit all calls first, then wait for all at once"
    about = {"function": function, "caller": caller}
    share = on_path / analysis.path.wall
    rows = [each.rows[0] for each in rounds]
    title = f"{quoted(function)} runs one call at a time"
    return Finding(
        "get-in-loop", seems(text, is_assumed=is_assumed), advice, share, rows, about, is_assumed, title=title
    )
