"""``ray-tracing-hooks summary``: what it says of real runs with planted faults, and of runs made by hand."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hand_made import MS, START, HandMade, workers_alone
from recordings import RECORDED, document, recorded
from terminal import STYLE, in_terminal

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._cli.screen import aligned
from ray_tracing_hooks._cli.summary import document as summaries
from ray_tracing_hooks._cli.summary import print_summary
from ray_tracing_hooks._insight.analysis import recorded as recorded_words
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import KINDS
from ray_tracing_hooks._insight.analysis.deadlocks import deadlocks
from ray_tracing_hooks._insight.analysis.findings import FINDERS, Finding, find
from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.intervals import in_both, taken_by
from ray_tracing_hooks._insight.analysis.queues import Queued, States
from ray_tracing_hooks._insight.analysis.wording import percent
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.calls import Calls
from ray_tracing_hooks._insight.model.runs import part_of, runs
from ray_tracing_hooks._insight.model.span import CONSUMER, HIDDEN, PRODUCER, SERVER, State, nanoseconds
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.page import report
from ray_tracing_hooks._insight.views.page.content import strip, whole
from ray_tracing_hooks._insight.views.redaction import Redaction


def summary(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["summary", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def findings(run: HandMade, now: float | None = None) -> list[Finding]:
    return find(Analysis(run.table(now)))


def written(folder: Path, run: HandMade) -> str:
    """A file with the spans of a run."""
    path = folder / "spans.jsonl"
    path.write_bytes(run.as_json_lines())
    return str(path)


# --- what failed ------------------------------------------------------------------------------------------------------


def test_a_driver_that_failed_is_found(tmp_path: Path) -> None:
    """Once: the span of the program that passed its error on is within it."""
    run, driver = HandMade.driven(1000, error="ValueError")
    run.span("training", 10, 990, driver, error="ValueError")
    (finding,) = findings(run)
    assert (finding.kind, finding.is_failure, finding.cost(MS)) == ("failed-driver", True, "")
    assert finding.text == "the driver job.py failed: ValueError"
    assert Redaction(redact=["error.*"]).evidence(finding) == f"the driver job.py failed: {HIDDEN}"
    assert "the driver job.py failed" in summary(written(tmp_path, run), "--check", code=1).output


def test_what_is_within_a_failed_call_is_not_counted_again() -> None:
    run, driver = HandMade.driven(100)
    call = run.submit(driver, "work", 1)
    execution = run.run(call, 2, 50, error="ValueError")
    run.span("step", 3, 49, execution, error="ValueError", worker="w1")
    run.span("training ray.train", 60, 90, driver, error="ValueError")
    assert [finding.kind for finding in findings(run)] == ["errors"]
    assert "no failures" not in report.nothing_found(Analysis(run.table()))


def test_the_files_of_workers_alone_are_summarized(tmp_path: Path) -> None:
    """As those of a node that the driver is not on: what is known of their run is said, and what is not."""
    path = written(tmp_path, workers_alone())
    text = " ".join(summary(path).stdout.split())
    assert "a run with A.work took at least 23.0 ms" in text
    assert "no span of the driver, so the run may have begun before these spans, and may go on" in text
    assert "waiting was not recorded" in text
    document = json.loads(summary(path, "--json").stdout)
    assert document["run"]["state"] == "unknown"
    assert sum(each["share"] for each in document["time_split"]) == pytest.approx(1)


def test_no_step_is_outside_of_the_run() -> None:
    """Although the clock was set back: its dataset began before the driver did."""
    run, driver = HandMade.driven(1000, start=900)
    run.span("table ray.data", 0, 950, driver)
    path = Analysis(run.table()).path
    assert min(step.start for step in path.steps) == path.start
    assert sum(step.end - step.start for step in path.steps) == path.wall == 100 * MS


# --- real runs ----------------------------------------------------------------------------------------------------


def the_finding(name: str, kind: str, beside: Collection[str] = ()) -> Any:
    """The finding of this kind in a recorded run, which has no other findings but those ``beside`` it."""
    found = document(name)["findings"]
    assert [each["kind"] for each in found if each["kind"] not in beside] == [kind]
    return next(each for each in found if each["kind"] == kind)


PLANTED = [
    (
        "data_pipeline",
        "unrecorded",
        [
            "Ray Data was imported and its internal calls were not recorded, waiting was not recorded",
            "RAY_TRACING_RAY=+data shows what Ray Data does",
            "RAY_TRACING_RAY=+get,wait shows what callers wait for",
            "Inferred: waiting was not recorded",
        ],
    ),
    (
        "data_pipeline_internal",
        "bottleneck-actor",
        ["actor MapWorker(MapBatches(Embedder))#", "Partly inferred: waiting was recorded, but not always what it was"],
    ),
]
"""Faults of larger programs, planted by users. They were recorded on a busy machine."""


@pytest.mark.parametrize(("name", "kind", "said"), PLANTED)
def test_a_fault_in_a_larger_program_is_found(name: str, kind: str, said: list[str]) -> None:
    """A pipeline of Ray Data with one actor, recorded in two ways."""
    finding = the_finding(name, kind, beside={"worker-start"})
    assert finding["share"] > 0.05
    text = " ".join(summary(recorded(name)).stdout.split())
    for each in (finding["text"], *said):
        assert each in text


def test_the_example_of_flow_insight() -> None:
    """The actors by self time: the bottleneck first; ten calls queue at a child; its sleeps are not called queueing."""
    found = document("tree")
    bottleneck, other, root, *leaves = found["actors"]
    assert found["findings"][0]["about"]["actor_id"] == bottleneck["actor_id"]
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
    # What Serve, Ray Data and clients do by themselves is not traced: waiting for it is unexplained.
    known = {"serving": 0.4, "waiting_requests": 0.5, "data_pipeline": 0.3}
    least = -1 if path.startswith("llm_") else known.get(path.partition(".")[0], 0.99)
    assert found["critical_path"]["coverage"] > least
    # What ran at once: the mean times the length of the run is what all functions took of their own.
    seen, own = found["parallelism"], sum(each["self_ns"] for each in found["functions"])
    assert sum(seen["buckets"]) / 60 == pytest.approx(seen["average"], rel=0.05)
    assert seen["average"] * wall == pytest.approx(own, rel=0.02)
    assert seen["average"] <= seen["peak"]


def test_the_screen_is_one_screen() -> None:
    """Every section in its place, no line longer than a wide terminal, and not more than a screen of them."""
    text = summary(recorded("bottleneck")).stdout
    order = [
        "planted.py took",
        "Findings",
        "Where the",
        "Functions by self",
        "Actors by self",
        "Calls that ran at once",
        "Data:",
    ]
    assert sorted(order, key=text.index) == order
    lines = text.splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) <= 110
    assert re.search(r"^ +\d+ % +1\.\d\d s  #+ +Store\.update$", text, re.MULTILINE)
    assert re.search(r"^ 1\. Actor Store#\w+ is a bottleneck: at most 1\.\d\d s, 50 % of the run$", text, re.MULTILINE)
    assert "__main__" not in text


@pytest.mark.parametrize("name", sorted(name.partition(".")[0] for name in os.listdir(RECORDED)))
def test_a_run_ends_with_a_few_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first finding, the titles of others, and where the time went."""
    analysis = Analysis.corrected(load([recorded(name)]))
    found = find(analysis)
    print_summary(analysis, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 15
    assert [line for line in lines if line.startswith(" 1. ")] == [
        f" 1. {each.headline}" + (f": {cost}" if (cost := each.cost(analysis.path.wall)) else "") for each in found[:1]
    ]
    assert any(line.startswith("Where the ") for line in lines) or not analysis.path.coverage
    more = len(found) - sum(bool(re.match(r" \d+\. ", line)) for line in lines)
    assert any(line.startswith(f"    and {more} other finding") for line in lines) == (more > 0)


def test_each_finding_is_described() -> None:
    """So that who reads one knows how far to trust it."""
    for finder in FINDERS:
        said = re.findall(r"^ +([A-Z][\w ]+): ", finder.__doc__ or "", re.MULTILINE)
        assert said == ["Measures", "Threshold", "Looks the same", "Advice", "Needs"], finder


@pytest.mark.parametrize(("width", "colour"), [(80, ""), (100, "1"), (200, "")])
def test_a_terminal_shows_it_in_its_width_and_in_colour(width: int, colour: str) -> None:
    """The words are those of a pipe, tables have less room for names, and NO_COLOR leaves the colours out."""
    shown = in_terminal(width, "summary", recorded("bottleneck"), NO_COLOR=colour)
    plain = [STYLE.sub("", line) for line in shown]
    assert max(map(len, plain)) <= min(width, 110)
    assert ("\x1b[1m" in "".join(shown)) == (not colour)
    if colour:
        assert shown == plain
    piped = summary(recorded("bottleneck")).stdout.splitlines()
    if width > 110:
        assert plain == piped
    assert " ".join(plain).split() == " ".join(piped).split()
    (titles,) = (line for line in plain if "FUNCTION" in line)
    assert len(titles.split()) == 9, "all of the columns, one of two words"
    assert not any(line.endswith((" ", "\t")) for line in plain)


def test_a_table_has_less_room_for_names_before_it_has_less_columns() -> None:
    rows = list(aligned(("FUNCTION", "CALLS"), [("a_module.with_a_function_of_a_long_name", "1,000")]))
    assert [row.text(24) for row in rows] == [" FUNCTION          CALLS", " a_module…ng_name  1,000"]
    assert [row.text(80) for row in rows] == [
        f" {'FUNCTION':<39}  CALLS",
        " a_module.with_a_function_of_a_long_name  1,000",
    ]


def test_evidence_is_shown_on_request() -> None:
    """With -v the ids of spans that show a finding, and the path step by step."""
    text = summary(recorded("killed_worker"), "-v").stdout
    (finding,) = document("killed_worker")["findings"]
    assert f"killed-workers: spans {finding['evidence'][0]['span_id']}" in text
    assert re.search(r"retrying +crashes +after retry +" + finding["evidence"][0]["span_id"], text)


# --- which run ----------------------------------------------------------------------------------------------------


def test_of_several_runs_the_newest_is_shown(tmp_path: Path) -> None:
    """A folder collects runs. One that is asked for by its trace is shown instead."""
    several = ("pipeline_of_actors", "killed_worker", "bottleneck")
    for name in several:
        os.symlink(recorded(name), tmp_path / f"{name}.jsonl.gz")
    found = json.loads(summary(str(tmp_path), "--json").stdout)
    newest = max(several, key=lambda name: document(name)["run"]["start_unix_nano"])
    assert found["findings"] == document(newest)["findings"]
    assert (found["run"]["runs"], found["quality"]["files"]) == (3, 3)
    assert "newest of 3 runs" in summary(str(tmp_path)).stdout
    other = document("bottleneck")
    trace_id = other["findings"][0]["evidence"][0]["trace_id"]
    chosen = json.loads(summary(str(tmp_path), "--json", "--trace", trace_id[:12].upper()).stdout)
    assert chosen["findings"] == other["findings"]
    assert chosen["run"]["wall_ns"] == other["run"]["wall_ns"]


def test_the_driver_of_a_package_has_its_name(tmp_path: Path) -> None:
    """``__main__.py``, of ``python -m package``, is not a function of a script."""
    run = HandMade()
    driver = run.span("__main__.py ray.driver", 0, 100)
    run.get(driver, [run.task(driver, "__main__.work", 10, 11, 90)], 11, 91)
    path = tmp_path / "spans.jsonl"
    path.write_bytes(run.as_json_lines())
    shown = summary(str(path)).stdout
    assert "__main__.py took" in shown
    assert "__main__.work" not in shown


# --- runs made by hand --------------------------------------------------------------------------------------------


def test_a_hung_run_is_told_with_what_it_hangs_in() -> None:
    """The innermost call that runs, and not those that wait for it."""
    run, driver = HandMade.driven(None)
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 5, None, state="running")
    inner = run.submit(frame, "inner", 10, worker="w1")
    run.run(inner, 15, None, state="running", worker="w2")
    run.get(frame, [inner], 11, None, state="running", worker="w1")
    run.get(driver, [outer], 1, None, state="running")
    (finding,) = findings(run, now=60_000)
    assert finding.kind == "unfinished"
    assert "inner, for 1m 00s" in finding.text


def test_a_deadlock_is_the_reason_for_timeouts_of_its_own_time_alone() -> None:
    """The driver gives up, and Ray ends the actors with it. It has cost what the driver waited."""
    run, driver = HandMade.driven(3000)
    actor, other = run.actor(), run.actor()
    died: dict[str, Any] = {
        "state": "lost",
        "attributes": {names.RAY_END_ESTIMATED: True},
        "error": names.WORKER_DIED,
    }
    slow = run.submit(driver, "slow", 0)
    run.run(slow, 5, 3100, worker="w3")
    run.get(driver, [slow], 1, 1900, error="GetTimeoutError")
    first = run.submit(driver, "A.f", 2000, actor=actor)
    frame = run.run(first, 2005, 3010, worker="w1", **died)
    second = run.submit(frame, "B.g", 2010, actor=other, worker="w1")
    below = run.run(second, 2020, 3010, worker="w2", **died)
    third = run.submit(below, "A.h", 2030, actor=actor, worker="w2")
    run.get(below, [third], 2031, 3010, state="lost", worker="w2")
    run.get(frame, [second], 2011, 3010, state="lost", worker="w1")
    run.get(driver, [first], 2001, 2920, error="GetTimeoutError")
    found = {finding.kind: finding for finding in findings(run)}
    assert found["deadlock"].text == (
        "2 calls waited for each other in a cycle, a deadlock, until their processes died: A.f > B.g > A.f"
    )
    assert found["deadlock"].share == pytest.approx((2920 - 2020) / 3000)
    assert found["timed-out"].share == pytest.approx((1899 + 19) / 3000)


@pytest.mark.parametrize(("others", "circles"), [(0, 0), (1, 1), (2, 0)])
def test_an_actor_with_several_slots_is_in_a_deadlock_if_all_of_them_wait(others: int, circles: int) -> None:
    """Two slots, and a call that waits for another one to its own actor: the other slot is free, waits too, or runs."""
    run, driver = HandMade.driven(None)
    actor = run.actor()
    two = {"ray.max_concurrency": 2}
    waiting = 1 if others != 1 else 2
    for number in range(waiting):
        outer = run.submit(driver, "A.f", number, actor=actor)
        frame = run.run(outer, 5 + number, None, state="running", attributes=two)
        inner = run.submit(frame, "A.g", 20, actor=actor, worker="w1")
        run.get(frame, [inner], 21, None, state="running", worker="w1")
    if others == 2:
        run.run(run.submit(driver, "A.busy", 3, actor=actor), 9, None, state="running", attributes=two)
    assert bool(deadlocks(Calls(run.table(1000)))) == bool(circles)


def test_calls_that_have_ended_are_in_no_deadlock() -> None:
    """They seem to have waited for each other until one of them gave up."""
    run, driver = HandMade.driven(100)
    first = run.submit(driver, "A.f", 1, actor=run.actor())
    outer = run.run(first, 2, 90)
    second = run.submit(outer, "B.g", 3, actor=run.actor(), worker="w1")
    inner = run.run(second, 4, 90, worker="w2")
    run.get(outer, [second], 5, 90, worker="w1")
    run.get(inner, [first], 6, 90, worker="w2")
    run.get(driver, [first], 2, 95)
    analysis = Analysis(run.table())
    assert [finding for finding in find(analysis) if finding.kind == "unfinished"] == []


@pytest.mark.parametrize("message", ["", "ValueError: another one"])
def test_an_error_counts_once_where_it_was_raised(message: str) -> None:
    """With its way up to the driver; an error of a caller's own counts for itself."""
    run, driver = HandMade.driven(100, error="ValueError")
    parent = driver
    for number, function in enumerate(("outer", "middle", "inner")):
        call = run.submit(parent, function, 1 + number, worker=f"w{number}" if number else "driver")
        error = message if message and function == "middle" else "ValueError"
        parent = run.run(call, 2 + number, 90 - number, worker=f"w{number + 1}", error=error)
    (found,) = findings(run)
    if message:
        assert found.text.startswith("3 executions of outer and 2 other functions failed: ValueError x2, ValueError: ")
        assert found.text.endswith("; passed on by job.py")
    else:
        assert (
            found.text == "1 execution of inner failed: ValueError; not retried; passed on by middle, outer and job.py"
        )


def test_a_loop_is_found_where_waiting_was_not_recorded() -> None:
    """Each call is submitted when the one before it has ended; said to seem so."""
    run, driver = HandMade.driven(200)
    for number in range(9):
        run.task(driver, "f", 10 + 20 * number, 11 + 20 * number, 29 + 20 * number)
    (finding,) = findings(run)
    assert (finding.kind, finding.is_assumed) == ("get-in-loop", True)
    assert finding.text.startswith("it seems that job.py waits for each call of f before it makes the next: 9 calls")


def test_spans_of_ray_itself_are_read_as_what_they_mean(tmp_path: Path) -> None:
    """Ray's own tracing says the caller's task on a submission; a call is joined by its parent all the same."""
    run = HandMade()
    for number in range(3):
        run.task("", "f", 10 * number, 10 * number + 1, 10 * number + 8)
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
    os.symlink(recorded("pipeline_of_actors"), tmp_path / "pipeline_of_actors.jsonl.gz")
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


def test_a_node_that_is_slow_for_a_while_is_not_named() -> None:
    """Something else ran there then: calls of one run are not independent, however many of them took longer."""
    for slow_until, kinds in ((12, []), (24, ["slow-place"])):
        run, driver = HandMade.driven(1600)
        calls = []
        for number in range(48):
            start = 10.0 + number // 2 * 60
            is_slow = number % 2 and number // 2 < slow_until
            calls.append(run.submit(driver, "step", 0))
            run.run(calls[-1], start, start + (50 if is_slow else 40), worker=f"w{number % 2}", node=f"n{number % 2}")
        run.get(driver, calls, 1, 1500)
        assert [each.kind for each in findings(run)] == kinds


def test_how_long_an_accelerator_was_held_and_used() -> None:
    """An actor holds it from its creation to its last method; waits in between do not count as use."""
    run, driver = HandMade.driven(1000)
    actor = run.actor()
    both, one = {"ray.accelerator_ids": ["GPU:0", "GPU:1"]}, {"ray.accelerator_ids": ["GPU:1"]}
    run.run(run.submit(driver, "Trainer.__init__", 0, actor=actor), 100, 150, attributes=both)
    load = run.task(driver, "load", 200, 200, 500, worker="w2")
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
    run, driver = HandMade.driven(1000)
    for at, held in enumerate(("GPU:0", {"GPU": 1}, [None, 7], [], 5)):
        run.task(driver, "step", at, at, at + 100, attributes={"ray.accelerator_ids": held})
    assert [each.name for each in Analysis(run.table()).accelerators] == ["7", "None"]


def test_stragglers_that_share_a_node_say_so() -> None:
    """What the slow ones have in common, and the others have not."""
    run, driver = HandMade.driven(1000)
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


def test_a_straggler_among_a_few_calls_each_of_a_few_actors_is_named() -> None:
    """All of them are alike as long as no actor has enough calls to compare."""
    run, driver = HandMade.driven(3000)
    pool, calls = [run.actor() for _ in range(3)], []
    for number in range(13):
        calls.append(run.submit(driver, "Shard.query", 0, actor=pool[number // 6]))
        begun = 10 + 100 * (number % 6)
        run.run(calls[-1], begun, begun + (95 if number < 12 else 2000), worker=f"w{number // 6}")
    run.get(driver, calls, 1, 2011)
    (finding,) = (each for each in findings(run) if each.kind == "straggler")
    assert finding.text.startswith("1 call of Shard.query took 2.00 s, 21.1 times the median of 95.0 ms (13 calls)")


@pytest.mark.parametrize(("processing", "is_told"), [(100, True), (0, False)])
def test_to_take_results_as_they_become_ready_is_advice_only_where_work_is_left(
    processing: float, is_told: bool
) -> None:
    """The first call takes longest, so it cannot be started earlier; the others have ended when it does."""
    run, driver = HandMade.driven(6100 + 20 * processing)
    calls = [run.submit(driver, "f", 1 + number / 100) for number in range(20)]
    now = 5.0
    for number, call in enumerate(calls):
        run.run(call, 10, 210 if number else 6010, worker=f"w{number}")
    for call in calls:
        run.get(driver, [call], now, now := max(now, 6011))
        now += processing
    (finding,) = (each for each in findings(run) if each.kind == "straggler")
    assert ("with ray.wait" in finding.advice) == is_told
    assert ("ran for 2.00 s with them" in finding.text) == is_told
    assert "start it first" not in finding.advice


def test_calls_whose_times_vary_have_no_stragglers() -> None:
    run, driver = HandMade.driven(8000)
    calls = [run.submit(driver, "f", number / 100) for number in range(100)]
    for number, call in enumerate(calls):
        run.run(call, 10, 20 + (1000 if number % 4 == 0 else 10), worker=f"w{number}")
    run.get(driver, calls, 5, 1050)
    assert "straggler" not in {finding.kind for finding in findings(run)}


def over_places(slower: float, what: str) -> HandMade:
    """Four places with fifty calls each, of about 100 ms; those of the last one take longer by this factor."""
    run = HandMade()
    end = 10 + sum((95 + number % 11) * slower + 1 for number in range(50))
    driver = run.driver(0, end + 5)
    calls = []
    for place in range(4):
        actor = run.actor() if what == "actor" else ""
        start = 10.0
        for number in range(50):
            time = (95 + number % 11) * (slower if place == 3 else 1)
            call = run.submit(driver, "Shard.f", 1, actor=actor)
            held = {"ray.accelerator_ids": [f"GPU:{place}"]} if what == "accelerator" else {}
            node = f"n{place if what == 'node' else 1}"
            run.run(call, start, start + time, worker=f"w{place}", node=node, attributes=held)
            start += time + 1
            calls.append(call)
    run.get(driver, calls, 5, end)
    return run


@pytest.mark.parametrize(
    ("slower", "what", "is_named"),
    [
        (1.2, "node", True),
        (1.2, "accelerator", True),
        (1.03, "node", False),
        (1.2, "actor", False),
        (1.7, "actor", True),
    ],
)
def test_a_place_that_is_slower_than_its_peers_is_named(slower: float, what: str, is_named: bool) -> None:
    """A node by a fifth; an actor only by more, since each may have other data. Once, also if it is a bottleneck."""
    found = findings(over_places(slower, what))
    texts = [each.text for each in found if f"on {what} " in each.text]
    assert bool(texts) == is_named
    if is_named:
        assert len(found) == 1
        assert f"takes {99.5 * slower:.0f} ms on {what}" in texts[0]
        assert "99.5 ms elsewhere (medians of 50 calls and of 150)" in texts[0]


@pytest.mark.parametrize("seed", range(8))
def test_time_in_both_of_two_sets_of_intervals(seed: int) -> None:
    """Those of the first set may overlap, and count once."""
    chosen = random.Random(seed)
    one = [(start, start + chosen.randrange(8)) for start in chosen.choices(range(40), k=6)]
    cuts = sorted(chosen.sample(range(50), 8))
    other = list(zip(cuts[::2], cuts[1::2], strict=True))
    expected = sum(
        any(begin <= at < end for begin, end in one) and any(begin <= at < end for begin, end in other)
        for at in range(60)
    )
    assert in_both(one, other) == expected
    begins, ends = np.array(other).T
    assert sum(taken_by(begins, ends, *np.array([(at, at + 5) for at in range(0, 60, 5)]).T)) == sum(ends - begins)
    assert [*taken_by(begins, ends, *np.array(one).T)] == [in_both([each], other) for each in one]
    assert [*taken_by(*np.empty((2, 0), int), *np.array(one).T)] == [0] * len(one)


def closures(size: int) -> HandMade:
    """A function that is defined twice: the first call of each definition takes 1.2 s and 800 ms to submit."""
    run, driver = HandMade.driven(5000)
    took = {0: 1200, 5: 800}
    ends = {0: 10, 5: 1300}
    calls = [
        run.submit(
            driver,
            "f",
            ends.get(number, 3000 + number),
            took.get(number, 0.1),
            attributes={names.RAY_FUNCTION_SIZE: size} if number in took else {},
        )
        for number in range(10)
    ]
    for number, call in enumerate(calls):
        run.run(call, 3100 + number, 4000 + number, worker=f"w{number}")
    run.get(driver, calls, 3020, 4010)
    return run


def test_a_large_function_that_is_defined_for_each_call_is_no_large_argument() -> None:
    """Each of its submissions is slow, since each of them sends it."""
    run, driver = HandMade.driven(2000)
    large = {names.RAY_FUNCTION_SIZE: 20 << 20}
    calls = [run.submit(driver, "f", 10 + 100 * number, 90, attributes=large) for number in range(8)]
    for number, call in enumerate(calls):
        run.run(call, 102 + 100 * number, 103 + 100 * number)
    run.get(driver, calls, 900, 901)
    found = {finding.kind for finding in findings(run)}
    assert "large-closure" in found
    assert "large-arguments" not in found


@pytest.mark.parametrize("size", [None, 20 << 10])
def test_a_first_call_that_takes_long_by_itself_is_not_blamed_on_its_function(size: int | None) -> None:
    """Ray imports its modules with the first call of a process; spans of before have no sizes."""
    run = closures(size or 0)
    for span in run.spans:
        if size is None:
            span.attributes.pop(names.RAY_FUNCTION_SIZE, None)
    assert "large-closure" not in {finding.kind for finding in findings(run)}


def test_large_arguments_that_are_serialized_while_workers_start_cost_what_the_path_has_of_them() -> None:
    run, driver = HandMade.driven(4000)
    calls = [run.submit(driver, "f", 10 + 100 * number, 90) for number in range(10)]
    for number, call in enumerate(calls):
        run.run(call, 3000 + number, 3900 - number, worker=f"w{number}")
    run.started("w0", 20, 3000)
    run.get(driver, calls, 1001, 3901)
    found_kinds = {finding.kind: finding for finding in findings(run)}
    found, path = found_kinds["large-arguments"], Analysis(run.table()).path
    assert "900 ms in all" in found.text
    assert path.submitting["f"] == 90 * MS
    assert path.kinds["worker start"] == 2900 * MS
    assert found.share == pytest.approx((90 + 810) / 4000), "the rest of the start is not due to the arguments"
    start = found_kinds["worker-start"]
    assert start.share * path.wall == pytest.approx(path.kinds["worker start"] - 810 * MS), "what counts there does not"


def test_calls_with_large_arguments_wait_for_these_before_they_start() -> None:
    """So it is no wait for resources, unless Ray's task states say so."""
    run, driver = HandMade.driven(4000)
    calls = [run.submit(driver, "f", 10 + 100 * number, 90) for number in range(10)]
    for number, call in enumerate(calls):
        run.run(call, 3000 + number, 3900 - number, worker=f"w{number}")
        run.started(f"w{number}", -900, -100)
    run.get(driver, calls, 1001, 3901)
    found = {each.kind: each for each in findings(run)}
    assert "waiting-for-resources" not in found
    assert found["large-arguments"].share == pytest.approx((90 + 2900) / 4000)
    waited = {call.task: Queued(0, 2900 * MS, 0, 0) for call in calls}
    found = {each.kind: each for each in find(Analysis(run.table(), States(files=1, first={"": waited})))}
    assert "waiting-for-resources" in found
    assert found["large-arguments"].share == pytest.approx((90 + 810) / 4000)


def test_the_start_of_the_first_worker_is_not_blamed_on_a_loop() -> None:
    """Forty short calls between which the driver computes: only the first one took long, since its worker started."""
    run, driver = HandMade.driven(20_000)
    start = 10.0
    for number in range(40):
        ready = start + (10_000 if not number else 1)
        call = run.task(driver, "t", start, ready, ready + 10)
        run.get(driver, [call], start, ready + 11)
        start = ready + 211
    assert "get-in-loop" not in {finding.kind for finding in findings(run)}


@pytest.mark.parametrize("shape", ["circle", "attempts", "one actor", "creations", "gets", "no ends", "one start"])
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
        elif shape == "no ends":
            end = 0
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


def test_calls_that_were_given_few_names_are_told_apart_by_them() -> None:
    """Everywhere alike: functions, path, findings. Names that differ with each call make no groups."""
    run, driver = HandMade.driven(1000)
    calls = []
    for number in range(12):
        for function, name in (("step", ("load", "save")[number % 2]), ("trial", f"trial-{number}")):
            call = run.submit(driver, function, 0)
            run.run(call, 10 + 40 * number, 40 + 40 * number, worker=function, attributes={"ray.name": name})
            calls.append(call)
    plain = run.task(driver, "step", 0, 500, 560, worker="step")
    run.get(driver, [*calls, plain], 1, 561)
    analysis = Analysis(run.table())
    by_name = {function.name: function for function in analysis.functions}
    assert {name: function.calls for name, function in by_name.items()} == {
        'step "load"': 6,
        'step "save"': 6,
        "step": 1,
        "trial": 12,
    }
    assert set(analysis.path.functions) <= {*by_name, "job.py"}
    row = by_name["trial"].executions[3]
    assert analysis.calls.name_of(row) == "trial-3"
    assert analysis.table.attribute(row, "ray.name") == "trial-3"


LOOP = {"ray.asyncio": True, "ray.max_concurrency": 1000}


def test_a_method_that_blocks_after_it_waited_is_named_too() -> None:
    """All have begun; what comes meanwhile can begin only as one of them ends."""
    run, driver = HandMade.driven(1000)
    actor = run.actor()
    calls = [run.submit(driver, "Store.push", 10, actor=actor) for _ in range(6)]
    for number, call in enumerate(calls):
        run.run(call, 12 + number / 10, 112 + 100 * number, attributes=LOOP)
    for number in range(5):
        call = run.submit(driver, "Store.pull", 20 + 100 * number, actor=actor)
        run.run(call, 113 + 100 * number, 114 + 100 * number, attributes=LOOP)
        calls.append(call)
    run.get(driver, calls, 11, 613)
    (finding,) = findings(run)
    assert (finding.kind, finding.about["function"]) == ("blocked-event-loop", "Store.push")
    assert "5 calls waited for it" in finding.text


def test_a_new_actor_that_starts_its_first_calls_slowly_does_not_seem_blocked() -> None:
    """Until one of them has ended, it may still import; afterwards nothing but its calls can keep the loop."""
    for is_new in (True, False):
        run, driver = HandMade.driven(1200)
        actor = run.actor()
        calls = [run.submit(driver, "Store.fetch", 10, actor=actor) for _ in range(6)]
        if not is_new:
            calls.append(run.task(driver, "Store.fetch", 1, 2, 9, actor=actor, attributes=LOOP))
        for number, call in enumerate(calls[:6]):
            run.run(call, 12 + 60 * number, 1112 + number / 10, attributes=LOOP)
        run.get(driver, calls, 11, 1113)
        assert [finding.kind for finding in findings(run)] == ([] if is_new else ["blocked-event-loop"])


def test_a_call_that_waits_for_others_to_leave_its_event_loop_is_no_straggler() -> None:
    """Each blocks the loop for 99 ms. The last five have begun together, so the last of them has their time too."""
    run, driver = HandMade.driven(2200)
    actor = run.actor()
    calls = [run.submit(driver, "Store.push", 10, actor=actor) for _ in range(21)]
    for number, call in enumerate(calls):
        run.run(call, 12 + 100 * min(number, 16), 111 + 100 * number, attributes=LOOP)
    run.get(driver, calls, 11, 2112)
    assert [finding.kind for finding in findings(run)] == ["blocked-event-loop"]


def test_async_actors_that_wait_for_something_else_are_no_fault() -> None:
    """Calls that overlap, that come one at a time, that wait for arguments, for threads, or arrive late."""
    run, driver = HandMade.driven(3000)
    overlapping, sequential, fed, threads, late = (run.actor() for _ in range(5))
    slow = run.task(driver, "load", 0, 5, 500, worker="w9")
    calls = [slow]
    for number in range(8):
        calls.append(run.submit(driver, "A.f", 10, actor=overlapping))
        run.run(calls[-1], 12 + number, 112 + number, attributes=LOOP)
        calls.append(run.submit(driver, "B.f", 1000 + 100 * number, actor=sequential))
        run.run(calls[-1], 1002 + 100 * number, 1098 + 100 * number, attributes=LOOP)
        calls.append(run.submit(driver, "C.f", 10, actor=fed, arguments=[slow.object()]))
        run.run(calls[-1], 502 + 100 * number, 590 + 100 * number, attributes=LOOP)
        calls.append(run.submit(driver, "E.f", 10 + 100 * number, actor=late))
        run.run(calls[-1], 70 + 100 * number, 90 + 100 * number, attributes=LOOP)
    for number in range(4):
        calls.append(run.submit(driver, "D.f", 10, actor=threads))
        run.run(calls[-1], 12 + 100 * (number // 2), 111 + 100 * (number // 2), attributes={"ray.max_concurrency": 2})
    run.get(driver, calls, 2900, 2950)
    assert "blocked-event-loop" not in [finding.kind for finding in findings(run)]


@pytest.mark.parametrize(("actors", "saved"), [(1, None), (2, 0.45)])
def test_calls_of_one_actor_gain_nothing_by_being_made_ahead(actors: int, saved: float | None) -> None:
    """It runs them one at a time in any case; with two of them, half of the time could be saved."""
    run, driver = HandMade.driven(200)
    pool = [run.actor() for _ in range(actors)]
    for number in range(8):
        begun, actor = 10 + 20 * number, number % actors
        call = run.task(driver, "f", begun, begun, begun + 20, actor=pool[actor], worker=f"w{actor}")
        run.get(driver, [call], begun, begun + 20)
    found = {each.kind: each.share for each in findings(run)}
    assert found.get("get-in-loop") == (None if saved is None else pytest.approx(saved, abs=0.06))


@pytest.mark.parametrize(("is_needed", "is_named"), [(True, True), (False, False)])
def test_a_round_of_a_loop_may_be_several_calls_that_need_each_other(is_needed: bool, is_named: bool) -> None:
    """If the last does not need the others, they run beside it, and the caller has not waited for them."""
    run, driver = HandMade.driven(1_000)
    for begun in range(0, 1_000, 100):
        first = run.task(driver, "locate", begun, begun + 5, begun + 50)
        arguments = [first.object()] if is_needed else []
        last = run.task(driver, "rate", begun + 1, begun + 51, begun + 95, arguments=arguments)
        run.get(driver, [last], begun + 2, begun + 96)
    found = [each for each in findings(run) if each.kind == "get-in-loop"]
    assert bool(found) == is_named
    if is_named:
        assert "waits for each call of rate before it makes the next: 10 calls" in found[0].text
        assert found[0].share == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("takes", ["nothing", "the state", "what was made of it", "the state now and then"])
def test_rounds_that_take_results_of_those_before_are_no_loop(takes: str, is_recorded: bool) -> None:
    """Such as steps of a training: gradients of the state, and the next state from these."""
    run, driver = HandMade.driven(1_200, parts="actor,get,task,wait" if is_recorded else "actor,task")
    taken: list[str] = []
    for number, begun in enumerate(range(0, 1_200, 100)):
        arguments = taken if takes != "the state now and then" or number == 6 else []
        if takes == "what was made of it":
            grad = run.task(driver, "grad", begun, begun + 1, begun + 50, arguments=arguments)
            arguments = [grad.object()]
        state = run.task(driver, "step", begun, begun + 51, begun + 95, arguments=arguments)
        taken = [] if takes == "nothing" else [state.object()]
        if is_recorded:
            run.get(driver, [state], begun + 1, begun + 96)
    assert ("get-in-loop" in {each.kind for each in findings(run)}) == (takes in {"nothing", "the state now and then"})


def test_loops_of_several_callers_are_not_taken_for_one() -> None:
    """They may run at once, so the time of all is not that of the run."""
    run, driver = HandMade.driven(1000)
    outer = []
    for number in range(2):
        call = run.submit(driver, "step", 0)
        worker = f"w{number}"
        frame = run.run(call, 10, 700, worker=worker)
        for at in range(10, 610, 100):
            inner = run.task(frame, "push", at, at + 5, at + 95, worker=f"p{number}")
            run.get(frame, [inner], at + 1, at + 96, worker=worker)
        outer.append(call)
    run.get(driver, outer, 1, 701)
    (finding,) = (each for each in findings(run) if each.kind == "get-in-loop")
    assert "12 calls by 2 such callers, which may run at once, 95.0 ms each (median)" in finding.text


@pytest.mark.parametrize(("share", "found"), [(0.0, 10), (0.25, 15), (0.5, 25), (0.6, 30), (0.95, 40), (1.0, 40)])
def test_a_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle(share: float, found: int) -> None:
    """As `tree` has it: the same calls have the same median in all views."""
    assert percentile([10, 20, 30, 40], share) == found


def test_self_time_says_what_it_holds_of_async_methods() -> None:
    """They share a loop: what they await, and the turns of others, look like their own time."""
    for attributes, said in ((LOOP, "; for async methods, including whatever else they await"), ({}, "")):
        run, driver = HandMade.driven(1000)
        call = run.task(driver, "Store.push", 10, 12, 400, actor=run.actor(), attributes=attributes)
        run.get(driver, [call], 11, 401)
        assert recorded_words.own_time(Analysis(run.table())) == said


def test_waiting_for_resources_is_told_from_the_start_of_workers() -> None:
    """What was before the process was created, with who held what the call needs; by the states what it was for."""
    run, driver = HandMade.driven(7_500)
    holder = run.actor()
    cpu = {"ray.assigned_resources": '{"CPU": 1.0}'}
    calls = [
        run.task(driver, "Holder.__init__", 0, 5, 10, worker="w1", actor=holder, attributes=cpu),
        run.task(driver, "Holder.work", 0, 10, 6_000, worker="w1", actor=holder, attributes=cpu),
    ]
    blocked = run.task(driver, "blocked", 1, 6_000, 7_000, worker="w2", attributes=cpu)
    run.get(driver, [*calls, blocked], 1, 7_001)
    run.started("w1", -900, -100)
    run.started("w2", 5_100, 5_900)
    (finding,) = findings(run)
    assert (finding.kind, finding.is_assumed) == ("waiting-for-resources", True)
    assert finding.text.startswith("the run waited 5.10 s for 1 call of blocked to start: no worker process was")
    assert 'each needs {"CPU": 1.0}; Holder#' in finding.text
    assert "Ray's task states show whether calls waited for resources" in finding.advice
    states = States(files=1, first={"": {blocked.task: Queued(0, round(5_900 * MS), 0, 0)}})
    (finding,) = find(Analysis(run.table(), states))
    assert not finding.is_assumed
    assert "to start: no worker was assigned yet" in finding.text
    assert "see whether the resources are free" in finding.advice
    nothing = States(files=1, first={"": {blocked.task: Queued(0, 0, round(5_900 * MS), 0)}})
    assert find(Analysis(run.table(), nothing)) == [], "the states say that it was something else"


@pytest.mark.parametrize(
    ("needs", "at_once", "processors", "is_named"),
    [
        ('{"license": 1.0}', 1, 1, True),
        ('{"license": 1.0}', 2, 1, True),
        ('{"CPU": 3.0}', 1, 4, True),
        ('{"CPU": 3.0}', 2, 4, False),
        ('{"CPU": 1.0}', 1, 4, False),
        ('{"CPU": 1.0}', 2, 4, False),
        ('{"CPU": 1.0, "license": 1.0}', 1, 1, False),
        ('{"CPU": 1.0, "license": 1.0}', 1, 2, True),
        ('{"CPU": 1.0, "license": 1.0, "GPU": 1.0}', 1, 2, False),
        ('{"GPU": 1.0}', 1, 4, False),
    ],
)
def test_calls_that_wait_for_each_other_s_resources(needs: str, at_once: int, processors: int, is_named: bool) -> None:
    """Where only that one can be the reason: most programs use up their processors, and should."""
    run, driver = HandMade.driven(2_050)
    attributes = {"ray.assigned_resources": needs}
    calls = []
    for number in range(10 * at_once):
        calls.append(run.submit(driver, "licensed", 1 + number / 100))
        start = 10 + 200 * (number // at_once)
        run.run(calls[-1], start, start + 199, worker=f"w{number % at_once}", attributes=attributes)
    run.get(driver, calls, 2, 2_010)
    for span in run.spans:
        span.resource[names.RESOURCE_PROCESSORS] = processors
    found = findings(run)
    assert [each.kind for each in found] == (["waiting-for-resources"] if is_named else [])
    if is_named:
        assert found[0].is_assumed
        assert found[0].share == pytest.approx(1_800 / 2_050, abs=0.01)
        assert f"each needs {needs}" in found[0].text


def test_a_worker_that_may_still_store_a_result_does_not_wait_for_resources() -> None:
    """Ray's task states say how long it stored that; the results come slowly then, also where they are fetched."""
    run, driver = HandMade.driven(8_000)
    calls = [run.submit(driver, "load", 1), run.submit(driver, "load", 1)]
    run.run(calls[0], 10, 1_000, worker="w1")
    run.run(calls[1], 4_000, 5_000, worker="w1")
    run.get(driver, calls, 2, 7_900)
    run.spans[-1].attributes[names.RAY_OBJECT_SIZE] = 3 << 20
    run.started("w1", -900, -100)
    (finding,) = findings(run)
    assert finding.kind == "slow-results"
    assert finding.share == pytest.approx(2_900 / 8_000)
    at = START + 10 * MS, START + 3_800 * MS
    states = States(
        files=1, first={"": {call.task: Queued(0, 0, 0, 0) for call in calls}}, ran={"": {calls[0].task: at}}
    )
    (finding,) = find(Analysis(run.table(), states))
    assert finding.share == pytest.approx((2_900 + 2_800) / 8_000)
    assert "5.70 s after the code of load had ended" in finding.text
    assert "2.80 s of that for its workers, which also free arguments" in finding.text
    assert "at once" not in finding.text  # of what the worker stored, the size is not known


@pytest.mark.parametrize(("name", "is_named"), [("job.py", True), ("jobs.nightly", True), ("analysis.ipynb", False)])
def test_the_code_of_a_program_after_its_last_result_counts(name: str, is_named: bool) -> None:
    """That of a notebook may be no code: it idles."""
    run = HandMade()
    driver = run.span(f"{name} ray.driver", 0, 2_000)
    run.parts = "task,actor,get,wait"
    run.get(driver, [run.task(driver, "t", 0, 1, 500)], 1, 501)
    run.spans[0].resource[names.RESOURCE_PARTS] = run.parts
    assert [finding.kind for finding in findings(run)] == (["driver-code"] if is_named else [])


@pytest.mark.parametrize(
    ("busy", "last", "is_named"),
    [(10, 5_020, True), (3_000, 5_020, False), (10, 1_000, False)],
    ids=["idle", "busy", "perhaps gone"],
)
@pytest.mark.parametrize("others", ["", ', "GPU": 1.0, "memory": 1000000000.0'])
def test_idle_actors_hold_what_calls_wait_for_in_turn(busy: int, last: int, is_named: bool, others: str) -> None:
    """Only actors whose later calls show that they were there all the time, and only as many CPUs as they held."""
    run, driver = HandMade.driven(5_050)
    cpu = {"ray.assigned_resources": '{"CPU": 1.0}'}
    held = {"ray.assigned_resources": f'{{"CPU": 1.0{others}}}'}
    calls = []
    for number in range(3):
        actor = run.actor()
        run.task(driver, "Table.load", 0, 1, busy, worker=f"a{number}", actor=actor, attributes=held)
        run.task(driver, "Table.size", 3, last, last + 1, worker=f"a{number}", actor=actor, attributes=held)
    for number in range(10):
        calls.append(run.submit(driver, "work", 1 + number / 100))
        run.run(calls[-1], 10 + 500 * number, 500 + 500 * number, worker="w1", attributes=cpu)
    run.get(driver, calls, 3.5, 5_010)
    found = [each for each in findings(run) if each.kind == "waiting-for-resources"]
    assert bool(found) == is_named
    if is_named:
        assert found[0].share == pytest.approx(4_500 * 3 / 4 / 5_050, abs=0.01)
        assert "tasks held up to 1 CPU most of the time" in found[0].text
        assert "held 3, and ran < 1 % of the time" in found[0].text


@pytest.mark.parametrize(
    ("processors", "starts", "is_named", "is_assumed"),
    [(2, 900, True, False), (16, 900, True, True), (2, 4_900, False, False)],
    ids=["used up", "more processors", "a worker starts"],
)
def test_idle_actors_are_the_reason_where_nothing_else_is(
    processors: int, starts: int, is_named: bool, is_assumed: bool
) -> None:
    """With processors left, they are so only if Ray was started with fewer CPUs, which is not recorded."""
    run, driver = HandMade.driven(5_050)
    cpu = {"ray.assigned_resources": '{"CPU": 1.0}'}
    actor = run.actor()
    for function, start, end in (("Table.load", 1, 10), ("Table.size", 5_020, 5_021)):
        run.task(driver, function, 0, start, end, worker="a", actor=actor, attributes=cpu)
    calls = [run.submit(driver, "work", 1 + number / 100) for number in range(10)]
    for number, call in enumerate(calls):
        run.run(call, 10 + 500 * number, 500 + 500 * number, worker="w", attributes=cpu)
    run.get(driver, calls, 3.5, 5_010)
    run.run(run.submit(driver, "late", 2), 5_011, 5_012, worker="l", attributes=cpu)
    run.started("w", -900, -100, processors=processors)
    run.started("l", 500, starts, processors=processors)
    found = [each for each in findings(run) if each.kind == "waiting-for-resources"]
    assert bool(found) == is_named
    if is_named:
        assert found[0].is_assumed == is_assumed
        assert found[0].text.startswith("it seems that") == is_assumed
        assert found[0].share == pytest.approx(4_500 / 2 / 5_050, abs=0.01)


@pytest.mark.parametrize(
    ("others", "takes"),
    [("", ""), (', "GPU": 0.5', ""), (', "memory": 1000000000.0', ""), ("", "the one before"), ("", "another")],
)
def test_few_calls_under_way_are_too_few_only_if_they_need_nothing_but_processors(others: str, takes: str) -> None:
    """Four tasks have run at once, then two of sixteen do, which may take what those before them have made."""
    run, driver = HandMade.driven(4_100, parts="actor,get,task,wait")
    cpu = {"ray.assigned_resources": '{"CPU": 1.0}'}
    first = [run.task(driver, "first", 0, 1, 300, worker=f"w{number}", attributes=cpu) for number in range(4)]
    run.get(driver, first, 1, 301)
    objects: list[list[str]] = [[], []]
    for begin in range(310, 3_510, 400):
        calls = [run.submit(driver, "few", begin, arguments=objects[number]) for number in range(2)]
        if takes:
            made = [
                run.task(driver, "other", begin, begin + 390, begin + 391, worker="o", arguments=[each.object()])
                if takes == "another"
                else each
                for each in calls
            ]
            objects = [[each.object()] for each in made]
        for number, call in enumerate(calls):
            needs = {"ray.assigned_resources": f'{{"CPU": 1.0{others}}}'}
            run.run(call, begin + 1, begin + 390, worker=f"w{number}", attributes=needs)
        run.get(driver, calls, begin + 1, begin + 391)
    found = {each.kind: each for each in findings(run)}
    is_named = not others and not takes
    assert ("few-at-once" in found) == is_named
    if is_named:
        assert found["few-at-once"].share == pytest.approx(8 * 389 / 2 / 4_100, abs=0.01)


def test_tiny_calls_that_wait_for_each_other_do_not_wait_for_resources() -> None:
    """More resources do not help where Ray takes longer for each call than its code."""
    run, driver = HandMade.driven(5_000)
    calls = [run.submit(driver, "parse", 1 + number / 100) for number in range(200)]
    for number, call in enumerate(calls):
        run.run(call, 100 + 20 * number, 100.1 + 20 * number, worker=f"w{number % 2}")
    run.get(driver, calls, 4, 4_981)
    for worker in ("w0", "w1"):
        run.started(worker, -900, -100)
    assert [finding.kind for finding in findings(run)] == ["tiny-tasks"]


@pytest.mark.parametrize("is_dead", [False, True])
def test_idle_actors_may_hold_what_calls_wait_for(is_dead: bool) -> None:
    """Their calls end long before that; whether their processes did is not recorded, unless they died."""
    run, driver = HandMade.driven(10_000)
    idle = run.actor()
    cpu = {"ray.assigned_resources": '{"CPU": 1.0}'}
    created = run.submit(driver, "Idle.__init__", 0, actor=idle)
    death = {"state": "lost", "attributes": cpu | {names.RAY_END_ESTIMATED: True}, "error": names.WORKER_DIED}
    run.run(created, 5, 10, worker="w1", **(death if is_dead else {"attributes": cpu}))
    blocked = run.task(driver, "blocked", 20, 6_000, 7_000, worker="w2", attributes=cpu)
    run.get(driver, [blocked], 21, 7_001)
    run.started("w1", -900, -100)
    run.started("w2", -900, -100)
    (finding,) = (each for each in findings(run) if each.kind == "waiting-for-resources")
    assert ("had been created before, and held some of these unless they had ended" in finding.text) == (not is_dead)


def test_the_loading_of_a_large_function_belongs_to_that_function() -> None:
    run, driver = HandMade.driven(8_000)
    call = run.submit(driver, "infer", 1, 999, attributes={names.RAY_FUNCTION_SIZE: 100 << 20})
    run.run(call, 5_000, 7_000, worker="w1")
    run.get(driver, [call], 1_001, 7_001)
    ran = {call.task: (START + 3_000 * MS, START + 7_000 * MS)}
    states = States(files=1, first={"": {call.task: Queued(0, 2_000 * MS, 0, 0)}}, ran={"": ran})
    found = {each.kind: each for each in find(Analysis(run.table(), states))}
    assert "slow-loading" not in found
    assert found["large-closure"].share == pytest.approx((999 + 2_000) / 8_000)


def test_code_that_a_worker_loads_before_a_call_starts_is_a_finding() -> None:
    """As far as the run waited for it. Without Ray's task states, or if they are of another attempt, nobody knows."""
    run, driver = HandMade.driven(8_000)
    call = run.task(driver, "infer", 1, 5_000, 7_000, worker="w1")
    run.get(driver, [call], 2, 7_001)

    def known(until: int) -> States:
        ran = {call.task: (START + 3_000 * MS, START + until * MS)}
        return States(files=1, first={"": {call.task: Queued(0, 3_000 * MS, 0, 0)}}, ran={"": ran})

    (finding,) = (each for each in find(Analysis(run.table(), known(7_000))) if each.kind == "slow-loading")
    assert finding.text == "the run waited 2.00 s while workers loaded the code and the arguments of 1 call of infer"
    assert finding.share == pytest.approx(0.25)
    run.started("w1", -900, -100)
    others = {each.kind: each for each in find(Analysis(run.table(), known(7_000)))}
    assert others["waiting-for-resources"].share == pytest.approx(2_999 / 8_000), "until the worker had the call"
    for states in (known(4_000), States()):
        assert "slow-loading" not in {each.kind for each in find(Analysis(run.table(), states))}


@pytest.mark.parametrize("arguments", ["", '(17, lr=0.1, key="a long secret")'])
def test_a_straggler_is_told_with_what_makes_it_one(arguments: str) -> None:
    """Its name, its node, and its arguments; where these are not recorded the advice names the setting."""
    run, driver = HandMade.driven(2100)
    calls = []
    for number in range(12):
        call = run.submit(driver, "trial", 0)
        more = {"ray.name": f"trial-{number}"} | ({"ray.arguments": arguments} if arguments else {})
        is_slow = number == 7
        node = "abcdef0123" if is_slow else "n1"
        run.run(call, 10, 2000 if is_slow else 110, attributes=more, worker=f"w{number}", node=node)
        calls.append(call)
    run.get(driver, calls, 1, 2001)
    (finding,) = findings(run)
    assert finding.kind == "straggler"
    assert ', named "trial-7", on node abcdef01; the run waited' in finding.text
    assert (f"arguments of the longest: {arguments}" in finding.text) == bool(arguments)
    assert ("RAY_TRACING_ARGUMENTS=1" in finding.advice) != bool(arguments)
    shown = [report.described([finding], int, redaction, 2100 * MS)[0] for redaction in (Redaction(), HIDING)]
    assert (shown[0]["title"], shown[0]["text"]) == ("1 straggler of trial", finding.text)
    assert shown[0]["cost"] == "at most 1.89 s, 90 % of the run"
    assert not arguments or arguments not in shown[1]["text"]


HIDING = Redaction(redact=["ray.arguments"])


# --- what was not recorded ----------------------------------------------------------------------------------------


def test_a_driver_without_calls_is_not_called_explained(tmp_path: Path) -> None:
    """One span, and nothing known of waiting: no view says that all is explained, exact, or that nothing stands out."""
    run = HandMade()
    run.parts = "actor,job,serve,task"
    run.driver(0, 29_000, attributes={names.RAY_LIBRARIES: ["data", "serve"]})
    analysis = Analysis(run.table())
    (finding,) = find(analysis)
    assert (finding.kind, finding.share) == ("unrecorded", 1.0)
    assert finding.text == (
        "no span explains 29.0 s of job.py (100 % of the run): Ray Data was imported and its internal calls were "
        "not recorded, waiting was not recorded"
    )
    assert finding.advice == (
        "RAY_TRACING_RAY=+data shows what Ray Data does; RAY_TRACING_RAY=+get,wait shows what callers wait for"
    )
    assert "The critical path explains 0 % of the time." in report.quality(analysis)
    assert (analysis.path.is_exact, analysis.path.coverage) == (False, 0)
    assert summaries.document(analysis)["mode"] == "inferred"


@pytest.mark.parametrize(
    ("parts", "mode", "words"),
    [
        ("actor,get,task,wait", "exact", "waiting was recorded"),
        ("actor,get,task", "inferred", "waiting was not recorded, so what callers waited for is assumed"),
        ("actor,task", "inferred", "waiting was not recorded, so what callers waited for is assumed"),
    ],
)
def test_all_views_say_the_same_of_waiting(parts: str, mode: str, words: str, tmp_path: Path) -> None:
    """What processes say that they record decides, in the same words on the page and on the screen."""
    run, driver = HandMade.driven(100, parts=parts)
    run.task(driver, "f", 1, 5, 95)
    (tmp_path / "a.jsonl").write_bytes(run.as_json_lines())
    text = " ".join(summary(str(tmp_path)).stdout.split())
    assert json.loads(summary(str(tmp_path), "--json").stdout)["mode"] == mode
    analysis = Analysis(run.table())
    sentence = recorded_words.certainty(analysis.calls, analysis.path)
    assert words in sentence
    assert sentence in report.critical_path(analysis, lambda _: -1, lambda _: -1)["about"]
    assert sentence in text
    assert recorded_words.waiting(analysis.calls) in text
    (line,) = [each for each in report.quality(analysis) if "aiting" in each]
    assert words in line.lower()
    nothing = recorded_words.gaps(analysis)
    assert f"Findings: none{nothing}" in text
    assert f"Nothing stands out{nothing}: " in report.nothing_found(analysis)
    assert (mode == "exact") == (nothing == "")
    assert (mode == "exact") == (recorded_words.ran(analysis.calls) == "not counting waits in ray.get")


def test_calls_of_libraries_that_made_no_spans_are_told() -> None:
    """Objects of unknown tasks that were waited for show that there were some."""
    run, driver = HandMade.driven(100, parts="actor,get,task,wait")
    unseen = [f"{number:016x}" + "f" * 24 + "01000000" + "01000000" for number in (7, 8)]
    run.wait(driver, unseen, 1, 90, ready=unseen)
    (finding,) = findings(run)
    assert finding.text.endswith("2 objects that the run waited for came from calls without spans")
    assert finding.advice == "RAY_TRACING_INTERNAL=1 shows the tasks and actors of Ray's libraries"


def test_requests_beside_a_driver_that_waits_for_them_are_named() -> None:
    """A program that serves has a trace in which nothing happens, and one for each request."""
    run = HandMade()
    run.parts = "actor,serve,task"
    run.driver(0, 100)
    for number, took in ((2, 10), (3, 30), (4, 20)):
        trace = number << 96
        root = run.span("GET /", 20, 20 + took, kind=SERVER, worker="proxy", trace=trace)
        run.span("Shop.__call__ serve.replica", 23, 19 + took, root, kind=CONSUMER, worker="shop", trace=trace)
    (finding,) = findings(run)
    assert finding.text == (
        "no span explains 100 ms of job.py (100 % of the run): 3 requests are traces of their own, waiting was not "
        "recorded"
    )
    assert finding.advice == (
        "ray-tracing-hooks summary --trace 00000003 shows where the time of the slowest request went; "
        "RAY_TRACING_RAY=+get,wait shows what callers wait for"
    )


RECORDS_WAITS = "actor,get,task,wait"


def nested(run: HandMade, outer: list[float], inner: float = 0.0) -> None:
    """Calls of a function for these milliseconds each, one after the other; each makes a call that runs for ``inner``
    less than it does, if that is anything.
    """
    driver = run.driver(0, sum(outer) + 10 * len(outer) + 10)
    at = 5.0
    for took in outer:
        call = run.submit(driver, "outer", at)
        frame = run.run(call, at + 1, at + 1 + took)
        if inner:
            child = run.submit(frame, "inner", at + 1, worker="w1")
            run.run(child, at + 1, at + 1 + took - inner, worker="w2")
        if run.parts == RECORDS_WAITS:
            run.get(driver, [call], at, at + 1 + took)
        at += took + 10


@pytest.mark.parametrize(("parts", "is_assumed"), [(RECORDS_WAITS, False), ("actor,task", True)])
def test_time_that_is_only_taken_for_waiting_is_not_called_waiting(parts: str, is_assumed: bool) -> None:
    """Where waiting was not recorded, a call may have run while calls of its own did."""
    run = HandMade()
    run.parts = parts
    nested(run, [100.0] * 3, inner=10)
    analysis = Analysis(run.table())
    of = {function.name: function for function in analysis.functions}
    assert (of["outer"].is_assumed, of["inner"].is_assumed) == (is_assumed, False)
    said = "; where waiting was not recorded, the time in which calls of theirs ran counts as waiting"
    assert recorded_words.own_time(analysis) == (said if is_assumed else "")
    more = "more may have waited for calls of their own" if is_assumed else ""
    assert recorded_words.at_once(analysis).partition("; ")[2].partition(" ")[2] == more
    (document,) = [each for each in summaries.document(analysis)["functions"] if each["function"] == "outer"]
    assert document["is_assumed"] == is_assumed


@pytest.mark.parametrize(("parts", "words"), [(RECORDS_WAITS, "1 call of outer"), ("task", "it seems that 1 call of")])
def test_a_straggler_by_assumed_times_only_seems_to_be_one(parts: str, words: str) -> None:
    run = HandMade()
    run.parts = parts
    nested(run, [*[100.0] * 9, 2000.0])
    frame = next(span for span in run.spans if span.name == "outer ray.remote_worker")
    child = run.submit(frame.span_id, "inner", 10, worker="w1")
    run.run(child, 10, 20, worker="w2")
    (finding,) = [each for each in findings(run) if each.kind == "straggler"]
    assert finding.text.startswith(words)
    assert finding.is_assumed == (parts != RECORDS_WAITS)


def test_many_calls_of_which_none_has_run_yet() -> None:
    """They wait for resources, or what has run them is on another node."""
    run, driver = HandMade.driven(100)
    for number in range(200):
        run.submit(driver, "waits", number / 4, took=0.2)
    assert "tiny-tasks" not in [finding.kind for finding in findings(run)]


def test_a_call_is_not_tiny_because_a_call_of_its_own_ran_meanwhile() -> None:
    for parts in (RECORDS_WAITS, "actor,task"):
        run = HandMade()
        run.parts = parts
        nested(run, [5.0] * 120, inner=0.9)
        assert "tiny-tasks" not in [finding.kind for finding in findings(run)]


@pytest.mark.parametrize("parts", [RECORDS_WAITS, "actor,task"])
def test_workers_only_seem_to_wait_for_a_driver_whose_waits_were_not_recorded(parts: str) -> None:
    run, driver = HandMade.driven(1000, parts=parts)
    for number in range(10):
        run.task(driver, "work", 90 * (number + 1), 90 * (number + 1) + 1, 90 * (number + 1) + 11)
    (finding,) = [each for each in findings(run) if each.kind == "serial-driver"]
    assert finding.is_assumed == (parts != RECORDS_WAITS)
    assert finding.text.startswith("it seems that job.py runs its own code" if finding.is_assumed else "job.py runs")


def test_calls_that_a_rate_limit_left_out_are_said_wherever_completeness_is(tmp_path: Path) -> None:
    run, driver = HandMade.driven(100, attributes={names.RAY_LEFT_OUT: 30}, parts=RECORDS_WAITS)
    call = run.task(driver, "f", 1, 2, 90, attributes={names.RAY_LEFT_OUT: 12})
    run.get(driver, [call], 1, 91)
    analysis = Analysis(run.table())
    words = "a rate limit left out the spans of 42 calls"
    assert recorded_words.certainty(analysis.calls, analysis.path) == (
        f"Partly inferred: waiting was recorded, but {words}."
    )
    assert words in report.nothing_found(analysis)
    assert f"{words[:1].upper()}{words[1:]}." in report.quality(analysis)
    text = " ".join(summary(written(tmp_path, run)).output.split())
    assert text.count(words) == 3
    assert "Exact" not in text
    document = summaries.document(analysis)
    assert (document["mode"], document["quality"]["left_out"]) == ("inferred", 42)


def test_of_traces_that_were_not_sampled_nothing_is_exact_and_only_failures_are_found(tmp_path: Path) -> None:
    """Calls that neither failed nor were slow are missing: what the others cost, and what held them, is not known."""
    runs = {reason: HandMade() for reason in ("", "error")}
    for reason, run in runs.items():
        run.parts = RECORDS_WAITS
        kept = {names.RAY_SAMPLING_REASON: reason} if reason else {}
        driver = run.driver(0, 10_000, attributes=kept)
        for number in range(9):
            call = run.submit(driver, "f", 1000 * number, attributes=kept)
            run.run(call, 1000 * number + 1, 1000 * number + 900, attributes=kept)
            run.get(driver, [call], 1000 * number + 1, 1000 * number + 901)
        failed = run.submit(driver, "g", 9000, attributes=kept)
        run.run(failed, 9001, 9002, error="ValueError", attributes=kept)
        run.get(driver, [failed], 9001, 9003)
    whole, partial = (Analysis(run.table()) for run in runs.values())
    assert whole.path.is_exact
    assert not partial.path.is_exact
    assert {finding.kind for finding in find(whole)} > {finding.kind for finding in find(partial)} == {"errors"}
    assert {finding.share for finding in find(partial)} == {0}
    words = "of traces that were not sampled, only spans that failed or were slow were recorded"
    assert recorded_words.certainty(partial.calls, partial.path) == (
        f"Partly inferred: waiting was recorded, but {words}."
    )
    text = " ".join(summary(written(tmp_path, runs["error"])).output.split())
    assert text.count(words) == 2
    assert "Exact" not in text
    assert "Calls that ran at once" not in text
    document = summaries.document(partial)
    assert (document["mode"], document["quality"]["unsampled"]) == ("inferred", 21)


@pytest.mark.parametrize(
    ("parts", "count", "expected"),
    [
        (RECORDS_WAITS, 1, "Partly inferred: waiting was recorded, but {}."),
        (RECORDS_WAITS, 100, "Partly inferred: waiting was recorded, but not always what it was for and {}."),
        ("actor,task", 1, "Inferred: waiting was not recorded, so what callers waited for is assumed (RAY_TR"),
        ("actor,task", 1, "; {}."),
    ],
)
def test_a_path_says_both_what_was_left_out_and_what_is_assumed(parts: str, count: int, expected: str) -> None:
    """What a wait was for is not known of all if it was for more objects than its span lists."""
    run, driver = HandMade.driven(100, attributes={names.RAY_LEFT_OUT: 3}, parts=parts)
    call = run.task(driver, "f", 1, 2, 90)
    run.get(driver, [call] if count == 1 else [], 1, 91)
    run.spans[-1].attributes[names.RAY_OBJECT_COUNT] = count
    analysis = Analysis(run.table())
    said = recorded_words.certainty(analysis.calls, analysis.path)
    assert expected.format("a rate limit left out the spans of 3 calls") in said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, ""),
        (0.001, "less than 1 % of the run"),
        (0.5, "at most 5.00 s, 50 % of the run"),
        (0.9951, "at most 9.95 s, nearly all of the run"),
        (1.0, "at most 10.0 s, 100 % of the run"),
    ],
)
def test_what_a_finding_costs_is_said_in_words_that_fit(share: float, said: str) -> None:
    assert Finding("errors", "", "", share, [], title="").cost(10_000 * MS) == said


def test_what_is_not_explained_is_not_called_exact(tmp_path: Path) -> None:
    """The files of a node are missing: the calls that ran there have no execution."""
    run, driver = HandMade.driven(1000, parts=RECORDS_WAITS)
    call = run.submit(driver, "f", 10)
    run.get(driver, [call], 11, 999)
    analysis = Analysis(run.table())
    (finding,) = find(analysis)
    assert finding.kind == "unrecorded"
    assert "1 call has no span of its execution" in finding.text
    assert "Exact:" not in recorded_words.certainty(analysis.calls, analysis.path)
    assert "1 call without execution." in report.quality(analysis)
    assert "Exact: " not in summary(written(tmp_path, run)).output


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "0 %"), (0.001, "< 1 %"), (0.5, "50 %"), (0.9951, "> 99 %"), (1.0, "100 %")]
)
def test_a_share_is_all_or_nothing_only_if_it_is(share: float, said: str) -> None:
    assert percent(share) == said


def test_notes_on_the_data_say_whether_they_are_of_all_runs(tmp_path: Path) -> None:
    run = HandMade()
    run.session = "session_1"
    run.driver(0, 100)
    alone = summary(written(tmp_path, run)).stdout
    assert "Data: 1 span in 1 file; waiting" in alone
    run.session = "session_2"
    run.span("job.py ray.driver", -500, None, node="n2", trace=2, state="lost")
    text = " ".join(summary(written(tmp_path, run)).stdout.split())
    assert "Data of all runs that were read: 2 spans in 1 file; 1 span without an end" in text
    assert "Of this run: waiting was not recorded" in text
    assert any(line.startswith("All this is for all runs") for line in report.quality(Analysis(load_newest(tmp_path))))


def runs_of(run: HandMade) -> list[list[str]]:
    """The names of the spans of each run, the newest run first."""
    table = run.table()
    return [sorted(table.name_of(row) for row in found.rows) for found in runs(table)]


def test_spans_without_a_session_are_of_one_run_if_they_have_nodes_in_common() -> None:
    """Ray's own tracing names no session, and the jobs of all clusters have the same ids."""
    run = HandMade()
    driver = run.span("a1", 0, 10, node="n1")
    run.span("a2", 1, 9, driver, node="n2", worker="w2")
    run.span("b", 20, 30, node="n2", worker="w2", trace=2)
    run.span("c", 40, 50, node="n9", trace=3)
    assert runs_of(run) == [["c"], ["a1", "a2", "b"]]


def test_a_trace_is_of_the_session_that_any_of_its_spans_names() -> None:
    """The driver of a Ray Client may not know it."""
    run = HandMade()
    first = run.span("client", 0, 10, worker="driver")
    run.session = "session_1"
    run.span("work", 1, 9, first, worker="w1")
    run.span("more", 20, 30, worker="w1", trace=2)
    assert runs_of(run) == [["client", "more", "work"]]


@pytest.mark.parametrize("job", ["01000000", "02000000"], ids=["of one job", "of two jobs"])
def test_a_trace_of_the_programs_own_spans_is_of_the_job_of_its_process(job: str) -> None:
    """Such as of a loop of an actor, whose spans name no job. If the process has had several, it is unknown which."""
    run = HandMade()
    run.session = "session_1"
    run.span("call", 0, 10, worker="w1")
    run.span("own", 20, 30, worker="w1", trace=2, attributes={"ray.job_id": ""})
    run.span("later", 40, 50, worker="w1", trace=3, attributes={"ray.job_id": job})
    assert runs_of(run) == ([["call", "later", "own"]] if job == "01000000" else [["later"], ["own"], ["call"]])


def load_newest(folder: Path) -> Table:
    table = load([str(folder / "spans.jsonl")])
    return part_of(table, runs(table)[0])


def test_of_several_drivers_a_page_says_which_one_its_path_is_of() -> None:
    run = HandMade()
    run.driver(0, 100)
    said = "There are 2 drivers: the critical path, the split of the time and the shares of findings are of the one"
    assert not any("drivers" in line for line in report.quality(Analysis(run.table())))
    run.driver(200, 300, trace=2)
    assert any(line.startswith(said) for line in report.quality(Analysis(run.table())))


def test_a_death_that_was_not_recorded_is_not_called_one() -> None:
    """Other tools may write a span without an end. Workers without an id are told apart by their process."""
    for attributes, title, said in (
        ({names.RAY_END_ESTIMATED: True}, "f lost workers", "2 workers died while running f"),
        ({}, "f never ended", "2 executions of f never ended, so their workers may have died"),
    ):
        run, driver = HandMade.driven(100)
        for number in range(2):
            run.task(driver, "f", 1, 2, None, state="lost", node=f"n{number}", worker="", attributes=attributes)
        (finding,) = [each for each in findings(run) if each.kind == "killed-workers"]
        assert (finding.title, finding.text) == (title, f"{said}; none was retried")


LOG = "look for the cause in the worker's log"
UNKNOWN = f"{LOG}; if it ran out of memory, run fewer such tasks per node"


@pytest.mark.parametrize(
    ("cause", "said", "advice"),
    [
        ("worker died", "1 worker died while running f; not retried", UNKNOWN),
        ("worker died: SIGSEGV", "1 worker died while running f (SIGSEGV); not retried", LOG),
        (
            "worker died: The actor is dead because it was killed by `ray.kill`.",
            "1 worker died while running f (The actor is dead because it was killed by `ray.kill`); not retried",
            "the program killed the actor: if the call has to finish, get its result before ray.kill",
        ),
        (
            "worker died: the node ran low on memory",
            "1 worker died while running f (the node ran low on memory); not retried",
            "run fewer such tasks per node (request more num_cpus or memory), or let each use less memory",
        ),
        (
            "worker died: Worker force exited because its job has finished",
            "1 execution of f was still running when its driver ended",
            "get its result before the program ends; work that has to outlive the program belongs in a detached actor",
        ),
    ],
    ids=["unknown", "a signal", "ray.kill", "memory", "the driver"],
)
def test_the_advice_fits_the_cause_of_a_death(cause: str, said: str, advice: str) -> None:
    run = HandMade()
    known = {names.RAY_END_ESTIMATED: True, names.ERROR_TYPE: names.WORKER_DIED}
    run.run(run.submit(run.driver(0, 100), "f", 1), 2, 101, state="lost", error=cause, attributes=known)
    (finding,) = [each for each in findings(run) if each.kind == "killed-workers"]
    assert (finding.text, finding.advice, finding.is_failure) == (said, advice, True)


def test_executions_with_different_causes_of_death_are_findings_of_their_own() -> None:
    run, driver = HandMade.driven(100)
    for number, cause in enumerate(("SIGSEGV", "SIGABRT", "the node ran low on memory", "its job has finished")):
        known = {names.RAY_END_ESTIMATED: True, names.ERROR_TYPE: names.WORKER_DIED}
        died: dict[str, Any] = {"state": "lost", "error": f"worker died: {cause}", "worker": f"w{number}"}
        run.run(run.submit(driver, "f", 1), 2, 101, attributes=known, **died)
    found = [(each.text, len(each.rows)) for each in findings(run) if each.kind == "killed-workers"]
    assert sorted(found) == [
        ("1 execution of f was still running when its driver ended", 1),
        ("1 worker died while running f (the node ran low on memory); not retried", 1),
        ("2 workers died while running f (SIGSEGV and 1 other reason); none was retried", 2),
    ]


@pytest.mark.parametrize(
    ("end", "state", "kind"),
    [(101, "ended", "killed-workers"), (50, "ended", "errors"), (50, "lost", "killed-workers")],
    ids=["after its end", "before it", "about when it died"],
)
def test_a_task_that_ray_ends_with_its_driver_was_still_running(end: float, state: State, kind: str) -> None:
    """It gets a SIGTERM, which may have another cause before. When a driver has died is estimated."""
    run = HandMade()
    driver = run.span("job.py ray.driver", 0, 100, state=state)
    sigterm = {names.ERROR_TYPE: names.WORKER_DIED}
    error = "worker died: The process receives a SIGTERM."
    run.run(run.submit(driver, "f", 1), 2, end, error=error, attributes=sigterm)
    found = {each.kind: each.text for each in findings(run) if each.kind in {"killed-workers", "errors"}}
    said = {
        "killed-workers": "1 execution of f was still running when its driver ended",
        "errors": "1 execution of f failed: worker_died; not retried",
    }
    assert found == {kind: said[kind]}


def test_a_call_that_ray_refused_counts_as_failed(tmp_path: Path) -> None:
    """It has no execution, which would count itself."""
    run, driver = HandMade.driven(100)
    run.span("f ray.remote", 1, 2, driver, kind=PRODUCER, error="TypeError")
    run.task(driver, "f", 3, 4, 5)
    run.task(driver, "f", 6, 7, 8, error="KeyError")
    (function,) = Analysis(run.table()).functions
    assert (function.calls, len(function.executions), function.failed) == (3, 2, 2)
    (line,) = [line.split() for line in summary(written(tmp_path, run)).output.splitlines() if line.startswith(" f ")]
    assert (line[1], line[-1]) == ("3", "2")


def test_a_span_without_an_end_makes_no_recorded_death_uncertain(tmp_path: Path) -> None:
    run, driver = HandMade.driven(100)
    for number, is_known in enumerate((True, True, False)):
        known: dict[str, Any] = {"attributes": {names.RAY_END_ESTIMATED: True}, "error": "OOM"} if is_known else {}
        run.run(run.submit(driver, "f", 1), 2, None, state="lost", worker=f"w{number}", **known)
    found = [each.text for each in findings(run) if each.kind == "killed-workers"]
    assert found == [
        "2 workers died while running f (OOM); none was retried",
        "1 execution of f never ended, so its worker may have died; not retried",
    ]
    path = written(tmp_path, run)
    said = "2 spans interrupted by the death of their process; 1 span without an end"
    assert said in " ".join(CliRunner().invoke(main, ["summary", path]).output.split())
    assert said in CliRunner().invoke(main, ["tree", path]).output
    lines = report.quality(Analysis(load([path])))
    assert "2 spans interrupted by the death of their process." in lines
    assert "1 span without an end." in lines


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, "soon", None, True])
def test_a_duration_may_be_anything(value: object) -> None:
    assert nanoseconds(value) in (0, 1_000_000_000)


# --- how many ran at once -----------------------------------------------------------------------------------------


def test_calls_that_wait_do_not_run() -> None:
    """One definition: waits of a call do not count; a driver is not a call; each running call counts at a moment."""
    run, driver = HandMade.driven(100)
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 10, 90)
    inner = [run.submit(frame, "inner", 20, worker="w1") for _ in range(3)]
    for number, call in enumerate(inner):
        run.run(call, 30, 70, worker=f"w{number + 2}")
    run.get(frame, inner, 20, 70, worker="w1")
    run.get(frame, inner[:1], 40, 60, worker="w1")  # in another thread
    run.get(driver, [outer], 0, 90)
    analysis = Analysis(run.table())
    seen = analysis.parallelism
    assert (seen.average, seen.peak, seen.waiting) == ((10 + 20 + 3 * 40) / 100, 3, 0.5)
    assert sum(seen.buckets) / len(seen.buckets) == pytest.approx(seen.average)
    assert sum(function.self_time for function in analysis.functions) == seen.average * analysis.path.wall
    drawn = whole(analysis)
    drawn_strip = strip(analysis, drawn.ends, analysis.table.start[0])
    assert max(drawn_strip) == 3
    assert sum(drawn_strip) / len(drawn_strip) == pytest.approx(seen.average, abs=0.01)
    assert ["calls running on average, at most 3", "1.5"] in report.facts(analysis)
    assert recorded_words.at_once(analysis) == "1.5 on average, 3 at most; 0.5 more waited in ray.get"


def test_a_placement_group_that_the_run_waits_for_is_named() -> None:
    """By a wait for the object of ``ready()``, which no call makes, and by ``wait()`` of the group."""
    run, driver = HandMade.driven(10_000, parts="actor,get,task,wait")
    group = {names.RAY_PLACEMENT_GROUP_ID: "ab12"}
    run.span("ray.get", 100, 4_100, driver, attributes=group | {names.RAY_OBJECT_COUNT: 1})
    run.span("PlacementGroup.wait", 4_200, 7_200, driver, attributes=group | {names.RAY_READY_OBJECT_COUNT: 1})
    run.span("ray.get", 7_300, 9_300, driver, attributes={names.RAY_OBJECT_COUNT: 1, names.RAY_OBJECT_IDS: ["00"]})
    (finding,) = (each for each in findings(run) if each.kind == "waiting-for-resources")
    assert finding.share == pytest.approx(0.7)
    assert "for 1 placement group, longest in job.py" in finding.text


@pytest.mark.parametrize("held", [float("inf"), float("nan"), 1e300, 10**400, -5.0, 50.0])
def test_a_generator_is_held_up_for_no_longer_than_it_ran(held: float) -> None:
    run, driver = HandMade.driven(10_100, parts="actor,get,task,wait")
    told = {names.RAY_GENERATOR_ITEMS: 9, names.RAY_GENERATOR_HELD: held}
    call = run.task(driver, "read", 1, 10, 10_000, attributes=told)
    run.get(driver, [call.object(10)], 2, 10_001)
    found = [each for each in findings(run) if each.kind == "held-generators"]
    assert all(each.share <= 1 and "suspended for 9.99 s" in each.text for each in found)
    assert bool(found) == (held == 50.0)


@pytest.mark.parametrize("fails", [True, False])
def test_a_placement_group_that_was_never_there_was_not_reserved(*, fails: bool) -> None:
    run, driver = HandMade.driven(10_000, parts="actor,get,task,wait")
    group = {names.RAY_PLACEMENT_GROUP_ID: "ab12", names.RAY_READY_OBJECT_COUNT: 1}
    run.span("PlacementGroup.wait", 100, 9_000, driver, attributes=group, error="ValueError" if fails else "")
    named = [each for each in findings(run) if each.kind == "waiting-for-resources"]
    assert bool(named) == (not fails)
