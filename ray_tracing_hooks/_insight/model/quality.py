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
    """Lines, or parts of a spool, that could not be read."""
    bad_spans: int = 0
    """Spans that could not be read, in lines that could."""
    incomplete_files: int = 0
    """Files and folders that could not be read, or only up to some place: how many lines are missing is unknown."""
    problems: list[Problem] = field(default_factory=list)
    """The first few of these."""
    running: int = 0
    lost: int = 0
    """Spans without an end, and those whose end was estimated since their process died."""
    unended: int = 0
    """The former of them. Whether their process died is not known."""
    dropped: int = 0
    """Spans that processes reported as dropped."""
    truncated: int = 0
    """Distinct spans of which their recorder dropped attributes, events or links beyond its limits."""
    orphans: int = 0
    """Spans whose parent was not read. This and the following are counted only for a table."""
    continuing: int = 0
    """Those of them that are requests to a server: their parent is the client's span."""
    of_open_drivers: int = 0
    """Those of them that are below a span of their driver, which is stored when it ends."""
    circles: int = 0
    """Spans whose parent links form a cycle. The parent of one span in each cycle is treated as missing."""
    clocks: dict[str, int] = field(default_factory=dict)
    """For each machine with clock skew, the nanoseconds that were added to all its times."""
    last_line: int = 0
    """The number of the last line in a part of a file."""
    negative: int = 0
    """Spans whose end is before their start. Their end is set to their start."""

    @property
    def is_partial(self) -> bool:
        return bool(self.bad_lines or self.bad_spans or self.incomplete_files or self.dropped)

    @property
    def lost_parents(self) -> int:
        """The other spans whose parent was not read."""
        return self.orphans - self.continuing - self.of_open_drivers

    def bad(self, file: str, line: int, reason: str, spans: int = 0) -> None:
        """Note a line that could not be read, or a part of a spool; with ``spans``, only so many spans of it."""
        self.bad_lines += not spans
        self.bad_spans += spans
        self.note(file, line, reason)

    def incomplete(self, file: str, lines: int, reason: str) -> None:
        """Note a file of which only so many lines could be read."""
        self.incomplete_files += 1
        self.note(file, lines + 1 if lines else 0, f"{reason}; the rest of the file is missing" if lines else reason)

    def include(self, part: Quality, lines: int) -> None:
        """Add what is wrong with a part of a file that follows so many lines."""
        self.bad_lines += part.bad_lines
        self.bad_spans += part.bad_spans
        self.incomplete_files += part.incomplete_files
        self.lines += part.lines
        self.dropped += part.dropped
        for problem in part.problems:
            self.note(problem.file, problem.line + lines if problem.line else 0, problem.reason)

    def note(self, file: str, line: int, reason: str) -> None:
        """Note a problem, without counting it."""
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(Problem(file, line, reason))
