"""Replacing an attribute of Ray."""

from __future__ import annotations

import json
import pickle

from ray_tracing_hooks._patching import Patches


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
