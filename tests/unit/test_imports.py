"""Packages that take long to import, or need not be installed, are not imported where few would need them."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SINKS = "from ray_tracing_hooks._ship.sinks import"
_CLIENTS = {"grpc", "requests", "urllib3", "google.protobuf", "opentelemetry.sdk"}


_INSTRUMENTORS = """
from ray_tracing_hooks._sdk.instrumentors import instrument, uninstrument
instrument((), {}, print)
uninstrument(print)
"""
_METRICS = """
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.sinks import otlp
from ray_tracing_hooks._ship.plan import ShipPlan
otlp.read_metrics(ShipPlan(("otlp",), Settings()), {}, print)
otlp.is_prometheus_installed()
"""


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        # What each worker imports, and what a driver does to say where its spans go.
        ("import ray_tracing_hooks", {"ray", "opentelemetry.sdk", "yaml", "click", "grpc", "google.protobuf"}),
        ("from ray_tracing_hooks._settings.table import load; load({}, print)", {"yaml"}),
        (_INSTRUMENTORS, {"importlib.metadata", "opentelemetry", "wrapt"}),
        (f"{_SINKS} otlp; otlp.read({{}}, print)", {*_CLIENTS, "ssl", "http", "google", "opentelemetry"}),
        (f"{_SINKS} jaeger", {"grpc", "requests", "thrift", "opentelemetry"}),
        (f"{_SINKS} entry_point; entry_point.is_installed('zipkin')", {"opentelemetry.sdk"}),
        (_METRICS, _CLIENTS - {"urllib3"}),
        # The shipper.
        (
            "import ray_tracing_hooks._ship.__main__, ray_tracing_hooks._ship.sinks.local",
            {"ray", "opentelemetry", "yaml", "click", "google", "asyncio"},
        ),
        # Commands: those that show no spans, and those that do, where neither Ray nor OpenTelemetry is installed.
        ("import ray_tracing_hooks._cli.config", {"numpy", "msgspec"}),
        ("import ray_tracing_hooks._insight.ingest.load, ray_tracing_hooks._cli", {"ray", "opentelemetry", "google"}),
    ],
)
def test_nothing_heavy_is_imported(program: str, heavy: set[str]) -> None:
    command = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in found if any(f"{name}.".startswith(f"{each}.") for each in heavy)] == []
