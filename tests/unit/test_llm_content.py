"""Prompts and completions are on the span of a generation only if the user asks for them; redacted, and cut."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from llm_stand_ins import OutputProcessor, Reason, request, several
from opentelemetry.proto.trace.v1 import trace_pb2
from stand_ins import spooled_spans, tracing_of

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.llm import content, engine
from ray_tracing_hooks._safety.patching import Patches

KEYS = names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES


class Front:
    """An engine's front end in a traced worker: answers with a text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.active = tracing_of(folder)
        self.processor: Any = None

    def ask(self, prompt: Any, answer: str = "fine", **parameters: Any) -> tuple[Any, Any]:
        """What is recorded of the prompt and of the completion: JSON, or None."""
        asked = request("chatcmpl-1", **parameters)
        self.processor.add_request(asked, prompt)
        self.processor.request_states[asked.request_id].detokenizer.output_text = answer
        self.processor.process_outputs(asked.request_id, 3, Reason.STOP)
        return self.recorded()

    def recorded(self) -> tuple[Any, Any]:
        (span,) = self.spans()
        told = {each.key: json.loads(each.value.string_value) for each in span.attributes if each.key in KEYS}
        return told.get(KEYS[0]), told.get(KEYS[1])

    def spans(self) -> list[trace_pb2.Span]:
        return list(spooled_spans(self._folder))


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    processor = type("OutputProcessor", (OutputProcessor,), dict(vars(OutputProcessor)))
    monkeypatch.setitem(sys.modules, engine._PROCESSOR, SimpleNamespace(OutputProcessor=processor))
    monkeypatch.setenv(content.CAPTURE, "true")
    patches, made = Patches(), Front(tmp_path)
    monkeypatch.setattr(tracing, "active", made.active)
    assert engine.patch(patches)
    made.processor = processor()
    token = content.messages.set(None)
    yield made
    content.messages.reset(token)
    patches.undo()


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


@pytest.mark.parametrize("value", ["true", "True", "SPAN_ONLY", "span_and_event"])
def test_prompt_and_completion_are_messages_in_the_form_of_the_conventions(
    front: Front, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(content.CAPTURE, value)
    asked, answered = front.ask("Who are you?", "A model.")
    assert asked == [said("user", "Who are you?")]
    assert answered == [{**said("assistant", "A model."), "finish_reason": "stop"}]


@pytest.mark.parametrize("value", ["", "false", "no_content", "event_only", "yes"])
def test_nothing_of_them_is_recorded_otherwise(front: Front, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(content.CAPTURE, value)
    content.messages.set([{"role": "user", "content": "a secret"}])
    assert front.ask("a secret", "a secret") == (None, None)
    assert b"secret" not in front.spans()[0].SerializeToString()


def test_the_messages_of_a_chat_keep_their_roles_and_tools(front: Front) -> None:
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
    asked, _ = front.ask("<the template's text>")
    assert asked == [
        said("system", "Be brief."),
        {"role": "user", "parts": [{"type": "text", "content": "Is it cold?"}, {"type": "image_url"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "weather", "arguments": '{"city": "Oslo"}'}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "-3"}]},
    ]


def test_iterators_in_messages_are_left_for_the_engine(front: Front) -> None:
    parts = iter([{"type": "text", "text": "a"}])
    content.messages.set([{"role": "user", "content": parts}])
    assert front.ask("a")[0] == [{"role": "user", "parts": []}]
    assert list(parts) == [{"type": "text", "text": "a"}]


def test_secrets_are_redacted(front: Front) -> None:
    front.active.redact = ("*@example.com*",)
    content.messages.set([{"role": "user", "content": each} for each in ("password: hunter2", "a@example.com", "b")])
    asked, answered = front.ask("", "The key is sk-abcdefghijklmnop")
    assert [each["parts"][0]["content"] for each in asked] == ["***", "***", "b"]
    assert answered[0]["parts"][0]["content"] == "***"


def test_the_last_messages_are_kept_and_a_cut_is_told(front: Front) -> None:
    half = content.MOST_CHARACTERS // 2
    content.messages.set([{"role": "user", "content": each * half} for each in "abc"])
    first, *others = front.ask("")[0]
    assert first == said("user", f"... ({half:,} characters)")
    assert others == [said("user", each * half) for each in "bc"]


def test_of_very_many_messages_the_earlier_ones_are_counted(front: Front) -> None:
    content.messages.set([{"role": "user", "content": str(number)} for number in range(130)])
    asked, _ = front.ask("")
    assert len(asked) == 100
    assert asked[0]["parts"][0]["content"] == "... (30 earlier messages)"
    assert asked[-1] == said("user", "129")


def test_what_is_no_text_is_bounded_too(front: Front) -> None:
    """A client chooses roles, names of tools and numbers of parts."""
    call = {"id": "i" * 1000, "function": {"name": "n" * 1000, "arguments": "{}"}}
    content.messages.set(
        [
            {"role": "r" * 1000, "content": [{"type": "t" * 1000}] * 1000},
            {"role": "assistant", "tool_calls": [call]},
        ]
    )
    first, last = front.ask("")[0]
    assert (first["role"], len(first["parts"]), first["parts"][0]) == ("r" * 100, 100, {"type": "t" * 100})
    assert last["parts"] == [{"type": "tool_call", "id": "i" * 100, "name": "n" * 100, "arguments": "{}"}]


@pytest.mark.parametrize(("limit", "is_kept"), [(500, True), (20, False)])
def test_the_limit_of_attributes_holds_and_the_json_stays_whole(front: Front, limit: int, is_kept: bool) -> None:
    front.active.recorder.limits = front.active.recorder.limits._replace(value_length=limit)
    asked, _ = front.ask('"' * 10_000)
    assert (asked is not None) == is_kept
    if asked is not None:
        assert asked[0]["parts"][0]["content"].endswith("... (10,000 characters)")
        assert len(json.dumps(asked)) <= limit


def test_each_of_several_completions_is_a_message(front: Front) -> None:
    first, second = several(front.processor, "chatcmpl-1", 2)
    for request_id, text in ((first, "one"), (second, "two")):
        front.processor.request_states[request_id].detokenizer.output_text = text
    front.processor.process_outputs(second, 1, Reason.LENGTH)
    front.processor.process_outputs(first, 1, Reason.STOP)
    _, answered = front.recorded()
    assert [(each["parts"][0]["content"], each["finish_reason"]) for each in answered] == [
        ("one", "stop"),
        ("two", "length"),
    ]


def test_the_prefill_for_another_engine_has_none(front: Front) -> None:
    assert front.ask("a", extra_args={"kv_transfer_params": {"do_remote_decode": True}}) == (None, None)


def test_messages_that_cannot_be_read_leave_the_generation_as_it_is(front: Front, reports: list[str]) -> None:
    content.messages.set([{"role": "assistant", "tool_calls": [{"id": "1"}]}])
    asked, answered = front.ask("a")
    assert (asked, answered is not None, len(reports)) == (None, True, 1)
