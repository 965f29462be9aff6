"""The dashboard for Grafana: its JSON is of Grafana's schema, and each query finds what a node serves to Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from calling import MS, Process
from ports import free_port
from shipping import Node, until

from ray_tracing_hooks import names

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "ray-tracing-hooks.json"
PROMETHEUS = shutil.which("prometheus", path=f"{sys.prefix}/promtool/usr/bin") or shutil.which("prometheus")

VARIABLES = {"$__rate_interval": "30s", "$service": ".*"}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> dict[str, str]:
    """The expression of each query by the title of its panel, with variables replaced as Grafana does."""
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def test_the_dashboard_is_of_grafanas_schema() -> None:
    """Its types, generated from Grafana's own, read all of it, and write it back with nothing lost."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder()
    read = json.loads(encoder.encode(models.Dashboard.from_json(dashboard())))
    assert list(lost(dashboard(), read, "")) == []


def lost(given: Any, read: Any, where: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            yield from lost(value, read.get(key), f"{where}.{key}")
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from lost(one, other, f"{where}[{number}]")
    elif given != read:
        yield where


# It starts a server, and waits until that has read the metrics twice.
@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus, of Debian's package of that name")
def test_each_query_finds_what_a_node_serves(node: Node, tmp_path: Path) -> None:
    """In a real Prometheus, which scrapes a real shipper. No GPU is there: the names of their metrics are checked."""
    port, own = free_port(), free_port()
    node.plan = node.make_plan(metrics=True, utilization=1.0, prometheus=f"127.0.0.1:{port}")
    process = Process(node.spool, {"service.name": "job", "process.pid": 7, names.RESOURCE_NODE_ID: "a" * 56})
    node.start()
    scraped = {"job_name": "node", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    arguments = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    server = subprocess.Popen([str(PROMETHEUS), *arguments], stderr=subprocess.DEVNULL)
    number = 0

    def found(expression: str) -> bool:
        nonlocal number
        number += 1
        now = time.time_ns() - 10 * MS
        process.submit(number, at=now)
        span = process.begin(number, at=now + 2 * MS, attempt=number % 2)
        if number % 3 == 0:
            span.fail(ValueError("no"), None)
        span.end(now + 5 * MS)
        try:
            with urlopen(
                f"http://127.0.0.1:{own}/api/v1/query?{urlencode({'query': expression})}", timeout=20
            ) as answer:
                return bool(json.load(answer)["data"]["result"])
        except URLError:
            assert server.poll() is None
            return False

    try:
        for title, expression in queries().items():
            gpus = re.findall(r"hw_gpu_\w+", expression)
            if gpus:
                assert {each.removesuffix("_bytes") for each in gpus} <= GPUS
            else:
                until(partial(found, expression), f"Prometheus answers {title}: {expression}")
    finally:
        server.terminate()
        server.wait(timeout=20)
        process.close()


GPUS = {name.replace(".", "_") for name in (names.GPU_UTILIZATION, names.GPU_MEMORY_USAGE, names.GPU_MEMORY_LIMIT)}
