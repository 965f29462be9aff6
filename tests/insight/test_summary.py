"""``ray-tracing-hooks summary``: what it says of real runs with planted faults, and of runs made by hand."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hand_made import MS, HandMade

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight import against
from ray_tracing_hooks._insight.analysis import Analysis
from ray_tracing_hooks._insight.findings import Finding, find
from ray_tracing_hooks._insight.path import KINDS

RECORDED = os.path.join(os.path.dirname(__file__), "recorded")


def summary(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["summary", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def recorded(name: str) -> str:
    return os.path.join(RECORDED, f"{name}.jsonl.gz")


def document(name: str, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(summary(recorded(name), "--json", *more).stdout)
    return found


def findings(run: HandMade, now: float | None = None) -> list[Finding]:
    return find(Analysis(run.table(now)))


# --- real runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "figures"),
    [
        ("bottleneck", "bottleneck-actor", {"calls": 65, "callers": 9}),
        ("bottleneck_inferred", "bottleneck-actor", {"calls": 65, "callers": 9}),
        ("straggler", "straggler", {"function": "__main__.work", "slow_calls": 1, "calls": 24}),
        ("get_in_loop", "get-in-loop", {"function": "__main__.work", "caller": "planted.py", "rounds": 30}),
        ("killed", "killed-workers", {"executions": 1, "tried_again": 1}),
        ("tiny_tasks", "tiny-tasks", {"function": "__main__.tiny", "calls": 600}),
        ("large_arguments", "large-arguments", {"function": "__main__.measure", "calls": 16}),
        ("serial_driver", "serial-driver", {"function": "__main__.work", "driver": "planted.py"}),
        ("slow_node", "slow-place", {"function": "__main__.shard", "what": "node", "calls": 8, "calls_elsewhere": 16}),
        ("idle_gpu", "idle-accelerator", {"accelerator": "GPU:0", "executions": 2}),
        ("tree", "bottleneck-actor", {"calls": 10, "callers": 1, "deepest_queue": 10}),
    ],
)
def test_the_planted_fault_is_found_and_no_other(name: str, kind: str, figures: dict[str, Any]) -> None:
    """Each recorded program has one fault planted in it, and the summary names that one, with what shows it."""
    (finding,) = document(name)["findings"]
    assert finding["kind"] == kind
    assert figures.items() <= finding["figures"].items()
    assert 0.05 < finding["share"] <= 1
    assert finding["evidence"]
    assert finding["text"] in " ".join(summary(recorded(name)).stdout.split())
    summary(recorded(name), "--check", code=1)


@pytest.mark.parametrize("name", ["healthy", "pipeline", "serving"])
def test_a_healthy_program_has_no_findings(name: str) -> None:
    """Nothing is named where nothing was planted: two stages of tasks, a pipeline with actors, a Serve application."""
    assert document(name)["findings"] == []
    assert "Findings: none" in summary(recorded(name), "--check").stdout


def test_the_example_of_flow_insight() -> None:
    """The actors by self time: the bottleneck first; ten calls queue at a child; its sleeps are not called queueing."""
    found = document("tree")
    bottleneck, other, root, *leaves = found["actors"]
    assert found["findings"][0]["figures"]["actor_id"] == bottleneck["actor_id"]
    # Ten calls that sleep 175 ms ten times, ten that sleep 25 ms ten times, one that sleeps 25 ms twenty times.
    assert bottleneck["self_ns"] == pytest.approx(10 * 10 * 175 * MS, rel=0.1)
    assert other["self_ns"] == pytest.approx(10 * 10 * 25 * MS, rel=0.3)
    assert root["self_ns"] == pytest.approx(20 * 25 * MS, rel=0.5)
    assert (bottleneck["deepest_queue"], other["deepest_queue"], root["deepest_queue"]) == (10, 10, 1)
    assert all(leaf["self_ns"] < 100 * MS for leaf in leaves)
    split = {each["kind"]: each["ns"] for each in found["time_split"]}
    # The last call waited for the nine before it, and slept itself.
    assert split["actor queue"] <= 9 * 10 * 180 * MS
    assert split["run"] >= 10 * 175 * MS + 20 * 25 * MS


@pytest.mark.parametrize("path", sorted(os.listdir(RECORDED)))
def test_figures_add_up(path: str) -> None:
    """The split of the time and the path are each as long as the run, without gaps and overlaps."""
    found = json.loads(summary(os.path.join(RECORDED, path), "--json", "-v").stdout)
    wall = found["run"]["wall_ns"]
    assert sum(each["ns"] for each in found["time_split"]) == wall
    assert sum(each["share"] for each in found["time_split"]) == pytest.approx(1)
    assert {each["kind"] for each in found["time_split"]} == set(KINDS)
    assert sum(each["ns"] for each in found["critical_path"]["kinds"]) == wall
    here = found["run"]["start_unix_nano"]
    for step in found["critical_path"]["steps"]:
        assert step["start_unix_nano"] == here
        here += step["ns"]
    assert here == found["run"]["start_unix_nano"] + wall
    # What Serve does by itself is not traced, and its waiting is unexplained.
    assert found["critical_path"]["coverage"] > (0.5 if "serving" in path else 0.99)
    assert sum(found["parallelism"]["buckets"]) / 60 == pytest.approx(found["parallelism"]["average"], rel=0.05)


def test_the_screen_is_one_screen() -> None:
    """Every section in its place, no line longer than a wide terminal, and not more than a screen of them."""
    text = summary(recorded("bottleneck")).stdout
    order = [
        "planted.py took",
        "Findings",
        "Where the",
        "Critical path",
        "Functions by self",
        "Actors by self",
        "Calls at once",
        "Data:",
    ]
    assert sorted(order, key=text.index) == order
    lines = text.splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) <= 110
    assert re.search(r"^ +\d+ % +1\.\d\d s  Store\.update$", text, re.MULTILINE)
    assert "__main__" not in text


def test_evidence_is_shown_on_request() -> None:
    """With -v the ids of spans that show a finding, and the path step by step."""
    text = summary(recorded("killed"), "-v").stdout
    (finding,) = document("killed")["findings"]
    assert f"killed-workers: spans {finding['evidence'][0]['span_id']}" in text
    assert re.search(r"retrying +dies_once +after retry +" + finding["evidence"][0]["span_id"], text)


# --- which run ----------------------------------------------------------------------------------------------------


def test_of_several_runs_the_newest_is_shown(tmp_path: Path) -> None:
    """A folder collects runs. One that is asked for by its trace is shown instead."""
    for name in ("healthy", "killed", "get_in_loop"):
        os.symlink(recorded(name), tmp_path / f"{name}.jsonl.gz")
    found = json.loads(summary(str(tmp_path), "--json").stdout)
    newest = max(("healthy", "killed", "get_in_loop"), key=lambda name: document(name)["run"]["start_unix_nano"])
    assert found["findings"] == document(newest)["findings"]
    assert (found["run"]["runs"], found["quality"]["files"]) == (3, 3)
    assert "newest of 3 runs" in summary(str(tmp_path)).stdout
    other = document("get_in_loop")
    trace_id = other["findings"][0]["evidence"][0]["trace_id"]
    chosen = json.loads(summary(str(tmp_path), "--json", "--trace", trace_id[:12].upper()).stdout)
    assert chosen["findings"] == other["findings"]
    assert chosen["run"]["wall_ns"] == other["run"]["wall_ns"]


def test_wrong_use(tmp_path: Path) -> None:
    """A trace that is none or not there, a path that does not exist: exit code 2. No spans: 1."""
    summary(recorded("healthy"), "--trace", "xyz", code=2)
    summary(recorded("healthy"), "--trace", "0123456789abcdef", code=2)
    summary(str(tmp_path / "none"), code=2)
    summary(recorded("healthy"), "--against", str(tmp_path / "none"), code=2)
    summary(str(tmp_path), code=1)


# --- against another run ------------------------------------------------------------------------------------------


def run_of(times: list[float], function: str = "f") -> HandMade:
    run = HandMade()
    driver = run.driver(0, 10_000)
    for number, time in enumerate(times):
        start = 10 + 50 * number
        run.get(driver, [run.task(driver, function, start, start + 1, start + 1 + time)], start, start + 2 + time)
    return run


@pytest.mark.parametrize(
    ("now", "before", "is_sure"),
    [
        ([20, 21, 22, 23, 24, 25, 26], [10, 11, 12, 13, 14, 15, 16], True),
        ([10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 23, 24, 25, 26], True),
        ([10, 11, 12, 13, 14, 15, 16], [10.5, 11.5, 12.5, 13.5, 14.5, 9.5, 8.5], False),
        ([20] * 7, [20] * 7, False),
        ([20, 21, 22, 23], [10, 11, 12, 13], False),
    ],
)
def test_a_change_is_told_from_chance(now: list[float], before: list[float], is_sure: bool) -> None:
    """Seven calls that all take longer, or shorter, are a change; overlapping ones are not, and four say nothing."""
    (change,) = against.changes(Analysis(run_of(now).table()), Analysis(run_of(before).table()))
    assert change.is_sure == is_sure
    assert (change.is_slower, change.is_faster) == (is_sure and now > before, is_sure and now < before)
    assert (change.calls, change.calls_before) == (len(now), len(before))
    assert (change.probability is None) == (len(now) < 5)


def test_the_test_is_that_of_mann_and_whitney() -> None:
    """Probabilities as published for these samples: by the normal approximation, corrected for ties and continuity."""
    # U = 2 of 7 x 6: the mean is 21, the standard deviation sqrt(49), so z = (19 - 0.5) / 7 = 2.642857.
    one, other = [1, 2, 3, 4, 5, 6, 9], [7, 8, 10, 11, 12, 13]
    assert against.mann_whitney(one, other) == pytest.approx(0.008221, abs=1e-6)
    assert against.mann_whitney(one, other) == against.mann_whitney(other, one)
    assert against.mann_whitney([], other) == against.mann_whitney([1, 1], [1, 1, 1]) == 1.0


def test_of_many_functions_one_differs_by_chance_and_is_not_named() -> None:
    """Probabilities are corrected for the number of functions, by Holm's method."""
    runs = []
    for shift in (0.0, 1.0):
        run = HandMade()
        driver = run.driver(0, 10_000)
        for function in range(50):
            for number in range(8):
                late = 4.1 * shift if function == 7 else 0
                start = 10.0 + 20 * number
                run.task(driver, f"f{function}", start, start, start + number + 1 + late, worker=f"w{function}")
        runs.append(Analysis(run.table()))
    changed = {change.function: change for change in against.changes(runs[1], runs[0])}
    alone = against.mann_whitney([5, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 4, 5, 6, 7, 8])
    assert alone < 0.02
    assert not changed["f7"].is_sure


def test_two_runs_compared_on_the_screen() -> None:
    """What got slower, by how much, how sure that is and by which test; also for programs."""
    result = summary(recorded("bottleneck"), "--against", recorded("bottleneck_inferred"))
    assert "Mann and Whitney's test" in result.stdout
    assert re.search(r"^ Store\.update +\S.* +20\.\d ms +20\.\d ms +x1\.\d\d +65 / 65 +p ", result.stdout, re.MULTILINE)
    found = document("bottleneck", "--against", recorded("bottleneck_inferred"))["against"]
    assert "Mann-Whitney" in found["method"]
    assert {change["function"] for change in found["changes"]} >= {"Store.update", "__main__.client"}


def test_against_itself_nothing_changed() -> None:
    """The same spans twice: every probability is 1, and --check is content."""
    found = document("healthy", "--against", recorded("healthy"), "--check")["against"]
    assert [change["is_sure"] for change in found["changes"]] == [False] * len(found["changes"])
    assert all(change["probability"] in (1.0, None) for change in found["changes"])


# --- runs made by hand --------------------------------------------------------------------------------------------


def test_a_hung_run_is_told_with_what_it_hangs_in() -> None:
    """The innermost call that runs, and not those that wait for it."""
    run = HandMade()
    driver = run.driver(0, None)
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 5, None, state="running")
    inner = run.submit(frame, "inner", 10, worker="w1")
    run.run(inner, 15, None, state="running", worker="w2")
    run.get(frame, [inner], 11, None, state="running", worker="w1")
    run.get(driver, [outer], 1, None, state="running")
    (finding,) = findings(run, now=60_000)
    assert finding.kind == "unfinished"
    assert "inner, for 1m 00s" in finding.text


def test_a_deadlock_is_told_as_the_circle_that_it_is() -> None:
    """Actors that wait for each other are named in their order."""
    run = HandMade()
    driver = run.driver(0, None)
    actor, other = run.actor(), run.actor()
    first = run.submit(driver, "A.f", 0, actor=actor)
    frame = run.run(first, 5, None, state="running", worker="w1")
    second = run.submit(frame, "B.g", 10, actor=other, worker="w1")
    below = run.run(second, 15, None, state="running", worker="w2")
    third = run.submit(below, "A.h", 20, actor=actor, worker="w2")
    run.get(below, [third], 21, None, state="running", worker="w2")
    run.get(frame, [second], 11, None, state="running", worker="w1")
    run.get(driver, [first], 1, None, state="running")
    (finding,) = findings(run, now=1000)
    assert "2 calls had not ended" in finding.text
    assert finding.text.endswith("A.f > B.g > A.f")


def test_errors_are_told_by_type() -> None:
    """How many, of what, by which errors, and whether they were tried again."""
    run = HandMade()
    driver = run.driver(0, 1000)
    for number in range(5):
        call = run.submit(driver, "load", number)
        run.run(call, 10, 20, error="ValueError" if number else "KeyError")
        if number == 4:
            run.run(call, 30, 40, attributes={"ray.attempt": 1})
    (finding,) = findings(run)
    assert finding.text.startswith("5 executions of load failed: ValueError x4, KeyError; 1 of them tried again")
    assert finding.figures["wasted_ns"] == 10 * MS


def test_a_pool_of_busy_actors_is_no_bottleneck() -> None:
    """Where all actors of a class are as busy, the program simply has work to do."""
    run = HandMade()
    driver = run.driver(0, 1000)
    calls = []
    for pool in range(4):
        actor = run.actor()
        for number in range(20):
            call = run.submit(driver, "A.f", 0, actor=actor)
            run.run(call, 10 + 40 * number, 50 + 40 * number, worker=f"w{pool}")
            calls.append(call)
    run.get(driver, calls, 1, 851)
    assert findings(run) == []


def test_a_loop_over_results_that_are_there_is_no_fault() -> None:
    """All calls are submitted first, and their results taken one by one."""
    run = HandMade()
    driver = run.driver(0, 200)
    calls = [run.task(driver, "f", number / 10, 5, 100 + number, worker=f"w{number}") for number in range(10)]
    for number, call in enumerate(calls):
        run.get(driver, [call], max(3, 99 + number), 100.5 + number)
    assert findings(run) == []


def test_a_loop_is_found_where_waiting_was_not_recorded() -> None:
    """Each call is submitted when the one before it has ended; said to seem so."""
    run = HandMade()
    driver = run.driver(0, 200)
    for number in range(9):
        run.task(driver, "f", 10 + 20 * number, 11 + 20 * number, 29 + 20 * number)
    (finding,) = findings(run)
    assert (finding.kind, finding.is_assumed) == ("get-in-loop", True)
    assert finding.text.startswith("it seems that job.py calls f in a loop")


def test_spans_of_ray_itself_are_read_as_what_they_mean(tmp_path: Path) -> None:
    """Ray's own tracing says the caller's task on a submission; a call is joined by its parent all the same."""
    run = HandMade()
    for number in range(3):
        call = run.submit("", "f", 10 * number)
        run.run(call, 10 * number + 1, 10 * number + 8)
    for span in run.spans:
        span.resource.pop("telemetry.distro.name", None)
        span.scope = "ray.util.tracing.tracing_helper"
        if span.kind == 4:
            span.attributes["ray.task_id"] = "ab" * 24
    analysis = Analysis(run.table())
    assert len(analysis.calls) == 3
    assert [len(analysis.calls.attempts(call)) for call in range(3)] == [1, 1, 1]
    assert analysis.functions[0].self_time == 21 * MS


def test_what_is_wrong_with_the_data_comes_first(tmp_path: Path) -> None:
    """Bad lines and cut spans stand above the findings, since they may be the reason for them."""
    (tmp_path / "a.jsonl").write_text("no json\n")
    os.symlink(recorded("healthy"), tmp_path / "healthy.jsonl.gz")
    text = " ".join(summary(str(tmp_path)).stdout.split())
    assert text.index("1 bad line skipped (the first: ") < text.index("Findings")
    assert text.count("Data:") == 1


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Escapes for the terminal, bidirectional overrides and line ends are shown and not obeyed; long names are cut."""
    name = "\x1b[31mred\u202e\n</script>" + "x" * 100_000
    spans = [
        {
            "traceId": "ab" * 16,
            "spanId": f"{number:016x}",
            "name": f"{name}{number % 3} ray.remote_worker",
            "kind": 5,
            "startTimeUnixNano": str(10**18 + number),
            "endTimeUnixNano": str(10**18 + number - 5 if number == 7 else 10**18 + number * 1000),
            "status": {"code": 2, "message": name},
        }
        for number in range(1, 20)
    ]
    document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(document) + "\n")
    for more in ((), ("-v",)):
        text = summary(str(tmp_path), *more).stdout
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
        assert max(map(len, text.splitlines())) < 300
        assert "\\x1b[31mred\\u202e\\n</script>" in text
    json.loads(summary(str(tmp_path), "--json").stdout)


def test_spans_of_others_are_no_calls(tmp_path: Path) -> None:
    """A trace without Ray: its length is said, and nothing is made up."""
    run = HandMade()
    root = run.span("GET /", 0, 100, kind=2)
    run.span("query", 10, 60, root, kind=3)
    analysis = Analysis(run.table())
    assert (len(analysis.calls), analysis.path.wall, analysis.functions) == (0, 100 * MS, [])
    assert analysis.path.functions == {"GET /": 100 * MS}
    assert find(analysis) == []


def test_a_slow_gpu_is_named() -> None:
    """Executions that hold one accelerator take longer than those on others of the same node."""
    run = HandMade()
    driver = run.driver(0, 2000)
    calls = []
    for number in range(24):
        gpu = number % 3
        call = run.submit(driver, "step", 0)
        start = 10.0 + number // 3 * 100
        where = {"ray.accelerator_ids": [f"GPU:{gpu}"]}
        run.run(call, start, start + (90 if gpu == 2 else 40) + number / 10, worker=f"w{gpu}", attributes=where)
        calls.append(call)
    run.get(driver, calls, 1, 810)
    (finding,) = findings(run)
    assert (finding.kind, finding.figures["what"]) == ("slow-place", "accelerator")
    assert "on accelerator GPU:2 of node n1" in finding.text


def test_how_long_an_accelerator_was_held_and_used() -> None:
    """An actor holds it from its creation to its last method; waiting for others in between is no use of it."""
    run = HandMade()
    driver = run.driver(0, 1000)
    actor = run.actor()
    both, one = {"ray.accelerator_ids": ["GPU:0", "GPU:1"]}, {"ray.accelerator_ids": ["GPU:1"]}
    run.run(run.submit(driver, "Trainer.__init__", 0, actor=actor), 100, 150, attributes=both)
    load = run.submit(driver, "load", 200)
    run.run(load, 200, 500, worker="w2")
    train = run.run(run.submit(driver, "Trainer.train", 400, actor=actor), 400, 600, attributes=both)
    run.get(train, [load], 420, 510, worker="w1")
    # Another task holds one of the two, at a time when the actor uses it.
    run.run(run.submit(driver, "probe", 400), 590, 650, worker="w3", attributes=one)
    first, second = Analysis(run.table()).accelerators
    assert (first.node, first.name, first.holders) == ("n1", "GPU:0", ["Trainer"])
    assert (first.held, first.busy, first.longest_gap) == (500 * MS, 160 * MS, 250 * MS)
    assert (second.name, second.holders) == ("GPU:1", ["Trainer", "probe"])
    assert (second.held, second.busy, second.longest_gap) == (550 * MS, 210 * MS, 250 * MS)


def test_what_a_span_says_of_accelerators_may_be_anything() -> None:
    run = HandMade()
    driver = run.driver(0, 1000)
    for at, held in enumerate(("GPU:0", {"GPU": 1}, [None, 7], [], 5)):
        run.task(driver, "step", at, at, at + 100, attributes={"ray.accelerator_ids": held})
    assert [each.name for each in Analysis(run.table()).accelerators] == ["7", "None"]


def test_stragglers_that_share_a_node_say_so() -> None:
    """What the slow ones have in common, and the others have not."""
    run = HandMade()
    driver = run.driver(0, 1000)
    calls = []
    for number in range(20):
        slow = number in (7, 9)
        call = run.submit(driver, "f", 0)
        node = "n2" if slow or number == 8 else "n1"
        run.run(call, 5, 900 if slow else 50, worker=f"w{number}", node=node)
        calls.append(call)
    run.get(driver, calls, 1, 901)
    (finding,) = findings(run)
    assert finding.kind == "straggler"
    assert "2 calls of f took up to 895 ms" in finding.text
    assert "all of them on node n2" in finding.text


def test_a_function_that_drags_much_along_is_told() -> None:
    """Only its first submission takes long: that is when Ray packs the function."""
    run = HandMade()
    driver = run.driver(0, 5000)
    calls = [
        run.submit(driver, "f", 10 if not number else 3000 + number, 2900 if not number else 0.1)
        for number in range(10)
    ]
    for number, call in enumerate(calls):
        run.run(call, 3100 + number, 4000, worker=f"w{number}")
    run.get(driver, calls, 3020, 4001)
    (finding,) = findings(run)
    assert finding.kind == "large-closure"
    assert "one f.remote() took 2.90 s and the others 100 us" in finding.text


@pytest.mark.parametrize("shape", ["circle", "attempts", "one actor", "creations", "gets", "no times", "one start"])
def test_hostile_shapes_are_summarized(shape: str, tmp_path: Path) -> None:
    """Structures that no program makes cost no more than others, and crash nothing."""
    count = 3000
    task = f"{7:016x}" + "f" * 24 + "01000000"
    spans = []
    for number in range(1, count + 1):
        name, parent, start, end, key, value = "f ray.remote_worker", 0, number, count + number, "ray.actor_id", "x"
        if shape == "circle":
            parent = number % count + 1
        elif shape == "attempts":
            name, parent = ("f ray.remote", 0) if number == 1 else (name, 1)
            key, value = "ray.task_id", task
        elif shape == "creations":
            name = "A.__init__ ray.remote_worker" if number % 2 else "A.f ray.remote_worker"
        elif shape == "gets":
            name, parent = ("ray.get", 1) if number > 2 else (name, number - 1)
            key, value = ("ray.object_ids", task + "01000000") if number > 2 else ("ray.task_id", task)
        elif shape == "no times":
            start = end = 0
        elif shape == "one start":
            start, end, parent = 5, 100, number * 7919 % count + 1
        held = (
            {"arrayValue": {"values": [{"stringValue": value}]}} if key == "ray.object_ids" else {"stringValue": value}
        )
        spans.append({
            "traceId": "ab" * 16,
            "spanId": f"{number:016x}",
            "parentSpanId": f"{parent:016x}",
            "name": name,
            "kind": 4 if name.endswith("remote") else 5,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(end),
            "attributes": [{"key": key, "value": held}],
        })  # fmt: skip
    document = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(document) + "\n")
    found = json.loads(summary(str(tmp_path), "--json", "-v").stdout)
    assert sum(each["ns"] for each in found["time_split"]) == found["run"]["wall_ns"]
    summary(str(tmp_path))
