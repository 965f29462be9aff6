"""OTLP in JSON as protobuf's own classes write and read it."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_IDS = ("traceId", "spanId", "parentSpanId")


def by_protobuf(message: Message) -> Any:
    """The message as protobuf's JSON, with the ids in hex and integer enums: an account independent of ours."""
    described = MessageToDict(message, use_integers_for_enums=True)
    links = described.get("links", [])
    for holder in (described, *links):
        for name in _IDS:
            if name in holder:
                holder[name] = base64.b64decode(holder[name]).hex()
    return described


def with_protobuf_ids(value: Any) -> Any:
    """OTLP-JSON as protobuf's own JSON, which has base64 for its hexadecimal ids: the one difference in the way."""
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode() if key in _IDS else with_protobuf_ids(item)
            for key, item in value.items()
        }
    return [with_protobuf_ids(item) for item in value] if isinstance(value, list) else value
