"""The context of a client goes through Serve in whatever form the propagators in use have for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import default_getter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util._importlib_metadata import entry_points
from stand_ins import tracing_of

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.serve import replica, router, server
from ray_tracing_hooks._ray.serve.server import Descriptions, arrive, http_headers
from ray_tracing_hooks._ray.templates import SERVE
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach

CLIENT = trace.SpanContext(0x1234, 0xFF, is_remote=False, trace_flags=trace.TraceFlags(1))
SCOPE = {"method": "GET", "path": "/", "client": None}
METADATA = {"call_method": "__call__", "request_id": "1", "multiplexed_model_id": ""}
DEPLOYMENT = SimpleNamespace(name="Model", app_name="app")


def propagators(*names: str) -> CompositePropagator:
    return CompositePropagator(
        [next(iter(entry_points(group="opentelemetry_propagator", name=name))).load()() for name in names]
    )


@pytest.fixture(params=["tracecontext,baggage", "tracecontext,baggage,sw8", "b3,baggage", "b3multi,baggage", "jaeger"])
def active(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracing]:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(propagators(*request.param.split(",")))
    made = tracing_of(tmp_path)
    made.selection.parts = frozenset({SERVE})
    monkeypatch.setattr(tracing, "active", made)
    yield made
    propagate.set_global_textmap(before)


def of_client(*names: str) -> list[tuple[bytes, bytes]]:
    """The headers of a request as these propagators, or the global ones, write them, with what else there is."""
    context = baggage.set_baggage("user", "me", trace.set_span_in_context(trace.NonRecordingSpan(CLIENT), Context()))
    headers: dict[str, str] = {}
    (propagators(*names) if names else propagate.get_global_textmap()).inject(headers, context)
    return [(b"host", b"here"), *((name.lower().encode(), value.encode()) for name, value in headers.items())]


def passed_on(active: Tracing, headers: dict[str, str]) -> Context:
    """The context in a deployment that a request comes to by way of a proxy."""
    context, span = arrive(active, headers, Descriptions({}).of_http, SCOPE)
    assert span is not None
    assert span.as_parent().trace_id == CLIENT.trace_id.to_bytes(16, "big")
    metadata = SimpleNamespace(**METADATA)
    token = attach(context)
    try:
        router._begin(active, SimpleNamespace(deployment_id=DEPLOYMENT), metadata)
    finally:
        detach(token)
    here: Any = SimpleNamespace(_deployment_id=DEPLOYMENT, _replica_id=SimpleNamespace(unique_id="abc"))
    begun = replica._begin(active, here, metadata)
    assert begun is not None
    return begun[0]


def found_by_application(context: Context, headers: list[tuple[bytes, bytes]]) -> trace.SpanContext:
    """The parent that the instrumentation of an application finds in the headers of its request."""
    token = attach(context)
    try:
        told = server.with_context(headers)
    finally:
        detach(token)
    assert len(dict(told)) == len(told)
    return trace.get_current_span(
        propagate.extract({name.decode(): value.decode() for name, value in told}, Context())
    ).get_span_context()


def test_a_request_continues_the_trace_of_its_client_down_to_the_application(active: Tracing) -> None:
    headers = of_client()
    context = passed_on(active, http_headers(headers))
    assert baggage.get_all(context) == {"user": "me"}
    here = trace.get_current_span(context).get_span_context()
    assert here.trace_id == CLIENT.trace_id
    found = found_by_application(context, headers)
    assert (found.trace_id, found.span_id, found.trace_flags & 1) == (here.trace_id, here.span_id, 1)


@pytest.mark.parametrize(
    ("active", "client"), [("b3", "b3multi"), ("b3multi", "b3")], indirect=["active"], ids=["of many", "of one"]
)
def test_each_form_of_b3_is_read_where_the_other_one_is_written(active: Tracing, client: str) -> None:
    headers = of_client(client)
    context = passed_on(active, http_headers(headers))
    here, found = trace.get_current_span(context).get_span_context(), found_by_application(context, headers)
    assert (found.trace_id, found.span_id) == (here.trace_id, here.span_id)


class OfCompany(TraceContextTextMapPropagator):
    """Prefers a header of its own, and writes those of the W3C."""

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = default_getter) -> Context:
        own = getter.get(carrier, "x-trace")
        return super().extract({"traceparent": own[0]} if own else carrier, context)


def test_a_propagator_of_the_application_reads_further_headers() -> None:
    of_others, own = (f"00-{each * 32}-{each * 16}-01".encode() for each in "ab")
    before = propagate.get_global_textmap()
    try:
        propagate.set_global_textmap(CompositePropagator([CompositePropagator([OfCompany()])]))
        headers = http_headers([(b"traceparent", of_others), (b"x-trace", own)])
        found = trace.get_current_span(propagate.extract(headers, Context())).get_span_context()
    finally:
        propagate.set_global_textmap(before)
    assert found.trace_id == int("b" * 32, 16)


def test_a_request_in_the_span_of_a_middleware_is_below_that(active: Tracing) -> None:
    headers = http_headers(of_client())
    context, middleware = arrive(active, headers, Descriptions({}).of_http, SCOPE)
    assert middleware is not None
    token = attach(baggage.set_baggage("tenant", "one", context))
    try:
        context, span = arrive(active, headers, Descriptions({}).of_http, SCOPE)
        middleware.end()
        _, later = arrive(active, headers, Descriptions({}).of_http, SCOPE)
    finally:
        detach(token)
    assert span is not None
    assert span.parent is not None
    assert span.parent.span_id == middleware.get_span_context().span_id
    assert baggage.get_all(context) == {"user": "me", "tenant": "one"}
    assert later is not None
    assert later.parent is not None
    assert later.parent.span_id == CLIENT.span_id


def test_the_application_is_told_in_the_form_of_propagators_that_it_has_set_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, before = tracing_of(tmp_path), propagate.get_global_textmap()
    monkeypatch.setattr(tracing, "active", made)
    context, span = arrive(made, {}, Descriptions({}).of_http, SCOPE)
    assert span is not None
    here = span.get_span_context()
    try:
        for name in ("tracecontext", "b3multi", "tracecontext"):
            propagate.set_global_textmap(propagators(name))
            found = found_by_application(context, [(b"host", b"here")])
            assert (found.trace_id, found.span_id) == (here.trace_id, here.span_id), name
    finally:
        propagate.set_global_textmap(before)
