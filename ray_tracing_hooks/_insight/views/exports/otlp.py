"""All spans as OTLP-JSON lines in one file, without duplicates, for the Collector's ``otlp_json_file`` receiver.

Lines of OTLP-JSON files are copied unchanged, unless they hold a duplicate span, text that is not valid Unicode, or
attributes to redact: those are rewritten. Lines of other signals, such as metrics, are left out. Spans from a spool are
written without the version of their scope, and bytes from a store of runs as text in base64.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._insight.ingest.files import PARQUET, UNREADABLE, Part, is_segment, reason
from ray_tracing_hooks._insight.ingest.lines import lines_in
from ray_tracing_hooks._insight.ingest.otlp_json import document_of, groups_of
from ray_tracing_hooks._insight.model.span import HIDDEN, Span
from ray_tracing_hooks._insight.views.exports.selection import Source, as_json, encoded
from ray_tracing_hooks._insight.views.redaction import Redaction

_SPANS_A_LINE = 100

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate, perhaps a lone one, which strict readers refuse."""


def write(source: Source, out: BinaryIO) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    table = source.table
    lines: dict[str, dict[int, set[int]]] = {}
    others = []
    for row in range(len(table)):
        path, offset, place = source.lines.place(table.number_of(row))
        if offset < 0 or is_segment(path) or path.endswith(PARQUET):
            others.append(row)
        else:
            lines.setdefault(path, {}).setdefault(offset, set()).add(place)
    problems: list[str] = []
    for path, wanted in lines.items():
        out.writelines(_copies(source, path, wanted, problems))
    unended = _write_spooled(source, out, list(map(table.recorded, table.as_recorded(others))))
    if unended:
        problems.append(f"{unended:,} spans have no end: they are still running, or their process died")
    return problems


def _copies(source: Source, path: str, lines: Mapping[int, set[int]], problems: list[str]) -> Iterator[bytes]:
    """The lines of a file at these offsets, with these of their spans. Adds what cannot be read to ``problems``."""
    done = 0
    try:
        with open(path, "rb") as raw:
            for _, offset, text in lines_in(Part(path), raw):
                if text is None or offset not in lines:
                    continue
                yield _copied(text, lines[offset], source.redaction)
                done += 1
                if done == len(lines):
                    break  # what follows cannot be read, or has no spans
    except (*UNREADABLE, *MALFORMED) as error:
        problems.append(f"{path}: {reason(error)}; {len(lines) - done:,} of its lines are missing")


def _copied(text: bytes, wanted: set[int], redaction: Redaction) -> bytes:
    """The line with the spans at these positions, redacted."""
    is_one_line = text.find(b"\n") in {-1, len(text) - 1}
    is_whole = sum(len(group.spans) for group in groups_of(document_of(text))) == len(wanted)
    if not is_whole or not is_one_line or not redaction.shows_all or _SURROGATE.search(text):
        document = json.loads(text)
        _leave_out(document, wanted)
        _redact(document, redaction)
        return _line(document)
    return text if text.endswith(b"\n") else text + b"\n"


def _line(document: dict[str, Any]) -> bytes:
    """A line in plain ASCII, like all lines of this package, so that no reader mistakes a character for a line end."""
    text = encoded(as_json(document)).decode()
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text).encode() + b"\n"


def _leave_out(document: dict[str, Any], wanted: set[int]) -> None:
    """Remove all spans but those at these positions."""
    position = 0
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans.get("scopeSpans") or ():
            kept = []
            for span in scope_spans.get("spans") or ():
                if position in wanted:
                    kept.append(span)
                position += 1
            scope_spans["spans"] = kept


def _redact(document: dict[str, Any], redaction: Redaction) -> None:
    if redaction.shows_all:
        return
    for resource_spans in document["resourceSpans"]:
        if resource := resource_spans.get("resource"):
            _redact_attributes(resource, redaction, keep="service.name")
        for scope_spans in resource_spans.get("scopeSpans") or ():
            if scope := scope_spans.get("scope"):
                _redact_attributes(scope, redaction)
            for span in scope_spans.get("spans") or ():
                for holder in (span, *(span.get("events") or ()), *(span.get("links") or ())):
                    _redact_attributes(holder, redaction)
                    if not redaction.attributes:
                        holder.pop("traceState", None)
                status = span.get("status") or {}
                if message := status.pop("message", None):
                    status["message"] = redaction.message(message)


def _redact_attributes(holder: dict[str, Any], redaction: Redaction, keep: str = "") -> None:
    attributes = holder.get("attributes")
    if not attributes:
        return
    if not redaction.attributes:
        attributes = [each for each in attributes if each.get("key") == keep]
    holder["attributes"] = _redacted(attributes, redaction)


def _redacted(pairs: list[dict[str, Any]], redaction: Redaction) -> list[dict[str, Any]]:
    """OTLP-JSON attributes, redacted as by :meth:`Redaction.shown`."""
    return [
        {"key": each["key"], "value": {"stringValue": HIDDEN}}
        if redaction.hides(each.get("key") or "")
        else {**each, "value": _redacted_value(each.get("value"), redaction)}
        for each in pairs
    ]


def _redacted_value(value: Any, redaction: Redaction) -> Any:
    if isinstance(value, dict):
        if pairs := (value.get("kvlistValue") or {}).get("values"):
            return {"kvlistValue": {"values": _redacted(pairs, redaction)}}
        if items := (value.get("arrayValue") or {}).get("values"):
            return {"arrayValue": {"values": [_redacted_value(item, redaction) for item in items]}}
    return value


def _write_spooled(source: Source, out: BinaryIO, spans: Sequence[Span]) -> int:
    """Write spans of a spool. Returns how many of them have no end."""
    groups: dict[tuple[int, str, str, str], list[Span]] = {}
    for span in spans:
        key = id(span.resource), span.scope, span.scope_version, as_json(span.scope_attributes)
        groups.setdefault(key, []).append(span)
    for group in groups.values():
        resource = {"attributes": _attributes(group[0].resource)}
        for first in range(0, len(group), _SPANS_A_LINE):
            described = [_described(span) for span in group[first : first + _SPANS_A_LINE]]
            scope = {"name": group[0].scope, "version": group[0].scope_version}
            scope_spans = [
                {
                    "scope": {**scope, "attributes": _attributes(group[0].scope_attributes)},
                    "spans": described,
                }
            ]
            document = {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}
            _redact(document, source.redaction)
            out.write(_line(document))
    return sum(not span.end_ns for span in spans)


def _described(span: Span) -> dict[str, Any]:
    described: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "traceState": span.trace_state,
        "flags": span.flags,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns) if span.end_ns else "",
        "attributes": _attributes(span.attributes),
        "events": [
            {"timeUnixNano": str(each.time_ns), "name": each.name, "attributes": _attributes(each.attributes)}
            for each in span.events
        ],
        "links": [
            {
                "traceId": each.trace_id,
                "spanId": each.span_id,
                "traceState": each.trace_state,
                "attributes": _attributes(each.attributes),
            }
            for each in span.links
        ],
        "status": {
            key: value for key, value in (("code", span.status_code), ("message", span.status_message)) if value
        },
    }
    members = ("droppedAttributesCount", "droppedEventsCount", "droppedLinksCount")
    described |= zip(members, span.dropped, strict=True)
    return {key: value for key, value in described.items() if value}


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        number: Any = value
        if not math.isfinite(value):
            number = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"doubleValue": number}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _attributes(value)}}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {}
