"""Columns of whole numbers as bytes that compress well and that a browser unpacks fast.

A column is cut into byte planes: first the lowest byte of every number, then the next one, as many as the greatest
number needs. Numbers of one column are alike, so the upper planes are nearly constant and cost next to nothing after
gzip, and neither side looks at each number in a loop of its own.
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
    """The columns in one block: a header in JSON, which says where each one is, and their planes. Numbers are >= 0."""
    header = []
    planes: list[bytes] = []
    for name, numbers in columns.items():
        # Of bytes an array would take eight for a number.
        given = list(numbers) if isinstance(numbers, (bytearray, Iterator)) else numbers
        try:
            column = array("Q", given)
        except OverflowError:  # a sum of times that damaged spans have
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
    """Each number less the one before it; the first one less itself."""
    found = array("q", map(sub, ascending[1:], ascending))
    found.insert(0, 0)
    return found if ascending else array("q")


def zigzag(number: int) -> int:
    """The number as one that is not negative: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def text(block: bytes) -> bytes:
    """The block as it stands in the page: compressed, and in characters that cannot end a script element."""
    return base64.b64encode(gzip.compress(block, _LEVEL, mtime=0))


def json_text(described: Any) -> bytes:
    """The same of what JSON can say. A browser rounds times that are longer than a hundred days by a microsecond."""
    return plain_json_text(plain(described, is_exact=False))


def plain_json_text(described: Any) -> bytes:
    """The same of what is :func:`plain`."""
    return text(json.dumps(described, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode())


def plain(value: Any, *, is_exact: bool = True) -> Any:
    """The value as JSON can say it; what JavaScript's numbers cannot hold is a text, if it is to be exact."""
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
