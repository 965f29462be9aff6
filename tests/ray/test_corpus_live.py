"""Programs of the corpus that run now: what the summary says of them is what it says of their recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import PROGRAMS, load_all
from corpus.judging import PLANTED, of_file
from corpus.recording import run

load_all()


@pytest.mark.slow  # clusters of their own; `make corpus` runs all of the programs
@pytest.mark.parametrize("name", ["straggler_among_equals", "one_ledger", "get_in_loop", "windowed_submission"])
def test_the_cause_of_a_program_is_named(name: str, tmp_path: Path) -> None:
    """And its cost, but on a busy machine that differs."""
    program = PROGRAMS[name]
    measured = {PLANTED: run(program, tmp_path)}
    complaints = of_file(program, PLANTED, tmp_path / "spans", measured).complaints()
    assert not {"first", "words", "sum", "page"} & complaints.keys(), complaints
