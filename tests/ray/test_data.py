"""Ray Data: what a pipeline looks like in the trace, on a real cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from conformance import check
from conftest import Cluster, traced
from support import CONSUMER, PRODUCER, Run, await_spans, by_name, check_links, run_program, tree, with_data

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.model.span import Span, error_text
from ray_tracing_hooks._insight.model.table import Table

PROGRAM = "conform_data"
KNOWS_2_60 = tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 60)
"""Other versions of Ray plan the same pipelines in another way."""

TREES = {
    "rows_one_by_one": """
        dataset ray.data
          {0} ray.data.operator
            {0} call x2
        take_all ray.data.iteration
        """.format("ReadRange->Map(plus_one)->Filter(<lambda>)->FlatMap(<lambda>)"),
    "batches_in_tasks": """
        dataset ray.data
          MapBatches(double) ray.data.operator
            MapBatches(double) call x2
              user double
          ReadRange->MapBatches(double) ray.data.operator
            ReadRange->MapBatches(double) call x2
              user double
        take_all ray.data.iteration
        """,
    "batches_in_actors": """
        dataset ray.data
          {0} ray.data.operator
            MapWorker({0}).__init__ call
              user Add.__init__
            {0} call x2
              user Add
              user double
        take_all ray.data.iteration
        """.format("ReadRange->MapBatches(double)->MapBatches(Add)"),
    "async_functions": """
        dataset ray.data
          {0} ray.data.operator
            MapWorker({0}).__init__ call
            {0} call x2
              user AddLater
        take_all ray.data.iteration
        """.format("ReadRange->MapBatches(AddLater)"),
    "groups": """
        dataset ray.data
          {0} ray.data.operator
            {0} call
          {1} ray.data.operator
            {1} call x2
          ReadRange->MapBatches(<lambda>) ray.data.operator
            ReadRange->MapBatches(<lambda>) call x2
        take_all ray.data.iteration
        """.format(*(f"HashAggregate{step}(key_columns=('k',), num_partitions=2)" for step in ("Map", "Reduce"))),
    "sorting": """
        dataset ray.data
          ReadRange ray.data.operator
            ReadRange call x2
          SortSample(partitions=2) ray.data.operator
            SortSample(partitions=2) call x2
          SortShuffleMap(partitions=2) ray.data.operator
            SortShuffleMap(partitions=2) call
          SortShuffleReduce(partitions=2) ray.data.operator
            SortShuffleReduce(partitions=2) call x2
        take_all ray.data.iteration
        """,
    "shuffling": """
        dataset ray.data
          {0} ray.data.operator
            {0} call x2
            {0} call x2
              user double
        take_all ray.data.iteration
        """.format("ReadRange->MapBatches(double)->RandomShuffle"),
    "joining": """
        dataset ray.data
          {0} ray.data.operator
            {0} call
          {1} ray.data.operator
            {1} call
          JoinShuffleReduce(num_partitions=2) ray.data.operator
            JoinShuffleReduce(num_partitions=2) call x2
          ReadRange->MapBatches(<lambda>) ray.data.operator x2
            ReadRange->MapBatches(<lambda>) call x2
        take_all ray.data.iteration
        """.format(*(f"JoinShuffleMap{side}(keys=('id',), parts=2)" for side in ("Left", "Right"))),
    "union_and_zip": """
        dataset ray.data
          ReadRange ray.data.operator
            ReadRange call x2
          ReadRange->MapBatches(<lambda>) ray.data.operator
            ReadRange->MapBatches(<lambda>) call x2
          {0} ray.data.operator
            {0} call x2
        dataset ray.data
          ReadRange ray.data.operator x2
            ReadRange call x2
          UnionOperator(ReadRange, ReadRange) ray.data.operator
        take_all ray.data.iteration x2
        """.format("ZipOperator(ReadRange, MapBatches(<lambda>))"),
    "files": """
        dataset ray.data
          ListFiles ray.data.operator
            ListFiles call
          ReadFilesParquetV2->MapBatches(double) ray.data.operator
            ReadFilesParquetV2->MapBatches(double) call
              user double
        dataset ray.data
          ReadRange->MapBatches(double)->Write ray.data.operator
            ReadRange->MapBatches(double)->Write call x2
              user double
        take_all ray.data.iteration
        """,
    "batches_for_the_program": """
        iter_batches ray.data.iteration
          dataset ray.data
            ReadRange->MapBatches(double) ray.data.operator
              ReadRange->MapBatches(double) call x2
                user double
        user body x3
        """,
    "batches_with_a_collate_function": """
        iterate ray.data.iteration
          dataset ray.data
            ReadRange ray.data.operator
              ReadRange call x2
          user collate x2
        """,
    "two_at_once": """
        user first
          dataset ray.data
            ReadRange->MapBatches(double) ray.data.operator
              ReadRange->MapBatches(double) call x2
                user double
        user second
          dataset ray.data
            ReadRange->MapBatches(<lambda>) ray.data.operator
              ReadRange->MapBatches(<lambda>) call x2
        """,
    "a_dataset_with_a_name": """
        iter_batches ray.data.iteration x2
          numbers ray.data
            ReadRange->MapBatches(double) ray.data.operator
              ReadRange->MapBatches(double) call x2
                user double
        """,
    "in_a_task": """
        __main__.inside call
          dataset ray.data
            ReadRange->MapBatches(double) ray.data.operator
              ReadRange->MapBatches(double) call x2
                user double
        """,
    "a_failing_function": """
        dataset ray.data !ValueError
          ReadRange->MapBatches(failing) ray.data.operator !ValueError
            ReadRange->MapBatches(failing) call !ValueError
        """,
    "an_actor_that_does_not_start": """
        dataset ray.data !ray.exceptions.ActorDiedError
          {0} ray.data.operator
            MapWorker({0}).__init__ call !ValueError
        """.format("ReadRange->MapBatches(FailsToStart)"),
    "callbacks_of_the_program": """
        dataset ray.data
          ReadRange ray.data.operator
            ReadRange call x2
        dataset ray.data !RuntimeError
        """,
}
"""What is below the span of each pipeline, as :func:`support.tree` shows it; other pipelines do not do the same each
time."""


@pytest.fixture(scope="module")
def cluster(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """A cluster on which Ray Data can run."""
    with traced(short_tmp(), with_data()) as found:
        yield found


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Run:
    """All pipelines, one after the other."""
    return cluster.run(PROGRAM)


class Below:
    """The spans below one of the user's."""

    def __init__(self, spans: list[Span], pipeline: str) -> None:
        (self.root,) = by_name(spans, f"user {pipeline}")
        children: dict[str, list[Span]] = {}
        for each in spans:
            children.setdefault(each.parent_id, []).append(each)
        self.spans: list[Span] = []
        left = [self.root]
        while left:
            found = children.get(left.pop().span_id, [])
            self.spans += found
            left += found

    def ending(self, suffix: str) -> list[Span]:
        """Those whose names end with it, by the time at which they began."""
        return sorted((each for each in self.spans if each.name.endswith(f" {suffix}")), key=lambda each: each.start_ns)

    @property
    def executions(self) -> list[Span]:
        return self.ending(names.DATASET)

    @property
    def operators(self) -> list[Span]:
        return self.ending(names.DATA_OPERATOR)

    @property
    def iterations(self) -> list[Span]:
        return self.ending(names.DATA_ITERATION)

    def tasks_of(self, operator: Span, suffix: str = "ray.remote_worker") -> list[Span]:
        """The spans of the tasks of an operator."""
        calls = {each.span_id: each for each in self.spans if each.parent_id == operator.span_id}
        if suffix == "ray.remote":
            return [each for each in calls.values() if "__init__" not in each.name]
        return [each for each in self.spans if each.parent_id in calls and "__init__" not in each.name]


def of_last_execution(below: Below) -> tuple[Span, list[Span]]:
    execution = below.executions[-1]
    return execution, [each for each in below.operators if each.parent_id == execution.span_id]


@pytest.mark.slow  # all of it once more
def test_a_program_does_not_notice_that_it_is_traced(run: Run, cluster: Cluster, short_tmp: Callable[[], Path]) -> None:
    """Rows, ``stats()``, errors, warnings and types are the same."""
    check(PROGRAM, run, cluster, short_tmp())


@pytest.mark.skipif(not KNOWS_2_60, reason="the pipelines are planned in another way")
@pytest.mark.parametrize("pipeline", TREES)
def test_a_pipeline_is_a_tree_of_its_operators_and_their_blocks(pipeline: str, run: Run) -> None:
    below = Below(run.spans, pipeline)
    expected = [line.removeprefix(" " * 6) for line in TREES[pipeline].strip("\n").rstrip().splitlines()]
    assert tree([below.root, *below.spans]).splitlines() == [below.root.name, *expected]


def test_everything_is_one_trace(run: Run) -> None:
    check_links(run.spans)
    assert len({each.trace_id for each in run.spans}) == 1
    of_ray = r"StatsActor|Autoscal|LocationTracker|SplitCoord"
    assert not [each.name for each in run.spans if re.search(of_ray, each.name)]


def test_the_totals_of_operators_are_those_of_stats(run: Run) -> None:
    compared = 0
    for pipeline, outcome in run.result.items():
        for stats in all_stats(outcome["result"]):
            operators = Below(run.spans, pipeline).operators
            keys = names.RAY_DATA_OPERATOR, names.RAY_DATA_ROWS, names.RAY_DATA_BYTES
            totals = {tuple(each.attributes[key] for key in keys) for each in operators}
            for name, rows, size in stats:
                # The steps before the last of an operator have statistics of their input.
                if rows is None or re.search(r"(Map|Split)(\(|$)|_shuffle$", name):
                    continue
                of_operator = re.sub(r"^(.+)\1_finalize$", r"\1", name.removesuffix("Reduce"))
                assert any(
                    operator.endswith((name, of_operator)) and [rows, size] == of_them for operator, *of_them in totals
                ), f"{pipeline}: {name} {rows} {size} is not in {totals}"
                compared += 1
    assert compared > 20


def all_stats(result: Any) -> Iterator[list[Any]]:
    """The statistics in what ``executed`` returned, once or several times."""
    if isinstance(result, list):
        if len(result) == 3 and isinstance(result[1], int) and isinstance(result[2], list):
            yield result[2]
        else:
            for each in result:
                yield from all_stats(each)


def test_the_blocks_add_up_to_their_operator(run: Run) -> None:
    for pipeline in ("batches_in_tasks", "batches_in_actors", "async_functions", "rows_one_by_one", "joining"):
        below = Below(run.spans, pipeline)
        for operator in below.operators:
            tasks = below.tasks_of(operator)
            for key in (names.RAY_DATA_ROWS, names.RAY_DATA_BYTES):
                of_tasks = sum(each.attributes[key] for each in tasks if names.RAY_DATA_STAGE not in each.attributes)
                assert of_tasks == operator.attributes[key], f"{pipeline}: {operator.name} {key}"
            assert operator.attributes[names.RAY_DATA_TASKS] == len(tasks)
            assert {each.attributes[names.RAY_DATA_OPERATOR] for each in tasks} == {
                operator.attributes[names.RAY_DATA_OPERATOR]
            }


def test_both_sides_of_a_block_say_which_it_is(run: Run) -> None:
    below = Below(run.spans, "batches_in_tasks")
    for operator in below.operators:
        for suffix, kind in (("ray.remote", PRODUCER), ("ray.remote_worker", CONSUMER)):
            tasks = below.tasks_of(operator, suffix)
            assert sorted(each.attributes[names.RAY_DATA_TASK_INDEX] for each in tasks) == [0, 1]
            assert {each.kind for each in tasks} == {kind}


def test_operators_are_linked_along_the_edges_of_their_graph(run: Run) -> None:
    below = Below(run.spans, "joining")
    execution, operators = of_last_execution(below)
    by_span = {each.span_id: each.attributes[names.RAY_DATA_OPERATOR_ID] for each in operators}
    edges = {}
    for each in operators:
        linked = sorted(by_span[link.span_id] for link in each.links)
        assert linked == sorted(each.attributes.get(names.RAY_DATA_INPUTS, []))
        edges[each.attributes[names.RAY_DATA_OPERATOR]] = len(linked)
    join = "JoinShuffleReduce(num_partitions=2)" if KNOWS_2_60 else "Join(num_partitions=2)"
    assert edges[join] == 2
    assert edges["ReadRange->MapBatches(<lambda>)"] == 0
    assert join.partition("(")[0] in execution.attributes[names.RAY_DATA_GRAPH]


def test_an_operator_lasts_from_its_first_work_until_it_has_completed(run: Run) -> None:
    below = Below(run.spans, "sorting")
    execution, operators = of_last_execution(below)
    for each in operators:
        tasks = below.tasks_of(each)
        calls = below.tasks_of(each, "ray.remote")
        assert execution.start_ns <= each.start_ns <= min(call.start_ns for call in calls)
        assert max(task.end_ns for task in tasks) <= each.end_ns <= execution.end_ns
    first, *_, last = operators
    assert first.end_ns < last.end_ns


def test_an_execution_says_who_asked_for_it_and_what_came_out(run: Run) -> None:
    for pipeline, consumers in {
        "batches_in_tasks": ["materialize"],
        "files": ["write_parquet", "materialize"],
        "batches_for_the_program": ["iter_batches"],
        "splits_for_two_trainers": ["streaming_split", "streaming_split"],
    }.items():
        executions = Below(run.spans, pipeline).executions
        assert [each.attributes[names.RAY_DATA_CONSUMER] for each in executions] == consumers
        assert {each.attributes[names.RAY_DATA_OUTCOME] for each in executions} == {"finished"}
    (execution,) = Below(run.spans, "batches_in_tasks").executions
    assert execution.attributes[names.RAY_DATA_ROWS] == 40
    assert execution.attributes[names.RAY_DATA_BYTES] == 320
    assert execution.attributes[names.RAY_DATA_BLOCKS] == 2


def test_each_execution_of_a_dataset_has_a_number(run: Run) -> None:
    executions = Below(run.spans, "a_dataset_with_a_name").executions
    assert {each.name for each in executions} == {"numbers ray.data"}
    assert [each.attributes[names.RAY_DATA_RUN] for each in executions] == [0, 1]


def test_what_ended_an_execution(run: Run) -> None:
    outcomes = {
        "a_failing_function": "failed",
        "an_actor_that_does_not_start": "failed",
        "a_consumer_that_stops": "stopped",
        "an_iterator_that_is_closed": "stopped",
        "an_interrupt": "cancelled",
    }
    for pipeline, outcome in outcomes.items():
        (execution,) = Below(run.spans, pipeline).executions
        assert execution.attributes[names.RAY_DATA_OUTCOME] == outcome
        assert execution.failed == (outcome in {"failed", "cancelled"})
    (failed,) = Below(run.spans, "a_failing_function").executions
    assert failed.status_message == "ValueError: no 30, please"
    (interrupted,) = Below(run.spans, "an_interrupt").executions
    assert interrupted.attributes[names.ERROR_TYPE] == names.TASK_CANCELLED


def test_an_iteration_says_what_the_program_waited_for(run: Run) -> None:
    below = Below(run.spans, "batches_for_the_program")
    (iteration,) = below.iterations
    bodies = by_name(below.spans, "user body")
    found = iteration.attributes
    assert found[names.RAY_DATA_BATCHES] == len(bodies) == 3
    assert found[names.RAY_DATA_OUTCOME] == "finished"
    seconds = (iteration.end_ns - iteration.start_ns) / 1e9
    assert 0 < found[names.RAY_DATA_FIRST_BATCH_TIME] <= found[names.RAY_DATA_WAIT_TIME] <= seconds
    assert found[names.RAY_DATA_WAIT_TIME] + found[names.RAY_DATA_USER_TIME] == pytest.approx(seconds, rel=0.2)
    assert found[names.RAY_DATA_USER_TIME] >= sum(each.end_ns - each.start_ns for each in bodies) / 1e9
    (stopped,) = Below(run.spans, "a_consumer_that_stops").iterations
    assert (stopped.attributes[names.RAY_DATA_OUTCOME], stopped.failed) == ("stopped", False)


@pytest.mark.skipif(not KNOWS_2_60, reason="Ray Data does not measure it")
def test_ray_data_says_which_stage_an_iteration_waited_for(run: Run) -> None:
    (iteration,) = Below(run.spans, "batches_for_the_program").iterations
    assert iteration.attributes[names.RAY_DATA_ROWS] == 40
    production = iteration.attributes[names.RAY_DATA_WAIT_TIME_PRODUCTION]
    assert 0 < production <= iteration.attributes[names.RAY_DATA_WAIT_TIME]


def test_an_epoch_is_below_the_iteration_that_asked_for_it(run: Run) -> None:
    """Of several trainers that ask for the same epoch, one begins it."""
    below = Below(run.spans, "splits_for_two_trainers")
    assert len(below.iterations) == 4
    assert sorted(each.attributes[names.RAY_DATA_SPLIT] for each in below.iterations) == [0, 0, 1, 1]
    for number, execution in enumerate(below.executions):
        (iteration,) = [each for each in below.iterations if each.span_id == execution.parent_id]
        assert execution.attributes[names.RAY_DATA_RUN] == number
        if KNOWS_2_60:
            assert iteration.attributes[names.RAY_DATA_EPOCH] == number
    assert len(by_name(below.spans, "user double")) == 8


@pytest.fixture(scope="module")
def many(cluster: Cluster) -> Run:
    """Many blocks, of which few may make spans, and the program's own waits."""
    return cluster.run("data_limited", RAY_TRACING_RATE_LIMIT="*=5", RAY_TRACING_RAY="+get,wait,put")


@pytest.mark.slow  # another cluster
def test_the_spans_of_blocks_follow_a_rate_limit_and_the_totals_do_not(many: Run) -> None:
    below = Below(many.spans, "many blocks")
    (operator,) = below.operators
    blocks = many.result["blocks"]
    assert operator.attributes[names.RAY_DATA_TASKS] == blocks
    assert operator.attributes[names.RAY_DATA_ROWS] == many.result["rows"]
    submissions, tasks = below.tasks_of(operator, "ray.remote"), below.tasks_of(operator)
    assert 5 <= len(submissions) == len(tasks) < blocks
    left_out = sum(each.attributes.get(names.RAY_LEFT_OUT, 0) for each in many.spans)
    reads = by_name(many.spans, f"ReadRange {names.DATA_OPERATOR}")
    submitted = sum(each.attributes[names.RAY_DATA_TASKS] for each in reads)
    assert left_out == submitted - len(by_name(many.spans, "ReadRange ray.remote"))


@pytest.mark.slow  # as the one above
def test_waits_of_ray_data_itself_are_none_of_the_program(many: Run) -> None:
    waits = [each.name for each in many.spans if each.name in {"ray.get", "ray.wait", "ray.put"}]
    assert waits == ["ray.put", "ray.get"]


@pytest.mark.slow  # as the one above
@pytest.mark.skipif(not KNOWS_2_60, reason="Ray's own thread ends the program with an error")
def test_an_execution_that_the_program_leaves_behind_is_abandoned(many: Run) -> None:
    below = Below(many.spans, "left behind")
    for each in (*below.iterations, *below.executions):
        assert each.attributes[names.RAY_DATA_OUTCOME] == "abandoned"
        assert not each.failed
    assert len(below.iterations) == len(below.executions) == 1


@pytest.mark.slow  # another program; test_endings.py has the ends of drivers
def test_an_execution_shows_as_interrupted_if_its_driver_is_killed(cluster: Cluster) -> None:
    variables: dict[str, Any] = {**cluster.variables, "RAY_TRACING_LOCAL_DIR": str(cluster.spans)}
    run_program("data_killed", RTH_ADDRESS=cluster.address, **variables)
    expected = {
        f"killed {names.DATASET}": names.DRIVER_DIED,
        f"MapBatches(wait) {names.DATA_OPERATOR}": names.DRIVER_DIED,
        "MapBatches(wait) ray.remote_worker": names.WORKER_DIED,
    }

    def found(spans: list[Span]) -> dict[str, Any]:
        return {each.name: each.attributes.get(names.ERROR_TYPE) for each in spans if each.name in expected}

    assert found(await_spans(cluster.spans, lambda spans: found(spans).keys() == expected.keys())) == expected


@pytest.mark.slow
def test_pickles_of_datasets_have_nothing_of_tracing(cluster: Cluster) -> None:
    """Their sizes differ by a byte at most, as those of an untraced program from time to time."""
    run = run_program("../inside/dataset_pickles", cluster.address, **with_data())
    traced, untraced, named = run.result
    assert all(abs(one - other) <= 1 for one, other in zip(traced, untraced, strict=True)), run.result
    assert named == []


@pytest.fixture(scope="module")
def endings(cluster: Cluster) -> Run:
    """Executions that end in different ways, once all their tasks have ended."""
    run = cluster.run("data_endings")

    def of_run(spans: list[Span]) -> list[Span]:
        return [each for each in spans if each.trace_id == run.spans[0].trace_id]

    spans = await_spans(cluster.spans, lambda spans: all(each.state != "running" for each in of_run(spans)))
    run.spans = of_run(spans)
    return run


ANOTHER = pytest.mark.slow  # another program; what ends an execution is in the first one too


@ANOTHER
@pytest.mark.parametrize("way", ["taken", "left_by_break", "left_by_an_error", "left_by_break_in_a_handler"])
def test_tasks_of_which_ray_data_needs_no_more_blocks_have_not_failed(way: str, endings: Run) -> None:
    below = Below(endings.spans, way)
    (execution,) = below.executions
    # Some versions of Ray Data complete an execution at its limit.
    assert execution.attributes[names.RAY_DATA_OUTCOME] in {"stopped", "finished"}
    assert any(each.failed for each in below.spans), "Ray Data has ended tasks"
    found = find(Analysis(Table.of([below.root, *below.spans])))
    assert not [each.text for each in found if each.is_failure]


@ANOTHER
@pytest.mark.skipif(not KNOWS_2_60, reason="an iteration leaves it to the garbage collector to end its execution")
@pytest.mark.parametrize(("way", "outcome"), [("interrupted", "cancelled"), ("failing_collate_function", "failed")])
def test_what_an_iteration_ends_with_is_what_its_execution_ends_with(way: str, outcome: str, endings: Run) -> None:
    below = Below(endings.spans, way)
    (execution,), (iteration,) = below.executions, below.iterations
    assert execution.attributes[names.RAY_DATA_OUTCOME] == iteration.attributes[names.RAY_DATA_OUTCOME] == outcome
    assert error_text(execution) == error_text(iteration)


@ANOTHER
@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("failing_function", "ValueError: no 30, please"),
        ("failing_write", "OSError: the disk is full"),
        ("failing_write_with_a_quoted_message", "KeyError: 'name'"),
        ("failing_write_without_a_message", "ValueError"),
    ],
)
def test_the_error_of_a_dataset_is_that_of_the_program(way: str, error: str, endings: Run) -> None:
    """Without what Ray Data raises from it, and without the advice that it adds."""
    below = Below(endings.spans, way)
    failed = [each for each in (*below.executions, *below.operators) if each.failed]
    assert len(failed) >= 2
    for each in failed:
        assert error_text(each) == error
        (event,) = [event.attributes for event in each.events if event.name == "exception"]
        assert event[names.EXCEPTION_TYPE] == each.attributes[names.ERROR_TYPE] == error.partition(":")[0]
        assert "DataContext" not in event[names.EXCEPTION_MESSAGE] + each.status_message


@ANOTHER
def test_the_consumer_of_an_iterator_that_was_sent_to_a_task_is_no_function_of_ray_data(endings: Run) -> None:
    (execution,) = Below(endings.spans, "sent_to_a_task").executions
    assert execution.attributes[names.RAY_DATA_CONSUMER] == ""
