"""A node is sampled by its shipper, if that is asked for, and the memory of tasks is measured where they run."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from calling import T0, Process
from collector import Received
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from shipping import Node, until

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._ray import memory
from ray_tracing_hooks._ship.metrics.provider import Gpus, Processors, Sample

NVML = """
class Error(Exception):
    pass

def nvmlInit():
    if not DEVICES:
        raise Error("no driver")

def nvmlShutdown():
    pass

def nvmlDeviceGetCount():
    return len(DEVICES)

def nvmlDeviceGetHandleByIndex(index):
    return DEVICES[index]

def nvmlDeviceGetUUID(device):
    return device["id"]

def nvmlDeviceGetName(device):
    return device["name"].encode()

class Known:
    def __init__(self, **values):
        vars(self).update(values)

def nvmlDeviceGetUtilizationRates(device):
    if "gpu" not in device:
        raise Error("not supported")
    return Known(gpu=device["gpu"])

def nvmlDeviceGetMemoryInfo(device):
    return Known(used=device["used"], total=1 << 34)
"""
DEVICES = [{"id": "GPU-a", "name": "one", "gpu": 75, "used": 1 << 30}, {"id": "GPU-b", "name": "two", "used": 0}]


def driver(folder: Path, devices: Any) -> Path:
    """A folder with a module that answers as NVML does on a node with these devices."""
    folder.mkdir()
    (folder / "pynvml.py").write_text(f"DEVICES = {devices!r}\n{NVML}")
    return folder


def gauges(messages: list[Any]) -> dict[tuple[str, str], list[float]]:
    """The values of each gauge in the order of their times, by its name and the id of the device."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for message in messages:
        for resource in message.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                for point in metric.gauge.data_points:
                    ids = [each.value.string_value for each in point.attributes if each.key == names.HW_ID]
                    value = point.as_int or point.as_double
                    found.setdefault((metric.name, "".join(ids)), []).append((point.time_unix_nano, value))
    for points in found.values():
        assert points == sorted(points)
    return {key: [value for _, value in points] for key, points in found.items()}


def lines(node: Node) -> list[pb.MetricsData]:
    paths = sorted((node.out / "metrics").glob("*.jsonl"))
    return [json_format.Parse(line, pb.MetricsData()) for path in paths for line in path.read_text().splitlines()]


def test_a_shipper_samples_its_node(
    node: Node, server: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processors, memory and GPUs, for files and over OTLP, with the resource of the node."""
    monkeypatch.syspath_prepend(driver(tmp_path / "driver", DEVICES))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "driver"))
    node.plan = node.make_plan(exporters=("local", "otlp"), utilization=0.1)
    process = Process(node.spool)
    node.start()
    process.submit(1, at=T0)

    def both() -> bool:
        assert node.flush().done
        return all(len(gauges(each).get((names.CPU_UTILIZATION, ""), ())) > 3 for each in (lines(node), server.metrics))

    until(both, "it has been sampled several times")
    process.close()
    for messages in (lines(node), server.metrics):
        found = gauges(messages)
        assert set(found) == {
            (names.CPU_UTILIZATION, ""),
            (names.MEMORY_UTILIZATION, ""),
            (names.GPU_UTILIZATION, "GPU-a"),
            *(
                (metric, gpu)
                for metric in (names.GPU_MEMORY_USAGE, names.GPU_MEMORY_LIMIT)
                for gpu in ("GPU-a", "GPU-b")
            ),
        }
        assert set(found[names.GPU_UTILIZATION, "GPU-a"]) == {0.75}
        assert set(found[names.GPU_MEMORY_USAGE, "GPU-a"]) == {1 << 30}
        for name in (names.CPU_UTILIZATION, names.MEMORY_UTILIZATION):
            assert all(0 <= value <= 1 for value in found[name, ""])
        resource = {each.key: each.value.string_value for each in messages[0].resource_metrics[0].resource.attributes}
        assert resource["service.instance.id"]
        assert names.EXECUTION_DURATION not in {metric for metric, _ in found}, "metrics of calls are not asked for"


def test_a_node_without_a_driver_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, or where it finds no driver."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert list(Gpus().samples()) == []
    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.syspath_prepend(driver(tmp_path / "driver", []))
    gpus = Gpus()
    assert list(gpus.samples()) == []
    gpus.close()
    monkeypatch.delitem(sys.modules, "pynvml")


def test_the_share_of_busy_processors_is_that_since_the_last_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100, 1000), (150, 1100), (150, 1100), (150, 1200)])
    monkeypatch.setattr("ray_tracing_hooks._ship.metrics.provider._times", lambda: next(times))
    processors = Processors()

    def shares() -> list[Sample]:
        return [each for each in processors.samples() if each.metric == names.CPU_UTILIZATION]

    assert shares() == [Sample(names.CPU_UTILIZATION, 0.5)]
    assert shares() == [], "no time has passed by the kernel's clock"
    assert shares() == [Sample(names.CPU_UTILIZATION, 0.0)]


class Ended:
    """A span that can be ended."""

    def __init__(self) -> None:
        self.make: Any = None

    def add_at_end(self, make: Any) -> None:
        self.make = make


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What the process uses now, and has used at most."""
    values = SimpleNamespace(now=100, most=100)
    monkeypatch.setattr(memory, "_of_process", lambda: (values.now, values.most))
    monkeypatch.setattr(memory, "INTERVAL", 0.001)
    return values


def peaks(measured: Ended) -> list[int]:
    found = decode_span(b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + b"s" * 8 + measured.make()).attributes
    return [found[key] for key in (names.RAY_MEMORY_PEAK, names.RAY_MEMORY_DEVICE_PEAK) if key in found]


def test_a_peak_that_was_never_reached_before_is_exact(used: SimpleNamespace) -> None:
    measuring, span = memory.Memory(), Ended()
    measuring.measure(span)  # type: ignore[arg-type]
    used.most = 500
    assert peaks(span) == [500]


def test_another_peak_is_that_of_samples(used: SimpleNamespace) -> None:
    """Each span has its own: what was used before it began is not part of it."""
    measuring, first, second = memory.Memory(), Ended(), Ended()
    used.most = 1000
    measuring.measure(first)  # type: ignore[arg-type]
    (opened,) = measuring._open
    used.now = 300
    until(lambda: opened.peaks().process == 300, "a sample was taken")
    used.now = 200
    measuring.measure(second)  # type: ignore[arg-type]
    assert peaks(second) == [200]
    assert peaks(first) == [300]
    assert not measuring._open
    assert [each.name for each in threading.enumerate()].count("ray_tracing_hooks-memory") >= 1


def test_a_sample_does_not_count_for_a_span_that_began_while_it_was_taken(
    used: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring, first, second = memory.Memory(), Ended(), Ended()
    is_taking, is_taken = threading.Event(), threading.Event()

    def look() -> tuple[int, int]:
        now = used.now
        if threading.current_thread() is measuring._thread:
            is_taking.set()
            assert is_taken.wait(60)
        return now, used.most

    monkeypatch.setattr(memory, "_of_process", look)
    used.now, used.most = 900, 1000
    measuring.measure(first)  # type: ignore[arg-type]
    assert is_taking.wait(60)
    used.now = 200
    measuring.measure(second)  # type: ignore[arg-type]
    is_taken.set()
    is_taking.clear()
    assert is_taking.wait(60), "the sample counts, and another one is begun"
    assert peaks(first) == [900]
    assert peaks(second) == [200]


def test_a_finalizer_may_end_a_span_while_another_is_measured(
    used: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a generator, which may run wherever something is allocated."""
    measuring, abandoned, span = memory.Memory(), Ended(), Ended()
    measuring.measure(abandoned)  # type: ignore[arg-type]
    monkeypatch.setattr(measuring._is_measuring, "set", abandoned.make)
    opening = threading.Thread(target=measuring.measure, args=(span,), daemon=True)
    opening.start()
    opening.join(60)
    assert not opening.is_alive(), "it waits for itself"
    assert len(measuring._open) == 1


def test_a_process_that_connects_again_measures_with_the_same_thread() -> None:
    assert memory.of_process() is memory.of_process()


def test_the_memory_of_devices_is_that_of_pytorch(used: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if the program uses it, and without setting back what the program may read."""
    torch, measuring, span = ModuleType("torch"), memory.Memory(), Ended()
    most = [10, 20]
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_allocated=lambda device: [5, 6][device],
        max_memory_allocated=lambda device: most[device],
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    measuring.measure(span)  # type: ignore[arg-type]
    most[0] = 70
    assert peaks(span) == [100, 70]
    torch.cuda.is_initialized = lambda: False
    measuring.measure(span)  # type: ignore[arg-type]
    assert peaks(span) == [100]


def test_a_process_knows_what_it_uses() -> None:
    now, most = memory._of_process()
    assert now is not None
    assert most is not None
    assert 10**6 < now <= most
    began = time.monotonic()
    memory._of_process()
    assert time.monotonic() - began < 1
