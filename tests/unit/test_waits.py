"""Waits for objects (``ray.get`` and its like) that fail."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from stand_ins import tracing_of

from ray_tracing_hooks._ray import objects, tracing
from ray_tracing_hooks._record.span import Parent


@pytest.fixture(params=["not connected", "no parent", "not sampled", "sampled"])
def connection(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active = tracing_of(tmp_path)
    active.waits = True
    if request.param.endswith("sampled"):
        flags = 2 if request.param == "not sampled" else 3
        active.recorder.fallback = Parent(bytes(range(16)), bytes(8), flags, None, remote=False)
    monkeypatch.setattr(tracing, "active", None if request.param == "not connected" else active)


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("function", ["get", "wait", "put"])
def test_an_error_has_no_line_of_ours(function: str, reports: list[str]) -> None:
    """Whether the wait makes a span or not; nor does a call without arguments blame us."""

    def original() -> Any:
        raise TypeError("one argument is missing")

    call = objects._traced(f"ray.{function}", *objects._FUNCTIONS[function])(original)
    with pytest.raises(TypeError, match="one argument is missing") as caught:
        call()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)[1:]]
    # Before Python 3.11, raising an error again puts the frame back.
    assert frames == (["original"] if sys.version_info >= (3, 11) else ["call", "original"])
    assert reports == []
