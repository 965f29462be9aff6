"""Where in their files spans stand, so that what the columns do not hold of them can be read again."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Origins:
    """Where in a file spans stand that were read one after the other: those of a line share one entry."""

    def __init__(self) -> None:
        self._rows = array("I")
        self._offsets = array("q")
        self._skipped = array("I")

    def begin(self, offset: int, row: int, skipped: int = 0) -> None:
        """Tell that from ``row`` on spans are of the line, or record, at ``offset``; -1 for spans that are in none.

        ``skipped``: how many spans of the line stand before that of this row.
        """
        self._rows.append(row)
        self._offsets.append(offset)
        self._skipped.append(skipped)

    def of(self, row: int) -> tuple[int, int]:
        """Where the line of a row begins, -1 for none, and the how-manieth span of the line it is."""
        which = bisect_right(self._rows, row) - 1
        return (self._offsets[which], row - self._rows[which] + self._skipped[which]) if which >= 0 else (-1, 0)
