"""A language model in Ray Serve LLM, whose requests are delayed in one place after the other.

    python tests/ray/programs/llm_planted.py MODEL RESULT

It runs where vLLM is installed. The result is JSON: by the delayed part, what each client got, with its trace.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from llm_client import ONE, PORT, STREAMED, ask, chat, config
from ray import serve

MODEL, RESULT = sys.argv[1:3]
BUSY = "keeps the ingress busy"
IN_INGRESS, HELD_MS, LONG = 0.15, 150, 16_000


def ingress() -> Any:
    """The ingress of Ray Serve LLM, whose code blocks its event loop for some requests."""
    from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress

    class BusyIngress(OpenAiIngress):  # type: ignore[misc]
        async def _process_llm_request(self, body: Any, *args: Any, **kwargs: Any) -> Any:
            if body.user == BUSY:
                time.sleep(IN_INGRESS)  # noqa: ASYNC251  it is planted
            return await super()._process_llm_request(body, *args, **kwargs)

    BusyIngress.__module__ = "__main__"
    return BusyIngress


def streamed(number: int, tokens: int, text: str = "", prefix: str = "", **more: Any) -> dict[str, Any]:
    return ask("chat/completions", chat(f"{number} {text}", tokens, **STREAMED, **more), prefix=prefix)


def several(count: int, at_once: int, request: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(request, range(count)))


def clients() -> dict[str, Any]:
    for prefix in ("", "/few"):
        streamed(0, 24, prefix=prefix)  # the first one takes longer than all others
    return {
        "batcher": several(20, 1, lambda number: streamed(number, 300)),
        "engine queue": several(24, 24, lambda number: streamed(number, 64)),
        "engine prefill": several(20, 1, lambda number: streamed(number, 2, "x" * LONG, seed=None)),
        "ingress": several(20, 20, lambda number: streamed(number, 2, user=BUSY)),
        "replica choice": several(24, 4, lambda number: streamed(number, 64, prefix="/few")),
        "proxy": several(32, 32, lambda number: streamed(number, 64, prefix="/few")),
    }


def main() -> None:
    from ray.serve.llm import build_openai_app

    # Each engine takes a processor in Ray's accounts, and the machine may have fewer.
    ray.init(num_cpus=8, include_dashboard=False, _tracing_startup_hook=os.environ["RTH_HOOK"])
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    one = config("tiny", MODEL, interval_ms=HELD_MS, max_num_seqs=1, max_model_len=2 * LONG)
    few = config("tiny", MODEL, {"max_ongoing_requests": 1})
    apps = {
        "llm": ("/", {"llm_configs": [one], "ingress_cls_config": {"ingress_cls": ingress()}}, {}),
        "few": ("/few", {"llm_configs": [few]}, {"max_ongoing_requests": 4}),
    }
    for name, (prefix, options, limits) in apps.items():
        app = build_openai_app({**options, "ingress_deployment_config": {**ONE, **limits}})
        serve.run(app, name=name, route_prefix=prefix)
    found = clients()
    serve.shutdown()
    ray.shutdown()
    with open(RESULT, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "240")
    main()
