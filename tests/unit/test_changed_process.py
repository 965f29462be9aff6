"""What becomes of a process whose settings change while it runs. Whole clusters: `tests/ray/test_live_changes.py`."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._connection.changes import Changes, control_folder
from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._control.listener import wake
from ray_tracing_hooks._ray.driver import DriverTrace

pytestmark = pytest.mark.usefixtures("each_way")

PROGRAM = """
import glob, json, os, subprocess, sys
# As a worker in which Ray calls the hook; no cluster is there, and no shipper is started. Ray is imported once, and each
# body runs in a fork.
import ray._private.workers.default_worker
from ray.util.tracing import tracing_helper

class Node:
    session_name, gcs_address, raylet_socket_name = "session_1", "127.0.0.1:1", "/nowhere"
    def get_session_dir_path(self):
        return session

class CoreWorker:
    def get_current_node_id(self):
        return ray.NodeID.from_random()
    def get_worker_id(self, known=ray.WorkerID.from_random()):
        return known
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
worker.mode = ray._private.worker.WORKER_MODE
worker.node, worker.core_worker, worker.gcs_client = Node(), CoreWorker(), GcsClient()
subprocess.Popen = NoProcess
tracing_helper._enable_tracing()

def change(version, enabled, **variables):
    control = Control(version, enabled, variables)
    expected = {worker.core_worker.get_worker_id().hex(): os.getpid()}
    (answer,) = publish(control_folder(session), control, expected, 60).values()
    return answer

def records():
    trace_id, flags = tracing.active.recorder.decide(None)
    of_ray = tracing.active.recorder.of(flags) is not None
    with trace.get_tracer("program").start_as_current_span("span") as span:
        return of_ray, span.is_recording()

def times_written(span):
    files = glob.glob(session + "/ray_tracing_hooks/*/*.spool")
    return sum(open(file, "rb").read().count(span.span_id) for file in files)

SETUP = '''
from ray_tracing_hooks.local import setup
setup()
from opentelemetry import trace
from ray_tracing_hooks._connection.changes import control_folder
from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._control.control import publish
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._record.recorder import Template
'''

for line in sys.stdin:
    session, environ, body = json.loads(line)
    child = os.fork()
    if not child:
        os.environ.clear()
        os.environ.update(environ)
        found = {}
        exec(SETUP + body)
        print(json.dumps(found), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("{}", flush=True)
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        yield started
        started.communicate()


@pytest.fixture
def run(process: subprocess.Popen[str], tmp_path: Path) -> Run:
    """What a body of the program has found."""

    def result(body: str, **variables: str) -> dict[str, Any]:
        assert process.stdin
        assert process.stdout
        environ = {
            **os.environ,
            "RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans"),
            _compiled.VARIABLE: str(int(_compiled.use.is_on)),
            **variables,
        }
        print(json.dumps([str(tmp_path), environ, body]), file=process.stdin, flush=True)
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    return result


def test_a_reset_process_records_as_it_was_started(run: Run) -> None:
    """Nothing, where it was started with tracing disabled; and it can be enabled again."""
    body = """
found["answers"] = [change(1, True)]
found["on"] = records()
found["answers"].append(change(2, None))
found["reset"] = records()
found["answers"].append(change(3, True))
found["again"] = records()
"""
    found = run(body, OTEL_SDK_DISABLED="true")
    assert found == {"answers": ["", "", ""], "on": [True, True], "reset": [False, False], "again": [True, True]}


def test_a_process_that_is_off_for_a_time_records_again_by_itself(run: Run) -> None:
    """Nobody tells it."""
    body = """
import time
from types import SimpleNamespace
from ray_tracing_hooks._control import control, listener
now = 1000.0
control.time = listener.time = SimpleNamespace(time=lambda: now, sleep=time.sleep, monotonic=time.monotonic)
folder = control_folder(session)
off = Control(1, False, until=5000.0)
publish(folder, off, {worker.core_worker.get_worker_id().hex(): os.getpid()}, 60)
found["off"] = records()
now = 5000.0
listener.wake(folder)
deadline = time.monotonic() + 60
while not all(records()) and time.monotonic() < deadline:
    time.sleep(0.01)
found["on"] = records()
"""
    assert run(body) == {"off": [False, False], "on": [True, True]}


def test_a_process_that_starts_meanwhile_records_when_the_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a node that nobody has told: it knows from the cluster for how long."""
    now = 1000.0
    clock = SimpleNamespace(time=lambda: now, sleep=time.sleep, monotonic=time.monotonic)
    monkeypatch.setattr("ray_tracing_hooks._control.control.time", clock)
    monkeypatch.setattr("ray_tracing_hooks._control.listener.time", clock)
    applied: queue.Queue[bool] = queue.Queue()

    def change(_environ: object, _exporters: object, *, records: bool) -> bool:
        applied.put(records)
        return records

    process: Any = SimpleNamespace(session_dir=str(tmp_path), worker_id="w")
    changes = Changes(process, Control(1, False, until=5000.0).encode(), None, change)
    changes.follow()
    folder = str(control_folder(str(tmp_path)))
    wake(folder)
    assert applied.empty()
    now = 5000.0
    wake(folder)
    assert applied.get(timeout=60) is True
    changes.end(wakes=True)
    assert applied.empty()


def test_a_process_that_cannot_record_says_so(run: Run) -> None:
    """Also where it does not know what is to be changed."""
    body = """
found["none"] = change(1, True, RAY_TRACING_EXPORTERS="none")
found["records"] = records()
found["unknown"] = change(2, True, RAY_TRACING_STRICT="1")
found["off"] = change(3, False, RAY_TRACING_EXPORTERS="none")
"""
    found = run(body)
    assert found == {
        "none": "nothing is recorded, since there is no exporter: set one with exporters=...",
        "records": [False, False],
        "unknown": "its version of this package cannot change RAY_TRACING_STRICT while it runs",
        "off": "",
    }


def test_a_forked_child_does_not_end_a_span_that_is_open_in_an_earlier_spool(run: Run, tmp_path: Path) -> None:
    """Its parent does."""
    body = f"""
span = tracing.active.recorder.start(Template("span", 1, {{}}), os.urandom(16), 1, None)
found["answer"] = change(1, True, RAY_TRACING_LOCAL_DIR={str(tmp_path / "other")!r})
child = os.fork()
if not child:
    span.end()
    os._exit(0)
os.waitpid(child, 0)
found["by the child"] = times_written(span) - 1
span.end()
found["by the parent"] = times_written(span) - 1
"""
    assert run(body) == {"answer": "", "by the child": 0, "by the parent": 1}


def test_a_driver_that_has_ended_begins_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is enabled while it still waits for the delivery of its spans."""
    begun: list[object] = []
    monkeypatch.setattr(DriverTrace, "_begin", lambda *arguments: begun.append(arguments))
    monkeypatch.setattr("ray_tracing_hooks._ray.process.serves_client", lambda: False)
    tracing: Any = SimpleNamespace(process=None, rate_limits=None, job=SimpleNamespace(is_shared=True))
    settings: Any = None
    ended, running = (DriverTrace(tracing, settings, settings) for _ in range(2))
    ended.end()
    ended.begin_late({})
    assert begun == []
    running.begin_late({})
    assert len(begun) == 1
