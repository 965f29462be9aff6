"""The spool: what was written is there, whatever happens to the writer."""

from __future__ import annotations

import contextlib
import errno
import inspect
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ray_tracing_hooks
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.reader import Parts, SegmentReader, is_locked, iterate, parse, segments
from ray_tracing_hooks._spool.writer import SpoolWriter

WRITER = inspect.getfile(SpoolWriter)

pytestmark = pytest.mark.usefixtures("each_way")


def write(folder: Path, count: int, segment_bytes: int = 1 << 20) -> SpoolWriter:
    writer = SpoolWriter(str(folder), segment_bytes=segment_bytes)
    prefix = U16.pack(writer.scope(b"resource", b"scope"))
    for index in range(count):
        writer.span(prefix, b"span %d" % index)
    return writer


def spans(folder: Path) -> list[bytes]:
    found = []
    for _, paths, _ in iterate(str(folder)):
        for path in paths:
            found += [payload[2:] for kind, payload, _ in SegmentReader(path).read(final=True) if kind == layout.SPAN]
    return found


def test_records_are_read_back_in_order_while_the_file_grows(tmp_path: Path) -> None:
    writer = write(tmp_path, 3)
    ((_, [path], alive),) = iterate(str(tmp_path))
    assert alive
    reader = SegmentReader(path)
    assert [kind for kind, _, _ in reader.read()] == [layout.RESOURCE, layout.SCOPE, *[layout.SPAN] * 3]
    assert reader.read() == []
    writer.span(U16.pack(0), b"later")
    assert [payload[2:] for _, payload, _ in reader.read()] == [b"later"]
    writer.close()
    assert not is_locked(path)


def test_a_process_that_records_nothing_leaves_nothing(tmp_path: Path) -> None:
    SpoolWriter(str(tmp_path)).scope(b"resource", b"scope")
    assert list(tmp_path.iterdir()) == []


def test_segments_roll_over_and_each_can_be_read_alone(tmp_path: Path) -> None:
    """A new segment defines its scopes again, and the process is never seen as dead in between."""
    writer = write(tmp_path, 100, segment_bytes=500)
    ((_, pairs),) = segments(str(tmp_path)).items()
    assert len(pairs) > 3
    for _, path in pairs:
        kinds = [kind for kind, _, _ in SegmentReader(path).read()]
        assert kinds[:2] == [layout.RESOURCE, layout.SCOPE]
    assert [is_locked(path) for _, path in pairs] == [False] * (len(pairs) - 1) + [True]
    assert spans(tmp_path) == [b"span %d" % index for index in range(100)]
    writer.close()


KILLED = """
import os, signal, sys
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter
writer = SpoolWriter(sys.argv[1], segment_bytes=3000)
prefix = U16.pack(writer.scope(b"resource", b"scope"))
for index in range(1000):
    writer.span(prefix, b"span %d" % index)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_nothing_that_it_wrote(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert spans(tmp_path) == [b"span %d" % index for index in range(1000)]
    ((_, _, alive),) = iterate(str(tmp_path))
    assert not alive


FORKED = """
import json, os, sys
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.reader import iterate
from ray_tracing_hooks._spool.writer import SpoolWriter
writer = SpoolWriter(sys.argv[1])
prefix = U16.pack(writer.scope(b"resource", b"scope"))
writer.span(prefix, b"parent")
read, write = os.pipe()
done_read, done_write = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    writer.span(prefix, b"child")
    os.write(done_write, b"x")
    os.read(read, 1)
    os._exit(0)
os.close(read)
os.read(done_read, 1)
writer.close()  # as if the parent had died: the child must not keep its lock
print(json.dumps({process.split("-")[0]: alive for process, _, alive in iterate(sys.argv[1])}), child, os.getpid())
os.close(write)
os.waitpid(child, 0)
"""


def test_a_forked_child_writes_files_of_its_own_and_keeps_no_lock_of_its_parent(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, str(tmp_path)], check=True, capture_output=True, text=True)
    alive, child, parent = done.stdout.rsplit(" ", 2)
    assert json.loads(alive).get(parent.strip()) is False
    assert sorted(spans(tmp_path)) == [b"child", b"parent"]
    assert child.strip() in {path.name.split("-")[0] for path in tmp_path.iterdir()}


IDS = U16.pack(0) + b"\x0a\x10" + bytes(range(1, 17)) + b"\x12\x08" + bytes(range(1, 9))
"""What every span begins with."""


def payloads_of(records: list[Parts]) -> list[bytes]:
    return [head[1:] + rest for head, _, rest, _ in records]


@given(st.lists(st.binary(max_size=40).map(IDS.__add__), min_size=1, max_size=8), st.data())
def test_damage_costs_the_records_that_it_hit_and_no_more(payloads: list[bytes], data: st.DataObject) -> None:
    """Whatever bytes are changed, cut or put in, no wrong record is read, and those elsewhere are."""
    from ray_tracing_hooks._spool.writer import frame

    frames = [frame(layout.SPAN, payload) for payload in payloads]
    hit = data.draw(st.integers(0, len(frames) - 1))
    junk = data.draw(st.binary(max_size=30))
    cut = data.draw(st.integers(0, len(frames[hit]) - 1))
    damaged = [*frames[:hit], frames[hit][:cut] + junk, *frames[hit + 1 :]]
    records, consumed, _ = parse(layout.MAGIC + b"".join(damaged), final=True)
    assert consumed == len(layout.MAGIC) + sum(len(frame) for frame in damaged)
    read = payloads_of(records)
    whole = payloads[:hit] + payloads[hit + 1 :]
    assert [payload for payload in read if payload in whole or payload == payloads[hit]] == read
    assert len(read) >= len(whole)


@given(st.integers(0, 200))
def test_a_record_that_is_still_being_written_is_waited_for(cut: int) -> None:
    from ray_tracing_hooks._spool.writer import frame

    whole = layout.MAGIC + frame(layout.SPAN, b"a" * 80) + frame(layout.SPAN, b"b" * 80)
    cut = min(cut, len(whole))
    records, consumed, damaged = parse(whole[:cut])
    assert damaged == 0
    rest, _, damaged = parse(whole[consumed:], consumed)
    assert damaged == 0
    assert payloads_of(records + rest) == [b"a" * 80, b"b" * 80]


def test_a_record_that_is_longer_than_a_read_is_read_alone(tmp_path: Path) -> None:
    """Not with all that follows it: memory stays bounded by the longest record."""
    writer = SpoolWriter(str(tmp_path))
    prefix = U16.pack(writer.scope(b"", b"scope"))
    for size in (10, 5000, 10, 10):
        writer.span(prefix, b"x" * size)
    writer.close()
    reader = SegmentReader(str(next(tmp_path.glob("*.spool"))))
    reads = []
    while found := [len(payload) - U16.size for kind, payload, _ in reader.read(limit=100) if kind == layout.SPAN]:
        reads.append(found)
    assert reads == [[10], [5000], [10, 10]]
    assert not reader.damaged


def test_a_crowd_of_threads_writes_whole_records(tmp_path: Path) -> None:
    """Threads share one descriptor, also while segments roll over."""
    from threading import Thread

    writer = SpoolWriter(str(tmp_path), segment_bytes=2000)
    prefix = U16.pack(writer.scope(b"resource", b"scope"))

    def work(name: int) -> None:
        for index in range(300):
            writer.span(prefix, b"%d/%d" % (name, index))

    threads = [Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert sorted(spans(tmp_path)) == sorted(b"%d/%d" % (name, index) for name in range(8) for index in range(300))


def losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: Iterator[None]) -> SpoolWriter:
    """A writer on a full disk that has lost a span. There is no room for its next segment while there are refusals."""
    writer = write(tmp_path, 1)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._descriptor)
    os.close(full)
    writer.span(U16.pack(0), b"lost")
    make = writer._make_segment

    def make_segment(sequence: int, source: int) -> int:
        for _ in refusals:
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(sequence, source)

    monkeypatch.setattr(writer, "_make_segment", make_segment)
    return writer


def test_what_a_full_disk_did_not_take_at_the_end_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends while the disk is full waits a moment for room to say so."""
    losing(tmp_path, monkeypatch, itertools.repeat(None, 2)).close(time.monotonic() + 60)
    _, (_, second) = next(iter(segments(str(tmp_path)).values()))
    assert spans(tmp_path) == [b"span 0"]
    dropped = [payload for kind, payload, _ in SegmentReader(second).read() if kind == layout.DROPPED]
    assert dropped == [(1).to_bytes(8, "little")]


def test_a_process_ends_though_a_disk_stays_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for ever for room, and not a second time."""
    writer = losing(tmp_path, monkeypatch, itertools.repeat(None))
    until = time.monotonic() + 0.1
    writer.close(until)
    assert time.monotonic() >= until
    writer.close(until + 60)
    assert time.monotonic() < until + 60
    assert not writer.is_open
    assert spans(tmp_path) == [b"span 0"]


def test_a_thread_that_is_about_to_write_when_the_segment_is_closed(tmp_path: Path) -> None:
    """It writes to the next segment, and not to a file that the program opens meanwhile."""
    writer = write(tmp_path, 1)
    descriptor = writer._descriptor
    written = writer._written
    writer.close()
    with open(tmp_path / "file of the program", "wb") as file:
        assert file.fileno() != descriptor
        writer._written = written  # what such a thread has seen, or has written back
        writer.span(U16.pack(0), b"about to be written")
        assert writer._descriptor == descriptor
    writer.close()
    assert (tmp_path / "file of the program").read_bytes() == b""
    assert spans(tmp_path) == [b"span 0", b"about to be written"]


def test_a_thread_that_is_about_to_write_when_another_one_begins_the_next_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write fails since the segment was closed; when it looks why, the next one is open."""
    writer = write(tmp_path, 1)
    written = writer._written
    failing, opening = threading.Event(), threading.Event()
    is_closed = writer._is_closed

    def after_the_other_one() -> bool:
        failing.set()
        assert opening.wait(60)
        return is_closed()

    writer.close()
    writer._written = written
    monkeypatch.setattr(writer, "_is_closed", after_the_other_one)
    thread = threading.Thread(target=writer.span, args=(U16.pack(0), b"of the late one"))
    thread.start()
    assert failing.wait(60)
    writer._written = 1 << 62
    writer.span(U16.pack(0), b"of the other one")
    opening.set()
    thread.join(60)
    writer.close()
    assert spans(tmp_path) == [b"span 0", b"of the other one", b"of the late one"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_segment_is_not_made_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """A shipper may have seen its file, which would hide another one of the same name."""
    rename = os.rename

    def interrupted(*arguments: Any, **options: Any) -> None:
        rename(*arguments, **options)
        monkeypatch.setattr(os, "rename", rename)
        raise raised

    monkeypatch.setattr(os, "rename", interrupted)
    writer = SpoolWriter(str(tmp_path))
    prefix = U16.pack(writer.scope(b"resource", b"scope"))
    with pytest.raises(raised):
        writer.span(prefix, b"interrupted")
    (seen,) = tmp_path.iterdir()
    writer.span(prefix, b"later")
    assert seen in tmp_path.iterdir()
    assert len(list(tmp_path.iterdir())) == 2
    assert spans(tmp_path) == [b"later"]
    writer.close()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_an_interruption_anywhere_leaves_no_segment_locked_but_the_newest(
    tmp_path: Path, raised: type[BaseException]
) -> None:
    """As by Ctrl-C or a time-out, whose handlers run where functions begin and return. Readers wait for what a locked
    segment may still get, and read no later one.
    """
    writer = SpoolWriter(str(tmp_path), segment_bytes=1)
    prefix = U16.pack(writer.scope(b"resource", b"scope"))
    package = os.path.dirname(inspect.getfile(ray_tracing_hooks))
    place = left = 0

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event in {"call", "return", "c_return"} and frame.f_code.co_filename.startswith(package):
            left -= 1
            if not left:
                raise raised

    while left <= 0:
        place += 1
        left = place
        sys.setprofile(look)
        with contextlib.suppress(raised):
            writer.span(prefix, b"interrupted")
        sys.setprofile(None)
        writer.span(prefix, b"later")
        ((_, pairs),) = segments(str(tmp_path)).items()
        *before, newest = (path for _, path in pairs)
        assert [is_locked(path) for path in (*before, newest)] == [False] * len(before) + [True], f"place {place}"
        for path in before:
            os.unlink(path)
    assert place > 50
    writer.close()


def test_a_scope_and_a_resource_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    """As a tracer has it whose name holds a document: a reader would take their records for damage."""
    text = "x" * (17 << 20)
    writer = SpoolWriter(str(tmp_path))
    large = encode.scope(text, "1", {"a": text}), encode.resource({"big": text, "service.name": "mine"})
    for scope, described in ((large[0], b""), (encode.scope("lib"), large[1])):
        writer.span(U16.pack(writer.scope(described, scope)), b"span")
    writer.close()
    ((_, (path,), _),) = iterate(str(tmp_path))
    reader = SegmentReader(path)
    found = [payload for kind, payload, _ in reader.read(final=True) if kind == layout.SCOPE]
    assert (len(spans(tmp_path)), reader.damaged, len(found)) == (2, 0, 2)
    assert os.path.getsize(path) < 4096


def test_a_segment_is_closed_also_where_no_descriptor_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write(tmp_path, 1)
    (path,) = map(str, tmp_path.iterdir())
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limit[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        os.close(lowest)
    assert not is_locked(path)
    writer.span(U16.pack(0), b"later")
    writer.close()
    assert spans(tmp_path) == [b"span 0", b"later"]


def test_a_definition_that_the_disk_does_not_take_costs_no_later_span(tmp_path: Path) -> None:
    """A scope that is new while the disk is full is defined in the next segment."""
    writer = write(tmp_path, 1)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._descriptor)
    os.close(full)
    prefix = U16.pack(writer.scope(b"resource", b"another scope"))
    writer.span(prefix, b"of another scope")
    writer.close()
    (_, first), (_, second) = next(iter(segments(str(tmp_path)).values()))
    assert [kind for kind, _, _ in SegmentReader(second).read()] == [layout.RESOURCE, layout.SCOPE, layout.SCOPE, 4]
    assert len(SegmentReader(first).read()) == 3


def interrupted(call: Callable[[], object], handle: Callable[[], None], moment: int) -> bool:
    """Call something, and ``handle`` before its instruction of this number in the writer; whether it has so many."""
    counted = 0
    came = False

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal counted, came
        if came or frame.f_code.co_filename != WRITER:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if counted == moment:
                came = True
                sys.settrace(None)
                handle()
                return None
            counted += 1
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return came


def test_tracers_of_too_many_names_are_recorded_without_their_names(tmp_path: Path) -> None:
    """A program that names each tracer after a request: no span is lost, and segments are not full of names."""
    said: list[str] = []
    writer = SpoolWriter(str(tmp_path), segment_bytes=1000, on_problem=said.append)
    for number in range(70_000):
        prefix = U16.pack(writer.scope(b"", b"\x0a\x05" + f"{number:05}".encode()))
        if number % 7000 == 0 or number >= 69_990:
            writer.span(prefix, b"span %d" % number)
    writer.close()
    paths = [path for _, paths, _ in iterate(str(tmp_path)) for path in paths]
    kinds = [kind for path in paths for kind, _, _ in SegmentReader(path).read(final=True)]
    assert kinds.count(layout.SPAN) == 20
    assert len(paths) < 5
    (text,) = said
    assert "recorded without the name of their tracer" in text
