"""Values of attributes, which may be anything where another program wrote them."""

from __future__ import annotations

_LIMIT = float(1 << 63)


def whole(value: object) -> int | None:
    """The value of an attribute if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def nanoseconds(seconds: object) -> int:
    """The value of an attribute in seconds, as nanoseconds; 0 if it is not a number, or more than 64 bits can hold."""
    found = seconds * 1e9 if isinstance(seconds, (int, float)) else 0.0
    return round(found) if abs(found) < _LIMIT else 0
