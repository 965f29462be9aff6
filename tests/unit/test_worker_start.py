"""What the hook costs every worker of a cluster. Times vary with the machine: `tests/benchmarks/worker_start.py` has
them. What makes them, and what must not creep in, does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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

PROGRAM = """
import json, os, subprocess, sys, time
# What a worker has imported and done when Ray calls the hook; no cluster is there, and no shipper is to be started.
import ray._private.workers.default_worker
from ray.util.tracing import tracing_helper

class Node:
    session_name, gcs_address, raylet_socket_name = "session_1", "127.0.0.1:1", "/nowhere"
    def get_session_dir_path(self):
        return sys.argv[1]

class CoreWorker:
    def get_current_node_id(self):
        return ray.NodeID.from_random()
    def get_worker_id(self):
        return ray.WorkerID.from_random()
    def get_current_job_id(self):
        return ray.JobID.nil()

class NoProcess:
    def __init__(self, *arguments, **options):
        pass
    def wait(self):
        pass

class GcsClient:
    def internal_kv_multi_get(self, keys, namespace, timeout):
        return {b"tracing_startup_hook": b"ray_tracing_hooks.local:setup"}

worker = ray._private.worker.global_worker
worker.mode = getattr(ray._private.worker, sys.argv[2])
worker.node, worker.core_worker, worker.gcs_client = Node(), CoreWorker(), GcsClient()
subprocess.Popen = NoProcess
tracing_helper._enable_tracing()

def held():
    return {"threads": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd"))}

modules, before = set(sys.modules), held()
from ray_tracing_hooks.local import setup
setup()
# The thread that waits for changes has begun to wait where it has one file open for a while.
same, deadline = 0, time.monotonic() + 60
while sys.argv[2] == "WORKER_MODE" and same < 20 and time.monotonic() < deadline:
    same = same + 1 if held()["descriptors"] == before["descriptors"] + 1 else 0
    time.sleep(0.01)
found = {name: count - before[name] for name, count in held().items()}
print(json.dumps({"modules": sorted(set(sys.modules) - modules), **found}), flush=True)
os._exit(0)
"""


def hooked(session: Path, mode: str, **variables: str) -> dict[str, Any]:
    """What the hook adds to a fresh process that looks like a worker of this mode."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAY_TRACING_"))}
    environ |= variables
    command = [sys.executable, "-c", PROGRAM, str(session), mode]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_worker_imports_little_and_holds_nothing(tmp_path: Path) -> None:
    """There is no file before its first span; the SDK is imported on first use."""
    found = hooked(tmp_path, "WORKER_MODE")
    modules = set(found["modules"])
    print(*found["modules"])
    assert "ray_tracing_hooks._ray.execution" in modules, "the hook did nothing"
    assert not {name for name in modules if any(f"{name}.".startswith(f"{heavy}.") for heavy in HEAVY)}
    ours = {name for name in modules if name.partition(".")[0] == "ray_tracing_hooks"}
    assert len(ours) <= MOST_OF_OURS
    assert modules - ours <= OTHERS
    # The thread waits at a FIFO for a change of the settings, without running.
    assert (found["threads"], found["descriptors"]) == (1, 1)


def test_metrics_add_nothing_to_a_worker(tmp_path: Path) -> None:
    """They are made where spans are delivered."""
    assert hooked(tmp_path, "WORKER_MODE", RAY_TRACING_METRICS="1") == hooked(tmp_path, "WORKER_MODE")


def test_a_worker_that_only_moves_objects_is_left_alone(tmp_path: Path) -> None:
    """The hook is called in it too."""
    found = hooked(tmp_path, "SPILL_WORKER_MODE")
    print(*found["modules"])
    assert len(found["modules"]) <= 10
    assert (found["threads"], found["descriptors"]) == (0, 0)
    assert list(tmp_path.iterdir()) == []
