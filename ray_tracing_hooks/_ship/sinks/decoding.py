"""Resources and scopes, decoded once for many batches; malformed ones are empty."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ray_tracing_hooks._formats.encoded_span.decode import Scope, decode_resource, decode_scope
from ray_tracing_hooks._formats.protobuf import FormatError


@lru_cache(maxsize=1024)
def resource_of(encoded: bytes) -> Mapping[str, Any]:
    """The attributes of an encoded resource."""
    try:
        return decode_resource(encoded)
    except FormatError:
        return {}


@lru_cache(maxsize=1024)
def scope_of(encoded: bytes) -> Scope:
    """An encoded scope."""
    try:
        return decode_scope(encoded)
    except FormatError:
        return Scope("", "", {})
