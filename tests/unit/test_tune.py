"""What is recorded of Ray Tune, with stand-ins for its controller and trials. See also tests/ray/test_tune.py."""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._ray.tune import experiments


class Trial:
    """A trial of Ray's."""

    trainable_name = "train"
    config: dict[str, Any] = {}  # noqa: RUF012  nobody changes it

    def __init__(self, trial_id: str, status: str = "RUNNING", **reported: float) -> None:
        self.trial_id, self.status = trial_id, status
        self.run_metadata = SimpleNamespace(last_result=reported)


class Controller:
    """``TuneController``, which adds the trials of an experiment that it resumes while it is made."""

    def __init__(self, *, metric: str | None = None, resumed: Sequence[Trial] = (), storage: Any = None) -> None:
        self.scheduler_alg, self.search_alg = object(), SimpleNamespace()
        self._metric = metric
        for trial in resumed:
            self.add_trial(trial)

    def add_trial(self, trial: Trial) -> None:
        pass

    def _trial_task_failure(self, trial: Trial, exception: Exception) -> None:
        raise exception

    def step(self, trial: Trial, error: Exception) -> None:
        self._trial_task_failure(trial, exception=error)

    def cleanup(self) -> None:
        pass


WRAPPERS: dict[str, Any] = experiments.WRAPPERS | experiments.TRIALS
for wrapped in ("__init__", "cleanup", "add_trial", "_trial_task_failure"):
    setattr(Controller, wrapped, WRAPPERS[f"TuneController.{wrapped}"](vars(Controller)[wrapped]))


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """The spans of a traced process, as they end."""
    active = tracing_of(tmp_path, selection=Selection(("task", "actor", "tune")))
    found: list[Span] = []
    active.recorder.observer = lambda encoded: found.append(decode_span(encoded))
    monkeypatch.setattr(tracing, "active", active)
    return found


def test_the_trials_of_a_resumed_experiment_have_its_metric(spans: list[Span]) -> None:
    controller = Controller(metric="score", resumed=[Trial("a", score=3)])
    controller.add_trial(Trial("b", score=4))
    controller.cleanup()
    *trials, experiment = spans
    assert experiment.attributes[names.RAY_TUNE_METRIC] == "score"
    assert {each.attributes[names.RAY_TUNE_METRIC_VALUE] for each in trials} == {3, 4}


def test_an_experiment_that_an_interruption_ends_is_freed_and_ends_with_its_controller(spans: list[Span]) -> None:
    """Ray does not clean up then. The error, whose traceback leads to the controller, is not kept."""
    controller = Controller()
    trial = Trial("a")
    controller.add_trial(trial)
    alive = weakref.ref(controller)

    def run(controller: Controller) -> None:
        WRAPPERS["TuneController.step"](interrupt)(controller)

    def interrupt(_controller: Controller) -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run(controller)
    assert spans == []
    del controller
    gc.collect()
    assert alive() is None
    *_, experiment = spans
    assert experiment.attributes[names.ERROR_TYPE] == names.TASK_CANCELLED


@pytest.mark.parametrize("status", ["RUNNING", "TERMINATED"])
def test_a_trial_whose_error_is_raised_has_failed_whatever_its_status(status: str, spans: list[Span]) -> None:
    """With ``fail_fast="raise"``. The error has no line of this package."""
    controller, trial = Controller(), Trial("a")
    controller.add_trial(trial)
    with pytest.raises(ValueError, match="x") as raised:
        controller.step(trial, ValueError("x"))
    # Before Python 3.11 no wrapper can hide.
    if sys.version_info >= (3, 11):
        lines = traceback.extract_tb(raised.value.__traceback__)
        assert [line.name for line in lines[1:]] == ["step", "_trial_task_failure"]
    trial.status = status  # as Ray cleans up
    controller.cleanup()
    failed, experiment = spans
    assert (failed.attributes[names.RAY_TUNE_TRIAL_STATUS], failed.status_message) == ("ERROR", "ValueError: x")
    assert experiment.attributes[names.RAY_TUNE_TRIALS_FAILED] == 1
