"""Prints messages, and lines cut to the width of the screen and coloured on a terminal; and what is being done."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

import click

from ray_tracing_hooks._insight.analysis.wording import shortened, size
from ray_tracing_hooks._safety.guard import safe

WIDEST = 110
"""Longer lines are hard to read. Output to files and pipes has this width too."""

_SHORTEST_NAME = 12

_FINDING = re.compile(r" \d+\. ")


class Row(NamedTuple):
    """A row of a table, whose first column is shortened to the available width."""

    cells: Sequence[str]
    widths: Sequence[int]
    is_title: bool

    def text(self, width: int) -> str:
        room = width - 1 - sum(each + 2 for each in self.widths[1:])
        first = max(min(self.widths[0], room), min(self.widths[0], _SHORTEST_NAME))
        others = "  ".join(f"{cell:>{width}}" for cell, width in zip(self.cells[1:], self.widths[1:], strict=True))
        return f" {shortened(self.cells[0], first):<{first}}  {others}".rstrip()


class Line(NamedTuple):
    """A line with a style of its own, as keyword arguments of ``click.style``."""

    text: str
    style: dict[str, Any]


class TextTable(NamedTuple):
    """A table whose first column has names, and all others figures."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> Iterator[Row]:
        return aligned(self.titles, self.rows)


def aligned(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Rows with aligned columns, the first to the left and all others to the right, below their titles."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    yield Row(titles, widths, is_title=True)
    for row in rows:
        yield Row(row, widths, is_title=False)


def print_lines(lines: Iterable[str | Row | Line], *, err: bool = False) -> None:
    """Print lines, which may quote untrusted text, on standard output or error.

    Long lines are wrapped at words. Colours follow the form of a line: a heading after an empty line, a finding by its
    number, advice by its arrow. ``NO_COLOR``, and any output that is not a terminal, has no colours; the text is the
    same.
    """
    stream = sys.stderr if err else sys.stdout
    has_colour = is_coloured(stream)
    is_heading = True
    width = screen_width(stream)
    for line in lines:
        text = line.text(width) if isinstance(line, Row) else line.text if isinstance(line, Line) else line
        style = _style(line, is_heading=is_heading) if has_colour else {}
        for part in _cut(safe(text), width):
            click.echo(click.style(part, **style) if style and part else part, err=err)
        is_heading = not text


def is_coloured(stream: TextIO) -> bool:
    """Whether lines have colours: on a terminal, unless ``NO_COLOR`` is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def screen_width(stream: TextIO) -> int:
    """The longest line."""
    columns = terminal_width(stream) if stream.isatty() else 0
    return min(WIDEST, max(columns, 2 * _SHORTEST_NAME)) if columns else WIDEST


def terminal_width(stream: TextIO) -> int:
    """The columns of the terminal that this stream leads to, 0 if it does not say."""
    try:
        return int(os.environ.get("COLUMNS", "")) or os.get_terminal_size(stream.fileno()).columns
    except ValueError:
        return os.get_terminal_size(stream.fileno()).columns


def cell_len(text: str) -> int:
    """The columns that a text takes on a terminal: wide characters take two."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, width: int) -> str:
    """The beginning of a text, with spaces up to this many columns."""
    while cell_len(text) > width:
        text = text[: width if len(text) > width else -1]
    return text + " " * (width - cell_len(text))


def _style(line: str | Row | Line, *, is_heading: bool) -> dict[str, Any]:
    if isinstance(line, Line):
        return line.style
    if isinstance(line, Row):
        return {"dim": True} if line.is_title else {}
    if is_heading:
        return {"bold": True} if not line.startswith("Data:") else {"dim": True}
    if _FINDING.match(line):
        return {"fg": "yellow"}
    return {"fg": "green"} if line.startswith("    -> ") else {}


def _cut(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 3)
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


Advance = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and of how much."""

LONG_SPANS = 20_000
"""From this number on, commands show a progress bar while they write spans."""

_LEAST_PAUSE = 0.1
_BAR = 20


@contextmanager
def progress(*, shown: bool = True, is_size: bool = False) -> Iterator[Advance]:
    """What shows on standard error, if it is a terminal, what is being done. It disappears at the end of the block.

    With ``is_size`` the amount is a number of bytes. A total of 0 means that nobody knows it: there is no bar then.
    """
    stream = sys.stderr
    if not shown or not stream.isatty():
        yield lambda _doing, _done, _total: None
        return
    last, before = 0.0, ""

    def advance(doing: str, done: int, total: int) -> None:
        nonlocal last, before
        now = time.monotonic()
        if doing == before and now - last < _LEAST_PAUSE:
            return
        last, before = now, doing
        bar = "#" * (_BAR * min(done, total) // max(1, total))
        amount = f"{size(done)} of {size(total)}" if is_size else f"{done:,} of {total:,}" if total > 1 else ""
        text = f"{doing}  {bar:.<{_BAR}}  {amount}" if total else doing
        line = safe(text)[: screen_width(stream) - 1]
        stream.write(f"\r\x1b[K{line}")
        stream.flush()

    try:
        yield advance
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def counted(advance: Advance, doing: str, total: int) -> Callable[[int], None]:
    """The same for something that tells how much has been done since it last did."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        advance(doing, done, total)

    return add


def warn(text: str, kind: str = "warning") -> None:
    """Print a message on stderr. It may quote untrusted text, such as a file name or a server's response."""
    click.echo(f"{kind}: {safe(text)}", err=True)


class SafeError(click.ClickException):
    """Ends the command with exit code 1 and a message, in which untrusted text is escaped."""

    def __init__(self, message: str) -> None:
        super().__init__(safe(message))


def until(when: float | None) -> str:
    """The end of a sentence about something that lasts until this time, in seconds since the epoch; empty for None."""
    return "" if when is None else time.strftime(" until %Y-%m-%d %H:%M:%S %Z", time.localtime(when))
