"""The examples run as they stand, and their traces show what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from conftest import Cluster, start_head, stop_head
from installed import folder, needs
from peers import Rotel
from ports import free_port
from shipping import until
from support import (
    CONSUMER,
    EXAMPLES,
    LEAN,
    NEEDS_TRAIN_V2,
    await_spans,
    below,
    by_name,
    ended,
    logs_in_json,
    path_with,
    spans_in,
    tree,
    with_data,
    with_extras,
)

from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.views.page import is_report

ERROR = 2
PROGRAMS = sorted(path for path in EXAMPLES.rglob("*.py") if path.name != "test_spans.py")


def run(example: str, spans: Path, *arguments: str, **variables: str) -> str:
    """What an example prints that ends well. Its spans are in this folder, which is that of a cluster that it joins."""
    return python(str(EXAMPLES / example), *arguments, RAY_TRACING_LOCAL_DIR=str(spans), **variables)


def python(*arguments: str, **variables: str) -> str:
    """What Python prints to standard output. It has to end well."""
    path = path_with(LEAN, *filter(None, [variables.get("PYTHONPATH")]))
    done = ended([sys.executable, *arguments], variables.get("HOME"), **{**variables, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(*arguments: str, **variables: str) -> str:
    """What a command shows."""
    return python("-m", "ray_tracing_hooks", *arguments, **variables)


def trace_with(spans: list[Span], name: str) -> list[Span]:
    """The spans of the newest trace that has one of this name."""
    trace_id = max(by_name(spans, name), key=lambda span: span.start_ns).trace_id
    return [span for span in spans if span.trace_id == trace_id]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.stem))
def test_an_example_begins_with_what_it_shows_and_names_hooks_that_exist(program: Path) -> None:
    text = program.read_text()
    assert text.startswith('"""')
    assert len(text.splitlines()) <= 80
    assert f"examples/{program.relative_to(EXAMPLES)}" in text.split('"""')[1]
    for module, function in re.findall(r"(ray_tracing_hooks[.\w]*):(\w+)", text):
        assert callable(getattr(import_module(module), function))


def test_every_example_is_in_the_list() -> None:
    rows = re.findall(r"^\| .*?\]\(([\w./]+)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted({row.partition("/")[0] for row in rows}) == sorted(
        path.name for path in EXAMPLES.iterdir() if path.name not in {"README.md", "__pycache__"}
    )


@pytest.mark.xdist_group("runs")  # on the cluster of other tests
def test_the_quickstart_is_one_trace(cluster: Cluster) -> None:
    assert "words: 12" in run("quickstart.py", cluster.spans, RAY_ADDRESS=cluster.address)
    spans = trace_with(spans_in(cluster.spans), "quickstart.py ray.driver")
    assert tree(spans) == QUICKSTART.strip()


QUICKSTART = """
Total.__init__ call
__main__.count call x3
  Total.add call
  split
"""


@pytest.mark.slow(older_rays=True)  # the corpus has its finding, and test_context.py its spans
def test_a_step_waits_for_its_last_trajectory(tmp_path: Path) -> None:
    """Of half of the samples, the calls of all rollouts are below their trajectories, and of the others none."""
    run("rollouts.py", tmp_path)
    assert "the last 1 of 16 trajectories of step" in shown("summary", str(tmp_path))
    spans = spans_in(tmp_path)
    trajectories = by_name(spans, "ray.rl.trajectory")
    assert len(trajectories) == 3 * 16
    called = {span.parent_id for span in by_name(spans, "Tool.use ray.remote")}
    of = {span.span_id: (span.attributes["ray.rl.step"], span.attributes["ray.rl.sample"]) for span in trajectories}
    chosen = {of[span_id] for span_id in called}
    assert len(called) == len(by_name(spans, "Tool.use ray.remote_worker")) == 2 * len(chosen) == 2 * CHOSEN


CHOSEN = 13
"""Of 8 samples of 3 steps, by :func:`ray_tracing_hooks.rl.trajectory`."""


def test_the_settings_of_the_file_apply(tmp_path: Path) -> None:
    """Each of them that a run shows: waits, arguments, and what is excluded."""
    run("quickstart.py", tmp_path, RAY_TRACING_CONFIG=str(EXAMPLES / "settings.yaml"))
    spans = spans_in(tmp_path)
    assert len(by_name(spans, "ray.get")) == 4
    assert {span.attributes["ray.arguments"] for span in by_name(spans, "Total.add ray.remote_worker")} == {
        "count=5",
        "count=3",
        "count=4",
    }
    assert not [span for span in spans if "__init__" in span.name]
    sources = shown("config", RAY_TRACING_CONFIG=str(EXAMPLES / "settings.yaml"))
    assert sources.count("settings.yaml") > len(yaml.safe_load((EXAMPLES / "settings.yaml").read_text()))


@pytest.mark.slow(older_rays=True)  # test_instrument.py has requests
def test_requests_and_statements_are_below_their_tasks(tmp_path: Path) -> None:
    printed = run("libraries.py", tmp_path, RAY_TRACING_INSTRUMENT="requests,sqlalchemy")
    spans = spans_in(tmp_path)
    (fetch,) = by_name(spans, "__main__.fetch ray.remote_worker")
    (request,) = by_name(spans, "GET")
    assert request.parent_id == fetch.span_id
    assert f"traceparent: 00-{request.trace_id}-{request.span_id}-" in printed
    assert "saved prices: 2" in printed
    (save,) = by_name(spans, "__main__.save ray.remote_worker")
    statements = [span.name.split()[0] for span in spans if span.parent_id == save.span_id]
    assert {"CREATE", "INSERT", "SELECT"} <= set(statements)


@pytest.mark.skipif(not logs_in_json(), reason="this Ray does not write its logs as JSON")
def test_the_logs_lead_to_the_trace_and_back(tmp_path: Path) -> None:
    there, back = run("logs_to_trace.py", tmp_path).split("all lines of its span:\n")
    assert back.splitlines()[:2] == ["  INFO charging order 3", "  ERROR the card of order 3 was refused"]
    (command,) = re.findall(r"ray-tracing-hooks (tree .*)", there)
    assert "✗ ValueError: card refused" in shown(*command.split(), str(tmp_path))


@pytest.mark.slow  # it installs a package
def test_failed_calls_come_to_the_exporter_of_the_example(tmp_path: Path) -> None:
    """Installed as a user would, found by its name."""
    packages = tmp_path / "packages"
    offline = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    python("-m", "pip", "install", "-q", *offline, "--target", str(packages), str(EXAMPLES / "custom_exporter"))
    run(
        "custom_exporter/failures_exporter.py",
        tmp_path / "spans",
        PYTHONPATH=str(packages),
        RAY_TRACING_EXPORTERS="local,failures",
        FAILURES_FILE=str(tmp_path / "failures.txt"),
    )
    (failed,) = [span for span in spans_in(tmp_path / "spans") if span.kind == CONSUMER and span.status_code == ERROR]
    assert (tmp_path / "failures.txt").read_text() == (
        f"{failed.trace_id} __main__.divide ray.remote_worker ZeroDivisionError\n"
    )


def test_the_test_of_the_example_passes(tmp_path: Path) -> None:
    """In a project of its own. It starts a cluster."""
    shutil.copy(EXAMPLES / "test_spans.py", tmp_path)
    assert "1 passed" in python("-m", "pytest", "test_spans.py", HOME=str(tmp_path), RAY_TRACING_LOCAL_DIR="spans")


def served(example: str, serving: Cluster, name: str) -> tuple[str, list[Span]]:
    """What an application prints on a cluster that can serve, and the trace with a span of this name."""
    variables = {**serving.variables, "RAY_ADDRESS": serving.address, "PORT": str(free_port())}
    printed = run(example, serving.spans, **variables)
    return printed, trace_with(await_spans(serving.spans, lambda spans: bool(by_name(spans, name))), name)


@pytest.mark.slow  # an application of Serve
def test_requests_to_the_shop_are_traces_through_a_batch_and_a_task(serving: Cluster) -> None:
    printed, spans = served("serve_app.py", serving, "offer")
    assert "{'item': 'bread', 'price': 5.0, 'left': 5}" in printed
    assert tree(spans) == SHOP.strip()
    (batch,) = by_name(trace_with(spans_in(serving.spans), "look up prices"), "Prices.price serve.batch")
    assert len(batch.links) == 3


SHOP = """
GET /
  Shop.__call__ serve.remote
    Shop.__call__ serve.replica
      offer
        Prices.price serve.remote
          Prices.price serve.replica
        Stock.left serve.remote
          Stock.left serve.replica
            __main__.count call
"""


@pytest.mark.slow  # the same
def test_a_chat_is_one_trace_with_its_tokens(serving: Cluster) -> None:
    printed, spans = served("llm_app.py", serving, "chat stand-in")
    assert "where does the time go" in printed
    (chat,) = by_name(spans, "chat stand-in")
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (5, 5)
    assert [event.name for event in chat.events] == ["first token"]
    assert [span.name for span in below(below(spans, chat.name), "Model.generate serve.replica")[1:]] == [
        "prefill",
        "decode",
    ]


@pytest.mark.slow  # the same, on a cluster with another hook
def test_the_trace_of_an_agent_of_skywalking_goes_through_serve(tmp_path: Path) -> None:
    variables = {"RAY_TRACING_SKYWALKING_TRANSPORT": "none", "PORT": str(free_port())}
    assert "'sw8': '1-" in run("skywalking_serve.py", tmp_path, **with_extras(), **variables)
    names = {span.name for span in below(spans_in(tmp_path), "POST")}
    assert {"Upstream.__call__ serve.replica", "__main__.user_code ray.remote_worker"} < names


@pytest.mark.slow  # two runs of Ray Data
def test_the_operator_that_limits_the_pipeline_is_found(tmp_path: Path) -> None:
    """And more actors do its work in the mended one."""
    for name, actors in (("before", 1), ("mended", 3)):
        run("data_pipeline.py", tmp_path / name, name, **with_data())
        infer = by_name(spans_in(tmp_path / name), "infer")
        assert len({span.resource["process.pid"] for span in infer}) == actors
    assert "MapBatches(Score) limits its dataset" in shown("summary", str(tmp_path / "before"))


@pytest.mark.slow  # it imports PyTorch in three processes
@NEEDS_TRAIN_V2
def test_the_slow_rank_is_seen(training: Cluster) -> None:
    run("train_model.py", training.spans, **training.variables, RAY_ADDRESS=training.address)
    spans = below(spans_in(training.spans), "train a model")
    assert len(by_name(spans, "ray.train.checkpoint_transfer")) == 1
    ranks = by_name(spans, "model ray.train.worker")
    assert len(ranks) == 2
    for rank in ranks:
        steps = [span for span in spans if span.parent_id == rank.span_id]
        for name in ("forward and backward", "validate", "ray.train.report"):
            assert len(by_name(steps, name)) == 8
        is_slow = min(span.end_ns - span.start_ns for span in by_name(steps, "validate")) >= 300_000_000
        assert is_slow == (rank.attributes["ray.train.world_rank"] == 1)


@pytest.mark.slow  # it starts trials, which import much
def test_trials_and_their_failure_are_seen(training: Cluster) -> None:
    printed = run("tune_search.py", training.spans, **training.variables, RAY_ADDRESS=training.address)
    assert "the best rate: 0.5" in printed
    spans = below(spans_in(training.spans), "search a rate")
    trials = by_name(spans, "search ray.tune.trial")
    assert sorted(span.status_code == ERROR for span in trials) == [False, False, True]
    assert len(by_name(spans, "evaluate")) == 7


@pytest.mark.slow  # a dashboard, which takes long to start
def test_the_job_is_in_the_trace_of_its_submission(dashboard: tuple[str, str], tmp_path: Path) -> None:
    of_jobs, address = dashboard
    variables = {**with_extras(), "RAY_API_SERVER_ADDRESS": of_jobs, "RAY_ADDRESS": address}
    printed = run("submit_job.py", tmp_path, **variables)
    assert "SUCCEEDED" in printed
    assert "words: 12" in printed
    spans = below(await_spans(tmp_path, lambda spans: bool(by_name(spans, "ray.job"))), "nightly report")
    assert [span.name for span in spans[:3]] == ["nightly report", "ray.job", "quickstart.py ray.driver"]
    assert len(by_name(spans, "__main__.count ray.remote_worker")) == 3


@pytest.mark.slow  # a kernel of Jupyter, and what it imports
@needs("notebook")
def test_the_notebook_shows_its_trace_and_report(tmp_path: Path) -> None:
    printed = python(
        *("-c", NOTEBOOK, str(EXAMPLES / "notebook.ipynb")),
        PYTHONPATH=folder("notebook"),
        PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        NO_COLOR="1",
        HOME=str(tmp_path),
    )
    outputs = json.loads(printed)
    assert "140" in outputs[1]
    assert re.search(r"__main__.square x8.*multiply x8", outputs[2])
    assert "report.html" in outputs[3]
    assert is_report(str(tmp_path / "report.html"))


NOTEBOOK = """
import json, sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300).execute()
print(json.dumps([str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]))
"""
"""Runs a notebook with a kernel of Jupyter, and prints what its cells show."""


@pytest.mark.slow  # a Collector, and a cluster that sends to it
@needs("peers")
@pytest.mark.parametrize("hook", ["otlp", "jaeger"])
def test_orders_arrive_at_a_collector(hook: str, short_tmp: Callable[[], Path], tmp_path: Path) -> None:
    """By both hooks that the example names."""
    rotel = Rotel(tmp_path)
    rotel.start()
    endpoint = {"otlp": "OTEL_EXPORTER_OTLP_ENDPOINT", "jaeger": "RAY_TRACING_JAEGER_ENDPOINT"}[hook]
    variables = {endpoint: f"http://127.0.0.1:{rotel.grpc_port}", "OTEL_SERVICE_NAME": "orders"}
    try:
        head, address = start_head(short_tmp(), f"--tracing-startup-hook=ray_tracing_hooks.{hook}:setup", **variables)
        try:
            printed = run("otlp_jaeger/orders.py", tmp_path / "none", **variables, RAY_ADDRESS=address)
        finally:
            stop_head(head)
        assert "a parcel with tea, bread" in printed
        # A root span, and two for each of five calls.
        until(lambda: len(set(rotel.span_ids())) >= 11, "all are printed")
        for name in ("orders.py ray.driver", "__main__.pick ray.remote_worker", "__main__.pack ray.remote"):
            assert f"    Name           : {name}\n" in rotel.printed()
        assert "-> service.name: Str(orders)" in rotel.printed()
        assert not (tmp_path / "none").exists()
    finally:
        rotel.stop()


def test_the_compose_file_is_valid_and_its_parts_find_each_other() -> None:
    """There is no Docker engine here: its schema is checked, and that ports and files are the ones that are named."""
    here = EXAMPLES / "otlp_jaeger"
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*check, str(here / "compose.yaml")], check=True, capture_output=True)
    services = yaml.safe_load((here / "compose.yaml").read_text())["services"]
    collector = yaml.safe_load((here / "collector.yaml").read_text())
    (volume,) = services["collector"]["volumes"]
    file, inside, _ = volume.split(":")
    assert (here / file).exists()
    assert inside in services["collector"]["command"]
    listens = {each["endpoint"].rpartition(":")[2] for each in collector["receivers"]["otlp"]["protocols"].values()}
    assert {port.rpartition(":")[2] for port in services["collector"]["ports"]} == listens
    host, _, port = collector["exporters"]["otlp_grpc/jaeger"]["endpoint"].partition(":")
    assert any(each.endswith(f":{port}") for each in services[host]["ports"])
    text = (here / "orders.py").read_text()
    published = {each.split(":")[1] for service in services.values() for each in service["ports"]}
    assert set(re.findall(r"localhost:(\d+)", text)) <= published
