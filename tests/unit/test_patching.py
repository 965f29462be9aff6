"""Replacing an attribute of Ray."""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ray_tracing_hooks._safety.patching import Patches


def test_a_replaced_function_is_pickled_as_the_one_that_it_replaces() -> None:
    """By its name: what unpickles it may not know of the replacement."""
    original, patches = json.dumps, Patches()
    plain = pickle.dumps(original)
    patches.wrap(json, "dumps", lambda _: lambda *_args: "replaced")
    try:
        assert json.dumps(1) == "replaced"
        assert pickle.dumps(json.dumps) == plain
    finally:
        patches.undo()
    assert pickle.loads(plain) is original


def decorated(function: Callable[..., Any], begin: Callable[[], None] = lambda: None) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        begin()
        return function(*args)

    return wrapper


def doubled(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: 2 * original(*args)


def test_a_decorated_function_stays_the_one_that_it_is() -> None:
    """What has been taken by name before does what the replacement does, once; afterwards it is as it was."""
    owner, patches = SimpleNamespace(double=decorated(lambda: 1)), Patches()
    held, wrapped = owner.double, owner.double.__wrapped__
    assert patches.wrap_within(owner, "double", doubled)
    assert patches.wrap_within(owner, "double", doubled)
    assert (held(), owner.double is held, held.__wrapped__ is wrapped) == (2, True, True)
    patches.undo()
    assert held() == 1
    assert patches.wrap_within(owner, "double", doubled)
    assert held() == 2


def test_what_a_decorator_does_first_may_replace_what_it_calls() -> None:
    """As the call that connects to Ray: it is traced itself."""
    patches = Patches()

    def connect() -> None:
        assert patches.wrap_within(owner, "call", doubled)

    owner = SimpleNamespace(call=decorated(lambda: 1, connect))
    assert owner.call() == 2


def test_nothing_is_asked_of_what_a_decorator_keeps_besides() -> None:
    """Ray's keeps a stub of its client, which raises until it is connected."""

    class Stub:
        def __getattr__(self, name: str) -> None:
            raise RuntimeError(name)

    def decorator(function: Callable[[], int]) -> Callable[[], Any]:
        a_stub = Stub()  # cells are in the order of their names

        @functools.wraps(function)
        def wrapper() -> tuple[int, Stub]:
            return function(), a_stub

        return wrapper

    owner, patches = SimpleNamespace(call=decorator(lambda: 1)), Patches()
    assert patches.wrap_within(owner, "call", doubled)
    assert patches.wrap_within(owner, "call", doubled)
    assert owner.call()[0] == 2


def test_a_function_without_decorator_is_replaced() -> None:
    owner, patches = SimpleNamespace(call=lambda: 1), Patches()
    assert patches.wrap_within(owner, "call", doubled)
    assert owner.call() == 2
    assert not patches.wrap_within(owner, "missing", doubled)
    patches.undo()
    assert owner.call() == 1


def test_owners_that_equal_each_other_are_replaced_one_by_one() -> None:
    """And one that cannot be compared or hashed is replaced like any other."""

    class Equal:
        value = 0
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    owners, patches = [Equal(), Equal()], Patches()
    for number in (1, 2):
        for owner in owners:
            patches.set(owner, "value", number, back=0)
    assert [owner.value for owner in owners] == [1, 1]
    patches.undo()
    assert [owner.value for owner in owners] == [0, 0]
    patches.set(owners[0], "value", 3, back=0)
    assert owners[0].value == 3


def test_what_another_library_has_replaced_too_stays_until_that_is_gone() -> None:
    """Its replacement may call ours. An inherited method is inherited again after that."""

    class Base:
        def method(self) -> list[str]:
            return ["original"]

    class Owner(Base):
        pass

    def ours(original: Any) -> Any:
        return lambda self: ["ours", *original(self)]

    patches, calls = Patches(shared=True), []
    patches.wrap(Owner, "method", ours)
    patches.on_undo(lambda: calls.append("undone"))
    mine = vars(Owner)["method"]
    Owner.method = lambda self: ["theirs", *mine(self)]  # type: ignore[method-assign]
    patches.undo()
    assert (Owner().method(), calls) == (["theirs", "ours", "original"], ["undone"])
    Owner.method = mine  # type: ignore[method-assign]
    patches.undo()
    assert (Owner().method(), "method" in vars(Owner)) == (["original"], False)
