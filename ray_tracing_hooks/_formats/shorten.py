"""Making an encoded span fit: what is largest goes, and is counted as dropped."""

from __future__ import annotations

from ray_tracing_hooks._formats.wire import FormatError, field, fields, varint

_TRACE_STATE, _NAME, _STATUS = 0x1A, 0x2A, 0x7A
_COUNTS = {0x4A: 0x50, 0x5A: 0x60, 0x6A: 0x70}
"""Attributes, events and links, and the field that says how many of them were dropped."""

_MOST_TEXT = 1024


def shorten(span: bytes, most: int) -> bytes:
    """The encoded span in at most ``most`` bytes, which must be more than a few thousand.

    Its ids, times and kind stay; of a name and a status with a long text stays the beginning.
    """
    found = fields(span)
    excess = len(span) - most
    dropped = dict.fromkeys(_COUNTS.values(), 0)
    removed = set()
    # Room for the counts and for longer lengths.
    excess += 64
    for index in sorted(range(len(found)), key=lambda index: _size(found[index][1]), reverse=True):
        tag, value = found[index]
        if excess <= 0:
            break
        if tag in _COUNTS:
            removed.add(index)
            dropped[_COUNTS[tag]] += 1
            excess -= _size(value)
        elif tag in {_NAME, _STATUS, _TRACE_STATE}:
            shorter = b"" if tag == _TRACE_STATE else _status(value) if tag == _STATUS else _text(value)
            found[index] = (tag, shorter)
            excess -= _size(value) - len(shorter)
    parts = []
    for index, (tag, value) in enumerate(found):
        if tag in dropped:
            dropped[tag] += value
        elif index not in removed:
            parts.append(_encoded(tag, value))
    parts += [bytes((tag,)) + varint(count) for tag, count in dropped.items() if count]
    return b"".join(parts)


def _size(value: int | bytes) -> int:
    return 0 if isinstance(value, int) else len(value)


def _encoded(tag: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(tag) + varint(value)
    return field(tag, value) if tag & 7 == 2 else varint(tag) + value


def _text(value: bytes) -> bytes:
    return value[:_MOST_TEXT].decode("utf-8", "ignore").encode()


def _status(value: bytes) -> bytes:
    try:
        parts = fields(value)
    except FormatError:
        return b""
    return b"".join(field(tag, _text(part)) if tag == 0x12 else _encoded(tag, part) for tag, part in parts)
