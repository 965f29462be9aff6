"""What the spans of requests to Serve begin with."""

from __future__ import annotations

import asyncio
import copy
import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.serve import direct, router
from ray_tracing_hooks._ray.serve.server import Descriptions
from ray_tracing_hooks._ray.templates import SERVE, Selection, Whereabouts
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.argument_text import Redactor

REPLICA = SimpleNamespace(
    _deployment_id=SimpleNamespace(name="Model", app_name="app"), _replica_id=SimpleNamespace(unique_id="abc")
)

SCOPE = {"method": "GET", "scheme": "http", "http_version": "1.1", "path": "/", "client": None}
CALL = ("/test.Words/say", "")

of_proxy = Descriptions({})


def connection(first: Tracing, number: int) -> Tracing:
    """Another one than the first, in a worker of its own."""
    tracing = copy.copy(first)
    tracing.process = tracing.process._replace(worker_id=f"{number:056x}")
    tracing.whereabouts = Whereabouts(tracing.process)
    tracing.selection = Selection({SERVE})
    return tracing


@pytest.mark.parametrize(
    "describe",
    [
        lambda active: of_proxy.of_http(active, SCOPE),
        lambda active: of_proxy.of_grpc(active, CALL),
        lambda active: direct._methods.of(active, REPLICA, "say").of_grpc(active, CALL),
    ],
    ids=["http", "grpc", "direct"],
)
def test_requests_of_a_connection_say_nothing_of_an_earlier_one(
    describe: Callable[[Tracing], Any], tmp_path: Path
) -> None:
    """Each takes the place of the one before in memory, as where a program shuts Ray down and starts it again."""
    first, addresses = tracing_of(tmp_path), set()
    for number in range(10_000):
        active = connection(first, number)
        template, _ = describe(active)
        assert template.attributes[names.RAY_WORKER_ID] == f"{number:056x}"
        assert describe(active)[0] is template
        if id(active) in addresses:
            return
        addresses.add(id(active))
        del active, template
    pytest.fail("none took the place of another")


def test_the_query_is_told_with_the_arguments_and_without_secrets(tmp_path: Path) -> None:
    active = connection(tracing_of(tmp_path), 1)
    scope = {**SCOPE, "path": "/find", "query_string": b"item=tea&token=hunter2"}
    for redactor, told in ((None, []), (Redactor(), ["item=tea&token=***"])):
        active.redactor = redactor
        described = of_proxy.of_http(active, scope)
        assert described is not None
        span = trace_pb2.Span.FromString(described[1])
        assert [each.value.string_value for each in span.attributes if each.key == "url.query"] == told


def test_which_methods_are_traced_is_as_the_connection_has_it(tmp_path: Path) -> None:
    first = tracing_of(tmp_path)
    traced, left_out = connection(first, 1), connection(first, 2)
    left_out.selection = Selection(())
    for active, is_traced in ((traced, True), (left_out, False), (traced, True)):
        described = direct._methods.of(active, REPLICA, "say").of_grpc(active, CALL)
        assert (described is not None) is is_traced


@pytest.mark.parametrize("steps", [0, 1], ids=["before its first step", "later"])
def test_a_call_of_a_deployment_that_is_cancelled_is_recorded_once(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by ``response.cancel()`` just after ``handle.remote()``."""
    ended: list[BaseException | None] = []

    class Assigned(router._Assigned):
        def __init__(self) -> None:
            self.is_waiting = False

        def ended(self, error: BaseException | None) -> None:
            ended.append(error)

    monkeypatch.setattr(router, "_begin", lambda *_: Assigned())
    monkeypatch.setattr(tracing, "active", object())

    async def route(*_: Any) -> None:
        await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.ensure_future(router._assign_request(route)(None, None))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    gc.collect()
    assert [type(error) for error in ended] == [asyncio.CancelledError]
