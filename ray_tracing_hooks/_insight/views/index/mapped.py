"""Columns as files in a folder, which are mapped into memory, so that a process that opens them holds no copy."""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, cast

from ray_tracing_hooks._insight.ingest.reread import Lines
from ray_tracing_hooks._insight.model.table import Table

_TABLE = "table"
_REST = "rest.pickle"
_CHUNK = 1 << 20
_LARGE = 4096
"""Bytes. Smaller columns of a table do not get a file of their own."""


def save(folder: str, columns: Mapping[str, Any]) -> None:
    """Write arrays and bytearrays as files in a folder, which is created if it does not exist."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, column in columns.items():
        kind = column.typecode if isinstance(column, array) else "B"
        with open(os.path.join(folder, f"{name}.{kind}"), "wb") as file:
            view = memoryview(column).cast("B")
            file.writelines(view[begin : begin + _CHUNK] for begin in range(0, len(view), _CHUNK))


def opened(folder: str) -> dict[str, Any]:
    """The columns in a folder, as sequences of numbers."""
    found = {}
    for file in sorted(os.listdir(folder)):
        name, _, kind = file.rpartition(".")
        if len(kind) == 1:
            found[name] = _mapped(os.path.join(folder, file), kind)
    return found


def _mapped(path: str, kind: str) -> Sequence[int]:
    if not os.path.getsize(path):
        return array(kind)
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return cast("Sequence[int]", mapped.cast(cast("Any", kind)))


def save_table(folder: str, table: Table) -> None:
    """Write a table: its large columns as files, everything else as a pickle. The table itself then uses the files."""
    if len(table):
        table.children(0)  # builds the index of all children
    where = os.path.join(folder, _TABLE)
    os.makedirs(where, mode=0o700)
    with open(os.path.join(where, _REST), "wb") as file:
        _Saver(where, file).dump(table)
    vars(table).update(vars(open_table(folder)))


def open_table(folder: str) -> Table:
    """The table that this user wrote there. Everything but large columns is unpickled."""
    where = os.path.join(folder, _TABLE)
    with open(os.path.join(where, _REST), "rb") as file:
        table: Table = _Opener(where, file).load()
    return table


class _Saver(pickle.Pickler):
    """Writes large columns as files."""

    def __init__(self, folder: str, file: BinaryIO) -> None:
        super().__init__(file, protocol=5)
        self._folder, self._names = folder, itertools.count()

    def persistent_id(self, item: Any) -> tuple[str, str] | None:
        if isinstance(item, Lines):
            item.close()
        if not isinstance(item, (array, bytearray)) or memoryview(item).nbytes < _LARGE:
            return None
        name = str(next(self._names))
        save(self._folder, {name: item})
        return name, item.typecode if isinstance(item, array) else "B"


class _Opener(pickle.Unpickler):
    def __init__(self, folder: str, file: BinaryIO) -> None:
        super().__init__(file)
        self._folder = folder

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        name, kind = pid
        return _mapped(os.path.join(self._folder, f"{name}.{kind}"), kind)
