"""Many short strings in one block of memory: a million string objects would take as much memory as all columns."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np

from ray_tracing_hooks._insight.model.grouped import distinct, places_of


class Strings:
    """Strings, numbered in the order in which they were added."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")
        if isinstance(texts, Strings):
            self.extend(texts)
        else:
            self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        added = list(texts)
        joined = "".join(added)
        # JSON can contain lone surrogates, which UTF-8 cannot encode.
        lengths = map(len, added if joined.isascii() else map(_encoded, added))
        self._ends.extend(array("Q", list(accumulate(lengths, initial=len(self._bytes)))[1:]))
        self._bytes += _encoded(joined)

    def extend(self, others: Strings) -> None:
        _extend(self._ends, others._ends, len(self._bytes))
        self._bytes += others._bytes

    def __getitem__(self, place: int) -> str:
        return _decoded(self._bytes[self._ends[place - 1] if place else 0 : self._ends[place]])

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def between(self, first: int, last: int) -> tuple[str, ...]:
        """Those from ``first`` up to, but not including, ``last``."""
        held, ends = self._bytes, self._ends
        begin = ends[first - 1] if first else 0
        if last == first + 1:
            return (_decoded(held[begin : ends[first]]),)
        found = []
        for end in ends[first:last]:
            found.append(_decoded(held[begin:end]))
            begin = end
        return tuple(found)

    def matrix(self, length: int) -> tuple[Any, Any]:
        """The indexes of the texts with ``length`` bytes, and their bytes as a NumPy matrix with a row for each."""
        held, ends = np.frombuffer(self._bytes, np.uint8), np.frombuffer(self._ends, np.uint64).astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        which = np.nonzero(lengths == length)[0]
        if not len(which):
            # The windows below would be too long if all texts together are shorter than one of them.
            return which, np.empty((0, length), np.uint8)
        if len(which) * length == len(held):
            return which, held.reshape(len(which), length)
        return which, np.lib.stride_tricks.sliding_window_view(held, length)[ends[which] - length]

    def numbers(self) -> Any:
        """For each text the index of the first text equal to it."""
        found = np.arange(len(self))
        for length in distinct(np.diff(np.frombuffer(self._ends, np.uint64), prepend=np.uint64(0))).tolist():
            which, rows = self.matrix(length)
            first, same = _distinct(rows)
            found[which] = which[first[same]]
        return found

    def find(self, rows: Any) -> Any:
        """For each row of a matrix of bytes the index of the text equal to it, -1 if there is none; all texts differ.

        Of texts with equal hashes, which somebody must have made on purpose, one is found.
        """
        which, own = self.matrix(rows.shape[1])
        if not len(which):
            return np.full(len(rows), -1)
        hashes = _hashes(own)
        order = np.argsort(hashes)
        hashes = hashes[order]
        found = order[places_of(_hashes(rows), hashes)]
        is_equal = np.ones(len(rows), bool)
        for wanted, word in zip(_words(rows), _words(own), strict=True):
            is_equal &= wanted == word[found]
        return np.where(is_equal, which[found], -1)

    def taken(self, numbers: Any) -> Strings:
        """The texts with these indexes. Neighbours of equal length are copied at once, which most ids are."""
        ends = np.frombuffer(self._ends, np.uint64).astype(np.int64)
        lengths = np.diff(ends, prepend=0)[numbers]
        found = Strings()
        cuts = np.nonzero(np.diff(lengths))[0] + 1
        for begin, end in pairwise([0, *cuts.tolist(), len(lengths)]):
            if begin < end:
                length = int(lengths[begin])
                if not length:
                    found.add_rows(np.empty((end - begin, 0), np.uint8))
                    continue
                windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(self._bytes, np.uint8), length)
                found.add_rows(windows[ends[numbers[begin:end]] - length])
        return found

    def add_rows(self, rows: Any) -> None:
        """Add texts of equal length, given as a matrix with a row of bytes for each."""
        many, length = rows.shape
        self._ends.frombytes((np.arange(1, many + 1, dtype=np.uint64) * length + len(self._bytes)).tobytes())
        self._bytes += np.ascontiguousarray(rows).reshape(-1).data

    def __len__(self) -> int:
        return len(self._ends)


def _distinct(rows: Any) -> tuple[Any, Any]:
    """The index of the first of each distinct row of bytes, and for each row the index of its equal in these."""
    _, first, same = np.unique(_hashes(rows), return_index=True, return_inverse=True)
    equal = first[same]
    if all((word == word[equal]).all() for word in _words(rows)):
        return first, same
    # Different texts have equal hashes: almost certainly made on purpose.
    _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, same.reshape(-1)


def _hashes(rows: Any) -> Any:
    """A number for each row of bytes, which is the same for equal rows."""
    hashes = np.zeros(len(rows), np.uint64)
    for word in _words(rows):
        hashes ^= word
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _words(rows: Any) -> Iterator[Any]:
    """The bytes of each row as columns of 64-bit numbers; one at a time, as all together are as large as the rows."""
    for begin in range(0, rows.shape[1], 8):
        eight = np.zeros((len(rows), 8), np.uint8)
        eight[:, : rows.shape[1] - begin] = rows[:, begin : begin + 8]
        yield eight.view(np.uint64)[:, 0]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(encoded: bytes | bytearray | memoryview) -> str:
    return str(encoded, "utf-8", "surrogatepass")


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

    @property
    def texts(self) -> Strings:
        """All ids, including those of rows that :meth:`taken` left out."""
        return self._texts

    def flat(self) -> tuple[Any, Any]:
        """Two columns with an item for each id of each list, by row: the row, and the index of the id in ``texts``."""
        rows, lists, ends = map(np.asarray, (self._rows, self._lists, self._ends))
        last = ends[lists].astype(np.int64)
        first = np.where(lists > 0, ends[lists.astype(np.int64) - 1], 0).astype(np.int64)
        many = last - first
        begins = np.cumsum(many) - many
        return np.repeat(rows, many), np.arange(many.sum()) + np.repeat(first - begins, many)

    def range_of(self, row: int) -> range:
        """The indexes in ``texts`` of the ids of a row; empty if it has no list."""
        place = bisect_left(self._rows, row)
        if place == len(self._rows) or self._rows[place] != row:
            return range(0)
        number = self._lists[place]
        return range(self._ends[number - 1] if number else 0, self._ends[number])

    def __getitem__(self, row: int) -> tuple[str, ...]:
        there = self.range_of(row)
        if not there and row not in self:
            raise KeyError(row)
        return self._texts.between(there.start, there.stop)

    def __contains__(self, row: object) -> bool:
        place = bisect_left(self._rows, cast("int", row))
        return place < len(self._rows) and self._rows[place] == row

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _extend(column: array[int], others: array[int], added: int) -> None:
    """Append another column's numbers, each increased by ``added``."""
    kind = column.typecode
    column.frombytes((np.frombuffer(others, kind) + np.array(added, kind)).tobytes())
