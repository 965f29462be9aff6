"""A real vLLM behind Ray Serve LLM, on the CPU: each request of a client is one trace, with one generation that counts
its tokens as the client was told.

One application is started, which takes minutes, and everything is asked of it; and two more with delays.
``make prepare BESIDE=llm`` installs vLLM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import installed
import pytest
from planted_llm import PLANTED, check_that_it_is_named
from support import HOOK, PATIENCE, PROGRAMS, by_name, environment, tree

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table

pytestmark = [pytest.mark.slow, installed.needs("llm")]  # several processes that import vLLM

SERVER = (
    "POST /v1/{path}\n"
    "  OpenAiIngress.__call__ serve.remote\n"
    "    OpenAiIngress.__call__ serve.replica\n"
    "      LLMServer:{model}.{method} serve.remote\n"
    "        LLMServer:{model}.{method} serve.replica"
)
GENERATION = "          {generation}"

CACHES = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


class Asked:
    """What each client got, and the spans of its trace."""

    def __init__(self, result: dict[str, Any], spans: list[Span]) -> None:
        self.result, self.spans = result, spans

    def trace(self, name: str) -> list[Span]:
        return self.of(self.result[name])

    def of(self, answer: dict[str, Any]) -> list[Span]:
        return [span for span in self.spans if span.trace_id == answer["trace"]]

    def replica(self, name: str) -> Span:
        (found,) = (
            span
            for span in self.trace(name)
            if span.name.startswith("LLMServer") and span.name.endswith("serve.replica")
        )
        return found

    def generations(self, answer: dict[str, Any]) -> list[Span]:
        return [span for span in self.of(answer) if "gen_ai.provider.name" in span.attributes]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    captured = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    return ran("llm_serve.py", tmp_path_factory.mktemp("llm"), **captured)


def ran(program: str, folder: Path, **settings: str) -> Asked:
    """What the clients of a program got, and the spans."""
    python = Path(installed.folder("llm")) / "bin" / "python"
    # Only this package of this environment is on the path of that one.
    package = folder / "package"
    package.mkdir()
    mine = distribution("ray-tracing-hooks")
    (package / "ray_tracing_hooks").symlink_to(str(mine.locate_file("ray_tracing_hooks")))
    variables = environment(
        PYTHONPATH=str(package),
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        RTH_HOOK=HOOK,
        RAY_TRACING_LOCAL_DIR=str(folder / "spans"),
        RAY_raylet_start_wait_time_s="300",
        **CACHES,
        **QUIET,
        **settings,
    )
    result = folder / "result.json"
    for each, *arguments in (("llm_model.py", "model"), (program, "model", "result.json")):
        command = [python, PROGRAMS / each, *(folder / argument for argument in arguments)]
        subprocess.run(command, check=True, timeout=2 * PATIENCE, env=variables, stdout=sys.stderr)
    spans, _ = read(span_files([str(folder / "spans")]))
    return Asked(json.loads(result.read_text()), spans)


@pytest.mark.parametrize(
    ("name", "path", "model", "method", "generation"),
    [
        ("chat", "chat/completions", "tiny", "chat", "chat tiny"),
        ("streamed", "chat/completions", "tiny", "chat", "chat tiny"),
        ("n2", "chat/completions", "tiny", "chat", "chat tiny"),
        ("completion", "completions", "tiny", "completions", "text_completion tiny"),
        ("two prompts", "completions", "tiny", "completions", "text_completion tiny x2"),
        ("embeddings", "embeddings", "tiny-embed", "embeddings", "embeddings tiny-embed"),
    ],
)
def test_a_request_is_one_trace_with_its_generation_below_the_server(
    asked: Asked, name: str, path: str, model: str, method: str, generation: str
) -> None:
    shown = SERVER.format(path=path, model=model, method=method)
    assert tree(asked.trace(name)) == f"{shown}\n{GENERATION.format(generation=generation)}"


def test_tokens_are_counted_as_clients_are_told(asked: Asked) -> None:
    answers = [each for name, each in asked.result.items() if name != "crowd"] + asked.result["crowd"]
    told = [each for each in answers if "prompt_tokens" in (each.get("usage") or {})]
    assert len(told) == 57
    for each in told:
        generations = asked.generations(each)
        counted = [
            sum(span.attributes[f"gen_ai.usage.{kind}_tokens"] for span in generations) for kind in ("input", "output")
        ]
        assert counted == [each["usage"]["prompt_tokens"], each["usage"]["completion_tokens"]]
        assert all(span.attributes["gen_ai.response.id"].startswith(each["id"]) for span in generations)
        assert all(span.status_code == 0 for span in asked.of(each))


def test_a_generation_has_the_times_of_the_engine(asked: Asked) -> None:
    (span,) = asked.generations(asked.result["streamed"])
    parts = [span.attributes[f"gen_ai.latency.time_in_{name}"] for name in ("queue", "model_prefill", "model_decode")]
    seconds = (span.end_ns - span.start_ns) / 1e9
    assert min(parts) >= 0
    assert span.attributes["ray.llm.time_to_queue"] + sum(parts) <= seconds
    assert 0 < span.attributes["gen_ai.response.time_to_first_chunk"] <= seconds
    assert span.attributes["gen_ai.request.stream"] is True
    assert span.attributes["ray.serve.deployment"] == "LLMServer:tiny"
    assert span.attributes["gen_ai.response.finish_reasons"] == ["length"]


@pytest.mark.parametrize(
    ("name", "prompts", "completions"),
    [
        ("streamed", ["Hello, who are you?"], 1),
        ("n2", ["Hello, who are you?"], 2),
        ("two prompts", ["Once upon", "A time"], 2),
        ("embeddings", [], 0),
    ],
)
def test_prompts_and_completions_are_recorded_where_asked_for(
    asked: Asked, name: str, prompts: list[str], completions: int
) -> None:
    told: dict[str, list[Any]] = {"input": [], "output": []}
    for span in asked.generations(asked.result[name]):
        for kind in told:
            told[kind] += json.loads(span.attributes.get(f"gen_ai.{kind}.messages", "[]"))
    user = [{"role": "user", "parts": [{"type": "text", "content": each}]} for each in prompts]
    assert sorted(told["input"], key=str) == sorted(user, key=str)
    assert [(each["role"], each["finish_reason"]) for each in told["output"]] == [("assistant", "length")] * completions
    assert all(each["parts"][0]["content"] for each in told["output"])


def test_the_first_part_of_a_stream_is_timed_on_its_way(asked: Asked) -> None:
    replica, (generation,) = asked.replica("streamed"), asked.generations(asked.result["streamed"])
    first = replica.attributes["ray.serve.time_to_first_item"]
    assert replica.attributes["ray.serve.items"] >= 1
    assert replica.attributes["ray.llm.batching_interval"] == 0.05
    made = generation.attributes["gen_ai.response.time_to_first_chunk"] + replica.attributes["ray.llm.first_chunk_held"]
    assert made <= first + 0.005
    assert first < asked.result["streamed"]["first"] + 0.005


@pytest.mark.parametrize("name", ["too long", "too long, streamed"])
def test_a_request_that_the_engine_refuses_says_why(asked: Asked, name: str) -> None:
    assert asked.result[name]["status"] == 400
    assert asked.generations(asked.result[name]) == []
    replica = asked.replica(name)
    assert (replica.status_code, replica.attributes["error.type"]) == (0, "BadRequestError")
    (event,) = replica.events
    assert "maximum context length" in str(event)


def test_a_client_that_leaves_is_one_error_and_an_aborted_generation(asked: Asked) -> None:
    assert tree(asked.trace("leaves")).count("!") == 1
    (generation,) = asked.generations(asked.result["leaves"])
    assert generation.attributes["gen_ai.response.finish_reasons"] == ["abort"]
    assert 0 < generation.attributes["gen_ai.usage.output_tokens"] < 400


def test_a_call_by_a_handle_has_its_generation_below_it(asked: Asked) -> None:
    (client,) = by_name(asked.trace("by handle"), "by handle")
    below = [span for span in asked.trace("by handle") if span.start_ns >= client.start_ns]
    assert tree(below) == (
        "by handle\n"
        "  LLMServer:tiny.chat serve.remote\n"
        "    LLMServer:tiny.chat serve.replica\n"
        f"{GENERATION[4:].format(generation='chat tiny')}"
    )


def test_what_ray_llm_does_for_itself_makes_no_spans(asked: Asked) -> None:
    names = {span.name for span in asked.spans}
    assert not [name for name in names if "TelemetryAgent" in name or "initialize_remote_node" in name]


def test_the_sums_of_a_batch_are_exact_although_few_generations_are_spans(tmp_path: Path) -> None:
    job = ran("llm_data.py", tmp_path, RAY_TRACING_RATE_LIMIT="text_completion *=5")
    blocks = [span for span in job.spans if "ray.llm.generations" in span.attributes]
    assert {span.attributes["ray.data.operator"] for span in blocks} == {"MapBatches(vLLMEngineStageUDF)"}
    keys = ("ray.llm.generations", "ray.llm.total.input_tokens", "ray.llm.total.output_tokens")
    sums = [sum(span.attributes[key] for span in blocks) for key in keys]
    assert sums == [job.result[each] for each in ("rows", "in", "out")]
    generations = [span for span in job.spans if "gen_ai.provider.name" in span.attributes]
    assert 5 <= len(generations) < job.result["rows"]
    assert {span.parent_id for span in generations} <= {span.span_id for span in blocks}
    timed = [sum(span.attributes[f"ray.llm.{each}.buckets"][1::2]) for each in TIMES for span in blocks]
    assert sum(timed) == 2 * job.result["rows"]


TIMES = ("time_to_first_chunk", "time_in_queue")


# --- requests that are delayed in one place ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return ran("llm_planted.py", tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("part", PLANTED)
def test_the_summary_names_the_part_that_delays_requests(planted: Asked, part: str) -> None:
    traces = {each["trace"] for each in planted.result[part]}
    analysis = Analysis(Table.of([span for span in planted.spans if span.trace_id in traces]))
    # How long requests wait for a busy ingress depends on the speed of the machine.
    check_that_it_is_named(analysis, part, may_be_short=part == "ingress")


def test_a_client_measures_the_time_to_the_first_chunk_that_its_server_tells_and_more(planted: Asked) -> None:
    for each in (each for part in planted.result.values() for each in part):
        (server,) = (span for span in planted.of(each) if span.name.startswith("POST"))
        assert 0 < server.attributes["ray.serve.time_to_first_chunk"] < each["first"] + 0.005


def test_nothing_of_prompts_is_recorded_by_default(planted: Asked) -> None:
    assert not [span for span in planted.spans if any("messages" in key for key in span.attributes)]
    assert not [span for span in planted.spans if "xxxxxxxx" in str(span)]
