"""Two models behind the API of OpenAI in Ray Serve LLM, and clients that ask for each kind of response.

    python tests/ray/programs/llm_serve.py MODEL RESULT

It runs where vLLM is installed. The result is JSON: what each client got, by its name, with its trace.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import serve

MODEL, RESULT = sys.argv[1:3]
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
CROWD = 50


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PORT = free_port()


def ask(path: str, body: dict[str, Any], *, leave_after: int = 0) -> dict[str, Any]:
    """Post a request with a trace of its own; ``leave_after`` so many parts of the response."""
    trace = secrets.token_hex(16)
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01", "content-type": "application/json"}
    began = time.perf_counter()
    connection.request("POST", f"/v1/{path}", json.dumps(body), headers)
    response = connection.getresponse()
    parts = []
    first = 0.0
    while part := response.read1():
        first = first or time.perf_counter() - began
        parts.append(part)
        if len(parts) == leave_after:
            break
    connection.close()
    events = b"".join(parts).decode()
    if body.get("stream"):
        found = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    else:
        found = [json.loads(events)]
    usage = next((each["usage"] for each in reversed(found) if each.get("usage")), None)
    return {
        "trace": trace,
        "status": response.status,
        "first": first,
        "seconds": time.perf_counter() - began,
        "id": found[0].get("id") if found else None,
        "usage": usage and {key: value for key, value in usage.items() if isinstance(value, int)},
    }


def chat(text: str = "Hello, who are you?", tokens: int = 24, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": "tiny", "messages": [message], "max_tokens": tokens, "ignore_eos": True, "seed": 1, **more}


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
    from ray.serve.llm import LLMConfig, build_openai_app

    # Each engine takes a processor in Ray's accounts, and the machine may have fewer.
    ray.init(num_cpus=8, include_dashboard=False, _tracing_startup_hook=os.environ["RTH_HOOK"])
    one = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}}
    patient = {"health_check_timeout_s": 600, "health_check_period_s": 60}

    def config(name: str, **more: Any) -> Any:
        engine = {"enforce_eager": True, "max_model_len": 512, "dtype": "float32", "max_num_seqs": 8, **more}
        loading = {"model_id": name, "model_source": MODEL}
        of_cpu = {"kind": "cpu"}
        return LLMConfig(
            model_loading_config=loading,
            accelerator_config=of_cpu,
            deployment_config={**one, **patient},
            engine_kwargs=engine,
        )

    models = [config("tiny"), config("tiny-embed", runner="pooling", convert="embed")]
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(build_openai_app({"llm_configs": models, "ingress_deployment_config": one}), name="llm")
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
