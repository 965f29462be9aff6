"""Agents whose libraries ``RAY_TRACING_INSTRUMENT`` names: in tasks and actors, with tools in threads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import installed
import pytest
from http_server import Answer, Request, http_server
from support import HOOK, path_with, run_program, spans_in, tree

pytestmark = pytest.mark.slow  # it imports the libraries of three agents

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def completion(request: Request, number: int) -> Answer:
    """The answer to a request for a chat completion: it asks for each tool, and is done once it has their results."""
    asked = json.loads(request.body)
    said: dict[str, Any] = {"role": "assistant", "content": "done"}
    if asked["messages"][-1]["role"] != "tool":
        called = [{"name": tool["function"]["name"], "arguments": '{"word": "a"}'} for tool in asked["tools"]]
        calls = [
            {"index": each, "id": f"call_{each}", "type": "function", "function": call}
            for each, call in enumerate(called)
        ]
        said = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {"id": f"chatcmpl-{number}", "created": 1, "model": asked["model"], "usage": USAGE}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in said else "stop"}
    if not asked.get("stream"):
        body = json.dumps({**answer, "object": "chat.completion", "choices": [{**choice, "message": said}]})
        return Answer(body=body.encode(), headers={"Content-Type": "application/json"})
    parts: list[dict[str, Any]] = [{"choices": [{**choice, "delta": said}], "usage": None}, {"choices": []}]
    chunks = [json.dumps({**answer, "object": "chat.completion.chunk", **part}) for part in parts]
    body = "".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]"))
    return Answer(body=body.encode(), headers={"Content-Type": "text/event-stream"})


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """The address of a server of chat completions, and the ``traceparent`` of each request."""
    heard: list[str] = []

    def answer(request: Request) -> Answer:
        heard.append(request.headers.get("traceparent", ""))
        return completion(request, len(heard))

    with http_server(answer) as url:
        yield url, heard


def test_agents_and_their_tools_are_in_the_trace(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    """And so is each request that reaches the server. Each worker has the instrumentation that it was given."""
    address, heard = server
    run = run_program(
        "agents",
        address,
        PYTHONPATH=path_with(installed.folder("agents")),
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(tmp_path),
        RAY_TRACING_THREADS="1",
    )
    assert run.result == ["done"] * 3, run.stderr
    spans = spans_in(tmp_path)
    assert tree(spans) == AGENTS.strip()
    requests = {f"{span.trace_id}-{span.span_id}" for span in spans if span.name == "POST"}
    assert {each[3:-3] for each in heard} == requests
    chats = [span.attributes for span in spans if span.name.startswith("chat ")]
    assert {each["gen_ai.usage.input_tokens"] for each in chats} == {7}


BY_FRAMEWORK = """
{0}.__init__ call
{0}.run call
  invoke_agent helper
    chat gpt-4o-mini x2
      POST
    execute_tool four
      __main__.look_up call
    execute_tool one
      __main__.look_up call
    execute_tool three
      __main__.look_up call
    execute_tool two
      __main__.look_up call"""

AGENTS = f"""{BY_FRAMEWORK.format("LangChain")}{BY_FRAMEWORK.format("LlamaIndex")}
__main__.by_hand call
  __main__.look_up call x4
  chat gpt-4o-mini x2
    POST
"""
