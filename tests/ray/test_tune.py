"""Ray Tune: an experiment is one connected trace from ``fit()`` to the spans of its trainables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conformance import check_training
from conftest import Cluster
from support import (
    NEEDS_TRAIN_V2,
    Run,
    below,
    by_name,
    check_links,
    tree,
    without_placement,
)

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.model.span import Span, error_text
from ray_tracing_hooks._insight.model.table import Table

pytestmark = [NEEDS_TRAIN_V2, pytest.mark.slow]  # many trials, each in a process of its own


@pytest.fixture(scope="module")
def runs(training: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = training.run("tune_runs", str(tmp_path_factory.mktemp("runs")))
    run.spans = without_placement(run.spans)
    return run


FUNCTIONS = """
functions ray.tune
  functions ray.tune.trial
    ImplicitFunc.__init__ call
    training.save call x3
    training.stop call
    training.train call
    training.train call x3
      user step
        __main__.helper call
  functions ray.tune.trial !ValueError
    ImplicitFunc.__init__ call x2
    training.restore call
    training.save call
    training.stop call x2
    training.train call
      user step
        __main__.helper call
    training.train call !ValueError
    training.train call !ValueError
      user step
        __main__.helper call
"""

WITH_TRAIN = """
train ray.tune
  train ray.tune.trial
    ImplicitFunc.__init__ call
    with_train.stop call
    with_train.train call
    with_train.train call
      inner ray.train
        inner ray.train.attempt
          RayTrainWorker.__init__ call
          inner ray.train.worker
            ray.train.report
            user step
              __main__.helper call
"""


def test_what_a_function_does_belongs_to_the_call_that_made_it_go_on(runs: Run) -> None:
    """Its spans are below the `train` of its trial that asked for the result, and calls have its name."""
    assert tree(below(runs.spans, "functions ray.tune")) == FUNCTIONS.strip()


def test_a_run_of_ray_train_is_below_the_trial_that_makes_it(runs: Run) -> None:
    assert tree(below(runs.spans, "train ray.tune")) == WITH_TRAIN.strip()


def test_every_span_has_its_parent(runs: Run) -> None:
    check_links(runs.spans)
    assert {span.trace_id for span in runs.spans} == {runs.spans[0].trace_id}


def events(span: Span, name: str) -> list[Any]:
    return [event.attributes for event in span.events if event.name == name]


def statuses(trial: Span) -> list[str]:
    return [each[names.RAY_TUNE_TRIAL_STATUS] for each in events(trial, names.TUNE_CHANGED)]


def test_trials_that_a_scheduler_ends_early_say_so(runs: Run) -> None:
    """Eight trials; the scheduler ends those that are behind, and the class of the trainable is reused."""
    (experiment,) = by_name(runs.spans, "asha ray.tune")
    assert experiment.attributes[names.RAY_TUNE_SCHEDULER] == "AsyncHyperBandScheduler"
    assert experiment.attributes[names.RAY_TUNE_SEARCHER] == "BasicVariantGenerator"
    assert experiment.attributes[names.RAY_TUNE_METRIC] == "score"
    assert experiment.attributes[names.RAY_TUNE_TRIALS] == 8
    trials = by_name(runs.spans, "asha ray.tune.trial")
    assert len({trial.attributes[names.RAY_TUNE_TRIAL_ID] for trial in trials}) == 8
    assert {trial.attributes[names.RAY_TUNE_TRIAL_STATUS] for trial in trials} == {"TERMINATED"}
    assert {trial.attributes[names.RAY_TUNE_STOPPED_BY] for trial in trials} == {"scheduler"}
    assert {trial.attributes[names.RAY_TUNE_TRAINABLE] for trial in trials} == {"Counting"}
    for trial in trials:
        factor = int(trial.attributes[names.RAY_TUNE_CONFIG].removeprefix("factor="))
        iterations = trial.attributes[names.RAY_TUNE_ITERATIONS]
        assert trial.attributes[names.RAY_TUNE_METRIC_VALUE] == factor * iterations
        made = [span for span in runs.spans if span.parent_id == trial.span_id]
        assert len([span for span in made if span.name == "Counting.train ray.remote"]) == iterations
    counted = Counter(trial.attributes[names.RAY_TUNE_ITERATIONS] for trial in trials)
    assert counted[1] > 0
    assert counted[4] > 0


def test_trials_that_a_scheduler_ends_without_a_result_of_theirs_say_so(runs: Run) -> None:
    """When another one has a result, also before they run."""
    trials = by_name(runs.spans, "compared ray.tune.trial")
    assert [trial.attributes[names.RAY_TUNE_STOPPED_BY] for trial in trials] == ["scheduler"] * 3


def test_a_class_with_resources_names_its_calls(runs: Run) -> None:
    """Ray wraps it in a class of its own."""
    made = Counter(span.name for span in below(runs.spans, "compared ray.tune"))
    assert made["Counting.train ray.remote"] >= made["Counting.train ray.remote_worker"] > 0
    assert not [name for name in made if "ResourceTrainable" in name and "__init__" not in name]


def test_an_exploit_is_an_event_of_the_trial(runs: Run) -> None:
    """With the trial that it continues with, its new configuration, and the checkpoint that is loaded."""
    (experiment,) = by_name(runs.spans, "pbt ray.tune")
    assert experiment.attributes[names.RAY_TUNE_SCHEDULER] == "PopulationBasedTraining"
    trials = {trial.attributes[names.RAY_TUNE_CONFIG]: trial for trial in by_name(runs.spans, "pbt ray.tune.trial")}
    behind, ahead = trials["factor=1"], trials["factor=2"]
    (exploit,) = events(behind, names.TUNE_EXPLOIT)
    assert exploit == {
        names.RAY_TUNE_CLONED: ahead.attributes[names.RAY_TUNE_TRIAL_ID],
        names.RAY_TUNE_CONFIG: "factor=10",
    }
    assert not events(ahead, names.TUNE_EXPLOIT)
    assert statuses(behind)[:2] == ["RUNNING", "PAUSED"]
    assert len(events(behind, names.TUNE_RESTORED)) == 1
    for trial in trials.values():
        assert trial.attributes[names.RAY_TUNE_STOPPED_BY] == "criterion"
        assert trial.attributes[names.RAY_TUNE_ITERATIONS] == 4


def test_a_trial_that_fails_is_restored_and_then_failed(runs: Run) -> None:
    good, bad = sorted(by_name(runs.spans, "functions ray.tune.trial"), key=lambda span: span.status_code)
    assert bad.attributes[names.RAY_TUNE_TRIAL_STATUS] == "ERROR"
    assert bad.attributes[names.RAY_TUNE_FAILURES] == 2
    assert [each[names.ERROR_TYPE] for each in events(bad, names.TUNE_FAILURE)] == ["ValueError"] * 2
    assert statuses(bad) == ["RUNNING", "PENDING", "RUNNING", "ERROR"]
    (saved,), (restored,) = events(bad, names.TUNE_CHECKPOINTED), events(bad, names.TUNE_RESTORED)
    assert saved == restored
    assert names.RAY_TUNE_STOPPED_BY not in bad.attributes
    assert good.attributes[names.RAY_TUNE_STOPPED_BY] == "trial"
    assert good.attributes[names.RAY_TUNE_METRIC_VALUE] == 2
    assert len(events(good, names.TUNE_CHECKPOINTED)) == 3
    (experiment,) = by_name(runs.spans, "functions ray.tune")
    assert experiment.attributes[names.RAY_TUNE_TRIALS_FAILED] == 1


def test_a_trial_whose_error_ends_the_experiment_has_failed_with_it(runs: Run) -> None:
    """With ``fail_fast="raise"``, for which Ray does not change the status of the trial."""
    (experiment,), (trial,) = (by_name(runs.spans, f"raising {kind}") for kind in ("ray.tune", "ray.tune.trial"))
    for each in (experiment, trial):
        assert error_text(each) == "ValueError: no training, please"
    assert trial.attributes[names.RAY_TUNE_TRIAL_STATUS] == statuses(trial)[-1] == "ERROR"
    assert trial.attributes[names.RAY_TUNE_FAILURES] == len(events(trial, names.TUNE_FAILURE)) == 1
    assert names.RAY_TUNE_STOPPED_BY not in trial.attributes
    assert experiment.attributes[names.RAY_TUNE_TRIALS_FAILED] == 1
    of_experiment = below(runs.spans, "raising ray.tune")
    (finding,) = (each for each in find(Analysis(Table.of(of_experiment))) if each.kind == "ended-trials")
    assert "1 trial failed with ValueError" in finding.text


def test_a_configuration_is_recorded_without_secrets(runs: Run) -> None:
    texts = {trial.attributes[names.RAY_TUNE_CONFIG] for trial in by_name(runs.spans, "functions ray.tune.trial")}
    assert texts == {f"fails={fails}, api_key=***, name='plain'" for fails in (False, True)}
    assert not [span for span in runs.spans if "hunter2" in str(span.attributes)]


def test_experiments_come_to_the_same_untraced(runs: Run, tmp_path: Path) -> None:
    check_training("tune_runs", runs.result, tmp_path)
