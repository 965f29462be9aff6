"""Holes in segments that are still written to: the disk has its room back, and readers miss nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ray_tracing_hooks._ship import blank as blanking
from ray_tracing_hooks._ship.blank import UNABLE, blank
from ray_tracing_hooks._ship.folder import Folder
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.reader import SegmentReader, count_spans
from ray_tracing_hooks._spool.writer import SpoolWriter

KIB = 1024


class Spool:
    """A process that writes to a spool, and shippers that follow it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = SpoolWriter(str(folder))
        self.progress: dict[str, Any] = {}
        self.problems = Problems()
        self.scopes: set[bytes] = set()

    @property
    def segment(self) -> Path:
        (path,) = self.folder.glob("*.spool")
        return path

    def write(self, first: int, last: int, *, scope: bytes = b"a", size: int = 200) -> None:
        prefix = U16.pack(self.writer.scope(b"\x0a\x00", b"\x0a\x01" + scope))
        for number in range(first, last + 1):
            self.writer.span(prefix, encoded(number) + bytes([0x2A, size]) + b"n" * size)

    def start(self, *numbers: int) -> None:
        prefix = U16.pack(self.writer.scope(b"\x0a\x00", b"\x0a\x01a"))
        for number in numbers:
            self.writer.start(prefix, encoded(number))

    def deliver(self) -> list[int]:
        """What is new to a shipper that has just been started."""
        follower = Follower(json.loads(json.dumps(self.progress)), self.problems, reports=True)
        found = [
            (batch.scope, int.from_bytes(span[20:28], "big"))
            for batches in follower.follow(Folder(str(self.folder)).look(follower.open_processes()))
            for batch in batches
            for span in batch.spans
        ]
        self.progress = follower.positions()
        self.scopes |= {scope for scope, _ in found}
        return sorted(number for _, number in found)

    @property
    def delivered(self) -> int:
        (position,) = self.progress.values()
        return int(position["offset"])

    @property
    def room(self) -> int:
        return os.stat(self.segment).st_blocks * 512


def encoded(number: int) -> bytes:
    return b"\x0a\x10" + number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")


def test_what_is_delivered_takes_no_room_and_the_next_shipper_goes_on(tmp_path: Path) -> None:
    """The next one knows what was defined and begun in between, and sees no damage; so does who begins anew."""
    spool = Spool(tmp_path)
    spool.start(1, 2)
    spool.write(10, 2000)
    spool.write(2001, 2010, scope=b"b")
    spool.start(3)
    spool.write(2011, 9000)
    spool.write(2, 2)
    assert len(spool.deliver()) == 8992
    before = os.stat(spool.segment)
    assert spool.room > 1800 * KIB
    blank(str(spool.segment), spool.delivered)
    assert spool.room < 100 * KIB
    assert (os.stat(spool.segment).st_size, os.stat(spool.segment).st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert count_spans(str(spool.segment)) == (0, True)

    spool.write(9001, 9002, scope=b"b")
    assert spool.deliver() == [9001, 9002]
    blank(str(spool.segment), spool.delivered)
    spool.writer.close()
    (process,) = spool.progress
    for stored in (spool.progress, {}):
        follower = Follower(stored, spool.problems, reports=True)
        look = Folder(str(tmp_path)).look(set())
        assert list(follower.follow(look)) == []
        assert {key[-8:] for key in follower._positions[process].open_spans} == {bytes(7) + b"\x01", bytes(7) + b"\x03"}
    assert spool.problems.tell() == []


def test_a_shipper_that_is_killed_while_it_makes_holes_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that is: spans that have ended are not taken for cut off, and those that have not are known."""

    class Killed(BaseException):
        pass

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            if next(steps) == kills:
                raise Killed
            return function(*arguments)

        return step

    pwrite, punch = os.pwrite, blanking._punch
    kills, steps = 0, count()
    while True:
        folder = tmp_path / str(kills)
        folder.mkdir(mode=0o700)
        spool = Spool(folder)
        for number in range(1, 400, 10):
            spool.start(number, number + 1)
            spool.write(number + 2, number + 9, scope=b"%d" % (number % 3))
            spool.write(number, number)
        assert len(spool.deliver()) == 360
        steps = count()
        monkeypatch.setattr(os, "pwrite", dying(pwrite))
        monkeypatch.setattr(blanking, "_punch", dying(punch))
        try:
            blank(str(spool.segment), spool.delivered)
        except Killed:
            pass
        else:
            break
        finally:
            monkeypatch.undo()
        spool.write(1000, 1003, scope=b"1")
        assert spool.deliver() == [1000, 1001, 1002, 1003]
        follower = Follower(spool.progress, spool.problems, reports=True)
        list(follower.follow(Folder(str(folder)).look(set())))
        assert len(follower.open_processes()) == 1
        assert [int.from_bytes(key[-8:], "big") for key in next(iter(follower._positions.values())).open_spans] == [
            *range(2, 400, 10)
        ]
        assert spool.problems.tell() == []
        spool.writer.close()
        kills += 1
    assert kills > 40


def test_a_segment_with_damage_stays_as_it_is(tmp_path: Path) -> None:
    """It will be put aside, to be looked at."""
    spool = Spool(tmp_path)
    spool.write(1, 2000)
    spool.deliver()
    data = bytearray(spool.segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    spool.segment.write_bytes(data)
    blank(str(spool.segment), spool.delivered)
    assert spool.segment.read_bytes() == data
    spool.segment.write_bytes(data[8:])
    blank(str(spool.segment), spool.delivered - 8)
    assert spool.segment.read_bytes() == data[8:]


@pytest.mark.parametrize("size", [9, 10, 4096, 524_287, 524_288, 524_289, 524_297, 524_298, 3_000_000])
def test_any_place_can_be_blank(tmp_path: Path, size: int) -> None:
    """Whatever its size, records stand there, each small enough to be read at once, and nothing around is touched."""
    path = tmp_path / "segment"
    for begin in (8, 4096, 5000):
        path.write_bytes(b"x" * (begin + size + 5))
        descriptor = os.open(path, os.O_RDWR)
        for first, last in blanking._pieces(begin, begin + size):
            assert 9 <= last - first <= 524_288
            blanking._blank_record(descriptor, first, last)
        os.close(descriptor)
        data = path.read_bytes()
        assert data[:begin] + data[begin + size :] == b"x" * (begin + 5)
        reader = SegmentReader(str(path), offset=begin)
        blanks = reader.read()
        assert sum(9 + len(payload) for _, payload, _ in blanks) == size
        assert reader.damaged == 0


def test_where_no_holes_can_be_made_that_is_an_error(tmp_path: Path, mount: Callable[..., Path]) -> None:
    """Nothing is lost there."""
    spool = Spool(mount("", kind="ramfs"))
    spool.write(1, 2000)
    spool.deliver()
    with pytest.raises(OSError) as raised:  # noqa: PT011  which one it is follows
        blank(str(spool.segment), spool.delivered)
    assert raised.value.errno in UNABLE
    assert spool.deliver() == []
    spool.write(2001, 2001)
    assert spool.deliver() == [2001]
    spool.writer.close()
