"""Programs of the corpus that run now: what the summary says of them is what it says of their recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from corpus import PROGRAMS, load_all
from corpus.judging import PLANTED, of_file
from corpus.recording import run

load_all()


@pytest.mark.slow  # clusters of their own; `make corpus` runs all of the programs
@pytest.mark.parametrize("name", ["straggler_among_equals", "one_ledger", "get_in_loop"])
def test_the_cause_of_a_program_is_named(name: str, short_tmp: Callable[[], Path]) -> None:
    """On a busy machine other causes may cost more, so it need not be the first."""
    program, folder = PROGRAMS[name], short_tmp()
    judged = of_file(program, PLANTED, folder / "spans", {PLANTED: run(program, folder)})
    assert {each["kind"] for each in judged.findings} & set(program.finds[0]), judged.findings
    complaints = judged.complaints()
    assert not {"sum", "page"} & complaints.keys(), complaints
