"""The summary of a run of a store by Ray Data, on a cluster of two nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Nodes, start_head, stop_head
from support import command, with_data

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
