"""What the hook costs every worker of a cluster. Times vary with the machine: `tests/benchmarks/workers.py` has
them. What makes them, and what must not creep in, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pretended_worker import PretendedWorker

Hooked = Callable[..., dict[str, Any]]

MOST_OF_OURS = 75
"""Each takes 0.1 to 0.5 ms to import, and six times that where it has to be compiled; a worker's start may take 30 ms
longer.
"""

OTHERS = {"opentelemetry.version", "_sha2"}
"""What a worker has not imported before: the version of the API, and from Python 3.12 on a hash function in C."""

HEAVY = {
    *("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "google.protobuf", "grpc"),
    *("requests", "urllib3", "http.client", "ssl", "yaml", "click", "importlib.metadata"),
    "ray_tracing_hooks._settings.otel",
    *("ray_tracing_hooks._ship.flush", "ray_tracing_hooks._ship.sinks"),
}

BODY = """
def held():
    return {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd"))}

modules, before = set(sys.modules), held()
from ray_tracing_hooks.local import setup
setup()
# The thread that waits for changes has begun to wait where it has no file open for a while.
same, deadline = 0, time.monotonic() + 60
while mode == "WORKER_MODE" and same < 20 and time.monotonic() < deadline:
    same = same + 1 if held()["descriptors"] == before["descriptors"] else 0
    time.sleep(0.01)
found = {name: count - before[name] for name, count in held().items()}
found["modules"] = sorted(set(sys.modules) - modules)
"""


@pytest.fixture(scope="module")
def hooked() -> Iterator[Hooked]:
    """What the hook adds to a process that looks like a worker of a mode."""
    worker = PretendedWorker()
    yield lambda session, mode, **variables: worker.run(session, BODY, mode, **variables)
    worker.end()


def test_a_worker_imports_little_and_holds_nothing(hooked: Hooked, tmp_path: Path) -> None:
    """There is no file before its first span; the SDK is imported on first use."""
    found = hooked(tmp_path, "WORKER_MODE")
    modules = set(found["modules"])
    print(*found["modules"])
    assert "ray_tracing_hooks._ray.execution" in modules, "the hook did nothing"
    assert not {name for name in modules if any(f"{name}.".startswith(f"{heavy}.") for heavy in HEAVY)}
    ours = {name for name in modules if name.partition(".")[0] == "ray_tracing_hooks"}
    assert len(ours) <= MOST_OF_OURS
    assert modules - ours <= OTHERS
    # The thread looks once a second for a change of the settings.
    assert (found["threads"], found["descriptors"]) == (1, 0)


def test_metrics_add_nothing_to_a_worker(hooked: Hooked, tmp_path: Path) -> None:
    """They are made where spans are delivered."""
    assert hooked(tmp_path, "WORKER_MODE", RAY_TRACING_METRICS="1") == hooked(tmp_path, "WORKER_MODE")


def test_a_worker_that_only_moves_objects_is_left_alone(hooked: Hooked, tmp_path: Path) -> None:
    """The hook is called in it too."""
    found = hooked(tmp_path, "SPILL_WORKER_MODE")
    print(*found["modules"])
    assert len(found["modules"]) <= 10
    assert (found["threads"], found["descriptors"]) == (0, 0)
    assert list(tmp_path.iterdir()) == []
