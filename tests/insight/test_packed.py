"""Compressed files that are damaged: what comes well before the damage is read, and the rest is said to be missing."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from made_spans import lines, span

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats.otlp_json_read import unpacked

SPANS = 600
BEFORE_DAMAGE = 128 * 1024
"""At most so many bytes before a damage are missing too."""


def line(number: int) -> bytes:
    """A line with one span whose attributes do not compress to nothing."""
    noise = random.Random(number).randbytes(300).hex()
    return lines(span(number, number, number + 5, attributes={"noise": noise})).encode()


LINES = [line(number) for number in range(1, SPANS + 1)]
CONTENT = b"".join(LINES)
PACKED = gzip.compress(CONTENT, mtime=0)
NO_BLOCK = b"\xff" * 40
"""No block of compressed data begins like this."""


def flate(text: bytes) -> bytes:
    """The beginning of a gzip member, up to the text, which is flushed so that the next byte begins a block."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)


DAMAGED = flate(CONTENT) + NO_BLOCK + PACKED


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


@pytest.mark.parametrize(
    ("data", "whole", "error"),
    [
        pytest.param(PACKED, SPANS, "", id="whole"),
        pytest.param(b"", 0, "", id="empty"),
        pytest.param(PACKED + bytes(512) + PACKED, 2 * SPANS, "", id="two members"),
        pytest.param(PACKED[:-9], SPANS, "EOFError", id="cut"),
        pytest.param(flate(b"".join(LINES[:7])), 7, "EOFError", id="being written"),
        pytest.param(b"not compressed", 0, "ValueError", id="not compressed"),
    ],
)
def test_all_lines_before_the_end_are_there(data: bytes, whole: int, error: str, tmp_path: Path) -> None:
    """Of one member or several; an end that comes too early is no damage."""
    found, raised = read_lines(data, tmp_path / "a.jsonl.gz")
    assert (len(found), raised) == (whole, error)
    assert found == (LINES * 2)[:whole]


@pytest.mark.parametrize("data", [DAMAGED, PACKED[:-8] + b"sums" + PACKED[-4:], PACKED + b"no gzip"])
def test_lines_well_before_a_damage_are_there(data: bytes, tmp_path: Path) -> None:
    found, raised = read_lines(data, tmp_path / "a.jsonl.gz")
    assert raised == "ValueError"
    assert found == LINES[: len(found)]
    assert len(b"".join(found)) > len(CONTENT) - BEFORE_DAMAGE - len(LINES[0])


def test_it_can_be_read_from_any_place(tmp_path: Path) -> None:
    """Forwards and back, as a replay continues where an earlier one stopped."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(PACKED + PACKED)
    twice = CONTENT * 2
    with path.open("rb") as raw:
        file = unpacked(str(path), raw)
        for place in (0, 70_000, len(CONTENT) + 5, 3, len(twice) - 1, len(twice)):
            file.seek(place)
            assert file.read() == twice[place:]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_each_command_says_that_the_rest_is_missing(tmp_path: Path) -> None:
    """And shows what could be read, with the attributes of spans that are read again. How many lines are missing is
    unknown, so they do not count as bad lines.
    """
    folder, out = tmp_path / "spans", tmp_path / "out"
    folder.mkdir()
    path = folder / "a.jsonl.gz"
    path.write_bytes(DAMAGED)
    said = f"1 file or folder not completely read (the first: {path}:"
    for command in ("tree", "summary"):
        shown = run(command, folder)
        assert shown.exit_code == 0
        assert said in " ".join(shown.output.split())
        assert "its compressed data is damaged (" in " ".join(shown.output.split())
    quality = json.loads(run("summary", folder, "--json").stdout)["quality"]
    spans = quality["spans"]
    assert 0 < spans <= SPANS
    assert (quality["bad_lines"], quality["incomplete_files"]) == (0, 1)
    assert f"{out}: {spans} spans, " in run("view", folder, "-o", out).stdout
    for name in ("perfetto", "otlp"):
        written = run("export", folder, "--format", name, "-o", out, "--force")
        assert f"{out}: {spans} spans, " in written.stdout
        assert said in written.stderr
    assert out.read_text().count('"noise"') == spans
    replayed = run("replay", "--dry-run", folder)
    assert replayed.stdout.startswith(f"{spans} spans would be sent")
    assert f"warning: {path}, byte {sum(map(len, LINES[:spans]))}: its compressed data is damaged (" in replayed.stderr
    assert "; the rest of the file is missing" in replayed.stderr


def test_a_file_that_is_no_gzip_is_not_said_to_have_a_rest(tmp_path: Path) -> None:
    """Nothing of it was read."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"not compressed")
    shown = run("summary", tmp_path)
    assert shown.exit_code == 1
    assert f"1 file or folder not completely read (the first: {path}: it is not compressed with gzip)." in shown.output
