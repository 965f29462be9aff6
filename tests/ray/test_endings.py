"""Nothing that has been recorded is lost, however a worker or a driver ends, and what was cut off says why.

Each ends while one thread of it records spans without pause, others have ended and one is open.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import support
from conftest import Cluster, traced
from endings import CALLS, Ended, Way, begin, check, check_once, closed, no_process_is_left, of_trace
from support import HOOK, PATIENCE, await_spans, by_name, of_driver, run_program, spans_in

from ray_tracing_hooks import names

CANCELLED = names.TASK_CANCELLED
WORKER, DRIVER = names.WORKER_DIED, names.DRIVER_DIED
WORKERS = {
    # what a worker does, and knows
    "exception": Way("RayTaskError(RuntimeError)", "RuntimeError", "RuntimeError: the task fails"),
    "sys_exit": Way("WorkerCrashedError", "SystemExit", "SystemExit: 3"),
    "sys_exit_0": Way("WorkerCrashedError"),
    "exit_actor": Way("ActorDiedError"),
    "async_exit_actor": Way("ActorDiedError"),
    "max_calls": Way("returned"),
    "out_of_scope": Way("returned"),
    "reaped": Way("returned"),
    # what it is asked to do, in good order
    "cancel": Way("RayTaskError(TaskCancelledError)", CANCELLED, "KeyboardInterrupt"),
    "sigterm": Way("WorkerCrashedError", WORKER, "worker died: The process receives a SIGTERM."),
    "async_sigterm": Way("returned"),
    # what cuts it off, and is in Ray's logs
    "cancel_force": Way("TaskCancelledError", CANCELLED, "worker died: .*force ray.cancel request.", cut_off=True),
    "ray_kill": Way("ActorDiedError", WORKER, "worker died: .*killed by `ray.kill`.", cut_off=True),
    "ray_kill_restart": Way("ActorUnavailableError", WORKER, "worker died: .*killed by `ray.kill`.", cut_off=True),
    "sigsegv": Way("WorkerCrashedError", WORKER, "worker died: SIGSEGV", cut_off=True),
    "sigabrt": Way("WorkerCrashedError", WORKER, "worker died: SIGABRT", cut_off=True),
    # what cuts it off and is told by nobody
    "os_exit": Way("WorkerCrashedError", WORKER, "worker died", cut_off=True),
    "sigkill": Way("WorkerCrashedError", WORKER, "worker died", cut_off=True),
    "async_sigkill": Way("ActorDiedError", WORKER, "worker died", cut_off=True),
}
DRIVERS = {
    "shutdown": Way(0),
    "fall_off": Way(0),
    "sys_exit": Way(3),
    "exception": Way(1, "RuntimeError", "RuntimeError: the driver fails"),
    "interrupt": Way(None, "KeyboardInterrupt", "KeyboardInterrupt"),  # Python itself exits with 1 or by the signal
    "sigterm": Way(signal.SIGTERM, DRIVER, "driver died: SIGTERM"),
    "os_exit": Way(4, DRIVER, "driver died", cut_off=True),
    "sigkill": Way(-signal.SIGKILL, DRIVER, "driver died", cut_off=True),
    "sigsegv": Way(-signal.SIGSEGV, DRIVER, "driver died: SIGSEGV", cut_off=True),
}
OWNERS = ["shutdown", "exception", "sigterm", "os_exit", "sigkill"]
"""The ends of a driver that has started the cluster, which ends with it."""


@pytest.fixture(scope="module")
def node(short_tmp: Callable[[], Path]) -> Iterator[Cluster]:
    """A traced cluster that kills idle workers after half a second."""
    folder = short_tmp()
    idle = {"RAY_num_workers_soft_limit": "0", "RAY_idle_worker_killing_time_threshold_ms": "500"}
    with traced(folder, own=idle) as found:
        yield found
    no_process_is_left(folder)


@pytest.fixture(scope="module")
def workers(node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Workers that have ended in all ways: one program, all at once."""
    folder = tmp_path_factory.mktemp("workers")
    run = node.run("endings_workers", str(folder), *WORKERS)
    wanted = {f"{which} {how}" for which in ("open", "forgotten") for how in WORKERS}
    spans = await_spans(node.spans, lambda spans: closed(spans, wanted))
    return Ended(of_driver(spans, "endings_workers"), run.result, folder)


@pytest.mark.parametrize("how", WORKERS)
def test_every_span_of_a_worker_is_delivered(how: str, workers: Ended) -> None:
    """What has ended is there, what was open is closed, and the execution says how its worker ended."""
    check(workers, how, WORKERS[how], how)


def test_no_span_of_a_worker_is_there_twice(workers: Ended) -> None:
    """A call that was cut off has one execution too. One actor is restarted."""
    check_once(workers.spans, restarted="Actor.__init__ ray.remote")


def test_what_the_memory_monitor_kills_says_so(tmp_path: Path) -> None:
    """Its error is the one that the caller gets. No memory is used up: the monitor is set to a thousandth of it."""
    spans = tmp_path / "spans"
    run = run_program(
        "out_of_memory",
        str(tmp_path),
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(spans),
        RAY_memory_usage_threshold="0.001",
        RAY_memory_monitor_refresh_ms="2000",  # time enough to record something
    )
    how, outcome = run.result
    way = Way("OutOfMemoryError", names.OUT_OF_MEMORY, "worker died: the node ran low on memory", cut_off=True)
    check(Ended(spans_in(spans), {how: outcome}, tmp_path), how, way, how)


def check_driver(ended: Ended, how: str) -> None:
    """Everything of a driver and its busy worker is there, and the driver has said nothing that worries."""
    spans = of_trace(ended.spans, f"driver {how}")
    ended = ended._replace(spans=spans, output=(ended.folder / f"{how}.log").read_text())
    check(ended, how, DRIVERS[how], f"driver {how}")
    # The raylet sends SIGTERM to a worker whose job has ended, so some workers can still say so themselves.
    check(ended, how, Way(None, WORKER, "worker died.*", cut_off=None), f"busy {how}")
    found = Counter(span.name for span in spans)
    assert [found["in call"], found["Actor.call ray.remote"], found["Actor.call ray.remote_worker"]] == [CALLS] * 3
    (root,) = by_name(spans, "endings.py ray.driver")
    assert root.attributes.get(names.EXIT_CODE) == (1 if how == "exception" else None)
    check_once(spans)
    print(f"{how}: {next(span.status_message for span in spans if span.name == 'Actor.busy ray.remote_worker')}")
    assert f"RESULT {sum(range(CALLS))}" in ended.output
    assert [line for line in ended.output.splitlines() if "ray_tracing_hooks" in line and "INFO" not in line] == []


@pytest.fixture(scope="module")
def drivers(node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Drivers of a running cluster that have ended in all ways, all at once."""
    folder = tmp_path_factory.mktemp("drivers")
    variables = {"RTH_ADDRESS": node.address, "RAY_TRACING_LOCAL_DIR": str(node.spans)}
    begun = {how: begin(how, folder, **variables) for how in DRIVERS}
    outcomes: dict[str, str | int] = {how: driver.wait(timeout=PATIENCE) for how, driver in begun.items()}
    wanted = {
        f"{which} {who} {how}" for which in ("open", "forgotten") for who in ("driver", "busy") for how in DRIVERS
    }
    spans = await_spans(node.spans, lambda spans: closed(spans, wanted))
    return Ended(spans, outcomes, folder)


@pytest.mark.parametrize("how", DRIVERS)
def test_every_span_of_a_driver_is_delivered(how: str, drivers: Ended) -> None:
    """Of a driver that has joined a cluster: the root span says how the driver ended."""
    check_driver(drivers, how)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=[pytest.mark.slow] if how in {"exception", "sigterm", "os_exit"} else [])
        for how in OWNERS
    ],
)
def test_every_span_is_delivered_where_the_cluster_ends_with_its_driver(
    how: str, tmp_path: Path, short_tmp: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of a driver that has started the cluster; no process of it is left."""
    session = short_tmp()
    monkeypatch.setattr(support, "ray_folder", str(session))
    spans = tmp_path / "spans"
    with begin(how, tmp_path, RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(spans)) as driver:
        outcome = driver.wait(timeout=PATIENCE)
    # Where the driver could wait for delivery, everything is there when it has ended.
    waits = not DRIVERS[how].cut_off
    wanted = {f"open driver {how}", f"open busy {how}"}
    await_spans(spans, lambda found: closed(found, wanted), timeout=0 if waits else 30)
    wanted |= {f"forgotten driver {how}", f"forgotten busy {how}"}
    found = await_spans(spans, lambda found: closed(found, wanted), timeout=30)
    check_driver(Ended(found, {how: outcome}, tmp_path), how)
    assert spans_in(spans) == found
    no_process_is_left(session)
