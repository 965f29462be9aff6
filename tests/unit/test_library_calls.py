"""What wraps calls of Ray's libraries never changes their results, errors and tracebacks, whatever fails in it.

Also the spans of single libraries that a cluster does not make at will.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import context as context_api
from opentelemetry.context import Context
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import library_spans, tracing
from ray_tracing_hooks._ray.library_spans import followed_by, preceded_by, spanned, within
from ray_tracing_hooks._ray.rllib import iterations
from ray_tracing_hooks._ray.serve import batching
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._ray.train import run
from ray_tracing_hooks._ray.train.run import begin_step, step
from ray_tracing_hooks._ray.tune import experiments
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._safety.patching import Patches

KEY = "key"


class Stub:
    """A span as far as it is ended here."""

    def __init__(self) -> None:
        self.ended = 0
        self.error: BaseException | None = None

    def end(self) -> None:
        self.ended += 1


def add(first: int, second: int = 1) -> int:
    """Add."""
    if context_api.get_value(KEY) is not None:
        return 1000 + first + second
    return first + second


def raises(*_args: Any, **_kwargs: Any) -> Any:
    raise LookupError("a fault of ours")


def fails(first: int, second: int = 1) -> int:
    raise ValueError(first, second)


@pytest.fixture(autouse=True)
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BaseException]]:
    """Tracing is on, and what is reported."""
    found: list[tuple[str, BaseException]] = []
    monkeypatch.setattr(tracing, "active", object())
    monkeypatch.setattr("ray_tracing_hooks._safety.guard.failed", lambda doing, error: found.append((doing, error)))
    return found


def within_context() -> Any:
    return context_api.set_value(KEY, "here")


WRAPPERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "a span that cannot begin": spanned(raises),
    "a span that cannot end": spanned(lambda *_args, **_kwargs: (context_api.get_current(), Stub()), raises),  # type: ignore[arg-type]
    "no span": spanned(lambda *_args, **_kwargs: None),
    "no context to be found": within(raises, "x"),
    "no context": within(lambda *_args, **_kwargs: None, "x"),
    "what follows fails": followed_by(raises, "x"),
    "what precedes fails": preceded_by(raises, "x"),
}


@pytest.mark.parametrize("why", WRAPPERS)
def test_a_call_is_made_once_whatever_fails(why: str) -> None:
    wrapped = WRAPPERS[why](add)
    assert wrapped(1, second=2) == 3
    assert context_api.get_value(KEY) is None
    assert inspect.signature(wrapped) == inspect.signature(add)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == (add.__name__, add.__doc__, add.__module__)


@pytest.mark.parametrize("why", WRAPPERS)
def test_its_error_is_its_own(why: str) -> None:
    """Its type, its arguments and its traceback, in which the frames of this package are not."""
    with pytest.raises(ValueError, match=r"1, 2") as caught:
        WRAPPERS[why](fails)(1, 2)
    assert caught.value.__context__ is None
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    # Before Python 3.11 a bare `raise` puts the frame back.
    assert frames[1:] == (["fails"] if sys.version_info >= (3, 11) else ["call", "fails"])


@pytest.mark.parametrize("why", WRAPPERS)
def test_a_fault_of_ours_is_reported(why: str, reported: list[tuple[str, BaseException]]) -> None:
    WRAPPERS[why](add)(1)
    assert [type(error) for _, error in reported] == (
        [] if why.startswith("no ") and "found" not in why else [LookupError]
    )


def test_without_tracing_nothing_is_done(monkeypatch: pytest.MonkeyPatch, reported: list[Any]) -> None:
    monkeypatch.setattr(tracing, "active", None)
    for wrap in WRAPPERS.values():
        assert wrap(add)(1) == 2
    assert not reported


def test_a_call_runs_in_the_context_of_its_span() -> None:
    """And what follows it does not, whether it returns or raises."""
    span = Stub()
    ended: list[BaseException | None] = []

    def end(its: Any, error: BaseException | None) -> None:
        assert its is span
        ended.append(error)

    wrap = spanned(lambda *_args, **_kwargs: (within_context(), span), end)  # type: ignore[arg-type]
    assert wrap(add)(1) == 1002
    with pytest.raises(ValueError, match="1"):
        wrap(fails)(1)
    assert [type(error) for error in ended] == [type(None), ValueError]
    assert context_api.get_value(KEY) is None
    assert within(lambda *_args: within_context(), "x")(add)(1) == 1002
    assert context_api.get_value(KEY) is None


def test_a_span_that_cannot_be_ended_as_wanted_ends() -> None:
    span = Stub()
    spanned(lambda *_args: (context_api.get_current(), span), raises)(add)(1)  # type: ignore[arg-type]
    assert span.ended == 1


def test_what_precedes_and_follows_has_the_arguments() -> None:
    seen: list[Any] = []
    preceded_by(lambda *args, **kwargs: seen.append((args, kwargs)), "x")(add)(1, second=4)
    followed_by(lambda *args, **kwargs: seen.append((args, kwargs)), "x")(add)(1, second=4)
    assert seen == [((1,), {"second": 4}), ((5, 1), {"second": 4})]
    with pytest.raises(ValueError, match="1"):
        followed_by(seen.append, "x")(fails)(1)
    assert len(seen) == 2, "nothing follows a call that failed"


@pytest.mark.parametrize("is_kept", [False, True])
def test_only_a_context_that_a_library_has_kept_is_that_of_a_parent_that_is_over(is_kept: bool, tmp_path: Path) -> None:
    """A library knows what its work belongs to, such as the upload of a checkpoint to its report."""
    active = tracing_of(tmp_path)
    context, around = library_spans.begin(active, "report", Context())
    assert around is not None
    around.end(time.time_ns() - 1_500_000_000)
    token = attach(Context() if is_kept else context)
    try:
        _, span = library_spans.begin(active, "upload", context)
    finally:
        detach(token)
    assert span is not None
    assert span.parent == (around.get_span_context() if is_kept else None)
    assert (span.trace_id == around.trace_id) is is_kept
    assert ("ray.after_end" in span.attributes) is not is_kept


# The timer of a phase of RLlib is its span: however the timer ends, the span does, and the context is as before.


class Timer:
    """A timer that raises where it is asked to."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __enter__(self) -> object:
        if self.fault == "enter":
            raise LookupError("enter")
        return self

    def __exit__(self, *_error: object) -> None:
        if self.fault == "exit":
            raise LookupError("exit")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """The errors with which spans have ended."""
    found: list[BaseException | None] = []

    def begin(*_arguments: Any) -> tuple[Context, Any]:
        return context_api.set_value(KEY, "here"), object()

    monkeypatch.setattr(tracing, "active", object())
    monkeypatch.setattr(library_spans, "begin", begin)
    monkeypatch.setattr(iterations, "end_call", lambda _span, error: found.append(error))
    return found


@pytest.mark.parametrize(
    ("fault", "raised", "expected"),
    [
        ("", None, None),
        ("", ValueError("body"), "body"),
        ("enter", None, "enter"),
        ("exit", None, "exit"),
        ("exit", ValueError("body"), "body"),
    ],
)
def test_a_phase_ends_with_its_timer(
    ended: list[BaseException | None], fault: str, raised: Exception | None, expected: str | None
) -> None:
    seen = None
    with contextlib.suppress(ValueError, LookupError), iterations._Phase(Timer(fault), "PPO", "learner_update"):
        seen = context_api.get_value(KEY)
        if raised is not None:
            raise raised
    assert seen == (None if fault == "enter" else "here")
    assert [error if error is None else str(error) for error in ended] == [expected]
    assert context_api.get_value(KEY) is None


# Steps of the training loops of Ray Train, and attempts of its runs.


class Loop:
    """Identifies a training loop, as its context does."""


def test_steps_are_counted_for_each_loop_which_is_not_kept(tmp_path: Path) -> None:
    """It has the datasets and the checkpoint of its rank."""
    active, loop = tracing_of(tmp_path), Loop()
    numbers = []
    for _ in range(2):
        begin_step(active, "ray.train.report", loop, 0)
        numbers.append(step.number)
    alive = weakref.ref(loop)
    del loop
    gc.collect()
    assert alive() is None
    begin_step(active, "ray.train.report", Loop(), 0)
    assert [*numbers, step.number] == [1, 2, 1]


class Run:
    """As Ray's ``TrainController`` sets a state."""

    def __init__(self) -> None:
        self.state: Any = None

    def set_state(self, state: Any) -> None:
        self.state = state

    def get_state(self) -> Any:
        return self.state


@pytest.mark.parametrize("is_named", [False, True])
def test_the_last_state_of_a_run_ends_its_attempt(
    is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However Ray passes the state."""
    active, controller, patches = tracing_of(tmp_path), Run(), Patches()
    monkeypatch.setattr(tracing, "active", active)
    attempts = run.Attempts(active, SimpleNamespace(run_config=SimpleNamespace(name="mine")), Context())
    monkeypatch.setitem(run._runs, controller, attempts)
    span = attempts._span
    assert span is not None
    assert patches.wrap(Run, "set_state", followed_by(run._note_state, "recording the state of a run"))
    kind = SimpleNamespace(state_name="FINISHED", is_terminal=True, needs_new_run_attempt=False)
    state = SimpleNamespace(_state_type=kind)
    try:
        if is_named:
            controller.set_state(state=state)
        else:
            controller.set_state(state)
    finally:
        patches.undo()
    assert span.end_time is not None


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """The spans of a traced process, as they end."""
    active = tracing_of(tmp_path, selection=Selection(("task", "actor", "serve", "tune")))
    found: list[Span] = []
    active.recorder.observer = lambda encoded: found.append(decode_span(encoded))
    monkeypatch.setattr(tracing, "active", active)
    monkeypatch.setattr(batching, "of_this_replica", lambda: ("Model", "app", "abc"))
    return found


# Experiments of Ray Tune.


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


OF_TUNE: dict[str, Any] = experiments.WRAPPERS | experiments.TRIALS
for wrapped in ("__init__", "cleanup", "add_trial", "_trial_task_failure"):
    setattr(Controller, wrapped, OF_TUNE[f"TuneController.{wrapped}"](vars(Controller)[wrapped]))


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
        OF_TUNE["TuneController.step"](interrupt)(controller)

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


# Models that a replica loads, and its batches.


def test_a_function_that_cannot_begin_to_load_a_model_has_failed(spans: list[Span]) -> None:
    """Such as one with another parameter. Its error has no line of this package."""

    async def load(model_id: str, folder: str) -> str:
        return f"model {model_id} in {folder}"

    with pytest.raises(TypeError, match="folder") as raised:
        asyncio.run(batching._loading(SimpleNamespace(), load)("a"))
    if sys.version_info >= (3, 11):
        assert len(traceback.extract_tb(raised.value.__traceback__)) == 1
    (span,) = spans
    assert (span.attributes[names.ERROR_TYPE], span.status_code) == ("TypeError", 2)


@pytest.mark.parametrize("what", ["model", "batch"])
def test_what_begins_after_the_end_of_its_request_is_a_trace_that_is_linked_to_it(what: str, spans: list[Span]) -> None:
    """Such as by a loop that the request has started."""

    async def load(model_id: str) -> str:
        return model_id

    async def begin() -> None:
        if what == "model":
            await batching._loading(SimpleNamespace(), load)("a")
            return
        future = asyncio.get_running_loop().create_future()
        batching._waiting[future] = get_current(), time.time_ns()
        body = load("a")
        assert tracing.active is not None
        begun = batching._begin(tracing.active, body, [future])
        body.close()
        assert begun is not None
        assert begun[1] is not None
        begun[1].end()

    assert tracing.active is not None
    recorder = tracing.active.recorder
    request = recorder.start(Template("request", 1, {}), *recorder.decide(None), None)
    request.end(time.time_ns() - 1_500_000_000)
    token = attach(Context({SPAN_KEY: request}))
    try:
        asyncio.run(begin())
    finally:
        detach(token)
    _, span = spans
    assert (span.trace_id == request.trace_id, span.parent_span_id) == (False, b"")
    assert [(link.trace_id, link.span_id) for link in span.links] == [(request.trace_id, request.span_id)]
    assert span.attributes[names.RAY_AFTER_END] >= 1.5
