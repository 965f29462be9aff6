"""How callers wait: for all calls before the next ones, for results in turn, in chains, and by asking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_ARGUMENT, RUN
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.intervals import in_both, taken_by
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed
from ray_tracing_hooks._insight.model.calls import GET, SUBMISSION, WAIT, WAITS, Calls, is_item
from ray_tracing_hooks._insight.model.grouped import most_at_once
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import QUEUE, is_creation

RESULTS_IN_ORDER, BARRIER, POLLING = "results-in-order", "barrier", "polling"

_LEAST = 0.5
"""Seconds."""
_RESULTS = 3


def results_in_order(analysis: Analysis) -> list[Finding]:
    """Callers that take results in a fixed order, and wait for one while others that they use later are ready.

    Measures: how much earlier the last one would be used if each was taken as it became ready.
    Threshold: 3 results, 0.5 s and a tenth of the run.
    Looks the same: code that needs the results in this order.
    Advice: take results as they become ready, with ray.wait.
    Needs: waits of the caller, in one thread, and the calls that it waits for.
    """
    return [_in_order_finding(analysis, frame, taken, cost) for frame, taken, cost in _costly_orders(analysis)]


def saved_by_order(analysis: Analysis) -> Counter[int]:
    """By frame, how much of its own code on the critical path could have run while it waited for other results."""
    found: Counter[int] = Counter()
    for frame, _, cost in _costly_orders(analysis):
        found[frame] += cost
    return found


class _Taken(NamedTuple):
    """A result that a caller waited for by itself. Times are nanoseconds."""

    row: int
    """The execution of its call."""
    begin: int
    end: int
    used: int
    """How long the caller ran before it waited for the next one."""


def _costly_orders(analysis: Analysis) -> Iterator[tuple[int, list[_Taken], int]]:
    """The frame, the results that it took, and the cost."""
    for frame in callers(analysis):
        if not is_costly(analysis, analysis.ran_on_path[frame], seconds=_LEAST):
            continue
        for taken in _taken_in_turn(analysis.calls, frame):
            done = taken[0].begin
            for ready, used in sorted((analysis.table.end_or_now(each.row), each.used) for each in taken):
                done = max(done, ready) + used
            begin, end = taken[0].begin, taken[-1].end + taken[-1].used
            steps = (step.time for step in analysis.path.steps if step.kind == RUN and step.row == frame)
            if not is_costly(analysis, end - done, seconds=_LEAST):
                continue
            cost = min(end - done, in_both([(begin, end)], steps))
            if is_costly(analysis, cost, seconds=_LEAST):
                yield frame, taken, cost


def callers(analysis: Analysis) -> list[int]:
    """The frames on the critical path that wait several times, in one thread and always with spans."""
    calls = analysis.calls
    is_wait, unknown = np.isin(as_numpy(calls.role), WAITS), calls.with_futures | calls.with_threads
    return [
        frame
        for frame in calls.frames_with_members(4)
        if frame in analysis.ran_on_path and frame not in unknown and calls.records_waits(frame)
        if np.count_nonzero(is_wait[as_numpy(calls.members(frame))]) > 1
    ]


def _taken_in_turn(calls: Calls, frame: int) -> Iterator[list[_Taken]]:
    """The results of calls that a frame took one by one, without a call in between. To read one again is to use it."""
    table = calls.table
    rows: dict[int, int] = {}
    for row in calls.members(frame):
        execution = _taken_alone(calls, row)
        # Each result once; other rows have numbers of their own.
        rows.setdefault(execution if execution >= 0 else -1 - row, row)
    found: list[_Taken] = []
    for (execution, row), (_, later) in pairwise([*rows.items(), (-1, -1)]):
        if execution < 0:
            if len(found) >= _RESULTS:
                yield found
            found = []
            continue
        end = table.end_or_now(row)
        used = max(0, (table.start[later] if later >= 0 else calls.frame_end(frame)) - end)
        if later < 0 or calls.role[later] != GET:
            # What comes after the last one may be for all of them.
            used = min(used, max((each.used for each in found), default=0))
        found.append(_Taken(execution, table.start[row], end, used))
    if len(found) >= _RESULTS:
        yield found


def _taken_alone(calls: Calls, row: int) -> int:
    """The execution whose result a ``ray.get`` took, and no other; -1 for anything else."""
    made = calls.made_by(row) if calls.role[row] == GET and not calls.table.failed(row) else []
    execution = calls.execution[made[0][1]] if len(made) == 1 and made[0][1] >= 0 else -1
    return -1 if execution < 0 or is_item(made[0][0]) or calls.is_generator(execution) else execution


def takes_any(calls: Calls, made: Iterable[int], of: Collection[int], known: set[int]) -> bool:
    """Whether any of the calls ``made`` takes a result of one of the calls ``of``, or of a call that does.

    ``known``: calls that do not, to which it adds all that it looks at if none does.
    """
    pending = [*made]
    while pending:
        submission = calls.submission[pending.pop()]
        for _, call in calls.made_by(submission) if submission >= 0 else ():
            if call in of:
                return True
            if call >= 0 and call not in known:
                known.add(call)
                pending.append(call)
    return False


def _in_order_finding(analysis: Analysis, frame: int, taken: list[_Taken], cost: int) -> Finding:
    calls, table = analysis.calls, analysis.table
    longest = max(taken, key=lambda each: each.end - each.begin)
    place = taken.index(longest)
    ready = sum(table.end_or_now(each.row) < longest.end for each in taken[place + 1 :])
    used = sum(each.used for each in taken[place:])
    caller, functions = quoted(calls.frame_name(frame)), _functions(calls, [each.row for each in taken])
    text = (
        f"{caller} waited {duration(longest.end - longest.begin)} for one of {count(len(taken), 'result')} of "
        f"{functions} while {ready:,} of the next ones were ready, and then ran for {duration(used)} with them"
    )
    advice = "take results as they become ready, with ray.wait, unless the code needs them in this order"
    about = {"caller": calls.frame_name(frame)}
    rows = [longest.row, *(each.row for each in taken if each is not longest)]
    title = f"{caller} takes results in order"
    return Finding(RESULTS_IN_ORDER, text, advice, cost / analysis.path.wall, rows, about, title=title)


class _Round(NamedTuple):
    """Calls that a frame made, and for all of which it waited before it made the next ones. Times are nanoseconds."""

    rows: list[int]
    """Their executions."""
    begin: int
    end: int


def barriers(analysis: Analysis) -> list[Finding]:
    """Callers that wait for all of their calls before they make the next ones, so the last calls run alone.

    Measures: the calls of all rounds on the critical path, minus the time that they would take at full
    concurrency. That is the most calls that a round ran at once. It assumes that each call runs after one of the
    previous round.
    Threshold: 0.5 s and a tenth of the run, in 2 rounds of 2 calls or more.
    Looks the same: calls that need several results of the previous round. If these are their arguments, they do not
    count.
    Advice: make each call as soon as the results that it needs are there.
    Needs: waits of the caller, in one thread.
    """
    found = []
    for frame in callers(analysis):
        for rounds in _series(analysis, frame):
            cost = _cost_of_barriers(analysis, frame, rounds)
            if is_costly(analysis, cost, seconds=_LEAST):
                found.append(_barrier_finding(analysis, frame, rounds, cost))
    return found


def _series(analysis: Analysis, frame: int) -> Iterator[list[_Round]]:
    """Rounds of several calls that follow each other, and of which none is known to need several of the one before."""
    series: list[_Round] = []
    for each in _rounds(analysis, frame):
        if len(each.rows) < 2 or (series and _needs_several(analysis.calls, series[-1], each)):
            if len(series) > 1:
                yield series
            series = []
        if len(each.rows) > 1:
            series.append(each)
    if len(series) > 1:
        yield series


def _rounds(analysis: Analysis, frame: int) -> Iterator[_Round]:
    """Calls of a frame, for all of which it waited before it made the next ones."""
    calls, table = analysis.calls, analysis.table
    rows: list[int] = []
    pending: set[int] = set()
    begin = waited = 0
    for row in calls.members(frame):
        if calls.role[row] in WAITS:
            waited = table.end_or_now(row)
            _end_waited(calls, row, pending)
        if calls.role[row] != SUBMISSION or (ran := calls.execution[calls.call_of[row]]) < 0:
            continue
        function = calls.function_of(row)
        if is_creation(function) or function in analysis.pipelines.operator_names:
            continue
        if rows and not pending:
            yield _Round(rows, begin, waited)
            rows = []
        begin = begin if rows else table.start[row]
        rows.append(ran)
        pending.add(calls.call_of[row])
    if rows and not pending:
        yield _Round(rows, begin, waited)


def _end_waited(calls: Calls, row: int, pending: set[int]) -> None:
    """Take the calls that had ended after a wait out of ``pending``, with those whose results they took."""
    if calls.table.failed(row):
        return
    found = calls.made_by(row, calls.table.ready if calls.role[row] == WAIT else None)
    while found:
        object_id, call = found.pop()
        if call in pending and not is_item(object_id):
            pending.remove(call)
            found += calls.made_by(calls.submission[call])


def _needs_several(calls: Calls, before: _Round, after: _Round) -> bool:
    made = {calls.call_of[row] for row in before.rows}
    submissions = (calls.made(row) for row in after.rows)
    return any(sum(call in made for _, call in calls.made_by(row)) > 1 for row in submissions)


def _cost_of_barriers(analysis: Analysis, frame: int, rounds: list[_Round]) -> int:
    calls, table = analysis.calls, analysis.table
    lasts: list[int] = []
    took: list[int] = []
    of_actor: dict[str, int] = {}
    for each in rounds:
        attempts = [row for last in each.rows for row in calls.attempts(calls.call_of[last])]
        starts, ends = as_numpy(table.start)[attempts], as_numpy(table.ends)[attempts]
        # Before the last one starts, others may wait for resources.
        last = int(starts.max())
        at_once = most_at_once(starts, np.maximum(ends, starts + 1))
        took.append(int(np.maximum(ends - np.maximum(starts, last), 0).sum()) // at_once)
        lasts.append(last)
        for row in attempts:
            if (place := calls.place(row)).actor and place.slots == 1:
                of_actor[place.actor] = of_actor.get(place.actor, 0) + table.duration(row)
    begins, ends = _code_of_others(analysis, frame)
    until = np.array([each.end for each in rounds])
    idle = np.maximum(taken_by(begins, ends, np.array(lasts), until) - took, 0)
    if int(idle[:-1].sum()) < _LEAST * 1e9:
        return 0
    on_path = taken_by(begins, ends, np.array([each.begin for each in rounds]), until)
    shortest = [min(map(table.duration, each.rows)) for each in rounds]
    longest = [max(map(table.duration, each.rows)) for each in rounds]
    chain = sum(shortest) + max(most - few for most, few in zip(longest, shortest, strict=True))
    return min(int(idle.sum()), int(on_path.sum()) - max(chain, *of_actor.values(), 0))


def _code_of_others(analysis: Analysis, frame: int) -> Any:
    """When the critical path was in code of other frames: starts and ends, as NumPy columns."""
    steps = [step.time for step in analysis.path.steps if step.kind == RUN and step.row != frame]
    return np.array(sorted(steps), np.int64).reshape(-1, 2).T


def _barrier_finding(analysis: Analysis, frame: int, rounds: list[_Round], cost: int) -> Finding:
    calls, table = analysis.calls, analysis.table
    last = [max(each.rows, key=table.end_or_now) for each in rounds[:-1]]
    rows = sorted(last, key=lambda row: -table.duration(row))
    times = sorted(table.duration(row) for each in rounds[:-1] for row in each.rows)
    caller = quoted(calls.frame_name(frame))
    first, then = _functions(calls, rounds[0].rows), _functions(calls, rounds[1].rows)
    what = f"all of {count(len(rounds[0].rows), 'call')} of {first} before it made those of {then}"
    if len(rounds) > 2:
        every = _functions(calls, [row for each in rounds for row in each.rows])
        what = f"all calls of {every} in each of {len(rounds):,} rounds before it made the next"
    text = (
        f"{caller} waited for {what}; the last ones took up to {duration(table.duration(rows[0]))}, the median is "
        f"{duration(percentile(times, 0.5))}"
    )
    advice = (
        "if a call does not need all earlier results, pass it only the references that it needs; or make it once these "
        "are ready, with ray.wait"
    )
    about = {"caller": calls.frame_name(frame)}
    title = f"{caller} waits for all of {first} before {then if then != first else 'the next ones'}"
    return Finding(BARRIER, text, advice, cost / analysis.path.wall, rows, about, title=title)


def _functions(calls: Calls, rows: Sequence[int]) -> str:
    """The functions of executions; two at most."""
    found = list(dict.fromkeys(calls.function_of(row) for row in rows))
    return listed([*map(quoted, found[:2])]) if len(found) <= 2 else f"{quoted(found[0])} and others"


_CHAIN_CALLS = 4


def chains(analysis: Analysis) -> list[Finding]:
    """Functions whose calls form a chain: each takes the previous result, and another result that was already there.

    Measures: the code of these calls on the critical path, without as many calls as a tree of them has levels.
    Threshold: 4 calls in a chain, and a tenth of the run.
    Looks the same: steps that need their order, such as updates of a model with one batch after another.
    Advice: merge in pairs, as a tree, if the order does not matter.
    Needs: the objects among the arguments of submissions.
    """
    calls, found = analysis.calls, []
    for rows in _links(analysis):
        cost = sum(analysis.ran_on_path[row] for row in rows)
        depth = len(rows).bit_length()
        cost -= cost * depth // len(rows)
        if len(rows) < _CHAIN_CALLS or not is_costly(analysis, cost):
            continue
        function = quoted(calls.function_of(rows[0]))
        took = sum(map(analysis.table.duration, rows))
        text = (
            f"{count(len(rows), 'call')} of {function} ran one after the other, for {duration(took)} in all: each "
            f"takes the previous result, and another result that was already there"
        )
        advice = (
            f"if the order does not matter, merge results in pairs, and then merge their results, as a tree: it is "
            f"{depth:,} calls deep instead of {len(rows):,}"
        )
        about = {"function": calls.function_of(rows[0])}
        title = f"{function} runs in a chain"
        # Steps that need their order may look like this, but not if all that they take is of the same kind.
        is_assumed = not _merges_equals(analysis, rows)
        found.append(Finding("chain", text, advice, cost / analysis.path.wall, rows, about, is_assumed, title=title))
    return found


def _links(analysis: Analysis) -> Iterator[list[int]]:
    """The executions on the critical path that form such a chain, in order."""
    calls, chain = analysis.calls, list[int]()
    for step in analysis.path.steps:
        if (
            step.edge != BY_ARGUMENT
            or calls.call_of[step.row] < 0
            or calls.function_of(step.row) != calls.function_of(step.source)
        ):
            continue
        if not chain or chain[-1] != step.source:
            yield from [chain] if chain else []
            chain = [step.source]
        if _is_merge(analysis, step.row, step.source):
            chain.append(step.row)
        else:
            yield chain
            chain = []
    if chain:
        yield chain


def _merges_equals(analysis: Analysis, rows: list[int]) -> bool:
    """Whether the first call of a chain takes two results of one function and nothing else, and each other call takes
    one more of these and the result before it.
    """
    calls, before, merged = analysis.calls, -1, set[int]()
    for row in rows:
        call = calls.call_of[row]
        submission = calls.submission[call]
        taken = calls.made_by(submission) if submission >= 0 else []
        made = [each for _, each in taken if each >= 0 and each != before]
        if len(taken) != 2 or len(made) != (2 if before < 0 else 1) or calls.is_cut(submission):
            return False
        merged |= {calls.function[each] for each in made}
        before = call
    return len(merged) == 1


def _is_merge(analysis: Analysis, row: int, before: int) -> bool:
    """Whether an execution also took another result than that of ``before``, which was there before that ended."""
    calls, table = analysis.calls, analysis.table
    submission, own = calls.made(row), calls.function_of(row)
    made = {call for _, call in calls.made_by(submission)} - {calls.call_of[before]} if submission >= 0 else set()
    others = [calls.execution[call] for call in made if call >= 0 and calls.execution[call] >= 0]
    return any(
        table.end_or_now(other) <= table.end_or_now(before) and calls.function_of(other) != own for other in others
    )


_ASKED = 8
_ASKS = frozenset({f"{QUEUE}empty", f"{QUEUE}full", f"{QUEUE}qsize"})
"""The methods by which ``ray.util.queue.Queue`` says whether an item, or room for one, is there (Ray 2.60)."""


def polling(analysis: Analysis) -> list[Finding]:
    """Callers that ask again and again whether something is ready, and run their own code or sleep in between.

    Measures: their own code on the critical path from one question to the next.
    Threshold: 8 such times, 0.5 s and a tenth of the run.
    Looks the same: code that does something useful between two questions.
    Advice: wait with ``ray.get``, ``ray.wait`` or ``Queue.get`` without a timeout.
    Needs: waits, with how many objects were ready. Of other questions, only methods of ``Queue`` are recognized.
    """
    return [_polling_finding(analysis, frame, between, cost) for frame, between, cost in _costly_questions(analysis)]


def saved_by_waiting(analysis: Analysis) -> Counter[int]:
    """By frame, how much of its own code on the critical path ran between two questions of :func:`polling`."""
    return Counter({frame: cost for frame, _, cost in _costly_questions(analysis)})


def _costly_questions(analysis: Analysis) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
    """The frame, the times between its questions, and how much of them is on the critical path."""
    of_libraries = set(analysis.calls.drivers()) if _has_library(analysis) else set()
    for frame in callers(analysis):
        if not is_costly(analysis, analysis.ran_on_path[frame], seconds=_LEAST) or frame in of_libraries:
            continue
        between = _between_questions(analysis.calls, frame)
        steps = (step.time for step in analysis.path.steps if step.kind == RUN and step.row == frame)
        cost = in_both(between, steps)
        if len(between) >= _ASKED and is_costly(analysis, cost, seconds=_LEAST):
            yield frame, between, cost


def _has_library(analysis: Analysis) -> bool:
    """Whether a library of Ray that asks in the driver's process ran: Ray Data, Train, Tune or Serve."""
    calls = analysis.calls
    is_training = any(calls.training_of(driver) for driver in calls.drivers())
    return bool(
        is_training or analysis.experiments or analysis.pipelines.executions or analysis.serve_spans is not None
    )


def _between_questions(calls: Calls, frame: int) -> list[tuple[int, int]]:
    """The times from the end of one question to the start of the next, without those with other calls in between."""
    table, found, asked = calls.table, [], -1
    for row in calls.members(frame):
        is_call = calls.role[row] == SUBMISSION
        if _asks(calls, row):
            if asked >= 0:
                found.append((asked, table.start[row]))
            asked = table.end_or_now(row)
        elif is_call:
            asked = -1
        elif asked >= 0:
            asked = max(asked, table.end_or_now(row))  # it gets the answer, or what was ready
    return [(end, later) for end, later in found if later > end]


def _asks(calls: Calls, row: int) -> bool:
    """Whether a span asks if something is there, and does not wait until it is."""
    if calls.role[row] == WAIT:
        is_group = calls.table.attribute(row, names.RAY_PLACEMENT_GROUP_ID)
        return not is_group and not calls.table.failed(row) and calls.ready_count(row) < calls.wanted(row)
    return calls.role[row] == SUBMISSION and calls.function_of(row) in _ASKS


def _polling_finding(analysis: Analysis, frame: int, between: list[tuple[int, int]], cost: int) -> Finding:
    calls, caller = analysis.calls, quoted(analysis.calls.frame_name(frame))
    asks = [row for row in calls.members(frame) if _asks(calls, row)]
    usual = percentile(sorted(end - start for start, end in between), 0.5)
    by_queue = [row for row in asks if calls.role[row] == SUBMISSION]
    is_queue = 2 * len(by_queue) > len(asks)
    asks = by_queue if is_queue else [row for row in asks if calls.role[row] == WAIT]
    what = "a Queue has an item or room" if is_queue else "calls were done, by ray.wait with a timeout"
    text = (
        f"{caller} asked {count(len(asks), 'time')} whether {what}, and ran its own code or slept for "
        f"{duration(usual)} (median) before it asked again"
    )
    advice = (
        "if it only sleeps there, wait with Queue.get or Queue.put, which return as soon as they can"
        if is_queue
        else "if it only sleeps there, wait with ray.get, or ray.wait without a timeout, which return as soon as they "
        "can"
    )
    about = {"caller": calls.frame_name(frame)}
    rows = asks if frame >= len(analysis.table) else [frame, *asks]
    return Finding(POLLING, text, advice, cost / analysis.path.wall, rows, about, title=f"{caller} polls")
