"""Attributes of an encoded span that are set again."""

from __future__ import annotations

from collections.abc import Iterable

from ray_tracing_hooks._formats.encoded_span.encode import attribute_key
from ray_tracing_hooks._formats.encoded_span.tags import SpanTag
from ray_tracing_hooks._formats.protobuf import encoded_field, fields


def without_attributes(span: bytes, keys: Iterable[str]) -> bytes:
    """The encoded span without its attributes of these keys: OTLP allows each key once.

    Raises FormatError if the span is malformed.
    """
    begins = tuple(map(attribute_key, keys))
    return b"".join(
        encoded_field(tag, value)
        for tag, value in fields(span)
        if tag != SpanTag.ATTRIBUTES or not value.startswith(begins)
    )
