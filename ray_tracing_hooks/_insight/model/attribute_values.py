"""Values of attributes, which may be anything where another program wrote them."""

from __future__ import annotations

_LIMIT = float(1 << 63)


def whole(value: object) -> int | None:
    """The value of an attribute if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def nanoseconds(seconds: object) -> int:
    """The value of an attribute in seconds, as nanoseconds; 0 if it is not a number, or more than 64 bits can hold."""
    if not isinstance(seconds, (int, float)) or not abs(seconds) < _LIMIT:
        return 0
    found = seconds * 1e9
    return round(found) if abs(found) < _LIMIT else 0


_MOST = 1 << 40
"""No number of things is larger."""


def number(value: object) -> int:
    """The value of an attribute that counts something; 0 if it is none, negative or impossibly large."""
    found = whole(value)
    return found if found is not None and 0 <= found < _MOST else 0
