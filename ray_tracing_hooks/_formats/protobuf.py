"""Protobuf's wire format: encodes fields, and parses encoded messages without their schema.

The wire format is described in https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from typing import Any

pack_fixed32 = struct.Struct("<I").pack
pack_double = struct.Struct("<d").pack
_pack_fixed64 = struct.Struct("<Q").pack
_pack_nine = struct.Struct("<QB").pack
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
MAX_DEPTH = 50
"""How deep arrays and maps in an attribute may be nested; protobuf's own parsers refuse more."""

_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}


def varint(number: int) -> bytes:
    """A non-negative number of up to 64 bits."""
    if number < 0x80:
        return bytes((number,))
    if number >> 56 and not number >> 63:
        # Nine bytes, such as a time: spread the groups of seven bits all at once.
        low = number & 0x0FFF_FFFF | (number & 0xFF_FFFF_F000_0000) << 4
        low = low & 0x0000_3FFF_0000_3FFF | (low & 0x0FFF_C000_0FFF_C000) << 2
        low = low & 0x007F_007F_007F_007F | (low & 0x3F80_3F80_3F80_3F80) << 1
        return _pack_nine(low | 0x8080_8080_8080_8080, number >> 56)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(tag: int, payload: bytes) -> bytes:
    """A length-delimited field; ``tag`` is the one-byte tag."""
    size = len(payload)
    if size < 0x80:
        return bytes((tag, size)) + payload
    return bytes((tag,)) + varint(size) + payload


def utf8(text: str) -> bytes:
    """Text as UTF-8. Lone surrogates are replaced, since receivers refuse a whole request because of one."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def fixed64(tag: int, number: int) -> bytes:
    return bytes((tag,)) + _pack_fixed64(number)


class FormatError(ValueError):
    """The bytes are not a valid message. The text says what is wrong and at which byte."""


def fields(message: bytes) -> list[tuple[int, Any]]:
    """The fields of an encoded message as (tag, value), in their order in the message.

    A tag is the field's number and wire type as encoded, ``number << 3 | type``. The value is an unsigned int of up to
    64 bits for a varint, and bytes for everything else: four or eight little-endian ones for fixed numbers, the payload
    for strings, bytes and sub-messages. Raises :class:`FormatError` for an incomplete or malformed message, and for
    groups, which no current format uses.
    """
    found: list[tuple[int, Any]] = []
    position, size = 0, len(message)
    try:
        while position < size:
            start = position
            # Nearly every tag, length and small number is one byte; the function call is for the others.
            tag = message[position]
            position += 1
            if tag > 0x7F:
                tag, position = _varint(message, start)
            if not 0x08 <= tag <= 0xFFFF_FFFF:
                raise FormatError(f"invalid tag {tag:#x} at byte {start}")
            wire_type = tag & 7
            if wire_type in (_LENGTH, _VARINT):
                number = message[position]
                position += 1
                if number > 0x7F:
                    number, position = _varint(message, position - 1)
                if wire_type == _VARINT:
                    found.append((tag, number))
                    continue
            elif wire_type in _FIXED_SIZE:
                number = _FIXED_SIZE[wire_type]
            else:
                raise FormatError(f"field {tag >> 3} at byte {start} has the unsupported wire type {wire_type}")
            end = position + number
            if end > size:
                raise FormatError(
                    f"field {tag >> 3} at byte {start} ends at byte {end}, but the message has only {size}"
                )
            found.append((tag, message[position:end]))
            position = end
    except IndexError:
        raise FormatError(f"the number at byte {position} has no end") from None
    return found


def encoded_field(tag: int, value: int | bytes) -> bytes:
    """One of the :func:`fields`, encoded."""
    if isinstance(value, int):
        return varint(tag) + varint(value)
    return field(tag, value) if tag & 7 == _LENGTH else varint(tag) + value


def _varint(message: bytes, start: int) -> tuple[int, int]:
    """The number that begins at ``start``, and the position after it."""
    number = shift = 0
    position = start
    for byte in message[start : start + 10]:
        position += 1
        if byte < 0x80:
            return (number | byte << shift) & 0xFFFF_FFFF_FFFF_FFFF, position
        number |= (byte & 0x7F) << shift
        shift += 7
    raise FormatError(f"the number at byte {start} has no end")
