"""Parses OTLP-JSON text into encoded OTLP messages: the reverse of :mod:`~ray_tracing_hooks._formats.otlp_json`.

It accepts OTLP's JSON protobuf encoding (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), and
everything that protobuf's own parsers accept: numbers as text, names of enums, names of fields with underscores, null
for a default, ids in base64. Unknown fields are ignored, and so are schema URLs.

Protobuf's own parser for JSON takes several times as long, and does not know hexadecimal ids.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, BinaryIO, cast

from ray_tracing_hooks._formats.otlp import Group
from ray_tracing_hooks._formats.protobuf import FormatError, utf8

_OTHER_SIGNALS = (
    *("resourceMetrics", "resourceLogs", "resourceProfiles"),
    *("resource_metrics", "resource_logs", "resource_profiles"),
)
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading raises if the text or its members are not OTLP-JSON."""

MAX_LINE = 64 * 1024 * 1024
"""A longer line is treated as damage. The lines that this package writes stay below 1 MiB."""


def whole(line: bytes, readline: Callable[[int], bytes]) -> bytes:
    """A line with what belongs to it: after a line with nothing but a brace follow those of its object, which another
    program has written over many lines. At most ``MAX_LINE`` bytes are read.
    """
    if len(line) > _LONE_BRACE or line.rstrip() != b"{":
        return line
    lines, left = [line], MAX_LINE
    while left and (line := readline(left)):
        lines.append(line)
        left -= len(line)
        if line.rstrip() == b"}":
            break
    return b"".join(lines)


_LONE_BRACE = len(b"{\r\n")
_BLOCK = 64 * 1024
_MOST_RATIO, _ALWAYS = 200, 64 * 1024 * 1024
"""Spans compress to about a fortieth of their size, since ids and times differ; gzip can reach a thousandth."""


def unpacked(path: str, raw: BinaryIO) -> BinaryIO:
    """An open file for reading lines, decompressed if its name ends in ``.gz``.

    Reading raises EOFError where the compressed data ends too early, as while it is being written, and ValueError where
    it is damaged: some kilobytes before that place may be missing too. It also raises ValueError once far more data has
    come out than spans can compress to: some kilobytes may decompress to gigabytes.
    """
    return cast("BinaryIO", io.BufferedReader(_Unpacked(raw), _BLOCK)) if path.endswith(".gz") else raw


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, with errors that readers of lines know."""

    def __init__(self, raw: BinaryIO) -> None:
        self._file = gzip.GzipFile(fileobj=raw, mode="rb")
        self._most = max(_ALWAYS, _MOST_RATIO * os.fstat(raw.fileno()).st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        try:
            found = self._file.read1(len(buffer))
        except gzip.BadGzipFile as error:
            is_other = not self._file.tell()
            raise ValueError(
                "it is not compressed with gzip" if is_other else f"its compressed data is damaged ({error})"
            ) from None
        except zlib.error as error:
            raise ValueError(f"its compressed data is damaged ({error})") from None
        except EOFError:
            why = "the compressed data ends too early, as if it was cut or is still being written"
            raise EOFError(why) from None
        if self._file.tell() > self._most:
            raise ValueError(f"it decompresses to more than {_MOST_RATIO} times its size, which no file of spans does")
        buffer[: len(found)] = found
        return len(found)


def traces(line: bytes | str) -> tuple[list[Group], list[str]]:
    """The spans of one line, a ``TracesData``, and the reason for each span that had to be left out.

    A line of metrics, logs or profiles has no spans. Raises FormatError if the line is not OTLP-JSON.
    """
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope  # noqa: PLC0415  few readers need them
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: PLC0415

    try:
        document = json.loads(line)
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {explained(error)}") from error
    except (ValueError, RecursionError) as error:  # text that is not UTF-8, a number with too many digits
        raise FormatError(f"not JSON: {error}") from error
    groups: list[Group] = []
    wrong: list[str] = []
    try:
        for resource_spans in _resource_spans(document):
            resource = _encoded(Resource(), resource_spans.get("resource") or {})
            for scope_spans in _member(resource_spans, "scopeSpans", "scope_spans") or ():
                scope = _encoded(InstrumentationScope(), scope_spans.get("scope") or {})
                spans = []
                for described in scope_spans.get("spans") or ():
                    try:
                        spans.append(_span(described))
                    except MALFORMED as error:
                        wrong.append(f"a span that is not OTLP: {error}")
                if spans:
                    groups.append(Group(resource, scope, spans))
    except MALFORMED as error:
        raise FormatError(f"not OTLP traces: {error}") from error
    return groups, wrong


def _resource_spans(document: Any) -> Any:
    found = _member(document, "resourceSpans", "resource_spans")
    if found is None and not any(signal in document for signal in _OTHER_SIGNALS):
        raise FormatError("expected an object with resourceSpans")
    return found or ()


def explained(error: json.JSONDecodeError) -> str:
    """What is wrong with a line that is not JSON; the error's own text counts lines within this line."""
    return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"


def _member(described: Mapping[str, Any], name: str, also: str) -> Any:
    value = described.get(name)
    return described.get(also) if value is None else value


def _span(described: Mapping[str, Any]) -> bytes:
    """The encoded span, its ids first. Receivers would refuse a span whose ids have a wrong size."""
    from opentelemetry.proto.trace.v1.trace_pb2 import Span  # noqa: PLC0415  as above

    span = Span()
    encoded = _encoded(span, described)
    if len(span.trace_id) != 16 or len(span.span_id) != 8 or len(span.parent_span_id) not in (0, 8):
        raise FormatError("an id has the wrong size: a trace id has 16 bytes, a span id 8")
    if not any(span.trace_id) or not any(span.span_id):
        raise FormatError("its ids are zero")
    if span.parent_span_id and not any(span.parent_span_id):
        span.ClearField("parent_span_id")
        return span.SerializeToString()
    return encoded


def _encoded(message: Any, described: Mapping[str, Any]) -> bytes:
    from google.protobuf.message import DecodeError  # noqa: PLC0415  as above

    _fill(message, described)
    encoded: bytes = message.SerializeToString()
    try:
        message.FromString(encoded)
    except DecodeError:
        raise FormatError("an attribute's value is nested deeper than a reader of protobuf takes") from None
    return encoded


def _fill(message: Any, described: Mapping[str, Any]) -> None:
    kind: Any = type(message)
    members = _members(kind)
    for name, value in described.items():
        if value is not None and (assign := members.get(name)):
            assign(message, value)


_Assign = Callable[[Any, Any], None]


@cache
def _members(kind: Any) -> Mapping[str, _Assign]:
    """How each member of a message's JSON is assigned, by its names with and without underscores."""
    blank, found = kind(), {}
    for field in kind.DESCRIPTOR.fields:
        name = field.name
        if field.message_type is None and hasattr(getattr(blank, name), "append"):
            continue  # a list of texts, such as the keys of an entity, which nothing here needs
        if field.message_type is not None:
            is_list = hasattr(getattr(blank, name), "add")
            assign = _items(name) if is_list else _part(name)
        elif field.enum_type is not None:
            assign = _plain(name, _enum({each.name: each.number for each in field.enum_type.values}))
        elif field.type == field.TYPE_BYTES:
            assign = _plain(name, _id if name.endswith("_id") else _base64)
        elif field.type == field.TYPE_STRING:
            assign = _plain(name, _text)
        else:
            assign = _plain(name, _OTHER.get(field.type, _integer))
        found[name] = found[field.json_name] = assign
    return found


def _plain(name: str, convert: Callable[[Any], Any]) -> _Assign:
    return lambda message, value: setattr(message, name, convert(value))


def _part(name: str) -> _Assign:
    def assign(message: Any, value: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        _fill(part, value)

    return assign


def _items(name: str) -> _Assign:
    def assign(message: Any, value: Any) -> None:
        if not isinstance(value, list):
            raise FormatError(f"{value!r:.100} where a list is expected")
        items = getattr(message, name)
        for item in value:
            _fill(items.add(), item)

    return assign


def _text(value: str) -> bytes:
    """Protobuf takes UTF-8 for a text."""
    if not isinstance(value, str):
        raise FormatError(f"{value!r:.100} where a text is expected")
    return utf8(value)


def _id(text: str) -> bytes:
    """An id in hexadecimal, or in base64 as in protobuf's JSON."""
    return base64.b64decode(text, validate=True) if text.endswith("=") else binascii.unhexlify(text)


def _base64(text: str) -> bytes:
    """Base64, also in its URL-safe form, and without padding."""
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _integer(value: Any) -> int:
    """A number, or a number as text, possibly in a form such as 1e3."""
    if isinstance(value, bool):
        raise FormatError(f"{value!r} where a number is expected")
    try:
        number = int(value)
    except ValueError:
        number = int(float(value))
    if isinstance(value, float) and number != value:
        raise FormatError(f"{value!r} where a whole number is expected")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FormatError(f"{value!r:.100} where true or false is expected")
    return value


def _enum(numbers: Mapping[str, int]) -> Callable[[Any], int]:
    return lambda value: numbers[value] if value in numbers else _integer(value)


_OTHER: Mapping[int, Callable[[Any], Any]] = {1: float, 8: _boolean}
"""By protobuf's numbers of types: doubles, of which Python also reads NaN and Infinity as text, and booleans."""


def _names(prefix: str, *names: str) -> dict[str, int]:
    return {prefix + name: number for number, name in enumerate(names)}


KINDS = _names("SPAN_KIND_", "UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES = _names("STATUS_CODE_", "UNSET", "OK", "ERROR")
"""The numbers of kinds and status codes by the names that protobuf has for them."""
