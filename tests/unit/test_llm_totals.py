"""What the generations of a call add up to on its execution, also those without a span."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llm_stand_ins import OutputProcessor, Reason, request, several, timed
from opentelemetry.context import Context
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.trace import NonRecordingSpan, SpanContext
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import rates, tracing
from ray_tracing_hooks._ray.llm import engine
from ray_tracing_hooks._ray.rates import RateLimits
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._safety.patching import Patches

CONSUMER = 5


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[OutputProcessor]:
    kind = type("OutputProcessor", (OutputProcessor,), dict(vars(OutputProcessor)))
    monkeypatch.setitem(sys.modules, engine._PROCESSOR, SimpleNamespace(OutputProcessor=kind))
    patches = Patches()
    assert engine.patch(patches)
    made = kind()
    engine.note_model(SimpleNamespace(output_processor=made), "tiny")
    yield made
    patches.undo()


def traced(folder: Path, monkeypatch: pytest.MonkeyPatch, **limits: float) -> Tracing:
    rates = RateLimits(tuple(limits.items())) if limits else None
    active = tracing_of(folder, rate_limits=rates)
    monkeypatch.setattr(tracing, "active", active)
    return active


def generate(
    processor: OutputProcessor, number: int, *, tokens: int, queued: float = 0.001, fails: bool = False
) -> None:
    asked = request(f"cmpl-{number}", prompt=7)
    processor.add_request(asked, "secret")
    timed(processor, asked.request_id, 0.0, queued, queued + 0.1, queued + 0.2)
    processor.request_states[asked.request_id].stats.first_token_latency = queued + 0.1
    processor.process_outputs(asked.request_id, tokens, Reason.ERROR if fails else Reason.LENGTH)


def run(active: Tracing, processor: OutputProcessor, count: int) -> None:
    """A call with so many generations."""
    recorder = active.recorder
    trace_id, flags = recorder.decide(None)
    execution = recorder.start(Template("f ray.remote_worker", CONSUMER, {}), trace_id, flags, None, b"", None)
    token = attach(Context({SPAN_KEY: execution}))
    for number in range(count):
        generate(processor, number, tokens=3, queued=0.001 if number else 2.0)
    detach(token)
    execution.end()


def told(span: trace_pb2.Span) -> dict[str, Any]:
    found = {each.key: each.value for each in span.attributes if each.key.startswith("ray.llm.")}
    return {
        key: [each.int_value for each in value.array_value.values] or value.int_value for key, value in found.items()
    }


def named(folder: Path, name: str) -> list[trace_pb2.Span]:
    return [span for span in spooled_spans(folder) if span.name == name]


def test_an_execution_has_the_sums_of_its_generations(
    processor: OutputProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times are in buckets of which each is 9 % longer than the one before: 1 ms, 0.1 s, 2 s and 2.1 s."""
    run(traced(tmp_path, monkeypatch), processor, 10)
    (execution,) = named(tmp_path, "f ray.remote_worker")
    assert told(execution) == {
        "ray.llm.generations": 10,
        "ray.llm.total.input_tokens": 70,
        "ray.llm.total.output_tokens": 30,
        "ray.llm.total.cached_tokens": 0,
        "ray.llm.time_to_first_chunk.buckets": [132, 9, 168, 1],
        "ray.llm.time_in_queue.buckets": [79, 9, 167, 1],
    }
    assert len(named(tmp_path, "text_completion tiny")) == 10


def test_a_rate_limit_leaves_out_spans_and_the_sums_have_all(
    processor: OutputProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(traced(tmp_path, monkeypatch, **{"text_completion *": 2}), processor, 10)
    (execution,) = named(tmp_path, "f ray.remote_worker")
    assert told(execution)["ray.llm.generations"] == 10
    assert told(execution)["ray.llm.total.output_tokens"] == 30
    assert 1 <= len(named(tmp_path, "text_completion tiny")) <= 3


def test_generations_left_out_are_counted_by_the_next_one_that_is_recorded(
    processor: OutputProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As calls that a limit leaves out are."""
    clock = [10**9]
    monkeypatch.setattr(rates, "monotonic_ns", lambda: clock[0])
    traced(tmp_path, monkeypatch, **{"*": 1})
    for number in range(4):
        clock[0] += 10**9 if number == 3 else 0
        generate(processor, number, tokens=3)
    counts = [
        [each.value.int_value for each in span.attributes if each.key == names.RAY_LEFT_OUT]
        for span in named(tmp_path, "text_completion tiny")
    ]
    assert counts == [[], [2]]


def test_generations_of_traces_that_are_not_sampled_take_nothing_from_the_limit(
    processor: OutputProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(tmp_path, monkeypatch, **{"*": 1})
    unsampled = NonRecordingSpan(SpanContext(1, 2, is_remote=True))
    token = attach(Context({SPAN_KEY: unsampled}))
    generate(processor, 1, tokens=3)
    detach(token)
    generate(processor, 2, tokens=3)
    (generation,) = named(tmp_path, "text_completion tiny")
    assert names.RAY_LEFT_OUT not in {each.key for each in generation.attributes}


def test_a_generation_of_several_requests_is_left_out_as_one(
    processor: OutputProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If some of its requests were recorded, its span would wait for the others."""
    clock = [10**9]
    monkeypatch.setattr(rates, "monotonic_ns", lambda: clock[0])
    traced(tmp_path, monkeypatch, **{"*": 1})
    generate(processor, 1, tokens=3)
    for request_id in several(processor, "cmpl-2", 3):
        processor.process_outputs(request_id, 1, Reason.STOP)
    clock[0] += 10**9
    generate(processor, 3, tokens=3)
    first, last = named(tmp_path, "text_completion tiny")
    assert [each.value.int_value for each in last.attributes if each.key == names.RAY_LEFT_OUT] == [1]
    assert names.RAY_LEFT_OUT not in {each.key for each in first.attributes}
