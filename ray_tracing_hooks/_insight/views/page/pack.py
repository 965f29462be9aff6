"""Packs columns of integers into bytes that compress well and that a browser unpacks fast.

A column is split into byte planes: first the lowest byte of every number, then the next one, as many as the greatest
number needs. The numbers of a column are similar, so the upper planes are nearly constant and cost little after gzip,
and neither side needs a loop over each number.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from operator import sub
from typing import Any

_LEVEL = 6
_LENGTH = struct.Struct("<I")
_MOST = (1 << 64) - 1


def packed(columns: Mapping[str, Iterable[int]]) -> bytes:
    """The columns in one block: a JSON header with the position of each, and their planes. Numbers must be >= 0."""
    header = []
    planes: list[bytes] = []
    for name, numbers in columns.items():
        # An array would take eight bytes for each byte.
        given = list(numbers) if isinstance(numbers, (bytearray, Iterator)) else numbers
        try:
            column = array("Q", given)
        except OverflowError:  # a sum of times of damaged spans
            column = array("Q", [min(each, _MOST) for each in given])
        width = (max(column, default=0).bit_length() + 7) // 8
        header.append([name, len(column), width])
        if sys.byteorder == "big":
            column.byteswap()
        raw = column.tobytes()
        planes += [raw[place::8] for place in range(width)]
    head = json.dumps(header).encode()
    return _LENGTH.pack(len(head)) + head + b"".join(planes)


def differences(ascending: array[int]) -> array[int]:
    """The difference of each number to the previous one; 0 for the first."""
    found = array("q", map(sub, ascending[1:], ascending))
    found.insert(0, 0)
    return found if ascending else array("q")


def zigzag(number: int) -> int:
    """The number as a non-negative one: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def text(block: bytes) -> bytes:
    """The block as written to the page: compressed, and in characters that cannot end a script element."""
    return base64.b64encode(gzip.compress(block, _LEVEL, mtime=0))


def json_text(described: Any) -> bytes:
    """The same for a JSON value. A browser rounds durations above a hundred days, by up to a microsecond."""
    return plain_json_text(plain(described, is_exact=False))


def plain_json_text(described: Any) -> bytes:
    """The same for a value that :func:`plain` has converted."""
    return text(json.dumps(described, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode())


def plain(value: Any, *, is_exact: bool = True) -> Any:
    """The value as JSON can represent it. With ``is_exact``, numbers that JavaScript cannot hold become text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if not is_exact or -(1 << 53) < value < 1 << 53 else str(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, is_exact=is_exact) for key, item in value.items()}
    if isinstance(value, (list, tuple, array)):
        return [plain(item, is_exact=is_exact) for item in value]
    return str(value)
