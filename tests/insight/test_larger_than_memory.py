"""Runs of a store that DuckDB reads: comparisons, trends and pages have the figures of the same runs in memory."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from hand_made import HandMade
from test_compare import version, written
from test_store import RECORDED, keep, run
from test_trend import STEADY, run_of
from test_view import meta

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import engines
from ray_tracing_hooks._cli.compare import document
from ray_tracing_hooks._cli.engines import runs_of
from ray_tracing_hooks._insight.analysis import explained
from ray_tracing_hooks._insight.analysis.comparison import compare
from ray_tracing_hooks._insight.analysis.measured import DEPLOYMENT, SPAN
from ray_tracing_hooks._insight.ingest.kept_runs import kept_runs
from ray_tracing_hooks._insight.store import part
from ray_tracing_hooks._insight.store.tables import opened

pytestmark = pytest.mark.usefixtures("packages")

SUBJECTS = ("subject_kind", "subject", "subject_self_ns", "subject_makes_calls")
"""The columns of what is compared and is no function."""


def compared(engine: str, now: list[Path], before: list[Path]) -> dict[str, Any]:
    """The document of a comparison of all runs in these stores, without the engine."""
    sides = [
        [run for store in stores for run in runs_of([str(store)], engine, everything=True)] for stores in (now, before)
    ]
    found = document.document(compare(*sides))
    assert found.pop("engine") == engine
    return found


PAIRS = sorted(path.name.removesuffix("_mended.jsonl.gz") for path in RECORDED.glob("*_mended.jsonl.gz"))
OF_EVERY_KIND = {"actor_restarts", "blocking_replica", "computed_for_each_epoch", "late_first_step"}
"""Of functions, actors, operators, deployments and spans of the program."""


@pytest.mark.parametrize(
    "name",
    # More than a hundred comparisons take a minute.
    [name if name in OF_EVERY_KIND else pytest.param(name, marks=pytest.mark.slow) for name in PAIRS],
)
def test_duckdb_compares_runs_as_this_process_does(name: str, tmp_path: Path) -> None:
    """To the last digit, with what else differs, the split of the time, and findings."""
    stores = [tmp_path / "before", tmp_path / "now"]
    for store, suffix in zip(stores, ("", "_mended"), strict=True):
        keep(RECORDED / f"{name}{suffix}.jsonl.gz", store)
    found = compared("duckdb", stores[1:], stores[:1])
    assert found == compared("memory", stores[1:], stores[:1])
    if name in OF_EVERY_KIND:
        assert found["subjects"]
        assert found["findings"]
    if name == "blocking_replica":
        assert {each["kind"] for each in found["subjects"]} == {DEPLOYMENT, SPAN}


def nested(job: int, took: float, clock: float) -> HandMade:
    """Tasks on two machines, one with another clock, in each of which spans of the program are in one another: some
    without an end, others failed or with a call.
    """
    chance, run = random.Random(job), HandMade()
    driver = run.driver(0, 10_000, attributes={names.RAY_JOB_ID: f"{job:02x}000000"})
    for number in range(60):
        at, is_there = 100.0 * number, number % 2
        here: dict[str, Any] = {"worker": f"w{is_there}", "node": f"n{is_there}", "clock": clock * is_there}
        parent = run.run(run.submit(driver, "work", at), at + 1, at + 90, **here)
        begin, end = at + 2, at + 89
        for step in range(4):
            is_failed, is_open = step == 0 and number % 5 == 0, step == 3 and number % 20 == 7
            of_step = {names.ERROR_TYPE: "ValueError"} if is_failed else {"size": number % 3}
            error = "boom" if is_failed else ""
            parent = run.span(
                f"step{step}", begin, None if is_open else end, parent, attributes=of_step, error=error, **here
            )
            begin, end = begin + chance.random() * took, end - chance.random() * took
        if number % 3 == 0:
            run.run(
                run.submit(parent, "inner", begin, worker=f"w{is_there}", node=f"n{is_there}"), begin + 1, begin + 2
            )
    return run


@pytest.mark.parametrize("clock", [0, -70, 50_000])
def test_duckdb_compares_spans_of_the_program_as_this_process_does(clock: float, tmp_path: Path) -> None:
    """Their self times, failures and types of exceptions, whatever the clocks of the machines are."""
    for job, (store, took) in enumerate((("before", 3), ("now", 9)), start=1):
        keep(written(tmp_path / str(job), nested(job, took, clock)), tmp_path / store)
    found = compared("duckdb", [tmp_path / "now"], [tmp_path / "before"])
    assert found == compared("memory", [tmp_path / "now"], [tmp_path / "before"])
    spans = {each["name"]: each for each in found["subjects"] if each["kind"] == SPAN}
    assert [each["changes"]["self time"]["change"] for _, each in sorted(spans.items())] == [*["more"] * 3, "less"]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Stores of three runs each, with one function that is slower on one node, and one that fails."""
    pytest.importorskip("scipy")
    folder = tmp_path_factory.mktemp("versions")
    for seed in range(6):
        changed: dict[str, Any] = {"slow_node": 1.2, "storm": True, "scale": 4} if seed >= 3 else {}
        made = version(seed, **changed)
        for each in made.spans:
            each.attributes[names.RAY_JOB_ID] = f"{seed + 1:02x}000000"
        keep(written(folder / str(seed), made), folder / ("now" if changed else "before"))
    return folder / "before", folder / "now"


@pytest.mark.parametrize("looked_at", [400, 25])
def test_duckdb_explains_changes_as_this_process_does(
    looked_at: int, versions: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the node, by an argument, and by the types of exceptions; also if only some of the calls are looked at."""
    before, now = versions
    monkeypatch.setattr(explained, "_MOST_ROWS", looked_at)
    found = compared("duckdb", [now], [before])
    assert found == compared("memory", [now], [before])
    subjects = {each["name"]: each for each in found["subjects"]}
    assert subjects["work"]["explained"]["self time"]["value"] == "host-n2"
    assert subjects["resize"]["explained"]["self time"]["key"] == "argument scale"
    assert subjects["fetch"]["errors"] == {"ConnectionError": 90}
    assert len(subjects["work"]["nodes"]) == 2


def test_the_command_compares_large_runs_by_duckdb(
    versions: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is from when the runs were stored, has the same verdict, and refuses what it cannot do."""
    before, now = versions
    sides = "--all", before, "--to", now
    assert "were stored" not in run("compare", *sides).output
    monkeypatch.setattr(engines, "LARGE", 100)
    shown = " ".join(run("compare", *sides, "--fail-on", "slower=10%", code=1).output.split())
    assert "The findings, and the split of the time, are from when the runs were stored." in shown
    assert "resize, self time: all calls have argument scale 4 now, most had 2 before" in shown
    run("compare", *sides, "--fail-on", "slower=300%")
    by = {
        engine: json.loads(run("compare", *sides, "--engine", engine, "--json").stdout)
        for engine in ("memory", "duckdb")
    }
    assert {engine: each.pop("engine") for engine, each in by.items()} == {"memory": "memory", "duckdb": "duckdb"}
    assert by["memory"] == by["duckdb"]
    for options in (("--page", tmp_path / "page.html"), ("--redact", "x"), ("--no-attributes",)):
        assert f"{options[0]}" in (said := run("compare", *sides, *options, code=2).output)
        assert "needs runs in memory" in said
    spans = written(tmp_path / "spans", version(1))
    refused = run("compare", now, "--to", spans, "--engine", "duckdb", code=2).output
    assert "--engine duckdb reads runs of a store" in " ".join(refused.split())


def test_a_hidden_attribute_is_no_difference_of_the_machines(tmp_path: Path) -> None:
    """Nobody knows whether it differs from what the other side shows."""
    recorded = RECORDED / "actor_restarts.jsonl.gz"
    keep(recorded, tmp_path / "hidden", "--redact", "*")
    keep(recorded, tmp_path / "shown")
    said = run("compare", tmp_path / "hidden", "--to", tmp_path / "shown", "--engine", "duckdb").output
    assert "The run took" in said
    assert "cannot be compared" not in said


def test_a_damaged_file_ends_the_comparison(versions: tuple[Path, Path], tmp_path: Path) -> None:
    """Wherever it is damaged."""
    store = tmp_path / "it's"
    shutil.copytree(versions[0], store)
    run("compare", "--all", store, "--to", versions[1], "--engine", "duckdb")
    (path, *_) = sorted(store.glob("run=*/traces-*.parquet"))
    whole = path.read_bytes()
    for damaged in (whole[:-100], bytes(1000) + whole[1000:]):
        path.write_bytes(damaged)
        said = run("compare", "--all", store, "--to", versions[1], "--engine", "duckdb", code=1).output
        assert f"comparing several runs fails: {path.parent}: " in said
        assert "SELECT" not in said


def test_the_name_of_a_folder_is_no_pattern(versions: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("runs[1]", "runs1"):
        shutil.copytree(versions[0], tmp_path / name)
    for other in (tmp_path / "runs1").glob("run=*/traces-*.parquet"):
        other.write_bytes(b"")
    run("compare", "--all", tmp_path / "runs[1]", "--to", versions[1], "--engine", "duckdb")


def test_an_interrupt_ends_a_query(versions: tuple[Path, Path]) -> None:
    """As it ends Python, which a command then tells."""
    files = [*map(str, versions[0].glob("run=*/traces-*.parquet"))]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt), opened(files) as database:  # noqa: PT012  it awaits the interrupt
            timer.start()
            database.execute("SELECT sum(hash(range)) FROM range(1000000000)")
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("options", [(), ("--function", "f"), ("--function", "load")])
def test_a_trend_by_duckdb_is_the_same(options: tuple[str, ...], tmp_path: Path) -> None:
    """Of the runs of the program that ran last, the last ones."""
    pytest.importorskip("ruptures")
    times = [*STEADY, *(each * 2 for each in STEADY)]
    for job, took in enumerate(times, start=1):
        made = run_of(took, 1000 * job, job)
        made.span("load", 1000 * job + 2, 1000 * job + 2 + took / 2, made.spans[-1].span_id, trace=job)
        keep(written(tmp_path / str(job), made), tmp_path / "runs")
    keep(written(tmp_path / "other", run_of(20, 10, 99, "other.py")), tmp_path / "runs")
    found = [
        json.loads(run("trend", tmp_path / "runs", "--json", "--engine", engine, "--last", "12", *options).stdout)
        for engine in ("memory", "duckdb")
    ]
    assert found[0] == found[1]
    assert [each["run"] for each in found[0]["shifts"]] == [len(STEADY)]
    said = run("trend", tmp_path / "runs", "--engine", "duckdb", "--function", "job.py", code=1).output
    assert "no function, method or span of 12 runs of job.py is named 'job.py'" in " ".join(said.split())


# --- A page of a part -----------------------------------------------------------------------------------------------


def with_traces(store: Path) -> Path:
    """A run of a driver that calls ten functions, one after the other, and of nine traces of three spans."""
    found = HandMade()
    found.session = "session_a"
    driver = found.driver(0, 100)
    for number in range(10):
        found.run(found.submit(driver, f"f{number}", 10 * number), 10 * number + 5, 10 * number + 9)
    folder = store.parent / "spans"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(found.as_json_lines())
    keep(folder, store)
    return store


def page_of(store: Path, *options: object) -> tuple[dict[str, Any], str]:
    """What the page of a part has, and what the command says."""
    page = store.parent / "report.html"
    said = run("view", store, "--engine", "duckdb", "--output", page, *options).output
    found: dict[str, Any] = meta(page)
    return found, said


def functions(found: dict[str, Any]) -> list[str]:
    return [each["label"] for each in found["graph"]["functions"]]


def test_a_page_opens_what_ran_in_a_time(tmp_path: Path) -> None:
    """With its callers, and tables of the whole run."""
    store = with_traces(tmp_path / "runs")
    found, said = page_of(store, "--from", "32ms", "--to", "46ms")
    assert functions(found) == ["job.py", "f3", "f4"]
    assert found["spans"] == 5
    assert "The page opens 5 of 21 spans: those that ran in the time that was asked for" in said
    (table,) = [each for each in found["whole"] if isinstance(each, dict)]
    assert len(table["rows"]) == 8
    assert " and 2 other functions" in found["whole"]
    assert (found["findings"], found["path"]["steps"], found["nothing_found"]) == ([], [], "")
    assert "no span ran then" in run("view", store, "--engine", "duckdb", "--from", "2s", code=1).output


def test_a_page_opens_the_first_spans_of_a_large_trace(tmp_path: Path) -> None:
    """And the whole run if it has no more."""
    store = with_traces(tmp_path / "runs")
    found, said = page_of(store, "--max-spans", 6)
    assert (found["spans"], functions(found)) == (6, ["job.py", "f0", "f1", "f2"])
    assert "The page opens 6 of 21 spans: those that began in the first 20.0 ms" in said
    found, said = page_of(store, "--max-spans", 2, "--from", "32ms")
    assert (found["spans"], functions(found)) == (3, ["job.py", "f3"])
    assert "those that ran in the time that was asked for, of these those that began in the first 35.0 ms" in said
    assert "draws" not in said
    found, said = page_of(store)
    assert (found["spans"], found["whole"]) == (21, [])
    assert "The page opens" not in said


def test_all_ancestors_of_a_long_chain_are_opened(tmp_path: Path) -> None:
    """One of its spans began after the spans below it, by another clock; the first two are each other's parent."""
    found = HandMade()
    parent = found.driver(0, 1000)
    for depth in range(500):
        at = depth + (149.5 if depth == 250 else 0)
        parent = found.span(f"step{depth}", at, at + 1, parent)
    found.spans[0].parent_id = found.spans[1].span_id
    keep(written(tmp_path / "spans", found), tmp_path / "runs")
    (kept,), _ = kept_runs([str(tmp_path / "runs")])
    assert part.copied(kept, str(tmp_path / "part"), 1000, begin=499_500_000).spans == len(found.spans)


def test_a_page_of_traces_of_no_job_is_of_all_of_them(tmp_path: Path) -> None:
    """A store has them as one run, so the page is not of the newest."""
    made = HandMade()
    for number in (1, 2):
        made.span("request", 100 * number, 100 * number + 50, trace=number)
        made.spans[-1].attributes = {}
    (tmp_path / "spans.jsonl").write_bytes(made.as_json_lines())
    keep(tmp_path / "spans.jsonl", tmp_path / "runs", "--all")
    said = run("view", tmp_path / "runs", "--engine", "duckdb", "-o", tmp_path / "page.html").output
    assert "2 spans" in said
    assert "newest" not in said


def test_a_page_opens_whole_traces_or_one_of_them(tmp_path: Path) -> None:
    """The same ones each time."""
    runs = [HandMade() for _ in range(9)]
    lines = []
    for number, each in enumerate(runs):
        each.session = "session_a"
        root = each.driver(number, number + 50, attributes={"ray.job_id": "01000000"})
        each.run(each.submit(root, "f", number + 1), number + 2, number + 3)
        for span in each.spans:
            span.trace_id = f"{number + 1:x}" + span.trace_id[1:]
            span.span_id, span.parent_id = (
                f"{number + 1:x}{an_id[1:]}" if an_id else "" for an_id in (span.span_id, span.parent_id)
            )
        lines.append(each.as_json_lines())
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.jsonl").write_bytes(b"".join(lines))
    keep(tmp_path / "spans", tmp_path / "runs", "--all")
    first, said = page_of(tmp_path / "runs", "--max-spans", 10)
    assert (first["spans"], len(first["traces"])) == (9, 3)
    assert "9 of 27 spans: some traces as a whole" in said
    assert page_of(tmp_path / "runs", "--max-spans", 10)[0]["traces"] == first["traces"]
    one, said = page_of(tmp_path / "runs", "--trace", "5")
    assert (one["spans"], [each[0] for each in one["traces"]]) == (3, ["5"])
    assert one["nothing_found"]
    one, said = page_of(tmp_path / "runs", "--trace", "5", "--to", "1ms")
    assert (one["spans"], [each[0] for each in one["traces"]]) == (1, ["5"])
    assert "those of trace 5" in said
    assert (
        "those that ran in the time that was asked for, of these some traces as a whole"
        in page_of(tmp_path / "runs", "--to", "100ms", "--max-spans", 10)[1]
    )
    refused = run("view", tmp_path / "runs", "--engine", "duckdb", "--trace", "fe", code=1).output
    assert "no trace of 1 run starts with 'fe' (--trace)" in refused


def test_hidden_names_of_calls_are_not_in_the_tables_of_the_whole_run(tmp_path: Path) -> None:
    found = HandMade()
    driver = found.driver(0, 100)
    for begin in (10, 20):
        found.run(found.submit(driver, "f", begin), begin + 1, begin + 5, attributes={names.RAY_NAME: "secret"})
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.jsonl").write_bytes(found.as_json_lines())
    keep(tmp_path / "spans", tmp_path / "runs")
    part = "--to", "12ms"
    assert "secret" in json.dumps(page_of(tmp_path / "runs", *part)[0]["whole"])
    for option in (("--redact", "ray.name"), ("--no-attributes",)):
        assert "secret" not in json.dumps(page_of(tmp_path / "runs", *part, *option)[0])


def test_all_runs_at_once_need_memory(tmp_path: Path) -> None:
    store = with_traces(tmp_path / "runs")
    keep(written(tmp_path / "other", run_of(20, 10, 99)), store)
    assert "name a run, PATH@RUN" in run("view", store, "--all", "--engine", "duckdb", code=2).output
