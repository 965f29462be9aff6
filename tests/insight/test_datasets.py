"""Datasets of Ray Data in what the commands show: faults planted in real pipelines, and executions made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hand_made import HandMade
from recordings import document, recorded, shown

from ray_tracing_hooks import names
from ray_tracing_hooks._cli.screen import Row
from ray_tracing_hooks._cli.summary.datasets import lines
from ray_tracing_hooks._cli.summary.generations import of_operators
from ray_tracing_hooks._insight.analysis import limits
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import DATASET, RUN, SCHEDULING
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.generated import percentile_of
from ray_tracing_hooks._insight.analysis.pipelines import Cause, Pipeline

S = 1000
"""Milliseconds, which the times of runs made by hand are in."""


# --- real pipelines -----------------------------------------------------------------------------------------------


def test_objects_that_do_not_fit_are_a_finding() -> None:
    """What is written to disk is held back by memory as well."""
    found = document("data_spill")["findings"]
    assert {each["kind"] for each in found} - {"backpressure"} == {"spilling"}
    (finding,) = (each for each in found if each["kind"] == "spilling")
    assert finding["about"] == {"dataset": "dataset"}
    assert finding["evidence"]
    text = " ".join(shown("summary", recorded("data_spill")).split())
    assert finding["text"] in text
    assert "of objects to disk and read 304 MiB back during dataset (materialize)" in text
    assert "without materialize()" in text


def test_the_path_goes_through_the_tasks_of_the_operator_that_all_wait_for() -> None:
    """The driver waits in Ray Data, whose waits make no spans: it does not run its own code meanwhile."""
    found = document("data_bottleneck")
    on_path = {each["function"]: each["ns"] for each in found["critical_path"]["functions"]}
    (embedder,) = (each for each in found["functions"] if each["function"] == "MapBatches(Embedder)")
    assert on_path["MapBatches(Embedder)"] > 0.8 * embedder["self_ns"]
    assert on_path["planted_data.py"] < 0.05 * found["run"]["wall_ns"]
    assert (found["mode"], found["critical_path"]["is_exact"]) == ("inferred", False)


def test_each_execution_has_a_table_of_its_operators() -> None:
    text = shown("summary", recorded("data_backpressure"))
    heading, (*_, read, classify) = _section(text, "Dataset (iter_batches): finished after ")
    assert "160 rows, 1.25 KiB; limited by memory, which held ReadRange->MapBatches(large) back 73 % of" in heading
    assert read.split()[:5] == ["ReadRange->MapBatches(large)", "40", "160", "640", "MiB"]
    assert read.endswith("9.99 s memory")
    assert classify.split()[:5] == ["MapBatches(classify)", "40", "160", "1.25", "KiB"]
    _, (_, iteration) = _section(text, "Iterations over datasets")
    assert iteration.split()[:4] == ["iter_batches", "1", "40", "160"]
    assert "> 99 %" in iteration


def _section(text: str, begins: str) -> tuple[str, list[str]]:
    """The heading of a section of the summary as one line, and its table with the titles."""
    (section,) = (each for each in text.split("\n\n") if each.startswith(begins))
    lines = section.splitlines()
    table = next(place for place, line in enumerate(lines) if line.startswith((" OPERATOR", " METHOD")))
    return " ".join(" ".join(lines[:table]).split()), lines[table:]


def test_the_document_has_what_the_summary_shows() -> None:
    (execution,) = document("data_bottleneck")["datasets"]["executions"]
    read, embedder = execution["operators"]
    assert execution["limited_by"] == {
        "kind": "operator",
        "operator": embedder["id"],
        "share": pytest.approx(0.957, abs=0.001),
    }
    assert (execution["consumer"], execution["outcome"], execution["rows"]) == ("iter_batches", "finished", 3000)
    assert embedder["inputs"] == [read["id"]]
    assert [each["tasks"] for each in (read, embedder)] == [30, 30]
    assert (embedder["slots"], embedder["actors"], embedder["type"]) == (1, 1, "ActorPoolMapOperator")
    assert read["timeline"]["rows"][-1] <= 3000
    assert {len(each) for each in read["timeline"].values()} == {len(read["timeline"]["ns"])}
    assert read["held_back"][0]["policy"] == "ResourceBudget"
    (iteration,) = document("data_bottleneck")["datasets"]["iterations"]
    assert (iteration["batches"], iteration["rows"]) == (30, 3000)
    assert iteration["waiting_share"] > 0.99


def test_the_tree_folds_the_tasks_of_an_operator() -> None:
    text = shown("tree", recorded("data_bottleneck"))
    (line,) = (line for line in text.splitlines() if "MapBatches(Embedder) x30" in line)
    assert "3,000  23.4 KiB" in line
    assert line.split("..")[1].split()[2:4] == ["9.18", "s"]  # the total
    assert line.startswith("      │  └─ ")


# --- executions made by hand --------------------------------------------------------------------------------------


class Made:
    """A driver with one execution of a dataset, to which operators are added."""

    def __init__(self, seconds: float = 10, parts: str = "actor,data,get,task,wait", **limit: float) -> None:
        self.run = HandMade()
        self.run.parts = parts
        self.driver = self.run.driver(0, seconds * S)
        self.parent = self.driver
        self.seconds = seconds
        self.limits = {"CPU": 4.0, **limit}
        self.dataset = ""

    def iteration(self, waited: float, used: float, **told: Any) -> None:
        """The execution is for an iteration with these times, in seconds."""
        attributes = {names.RAY_DATA_WAIT_TIME: waited, names.RAY_DATA_USER_TIME: used, **told}
        name = f"iter_batches {names.DATA_ITERATION}"
        self.parent = self.run.span(name, 0, self.seconds * S, self.driver, attributes=attributes)

    def execution(self, *, end: float | None = None, is_running: bool = False, **told: Any) -> None:
        own = {names.RAY_DATA_OUTCOME: "finished", names.RAY_DATA_LIMITS: json.dumps(self.limits)}
        self.dataset = self.run.span(
            f"numbers {names.DATASET}",
            0,
            None if is_running else (self.seconds if end is None else end) * S,
            self.parent,
            attributes={**({} if is_running else own), names.RAY_DATA_CONSUMER: "materialize", **told},
            state="running" if is_running else "ended",
        )

    def operator(self, name: str, tasks: list[tuple[float, float]], *, actor: Any = "", **told: Any) -> str:
        """An operator with tasks at these times, in seconds; those of an actor are submitted a little earlier."""
        if not self.dataset:
            self.execution()
        attributes = {
            names.RAY_DATA_OPERATOR: name,
            names.RAY_DATA_OPERATOR_ID: f"{name}_1",
            names.RAY_DATA_TASKS: len(tasks),
            names.RAY_DATA_TASK_RESOURCES: '{"CPU": 1}',
            **told,
        }
        name_of_span = f"{name} {names.DATA_OPERATOR}"
        row = self.run.span(name_of_span, 0, self.seconds * S, self.dataset, attributes=attributes)
        for number, (start, end) in enumerate(tasks):
            where = {"worker": "w0", "actor": actor} if actor else {"worker": f"w{number % 4}"}
            self.run.task(row, name, max(0.0, start - (0.3 if actor else 0.0)) * S, start * S, end * S, **where)
        return row

    @property
    def analysis(self) -> Analysis:
        return Analysis(self.run.table())

    @property
    def pipeline(self) -> Pipeline:
        (found,) = self.analysis.pipelines.executions
        return found

    def findings(self) -> list[Finding]:
        return find(self.analysis)

    def text(self) -> str:
        shown = lines(self.analysis.pipelines)
        return "\n".join(line if isinstance(line, str) else line.text(110) for line in shown)


def in_turn(number: int, seconds: float, at_once: int = 1) -> list[tuple[float, float]]:
    """Times of tasks that keep some slots busy from the start on."""
    return [(seconds * (each // at_once), seconds * (each // at_once + 1)) for each in range(number)]


@pytest.mark.parametrize(
    ("slots", "others"),
    [
        (4, 1),  # it has all of the processors
        (2, 2),  # another one needs as long
    ],
)
def test_an_operator_that_no_higher_limit_would_help_is_not_the_limit(slots: int, others: int) -> None:
    made = Made()
    made.operator("Infer", in_turn(10 * slots, 1.0, at_once=slots), **{names.RAY_DATA_MAX_CONCURRENCY: slots})
    made.operator("Write", in_turn(10 * others, 1.0, at_once=others), **{names.RAY_DATA_MAX_CONCURRENCY: others})
    assert limits.saturated(made.pipeline) is None
    assert not [each for each in made.findings() if each.kind == "bottleneck-operator"]


@pytest.mark.parametrize(
    ("pool", "slots", "is_named"), [("Task", None, True), ("Task", 2, False), ("Task", 16, True), ("Actor", 8, False)]
)
def test_few_tasks_are_too_few_unless_their_number_is_limited(pool: str, slots: int | None, is_named: bool) -> None:
    """Four tasks run on sixteen processors. How many blocks each of them takes is not known."""
    made = Made(CPU=16.0)
    told = {names.RAY_DATA_OPERATOR_TYPE: f"{pool}PoolMapOperator", names.RAY_DATA_ROWS: 6_400}
    at_once = slots if slots == 2 else 4
    made.operator(
        "Infer", in_turn(4, 4.0, at_once), **told, **({names.RAY_DATA_MAX_CONCURRENCY: slots} if slots else {})
    )
    found = [each for each in made.findings() if each.kind == "few-blocks"]
    assert bool(found) == is_named
    if is_named:
        assert found[0].title == "Infer runs in 4 tasks"
        assert found[0].share == pytest.approx(0.4 * 12 / 16)
        assert (
            found[0].text == "operator Infer of numbers ran 6,400 rows in 4 tasks: for 4.00 s it could use 4 of 16 CPUs"
        )
        assert "smaller batch_size" in found[0].advice


@pytest.mark.parametrize(("production", "is_told"), [(0.09, False), (5.0, True)])
def test_what_an_iteration_waited_for_most_is_told_if_it_is_most(production: float, is_told: bool) -> None:
    """Ray's timers of stages leave out the wait for the first batch."""
    made = Made()
    made.iteration(8.0, 0.1, **{names.RAY_DATA_WAIT_TIME_PRODUCTION: production})
    made.operator("Read", in_turn(10, 0.1))
    assert ("production 5.00 s" in made.text()) == is_told
    assert ("production" in made.text()) == is_told


def test_totals_of_ray_data_count_where_tasks_have_no_spans() -> None:
    """As with a rate limit or sampling: the times of all tasks are those that Ray Data measures."""
    made = Made()
    told = {names.RAY_DATA_TASKS: 1000, names.RAY_DATA_TASK_TIME: 9.5, names.RAY_DATA_MAX_CONCURRENCY: 1}
    made.operator("Infer", in_turn(3, 0.01), **told)
    (operator,) = made.pipeline.operators
    assert (operator.tasks, len(operator.executions), operator.busy) == (1000, 3, 9_500_000_000)
    assert limits.slot_share(operator) == pytest.approx(0.95)
    assert "bottleneck-operator" in {each.kind for each in made.findings()}


def test_a_consumer_that_does_something_else_is_the_limit() -> None:
    made = Made()
    made.iteration(2.0, 8.0)
    made.operator("Map", in_turn(10, 0.2))
    limit = limits.limit_of(made.pipeline)
    assert limit is not None
    assert (limit.kind, limit.share) == (limits.CONSUMER, 0.8)
    assert "limited by its consumer, which did something else for 80 % of the time" in made.text()
    (finding,) = made.findings()
    assert (finding.kind, finding.share) == ("driver-code", 0.8)
    assert "8.00 s between the batches of its datasets, and waited 2.00 s for these batches" in finding.text


def test_an_operator_is_no_limit_where_its_consumer_takes_as_long() -> None:
    """Its tasks run all the time, since they wait until their output is read."""
    made = Made()
    made.iteration(2.0, 8.0)
    made.operator("Map", in_turn(20, 0.4), **{names.RAY_DATA_MAX_CONCURRENCY: 1})
    limit = limits.limit_of(made.pipeline)
    assert limit is not None
    assert limit.kind == limits.CONSUMER
    assert [each.kind for each in made.findings()] == ["driver-code"]


@pytest.mark.parametrize(
    ("making", "held", "limiting"), [(0.5, 9.0, "Write"), (9.5, 9.0, "Expand"), (0.5, 0.1, "Expand")]
)
def test_a_task_that_waits_until_its_output_is_read_is_not_busy(making: float, held: float, limiting: str) -> None:
    """Then the operator that reads it is the limit."""
    made = Made()
    told = held_back(held, "output", "DownstreamCapacity", "downstream operators")
    told |= {names.RAY_DATA_BLOCK_TIME: making, names.RAY_DATA_MAX_CONCURRENCY: 1}
    made.operator("Expand", in_turn(10, 1.0), **told)
    made.operator("Write", in_turn(10, 0.9), **{names.RAY_DATA_MAX_CONCURRENCY: 1})
    limit = limits.limit_of(made.pipeline)
    assert limit is not None
    assert (limit.kind, limit.operator and limit.operator.name) == (limits.OPERATOR, limiting)


@pytest.mark.parametrize(("held", "kinds"), [(6.0, ["bottleneck-operator"]), (3.0, [])])
def test_an_operator_that_its_limit_holds_back_is_the_limit(held: float, kinds: list[str]) -> None:
    """Although Ray Data refills its slots late, so that they are busy for six tenths of the time only."""
    made = Made()
    told = held_back(held, "submission", "ConcurrencyCap", "concurrency limit")
    told |= {names.RAY_DATA_MAX_CONCURRENCY: 1}
    made.operator("Infer", [(number, number + 0.6) for number in range(10)], **told)
    assert [each.kind for each in made.findings()] == kinds


def test_tasks_of_ray_data_are_not_calls_of_a_loop() -> None:
    made = Made(parts="actor,data,task")
    made.operator("Map", in_turn(20, 0.5))
    assert made.findings() == []


def test_an_actor_of_an_operator_that_does_not_limit_its_dataset_is_no_bottleneck() -> None:
    """It may only wait until its output is read."""
    made = Made()
    told = held_back(9.0, "output", "DownstreamCapacity", "downstream operators")
    told |= {names.RAY_DATA_BLOCK_TIME: 0.5, names.RAY_DATA_MAX_CONCURRENCY: 1, names.RAY_DATA_ACTORS: 1}
    made.operator("Expand", in_turn(20, 0.5), actor=made.run.actor(), **told)
    made.operator("Write", in_turn(5, 0.5))
    assert made.findings() == []


def test_processors_are_the_limit_where_all_are_held() -> None:
    made = Made()
    timeline = {
        names.RAY_DATA_TIMELINE_SECONDS: [2.0, 4.0],
        names.RAY_DATA_TIMELINE_RUNNING_TASKS: [4, 3],
        names.RAY_DATA_TIMELINE_QUEUED_BLOCKS: [7, 2],
        names.RAY_DATA_TIMELINE_QUEUED_BYTES: [70, 20],
        names.RAY_DATA_TIMELINE_ROWS: [1, 2],
    }
    made.operator("Map", in_turn(10, 1.0), **timeline)
    assert limits.processor_share(made.pipeline) == pytest.approx(3.5 / 4)
    assert "limited by the processors: its tasks held 88 % of them, but ran on only 25 %" in made.text()
    (operator,) = made.pipeline.operators
    assert (operator.longest_queue, operator.queued) == (7, 4.5)


def test_processors_on_which_tasks_run_are_held_by_them() -> None:
    made = Made()
    made.operator("Map", in_turn(36, 1.0, at_once=4))
    assert made.text().splitlines()[1].endswith("limited by the processors: its tasks held 90 % of them")


@pytest.mark.parametrize(
    ("consumer", "waited", "tasks", "is_named"),
    [
        ("streaming_split", 9.0, 10, True),
        ("streaming_split", 3.0, 10, False),
        ("streaming_split", 9.0, 5, False),
        ("materialize", 9.0, 10, False),
    ],
    ids=["waits", "computes", "processors are free", "no split"],
)
def test_ranks_that_wait_while_their_dataset_uses_all_it_may_are_named(
    consumer: str, waited: float, tasks: int, *, is_named: bool
) -> None:
    made = Made(CPU=1.0)
    split: dict[str, Any] = {names.RAY_DATA_SPLIT: 0, names.RAY_DATA_WAIT_TIME_PRODUCTION: waited - 0.5}
    made.iteration(waited, 10 - waited, **split)
    told: dict[str, Any] = {names.RAY_DATA_CONSUMER: consumer}
    made.execution(**told)
    made.operator("Map", in_turn(tasks, 1.0))
    found = [each for each in made.findings() if each.kind == "starved-splits"]
    assert bool(found) == is_named
    if is_named:
        assert found[0].text.endswith("% of the 1 CPU that it could use")
        assert found[0].share == pytest.approx(0.9, abs=0.02)


def held_back(seconds: float, *cause: str) -> dict[str, Any]:
    return {
        names.RAY_DATA_BACKPRESSURE_BY: [", ".join(cause)],
        names.RAY_DATA_BACKPRESSURE_BY_TIME: [seconds],
    }


@pytest.mark.parametrize(
    ("cause", "seconds", "kinds"),
    [
        (("submission", "ResourceBudget", "object store memory"), 6.0, ["backpressure"]),
        (("submission", "ResourceBudget", "CPU and object store memory"), 6.0, ["backpressure"]),
        (("submission", "ResourceBudget", "memory"), 6.0, ["backpressure"]),
        (("submission", "ResourceBudget", "object store memory"), 1.0, []),
        (("submission", "ResourceBudget", "CPU"), 6.0, []),
        (("submission", "ConcurrencyCap", "concurrency limit"), 6.0, []),
        (("output", "ResourceBudget", "object store memory"), 6.0, []),
    ],
)
def test_memory_that_holds_an_operator_back_is_a_finding(cause: tuple[str, ...], seconds: float, kinds: Any) -> None:
    made = Made(memory=1 << 30, object_store_memory=100 << 20)
    made.operator("Read", in_turn(10, 1.0), **held_back(seconds, *cause))
    assert [each.kind for each in made.findings()] == kinds
    (operator,) = made.pipeline.operators
    assert operator.held_back == {Cause(*cause): seconds * 1e9}


def test_memory_is_not_the_limit_where_an_operator_behind_it_is() -> None:
    """What waits for the slow operator fills the memory: the operator is the cause."""
    made = Made(object_store_memory=100 << 20)
    made.operator("Read", in_turn(10, 0.1), **held_back(6.0, "submission", "ResourceBudget", "object store memory"))
    made.operator("Infer", in_turn(10, 1.0), **{names.RAY_DATA_MAX_CONCURRENCY: 1})
    assert [each.kind for each in made.findings()] == ["bottleneck-operator"]


def test_an_iteration_that_mostly_does_something_else_is_no_wait() -> None:
    """Then the path stays in the code of the driver; otherwise it goes through the last task that ended."""
    for waited, used, on_path in ((1.0, 9.0, {RUN: 10 * S}), (9.0, 1.0, {DATASET: 2 * S, RUN: 8 * S})):
        made = Made()
        made.iteration(waited, used)
        made.operator("Map", in_turn(4, 2.0))
        path = made.analysis.path
        assert {kind: time // 1_000_000 for kind, time in path.kinds.items() if time} == on_path
        assert path.is_exact == (waited < used)


def test_a_program_that_is_slow_between_its_batches_did_not_wait_for_the_blocks() -> None:
    """Also where its own waits are not recorded: those for Ray Data are."""
    made = Made(parts="actor,data,task")
    made.iteration(1.0, 9.0)
    made.operator("Map", in_turn(20, 0.4))
    assert {(step.kind, step.row) for step in made.analysis.path.steps} == {(RUN, 0)}


def test_what_a_caller_does_after_a_dataset_is_its_own_code() -> None:
    made = Made(seconds=20)
    made.execution(end=10)
    row = made.run.span(f"Map {names.DATA_OPERATOR}", 0, 10 * S, made.dataset)
    made.run.task(row, "Map", 1 * S, 3 * S, 8 * S)
    kinds = {kind: time // 1_000_000 for kind, time in made.analysis.path.kinds.items() if time}
    # Planned for one second, scheduled for two, ran for five, and the blocks were handed on for two.
    assert kinds == {RUN: 5 * S + 10 * S, SCHEDULING: 2 * S, DATASET: 3 * S}


def test_what_a_task_waits_for_ray_data_is_not_its_self_time() -> None:
    run, driver = HandMade.driven(100, parts="actor,data,get,task,wait")
    call = run.submit(driver, "train", 0)
    task = run.run(call, 0, 100)
    run.span(f"dataset {names.DATASET}", 10, 60, task, worker="w1")
    run.get(driver, [call], 0, 100)
    (function,) = Analysis(run.table()).functions
    assert function.self_time == 50 * 1_000_000


def test_an_execution_that_runs_or_hangs_is_shown_with_what_is_known() -> None:
    made = Made()
    made.execution(is_running=True)
    row = made.run.span(f"Map {names.DATA_OPERATOR}", 0, None, made.dataset, state="running")
    made.run.task(row, "Map", 0, 0, 4 * S)
    assert made.pipeline.is_running
    assert "Dataset numbers (materialize): running for 10.0 s\n" in made.text()
    assert "OPERATOR" in made.text()
    assert [each.kind for each in made.findings() if each.is_failure] == []


def test_tasks_of_different_sizes_are_named_by_their_rows() -> None:
    """A task with many more rows in its input than the others is skewed; one that is only slow is a straggler."""
    for many, kind in ((5000, "skewed-blocks"), (100, "straggler")):
        made = Made()
        read = made.operator("Read", [])
        calls = []
        for number in range(10):
            rows = {names.RAY_DATA_ROWS: many if number == 9 else 100, names.RAY_DATA_BLOCKS: 1}
            calls.append(made.run.task(read, "Read", 0, 0, 100, worker="w1", attributes=rows))
        row = made.operator("Count", [])
        for number, call in enumerate(calls):
            end = 9 * S if number == 9 else 600
            arguments = [call.object()]
            made.run.task(row, "Count", 200, 200, end, worker=f"w{number}", arguments=arguments)
        assert [each.kind for each in made.findings()] == [kind]


def test_ray_data_decides_when_tasks_are_submitted() -> None:
    """A driver whose iteration is slow does not "prepare each call": its pipeline is held back."""
    made = Made()
    made.iteration(1.0, 9.0)
    made.operator("Map", [(number, number + 0.1) for number in range(10)])
    assert [each.kind for each in made.findings()] == ["driver-code"]


@pytest.mark.parametrize("damage", ['{"CPU": "many"}', "[1]", "{", '{"CPU": 0}'])
def test_damaged_attributes_are_left_out(damage: str) -> None:
    made = Made()
    described: dict[str, Any] = {names.RAY_DATA_LIMITS: damage, names.RAY_DATA_ROWS: "many"}
    made.execution(**described)
    told = {
        names.RAY_DATA_TASK_RESOURCES: damage,
        names.RAY_DATA_BACKPRESSURE_BY: "x",
        names.RAY_DATA_TIMELINE_SECONDS: 3,
    }
    made.operator("Map", in_turn(3, 0.5), **{**told, names.RAY_DATA_MAX_CONCURRENCY: "1"})
    assert made.pipeline.rows is None
    assert limits.processor_share(made.pipeline) is None
    assert made.findings() == []
    assert "Map" in made.text()


def test_stages_of_an_operator_are_not_compared_with_each_other() -> None:
    """A few long tasks that reduce are no stragglers among the many short ones that map."""
    made = Made()
    row = made.operator("Sort", [])
    for number in range(40):
        stage, took = ("reduce", 2 * S) if number >= 36 else ("map", 100)
        attributes = {names.RAY_DATA_STAGE: stage}
        made.run.task(row, "Sort", 0, 1, 1 + took, worker=f"w{number}", attributes=attributes)
    assert made.findings() == []


# --- what Ray Data stops ------------------------------------------------------------------------------------------


FAILED: dict[str, Any] = {names.RAY_DATA_OUTCOME: "failed"}


def ended(made: Made, operator: str, error: str, **more: Any) -> str:
    """A task of an operator that something ended; returns its execution."""
    return made.run.run(made.run.submit(operator, "Map", 9 * S), 9.1 * S, 9.9 * S, error=error, worker="w5", **more)


def failures(made: Made) -> dict[str, int]:
    """The findings of failures, with the number of executions of each."""
    return {each.kind: len(each.rows) for each in made.findings() if each.is_failure}


@pytest.mark.parametrize("outcome", ["stopped", "finished", "abandoned"])
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (names.TASK_CANCELLED, "ended"),
        (names.TASK_CANCELLED, "lost"),  # by force
        (names.WORKER_DIED, "lost"),  # with its actor, or where logs do not say why
        ("RuntimeError", "ended"),  # of what the interrupted function does then
    ],
)
def test_tasks_that_ray_data_stops_have_not_failed(error: str, state: Any, outcome: str) -> None:
    """After ``take``, at a limit, or where the program leaves its loop. The calls of such tasks are cancelled too."""
    made = Made()
    told: dict[str, Any] = {names.RAY_DATA_OUTCOME: outcome}
    made.execution(**told)
    operator = made.operator("Map", in_turn(4, 1.0))
    task = ended(made, operator, error, state=state)
    inner = made.run.submit(task, "helper", 9.2 * S, worker="w5")
    made.run.run(inner, 9.3 * S, 9.8 * S, error=names.TASK_CANCELLED, worker="w6")
    assert made.findings() == []
    assert {each.name: each.failed for each in made.analysis.functions} == {"Map": 0, "helper": 0}


def test_a_task_whose_worker_died_before_is_a_failure_although_its_dataset_finished() -> None:
    made = Made()
    operator = made.operator("Map", in_turn(4, 1.0))
    call = made.run.submit(operator, "Map", 5 * S)
    made.run.run(call, 5.1 * S, 6 * S, error=names.WORKER_DIED, state="lost", worker="w5")
    made.run.run(call, 7 * S, 8 * S, worker="w6", attributes={names.RAY_ATTEMPT: 1})
    assert failures(made) == {"killed-workers": 1}


def test_of_a_dataset_that_failed_only_what_failed_is_a_failure() -> None:
    made = Made()
    made.execution(**FAILED)
    operator = made.operator("Map", in_turn(4, 1.0), **{names.RAY_DATA_TASKS_FAILED: 1})
    ended(made, operator, "ValueError")
    ended(made, operator, names.TASK_CANCELLED)
    assert failures(made) == {"errors": 1}


@pytest.mark.parametrize(
    ("told", "error", "found"),
    [
        # The function of the program raised it.
        (FAILED, names.TASK_CANCELLED, {"errors": 1}),
        # With errored blocks allowed.
        ({names.RAY_DATA_OUTCOME: "finished"}, "ValueError", {"errors": 1}),
    ],
)
def test_tasks_that_failed_for_ray_data_are_failures(told: Any, error: str, found: dict[str, int]) -> None:
    made = Made()
    made.execution(**told)
    operator = made.operator("Map", in_turn(4, 1.0), **{names.RAY_DATA_TASKS_FAILED: 1})
    ended(made, operator, error)
    assert failures(made) == found


def test_a_dataset_whose_actors_do_not_start_has_failures() -> None:
    """Ray Data does not count their constructors among the tasks that failed."""
    made = Made()
    made.execution(**FAILED)
    operator = made.operator("Map", [])
    creation = made.run.submit(operator, "MapWorker(Map).__init__", 1 * S)
    made.run.run(creation, 2 * S, 3 * S, error=names.WORKER_DIED, state="lost")
    assert failures(made) == {"killed-workers": 1}


def test_tasks_of_a_dataset_whose_driver_died_are_failures() -> None:
    made = Made()
    made.execution(is_running=True)
    ended(made, made.operator("Map", in_turn(4, 1.0)), names.WORKER_DIED, state="lost")
    assert "killed-workers" in failures(made)


def test_an_operator_with_generations_has_the_sums_of_all() -> None:
    """As its tasks counted them, whether or not they are spans. What is damaged in it is left out."""
    made = Made()
    row = made.operator("MapBatches(vLLM)", [])
    for number, told in enumerate((TOTALS, TOTALS, {**TOTALS, names.RAY_LLM_QUEUE_BUCKETS: [3]})):
        made.run.task(row, "MapBatches(vLLM)", number * S, number * S, (number + 1) * S, attributes=told)
    assert made.analysis.generating_operators == []
    of_engine = {
        names.GEN_AI_OPERATION: "text_completion",
        names.GEN_AI_PROVIDER: "vllm",
        names.GEN_AI_REQUEST_MODEL: "tiny",
    }
    made.run.span("text_completion tiny", S, 2 * S, row, attributes=of_engine)
    (found,) = made.analysis.generating_operators
    assert (found.count, found.input, found.output, found.cached) == (300, 2100, 900, 0)
    assert found.per_second == 300
    assert percentile_of(found.first, 0.5) == pytest.approx(0.1e9, rel=0.05)
    assert percentile_of(found.first, 0.99) == pytest.approx(2e9, rel=0.05)
    assert percentile_of(found.queue, 0.95) == pytest.approx(1e6, rel=0.05)
    titles, line = (each.text(110).split() for each in of_operators([found]) if isinstance(each, Row))
    assert titles[:6] == ["OPERATOR", "COUNT", "IN", "OUT", "CACHED", "OUT/S"]
    assert line[:6] == ["MapBatches(vLLM)", "300", "2,100", "900", "0", "300"]


TOTALS = {
    names.RAY_LLM_GENERATIONS: 100,
    names.RAY_LLM_TOTAL_INPUT: 700,
    names.RAY_LLM_TOTAL_OUTPUT: 300,
    names.RAY_LLM_TOTAL_CACHED: 0,
    names.RAY_LLM_FIRST_BUCKETS: [132, 90, 167, 10],
    names.RAY_LLM_QUEUE_BUCKETS: [79, 100],
}
