"""The JavaScript of the report by itself, in node; and that it and the server compute and search alike."""

from __future__ import annotations

import json
import subprocess
from array import array
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import pytest
from installed import program

from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.index import figures
from ray_tracing_hooks._insight.views.index.filters import Filters, UnsearchableError
from ray_tracing_hooks._insight.views.page.content import STRIP

HERE = Path(__file__).parent


def cases(name: str) -> Any:
    return json.loads((HERE / "cases" / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("file", sorted(each.name for each in HERE.glob("*.test.js")))
def test_in_node(file: str) -> None:
    """What a file of tests says of the page's logic."""
    done = subprocess.run(
        [program("node"), "--test", HERE / file], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_node_is_in_the_wheel() -> None:
    """Only what the page is put together from."""
    assets = files("ray_tracing_hooks._insight.views.page").joinpath("assets")
    kinds = {each.name.partition(".")[2] for each in assets.iterdir()}
    assert kinds == {"css", "html", "js"}


# --- The server, by the cases of the page -------------------------------------------------------------------------


class Searched:
    """As much of a table as a filter looks at."""

    def __init__(self, spans: list[dict[str, Any]], sites: list[Any], resources: list[Any]) -> None:
        self.sites, self.resources = sites, resources
        self.site = [each["site"] for each in spans]
        self.resource = [each["resource"] for each in spans]

    def __len__(self) -> int:
        return len(self.site)


@pytest.mark.parametrize("case", cases("filters")["queries"], ids=lambda case: case["query"] or "nothing")
def test_the_server_searches_as_the_page_does(case: dict[str, Any]) -> None:
    """The same query keeps the same spans."""
    given = cases("filters")
    spans, meta = given["spans"], given["meta"]
    columns = {name: [each[name] for each in spans] for name in ("name", "took", "flags", "lane")}
    filters = Filters(cast("Table", Searched(spans, given["sites"], meta["resources"])), columns, meta)
    if not case.get("searched", True):
        with pytest.raises(UnsearchableError):
            filters.keep(case["query"])
        return
    kept = filters.keep(case["query"]) or b"\1" * len(spans)
    assert [row for row, keeps in enumerate(kept) if keeps] == case["keeps"]


def columns_of(spans: list[dict[str, Any]]) -> tuple[dict[str, array[int]], array[int]]:
    """The columns of an index, and the parents."""

    def column(name: str, otherwise: int = 0) -> array[int]:
        return array("q", [each.get(name, otherwise) for each in spans])

    columns = {name: column(name) for name in ("start", "took", "flags", "lane", "depth", "flame", "function")}
    made_by = column("submission", -1)
    queued = [
        0 if by < 0 else max(0, each["start"] - spans[by]["start"] - spans[by]["took"]) + 1
        for each, by in zip(spans, made_by, strict=True)
    ]
    columns["queued"] = array("q", queued)
    return columns, column("parent", -1)


FIGURES = pytest.mark.parametrize("case", cases("figures")["cases"], ids=lambda case: case["name"])


@FIGURES
def test_the_server_computes_as_the_page_does(case: dict[str, Any]) -> None:
    """Figures of stacks and places in a range."""
    meta, (columns, parents) = case["meta"], columns_of(case["spans"])
    stacks = meta["stacks"]
    for expected in case["ranges"]:
        first, last = expected["range"]
        rows = [
            row
            for row, each in enumerate(case["spans"])
            if each["start"] <= last and each["start"] + each["took"] >= first
        ]
        sizes = len(stacks["parent"]), meta["places"], 1
        found = figures.figures(columns, rows, first, last, meta["lanes"], sizes)._asdict()
        found["own"], share = figures.spent_in(columns, parents, rows, first, last, stacks["wait"])
        for name in expected.keys() - {"range"}:
            assert list(found[name]) == expected[name], name
        assert sum(share) <= last - first


@FIGURES
def test_the_server_draws_as_the_page_does(case: dict[str, Any]) -> None:
    """How much runs at once, and what waits."""
    meta, (columns, parents) = case["meta"], columns_of(case["spans"])
    extent, has_calls = meta["extent"], bool(meta["executions"])
    running, failed = figures.strip(columns, parents, range(len(case["spans"])), extent, has_calls=has_calls)

    def part(time: float) -> int:
        return int(time / extent * STRIP)

    for time, many in case["running"]["at"].items():
        assert running[part(int(time))] == pytest.approx(many, abs=1e-6), time
    assert [at for at, is_failed in enumerate(failed) if is_failed] == [*map(part, case["running"]["failed"])]
    for queue, expected in zip(
        figures.queues(columns, meta["lanes"], meta["places"], extent), case["queues"], strict=True
    ):
        assert (queue is None) == (expected is None)
        if queue:
            assert queue.most == expected["most"]
            for time, waited in expected["waited"].items():
                # The server knows it at the end of each of 1,024 parts: up to one part more or less.
                near = max(0, round(int(time) / extent * 1024) - 1)
                assert queue.waited[near] == pytest.approx(waited, abs=queue.most * extent / 1024), time


def test_durations_read_alike() -> None:
    """In the commands and in the page."""
    for nanoseconds, text in cases("durations")["printed"]:
        assert duration(nanoseconds) == text
