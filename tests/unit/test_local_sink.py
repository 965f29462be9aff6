"""The sink that writes local files."""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from plans import made_plan

from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.registry import usable
from ray_tracing_hooks._ship.sink import Batch, DeliveryError, SinkContext
from ray_tracing_hooks._ship.sinks.local import LINE_BYTES, LINE_SPANS, LocalSink, check_folder

MIB = 1024 * 1024
RESOURCE = b"\x0a\x0e\x0a\x04name\x12\x06\x0a\x04test"
SCOPE = b"\x0a\x04test"


def span(number: int, name: bytes = b"s") -> bytes:
    """An encoded span that has the number as its ids."""
    size = bytes([len(name) & 0x7F | 0x80, len(name) >> 7 & 0x7F | 0x80, len(name) >> 14])
    ids = b"\x0a\x10" + number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
    return ids + b"\x2a" + size + name


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As with ``ulimit -f``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Made:
    """Makes sinks that write to one folder, and keeps what they remembered and counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: Mapping[str, Any] = {}
        self.remembered: list[Mapping[str, Any]] = []
        self.counted: dict[str, int] = {}
        self.problems: list[str] = []
        self.sinks: list[LocalSink] = []

    def __call__(self, file_max_bytes: int = 64 * MIB, max_bytes: int = 1024 * MIB, label: str = "node") -> LocalSink:
        plan = made_plan(("local",), str(self.folder), file_max_bytes, max_bytes, MIB, label=label)
        sink = LocalSink(SinkContext(plan, self.state, self.remember, self.count, {}, self.problems.append))
        self.sinks.append(sink)
        return sink

    def killed(self, sink: LocalSink, state: Mapping[str, Any]) -> None:
        """The sink's shipper was killed, and this is the state that the next one continues from."""
        self.sinks.remove(sink)
        sink.close()
        self.state = json.loads(json.dumps(state))

    def remember(self, state: Mapping[str, Any]) -> None:
        self.remembered.append(json.loads(json.dumps(state)))

    def count(self, text: str, number: int) -> None:
        if number:
            self.counted[text] = self.counted.get(text, 0) + number

    def lines(self) -> list[str]:
        return [line for path in self.files() for line in path.read_text().splitlines()]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def numbers(self) -> list[int]:
        return [
            int(item["spanId"], 16)
            for line in self.lines()
            for resource_spans in json.loads(line)["resourceSpans"]
            for scope_spans in resource_spans["scopeSpans"]
            for item in scope_spans["spans"]
        ]


def batch(first: int, last: int, name: bytes = b"s") -> list[Batch]:
    return [Batch(RESOURCE, SCOPE, [span(number, name) for number in range(first, last + 1)])]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path / "spans")
    yield made
    for sink in made.sinks:
        sink.close()


def test_a_line_holds_one_resource_one_scope_and_whole_spans(make: Made) -> None:
    """No more than 512 spans or 512 KiB; a span that alone is larger stands in a line of its own."""
    sink = make()
    sink.deliver(batch(1, 1200))
    sink.deliver([*batch(2001, 2020, b"x" * 100_000), *batch(3001, 3001, b"y" * (LINE_BYTES + 1))])
    sink.deliver([Batch(b"", b"", [span(4001)])])
    counts = []
    for line in make.lines():
        (resource_spans,) = json.loads(line)["resourceSpans"]
        (scope_spans,) = resource_spans["scopeSpans"]
        counts.append(len(scope_spans["spans"]))
        assert len(line) < LINE_BYTES or counts[-1] == 1
    assert counts[:3] == [LINE_SPANS, LINE_SPANS, 176]
    assert counts[3:] == [5, 5, 5, 5, 1, 1]
    assert make.numbers() == [*range(1, 1201), *range(2001, 2021), 3001, 4001]


def test_files_are_private(make: Made) -> None:
    """The folder can be entered and the files read by their owner alone, whatever the umask says."""
    before = os.umask(0)
    try:
        make().deliver(batch(1, 1))
    finally:
        os.umask(before)
    assert make.folder.stat().st_mode & 0o777 == 0o700
    (file,) = make.files()
    assert re.fullmatch(r"node-[0-9a-f]{15}-0001\.jsonl", file.name)
    assert file.stat().st_mode & 0o777 == 0o600


def test_nothing_is_made_before_there_is_a_span(make: Made) -> None:
    """An empty file would be in everybody's way."""
    make()
    assert make.files() == []


def test_files_rotate(make: Made) -> None:
    """A line that would make a file too large begins the next one."""
    sink = make(file_max_bytes=2000)
    for number in range(1, 51):
        sink.deliver(batch(number, number))
    assert len(make.files()) > 2
    assert all(path.stat().st_size <= 2000 for path in make.files())
    assert make.numbers() == list(range(1, 51))


def test_a_limit_of_the_size_of_files_is_kept(make: Made) -> None:
    with files_of_at_most(2000):
        sink = make()
        for number in range(1, 51):
            sink.deliver(batch(number, number))
    assert len(make.files()) > 2
    assert make.numbers() == list(range(1, 51))


def test_the_oldest_files_are_removed_at_the_cap(make: Made) -> None:
    """The total stays below it, files of other sessions count and go first, other files are never touched."""
    make.folder.mkdir(mode=0o700)
    old = make.folder / "session-0123456789abcde-0001.jsonl"
    old.write_bytes(b" " * 5000)
    os.utime(old, (1, 1))
    others = [
        make.folder / name for name in ("notes.jsonl", "data-1.jsonl", "node-0001.json", "train-00000-of-00003.jsonl")
    ]
    for other in others:
        other.write_bytes(b"x" * 100_000)
    sink = make(file_max_bytes=1000, max_bytes=10_000)
    for number in range(1, 201):
        sink.deliver(batch(number, number))
        assert sum(path.stat().st_size for path in make.files() if re.search(r"-\d{4}\.", path.name)) <= 10_000
    assert not old.exists()
    assert all(other.exists() for other in others)
    for other in others:
        other.unlink()
    kept = make.numbers()
    assert kept == list(range(kept[0], 201))
    assert len(kept) > 20
    ((text, removed),) = make.counted.items()
    assert "RAY_TRACING_LOCAL_MAX_BYTES" in text
    assert removed >= 10


def test_braces_in_a_text_that_counts_are_text(caplog: pytest.LogCaptureFixture) -> None:
    """Such as those in the path of a folder, or in what a server answers."""
    problems = Problems()
    problems.count("{count} files of '/spans/{team}' were removed: {count}", 3)
    assert problems.take_unreported() == ["3 files of '/spans/{team}' were removed: {count}"]
    assert "3 files of '/spans/{team}'" in caplog.text


def test_the_cap_spares_what_another_shipper_writes(make: Made) -> None:
    """Several nodes on one machine, or of one network, may share the folder."""
    other = make(label="other")
    other.deliver(batch(1, 1))
    (theirs,) = make.files()
    os.utime(theirs, (1, 1))
    sink = make(file_max_bytes=500, max_bytes=1000)
    for number in range(1, 101):
        sink.deliver(batch(number, number))
    assert theirs.exists()


def test_a_killed_shipper_is_taken_over_without_doubling(make: Made) -> None:
    """Its file is truncated to what was delivered, those begun since are removed, and its successor begins its own."""
    sink = make(file_max_bytes=2000)
    sink.deliver(batch(1, 5))
    state = sink.checkpoint()
    (delivered,) = make.files()
    size = delivered.stat().st_size
    sink.deliver([item for number in range(6, 31) for item in batch(number, number)])
    assert len(make.files()) > 2
    make.killed(sink, state)
    again = make(file_max_bytes=2000)
    assert (make.files(), delivered.stat().st_size, make.numbers()) == ([delivered], size, [1, 2, 3, 4, 5])
    again.deliver(batch(6, 30))
    assert sorted(make.numbers()) == list(range(1, 31))
    assert delivered.stat().st_size == size


def test_a_shipper_that_is_killed_in_its_first_delivery_leaves_nothing(make: Made) -> None:
    """Its name is in the progress before it writes the first byte."""
    make.state = make().checkpoint()
    sink = make(file_max_bytes=1000)
    sink.deliver([item for number in range(1, 21) for item in batch(number, number)])
    assert len(make.files()) > 2
    (state,) = make.remembered
    make.killed(sink, state)
    make()
    assert make.files() == []


def test_a_failed_delivery_leaves_nothing(make: Made) -> None:
    """Neither lines in the file, nor further files."""
    sink = make(file_max_bytes=2000)
    sink.deliver(batch(1, 5))
    with files_of_at_most(1500), pytest.raises(DeliveryError):
        sink.deliver([item for number in range(6, 31) for item in batch(number, number)])
    assert make.numbers() == [1, 2, 3, 4, 5]
    sink.deliver(batch(6, 7))
    assert make.numbers() == list(range(1, 8))


def test_files_of_other_shippers_are_spared(make: Made) -> None:
    """Also by one whose file somebody has removed."""
    sink = make()
    sink.deliver(batch(1, 5))
    make.files()[0].unlink()
    make.killed(sink, sink.checkpoint())
    state, make.state = make.state, {}
    make().deliver(batch(1001, 1300))
    make.state = state
    make().deliver(batch(6, 10))
    assert sorted(make.numbers()) == [*range(6, 11), *range(1001, 1301)]


def test_a_file_that_is_being_written_is_not_truncated(make: Made) -> None:
    """A shipper that has been replaced may not have noticed yet."""
    sink = make()
    sink.deliver(batch(1, 5))
    make.state = sink.checkpoint()
    sink.deliver(batch(6, 7))
    make().deliver(batch(6, 10))
    sink.deliver(batch(11, 11))
    assert sorted(set(make.numbers())) == list(range(1, 12))
    assert len(make.files()) == 2


@pytest.mark.parametrize(
    "state",
    [
        {"name": "../victim", "number": 1, "size": 0},
        {"name": 3, "number": "y", "size": "x"},
        {"name": "link-0123456789abcde", "number": 1, "size": -1},
        {"name": "link-0123456789abcde", "number": 0, "size": 0},
    ],
)
def test_a_checkpoint_that_makes_no_sense_does_no_harm(make: Made, tmp_path: Path, state: dict[str, Any]) -> None:
    """It can neither name a file elsewhere nor lead to one by a link."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "victim-0001.jsonl").write_text("mine")
    make.folder.mkdir(mode=0o700)
    os.symlink(victim, make.folder / "link-0123456789abcde-0001.jsonl")
    make.state = state
    make().deliver(batch(1, 1))
    assert victim.read_text() == (tmp_path / "victim-0001.jsonl").read_text() == "mine"
    assert len(list(make.folder.glob("node-*"))) == 1


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_removed_file_or_folder_is_made_anew(make: Made, what: str) -> None:
    """A user may clean up while the program runs."""
    sink = make()
    sink.deliver(batch(1, 1))
    make.files()[0].unlink()
    if what == "folder":
        make.folder.rmdir()
    sink.deliver(batch(2, 2))
    assert make.numbers() == [2]


def _link(path: Path) -> None:
    path.symlink_to("/tmp")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _file(path: Path) -> None:
    path.write_text("")


def _below_a_file(path: Path) -> None:
    path.parent.write_text("")


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (_link, "symbolic link"),
        (_dangling, "symbolic link"),
        (_file, "not a folder"),
        (_below_a_file, "Not a directory"),
    ],
)
def test_what_is_no_folder_of_ones_own_is_refused(tmp_path: Path, plant: Callable[[Path], None], problem: str) -> None:
    """The message names the path, what is wrong, and what to do."""
    path = tmp_path / "parent" / "spans"
    if plant is not _below_a_file:
        path.parent.mkdir()
    plant(path)
    told = check_folder(str(path))
    assert told is not None
    assert problem in told
    assert repr(str(path)) in told
    assert "RAY_TRACING_LOCAL_DIR" in told
    sink = Made(path)
    with pytest.raises(DeliveryError, match=problem):
        sink()


def test_an_unknown_sink_is_told_with_those_that_are_known() -> None:
    """So that a typing mistake is easy to mend; the others work, and with none left spans go to local files."""
    names, (problem,) = usable(("locl", "otlp"))
    assert names == ("otlp",)
    assert problem.startswith(
        "unknown exporter 'locl' (RAY_TRACING_EXPORTERS, or OTEL_TRACES_EXPORTER); expected some of"
    )
    assert "console" in problem
    assert problem.endswith("; using otlp")
    assert usable(("locl",))[0] == ("local",)
    assert usable(()) == ((), [])
