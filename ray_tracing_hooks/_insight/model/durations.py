"""Durations in attributes, which are seconds."""

from __future__ import annotations

_LIMIT = float(1 << 63)


def nanoseconds(seconds: object) -> int:
    """The value of an attribute in nanoseconds; 0 if it is not a number, or more than 64 bits can hold."""
    found = seconds * 1e9 if isinstance(seconds, (int, float)) else 0.0
    return round(found) if abs(found) < _LIMIT else 0
