"""Following the processes of a spool: what is new, once."""

from __future__ import annotations

import json
import os
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from faulty import FaultyDisk

from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._ship import folder as folder_module
from ray_tracing_hooks._ship import follow
from ray_tracing_hooks._ship.folder import Folder, FolderSnapshot, is_running
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.sink import DeliveryError
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter


class Spool:
    """A process that writes, and one that follows it."""

    def __init__(self, folder: Path, segment_bytes: int = 1 << 24) -> None:
        self._writer = SpoolWriter(str(folder), segment_bytes=segment_bytes)
        self._prefix = U16.pack(self._writer.scope(b"", b"\x0a\x01s"))
        self._folder = Folder(str(folder))
        self._follower = Follower({}, Problems(), reports=True)
        self._written = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            self._written += 1
            number = self._written.to_bytes(8, "big")
            self._writer.span(self._prefix, b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + number)

    def snapshot(self) -> FolderSnapshot:
        return self._folder.snapshot(set())

    def follow(self, look: FolderSnapshot, found: list[int] | None = None) -> list[int]:
        """The numbers of the spans that are new. They are added to ``found``, also if this fails."""
        found = [] if found is None else found
        for batches in self._follower.follow(look):
            found += [int.from_bytes(span[20:28], "big") for batch in batches for span in batch.spans]
        return found


@pytest.mark.parametrize("is_away", [False, True])
def test_what_was_read_is_not_read_again_by_a_look_that_is_older(tmp_path: Path, is_away: bool) -> None:
    """The process writes on while it is looked at and while it is read, and looks may wait for their turn. The segment
    may be away for a while, as where its process creates a removed one again.
    """
    spool = Spool(tmp_path)
    spool.write(10)
    first, second = spool.snapshot(), spool.snapshot()
    spool.write(10)
    assert spool.follow(first) == list(range(1, 21)), "all that is there when it is read"
    (segment,) = tmp_path.glob("*.spool")
    if is_away:
        segment.rename(tmp_path / "away")
    assert spool.follow(second) == []
    assert spool.follow(first) == []
    if is_away:
        (tmp_path / "away").rename(segment)
    spool.write(1)
    assert spool.follow(spool.snapshot()) == [21]


def test_a_clock_that_is_set_does_not_end_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has closed its segment, as a driver does after `ray.shutdown()`, and its open spans may still end."""
    writer = SpoolWriter(str(tmp_path))
    writer.start(U16.pack(writer.scope(b"", b"\x0a\x01s")), b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + b"s" * 8)
    folder, follower = Folder(str(tmp_path)), Follower({}, Problems(), reports=True)
    list(follower.follow(folder.snapshot(set())))
    writer.close()
    now = time.time_ns
    for hours in (1, -1):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: now() + hours * 3600 * 10**9)
        look = folder.snapshot(set())
        ((name, process),) = look.processes.items()
        assert (process.alive, process.ended_at) == (False, None)
        assert list(follower.follow(look)) == []
        assert is_running(name)


def test_another_process_of_the_same_pid_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """Neither for one that had ended before it began, nor for one that was seen running."""
    pid, began = os.getpid(), psutil.Process().create_time()
    assert not is_running(f"{pid}-{int((began - 10) * 1e9):x}-ab")
    with subprocess.Popen(["sleep", "60"]) as child:
        name = f"{child.pid}-{time.time_ns():x}-ab"
        assert is_running(name)
        child.kill()
        child.wait()
        assert not is_running(name)
    seen = f"{pid}-{time.time_ns():x}-cd"
    assert is_running(seen)
    folder_module._began[seen] -= 1
    assert not is_running(seen)


OURS, THEIRS = encode.scope("ray_tracing_hooks", "1"), encode.scope("app", "1")
WORKER = encode.resource({"ray.worker.process_type": "worker", "ray.worker.id": "0a"})
DRIVER = encode.resource({"ray.worker.process_type": "driver", "ray.worker.id": "0b"})


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_a_look_lacks_is_read_by_the_next_one(number: int, faulty: Callable[..., FaultyDisk]) -> None:
    """A long list of files may lack one that was begun meanwhile, and have the next."""
    disk = faulty()
    spool = Spool(disk.path, segment_bytes=1500)
    spool.write(100)
    disk.unlisted = {sorted(path.name for path in disk.path.iterdir())[number]}
    begun = spool.follow(spool.snapshot())
    disk.unlisted = set()
    assert begun == list(range(1, len(begun) + 1))
    assert len(begun) < 100
    assert begun + spool.follow(spool.snapshot()) == list(range(1, 101))


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_segment_that_cannot_be_examined_is_named_and_waited_for(
    number: int, faulty: Callable[..., FaultyDisk]
) -> None:
    """A disk may fail for a moment. Those before it are read, and other processes are not held up."""
    disk = faulty()
    spool, other = Spool(disk.path, segment_bytes=1500), Spool(disk.path)
    spool.write(100)
    names = sorted(path.name for path in disk.path.iterdir())
    other.write(1)
    disk.unknown = {names[number]}
    found: list[int] = []
    with pytest.raises(DeliveryError, match=names[number]):
        spool.follow(spool.snapshot(), found)
    disk.unknown = set()
    assert len(found) < 101
    assert sorted(found + spool.follow(spool.snapshot())) == sorted([*range(1, 101), 1])


def test_a_segment_that_cannot_be_read_once_is_read_again(faulty: Callable[..., FaultyDisk]) -> None:
    """One that never can be is given up: the spans after it do not wait for it for good."""
    disk = faulty()
    spool = Spool(disk.path, segment_bytes=1500)
    spool.write(100)
    first, second, *_ = sorted(path.name for path in disk.path.iterdir())
    disk.bad = {first}
    for _ in range(2):
        with pytest.raises(DeliveryError, match=first):
            spool.follow(spool.snapshot())
    disk.bad = {second}
    with pytest.raises(DeliveryError, match=second):
        spool.follow(spool.snapshot())
    with pytest.raises(DeliveryError, match=second):
        spool.follow(spool.snapshot())
    assert spool.follow(spool.snapshot())[-1] == 100


def test_a_process_is_not_taken_for_dead_while_its_segment_cannot_be_examined(
    faulty: Callable[..., FaultyDisk],
) -> None:
    disk = faulty()
    spool = Spool(disk.path)
    spool.write(1)
    (path,) = disk.path.iterdir()
    disk.unknown = {path.name}
    (process,) = spool.snapshot().processes.values()
    assert (process.segments, process.ended_at) == ([], None)
    assert not folder_module.is_gone(str(path))


class Process:
    """A process that begins and ends spans, which are known by their numbers, and ends."""

    def __init__(self, folder: Path, resource: bytes, segment_bytes: int = 1 << 24) -> None:
        self.writer = SpoolWriter(str(folder), segment_bytes=segment_bytes)
        # No process has this pid: once the lock is released, the writer has ended.
        self.writer._process = f"{1 << 30}-1-{len(list(folder.iterdir()))}"
        self._prefixes = {scope: U16.pack(self.writer.scope(resource, scope)) for scope in (OURS, THEIRS)}
        self._begun: dict[int, tuple[bytes, bytes]] = {}

    def begin(self, number: int, parent: int = 0, *, ours: bool = False) -> None:
        encoded = b"\x0a\x10" + bytes(15) + b"\x01\x12\x08" + number.to_bytes(8, "big")
        encoded += b"\x22\x08" + parent.to_bytes(8, "big") if parent else b""
        encoded += protobuf.fixed64(0x39, 1000 + number)
        self._begun[number] = self._prefixes[OURS if ours else THEIRS], encoded
        self.writer.start(*self._begun[number])

    def end(self, number: int, **attributes: str) -> None:
        prefix, encoded = self._begun[number]
        self.writer.span(prefix, encoded + protobuf.fixed64(0x41, 5000) + encode.attributes(attributes))


def left_by(folder: Path, stored: dict[str, Any] | None = None) -> dict[int, tuple[int, bool, str]]:
    """What a shipper makes of spans that have no end: the status, whether they were never ended, and the error."""
    follower = Follower(stored or {}, Problems(), reports=True)
    spans = [
        decode_span(span)
        for batches in follower.follow(Folder(str(folder)).snapshot(follower.open_processes()))
        for batch in batches
        for span in batch.spans
    ]
    return {
        int.from_bytes(span.span_id, "big"): (
            span.status_code,
            bool(span.attributes.get("ray.never_ended")),
            str(span.attributes.get("error.type", "")),
        )
        for span in spans
        if span.end_ns != 5000
    }


CUT_OFF, NEVER_ENDED = (2, False, "worker_died"), (0, True, "")


def test_what_a_workers_program_has_not_ended_is_no_error(tmp_path: Path) -> None:
    """Ray ends a worker without a word. What was begun in a task that has ended was not cut off by that."""
    process = Process(tmp_path, WORKER)
    process.begin(1)
    process.begin(2, ours=True)
    process.begin(3, 2)
    process.end(2)
    process.begin(4)
    process.writer.close()
    assert left_by(tmp_path) == {1: NEVER_ENDED, 3: NEVER_ENDED, 4: NEVER_ENDED}


def test_what_is_below_a_task_that_is_cut_off_is_cut_off_too(tmp_path: Path) -> None:
    """However far below, also where what is between them has ended; but nothing of the tasks before."""
    process = Process(tmp_path, WORKER)
    process.begin(1)
    process.begin(2, ours=True)
    process.begin(3, 2)
    process.begin(10, ours=True)
    process.begin(11, 10)
    process.begin(12, 11)
    process.end(2)
    process.end(11)
    process.begin(13)
    process.writer.close()
    assert left_by(tmp_path) == {1: NEVER_ENDED, 3: NEVER_ENDED, 10: CUT_OFF, 12: CUT_OFF, 13: CUT_OFF}


def test_what_is_below_a_task_that_was_told_to_die_is_cut_off_too(tmp_path: Path) -> None:
    """Ray sends SIGTERM to a worker: its task still ends, with that error."""
    process = Process(tmp_path, WORKER)
    process.begin(1, ours=True)
    process.begin(2, 1)
    process.end(1, **{"error.type": "worker_died"})
    process.writer.close()
    assert left_by(tmp_path) == {2: CUT_OFF}


def test_a_later_shipper_knows_which_tasks_were_told_to_die(tmp_path: Path) -> None:
    process = Process(tmp_path, WORKER)
    process.begin(1, ours=True)
    process.begin(2, 1)
    process.end(1, **{"error.type": "worker_died"})
    follower = Follower({}, Problems(), reports=True)
    list(follower.follow(Folder(str(tmp_path)).snapshot(set())))
    stored = json.loads(json.dumps(follower.positions()))
    process.writer.close()
    assert left_by(tmp_path, stored) == {2: CUT_OFF}


def test_what_is_cut_off_stays_so_where_a_sink_fails_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is delivered later, by this shipper or the next one."""
    monkeypatch.setattr(follow, "_PORTION_BYTES", 1024)
    process = Process(tmp_path, WORKER)
    process.begin(1, ours=True)
    for number in range(2, 100):
        process.begin(number, 1)
    process.writer.close()
    follower = Follower({}, Problems(), reports=True)
    folder = Folder(str(tmp_path))
    for _ in follower.follow(folder.snapshot(set())):
        break
    rest = left_by(tmp_path, json.loads(json.dumps(follower.positions())))
    assert 0 < len(rest) < 99
    assert set(rest.values()) == {CUT_OFF}


def test_what_a_full_disk_did_not_take_is_counted_once(tmp_path: Path) -> None:
    """A later shipper reads the segment again, for what it defines."""
    process = Process(tmp_path, WORKER)
    process.begin(1)
    process.writer._drop(7, "the disk is full")
    process.end(1)
    problems = Problems()
    follower = Follower({}, problems, reports=True)
    list(follower.follow(Folder(str(tmp_path)).snapshot(set())))
    (said,) = problems.take_unreported()
    assert said.startswith("7 spans could not be written to the spool by their processes: ")
    later = Problems()
    list(Follower(follower.positions(), later, reports=True).follow(Folder(str(tmp_path)).snapshot(set())))
    assert later.take_unreported() == []


def without_room(process: Process, number: int) -> None:
    """The span ends, and the disk does not take it."""
    process.writer._drop(1, f"span {number} does not fit")


@pytest.mark.parametrize("kind", [WORKER, DRIVER])
def test_a_span_whose_end_a_full_disk_may_not_have_taken_is_not_an_error(tmp_path: Path, kind: bytes) -> None:
    """Which ends were lost is unknown, so it may be that of any span that was open. Later ones are not affected."""
    process = Process(tmp_path, kind)
    process.begin(1, ours=True)
    process.begin(2, 1)
    process.begin(3, ours=True)
    without_room(process, 1)
    process.end(3)
    process.begin(10, ours=True)
    process.begin(11, 10)
    process.writer.close()
    died = (2, False, "worker_died" if kind == WORKER else "driver_died")
    assert left_by(tmp_path) == {1: NEVER_ENDED, 2: NEVER_ENDED, 10: died, 11: died}


def test_a_later_shipper_knows_which_ends_may_be_lost(tmp_path: Path) -> None:
    """It reads the segment again, and spans that began after the loss are in it too."""
    process = Process(tmp_path, WORKER)
    process.begin(1, ours=True)
    process.begin(2, ours=True)
    without_room(process, 1)
    process.end(2)
    process.begin(3, ours=True)
    follower = Follower({}, Problems(), reports=True)
    list(follower.follow(Folder(str(tmp_path)).snapshot(set())))
    stored = json.loads(json.dumps(follower.positions()))
    process.writer.close()
    assert left_by(tmp_path, stored) == {1: NEVER_ENDED, 3: CUT_OFF}
    (entry,) = stored.values()
    assert entry["maybe_ended"] == [bytes(7).hex() + "01"]


@pytest.mark.parametrize("goes_on", [True, False], ids=["another one follows", "the last one"])
def test_a_span_whose_end_was_in_a_segment_that_was_removed_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """The oldest are removed where the spool exceeds its cap. Whether the span has ended there is unknown."""
    monkeypatch.setattr(follow, "_PORTION_BYTES", 1)
    process = Process(tmp_path, WORKER)
    process.begin(1, ours=True)
    process.begin(2)
    process.end(2)
    process.writer.close()
    process.end(1)
    folder, follower = Folder(str(tmp_path)), Follower({}, Problems(), reports=True)
    # The exporter takes the first portion, and then nothing for a while.
    portions = follower.follow(folder.snapshot(set()))
    next(portions)
    del portions
    process.writer.close()
    sorted(tmp_path.iterdir())[1].unlink()
    if goes_on:
        process.begin(3, ours=True)
        process.writer.close()
    spans = [
        decode_span(span)
        for batches in follower.follow(folder.snapshot(follower.open_processes()))
        for batch in batches
        for span in batch.spans
    ]
    errors = {int.from_bytes(span.span_id, "big"): span.status_code for span in spans}
    assert errors == ({1: 0, 3: 2} if goes_on else {1: 0})


@pytest.mark.parametrize("in_order", [True, False])
def test_a_driver_says_that_it_ends_in_order(tmp_path: Path, in_order: bool) -> None:
    """What has not ended in one that does not say so was cut off. A later shipper knows what an earlier one read."""
    process = Process(tmp_path, DRIVER, segment_bytes=400)
    process.begin(1, ours=True)
    process.begin(2, 1)
    process.end(1)
    if in_order:
        process.writer.exit()
    process.begin(3)
    process.end(3)
    follower = Follower({}, Problems(), reports=True)
    list(follower.follow(Folder(str(tmp_path)).snapshot(set())))
    stored = json.loads(json.dumps(follower.positions()))
    process.writer.close()
    assert left_by(tmp_path, stored) == {2: NEVER_ENDED if in_order else (2, False, "driver_died")}


def test_spans_that_never_end_cost_a_bounded_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and progress stay small, what is not followed any more is counted, and tasks are followed before others.

    Those of the API are the first to go, and of these the oldest. Other processes keep theirs.
    """
    monkeypatch.setattr(follow, "_MOST_OPEN", 1 << 20)  # a quarter, which is filled sooner
    other = Process(tmp_path, WORKER)
    other.begin(1, ours=True)
    other.begin(2, 1)
    process = Process(tmp_path, WORKER, segment_bytes=1 << 18)
    count = 25_000
    process.begin(5, ours=True)
    for number in range(10, 10 + count):
        process.begin(number, 5)
    problems = Problems()
    tracemalloc.start()
    follower = Follower({}, problems, reports=True)
    folder = Folder(str(tmp_path))
    for _ in follower.follow(folder.snapshot(set())):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 << 20
    stored = json.dumps(follower.positions())
    assert len(stored) < 1 << 20
    other.writer.close()
    process.writer.close()
    left = left_by(tmp_path, json.loads(stored))
    (told,) = problems.take_unreported()
    assert int(told.split()[0]) + len(left) == count + 3
    assert "no longer tracked" in told
    assert {1, 2, 5, 9 + count} < left.keys()
    assert 10 not in left
    assert set(left.values()) == {CUT_OFF}
