"""What ``--redact`` hides is nowhere in the page and the exports, whatever part of them the value gets into."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hand_made import HandMade
from recordings import recorded

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.processes import places
from ray_tracing_hooks._insight.model.span import SERVER
from ray_tracing_hooks._insight.views.exports import FORMATS
from ray_tracing_hooks._insight.views.page import report
from ray_tracing_hooks._insight.views.redaction import Redaction

OF_RESOURCES: dict[str, Any] = {
    "host.name": "qa00-host",
    "host.ip": ["qa01-address"],
    "service.name": "qa02-service",
    "service.instance.id": "qa03-instance",
    "process.pid": 76543210,
    names.RESOURCE_NODE_ID: "qa04-node",
    names.RESOURCE_WORKER_ID: "qa05-worker",
}
OF_SPANS: dict[str, Any] = {
    names.RAY_NODE_ID: "qa10-node",
    names.RAY_WORKER_ID: "qa11-worker",
    names.RAY_PID: 76543211,
    names.RAY_ACTOR_ID: "qa12-actor",
    names.RAY_ACTOR_CLASS: "qa13-class",
    names.RAY_ACTOR_METHOD: "qa14-method",
    names.RAY_ACTOR_NAME: "qa15-name",
    names.RAY_PLACEMENT_GROUP_ID: "qa16-group",
    names.RAY_ACCELERATOR_IDS: ["qa17-GPU"],
    names.RAY_NAME: "qa18-given",
    names.RAY_ARGUMENTS: "qa19-arguments",
    names.ERROR_TYPE: "qa20-Error",
}
KEYS = OF_RESOURCES | OF_SPANS


def mark(key: str) -> bytes:
    """What of the value of a key can be in an output, where ids are shortened."""
    (value,) = KEYS[key] if isinstance(KEYS[key], list) else (KEYS[key],)
    return str(value).encode() if isinstance(value, int) else value[:4].encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An actor that holds a GPU for long, fails at last, and is on a machine whose clock is behind."""
    made = HandMade()
    driver = made.driver(0, 10_000)
    for number, (start, end) in enumerate(((100, 300), (9_000, 9_500))):
        call = made.submit(driver, "Model.load", start - 60, actor="")
        made.run(call, start, end, attributes=OF_SPANS, error="" if number == 0 else "boom", clock=-70, node="n2")
    for span in made.spans[2::2]:
        span.resource.update(OF_RESOURCES)
        if not span.failed:
            del span.attributes[names.ERROR_TYPE]
    found = tmp_path_factory.mktemp("redacted")
    (found / "a.jsonl").write_bytes(made.as_json_lines())
    made.session = "earlier"
    made.spans = [replace(each, trace_id="e" * 32) for each in made.spans]
    (found / "earlier").mkdir()
    (found / "earlier" / "a.jsonl.gz").write_bytes(gzip.compress(made.as_json_lines()))
    return found


def outputs(folder: Path, into: Path, *options: str) -> dict[str, bytes]:
    """What each command writes, unpacked; of a comparison also what it prints."""
    found = {}
    for name in ("page", "comparison", *FORMATS):
        out = into / name
        command = ["export", str(folder), "--format", name, "-o"]
        if name == "page":
            command = ["view", str(folder), "-o"]
        elif name == "comparison":
            command = ["compare", f"{folder}/earlier", "--to", f"{folder}/a.jsonl", "--json", "--page"]
        result = CliRunner().invoke(main, [*command, str(out), "--force", *options])
        assert result.exit_code == 0, result.output
        found[name] = out.read_bytes() if name in FORMATS else unpacked(out.read_text()) + result.stdout.encode()
    return found


def unpacked(page: str) -> bytes:
    """The text of a page, and the data in it."""
    data = r'(<script type="text/plain" id="\w+">)([^<]*)</script>'
    parts = [gzip.decompress(base64.b64decode(line)) for _, text in re.findall(data, page) for line in text.split()]
    return b"\n".join([re.sub(data, r"\1", page).encode(), *parts])


@pytest.fixture(scope="module")
def everything(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All outputs, with everything in them."""
    return outputs(folder, tmp_path_factory.mktemp("everything"))


@pytest.mark.parametrize("key", KEYS)
def test_a_redacted_value_is_in_no_output(folder: Path, everything: dict[str, bytes], key: str, tmp_path: Path) -> None:
    """Without the option it is in nearly all. Values of other keys are still there."""
    hidden = outputs(folder, tmp_path, "--redact", key)
    with_it = [name for name, found in everything.items() if mark(key) in found]
    assert {"page", "comparison", "otlp"} <= set(with_it)
    assert [name for name, found in hidden.items() if mark(key) in found] == []
    other = "host.name" if key != "host.name" else "service.name"
    assert {"page", "otlp"} <= {name for name, found in hidden.items() if mark(other) in found}


def findings(path: str, into: Path, *options: str) -> str:
    """The findings in the page of a recorded run."""
    result = CliRunner().invoke(main, ["view", path, "-o", str(into), "--force", *options])
    assert result.exit_code == 0, result.output
    (data,) = re.findall(r'<script type="text/plain" id="meta">([^<]*)</script>', into.read_text())
    return "\n".join(each["text"] for each in json.loads(gzip.decompress(base64.b64decode(data)))["findings"])


@pytest.mark.parametrize(
    ("recording", "key", "value"),
    [
        ("worker_tree", names.ERROR_TYPE, "FileNotFoundError"),
        ("worker_tree", names.EXCEPTION_TYPE, "FileNotFoundError"),
        ("rank_fails", names.ERROR_TYPE, "RuntimeError"),
        ("failed_trials", names.ERROR_TYPE, "ValueError"),
        ("data_bottleneck", names.RAY_DATA_CONSUMER, "iter_batches"),
        ("data_bottleneck", names.RAY_DATA_OPERATOR, "MapBatches(Embedder)"),
        ("data_backpressure", f"{names.RAY_DATA_BACKPRESSURE_POLICY}*", "ResourceBudget"),
        ("starved_gpu", names.RAY_ACCELERATOR_IDS, "GPU:0"),
    ],
)
def test_findings_quote_no_redacted_value(recording: str, key: str, value: str, tmp_path: Path) -> None:
    """They are as many, and say the rest."""
    path = recorded(recording)
    shown, hidden = (findings(path, tmp_path / "page", *options) for options in ((), ("--redact", key)))
    assert value in shown
    assert value not in hidden
    assert hidden.count("\n") == shown.count("\n")
    without = findings(path, tmp_path / "page", "--no-attributes")
    assert key in (names.RAY_DATA_OPERATOR, names.RAY_ACCELERATOR_IDS) or value not in without


@pytest.mark.parametrize("recording", ["slow_consumer", "tiny_blocks", "computed_for_each_epoch"])
def test_findings_are_the_same_whatever_is_redacted(recording: str) -> None:
    """Also where they are about operators of Ray Data, whose names are hidden."""
    table = load([recorded(recording)])
    Redaction(redact=["*"]).apply(table)
    shown, hidden = (find(Analysis(each)) for each in (load([recorded(recording)]), table))
    assert [each.kind for each in shown] == [each.kind for each in hidden]


def test_errors_of_trials_are_not_quoted() -> None:
    """The numbers of trials are."""
    run = HandMade()
    experiment = run.span("sweep ray.tune", 0, 10_000, run.driver(0, 10_000))
    for error in ("MyError", ""):
        attributes: dict[str, Any] = {names.RAY_TUNE_PENDING_TIME: 0.0}
        run.span("trial ray.tune.trial", 0, 9_000, experiment, error=error, attributes=attributes)
    (finding,) = (each for each in find(Analysis(run.table())) if each.kind == "ended-trials")
    assert "1 trial failed with MyError" in finding.text
    redactions = Redaction(attributes=False), Redaction(redact=["error.*"])
    for (shown,) in (report.described([finding], int, redaction, 1) for redaction in redactions):
        assert shown["text"].startswith("1 of 2 trials of sweep ended early: ***; it ran for ")
        assert "MyError" not in shown["text"]


def test_hosts_that_are_hidden_are_still_several(tmp_path: Path) -> None:
    """Of processes that Ray does not know: equal process ids are not one process because their hosts are not shown."""
    run = HandMade()
    for number in range(2):
        run.span("work", number, number + 5, node=f"n{number}")
    for number, span in enumerate(run.spans):
        span.attributes.clear()
        span.resource.clear()
        span.resource.update({"host.name": f"secret-{number}", "process.pid": 7})
    (tmp_path / "a.jsonl").write_bytes(run.as_json_lines())
    table = load([str(tmp_path / "a.jsonl")])
    Redaction(redact=["host.*"]).apply(table)
    assert [place.node_label for place in places(table).places] == ["***", "***2"]
    assert [table.span(row).resource["host.name"] for row in range(2)] == ["***", "***2"]


def test_without_attributes_there_is_no_trace_state_and_no_redacted_service(tmp_path: Path) -> None:
    """The name of a service is kept as long as it is not redacted, since backends group spans by it."""
    run = HandMade()
    run.driver(0, 10)
    run.spans[0].resource["service.name"] = "shop"
    document = json.loads(run.as_json_lines())
    (span,) = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span |= {
        "traceState": "vendor=secret",
        "links": [{"traceId": "1" * 32, "spanId": "1" * 16, "traceState": "a=secret"}],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(document) + "\n")
    held = {}
    for name, options in (
        ("all", []),
        ("none", ["--no-attributes"]),
        ("no service", ["--no-attributes", "--redact", "service.*"]),
    ):
        command = ["export", str(tmp_path / "a.jsonl"), "--format", "otlp", "-o", "-", *options]
        held[name] = CliRunner().invoke(main, command).stdout
    assert [held[name].count("secret") for name in held] == [2, 0, 0]
    assert [held[name].count("shop") for name in held] == [1, 1, 0]
    assert held["none"].count("1" * 32) == 1


@pytest.mark.parametrize("options", [["--no-attributes"], ["--redact", "ray.serve.*"]])
def test_the_requests_of_a_page_hide_applications_and_methods(tmp_path: Path, options: list[str]) -> None:
    """Two applications with a deployment of one name, and requests that reach a replica directly."""
    run = HandMade()
    for trace, application in enumerate(("secretshop", "secretstore"), 1):
        attributes = {
            names.RAY_SERVE_APPLICATION: application,
            names.RAY_SERVE_DEPLOYMENT: "Secretgate",
            names.RAY_SERVE_METHOD: "secretmethod",
            names.RAY_SERVE_REPLICA_ID: "r1",
        }
        run.span("GET /", 0, 30, kind=SERVER, worker="r1", attributes=attributes, trace=trace)
    (tmp_path / "a.jsonl").write_bytes(run.as_json_lines())
    page = tmp_path / "page.html"
    result = CliRunner().invoke(main, ["view", str(tmp_path / "a.jsonl"), "-o", str(page), *options])
    assert result.exit_code == 0, result.output
    text = unpacked(page.read_text("utf-8"))
    assert b"GET /" in text
    assert b"secret" not in text.lower()


def test_an_export_of_which_all_is_hidden_has_all_spans(tmp_path: Path) -> None:
    """Times of submissions and ids of tasks are texts in it, which are neither times nor equal ids."""
    given, made = recorded("worker_tree"), tmp_path / "hidden.jsonl"
    CliRunner().invoke(
        main, ["export", given, "--format", "otlp", "--redact", "*", "--output", str(made)], catch_exceptions=False
    )
    table = load([str(made)])
    assert len(table) == len(load([given]))
    assert not table.quality.bad_spans
    assert not set(table.submitted) - {0}
