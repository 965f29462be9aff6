"""Span limits from the standard variables, and the limiting and cleaning of attributes as in the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ray_tracing_hooks._formats.encoded_span.encode import Nested

_COUNT_DEFAULT = 128
_MAX_DEPTH = 20


class SpanLimits(NamedTuple):
    """The limits of one span. None means no limit."""

    attributes: int | None = _COUNT_DEFAULT
    value_length: int | None = None
    """Longest text in the span's own attributes."""
    other_value_length: int | None = None
    """Longest text in the attributes of its events and links."""
    events: int | None = _COUNT_DEFAULT
    links: int | None = _COUNT_DEFAULT
    event_attributes: int | None = _COUNT_DEFAULT
    link_attributes: int | None = _COUNT_DEFAULT

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SpanLimits:
        """The limits that ``environ`` sets; empty and invalid values count as unset, as the specification asks."""
        count = _limit(environ, "OTEL_ATTRIBUTE_COUNT_LIMIT", _COUNT_DEFAULT)
        length = _limit(environ, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", None)
        return cls(
            attributes=_limit(environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", count),
            value_length=_limit(environ, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", length),
            other_value_length=length,
            events=_limit(environ, "OTEL_SPAN_EVENT_COUNT_LIMIT", _COUNT_DEFAULT),
            links=_limit(environ, "OTEL_SPAN_LINK_COUNT_LIMIT", _COUNT_DEFAULT),
            event_attributes=_limit(environ, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", count),
            link_attributes=_limit(environ, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", count),
        )


def _limit(environ: Mapping[str, str], variable: str, default: int | None) -> int | None:
    value = environ.get(variable, "").strip()
    return int(value) if value.isascii() and value.isdigit() else default


def put(attributes: dict[str, Any], key: Any, value: Any, most: int | None, length: int | None) -> int:
    """Set one of at most ``most`` attributes, its texts cut to ``length``. Returns how many attributes were dropped.

    As in the SDK, the newest are kept. Later changes to a mutable value do not change the attribute.
    """
    if most == 0 or not isinstance(key, str) or not key:
        return 1
    return _put_cleaned(attributes, key, clean(value, length), most)


def put_all(attributes: dict[str, Any], more: Mapping[Any, Any] | None, most: int | None, length: int | None) -> int:
    """The same for several: here the SDK accepts any key that can be converted to text."""
    if not more:
        return 0
    cleaned = _clean_mapping(more, length)
    return len(more) - len(cleaned) + sum(_put_cleaned(attributes, *item, most) for item in cleaned.items())


def _put_cleaned(attributes: dict[str, Any], key: str, value: Any, most: int | None) -> int:
    if most == 0:
        return 1
    attributes.pop(key, None)
    dropped = 0
    if most is not None and len(attributes) >= most:
        attributes.pop(next(iter(attributes), key), None)
        dropped = 1
    attributes[key] = value
    return dropped


def clean(value: Any, length: int | None, depth: int = 0, nested: Nested | None = None) -> Any:
    """Convert a value as the SDK does: cut texts, copy containers, and use the text of types that OTLP lacks.

    Unlike in the SDK, a NumPy scalar stays a number, and a bytearray becomes bytes. Containers that are nested too
    deep, or hold too many values in all (``MOST_NESTED``), become None.
    """
    if isinstance(value, str):
        return value if length is None else value[:length]
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, (Sequence, Mapping)):
        if nested is None:
            nested = Nested()
        elif not nested.takes(value):
            return None
        if isinstance(value, Sequence):
            return tuple([clean(item, length, depth + 1, nested) for item in value])
        return _clean_mapping(value, length, depth + 1, nested)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        plain = item()
        if isinstance(plain, (str, bool, int, float, bytes)):
            return clean(plain, length)
    return str(value) if _has_text(value) else None


def _clean_mapping(
    mapping: Mapping[Any, Any], length: int | None, depth: int = 0, nested: Nested | None = None
) -> dict[str, Any]:
    return {
        key if isinstance(key, str) else str(key): clean(value, length, depth, nested)
        for key, value in mapping.items()
        if key and (isinstance(key, str) or _has_text(key))
    }


def _has_text(value: Any) -> bool:
    """Whether the value's text says more than its type and address."""
    plain: tuple[object, object] = (object.__str__, object.__repr__)
    return (type(value).__str__, type(value).__repr__) != plain
