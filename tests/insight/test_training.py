"""What the summary and the page say of training: late ranks, slow starts, restarts, ended trials, idle GPUs."""

from __future__ import annotations

import gzip
import json
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hand_made import MS, START, HandMade

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import BY_RANK, GET_TIME, RUN
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.ingest.utilization import samples_beside
from ray_tracing_hooks._insight.model.utilization import Key, Series, Utilization
from ray_tracing_hooks._insight.views.page import libraries, nodes
from ray_tracing_hooks._insight.views.page.content import content, whole
from ray_tracing_hooks._insight.views.redaction import Redaction

RECORDED = Path(__file__).parent / "recorded"

PENDING = names.RAY_TUNE_PENDING_TIME
KINDS = {"straggler-rank", "slow-reports", "training-start", "training-restarts", "ended-trials", "trials-in-turn"}


def recorded(name: str) -> Analysis:
    return Analysis(load(span_files([str(RECORDED / f"{name}.jsonl.gz")])))


def found_in(analysis: Analysis) -> dict[str, Finding]:
    """The findings about training, by kind."""
    return {finding.kind: finding for finding in find(analysis) if finding.kind in KINDS}


def summary(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["summary", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


class Training(HandMade):
    """A run of Ray Train made by hand. Times are milliseconds."""

    def __init__(self, end: float = 10_000) -> None:
        super().__init__()
        self.begun = self.driver(0, end)
        self.fit = self.span("job ray.train", 100, end - 100, self.begun)

    def attempt(self, number: int, start: float, end: float, **more: Any) -> str:
        attributes = {names.RAY_TRAIN_ATTEMPT: number}
        return self.span(
            "job ray.train.attempt", start, end, self.fit, worker="controller", attributes=attributes, **more
        )

    def ranks(
        self, attempt: str, start: float, steps: Sequence[Sequence[float]], after: float = 50, **more: Any
    ) -> list[str]:
        """The loops of ranks that start at the same time. ``steps``: the own time of each rank in each step."""
        at = [start] * len(steps)
        comings: list[list[float]] = []
        overs = []
        for number in range(len(steps[0])):
            comings.append([begun + took[number] for begun, took in zip(at, steps, strict=True)])
            overs.append(max(comings[-1]) + 5)
            at = [overs[-1]] * len(steps)
        loops = []
        for rank in range(len(steps)):
            worker = f"w{rank}"
            attributes = {names.RAY_TRAIN_WORLD_RANK: rank}
            loop = self.span(
                "job ray.train.worker", start, at[0] + after, attempt, worker=worker, attributes=attributes, **more
            )
            loops.append(loop)
            for number, (coming, over) in enumerate(zip(comings, overs, strict=True), 1):
                waited = (over - coming[rank]) / 1000
                about = {names.RAY_TRAIN_STEP: number, names.RAY_TRAIN_BARRIER_TIME: waited}
                report = self.span(names.TRAIN_REPORT, coming[rank], over, loop, worker=worker, attributes=about)
                self.get(report, ["0" * 56], coming[rank], over, worker=worker)
        return loops

    def analysis(self) -> Analysis:
        return Analysis(self.table())


def one_attempt(steps: Sequence[Sequence[float]]) -> Training:
    run = Training(sum(map(max, zip(*steps, strict=True))) + 5 * len(steps[0]) + 1_000)
    attempt = run.attempt(1, 200, run.spans[1].end_ns / MS - START / MS - 50)
    run.ranks(attempt, 300, steps)
    return run


def reporting(*handovers: Sequence[float]) -> Analysis:
    """A run of ten seconds whose ranks wait for the controller at each of their reports, for so many seconds."""
    run = Training()
    attempt = run.attempt(1, 200, 9_800)
    for rank, times in enumerate(handovers):
        worker, at = f"w{rank}", 300.0
        attributes = {names.RAY_TRAIN_WORLD_RANK: rank}
        loop = run.span("job ray.train.worker", at, 9_700, attempt, worker=worker, attributes=attributes)
        for number, handover in enumerate(times, 1):
            about = {names.RAY_TRAIN_STEP: number, names.RAY_TRAIN_HANDOVER_TIME: handover}
            run.span(names.TRAIN_REPORT, at + 100, at + 110 + 1000 * handover, loop, worker=worker, attributes=about)
            at += 110 + 1000 * handover
    return run.analysis()


# --- findings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(os.listdir(RECORDED)))
def test_nothing_is_said_of_training_in_other_runs(name: str) -> None:
    analysis = recorded(name.removesuffix(".jsonl.gz"))
    if not analysis.train_runs and not analysis.experiments:
        assert not found_in(analysis)
        assert libraries.training(analysis, int) == {"training": [], "trainings": 0}


def test_reports_that_wait_for_the_controller() -> None:
    """What a run could save is what each of its ranks waited."""
    finding = found_in(reporting([0, 1.5, 1.8, 1.7], [0, 1.4, 1.7, 1.6]))["slow-reports"]
    assert finding.text == (
        "reports of job waited until the controller of Ray Train had taken the previous one: each rank waited 4.70 s "
        "or more, at 3 steps, up to 1.70 s"
    )
    assert finding.share == pytest.approx(0.47)
    assert "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S" in finding.advice
    assert len(finding.rows) == 3


def test_reports_that_one_rank_hands_over_at_once_cost_nothing() -> None:
    assert "slow-reports" not in found_in(reporting([0, 1.5, 1.8, 1.7], [0, 0.1, 0.1, 0.1]))
    assert "slow-reports" not in found_in(reporting([0, 0], [0, 0]))


def test_who_made_the_others_wait() -> None:
    """Rank 1 is late at steps 2 to 5 by 300 ms, rank 0 at the first by 20 ms: each of the others waited so long."""
    run = one_attempt([[120, *[100] * 4], [100, *[400] * 4], [100] * 5, [100] * 5])
    analysis = run.analysis()
    finding = found_in(analysis)["straggler-rank"]
    assert finding.text == (
        "rank 1 of job was the last of 4 ranks at 4 of 5 steps: the run waited 1.20 s for it, and the other ranks "
        "3.60 s together; at worst 300 ms, at step 2"
    )
    evidence = [analysis.table.span(row) for row in finding.rows]
    assert [span.attributes[names.RAY_TRAIN_STEP] for span in evidence] == [2, 3, 4, 5]
    assert {span.parent_id for span in evidence} == {
        analysis.table.span_id_of(analysis.train_runs[0].attempts[0].ranks[1].row)
    }


def test_a_rank_costs_nothing_at_steps_that_end_when_the_controller_takes_the_report() -> None:
    """Had it come earlier, all would have waited for the controller for longer."""
    steps = [[120, *[100] * 7], [100, *[500] * 7]]
    assert "straggler-rank" in found_in(one_attempt(steps).analysis())
    run = one_attempt(steps)
    for span in run.spans:
        if span.attributes.get(names.RAY_TRAIN_STEP, 0) > 2:
            span.attributes[names.RAY_TRAIN_HANDOVER_TIME] = 0.9
    analysis = run.analysis()
    meetings = analysis.train_runs[0].attempts[0].meetings
    assert [each.delay for each in meetings] == [20 * MS, 400 * MS, *[0] * 6]
    assert [each.waited for each in meetings[2:]] == [400 * MS] * 6
    assert "straggler-rank" not in found_in(analysis)


@pytest.mark.parametrize(
    ("why", "steps"),
    [
        ("all take as long", [[200] * 6, [201] * 6]),
        ("each is late once", [[400, 100, 100], [100, 400, 100], [100, 100, 400]]),
        ("it is late twice only, as for a checkpoint", [[100] * 8, [300, 300, *[99] * 6]]),
        ("it is late once, and the last one by chance", [[100] * 8, [101, 101, 101, 900, 101, 99, 99, 99]]),
        ("it is late as often as the other one", [[100, 400] * 10, [300, 110] * 10]),
        ("it is the last one at random", [[180, 100, 190, 110, 160, 120], [100, 190, 110, 150, 100, 170]]),
        ("there is one rank", [[100] * 6]),
        ("what it costs is little", [[1000] * 6, [1020] * 6]),
    ],
)
def test_ranks_that_are_not_late(why: str, steps: list[list[float]]) -> None:
    assert not found_in(one_attempt(steps).analysis()), why


def test_a_rank_that_died_at_a_step_met_nobody_there() -> None:
    """Of the others, it is not known how long they waited for the last one."""
    run = Training()
    attempt = run.attempt(1, 200, 9_000)
    run.ranks(attempt, 300, [[100] * 4, [100] * 4])
    died = [span for span in run.spans if span.attributes.get(names.RAY_TRAIN_STEP) == 4]
    del died[0].attributes[names.RAY_TRAIN_BARRIER_TIME]
    (found,) = run.analysis().train_runs[0].attempts
    assert [meeting.number for meeting in found.meetings] == [1, 2, 3]
    assert [len(rank.steps) for rank in found.ranks] == [4, 4]


def test_where_a_rank_was_replaced_it_is_not_known_who_was_late() -> None:
    """The steps of its new loop are counted from 1, and those of the others go on."""
    run = Training()
    attempt = run.attempt(1, 200, 9_000)
    run.ranks(attempt, 300, [[100] * 4, [400] * 4])
    run.span("job ray.train.worker", 5_000, 6_000, attempt, worker="w2", attributes={names.RAY_TRAIN_WORLD_RANK: 1})
    analysis = run.analysis()
    assert analysis.train_runs[0].attempts[0].meetings == []
    assert "straggler-rank" not in found_in(analysis)


def test_a_start_without_a_step_is_not_said_to_end_at_one() -> None:
    """Its workers took 25 of 26 seconds; it trains without reports."""
    run = Training(60_000)
    attempt = run.attempt(1, 200, 59_000)
    created = run.submit(attempt, "RayTrainWorker.__init__", 300, worker="controller")
    run.run(created, 25_000, 25_300, worker="w0")
    loop = {names.RAY_TRAIN_WORLD_RANK: 0}
    run.span("job ray.train.worker", 26_000, 58_000, attempt, worker="w0", attributes=loop)
    finding = found_in(run.analysis())["training-start"]
    assert finding.about["part"] == "workers"
    assert "from fit() to its training loops, which took no step: " in finding.text
    assert "first step" not in finding.text


def test_it_is_not_known_what_a_start_waited_for_without_calls() -> None:
    """As where calls of actors are not traced."""
    run = Training(60_000)
    run.ranks(run.attempt(1, 200, 59_000), 26_000, [[1_000] * 4])
    assert "training-start" not in found_in(run.analysis())


def test_a_run_that_did_not_run_again() -> None:
    run = Training(20_000)
    run.ranks(run.attempt(1, 200, 6_000, error="WorkerGroupError"), 1_000, [[1_200] * 2])
    run.attempt(2, 6_000, 19_000)
    finding = found_in(run.analysis())["training-restarts"]
    assert "13 s in which it did not run" in finding.text.replace("13.0 s", "13 s")


def test_a_resized_run_was_not_restarted() -> None:
    """The attempt before did not fail."""
    run = Training(20_000)
    run.ranks(run.attempt(1, 200, 6_000), 1_000, [[1_200] * 2])
    run.ranks(run.attempt(2, 6_000, 19_000), 8_000, [[1_000] * 8])
    assert "training-restarts" not in found_in(run.analysis())


def experiment(*trials: tuple[float, str, str]) -> Analysis:
    """Trials one after the other: how long each ran, what stopped it, and its error."""
    run = HandMade()
    end = sum(took for took, _, _ in trials) + 100
    driver = run.driver(0, end)
    fit = run.span(
        "sweep ray.tune", 10, end - 10, driver, attributes={names.RAY_TUNE_SCHEDULER: "AsyncHyperBandScheduler"}
    )
    at = 20.0
    for took, stopped_by, error in trials:
        about = {names.RAY_TUNE_STOPPED_BY: stopped_by, names.RAY_TUNE_ITERATIONS: int(took / 100)}
        trial = run.span("sweep ray.tune.trial", at, at + took, fit, attributes=about, error=error)
        if took >= 100:
            run.task(trial, "train", at, at + 1, at + took - 1)
        at += took
    return Analysis(run.table())


def test_trials_that_ended_early() -> None:
    done, cut, failed = (1_000.0, "trainable", ""), (500.0, "experiment", ""), (300.0, "", "ValueError")
    finding = found_in(experiment(done, done, cut, failed, failed))["ended-trials"]
    assert "2 trials failed with ValueError, 1 trial had not ended when the experiment did" in finding.text
    assert "they ran for 1.10 s (35 % of the running time of all trials)" in finding.text
    assert finding.is_failure


def test_trials_that_never_ran_took_no_time() -> None:
    """Their experiment ended before their actors had started; those that ran beside them took all of the time."""
    cut, never = (500.0, "experiment", ""), (50.0, "experiment", "")
    finding = found_in(experiment(never, never))["ended-trials"]
    assert finding.text == "none of 2 trials of sweep ran before the experiment ended, after 180 ms"
    assert "more time than its actors need to start" in finding.advice
    finding = found_in(experiment(cut, never))["ended-trials"]
    assert "1 trial had not ended when the experiment did, 1 trial had not begun" in finding.text
    assert "they ran for 500 ms" in finding.text


def test_a_failed_trial_costs_what_the_run_waited_for_it() -> None:
    """And not a share of the whole experiment, which may have waited for something else most of the time."""
    run, driver = HandMade.driven(20_000)
    fit = run.span("sweep ray.tune", 10, 15_000, driver)
    failed = run.span("sweep ray.tune.trial", 20, 14_000, fit, error="ValueError", attributes={PENDING: 13.77})
    call = run.task(failed, "train", 13_790, 13_791, 13_990)
    run.get(driver, [call], 30, 14_990)
    finding = found_in(Analysis(run.table()))["ended-trials"]
    assert "it ran for 210 ms" in finding.text
    assert finding.share == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("trials", "every", "parts"), [(1, 20, ""), (2, 40, "actor,get,task,tune,wait")])
def test_the_calls_of_trials_are_neither_a_loop_nor_work_of_the_program(trials: int, every: int, parts: str) -> None:
    """Ray Tune makes each one when the one before it has ended: its scheduler decides whether the trial goes on. The
    program cannot move what comes before them into its tasks.
    """
    run, driver = HandMade.driven(1_100, parts=parts)
    fit = run.span("sweep ray.tune", 5, 1_095, driver)
    stopped = {names.RAY_TUNE_STOPPED_BY: "trial"}
    made = [run.span("sweep ray.tune.trial", 10, 1_090, fit, attributes=stopped) for _ in range(trials)]
    for number, at in enumerate(range(20, 1_080, every)):
        run.task(made[number % trials], "Counting.train", at, at + 1, at + (5 if trials > 1 else 19))
    assert find(Analysis(run.table())) == []


def test_trials_that_the_scheduler_stops_are_no_fault() -> None:
    """That is what it is for; and of an error that cost next to nothing, other lines tell."""
    done, stopped = (1_000.0, "trainable", ""), (200.0, "scheduler", "")
    assert "ended-trials" not in found_in(experiment(done, stopped, stopped))
    assert "ended-trials" not in found_in(experiment(done, done, (10.0, "", "ValueError")))


# --- the path -------------------------------------------------------------------------------------------------------


def test_the_path_passes_through_the_rank_that_came_last() -> None:
    """Rank 1 is late at the first step, and rank 0 at the second, whose end is that of the run."""
    run = Training(2_000)
    attempt = run.attempt(1, 200, 1_900)
    run.ranks(attempt, 300, [[100, 700], [600, 50]])
    analysis = run.analysis()
    loops = [rank.row for rank in analysis.train_runs[0].attempts[0].ranks]
    ran = [
        (loops.index(step.row), step.start, step.end)
        for step in analysis.path.steps
        if step.kind == RUN and step.row in loops
    ]
    merged = [(rank, (start - START) / MS, (end - START) / MS) for rank, start, end in ran]
    assert (1, 300, 900) in merged, "until it came to the first step"
    assert any(rank == 0 and start == 905 and end == 1605 for rank, start, end in merged), merged
    assert any(step.edge == BY_RANK and step.kind == GET_TIME for step in analysis.path.steps)


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_heat_map_has_each_rank_and_step() -> None:
    run = one_attempt([[120, 100, 100], [100, 400, 100]])
    (attempt,) = libraries.training(run.analysis(), int)["training"]
    assert (attempt["run"], attempt["attempt"], attempt["steps"], attempt["size"], attempt["met"]) == (
        "job",
        1,
        3,
        1,
        3,
    )
    first, second = attempt["ranks"]
    assert [first["took"], second["took"]] == [[120_001, 100_001, 100_001], [100_001, 400_001, 100_001]]
    assert [first["waited"], second["waited"]] == [[0, 300_000, 0], [20_000, 0, 0]]
    assert (first["last"], second["last"]) == (2, 1), "who is the last of two at the same time does not matter"
    assert attempt["delays"] == [20_000, 300_000, 0]


def test_many_steps_share_columns() -> None:
    """A column has the longest of its steps, and leads to it."""
    steps = [[10.0] * 700, [10.0] * 700]
    steps[1][350] = 500.0
    analysis = one_attempt(steps).analysis()
    (attempt,) = libraries.training(analysis, int)["training"]
    assert (attempt["size"], len(attempt["delays"])) == (3, 234)
    second = attempt["ranks"][1]
    assert second["took"][350 // 3] == 500_001
    assert analysis.table.span(second["rows"][350 // 3]).attributes[names.RAY_TRAIN_STEP] == 351
    assert attempt["ranks"][0]["waited"][350 // 3] == 490_000


def test_a_page_without_attributes_has_no_ranks() -> None:
    """Its number is an attribute of a rank, and so is what it measured."""
    analysis = one_attempt([[120, 100, 100], [100, 400, 100]]).analysis()
    assert content(analysis, "x", 1000, Redaction()).meta["training"]
    assert not content(analysis, "x", 1000, Redaction(attributes=False)).meta["training"]


# --- how much of a node was in use ----------------------------------------------------------------------------------


def sampled(values: Sequence[float], every: float = 100, node: str = "n1", label: str = "GPU:0") -> Utilization:
    times = array("q", [START + round(number * every * MS) for number in range(len(values) + 1)])
    return {Key(node, 0, label): Series(times, array("d", [0, *values]))}


def holding() -> HandMade:
    """An actor that holds a GPU for half of two seconds, and runs all the time that it holds it."""
    run, driver = HandMade.driven(2_000)
    call = run.task(driver, "Trainer.train", 0, 500, 1_500, attributes={names.RAY_ACCELERATOR_IDS: ["GPU:0"]})
    run.get(driver, [call], 1, 1_501)
    return run


def test_a_gpu_that_is_held_but_not_used_is_idle() -> None:
    """Its holder runs, but the driver says that the GPU does nothing."""
    table = holding().table()
    assert not find(Analysis(table)), "as far as spans tell, it is in use"
    samples = sampled([1.0] * 5 + [0.1] * 5 + [0.2] * 5 + [1.0] * 5)
    analysis = Analysis(table, None, samples)
    assert analysis.accelerators[0].used == pytest.approx(0.15)
    (finding,) = find(analysis)
    assert finding.kind == "idle-accelerator"
    assert finding.share == pytest.approx(0.85 * 1000 / 2000)
    assert "but only 15 % of it was in use on average (10 samples, one in 100 ms)" in finding.text
    assert not find(Analysis(table, None, sampled([0.0] * 5 + [0.9] * 10)))


def test_a_few_samples_do_not_say_how_much_a_gpu_was_in_use() -> None:
    """Each is of a moment before it, while the holder ran all of the time between them."""
    analysis = Analysis(holding().table(), None, sampled([0.04] * 4, every=500))
    (accelerator,) = analysis.accelerators
    assert (accelerator.samples, accelerator.resolution, accelerator.used) == (2, 500 * MS, None)
    assert not find(analysis)


def test_samples_of_other_nodes_and_times_say_nothing() -> None:
    table = holding().table()
    for samples in (sampled([0.0] * 20, node="n2"), sampled([0.0] * 20, label="GPU:1"), sampled([0.0] * 4)):
        analysis = Analysis(table, None, samples)
        assert analysis.accelerators[0].used is None
        assert not find(analysis)


def test_between_samples_that_are_far_apart_nothing_is_known() -> None:
    """As after a shipper was killed and started again."""
    series = sampled([0.5] * 10)[Key("n1", 0, "GPU:0")]
    series.times.append(series.times[-1] + 10_000 * MS)
    series.values.append(1.0)
    assert len(list(series.pieces())) == 10
    assert series.mean([(START, START + 20_000 * MS)]) == 0.5


def line(*points: tuple[str, str, float, float]) -> bytes:
    """A line of metrics as a shipper writes it: metric, accelerator, milliseconds, value."""
    metrics = [
        {
            "name": name,
            "gauge": {
                "dataPoints": [
                    {
                        "timeUnixNano": str(START + round(at * MS)),
                        **({"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}),
                        "attributes": [{"key": names.RAY_ACCELERATOR_ID, "value": {"stringValue": accelerator}}]
                        if accelerator
                        else [],
                    }
                ]
            },
        }
        for name, accelerator, at, value in points
    ]
    resource = {"attributes": [{"key": names.RESOURCE_NODE_ID, "value": {"stringValue": "n1"}}]}
    scope = {"scope": {"name": names.SCOPE}, "metrics": metrics}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}).encode() + b"\n"


def test_samples_are_read_from_the_metrics_next_to_the_spans(tmp_path: Path) -> None:
    """GPUs first. Memory is a share of what there is; damaged lines, other metrics and other times are left out."""
    (tmp_path / "metrics").mkdir()
    gpu, used, limit, cpu = names.GPU_UTILIZATION, names.GPU_MEMORY_USAGE, names.GPU_MEMORY_LIMIT, names.CPU_UTILIZATION
    first = line((gpu, "GPU:0", 100, 0.5), (used, "GPU:0", 100, 25), (limit, "GPU:0", 100, 100), (cpu, "", 100, 0.25))
    with gzip.open(tmp_path / "metrics" / "a-0001.jsonl.gz", "wb") as file:
        file.write(first)
    with open(tmp_path / "metrics" / "a-0002.jsonl", "wb") as file:
        file.write(line((cpu, "", 200, 2.0), (used, "GPU:1", 200, 7)))
        file.write(line((cpu, "", 99_000, 0.9), ("other", "", 300, 0.9)))
        file.write(b'{"resourceMetrics":[{"name":"system.cpu.utilization"}]}\n' + line((cpu, "", 300, 0.5))[:-20])
    spans = tmp_path / "spans.jsonl"
    spans.write_bytes(holding().as_json_lines())
    for given in (tmp_path, spans):
        found, problems = samples_beside([str(given)], START, START + 2_000 * MS)
        assert problems == []
        assert {key.label: list(series.values) for key, series in found.items()} == {
            "GPU:0": [0.5],
            "GPU:0 memory": [0.25],
            "CPU": [0.25, 1.0],
        }
    (tmp_path / "metrics" / "a-0003.jsonl.gz").write_bytes(b"no gzip")
    _, problems = samples_beside([str(tmp_path)], START, START + 2_000 * MS)
    assert len(problems) == 1
    assert problems[0].startswith(str(tmp_path / "metrics" / "a-0003.jsonl.gz"))


def test_a_summary_shows_how_much_of_an_accelerator_was_in_use(tmp_path: Path) -> None:
    run = holding()
    for span in run.spans:
        span.attributes.pop(names.RAY_ACCELERATOR_IDS, None)
    (tmp_path / "spans.jsonl").write_bytes(holding().as_json_lines())
    assert "IN USE" not in summary(str(tmp_path))
    (tmp_path / "metrics").mkdir()
    samples = [
        line((names.GPU_UTILIZATION, "GPU:0", at, 0.9), (names.CPU_UTILIZATION, "", at, 0.5))
        for at in range(0, 2_000, 100)
    ]
    (tmp_path / "metrics" / "a-0001.jsonl").write_bytes(b"".join(samples))
    assert "IN USE" in summary(str(tmp_path))
    assert "90 %" in summary(str(tmp_path))
    (accelerator,) = json.loads(CliRunner().invoke(main, ["summary", str(tmp_path), "--json"]).stdout)["accelerators"]
    assert accelerator["used"] == pytest.approx(0.9)


def test_lanes_of_nodes_average_what_is_more_than_they_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_MOST_PIECES", 10)
    monkeypatch.setattr(nodes, "_LEAST_PIECES", 10)
    analysis = Analysis(holding().table(), None, sampled([0.0, 0.5] * 10) | sampled([1.0], node="another cluster"))
    drawn = whole(analysis)
    (lane,) = nodes.utilization(analysis.utilization, drawn.places, START, START + 2_000 * MS)["utilization"]
    assert (lane["label"], lane["mean"], lane["most"]) == ("GPU:0", 0.25, 0.5)
    assert lane["values"] == [250] * 10
    assert list(zip(lane["begins"], lane["ends"], strict=True)) == [(at, at + 200) for at in range(0, 2_000, 200)]


@pytest.mark.parametrize("key", ["ray.node.id", "ray.node_id", "ray.*", names.RAY_ACCELERATOR_IDS])
def test_samples_are_of_the_accelerators_of_a_table_whatever_it_hides(key: str) -> None:
    table = holding().table()
    Redaction(redact=[key]).apply(table)
    samples = sampled([0.1] * 20) | {Key("n1", 1, "GPU:0 memory"): Series()}
    analysis = Analysis(table, None, samples)
    assert [finding.kind for finding in find(analysis)] == ["idle-accelerator"]
    lanes = nodes.utilization(analysis.utilization, whole(analysis).places, START, START + 2_000 * MS)
    assert len(lanes["utilization"]) == 1
    shown = str((analysis.utilization.keys(), lanes))
    assert ("GPU:0" in shown) == (key not in ("ray.*", names.RAY_ACCELERATOR_IDS))
