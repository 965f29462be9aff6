"""The summary of a run of a store by Ray Data, on a cluster of two nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Nodes, start_head, stop_head
from support import command, python, with_data

RECORDED = Path(__file__).parents[1] / "insight" / "corpus" / "recorded"
NAMES = ("actor_restarts", "slow_operator_then_consumer")

pytestmark = pytest.mark.slow  # a cluster of two nodes


@pytest.fixture(scope="module")
def address(short_tmp: Callable[[], Path]) -> Iterator[str]:
    folder = short_tmp()
    head, found = start_head(folder, "--num-cpus=1", **with_data())
    nodes = Nodes(found, folder)
    try:
        nodes.start("second", **with_data())
        yield found
    finally:
        nodes.stop()
        stop_head(head)


def asked(*arguments: object, code: int = 0) -> str:
    """What a command prints that ends with this exit code."""
    done = command(*arguments, **with_data())
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + (done.stderr if code else "")


@pytest.fixture(scope="module")
def store(short_tmp: Callable[[], Path]) -> Path:
    """Runs of these names, in this order."""
    folder = short_tmp() / "runs"
    for name in NAMES:
        asked("export", RECORDED / f"{name}.jsonl.gz", "--format", "parquet", "-o", folder)
    return folder


def test_ray_data_computes_the_same_functions(address: str, store: Path) -> None:
    """Counts, sums and percentiles, to the nanosecond."""
    runs = json.loads(asked("runs", store, "--json"))
    assert len(runs) == len(NAMES)
    for run in (f"{store}@{each['id']}" for each in runs):
        in_memory = summary(run, "--engine", "memory")
        over_ray = summary(run, "--engine", "ray", "--address", address)
        assert over_ray["functions"] == in_memory["functions"]
        assert over_ray["run"]["calls"] == in_memory["run"]["calls"]
        assert over_ray["engine"] == "ray"


def test_ray_data_shows_a_run_without_attributes_as_it_was_when_stored(
    address: str, short_tmp: Callable[[], Path]
) -> None:
    """As DuckDB does."""
    store = short_tmp() / "runs"
    recorded = RECORDED / "actor_restarts.jsonl.gz"
    asked("export", recorded, "--format", "parquet", "-o", store, "--redact", "*")
    over_ray, whole = summary(store, "--engine", "ray", "--address", address), summary(recorded)
    assert over_ray["functions"] == whole["functions"]
    assert [each["kind"] for each in over_ray["findings"]] == [each["kind"] for each in whole["findings"]]
    assert "ray.task_id" in over_ray["hidden"]


OF_OTLP = """
import sys
from pathlib import Path
import pyarrow.parquet as parquet

(file,), target = Path(sys.argv[1]).glob("traces-*.parquet"), Path(sys.argv[2])
rows = parquet.read_table(file).select(range(24))
target.mkdir()
for part in range(3):  # spans of a trace are in several files
    parquet.write_table(rows.take([*range(part, len(rows), 3)]), target / f"{part}.parquet")
"""


CUT = """
import sys
import pyarrow.parquet as parquet

parquet.write_table(parquet.read_table(sys.argv[1]).drop_columns([sys.argv[2]]), sys.argv[1])
"""


@pytest.mark.parametrize("name", [*NAMES, "refused_requests"])
def test_ray_data_analyzes_the_traces_of_tables_with_the_columns_of_otlp_alone(
    address: str, short_tmp: Callable[[], Path], name: str
) -> None:
    """To the same functions, to the nanosecond. Of a run of several traces, each has a critical path of its own."""
    folder = short_tmp()
    asked("export", RECORDED / f"{name}.jsonl.gz", "--format", "parquet", "-o", folder / "runs")
    (run,) = (folder / "runs").glob("run=*")
    python("-c", OF_OTLP, run, folder / "tables", **with_data())
    # A URL is for fsspec, on the nodes too.
    place = folder / "tables" if name == "refused_requests" else f"file://{folder}/tables"
    over_ray = summary(place, "--engine", "ray", "--address", address)
    in_memory = summary(RECORDED / f"{name}.jsonl.gz")
    if name == "refused_requests":
        for each in (*over_ray["functions"], *in_memory["functions"]):
            del each["on_path_ns"]
    assert over_ray["functions"] == in_memory["functions"]
    assert over_ray["run"]["spans"] == in_memory["run"]["spans"]
    assert over_ray["run"]["calls"] == in_memory["run"]["calls"]
    assert over_ray["findings"] is None
    # A run of a store whose writer did not know these columns yet.
    for file in run.glob("traces-*.parquet"):
        python("-c", CUT, file, "ray_path_ns", **with_data())
    assert summary(folder / "runs", "--engine", "ray", "--address", address)["functions"] == over_ray["functions"]
    for file in run.glob("traces-*.parquet"):
        python("-c", CUT, file, "trace_id", **with_data())
    said = asked("summary", folder / "runs", "--engine", "ray", "--address", address, code=1)
    assert "is not a table of spans: it has no column trace_id" in said


def test_rows_that_are_no_spans_are_counted(address: str, short_tmp: Callable[[], Path]) -> None:
    file = short_tmp() / "tables.parquet"
    python("-c", NO_SPANS, file, **with_data())
    done = command("summary", file, "--engine", "ray", "--address", address, **with_data())
    assert "tables.parquet: 1 row of its tables cannot be read as a span" in done.stderr
    assert "0 calls of 0 functions, 1 span" in done.stdout
    python("-c", NO_SPANS.replace('"ab" * 16, "no id"', "None, None"), file, **with_data())
    assert "no spans in" in asked("summary", file, "--engine", "ray", "--address", address, code=1)
    file.write_bytes(b"PAR1")
    said = asked("summary", file, "--engine", "ray", "--address", address, code=1)
    assert f"{file} is damaged, or not Parquet" in " ".join(said.split())


NO_SPANS = """
import sys
import pyarrow
import pyarrow.parquet as parquet

texts = ["parent_span_id", "resource_attributes", "scope_name", "span_attributes"]
columns = {name: pyarrow.array([None, None], pyarrow.string()) for name in texts}
columns |= {"trace_id": pyarrow.array(["ab" * 16, "no id"], pyarrow.string()), "span_id": ["ab" * 8] * 2}
columns |= {"name": ["f"] * 2, "kind": [1, 1]}
columns |= {"duration_time_unix_nano": [5, 5], "status_code": [0, 0]}
columns["start_time_unix_nano"] = pyarrow.array([10**18] * 2, pyarrow.timestamp("ns"))
parquet.write_table(pyarrow.table(columns), sys.argv[1])
"""


def summary(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked("summary", *arguments, "--json"))
    return found


def test_the_text_names_its_engine(address: str, store: Path) -> None:
    """With nothing of Ray Data's own output."""
    shown = command("summary", store, "--engine", "ray", "--address", address, **with_data())
    assert "Ray Data computed this from" in shown.stdout
    assert shown.stderr == ""


def test_a_file_that_cannot_be_read_is_said(address: str, store: Path) -> None:
    """By the node that should have read it."""
    run = next(iter(store.glob("run=*")))
    (traces,) = run.glob("traces-*.parquet")
    (copied := store.parent / "damaged" / run.name).mkdir(parents=True)
    (copied / "run.json").write_bytes((run / "run.json").read_bytes())
    (copied / traces.name).write_bytes(b"PAR1 nothing PAR1")
    said = asked("summary", copied.parent, "--engine", "ray", "--address", address, code=1)
    assert f"Ray Data: {copied / traces.name} is damaged, or not Parquet: " in said
    assert "Traceback" not in said
