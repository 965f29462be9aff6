"""What the spans of requests to Serve begin with."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.serve import direct, proxy, replica, router
from ray_tracing_hooks._ray.serve.server import Descriptions
from ray_tracing_hooks._ray.templates import SERVE, ProcessAttributes, Selection
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.argument_text import Redactor
from ray_tracing_hooks._record.current import attach, detach

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
    tracing.process_attributes = ProcessAttributes(tracing.process)
    tracing.selection = Selection({SERVE})
    return tracing


@pytest.mark.parametrize(
    "describe",
    [
        lambda active: of_proxy.of_http(active, SCOPE),
        lambda active: of_proxy.of_grpc(active, CALL),
        lambda active: direct.descriptions_of(active, REPLICA, "say").of_grpc(active, CALL),
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
        described = direct.descriptions_of(active, REPLICA, "say").of_grpc(active, CALL)
        assert (described is not None) is is_traced


@pytest.mark.parametrize("steps", [0, 1], ids=["before its first step", "later"])
def test_a_call_of_a_deployment_that_is_cancelled_is_recorded_once(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by ``response.cancel()`` just after ``handle.remote()``."""
    ended: list[BaseException | None] = []

    class Assigned(router._Assigned):
        def __init__(self) -> None:
            self.is_waiting = False

        def ended(self, error: BaseException | None, result: Any = None) -> None:
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


class Wrapper:
    """Serve's wrapper of a deployment's code, which runs in an event loop of its own, or in that of the replica."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop

    def _raise_if_not_initialized(self, method_name: str) -> None:
        pass

    def call_user_method(self, answer: int) -> Any:
        async def call() -> int:
            self._raise_if_not_initialized("call_user_method")
            return answer

        return (
            call() if self._loop is None else asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), self._loop))
        )


@pytest.mark.parametrize("is_apart", [True, False], ids=["of its own", "of the replica"])
def test_how_long_a_request_waits_for_the_event_loop_that_other_code_keeps(
    is_apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = tracing_of(tmp_path, selection=Selection({SERVE}))
    monkeypatch.setattr(tracing, "active", active)
    traced = type("Traced", (Wrapper,), dict(vars(Wrapper)))
    traced._raise_if_not_initialized = replica._begun(Wrapper._raise_if_not_initialized)  # type: ignore[attr-defined]
    traced.call_user_method = replica._hand_over(Wrapper.call_user_method)  # type: ignore[attr-defined]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    keeps, goes = threading.Event(), threading.Event()

    def keep() -> None:
        keeps.set()
        goes.wait()

    async def request() -> None:
        begun = replica._begin(active, REPLICA, SimpleNamespace(call_method="say", request_id="1"))
        assert begun is not None
        context, span = begun
        token = attach(context)
        try:
            loop.call_soon_threadsafe(keep)
            keeps.wait()
            answer = traced(loop if is_apart else None).call_user_method(7)
            asyncio.get_running_loop().call_later(0.05, goes.set)
            assert await answer == 7
        finally:
            detach(token)
        assert span is not None
        span.end()

    try:
        asyncio.run(request())
    finally:
        goes.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    told = [each for span in spooled_spans(tmp_path) for each in span.attributes]
    waited = [each.value.double_value for each in told if each.key == names.RAY_SERVE_LOOP_WAIT]
    assert len(waited) == is_apart
    assert all(each >= 0.05 for each in waited)


class Streamer:
    """The same of a deployment that makes items, or the messages of a response."""

    async def _call_user_generator(self, count: int, *, enqueue: Any = None) -> Any:
        for item in range(count) if enqueue is not None else ():
            enqueue(item)
        return self.items(count) if enqueue is None else None

    async def items(self, count: int) -> AsyncGenerator[int, None]:
        self.closed = False
        try:
            for item in range(count):
                yield item
        finally:
            self.closed = True

    async def _call_http_entrypoint(self, messages: list[Any], send: Any) -> None:
        for message in messages:
            await send(message)


def streaming_request(tmp_path: Path, call: Callable[[Streamer], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
    """What the span of a request in a replica has about its items."""
    active = tracing_of(tmp_path, selection=Selection({SERVE}))
    traced = type("Traced", (Streamer,), {name: replica._hand_over(vars(Streamer)[name]) for name in STREAMS})

    async def request() -> None:
        begun = replica._begin(active, REPLICA, SimpleNamespace(call_method="say", request_id="1"))
        assert begun is not None
        context, span = begun
        assert span is not None
        token = attach(context)
        try:
            await call(traced())
        finally:
            detach(token)
            span.end()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tracing, "active", active)
        asyncio.run(request())
    (span,) = spooled_spans(tmp_path)
    return {each.key: each.value.double_value or each.value.int_value for each in span.attributes if each.key in TOLD}


STREAMS = "_call_user_generator", "_call_http_entrypoint"
TOLD = names.RAY_SERVE_FIRST_ITEM, names.RAY_SERVE_ITEMS, names.RAY_SERVE_LONGEST_PAUSE


@pytest.mark.parametrize("is_apart", [True, False], ids=["of its own", "of the replica"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_items_of_a_stream_are_counted_and_timed(is_apart: bool, count: int, tmp_path: Path) -> None:
    async def call(streamer: Streamer) -> None:
        seen: list[int] = []
        if is_apart:
            await streamer._call_user_generator(count, enqueue=seen.append)
        else:
            seen += [item async for item in await streamer._call_user_generator(count)]
        assert seen == list(range(count))

    told = streaming_request(tmp_path, call)
    assert told.pop(names.RAY_SERVE_ITEMS) == count
    assert list(told) == [names.RAY_SERVE_FIRST_ITEM, names.RAY_SERVE_LONGEST_PAUSE][: min(count, 2)]
    assert all(0 < each < 60 for each in told.values())


@pytest.mark.parametrize(
    ("bodies", "count"),
    [
        ([], None),
        ([{"body": b"whole"}], None),
        ([{"body": b"a", "more_body": True}, {"body": b""}], 1),
        ([{"body": b"a", "more_body": True}, {"body": b"b", "more_body": True}, {"body": b"c"}], 3),
        (["no message"], None),
    ],
    ids=["none", "whole", "one", "three", "odd"],
)
def test_the_parts_of_a_response_are_its_items(bodies: list[Any], count: int | None, tmp_path: Path) -> None:
    messages = [each if isinstance(each, str) else {"type": "http.response.body", **each} for each in bodies]
    messages.insert(0, {"type": "http.response.start", "status": 200})
    seen: list[Any] = []

    async def send(message: Any) -> None:
        seen.append(message)

    told = streaming_request(tmp_path, lambda streamer: streamer._call_http_entrypoint(messages, send))
    assert seen == messages
    assert told.get(names.RAY_SERVE_ITEMS) == count


def at_proxy(active: Tracing, called: str, **headers: str) -> trace.SpanContext:
    """The context of a request at the proxy, of which no span is recorded, and what becomes of it in a replica."""
    method, _, path = called.rpartition(" ")
    request = SimpleNamespace(
        request_type="http" if method else "grpc",
        is_health_request=False,
        is_route_request=False,
        scope={
            **SCOPE,
            "method": method,
            "path": path,
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        },
        service_method=path,
        context=SimpleNamespace(invocation_metadata=lambda: list(headers.items()), peer=lambda: "ipv4:10.0.0.1:1"),
    )
    begun = proxy._begin(active, None, request)
    assert begun is not None
    context, span = begun
    if span is not None:
        span.end()
    metadata: Any = SimpleNamespace(call_method="__call__", request_id="1", multiplexed_model_id="")
    token = attach(context)
    try:
        call = router._begin(active, SimpleNamespace(deployment_id=REPLICA._deployment_id), metadata)
    finally:
        detach(token)
    if call is not None:
        call.is_waiting = False
        call.ended(None)
    in_replica = replica._begin(active, REPLICA, metadata)
    assert in_replica is not None
    inside, executed = in_replica
    if executed is not None:
        executed.end()
    assert baggage.get_all(inside) == baggage.get_all(context)
    return trace.get_current_span(inside).get_span_context()


@pytest.mark.parametrize(
    ("exclude", "left_out", "traced"),
    [
        (["/healthz"], ["GET /healthz", "HEAD /healthz"], ["GET /healthz/all", "GET /shop"]),
        (["GET /healthz"], ["GET /healthz"], ["POST /healthz"]),
        (["*/healthz"], ["GET /healthz", "GET /shop/healthz"], ["GET /healthz/all"]),
        (["/test.Words/say"], ["/test.Words/say"], ["/test.Words/count"]),
        (["test.Words/*"], ["/test.Words/say"], ["/test.Other/say"]),
    ],
)
def test_requests_that_a_pattern_names_make_no_spans_nor_does_what_they_call(
    exclude: list[str], left_out: list[str], traced: list[str], tmp_path: Path
) -> None:
    active = tracing_of(tmp_path, selection=Selection({SERVE}, exclude=exclude))
    for called in left_out:
        inside = at_proxy(active, called, traceparent=CLIENT, baggage="user=me")
        assert (inside.trace_id, inside.trace_flags) == (0x1234, 0)
        assert at_proxy(active, called).trace_flags & 1 == 0
    assert spooled_spans(tmp_path) == []
    for number, called in enumerate(traced, start=1):
        assert at_proxy(active, called).trace_flags & 1 == 1
        assert len(spooled_spans(tmp_path)) == 3 * number


def test_with_patterns_for_requests_only_these_are_included(tmp_path: Path) -> None:
    """With all that they call, of which patterns for calls decide."""
    active = tracing_of(tmp_path, selection=Selection({SERVE}, include=["/shop*"], exclude=["GET /shop/live"]))
    for called in ("GET /shop/live", "GET /other"):
        at_proxy(active, called)
    assert spooled_spans(tmp_path) == []
    at_proxy(active, "GET /shop")
    assert [span.name for span in spooled_spans(tmp_path)] == [
        "GET",
        "Model.__call__ serve.remote",
        "Model.__call__ serve.replica",
    ]


def test_a_request_that_a_pattern_names_makes_no_spans_in_a_replica_that_it_reaches_directly(
    routed: Routed, tmp_path: Path
) -> None:
    routed._active.selection = Selection({SERVE}, exclude=["/v1/*"])
    routed._ask(False, "/v1/chat", {}, 200, {})
    assert spooled_spans(tmp_path) == []
    routed._ask(False, "/v2/chat", {}, 200, {})
    assert len(spooled_spans(tmp_path)) == 1


CLIENT = f"00-{0x1234:032x}-{0xFF:016x}-01"


class Routed:
    """An application behind HAProxy with an ingress request router, and what its request comes to."""

    def __init__(self, active: Tracing) -> None:
        self._active = active
        self.seen: dict[bytes, bytes] = {}

    def post(self, answer: object = None, status: int = 200, **headers: str) -> dict[str, Any]:
        """A request of a client, which HAProxy forwards with the headers that the router gave it, if there are any."""
        reply = self._ask(True, "/internal/route", {}, status, answer or {"replica_id": "SERVE_REPLICA::1"})
        assert reply["length"] == len(reply["body"])
        told: dict[str, Any] = json.loads(reply["body"])
        if status == 200:
            self._ask(False, "/v1/chat", {**headers, **told.get("request_headers", {})}, 200, {})
        return told

    def _ask(self, is_router: bool, path: str, headers: Mapping[str, str], status: int, answer: object) -> Any:
        sent: list[Any] = []
        name = "Router" if is_router else "Model"
        here = SimpleNamespace(
            _deployment_id=SimpleNamespace(name=name, app_name="app"),
            _replica_id=SimpleNamespace(unique_id=name),
            _is_ingress_request_router=is_router,
            _user_callable_wrapper=SimpleNamespace(_run_user_code_in_separate_thread=True),
        )
        metadata = SimpleNamespace(request_id="r1", multiplexed_model_id="", route=path)

        async def serve(self: Any, scope: Any, receive: Any, send: Any) -> None:
            around = direct.around(contextlib.nullcontext(lambda _status: None), active, self, metadata)
            assert around is not None
            with around as report:
                report(str(status))
                seen.update(scope["headers"])
                body = json.dumps(answer).encode()
                length = (b"content-length", str(len(body)).encode())
                await send({"type": "http.response.start", "status": status, "headers": [length]})
                await send({"type": "http.response.body", "body": body})

        async def send(message: Any) -> None:
            sent.append(message)

        active, self.seen = self._active, {}
        seen = self.seen
        scope = {
            "type": "http",
            **SCOPE,
            "method": "POST",
            "path": path,
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        }
        asyncio.run(direct._direct_ingress_asgi(serve)(here, scope, None, send))
        head, body = sent
        return {"length": int(dict(head["headers"])[b"content-length"]), "body": body["body"]}


def test_a_request_tells_the_service_of_its_caller_where_deployments_are_services(tmp_path: Path) -> None:
    """As SkyWalking knows the calling process, whose spans have it from there."""
    active = tracing_of(tmp_path, selection=Selection({SERVE}))
    for service in ("", "shop"):
        active.service = service
        at_proxy(active, "GET /shop")
    told = [
        [each.value.string_value for each in span.attributes if each.key == names.SKYWALKING_CALLER]
        for span in spooled_spans(tmp_path)
        if span.name.endswith(names.SERVE_REPLICA)
    ]
    assert told == [[], ["shop"]]


@pytest.fixture
def routed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Routed:
    active = tracing_of(tmp_path, selection=Selection({SERVE}))
    monkeypatch.setattr(tracing, "active", active)
    return Routed(active)


def test_a_request_that_haproxy_routes_continues_the_trace_of_its_client(routed: Routed, tmp_path: Path) -> None:
    routed.post(traceparent=CLIENT)
    route, request = spooled_spans(tmp_path)
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (f"{0x1234:032x}", f"{0xFF:016x}")
    assert [(link.trace_id, link.span_id) for link in request.links] == [(route.trace_id, route.span_id)]


def test_a_router_that_finds_no_replica_has_failed(routed: Routed, tmp_path: Path) -> None:
    """Whatever its status, the client gets an error."""
    assert routed.post(status=400) == {"replica_id": "SERVE_REPLICA::1"}
    (route,) = spooled_spans(tmp_path)
    assert route.status.code == trace_pb2.Status.STATUS_CODE_ERROR


@pytest.mark.parametrize("value", ["", ";", "no", f"{CLIENT};-1", f"{CLIENT};{10**20}", f"{CLIENT};1\n"])
def test_a_header_of_a_router_that_is_malformed_is_left_out(value: str, routed: Routed, tmp_path: Path) -> None:
    routed._ask(False, "/v1/chat", {"x-serve-router-ray-tracing": value}, 200, {})
    (request,) = spooled_spans(tmp_path)
    assert (request.parent_span_id, [*request.links]) == (b"", [])
    assert names.RAY_SERVE_CHOICE_TIME not in {each.key for each in request.attributes}
    assert b"x-serve-router-ray-tracing" not in routed.seen
