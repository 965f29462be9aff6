"""Span limits, by the variables of the OpenTelemetry specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_COUNT_DEFAULT = 128


class SpanLimits(NamedTuple):
    """What one span may hold. None means no limit."""

    attributes: int | None = _COUNT_DEFAULT
    value_length: int | None = None
    events: int | None = _COUNT_DEFAULT
    links: int | None = _COUNT_DEFAULT
    event_attributes: int | None = _COUNT_DEFAULT
    link_attributes: int | None = _COUNT_DEFAULT

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SpanLimits:
        """The limits that ``environ`` sets; empty and wrong values count as unset, as the specification asks."""
        count = _limit(environ, "OTEL_ATTRIBUTE_COUNT_LIMIT", _COUNT_DEFAULT)
        length = _limit(environ, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", None)
        return cls(
            attributes=_limit(environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", count),
            value_length=_limit(environ, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", length),
            events=_limit(environ, "OTEL_SPAN_EVENT_COUNT_LIMIT", _COUNT_DEFAULT),
            links=_limit(environ, "OTEL_SPAN_LINK_COUNT_LIMIT", _COUNT_DEFAULT),
            event_attributes=_limit(environ, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", count),
            link_attributes=_limit(environ, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", count),
        )


def _limit(environ: Mapping[str, str], variable: str, default: int | None) -> int | None:
    value = environ.get(variable, "").strip()
    return int(value) if value.isascii() and value.isdigit() else default


def clip(value: Any, length: int | None) -> Any:
    """The value with its texts cut to ``length`` characters."""
    if length is None:
        return value
    if isinstance(value, str):
        return value[:length]
    if isinstance(value, (list, tuple)):
        return [item[:length] if isinstance(item, str) else item for item in value]
    return value
