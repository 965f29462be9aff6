"""What becomes of a process whose settings change while it runs. Whole clusters: `tests/ray/test_live_changes.py`."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pretended_worker import PretendedWorker

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._connection.changes import Changes
from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._ray.driver import DriverTrace

pytestmark = pytest.mark.usefixtures("each_way")

SETUP = """
import glob
from ray_tracing_hooks.local import setup
setup()
from opentelemetry import trace
from ray_tracing_hooks._connection.changes import control_folder
from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._control import listener
from ray_tracing_hooks._control.control import publish
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._record.recorder import Template

listener.PAUSE = 0.02

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
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def worker() -> Iterator[PretendedWorker]:
    worker = PretendedWorker()
    yield worker
    worker.end()


@pytest.fixture
def run(worker: PretendedWorker, tmp_path: Path) -> Run:
    """Run a body in a worker that records, and give what it has found."""
    compiled = {_compiled.VARIABLE: str(int(_compiled.use.is_on))}
    return lambda body, **variables: worker.run(
        tmp_path, SETUP + body, RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"), **compiled, **variables
    )


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
    monkeypatch.setattr("ray_tracing_hooks._control.listener.PAUSE", 0.02)
    applied: queue.Queue[bool] = queue.Queue()

    def change(_environ: object, _exporters: object, *, records: bool) -> bool:
        applied.put(records)
        return records

    process: Any = SimpleNamespace(session_dir=str(tmp_path), worker_id="w")
    changes = Changes(process, Control(1, False, until=5000.0).encode(), None, change)
    changes.follow()
    assert applied.empty()
    now = 5000.0
    assert applied.get(timeout=60) is True
    changes.end()
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
