"""Where Jaeger is, and how it is spoken to, by our variables and the standard ones."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ray_tracing_hooks._ship.sink import Tls
from ray_tracing_hooks._ship.sinks.jaeger import PORTS, read
from ray_tracing_hooks._ship.transport.contract import ServerSettings

J = "OTEL_EXPORTER_JAEGER_"
THRIFT = "?format=jaeger.thrift"


def settings(protocol: str, endpoint: str | None = None, /, **variables: str) -> tuple[ServerSettings, list[str]]:
    problems: list[str] = []
    environ = {f"{J}{name}" if name.isupper() and "OTEL" not in name else name: variables[name] for name in variables}
    environ["RAY_TRACING_JAEGER_PROTOCOL"] = protocol
    if endpoint is not None:
        environ["RAY_TRACING_JAEGER_ENDPOINT"] = endpoint
    return read(environ, problems.append), problems


@pytest.mark.parametrize(
    ("protocol", "target", "address"),
    [
        ("otlp-grpc", "localhost:4317", "http://localhost:4317"),
        ("otlp-http", "http://localhost:4318/v1/traces", "http://localhost:4318/v1/traces"),
        ("thrift-http", f"http://localhost:14268/api/traces{THRIFT}", "http://localhost:14268/api/traces"),
        ("thrift-udp", "localhost:6831", "udp://localhost:6831"),
        ("grpc", "localhost:14250", "http://localhost:14250"),
    ],
)
def test_without_settings_jaeger_is_here(protocol: str, target: str, address: str) -> None:
    found, problems = settings(protocol)
    assert (found.protocol, found.target, found.address) == (protocol, target, address)
    assert (found.headers, found.timeout, found.max_spans, found.delay) == ({}, 10, None, 1)
    assert problems == []


@pytest.mark.parametrize(
    ("protocol", "endpoint", "variables", "target"),
    [
        # Ours, the standard endpoint, the agent's host, in this order.
        ("otlp-grpc", "http://a:1", {"ENDPOINT": "http://b:2", "AGENT_HOST": "c"}, "a:1"),
        ("otlp-grpc", None, {"ENDPOINT": "http://b:2", "AGENT_HOST": "c"}, "b:2"),
        ("otlp-grpc", None, {"AGENT_HOST": "c"}, "c:4317"),
        ("grpc", None, {"AGENT_HOST": "c", "AGENT_PORT": "7"}, "c:14250"),
        # For an agent its own variables count, and an endpoint only where it is all there is.
        ("thrift-udp", None, {"ENDPOINT": "http://b:14268/api/traces", "AGENT_HOST": "c", "AGENT_PORT": "7"}, "c:7"),
        ("thrift-udp", None, {"ENDPOINT": "http://b:14268/api/traces"}, "b:6831"),
        ("thrift-udp", None, {"AGENT_PORT": "7"}, "localhost:7"),
        ("thrift-udp", "a:1", {"AGENT_HOST": "c", "AGENT_PORT": "7"}, "a:1"),
        # What users write.
        ("otlp-grpc", "jaeger", {}, "jaeger:4317"),
        ("otlp-grpc", "http://jaeger/", {}, "jaeger:4317"),
        ("otlp-grpc", "jaeger:99", {}, "jaeger:99"),
        ("otlp-grpc", "https://jaeger.example", {}, "jaeger.example:443"),
        ("otlp-grpc", "http://jaeger/api/traces", {}, "jaeger:4317"),
        ("thrift-udp", "https://jaeger/api/traces", {}, "jaeger:6831"),
        ("otlp-http", "jaeger:4318", {}, "http://jaeger:4318/v1/traces"),
        ("otlp-http", "http://jaeger:4318/v1/traces/", {}, "http://jaeger:4318/v1/traces"),
        ("otlp-http", "https://proxy/jaeger/v1?x=1", {}, "https://proxy:443/jaeger/v1?x=1"),
        ("thrift-http", None, {"ENDPOINT": "http://proxy/api/traces"}, f"http://proxy:80/api/traces{THRIFT}"),
        ("thrift-http", None, {"ENDPOINT": "http://j:14268/api/traces?a=b"}, "http://j:14268/api/traces?a=b"),
        # IPv6, with brackets and without.
        ("otlp-grpc", "http://[::1]:99", {}, "[::1]:99"),
        ("thrift-udp", None, {"AGENT_HOST": "::1"}, "[::1]:6831"),
        ("thrift-udp", None, {"AGENT_HOST": "[fe80::1]", "AGENT_PORT": "7"}, "[fe80::1]:7"),
        # An agent's host with a port.
        ("thrift-udp", None, {"AGENT_HOST": "c:8"}, "c:8"),
        ("thrift-udp", None, {"AGENT_HOST": "c:8", "AGENT_PORT": "7"}, "c:7"),
        # Empty is unset.
        ("otlp-grpc", None, {"ENDPOINT": " ", "AGENT_HOST": ""}, "localhost:4317"),
    ],
)
def test_where_jaeger_is(protocol: str, endpoint: str | None, variables: dict[str, str], target: str) -> None:
    found, problems = settings(protocol, endpoint, **variables)
    assert found.target == target
    assert problems == []


@pytest.mark.parametrize("protocol", PORTS)
def test_a_port_for_another_protocol_is_put_right(protocol: str) -> None:
    """A cluster's variables often stay as they were when the protocol changes."""
    for port in (*PORTS.values(), 6832, 5775):
        found, problems = settings(protocol, f"http://me:secret@jaeger:{port}")
        assert f"jaeger:{PORTS[protocol]}" in found.target
        said = (
            f"RAY_TRACING_JAEGER_ENDPOINT: port {port} is Jaeger's port for a protocol other than {protocol}, "
            f"which is in use (RAY_TRACING_JAEGER_PROTOCOL); using port {PORTS[protocol]}."
        )
        assert problems == ([] if port == PORTS[protocol] else [said])


def test_a_path_for_another_protocol_is_put_right_with_it() -> None:
    found, problems = settings("otlp-http", ENDPOINT="http://jaeger:14268/api/traces")
    assert found.target == "http://jaeger:4318/v1/traces"
    assert [problem.partition(":")[0] for problem in problems] == [f"{J}ENDPOINT"]
    found, problems = settings("thrift-http", "https://proxy/v1/traces")
    assert (found.target, problems) == (f"https://proxy:443/api/traces{THRIFT}", [])


def test_an_agents_port_for_another_protocol_is_named() -> None:
    found, problems = settings("thrift-udp", AGENT_PORT="6832")
    assert found.target == "localhost:6831"
    assert [problem.partition(":")[0] for problem in problems] == [f"{J}AGENT_PORT"]


@pytest.mark.parametrize(
    ("protocol", "variables", "target", "problem"),
    [
        ("otlp-grpc", {"ENDPOINT": "ftp://a", "AGENT_HOST": "c"}, "c:4317", f"{J}ENDPOINT='ftp://a' is ignored"),
        ("thrift-udp", {"AGENT_PORT": "many"}, "localhost:6831", f"{J}AGENT_PORT='many' is ignored"),
        ("thrift-udp", {"AGENT_PORT": "0"}, "localhost:6831", f"{J}AGENT_PORT='0' is ignored"),
        ("thrift-udp", {"AGENT_HOST": "a b"}, "localhost:6831", f"{J}AGENT_HOST='a b' is ignored"),
        ("thrift-udp", {"AGENT_HOST": "a:b", "AGENT_PORT": "7"}, "localhost:7", f"{J}AGENT_HOST='a:b' is ignored"),
        ("grpc", {"ENDPOINT": "unix:/tmp/socket"}, "localhost:14250", f"{J}ENDPOINT='unix:/tmp/socket' is ignored"),
        ("grpc", {"TIMEOUT": "soon"}, "localhost:14250", f"{J}TIMEOUT='soon' is ignored"),
    ],
)
def test_what_is_wrong_is_told_and_the_next_best_is_used(
    protocol: str, variables: dict[str, str], target: str, problem: str
) -> None:
    found, problems = settings(protocol, **variables)
    assert found.target == target
    assert found.timeout == 10
    assert len(problems) == 1
    assert problems[0].startswith(problem)
    assert "expected" in problems[0]
    assert "using" in problems[0]


@pytest.mark.parametrize("protocol", ["otlp-grpc", "otlp-http", "thrift-http", "grpc"])
def test_basic_authentication(protocol: str) -> None:
    """By the variables, or by what stands in the URL; never in what is shown."""
    expected = {"authorization": "Basic " + base64.b64encode(b"me:se:cret").decode()}
    by_variables, problems = settings(protocol, USER="me", PASSWORD="se:cret")
    by_url, _ = settings(protocol, "http://me:se%3Acret@jaeger:99")
    assert by_variables.headers == by_url.headers == expected
    assert problems == []
    assert "se" not in by_url.address + by_url.target
    both, _ = settings(protocol, "http://other:one@jaeger:99", USER="me", PASSWORD="se:cret")
    assert both.headers == expected


def test_half_a_login_is_told_without_its_value() -> None:
    found, problems = settings("grpc", PASSWORD="hunter2")
    assert found.headers == {}
    assert problems == [f"{J}PASSWORD is ignored: expected {J}USER with it; using no authentication."]
    found, problems = settings("grpc", "http://a:b@jaeger", USER="me")
    assert found.headers == {"authorization": "Basic " + base64.b64encode(b"a:b").decode()}
    assert problems == [f"{J}USER is ignored: expected {J}PASSWORD with it; using the credentials of the endpoint."]


def test_an_agent_is_told_no_password() -> None:
    """A datagram has no place for it."""
    found, problems = settings("thrift-udp", "http://a:b@jaeger", USER="me", PASSWORD="secret")
    assert (found.headers, found.target, problems) == ({}, "jaeger:6831", [])


def test_tls_is_for_https_alone(tmp_path: Path) -> None:
    """With the authorities of the standard variable, else the system's. gRPC must be told of plaintext."""
    authorities = tmp_path / "ca.pem"
    authorities.write_text("-")
    for protocol in ("otlp-grpc", "grpc"):
        assert settings(protocol, "https://jaeger:99")[0].tls == Tls()
        assert settings(protocol, "https://jaeger:99", CERTIFICATE=str(authorities))[0].tls == Tls(str(authorities))
        assert settings(protocol, "http://jaeger:99", CERTIFICATE=str(authorities))[0].tls is None
        assert settings(protocol, "jaeger:99")[0].tls is None
        assert settings(protocol, "https://jaeger:99")[0].address == "https://jaeger:99"
    found, problems = settings("thrift-http", "https://jaeger:99", CERTIFICATE=str(tmp_path / "missing"))
    assert found.tls == Tls()
    assert len(problems) == 1


def test_how_much_goes_at_once_and_how_long_it_may_take() -> None:
    found, _ = settings(
        "grpc",
        TIMEOUT="7",
        OTEL_BSP_SCHEDULE_DELAY="250",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="64",
        OTEL_BSP_EXPORT_TIMEOUT="3000",
    )
    assert (found.timeout, found.delay, found.max_spans) == (3, 0.25, 64)


def test_the_variables_of_otlp_do_not_count() -> None:
    """Their headers may be the key to another back end."""
    found, problems = settings(
        "otlp-grpc",
        OTEL_EXPORTER_OTLP_ENDPOINT="https://vendor",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=secret",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )
    assert (found.target, found.headers, found.timeout, problems) == ("localhost:4317", {}, 10, [])
