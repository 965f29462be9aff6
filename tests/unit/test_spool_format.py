"""Files in a spool that are torn, cut, flipped, foreign, or of another version: read as far as they go, and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from shipping import Node, until
from targets import frame

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._ship.folder import FolderSnapshot, ProcessSnapshot, Segment
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.retention import Retention
from ray_tracing_hooks._spool import layout, reader
from ray_tracing_hooks._spool.layout import MAGIC, MAX_PAYLOAD, U16
from ray_tracing_hooks._spool.reader import SegmentReader

MIB = 1024 * 1024
RESOURCE = b"\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01s"
DEFINITIONS = frame(layout.RESOURCE, U16.pack(0) + RESOURCE) + frame(layout.SCOPE, bytes(4) + b"\x0a\x01s")


def record(number: int, extra: bytes = b"") -> bytes:
    """A span as it stands in a spool, with its number for its ids."""
    span = b"\x0a\x10" + number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
    times = b"\x39" + (1).to_bytes(8, "little") + b"\x41" + (9).to_bytes(8, "little")
    return frame(layout.SPAN, U16.pack(0) + span + b"\x2a\x01n" + times + extra)


def segment(first: int, last: int, head: bytes = MAGIC) -> bytes:
    return head + DEFINITIONS + b"".join(map(record, range(first, last + 1)))


def numbers(records: list[reader.Record]) -> list[int]:
    return [int.from_bytes(payload[4:20], "big") for kind, payload, _ in records if kind == layout.SPAN]


def read_all(path: Path, limit: int | None) -> tuple[list[reader.Record], SegmentReader]:
    segment = SegmentReader(str(path))
    records: list[reader.Record] = []
    before = -1
    while segment.offset > before:
        before = segment.offset
        records += segment.read(final=True, limit=limit)
    return records, segment


# The reader.


def test_the_header_says_the_version() -> None:
    """Eight bytes; a file without them has none."""
    assert layout.version(MAGIC) == "1"
    assert layout.version(b"RTHSPL2\nmore") == "2"
    assert layout.version(b"RTHSPL12") is None
    assert layout.version(b"{}") is None


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (
            segment(1, 9, head=b"RTHSPL2\n"),
            "has version 2 of the spool's format, but this release reads version 1",
        ),
        (b'{"resourceSpans": []}\n', "is not a spool file"),
        (bytes(100_000), "is not a spool file"),
        (b"\x7fELF", "is not a spool file"),
    ],
    ids=["version 2", "json", "zeros", "elf"],
)
def test_a_file_that_is_no_segment_of_this_version_is_refused(tmp_path: Path, data: bytes, refusal: str) -> None:
    """Nothing of it is read, even where its records look like ours."""
    path = tmp_path / "1-1-a.000000.spool"
    path.write_bytes(data)
    records, found = read_all(path, None)
    assert (records, found.refusal, found.damaged) == ([], refusal, 0)
    assert reader.is_refused(str(path))
    assert reader.count_spans(str(path)) == (0, True)


def test_a_file_whose_header_is_damaged_is_read(tmp_path: Path) -> None:
    """Its records tell that it is one of ours."""
    path = tmp_path / "1-1-a.000000.spool"
    path.write_bytes(segment(1, 9, head=b"RTXSPL1\n"))
    records, found = read_all(path, 100)
    assert numbers(records) == list(range(1, 10))
    assert (found.refusal, found.damaged) == ("", 8)


@pytest.mark.parametrize("limit", [50, 1000, None])
def test_a_record_that_begins_where_a_read_ends_is_found_after_damage(tmp_path: Path, limit: int | None) -> None:
    """How much is read at once changes nothing. Found by fuzzing: it was skipped with the damage before it."""
    good = segment(1, 100)
    path = tmp_path / "1-1-a.000000.spool"
    for hit in range(len(MAGIC), len(good), 397):
        damaged = bytearray(good)
        damaged[hit] ^= 0xFF
        path.write_bytes(damaged)
        records, found = read_all(path, limit)
        assert len(records) == 101
        assert found.offset == len(good)
        assert 0 < found.damaged < 100


def test_a_living_process_may_write_on_after_damage(tmp_path: Path) -> None:
    """What may be the beginning of a record is waited for, and given up when a good one follows."""
    path = tmp_path / "1-1-a.000000.spool"
    path.write_bytes(segment(1, 2) + record(3)[:20])
    growing = SegmentReader(str(path))
    assert numbers(growing.read(limit=MIB)) == [1, 2]
    assert growing.read(limit=MIB) == []
    with open(path, "ab") as file:
        file.write(record(4))
    assert numbers(growing.read(limit=MIB)) == [4]
    assert growing.damaged == 20
    with open(path, "ab") as file:
        file.write(record(5)[:-1])
    assert growing.read(limit=MIB) == []
    with open(path, "ab") as file:
        file.write(record(5)[-1:])
    assert numbers(growing.read(limit=MIB)) == [5]
    assert growing.damaged == 20


def test_a_length_of_a_gibibyte_costs_neither_memory_nor_the_rest(tmp_path: Path) -> None:
    """Nor does a hole in the file, which reads as zeros: it is looked through in pieces."""
    program = (
        "import resource, sys\n"
        "from ray_tracing_hooks._spool.reader import SegmentReader\n"
        "resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
        "segment, found, before = SegmentReader(sys.argv[1]), 0, -1\n"
        "while segment.offset > before:\n"
        "    before = segment.offset\n"
        "    found += len(segment.read(final=True, limit=1 << 20))\n"
        "print(found, segment.offset, segment.damaged)\n"
    )
    path = tmp_path / "1-1-a.000000.spool"
    with open(path, "wb") as file:
        file.write(segment(1, 2) + layout.FRAME.pack(1 << 30, 1, layout.SPAN) + b"x")
        file.seek(64 * MIB, os.SEEK_CUR)
        file.write(record(3))
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["5", str(path.stat().st_size), str(64 * MIB + layout.FRAME.size + 1)]


def test_the_longest_record_is_read_and_a_longer_one_is_damage(tmp_path: Path) -> None:
    """Also in small pieces."""
    path = tmp_path / "1-1-a.000000.spool"
    short = len(record(1)) - layout.FRAME.size
    longest = record(2, bytes(MAX_PAYLOAD - short))
    path.write_bytes(segment(1, 1) + longest + record(3) + record(4, bytes(MAX_PAYLOAD - short + 1)) + record(5))
    records, found = read_all(path, MIB)
    assert numbers(records) == [1, 2, 3, 5]
    assert found.damaged == layout.FRAME.size + MAX_PAYLOAD + 1


@given(junk=st.binary(max_size=60), at=st.integers(0, 400), limit=st.integers(1, 400))
def test_how_much_is_read_at_once_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, limit: int
) -> None:
    """Wherever junk stands in a file."""
    good = segment(1, 5)
    path = tmp_path_factory.getbasetemp() / "1-1-pieces.000000.spool"
    path.write_bytes(good[:at] + junk + good[at:])
    whole, of_whole = read_all(path, None)
    pieces, of_pieces = read_all(path, limit)
    assert (pieces, of_pieces.offset, of_pieces.damaged) == (whole, of_whole.offset, of_whole.damaged)


# The shipper.

BAD: dict[str, Callable[[bytes], bytes]] = {
    "torn": lambda good: good[:-5],
    "cut": lambda good: good[: len(good) // 2],
    "flipped": lambda good: good[:200] + bytes([good[200] ^ 0x10]) + good[201:],
    "version": lambda good: b"RTHSPL2\n" + good[8:],
    "foreign": lambda _good: json.dumps({"not": "ours"}).encode() * 100,
    "random": lambda good: os.urandom(len(good)),
    "zeros": lambda good: bytes(len(good)),
    "short": lambda good: good[:3],
}


def plant(node: Node) -> dict[str, Path]:
    """One bad file of each kind, with spans of its own."""
    planted = {}
    for number, (what, spoil) in enumerate(BAD.items(), 1):
        planted[what] = node.spool / f"1-1-{what}.000000.spool"
        planted[what].write_bytes(spoil(segment(1000 * number + 1, 1000 * number + 20)))
    return planted


def test_what_cannot_be_read_is_said_and_holds_no_other_one_back(node: Node) -> None:
    """What can be read of it is delivered. A later release finds its files as they were, and so does whose they are."""
    before = {what: path.read_bytes() for what, path in plant(node).items()}
    writer = node.writer()
    writer.do("span 1 100")
    writer.end()
    node.start()
    result = node.flush()
    assert result.done
    assert set(range(1, 101)) <= set(node.numbers())
    by_file = [len([number for number in node.numbers() if number // 1000 == file]) for file in range(1, 9)]
    assert by_file == [19, 9, 19, 0, 0, 0, 0, 0]
    aside = node.spool / layout.QUARANTINE
    until(lambda: not node.segments(), "everything is delivered or aside")
    kept = {path.name.removeprefix("1-1-").partition(".")[0]: path.read_bytes() for path in aside.iterdir()}
    assert kept == {what: before[what] for what in ("version", "foreign", "random", "zeros")}
    text = "\n".join(node.flush().problems + result.problems)
    assert "'1-1-version.000000.spool' has version 2" in text.replace(f"{node.spool}/", "")
    assert "'1-1-foreign.000000.spool' is not a spool file" in text.replace(f"{node.spool}/", "")
    assert "bytes of the spool were damaged and are lost" in text
    assert f"4 files of the spool could not be read and are kept in {aside}" in text + node.log()


def test_a_file_of_another_version_that_is_set_aside_makes_room(node: Node) -> None:
    """So no spans are dropped for its sake."""
    newer, ours = (node.spool / layout.segment_name(f"1-1-{process}", 0) for process in ("newer", "ours"))
    newer.write_bytes(segment(1, 200, head=b"RTHSPL2\n"))
    ours.write_bytes(segment(1, 200))
    found = {
        path.name: ProcessSnapshot([Segment(0, str(path), path.stat().st_size, age, True)], False, 1, 0.0)
        for age, path in enumerate((newer, ours))
    }
    stages: Any = SimpleNamespace(signals=(), read_of=lambda *_: 0)
    problems = Problems()
    retention = Retention(
        str(node.spool), str(node.spool), node.make_plan(spool_max_bytes=ours.stat().st_size), stages, problems
    )
    retention.keep_below_cap(FolderSnapshot(1, found), set())
    assert ours.exists()
    assert not newer.exists()


def test_files_of_another_version_outlive_the_cap_and_the_end(node: Node) -> None:
    """Past the cap the oldest go, but not what this release cannot judge; and the folder stays for their sake."""
    node.out.write_text("in the way")
    node.plan = node.make_plan(spool_max_bytes=10_000, raylet_socket=None)
    newer = node.spool / "1-1-newer.000000.spool"
    newer.write_bytes(segment(1, 200, head=b"RTHSPL2\n"))
    older = node.spool / "1-1-ours.000000.spool"
    older.write_bytes(segment(1, 200))
    shipper = node.start()
    until(lambda: not older.exists(), "the cap is kept")
    node.out.unlink()
    until(lambda: not shipper.is_running() or shipper.status() == "zombie", "the shipper has ended")
    assert [str(path.relative_to(node.spool)) for path in node.spool.rglob("*")] == ["aside", f"aside/{newer.name}"]
    assert (node.spool / "aside" / newer.name).read_bytes() == segment(1, 200, head=b"RTHSPL2\n")


# The commands.


def test_replay_and_tree_read_such_a_spool_as_far_as_it_goes(node: Node, tmp_path: Path) -> None:
    """Both say what is wrong, and neither changes a file."""
    planted = plant(node)
    (node.spool / "1-1-good.000000.spool").write_bytes(segment(1, 100))
    before = {path: path.read_bytes() for path in planted.values()}
    shown = CliRunner().invoke(main, ["tree", "--all", str(node.spool)])
    assert shown.exit_code == 0
    assert "137 older traces not shown" in shown.output
    assert "8 bad lines skipped" in shown.output
    os.environ["RAY_TRACING_LOCAL_DIR"] = str(tmp_path / "replayed")
    sent = CliRunner().invoke(main, ["replay", "--exporter", "local", str(node.spool)])
    assert "147 spans" in sent.output
    assert "has version 2" in sent.output
    assert "is not a spool file" in sent.output
    assert "damaged" in sent.output
    assert {path: path.read_bytes() for path in planted.values()} == before
