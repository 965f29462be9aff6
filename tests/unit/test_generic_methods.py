"""Calls of generic methods are named by what they run."""

from __future__ import annotations

from typing import Any

import pytest

from ray_tracing_hooks._ray.labels import labeler_for


def forward() -> None:
    pass


class Callable:
    """Any look at it may fail."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def shown(method: str, *args: Any, **kwargs: Any) -> str | None:
    naming = labeler_for("program", "Outer.Worker", method)
    assert naming is not None
    found = naming.by(args, kwargs)
    return found.name if found is not None else None


@pytest.mark.parametrize(
    ("method", "first", "name"),
    [
        ("execute", forward, "Outer.Worker.forward"),
        ("execute_batch", "forward", "Outer.Worker.forward"),
        ("collective_rpc", forward, "Outer.Worker.forward"),
        ("_fuw_execute", "actor_fwmn_generate", "Outer.Worker.actor_generate"),
        ("execute", "forward", None),
        ("execute_batch", "select * from t", None),
        ("execute_batch", "a" * 1_000_000, None),
        ("_fuw_execute", "a" * 1_000_000, None),
        ("apply", Callable(), None),
        ("execute_batch", Callable(), None),
        ("_fuw_execute", Callable(), None),
    ],
    ids=range(11),
)
def test_a_call_is_named_by_its_first_argument(method: str, first: Any, name: str | None) -> None:
    """If that is a function, or a text that may be the name of a method; nothing of the program runs to find out."""
    assert shown(method, first) == name
    assert shown(method, first=first) == name
    assert shown(method) is None
