"""What is measured of spans of calls, as the recorder writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import MS, T0, TASK, TRACE, WHEREABOUTS, Process
from opentelemetry import trace
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider, TraceBasedExemplarFilter
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.sampling import FAILED, SLOW
from ray_tracing_hooks._ship.metrics import stage as calls_module
from ray_tracing_hooks._ship.metrics.stage import CallMeter
from ray_tracing_hooks._ship.sink import Batch


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path / "spool")


class Counted:
    """Meters of the SDK for calls, by resource, and what they have counted."""

    def __init__(self, wanted: str = "trace_based") -> None:
        self._filter = {"trace_based": TraceBasedExemplarFilter, "always_off": AlwaysOffExemplarFilter}[wanted]
        self._readers: dict[bytes, InMemoryMetricReader] = {}
        self._meters: dict[bytes, Meter] = {}
        self.calls = CallMeter(self._meter)

    def _meter(self, resource: bytes) -> Meter:
        if resource not in self._meters:
            reader = self._readers[resource] = InMemoryMetricReader()
            provider = MeterProvider([reader], exemplar_filter=self._filter(), shutdown_on_exit=False)
            self._meters[resource] = provider.get_meter("test")
        return self._meters[resource]

    def points(self) -> list[tuple[str, Any]]:
        """The points with the names of their metrics."""
        return [
            (metric.name, point)
            for reader in self._readers.values()
            for resource in getattr(reader.get_metrics_data(), "resource_metrics", ())
            for metric in resource.scope_metrics[0].metrics
            for point in metric.data.data_points
        ]


def counted(batches: list[Batch], counted: Counted | None = None) -> dict[tuple[str, str, str], Any]:
    """By metric, function and error: the number of values and their sum in milliseconds; of counters the number."""
    counted = counted or Counted()
    assert counted.calls.read(batches) == 0
    found: dict[tuple[str, str, str], Any] = {}
    for name, point in counted.points():
        attributes = point.attributes
        at = (name, str(attributes.get(names.RAY_FUNCTION, "")), str(attributes.get(names.ERROR_TYPE, "")))
        found[at] = point.value if name == RETRIED else (point.count, pytest.approx(point.sum * 1000))
    return found


ABOUT = {
    names.GEN_AI_OPERATION: "chat",
    names.GEN_AI_PROVIDER: "vllm",
    names.GEN_AI_REQUEST_MODEL: "tiny",
    names.RAY_SERVE_DEPLOYMENT: "LLMServer:tiny",
}


def generated(**more: Any) -> bytes:
    """The encoded span of a generation, which took a second."""
    told = {**ABOUT, names.GEN_AI_RESPONSE_ID: "chatcmpl-1"}
    failed = encode.status(2) if names.ERROR_TYPE in more else b""
    template = Template("chat tiny", 1, {})
    identity = encode.identity_of(TRACE, bytes(range(1, 9)), None)
    moments = encode.start_and_end(T0, encode.END_TAG, T0 + 1000 * MS)
    return identity + moments + template.body + encode.attributes({**told, **more}) + failed


def test_generations_are_counted_by_operation_model_and_deployment(process: Process) -> None:
    timed = {names.GEN_AI_FIRST_CHUNK: 0.25, names.GEN_AI_DECODE_TIME: 0.6, names.GEN_AI_OUTPUT_TOKENS: 4}
    spans = [
        generated(**timed),
        generated(**timed, **{names.GEN_AI_CHOICES: 2}),
        generated(**{names.ERROR_TYPE: "EngineDeadError"}),
    ]
    process.execute(1, at=T0, took=MS)
    (batch,) = process.batches()
    seen = Counted()
    assert seen.calls.read([batch._replace(spans=spans)]) == 0
    points = [(name, dict(point.attributes), point.count, pytest.approx(point.sum)) for name, point in seen.points()]
    assert sorted(points, key=str) == sorted(
        [
            (names.GENERATION_DURATION, ABOUT, 2, 2.0),
            (names.GENERATION_DURATION, {**ABOUT, names.ERROR_TYPE: "EngineDeadError"}, 1, 1.0),
            (names.GENERATION_FIRST_TOKEN, ABOUT, 2, 0.5),
            (names.GENERATION_TOKEN_TIME, ABOUT, 1, pytest.approx(0.2)),
        ],
        key=str,
    )


RAN, WAITED, SUBMITTED = names.EXECUTION_DURATION, names.EXECUTION_QUEUE_TIME, names.SUBMISSION_DURATION
RETRIED = names.EXECUTION_RETRIES


def test_calls_are_counted_by_function_and_method(process: Process) -> None:
    """How long they ran, waited and took to submit."""
    for number in range(3):
        process.submit(number, at=T0, took=2 * MS)
        process.execute(number, at=T0 + 5 * MS, took=10 * MS)
    process.submit(9, at=T0, method="step")
    process.execute(9, at=T0 + MS, took=7 * MS, method="step", submitted=T0 - MS)
    assert counted(process.batches()) == {
        (SUBMITTED, "module.work", ""): (3, 6),
        (RAN, "module.work", ""): (3, 30),
        (WAITED, "module.work", ""): (3, 15),
        (SUBMITTED, "Actor.step", ""): (1, 1),
        (RAN, "Actor.step", ""): (1, 7),
        (WAITED, "Actor.step", ""): (1, 2),
    }


def test_calls_whose_end_is_unknown_are_not_counted(process: Process) -> None:
    """If a full disk did not take the end of an execution, the shipper adds that of the process."""
    process.execute(1, at=T0, took=10 * MS)
    (batch,) = process.batches()
    (span,) = batch.spans
    without_end = batch._replace(spans=[span + encode.attribute(names.RAY_NEVER_ENDED, True)])
    assert counted([without_end]) == {}
    assert counted([batch]) == {(RAN, "module.work", ""): (1, 10)}


def test_methods_have_their_class_and_name(process: Process) -> None:
    process.execute(1, at=T0, method="step", submitted=T0)
    counter = Counted()
    counted(process.batches(), counter)
    (attributes, _) = (point.attributes for _, point in counter.points())
    assert attributes == {
        names.RAY_FUNCTION: "Actor.step",
        names.RAY_ACTOR_CLASS: "Actor",
        names.RAY_ACTOR_METHOD: "step",
    }


def test_the_queue_time_is_known_whichever_span_is_read_first(process: Process) -> None:
    """A worker's spool may be read before that of the driver."""
    process.execute(1, at=T0 + 5 * MS)
    process.submit(1, at=T0)
    process.submit(2, at=T0)
    process.execute(2, at=T0 + 5 * MS)
    assert counted(process.batches())[WAITED, "module.work", ""] == (2, 10)


def test_an_execution_whose_submission_is_elsewhere_has_no_queue_time(process: Process) -> None:
    process.execute(1, at=T0)
    assert counted(process.batches()) == {(RAN, "module.work", ""): (1, 1)}


def test_a_submission_by_a_clock_that_is_ahead_makes_no_negative_time(process: Process) -> None:
    process.execute(1, at=T0, submitted=T0 + 5 * MS)
    process.execute(2, at=T0, took=0, submitted=T0 + 5 * MS)
    assert counted(process.batches())[WAITED, "module.work", ""] == (2, 0)


@pytest.mark.parametrize("reason", [FAILED, SLOW], ids=["failed", "slow"])
def test_what_is_kept_of_traces_that_are_not_sampled_is_not_counted(process: Process, reason: bytes) -> None:
    """The calls that were dropped are missing: by what is left every call would seem to fail, or to be slow."""
    process.submit(1, at=T0)
    process.execute(1, at=T0 + MS)
    kept = [Batch(batch.resource, batch.scope, [span + reason for span in batch.spans]) for batch in process.batches()]
    assert kept
    assert counted(kept) == {}


def test_what_failed_has_its_error_and_a_retry_is_counted_and_waits_for_nothing(process: Process) -> None:
    process.submit(1, at=T0)
    first = process.begin(1, at=T0 + MS)
    first.fail(ValueError("no"), None)
    first.end(T0 + 2 * MS)
    process.execute(1, at=T0 + 9 * MS, attempt=1)
    process.execute(1, at=T0 + 9 * MS, attempt=2, submitted=T0)
    assert counted(process.batches()) == {
        (SUBMITTED, "module.work", ""): (1, 1),
        (RAN, "module.work", "ValueError"): (1, 1),
        (WAITED, "module.work", ""): (1, 1),
        (RETRIED, "module.work", ""): 2,
        (RAN, "module.work", ""): (2, 2),
    }


def test_a_failure_that_does_not_say_how_is_another_one(process: Process) -> None:
    """As the conventions want it, where only the status was set."""
    span = process.begin(1, at=T0)
    span.set_status(trace.StatusCode.ERROR, "bad")
    span.end(T0 + MS)
    assert counted(process.batches()) == {(RAN, "module.work", "_OTHER"): (1, 1)}


def test_a_call_that_ray_refused_never_waits(process: Process) -> None:
    error = encode.attribute(names.ERROR_TYPE, "TypeError") + encode.status(encode.STATUS_ERROR, "no")
    process.submit(1, at=T0, additions=error)
    assert counted(process.batches()) == {(SUBMITTED, "module.work", "TypeError"): (1, 1)}


def everything(process: Process) -> None:
    """CallMeter with all that a span can have."""
    process.submit(1, at=T0)
    span = process.begin(1, at=T0 + MS, method="step")
    span.set_attribute("text", "x" * 300)
    span.set_attribute(names.RAY_ATTEMPT, "mine")
    span.update_name("mine")
    span.add_event("event", {"a": 1})
    span.add_link(trace.SpanContext(1, 2, is_remote=False))
    span.end(T0 + 3 * MS)
    process.execute(2, at=T0 + MS, submitted=T0, state="vendor=1")
    process.execute(3, at=T0 + MS, submitted=T0, method="step")
    process.begin(4, at=T0).fail(KeyError("x"), None)
    failed = process.begin(5, at=T0)
    failed.fail(KeyError("x"), None)
    failed.end(T0 + MS)


def test_what_is_skipped_in_a_span_does_not_matter(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comes out where each span is decoded as a whole."""
    everything(process)
    batches = process.batches()
    quick = counted(batches)
    decoded: Callable[..., None] = CallMeter._decoded
    monkeypatch.setattr(CallMeter, "_span", decoded)
    assert len(quick) >= 5
    assert counted(batches) == quick


def test_only_few_spans_are_decoded_as_a_whole(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the fast path would never be taken: the assumed layout of spans must hold."""
    process.submit(1, at=T0)
    process.submit(2, at=T0, method="step")
    process.execute(1, at=T0)
    process.execute(2, at=T0, method="step", submitted=T0)
    process.execute(3, at=T0, attempt=1)
    monkeypatch.setattr(CallMeter, "_decoded", None)
    assert len(counted(process.batches())) == 7


def test_other_spans_are_passed_over(tmp_path: Path) -> None:
    """Those of other scopes, of drivers and of waiting."""
    other = Process(tmp_path / "other", scope="users")
    other.execute(1, at=T0)
    ours = Process(tmp_path / "ours")
    for name in (names.driver_name("x.py"), "ray.get"):
        ours.recorder.start(Template(name, 1, WHEREABOUTS), TRACE, 3, None, TASK, T0).end()
    ours.recorder.start(Template(name, 1, {}), TRACE, 3, None, b"", T0).end()
    assert counted(other.batches() + ours.batches()) == {}


def test_spans_that_make_no_sense_are_counted_and_the_others_taken(process: Process) -> None:
    process.execute(1, at=T0)
    (batch,) = process.batches()
    counter = Counted()
    bad = [b"", b"\x0a\x10", batch.spans[0][:60], batch.spans[0][:-1], bytes(100)]
    assert counter.calls.read([batch._replace(spans=[*bad, *batch.spans])]) == len(bad)
    ((_, point),) = counter.points()
    assert point.count == 1


@pytest.mark.parametrize(("wanted", "named"), [("trace_based", [2]), ("always_off", [])])
def test_the_longest_of_a_portion_is_an_exemplar(process: Process, wanted: str, named: list[int]) -> None:
    """By the ids of its span."""
    for number, took in ((1, 5), (2, 9), (3, 7)):
        process.submit(number, at=T0, took=took * MS)
    counter, batches = Counted(wanted), process.batches()
    assert counter.calls.read(batches) == 0
    ((_, point),) = counter.points()
    assert (point.count, point.min, point.max) == (3, 0.005, 0.009)
    spans = {decode_span(span).span_id: number for number, span in enumerate(batches[0].spans, 1)}
    assert [spans[exemplar.span_id.to_bytes(8, "big")] for exemplar in point.exemplars] == named
    assert {exemplar.trace_id for exemplar in point.exemplars} <= {int.from_bytes(TRACE, "big")}


def test_every_resource_has_a_meter(tmp_path: Path) -> None:
    counter = Counted()
    for number in range(2):
        process = Process(tmp_path / str(number), {"service.name": f"job {number}"})
        process.execute(1, at=T0)
        counter.calls.read(process.batches())
    assert [point.count for _, point in counter.points()] == [1, 1]


def test_no_more_is_remembered_of_calls_than_so_many(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of submissions that never run, and of executions that were submitted elsewhere."""
    monkeypatch.setattr(calls_module, "_MOST_SUBMISSIONS", 10)
    monkeypatch.setattr(calls_module, "_MOST_EXECUTIONS", 10)
    calls = Counted().calls
    for number in range(1000):
        process.submit(number, at=T0)
        process.execute(number + 5000, at=T0)
    calls.read(process.batches())
    for recent in (calls._submissions, calls._executions):
        assert 10 <= len(recent._newer) + len(recent._older) <= 20
