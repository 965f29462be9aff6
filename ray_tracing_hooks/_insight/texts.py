"""Many short texts in one piece of memory: an object for each of a million ids would take as much as all columns."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import SupportsIndex, overload

from ray_tracing_hooks._insight.order import Order


class Texts(Sequence[str]):
    """Texts, numbered in the order in which they were added."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")
        self.extend(texts)

    def extend(self, texts: Iterable[str]) -> None:
        added = list(texts)
        joined = "".join(added)
        # JSON can say halves of characters, which UTF-8 cannot.
        lengths = map(len, added if joined.isascii() else map(_encoded, added))
        self._ends.extend(array("Q", list(accumulate(lengths, initial=len(self._bytes)))[1:]))
        self._bytes += _encoded(joined)

    def take(self, others: Texts) -> None:
        """Add all of some others."""
        begin = len(self._bytes)
        self._bytes += others._bytes
        self._ends.extend(array("Q", [begin + end for end in others._ends]))

    def truncate(self, count: int) -> None:
        """Forget all but the first ``count``."""
        del self._ends[count:]
        del self._bytes[self._ends[-1] if count else 0 :]

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        place = index.__index__()
        if place < 0:
            place += len(self)
        end = self._ends[place]
        return self._bytes[self._ends[place - 1] if place else 0 : end].decode("utf-8", "surrogatepass")

    def between(self, first: int, last: int) -> tuple[str, ...]:
        """Those from ``first`` on, before ``last``."""
        held, ends = self._bytes, self._ends
        begin = ends[first - 1] if first else 0
        if last == first + 1:
            return (held[begin : ends[first]].decode("utf-8", "surrogatepass"),)
        found = []
        for end in ends[first:last]:
            found.append(held[begin:end].decode("utf-8", "surrogatepass"))
            begin = end
        return tuple(found)

    def __len__(self) -> int:
        return len(self._ends)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class IdLists(Mapping[int, tuple[str, ...]]):
    """Lists of ids of some of the rows of a table, by row."""

    def __init__(self) -> None:
        self._rows = array("I")
        self._lists = array("I")
        """For each of these rows the number of its list."""
        self._ends = array("Q")
        """Where in the texts each list ends."""
        self._texts = Texts()

    def add(self, row: int, ids: Iterable[str]) -> None:
        """Add the list of a row, which is after all others."""
        self._texts.extend(ids)
        self._lists.append(len(self._ends))
        self._ends.append(len(self._texts))
        self._rows.append(row)

    def take(self, others: IdLists, base: int) -> None:
        """Add the lists of others, whose rows begin at ``base`` here."""
        lists, texts = len(self._ends), len(self._texts)
        self._rows.extend(array("I", [base + row for row in others._rows]))
        self._lists.extend(array("I", [lists + number for number in others._lists]))
        self._ends.extend(array("Q", [texts + end for end in others._ends]))
        self._texts.take(others._texts)

    def truncate(self, rows: int) -> None:
        """Forget those of all rows but the first ``rows``."""
        count = bisect_left(self._rows, rows)
        for column in (self._rows, self._lists, self._ends):
            del column[count:]
        self._texts.truncate(self._ends[-1] if count else 0)

    def in_order(self, order: Order) -> IdLists:
        """Those of some of the rows, by their new numbers; the lists themselves are shared."""
        if order.is_same:
            return self
        list_of = dict(zip(self._rows, self._lists, strict=True))
        found = IdLists()
        found._ends, found._texts = self._ends, self._texts
        found._rows = array("I", order.new_rows_of(list_of))
        found._lists = array("I", [list_of[order.rows[row]] for row in found._rows])
        return found

    def __getitem__(self, row: int) -> tuple[str, ...]:
        place = bisect_left(self._rows, row)
        if place == len(self._rows) or self._rows[place] != row:
            raise KeyError(row)
        number = self._lists[place]
        return self._texts.between(self._ends[number - 1] if number else 0, self._ends[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
