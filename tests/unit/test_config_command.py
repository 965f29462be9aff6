"""``ray-tracing-hooks config``: every setting, where it comes from, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from terminal import STYLE, in_terminal

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._settings.otel import VARIABLES
from ray_tracing_hooks._settings.table import all_settings


def test_each_setting_and_where_it_comes_from(tmp_path: Path) -> None:
    """In words, with exit code 0."""
    file = tmp_path / "traces.yaml"
    file.write_text("flush_timeout: 3\n")
    os.environ["RAY_TRACING_CONFIG"] = str(file)
    os.environ["RAY_TRACING_SPOOL_MAX_BYTES"] = "2 GiB"
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 0
    assert "RAY_TRACING_SPOOL_MAX_BYTES = 2 GiB  (RAY_TRACING_SPOOL_MAX_BYTES)\n" in result.output
    assert f"RAY_TRACING_FLUSH_TIMEOUT = 3  ({file})\n    seconds that a driver waits for delivery" in result.output
    assert "RAY_TRACING_STRICT = 0  (default)\n" in result.output
    assert all(setting.variable in result.output for setting in all_settings())


@pytest.mark.parametrize(
    ("before", "value", "state"),
    [
        ("", "1", "in use" if _compiled.use.is_loaded else "not installed, since this is the package in pure Python"),
        ("", "0", "switched off"),
        ("import absent", "1", "not installed, since this is the package in pure Python"),
        ("import broken", "1", "installed, but cannot be loaded: ImportError: undefined symbol"),
    ],
)
def test_whether_the_compiled_part_is_in_use(before: str, value: str, state: str, tmp_path: Path) -> None:
    """It is decided when a process begins."""
    (tmp_path / "absent.py").write_text("import sys; sys.modules['ray_tracing_hooks._hotpath'] = None")
    (tmp_path / "broken.py").write_text(BROKEN)
    program = f"{before}\nfrom ray_tracing_hooks._cli import main\n"
    program += "for options in ([], ['--json']): main(['config', *options], standalone_mode=False)"
    environment = {**os.environ, "RAY_TRACING_COMPILED": value, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"(here it is {state}" in shown
    assert f'"compiled": "{state}' in shown


BROKEN = """
import sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "ray_tracing_hooks._hotpath":
            raise ImportError("undefined symbol")
sys.meta_path.insert(0, Finder())
"""


def test_standard_variables_follow_those_that_are_set_first() -> None:
    """In full with the form of the name that counts; the others on one line each, with what counts instead."""
    os.environ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"] = "2500"
    os.environ["OTEL_EXPORTER_OTLP_COMPRESSION"] = " "
    os.environ["OTEL_TRACES_EXPORTER"] = "otlp,console"
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 0
    assert "RAY_TRACING_EXPORTERS = otlp,console  (OTEL_TRACES_EXPORTER)\n" in result.output
    given, _, others = result.output.partition("Standard variables that are set\n")[2].partition("\n\n")
    assert given.splitlines()[0] == "OTEL_EXPORTER_OTLP_TIMEOUT = 2.5  (OTEL_EXPORTER_OTLP_TRACES_TIMEOUT)"
    lines = {words[0]: " ".join(words[1:]) for text in others.splitlines() if (words := text.split())}
    assert lines["OTEL_EXPORTER_OTLP_COMPRESSION"] == "compression of requests (none)"
    assert {variable.name for variable in VARIABLES} <= {*lines, "OTEL_EXPORTER_OTLP_TIMEOUT"}


def test_what_is_wrong_is_told() -> None:
    """On the error stream, with exit code 2."""
    os.environ["RAY_TRACING_FLUSH_TIMEOUT"] = "soon"
    os.environ["OTEL_TRACES_SAMPLER"] = "always"
    os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "tcp"
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 2
    first, *rest = result.stderr.splitlines()
    assert first == (
        "error: RAY_TRACING_FLUSH_TIMEOUT='soon' is ignored: expected a number of seconds from 0 to 1,000,000,000, "
        "such as 5; using 5."
    )
    assert [text.partition(" is ignored")[0] for text in rest] == [
        "error: OTEL_TRACES_SAMPLER='always'",
        "error: OTEL_EXPORTER_OTLP_PROTOCOL='tcp'",
    ]


def test_what_is_used_in_place_of_a_wrong_value_is_shown() -> None:
    """With the variable whose value it is not, for settings and standard variables."""
    os.environ["RAY_TRACING_FLUSH_TIMEOUT"] = "soon"
    os.environ["OTEL_TRACES_SAMPLER"] = "always"
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "tcp"
    os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
    os.environ["RAY_TRACING_EXPORTERS"] = "otpl"
    shown = CliRunner().invoke(main, ["config"]).stdout
    for line in (
        "RAY_TRACING_FLUSH_TIMEOUT = 5  (default; the value of RAY_TRACING_FLUSH_TIMEOUT is wrong)\n",
        "RAY_TRACING_EXPORTERS = local  (default; the value of RAY_TRACING_EXPORTERS is wrong)\n",
        "OTEL_TRACES_SAMPLER = parentbased_always_on  (default; the value of OTEL_TRACES_SAMPLER is wrong)\n",
    ):
        assert line in shown
    general, special = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    assert f"{general} = grpc  ({general}; the value of {special} is wrong)\n" in shown
    rows = {row["name"]: row for row in json.loads(CliRunner().invoke(main, ["config", "--json"]).stdout)["settings"]}
    assert (rows["exporters"]["value"], rows["exporters"]["wrong"]) == (["local"], "RAY_TRACING_EXPORTERS")
    assert "wrong" not in rows["strict"]


READ_BY_OTHERS = (
    "OTEL_METRICS_EXPORTER",
    "OTEL_LOGS_EXPORTER",
    "OTEL_PROFILES_EXPORTER",
    "OTEL_BLRP_SCHEDULE_DELAY",
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_EXPORTER_ZIPKIN_ENDPOINT",
    "OTEL_EXPORTER_ZIPKIN_TIMEOUT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    "OTEL_EXPORTER_JAEGER_PROTOCOL",
    "OTEL_RESOURCE_ATTRIBUTES_POD_UID",
    "OTEL_CPP_EXPORTER_OTLP_METRICS_RETRY_MAX_ATTEMPTS",
)


def test_what_others_read_is_not_misspelled() -> None:
    """The SDK of the program, other exporters, and what the Kubernetes operator adds to pods."""
    os.environ.update(dict.fromkeys(READ_BY_OTHERS, "none"))
    result = CliRunner().invoke(main, ["config"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_misspelled_standard_variables_are_named() -> None:
    """As warnings: another package may read them."""
    os.environ["OTEL_EXPORTER_OTLP_ENDPIONT"] = "http://collector:4317"
    os.environ["OTEL_TRACE_SAMPLER"] = "always_off"
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 0
    pairs = {
        "OTEL_EXPORTER_OTLP_ENDPIONT": "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_TRACE_SAMPLER": "OTEL_TRACES_SAMPLER",
    }
    assert result.stderr.splitlines() == [
        f"warning: nothing reads {wrong}; did you mean {right}? Set that instead" for wrong, right in pairs.items()
    ]


def test_a_hint_is_no_error() -> None:
    """The value is used."""
    os.environ.update(RAY_TRACING_EXPORTERS="otlp", OTEL_EXPORTER_OTLP_ENDPOINT="collector:4317")
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317 has no scheme, so TLS is used")


def test_an_exporter_that_there_is_not_is_told() -> None:
    """As a job would tell it: with what there is, and what is used instead."""
    os.environ["RAY_TRACING_EXPORTERS"] = "jagger,otlp"
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 2
    used = "RAY_TRACING_EXPORTERS = otlp  (RAY_TRACING_EXPORTERS; the value of RAY_TRACING_EXPORTERS is wrong)\n"
    assert used in result.stdout
    assert result.stderr.startswith(
        "error: unknown exporter 'jagger' (RAY_TRACING_EXPORTERS, or OTEL_TRACES_EXPORTER); expected some of local, "
    )
    assert result.stderr.endswith("; using otlp\n")
    os.environ["RAY_TRACING_EXPORTERS"] = "none"
    assert CliRunner().invoke(main, ["config"]).exit_code == 0


WRONG_TOGETHER = {
    "otlp": ({"OTEL_EXPORTER_OTLP_CLIENT_KEY": __file__}, "OTEL_EXPORTER_OTLP_CLIENT_KEY is ignored: expected "),
    "jaeger": ({"OTEL_EXPORTER_JAEGER_AGENT_HOST": "a b"}, "OTEL_EXPORTER_JAEGER_AGENT_HOST='a b' is ignored: "),
    "console": ({"RAY_TRACING_METRICS": "1"}, "RAY_TRACING_METRICS=1 is ignored: expected otlp or local "),
    "console,jaeger": ({"RAY_TRACING_UTILIZATION": "5"}, "RAY_TRACING_UTILIZATION is ignored: expected otlp or local "),
    "zipkin_json": ({"RAY_TRACING_LOGS": "+otlp"}, "log records are not delivered, although RAY_TRACING_LOGS contains"),
}


@pytest.mark.parametrize("exporter", WRONG_TOGETHER)
def test_what_an_exporter_cannot_use_is_told(exporter: str) -> None:
    """Where each setting is right alone too, and only for the exporters that are used."""
    variables, problem = WRONG_TOGETHER[exporter]
    os.environ.update(variables)
    os.environ["RAY_TRACING_EXPORTERS"] = exporter
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {problem}")
    os.environ["RAY_TRACING_EXPORTERS"] = "local"
    assert CliRunner().invoke(main, ["config"]).exit_code == 0


def test_where_nothing_is_recorded_no_exporter_lacks_anything() -> None:
    os.environ.update(OTEL_SDK_DISABLED="true", RAY_TRACING_EXPORTERS="console", RAY_TRACING_METRICS="1")
    result = CliRunner().invoke(main, ["config"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_no_folder_is_made(tmp_path: Path) -> None:
    os.environ["RAY_TRACING_LOCAL_DIR"] = str(tmp_path / "spans")
    assert CliRunner().invoke(main, ["config"]).exit_code == 0
    assert not (tmp_path / "spans").exists()


def test_it_speaks_json() -> None:
    """Values as JSON has them, and the problems in the same object."""
    os.environ["RAY_TRACING_RAY"] = "actor"
    os.environ["RAY_TRACING_STRICT"] = "perhaps"
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "team=a,tier=b%20c"
    result = CliRunner().invoke(main, ["config", "--json"])
    assert result.exit_code == 2
    shown = json.loads(result.stdout)
    rows = {row["name"]: row for row in shown["settings"]}
    assert rows["ray"] == {
        "name": "ray",
        "variable": "RAY_TRACING_RAY",
        "value": ["actor"],
        "source": "RAY_TRACING_RAY",
        "meaning": rows["ray"]["meaning"],
    }
    assert rows["strict"]["value"] is False
    assert len(shown["problems"]) == 1
    standard = {row["variable"]: row for row in shown["standard"]}
    assert standard["OTEL_RESOURCE_ATTRIBUTES"]["value"] == {"team": "a", "tier": "b c"}
    assert (standard["OTEL_SERVICE_NAME"]["value"], standard["OTEL_SERVICE_NAME"]["source"]) == (None, "default")


SECRETS = {
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret,x-api-key=s3cret",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:s3cret@collector:4318/v1?token=s3cret",
    "OTEL_EXPORTER_JAEGER_ENDPOINT": "http://me:s3cret@jaeger:14268",
    "OTEL_EXPORTER_JAEGER_PASSWORD": "s3cret",
    "RAY_TRACING_JAEGER_ENDPOINT": "http://me:s3cret@jaeger:4317",
}


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_no_secret_is_shown(arguments: list[str]) -> None:
    """But that there is one, and all around it."""
    os.environ.update(SECRETS)
    result = CliRunner().invoke(main, ["config", *arguments])
    assert result.exit_code == 0
    assert "s3cret" not in result.output
    assert "https://********@collector:4318/v1?********" in result.output
    assert "http://********@jaeger:4317" in result.output
    names = '"x-api-key": "********"' if arguments else "authorization=********,x-api-key=********"
    assert names in result.output


@pytest.mark.parametrize("arguments", [[], ["--json"]])
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RAY_TRACING_JAEGER_ENDPOINT", "http://me:s3c/ret@jaeger"),
        ("RAY_TRACING_JAEGER_ENDPOINT", "ht-tp://me:s3c/ret@jaeger"),
        ("RAY_TRACING_JAEGER_ENDPOINT", "me:s3c/ret@jaeger:0"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://me:s3c@ret@collector"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "s3c/ret"),
    ],
)
def test_no_secret_is_shown_of_what_is_wrong(variable: str, value: str, arguments: list[str]) -> None:
    os.environ[variable] = value
    os.environ["RAY_TRACING_EXPORTERS"] = "otlp,jaeger"
    result = CliRunner().invoke(main, ["config", *arguments])
    assert result.exit_code == 2
    assert variable in result.output
    assert "s3c" not in result.output
    assert "ret@" not in result.output


@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit_into_a_terminal(width: int) -> None:
    """A real one; but values are never cut or broken."""
    lines = [STYLE.sub("", line) for line in in_terminal(width, "config")]
    assert len(lines) > 60
    assert max(len(text) for text in lines if " = " not in text) <= width
