"""What was read, and what is wrong with it: an output of every view, and never an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_SHOWN_PROBLEMS = 20


class Problem(NamedTuple):
    """Something that could not be read: where (``line`` 0 means the file as a whole) and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}"


@dataclass
class Quality:
    """What was read and what is wrong with it."""

    files: int = 0
    lines: int = 0
    spans: int = 0
    """Different spans, after duplicates were merged."""
    duplicates: int = 0
    bad_lines: int = 0
    """Lines, or parts of a spool, that could not be read in full."""
    problems: list[Problem] = field(default_factory=list)
    """The first of them."""
    running: int = 0
    lost: int = 0
    dropped: int = 0
    """Spans that processes say they could not record."""
    orphans: int = 0
    """Spans whose parent is not among the spans. This and what follows is counted for a table only."""
    circles: int = 0
    """Parents that would be their own ancestors. They count as missing."""
    clocks: dict[str, int] = field(default_factory=dict)
    """For machines whose clocks were found to be wrong, the nanoseconds that were added to all times of theirs."""
    last_line: int = 0
    """The number of the last line of a part of a file."""
    negative: int = 0
    """Spans that say that they ended before they began. They count as ended when they began."""

    def bad(self, file: str, line: int, reason: str) -> None:
        self.bad_lines += 1
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(Problem(file, line, reason))
