"""The positions of spans in their files, from where the details that the columns do not hold can be read again."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Origins:
    """The positions in a file of spans that were read one after the other. Spans of the same line share one entry."""

    def __init__(self) -> None:
        self._rows = array("I")
        self._offsets = array("q")
        self._skipped = array("I")

    def begin(self, offset: int, row: int, skipped: int = 0) -> None:
        """Note that spans from ``row`` onwards are in the line or record at ``offset``; -1 if they are in none.

        ``skipped``: how many spans of the line precede the span of this row.
        """
        self._rows.append(row)
        self._offsets.append(offset)
        self._skipped.append(skipped)

    def of(self, row: int) -> tuple[int, int]:
        """The offset of a row's line, -1 for none, and the index of the span in that line."""
        which = bisect_right(self._rows, row) - 1
        return (self._offsets[which], row - self._rows[which] + self._skipped[which]) if which >= 0 else (-1, 0)
