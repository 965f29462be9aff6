"""Lines of a part of a file: as Python's own files give them, however long they are."""

from __future__ import annotations

import io
import random

import pytest

from ray_tracing_hooks._insight.ingest import lines as part


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_those_of_a_file(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ones, long ones that come in pieces, and one that has no end."""
    chosen = random.Random(seed)
    monkeypatch.setattr(part, "_BLOCK", chosen.choice([1, 3, 7, 100]))
    text = b"".join(chosen.choice([b"\n", b"a", b"bc" * 9]) for _ in range(200))
    most, begin = chosen.choice([1, 5, 40, 1000]), chosen.randrange(50)
    usual, quick = io.BytesIO(text), part._Plain(io.BytesIO(text))
    usual.seek(begin)
    quick.seek(begin)
    lines = list(iter(lambda: usual.readline(most), b""))
    assert list(iter(lambda: quick.readline(most), b"")) == lines
    assert quick.readline(most) == b""


def test_what_is_added_to_a_file_meanwhile_follows() -> None:
    """The end of a file is not its end for good."""
    file = io.BytesIO(b"one\ntw")
    lines = part._Plain(file)
    assert [lines.readline(99), lines.readline(99), lines.readline(99)] == [b"one\n", b"tw", b""]
    file.write(b"o\n")
    file.seek(6)
    assert lines.readline(99) == b"o\n"
