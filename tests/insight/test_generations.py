"""Generations of LLM engines in what the commands show: where requests and their first chunks spend their time."""

from __future__ import annotations

from hand_served import Served, parts

from ray_tracing_hooks import names
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

CHAT = "LLM.chat"


def by_kind(run: Served) -> dict[str, float]:
    """What the time of requests in the engine's method went to, in milliseconds."""
    return {kind: time for (kind, name), time in parts(run.found()).items() if name == CHAT}


# --- the whole request ------------------------------------------------------------------------------------------------


def test_the_time_of_a_request_is_split_at_its_generation_and_by_its_phases() -> None:
    run = Served()
    root = run.request(0, 200)
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
