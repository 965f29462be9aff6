"""Executions that failed or whose worker was killed, and what their retries cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RETRYING, RUN
from ray_tracing_hooks._insight.analysis.findings.ended_trials import rows_of_trials
from ray_tracing_hooks._insight.analysis.findings.error_types import READ, types_of
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.findings.passed_on import passed_on
from ray_tracing_hooks._insight.analysis.findings.training_restarts import rows_of_restarts
from ray_tracing_hooks._insight.analysis.functions import covered
from ray_tracing_hooks._insight.analysis.wording import count, duration, listed, shortened
from ray_tracing_hooks._insight.model.calls import DRIVER, EXECUTION
from ray_tracing_hooks._insight.model.errors import error_text
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import LOST, Table

KILLED, ERRORS = "killed-workers", "errors"

_JOB_ENDED = "its job has finished"
_ADVICE = {
    _JOB_ENDED: "get its result before the program ends; what has to outlive the program belongs in a detached actor",
    "`ray.kill`": "the program killed the actor: if the call should have ended, get its result before ray.kill",
    "its owner has died": "an actor ends with the process that created it, unless it is detached",
    "ran low on memory": "run fewer such tasks per node, by a larger num_cpus or memory of each, or let each use less",
    "force ray.cancel": "",
}
"""What to do, by a part of the cause of death (:mod:`ray_tracing_hooks._ship.cause_of_death`)."""

_UNKNOWN = "look for the cause in the worker's log; if it ran out of memory, run fewer such tasks per node"
_OTHER = "look for the cause in the worker's log"

_CALLERS = 3

_DIED = "worker died"
"""How a cause of death begins, if there is one; the finding says that already."""

_ESTIMATED = 1_000_000_000
"""By how much the end of a driver that died may be estimated too late, in nanoseconds."""


def find(analysis: Analysis) -> list[Finding]:
    """Executions whose worker died, and executions that failed, by the type of their error.

    An error counts once, for the execution that raised it. Callers that passed it on are named as its way up. What
    failed attempts cost is their time on the critical path, and that between them and their retries.
    """
    table, calls = analysis.table, analysis.calls
    failed = np.nonzero((as_numpy(calls.role) == EXECUTION) & analysis.is_failed)[0].tolist()
    # Other findings say what the restarts of training and failed trials cost. Of a rank that failed for another one,
    # the other one says why.
    restarted, trials = rows_of_restarts(analysis), rows_of_trials(analysis)
    passing = passed_on(analysis)
    told = restarted | passing.keys()
    failed = [row for row in failed if row not in told and not _is_below(table, row, trials)]
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
            for found in _killed(analysis, rows, _ADVICE.get(cause, cause), passing)
        ),
        *_killed(analysis, unended, _UNKNOWN, passing),
        *_ended_with_driver(analysis, with_driver),
        *_errors(analysis, raised, passing),
    ]


def _by_cause(table: Table, rows: list[int]) -> dict[str, list[int]]:
    """These executions by their cause of death, a key of the advice or the advice itself, the most frequent first.

    That of the rows beyond :data:`READ` is not looked at.
    """
    found: dict[str, list[int]] = {}
    for row in rows[:READ]:
        message = table.span(row).status_message
        known = next((cause for cause in _ADVICE if cause in message), _OTHER if ": " in message else _UNKNOWN)
        found.setdefault(known, []).append(row)
    if rows[READ:]:
        found.setdefault(_UNKNOWN, []).extend(rows[READ:])
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def _outlasting(analysis: Analysis, rows: list[int]) -> set[int]:
    """Those that got a SIGTERM when their driver had ended: so Ray ends what still runs then."""
    table = analysis.table
    died = [row for row in rows if table.attribute(row, names.ERROR_TYPE) == names.WORKER_DIED]
    ends: dict[tuple[int, str], int] = {}
    for row in np.nonzero(as_numpy(analysis.calls.role) == DRIVER)[0].tolist() if died else ():
        ends[_driver_of(table, row)] = table.end_or_now(row) - (_ESTIMATED if table.state[row] == LOST else 0)
    return {row for row in died if table.end_or_now(row) >= ends.get(_driver_of(table, row), table.now_ns + 1)}


def _driver_of(table: Table, row: int) -> tuple[int, str]:
    return table.trace[row], str(table.attribute(row, names.RAY_JOB_ID))


def _ended_with_driver(analysis: Analysis, rows: list[int]) -> Iterable[Finding]:
    if not rows:
        return
    was, its = ("was", "its") if len(rows) == 1 else ("were", "their")
    yield Finding(
        KILLED,
        f"{count(len(rows), 'execution')} of {_functions(analysis, rows)} {was} still running when {its} driver ended",
        _ADVICE[_JOB_ENDED],
        0.0,
        rows,
        _retries(analysis, rows).figures,
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
    delay: int
    """How long the run waited between them and their retries."""
    share: float
    """How much of the critical path they and the delay are, from 0 to 1."""

    def __str__(self) -> str:
        if not self.retried:
            return "not retried" if self.failed == 1 else "none was retried"
        of_all = "" if self.retried == self.failed else f"{self.retried:,} of them "
        waited = f"; the run waited {duration(self.delay)} for the retries to start" if self.delay else ""
        return f"{of_all}retried, after {duration(self.lost)} of lost work{waited}"

    @property
    def figures(self) -> dict[str, float | int | str]:
        return {
            "executions": self.failed,
            "tried_again": self.retried,
            "wasted_ns": self.lost,
            "retry_delay_ns": self.delay,
        }


def _retries(analysis: Analysis, rows: list[int]) -> _Retries:
    table, calls = analysis.table, analysis.calls
    retried = {row for row in rows if not calls.is_last_attempt(row)}
    delays = [step for step in analysis.split.steps if step.kind == RETRYING and step.source in retried]
    return _Retries(
        len(rows),
        len(retried),
        lost=sum(map(table.duration, retried)),
        delay=sum(step.end - step.start for step in delays),
        share=_on_path(analysis, retried),
    )


def _on_path(analysis: Analysis, retried: set[int]) -> float:
    """The share of the critical path, from 0 to 1, that is in these attempts or waits for their retries."""
    table, path = analysis.table, analysis.path
    delays = [step for step in path.steps if step.kind == RETRYING and step.source in retried]
    attempts = {step.source for step in delays} | {step.row for step in path.steps if step.kind == RUN} & retried
    times = [(step.start, step.end) for step in delays]
    times += [(table.start[row], table.end_or_now(row)) for row in attempts]
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
    told = [quoted(name) + (f" x{many:,}" if many > 1 else "") for name, many in by_name.items()]
    more = [count(len(told) - _CALLERS, "other caller")] if len(told) > _CALLERS else []
    return f"; passed on by {listed([*told[:_CALLERS], *more])}" if told else ""


def _killed(analysis: Analysis, rows: list[int], advice: str, passing: dict[int, int]) -> Iterable[Finding]:
    if not rows:
        return
    found = _retries(analysis, rows)
    retries = f"{found}{_way_up(analysis, rows, passing)}"
    died = _died(analysis, rows)
    is_known = bool(analysis.table.attribute(rows[0], names.RAY_END_ESTIMATED))
    yield Finding(
        KILLED,
        f"{died}{_reasons(analysis, rows)}; {retries}",
        advice,
        found.share,
        rows,
        found.figures,
        is_failure=True,
        without_errors=f"{died}; {retries}",
        title=f"{_functions(analysis, rows)} {'lost workers' if is_known else 'never ended'}",
    )


def _reasons(analysis: Analysis, rows: list[int]) -> str:
    """The most frequent one, in brackets; empty if none was recorded."""
    spans = map(analysis.table.span, rows[:READ])
    told = (error_text(span).removeprefix(_DIED).removeprefix(": ") for span in spans if span.status_message)
    reasons = Counter(filter(None, told)).most_common()
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
    retries = f"{found}{_way_up(analysis, rows, passing)}"
    failed = f"{count(len(rows), 'execution')} of {_functions(analysis, rows)} failed"
    yield Finding(
        ERRORS,
        f"{failed}: {types_of(analysis.table, rows)}; {retries}",
        "each retry repeats the whole call: find out why attempts fail, or do the part that fails in a call of its own"
        if found.retried
        else "",
        found.share,
        rows,
        found.figures,
        is_failure=True,
        without_errors=f"{failed}; {retries}",
        title=f"{_functions(analysis, rows)} failed",
    )


def _functions(analysis: Analysis, rows: list[int]) -> str:
    by_name = Counter(analysis.calls.function_of(row) for row in rows)
    (name, _), *others = by_name.most_common()
    return quoted(name) + (f" and {count(len(others), 'other function')}" if others else "")
