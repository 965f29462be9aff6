"""Many short strings in one block of memory: a million string objects would take as much memory as all columns."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, SupportsIndex, overload

import numpy as np


class Strings(Sequence[str]):
    """Strings, numbered in the order in which they were added."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        added = list(texts)
        joined = "".join(added)
        # JSON can contain lone surrogates, which UTF-8 cannot encode.
        lengths = map(len, added if joined.isascii() else map(_encoded, added))
        self._ends.extend(array("Q", list(accumulate(lengths, initial=len(self._bytes)))[1:]))
        self._bytes += _encoded(joined)

    def extend(self, others: Strings) -> None:
        """Add all of ``others``."""
        _extend(self._ends, others._ends, len(self._bytes))
        self._bytes += others._bytes

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
        """Those from ``first`` up to, but not including, ``last``."""
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
    """Lists of ids for some rows of a table, by row."""

    def __init__(self) -> None:
        self._rows = array("I")
        self._lists = array("I")
        """For each of these rows, the number of its list."""
        self._ends = array("Q")
        """Where each list ends in the strings."""
        self._texts = Strings()

    def add(self, row: int, ids: Iterable[str]) -> None:
        """Add the list of a row, which must come after all rows added before."""
        self._texts.add(ids)
        self._lists.append(len(self._ends))
        self._ends.append(len(self._texts))
        self._rows.append(row)

    def extend(self, others: IdLists, first: int) -> None:
        """Add the lists of ``others``, whose row 0 is row ``first`` here."""
        _extend(self._lists, others._lists, len(self._ends))
        _extend(self._ends, others._ends, len(self._texts))
        _extend(self._rows, others._rows, first)
        self._texts.extend(others._texts)

    def taken(self, rows: Any) -> IdLists:
        """The lists of some rows, which are renumbered; the lists themselves are shared."""
        own = np.frombuffer(self._rows, "I")
        of_old = np.full(int(max(rows.max(initial=-1), own.max(initial=0))) + 1, -1)
        of_old[rows] = np.arange(len(rows))
        new = of_old[own]
        order = np.argsort(new, kind="stable")[np.count_nonzero(new < 0) :]
        found = IdLists()
        found._ends, found._texts = self._ends, self._texts
        found._rows.frombytes(new[order].astype("I").tobytes())
        found._lists.frombytes(np.frombuffer(self._lists, "I")[order].tobytes())
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


def _extend(column: array[int], others: array[int], added: int) -> None:
    """Append another column's numbers, each increased by ``added``."""
    kind = column.typecode
    column.frombytes((np.frombuffer(others, kind) + np.array(added, kind)).tobytes())
