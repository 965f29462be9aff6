"""The spans of models that a replica loads."""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.serve import multiplexing
from ray_tracing_hooks._ray.templates import SERVE, Selection


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """The spans of a replica, as they end."""
    active = tracing_of(tmp_path, selection=Selection((SERVE,)))
    found: list[Span] = []
    active.recorder.observer = lambda encoded: found.append(decode_span(encoded))
    monkeypatch.setattr(tracing, "active", active)
    monkeypatch.setattr(multiplexing, "of_this_replica", lambda: ("Model", "app", "abc"))
    return found


def test_loading_a_model_is_a_span(spans: list[Span]) -> None:
    async def load(model_id: str) -> str:
        return f"model {model_id}"

    assert asyncio.run(multiplexing._loading(SimpleNamespace(), load)("a")) == "model a"
    (span,) = spans
    assert span.name == f"Model.load {names.SERVE_MULTIPLEXED}"
    assert (span.attributes[names.RAY_SERVE_MULTIPLEXED_MODEL_ID], span.status_code) == ("a", 0)


def test_a_function_that_cannot_begin_to_load_a_model_has_failed(spans: list[Span]) -> None:
    """Such as one with another parameter. Its error has no line of this package."""

    async def load(model_id: str, folder: str) -> str:
        return f"model {model_id} in {folder}"

    with pytest.raises(TypeError, match="folder") as raised:
        asyncio.run(multiplexing._loading(SimpleNamespace(), load)("a"))
    if sys.version_info >= (3, 11):
        assert len(traceback.extract_tb(raised.value.__traceback__)) == 1
    (span,) = spans
    assert (span.attributes[names.ERROR_TYPE], span.status_code) == ("TypeError", 2)
