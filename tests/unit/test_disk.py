"""Disks that are full, failing, slow, read-only or removed: on real file systems that are just so."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty import FaultyDisk
from plans import made_plan
from recording import record
from shipping import Node, ended, until

from ray_tracing_hooks._ship.files import LOCK, SOCKET
from ray_tracing_hooks._ship.flush import FlushResult
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.layout import U16, U64
from ray_tracing_hooks._spool.reader import SegmentReader, count_spans, is_locked, iterate
from ray_tracing_hooks._spool.writer import DEFAULT_SEGMENT_BYTES, SpoolWriter, segment_bytes

Mount = Callable[..., Path]
Faulty = Callable[..., FaultyDisk]

pytestmark = pytest.mark.apart


def encoded(number: int, extra: bytes = b"") -> bytes:
    """A span, with its number for its ids."""
    return b"\x0a\x10" + number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big") + extra


class Recording:
    """A writer of this process, and what it said."""

    def __init__(self, folder: Path, segment_bytes: int = 1 << 20) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.writer = SpoolWriter(str(folder), segment_bytes=segment_bytes, on_problem=self.said.append)
        self.prefix = U16.pack(self.writer.scope(b"", b"\x0a\x01s"))
        self.numbers = 0

    def write(self, count: int, extra: bytes = b"") -> None:
        for _ in range(count):
            self.numbers += 1
            self.writer.span(self.prefix, encoded(self.numbers, extra))

    def records(self) -> list[tuple[int, bytes]]:
        return [
            (kind, payload)
            for _, paths, _ in iterate(str(self.folder))
            for path in paths
            for kind, payload, _ in SegmentReader(path).read(final=True)
        ]

    def found(self) -> list[int]:
        """The spans that are in the spool."""
        return [int.from_bytes(payload[4:20], "big") for kind, payload in self.records() if kind == layout.SPAN]

    def dropped(self) -> int:
        """How many spans the spool says were not written."""
        return sum(U64.unpack(payload)[0] for kind, payload in self.records() if kind == layout.DROPPED)

    def look(self) -> None:
        """As when a second has passed."""
        self.writer._look_at = 0.0

    def minute_passed(self) -> None:
        self.writer._silent_until = 0.0

    def second_passed(self) -> None:
        self.writer._refused_until = 0.0


# The spool.


def check_drop(recording: Recording, reason: str) -> None:
    """What was written before and after is there, what was not is counted, and it was said once."""
    assert recording.found()[0] == 1
    assert recording.found()[-1] == recording.numbers
    assert recording.dropped() > 0
    assert len(recording.found()) + recording.dropped() == recording.numbers
    (said,) = recording.said
    assert said.startswith("spans of this process are being dropped: ")
    assert str(recording.folder) in said
    assert said.endswith(reason)


def test_a_full_disk_costs_what_it_does_not_take_and_no_memory(faulty: Faulty) -> None:
    """Recording resumes by itself once there is room; every span is in the spool or counted as dropped."""
    disk = faulty()
    disk.room = 20_000
    recording = Recording(disk.path / "spool")
    recording.write(1000)
    tracemalloc.start()
    recording.write(2000)
    held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/ray_tracing_hooks/*")])
    tracemalloc.stop()
    assert sum(trace.size for trace in held.traces) < 10_000
    disk.room = 1 << 30
    recording.write(10)
    check_drop(recording, "No space left on device")
    recording.writer.close()


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_disk_that_refuses_is_survived(faulty: Faulty, number: int) -> None:
    """Over quota, broken, or mounted read-only meanwhile: the same, with the reason of the operating system."""
    disk = faulty()
    recording = Recording(disk.path / "spool")
    recording.write(10)
    disk.fail = {"write": number}
    recording.write(10)
    disk.fail = {}
    recording.write(10)
    check_drop(recording, os.strerror(number))
    assert recording.dropped() == 10
    recording.writer.close()


def test_a_folder_that_takes_no_file_is_tried_again(mount: Mount) -> None:
    """Without a free inode no file can be made: that is said, and when there is one it is made, with its header."""
    folder = mount("size=1m,nr_inodes=3")
    recording = Recording(folder / "spool")
    (folder / "in the way").write_text("")
    recording.write(10)
    assert recording.said == [
        (
            f"spans of this process are being dropped: cannot create a file in the spool {str(folder / 'spool')!r}: "
            "No space left on device"
        )
    ]
    (folder / "in the way").unlink()
    recording.second_passed()
    recording.write(5)
    assert recording.found() == list(range(11, 16))
    assert recording.dropped() == 10
    recording.writer.close()


def test_where_no_next_file_can_be_made_the_last_one_goes_on(mount: Mount) -> None:
    """Nothing is lost, and nothing to be said."""
    folder = mount("size=4m,nr_inodes=3")
    recording = Recording(folder / "spool", segment_bytes=1000)
    recording.write(500)
    assert recording.said == []
    assert recording.found() == list(range(1, 501))
    subprocess.run(["mount", "-o", "remount,nr_inodes=10", str(folder)], check=True)
    recording.second_passed()
    recording.write(1)
    assert len(list((folder / "spool").iterdir())) == 2
    recording.writer.close()


FEW_FILES = """
import json, os, resource, sys, time
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter
said = []
writer = SpoolWriter(sys.argv[1], on_problem=said.append, segment_bytes=500)
prefix = U16.pack(writer.scope(b"", b""))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
def few():
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
def many():
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    writer._refused_until = 0
few()
writer.span(prefix, b"dropped")
many()
writer.span(prefix, b"first")
few()
for _ in range(100):
    writer.span(prefix, b"in one segment")
many()
writer.span(prefix, b"last")
print(json.dumps(said))
"""


def test_a_process_without_free_descriptors_goes_on(tmp_path: Path) -> None:
    """It drops what it has no file for, and loses nothing where it only lacks the next one."""
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    (said,) = json.loads(done.stdout)
    assert said.endswith("Too many open files")
    found: Counter[bytes] = Counter()
    for _, paths, _ in iterate(str(tmp_path)):
        for path in paths:
            for kind, payload, _ in SegmentReader(path).read(final=True):
                found[payload[2:] if kind == layout.SPAN else payload] += 1
    assert found[U64.pack(1)] == 1
    assert found[b"first"] == found[b"last"] == 1
    assert found[b"in one segment"] == 100


CLOSED = """
import fcntl, json, os, resource, sys
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter
said = []
writer = SpoolWriter(sys.argv[1], on_problem=said.append, segment_bytes=1 << 20)
prefix = U16.pack(writer.scope(b"", b""))
writer.span(prefix, b"before")
os.closerange(3, 2048)
mine = [open(f"{sys.argv[2]}{number}", "wb", buffering=0) for number in range(50)]
for _ in range(100):
    writer.span(prefix, b"after")
# Another file gets the same descriptor number.
taken = writer._descriptor
os.dup2(mine[0].fileno(), taken)
writer._look_around(0.0)
writer.span(prefix, b"elsewhere")
if os.fork() == 0:
    os.fstat(taken)
    os._exit(0)
assert os.wait()[1] == 0, "a child has it too"
os.dup2(mine[0].fileno(), writer._descriptor)
writer.close()
os.write(taken, b"mine")
for number, file in enumerate(mine):
    file.write(b"%d" % number)
print(json.dumps([said, os.fstat(taken).st_ino == os.fstat(mine[0].fileno()).st_ino]))
"""


@pytest.mark.parametrize("limit", [256, 1024])
def test_what_closes_descriptors_that_it_does_not_know_costs_no_span_and_no_file(limit: int, tmp_path: Path) -> None:
    """As libraries do that make daemons: the files that the program opens next are its own alone."""
    spool = tmp_path / "spool"
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, str(spool), str(tmp_path / "mine"), str(limit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], True]
    assert [(tmp_path / f"mine{number}").read_bytes() for number in range(50)] == [
        b"mine0",
        *(b"%d" % number for number in range(1, 50)),
    ]
    found = Counter(
        payload[2:]
        for _, paths, _ in iterate(str(spool))
        for path in paths
        for kind, payload, _ in SegmentReader(path).read(final=True)
        if kind == layout.SPAN
    )
    assert found == {b"before": 1, b"after": 100, b"elsewhere": 1}


def test_a_volume_that_is_mounted_again_takes_spans_again(faulty: Faulty) -> None:
    """What was open on it can never be written to again."""
    disk = faulty()
    recording = Recording(disk.path)
    recording.write(1)
    disk.__exit__()
    recording.write(1)
    assert "are being dropped" in recording.said[0]
    disk.__enter__()
    recording.writer._look_at = 0.0  # as if the time until it looks around had passed
    recording.write(2)
    assert [payload for kind, payload in recording.records() if kind == layout.SPAN][-1].endswith(encoded(4))
    recording.writer.close()


def test_each_time_is_said_and_not_more_than_once_a_minute(faulty: Faulty) -> None:
    """However many spans are dropped, and however often it begins and ends."""
    disk = faulty()
    recording = Recording(disk.path)
    recording.write(1)
    for times in range(3):
        for _ in range(10):
            disk.fail = {"write": errno.ENOSPC}
            recording.write(3)
            disk.fail = {}
            recording.write(1)
        assert len(recording.said) == times + 1
        recording.minute_passed()
    assert [said.rpartition("device")[2] for said in recording.said] == [
        "",
        " (occurrence 2)",
        " (occurrence 3)",
    ]
    assert recording.dropped() == 90
    recording.writer.close()


def test_a_large_segment_is_left_when_the_disk_is_full(faulty: Faulty) -> None:
    """So that the shipper can remove it, and there is room for the next one."""
    disk = faulty()
    recording = Recording(disk.path)
    recording.write(3000)
    (first,) = disk.path.iterdir()
    disk.room = first.stat().st_size + 10
    recording.write(10)
    assert not is_locked(str(first))
    assert list(disk.path.iterdir()) == [first]
    first.unlink()
    recording.second_passed()
    recording.write(10)
    (second,) = disk.path.iterdir()
    assert second != first
    assert len(recording.found()) + recording.dropped() == 20
    assert len(recording.said) == 1
    recording.writer.close()


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_segment_that_is_removed_is_written_again(tmp_path: Path, what: str) -> None:
    """With all that was in it, under its name, locked, and private."""
    recording = Recording(tmp_path / "spool")
    recording.write(100)
    (segment,) = (tmp_path / "spool").iterdir()
    shutil.rmtree(tmp_path / "spool") if what == "folder" else segment.unlink()
    recording.write(100)
    recording.look()
    recording.write(100)
    assert recording.found() == list(range(1, 301))
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [segment.name]
    assert segment.stat().st_mode & 0o777 == 0o600
    assert is_locked(str(segment))
    assert recording.said == []
    recording.writer.close()
    assert not is_locked(str(segment))


def test_a_segment_that_is_removed_before_the_end_is_written_again(tmp_path: Path) -> None:
    """A process that lets go of its spool looks, and so does one that begins its next segment."""
    recording = Recording(tmp_path / "spool", segment_bytes=3000)
    recording.write(10)
    shutil.rmtree(tmp_path / "spool")
    recording.write(70)
    assert len(list((tmp_path / "spool").iterdir())) == 2
    assert recording.found() == list(range(1, 81))
    shutil.rmtree(tmp_path / "spool")
    recording.writer.close()
    assert recording.found()[-1] == 80


def test_a_removed_segment_that_cannot_be_written_again_yet_loses_nothing(faulty: Faulty) -> None:
    """The file lives on as long as its process holds it, and is copied when there is room."""
    disk = faulty()
    recording = Recording(disk.path / "spool")
    recording.write(10)
    shutil.rmtree(disk.path / "spool")
    disk.fail = {"create": errno.ENOSPC}
    recording.look()
    recording.write(10)
    assert not (disk.path / "spool").exists()
    disk.fail = {}
    recording.look()
    recording.write(10)
    assert recording.found() == list(range(1, 31))
    recording.writer.close()


def test_a_segment_that_is_cut_is_left_for_another(tmp_path: Path) -> None:
    """As after ``> file``: its definitions are gone, and spans that follow have them again."""
    recording = Recording(tmp_path)
    recording.write(100)
    (segment,) = tmp_path.iterdir()
    os.truncate(segment, 0)
    recording.write(1)
    recording.look()
    recording.write(1)
    recording.write(10)
    recording.writer.close()
    last = max(tmp_path.iterdir())
    assert last != segment
    kinds = [kind for kind, _, _ in SegmentReader(str(last)).read(final=True)]
    assert kinds == [layout.RESOURCE, layout.SCOPE, *[layout.SPAN] * 10]


def test_a_span_of_100_mib_is_counted_as_dropped(tmp_path: Path) -> None:
    """One that the readers would take for damage is not written; the next one is."""
    recording = Recording(tmp_path)
    recording.write(1)
    huge = bytes(100 << 20)
    recording.write(1, huge)
    recording.writer.start(recording.prefix, encoded(9, huge))
    recording.write(1)
    recording.write(1, bytes(layout.MAX_PAYLOAD - len(encoded(1)) - 2))
    recording.writer.close()
    (said,) = recording.said
    assert said.startswith("a span of more than 16 MiB was dropped")
    assert recording.found() == [1, 3, 4]
    assert recording.dropped() == 1


def test_a_limit_of_the_size_of_files_costs_no_span(tmp_path: Path) -> None:
    """``ulimit -f``, wherever in a record it is."""
    limits = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for _ in range(5_000):
    begin("a").end()
tell(said)
"""
    said, spans = record(limits, tmp_path)
    assert said == []
    assert len(spans) == 5_000
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 200_000


def test_the_cap_can_be_kept_with_whole_segments() -> None:
    """A process has one that is never removed, so it is a small part of what the spool may take."""
    assert segment_bytes(1 << 30) == DEFAULT_SEGMENT_BYTES
    assert segment_bytes(64 << 20) == 1 << 20
    assert segment_bytes(1) == 64 << 10


def test_the_more_processes_write_the_smaller_are_their_segments(tmp_path: Path) -> None:
    """A segment that is written to cannot be removed: those of a thousand processes together are no gigabytes."""
    for process in range(99):
        for sequence in range(2):
            (tmp_path / layout.segment_name(f"1-1-{process}", sequence)).touch()
    recording = Recording(tmp_path, segment_bytes=1 << 20)
    recording.write(300, b"x" * 1000)
    sizes = [path.stat().st_size for path in tmp_path.glob(f"{os.getpid()}-*")]
    assert len(sizes) == 4
    assert 8 * (1 << 20) // 100 < max(sizes) < 8 * (1 << 20) // 100 + 2000
    recording.writer.close()


def test_counting_survives_a_failing_disk(faulty: Faulty) -> None:
    """The shipper counts what waits; a page that cannot be read must not end it."""
    disk = faulty()
    recording = Recording(disk.path)
    recording.write(10)
    recording.writer.close()
    (segment,) = disk.path.iterdir()
    assert count_spans(str(segment)) == (10, True)
    disk.bad = {segment.name}
    assert count_spans(str(segment)) == (0, False)


# The shipper's own files, in the spool.


def test_a_spool_that_fills_its_disk_is_delivered_all_the_same(node: Node, mount: Mount) -> None:
    """The shipper stores its progress although there is no room left, so that it can remove what it delivered."""
    mount("size=512k", node.spool)
    node.start()
    writer = node.writer(segment_bytes=100_000)
    writer.do("span 1 1000")
    assert node.flush().done
    shipper = node.shipper()
    assert shipper is not None
    shipper.suspend()
    writer.do("span 1001 20000")
    shipper.resume()
    text = "spans could not be written to the spool by their processes"
    last, dropped = 20000, 0
    deadline = time.monotonic() + 20
    while True:
        result = node.flush()
        assert result.done
        dropped = next((int(each.split()[0]) for each in result.problems if text in each), dropped)
        if dropped and len(node.numbers()) + dropped == last:
            break
        # What the full disk did not take is counted as soon as there is room for the count: when the shipper has
        # removed what it has delivered.
        assert time.monotonic() < deadline, (len(node.numbers()), dropped, last)
        last += 1
        writer.do(f"span {last}")
    numbers = Counter(node.numbers())
    assert set(numbers.values()) == {1}
    assert not (node.spool / layout.QUARANTINE).exists(), "a record that the full disk cut short is no damage"


@pytest.mark.parametrize("what", ["folder", "lock", "socket", "segment"])
def test_what_somebody_removes_from_the_spool_is_made_anew(node: Node, what: str) -> None:
    """The shipper continues with what it knows: nothing is lost, nothing arrives twice."""
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1 1000")
    assert node.flush().done
    if what == "folder":
        shutil.rmtree(node.spool)
    else:
        for path in node.spool.glob({"lock": LOCK, "socket": SOCKET, "segment": "*.spool"}[what]):
            path.unlink()
    writer.do("span 1001 2000")

    def restored() -> bool:
        writer.do("start 1")
        return bool(node.segments()) and (node.spool / SOCKET).exists() and (node.spool / "plan.json").exists()

    def written() -> bool:
        # Its process looks once a second, when it writes.
        writer.do("span 2001")
        return len(node.segments()) == 1 and restored()

    until(written, "everything is there again")
    assert node.flush().done
    assert node.shippers() == [shipper]
    numbers = Counter(node.numbers())
    del numbers[2001]
    assert numbers == Counter(range(1, 2001))
    writer.end()
    assert node.flush(until_writers_end=True).done


def test_a_segment_that_is_removed_for_good_is_told(node: Node) -> None:
    """Its process is dead, so it cannot be written again."""
    node.out.write_text("in the way")
    node.start()
    writer = node.writer()
    writer.do("span 1 100")
    writer.end()
    until(lambda: any("in the way" in each or "not a folder" in each for each in node.flush(1).problems), "it is seen")
    for segment in node.segments():
        segment.unlink()
    until(lambda: "1 files of the spool were removed by another process" in node.log(), "it is told")


def test_a_segment_that_cannot_be_read_holds_no_other_one_back(node: Node, faulty: Faulty) -> None:
    """A broken disk: what can be read is delivered, the file is kept aside, and both are said."""
    disk = faulty(node.spool)
    for first in (1, 101):
        writer = node.writer()
        writer.do(f"span {first} {first + 99}")
        writer.end()
    broken = node.segments()[0]
    disk.bad = {broken.name}
    node.start()
    result = node.flush()
    assert result.done
    assert len(node.numbers()) == 100
    assert f"{broken.name!r} cannot be read to its end: Input/output error" in result.problems
    # At the next look, if the flush was answered in between.
    until((node.spool / layout.QUARANTINE / broken.name).exists, "it is kept aside")
    assert os.listdir(node.spool / layout.QUARANTINE) == [broken.name]


def test_a_spool_that_cannot_be_looked_at_is_tried_again(node: Node, faulty: Faulty) -> None:
    """The shipper lives on, says so, and delivers when it can."""
    disk = faulty(node.spool)
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1 10")
    assert node.flush().done
    disk.fail = {"list": errno.EIO}
    writer.do("span 11 20")
    until(lambda: "cannot look at the spool" in node.log(), "it is said")
    result = node.answer()
    assert not result.done
    assert any("cannot look at the spool" in problem for problem in result.problems)
    disk.fail = {}
    assert node.flush().done
    assert node.shippers() == [shipper]
    assert node.numbers() == list(range(1, 21))


IMPATIENT = """
import sys
from ray_tracing_hooks._ship import __main__, shipper
shipper._GIVE_UP = 0.5
sys.exit(__main__.main([sys.argv[1]]))
"""


def test_a_shipper_of_a_spool_that_stays_unreadable_ends_after_ray(tmp_path: Path, faulty: Faulty) -> None:
    disk = faulty(tmp_path / "spool")
    plan = made_plan(("local",), str(tmp_path / "spans"), 1 << 20, 1 << 20, 1 << 20)
    log = tmp_path / "ship.log"
    plan._replace(raylet_socket=str(tmp_path / "gone"), log_file=str(log)).store(str(disk.path))
    disk.fail = {"list": errno.EIO}
    command = [sys.executable, "-c", IMPATIENT, str(disk.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "gave up: " in log.read_text()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_a_volume_without_sockets_delivers(node: Node, faulty: Faulty, raylet: socket.socket, number: int) -> None:
    """As SMB shares and mounted object stores are. Nobody waits there, and nothing but the folder stays behind."""
    disk = faulty(node.spool)
    disk.fail = {"socket": number}
    assert not node.flush(0.1).running
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1 10")
    result = node.flush(30)
    assert (result.done, result.running, len(result.problems)) == (False, True, 1)
    assert "has no sockets" in result.problems[0]
    until(lambda: node.numbers() == list(range(1, 11)), "they are delivered")
    writer.do("start 12")
    writer.kill()
    raylet.close()
    ended(shipper)
    assert node.numbers() == [*range(1, 11), 12]
    assert not node.flush(0.1).running
    assert not os.listdir(node.spool)


# Where the local sink writes.


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_spans_wait_while_the_output_disk_refuses(node: Node, faulty: Faulty, number: int) -> None:
    """They stay in the spool and arrive once, also where the disk fails in the middle of a line."""
    disk = faulty(node.out)
    node.start()
    writer = node.writer()
    writer.do("span 1 1000")
    assert node.flush().done
    disk.fail = {"change": number}
    writer.do("span 1001 2000")
    node.trouble(f"cannot write spans to {str(node.out)!r}: {os.strerror(number)}")
    # In this order: it tries again at any time.
    disk.room = sum(path.stat().st_size for path in node.out.iterdir()) + 5000
    disk.fail = {}
    result = node.trouble(f"cannot write spans to {str(node.out)!r}: No space left on device")
    assert len(result.waiting) == 1
    disk.room = 1 << 30
    assert node.flush() == FlushResult(done=True)
    assert Counter(node.numbers()) == Counter(range(1, 2001))


def test_a_shipper_without_free_descriptors_goes_on(node: Node) -> None:
    """It has none to look at the spool with, or to write: it says so, and delivers when it has."""
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1 10")
    assert node.flush().done
    _, hard = resource.prlimit(shipper.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(shipper.pid, resource.RLIMIT_NOFILE, (3, hard))
    writer.do("span 11 20")
    until(lambda: "Too many open files" in node.log(), "it is said")
    resource.prlimit(shipper.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert node.flush().done
    assert node.shippers() == [shipper]
    assert node.numbers() == list(range(1, 21))


def test_an_output_folder_that_is_removed_while_it_is_written_to_costs_only_what_was_in_it(node: Node) -> None:
    """What comes after that is in a new folder."""
    node.start()
    writer = node.writer()
    writer.do("span 1 100")
    assert node.flush().done
    shutil.rmtree(node.out)
    writer.do("span 101 200")
    assert node.flush().done
    assert node.numbers() == list(range(101, 201))
