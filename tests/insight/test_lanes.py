"""Lanes: spans as bars that nest or follow each other."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from made_spans import process, span

from ray_tracing_hooks._insight.analysis.lanes import Lanes, ends_of, lanes
from ray_tracing_hooks._insight.model.processes import places
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table


def laid(*spans: Span) -> tuple[Table, Lanes]:
    table = Table.of(spans)
    return table, lanes(table, places(table))


def shown(*spans: Span) -> dict[str, tuple[int, int]]:
    """The lane and the depth of each span, by its name."""
    table, found = laid(*spans)
    return {table.names[table.name[row]]: (found.of[row], found.depth[row]) for row in range(len(table))}


def test_a_span_that_was_never_ended_is_shown_where_it_began() -> None:
    """Its end is that of its process: to draw it so long would say that it ran, and make the run longer."""
    open_span = span(2, 4, 500, 1, name="open", attributes={"ray.never_ended": True})
    table = Table.of([span(1, 1, 11, name="a"), open_span])
    assert [end - begin for begin, end in zip(table.start, ends_of(table), strict=True)] == [10, 0]
    assert shown(span(1, 1, 11, name="a"), open_span) == {"a": (0, 0), "open": (0, 1)}


def test_calls_after_each_other_share_a_lane_and_what_is_in_them_nests() -> None:
    """A plain worker has one lane."""
    assert shown(
        span(1, 0, 10, name="a"),
        span(2, 2, 8, 1, name="in a"),
        span(3, 3, 4, 2, name="in in a"),
        span(4, 8, 10, 1, name="in a at its end"),
        span(5, 10, 20, name="b"),
    ) == {"a": (0, 0), "in a": (0, 1), "in in a": (0, 2), "in a at its end": (0, 1), "b": (0, 0)}


def test_what_goes_on_at_once_has_lanes_of_its_own() -> None:
    """Also where one would fit inside the other: only what a span has called lies inside it."""
    assert shown(
        span(1, 0, 10, name="a"),
        span(2, 2, 8, name="b"),
        span(3, 3, 5, 2, name="in b"),
        span(4, 9, 12, name="c"),
        span(5, 11, 12, name="d"),
    ) == {"a": (0, 0), "b": (1, 0), "in b": (1, 1), "c": (1, 0), "d": (0, 0)}


def test_children_at_once_lie_beside_their_parent() -> None:
    """Coroutines that one task gathers: the first lies in the task."""
    assert shown(
        span(1, 0, 10, name="task"), span(2, 1, 5, 1, name="x"), span(3, 2, 6, 1, name="y"), span(4, 6, 7, 1, name="z")
    ) == {"task": (0, 0), "x": (0, 1), "y": (1, 0), "z": (0, 1)}


def test_a_child_that_outlives_its_parent_keeps_its_length() -> None:
    """Nothing is cut: it has another lane. One that begins afterwards overlaps nothing."""
    table, found = laid(span(1, 1, 10), span(2, 5, 15, 1), span(3, 20, 30, 1))
    assert list(found.of) == [0, 1, 0]
    assert list(ends_of(table)) == [10, 15, 30]


def test_processes_have_their_own_lanes_in_the_order_of_the_places() -> None:
    """A lane knows its place and its number there."""
    _, found = laid(
        span(1, 0, 9, where=process("zz", pid=7)),
        span(2, 1, 9, where=process(pid=1, **{"ray.worker.process_type": "driver"})),
        span(3, 2, 9, where=process("zz", pid=7)),
    )
    assert found.lanes == [(0, 0), (1, 0), (1, 1)]
    assert list(found.of) == [1, 0, 2]


def test_a_span_of_no_length_nests_where_it_began() -> None:
    """At the beginning and at the end of its parent, and beside another."""
    found = shown(span(1, 1, 10), span(2, 1, 1, 1), span(3, 1, 1, 1), span(4, 10, 10, 1))
    assert found == {"span 1": (0, 0), "span 2": (0, 1), "span 3": (0, 1), "span 4": (0, 1)}


def test_equal_times_nest_by_the_parents() -> None:
    """However the file orders them."""
    assert shown(span(3, 0, 5, 2, name="c"), span(1, 0, 5, name="a"), span(2, 0, 5, 1, name="b")) == {
        "a": (0, 0),
        "b": (0, 1),
        "c": (0, 2),
    }


def test_ends_before_starts_and_circles_of_parents_are_shown() -> None:
    """A negative duration has no length. Such spans are damaged or forged, but they are in the file."""
    table, found = laid(span(1, 5, 3), span(2, 5, 8, 3), span(3, 5, 8, 2))
    assert len(found.of) == 3
    assert all(end >= start for start, end in zip(table.start, ends_of(table), strict=True))


def test_a_running_span_lasts_until_now() -> None:
    """So nothing is laid over it."""
    table = Table.of([span(1, 10, 0, state="running"), span(2, 20, 30)], now_ns=50)
    assert list(ends_of(table)) == [50, 30]
    assert list(lanes(table, places(table)).of) == [0, 1]


_spans = st.lists(
    st.tuples(st.integers(5, 30), st.integers(-2, 20), st.integers(0, 40), st.integers(1, 2)), max_size=40
)


@given(_spans)
def test_in_a_lane_spans_nest_strictly(made: Any) -> None:
    """Whatever the spans: each has a lane of its place, and the lane's spans follow each other or nest, by depth."""
    table, found = laid(
        *[
            span(number, start, start + took, parent, where=process(pid=pid))
            for number, (start, took, parent, pid) in enumerate(made, 1)
        ]
    )
    where = places(table)
    ends = ends_of(table)
    by_lane: dict[int, list[int]] = {}
    for row in range(len(table)):
        by_lane.setdefault(found.of[row], []).append(row)
        assert found.lanes[found.of[row]].place == where.of[row]
    for rows in by_lane.values():
        stack: list[int] = []
        for row in sorted(rows, key=lambda row: (table.start[row], -ends[row], found.depth[row])):
            while len(stack) > found.depth[row]:
                assert ends[stack.pop()] <= table.start[row]
            assert len(stack) == found.depth[row]
            assert all(ends[outer] >= ends[row] and table.start[outer] <= table.start[row] for outer in stack)
            stack.append(row)
    assert len(by_lane) == len(found.lanes)


def _chain(spans: int) -> Table:
    """Each span the parent of the next, all of the same times, in the file from the innermost outwards."""
    return Table.of([span(number, 0, 9, number - 1) for number in range(spans, 0, -1)])


def _lines_run(table: Table) -> int:
    """How many lines of Python the lanes of a table take; each pass of a loop counts."""
    where, many = places(table), 0

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal many
        many += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        lanes(table, where)
    finally:
        sys.settrace(before)
    return many


def test_a_deep_chain_at_one_moment_takes_work_in_proportion_to_its_length() -> None:
    """Four times the spans take about four times the steps, not sixteen times."""
    assert _lines_run(_chain(1_200)) < 5 * _lines_run(_chain(300))


def test_a_deep_chain_at_one_moment_has_one_lane() -> None:
    """However deep it is."""
    table = _chain(20_000)
    found = lanes(table, places(table))
    assert len(found.lanes) == 1
    assert max(found.depth) == 19_999
