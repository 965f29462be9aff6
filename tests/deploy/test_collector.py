"""The Collectors of ``deploy``, and that of an example: their configurations.

No package index has a Collector with an OTLP receiver. ``OTELCOL`` may name one, which then validates them; without it,
what can be said of them alone is tested.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fluent_bit import POD, RESOURCE, SERVICE
from manifests import MANIFESTS, containers, environment, needs_kubectl, one, overlay, pods

COLLECTOR = os.environ.get("OTELCOL", "")
OF_KUBERNETES = ("collector", "collector-sidecar")
CONFIGURATIONS = {name: MANIFESTS / "components" / name / "collector.yaml" for name in OF_KUBERNETES} | {
    name: MANIFESTS.parent / "tail-sampling" / f"{name}.yaml" for name in ("balancing", "sampling", "llm")
}
ENVIRONMENT = {**POD, "OTEL_SERVICE_NAME": SERVICE, "POD_IP": "10.0.0.1", "OTLP_ENDPOINT": "http://otel-collector:4318"}
ENVIRONMENT |= {"SAMPLERS": "samplers", "BACKEND": "http://tempo:4318", "LLM_BACKEND": "http://phoenix:6006"}

OF_EXAMPLES = {"example": MANIFESTS.parents[1] / "examples" / "otlp_jaeger" / "collector.yaml"}

each = pytest.mark.parametrize("name", CONFIGURATIONS)


def configuration(name: str) -> dict[str, Any]:
    found = yaml.safe_load(CONFIGURATIONS[name].read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("path", (CONFIGURATIONS | OF_EXAMPLES).values(), ids=(CONFIGURATIONS | OF_EXAMPLES).keys())
@pytest.mark.skipif(not COLLECTOR, reason="OTELCOL does not name the program of a Collector")
def test_a_collector_accepts_it(path: Path) -> None:
    command = [COLLECTOR, "validate", "--config", str(path)]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@each
def test_what_its_pipelines_name_is_defined_and_all_of_it_is_used(name: str) -> None:
    found = configuration(name)
    assert found.keys() == {"extensions", "receivers", "processors", "exporters", "service"}
    used: dict[str, set[str]] = {"extensions": set(found["service"]["extensions"])}
    for pipeline in found["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            used.setdefault(kind, set()).update(names)
        assert pipeline["processors"][0] == "memory_limiter"
    assert used == {kind: set(found[kind]) for kind in used}
    storages = set(re.findall(r"storage: (\w+)", CONFIGURATIONS[name].read_text()))
    assert storages <= used["extensions"]


@pytest.mark.parametrize("name", OF_KUBERNETES)
@needs_kubectl
def test_every_variable_and_path_that_it_uses_is_its_containers(name: str) -> None:
    text = CONFIGURATIONS[name].read_text()
    documents = overlay(name)
    owner = one(documents, "Deployment" if name == "collector" else "RayCluster")
    wanted = set(re.findall(r"^(?!\s*#).*?\$\{env:(\w+)\}", text, re.MULTILINE))
    assert wanted <= ENVIRONMENT.keys()
    checked = 0
    for _, pod in pods(owner):
        for container in containers(pod):
            if "opentelemetry-collector" not in container["image"]:
                continue
            checked += 1
            assert wanted <= environment(container, documents).keys()
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            for path in re.findall(r"(?:directory: |include: \[|- )(/[\w/-]+)", text):
                assert any(path.startswith(f"{mount}/") for mount in mounts), path
            (file,) = (part for part in container["args"] if part.startswith("/"))
            assert any(file.startswith(f"{mount}/") for mount in mounts)
    assert checked


def test_all_spans_of_a_trace_arrive_where_it_is_decided_on() -> None:
    """Whatever Collector of the first layer has received them, and whenever they come."""
    balancing, sampling = configuration("balancing"), configuration("sampling")
    exporter = balancing["exporters"]["load_balancing"]
    assert exporter["routing_key"] == "traceID"
    (protocol,) = exporter["protocol"]
    assert protocol == "otlp", "the exporter knows no other"
    receiver = sampling["receivers"]["otlp"]["protocols"]
    assert receiver == {"grpc": {"endpoint": f"0.0.0.0:{exporter['resolver']['dns']['port']}"}}
    assert exporter["protocol"]["otlp"]["retry_on_failure"]["max_elapsed_time"] == "0s"
    sampler = sampling["processors"]["tail_sampling"]
    policies = {each["type"]: each[each["type"]] for each in sampler["policies"]}
    assert policies["status_code"] == {"status_codes": ["ERROR"]}
    assert policies["latency"] == {"threshold_ms": 5000}
    assert sampler["decision_cache"].keys() == {"sampled_cache_size", "non_sampled_cache_size"}
    for layer in (balancing, sampling):
        assert layer["service"]["pipelines"].keys() == {"traces"}


def test_the_sidecar_reads_what_the_hook_writes_and_loses_none() -> None:
    """From the beginning of each file, with its position and what waits on the volume, and retried for ever."""
    found = configuration("collector-sidecar")
    kustomization = (MANIFESTS / "components" / "collector-sidecar" / "kustomization.yaml").read_text()
    (folder,) = re.findall(r"RAY_TRACING_LOCAL_DIR: (.*)", kustomization)
    receiver = found["receivers"]["otlp_json_file"]
    assert receiver["include"] == [f"{folder}/{where}*.jsonl" for where in ("", "logs/", "metrics/")]
    for each_receiver in found["receivers"].values():
        assert each_receiver["start_at"] == "beginning"
        assert each_receiver["storage"] == "file_storage"
    exporter = found["exporters"]["otlp_http"]
    assert exporter["sending_queue"]["storage"] == "file_storage"
    assert exporter["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_the_sidecars_log_records_have_the_resource_of_the_spans() -> None:
    found = configuration("collector-sidecar")
    attributes = found["processors"]["resource/pod"]["attributes"]
    made = {
        each["key"]: re.sub(r"\$\{env:(\w+)\}", lambda match: ENVIRONMENT[match[1]], each["value"])
        for each in attributes
    }
    assert made == RESOURCE


IDS = "trace_id=7be626bdaa478884d8777587e4685567 span_id=1f6af9c1d6d9494e"
LINES = {
    f"2026-11-24 23:06:30,063\tINFO prog.py:10 -- charging {IDS} trace_flags=03": ("2026-11-24 23:06:30,063", "INFO"),
    f"ERROR:orders:refused 1 {IDS}": (None, "ERROR"),
    f"ZeroDivisionError: division by zero {IDS} trace_flags=03": (None, None),
}


@pytest.mark.parametrize("line", LINES)
def test_the_sidecar_finds_the_ids_of_a_line(line: str) -> None:
    """Lines as Ray writes them; Go's regular expressions read these patterns as Python's do."""
    (parser,) = (
        each
        for each in configuration("collector-sidecar")["receivers"]["file_log"]["operators"]
        if each["type"] == "regex_parser"
    )
    match = re.match(parser["regex"], line)
    assert match is not None
    at, level = LINES[line]
    assert match.groupdict() == {
        "asctime": at,
        "levelname": level,
        "trace_id": "7be626bdaa478884d8777587e4685567",
        "span_id": "1f6af9c1d6d9494e",
    }
    assert re.search(parser["if"].partition('"')[2].rstrip('"'), line)
