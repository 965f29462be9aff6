"""What calls waited for before they ran, by files of task states beside the spans."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hand_made import MS, START, HandMade

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.task_states import About, Attempt
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.queues import Queued, States, states_beside, waited
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.calls import Calls
from ray_tracing_hooks._insight.views.page.content import content
from ray_tracing_hooks._insight.views.redaction import Redaction

RECORDED = Path(__file__).parent / "recorded" / "bottleneck.jsonl.gz"
TASK = "ab" * 24
RAN = {"PENDING_ARGS_AVAIL": 0, "RUNNING": 7}


def attempt(states: dict[str, int], kind: str = "NORMAL_TASK", number: int = 0, task: str = TASK) -> Attempt:
    """An attempt, with the milliseconds at which its states began."""
    return Attempt(task, number, "f", kind, "01000000", {name: START + at * MS for name, at in states.items()})


def write(folder: Path, *attempts: Attempt, session: str = "session_1", dropped: int = 0) -> Path:
    path = folder / task_states.file_name(session)
    path.write_bytes(b"".join(task_states.lines(About(session, START, dropped), attempts)))
    return path


@pytest.mark.parametrize(
    ("kind", "states", "expected"),
    [
        (
            "NORMAL_TASK",
            {
                "PENDING_ARGS_AVAIL": 0,
                "PENDING_NODE_ASSIGNMENT": 1000,
                "SUBMITTED_TO_WORKER": 1200,
                "GETTING_AND_PINNING_ARGS": 1203,
                "RUNNING": 1230,
                "FINISHED": 2000,
            },
            (1000, 200, 30, 0),
        ),
        # An actor accepts a call once it is done with the earlier ones.
        (
            "ACTOR_TASK",
            {
                "PENDING_ARGS_AVAIL": 0,
                "PENDING_NODE_ASSIGNMENT": 1,
                "SUBMITTED_TO_WORKER": 3,
                "PENDING_ACTOR_TASK_ARGS_FETCH": 503,
                "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY": 510,
                "RUNNING": 600,
            },
            (1, 2, 7, 590),
        ),
        # The creation of an actor is not sent to a worker by its owner.
        ("ACTOR_CREATION_TASK", {"PENDING_ARGS_AVAIL": 0, "PENDING_NODE_ASSIGNMENT": 5, "RUNNING": 25}, (5, 20, 0, 0)),
        # A worker whose clock is behind says that it ran before it was told to.
        ("NORMAL_TASK", {"PENDING_ARGS_AVAIL": 0, "SUBMITTED_TO_WORKER": 20, "RUNNING": 10}, (10, 0, 0, 0)),
        ("NORMAL_TASK", {"PENDING_ARGS_AVAIL": 0, "STATE_OF_A_LATER_RAY": 4, "RUNNING": 10}, (10, 0, 0, 0)),
    ],
)
def test_the_time_before_a_call_runs_is_divided(
    kind: str, states: dict[str, int], expected: tuple[int, int, int, int]
) -> None:
    assert waited(attempt(states, kind)) == Queued(*(each * MS for each in expected))


@pytest.mark.parametrize("states", [{}, {"PENDING_ARGS_AVAIL": 0}, {"RUNNING": 3}, {"RUNNING": 3, "FINISHED": 4}])
def test_of_what_has_not_run_nothing_is_said(states: dict[str, int]) -> None:
    assert waited(attempt(states)) is None


def test_first_attempts_are_read_from_all_files_beside_the_spans(tmp_path: Path) -> None:
    write(tmp_path, attempt(RAN), attempt({"PENDING_ARGS_AVAIL": 100, "RUNNING": 500}, number=1), dropped=3)
    write(tmp_path, attempt(RAN, task="cd" * 24), session="session/../2", dropped=4)
    for path in (tmp_path, tmp_path / "spans.jsonl"):
        found = states_beside([str(path)])
        assert {task: queued.total for each in found.first.values() for task, queued in each.items()} == {
            TASK: 7 * MS,
            "cd" * 24: 7 * MS,
        }
        assert (found.files, found.dropped, found.problems) == (2, 7, [])
    os.mkfifo(tmp_path / task_states.file_name("nobody writes to"))
    assert [*filter(None, states_beside([str(tmp_path)], [TASK]).first.values())] == [{TASK: Queued(7 * MS, 0, 0, 0)}]
    assert states_beside([str(tmp_path / "no" / "thing")]).files == 0


def test_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, attempt(RAN))
    bad = ["no JSON", "[]", '{"task_id":1,"states":{}}', '{"task_id":"a"}', '{"task_id":"a","states":{"RUNNING":"x"}}']
    bad.append(f'{{"task_id":"{TASK}","attempt":1,"states":{{"PENDING_ARGS_AVAIL":1,"RUNNING":1{"0" * 400}}}}}')
    with path.open("a") as file:
        file.write("\n".join([*bad, "[" * 100_000, '{"task_id":"cut off', ""]))
    (tmp_path / task_states.file_name("other")).write_text('{"resourceSpans":[]}\n')
    (tmp_path / task_states.file_name("later")).write_text(json.dumps({"format": task_states.FORMAT, "version": 2}))
    found = states_beside([str(tmp_path)])
    assert [each.keys() for each in found.first.values()] == [{TASK}]
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "it has version 2, but only version 1 can be read",
        "it is not a file of task states",
    ]


def test_summary_and_page_tell_what_the_calls_of_a_run_waited_for(tmp_path: Path) -> None:
    """For calls with known states; other calls are unaffected, and without any states nothing is shown."""
    shutil.copy(RECORDED, tmp_path)
    table = load([str(RECORDED)])
    calls = Calls(table)
    tasks = [
        table.ids[table.task[row]]
        for row in calls.execution
        if row >= 0 and calls.function_of(row).endswith("Store.update")
    ]
    run = CliRunner().invoke
    before = json.loads(run(main, ["summary", "--json", str(tmp_path)]).stdout)
    assert before.pop("queues") is None
    assert "Queues" not in run(main, ["summary", str(tmp_path)]).stdout
    write(
        tmp_path,
        *(
            attempt({"PENDING_ARGS_AVAIL": 0, "SUBMITTED_TO_WORKER": 2, "RUNNING": 502}, "ACTOR_TASK", task=task)
            for task in tasks[:10]
        ),
        attempt(RAN),
        dropped=5,
        session=Analysis(table).session,
    )
    after = json.loads(run(main, ["summary", "--json", str(tmp_path)]).stdout)
    queues = after.pop("queues")
    assert after == before
    assert (queues["calls"], queues["dropped"]) == (10, 5)
    (function,) = queues["functions"]
    assert function["function"].endswith("Store.update")
    assert [function[f"{phase}_ns"] for phase in ("total", "arguments", "scheduling", "fetching", "actor_queue")] == [
        5020 * MS,
        20 * MS,
        0,
        0,
        5000 * MS,
    ]
    shown = run(main, ["summary", str(tmp_path)]).stdout
    assert "(10 of 78 calls, from Ray's task states)" in shown
    assert "Ray has dropped 5 events of tasks." in shown
    analysis = Analysis(table, states_beside([str(tmp_path)]))
    drawn = content(analysis, "spans", 1000, Redaction()).meta["queues"]
    assert drawn["rows"] == [["Store.update", 10, 5020 * MS, 20 * MS, 0, 0, 5000 * MS, 0]]


def test_states_of_another_cluster_are_not_taken_for_those_of_a_run(tmp_path: Path) -> None:
    """Clusters give their tasks the same ids. Spans that name no session have the states of all."""
    for session, expected in (("session_2", 20), ("session_3", 0), ("", 20)):
        run = HandMade()
        run.session = session
        call = run.task(run.driver(0, 100), "f", 1, 50, 90)
        (tmp_path / "spans.jsonl").write_bytes(run.as_json_lines())
        write(tmp_path, attempt({"PENDING_ARGS_AVAIL": 0, "RUNNING": 10}, task=call.task), session="session_1")
        write(tmp_path, attempt({"PENDING_ARGS_AVAIL": 0, "RUNNING": 20}, task=call.task), session="session_2")
        (command,) = [CliRunner().invoke(main, ["summary", "--json", str(tmp_path)])]
        queues = json.loads(command.stdout)["queues"] or {"functions": []}
        assert sum(each["total_ns"] for each in queues["functions"]) == expected * MS


def test_states_of_two_clusters_are_those_of_their_own_tasks(tmp_path: Path) -> None:
    """Which have the same ids, and other functions."""
    for number, function in enumerate(("fast", "slow"), 1):
        run = HandMade()
        run.session = f"session_{number}"
        call = run.task(run.driver(0, 100), function, 1, 50, 90)
        for span in run.spans:
            span.trace_id = f"{number:032x}"
        (tmp_path / f"spans-{number}.jsonl").write_bytes(run.as_json_lines())
        states = {"PENDING_ARGS_AVAIL": 0, "RUNNING": 10 * number}
        write(tmp_path, attempt(states, task=call.task), session=run.session)
    analysis = Analysis(load([*map(str, tmp_path.glob("*.jsonl"))]), states_beside([str(tmp_path)]))
    assert {each.name: each.total for each in analysis.queues} == {"slow": 20 * MS, "fast": 10 * MS}


def loading(analysis: Analysis) -> int:
    (function,) = analysis.queues
    return function.times["loading"]


def test_a_worker_loads_code_from_when_it_has_a_call_until_that_starts(tmp_path: Path) -> None:
    """By the clock of its node, also if spans have been corrected. If the end of the call is known, and is later."""
    run, driver = HandMade.driven(8_000)
    call = run.task(driver, "f", 1, 5_000, 7_000, node="n2", worker="w2", clock=-6_000)
    run.get(driver, [call], 2, 7_001)
    had = {"GETTING_AND_PINNING_ARGS": -1_150, "RUNNING": -1_100}
    write(tmp_path, attempt(had | {"FINISHED": 7_000}, task=call.task))
    analysis = Analysis.corrected(run.table(), states_beside([str(tmp_path)]))
    assert any(analysis.table.shifts)
    assert loading(analysis) == 100 * MS
    for more in ({}, {"FAILED": -1_050}):
        write(tmp_path, attempt(had | more, task=call.task))
        assert loading(Analysis.corrected(run.table(), states_beside([str(tmp_path)]))) == 0


@pytest.mark.parametrize("attributes", [{"ray.attempt": 1}, {"ray.max_concurrency": 4, "ray.actor_id": "ab" * 16}])
def test_retries_and_calls_that_run_at_once_are_not_known_to_load(attributes: dict[str, str | int]) -> None:
    """The states are of the first attempt; in actors with several threads or an event loop, calls wait for these."""
    run, driver = HandMade.driven(8_000)
    call = run.task(driver, "f", 1, 5_000, 7_000, attributes=attributes)
    ran = {call.task: (START + 3_000 * MS, START + 7_000 * MS)}
    states = States(files=1, first={"": {call.task: Queued(0, 3_000 * MS, 0, 0)}}, ran={"": ran})
    assert loading(Analysis(run.table(), states)) == 0
