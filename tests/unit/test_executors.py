"""What runs a task in the place of Ray's own executor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from stand_ins import JOB_ID, TASK_ID, Id, tracing_of

from ray_tracing_hooks._ray import execution, tracing
from ray_tracing_hooks._ray.arguments import KEY

TASK = SimpleNamespace(class_name="", function_name="function", module_name="__main__")
METHOD = SimpleNamespace(class_name="Actor", function_name="method", module_name="__main__")


class Info(NamedTuple):
    """As Ray's function manager has it."""

    function: Any


def executor_of(function: Any, descriptor: Any) -> Any:
    get = execution._get_execution_info(lambda *_: Info(function))
    return get(None, Id(bytes.fromhex(JOB_ID)), descriptor).function


@pytest.mark.parametrize("descriptor", [TASK, METHOD], ids=["task", "method"])
def test_a_fault_while_it_is_made_does_not_reach_the_task(
    descriptor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """Which runs without a span, and without the context that its call carried."""

    def fault(*_: Any) -> Any:
        raise ValueError("of ours")

    def function(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    function.method = fault  # type: ignore[attr-defined]
    monkeypatch.setattr(tracing, "active", active := tracing_of(tmp_path))
    monkeypatch.setattr(active.job, "load_job_trace", lambda *_, **__: None)
    monkeypatch.setattr(execution, "_executor", fault)
    execute = executor_of(function, descriptor)
    assert execute(1, a=2, **{KEY: TASK_ID}) == ((1,), {"a": 2})
    assert execute.method is fault
    (report,) = reports
    assert report.startswith("tracing a function failed: ValueError: of ours;")


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "active", active := tracing_of(tmp_path))
    monkeypatch.setattr(active.job, "load_job_trace", lambda *_, **__: None)
    execute = executor_of(lambda: None, TASK)
    assert executor_of(execute, TASK) is execute
