"""Columns as files of a folder, which are mapped into memory: a process that opens them holds none of them itself."""

from __future__ import annotations

import mmap
import os
import pickle
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ray_tracing_hooks._insight.source import Lines
from ray_tracing_hooks._insight.table import Table

_TABLE = "table"
_REST = "rest.pickle"
_CHUNK = 1 << 20

_LEFT_OUT = frozenset({"objects", "ready", "ids"})
"""What joins need and a server of their results does not: most of the memory of a table that is open."""

_TEXTS = 100_000
"""More texts than this are a file too."""


def save(folder: str, columns: Mapping[str, Any]) -> None:
    """Write arrays and bytearrays as files of a folder, which is made if it is not there."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, column in columns.items():
        kind = column.typecode if isinstance(column, array) else "B"
        with open(os.path.join(folder, f"{name}.{kind}"), "wb") as file:
            view = memoryview(column).cast("B")
            file.writelines(view[begin : begin + _CHUNK] for begin in range(0, len(view), _CHUNK))


def opened(folder: str) -> dict[str, Any]:
    """The columns of a folder, as sequences of numbers."""
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


class Texts(Sequence[str]):
    """Many texts in one file, read when they are asked for."""

    def __init__(self, text: Sequence[int], ends: Sequence[int]) -> None:
        self._text, self._ends = text, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        begin = self._ends[index - 1] if index else 0
        return bytes(self._text[begin : self._ends[index]]).decode("utf-8", "surrogatepass")


def save_table(folder: str, table: Table) -> None:
    """Write a table, without the ids of tasks and objects: what reads a span again has them from its file."""
    if len(table):
        table.children(0)  # the index of all of them
    columns, rest = {}, {}
    for name, value in vars(table).items():
        if name in _LEFT_OUT:
            continue
        if isinstance(value, (array, bytearray)):
            columns[name] = value
        elif isinstance(value, list) and len(value) > _TEXTS and isinstance(value[0], str):
            columns[f"{name}.text"], columns[f"{name}.ends"] = _joined(value)
        else:
            if isinstance(value, Lines):
                value.close()
            rest[name] = value
    where = os.path.join(folder, _TABLE)
    save(where, columns)
    with open(os.path.join(where, _REST), "wb") as file:
        pickle.dump(rest, file, protocol=5)


def open_table(folder: str) -> Table:
    """The table that was written there, by this user: what is not a column is unpickled."""
    where = os.path.join(folder, _TABLE)
    columns = opened(where)
    texts = [name.removesuffix(".ends") for name in columns if name.endswith(".ends")]
    for name in texts:
        columns[name] = Texts(columns.pop(f"{name}.text"), columns.pop(f"{name}.ends"))
    with open(os.path.join(where, _REST), "rb") as file:
        rest = pickle.load(file)  # noqa: S301  written by our own process, in a folder of our own
    table = Table.__new__(Table)
    table.__dict__.update(columns, **rest, objects={}, ready={}, ids=_NoIds())
    return table


class _NoIds:
    """Stands for the ids of tasks, which the index leaves out."""

    def __getitem__(self, _index: int) -> None:
        return None


def _joined(texts: Iterable[str]) -> tuple[bytearray, array[int]]:
    joined, ends = bytearray(), array("q")
    for text in texts:
        joined += text.encode("utf-8", "surrogatepass")
        ends.append(len(joined))
    return joined, ends
