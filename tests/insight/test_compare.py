"""``ray-tracing-hooks compare``: what it says of runs with planted changes, and of equal runs whose times vary."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hand_made import MS, START, HandMade
from recordings import recorded

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.comparison import Comparison, compare
from ray_tracing_hooks._insight.analysis.critical_path import SCHEDULING, SHORT_MEANINGS
from ray_tracing_hooks._insight.analysis.explained import arguments
from ray_tracing_hooks._insight.ingest.load import load

RECORDS_WAITS = "actor,get,task,wait"


def comparison(now: str, before: str, *more: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["compare", before, "--to", now, *more], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def written(folder: Path, run: HandMade) -> str:
    """A folder with the spans of a run, whose trace no other folder has."""
    folder.mkdir()
    trace = sha256(str(folder).encode()).hexdigest()[:32]
    run.spans = [replace(each, trace_id=trace) for each in run.spans]
    (folder / "spans.jsonl").write_bytes(run.as_json_lines())
    return str(folder)


def run_of(times: list[float], wall: float = 50) -> HandMade:
    """Calls of ``f`` at the same time."""
    run, driver = HandMade.driven(wall)
    calls = [run.submit(driver, "f", 1 + 0.01 * number) for number in range(len(times))]
    for number, (call, time) in enumerate(zip(calls, times, strict=True)):
        run.run(call, 2 + 0.01 * number, 2 + 0.01 * number + time, worker=f"w{number}")
    run.get(driver, calls, 2, wall - 1)
    return run


def compared(now: HandMade, before: HandMade) -> Comparison:
    return compare([Analysis(now.table())], [Analysis(before.table())])


def changed(found: Comparison) -> dict[str, str]:
    """The figures that count as changed, by function and figure."""
    return {
        f"{subject.name} {change.what}": "longer" if change.is_more else "shorter"
        for subject in found.subjects
        for change in subject.counted
    }


SHORT, LONG = [10.0, 11, 12, 13, 14, 15, 16], [30.0, 31, 32, 33, 34, 35, 36]


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (LONG, SHORT, {"f self time": "longer"}),
        (SHORT, LONG, {"f self time": "shorter"}),
        # Half of its calls took long, by chance.
        ([10.0, 40, 40, 10, 10, 40, 40, 40, 10, 40, 10, 10], [10.0, 11, 12] * 4, {}),
        (SHORT, [10.5, 11.5, 12.5, 13.5, 14.5, 9.5, 8.5], {}),
        ([20.0] * 16, [19.0] * 16, {}),
        ([20.0] * 7, [20.0] * 7, {}),
        ([30.0, 31, 32, 33], [10.0, 11, 12, 13], {}),
    ],
    ids=["longer", "shorter", "varies", "overlaps", "little", "equal", "few"],
)
def test_a_change_is_told_from_what_varies(now: list[float], before: list[float], expected: dict[str, str]) -> None:
    found = compared(run_of(now), run_of(before))
    assert changed(found) == expected
    (function,) = found.subjects
    assert (function.calls, function.calls_before) == (len(now), len(before))
    own = function.change("self time")
    assert own is not None
    assert (own.low is None) == (len(now) < 5)
    assert function.is_slower == (expected == {"f self time": "longer"})


def test_a_change_that_costs_next_to_nothing_is_none() -> None:
    """The same ratio of times, in a run that takes far longer."""
    assert changed(compared(run_of(LONG, 60_000), run_of(SHORT, 60_000))) == {}


def test_workers_that_differ_hide_a_change_of_one_of_them() -> None:
    """One worker was slower all the time, as on a machine with other work: no part of the run by itself tells that."""
    runs = []
    for slow in (1.0, 2.0):
        run, driver = HandMade.driven(1000)
        for number in range(48):
            worker = number % 3
            took = (20 * slow, 30, 20)[worker]
            run.task(driver, "f", 1 + 15 * number, 2 + 15 * number, 2 + 15 * number + took, worker=f"w{worker}")
        runs.append(run)
    found = compared(runs[1], runs[0])
    own = found.subjects[0].change("self time")
    assert own is not None
    assert own.amount > 1.1
    assert changed(found) == {}


def queues_of(times: list[float]) -> HandMade:
    """Calls of ``f`` that run for a millisecond, after these times in a queue."""
    run, driver = HandMade.driven(1000)
    for number, time in enumerate(times):
        at = 1 + 5 * number
        run.task(driver, "f", at, at + time, at + time + 1, worker=f"w{number}")
    return run


BURSTS = [20.0 * (number % 21 + 1) for number in range(63)]
"""The queue times of three bursts of calls of an actor."""


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        ([50.0] * 63, BURSTS, {"f queued": "shorter"}),
        (BURSTS, [50.0] * 63, {"f queued": "longer"}),
        # A delay at the beginning of a run is in all queue times after it.
        ([each * 2.5 for each in BURSTS], BURSTS, {}),
    ],
    ids=["shorter", "longer", "delayed"],
)
def test_a_queue_is_compared_as_a_whole(now: list[float], before: list[float], expected: dict[str, str]) -> None:
    assert changed(compared(queues_of(now), queues_of(before))) == expected


def program(seed: int, *, stores: int = 1, passes: float = 10.0) -> HandMade:
    """A program whose times vary: 48 calls that wait for an actor, or for several, and 24 calls that take ``passes``
    milliseconds each to submit.
    """
    chance, run = random.Random(seed), HandMade()
    at = seed * 3_600_000.0
    run.parts = RECORDS_WAITS
    actors = [run.actor() for _ in range(stores)]
    busy_until, driver = [at + 20.0] * stores, run.driver(at, at + 3000)
    updates = [
        run.submit(driver, "Store.update", at + 10 + 0.1 * each, actor=actors[each % stores]) for each in range(48)
    ]
    for number, call in enumerate(updates):
        store = number % stores
        begin, busy_until[store] = busy_until[store], busy_until[store] + 20 * chance.lognormvariate(0, 0.2) + 0.1
        run.run(call, begin, busy_until[store] - 0.1, worker=f"store{store}")
    begun = max(busy_until)
    run.get(driver, updates, at + 20, begun)
    free, measured = [begun] * 4, []
    for number in range(24):
        took = passes * chance.lognormvariate(0, 0.2)
        measured.append(run.submit(driver, "measure", begun, took))
        begun += took
        start = max(begun, free[number % 4]) + chance.uniform(0.4, 0.8)
        free[number % 4] = start + 15 * chance.lognormvariate(0, 0.2)
        run.run(measured[-1], start, free[number % 4], worker=f"w{number % 4}")
    run.get(driver, measured, begun, max(free))
    run.spans[0] = replace(run.spans[0], end_ns=START + round((max(free) + 5) * MS))
    return run


def test_equal_programs_whose_times_vary_did_not_change() -> None:
    """In twenty pairs at other times: neither times nor findings."""
    analyses = [Analysis(program(seed).table()) for seed in range(21)]
    for before, now in pairwise(analyses):
        found = compare([now], [before])
        assert changed(found) == {}
        assert [each.kind for each in found.findings if not (each.now and each.before)] == []
        assert found.differences == []


def test_a_mended_queue_and_mended_arguments_are_named(tmp_path: Path) -> None:
    before, queue, both = program(1), program(2, stores=4), program(3, stores=4, passes=0.1)
    found = compared(queue, before)
    assert changed(found) == {"Store.update queued": "shorter"}
    assert [(each.kind, each.subject) for each in found.findings if not each.now] == [("bottleneck-actor", "Store")]
    assert found.split[0] == max(found.split, key=lambda each: max(each.now, each.before))
    # Calls that are submitted faster than they run are queued.
    measure = {"measure .remote()": "shorter", "measure queued": "longer"}
    assert changed(compared(both, queue)) == measure
    assert changed(compared(both, before)) == {"Store.update queued": "shorter", **measure}

    folders = [written(tmp_path / name, run) for name, run in (("now", both), ("before", before))]
    text = comparison(*folders, "--fail-on", "findings").stdout
    assert len(text.splitlines()) <= 18
    for said in (
        r" bottleneck-actor Store +9\d\d ms +none +gone",
        r" large-arguments measure +2\d\d ms +none +gone",
        r" waiting for a busy actor +\d+ ms +\d+ ms +-\d+ ms",
        r" Store.update +queued +\d+ ms +\d+ ms +x0\.2\d +x0\.\d\d to x0\.\d\d +48 / 48",
        r" measure +\.remote\(\) +\S+ ms +\d+ us +x0\.01 .* 24 / 24",
    ):
        assert re.search(f"^{said}$", text, re.MULTILINE), said
    assert "does not tell a change of the program from one of the machine" in " ".join(text.split())
    # The other way round, the findings came.
    assert "came" in comparison(*reversed(folders), "--fail-on", "findings", code=1).stdout

    found = json.loads(comparison(*folders, "--json").stdout)
    assert {(each["kind"], each["subject"], each["change"]) for each in found["findings"]} == {
        ("bottleneck-actor", "Store", "went"),
        ("large-arguments", "measure", "went"),
    }
    update = figures(found, "Store.update")
    assert update["queued"]["change"] == "less"
    assert update["queued"]["low"] < update["queued"]["ratio"] < update["queued"]["high"] < 1
    assert update["self time"]["change"] is None
    assert sum(each["ns"] - each["before_ns"] for each in found["time_split"]) < 0


def figures(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The figures of a function in the document of a comparison."""
    (subject,) = [each for each in document["subjects"] if each["name"] == name]
    found: dict[str, Any] = subject["changes"]
    return found


@pytest.mark.parametrize(
    ("bound", "code"),
    [("slower", 1), ("slower=100%", 1), ("slower=300%", 0), ("errors", 0), ("findings", 0)],
)
def test_a_bound_fails_for_a_function_that_became_slower(bound: str, code: int, tmp_path: Path) -> None:
    short, long = (written(tmp_path / name, run_of(times)) for name, times in (("short", SHORT), ("long", LONG)))
    assert "Findings: none" in comparison(long, short, "--fail-on", bound, code=code).stdout
    comparison(short, long, "--fail-on", bound)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a", "--to", "b", "--fail-on", "slower=fast"), "expected slower, slower=10%, errors or findings"),
        (("a", "--to"), "name the runs to compare"),
        (("a", "--to", "--json"), "name the runs to compare"),
        (("a",), "Missing option '--to'"),
        (("--to", "b"), "Missing argument 'BASE...'"),
        (("a", "--to", "b", "--json", "--markdown"), "give one of them"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["compare", *arguments])
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_run_counts_once(tmp_path: Path) -> None:
    """Copies of a run do not differ, so all that they have would count as changed."""
    folder = written(tmp_path / "a", run_of(SHORT))
    (tmp_path / "copy").symlink_to(folder)
    other_one = written(tmp_path / "b", run_of(LONG))
    for given in (
        [folder, str(tmp_path / "copy"), "--to", other_one],
        [other_one, "--to", folder, folder],
        ["--all", folder, folder, "--to", other_one],
    ):
        result = CliRunner().invoke(main, ["compare", *given])
        assert (result.exit_code, "give each run once" in result.output) == (2, True), result.output
    comparison(folder, folder)


def test_ratios_beyond_any_measure_are_unknown(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    before = written(tmp_path / "before", run_of([1e-5] * 7))
    now = [written(tmp_path / "a", run_of([1e-5] * 7)), written(tmp_path / "b", run_of([1e12] * 7, 2e12))]
    result = CliRunner().invoke(main, ["compare", before, "--to", *now, "--json"], catch_exceptions=False)
    (subject,) = [each for each in json.loads(result.stdout)["subjects"] if each["name"] == "f"]
    own = subject["changes"]["self time"]
    assert (own["low"], own["high"], own["change"]) == (None, None, None)
    assert own["ratio"] > 1e6


def test_a_page_does_not_replace_another_file(tmp_path: Path) -> None:
    run, other_file = recorded("pipeline_of_actors"), tmp_path / "notes.html"
    other_file.write_text("mine")
    for place, said in ((other_file, "--force overwrites it, --page names another"), (tmp_path, "(--page)")):
        assert said in comparison(run, run, "--page", str(place), code=1).stderr
    assert other_file.read_text() == "mine"


def test_a_side_without_spans_ends_the_command(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    said = f"Error: {none!r} does not exist: expected a folder or a file of spans\n"
    assert comparison(recorded("pipeline_of_actors"), none, code=1).stderr == said


def other(**resource: object) -> HandMade:
    """A run in processes with these attributes."""
    run = run_of(SHORT)
    run.spans = [replace(span, resource=span.resource | resource) for span in run.spans]
    return run


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        (
            other(**{names.RESOURCE_RAY_VERSION: "2.60.0"}),
            other(**{names.RESOURCE_RAY_VERSION: "2.59.1"}),
            "Ray 2.59.1 before and Ray 2.60.0 now",
        ),
        (
            other(**{names.RESOURCE_PROCESSORS: 8}),
            other(**{names.RESOURCE_PROCESSORS: 1}),
            "nodes with 1 processor before and nodes with 8 processors now",
        ),
        (other(**{"host.name": "a"}), other(**{"host.name": "b"}), "other machines (1 before and 1 now)"),
        (
            other(**{names.RESOURCE_PARTS: "task,actor,get,wait"}),
            other(**{names.RESOURCE_PARTS: "task,actor"}),
            "waits were not recorded before and are recorded now",
        ),
    ],
    ids=["Ray", "processors", "machines", "waits"],
)
def test_what_else_differs_is_said_first(now: HandMade, before: HandMade, said: str, tmp_path: Path) -> None:
    assert compared(now, before).differences == [said]
    assert compared(now, now).differences == compared(now, run_of(SHORT)).differences[1:] == []
    folders = [written(tmp_path / name, run) for name, run in (("now", now), ("before", before))]
    lines = comparison(*folders).stdout.splitlines()
    heading = next(number for number, line in enumerate(lines) if " against " in line)
    assert lines[heading + 1] == f" These runs cannot be compared in full: {said}."


def test_a_run_that_has_not_ended_is_said_to_be_compared_too_early() -> None:
    run = HandMade()
    run.driver(0, None)
    running = Analysis(run.table(now=100))
    assert compare([running], [running]).differences == ["the run has not ended", "the run before has not ended"]


def test_a_run_without_its_driver_may_have_lasted_longer() -> None:
    run = run_of(SHORT)
    run.spans = [each for each in run.spans if each.parent_id]
    said, *_ = compared(run_of(SHORT), run).differences
    assert said == "the run before has no span of the driver, and may have lasted longer"


def test_a_run_whose_spans_lack_their_parents_is_said_to_lack_spans() -> None:
    run = run_of(SHORT)
    (call, *_) = [each for each in run.spans if each.name.endswith("ray.remote")]
    run.spans.remove(call)
    assert compared(run, run_of(SHORT)).differences == ["the run has spans without the parent they name"]


def test_failures_are_told_apart_by_what_failed() -> None:
    runs = []
    for function in ("load", "store"):
        run = HandMade()
        run.run(run.submit(run.driver(0, 100), function, 1), 2, 50, error="ValueError")
        runs.append(run)
    found = [
        (each.subject, bool(each.now), bool(each.before)) for each in compared(*runs).findings if each.kind == "errors"
    ]
    assert found == [("load", True, False), ("store", False, True)]


def test_kinds_of_time_have_different_names() -> None:
    assert len(set(SHORT_MEANINGS.values())) == len(SHORT_MEANINGS)
    assert SHORT_MEANINGS[SCHEDULING] == "scheduling and loading"


def test_functions_that_wait_are_not_compared_if_waits_were_recorded_in_one_run_only(tmp_path: Path) -> None:
    """Their waits count as self time in the other run; functions that make no calls are compared."""
    folders = []
    for parts in (RECORDS_WAITS, "actor,task"):
        run, driver = HandMade.driven(2300, parts=parts)
        for number in range(10):
            frame = run.run(run.submit(driver, "outer", 110 * number), 110 * number, 110 * number + 100)
            run.run(run.submit(frame, "inner", 110 * number, worker="w1"), 110 * number, 110 * number + 90, worker="w2")
            frame = run.run(run.submit(driver, "reader", 1100 + number), 1100 + number, 1200 + number, worker="w3")
            if parts == RECORDS_WAITS:
                run.get(frame, ["0" * 48 + "01000000"], 1110 + number, 1190 + number, worker="w3")
        folders.append(written(tmp_path / parts, run))
    for pair in (folders, folders[::-1]):
        subjects = json.loads(comparison(*pair, "--json").stdout)["subjects"]
        comparable = {each["name"]: each["is_comparable"] for each in subjects}
        assert comparable == {"outer": False, "inner": True, "reader": False}
        assert not any(each["changes"]["self time"]["change"] for each in subjects)
        text = " ".join(comparison(*pair).stdout.split())
        assert "self times not compared, since waits were not recorded in all runs alike: 2 functions" in text


@pytest.mark.parametrize("parts", [RECORDS_WAITS, "actor,task"])
def test_functions_are_compared_if_their_own_processes_recorded_the_same(parts: str) -> None:
    """Whatever the driver recorded, and whether they waited in both runs."""
    analyses = []
    for of_driver in ("actor,task", RECORDS_WAITS):
        run, driver = HandMade.driven(1000, parts=of_driver)
        run.parts = parts
        for number in range(10):
            frame = run.run(run.submit(driver, "outer", 10), 20, 900, worker="w1")
            waits = of_driver == RECORDS_WAITS
            inner = run.submit(frame, "inner", 30 + number, worker="w1") if waits else run.submit(driver, "inner", 10)
            run.run(inner, 40, 100, worker="w2")
            if waits and parts == RECORDS_WAITS:
                run.get(frame, [inner], 40, 100, worker="w1")
        analyses.append(Analysis(run.table()))
    assert {each.name: each.is_comparable for each in compare(analyses[:1], analyses[1:]).subjects} == {
        "outer": True,
        "inner": True,
    }


def test_functions_that_ran_partly_in_processes_that_record_waits_are_not_compared() -> None:
    """The parts may differ."""
    run, driver = HandMade.driven(1000)
    for worker, run.parts in (("w1", RECORDS_WAITS), ("w2", "actor,task")):
        frame = run.run(run.submit(driver, "outer", 10), 20, 900, worker=worker)
        run.run(run.submit(frame, "inner", 30, worker=worker), 40, 100, worker="w3")
    analysis = Analysis(run.table())
    assert {each.name: each.is_comparable for each in compare([analysis], [analysis]).subjects} == {
        "outer": False,
        "inner": True,
    }


# --- several runs -----------------------------------------------------------------------------------------------------

NODES = ("n1", "n2")


def version(
    seed: int, *, slow_node: float = 1.0, storm: bool = False, scale: int = 2, load: float = 0.01, rounds: int = 60
) -> HandMade:
    """A run of a program: its times vary from call to call by a twentieth, and from run to run by ``load``.

    ``work`` runs on two nodes, on the second ``slow_node`` times as long; every other call of ``fetch`` is refused once
    in a ``storm``; ``resize`` takes as long as its ``scale`` is large, and has a span of the program in it; ``steady``
    is the same in each version. They run one after the other.
    """
    chance, run = random.Random(seed), HandMade()
    run.parts, busy = RECORDS_WAITS, 1 + load * chance.gauss(0, 1)
    at = 10.0
    driver = run.driver(0, 10_000)

    def call(function: str, took: float, node: str, told: str, *, error: str = "") -> str:
        nonlocal at
        duration = took * busy * chance.lognormvariate(0, 0.05)
        submitted = run.submit(driver, function, at)
        rows = []
        for attempt in range(2 if error else 1):
            attributes = {names.RAY_ARGUMENTS: told} | ({names.RAY_ATTEMPT: attempt} if attempt else {})
            failed = error if error and not attempt else ""
            rows.append(
                run.run(
                    submitted,
                    at + 1,
                    at + 1 + duration,
                    worker=f"w-{node}",
                    node=node,
                    error=failed,
                    attributes=attributes,
                )
            )
            at += 2 + duration
        return rows[0]

    for number in range(rounds):
        node = NODES[number % 2]
        call("work", 50 * (slow_node if node == "n2" else 1), node, f"{number}")
        call("fetch", 10, node, f"{number}", error="ConnectionError" if storm and number % 4 < 2 else "")
        row = call("resize", 10 * scale, node, f"{number}, 'a, b', scale={scale}")
        begun = run.spans[-1].start_ns
        run.span(
            "decode", (begun - START) / MS + 1, (begun - START) / MS + 6 * busy, row, worker=f"w-{node}", node=node
        )
        run.spans[-1] = replace(run.spans[-1], scope="job")
        call("steady", 20, node, f"{number}")
    run.spans[0] = replace(run.spans[0], end_ns=START + round((at + 5) * MS))
    return run


def analyses(runs: Sequence[HandMade]) -> list[Analysis]:
    return [Analysis(run.table()) for run in runs]


def claims(found: Comparison) -> set[str]:
    """All that a comparison says changed."""
    more = {f"{each.name} {'new' if each.is_new else 'gone'}" for each in found.subjects if each.is_new or each.is_gone}
    findings = {f"{each.kind} {'came' if each.came else 'went'}" for each in found.findings if each.came or each.went}
    return set(changed(found)) | more | findings | set(found.differences)


def test_what_changed_is_named_with_its_attribute(tmp_path: Path) -> None:
    """One function 20 % slower on one of two nodes, half of the calls of another one retried, one argument changed."""
    pytest.importorskip("scipy")
    before = [version(seed) for seed in range(3)]
    now = [version(seed, slow_node=1.2, storm=True, scale=4) for seed in range(3, 6)]
    found = compare(analyses(now), analyses(before))
    assert {each for each in changed(found) if "critical path" not in each} == {
        "work self time",
        "fetch failed",
        "fetch retried",
        "resize self time",
    }
    subjects = {each.name: each for each in found.subjects}
    slow = subjects["work"].explained["self time"]
    assert (slow.key, slow.value, slow.was) == ("host.name", "host-n2", None)
    assert slow.change.amount == pytest.approx(1.2, rel=0.1)
    assert slow.share == 0.5
    assert slow.share_of_slow is not None
    assert slow.share_of_slow > 0.6
    assert subjects["fetch"].errors == {"ConnectionError": 90}
    assert subjects["fetch"].explained == {}
    scale = subjects["resize"].explained["self time"]
    assert (scale.key, scale.value, scale.was) == ("argument scale", "4", "2")

    folders = [
        [written(tmp_path / f"{side}{number}", run) for number, run in enumerate(runs)]
        for side, runs in (("before", before), ("now", now))
    ]
    result = CliRunner().invoke(main, ["compare", *folders[0], "--to", *folders[1], "--fail-on", "errors"])
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    for said in (
        "3 runs of job.py",
        r"fetch failed with ConnectionError x90",
        r"work, self time: x1\.\d\d with host\.name host-n2, x\d\.\d\d without; 50 % of its calls, \d\d % of the slow",
        "resize, self time: all calls have argument scale 4 now, most had 2 before",
    ):
        assert re.search(said, text), said


def test_equal_runs_did_not_change() -> None:
    """In no division of nine runs into three and three, of those that are tried, although runs vary by a tenth."""
    pytest.importorskip("scipy")
    runs = analyses([version(seed, load=0.1) for seed in range(9)])
    chance = random.Random(1)
    for _ in range(20):
        chosen = chance.sample(runs, 6)
        assert claims(compare(chosen[:3], chosen[3:])) == set()


def test_a_change_within_the_differences_of_runs_does_not_count() -> None:
    """Each run on its own is clearly slower than each of the others, or faster: calls of a run are not independent."""
    pytest.importorskip("scipy")
    before, now = (
        [run_of([each * factor for each in SHORT]) for factor in side] for side in ((1, 1.6, 1), (1.5, 1.1, 1.7))
    )
    assert changed(compared(now[2], before[0])) == {"f self time": "longer"}
    assert claims(compare(analyses(now), analyses(before))) == set()


def test_what_only_some_runs_have_is_not_new_or_gone() -> None:
    pytest.importorskip("scipy")
    with_f, without = run_of(SHORT), HandMade()
    without.driver(0, 50)
    for now, before, expected in (
        ([with_f, with_f], [without, without], {"f new"}),
        ([without, without], [with_f, with_f], {"f gone"}),
        ([with_f, without], [without, without], set()),
        ([with_f, with_f], [with_f, without], set()),
    ):
        found = claims(compare(analyses(now), analyses(before)))
        assert {each for each in found if each.startswith("f ")} == expected


def test_a_node_explains_nothing_if_all_nodes_are_slower() -> None:
    pytest.importorskip("scipy")
    before, now = [version(seed) for seed in range(3)], [version(seed, scale=4) for seed in range(3, 6)]
    for run in (*before, *now):  # nothing tells the two versions apart
        run.spans = [
            replace(
                each, attributes={key: value for key, value in each.attributes.items() if key != names.RAY_ARGUMENTS}
            )
            for each in run.spans
        ]
    (resize,) = [each for each in compare(analyses(now), analyses(before)).subjects if each.name == "resize"]
    assert resize.is_slower
    assert resize.explained == {}


def test_markdown_of_a_pull_request_formats_nothing_of_the_runs(tmp_path: Path) -> None:
    runs = []
    for times in (LONG, SHORT):
        run = run_of(times)
        run.run(run.submit(run.spans[0].span_id, "- f&amp;", 1), 2, 9, error="ValueError" if times is LONG else "")
        run.spans = [
            replace(
                each,
                name=each.name.replace("f ", "@me|<b>_f_ "),
                attributes=each.attributes | {names.RAY_FUNCTION: each.name.split(" ray.")[0]},
            )
            for each in run.spans
        ]
        runs.append(written(tmp_path / str(times[0]), run))
    lines = comparison(*runs, "--markdown").stdout.splitlines()
    assert lines[0].startswith("**job.py of ")
    assert "| --- | --: | --: | --: |" in lines
    (row,) = [line for line in lines if "self time" in line]
    assert row.startswith(r"| &#64;me\|\<b\>\_f\_ | self time | 13.0 ms | 33.0 ms | x2.54 |")


def test_what_is_redacted_is_in_no_part_of_a_comparison(tmp_path: Path) -> None:
    """Machines, arguments and types of errors explain what changed, and what is hidden explains nothing."""
    pytest.importorskip("scipy")
    now = [version(seed, slow_node=1.2, storm=True, scale=4, rounds=20) for seed in range(3, 6)]
    sides = [written(tmp_path / f"before{seed}", version(seed, rounds=20)) for seed in range(3)]
    sides += ["--to", *(written(tmp_path / f"now{number}", run) for number, run in enumerate(now))]
    values = "host-n2", "argument scale", "ConnectionError"
    for options, hidden in (
        (["--redact", "host.*", "--redact", "error.*", "--redact", "ray.arguments"], [True] * 3),
        ([], [False] * 3),
        (["--redact", "host.*"], [True, False, False]),
        (["--no-attributes"], [True] * 3),
    ):
        shown = [CliRunner().invoke(main, ["compare", *sides, *more, *options]).output for more in ([], ["--json"])]
        assert [value not in " ".join(shown[0].split()) for value in values] == hidden, options
        found = {each["name"]: each for each in json.loads(shown[1])["subjects"]}
        assert found["work"]["changes"]["self time"]["change"] == "more"
        assert ["host-n2" not in shown[1], not found["resize"]["explained"], not found["fetch"]["errors"]] == hidden


def test_what_both_sides_have_stays_on_both_where_its_name_is_hidden(tmp_path: Path) -> None:
    """A class of actors that comes second in one run is the same as the one that comes first in the other."""
    sides = []
    for number, actors in enumerate((("Store", "Cache"), ("Cache", "Store"))):
        run, driver = HandMade.driven(1000)
        for place, actor in enumerate(actors):
            took = 8 if actor == "Store" else 1
            for call in range(100):
                run.task(
                    driver, f"{actor}.get", 1, 2 + took * call, 2 + took * (call + 1), actor=f"{place}", worker=actor
                )
        for span in run.spans:
            if (name := span.name.partition(".")[0]) in actors:
                span.attributes[names.RAY_ACTOR_CLASS] = name
        sides.append(written(tmp_path / str(number), run))
    for options in ((), ("--redact", "ray.actor*")):
        found = json.loads(comparison(*sides, "--json", *options).stdout)["findings"]
        assert [(each["kind"], each["change"]) for each in found] == [("bottleneck-actor", "stayed")], options
        assert ("Store" in str(found)) == (not options)


def test_several_runs_need_scipy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.stats", None)
    runs = [written(tmp_path / str(len(times)), run_of(times)) for times in (SHORT, LONG * 2, LONG * 3)]
    result = CliRunner().invoke(main, ["compare", runs[0], runs[1], "--to", runs[2]])
    assert result.exit_code == 1
    assert "needs scipy: pip install 'ray-tracing-hooks[insight]'" in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("3, scale=2", [("0", "3"), ("scale", "2")]),
        (
            "path='a, b', sizes=[1, (2, 3)], on={'x': 1, 'y': 2}",
            [("path", "'a, b'"), ("sizes", "[1, (2, 3)]"), ("on", "{'x': 1, 'y': 2}")],
        ),
        (r"""'it\'s, here', "a'b, c"...""", [("0", r"'it\'s, here'"), ("1", '"a\'b, c"...')]),
        ("x == 1", [("0", "x == 1")]),
    ],
)
def test_arguments_are_told_apart(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(arguments(text)) == expected


def on_nodes(seed: int, *, nodes: int = 8, slow: float = 1.0, fails: bool = False) -> HandMade:
    """A run that calls ``f`` twenty times on each node; on the last one it takes ``slow`` times as long, or half of its
    calls fail.
    """
    chance = random.Random(seed)
    run, driver = HandMade.driven(10_000, parts=RECORDS_WAITS)
    for number in range(20 * nodes):
        is_last = number % nodes == nodes - 1
        took = 20 * chance.lognormvariate(0, 0.05) * (slow if is_last else 1)
        error = "OSError" if fails and is_last and number % (2 * nodes) < nodes else ""
        node = f"n{number % nodes}"
        at = 60.0 * number
        run.task(driver, "f", at, at + 1, at + 1 + took, node=node, worker=f"w-{node}", error=error)
    return run


def test_a_slow_node_of_many_is_found_although_it_hardly_shows_in_all_calls() -> None:
    pytest.importorskip("scipy")
    before, now = ([on_nodes(seed, slow=slow) for seed in seeds] for slow, seeds in ((1, range(3)), (1.3, range(3, 6))))
    (f,) = compare(analyses(now), analyses(before)).subjects
    assert [(each.what, each.where) for each in f.counted] == [("self time", "host.name host-n7")]
    assert (f.explained["self time"].key, f.explained["self time"].value) == ("host.name", "host-n7")


def test_failures_of_one_node_are_explained_by_it() -> None:
    pytest.importorskip("scipy")
    before = [on_nodes(seed, nodes=2) for seed in range(3)]
    now = [on_nodes(seed, nodes=2, fails=True) for seed in range(3, 6)]
    (f,) = compare(analyses(now), analyses(before)).subjects
    assert [each.what for each in f.counted] == ["failed"]
    assert f.errors == {"OSError": 30}
    found = f.explained["failed"]
    assert (found.key, found.value, found.share, found.share_of_slow) == ("host.name", "host-n1", 0.5, 1.0)


def test_one_new_run_is_compared_with_several_earlier_ones() -> None:
    pytest.importorskip("scipy")
    before = [version(seed) for seed in range(6)]
    assert claims(compare(analyses([version(7)]), analyses(before))) == set()
    slower = claims(compare(analyses([version(7, scale=3)]), analyses(before)))
    assert "resize self time" in slower
    assert not {each for each in slower if each.startswith(("work", "steady", "fetch", "decode"))}


def test_spans_of_the_program_are_compared_by_their_self_time() -> None:
    """Without the spans within them."""
    pytest.importorskip("scipy")

    def run_of_spans(seed: int, outer: float, inner: float) -> HandMade:
        chance = random.Random(seed)
        run, driver = HandMade.driven(10_000, parts=RECORDS_WAITS)
        for number in range(20):
            at, varies = 100.0 * number, chance.lognormvariate(0, 0.05)
            row = run.run(run.submit(driver, "f", at), at, at + 90)
            parse = run.span("parse", at + 1, at + 1 + (outer + inner) * varies, row, worker="w1")
            run.span("read", at + 2, at + 2 + inner * varies, parse, worker="w1")
        for span in run.spans:
            if span.name in ("parse", "read"):
                span.scope = "job"
        return run

    before, now = (
        [run_of_spans(seed, 20, 10) for seed in range(3)],
        [run_of_spans(seed, 20, 40) for seed in range(3, 6)],
    )
    found = compare(analyses(now), analyses(before))
    assert {(each.kind, each.name) for each in found.subjects if each.is_slower} == {("span", "read")}


def test_methods_of_deployments_are_compared_by_their_names() -> None:
    """What a handle or a proxy does is not their time."""
    serving = Analysis(load([recorded("serving")]))
    found = {(each.kind, each.name) for each in compare([serving], [serving]).subjects if each.kind != "function"}
    assert found == {("deployment", "Front.__call__"), ("deployment", "Scorer.score")}
