"""The spans of models that a replica loads, and of its batches."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry.context import Context
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.serve import batching
from ray_tracing_hooks._ray.templates import SERVE, Selection
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.recorder import Template


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """The spans of a replica, as they end."""
    active = tracing_of(tmp_path, selection=Selection((SERVE,)))
    found: list[Span] = []
    active.recorder.observer = lambda encoded: found.append(decode_span(encoded))
    monkeypatch.setattr(tracing, "active", active)
    for module in (batching, batching):
        monkeypatch.setattr(module, "of_this_replica", lambda: ("Model", "app", "abc"))
    return found


def test_a_function_that_cannot_begin_to_load_a_model_has_failed(spans: list[Span]) -> None:
    """Such as one with another parameter. Its error has no line of this package."""

    async def load(model_id: str, folder: str) -> str:
        return f"model {model_id} in {folder}"

    with pytest.raises(TypeError, match="folder") as raised:
        asyncio.run(batching._loading(SimpleNamespace(), load)("a"))
    if sys.version_info >= (3, 11):
        assert len(traceback.extract_tb(raised.value.__traceback__)) == 1
    (span,) = spans
    assert (span.attributes[names.ERROR_TYPE], span.status_code) == ("TypeError", 2)


@pytest.mark.parametrize("what", ["model", "batch"])
def test_what_begins_after_the_end_of_its_request_is_a_trace_that_is_linked_to_it(what: str, spans: list[Span]) -> None:
    """Such as by a loop that the request has started."""

    async def load(model_id: str) -> str:
        return model_id

    async def begin() -> None:
        if what == "model":
            await batching._loading(SimpleNamespace(), load)("a")
            return
        future = asyncio.get_running_loop().create_future()
        batching._waiting[future] = get_current(), time.time_ns()
        body = load("a")
        assert tracing.active is not None
        begun = batching._begin(tracing.active, body, [future])
        body.close()
        assert begun is not None
        assert begun[1] is not None
        begun[1].end()

    assert tracing.active is not None
    recorder = tracing.active.recorder
    request = recorder.start(Template("request", 1, {}), *recorder.decide(None), None)
    request.end(time.time_ns() - 1_500_000_000)
    token = attach(Context({SPAN_KEY: request}))
    try:
        asyncio.run(begin())
    finally:
        detach(token)
    _, span = spans
    assert (span.trace_id == request.trace_id, span.parent_span_id) == (False, b"")
    assert [(link.trace_id, link.span_id) for link in span.links] == [(request.trace_id, request.span_id)]
    assert span.attributes[names.RAY_AFTER_END] >= 1.5
