"""The stacks of a flame graph: what is wide in it, on runs made by hand. Times are milliseconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hand_made import MS, HandMade

from ray_tracing_hooks._insight.analysis.flame import Flame, flame
from ray_tracing_hooks._insight.analysis.lanes import ends_of
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.table import Table

RECORDED = Path(__file__).parent / "recorded"


def stacks(table: Table) -> Flame:
    return flame(table, ends_of(table), table.is_failed())


def share(found: Flame) -> dict[str, float]:
    """By the label of a stack what it has of the wall time by itself."""
    return {label: each / MS for label, each in zip(found.label, found.share, strict=True) if each}


def test_a_moment_is_shared_by_what_runs_in_it() -> None:
    """Four calls at once have a quarter of the time each: together as wide as the time that they took, and no wider."""
    run, driver = HandMade.driven(100)
    calls = [run.task(driver, f"t{number}", 0, 10, 50, worker=f"w{number}") for number in range(4)]
    long = run.task(driver, "long", 0, 10, 90, worker="w9")
    run.get(driver, [*calls, long], 0, 90)
    found = stacks(run.table())
    assert share(found) == {
        "job.py ray.driver": pytest.approx(10, abs=0.1),
        # In the first 10 ms nothing ran: all that there is is the wait.
        "ray.get": pytest.approx(10, abs=0.1),
        **{f"t{number}": pytest.approx(8, abs=0.1) for number in range(4)},
        "long": pytest.approx(8 + 40, abs=0.1),
    }
    own = dict(zip(found.label, found.own, strict=True))
    assert (own["t1"], own["long"], own["ray.get"]) == (40 * MS, 80 * MS, 90 * MS)
    assert [label for label, is_wait in zip(found.label, found.is_wait, strict=True) if is_wait] == ["ray.get"]


def test_who_calls_is_not_wider_for_what_it_waits() -> None:
    """A call and the one that it waits for, one below the other: while the inner one runs, each moment is its."""
    run, driver = HandMade.driven(100)
    outer = run.submit(driver, "outer", 0)
    frame = run.run(outer, 0, 100)
    inner = run.submit(frame, "inner", 20, worker="w1")
    run.run(inner, 20, 80, worker="w2")
    run.get(frame, [inner], 20, 80, worker="w1")
    run.get(driver, [outer], 0, 100)
    found = share(stacks(run.table()))
    assert found == {"outer": pytest.approx(40, abs=0.1), "inner": pytest.approx(60, abs=0.1)}


@pytest.mark.parametrize("path", sorted(os.listdir(RECORDED)))
def test_shares_add_up_to_the_time_in_which_there_was_anything(path: str) -> None:
    """Of real runs: no moment counts twice, and none in which there is a span is missing."""
    table = load([str(RECORDED / path)])
    found = stacks(table)
    covered, until = 0, table.start[0]
    for start, end in zip(table.start, ends_of(table), strict=True):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    assert sum(found.share) == pytest.approx(covered, rel=0.01)
    assert all(each >= 0 for each in found.share)
    assert sum(found.own) >= sum(found.share) * 0.99
