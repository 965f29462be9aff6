"""A generation of an LLM engine is one span: what it has, and when it ends, however the engine ends the request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llm_stand_ins import OutputProcessor, Reason, request, several, timed
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._libraries import LLM
from ray_tracing_hooks._ray import libraries, rates, tracing
from ray_tracing_hooks._ray.llm import content, engine
from ray_tracing_hooks._ray.rates import RateLimits
from ray_tracing_hooks._ray.tracing import GenerationOptions, Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._safety.patching import Patches

ERROR, CONSUMER = 2, 5

Told = dict[str, Any]


class Front:
    """An engine's front end in a worker that is traced, and the spans that have been recorded."""

    def __init__(self, folder: Path, active: Tracing, processor: type[OutputProcessor]) -> None:
        self.active, self._folder, self._processor = active, folder, processor

    def processor(self, **options: Any) -> OutputProcessor:
        made = self._processor(**options)
        engine.note_model(SimpleNamespace(output_processor=made), "tiny")
        return made

    def spans(self) -> list[trace_pb2.Span]:
        return list(spooled_spans(self._folder))

    def told(self) -> list[tuple[str, Told]]:
        """The names and attributes of the spans that have ended."""
        return [(span.name, told(span)) for span in self.spans()]

    def limit(self, **rates: float) -> None:
        """Limit how many generations, by patterns of their names, are spans in a second."""
        self.active.rate_limits = RateLimits(tuple(rates.items()))


def told(span: trace_pb2.Span) -> Told:
    return {
        each.key: (
            [getattr(value, str(value.WhichOneof("value"))) for value in each.value.array_value.values]
            if each.value.WhichOneof("value") == "array_value"
            else getattr(each.value, str(each.value.WhichOneof("value")))
        )
        for each in span.attributes
        if each.key.startswith(("gen_ai.", "ray.llm.", "error."))
    }


@pytest.fixture
def patches() -> Iterator[Patches]:
    made = Patches()
    yield made
    made.undo()


@pytest.fixture
def front(tmp_path: Path, patches: Patches, monkeypatch: pytest.MonkeyPatch) -> Front:
    processor = type("OutputProcessor", (OutputProcessor,), dict(vars(OutputProcessor)))
    monkeypatch.setitem(sys.modules, engine._PROCESSOR, SimpleNamespace(OutputProcessor=processor))
    active = tracing_of(tmp_path)
    monkeypatch.setattr(tracing, "active", active)
    assert engine.patch(patches)
    return Front(tmp_path, active, processor)


def test_a_generation_has_what_the_engine_says_of_it(front: Front) -> None:
    processor, asked = front.processor(), request("chatcmpl-1", prompt=23, seed=3)
    processor.add_request(asked, "secret")
    timed(processor, asked.request_id, 0.0, 0.25, 0.75, 2.75)
    state = processor.request_states[asked.request_id]
    state.stats.first_token_latency, state.num_cached_tokens = 0.8, 16
    processor.process_outputs(asked.request_id, 24, Reason.LENGTH)
    (span,) = front.spans()
    assert (span.name, span.status.code) == ("chat tiny", 0)
    assert span.start_time_unix_nano == int(asked.arrival_time * 1e9)
    found = told(span)
    assert 0 <= found.pop("ray.llm.time_to_queue") <= (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    latency = {key: found.pop(key) for key in list(found) if key.startswith("gen_ai.latency.")}
    assert latency == pytest.approx(
        {
            "gen_ai.latency.time_in_queue": 0.25,
            "gen_ai.latency.time_in_model_prefill": 0.5,
            "gen_ai.latency.time_in_model_decode": 2.0,
        }
    )
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 16,
        "gen_ai.request.seed": 3,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.response.time_to_first_chunk": 0.8,
        "gen_ai.usage.input_tokens": 23,
        "gen_ai.usage.output_tokens": 24,
        "gen_ai.usage.cache_read.input_tokens": 16,
    }


@pytest.mark.parametrize(
    ("name", "is_pooled", "server", "expected"),
    [
        ("chatcmpl-1", False, "", "chat tiny"),
        ("cmpl-1-0", False, "", "text_completion tiny"),
        ("embd-1", True, "", "embeddings tiny"),
        ("17", False, "", "text_completion tiny"),
        ("17", True, "", "embeddings tiny"),
        ("17", True, "score", "score tiny"),
    ],
)
def test_the_operation_is_that_of_the_server_or_of_the_id(
    front: Front, name: str, is_pooled: bool, server: str, expected: str
) -> None:
    processor, asked = front.processor(), request(name)
    if is_pooled:
        asked.sampling_params = None
    token = engine.operation.set(server)
    try:
        processor.add_request(asked)
    finally:
        engine.operation.reset(token)
    processor.process_outputs(asked.request_id, 0, Reason.STOP)
    assert [span.name for span in front.spans()] == [expected]


def test_several_completions_are_one_generation_with_its_prompt_counted_once(front: Front) -> None:
    processor = front.processor()
    first, second = several(processor, "chatcmpl-1", 2)
    for request_id, moments in ((first, (0.0, 0.5, 1.0, 2.0)), (second, (0.0, 0.75, 1.5, 3.0))):
        timed(processor, request_id, *moments)
    processor.process_outputs(first, 4, Reason.STOP)
    assert front.told() == []
    processor.process_outputs(second, 5, Reason.LENGTH)
    ((_, found),) = front.told()
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (7, 9)
    assert found["gen_ai.request.choice.count"] == 2
    assert found["gen_ai.response.finish_reasons"] == ["stop", "length"]
    assert found["gen_ai.latency.time_in_model_decode"] == pytest.approx(2.0, abs=0.1)


def test_in_a_replica_the_deployment_is_told(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(deployment="LLMServer:tiny")
    monkeypatch.setitem(sys.modules, "ray.serve.context", SimpleNamespace(_get_internal_replica_context=lambda: here))
    processor, asked = front.processor(), request("chatcmpl-1")
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 1, Reason.STOP)
    (span,) = front.spans()
    deployment = [each.value.string_value for each in span.attributes if each.key == "ray.serve.deployment"]
    assert deployment == ["LLMServer:tiny"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_client_that_leaves_is_no_error(front: Front, count: int) -> None:
    processor = front.processor()
    if count == 1:
        processor.add_request(request("chatcmpl-1"))
    else:
        several(processor, "chatcmpl-1", count)
    assert processor.abort_requests(["chatcmpl-1-internal"], internal=True)
    (span,) = front.spans()
    assert (told(span)["gen_ai.response.finish_reasons"], span.status.code) == (["abort"] * count, 0)
    assert told(span)["gen_ai.usage.output_tokens"] == 0
    assert not [key for key in told(span) if "latency" in key], "it was never scheduled, as far as is known"
    assert processor.abort_requests(["chatcmpl-1-internal"], internal=True) == []
    assert len(front.spans()) == 1


def test_several_completions_may_be_aborted_before_all_are_asked_for(front: Front) -> None:
    processor, whole = front.processor(), request("chatcmpl-1", n=3)
    parent = SimpleNamespace(request_id=whole.request_id, sampling_params=whole.sampling_params, children=set())
    processor.add_request(request("chatcmpl-1"), None, parent, 0)
    processor.abort_requests([whole.request_id], internal=True)
    assert len(front.told()) == 1


@pytest.mark.parametrize("reason", [Reason.STOP, Reason.ERROR])
def test_only_an_error_fails_the_span(front: Front, reason: Reason) -> None:
    processor, asked = front.processor(), request("chatcmpl-1")
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 1, reason)
    (span,) = front.spans()
    assert (span.status.code == ERROR, "error.type" in told(span)) == (reason is Reason.ERROR,) * 2


def test_the_death_of_the_engine_ends_all_with_its_error(front: Front) -> None:
    processor = front.processor()
    processor.add_request(request("chatcmpl-1"))
    several(processor, "chatcmpl-2", 2)
    processor.propagate_error(RuntimeError("EngineCore died"))
    assert [(span.status.code, told(span)["error.type"]) for span in front.spans()] == [(ERROR, "RuntimeError")] * 2
    processor.propagate_error(RuntimeError("EngineCore died"))
    assert len(front.spans()) == 2


def test_a_request_that_the_engine_refuses_fails_as_it_does_without(front: Front) -> None:
    processor, asked = front.processor(), request("chatcmpl-1")
    asked.fails = True
    with pytest.raises(ValueError, match="no such request"):
        processor.add_request(asked)
    assert [span.status.code for span in front.spans()] == [ERROR]


def test_more_input_for_a_request_is_no_other_generation(front: Front) -> None:
    processor, asked = front.processor(), request("1")
    for resumable in (True, True, False):
        asked.resumable = resumable
        processor.add_request(asked)
    assert [name for name, _ in front.told()] == ["text_completion tiny"]


def test_embeddings_are_only_prefilled(front: Front) -> None:
    processor, asked = front.processor(), request("embd-1")
    asked.sampling_params = None
    processor.add_request(asked)
    timed(processor, asked.request_id, 0.0, 0.25, 0.75, 0.75)
    processor.process_outputs(asked.request_id, 0, Reason.STOP)
    ((_, found),) = front.told()
    latency = {key.rpartition("_")[2] for key in found if key.startswith("gen_ai.latency")}
    assert (latency, found["gen_ai.usage.output_tokens"]) == ({"queue", "prefill"}, 0)
    assert "gen_ai.response.time_to_first_chunk" not in found


def test_without_statistics_tokens_are_counted_and_nothing_is_timed(front: Front) -> None:
    processor, asked = front.processor(log_stats=False), request("1")
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 3, Reason.STOP)
    ((_, found),) = front.told()
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (7, 3)
    assert not [key for key in found if key.startswith(("gen_ai.latency", "ray.llm")) or "time_to" in key]


def test_the_prefill_for_another_engine_counts_no_usage(front: Front) -> None:
    processor = front.processor()
    asked = request("chatcmpl-1", extra_args={"kv_transfer_params": {"do_remote_decode": True}})
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 1, Reason.LENGTH)
    ((name, found),) = front.told()
    assert name == "prefill tiny"
    assert (found["ray.llm.prefill.input_tokens"], found["ray.llm.prefill.output_tokens"]) == (7, 1)
    assert not [key for key in found if key.startswith(("gen_ai.usage", "gen_ai.operation"))]


def test_the_parent_is_the_span_of_the_caller_and_not_that_of_the_engine(front: Front) -> None:
    processor, asked = front.processor(), request("1")
    template = front.active.templates.of_waiting("caller")
    caller = front.active.recorder.start(template, bytes(range(16)), 3, None)
    within(caller, lambda: processor.add_request(asked))
    engines = front.active.recorder.start(front.active.templates.of_waiting("first"), bytes(range(1, 17)), 3, None)
    within(engines, lambda: processor.process_outputs(asked.request_id, 1, Reason.STOP))
    (generation,) = front.spans()
    assert (generation.trace_id, generation.parent_span_id) == (caller.trace_id, caller.span_id)
    caller.end()
    engines.end()


def within(span: Any, call: Callable[[], None]) -> None:
    token = attach(trace.set_span_in_context(span))
    try:
        call()
    finally:
        detach(token)


@pytest.mark.parametrize("is_on", [True, False])
def test_only_who_switched_on_the_engines_own_tracing_sends_headers_to_its_core(front: Front, is_on: bool) -> None:
    processor, asked = front.processor(tracing_enabled=is_on), request("1")
    processor.add_request(asked)
    children = several(processor, "2", 2)
    for request_id in (asked.request_id, *children):
        processor.process_outputs(request_id, 1, Reason.STOP)
    ids = [f"00-{span.trace_id.hex()}-{span.span_id.hex()}-03" for span in front.spans()]
    expected = [{"traceparent": each} for each in (ids[0], ids[1], ids[1])] if is_on else [None] * 3
    assert processor.headers == expected


def test_the_phases_are_spans_on_request(front: Front) -> None:
    front.active.llm = GenerationOptions(phases=True)
    processor, asked = front.processor(), request("1")
    processor.add_request(asked)
    timed(processor, asked.request_id, 0.0, 0.25, 0.75, 2.75)
    processor.process_outputs(asked.request_id, 1, Reason.STOP)
    *phases, generation = front.spans()
    assert [span.name for span in phases] == ["queue", "prefill", "decode"]
    assert {span.parent_span_id for span in phases} == {generation.span_id}
    assert [told(span) for span in phases] == [{}] * 3
    begun = phases[0].start_time_unix_nano - generation.start_time_unix_nano
    assert begun / 1e9 == pytest.approx(told(generation)["ray.llm.time_to_queue"], abs=1e-3)
    assert [(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 for span in phases] == pytest.approx(
        [0.25, 0.5, 2.0], abs=1e-3
    )


def test_the_times_of_a_core_on_another_machine_are_only_compared_with_each_other(front: Front) -> None:
    front.active.llm = GenerationOptions(phases=True)
    processor, asked = front.processor(), request("1")
    processor.add_request(asked)
    timed(processor, asked.request_id, -5000.0, -4999.5, -4999.0, -4998.0)
    processor.process_outputs(asked.request_id, 1, Reason.STOP)
    *phases, generation = front.spans()
    found = told(generation)
    assert "ray.llm.time_to_queue" not in found
    assert found["gen_ai.latency.time_in_queue"] == pytest.approx(0.5)
    assert abs(phases[0].start_time_unix_nano - generation.start_time_unix_nano) < 1e6


def test_tokens_may_be_counted_under_other_names(front: Front) -> None:
    front.active.llm = GenerationOptions(usage=False)
    processor, asked = front.processor(), request("1")
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 3, Reason.STOP)
    ((_, found),) = front.told()
    assert (found["ray.llm.input_tokens"], found["ray.llm.output_tokens"]) == (7, 3)
    assert not [key for key in found if key.startswith("gen_ai.usage")]


@pytest.mark.parametrize("missing", ["add_request", "_update_stats_from_finished", "abort_requests", "propagate_error"])
def test_an_engine_that_lacks_a_method_is_told_and_runs_without_generations(
    tmp_path: Path, patches: Patches, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    members = {name: value for name, value in vars(OutputProcessor).items() if name != missing}
    processor = type("OutputProcessor", (), members)
    monkeypatch.setitem(sys.modules, engine._PROCESSOR, SimpleNamespace(OutputProcessor=processor))
    active = tracing_of(tmp_path)
    monkeypatch.setattr(tracing, "active", active)
    assert not engine.patch(patches)
    front = Front(tmp_path, active, processor)
    if missing != "add_request":
        front.processor().add_request(request("1"))
        assert engine._open == {}
    assert front.told() == []


@pytest.mark.parametrize("served", ["tiny", ["tiny", "other"]])
def test_the_model_is_that_of_the_engine(
    front: Front, patches: Patches, monkeypatch: pytest.MonkeyPatch, served: Any
) -> None:
    class AsyncLLM:
        def __init__(self, served: Any, processor: OutputProcessor) -> None:
            self.vllm_config = SimpleNamespace(model_config=SimpleNamespace(served_model_name=served))
            self.output_processor = processor

    monkeypatch.setitem(sys.modules, "vllm.v1.engine.async_llm", SimpleNamespace(AsyncLLM=AsyncLLM))
    row = next(each for each in LLM.wraps if each.wrappers == "ASYNC_ENGINE")
    libraries.instrument(LLM.part, row, patches, "2.60.0")
    processor = front._processor()
    AsyncLLM(served, processor)
    asked = request("1")
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 1, Reason.STOP)
    assert [name for name, _ in front.told()] == ["text_completion tiny"]


def test_a_fault_of_tracing_does_not_reach_the_engine(front: Front, reports: list[str]) -> None:
    processor, asked = front.processor(), request("1")
    asked.sampling_params = object()
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 1, Reason.STOP)
    assert len(reports) == 1
    assert front.told() == []


def test_the_version_of_an_engine_that_has_changed_is_reported(
    patches: Patches, monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.99"))
    monkeypatch.setitem(sys.modules, engine._PROCESSOR, SimpleNamespace(OutputProcessor=object))
    row = next(each for each in LLM.wraps if each.of == engine._PROCESSOR)
    libraries.instrument(LLM.part, row, patches, "2.60.0")
    assert reports == [f"{row.lost}: vllm 0.99 has changed the code that this package wraps"]


def test_a_generation_ends_if_its_first_completion_had_ended_before_all_were_asked_for(front: Front) -> None:
    processor, whole = front.processor(), request("chatcmpl-1", n=2)
    parent = SimpleNamespace(request_id=whole.request_id, sampling_params=whole.sampling_params, children=set())
    child = request("chatcmpl-1")
    child.request_id = "0_chatcmpl-1-internal"
    processor.add_request(child, None, parent, 0)
    processor.process_outputs(child.request_id, 3, Reason.STOP)
    assert front.told() == []
    processor.abort_requests([whole.request_id], internal=True)
    assert len(front.told()) == 1
    assert not engine._open[processor]


def test_what_a_request_lacks_is_left_out(front: Front) -> None:
    processor = front.processor()
    del processor.tracing_enabled
    asked = request("chatcmpl-1", temperature=None, top_p=None)
    processor.add_request(asked)
    processor.process_outputs(asked.request_id, 1, Reason.STOP)
    ((_, found),) = front.told()
    assert "gen_ai.request.temperature" not in found


# What the generations of a call add up to on its execution, also those without a span.


def generate(
    processor: OutputProcessor, number: int, *, tokens: int, queued: float = 0.001, fails: bool = False
) -> None:
    asked = request(f"cmpl-{number}", prompt=7)
    processor.add_request(asked, "secret")
    timed(processor, asked.request_id, 0.0, queued, queued + 0.1, queued + 0.2)
    processor.request_states[asked.request_id].stats.first_token_latency = queued + 0.1
    processor.process_outputs(asked.request_id, tokens, Reason.ERROR if fails else Reason.LENGTH)


def run(front: Front, count: int) -> None:
    """A call with so many generations."""
    recorder, processor = front.active.recorder, front.processor()
    trace_id, flags = recorder.decide(None)
    execution = recorder.start(Template("f ray.remote_worker", CONSUMER, {}), trace_id, flags, None, b"", None)
    token = attach(Context({SPAN_KEY: execution}))
    for number in range(count):
        generate(processor, number, tokens=3, queued=0.001 if number else 2.0)
    detach(token)
    execution.end()


def named(front: Front, name: str) -> list[trace_pb2.Span]:
    return [span for span in front.spans() if span.name == name]


def test_an_execution_has_the_sums_of_its_generations(front: Front) -> None:
    """The times are in buckets of which each is 9 % longer than the one before: 1 ms, 0.1 s, 2 s and 2.1 s."""
    run(front, 10)
    (execution,) = named(front, "f ray.remote_worker")
    assert told(execution) == {
        "ray.llm.generations": 10,
        "ray.llm.total.input_tokens": 70,
        "ray.llm.total.output_tokens": 30,
        "ray.llm.total.cached_tokens": 0,
        "ray.llm.time_to_first_chunk.buckets": [132, 9, 168, 1],
        "ray.llm.time_in_queue.buckets": [79, 9, 167, 1],
    }
    assert len(named(front, "text_completion tiny")) == 10


def test_a_rate_limit_leaves_out_spans_and_the_sums_have_all(front: Front) -> None:
    front.limit(**{"text_completion *": 2})
    run(front, 10)
    (execution,) = named(front, "f ray.remote_worker")
    assert told(execution)["ray.llm.generations"] == 10
    assert told(execution)["ray.llm.total.output_tokens"] == 30
    assert 1 <= len(named(front, "text_completion tiny")) <= 3


def test_generations_left_out_are_counted_by_the_next_one_that_is_recorded(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As calls that a limit leaves out are."""
    clock = [10**9]
    monkeypatch.setattr(rates, "monotonic_ns", lambda: clock[0])
    front.limit(**{"*": 1})
    processor = front.processor()
    for number in range(4):
        clock[0] += 10**9 if number == 3 else 0
        generate(processor, number, tokens=3)
    counts = [
        [each.value.int_value for each in span.attributes if each.key == names.RAY_LEFT_OUT]
        for span in named(front, "text_completion tiny")
    ]
    assert counts == [[], [2]]


def test_generations_of_traces_that_are_not_sampled_take_nothing_from_the_limit(front: Front) -> None:
    front.limit(**{"*": 1})
    processor = front.processor()
    unsampled = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    token = attach(Context({SPAN_KEY: unsampled}))
    generate(processor, 1, tokens=3)
    detach(token)
    generate(processor, 2, tokens=3)
    (generation,) = named(front, "text_completion tiny")
    assert names.RAY_LEFT_OUT not in {each.key for each in generation.attributes}


def test_a_generation_of_several_requests_is_left_out_as_one(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """If some of its requests were recorded, its span would wait for the others."""
    clock = [10**9]
    monkeypatch.setattr(rates, "monotonic_ns", lambda: clock[0])
    front.limit(**{"*": 1})
    processor = front.processor()
    generate(processor, 1, tokens=3)
    for request_id in several(processor, "cmpl-2", 3):
        processor.process_outputs(request_id, 1, Reason.STOP)
    clock[0] += 10**9
    generate(processor, 3, tokens=3)
    first, last = named(front, "text_completion tiny")
    assert [each.value.int_value for each in last.attributes if each.key == names.RAY_LEFT_OUT] == [1]
    assert names.RAY_LEFT_OUT not in {each.key for each in first.attributes}


# Prompts and completions are on the span only if the user asks for them; redacted, and cut.

KEYS = names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES


class Asking(Front):
    """The same, which answers with a text, where prompts and completions are recorded."""

    def ask(self, prompt: Any, answer: str = "fine", **parameters: Any) -> tuple[Any, Any]:
        """What is recorded of the prompt and of the completion: JSON, or None."""
        asked, processor = request("chatcmpl-1", **parameters), self.processor()
        processor.add_request(asked, prompt)
        processor.request_states[asked.request_id].detokenizer.output_text = answer
        processor.process_outputs(asked.request_id, 3, Reason.STOP)
        return self.recorded()

    def recorded(self) -> tuple[Any, Any]:
        (span,) = self.spans()
        told = {each.key: json.loads(each.value.string_value) for each in span.attributes if each.key in KEYS}
        return told.get(KEYS[0]), told.get(KEYS[1])


@pytest.fixture
def asking(front: Front, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    monkeypatch.setenv(content.CAPTURE, "true")
    token = content.messages.set(None)
    yield Asking(front._folder, front.active, front._processor)
    content.messages.reset(token)


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


@pytest.mark.parametrize("value", ["true", "True", "SPAN_ONLY", "span_and_event"])
def test_prompt_and_completion_are_messages_in_the_form_of_the_conventions(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(content.CAPTURE, value)
    asked, answered = asking.ask("Who are you?", "A model.")
    assert asked == [said("user", "Who are you?")]
    assert answered == [{**said("assistant", "A model."), "finish_reason": "stop"}]


@pytest.mark.parametrize("value", ["", "false", "no_content", "event_only", "yes"])
def test_nothing_of_them_is_recorded_otherwise(asking: Asking, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(content.CAPTURE, value)
    content.messages.set([{"role": "user", "content": "a secret"}])
    assert asking.ask("a secret", "a secret") == (None, None)
    assert b"secret" not in asking.spans()[0].SerializeToString()


def test_the_messages_of_a_chat_keep_their_roles_and_tools(asking: Asking) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content.messages.set(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Is it cold?"}, image]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "-3"},
        ]
    )
    asked, _ = asking.ask("<the template's text>")
    assert asked == [
        said("system", "Be brief."),
        {"role": "user", "parts": [{"type": "text", "content": "Is it cold?"}, {"type": "image_url"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "weather", "arguments": '{"city": "Oslo"}'}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "-3"}]},
    ]


def test_iterators_in_messages_are_left_for_the_engine(asking: Asking) -> None:
    parts = iter([{"type": "text", "text": "a"}])
    content.messages.set([{"role": "user", "content": parts}])
    assert asking.ask("a")[0] == [{"role": "user", "parts": []}]
    assert list(parts) == [{"type": "text", "text": "a"}]


def test_secrets_are_redacted(asking: Asking) -> None:
    asking.active.redact = ("*@example.com*",)
    content.messages.set([{"role": "user", "content": each} for each in ("password: hunter2", "a@example.com", "b")])
    asked, answered = asking.ask("", "The key is sk-abcdefghijklmnop")
    assert [each["parts"][0]["content"] for each in asked] == ["***", "***", "b"]
    assert answered[0]["parts"][0]["content"] == "***"


def test_the_last_messages_are_kept_and_a_cut_is_told(asking: Asking) -> None:
    half = content.MOST_CHARACTERS // 2
    content.messages.set([{"role": "user", "content": each * half} for each in "abc"])
    first, *others = asking.ask("")[0]
    assert first == said("user", f"... ({half:,} characters)")
    assert others == [said("user", each * half) for each in "bc"]


def test_of_very_many_messages_the_earlier_ones_are_counted(asking: Asking) -> None:
    content.messages.set([{"role": "user", "content": str(number)} for number in range(130)])
    asked, _ = asking.ask("")
    assert len(asked) == 100
    assert asked[0]["parts"][0]["content"] == "... (30 earlier messages)"
    assert asked[-1] == said("user", "129")


def test_what_is_no_text_is_bounded_too(asking: Asking) -> None:
    """A client chooses roles, names of tools and numbers of parts."""
    call = {"id": "i" * 1000, "function": {"name": "n" * 1000, "arguments": "{}"}}
    content.messages.set(
        [
            {"role": "r" * 1000, "content": [{"type": "t" * 1000}] * 1000},
            {"role": "assistant", "tool_calls": [call]},
        ]
    )
    first, last = asking.ask("")[0]
    assert (first["role"], len(first["parts"]), first["parts"][0]) == ("r" * 100, 100, {"type": "t" * 100})
    assert last["parts"] == [{"type": "tool_call", "id": "i" * 100, "name": "n" * 100, "arguments": "{}"}]


@pytest.mark.parametrize(("limit", "is_kept"), [(500, True), (20, False)])
def test_the_limit_of_attributes_holds_and_the_json_stays_whole(asking: Asking, limit: int, is_kept: bool) -> None:
    asking.active.recorder.limits = asking.active.recorder.limits._replace(value_length=limit)
    asked, _ = asking.ask("a" * 10_000)
    assert (asked is not None) == is_kept
    if asked is not None:
        assert asked[0]["parts"][0]["content"].endswith("... (10,000 characters)")
        assert len(json.dumps(asked)) <= limit


def test_each_of_several_completions_is_a_message(asking: Asking) -> None:
    processor = asking.processor()
    first, second = several(processor, "chatcmpl-1", 2)
    for request_id, text in ((first, "one"), (second, "two")):
        processor.request_states[request_id].detokenizer.output_text = text
    processor.process_outputs(second, 1, Reason.LENGTH)
    processor.process_outputs(first, 1, Reason.STOP)
    _, answered = asking.recorded()
    assert [(each["parts"][0]["content"], each["finish_reason"]) for each in answered] == [
        ("one", "stop"),
        ("two", "length"),
    ]


def test_the_prefill_for_another_engine_has_none(asking: Asking) -> None:
    assert asking.ask("a", extra_args={"kv_transfer_params": {"do_remote_decode": True}}) == (None, None)


def test_messages_that_cannot_be_read_leave_the_generation_as_it_is(asking: Asking, reports: list[str]) -> None:
    content.messages.set([{"role": "assistant", "tool_calls": [{"id": "1"}]}])
    asked, answered = asking.ask("a")
    assert (asked, answered is not None, len(reports)) == (None, True, 1)
