"""Which calls make spans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from stand_ins import PARTS, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray.process import DRIVER
from ray_tracing_hooks._ray.templates import CONSUMER, PRODUCER, Selection
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


NAMES = {
    "Plain": "Plain.ping",
    "Outer.Noisy": "Outer.Noisy.ping",
    "main.<locals>.Noisy": "Noisy.ping",
    "main.<locals>.Outer.Noisy": "Outer.Noisy.ping",
    "main.<locals>.Outer.make.<locals>.Noisy": "Noisy.ping",
    "MapWorker(Map(main.<locals>.clean))": "MapWorker(Map(main.<locals>.clean)).ping",
}
"""Ray's names of classes, and what calls of their methods are named."""


@pytest.mark.parametrize(("class_name", "name"), NAMES.items())
def test_both_spans_of_a_call_have_one_name_wherever_its_class_is_defined(
    class_name: str, name: str, tmp_path: Path
) -> None:
    """Ray names classes by where they are defined: within other classes, which readers need, or within functions."""
    templates = tracing_of(tmp_path, DRIVER).templates
    submission, execution = (templates.of(kind, class_name, "ping", "__main__") for kind in (PRODUCER, CONSUMER))
    assert submission is not None
    assert execution is not None
    assert (submission.name, execution.name) == (f"{name} ray.remote", f"{name} ray.remote_worker")
    keys = names.RAY_FUNCTION, names.RAY_ACTOR_CLASS
    for template in (submission, execution):
        assert [template.attributes[key] for key in keys] == [name, name.removesuffix(".ping")]


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER])
@pytest.mark.parametrize("pattern", ["Noisy.*", "Noisy.ping", "*.Noisy.ping", "Outer.Noisy.*", "main.<locals>.*"])
def test_a_pattern_matches_a_class_wherever_it_is_defined(pattern: str, kind: int, tmp_path: Path) -> None:
    def is_selected(*, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> bool:
        tracing = tracing_of(tmp_path, DRIVER, selection=Selection(PARTS, include, exclude))
        return tracing.templates.of(kind, "main.<locals>.Outer.Noisy", "ping", "__main__") is not None

    assert not is_selected(exclude=[pattern])
    assert is_selected(include=[pattern])
    assert is_selected(exclude=["Other.*"])
    assert not is_selected(include=["Other.*"])
