"""Calls between processes that are traced and processes that are not work, whatever is lost of the trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from collector import collector
from conftest import Cluster, start_head, stop_head
from support import HOOK, Run, by_name, check_links, of_driver, run_program, spans_in

import ray_tracing_hooks
from ray_tracing_hooks._ray import cluster as cluster_module

pytestmark = pytest.mark.slow  # clusters of many kinds, one after the other

CALLS = [[True, True, "nothing", [1, 3, 2], [2, 4, 5]]]
UNTRACED = [[False, False, *CALLS[0][2:]]]


@dataclass
class Untraced:
    """A cluster in whose processes our hook does not run, and in which a program has left actors."""

    address: str
    spans: Path

    def run(self, name: str, *arguments: str, **variables: str) -> Run:
        return run_program(
            name,
            *arguments,
            check=True,
            RTH_ADDRESS=self.address,
            RAY_TRACING_LOCAL_DIR=str(self.spans),
            **variables,
        )


def start_untraced(folder: Path, *options: str) -> Iterator[Untraced]:
    head, address = start_head(folder, *options, RAY_TRACING_LOCAL_DIR=str(folder / "spans"))
    made = Untraced(address, folder / "spans")
    try:
        made.run("mixed_old")
        yield made
    finally:
        stop_head(head)


@pytest.fixture(scope="module")
def hookless(short_tmp: Callable[[], Path]) -> Iterator[Untraced]:
    """One without hook."""
    yield from start_untraced(short_tmp())


@pytest.fixture(scope="module")
def foreign(short_tmp: Callable[[], Path]) -> Iterator[Untraced]:
    """One with a hook that is not ours."""
    yield from start_untraced(short_tmp(), "--tracing-startup-hook=mixed_hook:setup")


@pytest.fixture(scope="module")
def plain(hookless: Untraced) -> Run:
    """``mixed_calls``, where nothing is traced."""
    return hookless.run("mixed_calls")


@pytest.fixture(scope="module")
def traced_late(hookless: Untraced, plain: Run) -> Run:
    """``mixed_calls``, after our hook has been set in the running cluster."""
    assert not plain.spans
    late = cluster_module.SET_LATE.decode()
    hookless.run("mixed_hook", cluster_module.HOOK.decode(), HOOK, late, "1")
    run = hookless.run("mixed_calls")
    run.spans = of_driver(spans_in(hookless.spans), "mixed_calls")
    return run


def test_a_hook_called_by_hand_at_any_time(cluster: Cluster, hookless: Untraced, foreign: Untraced) -> None:
    """Before, while and after the program is connected, in threads, tasks and actors: what cannot be traced is said
    once, what is traced is traced once, and no call fails.
    """
    run = run_program(
        "mixed_by_hand",
        *(HOOK, hookless.address, cluster.address, foreign.address),
        RAY_TRACING_LOCAL_DIR=str(cluster.spans),
    )
    assert run.result == [["nothing", "done", "nothing", "nothing"]] * 3
    said = [line for line in run.stderr.splitlines() if "ray_tracing_hooks:" in line and "tracing is on" not in line]
    assert sum("not connected to Ray" in line for line in said) == 1
    assert sum("this cluster was started without a tracing hook" in line for line in said) == 1
    assert len(said) == 2, said
    roots = [span for span in spans_in(cluster.spans) if span.name == "mixed_by_hand.py ray.driver"]
    traced, by_user = sorted(roots, key=lambda span: span.start_ns)
    names = [
        sorted(span.name for span in spans_in(cluster.spans) if span.trace_id == root.trace_id and root != span)
        for root in (traced, by_user)
    ]
    calls = ["Actor.do", "Actor.nothing", "__main__.nothing", "__main__.nothing"]
    both = [f"{name} {side}" for name in ["Actor.__init__", *calls] for side in ("ray.remote", "ray.remote_worker")]
    assert names[0] == sorted(both), names[0]
    assert [name for name in names[1] if name.endswith(" ray.remote")] == [
        name for name in both if name.endswith(" ray.remote")
    ]


def test_a_hook_set_in_a_running_cluster_leaves_its_actors_callable(plain: Run, traced_late: Run) -> None:
    """Sync and async, with arguments of every kind, from tasks and actors that are traced and to those that are not."""
    assert traced_late.result == plain.result
    assert "Traceback" not in traced_late.stderr


def test_a_hook_set_in_a_running_cluster_traces_calls_with_arguments(traced_late: Run) -> None:
    """One without has its span where it is made, and none where it is executed."""
    spans = traced_late.spans
    assert len(by_name(spans, "__main__.some ray.remote")) == 5
    assert len(by_name(spans, "__main__.some ray.remote_worker")) == 4
    assert len(by_name(spans, "New.one ray.remote_worker")) == 2
    assert by_name(spans, "Old.nothing ray.remote")
    assert not by_name(spans, "Old.one ray.remote_worker")


def test_our_hook_called_by_the_user_in_a_cluster_with_another(foreign: Untraced, plain: Run) -> None:
    """Its workers understand nothing of what we send, and are not troubled by it."""
    run = foreign.run("mixed_calls", HOOK)
    assert run.result == plain.result
    spans = of_driver(spans_in(foreign.spans), "mixed_calls")
    assert by_name(spans, "Old.every ray.remote")
    assert not [span for span in spans if span.name.endswith("_worker")]


def test_a_cluster_with_another_hook_after_a_traced_one(cluster: Cluster, foreign: Untraced) -> None:
    """Ray says that it is a traced cluster, and its workers are not."""
    run = run_program("mixed_order", cluster.address, foreign.address, RAY_TRACING_LOCAL_DIR=str(cluster.spans))
    assert [result[2:] for result in run.result] == [CALLS[0][2:]] * 2


def test_workers_in_which_tracing_cannot_be_set_up_work(cluster: Cluster, tmp_path: Path) -> None:
    """The hook fails open there, and callers go on sending their context."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ray_tracing_hooks._record.recorder'] = None\n")
    run = cluster.run("mixed_calls", MIXED_ALONE="1", MIXED_PATH=str(tmp_path))
    assert run.result == cluster.run("mixed_calls", MIXED_ALONE="1").result
    assert not [span for span in run.spans if span.name.endswith("_worker")]


def test_drivers_at_once_with_different_settings(cluster: Cluster, tmp_path: Path) -> None:
    """Each has its own root and folder, or is untraced; what their workers do is set where the cluster was started."""
    settings = {
        "task": {"RAY_TRACING_RAY": "task"},
        "actor": {"RAY_TRACING_RAY": "actor"},
        "nothing": {"OTEL_SDK_DISABLED": "true"},
    }

    def run(name: str) -> Run:
        variables = {"RAY_TRACING_LOCAL_DIR": str(tmp_path / name), **settings[name]}
        return run_program("mixed_order", cluster.address, check=True, **variables)

    with ThreadPoolExecutor() as pool:
        assert [run.result for run in pool.map(run, settings)] == [CALLS, CALLS, UNTRACED]
    made = {
        name: {span.name.split(".")[0] for span in spans_in(tmp_path / name) if span.name.endswith(" ray.remote")}
        for name in settings
    }
    assert made == {"task": {"__main__"}, "actor": {"Actor"}, "nothing": set()}
    assert not (tmp_path / "nothing").exists()


def test_without_ray_the_hook_says_one_line(tmp_path: Path) -> None:
    """Also without OpenTelemetry: nothing else that is installed is on the path of this interpreter."""
    (tmp_path / "ray_tracing_hooks").symlink_to(os.path.dirname(ray_tracing_hooks.__file__))
    program = (
        f"import sys; sys.path.append({os.fspath(tmp_path)!r}); "
        "from ray_tracing_hooks import local; local.setup(); local.setup()"
    )
    done = subprocess.run(
        [sys.executable, "-ISc", program], capture_output=True, text=True, check=True, env={"RAY_TRACING_STRICT": "1"}
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "a process that is not connected to Ray" in line


def test_the_next_cluster_has_another_hook_of_ours(cluster: Cluster, tmp_path: Path) -> None:
    """Ray calls only the first one of a process. The spans of each cluster go where its own hook says."""
    with collector() as received:
        run = run_program(
            "mixed_order",
            *(cluster.address, "local"),
            RTH_HOOK="ray_tracing_hooks.otlp:setup",
            RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
            OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        )
    assert run.result == CALLS * 2
    assert [span.name for span in spans_in(tmp_path / "spans")].count("mixed_order.py ray.driver") == 1
    sent = Counter(span.name for span in received.spans)
    assert sent["mixed_order.py ray.driver"] == 1
    assert sent["Actor.nothing ray.remote_worker"] == sent["Actor.nothing ray.remote"] == 1
    assert sent["__main__.nothing ray.remote_worker"] == sent["__main__.nothing ray.remote"] == 1


def test_two_clusters_at_once_with_the_same_folders(tmp_path: Path) -> None:
    """Of one user on one machine: the spans of both are in the files, whole, and neither spool has anything left."""

    def run(_number: int) -> Run:
        folders = {"RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans"), "RAY_TRACING_SPOOL_DIR": str(tmp_path / "spool")}
        return run_program("small", check=True, RTH_HOOK=HOOK, **folders)

    with ThreadPoolExecutor() as pool:
        assert [run.result for run in pool.map(run, range(2))] == [[2, 3]] * 2
    spans = spans_in(tmp_path / "spans")
    traces = Counter(span.trace_id for span in spans)
    assert sorted(traces.values()) == [7, 7]
    for trace_id in traces:
        check_links([span for span in spans if span.trace_id == trace_id])
    assert len({span.resource["ray.cluster.session_name"] for span in spans}) == 2
