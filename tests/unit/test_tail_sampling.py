"""Tail sampling: of traces that are not sampled, those with an error or a slow call are kept, exactly once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

import pytest
from faulty import FaultyDisk
from plans import made_plan
from shipping import Writer, until

from ray_tracing_hooks._formats import protobuf
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.decode import Span, decode_span
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._ship.folder import Folder, Look
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._ship.retention import Quarantine
from ray_tracing_hooks._ship.tail_sampling import progress
from ray_tracing_hooks._ship.tail_sampling import sampler as sampling
from ray_tracing_hooks._ship.tail_sampling.sampler import TailSampler
from ray_tracing_hooks._spool.writer import SpoolWriter

MS = 10**6
INTERNAL, PRODUCER, CONSUMER = 1, 4, 5


class Spool:
    """A spool folder with undecided spans, a process that writes them, and shippers that sample them one after another.

    Spans are known by the numbers of their traces and their own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.undecided = folder / "undecided"
        self.writer = SpoolWriter(str(self.undecided), segment_bytes=4096)
        self._prefix = self.writer.scope(encode.resource({"service.name": "test"}), encode.scope("test"))
        self.problems = Problems()
        self.plan = made_plan(("local",), "", 1, 1, 1 << 30, keep_errors=True, keep_slower=1.0, keep_wait=60.0)
        self._progress: dict[str, object] = {}
        self.kept: list[Span] = []

    def begin(self, trace: int, number: int) -> None:
        self.writer.start(self._prefix.to_bytes(2, "little"), head(trace, number))

    def end(
        self, trace: int, number: int, *, took: int = MS, kind: int = INTERNAL, failed: bool = False, **more: object
    ) -> None:
        parent = more.get("parent")
        name = str(more.get("name", "span"))
        encoded = head(trace, number) + encode.name_and_kind(name, kind) + protobuf.fixed64(0x41, 1000 + took)
        encoded += b"\x22\x08" + bytes(7) + bytes([9]) if parent else b""
        self.writer.span(self._prefix.to_bytes(2, "little"), encoded + encode.status(2 if failed else 0, "wrong"))

    def sampler(self) -> TailSampler:
        """A shipper's that has just been started."""
        return TailSampler(
            str(self.folder), self.plan, self.problems, Quarantine(str(self.folder), "spool", 1, self.problems)
        )

    def turn(self, sampler: TailSampler, *, ending: bool = False) -> list[tuple[int, int]]:
        """What a turn has kept: the spans that have come to the spool."""
        while True:
            sampler.turn(hurry=True, ending=ending)
            if not sampler.behind:
                break
        return self.delivered()

    def delivered(self) -> list[tuple[int, int]]:
        """What is new in the spool."""
        follower = Follower(self._progress, self.problems, reports=True)
        found = [
            decode_span(span)
            for batches in follower.follow(Folder(str(self.folder)).look(set()))
            for batch in batches
            for span in batch.spans
        ]
        self._progress = follower.positions()
        self.kept += found
        return sorted((number(span.trace_id), number(span.span_id)) for span in found)

    def waiting(self) -> int:
        return len(list(self.undecided.glob("*.spool")))


def head(trace: int, number: int) -> bytes:
    ids = trace.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
    return b"\x0a\x10" + ids + protobuf.fixed64(0x39, 1000)


def number(encoded: bytes) -> int:
    return int.from_bytes(encoded, "big")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path)
    yield made
    made.writer.close()


def test_an_error_keeps_what_came_before_it_and_what_comes_after(spool: Spool) -> None:
    """All spans of the trace that the node has say why; those of other traces stay where they are."""
    sampler = spool.sampler()
    for trace in (1, 2):
        spool.begin(trace, 1)
        spool.end(trace, 2)
    assert spool.turn(sampler) == []
    spool.end(1, 3, failed=True)
    spool.end(2, 3)
    assert spool.turn(sampler) == [(1, 2), (1, 3)]
    spool.end(1, 1)
    spool.end(2, 1)
    assert spool.turn(sampler) == [(1, 1)]
    assert {span.attributes["ray.kept"] for span in spool.kept} == {"error"}
    assert spool.kept[0].attributes.keys() == {"ray.kept"}


@pytest.mark.parametrize(
    ("kind", "parent", "name", "took", "kept"),
    [
        (CONSUMER, True, "f ray.remote_worker", 1000, True),
        (CONSUMER, True, "f ray.remote_worker", 999, False),
        (INTERNAL, False, "GET /", 1000, True),
        (INTERNAL, True, "of the user", 1000, False),
        (PRODUCER, True, "f ray.remote", 1000, False),
        (INTERNAL, False, "main.py ray.driver", 1000, False),
    ],
    ids=["slow call", "fast call", "slow root", "slow span within", "slow submission", "driver"],
)
def test_what_counts_as_slow(spool: Spool, kind: int, parent: bool, name: str, took: int, kept: bool) -> None:
    """A task or method, and what begins a trace; a driver lasts as long as its program."""
    sampler = spool.sampler()
    spool.end(1, 1, kind=kind, parent=parent, name=name, took=took * MS)
    assert spool.turn(sampler) == [(1, 1)] * kept
    assert [span.attributes["ray.kept"] for span in spool.kept] == ["slow"] * kept


def test_errors_are_kept_only_where_they_are_asked_for(spool: Spool) -> None:
    spool.plan = spool.plan.with_settings(keep_errors=False)
    sampler = spool.sampler()
    spool.end(1, 1, failed=True)
    assert spool.turn(sampler) == []


def test_a_trace_without_error_is_dropped_when_nothing_of_it_is_open(spool: Spool) -> None:
    """A short wait after its last news. Its segments go with it, but not that in which another trace is open."""
    spool.plan = spool.plan.with_settings(keep_wait=0.0)
    sampler = spool.sampler()
    spool.begin(1, 1)
    for each in range(2, 400):
        spool.end(1, each)
    assert spool.turn(sampler) == []
    assert spool.waiting() > 5, "its first span is open"
    spool.begin(2, 1)
    spool.end(1, 1)
    until(lambda: spool.turn(sampler) == [] and spool.waiting() == 1, "all others are gone")
    spool.end(2, 1, failed=True)
    assert spool.turn(sampler) == [(2, 1)]


@pytest.mark.parametrize(("most", "kept"), [(1, [(2, 2)]), (2, [(1, 2), (2, 2)])], ids=["one too many", "few enough"])
def test_a_kept_trace_is_known_when_nothing_of_it_is_left(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, most: int, kept: list[tuple[int, int]]
) -> None:
    """An actor that failed may be started again much later. It is known to a later shipper, too."""
    monkeypatch.setattr(sampling, "_EXPIRE_SECONDS", 0.0)
    monkeypatch.setattr(sampling, "_MOST_REMEMBERED", most)
    spool.plan = spool.plan.with_settings(keep_wait=0.0)
    sampler = spool.sampler()
    for trace in (1, 2):
        spool.end(trace, 1, failed=True)
        assert spool.turn(sampler) == [(trace, 1)]
    spool.writer.close()
    spool.turn(sampler)
    for segment in spool.undecided.glob("*.spool"):
        segment.unlink()
    assert spool.turn(sampler) == []
    for trace in (1, 2):
        spool.end(trace, 2)
    assert spool.turn(sampler) == kept


def test_news_put_off_the_end_of_a_trace(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sampler = spool.sampler()
    spool.end(2, 1)
    for each in range(200):
        spool.end(1, 1)
        if each % 50 == 0:
            now[0] += 50
            spool.turn(sampler)
    spool.end(2, 3, failed=True)
    assert spool.turn(sampler) == [(2, 3)]
    spool.end(1, 3, failed=True)
    assert Counter(spool.turn(sampler)) == {(1, 1): 200, (1, 3): 1}


def test_when_nobody_writes_any_more_what_is_left_is_dropped(spool: Spool) -> None:
    sampler = spool.sampler()
    spool.end(1, 1)
    spool.end(2, 1, failed=True)
    spool.writer.close()
    assert spool.turn(sampler, ending=True) == [(2, 1)]
    spool.turn(sampler, ending=True)
    assert spool.waiting() == 0
    assert sampler.clean_up()
    assert sorted(os.listdir(spool.folder)) == [path.name for path in spool.folder.glob("0-*.spool")]


def test_a_process_that_writes_may_still_decide_where_there_is_no_raylet(spool: Spool) -> None:
    """Also for a shipper that has just been started, and has looked at nothing yet."""
    spool.end(1, 1)
    sampler = spool.sampler()
    assert spool.turn(sampler, ending=True) == []
    spool.end(1, 2, failed=True)
    assert spool.turn(sampler, ending=True) == [(1, 1), (1, 2)]


def test_spans_that_a_kill_cuts_off_are_errors(spool: Spool) -> None:
    writer = Writer(spool.undecided, 4096)
    writer.do("start 7")
    sampler = spool.sampler()
    assert spool.turn(sampler) == []
    writer.kill()
    assert until(lambda: spool.turn(sampler), "its death is seen") == [(7, 7)]
    (span,) = spool.kept
    assert (span.status_code, span.attributes["ray.kept"]) == (2, "error")
    again = spool.sampler()
    assert spool.turn(again) == [], "an earlier shipper has closed it"


@pytest.mark.parametrize("is_new", [False, True], ids=["the same shipper", "another shipper"])
def test_what_a_kill_cut_off_is_kept_with_a_trace_that_takes_too_long_later(spool: Spool, is_new: bool) -> None:
    """The first attempt was killed, and the second one, after that, was slow."""
    century = 3_000_000_000  # seconds: what was killed had begun in 1970
    spool.plan = spool.plan.with_settings(keep_errors=False, keep_slower=century)
    writer = Writer(spool.undecided, 4096)
    writer.do("start 7")
    sampler = spool.sampler()
    assert spool.turn(sampler) == []
    writer.kill()

    def is_closed() -> bool:
        assert spool.turn(sampler) == []
        return not sampler._reader.open_processes()

    until(is_closed, "its death is seen")
    if is_new:
        sampler = spool.sampler()
    spool.end(7, 8, took=2 * century * 10**9, kind=CONSUMER)
    assert spool.turn(sampler) == [(7, 7), (7, 8)]
    assert spool.turn(spool.sampler()) == []


@pytest.mark.parametrize("first", ["the killed process", "the other one"])
def test_what_a_kill_cut_off_is_kept_with_a_trace_that_another_shipper_decides_on(
    spool: Spool, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever process it reads first. What the first shipper has stored says only that it knew of the kill."""
    century = 3_000_000_000
    spool.plan = spool.plan.with_settings(keep_errors=False, keep_slower=century)
    writer = Writer(spool.undecided, 4096)
    writer.do("start 7")
    sampler = spool.sampler()
    assert spool.turn(sampler) == []
    writer.kill()

    def is_closed() -> bool:
        assert spool.turn(sampler) == []
        return not sampler._reader.open_processes()

    until(is_closed, "its death is seen")
    spool.end(1, 1, took=2 * century * 10**9, kind=CONSUMER)
    assert spool.turn(sampler) == [(1, 1)]
    another = spool.sampler()
    look = another._folder.look

    def in_order(also: set[str]) -> Look:
        found = look(also)
        processes = sorted(found.processes.items(), key=lambda each: each[1].alive == (first == "the killed process"))
        return found._replace(processes=dict(processes))

    monkeypatch.setattr(another._folder, "look", in_order)
    spool.end(7, 8, took=2 * century * 10**9, kind=CONSUMER)
    assert spool.turn(another) == [(7, 7), (7, 8)]
    assert spool.turn(spool.sampler()) == []


@pytest.mark.parametrize("dies", ["before it stores", "before the segment is seen", "after"])
def test_a_shipper_that_is_killed_loses_nothing_and_keeps_nothing_twice(
    spool: Spool, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it ends: the next one reads again what waits, and knows what was kept."""

    class KilledError(BaseException):
        pass

    def die(*_arguments: object) -> None:
        raise KilledError

    first = spool.sampler()
    for trace in (1, 2, 3):
        spool.begin(trace, 1)
        spool.end(trace, 2)
    spool.end(1, 3, failed=True)
    assert spool.turn(first) == [(1, 2), (1, 3)]
    spool.end(1, 4)
    spool.end(2, 4, failed=True)
    with monkeypatch.context() as patched:
        if dies == "before it stores":
            patched.setattr(progress, "write_atomically", die)
        elif dies == "before the segment is seen":
            patched.setattr(os, "rename", die)
            patched.setattr(progress, "write_atomically", lambda path, text: Path(path).write_bytes(text))
        if dies == "after":
            spool.turn(first)
        else:
            with pytest.raises(KilledError):
                first.turn(hurry=True, ending=False)
    second = spool.sampler()
    spool.turn(second)
    spool.end(1, 5)
    spool.end(2, 5)
    spool.end(3, 5)
    spool.turn(second)
    spool.end(3, 6, failed=True)
    for each in (1, 2, 3):
        spool.end(each, 1)
    spool.turn(second)
    expected = {(1, each) for each in (1, 2, 3, 4, 5)} | {(2, each) for each in (1, 2, 4, 5)}
    expected |= {(3, each) for each in (1, 2, 5, 6)}
    assert Counter((number(span.trace_id), number(span.span_id)) for span in spool.kept) == Counter(expected)


def test_a_shipper_that_is_killed_while_it_collects_a_long_trace_goes_on(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has collected so far is there, and comes once."""
    monkeypatch.setattr(sampling, "_PORTION_BYTES", 3000)
    monkeypatch.setattr(sampling, "_TURN", 0.0)
    sampler = spool.sampler()
    for each in range(1, 500):
        spool.end(1, each)
    spool.end(1, 500, failed=True)
    killed = 0
    while sampler.behind:
        sampler.turn(hurry=False, ending=False)
        spool.delivered()
        if len(spool.kept) > 100 * (killed + 1):
            killed += 1
            sampler = spool.sampler()
    assert killed > 2
    spool.turn(spool.sampler())
    assert sorted(number(span.span_id) for span in spool.kept) == list(range(1, 501))


def test_a_shipper_that_is_killed_while_it_reads_goes_on(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to a trace that is just being kept is collected by the next one, if it was not by this one."""
    sampler = spool.sampler()
    spool.end(1, 1, failed=True)
    spool.turn(sampler)
    for each in range(2, 100):
        spool.end(2, each)
        spool.end(1, each)
        if each == 50:
            spool.end(2, 1, failed=True)
    monkeypatch.setattr(sampling, "_PORTION_BYTES", 1000)
    publish = TailSampler._publish
    published = 0

    def publish_and_die(self: TailSampler) -> None:
        nonlocal published
        publish(self)
        published += 1
        if published % 2 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(TailSampler, "_publish", publish_and_die)
    killed = 0
    while sampler.behind or not killed:
        try:
            sampler.turn(hurry=True, ending=False)
        except KeyboardInterrupt:
            killed += 1
            sampler = spool.sampler()
    assert killed > 1
    spool.delivered()
    kept = Counter((number(span.trace_id), number(span.span_id)) for span in spool.kept)
    assert kept == Counter((trace, each) for trace in (1, 2) for each in range(1, 100))


def test_kept_spans_whose_file_cannot_get_its_name_wait_for_it(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are stored by then, and nothing else has them any more."""
    spool.end(1, 1, failed=True)
    spool.writer.close()
    sampler = spool.sampler()
    rename = os.rename
    with monkeypatch.context() as failing:

        def fails(source: str, target: str) -> None:
            if target.endswith(".spool"):
                raise OSError(5, "Input/output error")
            rename(source, target)

        failing.setattr(os, "rename", fails)
        sampler.turn(hurry=True, ending=False)
        assert sampler.failed
        sampler.turn(hurry=True, ending=False)
        assert (sampler.failed, spool.delivered(), spool.waiting()) == (True, [], 1)
    assert spool.turn(sampler) == [(1, 1)]
    assert (sampler.failed, spool.waiting()) == (False, 0)


def test_a_trace_forgets_the_segments_that_are_gone(spool: Spool) -> None:
    """It may last for weeks."""
    sampler = spool.sampler()
    most = 0
    for each in range(1, 20_000):
        spool.end(1, each)
        if each % 50 == 0:
            spool.turn(sampler)
            (trace,) = sampler._traces.values()
            most = max(most, len(trace.segments))
            for path in sorted(spool.undecided.glob("*.spool"))[:-2]:
                path.unlink()  # as if it had exceeded the limit
    assert most <= 64


def test_what_waits_takes_no_more_than_its_share(spool: Spool) -> None:
    """The oldest are dropped, and the count is logged."""
    spool.plan = spool.plan.with_settings(spool_max_bytes=100_000)
    sampler = spool.sampler()
    for each in range(1, 2000):
        spool.end(1, each)
    spool.turn(sampler)
    size = sum(path.stat().st_size for path in spool.undecided.glob("*.spool"))
    assert 12_500 < size <= 25_000 + 4096 + 200
    assert any("dropped without a decision" in text for text in spool.problems.take_unreported())
    spool.end(1, 2000, failed=True)
    kept = spool.turn(sampler)
    assert kept[-1] == (1, 2000)
    assert 50 < len(kept) < 2000


def test_traces_beyond_the_most_do_not_fill_the_memory_while_many_are_read(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest are dropped in between, however much waits to be read."""
    monkeypatch.setattr(sampling, "_MOST_TRACES", 100)
    monkeypatch.setattr(sampling, "_MOST_MORE", 10)
    monkeypatch.setattr(sampling, "_TURN", 60.0)
    known: list[int] = []
    seen = TailSampler.seen

    def watched(sampler: TailSampler, segment: str, offset: int) -> None:
        known.append(len(sampler._traces))
        seen(sampler, segment, offset)

    monkeypatch.setattr(TailSampler, "seen", watched)
    in_segment = 4096 // 60
    for each in range(1, 2001):
        spool.end(each, 1)
    sampler = spool.sampler()
    assert spool.turn(sampler) == []
    assert 100 < max(known) <= 110 + in_segment
    assert any("dropped early" in text for text in spool.problems.take_unreported())
    for each in (2000, 1):
        spool.end(each, 2, failed=True)
    assert spool.turn(sampler) == [(1, 2), (2000, 1), (2000, 2)]


def test_what_waits_goes_only_after_the_kept_spans_beside_it_are_collected(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace is kept when there is already too much, and its spans share segments with those of another one."""
    sampler = spool.sampler()
    for each in range(1, 500):
        spool.end(1, each)
        spool.end(2, each)
    assert spool.turn(sampler) == []
    spool.end(1, 500, failed=True)
    monkeypatch.setattr(sampling, "_TURN", 0.0)
    monkeypatch.setattr(sampler, "_plan", spool.plan.with_settings(spool_max_bytes=50_000))
    assert spool.turn(sampler) == [(1, each) for each in range(1, 501)]
    assert any("dropped without a decision" in text for text in spool.problems.take_unreported())


def test_a_full_disk_puts_keeping_off(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = spool.sampler()
    spool.end(1, 1, failed=True)
    with monkeypatch.context() as patched:

        def refuse(*_arguments: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(progress, "write_atomically", refuse)
        sampler.turn(hurry=True, ending=False)
        assert sampler.failed
        assert not sampler.behind, "it would try again without a pause"
        assert any("No space left on device" in text for text in spool.problems.take_unreported())
    assert spool.turn(sampler) == [(1, 1)]
    assert not sampler.failed
    assert spool.problems.take_unreported() == []


def test_a_segment_that_cannot_be_read_keeps_nothing_else_from_being_kept(
    tmp_path: Path, faulty: Callable[..., FaultyDisk]
) -> None:
    disk = faulty(tmp_path / "faulty")
    spool = Spool(tmp_path / "faulty")
    spool.end(1, 1, failed=True)
    (broken,) = spool.undecided.glob("*.spool")
    disk.bad = {broken.name}
    other = Spool(tmp_path / "faulty")
    other.end(2, 1, failed=True)
    sampler = spool.sampler()
    assert spool.turn(sampler) == [(2, 1)]
    assert sampler.failed
    disk.bad = set()
    assert spool.turn(sampler) == [(1, 1)]
    for each in (spool, other):
        each.writer.close()


class Broken(NamedTuple):
    """A trace that has just been kept for its 100th span, and the disk, which fails to read the first segment."""

    disk: FaultyDisk
    spool: Spool
    sampler: TailSampler
    segment: str


@pytest.fixture
def broken(tmp_path: Path, faulty: Callable[..., FaultyDisk]) -> Iterator[Broken]:
    disk = faulty(tmp_path / "faulty")
    spool = Spool(tmp_path / "faulty")
    sampler = spool.sampler()
    for each in range(1, 100):
        spool.end(1, each)
    assert spool.turn(sampler) == []
    segment = min(path.name for path in spool.undecided.glob("*.spool"))
    disk.bad = {segment}
    spool.end(1, 100, failed=True)
    yield Broken(disk, spool, sampler, segment)
    spool.writer.close()


def test_a_segment_with_kept_spans_that_cannot_be_read_for_a_moment_is_read_later(broken: Broken) -> None:
    before = broken.spool.turn(broken.sampler)
    assert broken.sampler.failed
    assert 0 < len(before) < 100
    broken.disk.bad = set()
    assert sorted(before + broken.spool.turn(broken.sampler)) == [(1, each) for each in range(1, 101)]
    assert not broken.sampler.failed


def test_a_segment_with_kept_spans_that_can_never_be_read_does_not_hold_up_the_others(broken: Broken) -> None:
    spool, sampler = broken.spool, broken.sampler
    for _ in range(3):
        spool.turn(sampler)
    spool.end(2, 1, failed=True)
    assert spool.turn(sampler) == [(2, 1)]
    assert not sampler.failed
    assert any(f"{broken.segment!r} could not be read" in text for text in spool.problems.take_unreported())


def test_a_shipper_gives_up_on_kept_spans_that_a_full_disk_does_not_take(
    tmp_path: Path, mount: Callable[..., Path]
) -> None:
    """As on other spans, once Ray is gone; it does not try for good."""
    spool = Spool(mount("size=1m"))
    spool.end(1, 1, failed=True)
    spool.writer.close()
    spool.plan.with_settings(local_dir=str(tmp_path / "spans")).store(str(spool.folder))
    with open(spool.folder / "other", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    program = (
        "import sys\n"
        "from ray_tracing_hooks._ship import __main__, shipper\n"
        "shipper._GIVE_UP = 0.2\n"
        "sys.exit(__main__.main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(spool.folder)], timeout=60, check=False)
    assert done.returncode == 0
    assert spool.waiting() == 1, "for the next shipper"


def test_the_tree_of_a_spool_does_not_show_what_is_undecided(spool: Spool) -> None:
    spool.end(1, 1)
    assert span_files([str(spool.folder)]) == []


@pytest.mark.parametrize("rest", [b"", b"\x22", b"\x7a\x02\x18\x02\x39", b"\x7a\x02\x18\xff"])
def test_a_span_that_makes_no_sense_is_no_reason(spool: Spool, rest: bytes) -> None:
    sampler = spool.sampler()
    spool.writer.span(bytes(2), head(1, 1)[:28] + rest)
    spool.end(2, 1, failed=True)
    assert spool.turn(sampler) == [(2, 1)]


def test_traces_share_small_sets_of_segments_and_no_large_ones() -> None:
    """A set that many traces share stays in memory, and a long trace goes through as many sets as it has segments."""
    names = [f"segment {number}" for number in range(100)]
    one: AbstractSet[str] = frozenset()
    other: AbstractSet[str] = frozenset()
    for name in names[:3]:
        one, other = sampling._with(one, name), sampling._with(other, name)
    assert one is other
    sampling._shared.cache_clear()
    for name in names[3:]:
        one = sampling._with(one, name)
    assert [{*one}, {*other}] == [{*names}, {*names[:3]}]
    assert sampling._shared.cache_info().currsize < sampling._FEW
