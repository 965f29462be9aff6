"""A program does not notice that it is traced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from conftest import Cluster
from support import INSIDE, LEAN, PROGRAMS, by_name, path_with, run_program, spans_in

from ray_tracing_hooks._ray import arguments

pytestmark = pytest.mark.xdist_group("runs")  # files that look at the same runs of programs

RECOVER = f"{arguments.signature_module().__name__} recover_args"


@pytest.mark.slow(older_rays=True)  # with the newest Ray, the programs of test_conformance.py say more
@pytest.mark.parametrize("program", ["tasks", "actors", "generators"])
def test_results_are_the_same(program: str, cluster: Cluster, untraced: str) -> None:
    """Each program says the same about itself on a traced and on an untraced cluster."""
    traced = cluster.once(program)
    plain = run_program(program, RTH_ADDRESS=untraced)
    assert traced.result == plain.result
    assert warnings_of(traced.stderr) == warnings_of(plain.stderr)


def warnings_of(stderr: str) -> list[str]:
    return sorted(line for line in stderr.splitlines() if "Warning" in line)


def test_programs_know_nothing_of_the_package() -> None:
    """What is run to prove the point contains no trace of us."""
    for path in PROGRAMS.glob("*.py"):
        assert "ray_tracing_hooks" not in path.read_text(), path


def test_tracing_can_be_stopped_and_begun_again(tmp_path: Path) -> None:
    """Of all that is Ray's and the API's nothing but what we say is replaced, and after `stop` it is the very thing
    that it was; the process has no file, thread, handler or variable more. Then everything is traced again.
    """
    run = run_program(
        "../inside/stopped",
        RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"),
        RAY_TRACING_RAY="+get,wait,put",
        PYTHONPATH=path_with(LEAN, INSIDE),
    )
    found = run.result
    assert found["results"] == [[2, 1, 3]] * 5
    api = {"opentelemetry.trace _TRACER_PROVIDER"}
    switch = {f"ray.util.tracing.tracing_helper {name}" for name in ("_global_is_tracing_enabled", "_opentelemetry")}
    named = {*found["patched"]} - {"ray __traced__"}
    assert len(named) >= 21
    assert {"ray._private.worker put within", "ray.actor.ActorClass _remote within", "ray._raylet asyncio"} <= named
    assert {*found["traced"]} - api == named
    assert found["doubled"] == []
    # Ray has just switched its own tracing on when it calls the hook, and off is how the program began.
    assert {*found["stopped"]} - api == switch
    assert "opentelemetry.trace _TRACER_PROVIDER" not in found["stopped"]
    assert found["process"] == {}
    assert not found["called"], "Ray would not call the next cluster's hook"
    assert found["same pickles"]
    assert {*found["again"]} - api == named
    of_ray = {name for name in found["traced actor"] if name.startswith(("ray._raylet ", "ray.runtime_context "))}
    in_raylet = {name for name in named if name.startswith("ray._raylet ")}
    assert in_raylet <= {*found["traced actor"]}
    assert not in_raylet & {*found["stopped actor"]}
    assert {*found["traced actor"]} - api - of_ray == named - in_raylet
    assert {*found["stopped actor"]} - api - of_ray == {RECOVER, *switch}, "it still understands traced callers"
    kept = {"opentelemetry.trace _set_tracer_provider", "ray.util.tracing.tracing_helper _enable_tracing", *switch}
    assert named & {*found["disconnected"]} == kept, "what is not needed without a traced cluster goes"
    spans = spans_in(tmp_path / "spans")
    assert Counter(span.name for span in spans if span.name.startswith(("in ", "stopped.py"))) == {
        "in driver": 3,
        "in task": 5,
        "stopped.py ray.driver": 2,
    }
    assert len(by_name(spans, "Actor.one ray.remote")) == 6
    executions = by_name(spans, "Actor.one ray.remote_worker")
    assert len(executions) == 6, "not where the actor was untraced; a traced one records what an untraced driver calls"
    known = {span.span_id: span.trace_id for span in spans}
    assert [known.get(span.parent_id) == span.trace_id for span in executions].count(True) == 4


@pytest.mark.slow(older_rays=True)  # several drivers, one after the other
def test_a_driver_that_shuts_down_and_goes_untraced_is_left_alone(cluster: Cluster, untraced: str) -> None:
    """Untraced, then traced, and both again in one process: each part works, and has spans and a root span of its own
    or none. The hook that such a driver names in ``ray.init`` as well changes nothing.
    """
    run = cluster.run("mixed_order", *(untraced, cluster.address) * 2, RTH_HOOK="ray_tracing_hooks.otlp:setup")
    traced, not_traced = ([is_traced] * 2 + ["nothing", [1, 3, 2], [2, 4, 5]] for is_traced in (True, False))
    assert run.result == [not_traced, traced] * 2
    names = [span.name for span in run.spans]
    assert names.count("__main__.nothing ray.remote") == 1, "the newest trace is the last part's"


def test_a_driver_that_connects_again_and_again_does_not_grow(cluster: Cluster) -> None:
    """Neither descriptors nor call-backs pile up, and a span of the first connection may end after the last one.

    No variable of the environment is set or removed meanwhile: other threads may read the environment in C.
    """
    run = run_program("../inside/reconnecting", RTH_ADDRESS=cluster.address, RAY_TRACING_LOCAL_DIR=str(cluster.spans))
    (first, second, *others), changed = run.result
    assert changed == []
    assert len(first) == 3
    assert others == [second] * len(others), "descriptors, writers and what is called at the exit stay as many"
    made = [span.name for span in spans_in(cluster.spans) if span.name in {"held", "step"}]
    assert sorted(made) == ["held"] + ["step"] * (2 + len(others)), run.stderr
