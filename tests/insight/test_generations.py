"""Generations of LLM engines in what the commands show: where requests and their first chunks spend their time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hand_made import MS
from hand_served import Served, parts
from planted_llm import PLANTED, check_that_it_is_named
from recordings import document as document_of
from recordings import recorded, shown

from ray_tracing_hooks import names
from ray_tracing_hooks._cli.summary.generations import lines
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.generated import HELD
from ray_tracing_hooks._insight.analysis.requests import (
    AFTER_ENGINE,
    BEFORE_ENGINE,
    CALLS,
    CODE,
    DELIVERY,
    ENGINE,
    ENGINE_DECODE,
    ENGINE_FRONT,
    ENGINE_PREFILL,
    ENGINE_QUEUE,
    LOOP,
    PROXY,
    SPAN,
)
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.generations import generations
from ray_tracing_hooks._insight.views.exports import perfetto
from ray_tracing_hooks._insight.views.redaction import Redaction
from ray_tracing_hooks._insight.views.requests import generations as generations_shown

CHAT = "LLM.chat"


def by_kind(run: Served) -> dict[str, float]:
    """What the time of requests in the engine's method went to, in milliseconds."""
    return {kind: time for (kind, name), time in parts(run.found()).items() if name == CHAT}


# --- one generation ---------------------------------------------------------------------------------------------------


def phases(run: Served) -> dict[int, list[tuple[str, float, float]]]:
    """The phases of generations by row, in milliseconds since the first span."""
    table = run.table()
    found = generations(table)
    assert found is not None
    begin = table.start[0]
    return {
        row: [(name, (since - begin) / MS, (until - begin) / MS) for name, since, until in each]
        for row, each in found.phases().items()
    }


def test_the_phases_of_a_generation_are_drawn_at_the_times_that_the_engine_told() -> None:
    run = Served()
    server = run.call(run.request(0, 200), CHAT, 0, 0, 0, 200)
    run.generation(server, 20, 180, to_queue=5, queue=30, prefill=20, decode=100)
    assert phases(run) == {3: [("queue", 25, 55), ("prefill", 55, 75), ("decode", 75, 175)]}


def test_only_known_phases_of_generations_without_spans_below_them_are_drawn() -> None:
    run = Served()
    server = run.call(run.request(0, 400), CHAT, 0, 0, 0, 400)
    run.generation(server, 20, 100, to_queue=5, queue=0, prefill=20)
    run.generation(server, 101, 200, queue=30)
    above = run.generation(server, 201, 300, to_queue=5, queue=30, prefill=20, decode=40)
    run.user(above, "prefill", 236, 256)
    assert phases(run) == {3: [("prefill", 25, 45)]}


def test_a_timeline_has_the_phases_inside_of_the_generation(tmp_path: Path) -> None:
    run = Served()
    server = run.call(run.request(0, 200), CHAT, 0, 0, 0, 200)
    run.generation(server, 20, 180, to_queue=5, queue=30, prefill=20, decode=100)
    with (tmp_path / "trace").open("w+b") as out:
        perfetto.write(run.table(), Redaction(), out, lambda _spans: None)
        out.seek(0)
        content = out.read()
    # The names, as they are first seen.
    begun = [content.index(bytes([len(each)]) + each) for each in (b"chat tiny", b"queue", b"prefill", b"decode")]
    assert begun == sorted(begun)
    assert content.count(b"\x48\x01") == content.count(b"\x48\x02") == 4 + 3, "what begins also ends"


# --- the whole request ------------------------------------------------------------------------------------------------


def test_the_time_of_a_request_is_split_at_its_generation_and_by_its_phases() -> None:
    run, root = Served.requested(200)
    ingress = run.call(root, "Ingress.__call__", 1, 1, 2, 195)
    server = run.call(ingress, CHAT, 10, 10, 12, 190, loop=3, replica="r2")
    run.generation(server, 22, 180, to_queue=4, queue=30, prefill=20, decode=100, first=55, worker="r2")
    assert parts(run.found()) == {
        (PROXY, "GET /"): 6,
        (DELIVERY, "Ingress.__call__"): 1,
        (CODE, "Ingress.__call__"): 13,
        (DELIVERY, CHAT): 2,
        (LOOP, CHAT): 3,
        (BEFORE_ENGINE, CHAT): 7,
        (ENGINE_FRONT, CHAT): 8,
        (ENGINE_QUEUE, CHAT): 30,
        (ENGINE_PREFILL, CHAT): 20,
        (ENGINE_DECODE, CHAT): 100,
        (AFTER_ENGINE, CHAT): 10,
    }


def test_what_a_method_calls_before_its_generation_is_no_code_before_it() -> None:
    """Such as the prefill by another engine, whose own generation is a part of that method."""
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    leg = run.call(server, "Prefill.chat", 10, 10, 10, 40, replica="r2", caller="r1")
    run.generation(leg, 15, 35, told={names.GEN_AI_OPERATION: None}, worker="r2", queue=5, prefill=15, decode=0)
    run.user(server, "look up", 40, 50)
    run.generation(server, 60, 90, queue=1, prefill=0, decode=29)
    run.user(server, "look up", 92, 98)
    assert by_kind(run) == {BEFORE_ENGINE: 20, ENGINE_QUEUE: 1, ENGINE_DECODE: 29, AFTER_ENGINE: 4, SPAN: 16}
    others = {kind: time for (kind, name), time in parts(run.found()).items() if name == "Prefill.chat"}
    assert others == {BEFORE_ENGINE: 5, ENGINE_QUEUE: 5, ENGINE_PREFILL: 15, AFTER_ENGINE: 5}


def test_prompts_of_one_request_that_follow_each_other_have_code_between_them() -> None:
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    run.generation(server, 10, 40, queue=0, prefill=10, decode=20)
    run.generation(server, 45, 90, queue=5, prefill=10, decode=30)
    run.generation(server, 44, 88, queue=5, prefill=10, decode=29)
    found = by_kind(run)
    assert (found[BEFORE_ENGINE], found[AFTER_ENGINE]) == (10, 10)
    assert found[CODE] == 4
    assert sum(found.values()) == 100


def test_an_engine_that_tells_no_times_and_one_that_tells_the_queue() -> None:
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    run.generation(server, 10, 90)
    assert by_kind(run) == {BEFORE_ENGINE: 10, ENGINE: 80, AFTER_ENGINE: 10}
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    run.generation(server, 10, 90, queue=30)
    assert by_kind(run) == {BEFORE_ENGINE: 10, ENGINE_QUEUE: 30, ENGINE: 50, AFTER_ENGINE: 10}


def test_a_request_that_ended_before_its_generation_has_the_phases_until_then() -> None:
    run = Served()
    server = run.call(run.request(0, 60), CHAT, 0, 0, 0, 60)
    run.generation(server, 10, 90, to_queue=0, queue=20, prefill=10, decode=50)
    assert by_kind(run) == {BEFORE_ENGINE: 10, ENGINE_QUEUE: 20, ENGINE_PREFILL: 10, ENGINE_DECODE: 20}


def test_phases_that_do_not_fit_into_a_generation_add_up_to_it_all_the_same() -> None:
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    run.generation(server, 10, 90, to_queue=50, queue=60, prefill=1e15, decode=1e30, first=-5)
    assert sum(by_kind(run).values()) == 100


def test_what_is_below_a_generation_is_a_part_of_it() -> None:
    """Phases as spans of their own, and vLLM's own span."""
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    made = run.generation(server, 0, 100, to_queue=0, queue=40, prefill=10, decode=50)
    run.span("queue", 0, 40, made, worker="r1")
    run.user(made, "llm_request", 5, 95)
    assert by_kind(run) == {ENGINE_QUEUE: 40, ENGINE_PREFILL: 10, ENGINE_DECODE: 50}


def test_a_generation_in_an_actor_that_a_deployment_calls_is_in_the_call() -> None:
    run = Served()
    server = run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    call = run.submit(server, "Engine.ask", 10, worker="r1")
    ran = run.run(call, 12, 90)
    run.generation(ran, 15, 85, worker="w1", queue=10)
    assert parts(run.found()) == {(CODE, CHAT): 20, (CALLS, "Engine.ask"): 80}


# --- the first chunk --------------------------------------------------------------------------------------------------

STREAMED = {names.GEN_AI_STREAM: True}


def first_chunk(run: Served, at: float, *, queue: float = 30, trace: int = 1, held: float | None = 40) -> None:
    """A streamed request of 300 ms, whose first chunk comes after 100 ms and the time in the queue."""
    end = at + 100 + queue
    root = run.request(at, at + 300, trace=trace, told={names.RAY_SERVE_FIRST_CHUNK: (end - at) / 1000})
    ingress = run.call(root, "Ingress.__call__", at + 1, at + 1, at + 5, at + 290, trace=trace)
    came = {names.RAY_SERVE_FIRST_ITEM: (end - 3 - (at + 15)) / 1000}
    if held is not None:
        came[names.RAY_LLM_CHUNK_HELD] = held / 1000
    server = run.call(
        ingress, CHAT, at + 11, at + 11, at + 15, at + 280, trace=trace, told=came, replica="r2", caller="r1"
    )
    run.generation(
        server,
        at + 20,
        at + 270,
        trace=trace,
        worker="r2",
        told=STREAMED,
        to_queue=6,
        queue=queue,
        prefill=20,
        decode=100,
        first=28 + queue,
    )


def first_parts(run: Served) -> dict[str, float]:
    found = Analysis(run.table()).engines
    assert found is not None
    (chunks,) = found.first_chunks
    assert sum(part.time for part in chunks.parts) == chunks.time
    return {part.kind: part.time / MS for part in chunks.parts}


def test_the_time_to_the_first_chunk_is_split_by_where_it_was() -> None:
    run = Served()
    first_chunk(run, 0)
    assert first_parts(run) == {
        "proxy": 5,
        "ingress": 6,
        "replica choice": 4,
        "before engine": 5,
        "engine front end": 6,
        "engine queue": 30,
        "engine prefill": 20,
        "engine output": 2,
        "after engine": 9,
        HELD: 40,
        "way back": 3,
    }


def test_without_a_batcher_the_first_chunk_is_not_held() -> None:
    run = Served()
    first_chunk(run, 0, held=None)
    assert HELD not in first_parts(run)
    assert first_parts(run)["after engine"] == 49


def test_the_requests_whose_first_chunk_came_last_are_looked_at_on_their_own() -> None:
    run = Served()
    for number in range(40):
        first_chunk(run, 1000 * number, queue=100 if number in (7, 8) else 10, trace=number + 1)
    found = Analysis(run.table()).engines
    assert found is not None
    (chunks,) = found.first_chunks
    assert (chunks.name, chunks.model, len(chunks.times), chunks.slow) == ("LLM", "tiny", 40, 2)
    assert (chunks.times[0], chunks.times[-1]) == (110 * MS, 200 * MS)
    (queue,) = (part for part in chunks.parts if part.kind == "engine queue")
    assert (queue.time, queue.slow_time, queue.median) == ((38 * 10 + 200) * MS, 200 * MS, 10 * MS)
    text = "\n".join(map(str, lines(found)))
    assert "Time to the first chunk of 40 streamed requests to LLM: median 110 ms, p95 155 ms" in text
    written = generations_shown(found, (), int)
    assert written is not None
    assert written["first_chunks"][0]["count"] == 40


def test_what_is_not_streamed_has_no_time_to_its_first_chunk() -> None:
    """Though its head and its body are two parts of a response."""
    run, root = Served.requested(100, told={names.RAY_SERVE_FIRST_CHUNK: 0.09})
    run.generation(run.call(root, CHAT, 0, 0, 0, 100), 10, 90, told={names.GEN_AI_STREAM: False}, first=20)
    found = Analysis(run.table()).engines
    assert found is not None
    assert not found.first_chunks


@pytest.mark.parametrize(("items", "is_stream"), [(1, False), (24, True)])
def test_where_it_is_unknown_whether_parts_are_sent_their_number_says_it(items: int, is_stream: bool) -> None:
    """As in a deployment of one's own."""
    run, root = Served.requested(100, told={names.RAY_SERVE_FIRST_CHUNK: 0.06})
    told = {names.RAY_SERVE_FIRST_ITEM: 0.05, names.RAY_SERVE_ITEMS: items}
    run.generation(run.call(root, CHAT, 0, 0, 0, 100, told=told), 10, 90, first=20)
    found = Analysis(run.table()).engines
    assert found is not None
    assert bool(found.first_chunks) == is_stream


def test_an_engine_that_does_not_tell_its_phases_is_one_part() -> None:
    run, root = Served.requested(100, told={names.RAY_SERVE_FIRST_CHUNK: 0.06})
    server = run.call(root, CHAT, 0, 0, 5, 100, told={names.RAY_SERVE_FIRST_ITEM: 0.05})
    run.generation(server, 10, 90, told=STREAMED, queue=20, first=35)
    assert first_parts(run) == {"proxy": 5, "before engine": 5, "after engine": 10, "way back": 5, "engine": 35}


@pytest.mark.parametrize("damaged", [-1.0, 1e9, 1e300, "soon", None, True])
def test_damaged_times_of_a_first_chunk_do_no_harm(damaged: Any) -> None:
    run, root = Served.requested(100, told={names.RAY_SERVE_FIRST_CHUNK: 0.06})
    told = {names.RAY_SERVE_FIRST_ITEM: damaged, names.RAY_LLM_CHUNK_HELD: damaged}
    server = run.call(root, CHAT, 0, 0, 5, 100, told=told)
    run.generation(server, 10, 90, told=STREAMED, queue=20, prefill=10, decode=20, first=35)
    for key in (names.GEN_AI_QUEUE_TIME, names.GEN_AI_FIRST_CHUNK, names.RAY_LLM_TIME_TO_QUEUE):
        run.spans[-1].attributes[key] = damaged
    run.spans[-1].attributes[names.GEN_AI_OUTPUT_TOKENS] = damaged
    assert sum(first_parts(run).values()) == 60
    assert sum(parts(run.found()).values()) == 100


# --- generations by model ---------------------------------------------------------------------------------------------


def test_generations_are_counted_by_model_and_replica() -> None:
    run = Served()
    for number, worker in enumerate(["r1", "r1", "r2"]):
        server = run.call(run.request(0, 900), CHAT, 0, 0, 0, 900, replica=worker)
        run.generation(
            server, 10, 800, worker=worker, tokens=(10, 11, 4), queue=5 * number, first=100, prefill=0, decode=200
        )
    run.generation("", 0, 100, worker="w1", tokens=(7, 30, 0), told={names.GEN_AI_CHOICES: 3}, decode=90)
    run.generation("", 0, 100, worker="w1", tokens=(7, 5, 0), told={names.GEN_AI_FINISH_REASONS: ["stop", "abort"]})
    run.generation("", 0, 100, worker="w1", error="EngineDeadError", model="other")
    leg = {names.GEN_AI_OPERATION: None, names.RAY_LLM_PREFILL_INPUT_TOKENS: 23, names.RAY_LLM_PREFILL_OUTPUT_TOKENS: 1}
    run.generation("", 0, 100, worker="w1", told=leg)
    found = Analysis(run.table()).engines
    assert found is not None
    tiny, other, prefill = found.models
    assert (tiny.count, tiny.failed, tiny.aborted, tiny.input, tiny.output, tiny.cached) == (5, 0, 1, 44, 68, 12)
    assert list(tiny.per_token) == [20 * MS] * 3, "not of several completions"
    assert list(tiny.queue) == [0, 5 * MS, 10 * MS]
    assert list(tiny.first) == [100 * MS] * 3
    assert [(each.replica, each.count) for each in tiny.replicas] == [("host-n1:5", 2), ("r1", 2), ("r2", 1)]
    assert (other.count, other.failed) == (1, 1)
    assert (prefill.is_leg, prefill.input, prefill.output) == (True, 23, 1)
    text = "\n".join(map(str, lines(found)))
    assert "tiny, prefill only" in text
    assert "in r2" in text


def test_a_run_without_generations_says_nothing_of_them() -> None:
    run = Served()
    run.call(run.request(0, 100), CHAT, 0, 0, 0, 100)
    assert Analysis(run.table()).engines is None
    assert not list(lines(None))
    assert generations_shown(None, (), int) is None


def test_a_client_that_leaves_is_one_failed_request() -> None:
    """The replicas that it had reached were cancelled, which is no failure of theirs; its generation was aborted."""
    run, root = Served.requested(100, error="499", told={names.RAY_SERVE_FIRST_CHUNK: 0.05})
    cancelled = {names.ERROR_TYPE: names.TASK_CANCELLED}
    ingress = run.call(root, "Ingress.__call__", 0, 0, 0, 100, told=cancelled)
    server = run.call(ingress, CHAT, 10, 10, 10, 140, told=cancelled)
    run.generation(server, 20, 145, queue=0, prefill=10, decode=70, told={names.GEN_AI_FINISH_REASONS: ["abort"]})
    analysis = Analysis(run.table())
    assert run.found().failed == 1
    assert [(each.kind, [analysis.table.span_id_of(row) for row in each.rows]) for each in find(analysis)] == [
        ("failed-spans", [root])
    ]
    times = parts(run.found())
    assert times[CODE, "Ingress.__call__"] == 10
    assert times[ENGINE_DECODE, CHAT] == 70


# --- findings ---------------------------------------------------------------------------------------------------------


def asked(run: Served, number: int, **more: Any) -> None:
    """A request of 200 ms, with a generation of 190 ms in one of two replicas."""
    at, trace, replica = 10 * number, number + 1, f"r{number % 2}"
    server = run.call(
        run.request(at, at + 200, trace=trace), CHAT, at, at, at + 5, at + 200, trace=trace, replica=replica
    )
    run.generation(server, at + 5, at + 195, trace=trace, worker=replica, to_queue=0, tokens=(100, 20, 25), **more)


def finding(run: Served, kind: str) -> Finding | None:
    return next((each for each in find(Analysis(run.table())) if each.kind == kind), None)


def test_a_prefill_that_takes_long_once_is_no_finding_and_one_of_most_is() -> None:
    """The first request of an engine may compile for seconds."""
    run = Served()
    for number in range(20):
        asked(run, number, queue=0, prefill=100, decode=90)
    found = finding(run, "long-prefill")
    assert found is not None
    assert "100 ms in the median of 20 generations" in found.text
    assert "a prompt has 100 tokens (median), and 25 % of all were in the prefix cache" in found.text
    run = Served()
    for number in range(20):
        asked(run, number, queue=0, prefill=10, decode=180)
    server = run.call(run.request(0, 30_000, trace=99), CHAT, 0, 0, 0, 30_000, trace=99)
    run.generation(server, 0, 30_000, trace=99, queue=0, prefill=29_000, decode=1000)
    assert finding(run, "long-prefill") is None


@pytest.mark.parametrize(("aborted", "all_of_it", "is_found"), [(5, 20, True), (4, 20, False), (5, 200, False)])
def test_generations_that_are_aborted_are_named(aborted: int, all_of_it: int, is_found: bool) -> None:
    run = Served()
    for number in range(all_of_it):
        reasons = ["abort"] if number < aborted else ["stop"]
        asked(run, number, told={names.GEN_AI_FINISH_REASONS: reasons}, **({"first": 50} if number else {}))
    found = finding(run, "aborted-generations")
    assert (found is not None) == is_found
    if found is not None:
        assert "5 of 20 generations of tiny were aborted, 1 of them before their first token, after 100 tokens" in (
            found.text
        )
        assert (found.share, found.requests_share, found.is_failure) == (0, 0, False)


# --- real generations -------------------------------------------------------------------------------------------------


def test_the_summary_of_a_real_vllm_says_whether_it_is_serve_or_the_engine() -> None:
    """Fifty requests at once and some others, with an engine that runs eight at once."""
    found = document_of("llm_serving")
    assert sum(each["ns"] for each in found["requests"]["time"]) == found["requests"]["time_ns"]
    shares = {(each["kind"], each["name"]): each["share"] for each in found["requests"]["time"]}
    assert shares["engine queue", "LLMServer:tiny.chat"] == pytest.approx(0.295, abs=0.001)
    assert shares["engine prefill", "LLMServer:tiny.completions"] == pytest.approx(0.289, abs=0.001)
    assert found["requests"]["failed"] == 1, "the client that left"
    tiny, embed = found["generations"]["models"]
    counts = "count", "failed", "aborted", "input_tokens", "output_tokens"
    assert [tiny[key] for key in counts] == [59, 0, 1, 802, 1862]
    assert [embed[key] for key in counts] == [1, 0, 0, 6, 0]
    (chunks,) = found["generations"]["first_chunks"]
    assert (chunks["deployment"], chunks["model"], chunks["count"]) == ("LLMServer:tiny", "tiny", 27)
    assert sum(each["share"] for each in chunks["time"]) == pytest.approx(1)
    (queue,) = (each for each in chunks["time"] if each["kind"] == "engine queue")
    assert queue["share"] == pytest.approx(0.51, abs=0.01)
    kinds = [each["kind"] for each in found["findings"]]
    assert kinds == ["failed-spans", "engine-queue", "unrecorded"]
    assert "an engine ran at most 8 at once" in found["findings"][1]["text"]
    assert "Requests wait in the engine's queue of LLMServer:tiny: 30 % of the time of requests" in shown(
        "summary", recorded("llm_serving")
    )


@pytest.mark.parametrize("part", PLANTED)
def test_the_part_that_delays_requests_to_a_real_vllm_is_named(part: str) -> None:
    """Each was delayed in one place; ``tests/ray/test_llm.py`` does so again."""
    path = recorded(f"llm_slow_{part.replace(' ', '_')}")
    check_that_it_is_named(Analysis(load([path])), part)


def test_the_first_chunk_of_a_single_request_was_held_by_the_batcher() -> None:
    text = shown("summary", recorded("llm_serving"), "--trace", "734ee15b9cdf74a71875071939031eaf")
    assert "Time to the first chunk of 1 streamed request to LLMServer:tiny: median 73.9 ms" in text
    assert re.search(r"Serve LLM: the batcher holds it +56 % +41\.3 ms", text)


def test_behind_haproxy_a_request_and_the_choice_of_its_replica_are_one() -> None:
    """Twenty-two requests with direct streaming, one of whose clients left."""
    found = document_of("llm_direct")
    assert [(each["name"], each["count"], each["failed"]) for each in found["requests"]["routes"]] == [
        ("POST /v1/chat/completions", 22, 1)
    ]
    assert sum(each["ns"] for each in found["requests"]["time"]) == found["requests"]["time_ns"]
    (chunks,) = found["generations"]["first_chunks"]
    assert chunks["count"] == 10
    assert {"replica choice", "engine queue", "way back"} <= {each["kind"] for each in chunks["time"]}
    assert not {"proxy", "ingress", HELD} & {each["kind"] for each in chunks["time"]}
    failures = [each["text"] for each in found["findings"] if each["kind"] == "failed-spans"]
    assert failures == ["1 span of POST /v1/chat/completions failed: 499"]


def test_the_prefill_for_another_engine_is_told_apart() -> None:
    """The same twenty-two requests to an engine for the prefill and one for the rest."""
    found = document_of("llm_prefill")
    leg, tiny = found["generations"]["models"]
    assert (leg["is_prefill"], leg["count"], leg["input_tokens"], leg["aborted"]) == (True, 21, 313, 0)
    assert (tiny["is_prefill"], tiny["count"], tiny["input_tokens"], tiny["aborted"]) == (False, 21, 313, 1)
    assert sum(each["ns"] for each in found["requests"]["time"]) == found["requests"]["time_ns"]
    engines = {each["name"] for each in found["requests"]["time"] if each["kind"] == "engine prefill"}
    assert engines == {"Prefill:tiny.chat", "Decode:tiny.chat"}
    (chunks,) = found["generations"]["first_chunks"]
    assert (chunks["deployment"], chunks["count"]) == ("Decode:tiny", 10)
    failures = [each["text"] for each in found["findings"] if each["kind"] == "failed-spans"]
    assert failures == ["1 span of POST /v1/chat/completions failed: 499"]


@pytest.mark.parametrize(
    ("printed", "root"),
    [
        ("cmpl-d1511cec-0925-4a05-95c9-315be90bac51", "POST /v1/completions"),
        ("chatcmpl-989650dd-f47b-4725-a03f-7d625cf9cadd", "POST /v1/chat/completions"),
    ],
)
def test_a_request_is_found_by_the_id_that_its_client_printed(printed: str, root: str) -> None:
    """The ids of completions go on in the engine."""
    (trace,) = json.loads(
        shown("tree", recorded("llm_serving"), "--json", "--attribute", f"gen_ai.response.id={printed}")
    )
    assert [each["name"] for each in trace["roots"]] == [root]
    text = shown("tree", recorded("llm_serving"), "--attribute", f"gen_ai.response.id={printed}")
    assert f"gen_ai.response.id: {printed}" in text
    assert "gen_ai.request.model" not in text
