"""Following the processes of a spool: what is new, once."""

from __future__ import annotations

from pathlib import Path

from ray_tracing_hooks._ship.folder import Folder, Look
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.problems import Problems
from ray_tracing_hooks._spool.layout import U16
from ray_tracing_hooks._spool.writer import SpoolWriter


class Spool:
    """A process that writes, and one that follows it."""

    def __init__(self, folder: Path) -> None:
        self._writer = SpoolWriter(str(folder))
        self._prefix = U16.pack(self._writer.scope(b"", b"\x0a\x01s"))
        self._folder = Folder(str(folder))
        self._follower = Follower({}, Problems(), reports=True)
        self._written = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            self._written += 1
            number = self._written.to_bytes(8, "big")
            self._writer.span(self._prefix, b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + number)

    def look(self) -> Look:
        return self._folder.look(set())

    def follow(self, look: Look) -> list[int]:
        return [
            int.from_bytes(span[20:28], "big")
            for batches in self._follower.follow(look)
            for batch in batches
            for span in batch.spans
        ]


def test_what_was_read_is_not_read_again_by_a_look_that_is_older(tmp_path: Path) -> None:
    """The process writes on while it is looked at and while it is read, and looks may wait for their turn."""
    spool = Spool(tmp_path)
    spool.write(10)
    first, second = spool.look(), spool.look()
    spool.write(10)
    assert spool.follow(first) == list(range(1, 21)), "all that is there when it is read"
    assert spool.follow(second) == []
    assert spool.follow(first) == []
    spool.write(1)
    assert spool.follow(spool.look()) == [21]


def test_what_has_gone_for_a_while_is_not_read_again_when_it_is_back(tmp_path: Path) -> None:
    """A process writes a segment again that somebody has removed."""
    spool = Spool(tmp_path)
    spool.write(10)
    first, second = spool.look(), spool.look()
    spool.write(10)
    assert spool.follow(first) == list(range(1, 21))
    (segment,) = tmp_path.glob("*.spool")
    segment.rename(tmp_path / "away")
    assert spool.follow(second) == []
    (tmp_path / "away").rename(segment)
    spool.write(1)
    assert spool.follow(spool.look()) == [21]
