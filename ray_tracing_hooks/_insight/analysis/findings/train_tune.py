"""Runs of Ray Train and experiments of Ray Tune."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import STARTING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, is_costly, quoted
from ray_tracing_hooks._insight.analysis.intervals import in_both
from ray_tracing_hooks._insight.analysis.training import Attempt, Experiment, Meeting, Rank, TrainRun, Trial
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent
from ray_tracing_hooks._insight.model.calls import EXECUTION, SUBMISSION
from ray_tracing_hooks._insight.model.span import error_type

_START_SECONDS = {"controller": 15, "resources": 2, "workers": 20, "backend": 15, "loop": 30}
_START_USUAL = {part: seconds * 10**9 for part, seconds in _START_SECONDS.items()}
"""How long each part of the start may take. The loop's is that until its first step."""

_CREATION = "RayTrainWorker.__init__"

_START_WHAT = {
    "controller": "for its controller to start",
    "resources": "for resources for its workers",
    "workers": "for its workers to start",
    "backend": "for the set-up of its workers and their backend",
    "loop": "from the start of the training loops to their first step",
}
_WITH_PROCESSES = ("controller", "workers")
"""The parts in which worker processes start."""
_TO_STEP, _TO_LOOPS = "its first step", "its training loops, which took no step"
_START_ADVICE = {
    "controller": "start it on a node that is not busy, and with a small runtime_env",
    "resources": "free resources that are held but not used, ask for less per worker, or add nodes before the run",
    "workers": "use images that have all packages, a small runtime_env, and fewer workers on each node",
    "backend": "look at the calls of RayTrainWorker before the training loops, such as the set-up of process groups",
    "loop": "load models and data once for each node, or while other parts of the run start",
}


def training_start(analysis: Analysis) -> list[Finding]:
    """Runs of Ray Train that take long until their first step.

    Measures: the longest part from ``fit()`` to the first step, minus half of its usual time.
    Threshold: a tenth of the run, and 15 s (controller, backend), 2 s (resources), 20 s (workers) or 30 s (loop).
    Looks the same: workers that start slowly in any program. The finding on worker starts leaves this time out.
    Advice: depends on the part.
    Needs: spans of Ray Train. For resources and workers, spans of the creation of RayTrainWorker too.
    """
    return [_start_finding(analysis, *each) for each in _slow_starts(analysis)]


def starting_in_training(analysis: Analysis) -> int:
    """How much of the time in which the run waited for workers to start is in the part that such a finding is about."""
    times = []
    for run, parts, _, slow in _slow_starts(analysis):
        if slow in _WITH_PROCESSES:
            before = list(parts)[: list(parts).index(slow)]
            begin = analysis.table.start[run.row] + sum(parts[part] for part in before)
            times.append((begin, begin + parts[slow]))
    steps = analysis.path.steps
    return in_both(times, (step.time for step in steps if step.kind == STARTING))


def _slow_starts(analysis: Analysis) -> Iterator[tuple[TrainRun, dict[str, int], int, str]]:
    """Each run with its parts, their total, and the slowest part."""
    for run in analysis.train_runs:
        parts, total = _parts(analysis, run)
        slow = {part: took for part, took in parts.items() if took > _START_USUAL[part] and is_costly(analysis, took)}
        if slow:
            yield run, parts, total, max(slow, key=lambda part: slow[part])


def _parts(analysis: Analysis, run: TrainRun) -> tuple[dict[str, int], int]:
    """How long each part of the start of a run took, in nanoseconds: those that are known, in their order. And how long
    all of it took.
    """
    if not run.attempts or not run.attempts[0].ranks:
        return {}, 0
    table, attempt = analysis.table, run.attempts[0]
    begun = min(table.start[rank.row] for rank in attempt.ranks)
    asked, ready = _workers(analysis, attempt)
    steps = [table.start[rank.steps[0].row] for rank in attempt.ranks if rank.steps]
    moments = {
        "controller": table.start[attempt.row],
        "resources": asked,
        "workers": ready,
        "backend": begun,
        "loop": min(steps, default=0),
    }
    parts, before = {}, table.start[run.row]
    for part, moment in moments.items():
        if moment >= before:
            # Where the creation of workers was not recorded, this may be the time that they took to start.
            if part != "backend" or ready:
                parts[part] = moment - before
            before = moment
    return parts, before - table.start[run.row]


def _workers(analysis: Analysis, attempt: Attempt) -> tuple[int, int]:
    """When the first worker of an attempt was asked for, and when the last one was there; 0 if unknown."""
    calls, table = analysis.calls, analysis.table
    asked, ready = 0, 0
    for row in np.nonzero(table.is_named(lambda name: _CREATION in name))[0].tolist():
        call = calls.call_of[row]
        submission, execution = (calls.submission[call], calls.execution[call]) if call >= 0 else (-1, -1)
        if submission < 0 or table.parent[submission] != attempt.row:
            continue
        if calls.role[row] == SUBMISSION:
            asked = min(asked or table.start[row], table.start[row])
        elif calls.role[row] == EXECUTION and execution == row:
            ready = max(ready, table.end_or_now(row))
    return asked, ready


def _start_finding(analysis: Analysis, run: TrainRun, parts: dict[str, int], total: int, slow: str) -> Finding:
    in_order = [slow, *(part for part in parts if part != slow)]
    text = (
        f"{quoted(run.name)} took {duration(total)} from fit() to {_TO_STEP if 'loop' in parts else _TO_LOOPS}: "
        + ", ".join(f"{duration(parts[part])} {_START_WHAT[part]}" for part in in_order)
    )
    about = {"run": run.name, "part": slow}
    share = (parts[slow] - _START_USUAL[slow] // 2) / analysis.path.wall
    title = f"{quoted(run.name)} starts slowly"
    return Finding(
        "training-start", text, _START_ADVICE[slow], share, [run.row, run.attempts[0].row], about, title=title
    )


_RANK_STEPS = 3
"""A rank that was late less often may have been so by chance."""
_RANK_LATE = 0.1
"""A rank that came last was late where the step waited for it at least this share of what it did at worst."""
_RANK_DEVIATIONS = 2.0
"""How far from its share of the delays, in standard deviations, those of a rank are that are not by chance."""


def straggler_ranks(analysis: Analysis) -> list[Finding]:
    """The rank of a run that the others wait for, at reports and collective functions.

    Measures: how much earlier steps would have ended without its delay. Steps that the controller ends do not count.
    Threshold: a twentieth of the run, late at 3 steps and not by chance (2 sigma). A single delay of 1 s and a tenth of
    the run counts too.
    Looks the same: a slow node.
    Advice: compare its work, data and node with the others, and report less often.
    Needs: spans of Ray Train, with the steps of all ranks.
    """
    found = []
    for run in analysis.train_runs:
        late: dict[int, list[tuple[Attempt, Meeting]]] = {}
        for attempt in run.attempts:
            for meeting in attempt.meetings:
                late.setdefault(meeting.last, []).append((attempt, meeting))
        if not late:
            continue
        rank = max(late, key=lambda each: sum(meeting.delay for _, meeting in late[each]))
        delay = sum(meeting.delay for _, meeting in late[rank])
        worst = max(meeting.delay for _, meeting in late[rank])
        # One delay counts by itself, such as that of a rank that loads for long before its first step.
        is_large = is_costly(analysis, worst, seconds=1)
        if is_costly(analysis, delay, 0.05) and (is_large or (_is_often(late[rank]) and not _is_chance(run, delay))):
            found.append(_rank_finding(analysis, run, rank, late[rank], delay))
    return found


def _is_often(late: list[tuple[Attempt, Meeting]]) -> bool:
    """Whether a rank was late at several steps, and not only the last one by a hair."""
    worst = max(meeting.delay for _, meeting in late)
    return sum(meeting.delay >= _RANK_LATE * worst for _, meeting in late) >= _RANK_STEPS


def _is_chance(run: TrainRun, delay: int) -> bool:
    """Whether one of the ranks would delay the run as much if each was as likely as the others to be last at a step."""
    expected = variance = 0.0
    for attempt in run.attempts:
        share = 1 / max(1, len(attempt.ranks))
        for meeting in attempt.meetings:
            expected += share * meeting.delay
            variance += share * (1 - share) * meeting.delay**2
    return delay - expected < _RANK_DEVIATIONS * math.sqrt(variance)


def _rank_finding(
    analysis: Analysis, run: TrainRun, rank: int, late: list[tuple[Attempt, Meeting]], delay: int
) -> Finding:
    met = sum(len(attempt.meetings) for attempt in run.attempts)
    waited = sum(meeting.waited for _, meeting in late)
    most = max(len(attempt.ranks) for attempt in run.attempts)
    worst = max(late, key=lambda each: each[1].delay)[1]
    return Finding(
        "straggler-rank",
        f"rank {rank} of {quoted(run.name)} was the last of {most} ranks at {len(late):,} of {count(met, 'step')}: "
        f"the run waited {duration(delay)} for it, and the other ranks {duration(waited)} together; "
        f"at worst {duration(worst.delay)}, at step {worst.number:,}",
        "compare this rank with the others: its extra work, such as saving checkpoints or logging, its share of the "
        "data, and its node; or report less often, once for several steps",
        delay / analysis.path.wall,
        [
            step.row
            for attempt, meeting in sorted(late, key=lambda each: -each[1].delay)
            for each in attempt.ranks
            if each.rank == rank
            for step in each.steps
            if step.number == meeting.number
        ],
        {"run": run.name},
        title=f"Rank {rank} of {quoted(run.name)} comes last",
    )


def slow_reports(analysis: Analysis) -> list[Finding]:
    """Reports of Ray Train that wait until the controller has taken the previous report.

    Measures: the waits of the rank that waited least, in each attempt.
    Threshold: a tenth of the run: the controller takes reports every 2 s.
    Looks the same: reports that wait for other ranks. That time belongs to the last rank.
    Advice: report once for several steps, or shorten RAY_TRAIN_HEALTH_CHECK_INTERVAL_S.
    Needs: spans of Ray Train.
    """
    found = []
    for run in analysis.train_runs:
        least = [min(attempt.ranks, key=_handover) for attempt in run.attempts if attempt.ranks]
        waited = sum(map(_handover, least))
        if is_costly(analysis, waited):
            found.append(_report_finding(run, least, waited, analysis.path.wall))
    return found


def _handover(rank: Rank) -> int:
    return sum(step.handover for step in rank.steps)


def _report_finding(run: TrainRun, least: list[Rank], waited: int, wall: int) -> Finding:
    steps = sorted((step for rank in least for step in rank.steps if step.handover), key=lambda step: -step.handover)
    text = (
        f"reports of {quoted(run.name)} waited until the controller of Ray Train had taken the previous one: each "
        f"rank waited {duration(waited)} or more, at {count(len(steps), 'step')}, up to {duration(steps[0].handover)}"
    )
    advice = (
        "report once for several steps, or set RAY_TRAIN_HEALTH_CHECK_INTERVAL_S to less than 2, the seconds after "
        "which the controller takes reports"
    )
    about = {"run": run.name}
    title = f"Reports of {quoted(run.name)} wait for the controller"
    return Finding("slow-reports", text, advice, waited / wall, [step.row for step in steps], about, title=title)


@dataclass
class _Restart:
    """An attempt that failed and was followed by another one. Times are nanoseconds."""

    attempt: Attempt
    cause: str
    down: int
    """Until the ranks of the next attempt ran."""
    lost: int
    """From the last checkpoint of the attempt, or else the start of its loops, to its end."""
    ran_again: bool


def training_restarts(analysis: Analysis) -> list[Finding]:
    """Runs of Ray Train that failed and began again.

    Measures: the time until the ranks ran again, and the work since the last checkpoint.
    Threshold: a fiftieth of the run: failures are rare, and cost more in a longer run.
    Looks the same: attempts that were resized. They did not fail, and do not count.
    Advice: if the lost work took longer than the restart, save checkpoints more often. Otherwise, find the cause.
    Needs: spans of Ray Train, of both attempts.
    """
    found = []
    for run in analysis.train_runs:
        restarts = _restarts(analysis, run)
        cost = sum(each.down + each.lost for each in restarts)
        if restarts and is_costly(analysis, cost, 0.02):
            found.append(_restart_finding(analysis, run, restarts, cost))
    return found


def rows_of_restarts(analysis: Analysis) -> set[int]:
    """The training loops of attempts that failed and were followed by another one, and of ranks that were ended because
    another one had failed.
    """
    found: set[int] = set()
    for run in analysis.train_runs:
        for attempt in run.attempts[:-1]:
            if analysis.table.failed(attempt.row):
                found.update(rank.row for rank in attempt.ranks)
        for attempt in run.attempts[-1:]:
            failed = [rank.row for rank in attempt.ranks if analysis.table.failed(rank.row)]
            # Others are killed where one has failed.
            raised = [row for row in failed if error_type(analysis.table.span(row)) != names.WORKER_DIED]
            if raised:
                found.update(set(failed) - set(raised))
    return found


def _restarts(analysis: Analysis, run: TrainRun) -> list[_Restart]:
    table, found = analysis.table, []
    transfers = _transfers(analysis)
    for attempt, following in zip(run.attempts, run.attempts[1:], strict=False):
        if not table.failed(attempt.row):
            continue  # it was resized
        end = table.end_or_now(attempt.row)
        running = min((table.start[rank.row] for rank in following.ranks), default=table.end_or_now(following.row))
        begun = min((table.start[rank.row] for rank in attempt.ranks), default=end)
        saved = [transfers[step.row] for rank in attempt.ranks for step in rank.steps if step.row in transfers]
        found.append(
            _Restart(
                attempt,
                error_type(table.span(attempt.row)),
                running - end,
                end - max([begun, *saved]),
                bool(following.ranks),
            )
        )
    return found


def _transfers(analysis: Analysis) -> dict[int, int]:
    """When the transfer of the checkpoint of a report ended, by the row of the report."""
    table = analysis.table
    rows = np.nonzero(table.is_named(lambda name: name == names.TRAIN_TRANSFER))[0].tolist()
    return {table.parent[row]: table.end_or_now(row) for row in rows if not table.failed(row)}


def _restart_finding(analysis: Analysis, run: TrainRun, restarts: list[_Restart], cost: int) -> Finding:
    causes = list(dict.fromkeys(each.cause for each in restarts if each.cause))
    errors = ", ".join(map(quoted, causes))
    down, lost = sum(each.down for each in restarts), sum(each.lost for each in restarts)
    until = "until it ran again" if all(each.ran_again for each in restarts) else "in which it did not run"
    text = (
        f"{quoted(run.name)} was restarted {count(len(restarts), 'time')}{f' after {errors}' if errors else ''}: "
        f"{duration(down)} {until}, and {duration(lost)} of work since the last checkpoint was lost"
    )
    advice = "save checkpoints more often" if lost > down else "look for the cause of the failures"
    about = {"run": run.name}
    rows = [each.attempt.row for each in sorted(restarts, key=lambda each: -(each.down + each.lost))]
    share = cost / analysis.path.wall
    title = f"{quoted(run.name)} was restarted"
    return Finding(
        "training-restarts", text, advice, share, rows, about, quotes={names.ERROR_TYPE: errors}, title=title
    )


_ENDED_TRIALS = "ended-trials"

_TRIAL_COST = 0.05
_BY_EXPERIMENT = "experiment"


def ended_trials(analysis: Analysis) -> list[Finding]:
    """Trials of Ray Tune that failed, or that the end of their experiment cut off.

    Measures: calls of these trials on the critical path. If no trial of the experiment ran, all of its time.
    Threshold: a twentieth of the running time of all trials.
    Looks the same: trials that a scheduler stopped. That is no failure.
    Advice: look at the errors, use checkpoints, or give the experiment more time.
    Needs: spans of Ray Tune.
    """
    found = []
    for experiment in analysis.experiments:
        ended = [trial for trial in experiment.trials if trial.error or trial.stopped_by == _BY_EXPERIMENT]
        total = sum(trial.running for trial in experiment.trials)
        if experiment.trials and len(ended) == len(experiment.trials) and not any(each.has_run for each in ended):
            found.append(_never_ran(analysis, experiment))
        elif ended and total and sum(trial.running for trial in ended) / total >= _TRIAL_COST:
            found.append(_trial_finding(analysis, experiment, ended, total))
    return found


def _never_ran(analysis: Analysis, experiment: Experiment) -> Finding:
    table, trials = analysis.table, experiment.trials
    took = table.duration(experiment.row)
    text = (
        f"none of {count(len(trials), 'trial')} of {quoted(experiment.name)} ran before the experiment ended, after "
        f"{duration(took)}"
    )
    advice = "give the experiment more time than its actors need to start, and the resources that each trial needs"
    about = {"experiment": experiment.name}
    share = took / analysis.path.wall if analysis.path.wall else 0.0
    title = f"No trial of {quoted(experiment.name)} ran"
    return Finding(_ENDED_TRIALS, text, advice, share, [trial.row for trial in trials], about, title=title)


_TURN_TRIALS = 3


def trials_in_turn(analysis: Analysis) -> list[Finding]:
    """Experiments whose trials run one at a time: each begins when the previous one has ended.

    Measures: the time of all trials, minus the longest one: at once, all of them would take as long as that one.
    Threshold: 3 trials, and a tenth of the run.
    Looks the same: searches that need the result of each trial for the next one, and a cluster with room for one.
    Advice: run more of them at once (max_concurrent_trials), and give each less, unless each needs the previous ones.
    Needs: spans of Ray Tune.
    """
    table, found = analysis.table, []
    for experiment in analysis.experiments:
        ran = [trial for trial in experiment.trials if trial.running]
        ran.sort(key=lambda trial: table.end_or_now(trial.row))
        begun = [table.end_or_now(trial.row) - trial.running for trial in ran]
        ends = [table.end_or_now(trial.row) for trial in ran]
        if len(ran) < _TURN_TRIALS or any(later < end for end, later in zip(ends, begun[1:], strict=False)):
            continue
        longest = max(trial.running for trial in ran)
        cost = ends[-1] - begun[0] - longest
        if not is_costly(analysis, cost):
            continue
        text = (
            f"{count(len(ran), 'trial')} of {quoted(experiment.name)} ran one at a time, in "
            f"{duration(ends[-1] - begun[0])}; the longest took {duration(longest)}"
        )
        advice = (
            "unless each trial needs the results of those before: let more of them run at once "
            "(max_concurrent_trials), and ask for less for each trial"
        )
        about = {"experiment": experiment.name}
        title = f"Trials of {quoted(experiment.name)} run one at a time"
        rows = [trial.row for trial in ran]
        found.append(Finding("trials-in-turn", text, advice, cost / analysis.path.wall, rows, about, title=title))
    return found


def _on_path(analysis: Analysis, ended: list[Trial]) -> int:
    """The time on the critical path of what these trials called, without the start of workers."""
    table, rows = analysis.table, {trial.row for trial in ended}
    steps = (step for step in analysis.path.steps if step.kind != STARTING)
    return sum(step.took for step in steps if table.around(step.row, rows) >= 0)


def rows_of_trials(analysis: Analysis) -> set[int]:
    """The rows of trials that failed."""
    return {trial.row for experiment in analysis.experiments for trial in experiment.trials if trial.error}


def _trial_finding(analysis: Analysis, experiment: Experiment, ended: list[Trial], total: int) -> Finding:
    errors = Counter(trial.error for trial in ended if trial.error)
    never = sum(not trial.has_run for trial in ended)
    cut = sum(not trial.error for trial in ended) - never
    took = sum(trial.running for trial in ended)
    failed = ", ".join(f"{count(number, 'trial')} failed with {quoted(each)}" for each, number in errors.most_common())
    ways = [failed] if failed else []
    ways += [f"{count(cut, 'trial')} had not ended when the experiment did"] if cut else []
    ways += [f"{count(never, 'trial')} had not begun"] if never else []
    most = max(trial.iterations for trial in experiment.trials)
    furthest = max(trial.iterations for trial in ended)
    text = (
        f"{len(ended):,} of {count(len(experiment.trials), 'trial')} of {quoted(experiment.name)} ended early: "
        f"{', '.join(ways)}; {'they' if len(ended) > 1 else 'it'} ran for {duration(took)} ({percent(took / total)} of "
        f"the running time of all trials), up to {count(furthest, 'iteration')} of {most:,}"
    )
    wall = analysis.path.wall
    return Finding(
        _ENDED_TRIALS,
        text,
        "look at the error and the configuration of these trials; with checkpoints, and max_failures in FailureConfig, "
        "failed trials continue"
        if errors
        else "give the experiment more time, or end trials with a stop condition",
        min(took, _on_path(analysis, ended)) / wall if wall else 0.0,
        [trial.row for trial in sorted(ended, key=lambda trial: -trial.running)],
        {"experiment": experiment.name},
        is_failure=bool(errors),
        quotes={names.ERROR_TYPE: failed},
        title=f"Trials of {quoted(experiment.name)} ended early",
    )
