"""Columns put into another order, or cut to some of their rows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from operator import eq, itemgetter
from typing import Any, TypeVar, cast

_Column = TypeVar("_Column", bound="array[int] | bytearray")

_AT_ONCE = 1 << 16


class Order:
    """Which old row each new row is."""

    def __init__(self, rows: Sequence[int], size: int) -> None:
        """``rows`` are old rows, out of ``size``."""
        self.rows = rows
        self.is_same = len(rows) == size and all(map(eq, rows, range(size)))
        self._size = size
        self._getters: list[Callable[[Any], tuple[int, ...]]] = []
        for begin in range(0, 0 if self.is_same else len(rows), _AT_ONCE):
            part = rows[begin : begin + _AT_ONCE]
            # An itemgetter of one item gives no tuple.
            self._getters.append(itemgetter(*part) if len(part) > 1 else _only(part[0]))

    def taken(self, column: _Column) -> _Column:
        """The column in this order; the same one where nothing changes."""
        if self.is_same:
            return column
        if _is_of_one_value(column):
            return cast("_Column", column[: len(self.rows)])
        make: Callable[[tuple[int, ...]], Any] = bytearray
        if isinstance(column, array):
            make = partial(array, column.typecode)
        found = make(())
        for getter in self._getters:
            found += make(getter(column))
        return cast("_Column", found)

    def new_rows_of(self, old: Iterable[int]) -> list[int]:
        """The new rows of some old ones, ascending; what is left out has none."""
        wanted = bytearray(self._size)
        for row in old:
            wanted[row] = 1
        return list(compress(range(len(self.rows)), self.taken(wanted)))


def _is_of_one_value(column: array[int] | bytearray) -> bool:
    if not column or column[0] != column[-1]:
        return False
    return bytes(memoryview(column)) == bytes(memoryview(column[:1])) * len(column)


def _only(row: int) -> Callable[[Any], tuple[int, ...]]:
    return lambda column: (column[row],)
