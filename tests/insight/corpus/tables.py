"""Tables of the recorded programs: what is said of them, and what is true."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from corpus import Program
from corpus.judging import PLANTED, forms, judged
from corpus.recording import is_recorded, measured

_WIDTHS = (28, 26, 26, 8, 9, 6)


def causes(programs: Iterable[Program]) -> Iterator[str]:
    """Each program with its cause."""
    for each in programs:
        yield f"{each.subject:8} {each.name:28} {each.cause}"


def table(programs: Iterable[Program]) -> Iterator[str]:
    """Planted cause and first finding, its cost as claimed and measured, and false statements."""
    yield _row("PROGRAM", "CAUSE", "FIRST FINDING", "CLAIMED", "MEASURED", "FALSE")
    first = said_false = number = 0
    remarks: dict[str, str] = {}
    for program in filter(is_recorded, programs):
        with tempfile.TemporaryDirectory() as folder:
            each = {form: judged(program, form, Path(folder)) for form in forms(program)}
            complaints = {form: judgement.complaints() for form, judgement in each.items()}
        shown = each[PLANTED]
        finding = next(iter(shown.findings), None)
        claimed = [cost for cost in shown.named if cost is not None]
        real = measured(program)[PLANTED]["costs"]
        false = [f"{form}: {found['false']}" for form, found in complaints.items() if "false" in found]
        number += 1
        first += (
            not {"first", "words", "false"} & complaints[PLANTED].keys()
            if program.is_healthy
            else ("first" not in complaints[PLANTED])
        )
        said_false += bool(false)
        wanted = program.on_path and f"path: {program.on_path}"
        yield _row(
            program.name,
            wanted or ", ".join("/".join(kinds) for kinds in program.finds) or "none",
            f"{finding['kind']} {finding['share']:.0%}" if finding else "none",
            " ".join(f"{cost:.2f}" for cost in claimed),
            " ".join(f"{cost:.2f}" for cost in real),
            str(len(false) or ""),
        )
        for form, found in complaints.items():
            remarks |= {f"{program.name} {form} {check}": text for check, text in found.items()}
    yield ""
    yield from (f"{where}: {text}" for where, text in remarks.items())
    yield ""
    yield f"{number} programs: the cause first in {first}, something false in {said_false}"


def _row(*cells: str) -> str:
    return " ".join(cell[:width].ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
