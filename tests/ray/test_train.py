"""Ray Train: a run is one connected trace from ``fit()`` to each step of each rank, and runs as it does untraced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conformance import check_training
from conftest import Cluster
from support import (
    NEEDS_TRAIN_V2,
    Run,
    await_spans,
    below,
    by_name,
    check_links,
    of_driver,
    tree,
    without_placement,
)

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.ingest.utilization import samples_beside
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.utilization import Key

pytestmark = [NEEDS_TRAIN_V2, pytest.mark.slow(older_rays=True)]  # processes that import PyTorch


@pytest.fixture(scope="module")
def runs(training: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The runs of the program, with all of their spans."""
    run = training.run("train_runs", str(tmp_path_factory.mktemp("runs")))
    # What a killed controller has left is written after it.
    spans = await_spans(training.spans, lambda spans: bool(by_name(spans, "killed ray.train.worker")))
    run.spans = without_placement(of_driver(spans, "train_runs"))
    return run


RESTARTED = """
user training
  restarted ray.train
    restarted ray.train.attempt
      RayTrainWorker.__init__ call x2
      RayTrainWorker._set_torch_distributed_env_vars call x2
      RayTrainWorker._setup_torch_process_group call x2
      RayTrainWorker._shutdown_torch call x4
      RayTrainWorker.set_env_vars call x2
      restarted ray.train.worker
        ray.train.report
          ray.train.checkpoint_transfer
        user step
          __main__.helper call
      restarted ray.train.worker
        ray.train.report
        user step
          __main__.helper call
    restarted ray.train.attempt !ValueError
      RayTrainWorker.__init__ call x2
      RayTrainWorker._set_torch_distributed_env_vars call x2
      RayTrainWorker._setup_torch_process_group call x2
      RayTrainWorker.set_env_vars call x2
      restarted ray.train.worker !ValueError
        ray.train.report
        user step
          __main__.helper call
      restarted ray.train.worker !worker_died
        ray.train.report
          ray.train.checkpoint_transfer
        user step
          __main__.helper call
"""


def test_a_run_that_is_restarted_is_one_tree(runs: Run) -> None:
    """The run, its two attempts, a loop of each rank in each, their reports and the program's own spans."""
    assert tree(below(runs.spans, "user training")) == RESTARTED.strip()


def test_every_span_has_its_parent(runs: Run) -> None:
    check_links(runs.spans)
    assert {span.trace_id for span in runs.spans} == {runs.spans[0].trace_id}


def of(spans: Sequence[Span], name: str) -> list[Span]:
    return sorted(by_name(spans, name), key=lambda span: span.start_ns)


def events(span: Span, name: str) -> list[Any]:
    return [event.attributes for event in span.events if event.name == name]


def test_an_attempt_tells_what_happened_in_it(runs: Run) -> None:
    """States, the decision after a failure with its cause, and how long it took to start."""
    first, second = of(runs.spans, "restarted ray.train.attempt")
    assert [each.attributes[names.RAY_TRAIN_ATTEMPT] for each in (first, second)] == [1, 2]
    states = [[each[names.RAY_TRAIN_STATE] for each in events(span, names.TRAIN_CHANGED)] for span in (first, second)]
    assert states == [
        ["SCHEDULING", "RUNNING", "RESTARTING"],
        ["SCHEDULING", "RUNNING", "SHUTTING_DOWN", "FINISHED"],
    ]
    assert events(first, names.TRAIN_FAILURE) == [
        {
            names.RAY_TRAIN_DECISION: "RETRY",
            names.ERROR_TYPE: "ValueError",
            names.RAY_TRAIN_FAILED_RANKS: ["1"],
        }
    ]
    assert first.attributes[names.ERROR_TYPE] == "ValueError"
    assert first.end_ns <= second.start_ns
    for attempt in (first, second):
        assert attempt.attributes[names.RAY_TRAIN_NUM_WORKERS] == 2
        parts = attempt.attributes[names.RAY_TRAIN_SCHEDULING_TIME], attempt.attributes[names.RAY_TRAIN_RUNNING_TIME]
        assert all(part > 0 for part in parts)
        # The clock of the span begins before that of the states, and ends after it.
        assert sum(parts) == pytest.approx((attempt.end_ns - attempt.start_ns) / 1e9, rel=0.1)
    (run,) = by_name(runs.spans, "restarted ray.train")
    assert run.attributes[names.RAY_TRAIN_TRAINER] == "TorchTrainer"
    assert names.ERROR_TYPE not in run.attributes


def test_a_rank_tells_where_it_is(runs: Run) -> None:
    workers = by_name(runs.spans, "four ray.train.worker")
    ranks = sorted(span.attributes[names.RAY_TRAIN_WORLD_RANK] for span in workers)
    assert ranks == [0, 1, 2, 3]
    for span in workers:
        rank = span.attributes[names.RAY_TRAIN_WORLD_RANK]
        assert span.attributes[names.RAY_TRAIN_LOCAL_RANK] == rank
        assert span.attributes[names.RAY_TRAIN_WORLD_SIZE] == 4
        assert span.attributes[names.RAY_TRAIN_NODE_RANK] == 0
        assert span.attributes[names.RAY_ASSIGNED_RESOURCES] == '{"CPU": 0.25}'
    steps = [span for span in by_name(runs.spans, "user step") if "rank" in span.attributes]
    by_id = {span.span_id: span for span in runs.spans}
    assert len(steps) == 12
    for step in steps:
        assert by_id[step.parent_id].attributes[names.RAY_TRAIN_WORLD_RANK] == step.attributes["rank"]


def test_a_rank_tells_how_much_memory_its_process_took(runs: Run) -> None:
    """And so does each call, where that is asked for."""
    ran = [span for span in runs.spans if span.name.endswith((" ray.remote_worker", " ray.train.worker"))]
    ended = [span for span in ran if span.attributes.get(names.ERROR_TYPE) != names.WORKER_DIED]
    assert len(ended) > 10
    for span in ended:
        assert 10e6 < span.attributes.get(names.RAY_MEMORY_PEAK, 0) < 10e9, span


def test_the_node_was_sampled_while_it_ran(training: Cluster, runs: Run) -> None:
    """Its metrics are beside the spans, and are about the node of the ranks."""
    (node,) = {span.attributes[names.RAY_NODE_ID] for span in by_name(runs.spans, "four ray.train.worker")}
    found, problems = samples_beside([str(training.spans)], 0, 1 << 63)
    assert problems == []
    processors = found[Key(node, 2, "CPU")]
    four = by_name(runs.spans, "four ray.train")[0]
    mean = processors.mean([(four.start_ns, four.end_ns)])
    assert mean is not None
    assert 0.01 < mean <= 1


CLOCK = 1e-3
"""Seconds that two readings of a clock may differ by what they are rounded to."""

ON_THE_WAY = 0.3
"""Seconds, at most, from the start of a report to its barrier, if the machine is busy."""


def test_the_waits_of_ranks_are_those_that_the_program_measured(runs: Run) -> None:
    """How long each rank waited for the last one to come, and how long its report took."""
    reports = {
        (span.attributes[names.RAY_TRAIN_WORLD_RANK], span.attributes[names.RAY_TRAIN_STEP] - 2): span
        for span in below(runs.spans, "four ray.train")
        if span.name == names.TRAIN_REPORT
    }
    measured = runs.result["four"]["meeting"]
    assert len(reports) == len(measured) == 12
    for each in measured:
        span, came = reports[each["rank"], each["step"]], each["came"]
        start, end = span.start_ns / 1e9, span.end_ns / 1e9
        # Both read the same clock.
        assert came - CLOCK <= start <= end <= came + each["took"] + CLOCK
        # Nobody leaves the barrier before the last one has come; how soon after that is up to the machine.
        last = max(other["came"] for other in measured if other["step"] == each["step"])
        assert last - start - ON_THE_WAY <= span.attributes[names.RAY_TRAIN_BARRIER_TIME] <= end - start


def test_collective_functions_are_steps_too(runs: Run) -> None:
    barriers = by_name(runs.spans, "ray.train.collective.barrier")
    assert [span.attributes[names.RAY_TRAIN_STEP] for span in barriers] == [1] * 4
    for span in barriers:
        took = (span.end_ns - span.start_ns) / 1e9
        assert span.attributes[names.RAY_TRAIN_BARRIER_TIME] == pytest.approx(took, abs=0.3)


def test_a_checkpoint_is_transferred_below_its_report(runs: Run) -> None:
    """Also in another thread, after the report."""
    by_id = {span.span_id: span for span in runs.spans}
    (later,) = [span for span in below(runs.spans, "four ray.train") if span.name == names.TRAIN_TRANSFER]
    report = by_id[later.parent_id]
    assert report.name == names.TRAIN_REPORT
    assert report.attributes[names.RAY_TRAIN_STEP] == 3
    assert later.attributes[names.RAY_TRAIN_CHECKPOINT].startswith("checkpoint_")
    for transfer in below(runs.spans, "restarted ray.train"):
        if transfer.name == names.TRAIN_TRANSFER:
            folder = by_id[transfer.parent_id].attributes[names.RAY_TRAIN_CHECKPOINT]
            assert transfer.attributes[names.RAY_TRAIN_CHECKPOINT] == folder


FAILED = """
failed ray.train !KeyError
  failed ray.train.attempt !KeyError
    RayTrainWorker.__init__ call
    failed ray.train.worker !KeyError
"""

LOCAL = """
ray_train_run ray.train
  ray_train_run ray.train.attempt
    ray_train_run ray.train.worker
      ray.train.report
      user step
        __main__.helper call
"""


def test_a_failed_run_has_the_cause_on_each_level(runs: Run) -> None:
    """The error of the program, not of Ray Train around it."""
    assert tree(below(runs.spans, "failed ray.train")) == FAILED.strip()


def test_a_run_without_workers_has_the_same_tree(runs: Run) -> None:
    """And spans whose names do not contain the time, as the name that Ray gives the run does."""
    assert tree(below(runs.spans, "ray_train_run ray.train")) == LOCAL.strip()


def test_a_run_whose_controller_dies_ends(runs: Run) -> None:
    assert runs.result["killed"] == "ActorDiedError"
    found = {span.name: span for span in below(runs.spans, "killed ray.train")}
    assert found["killed ray.train"].attributes[names.ERROR_TYPE] == "ray.exceptions.ActorDiedError"
    for name in ("killed ray.train.attempt", "killed ray.train.worker"):
        assert found[name].attributes[names.ERROR_TYPE] == names.WORKER_DIED
    assert "user step" in found


def test_polling_makes_no_spans(runs: Run) -> None:
    """Nor does anything else with which Ray Train manages its workers."""
    calls = {span.name for span in runs.spans if span.name.endswith(" ray.remote")}
    assert calls == {
        "RayTrainWorker.__init__ ray.remote",
        "RayTrainWorker._set_torch_distributed_env_vars ray.remote",
        "RayTrainWorker._setup_torch_process_group ray.remote",
        "RayTrainWorker._shutdown_torch ray.remote",
        "RayTrainWorker.set_env_vars ray.remote",
        "__main__.helper ray.remote",
        "ReadRange ray.remote",  # of the dataset that feeds a run
    }


def test_callbacks_of_the_program_are_called(runs: Run) -> None:
    called = runs.result["restarted"]["callback"]
    (failed,) = [each["failed"] for each in called if "failed" in each]
    assert list(failed) == ["1"]
    assert "ValueError('rank 1 fails')" in failed["1"]
    assert [each["reported"] for each in called if "reported" in each] == [[1, 1], [2, 2]]


@pytest.mark.slow  # where it is not recorded, all of the runs once more
def test_runs_come_to_the_same_untraced(runs: Run, tmp_path: Path) -> None:
    """Results, metrics, errors and their tracebacks."""
    check_training("train_runs", runs.result, tmp_path)
