"""What the standard variables of OTLP mean."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ray_tracing_hooks._ship.sink import Tls
from ray_tracing_hooks._ship.sinks.otlp import read
from ray_tracing_hooks._ship.transport.contract import ServerSettings

PREFIX = "OTEL_EXPORTER_OTLP_"
BASIC = "Basic " + base64.b64encode(b"me:p@ss").decode()


def settings(**variables: str) -> tuple[ServerSettings, list[str]]:
    """Of variables without ``OTEL_EXPORTER_OTLP_``, or with a name that begins with ``OTEL_``."""
    problems: list[str] = []
    environ = {name if name.startswith("OTEL_") else PREFIX + name: value for name, value in variables.items()}
    return read(environ, problems.append), problems


def fine(**variables: str) -> ServerSettings:
    found, problems = settings(**variables)
    assert problems == []
    return found


def test_without_variables_spans_go_to_a_collector_on_this_machine() -> None:
    assert fine() == ServerSettings(
        protocol="grpc",
        target="localhost:4317",
        address="http://localhost:4317",
        headers={},
        timeout=10,
        gzip=False,
        tls=None,
        max_spans=None,
        delay=1.0,
    )
    assert fine(PROTOCOL="http/protobuf").target == "http://localhost:4318/v1/traces"
    assert fine(PROTOCOL="http/json").target == "http://localhost:4318/v1/traces"


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [
        ("http://c:4317", "grpc"),
        ("http://c", "grpc"),
        ("https://c/x", "grpc"),
        ("unix:/run/c.sock", "grpc"),
        ("http://c:4318", "http/protobuf"),
        ("c:4318", "http/protobuf"),
        ("https://c/v1/traces", "http/protobuf"),
        ("https://c/x/v1/traces/", "http/protobuf"),
        ("https://c:4317/v1/traces", "http/protobuf"),
    ],
)
def test_an_endpoint_tells_its_protocol_where_nothing_else_does(endpoint: str, protocol: str) -> None:
    assert settings(TRACES_ENDPOINT=endpoint)[0].protocol == protocol
    assert settings(TRACES_ENDPOINT=endpoint, PROTOCOL="http/json")[0].protocol == "http/json"


@pytest.mark.parametrize(
    ("endpoint", "target", "tls"),
    [
        ("http://c", "c:4317", None),
        ("https://c", "c:443", Tls()),
        ("http://c:1234/path?query", "c:1234", None),
        ("https://c:1234/path", "c:1234", Tls()),
        ("http://[::1]", "[::1]:4317", None),
        ("https://[fe80::1]:1234", "[fe80::1]:1234", Tls()),
        ("HTTP://C:1234", "c:1234", None),
        ("localhost:1234", "localhost:1234", None),
        ("127.0.0.1", "127.0.0.1:4317", None),
        ("[::1]:1234", "[::1]:1234", None),
        ("unix:/run/c.sock", "unix:/run/c.sock", None),
        ("unix:///run/c.sock", "unix:///run/c.sock", None),
    ],
)
def test_where_grpc_connects(endpoint: str, target: str, tls: Tls | None) -> None:
    """The scheme decides about TLS, a path counts for nothing, and a socket of this machine needs no TLS."""
    for form in ("ENDPOINT", "TRACES_ENDPOINT"):
        found = fine(**{form: endpoint}, PROTOCOL="grpc")
        assert (found.target, found.tls) == (target, tls)


@pytest.mark.parametrize(
    ("insecure", "endpoint", "tls"),
    [
        ("true", "c:4317", None),
        ("True", "c:4317", None),
        ("false", "c:4317", Tls()),
        ("false", "localhost:4317", Tls()),
        ("true", "https://c:4317", Tls()),
        ("false", "http://c:4317", None),
    ],
)
def test_insecure_decides_where_the_endpoint_has_no_scheme(insecure: str, endpoint: str, tls: Tls | None) -> None:
    assert fine(INSECURE=insecure, ENDPOINT=endpoint, PROTOCOL="grpc").tls == tls


def test_tls_that_nobody_has_asked_for_is_told() -> None:
    """The specification has it so, and a plaintext collector would only close the connection."""
    found, (problem,) = settings(ENDPOINT="me:pw@c:4317")
    assert found.tls == Tls()
    assert found.address == "https://c:4317"
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=c:4317 has no scheme, so TLS is used" in problem
    assert "http://" in problem


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c", "http://c/v1/traces"),
        ("http://c/", "http://c/v1/traces"),
        ("http://c/x", "http://c/x/v1/traces"),
        ("http://c/x/", "http://c/x/v1/traces"),
        ("https://c:1234/x?tenant=1", "https://c:1234/x/v1/traces?tenant=1"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
    ],
)
def test_the_general_endpoint_of_http_is_a_base(endpoint: str, url: str) -> None:
    assert fine(ENDPOINT=endpoint, PROTOCOL="http/protobuf").target == url


@pytest.mark.parametrize(
    "endpoint", ["http://c/", "http://c/x", "http://c/x/", "https://c:1/v1/traces", "http://c/x?tenant=1&b=%20"]
)
def test_the_endpoint_of_traces_is_used_as_it_is(endpoint: str) -> None:
    found = fine(TRACES_ENDPOINT=endpoint, ENDPOINT="http://other", PROTOCOL="http/protobuf")
    assert found.target == endpoint
    assert found.address == endpoint.partition("?")[0]


def test_an_endpoint_of_traces_without_path_is_told() -> None:
    """The specification has spans posted to the root, where few collectors take them."""
    found, (problem,) = settings(TRACES_ENDPOINT="http://c:4318")
    assert found.target == "http://c:4318"
    assert problem.startswith("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT has no path, so spans are posted to '/'")
    assert "/v1/traces" in problem


@pytest.mark.parametrize(("endpoint", "scheme"), [("c:4318", "http"), ("c:443", "https")])
def test_http_without_a_scheme_is_told(endpoint: str, scheme: str) -> None:
    found, (problem,) = settings(ENDPOINT=endpoint, PROTOCOL="http/protobuf")
    assert found.target == f"{scheme}://{endpoint}/v1/traces"
    assert problem == f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint} has no scheme; using {scheme}://."


def test_http_does_not_go_to_a_socket_of_this_machine() -> None:
    found, (problem,) = settings(ENDPOINT="unix:/run/c.sock", PROTOCOL="http/protobuf")
    assert found.target == "http://localhost:4318/v1/traces"
    assert problem.startswith("OTEL_EXPORTER_OTLP_ENDPOINT=unix:/run/c.sock is ignored: expected a URL")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_credentials_in_an_endpoint_become_a_header_and_are_never_shown(protocol: str) -> None:
    found = fine(ENDPOINT="http://me:p%40ss@c:1234", PROTOCOL=protocol)
    assert found.headers == {"authorization": BASIC}
    assert "@" not in found.address + found.target
    given = fine(ENDPOINT="http://me:p%40ss@c:1234", PROTOCOL=protocol, HEADERS="Authorization=Bearer%20x")
    assert given.headers == {"authorization": "Bearer x"}


def test_headers() -> None:
    """Percent-encoded; names have no case; the form for traces takes the place of the general one."""
    assert fine(HEADERS="X-Api-Key=a%20b, x-tenant = me ,").headers == {"x-api-key": "a b", "x-tenant": "me"}
    assert fine(HEADERS="a=1", TRACES_HEADERS="b=2=3").headers == {"b": "2=3"}
    assert fine(HEADERS="a=%20x%20").headers == {"a": "x"}, "no transport sends spaces around a value"


@pytest.mark.parametrize(
    "bad", ["secret", "=secret", "a b=secret", "x%0Ay=secret", "x=secret%0D%0Aevil: 1", "x=sécret"]
)
def test_a_header_that_cannot_be_sent_is_left_out_and_its_value_is_not_told(bad: str) -> None:
    for protocol in ("grpc", "http/protobuf"):
        found, (problem,) = settings(HEADERS=f"a=1,{bad},b=2", PROTOCOL=protocol)
        assert found.headers == {"a": "1", "b": "2"}
        assert "OTEL_EXPORTER_OTLP_HEADERS" in problem
        assert "secret" not in problem
        assert "cret" not in problem


@pytest.mark.parametrize("name", ["x!y", "x*", "data-bin"])
def test_a_header_that_grpc_cannot_send_is_left_out(name: str) -> None:
    """With it every call would fail, and every span be lost."""
    found, (problem,) = settings(HEADERS=f"{name}=secret,b=2", PROTOCOL="grpc")
    assert found.headers == {"b": "2"}
    assert repr(name) in problem
    assert "secret" not in problem
    assert fine(HEADERS=f"{name}=secret,b=2", PROTOCOL="http/protobuf").headers == {name: "secret", "b": "2"}


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"TIMEOUT": "5"}, 5),
        ({"TIMEOUT": "0.5"}, 0.5),
        ({"TIMEOUT": "499"}, 499),
        ({"TIMEOUT": "500"}, 0.5),
        ({"TIMEOUT": "10000"}, 10),
        ({"TIMEOUT": "3", "TRACES_TIMEOUT": "4"}, 4),
        ({"OTEL_BSP_EXPORT_TIMEOUT": "3000"}, 3),
        ({"OTEL_BSP_EXPORT_TIMEOUT": "30000"}, 10),
        ({"OTEL_BSP_EXPORT_TIMEOUT": "0"}, 10),
    ],
)
def test_timeouts(variables: dict[str, str], seconds: float) -> None:
    """In milliseconds as specified, in seconds as OpenTelemetry Python has it; 500 means half a second, not 500 s."""
    assert fine(**variables).timeout == seconds


def test_other_variables(tmp_path: Path) -> None:
    for name in ("ca", "mine", "key"):
        (tmp_path / name).touch()
    found = fine(
        ENDPOINT="https://c",
        TRACES_COMPRESSION="gzip",
        COMPRESSION="none",
        CERTIFICATE=str(tmp_path / "ca"),
        CLIENT_CERTIFICATE=str(tmp_path / "mine"),
        CLIENT_KEY=str(tmp_path / "key"),
        OTEL_BSP_SCHEDULE_DELAY="250",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="100",
    )
    assert found.gzip
    assert found.tls == Tls(*(str(tmp_path / name) for name in ("ca", "mine", "key")))
    assert (found.delay, found.max_spans) == (0.25, 100)
    assert fine(OTEL_BSP_SCHEDULE_DELAY="0").delay == 0


def test_a_key_without_a_certificate_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    found, (problem,) = settings(ENDPOINT="https://c", CLIENT_KEY=str(tmp_path / "key"))
    assert found.tls == Tls()
    assert "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" in problem


def test_an_empty_form_for_traces_leaves_the_general_one_in_force() -> None:
    assert fine(ENDPOINT="http://c:1", TRACES_ENDPOINT="").target == "c:1"
