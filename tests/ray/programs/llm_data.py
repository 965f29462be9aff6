"""A job of ``ray.data.llm``: rows through a vLLM engine, then some of them by HTTP to a server.

    python tests/ray/programs/llm_data.py MODEL RESULT

It runs where vLLM is installed. The result is JSON: the tokens of both as the job counts them, and the ``traceparent``
of each request that the server got.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ray
from ray.data.llm import HttpRequestProcessorConfig, build_processor, vLLMEngineProcessorConfig

MODEL, RESULT = sys.argv[1:3]
ROWS, REQUESTS = 60, 6
heard: list[str | None] = []


class Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        heard.append(self.headers["traceparent"])
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"usage": {"completion_tokens": 5}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def by_engine() -> dict[str, int]:
    """Each row has a prompt of its own length. Without the other stages, which are actors that import vLLM."""
    config = vLLMEngineProcessorConfig(
        model_source=MODEL,
        engine_kwargs={"enforce_eager": True, "max_model_len": 256, "dtype": "float32", "max_num_seqs": 8},
        concurrency=1,
        batch_size=10,
        placement_group_config={"bundles": [{"CPU": 1}]},
        chat_template_stage=False,
        tokenize_stage=False,
        detokenize_stage=False,
    )
    process = build_processor(
        config,
        preprocess=lambda row: {
            "prompt": "x" * (1 + row["id"] % 7),
            "sampling_params": {"max_tokens": 4 + row["id"] % 5, "ignore_eos": True},
        },
        postprocess=lambda row: {"in": row["num_input_tokens"], "out": row["num_generated_tokens"]},
    )
    rows = process(ray.data.range(ROWS, override_num_blocks=3)).take_all()
    return {"rows": len(rows), "in": sum(row["in"] for row in rows), "out": sum(row["out"] for row in rows)}


def by_http(url: str) -> int:
    process = build_processor(
        HttpRequestProcessorConfig(url=url, headers={}, qps=50, concurrency=1, batch_size=3),
        preprocess=lambda row: {"payload": {"prompt": str(row["id"])}},
        postprocess=lambda row: {"out": row["http_response"]["usage"]["completion_tokens"]},
    )
    return sum(row["out"] for row in process(ray.data.range(REQUESTS, override_num_blocks=2)).take_all())


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    ray.init("local", num_cpus=4, include_dashboard=False, _tracing_startup_hook=os.environ["RTH_HOOK"])
    found = {"engine": by_engine(), "http": by_http(f"http://127.0.0.1:{server.server_port}/v1"), "heard": heard}
    ray.shutdown()
    server.shutdown()
    Path(RESULT).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
