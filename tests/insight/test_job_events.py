"""Task states from the events that KubeRay's History Server keeps.

``history_server`` has the events that Ray 2.60 sent of a real run, as its collector writes them, and in
``by-the-gcs.ndjson`` the states that ``ray-tracing-hooks states`` had from the GCS of this run.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.task_states import Attempt

HISTORY = Path(__file__).parent / "history_server"
SESSION = "session_2026-11-29_17-34-22_839148_11844"


pytestmark = pytest.mark.usefixtures("packages")


def states(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["states", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def read(file: Path) -> dict[tuple[Any, ...], Attempt]:
    """Without the time at which they were fetched."""
    return {attempt[:2]: attempt for attempt in task_states.read(str(file))[1]}


def whole(at: Path) -> Path:
    return HISTORY


def split_and_repeated(at: Path) -> Path:
    """The files of two nodes, the later events first, each event twice, and one file as earlier collectors wrote it."""
    (file,) = HISTORY.glob("**/job_events/01000000/*.gz")
    lines = gzip.decompress(file.read_bytes()).splitlines()
    jobs = [at / SESSION / node / "job_events" / "01000000" for node in ("a", "b")]
    for job in jobs:
        job.mkdir(parents=True)
    (jobs[0] / "a-2026-11-29-17-1.jsonl").write_bytes(b"\n".join(lines[::-1]))
    (jobs[1] / "b-2026-11-29-17").write_bytes(b"[" + b",".join(lines) + b"]")
    return at / SESSION


def before_upload(at: Path) -> Path:
    (file,) = HISTORY.glob("**/job_events/01000000/*.gz")
    (job := at / SESSION / "job_events" / "01000000").mkdir(parents=True)
    (job / "a_1.jsonl").write_bytes(gzip.decompress(file.read_bytes()))
    return job


def in_a_bucket(at: Path) -> str:
    system = import_module("fsspec").filesystem("memory")
    system.put(str(HISTORY / "cluster-history"), "/history/cluster-history", recursive=True)
    return "memory://history"


@pytest.mark.parametrize("place", [whole, split_and_repeated, before_upload, in_a_bucket])
def test_they_are_those_that_the_gcs_had(place: Callable[[Path], object], tmp_path: Path) -> None:
    """All names, kinds, attempts and times, without those of the driver; of a retried task both attempts."""
    states(tmp_path / "spans", "--events", place(tmp_path / "events"))
    (file,) = (tmp_path / "spans").iterdir()
    assert file.name == f"task-states-{SESSION}.ndjson"
    found = read(file)
    assert found == read(HISTORY / "by-the-gcs.ndjson")
    assert sorted((each.name, each.kind, each.attempt) for each in found.values()) == [
        ("Actor.__init__", "ACTOR_CREATION_TASK", 0),
        ("Actor.for_actor", "ACTOR_TASK", 0),
        ("Actor.holds", "ACTOR_TASK", 0),
        ("fails", "NORMAL_TASK", 0),
        ("fails", "NORMAL_TASK", 1),
        ("for_argument", "NORMAL_TASK", 0),
        ("late", "NORMAL_TASK", 0),
    ]


def test_states_that_only_the_gcs_had_are_kept(tmp_path: Path) -> None:
    """It adds FAILED itself to a task whose worker has died. Its times of other states remain if they are later."""
    about, attempts = task_states.read(str(HISTORY / "by-the-gcs.ndjson"))
    first, second, *others = attempts
    first.states["FAILED"] = second.states["RUNNING"] = 1 << 62
    del second.states["FINISHED"]
    file = tmp_path / task_states.file_name(SESSION)
    file.write_bytes(b"".join(task_states.lines(about, [first, second, *others])))
    states(tmp_path, "--events", HISTORY)
    by_both = read(file)
    assert by_both[first[:2]].states == first.states
    assert by_both[second[:2]].states.keys() == second.states.keys() | {"FINISHED"}
    assert by_both[second[:2]].states["RUNNING"] == 1 << 62


def test_each_session_has_a_file(tmp_path: Path) -> None:
    shutil.copytree(HISTORY, tmp_path / "history")
    (file,) = HISTORY.glob("**/job_events/01000000/*.gz")
    other = tmp_path / "history" / "cluster-history" / "session_2" / "node" / "job_events" / "01000000"
    other.mkdir(parents=True)
    text = gzip.decompress(file.read_bytes()).decode().replace(SESSION, "session_2")
    (other / "a.jsonl").write_text(text)
    said = [
        json.loads(line) for line in states(tmp_path, "--events", tmp_path / "history", "--json").stdout.splitlines()
    ]
    assert [(Path(each["output"]).name, each["fetched"]) for each in said] == [
        (f"task-states-{SESSION}.ndjson", 7),
        ("task-states-session_2.ndjson", 7),
    ]


def test_what_is_damaged_or_missing_is_said(tmp_path: Path) -> None:
    (file,) = HISTORY.glob("**/job_events/01000000/*.gz")
    job = tmp_path / "events" / SESSION / "node" / "job_events" / "01000000"
    job.mkdir(parents=True)
    lines = gzip.decompress(file.read_bytes()).splitlines()
    undefined = [line for line in lines if b'"taskName":"late"' not in line]
    late = {"taskId": "not base64", "stateTransitions": [{"state": "RUNNING", "timestamp": "yesterday"}]}
    undefined += [b"no JSON", json.dumps({"sessionName": SESSION, "taskLifecycleEvent": late}).encode()]
    (job / "a.jsonl").write_bytes(b"\n".join(undefined))
    (job / "b.jsonl.gz").write_bytes(file.read_bytes()[:-100])
    (job / "c.jsonl.gz").write_bytes(b"no gzip")
    said = states(tmp_path / "spans", "--events", tmp_path / "events")
    assert "a.jsonl: lines that are not events of Ray, left out: 2" in said.stderr
    assert "b.jsonl.gz: the compressed data ends too early" in said.stderr
    assert "c.jsonl.gz: it is not compressed with gzip" in said.stderr
    (job / "b.jsonl.gz").unlink()
    assert (
        "the definitions of 1 attempt are missing" in states(tmp_path / "other", "--events", tmp_path / "events").stderr
    )
    assert len(read(tmp_path / "other" / f"task-states-{SESSION}.ndjson")) == 6


def test_wrong_use_says_what_is_expected(tmp_path: Path) -> None:
    nothing = states(tmp_path / "spans", "--events", tmp_path, code=1).stderr
    assert f"no task states in {tmp_path}: expected files SESSION/NODE/job_events/JOB/*.jsonl.gz" in nothing
    assert "give either --events or --address" in states("--events", "x", "--address", "127.0.0.1:1", code=2).stderr
    assert "--events is empty" in states("--events", "", code=2).stderr
    gone = states(tmp_path / "spans", "--events", tmp_path / "gone", code=1).stderr
    assert f"{tmp_path / 'gone'}: No such file or directory" in gone
    assert not (tmp_path / "spans").exists()
