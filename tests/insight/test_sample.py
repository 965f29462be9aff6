"""What a page shows of a run that is too large for it: what one would look for, and the others evenly."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from made_spans import span

from ray_tracing_hooks._insight.analysis.lanes import ends_of
from ray_tracing_hooks._insight.model.span import STATUS_ERROR
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.page import sample

SPANS = 20_000
START = 10**18


def table(**special: Any) -> Table:
    """Every tenth span is of a rare kind; those that are named ``of_<number>`` have what is given for them."""
    spans = []
    for number in range(SPANS):
        fields: dict[str, Any] = {
            "start": START + number,
            "end": START + number + 1000 + number % 7,
            "name": "rare" if number % 10 == 0 else "usual",
            **special.get(f"of_{number}", {}),
        }
        spans.append(span(number + 1, **fields))
    return Table.of(spans)


def test_errors_come_first_then_the_slowest_of_each_name_then_evenly_spaced_ones() -> None:
    """Also where the slow ones of a name are all quicker than any of another."""
    slow = {f"of_{number}": {"end": START + number + 10**9} for number in range(41, 4001, 40)}
    rare = {f"of_{number}": {"end": START + number + 5000} for number in range(10_000, 14_000, 40)}
    errors = {f"of_{number}": {"status_code": STATUS_ERROR} for number in range(3, 20_000, 100)}
    lost = {"of_777": {"end": 0, "state": "lost"}}
    found = table(**slow, **rare, **errors, **lost)
    held = sample.with_details(found, ends_of(found), range(SPANS), 1000, [19_999])
    assert held == sorted(set(held))
    assert len(held) == 1000
    wanted = {int(key.removeprefix("of_")) for key in (*slow, *rare, *errors, *lost)} | {19_999}
    assert wanted <= set(held)
    others = [row for row in held if row not in wanted]
    steps = [after - before for before, after in itertools.pairwise(others)]
    assert (len(others), others[0] < 50, max(steps) < 3 * SPANS / len(others)) == (1000 - len(wanted), True, True)


@pytest.mark.parametrize("most", [1, 10, 300])
def test_of_more_errors_than_there_is_room_for_some_from_everywhere_are_held(most: int) -> None:
    """Not the first ones only."""
    found = table(**{f"of_{number}": {"status_code": STATUS_ERROR} for number in range(0, SPANS, 50)})
    held = sample.with_details(found, ends_of(found), range(SPANS), most, range(SPANS))
    assert len(held) == most
    assert all(found.failed(row) for row in held)
    assert held[-1] >= SPANS * (most - 1) // most - 50


def test_only_what_a_page_shows_has_details_in_it() -> None:
    """Of a page that shows a part of a run."""
    found = table(of_4={"status_code": STATUS_ERROR}, of_5={"status_code": STATUS_ERROR})
    rows = range(1, SPANS, 2)
    held = sample.with_details(found, ends_of(found), rows, 500, [6, 7])
    assert len(held) == 500
    assert {5, 7} <= set(held) <= set(rows)
    assert sample.with_details(found, ends_of(found), [1, 2], 2, []) == [1, 2]
