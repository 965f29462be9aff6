"""Trials of Ray Tune that ended before they were done: because they failed, or because their experiment ended."""

from __future__ import annotations

from collections import Counter

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import STARTING
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.trials import Experiment, Trial
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "ended-trials"

_COST = 0.05
_BY_EXPERIMENT, _BY_SCHEDULER = "experiment", "scheduler"


def find(analysis: Analysis) -> list[Finding]:
    """Experiments whose trials that ended so took a twentieth of the time of all its trials, or that ran no trial.

    It costs the time on the critical path that calls of these trials have; trials that a scheduler stopped are no
    fault. A trial that never ran has no time, which its span says once it has ended.
    """
    found = []
    for experiment in analysis.experiments:
        ended = [trial for trial in experiment.trials if trial.error or trial.stopped_by == _BY_EXPERIMENT]
        total = sum(trial.running for trial in experiment.trials)
        if experiment.trials and len(ended) == len(experiment.trials) and not any(each.has_run for each in ended):
            found.append(_never_ran(analysis, experiment))
        elif ended and total and sum(trial.running for trial in ended) / total >= _COST:
            found.append(_finding(analysis, experiment, ended, total))
    return found


def _never_ran(analysis: Analysis, experiment: Experiment) -> Finding:
    table, trials = analysis.table, experiment.trials
    took = table.duration(experiment.row)
    text = (
        f"none of {count(len(trials), 'trial')} of {quoted(experiment.name)} ran before the experiment ended, after "
        f"{duration(took)}"
    )
    advice = "give the experiment more time than its actors need to start, and the resources that each trial needs"
    figures: dict[str, float | int | str] = {"experiment": experiment.name, "trials": len(trials), "ran_ns": 0}
    share = min(1.0, took / analysis.path.wall) if analysis.path.wall else 0.0
    title = f"No trial of {quoted(experiment.name)} ran"
    return Finding(KIND, text, advice, share, [trial.row for trial in trials], figures, title=title)


def _on_path(analysis: Analysis, ended: list[Trial]) -> int:
    """The time on the critical path of what these trials called, without the start of workers."""
    parent, rows = analysis.table.parent, {trial.row for trial in ended}
    is_below: dict[int, bool] = {-1: False} | dict.fromkeys(rows, True)

    def below(row: int) -> bool:
        passed = []
        while row not in is_below:
            passed.append(row)
            row = parent[row]
        is_below.update(dict.fromkeys(passed, is_below[row]))
        return is_below[row]

    steps = (step for step in analysis.path.steps if step.kind != STARTING and 0 <= step.row < len(parent))
    return sum(step.end - step.start for step in steps if below(step.row))


def rows_of_trials(analysis: Analysis) -> set[int]:
    """The rows of trials that failed."""
    return {trial.row for experiment in analysis.experiments for trial in experiment.trials if trial.error}


def _finding(analysis: Analysis, experiment: Experiment, ended: list[Trial], total: int) -> Finding:
    errors = Counter(trial.error for trial in ended if trial.error)
    never = sum(not trial.has_run for trial in ended)
    cut = sum(not trial.error for trial in ended) - never
    took = sum(trial.running for trial in ended)
    reasons = [f"{count(number, 'trial')} failed with {quoted(error)}" for error, number in errors.most_common()]
    failed = sum(errors.values())
    untyped = [f"{count(failed, 'trial')} failed"] if failed else []
    unended = [f"{count(cut, 'trial')} had not ended when the experiment did"] if cut else []
    unended += [f"{count(never, 'trial')} had not begun"] if never else []
    most = max(trial.iterations for trial in experiment.trials)
    furthest = max(trial.iterations for trial in ended)
    head = f"{len(ended):,} of {count(len(experiment.trials), 'trial')} of {quoted(experiment.name)} ended early: "
    tail = (
        f"; {'they' if len(ended) > 1 else 'it'} ran for {duration(took)} "
        f"({percent(took / total)} of the running time of all trials), up to {count(furthest, 'iteration')} of {most:,}"
    )
    by = quoted(experiment.scheduler) or "the scheduler"
    stopped = [trial for trial in experiment.trials if trial.stopped_by == _BY_SCHEDULER and trial not in ended]
    if stopped:
        tail += f"; {by} ended {len(stopped):,} more"
    advice = (
        "look at the error and the configuration of these trials; with checkpoints, and max_failures in FailureConfig, "
        "failed trials continue"
        if errors
        else "give the experiment more time, or stop trials by a condition of their own"
    )
    figures: dict[str, float | int | str] = {
        "experiment": experiment.name,
        "trials": len(experiment.trials),
        "failed": failed,
        "cut": cut,
        "stopped_by_scheduler": len(stopped),
        "ran_ns": took,
        "errors": ",".join(errors),
    }
    wall = analysis.path.wall
    share = min(took, _on_path(analysis, ended)) / wall if wall else 0.0
    rows = [trial.row for trial in sorted(ended, key=lambda trial: -trial.running)]
    return Finding(
        KIND,
        head + ", ".join([*reasons, *unended]) + tail,
        advice,
        share,
        rows,
        figures,
        is_failure=bool(errors),
        quotes={names.RAY_TUNE_SCHEDULER: quoted(experiment.scheduler)},
        without_errors=head + ", ".join([*untyped, *unended]) + tail,
        title=f"Trials of {quoted(experiment.name)} ended early",
    )
