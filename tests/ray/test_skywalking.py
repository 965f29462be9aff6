"""Ray joins the traces of services that SkyWalking's own agents trace, in both directions."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import skywalking_peers as peers
from installed import needs
from skywalking_peers import Backend
from support import PROGRAMS, environment, run_program, spans_in, with_extras

from ray_tracing_hooks._formats.skywalking import headers, ids
from ray_tracing_hooks._formats.skywalking.headers import Reference

pytestmark = [needs("skywalking", "agent"), pytest.mark.slow]  # agents of SkyWalking and a server

CALLS = 10_000
"""Calls by one driver, besides those of the trace through the services."""

TRACE = "56a5e1c519ae4c76a2b8b11d92cead7f"

ENTRY, EXIT, LOCAL = 0, 1, 2
CROSS_PROCESS, CROSS_THREAD = 0, 1


class Place(NamedTuple):
    """A span by its segment and its number there."""

    segment: str
    span: int


class Arrived:
    """The segments that came to a back end, checked for what SkyWalking's own test tool checks."""

    def __init__(
        self, encoded: list[bytes], *, exact: Sequence[str] = ("caller", "shop", "service"), outside: str = ""
    ) -> None:
        self._exact = exact
        self._outside = outside
        self.segments = [peers.of_3("SegmentObject").FromString(each) for each in encoded]
        counted = Counter(segment.traceSegmentId for segment in self.segments)
        assert set(counted.values()) == {1}, "no segment is reported twice: its second part would replace the first"
        self.spans = {
            Place(segment.traceSegmentId, span.spanId): (segment, span)
            for segment in self.segments
            for span in segment.spans
        }
        for segment in self.segments:
            assert {span.spanId for span in segment.spans} >= {0}
            assert segment.service
            assert segment.serviceInstance
            for span in segment.spans:
                self._check(segment, span)

    def _check(self, segment: Any, span: Any) -> None:
        assert span.operationName
        assert 0 < span.startTime <= span.endTime
        assert span.peer or span.spanType != EXIT
        for reference in span.refs:
            assert reference.traceId == segment.traceId
            if reference.parentTraceSegmentId == self._outside:
                continue
            to, parent = self.spans[Place(reference.parentTraceSegmentId, reference.parentSpanId)]
            assert (reference.parentService, reference.parentServiceInstance) == (to.service, to.serviceInstance)
            # The agent for Node leaves it out.
            assert reference.parentEndpoint or segment.service not in self._exact
            if reference.refType == CROSS_PROCESS and parent.spanType == EXIT:
                assert reference.networkAddressUsedAtPeer == parent.peer, "SkyWalking draws no arrow otherwise"

    def of(self, service: str) -> list[Any]:
        return [segment for segment in self.segments if segment.service == service]

    def path(self, segment: Any, span: Any) -> list[str]:
        """The names of a span and of those around it, the outermost one first, each with its service."""
        names = [f"{segment.service}: {span.operationName}"]
        if span.parentSpanId >= 0:
            return self.path(*self.spans[Place(segment.traceSegmentId, span.parentSpanId)]) + names
        for reference in span.refs:
            names = self.path(*self.spans[Place(reference.parentTraceSegmentId, reference.parentSpanId)]) + names
        return names


class Ran(NamedTuple):
    """What came to the back end, what the application answered, the folder of the local files, and what two tasks would
    send.
    """

    segments: list[bytes]
    answer: dict[str, Any]
    spans: Path
    sent: list[dict[str, str]]


@contextlib.contextmanager
def running(agent: str, hook: str, folder: Path, **settings: str) -> Iterator[Ran]:
    """Caller -> proxy -> Upstream -> Downstream -> task -> service."""
    backend = Backend()
    variables: dict[str, Any] = {
        **with_extras(),
        "RTH_AGENT": str(peers.PACKAGES),
        "RTH_BACKEND": backend.endpoint,
        "SW_AGENT_NAME": "service",
        "SW_AGENT_INSTANCE_NAME": "service-1",
        **settings,
    }
    service = subprocess.Popen(
        ["node" if agent.endswith(".js") else sys.executable, str(PROGRAMS / agent), "serve"],
        env=environment(**variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdin is not None
    assert service.stdout is not None
    try:
        port = service.stdout.readline().strip()
        run = run_program(
            "skywalking_chain",
            RTH_HOOK=hook,
            RTH_CALLER=agent,
            RTH_SERVICE=f"http://127.0.0.1:{port}/fetch",
            RAY_TRACING_EXPORTERS="local,skywalking",
            RAY_TRACING_LOCAL_DIR=str(folder / "spans"),
            RAY_TRACING_INSTRUMENT="requests",
            RAY_TRACING_LOGS="ids,tid",
            # Until everything is delivered.
            RAY_TRACING_FLUSH_TIMEOUT="120",
            SW_AGENT_COLLECTOR_BACKEND_SERVICES=backend.endpoint,
            **{**variables, "SW_AGENT_NAME": "shop", "SW_AGENT_INSTANCE_NAME": ""},
        )
        service.stdin.close()
        service.wait(90)
        assert run.result["code"] == 0, run.result["problems"]
        yield Ran(backend.wait_for(1), json.loads(run.result["caller"]), folder / "spans", run.result["sent"])
    finally:
        service.kill()
        service.wait()
        service.stdin.close()
        service.stdout.close()
        backend.close()


class Chain(NamedTuple):
    arrived: Arrived
    answer: dict[str, Any]
    spans: Path


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """With the agent of SkyWalking 8 and newer."""
    folder = tmp_path_factory.mktemp("skywalking")
    with running("skywalking_agent.py", "ray_tracing_hooks:setup", folder, RTH_CALLS=str(CALLS)) as ran:
        yield Chain(Arrived(ran.segments), ran.answer, ran.spans)


def test_one_trace_goes_through_the_caller_serve_a_task_and_the_service(chain: Chain) -> None:
    """Each of them reports its own part, and each reference is exact."""
    ((segment, entry),) = [(segment, segment.spans[-1]) for segment in chain.arrived.of("service")]
    assert chain.arrived.path(segment, entry) == [
        "caller: program",
        "caller: /hello-ray",
        "shop: GET /hello-ray",
        "shop: Upstream.__call__ serve.remote",
        "shop: Upstream.__call__ serve.replica",
        "shop: Downstream.hello serve.remote",
        "shop: Downstream.hello serve.replica",
        "shop: __main__.fetch ray.remote",
        "shop: __main__.fetch ray.remote_worker",
        "shop: GET",
        "service: /fetch",
    ]


def test_the_caller_is_named_as_it_names_itself(chain: Chain) -> None:
    (request,) = [
        span for segment in chain.arrived.of("shop") for span in segment.spans if span.operationName == "GET /hello-ray"
    ]
    (reference,) = request.refs
    assert (reference.parentService, reference.parentServiceInstance) == ("caller", "caller-1")
    assert request.spanType == ENTRY
    tags = {tag.key: tag.value for tag in request.tags}
    assert (tags["http.method"], tags["http.status_code"]) == ("GET", "200")


def test_the_application_sees_the_trace_in_its_headers_and_logs(chain: Chain) -> None:
    (caller,) = chain.arrived.of("caller")
    assert chain.answer["tid"] == caller.traceId
    assert base64.b64decode(chain.answer["sw8"].split("-")[1]).decode() == caller.traceId
    assert chain.answer["sw8-correlation"] == "dGVuYW50:YWNtZQ=="


def test_every_span_is_a_segment(chain: Chain) -> None:
    """Those of the local files of the same run, with errors, a generator, many calls, and a worker that died."""
    spans = spans_in(chain.spans)
    expected = {
        ids.segment_text(bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)): span.name for span in spans
    }
    found = {segment.traceSegmentId: segment.spans[0].operationName for segment in chain.arrived.of("shop")}
    assert found == expected
    assert len(found) > 2 * CALLS
    errors = {segment.spans[0].operationName for segment in chain.arrived.of("shop") if segment.spans[0].isError}
    assert {"Counter.fail ray.remote_worker", "__main__.die ray.remote_worker"} <= errors


@pytest.mark.slow  # another cluster
def test_one_trace_goes_through_services_in_javascript(tmp_path: Path) -> None:
    """And that of the driver's environment, as of a job that an agent's process has submitted, through its tasks.

    Each deployment is a service of its own.
    """
    of_job = Reference(f"{TRACE}.12.1", f"{TRACE}.12.0", 3, True, "gateway", "gw-1", "/api", "10.0.0.5:8000")
    variables = {"SW8": headers.write_sw8(of_job), "SW8_CORRELATION": "dGVuYW50:YWNtZQ==", "SW8_X": "1- "}
    variables["RAY_TRACING_SKYWALKING_DEPLOYMENT_SERVICE"] = "ray-{deployment}"
    of_ray = ["shop", "ray-Upstream", "ray-Downstream"]
    with running("skywalking_agent.js", "ray_tracing_hooks.skywalking:setup", tmp_path, **variables) as ran:
        arrived = Arrived(ran.segments, exact=of_ray, outside=of_job.segment_id)
    ((segment, entry),) = [(segment, segment.spans[-1]) for segment in arrived.of("service")]
    path = arrived.path(segment, entry)
    proxy, worker, (upstream, downstream) = ["shop"] * 2, ["shop"] * 3, of_ray[1:]
    services = ["caller", *proxy, upstream, upstream, downstream, *worker, "service"]
    assert [name.partition(":")[0] for name in path] == services
    of_upstream = headers.read_sw8(ran.answer["sw8"])
    assert of_upstream is not None
    assert of_upstream.service == upstream
    (caller,) = arrived.of("caller")
    assert ran.answer["tid"] == caller.traceId
    assert len(ran.sent) == 2
    for sent in ran.sent:
        of_task = headers.read_sw8(sent["sw8"])
        assert of_task is not None
        assert of_task.trace_id == of_job.trace_id
        segment, span = arrived.spans[Place(of_task.segment_id, of_task.span)]
        assert (segment.traceId, span.operationName) == (of_job.trace_id, "__main__.sent ray.remote_worker")
        assert (sent["sw8-correlation"], sent["sw8-x"]) == ("dGVuYW50:YWNtZQ==", "1-")
    (driver,) = [
        segment.spans[0] for segment in arrived.segments if segment.spans[0].operationName.endswith("ray.driver")
    ]
    assert [reference.parentTraceSegmentId for reference in driver.refs] == [of_job.segment_id]


@pytest.mark.slow  # as the one above
def test_one_trace_goes_through_services_of_6_too(tmp_path: Path) -> None:
    """With an agent for 6.x on both sides, and ids for Ray that were registered before."""
    settings = {"PROTOCOL": "sw6", "SERVICE_ID": "90", "INSTANCE_ID": "91"}
    variables = {f"RAY_TRACING_SKYWALKING_{name}": value for name, value in settings.items()}
    with running("skywalking_agent_6.py", "ray_tracing_hooks.skywalking:setup", tmp_path, **variables) as ran:
        read = [peers.read_upstream(each) for each in ran.segments]
        assert not spans_in(ran.spans), "this hook has one exporter"
    by_id = {peers.unique_id(segment.traceSegmentId): segment for _, segment in read}
    assert len(by_id) == len(read)
    trace_of = {peers.unique_id(segment.traceSegmentId): trace_id for trace_id, segment in read}

    def path(segment: Any, number: int) -> list[str]:
        (span,) = (each for each in segment.spans if each.spanId == number)
        names = [f"{segment.serviceInstanceId}: {span.operationName}"]
        if span.parentSpanId >= 0:
            return path(segment, span.parentSpanId) + names
        for reference in span.refs:
            parent = by_id[peers.unique_id(reference.parentTraceSegmentId)]
            assert reference.parentServiceInstanceId == parent.serviceInstanceId
            assert trace_of[peers.unique_id(parent.traceSegmentId)] == trace_of[peers.unique_id(segment.traceSegmentId)]
            names = path(parent, reference.parentSpanId) + names
        return names

    (last,) = (segment for _, segment in read if any(span.operationName == "/fetch" for span in segment.spans))
    # The service was the first to register, the caller the second.
    assert path(last, 0) == [
        "12: program",
        "12: /hello-ray",
        "91: GET /hello-ray",
        "91: Upstream.__call__ serve.remote",
        "91: Upstream.__call__ serve.replica",
        "91: Downstream.hello serve.remote",
        "91: Downstream.hello serve.replica",
        "91: __main__.fetch ray.remote",
        "91: __main__.fetch ray.remote_worker",
        "91: GET",
        "9: /fetch",
    ]
    assert ran.answer["tid"] == trace_of[peers.unique_id(last.traceSegmentId)]
    # The agent that it began with is named as the entry of the trace, and Ray as the parent.
    sent = headers.read_sw6(ran.answer["answer"])
    assert sent is not None
    assert sent.instance_id == 91
