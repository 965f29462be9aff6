"""The standard variables: what is read, and what is said about what cannot be."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_tracing_hooks import names
from ray_tracing_hooks._sdk import resource
from ray_tracing_hooks._settings.otel import JAEGER, OTLP, VARIABLES, Variable, check, read, read_with_source
from ray_tracing_hooks._settings.table import load

README = Path(__file__).parents[2] / "README.md"

BAD = [
    ("OTEL_SDK_DISABLED", "maybe", False, "expected true or false; using false."),
    ("OTEL_PROPAGATORS", "tracecontext,nosuch", ("tracecontext", "baggage"), "using tracecontext,baggage."),
    (
        "OTEL_TRACES_SAMPLER",
        "sometimes",
        "parentbased_always_on",
        "installed sampler; using parentbased_always_on.",
    ),
    ("OTEL_TRACES_SAMPLER_ARG", "10%", None, "expected a number from 0 to 1; using 1."),
    ("OTEL_TRACES_SAMPLER_ARG", "1.5", None, "expected a number from 0 to 1; using 1."),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", "-1", None, "expected a whole number of 0 or more; using 128."),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "long", None, "expected a whole number of 0 or more; using no limit."),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", "1e3", None, "expected a whole number of 0 or more; using 128."),
    (
        "OTEL_BSP_SCHEDULE_DELAY",
        "5s",
        None,
        "expected a whole number of milliseconds from 0 to 1,000,000,000,000; using 1000.",
    ),
    (
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "0",
        None,
        "expected a whole number of 1 or more; using as many as fit in 900 kB.",
    ),
    ("OTEL_BSP_SCHEDULE_DELAY", "-1", None, "milliseconds from 0 to 1,000,000,000,000; using 1000."),
    ("OTEL_BSP_SCHEDULE_DELAY", "1000000000001", None, "milliseconds from 0 to 1,000,000,000,000; using 1000."),
    ("OTEL_METRIC_EXPORT_INTERVAL", "1000000000001", 60.0, "milliseconds from 1 to 1,000,000,000,000; using 60000."),
    ("OTEL_METRIC_EXPORT_TIMEOUT", "1000000000001", 30.0, "milliseconds from 1 to 1,000,000,000,000; using 30000."),
    (
        "OTEL_BSP_EXPORT_TIMEOUT",
        "-5",
        None,
        "expected a whole number of milliseconds from 0 to 1,000,000,000,000; using the exporter's own.",
    ),
    (
        f"{OTLP}PROTOCOL",
        "http",
        None,
        "grpc, http/protobuf, http/json; using the protocol of the endpoint",
    ),
    (f"{OTLP}ENDPOINT", "ftp://c", None, "expected a URL, such as http://collector:4317; using localhost, port 4317"),
    (f"{OTLP}ENDPOINT", "http://c:99999", None, "expected a URL, such as http://collector:4317; using localhost"),
    *(
        (f"{OTLP}ENDPOINT", value, None, "expected a URL, such as http://collector:4317; using localhost")
        for value in ("http://", "http://c:port", "http://a b")
    ),
    *((f"{OTLP}TIMEOUT", value, 10.0, "using 10.") for value in ("-1", "nan", "inf")),
    (f"{OTLP}TIMEOUT", "soon", 10.0, "in seconds, or from 500 on in milliseconds; using 10."),
    (f"{OTLP}TIMEOUT", "0", 10.0, "using 10."),
    (f"{OTLP}COMPRESSION", "zstd", "none", "expected one of none, gzip; using none."),
    (f"{OTLP}INSECURE", "yes", None, "expected true or false; using none."),
    (f"{OTLP}CERTIFICATE", "/no/such.pem", None, "expected the path of a PEM file that can be read; using system's."),
    (
        f"{OTLP}CLIENT_CERTIFICATE",
        "/no/such.pem",
        None,
        "expected the path of a PEM file that can be read; using none.",
    ),
    (f"{OTLP}CLIENT_KEY", "/no/such", None, "expected the path of a PEM file that can be read; using none."),
    (f"{JAEGER}ENDPOINT", "jaeger host", None, "expected a URL, such as http://collector:4317; using none."),
    (f"{JAEGER}AGENT_PORT", "65536", None, "expected a port from 1 to 65535; using 6831."),
    (f"{JAEGER}TIMEOUT", "never", 10.0, "using 10."),
    (f"{JAEGER}CERTIFICATE", "/no/such.pem", None, "expected the path of a PEM file that can be read; using system's."),
]


def values(name: str, environ: dict[str, str]) -> tuple[object, list[str]]:
    problems: list[str] = []
    return read(name, environ, problems.append), problems


@pytest.mark.parametrize(("name", "value", "used", "said"), BAD, ids=[f"{name}={value}" for name, value, _, _ in BAD])
def test_a_wrong_value_is_told_and_not_used(name: str, value: str, used: object, said: str) -> None:
    """The variable, what was given, what is expected, what is used instead: one line."""
    found, (problem,) = values(name, {name: value})
    assert found == used
    assert problem.startswith(f"{name}='{value}' is ignored: expected ")
    assert said in problem


@pytest.mark.parametrize(
    "name", [f"{OTLP}HEADERS", f"{OTLP}ENDPOINT", f"{OTLP}CERTIFICATE", "OTEL_RESOURCE_ATTRIBUTES"]
)
def test_what_is_no_unicode_is_told_and_not_used(name: str) -> None:
    _, (problem,) = values(name, {name: "a=b\ud800"})
    assert "is ignored: it is not valid Unicode; expected " in problem
    assert problem.isprintable()


def test_an_empty_value_is_unset() -> None:
    for row, empty in itertools.product(VARIABLES, ("", "  ")):
        assert values(row.name, {row.name: empty}) == (row.default, []), row.name


def test_the_traces_form_wins_and_a_wrong_one_leaves_the_general_one() -> None:
    environ = {f"{OTLP}TIMEOUT": "7", f"{OTLP}TRACES_TIMEOUT": "3"}
    problems: list[str] = []
    assert read_with_source(f"{OTLP}TIMEOUT", environ, problems.append) == (3.0, f"{OTLP}TRACES_TIMEOUT")
    assert problems == []
    environ[f"{OTLP}TRACES_TIMEOUT"] = "soon"
    assert read_with_source(f"{OTLP}TIMEOUT", environ, problems.append) == (7.0, f"{OTLP}TIMEOUT")
    (problem,) = problems
    assert problem.startswith(f"{OTLP}TRACES_TIMEOUT='soon' is ignored")
    assert problem.endswith("using 7.")


def test_headers_are_percent_decoded_and_bad_pairs_left_out_without_being_shown() -> None:
    secret = "authorization=Basic%20abc%3D,noequals,X-Tenant=me,bad%0Aname=x,late=a%0Db"
    headers, (problem,) = values(f"{OTLP}HEADERS", {f"{OTLP}HEADERS": secret})
    assert headers == {"authorization": "Basic abc=", "x-tenant": "me"}
    assert problem.startswith(f"{OTLP}HEADERS: pair 2, 4, 5 of its value is left out: expected name=value pairs")
    assert "abc" not in problem
    assert "noequals" not in problem


@pytest.mark.parametrize(
    "endpoint", ["ftp://me:secret@c", "ftp://me:se/secret@c", "ht-tp://me:secret@c", "me:x/secret@c:0"]
)
def test_credentials_in_a_wrong_endpoint_are_not_shown(endpoint: str) -> None:
    _, (problem,) = values(f"{OTLP}ENDPOINT", {f"{OTLP}ENDPOINT": endpoint})
    assert "secret" not in problem
    assert "********@c" in problem


def test_resource_attributes_without_a_value_are_told() -> None:
    found, (problem,) = values("OTEL_RESOURCE_ATTRIBUTES", {"OTEL_RESOURCE_ATTRIBUTES": "a=1,b,c=x%20y"})
    assert found == {"a": "1", "c": "x y"}
    assert problem.startswith("OTEL_RESOURCE_ATTRIBUTES: pair 2 of its value is left out")


def test_check_reports_each_wrong_value_once_and_leaves_delivery_to_the_exporters() -> None:
    problems: list[str] = []
    environ = {
        "OTEL_TRACES_SAMPLER": "sometimes",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "many",
        f"{OTLP}TIMEOUT": "soon",
        "OTEL_TRACES_SAMPLER_ARG": "endpoint=http://sampling",
        "OTEL_SERVICE_NAME": "fine",
        "OTHER": "x",
    }
    check(environ, problems.append)
    assert [problem.partition("=")[0] for problem in problems] == ["OTEL_TRACES_SAMPLER", "OTEL_SPAN_LINK_COUNT_LIMIT"]


@given(st.sampled_from(VARIABLES), st.text(max_size=40))
def test_no_value_raises(row: Variable, value: str) -> None:
    """Whatever is set: a value that the row can write, or the default and a line."""
    problems: list[str] = []
    found = read(row.name, {row.name: value}, problems.append)
    assert isinstance(row.text(found), str)
    assert len(problems) <= 1


def test_what_the_documents_export_is_right() -> None:
    """Every variable that their recipes set exists, and has a value that is taken."""
    documents = [README, *(README.parent / "docs").rglob("*.md")]
    lines = [line for each in documents for line in re.findall(r"^export .*", each.read_text("utf-8"), re.MULTILINE)]
    exported = [setting.split("=", 1) for line in lines for setting in shlex.split(line, comments=True)[1:]]
    assert {"OTEL_EXPORTER_OTLP_HEADERS", "RAY_TRACING_KEEP_SLOWER"} < {name for name, _ in exported}
    problems: list[str] = []
    for name, value in exported:
        if name.startswith("OTEL_"):
            read(name, {name: value}, problems.append)
        load({name: value}, problems.append)
    assert problems == []


def test_metadata_of_a_pod_becomes_resource_attributes_unless_the_user_sets_them() -> None:
    """The variables stand alone: none has to be defined before another one, as in a text that contains them all."""
    environ = {
        "K8S_POD_NAME": "head-x7x9k",
        "K8S_POD_UID": " ",
        "K8S_NODE_NAME": "node-7",
        "K8S_RAY_GROUP": "headgroup",
        "OTEL_RESOURCE_ATTRIBUTES": "team=ads,k8s.node.name=mine",
    }
    of_ray = {names.RESOURCE_WORKER_ID: "0a"}
    without = resource.attributes(of_ray, {})
    found = resource.attributes(of_ray, environ)
    assert {key: value for key, value in found.items() if key not in without} == {
        "k8s.pod.name": "head-x7x9k",
        "k8s.node.name": "mine",
        "ray.io/group": "headgroup",
        "team": "ads",
    }
