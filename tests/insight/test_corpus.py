"""The analysis is held to the truth: what it says of recorded programs that are slow for a known reason, or for none.

The programs are in ``corpus/programs``.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import hypothesis
import pytest
from corpus import PROGRAMS, Program, load_all
from corpus.judging import ASSUMED, MENDED, PLANTED, Judged, forms, judged
from corpus.recording import MOST_BYTES, RECORDED, is_recorded, measured, path_of

load_all()
GAPS: dict[str, str] = {
    "blocked_event_loop slower first": "Ray's own time between two calls is then too long to tell a busy loop from it",
    "coroutine_computes faster cost": "less than 20 ms of a loop that stands still is not told from Ray's own time",
    "late_first_step faster first": "a training that starts within a second is no finding, so that its workers are one",
}
"""What the analysis does not do yet: the reason by ``PROGRAM FORM CHECK``; ``corpus/judging.py`` has the checks."""

CASES = [(program, form) for program in filter(is_recorded, PROGRAMS.values()) for form in forms(program)]
IS_QUICK = hypothesis.settings().max_examples < 100
JUDGED = [case for number, case in enumerate(CASES) if case[1] == PLANTED or not IS_QUICK or number % 3 == 0]
"""``make quick`` judges all programs as planted, and a third of their other forms, as it tries fewer examples."""


@functools.cache
def planted(name: str) -> Judged:
    """For several tests; only other forms need a folder."""
    return judged(PROGRAMS[name], PLANTED, Path())


def named(value: object) -> str | None:
    return value.name if isinstance(value, Program) else None


@pytest.mark.parametrize(("program", "form"), JUDGED, ids=named)
def test_what_is_said_is_true(program: Program, form: str, tmp_path: Path) -> None:
    """The cause comes first, at its cost, and nothing false is said; all but the known gaps, each of which is real."""
    found = planted(program.name) if form == PLANTED else judged(program, form, tmp_path)
    complaints = found.complaints()
    known = {check for name, of, check in map(str.split, GAPS) if (name, of) == (program.name, form)}
    assert not {check: text for check, text in complaints.items() if check not in known}
    assert not known - complaints.keys(), "no gaps any more: take them out of GAPS"


def test_each_gap_is_of_a_program() -> None:
    assert {tuple(gap.split()[:2]) for gap in GAPS} <= {
        (each.name, form) for each in PROGRAMS.values() for form in forms(each)
    }


def test_each_program_is_recorded_and_nothing_else() -> None:
    """Each recording is small, as is all of them, and the program measured what its cause costs."""
    found = {path_of(program, mended=form == MENDED).name: program for program, form in CASES}
    sizes = {path.name: path.stat().st_size for path in RECORDED.glob("*.gz")}
    assert sizes.keys() == found.keys()
    assert max(sizes.values()) <= MOST_BYTES
    assert sum(sizes.values()) < 2_000_000
    assert {path.stem for path in RECORDED.glob("*.json")} == PROGRAMS.keys()


def test_what_is_planted_is_most_of_it() -> None:
    """A cause takes three tenths of its run, two causes four tenths."""
    small = {}
    for program, _ in CASES:
        planted = measured(program)[PLANTED]
        cost, causes = sum(planted["costs"]), len(planted["costs"])
        if cost < {0: 0, 1: 0.3, 2: 0.4}[causes] * planted["wall"]:
            small[program.name] = cost, planted["wall"]
    assert not small


def test_there_are_programs_for_everything() -> None:
    """Sixty with one cause, ten with two, fifteen that are healthy."""
    causes = Counter(0 if each.is_healthy else max(1, len(each.finds)) for each in PROGRAMS.values())
    assert causes[1] >= 60
    assert causes[2] >= 10
    assert causes[0] >= 15


def test_leaving_out_the_waits_of_a_recording_is_not_recording_them(tmp_path: Path) -> None:
    """So that each program is judged in both ways, from one run."""
    found = judged(PROGRAMS["one_ledger"], ASSUMED, tmp_path)
    assert found.document["mode"] == "inferred"
    assert found.analysis.calls.waiting == "nowhere"
