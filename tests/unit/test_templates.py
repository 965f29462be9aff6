"""Which calls make spans."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_ins import PARTS, tracing_of

from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.templates import PRODUCER, Selection
from ray_tracing_hooks._ray.tracing import Tracing

TASKS = {
    "__main__.load": False,
    "rayon.load": False,
    "ray.data.read": False,
    "ray.data._internal.execution.operators.map_operator._map_task": True,
    "ray._private.workers.work": True,
}
METHODS = {
    ("__main__", "Loader", "load"): False,
    ("__main__", "Loader", "__ray_ready__"): True,
    ("__main__", "Loader", "__ray_terminate__"): True,
    ("__main__", "Loader", "__ray_call__"): False,
    ("ray.util.queue", "_QueueActor", "put"): False,
    ("ray.serve._private.controller", "ServeController", "run"): True,
    ("ray.data._internal.stats", "_StatsActor", "__init__"): True,
}


def selected(tracing: Tracing) -> dict[str, bool]:
    made = {name: tracing.templates.of(PRODUCER, "", name) for name in TASKS}
    made |= {f"{owner}.{name}": tracing.templates.of(PRODUCER, owner, name, module) for module, owner, name in METHODS}
    return {name: template is not None for name, template in made.items()}


IS_RAYS = {**TASKS, **{f"{owner}.{name}": is_rays for (_, owner, name), is_rays in METHODS.items()}}


@pytest.mark.parametrize("internal", [False, True], ids=["the user's", "all"])
def test_what_is_rays_own_makes_spans_on_request(internal: bool, tmp_path: Path) -> None:
    tracing = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS, internal=internal))
    assert selected(tracing) == {name: internal or not is_rays for name, is_rays in IS_RAYS.items()}


def test_what_is_included_by_name_makes_spans_whosever_it_is(tmp_path: Path) -> None:
    tracing = tracing_of(
        tmp_path, DRIVER, selection=Selection(PARTS, include=["ray.data._internal.*", "ServeController.*"])
    )
    chosen = {name for name, is_selected in selected(tracing).items() if is_selected}
    assert chosen == {
        "ray.data._internal.execution.operators.map_operator._map_task",
        "ServeController.run",
    }


@pytest.mark.parametrize("pattern", ["Noisy.*", "Noisy.ping", "*.Noisy.ping"])
def test_a_pattern_matches_a_class_wherever_it_is_defined(pattern: str) -> None:
    """The submission of a method is named after Ray's name of the class, and its execution after the plain one."""
    submitted, plain = "main.<locals>.Noisy.ping", "Noisy.ping"
    assert Selection(PARTS, exclude=[pattern]).selects(submitted, "actor", plain=plain) is False
    assert Selection(PARTS, include=[pattern]).selects(submitted, "actor", plain=plain) is True
    assert Selection(PARTS, exclude=["Other.*"]).selects(submitted, "actor", plain=plain) is True
