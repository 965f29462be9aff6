"""Clocks of machines that differ: found by causality, corrected by the least, and said."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hand_made import MS, START, HandMade

from ray_tracing_hooks._insight.model.clocks import correct


def run(second: float, third: float = 0.0, *, waits: bool = True) -> HandMade:
    """A task on each of two further machines, whose clocks are ahead by these milliseconds."""
    made = HandMade()
    driver = made.driver(0, 200)
    outer = made.submit(driver, "f", 10)
    frame = made.run(outer, 12, 100, node="n2", worker="w2", clock=second)
    inner = made.submit(frame, "g", 20, node="n2", worker="w2", clock=second)
    made.run(inner, 22, 50, node="n3", worker="w3", clock=third)
    if waits:
        made.get(frame, [inner], 21, 51, node="n2", worker="w2", clock=second)
        made.get(driver, [outer], 11, 102)
    return made


@pytest.mark.parametrize(
    ("second", "third", "expected"),
    [
        (0, 0, {}),
        (1, 1, {}),  # nothing contradicts it
        (50, 50, {"host-n2": -48, "host-n3": -47}),  # seems to end after the get
        (-50, -50, {"host-n2": 48, "host-n3": 46}),  # seems to begin before it was submitted
        (0, -500, {"host-n3": 498}),
        (0, 500, {"host-n3": -499}),
    ],
)
def test_a_clock_is_moved_by_the_least_that_makes_it_right(
    second: float, third: float, expected: dict[str, float]
) -> None:
    """Up or down, also through a second machine; the driver's clock is right."""
    table = correct(run(second, third).table())
    assert {machine: shift / MS for machine, shift in table.quality.clocks.items()} == expected
    start_of = {table.name_of(row): (table.start[row] - START) / MS for row in range(len(table))}
    assert start_of["job.py ray.driver"] == 0
    assert start_of["f ray.remote"] <= start_of["f ray.remote_worker"]
    assert start_of["g ray.remote"] <= start_of["g ray.remote_worker"]
    assert list(table.start) == sorted(table.start)


def test_times_of_a_machine_that_is_not_known_move_no_clock() -> None:
    """They may be by the clocks of several: such a submission was recorded by the worker that ran the call."""
    made = run(0)
    for name, ahead in (("n2", 500), ("n3", -500)):
        call = made.submit("", "h", 30)
        made.spans[-1].resource = {}
        made.run(call, 31, 40, node=name, worker=f"w{name}", clock=ahead)
    assert correct(made.table()).quality.clocks == {}


@pytest.mark.parametrize(("ahead", "expected"), [(-2000, {"host-n2": 1999}), (0, {}), (3000, {})])
def test_a_clock_is_moved_where_a_child_begins_before_its_parent(ahead: float, expected: dict[str, float]) -> None:
    """As the parts of a request of Ray Serve, which are no calls."""
    made = HandMade()
    proxy = made.span("GET /", 0, 10, worker="proxy")
    made.span("Model.predict", 1, 9, proxy, node="n2", worker="replica", clock=ahead)
    assert {machine: shift / MS for machine, shift in correct(made.table()).quality.clocks.items()} == expected


def test_a_corrected_span_is_corrected_as_a_whole() -> None:
    """Start, end and events move together; parents stay parents."""
    made = run(0, -500)
    before = made.table()
    table = correct(before)
    old = next(span for span in made.spans if span.name == "g ray.remote_worker")
    row = next(row for row in range(len(table)) if table.name_of(row) == old.name)
    new = table.span(row)
    assert (new.start_ns - old.start_ns, new.end_ns - old.end_ns) == (498 * MS, 498 * MS)
    assert table.name_of(table.parent[row]) == "g ray.remote"
    assert new.parent_id == old.parent_id


def test_a_lost_end_stays_unknown() -> None:
    """What did not end is not given an end by a shift."""
    made = HandMade()
    driver = made.driver(0, 200)
    call = made.submit(driver, "f", 100)
    made.run(call, 0, None, node="n2", state="lost")
    table = correct(made.table())
    assert table.quality.clocks == {"host-n2": 100 * MS}
    assert min(table.end) == 0


def test_a_span_that_contradicts_the_others_moves_no_clock() -> None:
    """It begins before it was submitted, and ends after its result was there."""
    made = run(0)
    other = made.submit(made.spans[0].span_id, "h", 150)
    made.run(other, 0, 10_000, node="n2", worker="w2")
    made.get(made.spans[0].span_id, [other], 151, 160)
    assert correct(made.table()).quality.clocks == {}


@pytest.mark.parametrize("skew", [0, -50, 50])
def test_one_wrong_time_does_not_move_a_clock_against_all_others(skew: float) -> None:
    made = HandMade()
    driver = made.driver(0, 2000)
    for number in range(5):
        at = 100 * number
        call = made.submit(driver, "f", at)
        made.run(call, at + 2, at + 80, node="n2", worker="w2", clock=skew)
        made.get(driver, [call], at + 1, at + 82)
    wrong = made.submit(driver, "f", 600)
    made.run(wrong, 100, 660, node="n2", worker="w2", clock=skew)
    shifts = correct(made.table()).quality.clocks
    assert abs(shifts.get("host-n2", 0) / MS + skew) <= 2


def test_contradictions_among_several_machines_do_not_go_on_for_ever() -> None:
    """Each pair of machines may agree, and no shifts meet the bounds of all."""
    made = HandMade()
    driver = made.driver(0, 1000)
    first = made.submit(driver, "f", 10)
    frame = made.run(first, 5, 500, node="n2", worker="w2")
    second = made.submit(frame, "g", 20, node="n2", worker="w2")
    inner = made.run(second, 15, 500, node="n3", worker="w3")
    third = made.submit(inner, "h", 30, node="n3", worker="w3")
    made.run(third, 25, 500)
    assert set(correct(made.table()).quality.clocks) == {"host-n2", "host-n3"}


def test_a_run_of_two_machines_without_calls_tells_nothing_about_their_clocks() -> None:
    """A driver may get what no call of the run has made."""
    made = HandMade()
    driver = made.driver(0, 200)
    made.get(driver, ["0" * 48 + "01000000"], 10, 20)
    made.span("elsewhere", 0, 9, parent=driver, node="n2", worker="w2")
    assert correct(made.table()).quality.clocks == {}


@pytest.mark.parametrize(("years", "is_corrected"), [(-50, True), (50, True), (200, False)])
def test_a_clock_may_be_off_by_decades_and_not_by_centuries(years: int, is_corrected: bool) -> None:
    """A computer without a clock of its own may begin in 1970; what is farther away is damaged."""
    table = correct(run(years * 365 * 24 * 3_600_000).table())
    assert bool(table.quality.clocks) == is_corrected


@pytest.mark.parametrize("hours", [-1, 1])
def test_one_wrong_time_moves_no_clock_against_what_others_say_through_a_third_machine(hours: int) -> None:
    """Each pair of machines agrees: calls go around in one direction, and nothing waits for their results."""
    made = HandMade()
    driver = made.driver(0, 10_000)
    for number in range(20):
        at, wrong = 100 * number, 3_600_000 * hours if number == 7 else 0
        first = made.submit(driver, "f", at)
        outer = made.run(first, at + 1, at + 60, node="n2", worker="w2", clock=wrong)
        second = made.submit(outer, "g", at + 2, node="n2", worker="w2", clock=wrong)
        inner = made.run(second, at + 3, at + 50, node="n3", worker="w3")
        made.run(made.submit(inner, "h", at + 4, node="n3", worker="w3"), at + 5, at + 40)
    assert correct(made.table()).quality.clocks == {}


@pytest.mark.parametrize("skew", [0, 2000])
def test_clocks_that_nothing_can_make_right_are_moved_to_about_where_they_belong(skew: int) -> None:
    """Those of many machines, which change all the time by more than a message takes."""
    made, random, size = HandMade(), Random(7), 30
    driver = made.driver(0, 100_000)
    skews = [0.0, *(random.uniform(-skew, skew) for _ in range(size - 1))]
    for number in range(1500):
        one, other = random.randrange(size), random.randrange(size)
        at = 60 * number
        clocks = [skews[each] + random.uniform(-20, 20) for each in (one, other)]
        on: dict[str, Any] = {"node": f"n{1 + one}", "worker": f"w{one}", "clock": clocks[0]}
        frame = made.run(made.submit(driver, "f", at), at, at + 50, **on)
        call = made.submit(frame, "g", at + 1, **on)
        made.run(call, at + 2, at + 40, node=f"n{1 + other}", worker=f"w{other}", clock=clocks[1])
        made.get(frame, [call], at + 1, at + 42, **on)
    shifts = correct(made.table()).quality.clocks
    off = [shifts.get(f"host-n{1 + each}", 0) / MS + skews[each] for each in range(size)]
    assert max(map(abs, off)) < 100
