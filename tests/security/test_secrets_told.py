"""Where a secret could be told by mistake: in an error, a warning, a log, or what an object looks like."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.resources import Resource
from plans import made_plan

from ray_tracing_hooks import names
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._connection import Configuration
from ray_tracing_hooks._ops.change import SettingsChange
from ray_tracing_hooks._ops.effective import effective
from ray_tracing_hooks._sdk import resource
from ray_tracing_hooks._settings.otel import check
from ray_tracing_hooks._settings.table import load
from ray_tracing_hooks._settings.values import MASK
from ray_tracing_hooks._ship.log import Problems, Secrets, _SafeFormatter
from ray_tracing_hooks._ship.plan import of_delivery
from ray_tracing_hooks._ship.registry import destinations
from ray_tracing_hooks._ship.sink import SinkContext
from ray_tracing_hooks._ship.sinks import jaeger, jaeger_settings, otlp
from ray_tracing_hooks._ship.stage import StageContext

CANARY = "cnrySecretQx7"
ENVIRON = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://me:{CANARY}@collector:4318/v1?key={CANARY}",
    "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={CANARY}",
    "OTEL_EXPORTER_JAEGER_USER": "me",
    "OTEL_EXPORTER_JAEGER_PASSWORD": CANARY,
    "RAY_TRACING_JAEGER_ENDPOINT": f"http://me:{CANARY}@jaeger:4317/?key={CANARY}",
}


def test_no_object_shows_a_secret() -> None:
    """Tracebacks of many tools show what the local variables look like."""
    settings = load(ENVIRON, pytest.fail)
    plan = made_plan(("otlp",), "/out", 1, 1, 1)
    objects = [
        settings,
        plan,
        SinkContext(plan, {}, lambda _: None, lambda *_: None, ENVIRON, lambda _: None),
        StageContext("/spool", plan, ENVIRON, Problems(), lambda: None),
        Configuration(settings, ENVIRON, None, records=True),
        effective(ENVIRON),
        SettingsChange(variables=ENVIRON),
        otlp.read(ENVIRON, pytest.fail),
        jaeger.read(ENVIRON, pytest.fail),
        Secrets(ENVIRON),
    ]
    assert settings.of(jaeger_settings.Settings).endpoint == ENVIRON["RAY_TRACING_JAEGER_ENDPOINT"]
    assert [each for each in objects if CANARY in f"{each!r} {each}"] == []


def test_where_spans_go_is_said_without_credentials() -> None:
    plan = made_plan(("otlp", "jaeger"), "/out", 1, 1, 1)
    places, problems = destinations(plan, ENVIRON)
    assert places == ["OTLP https://collector:4318/v1/v1/traces", "Jaeger http://jaeger:4317"]
    assert CANARY not in f"{places} {problems}"


@pytest.mark.parametrize(
    "text",
    [
        f"jaeger_endpoint=http://me:{CANARY}@jaeger:4317",  # as in a file of variables
        f"- {CANARY}",
        f"jaeger_endpoint: *{CANARY}",
        f"jaeger_endpoint: !{CANARY} x",
        f'jaeger_endpoint: "http://me:{CANARY}@jaeger:4317',
        f"jaeger_endpoint: http://me:{CANARY}@jaeger: 4317",
        f"jaeger_endpoint=http://me:{CANARY}@jaeger: 4317",
        f"{{jaeger_endpoint: [{CANARY}}}",
        f"jaeger_endpoint: [{CANARY}]",
        f"jaeger_endpoint: ftp://me:{CANARY}@jaeger?{CANARY}",
        f"jaeger_endpont: {CANARY}",
    ],
)
def test_a_wrong_settings_file_is_told_without_what_is_in_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    problems: list[str] = []
    load({"RAY_TRACING_CONFIG": str(file)}, problems.append)
    assert problems
    assert CANARY not in " ".join(problems)
    result = CliRunner(env={"RAY_TRACING_CONFIG": str(file)}).invoke(main, ["config"])
    assert result.exit_code == 2
    assert CANARY not in result.output


@pytest.mark.parametrize("variable", ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"])
def test_a_key_in_place_of_a_path_is_not_told(variable: str) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----"
    problems: list[str] = []
    check({f"OTEL_EXPORTER_OTLP_{variable}": key}, problems.append, leaving_out=())
    (problem,) = problems
    assert problem.startswith(f"OTEL_EXPORTER_OTLP_{variable}=a PEM text is ignored")
    assert CANARY not in problem


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%2Fb%20canary,other=x", "a/b canary"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20canary", "the token canary is wrong"),
        ("OTEL_EXPORTER_JAEGER_PASSWORD", "canary", "canary"),
        ("DD_API_KEY", "canary", "key canary"),
        ("VENDOR_AUTH_TOKEN", " canary ", "canary"),
        ("https_proxy", "http://me:can%61ry@proxy", "canary"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:can%61ry@host", "Basic bWU6Y2FuYXJ5"),
        ("OTEL_EXPORTER_ZIPKIN_ENDPOINT", "http://host/?key=canary", "canary"),
        ("NONE_OF_THESE", "x", "Max retries exceeded with url: /v1/traces?key=canary (Caused by x)"),
        ("NONE_OF_THESE", "x", "cannot reach https://me:canary@host/v1"),
    ],
)
def test_secrets_are_masked_in_what_others_say(variable: str, value: str, said: str) -> None:
    """As they were given, as they are sent, and in URLs of any kind."""
    masked = Secrets({variable: value}).mask(f"refused: {said}!")
    assert "canary" not in masked
    assert "Y2FuYXJ5" not in masked
    assert masked.startswith("refused: ")
    assert MASK in masked


def test_nothing_else_is_masked() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/etc/tls/key.pem",
        "RAY_TRACING_LOCAL_DIR": "/tmp/spans",
        "A_TOKEN": "x",
    }
    text = "does https://collector:4318/v1/traces expect TLS? see /etc/tls/key.pem and /tmp/spans x"
    assert Secrets(environ).mask(text) == text


def test_a_log_line_is_one_line_without_secrets() -> None:
    """Whatever a server has made an exporter log. A traceback keeps its lines."""
    formatter = _SafeFormatter(Secrets({"A_TOKEN": CANARY}), "%(message)s")
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int(f"\x1b[2J http://me:{CANARY}@host\n2026-11-21 INFO forged")
    error = caught.value
    about = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "%s\r\n2026 INFO \u202e", (error,), about)
    text = formatter.format(record)
    assert CANARY not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    first, *rest = text.splitlines()
    assert first.endswith("\\r\\n2026 INFO \\u202e")
    assert rest[0] == "Traceback (most recent call last):"
    assert len(rest) == len("".join(traceback.format_exception(error)).splitlines())


def test_what_a_shipper_tells_is_masked() -> None:
    """A server may quote what it was sent, in whatever way it fails."""
    problems = Problems(Secrets({"A_TOKEN": CANARY}).mask)
    problems.set("key", f"no such key {CANARY}")
    problems.warn_once(f"warning: {CANARY}")
    problems.count(f"{{count}} spans were refused: {CANARY}", 3)
    told = [*problems.take_unreported(), *problems.messages()]
    assert len(told) >= 4
    assert CANARY not in " ".join(told)


def test_the_arguments_of_a_command_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though detectors of some versions of OpenTelemetry give them; a user who wants them says so himself."""
    arguments = {"process.command_line": f"train --token={CANARY}", "process.command_args": ["train", CANARY]}
    monkeypatch.setattr(Resource, "create", lambda _: Resource({**arguments, "process.owner": "me"}))
    monkeypatch.setattr("sys.argv", ["train.py", f"--token={CANARY}"])
    of_ray = {names.RESOURCE_WORKER_ID: "1", names.RESOURCE_PROCESS_TYPE: "driver"}
    for detectors in ("", "process", "*"):
        found = resource.attributes(of_ray, {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": detectors})
        assert CANARY not in str(found)
        assert ("process.owner" in found) == bool(detectors)
    arguments["process.command_line"] = "mine"
    given = {
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process",
        "OTEL_RESOURCE_ATTRIBUTES": "process.command_line=mine",
    }
    assert resource.attributes(of_ray, given)["process.command_line"] == "mine"


def test_a_shipper_inherits_what_it_needs_in_its_environment_alone() -> None:
    """What of it is written down is a digest, which tells plans apart."""
    from ray_tracing_hooks._ship.plan import digest

    kept = of_delivery(ENVIRON)
    assert kept == ENVIRON
    assert CANARY not in digest(ENVIRON, ("otlp",))
    assert digest(ENVIRON, ("otlp",)) != digest({**ENVIRON, "OTEL_EXPORTER_OTLP_HEADERS": "x=y"}, ("otlp",))
