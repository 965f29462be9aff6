"""A driver whose own code the run waits for: before each call longer than the call runs, or at any other time."""

from __future__ import annotations

import numpy as np

from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import RUN, submissions
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted, seems
from ray_tracing_hooks._insight.analysis.functions import Function, in_both, percentile
from ray_tracing_hooks._insight.analysis.trials import is_made_by_trial
from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._insight.model.calls import SUBMISSION, WAITS, Calls
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_numpy

KIND = "serial-driver"
OWN = "driver-code"

_CALLS = 8
_COST = 0.1
_OWN_COST = 0.2
_OWN_LEAST = 500_000_000


def find(analysis: Analysis) -> list[Finding]:
    """Drivers that submit calls of a function more slowly than one worker runs them, and drivers whose code takes long.

    Both measure the time on the critical path in which the driver's own code ran, outside of ``.remote()``. A driver
    that sleeps, or waits for something else than Ray, looks the same.

    - Serial: at least eight calls follow each other without a wait, the code before each takes longer than a call
      runs (medians), and it takes a tenth of the run. Where waits were not recorded, it is assumed.
    - Any other code between its first call and its last result, of half a second and a fifth of the run. That needs
      recorded waits: otherwise it may be waiting. So it may where a library of Ray works in the driver: Ray Serve, Ray
      Tune, Ray Data, and those whose part is switched off. Then nothing is said. Nor does the time count in which a
      call ran that no recorded wait was for, since the driver may wait for it by ``ObjectRef.future``, for example.
    """
    found: list[Finding] = []
    by_name = {function.name: function for function in analysis.functions}
    for driver in analysis.calls.drivers():
        if driver in analysis.calls.with_futures:
            continue  # what seems to be its code may be a wait
        serial = len(found)
        for name, (between, rows) in _between(analysis.calls, driver).items():
            if len(between) < _CALLS or not analysis.path.wall or name in analysis.pipelines.operator_names:
                continue  # Ray Data decides when to submit the tasks of operators, as Ray Tune does for its trials
            usual, runs = percentile(sorted(between), 0.5), percentile(by_name[name].self_times, 0.5)
            # The critical path includes this time if the run waits for it.
            own = min(sum(between), analysis.path.functions[analysis.calls.frame_name(driver)])
            if usual <= runs or own / analysis.path.wall < _COST:
                continue
            if not all(is_made_by_trial(analysis.table, row) for row in rows):
                found.append(_finding(analysis, driver, by_name[name], usual, runs, own, rows))
        if len(found) == serial:
            found += _own_code(analysis, driver)
    return found


def _own_code(analysis: Analysis, driver: int) -> list[Finding]:
    calls, table, path = analysis.calls, analysis.table, analysis.path
    if driver >= len(table) or not calls.records_waits(driver) or recorded.libraries(calls):
        return []
    if analysis.serve_spans is not None or analysis.experiments or analysis.pipelines.executions:
        return []
    made = [row for row in calls.members(driver) if calls.role[row] in {SUBMISSION, *WAITS}]
    if not made:
        return []
    first, last = table.start[made[0]], max(map(table.end_or_now, made))
    steps = [step for step in path.steps if step.kind == RUN and step.row == driver]
    pieces = [min(step.end, last) - max(step.start, first) for step in steps]
    own = sum(each for each in pieces if each > 0) - sum(took for step in steps for _, took in submissions(calls, step))
    least = max(_OWN_LEAST, _OWN_COST * path.wall)
    if own >= least:
        own -= in_both(_unwaited(calls, made), [(step.start, step.end) for step in steps])
    if own < least:
        return []
    name, longest = calls.frame_name(driver), max(pieces)
    text = (
        f"{quoted(name)} ran its own code for {duration(own)} between its first call and its last result, for up to "
        f"{duration(longest)} at a time, while the run waited for it"
    )
    advice = (
        "if it computes there, move that into tasks, or submit the next calls before it; if it sleeps or waits for "
        "something else than Ray, shorten that"
    )
    figures: dict[str, float | int | str] = {"driver": name, "own_ns": own, "longest_ns": longest}
    return [Finding(OWN, text, advice, own / path.wall, [driver], figures, title=f"Own code of {quoted(name)}")]


def _unwaited(calls: Calls, made: list[int]) -> list[tuple[int, int]]:
    """When calls ran whose results no recorded wait was for: the driver may have waited for them in another way."""
    table = calls.table
    waited = {call for row in made if calls.role[row] in WAITS for _, call in calls.made_by(row)}
    submitted = {calls.call_of[row] for row in made if calls.role[row] == SUBMISSION}
    rows = (calls.execution[call] for call in submitted - waited)
    return [(table.start[row], table.end_or_now(row)) for row in rows if row >= 0]


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


def _finding(
    analysis: Analysis, driver: int, function: Function, usual: int, runs: int, own: int, rows: list[int]
) -> Finding:
    name = analysis.calls.frame_name(driver)
    text = (
        f"{quoted(name)} runs its own code for {duration(usual)} before each call of {quoted(function.name)}, which "
        f"takes {duration(runs)} (medians of {count(len(rows), 'call')}): workers wait for the driver, "
        f"{duration(own)} in all"
    )
    advice = "move that work into the tasks, or into separate tasks"
    figures: dict[str, float | int | str] = {
        "driver": name,
        "function": function.name,
        "calls": len(rows),
        "median_between_ns": usual,
        "median_run_ns": runs,
        "driver_ns": own,
    }
    # It may also have waited for something else in that time.
    is_assumed = not analysis.calls.records_waits(driver) or function.is_assumed
    text = seems(text, is_assumed=is_assumed)
    title = f"{quoted(name)} is slower than its workers"
    return Finding(KIND, text, advice, own / analysis.path.wall, rows, figures, is_assumed, title=title)
