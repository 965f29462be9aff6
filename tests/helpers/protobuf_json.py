"""What protobuf's own classes make of an OTLP message in JSON."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def by_protobuf(message: Message) -> Any:
    """The message as protobuf's JSON, with the ids in hex and integer enums: an account independent of ours."""
    described = MessageToDict(message, use_integers_for_enums=True)
    links = described.get("links", [])
    for holder in (described, *links):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in holder:
                holder[name] = base64.b64decode(holder[name]).hex()
    return described
