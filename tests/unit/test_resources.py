"""What a task holds is known before it begins, and what Ray does with it comes to the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import utils, worker
from ray._private.worker import WORKER_MODE
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import templates
from ray_tracing_hooks._ray.process import RayProcess
from ray_tracing_hooks._safety.patching import Patches

OVERRIDE = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
VISIBLE = "CUDA_VISIBLE_DEVICES"


class CoreWorker:
    """A worker that holds what a test says."""

    def __init__(self) -> None:
        self.held: dict[str, list[tuple[int, float]]] = {}
        self.told = templates.HeldResources()

    def resource_ids(self) -> dict[str, list[tuple[int, float]]]:
        return dict(self.held)

    def get_placement_group_id(self) -> Any:
        return SimpleNamespace(is_nil=lambda: True)

    def current_actor_id(self) -> Any:
        return SimpleNamespace(is_nil=lambda: True)


@pytest.fixture(params=[False, True], ids=["Ray's own", "ours"])
def core_worker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CoreWorker]:
    """Each test passes with what Ray has, and with what stands in its place."""
    found = CoreWorker()
    monkeypatch.setattr(worker.global_worker, "core_worker", found, raising=False)
    monkeypatch.setattr(worker.global_worker, "mode", WORKER_MODE)
    monkeypatch.setattr(worker.global_worker, "original_visible_accelerator_ids", {}, raising=False)
    monkeypatch.setattr(worker.global_worker, "_is_connected", True)  # else Ray starts a cluster
    for variable in (VISIBLE, OVERRIDE):
        monkeypatch.delenv(variable, raising=False)
    original = utils.set_visible_accelerator_ids
    patches = Patches()
    process = RayProcess(**{**tracing_of(tmp_path).process._asdict(), "worker": worker.global_worker})
    if request.param:
        assert templates.patch_resources(patches, process, found.told)
        assert templates.patch_resources(patches, process, found.told)
        assert len(patches.targets()) == 1, "not a second time"
    yield found
    patches.undo()
    assert utils.set_visible_accelerator_ids is original


def test_a_task_sees_its_accelerators_and_another_none(core_worker: CoreWorker) -> None:
    core_worker.held = {"CPU": [(0, 1.0)], "GPU": [(2, 1.0)]}
    assert set_and_seen() == ({VISIBLE: None}, "2")
    core_worker.held = {"CPU_group_0123": [(0, 1.0)], "GPU_group_0123": [(3, 0.5)]}
    assert set_and_seen() == ({VISIBLE: None}, "3")
    core_worker.held = {"CPU": [(0, 1.0)]}
    assert set_and_seen() == ({}, None)
    core_worker.held = {}
    assert set_and_seen() == ({}, None)


def test_a_task_without_accelerators_sees_none_where_that_is_asked_for(
    core_worker: CoreWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OVERRIDE, "1")
    core_worker.held = {"CPU": [(0, 1.0)]}
    before, seen = set_and_seen()
    assert (before[VISIBLE], seen) == (None, "")


def set_and_seen() -> tuple[dict[str, Any], str | None]:
    """What Ray has to restore after the task, and what the task sees."""
    before = utils.set_visible_accelerator_ids()
    seen = os.environ.get(VISIBLE)
    utils.reset_visible_accelerator_env_vars(before)
    return dict(before), seen


@pytest.mark.parametrize("core_worker", [True], indirect=True)
def test_the_resources_of_a_task_are_recorded_before_it_begins(core_worker: CoreWorker) -> None:
    told = encode.attributes({names.RAY_ASSIGNED_RESOURCES: '{"CPU": 0.5}'})
    core_worker.held = {"CPU": [(0, 0.5)]}
    for _ in range(2):
        utils.set_visible_accelerator_ids()
        assert core_worker.told.encoded == told
    core_worker.held = {"GPU": [(1, 1.0)]}
    utils.reset_visible_accelerator_env_vars(utils.set_visible_accelerator_ids())
    assert core_worker.told.encoded == encode.attributes(
        {names.RAY_ASSIGNED_RESOURCES: '{"GPU": 1.0}', names.RAY_ACCELERATOR_IDS: ["GPU:1"]}
    )
    core_worker.held = {}
    utils.set_visible_accelerator_ids()
    assert core_worker.told.encoded == b""


@pytest.mark.parametrize("core_worker", [True], indirect=True)
def test_what_ray_raises_is_raised_and_what_we_raise_is_not(
    core_worker: CoreWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(templates, "failed", lambda doing, _error: said.append(doing))
    monkeypatch.setattr(RayProcess, "of_task", lambda _self: 1 / 0)
    core_worker.held = {"GPU": [(2, 1.0)]}
    assert set_and_seen() == ({VISIBLE: None}, "2")
    assert set_and_seen() == ({VISIBLE: None}, "2")
    assert said == ["reading the resources of a task"], "once for what it holds, not at each task"
    monkeypatch.setattr(worker.global_worker, "core_worker", None)
    with pytest.raises(AttributeError, match="resource_ids"):
        utils.set_visible_accelerator_ids()
