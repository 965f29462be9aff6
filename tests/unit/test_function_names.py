"""The names of functions that are arguments of calls."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

from ray_tracing_hooks._ray.labels import name_of

OPTIONS: dict[str, Any] = {}


def plain(worker: Any) -> None:
    pass


class Tool:
    def method(self) -> None:
        pass

    def __call__(self) -> None:
        pass


NAMED = [
    (plain, "plain"),
    (functools.partial(plain, 1), "plain"),
    (functools.partial(functools.partial(plain), 1), "plain"),
    (Tool().method, "method"),
    (len, "len"),
    (lambda worker: worker.sample(), "sample"),
    (lambda worker: worker.sample(**OPTIONS), "sample"),
    (lambda worker: (worker.sample(**OPTIONS), worker.get_metrics()), "sample"),
    (lambda worker: print(worker.sample(1)), "sample"),
    (lambda worker, ref=0: worker.set_state(OPTIONS.get(ref)), "set_state"),
    (lambda worker: worker.roles.keys(), "roles"),
    (lambda worker: worker.size, "size"),
    (lambda worker: len(str(worker)), "<lambda>"),
    (lambda: 1, "<lambda>"),
]


@pytest.mark.parametrize(("function", "name"), NAMED, ids=map(str, range(len(NAMED))))
def test_a_function_has_a_name(function: Any, name: str) -> None:
    """A lambda has that of the first method or attribute of its first argument that it uses."""
    assert name_of(function) == name


@pytest.mark.parametrize("value", [None, "text", 1, Tool(), Tool, pickle, b"pickled"])
def test_anything_else_has_none(value: Any) -> None:
    """Nothing of the program runs to find out: an object that can be called may do anything when it is asked."""
    assert name_of(value) is None


class Name(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __format__(self, spec: str) -> str:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_a_name_of_another_class_is_a_text() -> None:
    def named() -> None:
        pass

    named.__name__ = Name("named")
    assert type(name_of(named)) is str
    assert name_of(named) == "named"


def test_partial_functions_within_each_other_have_an_end() -> None:
    made: Any = plain
    for _ in range(20):
        made = functools.partial(made)
        made.__setstate__((made.func, (), {}, {"not": "joined"}))
    assert name_of(made) is None
