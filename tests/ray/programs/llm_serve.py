"""Two models behind the API of OpenAI in Ray Serve LLM, and clients that ask for each kind of response.

    python tests/ray/programs/llm_serve.py MODEL RESULT

It runs where vLLM is installed. The result is JSON: what each client got, by its name, with its trace.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from llm_client import ONE, PORT, STREAMED, ask, chat, config
from ray import serve

MODEL, RESULT = sys.argv[1:3]
CROWD = 50


def clients() -> dict[str, Any]:
    found = {"first": ask("chat/completions", chat())}  # it takes longer than all others
    completion = {"model": "tiny", "max_tokens": 16, "ignore_eos": True}
    found["chat"] = ask("chat/completions", chat())
    found["streamed"] = ask("chat/completions", chat(**STREAMED))
    found["completion"] = ask("completions", {**completion, "prompt": "Once upon"})
    found["two prompts"] = ask("completions", {**completion, "prompt": ["Once upon", "A time"]})
    found["n2"] = ask("chat/completions", chat(n=2))
    found["embeddings"] = ask("embeddings", {"model": "tiny-embed", "input": "a text"})
    found["too long"] = ask("chat/completions", chat("x" * 600))
    found["too long, streamed"] = ask("chat/completions", chat("x" * 600, **STREAMED))
    found["unknown model"] = ask("chat/completions", {**chat(), "model": "nobody"})
    found["leaves"] = ask("chat/completions", chat(tokens=400, **STREAMED), leave_after=3)
    with ThreadPoolExecutor(CROWD) as pool:
        bodies = [chat(f"number {i}", 32, **(STREAMED if i % 2 else {})) for i in range(CROWD)]
        found["crowd"] = list(pool.map(lambda body: ask("chat/completions", body), bodies))
    return found


def by_handle(trace: str) -> dict[str, Any]:
    """The same without the API: a call of the server."""
    from opentelemetry import trace as api
    from ray.serve.llm import LLMServingArgs  # noqa: F401  the models of requests need it
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    handle = serve.get_deployment_handle("LLMServer:tiny", "llm").options(stream=True)
    with api.get_tracer("client").start_as_current_span("by handle") as span:
        items = list(handle.chat.remote(ChatCompletionRequest(**chat())))
        return {"trace": f"{span.get_span_context().trace_id:032x}", "usage": {"items": len(items)}}


def main() -> None:
    from ray.serve.llm import build_openai_app

    # Each engine takes a processor in Ray's accounts, and the machine may have fewer.
    ray.init(num_cpus=8, include_dashboard=False, _tracing_startup_hook=os.environ["RTH_HOOK"])
    models = [config("tiny", MODEL), config("tiny-embed", MODEL, runner="pooling", convert="embed")]
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(build_openai_app({"llm_configs": models, "ingress_deployment_config": ONE}), name="llm")
    found = clients()
    print("asked", flush=True)
    try:
        found["by handle"] = by_handle("")
    except Exception as error:  # shown by the test
        found["by handle"] = {"error": repr(error)}
    serve.shutdown()
    ray.shutdown()
    with open(RESULT, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "240")
    main()
