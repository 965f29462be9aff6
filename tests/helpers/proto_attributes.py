"""Attributes of OTLP messages as Python values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from opentelemetry.proto.common.v1.common_pb2 import KeyValue


class HasAttributes(Protocol):
    """A span, an event of one, a log record, ..."""

    @property
    def attributes(self) -> Iterable[KeyValue]: ...


def attributes(item: HasAttributes) -> dict[str, Any]:
    """By key, what is in the field of the value that is set."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in item.attributes}
