"""The Fluent Bit sidecar: the real program with the real configuration, logs and spans of real runs of Ray."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from fluent_bit import CONFIGURATION, POD, RESOURCE, SERVICE, FluentBit, daemonset, dry_run, needs_fluent_bit
from fluent_bit import sidecar as of_sidecar
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from peers import comparable, local_files
from shipping import until
from store import Store
from support import Run, logs_in_json, run_program

HOOK = "ray_tracing_hooks:setup"


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: the path of a unix socket of Ray's may have 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="rth-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = Store(folder)
    store.open()
    yield store
    store.close()


@pytest.fixture
def sidecar(folder: Path, store: Store) -> Iterator[FluentBit]:
    (folder / "ray").mkdir()  # what is mounted at /tmp/ray is there from the beginning
    sidecar = FluentBit(folder, of_sidecar(folder / "ray"), store.port)
    sidecar.start()
    yield sidecar
    sidecar.stop()


def run_in_pod(sidecar: FluentBit, folder: Path, program: str, encoding: str = "JSON") -> Run:
    """Run a program as in the Ray container of the sidecar's pod; local files are what its spans are compared with."""
    return run_program(
        program,
        RTH_HOOK=HOOK,
        RTH_ENCODING=encoding,
        RAY_TMPDIR=str(folder),
        RAY_TRACING_EXPORTERS="local,otlp",
        RAY_TRACING_LOCAL_DIR=str(folder / "spans"),
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{sidecar.port}",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_SERVICE_NAME=SERVICE,
        **cast("dict[str, Any]", POD),
    )


@needs_fluent_bit
def test_the_program_accepts_the_configuration(tmp_path: Path) -> None:
    done = dry_run(tmp_path / "fluent-bit.yaml")
    assert "configuration test is successful" in done.stdout + done.stderr
    assert done.returncode == 0
    # And it would say so otherwise.
    assert dry_run(tmp_path / "fluent-bit.yaml", opentelemetry_envelope="opentelemetry_envelop").returncode


def test_nothing_of_the_configuration_lets_it_drop_what_waits() -> None:
    """The defaults retry once, and keep chunks in memory."""
    import yaml

    configuration = yaml.safe_load(CONFIGURATION.read_text())
    assert {each["storage.type"] for each in configuration["pipeline"]["inputs"]} == {"filesystem"}
    assert [each["retry_limit"] for each in configuration["pipeline"]["outputs"]] == ["no_limits"]
    assert configuration["service"]["storage.path"].startswith("/var/fluent-bit/")


def lines_of(store: Store, run: Run) -> Counter[str]:
    """The log records that have the ids of a task of the run, each by its first line."""
    spans = run.result
    found = store.ask("SELECT trace_id, span_id, body FROM logs WHERE trace_id != ''")
    return Counter(first_line(body) for trace, span, body in found if [trace, span] in spans)


def first_line(body: str) -> str:
    """Without what formats put around the message: the place in the code, and the ids."""
    return re.sub(r"^\w+\.py:\d+ -- | trace_id=.*", "", body.splitlines()[0])


EXPECTED = Counter(
    text.format(order)
    for order in range(3)
    for text in ("charging order {}", "WARNING:plain:stock is low for order {}", "order {} failed")
)


@needs_fluent_bit
@pytest.mark.skipif(not logs_in_json(), reason="this Ray does not write its logs as JSON")
def test_a_line_of_rays_json_logs_becomes_a_log_record_of_its_span(
    sidecar: FluentBit, store: Store, folder: Path
) -> None:
    """And from the line to its trace and back: both are found by the ids of the other, in one store."""
    run = run_in_pod(sidecar, folder, "log_formats")
    until(lambda: lines_of(store, run).total() >= EXPECTED.total(), "all lines have come")
    assert lines_of(store, run) == EXPECTED

    # From an error line to its trace.
    query = "SELECT trace_id, span_id, body, number, time, resource, attributes FROM logs WHERE severity = 'ERROR'"
    errors = [row for row in store.ask(query) if row[2].startswith("order 1")]
    ((trace_id, span_id, body, number, at, resource, attributes),) = errors
    assert body == "order 1 failed"
    assert number == 17
    assert json.loads(resource) == RESOURCE
    fields = json.loads(attributes)
    assert fields["exc_text"].endswith("ValueError: card refused")
    assert fields["task_func_name"].endswith("charge")
    assert re.fullmatch(r".*/worker-.*\.err", fields["log.file.path"])
    assert abs(at - fields["timestamp_ns"]) < 2e6  # milliseconds, as Ray writes them
    (name, parent, of_span) = store.ask(
        "SELECT name, parent_id, resource FROM spans WHERE trace_id = ? AND span_id = ?", trace_id, span_id
    )[0]
    assert name == "__main__.charge ray.remote_worker"
    assert json.loads(of_span).items() >= RESOURCE.items()
    (submission,) = store.ask("SELECT name FROM spans WHERE span_id = ?", parent)
    assert submission == ("__main__.charge ray.remote",)

    # And back: what the span has logged.
    said = store.ask("SELECT body, severity FROM logs WHERE span_id = ? ORDER BY time, rowid", span_id)
    plain = f"WARNING:plain:stock is low for order 1 trace_id={trace_id} span_id={span_id}"
    assert Counter((body.rstrip(), severity) for body, severity in said) == {
        ("charging order 1", "INFO"): 1,
        (plain, "WARNING"): 1,
        ("order 1 failed", "ERROR"): 1,
    }

    # Other lines are there too, without ids.
    (others,) = store.ask("SELECT count(*) FROM logs WHERE trace_id = '' AND body LIKE 'printed for order %'")
    assert others == (3,)
    (raylet,) = store.ask("SELECT count(*) > 0 FROM logs WHERE attributes LIKE '%raylet.out%'")
    assert raylet == (1,)
    log = sidecar.log.read_text()
    assert "[error]" not in log
    assert "failed to process chunk" not in log


@needs_fluent_bit
def test_spans_pass_through_it(sidecar: FluentBit, store: Store, folder: Path) -> None:
    """With their ids, times, attributes, events, status, resource and scope.

    What Fluent Bit 5.1 loses, by its own decoding: flags, the trace state of links, the number of dropped links, and
    all attributes of a span of which one is bytes or empty. docs/guides/kubernetes.md says so.
    """
    run_in_pod(sidecar, folder, "everything")
    sent = comparable(local_files(folder / "spans"))
    until(lambda: len(comparable(store.traces)) >= len(sent), "all spans have come")
    came = comparable(store.traces)
    assert came.keys() == sent.keys()
    whole = 0
    for span_id, expected in sent.items():
        kinds = {KeyValue.FromString(pair).value.WhichOneof("value") for pair in expected[9]}
        is_whole = kinds.isdisjoint({"bytes_value", None})
        whole += is_whole
        assert lossless(came[span_id]) == lossless(expected, attributes=is_whole), expected[3]
    assert whole > len(sent) // 2


def lossless(span: tuple[Any, ...], *, attributes: bool = True) -> tuple[Any, ...]:
    """The parts of a comparable span that Fluent Bit passes on, with or without its attributes."""
    (*head, _flags, status, of_span, events, links, dropped, resource, scope) = span
    links = [(trace, span_id, of_link) for trace, span_id, _state, of_link, _flags in links]
    return (*head, status, of_span if attributes else [], events, links, dropped[:2], resource, scope)


@needs_fluent_bit
@pytest.mark.skipif(not logs_in_json(), reason="this Ray does not write its logs as JSON")
def test_nothing_is_lost_while_the_collector_is_away(sidecar: FluentBit, store: Store, folder: Path) -> None:
    """The lines are those of Ray's text format, in which a traceback takes several."""
    store.close()
    run = run_in_pod(sidecar, folder, "log_formats", "TEXT")
    until(lambda: "failed to flush chunk" in sidecar.log.read_text(), "it has tried in vain")
    store.open()
    sent = comparable(local_files(folder / "spans"))
    until(
        lambda: lines_of(store, run).total() >= EXPECTED.total() and len(comparable(store.traces)) >= len(sent),
        "everything has come",
        120,
    )
    assert lines_of(store, run) == EXPECTED
    assert comparable(store.traces).keys() == sent.keys()
    # A traceback is one record with the line before it: the ids are on its last line.
    failed = store.ask("SELECT body FROM logs WHERE severity = 'ERROR' AND body LIKE '%order 2 failed%'")
    assert len(failed) == 1
    assert re.search(r"order 2 failed\nTraceback .*\n.*ValueError: card refused trace_id=", failed[0][0], re.DOTALL)


@needs_fluent_bit
@pytest.mark.skipif(not logs_in_json(), reason="this Ray does not write its logs as JSON")
def test_no_log_line_is_lost_if_the_sidecar_is_killed_meanwhile(sidecar: FluentBit, store: Store, folder: Path) -> None:
    """Spans that go through it would be: so they go to the Collector directly, unless somebody asks for this."""
    store.close()
    run = run_in_pod(sidecar, folder, "log_formats")
    until(lambda: "failed to flush chunk" in sidecar.log.read_text(), "it has tried in vain")
    sidecar.kill()
    store.open()
    sidecar.start()
    until(lambda: lines_of(store, run).total() >= EXPECTED.total(), "all lines have come", 120)
    assert lines_of(store, run).keys() == EXPECTED.keys()


@needs_fluent_bit
def test_one_on_each_node_reads_the_logs_of_all_pods(store: Store, folder: Path) -> None:
    """Through the volumes of the pods, where the link ``session_latest`` leads nowhere. The path has the pod's uid."""
    ids = {"first": "1f6af9c1d6d9494e", "second": "2f6af9c1d6d9494e"}
    for uid, span_id in ids.items():
        ray = folder / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "any-name"
        logs = ray / "session_2026-11-24_23-06-24_1" / "logs"
        logs.mkdir(parents=True)
        (ray / "session_latest").symlink_to("/tmp/ray/session_2026-11-24_23-06-24_1")
        line = f"2026-11-24 23:06:30,063\tERROR prog.py:10 -- refused trace_id={'7' * 32} span_id={span_id}\n"
        (logs / "worker-1.err").write_text(line)
    daemon = FluentBit(folder, daemonset(folder / "pods"), store.port)
    daemon.start()
    try:
        until(lambda: len(store.ask("SELECT 1 FROM logs")) >= len(ids), "all lines have come")
    finally:
        daemon.stop()
    found = store.ask("SELECT span_id, resource, attributes FROM logs")
    paths = {span_id: json.loads(attributes)["log.file.path"] for span_id, _, attributes in found}
    assert {span_id: re.findall(r"pods/(\w+)/", path)[0] for span_id, path in paths.items()} == {
        span_id: uid for uid, span_id in ids.items()
    }
    resources = [json.loads(resource) for _, resource, _ in found]
    assert resources == [{"service.name": "ray", "k8s.node.name": POD["K8S_NODE_NAME"]}] * len(ids)
