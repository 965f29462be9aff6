"""All spans as OTLP-JSON lines in one file, without duplicates, for the Collector's ``otlp_json_file`` receiver.

Lines of OTLP-JSON files are copied, unless they hold a duplicate span or text that is not valid Unicode, or something
is to be hidden. Other spans are written anew: their bytes become text in base64, and those from a spool have no version
of their scope.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._insight.analysis.wording import count
from ray_tracing_hooks._insight.ingest.files import PARQUET, UNREADABLE, FilePart, is_segment
from ray_tracing_hooks._insight.ingest.lines import lines_in
from ray_tracing_hooks._insight.ingest.otlp_json import document_of, groups_of
from ray_tracing_hooks._insight.model.span import HIDDEN, Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.exports import as_json, encoded, gone
from ray_tracing_hooks._insight.views.redaction import Redaction

_SPANS_A_LINE = 100
_SPANS_AT_ONCE = 10_000

_SERVICE = "service.name"
"""Kept without other attributes, since backends group spans by it."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate, perhaps a lone one, which strict readers refuse."""


def write(table: Table, redaction: Redaction, out: BinaryIO, on_spans: Callable[[int], None]) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    lines: dict[str, dict[int, list[int]]] = {}
    others = []
    for row in range(len(table)):
        path, offset = table.line_of(row)
        if offset < 0 or is_segment(path) or path.endswith(PARQUET) or not redaction.shows_all:
            others.append(row)
        else:
            lines.setdefault(path, {}).setdefault(offset, []).append(row)
    for path, wanted in lines.items():
        others += _copy(path, wanted, out, on_spans)
    rows, unended = table.as_recorded(others), 0
    for at in range(0, len(rows), _SPANS_AT_ONCE):
        spans = list(map(table.recorded, rows[at : at + _SPANS_AT_ONCE]))
        unended += sum(not span.end_ns for span in spans)
        _write(redaction, out, spans)
        on_spans(len(spans))
    found = gone(table)
    if unended:
        found.append(f"{count(unended, 'span')} without an end: still running, or its process died")
    return found


def _copy(path: str, lines: dict[int, list[int]], out: BinaryIO, on_spans: Callable[[int], None]) -> list[int]:
    """Copy the lines of a file at these offsets, which hold these rows. Returns the rows of the others: lines with more
    or fewer spans, and those that can no longer be read.
    """
    left: list[int] = []
    try:
        raw = open(path, "rb")  # noqa: SIM115  closed below
    except OSError:
        return [row for rows in lines.values() for row in rows]
    with raw:
        found = lines_in(FilePart(path), raw)
        while lines:
            try:
                _, offset, text = next(found)
                if text is None or offset not in lines:
                    continue
                number = sum(len(group.spans) for group in groups_of(document_of(text)))
            except (StopIteration, *UNREADABLE, *MALFORMED):
                break
            rows = lines.pop(offset)
            if number != len(rows):
                left += rows
                continue
            is_plain = not _SURROGATE.search(text) and text.find(b"\n") in {-1, len(text) - 1}
            out.write(text.rstrip(b"\n") + b"\n" if is_plain else _line(json.loads(text)))
            on_spans(number)
    return left + [row for rows in lines.values() for row in rows]


def _line(document: dict[str, Any]) -> bytes:
    """A line in plain ASCII, like all lines of this package, so that no reader mistakes a character for a line end."""
    text = encoded(as_json(document)).decode()
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text).encode() + b"\n"


def _shown(span: Span, redaction: Redaction) -> Span:
    """The span without what is hidden."""
    if redaction.shows_all:
        return span
    resource: Mapping[str, Any] = redaction.shown(span.resource)
    if not redaction.attributes and _SERVICE in span.resource:
        resource = {_SERVICE: HIDDEN if redaction.hides(_SERVICE) else span.resource[_SERVICE]}

    def shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
        return dict(redaction.shown(attributes))

    def state(text: str) -> str:
        return text if redaction.attributes else ""

    return replace(
        span,
        resource=dict(resource),
        attributes=shown(span.attributes),
        scope_attributes=shown(span.scope_attributes),
        status_message=redaction.message(span.status_message),
        trace_state=state(span.trace_state),
        events=[each._replace(attributes=shown(each.attributes)) for each in span.events],
        links=[
            each._replace(attributes=shown(each.attributes), trace_state=state(each.trace_state)) for each in span.links
        ],
    )


def _write(redaction: Redaction, out: BinaryIO, spans: Sequence[Span]) -> None:
    groups: dict[tuple[int, str, str, str], list[Span]] = {}
    for span in spans:
        key = id(span.resource), span.scope, span.scope_version, as_json(span.scope_attributes)
        groups.setdefault(key, []).append(span)
    for group in groups.values():
        for first in range(0, len(group), _SPANS_A_LINE):
            shown = [_shown(span, redaction) for span in group[first : first + _SPANS_A_LINE]]
            scope = {"name": shown[0].scope, "version": shown[0].scope_version}
            scope_spans = {
                "scope": {**scope, "attributes": _attributes(shown[0].scope_attributes)},
                "spans": list(map(_described, shown)),
            }
            resource = {"attributes": _attributes(shown[0].resource)}
            out.write(_line({"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}))


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
