"""``ray-tracing-hooks states``: what real clusters tell of their tasks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import Cluster, dashboard_options, start_head, stop_head
from http_server import Answer, Request, http_server
from ports import free_port
from ray.core.generated import common_pb2, gcs_service_pb2
from support import HOOK, command, environment, python, run_program, spans_in, with_extras

from ray_tracing_hooks._formats import task_states

WAITED = {"for_argument": "arguments", "for_resources": "scheduling", "Actor.for_actor": "actor_queue"}


def fetched(cluster: Cluster, trace_id: str) -> dict[str, dict[str, Any]]:
    """What the functions of a trace waited for, after the states have been fetched."""
    done = command("states", str(cluster.spans), "--address", cluster.address)
    assert done.returncode == 0, done.stderr
    shown = command("summary", str(cluster.spans), "--json", "--trace", trace_id)
    functions = json.loads(shown.stdout)["queues"]["functions"]
    return {each["function"].removeprefix("__main__."): each for each in functions}


def test_each_call_says_what_it_waited_for(cluster: Cluster) -> None:
    """One waits a second for its argument, one for resources, one for its actor. Asked again, more is known."""
    run = cluster.run("queues")
    found = fetched(cluster, run.spans[0].trace_id)
    assert WAITED.keys() <= found.keys()
    for function, phase in WAITED.items():
        times = {name: found[function][f"{name}_ns"] for name in ("arguments", "scheduling", "fetching", "actor_queue")}
        assert times[phase] > 900_000_000, (function, times)
        assert max(times, key=lambda name: times[name]) == phase, (function, times)
    (file,) = cluster.spans.glob("task-states-*.ndjson")
    assert file.stat().st_mode & 0o777 == 0o600
    before = set(file.read_text().splitlines()[1:])
    file.write_text(file.read_text() + json.dumps({"task_id": "ab", "states": {"RUNNING": 1}}) + "\n")
    assert command("states", str(cluster.spans), RAY_ADDRESS=cluster.address).returncode == 0
    kept = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert {"ab"} < {each["task_id"] for each in kept}, "what Ray has let go of stays in the file"
    assert len(kept) > len(before)
    later = json.dumps({"format": "ray_tracing_hooks.task_states", "version": 2}) + "\n"
    file.write_text(later)
    refused = command("states", str(cluster.spans), RAY_ADDRESS=cluster.address)
    assert refused.returncode != 0
    assert "is left as it is: it has version 2" in refused.stderr
    assert file.read_text() == later, "of a later version of this package"


def test_the_end_of_a_driver_with_a_cluster_of_its_own_keeps_them(tmp_path: Path) -> None:
    """No command has to be run while it runs. The driver says at the beginning where spans go, and at the end how many
    came there; the workers say nothing.
    """
    spans = tmp_path / "my spans"
    run = run_program("queues", RTH_HOOK=HOOK, RAY_TRACING_LOCAL_DIR=str(spans))
    first, last = (line for line in run.stderr.splitlines() if "ray_tracing_hooks" in line)
    assert "INFO" in first
    assert first.endswith(f"ray_tracing_hooks: tracing is on, spans go to {spans}")
    assert "INFO" in last
    (number,) = re.findall(r"ray_tracing_hooks: (\d+) spans written to", last)
    assert int(number) == len(spans_in(spans))
    assert last.endswith(f" written to {spans}; next: ray-tracing-hooks summary '{spans}'")
    assert {path.suffix for path in spans.iterdir()} == {".jsonl", ".ndjson"}, "spans, and the states of tasks"
    (file,) = spans.glob("task-states-*.ndjson")
    assert file.stat().st_mode & 0o777 == 0o600
    shown = json.loads(command("summary", str(spans), "--json").stdout)
    functions = {each["function"].removeprefix("__main__."): each for each in shown["queues"]["functions"]}
    for function, phase in WAITED.items():
        assert functions[function][f"{phase}_ns"] > 900_000_000, (function, functions[function])


UNANSWERED = """
import socket, sys, time
import grpc
import ray
from ray.core.generated import gcs_service_pb2_grpc
from ray_tracing_hooks._ray.states import keep_at_the_end

with socket.create_server(("127.0.0.1", 0)) as server:
    begun = time.monotonic()
    keep_at_the_end(f"127.0.0.1:{server.getsockname()[1]}", sys.argv[1], 1.0)
    print(time.monotonic() - begun)
"""


def test_a_head_that_does_not_answer_holds_up_the_end_for_no_longer_than_said(tmp_path: Path) -> None:
    done = python("-c", UNANSWERED, tmp_path)
    assert float(done.stdout) < 2, "the second that it has, and what a busy machine takes to go on"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answers", [True, False], ids=["migrated", "without states"])
def test_states_that_only_the_dashboard_has_are_fetched_from_there(tmp_path: Path, *, answers: bool) -> None:
    """RAY_enable_task_events_to_dashboard_head=1 and RAY_enable_core_worker_task_event_to_gcs=0. Ray's two servers are
    stand-ins: with these settings a cluster takes ten seconds to report anything.
    """
    asked = []

    def fetched(http: Request) -> Answer:
        request = gcs_service_pb2.GetTaskEventsRequest.FromString(http.body)
        asked.append((http.path, request.filters.exclude_driver))
        reply = gcs_service_pb2.GetTaskEventsReply()
        event = reply.events_by_task.add(task_id=b"\xab", attempt_number=1, job_id=b"\1")
        event.task_info.name = "f"
        event.state_updates.state_ts_ns[common_pb2.TaskStatus.RUNNING] = 7
        return Answer(200 if answers else 404, reply.SerializeToString())

    def stored(request: Any, _context: Any) -> Any:
        values = {b"session_name": b"session_1", b"dashboard": dashboard.encode()}
        return gcs_service_pb2.InternalKVGetReply(value=values[request.key])

    def nothing(_request: Any, _context: Any) -> Any:
        return gcs_service_pb2.GetTaskEventsReply()

    head = grpc.server(ThreadPoolExecutor(1))
    for service, method, answer in (
        ("InternalKVGcsService", "InternalKVGet", stored),
        ("TaskInfoGcsService", "GetTaskEvents", nothing),
    ):
        read = getattr(gcs_service_pb2, f"{method}Request").FromString
        handler = grpc.unary_unary_rpc_method_handler(answer, read, lambda reply: reply.SerializeToString())
        handlers = grpc.method_handlers_generic_handler(f"ray.rpc.{service}", {method: handler})
        head.add_generic_rpc_handlers((handlers,))
    port = head.add_insecure_port("0.0.0.0:0")  # the command looks up the address of this machine
    head.start()
    with http_server(fetched) as url:
        dashboard = url.removeprefix("http://")
        done = command("states", str(tmp_path), "--json", "--address", f"127.0.0.1:{port}", RAY_AUTH_MODE="disabled")
    head.stop(None)
    assert asked == [("/api/task_events/query", True)], done.stderr
    if answers:
        assert done.returncode == 0, done.stderr
        file = str(tmp_path / "task-states-session_1.ndjson")
        assert json.loads(done.stdout) == {"output": file, "attempts": 1, "fetched": 1, "dropped": 0}
        _, (attempt,) = task_states.read(str(tmp_path / "task-states-session_1.ndjson"))
        assert (attempt.task_id, attempt.attempt, attempt.name, attempt.states) == ("ab", 1, "f", {"RUNNING": 7})
    else:
        assert done.returncode == 1
        assert "not reported to the GCS (RAY_enable_core_worker_task_event_to_gcs=0)" in done.stderr


CALLS = """
import select
import sys

import ray

ray.init()

@ray.remote(num_cpus=0)
class Actor:
    def method(self):
        pass

@ray.remote
def f():
    pass

actor = Actor.remote()
# Until the agent of the node has begun, what is reported to it is lost.
while not select.select([sys.stdin], [], [], 0.2)[0]:
    ray.get([f.remote(), actor.method.remote()])
"""
WHOLE = {"PENDING_ARGS_AVAIL", "RUNNING", "FINISHED"}


@pytest.mark.slow  # a cluster with a dashboard and its agents
def test_the_dashboard_and_the_history_server_have_the_same_states(short_tmp: Callable[[], Path]) -> None:
    """Where the GCS has none. A server writes the events as the collector of KubeRay's History Server does."""
    folder = short_tmp()
    (events := folder / "history" / "session" / "node" / "job_events" / "01000000").mkdir(parents=True)

    def received(request: Request) -> Answer:
        with open(events / "node-2026-11-29-17-1.jsonl", "a") as file:
            file.writelines(json.dumps(event) + "\n" for event in json.loads(request.body))
        return Answer()

    def states(name: str, *source: object) -> dict[Any, Any]:
        """The states of calls that have ended, once there are such of the function and of the method."""
        for _ in range(100):
            done = command("states", folder / name, *source, RAY_AUTH_MODE="disabled")
            file = next((folder / name).glob("*"), None) if done.returncode == 0 else None
            found = [] if file is None else list(task_states.read(str(file))[1])
            whole = {each[:2]: each for each in found if each.states.keys() >= WHOLE}
            if {each.name for each in whole.values()} >= {"f", "Actor.method"}:
                return whole
        raise AssertionError(f"no states from {source}")

    with http_server(received) as url:
        settings = {
            "RAY_enable_ray_event": "1",
            "RAY_enable_core_worker_ray_event_to_aggregator": "1",
            "RAY_enable_core_worker_task_event_to_gcs": "0",
            "RAY_enable_task_events_to_dashboard_head": "1",
            "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR": f"{url}/v1/events",
            **with_extras(),
        }
        head, address = start_head(folder, *dashboard_options(free_port()), **settings)
        try:
            program, variables = [sys.executable, "-c", CALLS], environment(RAY_ADDRESS=address, **settings)
            with subprocess.Popen(program, env=variables, stdin=subprocess.PIPE):
                by_the_dashboard = states("dashboard", "--address", address)
                by_events = states("events", "--events", folder / "history")
        finally:
            stop_head(head)
    in_both = by_the_dashboard.keys() & by_events.keys()
    assert {by_events[key].name for key in in_both} >= {"f", "Actor.method"}
    assert [by_events[key] for key in in_both] == [by_the_dashboard[key] for key in in_both]


def test_without_a_cluster_it_says_so(tmp_path: Path) -> None:
    nobody = command("states", str(tmp_path), "--address", f"127.0.0.1:{free_port()}", "--timeout", "2")
    assert nobody.returncode == 1
    assert "no answer from a Ray cluster at " in nobody.stderr
    wrong = command("states", str(tmp_path), "--address", "nonsense")
    assert wrong.returncode == 2
    assert "'nonsense' is not the address of a cluster's head: expected HOST:PORT" in wrong.stderr
    none = command("states", str(tmp_path), RAY_TMPDIR=str(tmp_path))
    assert none.returncode == 1
    assert "no Ray cluster started by `ray start` runs on this machine" in none.stderr
    (tmp_path / "ray.py").write_text("raise ImportError('there is no Ray')")
    alone = command("states", PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")
    assert alone.returncode == 1
    assert "Ray is not installed here" in alone.stderr
    assert list(tmp_path.glob("*.ndjson")) == []
