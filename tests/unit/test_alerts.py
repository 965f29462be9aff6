"""The example alerts for Prometheus: their metrics exist, and each fires when its promise is broken, and not before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from ports import free_port

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.figures import DestinationFigures, Figures
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.metrics.provider import Metrics
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.stage import StageContext

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "ray-tracing-hooks.rules.yml"
PROMTOOL = shutil.which("promtool", path=f"{sys.prefix}/promtool/usr/bin") or shutil.which("promtool")

LABELS = {"ray_tracing_exporter": "otlp", "ray_tracing_signal": "traces", "ray_tracing_address": "OTLP http://c:4317"}
PLACE = {"ray_node_id": "aaaaaaaaaaaa", "service_name": "job", "service_instance_id": "1"}

HEALTHY = {
    "ray_tracing_received_total": "0+100x60",
    "ray_tracing_delivered_total": "0+100x60",
    "ray_tracing_refused_total": "0x60",
    "ray_tracing_dropped_total": "0x60",
    # Single failures are part of any network.
    "ray_tracing_retries_total": "0 0 1 1 1 2+0x60",
    "ray_tracing_waiting_age_seconds": "1x60",
    "ray_tracing_unwritten_total": "0x60",
    "ray_tracing_spool_size_bytes": "1000x60",
    "ray_tracing_spool_limit_bytes": "1000000x60",
}
"""A minute each."""

BROKEN = {
    "RayTracingSpansRefused": {"ray_tracing_refused_total": "0x20 5x40"},
    "RayTracingSpansDropped": {"ray_tracing_dropped_total": "0x20 5x40"},
    "RayTracingSpansNotWritten": {"ray_tracing_unwritten_total": "0x20 5x40"},
    "RayTracingSpoolFillsUp": {"ray_tracing_spool_size_bytes": "900000x60"},
    "RayTracingSpansWait": {"ray_tracing_waiting_age_seconds": "0+60x60"},
    "RayTracingDeliveryFails": {"ray_tracing_retries_total": "0+3x60", "ray_tracing_delivered_total": "100x60"},
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_alerts_use_metrics_and_labels_that_there_are() -> None:
    plan = ShipPlan(("otlp",), Settings(prometheus=f"127.0.0.1:{free_port()}"))
    figures = Figures(destinations=(DestinationFigures(exporter="otlp"),))
    provider = Metrics(StageContext("/nowhere", plan, {}, Problems(), lambda: None), lambda: figures)
    provider.begin(encode.resource({"service.name": "job", names.RESOURCE_NODE_ID: "aaaaaaaaaaaa"}))
    with urlopen(f"http://{plan.settings.prometheus}/metrics", timeout=20) as answer:
        exposed = answer.read().decode()
    provider.close()
    metrics = set(re.findall(r"^# TYPE (\w+)", exposed, re.MULTILINE))
    labels = set(re.findall(r"(\w+)=\"", exposed))
    used = {name for rule in rules() for name in re.findall(r"ray_tracing_\w+", rule["expr"])}
    assert used
    assert used <= metrics
    shown = {name for rule in rules() for name in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))}
    assert shown <= labels
    assert {rule["alert"] for rule in rules()} == BROKEN.keys()


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Debian's package prometheus")
def test_each_alert_fires_for_its_cause_alone(tmp_path: Path) -> None:
    """By Prometheus' own evaluation, an hour after a healthy start, and never on a healthy node."""
    alerts = list(BROKEN)
    tests = [case("healthy", HEALTHY, dict.fromkeys(alerts, False))]
    for name, changes in BROKEN.items():
        tests.append(case(name, HEALTHY | changes, {each: each == name for each in alerts}))
    document = tmp_path / "tests.yml"
    document.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(document)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def case(name: str, values: dict[str, str], firing: dict[str, bool]) -> dict[str, Any]:
    """A test of promtool's. It compares whole annotations, so whether an alert fires is asked as an expression."""
    of_destination = {"received", "delivered", "refused", "dropped", "retries", "waiting"}
    series = []
    for metric, each in values.items():
        has_destination = metric.split("_")[2] in of_destination
        labels = ",".join(f'{key}="{value}"' for key, value in (PLACE | (LABELS if has_destination else {})).items())
        series.append({"series": f"{metric}{{{labels}}}", "values": each})
    return {
        "name": name,
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": "25m",
                "exp_samples": [{"value": 1}] if fires else [],
            }
            for alert, fires in firing.items()
        ],
    }
