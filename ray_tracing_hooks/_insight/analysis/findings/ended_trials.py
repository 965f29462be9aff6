"""Trials of Ray Tune that ended before they were done: because they failed, or because their experiment ended."""

from __future__ import annotations

from collections import Counter

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings.finding import Finding, quoted
from ray_tracing_hooks._insight.analysis.trials import Experiment, Trial
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent

KIND = "ended-trials"

_COST = 0.05
_BY_EXPERIMENT, _BY_SCHEDULER = "experiment", "scheduler"


def find(analysis: Analysis) -> list[Finding]:
    """Experiments whose trials that ended so took a twentieth of the time of all its trials."""
    found = []
    for experiment in analysis.experiments:
        ended = [trial for trial in experiment.trials if trial.error or trial.stopped_by == _BY_EXPERIMENT]
        total = sum(trial.running for trial in experiment.trials)
        if ended and total and sum(trial.running for trial in ended) / total >= _COST:
            found.append(_finding(analysis, experiment, ended, total))
    return found


def rows_of_trials(analysis: Analysis) -> set[int]:
    """The rows of trials that failed."""
    return {trial.row for experiment in analysis.experiments for trial in experiment.trials if trial.error}


def _finding(analysis: Analysis, experiment: Experiment, ended: list[Trial], total: int) -> Finding:
    errors = Counter(trial.error for trial in ended if trial.error)
    cut = sum(not trial.error for trial in ended)
    took = sum(trial.running for trial in ended)
    reasons = [f"{count(number, 'trial')} failed with {quoted(error)}" for error, number in errors.most_common()]
    failed = sum(errors.values())
    untyped = [f"{count(failed, 'trial')} failed"] if failed else []
    unended = [f"{count(cut, 'trial')} had not ended when the experiment did"] if cut else []
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
    # What trials ran at the same time, the experiment took once.
    wall = analysis.path.wall
    share = min(1.0, took / total * analysis.table.duration(experiment.row) / wall) if wall else 0.0
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
    )
