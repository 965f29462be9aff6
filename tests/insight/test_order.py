"""Findings on the order in which callers wait: what they need to be true."""

from __future__ import annotations

import sys
from itertools import count

import pytest
from hand_made import HandMade

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import Finding, find, order

WAITS = "actor,get,task,wait"


def made() -> HandMade:
    run = HandMade()
    run.parts = WAITS
    return run


def found(run: HandMade) -> dict[str, Finding]:
    return {each.kind: each for each in find(Analysis(run.table()))}


@pytest.mark.parametrize(
    ("takes_parts", "is_late", "is_chain"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_chain_is_of_calls_that_merge_what_was_there(takes_parts: bool, is_late: bool, is_chain: bool) -> None:
    """Steps that take no other result need their order, and where the other result comes last, it sets the pace."""
    run = made()
    driver = run.driver(0, 10_000)
    parts = [
        run.task(driver, "part", 1, 2, 1100 + 1000 * number if is_late else 50, worker=f"w{number}")
        for number in range(8)
    ]
    merged = run.task(driver, "merge", 3, 1100, 2000, arguments=[parts[0].object()])
    for number, part in enumerate(parts[1:], 1):
        arguments = [merged.object(), *([part.object()] if takes_parts else [])]
        begin = 1101 + 1000 * number
        merged = run.task(driver, "merge", 4, begin, begin + 899, arguments=arguments)
    run.get(driver, [merged], 5, 9_100)
    finding = found(run).get("chain")
    assert (finding is not None) == is_chain
    if finding is not None:
        assert finding.text.startswith("8 calls of merge")
        assert finding.share == pytest.approx(0.9 * 8 * (1 - 4 / 8) / 10, rel=0.1)


@pytest.mark.parametrize(
    ("first", "each", "is_assumed"),
    [(2, 1, False), (1, 1, True), (2, 2, True), (3, 1, True)],
    ids=["merges", "steps", "steps of two", "several"],
)
@pytest.mark.parametrize("takes_state", [False, True])
def test_a_chain_is_assumed_unless_each_call_merges_one_more_of_the_same(
    first: int, each: int, *, is_assumed: bool, takes_state: bool
) -> None:
    """Steps of a training take batches, and need their order."""
    run = made()
    driver = run.driver(0, 10_000)
    objects = iter([run.task(driver, "load", 1, 2, 50, worker=f"w{number}").object() for number in range(20)])
    state = [run.put(driver, 1, 1.5)] if takes_state else []
    before = list[str]()
    for number in range(8):
        taken = [*before, *(next(objects) for _ in range(each if number else first)), *state]
        begin = 101 + 1000 * number
        before = [run.task(driver, "step", 4, begin, begin + 999, arguments=taken).object()]
    run.get(driver, before, 5, 8_101)
    assert found(run)["chain"].is_assumed == (is_assumed or takes_state)


@pytest.mark.parametrize("needs_all", [False, True])
def test_a_barrier_is_none_where_the_next_calls_need_all_results(needs_all: bool) -> None:
    """Three of four calls of each round end early. The arguments of the next ones say what they need."""
    run = made()
    driver = run.driver(0, 4_100)
    before: list[str] = []
    for number in range(4):
        begin = 1_000 * number
        calls = [
            run.task(
                driver,
                "step",
                begin + 1,
                begin + 2,
                begin + (1_000 if each == number else 200),
                arguments=before if needs_all else before[each : each + 1],
                worker=f"w{each}",
            )
            for each in range(4)
        ]
        run.get(driver, calls, begin + 2, begin + 1_000)
        before = [each.object() for each in calls]
    finding = found(run).get("barrier")
    assert (finding is None) == needs_all
    if finding is not None:
        assert finding.share * 4_100 == pytest.approx(2_400, rel=0.02)  # one long and three short steps remain


@pytest.mark.parametrize("is_reversed", [False, True])
def test_an_order_costs_what_the_caller_could_have_done_meanwhile(is_reversed: bool) -> None:
    """Ten results come at intervals of 200 ms, and the caller works for 100 ms with each."""
    run = made()
    driver = run.driver(0, 3_100)
    calls = [run.submit(driver, "f", 1) for _ in range(10)]
    for number, call in enumerate(calls):
        run.run(call, 2, 200 * (10 - number if is_reversed else number + 1), worker=f"w{number}")
    now = 2.0
    for number, call in enumerate(calls):
        ready = 200 * (10 - number if is_reversed else number + 1)
        run.get(driver, [call], now, now := max(now, ready))
        now += 100
    finding = found(run).get("results-in-order")
    assert (finding is not None) == is_reversed
    if finding is not None:
        assert finding.share * 3_100 == pytest.approx(900, rel=0.02)  # the last result comes after 2 s


@pytest.mark.parametrize(("results", "is_named"), [(2, False), (4, True)])
def test_a_result_that_is_read_again_is_one(results: int, is_named: bool) -> None:
    """The first one comes after 2 s. The caller works for half a second with each other one, which it reads twice."""
    run = made()
    driver = run.driver(0, 5_000)
    calls = [run.task(driver, "f", 1, 2, 10 if number else 2_000, worker=f"w{number}") for number in range(results)]
    run.get(driver, calls[:1], 3, 2_001)
    for number, call in enumerate(calls[1:]):
        for at in (2_001 + 500 * number, 2_401 + 500 * number):
            run.get(driver, [call], at, at + 1)
    findings = order.results_in_order(Analysis(run.table()))
    assert ["one of 4 results" in each.text for each in findings] == [True] * is_named
    assert [each.share for each in findings] == ([pytest.approx(1_500 / 5_000, rel=0.02)] if is_named else [])


@pytest.mark.parametrize("is_released", [False, True])
def test_what_an_order_costs_is_said_once_with_its_straggler_or_alone(is_released: bool) -> None:
    """In four rounds of calls. In two of them, the caller has to wait 3 s for the first one, and then uses the others.

    A call that others of its actor may have held up is no straggler.
    """
    run = made()
    driver = run.driver(0, 12_000)
    now = 0.0
    for number in range(4):
        took = 10 if number % 2 else 3_000
        calls = [
            run.task(driver, "f", now, now + 1, now + (10 if each else took), worker=f"w{each}") for each in range(4)
        ]
        run.get(driver, calls[:1], now + 1, now := now + took + 1)
        for call in calls[1:]:
            run.get(driver, [call], now, now + 1)
            now += 1 if number % 2 else 500
    analysis = Analysis(run.table())
    if is_released:
        analysis.path.released.update(row for row in range(len(analysis.table)) if analysis.self_time[row] > 10**9)
    several = find(analysis)
    shares = [each.share * 12 for each in several if each.kind == "results-in-order"]
    assert shares == pytest.approx([1.5, 1.5], abs=0.02)
    assert [each.kind for each in several[:1]] == ["barrier" if is_released else "straggler"]
    assert ("and a barrier behind" in several[0].title) != is_released


@pytest.mark.parametrize("is_one", [False, True])
def test_a_loop_that_waits_with_ray_wait_runs_one_call_at_a_time(is_one: bool) -> None:
    """With a second call under way, it does not."""
    run = made()
    driver = run.driver(0, 10 * 100 + 100)
    calls = [run.submit(driver, "f", 1)] if not is_one else []
    for number in range(10):
        begin = 2 + 100 * number
        calls.append(run.submit(driver, "f", begin))
        run.run(calls[number], begin + 1 if is_one else max(2, begin - 50), begin + 90, worker=f"w{number % 2}")
        pending = calls[number:]
        run.wait(driver, pending, begin + 1, begin + 91, ready=pending[:1])
        run.get(driver, pending[:1], begin + 92, begin + 93)
    assert ("get-in-loop" in found(run)) == is_one


@pytest.mark.parametrize("waits_for", ["one", "one of several", "all", "all in turn", "what takes all"])
def test_a_barrier_is_none_where_the_caller_did_not_wait_for_all(waits_for: str) -> None:
    """Four short calls and a long one in each round, all of which end before the next one."""
    run = made()
    driver = run.driver(0, 10_000)
    for begin in range(0, 10_000, 1_000):
        calls = [run.task(driver, "log", begin, begin + 5, begin + 55, worker=f"w{each}") for each in range(4)]
        taken = [each.object() for each in calls] if waits_for == "what takes all" else []
        calls.append(run.task(driver, "train", begin + 5, begin + 60, begin + 990, worker="t", arguments=taken))
        if waits_for == "one of several":
            run.wait(driver, calls, begin + 7, begin + 992, ready=calls[-1:])
        elif waits_for == "all in turn":
            for place, call in enumerate(calls, 6):
                until = begin + 992 if call is calls[-1] else begin + 55 + place
                run.wait(driver, calls, begin + place, until, ready=[call])
        else:
            run.get(driver, calls if waits_for == "all" else calls[-1:], begin + 7, begin + 992)
    assert ("barrier" in found(run)) == waits_for.startswith(("all", "what"))


def work_for_barriers(rounds: int) -> int:
    """How many functions the search for barriers calls in a run of so many rounds."""
    run = made()
    driver = run.driver(0, 1_000 * rounds)
    for begin in range(0, 1_000 * rounds, 1_000):
        times = enumerate((990, 55))
        calls = [run.task(driver, "f", begin, begin + 5, begin + end, worker=f"w{each}") for each, end in times]
        run.get(driver, calls, begin + 7, begin + 992)
    analysis = Analysis(run.table())
    assert analysis.path.steps
    called = count()
    sys.setprofile(lambda *_: next(called) and None)
    try:
        (finding,) = order.barriers(analysis)
    finally:
        sys.setprofile(None)
    assert f"each of {rounds:,} rounds" in finding.text
    return next(called)


def test_the_work_for_barriers_grows_as_their_number() -> None:
    assert work_for_barriers(800) < 5 * work_for_barriers(200)


@pytest.mark.parametrize("by", ["wait", "queue", "a call between", "all ready"])
@pytest.mark.parametrize("sleeps", [400, 4])
def test_who_asks_again_and_again_polls_if_its_own_code_takes_time_in_between(by: str, sleeps: float) -> None:
    """A wait that finds all it wants, and questions with other calls in between, are no polling."""
    run = made()
    driver = run.driver(0, 10_000)
    load = run.task(driver, "load", 1, 2, 9_990)
    actor = run.actor() if by == "queue" else ""
    for number in range(20):
        at = 100 + number * (sleeps + 3)
        if by == "queue":
            call = run.task(driver, "_QueueActor.empty", at, at + 1, at + 2, worker="q", actor=actor)
            run.get(driver, [call], at + 0.5, at + 3)
        else:
            run.wait(driver, [load], at, at + 3, ready=[load] if by == "all ready" else [])
        if by == "a call between":
            run.task(driver, "note", at + 3.1, at + 3.2, at + 3.3, worker="n")
    finding = found(run).get("polling")
    assert (finding is not None) == (sleeps == 400 and by in {"wait", "queue"})
    if finding is not None:
        assert "asked 20 times" in finding.text
        assert finding.share == pytest.approx(19 * 0.4 / 10, abs=0.01)


@pytest.mark.parametrize("library", ["", "sweep ray.tune", "run ray.train"])
def test_the_waits_of_a_library_in_the_driver_are_no_polling(library: str) -> None:
    run = made()
    driver = run.driver(0, 10_000)
    if library:
        run.span(library, 50, 9_995, driver)
    load = run.task(driver, "load", 1, 2, 9_990)
    for number in range(20):
        run.wait(driver, [load], 100 + 400 * number, 103 + 400 * number, ready=[])
    assert ("polling" in found(run)) == (not library)


def test_the_question_that_is_asked_most_is_named() -> None:
    run = made()
    driver = run.driver(0, 10_000)
    load = run.task(driver, "load", 1, 2, 9_990)
    run.task(driver, "_QueueActor.empty", 50, 51, 52, worker="q", actor=run.actor())
    for number in range(20):
        run.wait(driver, [load], 100 + 400 * number, 103 + 400 * number, ready=[])
    finding = found(run)["polling"]
    assert "asked 20 times" in finding.text
    assert "by ray.wait with a timeout" in finding.text


def test_waits_for_placement_groups_are_no_questions_about_calls() -> None:
    run = made()
    driver = run.driver(0, 10_000)
    for number in range(20):
        attributes = {names.RAY_PLACEMENT_GROUP_ID: "ab", names.RAY_READY_OBJECT_COUNT: 0}
        run.span("PlacementGroup.wait", 100 + 400 * number, 103 + 400 * number, driver, attributes=attributes)
    assert "polling" not in found(run)
