"""Nodes that join a traced cluster, and clients of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cluster, Nodes, start_head, stop_head
from ports import free_port
from support import (
    CLIENT_SERVER,
    HOOK,
    await_spans,
    by_name,
    check_links,
    command,
    of_driver,
    run_client,
)

from ray_tracing_hooks._insight.model.span import Span

pytestmark = pytest.mark.slow  # a cluster of two nodes, and a server for clients


@pytest.fixture(scope="module")
def client_port(only_clients: None) -> int:
    return free_port()


@pytest.fixture(scope="module")
def two_nodes(short_tmp: Callable[[], Path], client_port: int) -> Iterator[Cluster]:
    """A head with the hook, and a node whose ``ray start`` names none."""
    folder = short_tmp()
    spans = str(folder / "spans")
    options = [f"--tracing-startup-hook={HOOK}", f"--ray-client-server-port={client_port}", '--resources={"first":1}']
    head, address = start_head(folder, *options, **CLIENT_SERVER, RAY_TRACING_LOCAL_DIR=spans)
    nodes = Nodes(address, folder)
    nodes.start("second", '--resources={"second":1}', RAY_TRACING_LOCAL_DIR=spans)
    yield Cluster(address, folder / "spans")
    nodes.stop()
    stop_head(head)


def test_a_node_that_joins_without_naming_the_hook_is_traced(two_nodes: Cluster) -> None:
    """Ray has one hook for all nodes: every call is traced on both, and the spans of both come to the files."""
    run = two_nodes.run("second_node")
    assert run.result == [True, 2]

    # A driver waits for the delivery of its own node only.
    found = await_spans(two_nodes.spans, lambda spans: len(of_driver(spans, "second_node")) >= 14)
    spans = of_driver(found, "second_node")
    check_links(spans)
    made = sorted(span.name.removesuffix(" ray.remote") for span in spans if span.name.endswith(" ray.remote"))
    done = [span for span in spans if span.name.endswith(" ray.remote_worker")]
    assert made == sorted(span.name.removesuffix(" ray.remote_worker") for span in done)
    assert made == ["Actor.__init__", "Actor.keyword", "Actor.nothing", *["__main__.nothing"] * 3]
    assert len({span.attributes["ray.node_id"] for span in done}) == 2
    assert by_name(spans, "in second")


def test_what_a_ray_client_asks_for_is_in_the_trace_of_its_server(two_nodes: Cluster, client_port: int) -> None:
    """The client is not a process of the cluster; the driver that serves it is, and has the hook."""
    run = run_client("second_node", RTH_ADDRESS=f"ray://127.0.0.1:{client_port}")
    assert run.result == [True, 2]
    root = "ray.util.client.server ray.driver"
    spans = of_server(await_spans(two_nodes.spans, lambda spans: len(of_server(spans)) >= 14))
    check_links(spans)
    assert len(by_name(spans, root)) == 1
    for call in ("Actor.nothing", "Actor.keyword"):
        (made,) = by_name(spans, f"{call} ray.remote")
        (done,) = by_name(spans, f"{call} ray.remote_worker")
        assert done.parent_id == made.span_id


def test_doctor_asks_all_nodes_through_a_client_too(two_nodes: Cluster, client_port: int) -> None:
    """From a machine that is no node. The process that serves it makes no spans."""
    before = await_spans(two_nodes.spans, lambda spans: len(of_server(spans)) >= 14)
    address = f"ray://127.0.0.1:{client_port}"
    done = command("doctor", "--address", address, "--json", RAY_TRACING_LOCAL_DIR=str(two_nodes.spans))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert not [finding for finding in report["findings"] if finding["severity"] != "ok"], report["findings"]
    assert (report["hook"], len(report["nodes"])) == (HOOK, 2)
    assert all(node["answered"] and node["exporters"] == ["local"] for node in report["nodes"])
    # Whatever it recorded would come after what is recorded now.
    run_client("second_node", RTH_ADDRESS=f"ray://127.0.0.1:{client_port}")
    more = await_spans(two_nodes.spans, lambda spans: len(of_server(spans)) >= len(of_server(before)) + 14)
    assert len(of_server(more)) == len(of_server(before)) + 14
    assert {span.name for span in more} == {span.name for span in before}


def of_server(spans: list[Span]) -> list[Span]:
    """The spans of the trace whose root is the driver that Ray runs for a client."""
    roots = {span.trace_id for span in spans if span.name == "ray.util.client.server ray.driver"}
    return [span for span in spans if span.trace_id in roots]
