"""What a real collector receives is what the local files of the same run hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from peers import Send, TestAgent, comparable, local_files
from support import run_program

VARIANTS = [
    pytest.param("grpc", "gzip", id="grpc-gzip"),
    pytest.param("http/protobuf", "none", id="http"),
    pytest.param("http/protobuf", "gzip", id="http-gzip"),
    pytest.param("http/json", "gzip", id="json-gzip"),
]


def test_the_test_agent_receives_what_the_files_hold(agent: TestAgent, tmp_path: Path) -> None:
    """Names, parents, kinds, attributes of every type, events, links, status, flags, scope and Resource. And the
    headers of a vendor, which nobody is told.
    """
    variables: dict[str, Any] = {
        "RTH_HOOK": "ray_tracing_hooks:setup",
        "RAY_TRACING_EXPORTERS": "local,otlp",
        "RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans"),
        "RAY_TRACING_FLUSH_TIMEOUT": "20",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=se%20cret,x-tenant=me",
        "OTEL_RESOURCE_ATTRIBUTES": "team=a",
        **agent.variables("http/protobuf"),
    }
    done = run_program("everything", **variables)
    check_agent(agent, tmp_path / "spans")
    headers = [request["headers"] for request in agent.requests() if "v1/traces" in request["url"]]
    assert headers
    assert all(found.get("x-api-key") == "se cret" and found.get("x-tenant") == "me" for found in headers)
    assert "se cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(("protocol", "compression"), VARIANTS)
def test_the_test_agent_receives_the_same_by_every_protocol(
    agent: TestAgent, send: Send, protocol: str, compression: str
) -> None:
    """Also where the files themselves are sent."""
    check_agent(agent, send("otlp", **agent.variables(protocol), OTEL_EXPORTER_OTLP_COMPRESSION=compression))
    if protocol != "grpc":
        encodings = {request["headers"].get("Content-Encoding") for request in agent.requests()}
        assert encodings == ({"gzip"} if compression == "gzip" else {None})


def check_agent(agent: TestAgent, files: Path) -> None:
    expected, received = comparable(local_files(files)), comparable(agent.received())
    assert len(expected) >= 60
    assert received == expected
