"""The critical path, on runs made by hand whose answers are computed by hand. Times are milliseconds."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import MS, START, HandMade, workers_alone

from ray_tracing_hooks._insight.analysis import recorded
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.critical_path import (
    ACTOR_QUEUE,
    DELIVERY,
    GET_TIME,
    RETRYING,
    RUN,
    SCHEDULING,
    STARTING,
    SUBMIT,
    UNEXPLAINED,
    WAITING,
    WORKER_QUEUE,
    Path,
)
from ray_tracing_hooks._insight.analysis.deadlocks import deadlocks
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.analysis.walk import critical_path
from ray_tracing_hooks._insight.model.calls import PARTLY, Calls

UNSEEN = "12" * 8 + "f" * 24 + "01000000" + "01000000"
"""An object of a task that makes no span."""


def steps(path: Path, calls: Calls) -> list[tuple[str, str, float, float]]:
    """Kind, place, beginning and end of each step; checks what holds for every path."""
    end = path.start
    for step in path.steps:
        assert step.start == end
        assert step.end > step.start
        end = step.end
    assert end == path.end
    assert sum(path.kinds.values()) == path.wall
    named = [calls.frame_name(step.row) if step.row >= 0 else "" for step in path.steps]
    return [
        (step.kind, name, (step.start - START) / MS, (step.end - START) / MS)
        for step, name in zip(path.steps, named, strict=True)
    ]


def kinds(path: Path) -> dict[str, float]:
    return {kind: time / MS for kind, time in path.kinds.items() if time}


def functions(path: Path) -> dict[str, float]:
    return {function: time / MS for function, time in path.functions.items() if time}


def critical(run: HandMade, now: float | None = None) -> tuple[Path, Calls]:
    calls = Calls(run.table(now))
    return critical_path(calls), calls


def test_a_chain() -> None:
    """Tasks that are each the argument of the next one: the driver's time, then each task with what starts it."""
    run, driver = HandMade.driven(100)
    first = run.task(driver, "a", 5, 10, 40, worker="w1")
    second = run.task(driver, "b", 6, 45, 60, arguments=[first.object()], worker="w2")
    run.get(driver, [second], 7, 62)
    path, calls = critical(run)
    assert steps(path, calls) == [
        (RUN, "job.py", 0, 5),
        (SCHEDULING, "a", 5, 10),
        (RUN, "a", 10, 40),
        (SCHEDULING, "b", 40, 45),
        (RUN, "b", 45, 60),
        (GET_TIME, "ray.get", 60, 62),
        (RUN, "job.py", 62, 100),
    ]
    assert [step.edge for step in path.steps] == ["nothing", "submission", "code", "argument", "code", "get", "code"]
    assert (path.is_exact, path.coverage, path.is_estimated) == (True, 1.0, False)


def test_time_in_remote_is_told_apart() -> None:
    """What a driver spends in `.remote()` is submission, and not its own code."""
    run, driver = HandMade.driven(60)
    calls = [run.submit(driver, "t", 10 * number, took=8) for number in range(3)]
    for number, call in enumerate(calls):
        run.run(call, 30, 48 + number, worker=f"w{number}")
    run.get(driver, calls, 28, 50)
    path, _ = critical(run)
    # Up to the end of the last submission the driver took 28 ms, including submissions of 3 x 8 ms.
    assert kinds(path) == {SUBMIT: 24, RUN: 4 + 20 + 10, SCHEDULING: 2}


def test_waiting_for_some() -> None:
    """`ray.wait` ends with the last of those that were ready, not with the last of all."""
    run, driver = HandMade.driven(40)
    tasks = [run.task(driver, f"t{end}", 0, 5, end, worker=f"w{end}") for end in (10, 20, 90)]
    run.wait(driver, tasks, 1, 21, ready=tasks[:2])
    path, _ = critical(run)
    assert functions(path) == {"t20": 15, "job.py": 19}
    assert kinds(path) == {SCHEDULING: 5, RUN: 15 + 19, GET_TIME: 1}


def test_a_wait_that_gave_up_waited_in_vain() -> None:
    """After a timeout no task is the reason why it went on: it waited, and fetched nothing."""
    run, driver = HandMade.driven(40)
    task = run.task(driver, "t", 0, 5, 90)
    run.get(driver, [task], 1, 21, error="GetTimeoutError")
    run.wait(driver, [task], 22, 32, ready=[])
    path, calls = critical(run)
    assert steps(path, calls) == [
        (RUN, "job.py", 0, 1),
        (WAITING, "ray.get", 1, 21),
        (RUN, "job.py", 21, 22),
        (WAITING, "ray.wait", 22, 32),
        (RUN, "job.py", 32, 40),
    ]


def polling(own: float, timeout: float) -> HandMade:
    """A task of 80 ms, for which a driver looks again and again, with work of its own in between."""
    run, driver = HandMade.driven(120)
    task = run.task(driver, "t", 0, 5, 85)
    at = 1.0
    while at + timeout < 85:
        run.wait(driver, [task], at, at + timeout, ready=[])
        at += timeout + own
    run.wait(driver, [task], max(at, 85.5), max(at, 85.5) + 0.5, ready=[task])
    return run


def test_who_polls_waits_for_what_it_polls() -> None:
    """Timeouts that are longer than what the driver does between them: the path is in the task until it ended."""
    path, _ = critical(polling(own=2, timeout=10))
    assert functions(path) == {"t": 80, "job.py": 35 - kinds(path)[GET_TIME]}
    assert kinds(path)[SCHEDULING] == 5
    assert path.is_exact


def test_who_polls_may_learn_of_a_result_after_a_timeout() -> None:
    """The task ends just before a wait gives up: that wait was for it, as were all before it."""
    run, driver = HandMade.driven(60)
    task = run.task(driver, "t", 0, 5, 39)
    for start, end in ((1, 20), (21, 40), (41, 50)):
        run.wait(driver, [task], start, end, ready=[])
    run.wait(driver, [task], 51, 52, ready=[task])
    path, calls = critical(run)
    assert steps(path, calls) == [
        (SCHEDULING, "t", 0, 5),
        (RUN, "t", 5, 39),
        (GET_TIME, "ray.wait", 39, 40),
        (RUN, "job.py", 40, 41),
        (WAITING, "ray.wait", 41, 50),
        (RUN, "job.py", 50, 51),
        (GET_TIME, "ray.wait", 51, 52),
        (RUN, "job.py", 52, 60),
    ]
    assert path.is_exact


def test_who_looks_in_passing_does_not_wait() -> None:
    """A look at what is there, between work that takes longer than it: the path is in that work."""
    path, _ = critical(polling(own=10, timeout=0.5))
    assert "t" not in functions(path)
    assert functions(path)["job.py"] > 100
    assert kinds(path)[WAITING] == pytest.approx(0.5 * 9, abs=0.6)


def test_a_wait_for_more_than_there_were() -> None:
    """What was ready in time is what it has waited for, and the rest of the time until the timeout is said."""
    run, driver = HandMade.driven(60)
    tasks = [run.task(driver, f"t{end}", 0, 5, end, worker=f"w{end}") for end in (20, 90)]
    run.wait(driver, tasks, 1, 41, ready=tasks[:1], num_returns=2)
    path, calls = critical(run)
    assert steps(path, calls) == [
        (SCHEDULING, "t20", 0, 5),
        (RUN, "t20", 5, 20),
        (WAITING, "ray.wait", 20, 41),
        (RUN, "job.py", 41, 60),
    ]


def test_what_a_wait_was_for_may_make_no_span() -> None:
    """Objects of tasks that were not recorded: no span says what it was, and it is not taken for fetching."""
    run, driver = HandMade.driven(60)
    run.wait(driver, [UNSEEN], 1, 41, ready=[UNSEEN])
    path, _ = critical(run)
    assert kinds(path) == {RUN: 20, UNEXPLAINED: 40}


def test_an_argument_of_unknown_origin_may_be_what_a_call_waited_for() -> None:
    """Its task makes no span: the time until the call starts is not taken for scheduling."""
    run, driver = HandMade.driven(60)
    task = run.task(driver, "t", 0, 30, 50, arguments=[UNSEEN])
    run.get(driver, [task], 1, 50)
    path, _ = critical(run)
    assert kinds(path) == {UNEXPLAINED: 30, RUN: 20 + 10}
    assert not path.is_exact


def test_an_object_of_unknown_origin_may_be_what_a_wait_waited_for() -> None:
    """Another object was there at 20: until 40 the wait may have waited for the one of which nothing is known."""
    run, driver = HandMade.driven(60)
    task = run.task(driver, "t", 0, 5, 20)
    run.get(driver, [task, UNSEEN], 0, 40)
    path, _ = critical(run)
    assert kinds(path) == {SCHEDULING: 5, RUN: 15 + 20, UNEXPLAINED: 20}
    assert not path.is_exact


def test_waits_of_a_call_that_makes_no_span_are_not_those_of_its_caller() -> None:
    """It passes its caller's span on, so what it waits for in its own process is below that."""
    run, driver = HandMade.driven(60)
    inner = run.submit(driver, "inner", 10, worker="w1")
    run.run(inner, 15, 30, worker="w2")
    run.get(driver, [inner], 11, 31, worker="w1")
    run.get(driver, [UNSEEN], 5, 50)
    path, _ = critical(run)
    assert kinds(path) == {RUN: 5 + 10, UNEXPLAINED: 45}


@pytest.mark.parametrize(("at_once", "name"), [(True, "ray.get"), (False, "ray.await")])
def test_what_threads_and_coroutines_wait_for_is_not_exact(*, at_once: bool, name: str) -> None:
    """Waits that overlap, or coroutines: the code may have waited for the other ones, or for something else."""
    run, driver = HandMade.driven(60)
    tasks = [run.task(driver, f"t{number}", 0, 5, 20 + number, worker=f"w{number}") for number in range(2)]
    run.get(driver, tasks[:1], 1, 20)
    run.get(driver, tasks[1:], 2 if at_once else 20, 22)
    for span in run.spans[-2:]:
        span.name = name
    assert not critical(run)[0].is_exact


def in_a_thread(span: str, run: HandMade, *, waited: bool = False) -> None:
    (found,) = (each for each in run.spans if each.span_id == span)
    found.attributes |= {"thread.id": 7} | ({"ray.driver_waited": True} if waited else {})


@pytest.mark.parametrize("waited", [False, True])
def test_a_wait_of_a_thread_counts_while_the_driver_waits_for_a_thread(*, waited: bool) -> None:
    """Its own code ran, or waited until the thread had its object; either way the rest is not recorded."""
    run, driver = HandMade.driven(100, parts="actor,get,task,wait")
    task = run.task(driver, "t", 1, 5, 60)
    in_a_thread(run.get(driver, [task], 2, 61), run, waited=waited)
    path, _ = critical(run)
    assert functions(path) == ({"t": 55, "job.py": 1 + 39} if waited else {"job.py": 100})
    assert not path.is_exact


def test_a_dataset_in_a_thread_is_not_what_the_driver_waits_for() -> None:
    """Nothing says that the driver waited for the thread."""
    run, driver = HandMade.driven(100, parts="actor,data,get,task,wait")
    in_a_thread(run.span("dataset ray.data", 5, 95, driver), run)
    path, _ = critical(run)
    assert kinds(path) == {RUN: 100}


def test_a_driver_that_makes_futures_may_have_waited_for_its_calls() -> None:
    """`ref.future().result()` makes no span that says how long it waited."""
    run, driver = HandMade.driven(100, parts="actor,get,task,wait")
    run.task(driver, "t", 0, 5, 40)
    run.span("ray.future", 1, 1, driver)
    run.task(driver, "t", 42, 45, 90)
    path, _ = critical(run)
    assert functions(path) == {"t": 35 + 45, "job.py": 2 + 10}
    assert not path.is_exact


def test_a_frame_that_begins_after_what_it_caused_is_not_entered() -> None:
    """One of the times is wrong: the path ends there, and does not go forward."""
    run, driver = HandMade.driven(100)
    outer = run.run(run.submit(driver, "outer", 0), 60, 95, worker="w1")
    inner = run.task(outer, "inner", 10, 15, 50, worker="w2")
    run.get(driver, [inner], 5, 51)
    path, calls = critical(run)
    assert steps(path, calls)[0] == (UNEXPLAINED, "", 0, 10)
    assert not path.is_exact


def test_a_driver_without_spans_is_not_explained() -> None:
    """Where waiting was not recorded, a long time without any span of the driver's may be anything."""
    run, driver = HandMade.driven(1000)
    run.task(driver, "t", 20, 25, 85)
    run.span("mine", 300, 500, driver)
    run.span("elsewhere", 600, 700, driver, worker="w1")
    path, calls = critical(run)
    assert steps(path, calls) == [
        (RUN, "job.py", 0, 20),
        (SCHEDULING, "t", 20, 25),
        (RUN, "t", 25, 85),
        (UNEXPLAINED, "job.py", 85, 300),
        (RUN, "job.py", 300, 500),
        (UNEXPLAINED, "job.py", 500, 1000),
    ]
    assert path.coverage == pytest.approx(0.285)
    assert not path.is_exact


def test_a_driver_of_which_waiting_was_recorded_ran() -> None:
    """Its Resource says that waiting makes spans: without any it has not waited, and its code ran."""
    run = HandMade()
    run.parts = "actor,get,task,wait"
    run.driver(0, 1000)
    path, _ = critical(run)
    assert (kinds(path), path.is_exact) == ({RUN: 1000}, True)


def test_waiting_that_was_recorded_in_one_process_only() -> None:
    """The driver's is known, and that of a task in whose worker it was switched off is assumed."""
    run, driver = HandMade.driven(100, parts="actor,get,task,wait")
    run.parts = "actor,task"
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 5, 90)
    run.run(run.submit(frame, "inner", 25, worker="w1"), 30, 70, worker="w2")
    run.get(driver, [outer], 1, 91)
    path, calls = critical(run)
    assert functions(path) == {"outer": 20 + 20, "inner": 40, "job.py": 9}
    assert (path.is_exact, calls.waiting) == (False, PARTLY)


def test_of_the_files_of_workers_alone_only_their_time_is_split() -> None:
    """Calls say when they were submitted, maybe by another clock: the path begins with the first span all the same."""
    path, calls = critical(workers_alone())
    assert steps(path, calls) == [(RUN, "A.__init__", 2, 4), (UNEXPLAINED, "A.work", 4, 5), (RUN, "A.work", 5, 25)]
    assert (path.is_cut, path.is_exact) == (True, False)


def without_root_span(*, waits: bool) -> HandMade:
    """A driver whose own span is not there: it calls a task that ends after all that the driver recorded."""
    run = HandMade()
    run.parts = "actor,get,task,wait" if waits else "actor,task"
    first = run.task("", "first", 0, 5, 20, worker="w1")
    if waits:
        run.get("", [first], 1, 21)
    run.task("", "last", 30, 35, 135, worker="w1")
    return run


@pytest.mark.parametrize("waits", [False, True])
def test_a_driver_without_a_span_goes_on_as_long_as_its_calls(*, waits: bool) -> None:
    """Ray ends the calls of a driver with it, so it has not ended before them, and may have waited for the last one."""
    path, calls = critical(without_root_span(waits=waits))
    assert functions(path)["last"] == 100
    assert path.end == START + 135 * MS
    assert (path.is_cut, path.is_exact) == (True, False)
    assert [each[:2] for each in steps(path, calls)[-2:]] == [(SCHEDULING, "last"), (RUN, "last")]


def test_what_goes_on_after_a_driver_without_a_span_is_not_its_code() -> None:
    """A call of a call: nothing shows what the driver did meanwhile."""
    run = HandMade()
    run.parts = "actor,get,task,wait"
    outer = run.submit("", "outer", 0)
    frame = run.run(outer, 5, 20, worker="w1")
    run.run(run.submit(frame, "inner", 10, worker="w1"), 15, 60, worker="w2")
    path, calls = critical(run)
    assert steps(path, calls)[-2:] == [(RUN, "outer", 5, 20), (UNEXPLAINED, "driver", 20, 60)]


def queue() -> HandMade:
    """Three calls to one actor, submitted at once, 20 ms each."""
    run, driver = HandMade.driven(80)
    actor = run.actor()
    run.task(driver, "A.__init__", 0, 2, 4, actor=actor)
    calls = [run.task(driver, "A.f", 5, 10 + 21 * number, 30 + 21 * number, actor=actor) for number in range(3)]
    run.get(driver, calls, 6, 73)
    return run


def test_the_critical_path_goes_through_what_an_actor_was_busy_with() -> None:
    """All three calls are on the path, since each had to wait for the one before it."""
    path, calls = critical(queue())
    assert functions(path) == {"A.f": 60, "job.py": 5 + 7}
    assert kinds(path) == {RUN: 72, DELIVERY: 5 + 1 + 1, GET_TIME: 1}
    assert [step.edge for step in path.steps].count("actor") == 2
    assert steps(path, calls)[1] == (DELIVERY, "A.f", 5, 10)


def test_the_split_of_time_shows_the_queue() -> None:
    """The last call waited from its submission until the actor was free."""
    path = critical_path(Calls(queue().table()), through_queues=False)
    assert kinds(path) == {RUN: 5 + 20 + 7, ACTOR_QUEUE: 51 - 5, DELIVERY: 1, GET_TIME: 1}


@pytest.mark.parametrize(("waited_for", "expected"), [(2, {"A.f": 29 + 24}), (3, {"A.f": 49 + 20})])
def test_an_actor_with_two_slots_is_busy_when_both_are(waited_for: int, expected: dict[str, float]) -> None:
    """The call that freed a slot is on the path; while one slot is free nothing waits for the other."""
    run, driver = HandMade.driven(100)
    actor = run.actor()
    calls = [run.submit(driver, "A.f", 0, actor=actor) for _ in range(4)]
    # Until 30 both slots were taken, and then until 50. At 55 one was: until 60 the fourth waited for Ray.
    for call, start, end in zip(calls, (1, 1, 31, 60), (30, 50, 55, 80), strict=True):
        run.run(call, start, end, attributes={"ray.max_concurrency": 2})
    run.get(driver, [calls[waited_for]], 0, 90)
    path, _ = critical(run)
    assert functions(path) == expected | {"job.py": 10}


def test_a_task_waits_for_the_task_before_it_on_its_worker() -> None:
    """Five tasks on one worker are all on the path; as a split of time it is waiting for a worker."""
    run, driver = HandMade.driven(60)
    tasks = [run.task(driver, "t", 0, 1 + 10 * number, 10 + 10 * number) for number in range(5)]
    run.get(driver, tasks, 0, 50)
    path, calls = critical(run)
    assert kinds(path) == {RUN: 45 + 10, SCHEDULING: 5}
    assert kinds(critical_path(calls, through_queues=False)) == {RUN: 9 + 10, WORKER_QUEUE: 40, SCHEDULING: 1}


def test_an_actor_must_be_there_before_its_methods() -> None:
    """The first method waits for the end of the creation."""
    run, driver = HandMade.driven(60)
    actor = run.actor()
    run.task(driver, "A.__init__", 1, 10, 40, actor=actor)
    call = run.task(driver, "A.f", 2, 41, 50, actor=actor)
    run.get(driver, [call], 3, 50)
    path, calls = critical(run)
    assert steps(path, calls) == [
        (RUN, "job.py", 0, 1),
        (SCHEDULING, "A.__init__", 1, 10),
        (RUN, "A.__init__", 10, 40),
        (DELIVERY, "A.f", 40, 41),
        (RUN, "A.f", 41, 50),
        (RUN, "job.py", 50, 60),
    ]
    assert path.steps[3].edge == "creation"


def test_an_object_that_was_put_is_there_at_the_end_of_the_put() -> None:
    """A task that takes it waits for the put, which here comes after the submission in another thread."""
    run, driver = HandMade.driven(60)
    stored = run.put(driver, 1, 20)
    task = run.task(driver, "t", 5, 25, 50, arguments=[stored])
    run.get(driver, [task], 6, 50)
    path, calls = critical(run)
    assert (SCHEDULING, "t", 20, 25) in steps(path, calls)
    assert kinds(path) == {RUN: 20 + 25 + 10, SCHEDULING: 5}


def test_an_item_of_a_generator_is_there_before_its_task_ends() -> None:
    """A wait for an item goes to the middle of the generator's run. Before a later item it may have been held back."""
    for index, is_exact in ((2, True), (3, False)):
        run, driver = HandMade.driven(60)
        call = run.task(driver, "items", 0, 10, 100)
        run.wait(driver, [call.object(index)], 1, 40, ready=[call.object(index)])
        path, calls = critical(run)
        assert steps(path, calls) == [(SCHEDULING, "items", 0, 10), (RUN, "items", 10, 40), (RUN, "job.py", 40, 60)]
        assert (path.is_exact, path.clamped) == (is_exact, 0)


def test_a_generator_does_not_get_the_time_of_a_slow_consumer() -> None:
    """The first item is waited for. The others are there when the driver gets them, so its own code took the time."""
    run, driver = HandMade.driven(160)
    call = run.task(driver, "items", 0, 10, 150)
    run.wait(driver, [call.object(2)], 1, 30, ready=[call.object(2)])
    for number, start in enumerate((31, 70, 110)):
        run.get(driver, [call.object(2 + number)], start, start + 2)
    path, _ = critical(run)
    assert kinds(path) == {SCHEDULING: 10, RUN: 20 + 124, GET_TIME: 6}
    assert functions(path) == {"items": 20, "job.py": 124}
    assert path.is_exact


def signalled(others: bool) -> HandMade:
    """A task waits for a method of an actor with several slots, which another call of the actor may release."""
    run = HandMade()
    driver, actor = run.driver(0, 200), run.actor()
    slots: dict[str, Any] = {"worker": "w1", "attributes": {"ray.max_concurrency": 1000, "ray.asyncio": True}}
    run.task(driver, "Event.__init__", 0, 2, 3, actor=actor, **slots)
    waits = run.task(driver, "Event.wait", 4, 10, 150.2, actor=actor, **slots)
    if others:
        run.task(driver, "Event.set", 148, 150, 150.1, actor=actor, **slots)
    run.get(driver, [waits], 149, 151)
    return run


@pytest.mark.parametrize("others", [True, False])
def test_a_method_may_wait_for_another_call_of_its_actor(others: bool) -> None:
    """That is not recorded: so the path through its code is inferred, if there was one. Then no bound is claimed."""
    calls = Calls(signalled(others).table())
    path = critical_path(calls)
    assert functions(path)["Event.wait"] == pytest.approx(140.2)
    assert (path.is_exact, len(path.released)) == (not others, int(others))
    said = recorded.bound(calls, path)
    assert ("shorter by at most" in said) is not others
    assert ("Event.wait may have waited for other calls of its actor" in said) is others


@pytest.mark.parametrize(("error", "way"), [("ValueError", {RUN, SCHEDULING, GET_TIME}), ("worker_died", {RETRYING})])
def test_a_task_that_is_retried_waits_for_a_worker_as_others_do(error: str, way: set[str]) -> None:
    """Ray puts it behind those that wait already. Where its worker died, it needs another one."""
    run, driver = HandMade.driven(100, parts="actor,get,task,wait")
    calls = [run.submit(driver, "work", 1 + number / 100) for number in range(4)]
    run.run(calls[0], 2, 10, state="lost" if error == "worker_died" else "ended", error=error)
    for number, call in enumerate(calls[1:]):
        run.run(call, 10 + 20 * number, 30 + 20 * number)
    run.run(calls[0], 70, 90, attributes={"ray.attempt": 1})
    run.get(driver, calls, 2, 91)
    path = Analysis(run.table()).path
    assert way <= {kind for kind, length in path.kinds.items() if length}
    assert (path.kinds[RETRYING] == 60 * MS) == (error == "worker_died")


def test_attempts_come_one_after_the_other() -> None:
    """A task that failed once and was killed once: all three attempts, and the time between them."""
    run, driver = HandMade.driven(100)
    call = run.task(driver, "t", 0, 5, 20, error="ValueError")
    run.run(call, 30, 40, worker="w2", state="lost", error="worker_died", attributes={"ray.attempt": 1})
    run.run(call, 60, 90, worker="w3", attributes={"ray.attempt": 2})
    run.get(driver, [call], 1, 91)
    path, calls = critical(run)
    assert kinds(path) == {SCHEDULING: 5, RUN: 15 + 10 + 30 + 9, RETRYING: 10 + 20, GET_TIME: 1}
    assert path.is_estimated
    assert calls.attempts(0) == [3, 4, 5]


def test_a_worker_that_died_for_good() -> None:
    """A get that failed with its task waited for the end of it."""
    run, driver = HandMade.driven(50)
    call = run.task(driver, "t", 0, 5, 30, state="lost", error="worker_died")
    run.get(driver, [call], 1, 40, error="WorkerCrashedError")
    path, _ = critical(run)
    assert kinds(path) == {SCHEDULING: 5, RUN: 25 + 10, GET_TIME: 10}


@pytest.mark.parametrize("late", [0, 1], ids=["the long wait begins first", "the long wait begins last"])
def test_of_waits_at_the_same_time_the_last_to_end_is_on_the_path(late: int) -> None:
    """As of `asyncio.gather`, and of threads."""
    run, driver = HandMade.driven(100)
    slow = run.task(driver, "slow", 0, 5, 90, worker="w1")
    quick = run.task(driver, "quick", 1, 5, 20, worker="w2")
    for began, (call, ended) in enumerate([(quick, 21), (slow, 91)][:: 1 if late else -1], 2):
        run.get(driver, [call], began, ended)
    path, calls = critical(run)
    assert functions(path) == {"slow": 85, "job.py": 9}
    assert (GET_TIME, "ray.get", 90, 91) in steps(path, calls)


def test_a_thread_that_waits_for_nothing_that_is_recorded_is_not_what_the_others_waited_for() -> None:
    """As threads of libraries do all the time."""
    run, driver = HandMade.driven(100)
    task = run.task(driver, "t", 0, 5, 60, worker="w1")
    run.get(driver, ["ff" * 28], 1, 95)
    run.get(driver, [task], 2, 61)
    path, _ = critical(run)
    assert functions(path) == {"t": 55, "job.py": 39}


def test_a_call_within_a_call() -> None:
    """The caller's own code is on the path before and after it waits."""
    run, driver = HandMade.driven(100)
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 5, 90)
    inner = run.submit(frame, "inner", 25, worker="w1")
    run.run(inner, 30, 70, worker="w2")
    run.get(frame, [inner], 26, 71, worker="w1")
    run.get(driver, [outer], 1, 92)
    path, _ = critical(run)
    assert functions(path) == {"outer": 20 + 19, "inner": 40, "job.py": 8}
    assert kinds(path) == {SCHEDULING: 5 + 5, RUN: 87, GET_TIME: 1 + 2}


def test_without_spans_of_waiting_it_is_assumed() -> None:
    """The caller waited for the last call that ended before; the same times as above, marked as assumed."""
    run, driver = HandMade.driven(100)
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 5, 90)
    run.run(run.submit(frame, "inner", 25, worker="w1"), 30, 70, worker="w2")
    path, _ = critical(run)
    assert functions(path) == {"outer": 20 + 20, "inner": 40, "job.py": 10}
    assert not path.is_exact
    assert [step.is_assumed for step in path.steps if step.kind == RUN] == [False, False, True, True]


def test_coroutines_wait_unseen() -> None:
    """`await` makes no span: in an async actor it is assumed, also where other waiting is recorded."""
    run, driver = HandMade.driven(100)
    actor = run.actor()
    outer = run.submit(driver, "A.f", 0, actor=actor)
    frame = run.run(outer, 5, 90, attributes={"ray.max_concurrency": 1000})
    run.run(run.submit(frame, "inner", 25, worker="w1"), 30, 70, worker="w2")
    run.get(driver, [outer], 1, 90)
    path, _ = critical(run)
    assert functions(path) == {"A.f": 20 + 20, "inner": 40, "job.py": 10}
    assert not path.is_exact


def test_more_objects_than_are_named() -> None:
    """Of more than 64 objects the last call that ended before is taken, and marked."""
    run, driver = HandMade.driven(400)
    tasks = [run.task(driver, "t", 0, 5, 100 + number, worker=f"w{number}") for number in range(100)]
    run.get(driver, tasks, 1, 200)
    path, _ = critical(run)
    assert functions(path) == {"t": 199 - 5, "job.py": 200}
    assert not path.is_exact


@pytest.mark.parametrize(
    ("task", "error"),
    [
        # The shipper closes the span of a killed worker later than Ray tells the caller.
        ({"state": "lost", "error": "worker_died"}, "WorkerCrashedError"),
        # By the clocks of two nodes.
        ({"node": "n2"}, ""),
    ],
    ids=["a death", "clocks"],
)
def test_causes_that_seem_to_come_late_are_clamped(task: dict[str, Any], error: str) -> None:
    """A task that ends after the get that waited for it: nothing is negative."""
    run, driver = HandMade.driven(50)
    call = run.task(driver, "t", 0, 5, 45, **task)
    run.get(driver, [call], 1, 40, error=error)
    path = critical_path(Calls(run.table()))
    assert kinds(path) == {SCHEDULING: 5, RUN: 35 + 10}
    assert path.clamped == 5 * MS


def test_a_deadlock_ends_the_path_and_is_told() -> None:
    """Two actors that wait for each other, still running, are named in their order. If one of them will give up, it is
    none.
    """
    run, driver = HandMade.driven(None)
    one, other = run.actor(), run.actor()
    first = run.submit(driver, "A.f", 0, actor=one)
    frame = run.run(first, 5, None, state="running", worker="w1")
    second = run.submit(frame, "B.f", 10, actor=other, worker="w1")
    below = run.run(second, 15, None, state="running", worker="w2")
    third = run.submit(below, "A.g", 20, actor=one, worker="w2")
    waits = run.get(below, [third], 21, None, state="running", worker="w2")
    run.get(frame, [second], 11, None, state="running", worker="w1")
    run.get(driver, [first], 1, None, state="running")
    path, calls = critical(run, now=1000)
    assert path.wall == 1000 * MS
    # The last call never began, since its actor is busy with the first one.
    assert steps(path, calls)[-1] == (UNEXPLAINED, "ray.get", 21, 1000)
    assert path.is_estimated
    (finding,) = find(Analysis(run.table(1000)))
    assert "2 calls had not ended" in finding.text
    assert finding.text.endswith("A.f > B.f > A.f")
    assert deadlocks(Calls(run.table(1000)))
    next(span for span in run.spans if span.span_id == waits).attributes["ray.timeout"] = 5.0
    assert not deadlocks(Calls(run.table(1000)))


def test_calls_that_wait_for_each_other_end_the_path() -> None:
    """Objects that each wait for the other's task make no endless walk."""
    run, driver = HandMade.driven(None)
    first, second = run.submit(driver, "f", 0), run.submit(driver, "g", 0)
    one = run.run(first, 5, None, state="running", worker="w1")
    other = run.run(second, 5, None, state="running", worker="w2")
    run.get(one, [second], 6, None, state="running", worker="w1")
    run.get(other, [first], 6, None, state="running", worker="w2")
    run.get(driver, [first], 1, None, state="running")
    path, calls = critical(run, now=100)
    assert steps(path, calls) == [(SCHEDULING, "g", 0, 5), (RUN, "g", 5, 6), (UNEXPLAINED, "ray.get", 6, 100)]


def test_a_driver_without_a_span_of_its_own() -> None:
    """Its submissions and waits stand for it: the path goes from the first to the last of them."""
    run = HandMade()
    for number in range(3):
        call = run.task("", "t", 10 + 30 * number, 15 + 30 * number, 30 + 30 * number)
        run.get("", [call], 11 + 30 * number, 31 + 30 * number)
    path, calls = critical(run)
    assert (path.wall, path.coverage) == ((91 - 10) * MS, 1.0)
    assert functions(path) == {"t": 45, "driver": 81 - 45 - 15 - 3}
    assert steps(path, calls)[-1] == (GET_TIME, "ray.get", 90, 91)


def test_a_submission_that_is_not_there() -> None:
    """The execution says when it was submitted, and by which task, but not what its arguments were."""
    run, driver = HandMade.driven(50)
    outer = run.task(driver, "outer", 0, 5, 45)
    inner = run.submit("", "inner", 10)
    run.spans.pop()
    run.run(inner, 20, 40, submitted=12, worker="w2", attributes={"ray.parent_task_id": outer.task})
    run.get(driver, [inner], 1, 41)
    path, calls = critical(run)
    assert steps(path, calls) == [
        (SCHEDULING, "outer", 0, 5),
        (RUN, "outer", 5, 12),
        (UNEXPLAINED, "inner", 12, 20),
        (RUN, "inner", 20, 40),
        (GET_TIME, "ray.get", 40, 41),
        (RUN, "job.py", 41, 50),
    ]


@pytest.mark.parametrize("through_queues", [True, False])
def test_nothing_and_next_to_nothing(*, through_queues: bool) -> None:
    """No span, and one span that took no time."""
    assert critical_path(Calls(HandMade().table()), through_queues=through_queues).steps == []
    run = HandMade()
    run.driver(5, 5)
    path = critical_path(Calls(run.table()), through_queues=through_queues)
    assert (path.steps, path.wall, path.coverage) == ([], 0, 1.0)


def test_a_long_chain_takes_no_recursion() -> None:
    """Three thousand calls, each calling the next one and waiting for it."""
    run = HandMade()
    count = 3_000
    parent = run.driver(0, 4 * count)
    worker = "driver"
    for number in range(count):
        call = run.submit(parent, "f", number, worker=worker)
        run.get(parent, [call], number, 4 * count - number, worker=worker)
        worker = f"w{number}"
        parent = run.run(call, number + 0.5, 4 * count - number - 1, worker=worker)
    path, _ = critical(run)
    assert path.coverage == 1.0
    assert path.kinds[GET_TIME] == count * MS


def test_the_start_of_a_worker_is_told_from_what_is_before_and_after() -> None:
    """Resources or a lease, then the process, then what the worker does before it begins the call."""
    run, driver = HandMade.driven(1000)
    late = run.task(driver, "late", 0, 700, 800, worker="w1")
    run.get(driver, [late], 1, 801)
    run.started("w1", 200, 600)
    path, calls = critical(run)
    assert steps(path, calls)[:4] == [
        (SCHEDULING, "late", 0, 200),
        (STARTING, "late", 200, 600),
        (SCHEDULING, "late", 600, 700),
        (RUN, "late", 700, 800),
    ]
    assert path.first_scheduling == {"late": 700 * MS}


def test_a_worker_that_was_starting_already_and_one_that_was_there() -> None:
    """Only what of the start a call waited for is its wait."""
    run, driver = HandMade.driven(1000)
    first = run.task(driver, "first", 300, 700, 800, worker="w1")
    run.get(driver, [first], 301, 801)
    second = run.task(driver, "second", 850, 900, 950, worker="w2")
    run.get(driver, [second], 851, 951)
    run.started("w1", 200, 600)
    run.started("w2", 200, 600)
    path, calls = critical(run)
    assert kinds(path) == {RUN: 300 + 100 + 49 + 50 + 49, STARTING: 300, SCHEDULING: 100 + 50, GET_TIME: 1 + 1}
    assert (STARTING, "first", 300, 600) in steps(path, calls)


def test_a_process_that_has_to_wait_for_the_start_of_others() -> None:
    """Ray limits how many start at once, so the time until its creation counts as worker start too."""
    run, driver = HandMade.driven(1000)
    calls = [
        run.task(driver, f"t{number}", 0, 210 + 200 * number, 220 + 200 * number, worker=f"w{number}")
        for number in range(2)
    ]
    run.get(driver, calls, 1, 421)
    run.started("w0", 10, 205)
    run.started("w1", 210, 405)
    path, calls_of = critical(run)
    assert [step for step in steps(path, calls_of) if step[1] == "t1"] == [
        (SCHEDULING, "t1", 0, 10),
        (STARTING, "t1", 10, 205),
        (SCHEDULING, "t1", 205, 210),
        (STARTING, "t1", 210, 405),
        (SCHEDULING, "t1", 405, 410),
        (RUN, "t1", 410, 420),
    ]
