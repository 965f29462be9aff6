"""A generation of an LLM engine is one span: what it has, and when it ends, however the engine ends the request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llm_stand_ins import OutputProcessor, Reason, request, several, timed
from opentelemetry import trace
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks._libraries import LLM
from ray_tracing_hooks._ray import libraries, tracing
from ray_tracing_hooks._ray.llm import engine
from ray_tracing_hooks._ray.tracing import GenerationOptions, Tracing
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._safety.patching import Patches

ERROR = 2

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


def told(span: trace_pb2.Span) -> Told:
    return {
        each.key: (
            [value.string_value for value in each.value.array_value.values]
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
