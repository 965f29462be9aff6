"""Prints lines of text, cut to the width of the screen, and coloured on a terminal."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO

import click

from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._insight.analysis.wording import shortened

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
    width = screen_width(stream)
    has_colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = stream.encoding or "ascii"
    is_heading = True
    for line in lines:
        text = line.text(width) if isinstance(line, Row) else line.text if isinstance(line, Line) else line
        style = _style(line, is_heading=is_heading) if has_colour else {}
        for part in _cut(_shown(text, encoding), width):
            click.echo(click.style(part, **style) if style and part else part, err=err)
        is_heading = not text


def screen_width(stream: TextIO) -> int:
    """The longest line."""
    if not stream.isatty():
        return WIDEST
    try:
        columns = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size(stream.fileno()).columns
    except ValueError:
        columns = os.get_terminal_size(stream.fileno()).columns
    return min(WIDEST, max(columns, 2 * _SHORTEST_NAME)) if columns else WIDEST


def _shown(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return safe(text, ascii_only=True)
    return safe(text)


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
    # Keep a number beside its unit.
    together = re.sub(r"(\d) (%|us|ms|s)\b", "\\1\xa0\\2", text.replace(" %", "\xa0%"))
    indent = len(text) - len(text.lstrip()) + 3
    if text.startswith(" ") and (columns := list(re.finditer(r" {2,}(?=\S)", text))):
        # Indent to its last column, unless that is far to the right.
        indent = columns[-1].end() if columns[-1].end() <= 0.6 * width else indent
    lines = textwrap.wrap(
        together, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )
    return [line.replace("\xa0", " ") for line in lines]
