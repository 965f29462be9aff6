"""The index of a large run: what it answers is what the columns say."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from made_spans import CONSUMER, PRODUCER, process, span

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.lanes import ends_of, lanes
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.processes import places
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.index.answers import Answers, UnknownError
from ray_tracing_hooks._insight.views.index.bars import Bars, tile
from ray_tracing_hooks._insight.views.index.build import build
from ray_tracing_hooks._insight.views.index.filters import WrongError, matcher
from ray_tracing_hooks._insight.views.index.mapped import open_table, save_table

RECORDED = Path(__file__).parent / "recorded"


class Indexed(NamedTuple):
    """A run, and what answers for it."""

    table: Table
    ends: array[int]
    answers: Answers

    @property
    def begin(self) -> int:
        return self.table.start[0]

    def ask(self, what: str, **asked: object) -> tuple[dict[str, Any], dict[str, list[int]]]:
        return read_block(self.answers.answer(what, {name: str(value) for name, value in asked.items()}))

    def whole(self) -> dict[str, int]:
        return {"from": 0, "to": max(self.ends) - self.begin}


def read_block(block: bytes) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The header and the columns of an answer, as the page reads them."""
    (size,) = struct.unpack_from("<I", block)
    head = json.loads(block[4 : 4 + size])
    rest = block[4 + size :]
    (size,) = struct.unpack_from("<I", rest)
    at, columns = 4 + size, {}
    for name, count, width in json.loads(rest[4:at]):
        planes = [rest[at + count * plane : at + count * (plane + 1)] for plane in range(width)]
        columns[name] = [sum(plane[n] << 8 * k for k, plane in enumerate(planes)) for n in range(count)]
        at += count * width
    assert at == len(rest)
    return head, columns


def indexed(table: Table, folder: Path) -> Indexed:
    build(str(folder), BytesIO(), Analysis(table), source="a run")
    return Indexed(table, ends_of(table), Answers(str(folder)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    """A recorded run of several hundred spans."""
    return indexed(load([str(RECORDED / "tree.jsonl.gz")]), tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    """A run with failures."""
    return indexed(load([str(RECORDED / "killed.jsonl.gz")]), tmp_path_factory.mktemp("killed"))


def test_a_table_on_disk_is_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every span with all that is known of it, its children and what failed; also spans that no file holds."""
    monkeypatch.setattr(sys.modules[save_table.__module__], "_LARGE", 1)
    for number, table in enumerate((load([str(RECORDED / "killed.jsonl.gz")]), Table.of([span(1, 5, 9, name="x")]))):
        folder = tmp_path / str(number)
        save_table(str(folder), table)
        again = open_table(str(folder))
        rows = range(len(table))
        assert [again.span(row) for row in rows] == [table.span(row) for row in rows]
        assert [[*again.children(row)] for row in rows] == [[*table.children(row)] for row in rows]
        assert [again.attribute(row, "ray.task_id") for row in rows] == [
            table.attribute(row, "ray.task_id") for row in rows
        ]
        assert [again.objects.get(row) for row in rows] == [table.objects.get(row) for row in rows]
        assert [again.failed(row) for row in rows] == [table.failed(row) for row in rows]


@pytest.mark.parametrize("level", [9, 20, 26, 30, 35])
@pytest.mark.parametrize("query", ["", "-ray.get"])
def test_a_tile_has_every_span_of_its_range_once(run: Indexed, level: int, query: str) -> None:
    """Alone or in a bucket: their number and the time that they ran are those of the columns, and none is overlapped.

    What is wider than a bucket is alone.
    """
    table, ends, begin = run.table, run.ends, run.begin
    found = lanes(table, places(table), ends)
    index = (run.whole()["to"] // 3) >> level
    first, last = begin + (index << level), begin + ((index + 1) << level)
    expected = [
        row
        for row in range(len(table))
        if table.start[row] < last and ends[row] > first and not (query and "ray.get" in table.name_of(row))
    ]
    _, columns = run.ask("tile", level=level, index=index, first=0, last=64, q=query)
    assert sum(columns["count"]) == len(expected)
    assert sum(columns["ran"]) == sum(ends[row] - table.start[row] for row in expected)
    until: dict[int, int] = {}
    for sub, at, length, count, row in zip(
        *(columns[name] for name in ("sub", "begin", "length", "count", "row")), strict=True
    ):
        assert at >= until.get(sub, 0)
        until[sub] = at + length
        if count == 1:
            assert (at, length) == (table.start[row] - begin, ends[row] - table.start[row])
        else:
            assert length <= 2 << (level - 9)
    alone = {row for row, count in zip(columns["row"], columns["count"], strict=True) if count == 1}
    assert {row for row in expected if ends[row] - table.start[row] > 1 << (level - 9)} <= alone
    assert len(until) <= sum(max(found.depth[row] for row in rows) + 1 for rows in _by_lane(found.of).values())


def _by_lane(of: Sequence[int]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, lane in enumerate(of):
        rows.setdefault(lane, []).append(row)
    return rows


def test_a_tile_of_any_size_is_small() -> None:
    """Ten thousand spans in a lane are no more than its buckets; the longest of a bucket stands for it."""
    start = array("q", range(0, 1_000_000, 100))
    end = array("q", [at + 50 for at in start])
    ran, failed = array("q", range(0, 50 * 10_001, 50)), array("I", [0] * 10_001)
    bars = Bars(array("q", [0, 10_000]), array("I", range(10_000)), start, end, ran, failed)
    found = tile(bars, 20, 0, range(1))
    assert len(found.row) <= 512
    assert (sum(found.many), sum(found.ran)) == (10_000, 500_000)
    assert len(tile(bars, 9, 3, range(1)).row) == 6
    assert not tile(bars, 20, 5, range(1)).row


QUERIES: dict[str, Callable[[Table, array[int], int], bool]] = {
    "process": lambda table, _ends, row: "process" in table.name_of(row).lower(),
    "W*proc?ss": lambda table, _ends, row: "worker.process" in table.name_of(row).lower(),
    "-ray.get": lambda table, _ends, row: "ray.get" not in table.name_of(row),
    ">10ms": lambda table, ends, row: ends[row] - table.start[row] >= 10_000_000,
    "<1ms process": lambda table, ends, row: (
        ends[row] - table.start[row] <= 1_000_000 and "process" in table.name_of(row)
    ),
    "is:execution": lambda table, _ends, row: table.kind[row] == CONSUMER,
    "-is:submission": lambda table, _ends, row: table.kind[row] != PRODUCER,
    "is:error": lambda table, _ends, row: table.failed(row),
    "ray.actor_class=work": lambda table, _ends, row: "Worker" in (table.attribute(row, "ray.actor_class") or ""),
    '"no such thing"': lambda _table, _ends, _row: False,
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_filter_keeps_what_it_says(run: Indexed, killed: Indexed, query: str) -> None:
    """As the page's own filter does; how many, and a list of them."""
    for each in (run, killed):
        expected = [row for row in range(len(each.table)) if QUERIES[query](each.table, each.ends, row)]
        head, columns = each.ask("filter", q=query)
        assert head["kept"] == len(expected) == columns["begins"][-1]
        head, columns = each.ask("list", q=query, by="start", ascending=1, **each.whole())
        assert (head["count"], columns["row"]) == (len(expected), expected)


def test_what_is_not_in_the_index_cannot_be_searched(run: Indexed) -> None:
    """It is said, rather than nothing found."""
    assert "batch: " in run.ask("filter", q="batch=3")[0]["problem"]
    with pytest.raises(WrongError):
        run.ask("list", q="batch=3", by="took", **run.whole())


@pytest.mark.parametrize("by", ["start", "took", "queued", "name"])
@pytest.mark.parametrize("ascending", [0, 1])
def test_a_list_is_in_order(run: Indexed, by: str, ascending: int) -> None:
    """By start, duration, name and queue time, for spans in a range."""
    table, ends = run.table, run.ends
    first, last = run.whole()["to"] // 4, run.whole()["to"] // 2
    head, columns = run.ask("list", q="", by=by, ascending=ascending, **{"from": first, "to": last})
    begin = run.begin
    expected = {row for row in range(len(table)) if table.start[row] <= begin + last and ends[row] > begin + first}
    assert head["count"] == len(expected)
    assert set(columns["row"]) == expected
    values: list[Any] = [table.name_of(row) for row in columns["row"]] if by == "name" else columns[by]
    assert values == sorted(values, reverse=not ascending)


def test_figures_of_a_range_are_those_of_the_spans_in_it(run: Indexed) -> None:
    """Of stacks and places."""
    table, ends, begin = run.table, run.ends, run.begin
    first, last = run.whole()["to"] // 4, run.whole()["to"] // 2
    inside = [
        (max(table.start[row], begin + first), min(ends[row], begin + last))
        for row in range(len(table))
        if table.start[row] <= begin + last and ends[row] > begin + first
    ]
    head, columns = run.ask("figures", q="", **{"from": first, "to": last})
    assert head["every"] == 1
    assert sum(columns["spans"]) == len(inside)
    assert sum(columns["summed"]) == sum(end - start for start, end in inside)
    assert all(map(int.__le__, columns["wall"], columns["summed"]))
    assert all(busy <= last - first for busy in columns["busy"])
    # No moment of the range counts twice, and none is missing in which there was a span.
    there, until = 0, begin + first
    for start, end in inside:
        there += max(0, end - max(start, until))
        until = max(until, end)
    assert sum(columns["share"]) == pytest.approx(there, rel=0.01)
    assert sum(columns["own"]) >= sum(columns["share"]) * 0.99


def test_figures_of_very_many_spans_are_estimated(run: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said of how many."""
    monkeypatch.setattr(sys.modules[Answers.__module__], "_MOST_LOOKED_AT", 100)
    head, columns = run.ask("figures", q="-ray.get", **run.whole())
    kept = run.ask("filter", q="-ray.get")[0]["kept"]
    assert head["every"] == kept // 100 + 1
    assert abs(sum(columns["spans"]) - kept) <= head["every"]


def test_what_is_open_at_a_moment(run: Indexed) -> None:
    """With all that is above it."""
    table, ends = run.table, run.ends
    at = run.whole()["to"] // 5
    moment = run.begin + at
    expected = [row for row in range(len(table)) if table.start[row] <= moment < ends[row]]
    head, columns = run.ask("stack", q="", at=at)
    assert (head["open"], head["count"], head["hidden"]) == (expected, len(expected), 0)
    for row in expected:
        above = table.parent[row]
        while above >= 0:
            assert above in columns["row"]
            above = table.parent[above]
    head, _ = run.ask("stack", q="-ray.get", at=at)
    assert head["hidden"] == sum("ray.get" in table.name_of(row) for row in expected) > 0


def test_a_span_comes_with_its_family(run: Indexed) -> None:
    """Its attributes, its parents, its children, what it waits for, and its neighbours."""
    table = run.table
    row = next(row for row in range(len(table)) if table.name_of(row) == "ray.get" and len(table.objects[row]) > 3)
    head, columns = run.ask("span", row=row, q="")
    described = table.span(row)
    span_id, shape, values = head["span"][:3]
    assert span_id == described.span_id
    assert dict(zip(head["shapes"][shape], values, strict=True)) == described.attributes
    assert head["trace"] == table.trace_id_of(row)
    assert table.parent[row] in columns["row"]
    assert {to for _, to, _ in head["edges"]} == {row}
    assert {each for each, _, _ in head["edges"]} <= set(columns["row"])
    parent = table.parent[row]
    head, columns = run.ask("span", row=parent, q="")
    assert dict(map(tuple, head["below"]))[parent] == [*table.children(parent)]


@pytest.mark.parametrize("kind", ["function", "flame", "place", "name"])
def test_a_group_is_all_of_its_spans(run: Indexed, kind: str) -> None:
    """Each span is in one function, place and name, and a stack has what is below it."""
    counts = []
    for number in range(1000):
        try:
            head, columns = run.ask("group", **{kind: number})
        except WrongError:
            break
        counts.append(head["count"])
        if kind == "place":
            assert head["places"] == [number] * bool(head["count"])
        elif kind == "function":
            assert head["functions"] == [number] * bool(head["count"])
        took = [run.ends[row] - run.table.start[row] for row in head["slowest"]]
        assert took == sorted(took, reverse=True)
        assert set(head["slowest"]) <= set(columns["row"])
    assert max(counts) <= len(run.table)
    if kind in ("place", "name"):
        assert sum(counts) == len(run.table)


WRONG = [
    ("tile", {}), ("tile", {"level": 8, "index": 0, "first": 0, "last": 1}),
    ("tile", {"level": 63, "index": 0, "first": 0, "last": 1}),
    ("tile", {"level": 9, "index": 10**17, "first": 0, "last": 1}),
    ("tile", {"level": 30, "index": 0, "first": 10**9, "last": 10**9}),
    ("tile", {"level": 30, "index": "-1", "first": 0, "last": 1}),
    ("tile", {"level": "٣٠", "index": 0, "first": 0, "last": 1}),
    ("figures", {"from": 5, "to": 4}), ("figures", {"from": 0, "to": 10**18}), ("figures", {"from": "nan", "to": 1}),
    ("list", {"from": 0, "to": 1, "by": "__class__"}), ("filter", {"q": "x" * 3000}),
    ("stack", {"at": 10**18 - 1}), ("span", {"row": 10**9}), ("span", {"row": "1e3"}), ("span", {"row": ""}),
    ("rows", {"rows": ""}), ("rows", {"rows": "1-"}), ("rows", {"rows": "-".join("1" * 300)}),
    ("group", {}), ("group", {"function": 10**6}), ("group", {"name": "../x"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "asked"), WRONG, ids=str)
def test_a_wrong_question_is_told_as_such(run: Indexed, what: str, asked: dict[str, object]) -> None:
    """Numbers out of their range, none at all, and other things."""
    with pytest.raises(WrongError):
        run.ask(what, **asked)


@pytest.mark.parametrize("what", ["", "nothing", "__class__", "_tile", "answer", "tile/x"])
def test_only_questions_that_are_known_are_answered(run: Indexed, what: str) -> None:
    """No attribute of ours is reached by its name."""
    with pytest.raises(UnknownError):
        run.ask(what)


def test_a_pattern_takes_no_longer_than_its_text() -> None:
    """Patterns that make regular expressions try for ever."""
    assert not matcher("*a" * 500 + "b")("a" * 5_000)
    assert matcher("a*b?d")("xxAyyybcd")
    assert not matcher("(a+)+$")("a" * 5_000)


def test_hostile_runs_can_be_indexed(tmp_path: Path) -> None:
    """Nests of a thousand, circles, times before the first, no time at all, ids that are there twice."""
    nest = [span(number, 10 * number, 10**6 - number, number - 1, where=process()) for number in range(1, 1001)]
    odd = [
        span(2001, 5, 5, 2002, name="</script>"), span(2002, 5, 5, 2001, name="\u202e"), span(2003, 900, 100, 1),
        span(2003, 900, 100, 1, name="again"), span(2004, 7, 0, 1, name="\ud800"),
    ]  # fmt: skip
    run = indexed(Table.of([*nest, *odd]), tmp_path)
    _, columns = run.ask("tile", level=20, index=0, first=0, last=64)
    assert sum(columns["count"]) > 60
    for row in range(0, len(run.table), 97):
        run.ask("span", row=row, q="")


def test_times_that_cannot_be_are_answered_as_they_are(tmp_path: Path) -> None:
    """A damaged clock: spans that last half a century each, and centuries together."""
    century = 100 * 365 * 86_400 * 10**9
    spans = [span(number, number, century // 2, where=process()) for number in range(1, 12)]
    run = indexed(Table.of(spans), tmp_path)
    extent = max(run.ends) - run.begin
    assert extent > 1 << 53
    assert run.ask("list", by="took", **run.whole())[0]["count"] == 11
    assert sum(run.ask("tile", level=52, index=0, first=0, last=64)[1]["count"]) == 11
    _, found = run.ask("figures", **run.whole())
    assert sum(found["spans"]) == 11
    assert run.ask("stack", at=extent // 2)[0]["count"] == 11
    assert len(run.ask("filter", q="no such name")[0]["running"]) > 0
    assert run.ask("list", q="", by="took", **run.whole())[0]["count"] == len(run.table)
