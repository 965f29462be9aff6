"""What was read, and what is wrong with it. Every view reports this; it is never raised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_SHOWN_PROBLEMS = 20


class Problem(NamedTuple):
    """Something that could not be read: where (``line`` 0 means the whole file) and why."""

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
    """Distinct spans, without duplicates."""
    duplicates: int = 0
    bad_lines: int = 0
    """Lines, or parts of a spool, that could not be read completely."""
    problems: list[Problem] = field(default_factory=list)
    """The first few of them."""
    running: int = 0
    lost: int = 0
    dropped: int = 0
    """Spans that processes reported as dropped."""
    orphans: int = 0
    """Spans whose parent was not read. This and the following are counted only for a table."""
    circles: int = 0
    """Spans whose parent links form a cycle. The parent of one span in each cycle is treated as missing."""
    clocks: dict[str, int] = field(default_factory=dict)
    """For each machine with clock skew, the nanoseconds that were added to all its times."""
    last_line: int = 0
    """The number of the last line in a part of a file."""
    negative: int = 0
    """Spans whose end is before their start. Their end is set to their start."""

    def bad(self, file: str, line: int, reason: str) -> None:
        self.bad_lines += 1
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(Problem(file, line, reason))
