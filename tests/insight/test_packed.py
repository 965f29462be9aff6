"""Compressed files that are damaged: what comes before the damage is read, and the rest is said to be missing."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from made_spans import lines, span

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight.ingest.load import load

SPANS = 60


def line(number: int) -> bytes:
    """A line with one span whose attributes do not compress to nothing."""
    noise = random.Random(number).randbytes(300).hex()
    return lines(span(number, number, number + 5, attributes={"noise": noise})).encode()


LINES = [line(number) for number in range(1, SPANS + 1)]
CONTENT = b"".join(LINES)


def packed(content: bytes) -> bytes:
    """A gzip member, which is the same at any time."""
    return gzip.compress(content, mtime=0)


PACKED = packed(CONTENT)


def flate(text: bytes) -> bytes:
    """The beginning of a gzip member, up to the text, which is flushed so that the next byte begins a block."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)


NO_BLOCK = b"\xff" * 40
"""No block of compressed data begins like this."""

DAMAGED = flate(b"".join(LINES[:20])) + NO_BLOCK + PACKED
"""Twenty lines, and then a place from which on nothing can be decompressed."""


def read_lines(data: bytes, path: Path) -> tuple[list[bytes], str]:
    """The lines of a compressed file with this content, and the name of the error at its end."""
    path.write_bytes(data)
    found: list[bytes] = []
    with path.open("rb") as raw:
        file = unpacked(str(path), raw)
        try:
            while text := file.readline():
                found.append(text)
        except (EOFError, ValueError) as error:
            return found, type(error).__name__
    return found, ""


# --- decompressing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "whole", "error"),
    [
        (PACKED, SPANS, ""),
        (b"", 0, ""),
        (packed(b""), 0, ""),
        (b"".join(map(packed, LINES)), SPANS, ""),
        (PACKED + bytes(100_000), SPANS, ""),
        (PACKED + bytes(512) + packed(LINES[0]), SPANS + 1, ""),
        (PACKED[:-9], SPANS, "EOFError"),
        (PACKED[:-1], SPANS, "EOFError"),
        (PACKED + PACKED[:5], SPANS, "EOFError"),
        (flate(b"".join(LINES[:7])), 7, "EOFError"),
        (DAMAGED, 20, "ValueError"),
        (flate(b"".join(LINES[:7]) + LINES[7][:100]) + NO_BLOCK, 7, "ValueError"),
        (PACKED[:-8] + b"sums" + PACKED[-4:], SPANS, "ValueError"),
        (PACKED[:-4] + b"size", SPANS, "ValueError"),
        (PACKED + b"no gzip", SPANS, "ValueError"),
        (PACKED + DAMAGED, SPANS + 20, "ValueError"),
        (b"not compressed", 0, "ValueError"),
        (bytes(1000), 0, "ValueError"),
    ],
)
def test_all_lines_before_the_end_or_the_damage_are_there(data: bytes, whole: int, error: str, tmp_path: Path) -> None:
    """Of one member or several, with what fills up the file; an end that comes too early is no damage."""
    found, raised = read_lines(data, tmp_path / "a.jsonl.gz")
    assert (len(found), raised) == (whole, error)
    assert found == (LINES * 2)[:whole]


@given(st.integers(10, len(PACKED) - 1), st.binary(min_size=1, max_size=3))
def test_damage_anywhere_costs_nothing_before_it(
    tmp_path_factory: pytest.TempPathFactory, place: int, other: bytes
) -> None:
    """Behind the header: no error but those that readers know, and at least the lines of the standard library."""
    data = PACKED[:place] + other + PACKED[place + len(other) :]
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl.gz"
    found, _ = read_lines(data, path)
    expected: list[bytes] = []
    try:
        with gzip.open(io.BytesIO(data)) as file:
            expected.extend(file)
    except (OSError, EOFError, zlib.error):
        pass
    assert found[: len(expected)] == expected


def test_it_can_be_read_from_any_place(tmp_path: Path) -> None:
    """Forwards and back, as a replay continues where an earlier one stopped."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(PACKED + packed(CONTENT))
    twice = CONTENT * 2
    with path.open("rb") as raw:
        file = unpacked(str(path), raw)
        for place in (0, 70_000, len(CONTENT) + 5, 3, len(twice) - 1, len(twice)):
            file.seek(place)
            assert file.read() == twice[place:]


# --- the commands -------------------------------------------------------------------------------------------------


def test_the_rest_of_a_damaged_file_is_said_to_be_missing(tmp_path: Path) -> None:
    """How many lines that are is unknown, so they do not count as bad lines."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(DAMAGED)
    table = load([str(path)])
    quality = table.quality
    assert (len(table), quality.lines, quality.bad_lines, quality.incomplete_files) == (20, 20, 0, 1)
    (problem,) = map(str, quality.problems)
    assert problem.startswith(f"{path}:21: its compressed data is damaged (")
    assert problem.endswith("); the rest of the file is missing")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_each_command_says_so(tmp_path: Path) -> None:
    """And shows what could be read, with the attributes of spans that are read again."""
    folder, out = tmp_path / "spans", tmp_path / "out"
    folder.mkdir()
    path = folder / "a.jsonl.gz"
    path.write_bytes(DAMAGED)
    said = f"1 file or folder not completely read (the first: {path}:21: its compressed data is damaged ("
    for command in ("tree", "summary"):
        shown = run(command, folder)
        assert (shown.exit_code, said in " ".join(shown.output.split())) == (0, True), shown.output
    quality = json.loads(run("summary", folder, "--json").stdout)["quality"]
    assert (quality["spans"], quality["bad_lines"], quality["incomplete_files"]) == (20, 0, 1)
    written = run("view", folder, "-o", out)
    assert f"{out}: 20 spans, " in written.stdout
    for name in ("perfetto", "otlp"):
        written = run("export", folder, "--format", name, "-o", out, "--force")
        assert f"{out}: 20 spans, " in written.stdout
        assert written.stderr.count(str(path)) == 1
        assert said in written.stderr
    assert out.read_text().count('"noise"') == 20


def test_a_replay_sends_what_can_be_read(tmp_path: Path) -> None:
    """And says from where on the file is missing."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(DAMAGED)
    done = run("replay", "--dry-run", tmp_path)
    assert done.stdout.startswith("20 spans in 1 file would be sent")
    where = f"{path}, byte {sum(map(len, LINES[:20]))}"
    assert f"warning: {where}: its compressed data is damaged (" in done.stderr
    assert "; the rest of the file is missing" in done.stderr


def test_a_file_that_is_no_gzip_is_not_said_to_have_a_rest(tmp_path: Path) -> None:
    """Nothing of it was read."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"not compressed")
    shown = run("summary", tmp_path)
    assert shown.exit_code == 1
    assert f"1 file or folder not completely read (the first: {path}: it is not compressed with gzip)." in shown.output
