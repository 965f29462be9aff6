"""A trace that comes from a SkyWalking agent, and goes on to one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.util._importlib_metadata import entry_points
from stand_ins import tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._formats.skywalking import headers, ids
from ray_tracing_hooks._formats.skywalking.headers import Identity, Reference
from ray_tracing_hooks._propagators import skywalking
from ray_tracing_hooks._propagators.skywalking import Local
from ray_tracing_hooks._ray import propagation, tracing
from ray_tracing_hooks._ray.jobs import from_environment, to_environment
from ray_tracing_hooks._ray.serve import server
from ray_tracing_hooks._ray.serve.server import Descriptions, arrive, http_headers
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._sdk.processor import SpoolSpanProcessor
from ray_tracing_hooks._ship.stage import ProgressFile
from ray_tracing_hooks._spool.progress import Progress
from ray_tracing_hooks._spool.writer import SpoolWriter

JAVA = Reference(
    "56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430001",
    "56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430000",
    3,
    True,
    "gateway",
    "gw-1",
    "/api",
    "10.0.0.5:8000",
)
OLD = Reference(
    "4.1795228002226.17952280022349362",
    "4.1795228002225.17952280022349772",
    1,
    True,
    "",
    "",
    "",
    "#127.0.0.1:21083",
    4,
    4,
    "#/checkout",
    "#/checkout",
)
HERE = Local(Identity("ray", "session"))
SCOPE = {"method": "GET", "path": "/", "client": None}
SPAN = SpanContext(0x1234, 0xFF, is_remote=False, trace_flags=TraceFlags(1))


def use(*names: str) -> None:
    found = [next(iter(entry_points(group="opentelemetry_propagator", name=name))).load()() for name in names]
    propagate.set_global_textmap(CompositePropagator(found))


@pytest.fixture(autouse=True)
def propagators() -> Iterator[None]:
    before = propagate.get_global_textmap()
    skywalking.become(HERE)
    use("tracecontext", "baggage", "sw8")
    yield
    skywalking.become(None)
    propagate.set_global_textmap(before)


def injected(context: Context) -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return carrier


def sw8(context: Context) -> Reference:
    found = headers.read_sw8(injected(context)["sw8"])
    assert found is not None
    return found


def sw6(context: Context) -> Reference:
    found = headers.read_sw6(injected(context)["sw6"])
    assert found is not None
    return found


def extracted(**carrier: str) -> Context:
    return propagate.extract({name.replace("_", "-"): value for name, value in carrier.items()}, Context())


def span_of(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()


def around(context: SpanContext = SPAN) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(context), Context())


def test_a_trace_of_an_agent_goes_on_under_its_own_id() -> None:
    context = extracted(sw8=headers.write_sw8(JAVA))
    found = span_of(context)
    assert found.is_remote
    assert found.trace_flags == 1
    assert f"{found.trace_id:032x}" == "56a5e1c515ae4c7613e51e7cf616977f"
    child = SpanContext(
        found.trace_id, 7, is_remote=False, trace_flags=found.trace_flags, trace_state=found.trace_state
    )
    sent = sw8(trace.set_span_in_context(NonRecordingSpan(child), context))
    assert sent.trace_id == JAVA.trace_id
    assert sent.segment_id == ids.segment_text(found.trace_id.to_bytes(16, "big"), (7).to_bytes(8, "big"))
    assert (sent.span, sent.service, sent.instance) == (0, "ray", "session")
    # Also where nothing but the ids and the trace state has come along.
    assert sw8(around(child)).trace_id == JAVA.trace_id


def test_a_process_without_a_span_of_its_own_forwards_the_reference() -> None:
    """With another address, since it is not the one that the caller has called."""
    sent = sw8(extracted(sw8=headers.write_sw8(JAVA)))
    assert sent == JAVA._replace(address=sent.address)
    assert sent.address != JAVA.address


@pytest.mark.parametrize("header", ["", "garbage", "1-a-b-c", headers.write_sw8(JAVA) + "-x"])
def test_a_header_that_is_not_right_is_ignored(header: str) -> None:
    assert not span_of(extracted(sw8=header)).is_valid
    w3c = f"00-{'1' * 32}-{'2' * 16}-01"
    assert span_of(extracted(sw8=header, traceparent=w3c)).span_id == int("2" * 16, 16)


def test_nothing_is_sent_without_a_span() -> None:
    assert injected(Context()) == {}


def test_a_trace_that_a_caller_does_not_sample_is_not_sampled() -> None:
    found = span_of(extracted(sw8=headers.UNSAMPLED))
    assert found.is_valid
    assert found.trace_flags == 0
    assert not span_of(extracted(sw8=headers.write_sw8(JAVA._replace(sampled=False)))).trace_flags & 1


@pytest.mark.parametrize(("policy", "sent"), [("omit", None), ("suppress", headers.UNSAMPLED), ("flag", "0")])
def test_what_an_unsampled_trace_sends(policy: str, sent: str | None) -> None:
    skywalking.become(HERE._replace(unsampled=policy))
    header = injected(around(SpanContext(1, 2, is_remote=False))).get("sw8")
    assert header == sent if sent != "0" else header is not None and header.startswith("0-")


def test_6_has_no_header_that_suppresses_a_trace() -> None:
    """That of 8 would be a malformed one, which breaks the request in ``python2sky``."""
    use("sw6")
    skywalking.become(HERE._replace(unsampled="suppress"))
    assert injected(around(SpanContext(1, 2, is_remote=False))) == {}
    assert not span_of(extracted(sw6=headers.UNSAMPLED)).is_valid


def test_the_same_trace_of_both_formats_has_the_exact_parent() -> None:
    trace_id, span_id = SPAN.trace_id.to_bytes(16, "big"), SPAN.span_id.to_bytes(8, "big")
    both = injected(around())
    assert both["traceparent"] == f"00-{trace_id.hex()}-{span_id.hex()}-01"
    found = span_of(propagate.extract(both, Context()))
    assert (found.trace_id, found.span_id) == (SPAN.trace_id, SPAN.span_id)
    alone = span_of(extracted(sw8=both["sw8"]))
    assert (alone.trace_id, alone.span_id) == (SPAN.trace_id, SPAN.span_id)


def test_of_two_traces_that_of_skywalking_goes_on_and_the_other_becomes_a_link(tmp_path: Path) -> None:
    carrier = {"sw8": headers.write_sw8(JAVA), "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    active = tracing_of(tmp_path)
    _, span = arrive(active, carrier, Descriptions({}).of_http, SCOPE)
    assert span is not None
    encoded = decode_span(span._head)
    assert encoded.trace_id == ids.trace_id_of(JAVA.trace_id)
    assert [link.trace_id.hex() for link in encoded.links] == ["1" * 32]


def made_by(active: Tracing, context: Context) -> tuple[tracing.CallContext, Context]:
    """What a call in this context carries, and the context in which it runs."""
    made = tracing.CallContext(active.calls, context)
    sent = carrier.encode(made.trace_id, b"submitte", made.flags, 1, b"", made.headers)
    return made, propagation.incoming(carrier.decode(sent))[0]


@pytest.mark.parametrize("names", [("tracecontext", "baggage", "sw8"), ("sw8",), ("sw6",), ("tracecontext", "sw6")])
def test_the_trace_of_an_agent_crosses_a_call(tmp_path: Path, names: tuple[str, ...]) -> None:
    use(*names)
    active = tracing_of(tmp_path)
    given, header, write = (JAVA, "sw8", headers.write_sw8) if "sw8" in names else (OLD, "sw6", headers.write_sw6)
    context, span = arrive(active, {header: write(given)}, Descriptions({}).of_http, SCOPE)
    assert span is not None
    made, there = made_by(active, context)
    arrived = decode_span(active.recorder.start(_template(), made.trace_id, made.flags, made.parent)._head)
    assert skywalking.trace_text(Context({**there})) == given.trace_id
    parent = propagation.incoming(carrier.decode(carrier.encode(made.trace_id, b"submitte", 1, 1, b"", made.headers)))[
        1
    ]
    assert parent.span_id == b"submitte"
    assert propagation.reference(there, parent) == b""
    assert arrived.trace_state == f"sw8={given.trace_id}"


def _template() -> Template:
    return Template("call", 4, {})


def test_a_call_carries_nothing_more_in_a_trace_that_began_here(tmp_path: Path) -> None:
    active = tracing_of(tmp_path)
    assert active.calls.only_standard_headers
    token = attach(around())
    try:
        found = tracing.around_of(active.calls)
        assert found.headers is None
        assert tracing.around_of(active.calls) is found, "and nothing is looked up again for the next call"
    finally:
        detach(token)


def test_a_call_below_the_span_of_an_agent_is_told_so(tmp_path: Path) -> None:
    """Where the process that read the header makes no span around the call."""
    active = tracing_of(tmp_path)
    made, _ = made_by(active, extracted(sw8=headers.write_sw8(JAVA)))
    assert headers.write_sw8(JAVA).encode() in made.of_caller
    # And where the call makes no span either, the one that runs is told.
    assert made.parent is not None
    without = carrier.encode(made.trace_id, made.parent.span_id, made.flags, 1, b"", made.headers)
    context, parent = propagation.incoming(carrier.decode(without))
    assert headers.write_sw8(JAVA._replace(address="ray:ray/?")).encode() in propagation.reference(context, parent)


def test_an_application_finds_the_span_of_its_replica(tmp_path: Path) -> None:
    active = tracing_of(tmp_path)
    given = [(b"host", b"here"), (b"sw8", headers.write_sw8(JAVA).encode()), (b"sw8-correlation", b"dGVuYW50:YWNtZQ==")]
    context, span = arrive(active, http_headers(given), Descriptions({}).of_http, SCOPE)
    assert span is not None
    token = attach(context)
    try:
        told = dict(server.with_context(given))
    finally:
        detach(token)
    found = headers.read_sw8(told[b"sw8"].decode())
    assert found is not None
    assert found.trace_id == JAVA.trace_id
    assert found.segment_id == ids.segment_text(span.trace_id, span.span_id)
    assert told[b"sw8-correlation"] == b"dGVuYW50:YWNtZQ=="


def test_correlation_and_extension_go_on() -> None:
    context = extracted(sw8=headers.write_sw8(JAVA), sw8_correlation="dGVuYW50:YWNtZQ==", sw8_x="1-1700000000000")
    sent = injected(context)
    assert sent["sw8-correlation"] == "dGVuYW50:YWNtZQ=="
    assert sent["sw8-x"] == "1-", "without the space at its end, with which some clients refuse to send it"
    assert baggage.get_all(context) == {}


def test_baggage_becomes_correlation_where_that_is_asked_for() -> None:
    skywalking.become(HERE._replace(correlation=True))
    sent = injected(baggage.set_baggage("tenant", "acme", around()))
    assert sent["sw8-correlation"] == "dGVuYW50:YWNtZQ=="
    assert baggage.get_all(extracted(sw8=sent["sw8"], sw8_correlation=sent["sw8-correlation"])) == {"tenant": "acme"}


def test_headers_have_a_prefix_where_that_is_asked_for() -> None:
    skywalking.become(HERE._replace(prefix="shop-"))
    sent = injected(around())
    assert "shop-sw8" in sent
    assert "sw8" not in sent
    assert span_of(propagate.extract({"Shop-SW8": sent["shop-sw8"]}, Context())).span_id == SPAN.span_id


@pytest.mark.parametrize(
    ("environ", "service"),
    [
        ({}, "unknown_service"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=web%20shop"}, "web shop"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=web", "OTEL_SERVICE_NAME": "shop"}, "shop"),
        ({"OTEL_SERVICE_NAME": "shop", "SW_AGENT_NAME": "agent"}, "agent"),
    ],
)
def test_in_a_process_without_a_hook_the_environment_names_the_service(
    environ: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME", "SW_AGENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    skywalking.become(None)
    assert sw8(around()).service == service


def test_sw6_of_a_trace_that_began_here() -> None:
    use("sw6")
    sent = sw6(around())
    assert (sent.instance_id, sent.entry_instance_id) == (1, 1)
    assert (sent.entry_endpoint, sent.parent_endpoint) == ("-1", "-1")
    assert sent.address.startswith("#")
    assert span_of(extracted(sw6=headers.write_sw6(sent))) == SpanContext(
        SPAN.trace_id, SPAN.span_id, is_remote=True, trace_flags=TraceFlags(1)
    )


def test_sw6_of_a_trace_of_an_agent() -> None:
    """The entry of the trace stays the one that the agent has named."""
    use("sw6")
    skywalking.become(HERE._replace(instance_id=9))
    context = extracted(sw6=headers.write_sw6(OLD))
    found = span_of(context)
    assert sw6(context) == OLD._replace(address=sw6(context).address)
    child = SpanContext(found.trace_id, 7, is_remote=False, trace_flags=TraceFlags(1), trace_state=found.trace_state)
    sent = sw6(trace.set_span_in_context(NonRecordingSpan(child), context))
    assert sent.trace_id == OLD.trace_id
    assert (sent.instance_id, sent.entry_instance_id, sent.entry_endpoint) == (9, 4, "#/checkout")


def test_the_id_of_sw8_never_gets_into_sw6() -> None:
    """Three numbers are all that it can hold."""
    use("sw6")
    sent = sw6(around(SpanContext(1, 2, False, TraceFlags(1), trace.TraceState([("sw8", JAVA.trace_id)]))))
    assert sent.trace_id == ids.trace_numbers((1).to_bytes(16, "big"))


@pytest.mark.parametrize("value", ["another", "two%0Alines"])
def test_a_trace_state_that_is_not_of_this_trace_is_no_id(value: str) -> None:
    """The segments of this trace have the other id, and whoever sends the state could write lines into a log."""
    trace_id = int.from_bytes(ids.trace_id_of("two\nlines"), "big")
    context = around(SpanContext(trace_id, 2, False, TraceFlags(1), trace.TraceState([("sw8", value)])))
    assert sw8(context).trace_id == skywalking.trace_text(context) == f"{trace_id:032x}"


def test_an_id_that_the_trace_state_cannot_hold_goes_on_in_its_process() -> None:
    long = JAVA._replace(trace_id="网" * 150)
    context = extracted(sw8=headers.write_sw8(long))
    assert "sw8" not in (span_of(context).trace_state or {})
    assert sw8(context).trace_id == long.trace_id


def test_the_environment_of_a_driver_carries_a_trace_of_an_agent() -> None:
    context = extracted(sw8=headers.write_sw8(JAVA), sw8_correlation="dGVuYW50:YWNtZQ==")
    variables = to_environment(context)
    assert {"SW8", "SW8_CORRELATION"} <= variables.keys()
    found = from_environment(variables, Context())
    assert span_of(found) == span_of(context)
    assert skywalking.trace_text(found) == JAVA.trace_id


def test_a_span_of_the_sdk_says_what_the_header_said(tmp_path: Path) -> None:
    """Such as that of a web framework in a worker."""
    processor = SpoolSpanProcessor()
    writer = SpoolWriter(str(tmp_path), segment_bytes=1 << 20, on_problem=print, watch=lambda: None)
    processor.write_to(writer)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("framework")
    header = headers.write_sw8(JAVA)
    context = extracted(sw8=header)
    with tracer.start_as_current_span("request", context) as request, tracer.start_as_current_span("inside") as inside:
        pass
    writer.close()
    provider.shutdown()
    assert isinstance(request, ReadableSpan)
    assert isinstance(inside, ReadableSpan)
    assert dict(request.attributes or {}) == {names.SKYWALKING_PARENT: header}
    assert not inside.attributes


def test_the_span_of_a_call_keeps_the_address_that_the_header_had() -> None:
    """Its attributes may change later; SkyWalking draws an arrow only if both are the same."""
    tracer = TracerProvider().get_tracer("library")
    with tracer.start_as_current_span("GET", kind=trace.SpanKind.CLIENT, attributes={"server.address": "shop"}) as call:
        sent = sw8(trace.set_span_in_context(call, Context()))
        call.set_attribute("server.port", 8000)
    assert isinstance(call, ReadableSpan)
    assert (call.attributes or {})[names.SKYWALKING_PEER] == sent.address == "shop"
    assert sent.endpoint == "GET"


def test_a_process_learns_the_id_that_its_instance_was_registered_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the progress of the exporter in the spool; until then it is the user of SkyWalking."""
    use("sw6")
    monkeypatch.setattr(skywalking, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(skywalking, "_LOOK_AGAIN_SECONDS", 0.0)
    skywalking.become(HERE._replace(is_of_6=True, spool=str(tmp_path)))
    assert sw6(around()).instance_id == 1
    state = {"registered": [["ray", "another", 3, 8], ["ray", "session", 3, 9]]}
    progress_file = ProgressFile(str(tmp_path), "skywalking")
    progress_file.store(Progress({}, state))
    sent = sw6(around())
    assert (sent.instance_id, sent.entry_instance_id) == (9, 9)
    # The back end has lost its storage, and the exporter has registered again.
    progress_file.store(Progress({}, {"registered": [["ray", "session", 4, 12]]}))
    assert sw6(around()).instance_id == 12


@pytest.mark.parametrize(
    ("is_reported", "kind", "endpoint"),
    [
        (True, trace.SpanKind.SERVER, "#GET /cart"),
        (True, trace.SpanKind.INTERNAL, "-1"),
        (False, trace.SpanKind.SERVER, "-1"),
    ],
)
def test_sw6_names_only_endpoints_that_the_back_end_comes_to_know(
    is_reported: bool, kind: trace.SpanKind, endpoint: str
) -> None:
    """It keeps other segments that refer to an unknown one, and retries for ever."""
    use("sw6")
    skywalking.become(HERE._replace(instance_id=9, is_reported=is_reported))
    with TracerProvider().get_tracer("server").start_as_current_span("GET /cart", kind=kind) as request:
        sent = sw6(trace.set_span_in_context(request, Context()))
    assert (sent.entry_endpoint, sent.parent_endpoint) == (endpoint, endpoint)


def test_a_malformed_progress_is_no_registration(tmp_path: Path) -> None:
    use("sw6")
    (tmp_path / "progress-skywalking.json").write_text("{")
    skywalking.become(HERE._replace(is_of_6=True, spool=str(tmp_path)))
    assert sw6(around()).instance_id == 1


@pytest.mark.parametrize(("header", "given"), [("sw8", headers.write_sw8(JAVA)), ("sw6", headers.write_sw6(OLD))])
def test_with_both_generations_no_header_is_malformed(header: str, given: str) -> None:
    """What one of them says has no place in the header of the other; the trace goes on in both."""
    use("tracecontext", "sw8", "sw6")
    context = extracted(**{header: given})
    assert sw8(context).trace_id == (JAVA if header == "sw8" else OLD).trace_id
    assert sw6(context).trace_id == (
        OLD.trace_id if header == "sw6" else ids.trace_numbers(span_of(context).trace_id.to_bytes(16, "big"))
    )
