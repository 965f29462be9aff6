"""What real collectors receive is what the local files of the same run hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from peers import Rotel, TestAgent, comparable, local_files, spans_of
from shipping import until
from support import Run, run_program

VARIANTS = [
    pytest.param("grpc", "none", id="grpc"),
    pytest.param("grpc", "gzip", id="grpc-gzip"),
    pytest.param("http/protobuf", "none", id="http"),
    pytest.param("http/protobuf", "gzip", id="http-gzip"),
    pytest.param("http/json", "gzip", id="json-gzip"),
]


def run(folder: Path, variables: dict[str, str], **more: str) -> Run:
    environment: dict[str, Any] = {
        "RTH_HOOK": "ray_tracing_hooks:setup",
        "RAY_TRACING_EXPORTERS": "local,otlp",
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "RAY_TRACING_FLUSH_TIMEOUT": "20",
        **variables,
        **more,
    }
    return run_program("everything", **environment)


@pytest.mark.parametrize(("protocol", "compression"), VARIANTS)
def test_the_test_agent_receives_what_the_files_hold(
    agent: TestAgent, tmp_path: Path, protocol: str, compression: str
) -> None:
    """Names, parents, kinds, attributes of every type, events, links, status, flags, scope and Resource."""
    run(tmp_path, agent.variables(protocol), OTEL_EXPORTER_OTLP_COMPRESSION=compression)
    expected, received = comparable(local_files(tmp_path / "spans")), comparable(agent.received())
    assert len(expected) >= 60
    assert received == expected
    if protocol != "grpc":
        encodings = {request["headers"].get("Content-Encoding") for request in agent.requests()}
        assert encodings == ({"gzip"} if compression == "gzip" else {None})


@pytest.mark.parametrize(("protocol", "compression"), VARIANTS)
def test_rotel_receives_what_the_files_hold(rotel: Rotel, tmp_path: Path, protocol: str, compression: str) -> None:
    """A collector in another language prints each span as we render it from the files."""
    run(tmp_path, rotel.variables(protocol), OTEL_EXPORTER_OTLP_COMPRESSION=compression)
    expected = list(spans_of(local_files(tmp_path / "spans")))
    assert len(expected) >= 60
    until(lambda: len(rotel.span_ids()) >= len(expected), "all are printed")
    assert Counter(rotel.span_ids()) == Counter(span.span_id.hex() for _, _, span in expected)
    printed = rotel.printed()
    for resource, _, span in expected:
        assert rotel.text(span) in printed
        assert rotel.resource_text(resource) in printed


def test_headers_of_a_vendor_arrive_and_are_told_nobody(agent: TestAgent, tmp_path: Path) -> None:
    done = run(
        tmp_path,
        agent.variables("http/protobuf"),
        OTEL_EXPORTER_OTLP_HEADERS="x-api-key=se%20cret,x-tenant=me",
        OTEL_RESOURCE_ATTRIBUTES="team=a",
    )
    headers = [request["headers"] for request in agent.requests() if "v1/traces" in request["url"]]
    assert headers
    assert all(found.get("x-api-key") == "se cret" and found.get("x-tenant") == "me" for found in headers)
    assert "se cret" not in done.stdout + done.stderr
