"""A store of runs: what is written, that it reads back as it was, and what other programs read of it."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hand_made import HandMade
from installed import folder as installed
from made_spans import CONSUMER, PRODUCER, process, span
from test_subfolders import run as with_gpu
from test_subfolders import write_beside
from test_view import meta

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._cli.keeping import written_text
from ray_tracing_hooks._cli.run import Kept, _show, redacted
from ray_tracing_hooks._formats.task_states import About, Attempt, file_name, lines
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.model.span import Event, Link, Span
from ray_tracing_hooks._insight.store.columns import COLUMNS, OF_OTLP
from ray_tracing_hooks._insight.views.exports.otlp import _attributes, _described
from ray_tracing_hooks._settings.table import Settings

RECORDED = Path(__file__).parent / "corpus" / "recorded"
OF_EVERY_LIBRARY = (
    "actor_restarts",
    "blocking_get_in_replica",
    "computed_for_each_epoch",
    "slow_operator_then_consumer",
    "awaits",
)


pytestmark = pytest.mark.usefixtures("packages")


def run(*arguments: object, code: int = 0) -> Result:
    """A command that ends with this exit code."""
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


def keep(source: object, store: Path, *options: str) -> dict[str, Any]:
    """Write the newest run to a store; the last one that it wrote, as its ``run.json`` says."""
    found = json.loads(run("export", source, "--format", "parquet", "-o", store, "--json", *options).stdout)
    document: dict[str, Any] = json.loads((store / f"run={found['runs'][-1]}" / "run.json").read_text())
    return document


def traces_of(store: Path) -> list[Path]:
    return sorted(store.glob("run=*/traces-*.parquet"))


def made(function: str = "f", job: str = "", *, error: str = "", spans: int = 1) -> HandMade:
    """A driver that calls a function."""
    found = HandMade()
    found.session = f"session_{job or 'a'}"
    driver = found.driver(0, 100)
    for number in range(spans):
        call = found.submit(driver, function, 1 + number, number + 1.5)
        found.run(call, 3 + number, 50 + number, error=error)
    return found


def written(found: HandMade, folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(found.as_json_lines())
    return folder


# --- It reads back as it was ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_EVERY_LIBRARY)
def test_a_run_read_back_has_the_same_summary(name: str, tmp_path: Path) -> None:
    """The whole document, with the steps of the critical path."""
    recorded = RECORDED / f"{name}.jsonl.gz"
    keep(recorded, tmp_path / "runs")
    assert run("summary", tmp_path / "runs", "--json", "-v").stdout == run("summary", recorded, "--json", "-v").stdout


def test_a_span_read_back_has_all_that_it_had(tmp_path: Path) -> None:
    """Attributes of every kind, events, links, status, resource, scope, state, flags, and what was dropped."""
    task = "ab" * 24
    driver = process(pid=1, **{"ray.worker.process_type": "driver"}) | {"host.ip": ["10.0.0.7", "10.0.0.8"]}
    spans = [
        span(1, 1_000, 9_000, name="run.py ray.driver", where=driver, attributes={names.RAY_JOB_ID: "01000000"}),
        span(2, 1_001, 1_900, 1, name="f ray.remote", kind=PRODUCER, where=driver, attributes={"ray.task_id": task}),
        span(
            3,
            2_000,
            8_000,
            2,
            name="f ray.remote_worker \u2028 \U0001f600",
            kind=CONSUMER,
            attributes={
                "ray.task_id": task,
                "text": "ü",
                "whole": 1,
                "large": 2**53 + 1,
                "half": 0.5,
                "one": 1.0,
                "yes": True,
                "none": None,
                "list": [1, 2.5, "x", [True]],
                "map": {"a": {"b": [1]}},
            },
            status_code=2,
            status_message="boom\nthere",
            events=[Event("exception", 2_500, {"exception.type": "ValueError", "n": 1})],
            links=[Link("0" * 31 + "1", "00000000000000ff", {"why": "x"}, "a=b")],
        ),
        span(4, 3_000, 2_000, 3, name="ends before it starts"),
        span(5, 3_000, 0, 3, name="has no end", state="lost"),
    ]
    source = tmp_path / "spans.jsonl"
    source.write_text("".join(line_of(each, dropped=each is spans[2]) for each in spans))
    keep(source, tmp_path / "runs", "--all")
    before, _ = read([str(source)])
    after, quality = read([str(path) for path in traces_of(tmp_path / "runs")])
    assert after == before
    assert after[2].dropped == (1, 2, 3)
    assert (after[2].flags, after[2].trace_state, after[2].scope_version) == (768, "x=y", "1.2")
    assert after[2].scope_attributes == {"of": "scope"}
    assert quality.negative == 1


def line_of(each: Span, *, dropped: bool) -> str:
    """The line of a span, with what only other programs write."""
    described = _described(each)
    scope: dict[str, Any] = {"name": each.scope}
    if dropped:
        described |= {"traceState": "x=y", "flags": 768, "droppedAttributesCount": 1, "droppedEventsCount": 2}
        described["droppedLinksCount"] = 3
        described["links"][0]["traceState"] = "a=b"
        scope |= {"version": "1.2", "attributes": _attributes({"of": "scope"})}
    of_scope = {"scope": scope, "spans": [described]}
    of_resource = {"resource": {"attributes": _attributes(each.resource)}, "scopeSpans": [of_scope]}
    return json.dumps({"resourceSpans": [of_resource]}) + "\n"


def test_what_was_wrong_with_the_data_is_still_said(tmp_path: Path) -> None:
    """A line that cannot be read, a duplicate, and a span without attributes that its limits dropped, which counts once
    although it is in both files.
    """
    folder = written(made(), tmp_path / "spans")
    first, *others = (folder / "a.jsonl").read_bytes().splitlines(keepends=True)
    limited = first.replace(b'"spanId"', b'"droppedAttributesCount":3,"spanId"', 1)
    (folder / "a.jsonl").write_bytes(b"".join([limited, *others]))
    (folder / "b.jsonl").write_bytes(limited + b"junk\n")
    keep(folder, tmp_path / "runs")
    before = json.loads(run("summary", folder, "--json").stdout)["quality"]
    assert json.loads(run("summary", tmp_path / "runs", "--json").stdout)["quality"] == before
    assert (before["duplicates"], before["bad_lines"], before["files"], before["truncated"]) == (1, 1, 2, 1)
    shown = " ".join(run("summary", tmp_path / "runs").stdout.split())
    assert "1 span without attributes, events or links that its limits dropped" in shown


def test_states_of_tasks_come_along(tmp_path: Path) -> None:
    """Those of the tasks of the run."""
    found = made()
    folder = written(found, tmp_path / "spans")
    task = next(each.attributes["ray.task_id"] for each in found.spans if "ray.task_id" in each.attributes)
    begin = found.spans[1].start_ns
    states = {"PENDING_ARGS_AVAIL": begin, "PENDING_NODE_ASSIGNMENT": begin + 10, "RUNNING": begin + 20}
    attempt = {"attempt": 0, "name": "f", "kind": "NORMAL_TASK", "job_id": "01000000", "states": states}
    about = {"format": "ray_tracing_hooks.task_states", "version": 1, "session": "session_a", "dropped": 2}
    lines = [about, {**attempt, "task_id": task}, {**attempt, "task_id": "00" * 24}]
    (folder / "task-states-session_a.ndjson").write_text("".join(json.dumps(each) + "\n" for each in lines))
    keep(folder, tmp_path / "runs")
    before = json.loads(run("summary", folder, "--json").stdout)["queues"]
    assert json.loads(run("summary", tmp_path / "runs", "--json").stdout)["queues"] == before
    assert (before["calls"], before["dropped"]) == (1, 2)
    (copied,) = (tmp_path / "runs").glob("run=*/task-states-*")
    assert len(copied.read_text().splitlines()) == 2


@pytest.mark.parametrize("name", OF_EVERY_LIBRARY)
def test_duckdb_computes_the_same_functions(name: str, tmp_path: Path) -> None:
    """Counts, sums and percentiles, to the nanosecond."""
    keep(RECORDED / f"{name}.jsonl.gz", tmp_path / "runs")
    in_memory = json.loads(run("summary", tmp_path / "runs", "--json").stdout)
    by_duckdb = json.loads(run("summary", tmp_path / "runs", "--json", "--engine", "duckdb").stdout)
    assert by_duckdb["functions"] == in_memory["functions"]
    assert by_duckdb["run"]["calls"] == in_memory["run"]["calls"]
    assert [each["title"] for each in by_duckdb["findings"]] == [each["title"] for each in in_memory["findings"]]


def test_duckdb_says_that_it_shows_less(tmp_path: Path) -> None:
    """And it needs a run of a store."""
    folder = written(made(), tmp_path / "spans")
    keep(folder, tmp_path / "runs")
    assert "DuckDB computed this from 3 spans" in run("summary", tmp_path / "runs", "--engine", "duckdb").output
    for engine in ("duckdb", "ray"):
        assert "give the path of a store" in run("summary", folder, "--engine", engine, code=2).output
    assert "the cluster of --engine ray" in run("summary", folder, "--address", "10.0.0.1:6379", code=2).output


def test_collected_files_become_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the session that is named, and the files themselves are not kept."""
    monkeypatch.chdir(tmp_path)
    session = tmp_path / "session_2026-11-25_00-38-55_281040_31184"
    (session / "ray_tracing_hooks").mkdir(parents=True, mode=0o700)
    spans = written(made(), tmp_path / "spans")
    (spans / "a.jsonl").rename(spans / "2026-11-25_00-38-55_281040_31184-aaaaaaaa-0001.jsonl")
    monkeypatch.setenv("RAY_TRACING_LOCAL_DIR", str(spans))
    told = run("collect", session, "--output", f"parquet:{tmp_path}/runs").output
    assert "1 file" in told
    assert "3 spans of 1 run" in told
    assert os.listdir(tmp_path / "runs") == [path.parent.name for path in traces_of(tmp_path / "runs")]
    monkeypatch.setenv("RAY_TRACING_COLLECT_TO", f"parquet:{tmp_path}/others")
    assert len(json.loads(run("collect", session, "--json").stdout)["runs"]) == 1
    assert functions(tmp_path / "others") == functions(tmp_path / "runs") == ["f"]


# --- What is in it --------------------------------------------------------------------------------------------------

OF_DUCKDB_OTLP = """
start_time_unix_nano TIMESTAMP_NS, duration_time_unix_nano BIGINT, trace_id VARCHAR, span_id VARCHAR,
parent_span_id VARCHAR, trace_state VARCHAR, service_name VARCHAR, service_namespace VARCHAR,
service_instance_id VARCHAR, name VARCHAR, kind INTEGER, status_code INTEGER, status_status_message VARCHAR,
resource_attributes VARCHAR, scope_name VARCHAR, scope_version VARCHAR, scope_attributes VARCHAR,
span_attributes VARCHAR, events_json VARCHAR, links_json VARCHAR, dropped_attributes_count INTEGER,
dropped_events_count INTEGER, dropped_links_count INTEGER, flags INTEGER
"""
"""The columns of ``read_otlp_traces()``, from the reference of duckdb-otlp 0.6."""


def test_the_first_columns_are_those_of_duckdb_otlp(tmp_path: Path) -> None:
    """With the same types, as DuckDB sees them."""
    keep(written(made(), tmp_path / "spans"), tmp_path / "runs")
    described = import_module("duckdb").sql(f"DESCRIBE SELECT * FROM '{tmp_path}/runs/run=*/traces-*.parquet'")
    found = [f"{name} {kind}" for name, kind, *_ in described.fetchall()]
    assert found[:OF_OTLP] == [each.strip() for each in OF_DUCKDB_OTLP.replace("\n", " ").split(",")]
    assert [each.split()[0] for each in found] == [*(column.name for column in COLUMNS), "run"]


GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "runs.md").read_text()


@pytest.mark.parametrize("language", ["sql", "python"])
def test_what_the_guide_shows_works(language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of a store."""
    keep(written(made(error="boom"), tmp_path / "spans"), tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    found = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert len(found) == 2
    for each in found:
        if language == "sql":
            assert import_module("duckdb").sql(each).fetchall()
        else:
            exec(compile(each, "guide", "exec"), {})


def test_clickhouse_reads_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the query of the guide, by its engine in a process of its own."""
    pytest.importorskip("chdb")
    for function in ("f", "g"):
        keep(written(made(function, function), tmp_path / function), tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (query,) = re.findall(r'clickhouse local --query "(.*?)"', GUIDE, re.DOTALL)
    command = [sys.executable, "-c", "import chdb, sys; print(chdb.query(sys.argv[1], 'CSV'))", query]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
    rows = sorted(line.split(",") for line in done.stdout.split())
    assert {row[0] for row in rows} == {
        f'"{path.parent.name.removeprefix("run=")}"' for path in traces_of(Path("runs"))
    }
    assert sorted(row[1:] for row in rows) == [['"f"', "1", "0.047"], ['"g"', "1", "0.047"]]


def test_a_description_says_what_the_run_was(tmp_path: Path) -> None:
    """So that it can be listed without its spans."""
    found = made(error="boom")
    found.spans[0].resource["vcs.ref.head.revision"] = "4bf92f35"
    document = keep(written(found, tmp_path / "spans"), tmp_path / "runs")
    assert (document["format"], document["version"]) == ("ray_tracing_hooks.run", 1)
    assert document["program"]["commit"] == "4bf92f35"
    assert document["cluster"]["session"] == "session_a"
    assert document["counts"]["failed"] == 1
    assert document["wall_ns"] == 100_000_000
    assert document["files"][0]["rows"] == len(found.spans)


def test_arguments_of_the_program_have_no_secrets() -> None:
    """By the name of an option, or by their form."""
    given = ["--epochs", "3", "--api-key", "hunter2", "--token=abc", "s3://me:secret@bucket", "data.csv"]
    hidden = redacted(given)
    assert [hidden[0], hidden[1], hidden[2], hidden[6]] == ["--epochs", "3", "--api-key", "data.csv"]
    assert not any(secret in text for secret in ("hunter2", "abc", "secret") for text in hidden)


def test_redacted_attributes_are_not_in_it(tmp_path: Path) -> None:
    """Neither with their key, nor without any."""
    found = made()
    for each in found.spans:
        each.attributes["secret"] = each.status_message = "hush"
        each.resource["secret"] = "hush"
    folder = written(found, tmp_path / "spans")
    for number, options in enumerate((["--redact", "secret", "--redact", "exception.*"], ["--no-attributes"])):
        store = tmp_path / f"runs{number}"
        keep(folder, store, *options)
        rows = import_module("pandas").read_parquet(traces_of(store)).astype(str).to_csv()
        assert "hush" not in rows + (store / os.listdir(store)[0] / "run.json").read_text()


def test_what_is_redacted_is_neither_in_the_description_nor_beside_the_spans(tmp_path: Path) -> None:
    """The id stays, by which other commands find the run."""
    found = made()
    found.spans[0].attributes[names.RAY_ENTRYPOINT] = "/home/me/train.py"
    for each in found.spans:
        each.resource |= {"vcs.ref.head.revision": "c0ffee", names.RESOURCE_GCS_ADDRESS: "10.9.8.7:6379"}
        each.resource |= {names.RESOURCE_RAY_VERSION: "2.60.0"}
    folder = written(found, tmp_path / "spans")
    task = next(each.attributes[names.RAY_TASK_ID] for each in found.spans if names.RAY_TASK_ID in each.attributes)
    states = lines(About("session_a", 1, 0), [Attempt(task, 0, "f", "NORMAL_TASK", "01000000", {"RUNNING": 1})])
    (folder / file_name("session_a")).write_bytes(b"".join(states))
    shown = keep(folder, tmp_path / "shown")
    values = "/home/me/train.py", "c0ffee", "10.9.8.7:6379", "2.60.0", "session_a", "01000000"
    for number, (options, hidden) in enumerate(
        (
            ((), ()),
            (("--redact", "*"), values),
            (("--redact", "ray.entrypoint"), values[:1]),
            (("--redact", "ray.cluster.session*"), ("session_a",)),
            (("--no-attributes",), values[:4]),
        )
    ):
        document = keep(folder, store := tmp_path / f"runs{number}", *options)
        assert document["id"] == shown["id"]
        assert {each for each in values if f'"{each}"' not in json.dumps(document)} == set(hidden), options
        beside = [path.name for path in store.glob("run=*/task-states-*")]
        assert bool(beside) == ("session_a" not in hidden and "--no-attributes" not in options), options
        assert functions(f"{store}@{shown['id']}") == ["f"]


def test_runs_stay_apart_and_whole_where_what_tells_them_apart_is_hidden(tmp_path: Path) -> None:
    """Two runs of two traces each."""
    for number in range(2):
        found = made("f", f"{number}", spans=2)
        for at, each in enumerate(found.spans):
            each.trace_id = f"{10 + 2 * number + at // 3:032x}"
        written(found, tmp_path / f"spans{number}")
    for place, options in enumerate((["--redact", "*"], ["--no-attributes"])):
        store = tmp_path / f"runs{place}"
        for number in range(2):
            keep(tmp_path / f"spans{number}", store, *options)
        trend = json.loads(run("trend", store, "--json").stdout)["runs"]
        assert [each["spans"] for each in trend] == [5, 5]
        assert json.loads(run("summary", store, "--json").stdout)["run"]["spans"] == 5
        run("compare", f"{store}@latest~1", "--to", store)


def test_after_run_the_commands_that_it_names_show_the_run_of_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That folder of spans may be gone by then, and the store may have a newer run."""
    spans, store = written(made(), tmp_path / "spans"), tmp_path / "my runs"
    keep(written(made(job="newer"), tmp_path / "other"), store)
    _show([], str(spans), Settings(), Kept(str(store), (), {}), is_of_run=True, views=False, opens=False)
    shutil.rmtree(spans)
    named = re.findall(r": ray-tracing-hooks (.+)", capsys.readouterr().err)
    assert [each.split()[0] for each in named] == ["runs", "summary", "view"]
    listed, summary, view = map(shlex.split, named)
    run(*listed)
    assert json.loads(run(*summary, "--json").stdout)["run"]["session"] == "session_a"
    assert run(*(each for each in view if each != "--open"), "-o", tmp_path / "report.html").stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("actor_restarts", ("--redact", "ray.task*")),
        ("actor_restarts", ("--redact", "*")),
        ("blocking_get_in_replica", ("--no-attributes",)),
    ],
)
def test_figures_of_a_run_without_attributes_are_from_when_it_was_stored(
    name: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    """An analysis of what was stored comes to something else. So it is only made if it is asked for, with a warning."""
    recorded, store = RECORDED / f"{name}.jsonl.gz", tmp_path / "runs"
    assert "ray.task_id" in keep(recorded, store, *options)["hidden"]
    shown = json.loads(run("summary", store, "--json").stdout)
    whole = json.loads(run("summary", recorded, "--json").stdout)
    assert shown["engine"] == "duckdb"
    assert shown["functions"] == whole["functions"]
    findings = [[(each["kind"], each["share"]) for each in found["findings"]] for found in (shown, whole)]
    assert findings[0] == findings[1]
    in_memory = run("summary", store, "--json", "--engine", "memory")
    assert "hid attributes that the analysis reads" in " ".join(in_memory.stderr.split())
    assert "findings may be wrong" in " ".join(in_memory.stderr.split())
    assert json.loads(in_memory.stdout)["functions"] != whole["functions"]
    said = " ".join(run("summary", store).output.split())
    assert "with figures from when the run was stored, as --redact or --no-attributes hid attributes" in said
    run("view", store, "-o", tmp_path / "report.html")
    page = meta(tmp_path / "report.html")
    assert (page["findings"], page["path"]["steps"], page["nothing_found"]) == ([], [], "")
    assert any("hid attributes that the analysis reads" in each for each in page["whole"] if isinstance(each, str))


def test_attributes_that_the_analysis_does_not_read_change_no_engine(tmp_path: Path) -> None:
    document = keep(RECORDED / "actor_restarts.jsonl.gz", tmp_path / "runs", "--redact", "*.password")
    assert document["hidden"] == []
    assert "engine" not in json.loads(run("summary", tmp_path / "runs", "--json").stdout)


# --- Runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of three runs, one a minute; an error is in the newest."""
    found = tmp_path / "runs"
    for number, name in enumerate(("old", "middle", "new")):
        each = made(name, name, error="boom" if name == "new" else "")
        for at in each.spans:
            at.trace_id = f"{number + 1:032x}"
            at.start_ns += number * 60 * 10**9
            at.end_ns += number * 60 * 10**9
        keep(written(each, tmp_path / name), found)
    return found


def newest_of(store: Path) -> Path:
    """The folder of its newest run."""
    return store / f"run={json.loads(run('runs', store, '--json').stdout)[0]['id']}"


def described_as(folder: Path, **changed: Any) -> None:
    """Change what the description of a run says."""
    described = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**described, **changed}))


def functions(*arguments: object) -> list[str]:
    return [each["function"] for each in json.loads(run("summary", *arguments, "--json").stdout)["functions"]]


def test_runs_are_listed_the_newest_first(store: Path) -> None:
    """With filters, as text and as JSON."""
    listed = json.loads(run("runs", store, "--json").stdout)
    assert [each["cluster"]["session"] for each in listed] == ["session_new", "session_middle", "session_old"]
    assert [each["counts"]["calls"] for each in listed] == [1, 1, 1]
    text = run("runs", store).output.splitlines()
    assert text[0].split() == ["PROGRAM", "RUN", "JOB", "STARTED", "TOOK", "CALLS", "ERRORS"]
    assert [each["id"] for each in listed if any(each["id"] in line for line in text)] == [
        each["id"] for each in listed
    ]
    assert len(json.loads(run("runs", store, "--errors", "--json").stdout)) == 1
    assert len(json.loads(run("runs", store, "--last", "2", "--json").stdout)) == 2
    assert "none of the runs is like that" in run("runs", store, "--name", "nothing", code=1).output


def test_runs_of_a_folder_of_spans_are_listed_as_those_of_a_store(store: Path, tmp_path: Path) -> None:
    """With the same ids."""
    both = tmp_path / "both"
    both.mkdir()
    for name in ("old", "new"):
        (both / f"{name}.jsonl").write_bytes((tmp_path / name / "a.jsonl").read_bytes())
    of_store = {each["id"]: each for each in json.loads(run("runs", store, "--json").stdout)}
    for each in json.loads(run("runs", both, "--json").stdout):
        known = of_store[each["id"]]
        assert {name: each[name] for name in ("program", "counts", "findings")} == {
            name: known[name] for name in ("program", "counts", "findings")
        }


def test_a_command_takes_a_run_by_its_id_or_its_place(store: Path, tmp_path: Path) -> None:
    """Of a store, and of a folder of spans."""
    ids = [each["id"] for each in json.loads(run("runs", store, "--json").stdout)]
    assert functions(store) == functions(f"{store}@latest") == ["new"]
    assert (
        functions(f"{store}@latest~2")
        == functions(f"{store}@{ids[2]}")
        == functions(f"{store}@{ids[2][:6]}")
        == ["old"]
    )
    both = tmp_path / "both"
    both.mkdir()
    for name in ("old", "new"):
        (both / f"{name}.jsonl").write_bytes((tmp_path / name / "a.jsonl").read_bytes())
    assert functions(f"{both}@latest~1") == functions(f"{both}@{ids[2]}") == ["old"]
    assert functions(store / f"run={ids[1]}") == ["middle"]


@pytest.mark.parametrize("command", ["tree", "view", "export"])
def test_every_command_that_shows_spans_takes_a_run(command: str, store: Path, tmp_path: Path) -> None:
    """And shows no other."""
    out = tmp_path / "out"
    more = {"tree": [], "view": ["-o", out], "export": ["-o", out, "--format", "otlp"]}[command]
    shown = run(command, f"{store}@latest~1", *more).output + (out.read_text() if out.exists() else "")
    assert "middle" in shown
    assert "new ray.remote" not in shown


def test_a_run_that_is_not_there_is_said_with_what_is(store: Path) -> None:
    """By place and by id, and two at once."""
    assert f"{store} has 3 runs" in run("summary", f"{store}@latest~3", code=1).output
    assert "0 of 3 runs start with 'kkkkkkkkkk'" in run("summary", f"{store}@kkkkkkkkkk", code=1).output
    assert "names one run" in run("summary", f"{store}@latest", "--job", "01", code=2).output


def test_traces_without_a_job_are_one_run(tmp_path: Path) -> None:
    """Spans that know nothing of Ray: each trace would be a folder."""
    spans = [span(number, number * 1000, number * 1000 + 500, name="GET /") for number in range(1, 4)]
    for number, each in enumerate(spans):
        each.trace_id = f"{number + 1:032x}"
        each.resource = {"service.name": "shop"}
    source = tmp_path / "spans.jsonl"
    source.write_text("".join(line_of(each, dropped=False) for each in spans))
    document = keep(source, tmp_path / "runs", "--all")
    assert document["counts"] == {"spans": 3, "traces": 3, "calls": 0, "functions": 0, "failed": 0}
    assert len(os.listdir(tmp_path / "runs")) == 1
    assert run("summary", tmp_path / "runs", "--json").stdout == run("summary", source, "--json").stdout


# --- Damage ---------------------------------------------------------------------------------------------------------


def test_writing_a_run_again_replaces_it(tmp_path: Path) -> None:
    """Nothing of the earlier copy is left, nor of what was beside it."""
    folder, store = tmp_path / "spans", tmp_path / "runs"
    write_beside(folder, with_gpu())
    first = keep(folder, store)
    second = keep(folder, store)
    assert first["id"] == second["id"]
    assert first["files"] != second["files"]
    assert [path.name for path in traces_of(store)] == [second["files"][0]["name"]]
    there = {
        str(path.relative_to(store / f"run={second['id']}")) for path in store.glob("run=*/**/*") if path.is_file()
    }
    assert there == {"run.json", second["files"][0]["name"], *second["beside"]}
    assert len(second["beside"]) == 2


_KILLED = """
import os, sys
sys.path += sys.argv[3:]
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.store import write

class Killed(write.Store):
    def _write(self, *args):
        found = super()._write(*args)
        os.kill(os.getpid(), 9)  # once the spans are written, and before the description is
        return found

import ray_tracing_hooks._cli.keeping as keeping
keeping.Store = Killed
main(["export", sys.argv[1], "--format", "parquet", "-o", sys.argv[2]])
"""


def export_command(folder: Path, store: Path) -> list[str]:
    export = [sys.executable, "-m", "ray_tracing_hooks", "export", str(folder)]
    return [*export, "--format", "parquet", "-o", str(store)]


def killed_while_writing(folder: Path, store: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(folder), str(store), installed("data")]
    done = subprocess.run(command, capture_output=True, timeout=100, check=False)
    assert done.returncode == -9, done.stderr


def test_a_writer_that_is_killed_leaves_the_earlier_copy(tmp_path: Path) -> None:
    """And the next one clears away what it left. A run of which there was no copy is not there."""
    folder, store = written(made(), tmp_path / "spans"), tmp_path / "runs"
    killed_while_writing(folder, store)
    assert "no spans in" in run("summary", store, code=1).output
    before = keep(folder, store)
    killed_while_writing(folder, store)
    assert len(traces_of(store)) == 2
    assert functions(store) == ["f"]
    assert json.loads(run("runs", store, "--json").stdout) == [before]
    keep(folder, store)
    assert len(traces_of(store)) == 1


def test_a_full_disk_is_said_and_leaves_the_earlier_copy(tmp_path: Path) -> None:
    """Not half a file."""
    folder, store = written(made(spans=2000), tmp_path / "spans"), tmp_path / "runs"
    before = keep(folder, store)
    command = export_command(folder, store)
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path)])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(run("runs", store, "--json").stdout) == [before]
    assert [path.name for path in store.glob("run=*/*")].count("run.json") == 1
    assert len(traces_of(store)) == 1


def test_a_run_of_another_version_is_said_and_the_others_are_read(store: Path) -> None:
    """With what to do."""
    newest = newest_of(store)
    described_as(newest, version=2)
    result = run("summary", store, "--json")
    assert "has version 2, and this package reads version 1" in result.stderr
    assert [each["function"] for each in json.loads(result.stdout)["functions"]] == ["middle"]
    assert "has version 2" in run("summary", newest, code=1).output
    described_as(newest, wall_ns=float("nan"))
    assert "is not JSON" in run("runs", store).stderr
    for each in store.glob("run=*/run.json"):
        each.write_text('{"format": "ray_tracing_hooks.run", "version": 2}')
    for option in ((), ("--json",)):
        assert "has version 2" in run("runs", store, *option, code=1).stderr


def test_columns_of_other_types_are_converted_or_said(tmp_path: Path) -> None:
    """As pandas writes them, with floats in place of integers; a type for something else is no traceback."""
    keep(written(made(), tmp_path / "spans"), tmp_path / "runs")
    (path,) = traces_of(tmp_path / "runs")
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    table, file = parquet.read_table(path), tmp_path / "tables.parquet"

    def changed(name: str, values: Any) -> Path:
        parquet.write_table(table.set_column(table.schema.get_field_index(name), name, values), file)
        return file

    expected = json.loads(run("summary", path, "--json").stdout)["functions"]
    for name in ("duration_time_unix_nano", "kind", "status_code"):
        floats = table[name].cast(arrow.float64(), safe=False)
        assert json.loads(run("summary", changed(name, floats), "--json").stdout)["functions"] == expected
    for name, why in (("name", "expected text"), ("kind", "expected a number"), ("start_time_unix_nano", "a number")):
        lists = changed(name, arrow.array([[1]] * len(table)))
        assert f"{name} has the type list<" in (said := " ".join(run("summary", lists, code=1).output.split()))
        assert why in said


def test_a_damaged_row_group_is_said_and_the_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many spans are missing is not known."""
    monkeypatch.setattr("ray_tracing_hooks._insight.store.write._ROWS", 100)
    store = tmp_path / "runs"
    keep(written(made(spans=300), tmp_path / "spans"), store)
    (path,) = traces_of(store)
    parquet = import_module("pyarrow.parquet")
    column = parquet.ParquetFile(path).metadata.row_group(2).column(17)
    data = bytearray(path.read_bytes())
    at = column.data_page_offset
    data[at : at + column.total_compressed_size // 2] = bytes(column.total_compressed_size // 2)
    path.write_bytes(data)
    found = json.loads(run("summary", store, "--json").stdout)
    assert found["run"]["spans"] == 501
    assert found["quality"]["incomplete_files"] == 1
    assert "row group 2 cannot be read" in found["quality"]["problems"][0]


def test_a_file_that_is_cut_or_no_table_of_spans_is_said(store: Path, tmp_path: Path) -> None:
    """And not read."""
    newest = newest_of(store)
    (path,) = newest.glob("traces-*")
    path.write_bytes(path.read_bytes()[:-20])
    assert "not completely read" in run("summary", newest, code=1).output
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": [1]}), tmp_path / "other.parquet")
    assert "it is not a table of spans" in run("summary", tmp_path / "other.parquet", code=1).output


def test_a_file_that_a_description_names_and_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the run is written again. The rest is not shown as if it were the run."""
    monkeypatch.setattr("ray_tracing_hooks._insight.store.write._ROWS_OF_FILE", 3)
    keep(written(made(spans=4), tmp_path / "spans"), tmp_path / "runs")
    traces_of(tmp_path / "runs")[1].unlink()
    found = json.loads(run("summary", tmp_path / "runs", "--json").stdout)
    assert (found["run"]["spans"], found["quality"]["incomplete_files"]) == (6, 1)
    assert "1 file or folder not completely read" in " ".join(run("summary", tmp_path / "runs").output.split())


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_a_run_that_names_no_file_is_damaged(store: Path, engine: str) -> None:
    """Another run of the store is read."""
    described_as(newest_of(store), files=[])
    assert "run.json is damaged" in run("compare", "--all", store, "--to", store, "--engine", engine).stderr


def test_a_file_that_a_description_names_outside_of_its_folder_is_not_read(store: Path, tmp_path: Path) -> None:
    """Whoever wrote it."""
    newest = newest_of(store)
    (path,) = newest.glob("traces-*")
    path.rename(tmp_path / "elsewhere.parquet")
    described_as(newest, files=[{"name": "../../elsewhere.parquet", "rows": 3}])
    shown = " ".join(run("summary", newest, code=1).output.split())
    assert "run.json is damaged: Expected `str` matching regex" in shown
    assert "`$.files[0].name`" in shown


def test_a_table_of_another_program_can_be_read(tmp_path: Path) -> None:
    """With only the columns of duckdb-otlp, and times in microseconds."""
    folder = written(made(), tmp_path / "spans")
    keep(folder, tmp_path / "runs")
    (path,) = traces_of(tmp_path / "runs")
    few = ", ".join(column.name for column in COLUMNS[1:OF_OTLP])
    import_module("duckdb").sql(
        f"COPY (SELECT start_time_unix_nano::TIMESTAMP AS start_time_unix_nano, {few} FROM '{path}')"
        f" TO '{tmp_path}/few.parquet'"
    )
    assert functions(tmp_path / "few.parquet") == ["f"]


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it; by export before it looks for spans, since reading them can take minutes."""
    folder, store = written(made(), tmp_path / "spans"), tmp_path / "runs"
    keep(folder, store)
    for name in ("pyarrow", "pyarrow.parquet", "duckdb"):
        monkeypatch.setitem(sys.modules, name, None)
    how = "pip install 'ray-tracing-hooks[insight]'"
    asked = run("export", tmp_path / "none", "--format", "parquet", "-o", tmp_path / "other", code=1)
    assert how in " ".join(asked.output.split())
    assert how in " ".join(run("summary", store, code=1).output.split())
    assert how in " ".join(run("summary", store, "--engine", "duckdb", code=1).output.split())


def test_a_place_is_named_as_it_was_given_without_a_password(tmp_path: Path) -> None:
    """A path may have an ``@``, an address a password before it."""
    place = tmp_path / "runs of me@work"
    source = written(made(), tmp_path / "spans")
    text = run("export", source, "--format", "parquet", "-o", place).output
    assert f"next: ray-tracing-hooks runs '{place}'" in text
    assert "s3cret" not in written_text("s3://key:s3cret@bucket/runs", [])


def test_a_store_cannot_be_where_a_file_is(tmp_path: Path) -> None:
    """Nor standard output."""
    folder = written(made(), tmp_path / "spans")
    (tmp_path / "file").write_text("")
    for place in ("-", tmp_path / "file"):
        assert "is no folder" in run("export", folder, "--format", "parquet", "-o", place, code=2).output
