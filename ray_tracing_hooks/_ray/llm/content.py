"""Prompts and completions, which are recorded only if ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` asks for
it: as messages of parts, in the JSON of OpenTelemetry's conventions.

The messages of a request are read as they are: other kinds of sequences may be iterators, which the engine needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.argument_text import Redactor
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import guarded

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

MOST_CHARACTERS = 32_768
"""Of all texts of an attribute together, the last ones first."""

_MOST_MESSAGES, _MOST_PARTS = 100, 100
"""The last ones of an attribute, and of each message."""

_LONGEST_NAME = 100
"""Of what is no text, such as a role or the name of a tool, which the client chooses too."""

_TEXTS = "content", "arguments", "response"
"""What has text in a part of a message."""

Message = dict[str, Any]

messages: ContextVar[Any] = ContextVar("ray_tracing_hooks_llm_messages", default=None)
"""The messages of the request that this code serves, where a server knows them."""


def is_captured() -> bool:
    """Whether spans have prompts and completions."""
    if not os.environ.get(CAPTURE):
        return False
    from ray_tracing_hooks._settings import otel  # noqa: PLC0415  opt-in

    return otel.read(CAPTURE, os.environ, lambda _problem: None) in otel.CAPTURING


@guarded("recording the messages of a generation")
def note(span: RecordedSpan, active: Tracing, key: str, find: Callable[[], list[Message]]) -> None:
    """Record the messages that ``find`` returns, if it finds any and they come below the limit of attributes."""
    messages_found = find()
    text = _written(messages_found, active) if messages_found else None
    if text is not None:
        span.set_attribute(key, text)


def asked(prompt: Any) -> list[Message]:
    """What a request asks: its messages, else ``prompt``. Empty if there is no text of it."""
    messages_found = messages.get()
    if type(messages_found) is list:
        return [_message(each) for each in messages_found if isinstance(each, dict)]
    return [_of_text("user", prompt)] if type(prompt) is str else []


def answered(completions: Iterable[tuple[str, str]]) -> list[Message]:
    """What it was answered: of each completion its text and why it ended."""
    return [{**_of_text("assistant", text), "finish_reason": reason} for text, reason in completions]


def _written(messages_found: list[Message], active: Tracing) -> str | None:
    """These messages as JSON, redacted and cut; None if it is longer than attributes may be."""
    limit = active.recorder.limits.value_length
    most = MOST_CHARACTERS if limit is None else min(limit // 2, MOST_CHARACTERS)
    text = json.dumps(_cut(messages_found, Redactor(active.redact), most), ensure_ascii=False)
    return text if limit is None or len(text) <= limit else None


def _cut(messages_found: list[Message], redactor: Redactor, left: int) -> list[Message]:
    found: list[Message] = []
    for message in reversed(messages_found[-_MOST_MESSAGES:]):
        parts: list[dict[str, Any]] = []
        for part in reversed(message["parts"][-_MOST_PARTS:]):
            shown = {}
            for key, text in part.items():
                if key in _TEXTS:
                    shown[key] = redactor.text(text, left)
                    left -= min(left, len(text))
                else:
                    shown[key] = text[:_LONGEST_NAME]
            parts.insert(0, shown)
        found.insert(0, {**message, "role": message["role"][:_LONGEST_NAME], "parts": parts})
    if (earlier := len(messages_found) - _MOST_MESSAGES) > 0:
        found[0]["parts"].insert(0, {"type": "text", "content": f"... ({earlier} earlier messages)"})
    return found


def _of_text(role: str, text: str) -> Message:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _message(message: dict[str, Any]) -> Message:
    """A message of OpenAI's API."""
    role, content, calls = str(message.get("role")), message.get("content"), message.get("tool_calls")
    given = [{"type": "text", "text": content}] if type(content) is str else content if type(content) is list else []
    parts = [_part(each) for each in given if isinstance(each, dict)]
    if role == "tool":
        text = "".join(each.get("content", "") for each in parts)
        parts = [{"type": "tool_call_response", "id": str(message.get("tool_call_id")), "response": text}]
    for each in calls if type(calls) is list else []:
        function = each["function"]
        call = {"id": str(each.get("id")), "name": str(function["name"]), "arguments": str(function["arguments"])}
        parts.append({"type": "tool_call", **call})
    return {"role": role, "parts": parts}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a message. What is no text, such as an image, is only named."""
    kind, text = str(part.get("type")), part.get("text")
    return {"type": kind, "content": text} if type(text) is str else {"type": kind}
