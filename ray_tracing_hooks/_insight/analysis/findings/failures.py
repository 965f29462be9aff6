"""Executions, drivers and other spans that failed, and calls that have not ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RETRYING, RUN, WAITING, PathStep
from ray_tracing_hooks._insight.analysis.deadlocks import deadlocks
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.findings.train_tune import rows_of_restarts, rows_of_trials
from ray_tracing_hooks._insight.analysis.intervals import covered, in_both
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, shortened
from ray_tracing_hooks._insight.model.calls import DRIVER, EXECUTION, GET, OTHER, SUBMISSION, WAITS
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.serve_spans import is_refused
from ray_tracing_hooks._insight.model.span import error_text, error_type
from ray_tracing_hooks._insight.model.table import LOST, RUNNING, Table
from ray_tracing_hooks._libraries import LIBRARIES

_READ = 1000
"""The most spans that are read from files for their error type, which may be in an event."""

_SHOWN = 3


def _types_of(table: Table, rows: Sequence[int]) -> str:
    """The most frequent types of the errors of these spans, with their numbers: ``ValueError x3, KeyError``."""
    types: Counter[str] = Counter()
    for row in rows[:_READ]:
        given = table.attribute(row, names.ERROR_TYPE)
        types[str(given or error_type(table.span(row)) or "without a type")] += 1
    several = ", ".join(
        f"{quoted(name)} x{number:,}" if number > 1 else quoted(name) for name, number in types.most_common(_SHOWN)
    )
    more = len(types) - _SHOWN
    return several + (f" and {count(more, 'other type')}" if more > 0 else "")


_OF_A_DEATH = ("WorkerCrashedError", "ActorDiedError", "OutOfMemoryError", "NodeDiedError", "WorkerDiedError")
"""How the types of errors end that a caller gets from a call whose worker died."""


def _passed_on(analysis: Analysis) -> dict[int, int]:
    """The frames that passed an error on, with the execution that they got it from.

    The error of the caller has the type and the message of the call's, or is one of those that Ray raises if a worker
    dies. At most ``_READ`` errors are compared; one that is not compared is taken for the caller's own.
    """
    table, calls = analysis.table, analysis.calls
    is_failed, is_dead = analysis.is_failed, table.is_dead()
    found: dict[int, int] = {}
    compared = 0
    for row in np.nonzero(is_failed & (as_numpy(calls.role) == EXECUTION))[0].tolist():
        frame = calls.caller(row)
        if not 0 <= frame < len(table) or not is_failed[frame] or frame in found or not calls.is_last_attempt(row):
            continue
        if table.end_or_now(row) > table.end_or_now(frame):
            continue
        if (compared := compared + 1) > _READ:
            break
        kind = str(table.attribute(frame, names.ERROR_TYPE) or "")
        is_of_death = is_dead[row] and kind.endswith(_OF_A_DEATH)
        if is_of_death or error_text(table.span(row)) == error_text(table.span(frame)):
            found[frame] = row
    return found


def failed_drivers(analysis: Analysis) -> Iterable[Finding]:
    """Drivers that ended with an error, or whose process died.

    Measures: the error of the driver's span. It claims no cost.
    Threshold: none: the program failed.
    Looks the same: a driver that passes on the error of a call. The finding of that call names the driver instead.
    Advice: none: it depends on the program.
    Needs: the driver's span, or its end as the shipper of its node saw it.
    """
    table, calls = analysis.table, analysis.calls
    passing = _passed_on(analysis)
    for row in np.nonzero((as_numpy(calls.role) == DRIVER) & table.is_failed())[0].tolist():
        if row in passing:
            continue
        error = shortened(error_text(table.span(row)), 160)
        yield Finding(
            "failed-driver",
            f"the driver {quoted(calls.frame_name(row))} failed: {error}",
            "",
            0.0,
            [row],
            is_failure=True,
            quotes={names.ERROR_TYPE: error},
            title=f"{quoted(calls.frame_name(row))} failed",
        )


_JOB_ENDED = "its job has finished"
_DEATH_ADVICE = {
    _JOB_ENDED: "get its result before the program ends; work that has to outlive the program belongs in a detached "
    "actor",
    "`ray.kill`": "the program killed the actor: if the call has to finish, get its result before ray.kill",
    "its owner has died": "an actor ends with the process that created it, unless it is detached",
    "ran low on memory": "run fewer such tasks per node (request more num_cpus or memory), or let each use less memory",
    "force ray.cancel": "",
}
"""What to do, by a part of the cause of death (:mod:`ray_tracing_hooks._ship.open_spans`)."""

_DEATH_UNKNOWN = "look for the cause in the worker's log; if it ran out of memory, run fewer such tasks per node"
_DEATH_OTHER = "look for the cause in the worker's log"

_CALLERS = 3

_DIED = "worker died"
"""How a cause of death begins, if there is one; the finding says that already."""

_ESTIMATED = 1_000_000_000
"""By how much the end of a driver that died may be estimated too late, in nanoseconds."""


def failed_executions(analysis: Analysis) -> list[Finding]:
    """Executions that failed, or whose worker was killed. Each error counts once, where it was raised. The text names
    the callers that passed it on.

    Measures: failed attempts on the critical path, and the delay before their retries.
    Threshold: none. It claims no cost if nothing was retried: the results are missing.
    Looks the same: attempts of restarted trainings and failed trials. They are findings of their own.
    Advice: depends on the cause of death, if one is known. After retries, find out why attempts fail.
    Needs: executions with their errors. If a worker died, its end as the shipper of its node saw it.
    """
    table, calls = analysis.table, analysis.calls
    failed = np.nonzero((as_numpy(calls.role) == EXECUTION) & analysis.is_failed)[0].tolist()
    # Other findings say what the restarts of training and failed trials cost. Of a rank that failed for another one,
    # the other one says why.
    restarted, trials = rows_of_restarts(analysis), rows_of_trials(analysis)
    passing = _passed_on(analysis)
    explained = restarted | passing.keys()
    failed = [row for row in failed if row not in explained and not _is_below(table, row, trials)]
    is_dead = table.is_dead()
    died = _by_cause(table, [row for row in failed if is_dead[row]])
    ended = _outlasting(analysis, [row for row in failed if table.state[row] != LOST])
    with_driver = sorted([*died.pop(_JOB_ENDED, []), *ended])
    unended = [row for row in failed if table.state[row] == LOST and not is_dead[row]]
    raised = [row for row in failed if table.state[row] != LOST and row not in ended]
    return [
        *(
            found
            for cause, rows in died.items()
            for found in _killed(analysis, rows, _DEATH_ADVICE.get(cause, cause), passing)
        ),
        *_killed(analysis, unended, _DEATH_UNKNOWN, passing),
        *_ended_with_driver(analysis, with_driver),
        *_errors(analysis, raised, passing),
    ]


def _by_cause(table: Table, rows: list[int]) -> dict[str, list[int]]:
    """These executions by their cause of death, a key of the advice or the advice itself, the most frequent first.

    That of the rows beyond :data:`_READ` is not looked at.
    """
    found: dict[str, list[int]] = {}
    for row in rows[:_READ]:
        message = table.span(row).status_message
        known = next(
            (cause for cause in _DEATH_ADVICE if cause in message),
            _DEATH_OTHER if ": " in message else _DEATH_UNKNOWN,
        )
        found.setdefault(known, []).append(row)
    if rows[_READ:]:
        found.setdefault(_DEATH_UNKNOWN, []).extend(rows[_READ:])
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def _outlasting(analysis: Analysis, rows: list[int]) -> set[int]:
    """Those that got a SIGTERM when their driver had ended: so Ray ends what still runs then."""
    table = analysis.table
    died = [row for row in rows if table.attribute(row, names.ERROR_TYPE) == names.WORKER_DIED]
    ends: dict[tuple[int, str], int] = {}
    for row in analysis.calls.rows_of(DRIVER).tolist() if died else ():
        ends[_driver_of(table, row)] = table.end_or_now(row) - (_ESTIMATED if table.state[row] == LOST else 0)
    return {row for row in died if table.end_or_now(row) >= ends.get(_driver_of(table, row), table.now_ns + 1)}


def _driver_of(table: Table, row: int) -> tuple[int, str]:
    return table.trace[row], str(table.attribute(row, names.RAY_JOB_ID))


def _ended_with_driver(analysis: Analysis, rows: list[int]) -> Iterable[Finding]:
    if not rows:
        return
    was, its = ("was", "its") if len(rows) == 1 else ("were", "their")
    yield Finding(
        "killed-workers",
        f"{count(len(rows), 'execution')} of {_functions(analysis, rows)} {was} still running when {its} driver ended",
        _DEATH_ADVICE[_JOB_ENDED],
        0.0,
        rows,
        is_failure=True,
        title="The driver ended before its calls",
    )


def _is_below(table: Table, row: int, rows: set[int]) -> bool:
    """Whether an execution was submitted for one of these spans."""
    submission = table.parent[row]
    return bool(rows) and submission >= 0 and table.parent[submission] in rows


@dataclass
class _Retries:
    """The retries of failed executions. Times are nanoseconds."""

    failed: int
    """How many executions failed."""
    retried: int
    """How many of them were retried."""
    lost: int
    """Their run time, added up over workers."""
    is_estimated: bool
    """Whether that is known only until Ray noticed the death of a worker."""
    delay: int
    """How long the run waited between them and their retries."""
    share: float
    """How much of the critical path they and the delay are, from 0 to 1."""

    def __str__(self) -> str:
        if not self.retried:
            return "not retried" if self.failed == 1 else "none was retried"
        of_all = "" if self.retried == self.failed else f"{self.retried:,} of them "
        waited = f"; the run waited {duration(self.delay)} for the retries to start" if self.delay else ""
        most = "at most " if self.is_estimated else ""
        return f"{of_all}retried, after {most}{duration(self.lost)} of lost work{waited}"


def _retries(analysis: Analysis, rows: list[int]) -> _Retries:
    table, calls = analysis.table, analysis.calls
    retried = {row for row in rows if not calls.is_last_attempt(row)}
    delays = [step for step in analysis.path.steps if step.kind == RETRYING and step.source in retried]
    return _Retries(
        len(rows),
        len(retried),
        lost=sum(map(table.duration, retried)),
        is_estimated=any(table.attribute(row, names.RAY_END_ESTIMATED) for row in retried),
        delay=sum(step.took for step in delays),
        share=_on_path(analysis, retried, delays),
    )


def _on_path(analysis: Analysis, retried: set[int], delays: list[PathStep]) -> float:
    """The share of the critical path, from 0 to 1, that is in these attempts or waits for their retries."""
    table, path = analysis.table, analysis.path
    attempts = {step.source for step in delays} | {step.row for step in path.steps if step.kind == RUN} & retried
    times = [step.time for step in delays]
    times += [table.time(row) for row in attempts]
    return covered(times, path.start, path.end) / path.wall if path.wall else 0.0


def _way_up(analysis: Analysis, rows: list[int], passing: dict[int, int]) -> str:
    """Which callers passed the errors of these executions on; empty for none."""
    reached, frames = set(rows), []
    # Callers begin before their calls do, so the innermost come last.
    for frame in sorted(passing, reverse=True):
        if passing[frame] in reached:
            reached.add(frame)
            frames.append(frame)
    by_name = Counter(analysis.calls.frame_name(frame) for frame in frames)
    callers = [quoted(name) + (f" x{many:,}" if many > 1 else "") for name, many in by_name.items()]
    more = [count(len(callers) - _CALLERS, "other caller")] if len(callers) > _CALLERS else []
    return f"; passed on by {listed([*callers[:_CALLERS], *more])}" if callers else ""


def _killed(analysis: Analysis, rows: list[int], advice: str, passing: dict[int, int]) -> Iterable[Finding]:
    if not rows:
        return
    found = _retries(analysis, rows)
    reasons = _reasons(analysis, rows)
    is_known = bool(analysis.table.attribute(rows[0], names.RAY_END_ESTIMATED))
    yield Finding(
        "killed-workers",
        f"{_died(analysis, rows)}{reasons}; {found}{_way_up(analysis, rows, passing)}",
        advice,
        found.share,
        rows,
        is_failure=True,
        quotes={names.ERROR_TYPE: reasons.strip()},
        title=f"{_functions(analysis, rows)} {'lost workers' if is_known else 'never ended'}",
    )


def _reasons(analysis: Analysis, rows: list[int]) -> str:
    """The most frequent one, in brackets; empty if none was recorded."""
    spans = map(analysis.table.span, rows[:_READ])
    messages = (error_text(span).removeprefix(_DIED).removeprefix(": ") for span in spans if span.status_message)
    reasons = Counter(filter(None, messages)).most_common()
    if not reasons:
        return ""
    more = f" and {count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    return f" ({shortened(reasons[0][0].rstrip('.'), 160)}{more})"


def _died(analysis: Analysis, rows: list[int]) -> str:
    """How many workers died while they ran these executions, or how many of these have no end if no more is known."""
    table, functions = analysis.table, _functions(analysis, rows)
    if table.attribute(rows[0], names.RAY_END_ESTIMATED):
        workers = {analysis.calls.place(row).worker or table.resource[row] for row in rows}
        return f"{count(len(workers), 'worker')} died while running {functions}"
    whose = "its worker" if len(rows) == 1 else "their workers"
    return f"{count(len(rows), 'execution')} of {functions} never ended, so {whose} may have died"


def _errors(analysis: Analysis, rows: list[int], passing: dict[int, int]) -> Iterable[Finding]:
    if not rows:
        return
    found = _retries(analysis, rows)
    types, way = _types_of(analysis.table, rows), _way_up(analysis, rows, passing)
    yield Finding(
        "errors",
        f"{count(len(rows), 'execution')} of {_functions(analysis, rows)} failed: {types}; {found}{way}",
        "each retry repeats the whole call: find out why attempts fail, or do the part that fails in a call of its own"
        if found.retried
        else "",
        found.share,
        rows,
        is_failure=True,
        quotes={names.ERROR_TYPE: types},
        title=f"{_functions(analysis, rows)} failed",
    )


def _functions(analysis: Analysis, rows: list[int]) -> str:
    by_name = Counter(analysis.calls.function_of(row) for row in rows)
    (name, _), *others = by_name.most_common()
    return quoted(name) + (f" and {count(len(others), 'other function')}" if others else "")


_OF_LIBRARY = re.compile(rf" ray\.({'|'.join(library.part for library in LIBRARIES)})\b")
"""Runs, operators and trials: their calls fail too, and other findings say what that costs."""


def failed_spans(analysis: Analysis) -> Iterable[Finding]:
    """Failed spans outside of failed calls and drivers: requests of Ray Serve, and spans of the program.

    Measures: their number, and the types of their errors. It claims no cost.
    Threshold: one span. Spans that only pass on the error of a span below them do not count.
    Looks the same: errors that the program expects. Refused requests are another finding.
    Advice: none: it depends on the program.
    Needs: spans with their status.
    """
    table, calls = analysis.table, analysis.calls
    is_failed, role = table.is_failed(), as_numpy(calls.role)
    failed = np.nonzero(is_failed)[0].tolist()
    above_failed = {table.parent[row] for row in failed} | _passing_on(analysis, failed)
    within = {row for row in failed if role[row] in {EXECUTION, DRIVER}}
    rows = [
        row
        for row in failed
        if role[row] in {OTHER, SUBMISSION}
        and row not in above_failed
        and calls.frame[row] not in within
        and not _OF_LIBRARY.search(table.name_of(row))
        and not is_refused(table, row)
    ]
    if not rows:
        return
    by_name = Counter(table.name_of(row) for row in rows)
    (name, _), *others = by_name.most_common()
    more, types = f" and {count(len(others), 'other name')}" if others else "", _types_of(table, rows)
    yield Finding(
        "failed-spans",
        f"{count(len(rows), 'span')} of {quoted(name)}{more} failed: {types}",
        "",
        0.0,
        rows,
        is_failure=True,
        quotes={names.ERROR_TYPE: types},
        title=f"{quoted(name)}{more} failed",
    )


def _passing_on(analysis: Analysis, failed: Sequence[int]) -> set[int]:
    """Failed requests and methods of deployments with a failed method below them that has the same type of error.

    That of a server is the status of its response.
    """
    table, spans = analysis.table, analysis.serve_spans
    if spans is None:
        return set()
    found: set[int] = set()
    for row in failed:
        error, above = table.attribute(row, names.ERROR_TYPE), spans.above[row]
        while above >= 0 and above not in found:
            if spans.is_failed[above] and (spans.is_server[above] or table.attribute(above, names.ERROR_TYPE) == error):
                found.add(int(above))
            above = spans.above[above]
    return found


_NAMED = 6
_DEADLOCK_ADVICE = (
    "an actor cannot run a call while it waits for that call: make the actor async, or do not wait for the call"
)
_DEADLOCK_TITLE = "Calls wait for each other"


def unfinished(analysis: Analysis) -> list[Finding]:
    """Calls that have not ended, deadlocks, and waits that timed out. A deadlock counts even if its processes died.

    Measures: how long calls have run, and how long the run waited in vain, in deadlocks and in waits that timed out.
    Threshold: any call that has not ended, since the run may hang. For timeouts, a twentieth of the run.
    Looks the same: a slow call: only a cycle of waits counts as a deadlock. Polling: a ``ray.wait`` does not count as a
    timeout.
    Advice: for deadlocks, make the actor async, or do not wait. For timeouts, find out why the calls take longer.
    Needs: open spans, from a spool or with an estimated end. For deadlocks, waits too.
    """
    table, calls = analysis.table, analysis.calls
    is_call_or_wait = np.isin(as_numpy(calls.role), (EXECUTION, *WAITS))
    running = np.nonzero(is_call_or_wait & (as_numpy(table.state) == RUNNING))[0].tolist()
    if not running:
        return _ended(analysis)
    circle = next(iter(deadlocks(calls)), [])
    # A waiting call is open because of what it waits for, so the innermost calls say most.
    waiting = {calls.frame[row] for row in running if calls.role[row] in WAITS}
    leaves = [row for row in running if calls.role[row] == EXECUTION and row not in waiting]
    executions = [row for row in running if calls.role[row] == EXECUTION]
    text = f"{count(len(executions), 'call')} had not ended when the spans were read"
    if circle:
        text += f"; they wait for each other in a cycle, a deadlock: {_cycle(analysis, circle)}"
    elif leaves:
        oldest = min(leaves, key=table.start.__getitem__)
        since = duration(table.duration(oldest))
        text += f"; the one that has run longest without waiting is {quoted(calls.function_of(oldest))}, for {since}"
    elif running:
        oldest = min(running, key=table.start.__getitem__)
        text += f"; all of them wait, the longest for {duration(table.duration(oldest))}"
    shown = circle or sorted(leaves or running, key=table.start.__getitem__)
    share = max((table.duration(row) for row in shown), default=0) / max(1, analysis.path.wall)
    title, advice = (_DEADLOCK_TITLE, _DEADLOCK_ADVICE) if circle else ("Calls have not ended", "")
    return [Finding("unfinished", text, advice, share, shown, is_failure=True, title=title)]


def _ended(analysis: Analysis) -> list[Finding]:
    table, path = analysis.table, analysis.path
    is_dead = table.is_dead()
    in_vain = [step.time for step in path.steps if step.kind == WAITING]
    found, times = [], []
    for circle in deadlocks(analysis.calls, LOST):
        if not all(is_dead[row] for row in circle):
            continue
        # All of them were stuck from the start of the last one until the first of their processes died.
        stuck = max(map(table.start.__getitem__, circle)), min(map(table.end_or_now, circle))
        times.append(stuck)
        cost = in_both([stuck], in_vain)
        text = (
            f"{count(len(circle), 'call')} waited for each other in a cycle, a deadlock, until their processes died: "
            f"{_cycle(analysis, circle)}"
        )
        share = cost / path.wall if path.wall else 0.0
        found.append(Finding("deadlock", text, _DEADLOCK_ADVICE, share, circle, is_failure=True, title=_DEADLOCK_TITLE))
    return found + _timed_out(analysis, times)


def _timed_out(analysis: Analysis, in_deadlock: list[tuple[int, int]]) -> list[Finding]:
    """Waits for results that ended with a timeout, but for the time in which a deadlock was the reason."""
    calls, path = analysis.calls, analysis.path
    waited: Counter[int] = Counter()
    for step in path.steps:
        if step.kind == WAITING and calls.role[step.row] == GET:
            waited[step.row] += step.took - covered(in_deadlock, step.start, step.end)
    cost = sum(waited.values())
    if not is_costly(analysis, cost, 0.05):
        return []
    rows = [row for row, _ in waited.most_common()]
    functions = Counter(name for row in rows for name in set(_awaited(analysis, row)))
    what = listed([quoted(name) for name, _ in functions.most_common(_SHOWN)]) or "objects"
    caller = calls.frame_name(calls.frame[rows[0]])
    text = (
        f"{quoted(caller)} gave up on results of {what} {count(len(rows), 'time')}, "
        f"after it had waited {duration(cost)} in all"
    )
    advice = (
        "find out why they take longer than the timeout; if that is expected, do other work meanwhile, and use ray.wait"
    )
    about = {"caller": caller}
    title = f"Waits for {what} time out"
    return [Finding("timed-out", text, advice, cost / path.wall, rows, about, is_failure=True, title=title)]


def _awaited(analysis: Analysis, wait: int) -> list[str]:
    """The functions and methods of deployments whose results a wait was for."""
    calls = analysis.calls
    made = [max(calls.submission[call], calls.execution[call]) for _, call in calls.made_by(wait) if call >= 0]
    return [*map(calls.function_of, made), *map(calls.frame_name, analysis.served.awaited(wait))]


def _cycle(analysis: Analysis, circle: list[int]) -> str:
    names = [quoted(analysis.calls.frame_name(frame)) for frame in circle[:_NAMED]]
    return " > ".join([*names, names[0]])
