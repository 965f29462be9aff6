"""A client of the API of OpenAI, which says what it got, for programs that serve a language model."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import time
from typing import Any

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
ONE = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PORT = free_port()


def ask(path: str, body: dict[str, Any], *, leave_after: int = 0, prefix: str = "") -> dict[str, Any]:
    """Post a request with a trace of its own; ``leave_after`` so many parts of the response."""
    trace = secrets.token_hex(16)
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    headers = {"traceparent": f"00-{trace}-{secrets.token_hex(8)}-01", "content-type": "application/json"}
    began = time.perf_counter()
    connection.request("POST", f"{prefix}/v1/{path}", json.dumps(body), headers)
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


def config(name: str, model: str, deployment: dict[str, Any] | None = None, **engine: Any) -> Any:
    """One replica with an engine for the model in this folder."""
    from ray.serve.llm import LLMConfig

    patient = {"health_check_timeout_s": 600, "health_check_period_s": 60}
    return LLMConfig(
        model_loading_config={"model_id": name, "model_source": model},
        accelerator_config={"kind": "cpu"},
        deployment_config={**ONE, **patient, **(deployment or {})},
        experimental_configs={"stream_batching_interval_ms": engine.pop("interval_ms", 50)},
        engine_kwargs={"enforce_eager": True, "max_model_len": 512, "dtype": "float32", "max_num_seqs": 8, **engine},
    )
