"""Rows of a dataset as requests to a server, by the HTTP stage of ``ray.data.llm``. The argument is the URL."""

import sys

import harness
import ray
from ray.data.llm import HttpRequestProcessorConfig, build_processor

ROWS = 6


def main():
    process = build_processor(
        HttpRequestProcessorConfig(url=sys.argv[1], headers={}, qps=50, concurrency=1, batch_size=3),
        preprocess=lambda row: {"payload": {"prompt": str(row["id"])}},
        postprocess=lambda row: {"out": row["http_response"]["tokens"]},
    )
    return sum(row["out"] for row in process(ray.data.range(ROWS, override_num_blocks=2)).take_all())


if __name__ == "__main__":
    harness.run(main)
