"""How metrics are made and sent, by the standard variables."""

from __future__ import annotations

from typing import Any

import pytest
from plans import made_plan

from ray_tracing_hooks._ship.plan import ShipPlan, digest, of_delivery
from ray_tracing_hooks._ship.registry import destinations
from ray_tracing_hooks._ship.sinks.otlp import MetricsSettings, read_metrics

OTLP = "OTEL_EXPORTER_OTLP_"
OF_METRICS = f"{OTLP}METRICS_"


def settings(environ: dict[str, str], exporters: tuple[str, ...] = ("otlp",)) -> tuple[MetricsSettings, list[str]]:
    problems: list[str] = []
    return read_metrics(plan(exporters), environ, problems.append), problems


def plan(exporters: tuple[str, ...], **changes: Any) -> ShipPlan:
    return made_plan(exporters, "/dev/null", 1, 1, 1, **{"metrics": True, **changes})


def fine(environ: dict[str, str], exporters: tuple[str, ...] = ("otlp",)) -> Any:
    """As :func:`settings`, for mypy of any type since its parts are there in these tests."""
    found, problems = settings(environ, exporters)
    assert problems == []
    return found


def test_without_variables_metrics_go_every_minute_to_where_spans_go() -> None:
    found = fine({})
    assert found.interval == 60.0
    assert (found.otlp.protocol, found.otlp.target, found.otlp.timeout) == ("grpc", "localhost:4317", 10.0)
    assert not found.local
    assert fine({}, ("local",)).otlp is None
    assert fine({}, ("local",)).local
    assert fine({f"{OTLP}PROTOCOL": "http/json"}).otlp.target == "http://localhost:4318/v1/metrics"
    assert fine({f"{OTLP}ENDPOINT": "http://c:4318"}).otlp.target == "http://c:4318/v1/metrics"


def test_the_form_for_metrics_wins_and_that_for_traces_does_not_count() -> None:
    environ = {
        f"{OTLP}ENDPOINT": "http://general:4317",
        f"{OTLP}TRACES_ENDPOINT": "http://traces:4317",
        f"{OTLP}HEADERS": "a=1",
        f"{OTLP}TRACES_HEADERS": "a=2",
        f"{OTLP}TRACES_COMPRESSION": "gzip",
    }
    found = fine(environ).otlp
    assert (found.target, found.headers, found.gzip) == ("general:4317", {"a": "1"}, False)
    environ |= {
        f"{OF_METRICS}ENDPOINT": "https://metrics/v1/metrics",
        f"{OF_METRICS}HEADERS": "a=3",
        f"{OF_METRICS}COMPRESSION": "gzip",
        f"{OF_METRICS}TIMEOUT": "3",
    }
    found = fine(environ).otlp
    assert (found.protocol, found.target) == ("http/protobuf", "https://metrics/v1/metrics")
    assert (found.headers, found.gzip, found.timeout) == ({"a": "3"}, True, 3.0)


def test_an_endpoint_of_metrics_without_path_is_told() -> None:
    found, (problem,) = settings({f"{OF_METRICS}ENDPOINT": "http://c:4318"})
    assert found.otlp is not None
    assert found.otlp.target.rstrip("/") == "http://c:4318"
    assert problem.startswith(f"{OF_METRICS}ENDPOINT has no path, so metrics are posted to '/'")
    assert "/v1/metrics" in problem


def test_how_metrics_are_made() -> None:
    found = fine(
        {
            "OTEL_METRIC_EXPORT_INTERVAL": "1500",
            "OTEL_METRIC_EXPORT_TIMEOUT": "2000",
            # Of spans alone.
            "OTEL_BSP_EXPORT_TIMEOUT": "1",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
        }
    )
    assert found.interval == 1.5
    assert (found.otlp.timeout, found.otlp.max_spans) == (2.0, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "OTEL_METRIC_EXPORT_INTERVAL",
            "expected a whole number of milliseconds from 1 to 1,000,000,000,000; using 60000.",
        ),
        (
            "OTEL_METRIC_EXPORT_TIMEOUT",
            "expected a whole number of milliseconds from 1 to 1,000,000,000,000; using 30000.",
        ),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "one of trace_based, always_on, always_off; using trace_based."),
        (f"{OF_METRICS}TEMPORALITY_PREFERENCE", "one of cumulative, delta, lowmemory; using cumulative."),
        (f"{OF_METRICS}DEFAULT_HISTOGRAM_AGGREGATION", "using explicit_bucket_histogram."),
        (f"{OF_METRICS}PROTOCOL", "using the protocol of the endpoint, else grpc."),
    ],
)
def test_a_wrong_value_is_told_and_not_used(name: str, said: str) -> None:
    found, (problem,) = settings({name: "0 or so"})
    assert found == fine({})
    assert problem.startswith(f"{name}='0 or so' is ignored: expected ")
    assert problem.endswith(said)


def test_a_shipper_inherits_what_metrics_need() -> None:
    """And another one is needed where they are sent elsewhere."""
    environ = {
        f"{OF_METRICS}ENDPOINT": "http://c",
        "OTEL_METRIC_EXPORT_INTERVAL": "1",
        "OTEL_METRICS_EXEMPLAR_FILTER": "x",
        "OTEL_METRICS_EXPORTER": "none",
        f"{OTLP}PROFILES_ENDPOINT": "http://c",
    }
    assert set(of_delivery(environ)) == set(list(environ)[:3])
    assert digest(environ, ("otlp",)) != digest({**environ, f"{OF_METRICS}ENDPOINT": "http://d"}, ("otlp",))


@pytest.mark.parametrize(
    ("exporters", "changes", "told"),
    [
        (("jaeger",), {}, "RAY_TRACING_METRICS=1 is ignored: expected otlp or local among the exporters, or "),
        (("jaeger",), {"metrics": False, "utilization": 1.0}, "RAY_TRACING_UTILIZATION is ignored: expected otlp "),
        (("jaeger", "otlp"), {}, None),
        (("local",), {}, None),
        (("jaeger",), {"prometheus": "127.0.0.1:9464"}, None),
    ],
)
def test_a_driver_says_where_no_metrics_can_go(
    exporters: tuple[str, ...], changes: dict[str, Any], told: str | None
) -> None:
    _, problems = destinations(plan(exporters, **changes), {})
    assert [problem[: len(told or "")] for problem in problems if "is ignored" in problem] == ([told] if told else [])


def test_a_driver_says_that_the_package_for_prometheus_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, missing in (("opentelemetry.exporter.prometheus", True), ("os", False)):
        monkeypatch.setattr("ray_tracing_hooks._ship.sinks.otlp._PROMETHEUS_MODULE", module + "_" * missing)
        _, problems = destinations(plan(("local",), prometheus="127.0.0.1:9464"), {})
        told = [problem for problem in problems if problem.startswith("metrics are not served at 127.0.0.1:9464: ")]
        assert [text.endswith("pip install 'ray-tracing-hooks[prometheus]'") for text in told] == [True] * missing
