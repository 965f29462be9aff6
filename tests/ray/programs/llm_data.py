"""A job of ``ray.data.llm``: rows through a vLLM engine.

    python tests/ray/programs/llm_data.py MODEL RESULT

It runs where vLLM is installed. The result is JSON: rows and tokens as the job counts them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import ray
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

MODEL, RESULT = sys.argv[1:3]
ROWS = 60


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


def main() -> None:
    ray.init("local", num_cpus=4, include_dashboard=False, _tracing_startup_hook=os.environ["RTH_HOOK"])
    found = by_engine()
    ray.shutdown()
    Path(RESULT).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
