"""The check of a call's arguments says yes where Ray's own would, and leaves everything else to it."""

# ruff: noqa: ARG005  it is the signatures of the functions that count

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import arguments, signatures
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.signatures import Shape

NAMES = "abcdefg"
KINDS = (
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.VAR_POSITIONAL,
    Parameter.KEYWORD_ONLY,
    Parameter.VAR_KEYWORD,
)


@st.composite
def parameter_lists(draw: st.DrawFn) -> list[Parameter]:
    """The parameters of any function: of every kind, in an order that Python allows."""
    kinds = sorted(draw(st.lists(st.sampled_from(KINDS), max_size=len(NAMES))))
    made: list[Parameter] = []
    has_default = False
    for name, kind in zip(NAMES, kinds, strict=False):
        if kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
            if any(each.kind == kind for each in made):
                continue
            made.append(Parameter(name, kind))
        else:
            # Behind one with a default all have one, unless they are named.
            has_default = draw(st.booleans()) or (has_default and kind != Parameter.KEYWORD_ONLY)
            made.append(Parameter(name, kind, default=0 if has_default else Parameter.empty))
    return made


@given(parameter_lists(), st.integers(0, 8), st.sets(st.sampled_from(NAMES + "z")))
def test_what_is_said_to_fit_can_be_bound(parameters: list[Parameter], count: int, names: set[str]) -> None:
    args, kwargs = (1,) * count, dict.fromkeys(names, 1)
    if Shape(parameters).fits(args, kwargs):
        inspect.Signature(parameters).bind(*args, **kwargs)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (lambda: None, (), {}),
        (lambda a: a, (1,), {}),
        (lambda a: a, (), {"a": 1}),
        (lambda a, b=2, *args, c=3, **more: None, (1,), {"c": 1}),
        (lambda a, b, /, c=0: None, (1, 2), {}),
        (lambda a, *args, **more: None, (1, 2, 3), {"d": 1}),
    ],
)
def test_usual_calls_need_no_signature(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert Shape(list(inspect.signature(function).parameters.values())).fits(args, kwargs)


def test_the_check_is_wrapped_once_and_unwrapped_and_errors_are_rays() -> None:
    ray = arguments.signature_module()
    original = ray.validate_args
    parameters = ray.extract_signature(lambda a, b=1: None)
    patches = Patches()
    try:
        assert signatures.patch(patches)
        wrapped = ray.validate_args
        assert wrapped is not original
        signatures.patch(patches)
        assert ray.validate_args is wrapped
        ray.flatten_args(parameters, (1,), {"b": 2})
        for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"c": 1})):
            with pytest.raises(TypeError) as ours:
                ray.validate_args(parameters, args, kwargs)
            with pytest.raises(TypeError) as theirs:
                original(parameters, args, kwargs)
            assert str(ours.value) == str(theirs.value)
    finally:
        patches.undo()
    assert ray.validate_args is original


def test_parameters_of_another_kind_are_left_to_ray(reports: list[str]) -> None:
    heard: list[object] = []
    check = signatures._validate_args(lambda *arguments: heard.append(arguments))
    check(["no parameter"], (1,), {})
    assert heard == [(["no parameter"], (1,), {})]
    assert len(reports) == 1


@pytest.mark.parametrize(("args", "is_replaced"), [(None, True), ((), True), ([], True), ((0,), False)])
def test_calls_without_arguments_get_a_place_for_what_they_carry(
    args: Any, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "all_traced", True)
    given = arguments.place_in(Cluster())(args)
    assert (given is not args) is is_replaced
    assert list(given) == list(args or ())


class OneZero:
    """As an array of one zero is: false, and not empty."""

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[int]:
        return iter((0,))


def test_arguments_that_are_false_and_not_empty_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """``_remote(args=...)`` takes whatever can be iterated."""
    monkeypatch.setattr(Cluster, "all_traced", True)
    assert list(arguments.place_in(Cluster())(OneZero())) == [0]
