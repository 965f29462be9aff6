"""An OpenAI-compatible chat application on Ray Serve, which streams tokens: one trace for each request.

The model is a stand-in: it repeats your words in reverse order, one every 20 ms, so it needs no GPU and no download.
Put your engine into ``Model``. Clients have to ask for a stream, such as that of the package ``openai``, with
``OpenAI(base_url="http://localhost:8000/v1", api_key="none")``.

    pip install 'ray[serve]' requests
    python examples/llm_app.py
    ray-tracing-hooks tree

You see the request, the span ``chat stand-in`` with its tokens in attributes of OpenTelemetry's GenAI conventions, and
the engine's ``prefill`` and ``decode``.
"""

import asyncio
import json
import os

import ray
import requests
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from opentelemetry import trace
from ray import serve

tracer = trace.get_tracer("llm")
PORT = int(os.environ.get("PORT", "8000"))
api = FastAPI()


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Model:
    async def generate(self, prompt):
        with tracer.start_as_current_span("prefill"):
            await asyncio.sleep(0.05)
        with tracer.start_as_current_span("decode"):
            for word in reversed(prompt.split()):
                await asyncio.sleep(0.02)
                yield f"{word} "


@serve.deployment(ray_actor_options={"num_cpus": 0})
@serve.ingress(api)
class Chat:
    def __init__(self, model):
        self.model = model.options(stream=True)

    @api.post("/v1/chat/completions")
    async def complete(self, request: Request):
        body = await request.json()
        return StreamingResponse(self.events(body["model"], body["messages"]), media_type="text/event-stream")

    async def events(self, model, messages):
        prompt = " ".join(message["content"] for message in messages)
        about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        with tracer.start_as_current_span(f"chat {model}", attributes=about) as span:
            tokens = 0
            async for token in self.model.generate.remote(prompt):
                if not tokens:
                    span.add_event("first token")
                tokens += 1
                chunk = {"object": "chat.completion.chunk", "model": model, "choices": [{"delta": {"content": token}}]}
                yield f"data: {json.dumps(chunk)}\n\n"
            span.set_attribute("gen_ai.usage.input_tokens", len(prompt.split()))
            span.set_attribute("gen_ai.usage.output_tokens", tokens)
        yield "data: [DONE]\n\n"


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    serve.start(http_options={"port": PORT})
    serve.run(Chat.bind(Model.bind()))
    messages = [{"role": "user", "content": "go time the does where"}]
    question = {"model": "stand-in", "stream": True, "messages": messages}
    answer = requests.post(f"http://127.0.0.1:{PORT}/v1/chat/completions", json=question, stream=True, timeout=60)
    for line in answer.iter_lines():
        if line.startswith(b"data: {"):
            print(json.loads(line[6:])["choices"][0]["delta"]["content"], end="", flush=True)
    print()
    serve.shutdown()
