"""All spans as OTLP-JSON lines in one file, without duplicates, for the Collector's ``otlp_json_file`` receiver.

Lines of OTLP-JSON files are copied unchanged, unless they hold a duplicate span, text that is not valid Unicode, or
attributes to redact: those are rewritten. Lines of other signals, such as metrics, are left out. Spans from a spool are
written without the version of their scope, and bytes from a store of runs as text in base64.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.otlp_json_read import MALFORMED
from ray_tracing_hooks._formats.packed import unpacked
from ray_tracing_hooks._insight.ingest.files import PARQUET, UNREADABLE, is_segment, lines_of, reason
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.ingest.otlp_json import explain, groups_of, time_of
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._insight.model.span import HIDDEN, Span
from ray_tracing_hooks._insight.views.exports.selection import Source, as_json, encoded
from ray_tracing_hooks._insight.views.redaction import Redaction

_SPANS_A_LINE = 100

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate, perhaps a lone one, which strict readers refuse."""

_Line = list[int]
"""The positions of the spans of a line that are left out."""


def write(source: Source, out: BinaryIO) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    segments = [path for path in source.files if is_segment(path) or path.endswith(PARQUET)]
    files = [path for path in source.files if path not in segments]
    # The spool is read before the files, since spans move from the spool to files. Of equal records, the file's wins.
    spooled, quality = read(segments, source.on_bytes)
    wanted = source.traces
    spooled = [span for span in spooled if wanted is None or span.trace_id in wanted]
    chosen = _Chosen()
    lines = {path: _looked_through(path, wanted, chosen, quality, source.on_bytes) for path in files}
    of_spool: _Line = []
    for position, span in enumerate(spooled):
        rank = _rank(span.end_ns, is_estimated=span.state == "lost")
        chosen.add(span.trace_id + span.span_id, rank, of_spool, position)
    quality.spans = len(chosen)
    quality.duplicates = chosen.duplicates
    source.on_read(len(chosen), quality)
    problems = [note for path in files if (note := _copy(source, out, path, lines[path]))]
    left_out = set(of_spool)
    unended = _write_spooled(source, out, [s for position, s in enumerate(spooled) if position not in left_out])
    if unended:
        problems.append(f"{unended:,} spans have no end: they are still running, or their process died")
    return problems


# --- which record of a span is used -------------------------------------------------------------------------------


class _Chosen:
    """The best record of each span so far; the others are marked in their lines."""

    def __init__(self) -> None:
        self._best: dict[bytes, tuple[int, _Line, int]] = {}
        self.duplicates = 0

    def __len__(self) -> int:
        return len(self._best)

    def add(self, ids: str, rank: int, line: _Line, position: int) -> None:
        """Note a record; ``ids`` are its trace id and span id. Raises ValueError if they are invalid."""
        key = bytes.fromhex(ids)
        if len(key) != 24 or not any(key[:16]) or not any(key[16:]):
            raise ValueError(f"the ids {ids!r} are not 24 bytes in hex")
        best = self._best.setdefault(key, (rank, line, position))
        if best[1] is line and best[2] == position:
            return
        self.duplicates += 1
        if rank > best[0]:
            self._best[key] = (rank, line, position)
            line, position = best[1], best[2]
        line.append(position)


def _rank(end_ns: int, *, is_estimated: bool) -> int:
    """Ranks a record with an end higher, then one with a recorded end, then one with a later end."""
    return bool(end_ns) << 66 | (not is_estimated) << 65 | end_ns


def _looked_through(
    path: str, wanted: frozenset[str] | None, chosen: _Chosen, quality: Quality, on_bytes: Callable[[int], None]
) -> dict[int, _Line]:
    """The lines with spans, by number, and the spans to leave out of each."""
    found: dict[int, _Line] = {}
    quality.files += 1
    last = 0
    try:
        with open(path, "rb") as raw:
            before = 0
            for number, text in lines_of(unpacked(path, raw)):
                quality.lines += 1
                last = number
                left_out: _Line = []
                problem, bad_spans = "", 0
                try:
                    if text is None:
                        raise ValueError("the line is too long")
                    for position, described in enumerate(_spans(json.loads(text))):
                        found[number] = left_out
                        try:
                            if wanted is not None and described["traceId"].lower() not in wanted:
                                left_out.append(position)
                                continue
                            time_of(described.get("startTimeUnixNano"))
                            end, attributes = time_of(described.get("endTimeUnixNano")), described.get("attributes")
                            is_estimated = any(each.get("key") == names.RAY_END_ESTIMATED for each in attributes or ())
                            rank = _rank(end, is_estimated=is_estimated)
                            chosen.add(described["traceId"] + described["spanId"], rank, left_out, position)
                        except MALFORMED as error:
                            left_out.append(position)
                            problem = problem or f"a span that is not OTLP: {explain(error)}"
                            bad_spans += 1
                except MALFORMED as error:
                    if text is None or text.endswith(b"\n"):
                        problem, bad_spans = f"not OTLP: {explain(error)}", 0
                if problem:
                    quality.bad(path, number, problem, bad_spans)
                on_bytes(raw.tell() - before)
                before = raw.tell()
    except UNREADABLE as error:
        quality.incomplete(path, last, reason(error))
    return found


def _spans(document: Any) -> Iterator[dict[str, Any]]:
    """The spans of a line. Raises one of ``MALFORMED`` if it has another structure, or other names for its members."""
    for group in groups_of(document):
        yield from group.spans


# --- writing ------------------------------------------------------------------------------------------------------


def _copy(source: Source, out: BinaryIO, path: str, lines: Mapping[int, _Line]) -> str:
    """Write the lines of a file that were looked through. Returns a description of the problem, if any."""
    problems: list[str] = []
    out.writelines(_copies(source, path, lines, problems) if lines else ())
    return "".join(problems)


def _copies(source: Source, path: str, lines: Mapping[int, _Line], problems: list[str]) -> Iterator[bytes]:
    """The lines to write. Adds a description of what cannot be read, if anything, to ``problems``."""
    done = 0
    try:
        with open(path, "rb") as raw:
            for number, text in lines_of(unpacked(path, raw)):
                if text is None or number not in lines:
                    continue
                yield _copied(text, frozenset(lines[number]), source.redaction)
                done += 1
                if done == len(lines):
                    break  # what follows cannot be read, or has no spans
    except (*UNREADABLE, *MALFORMED) as error:
        problems.append(f"{path}: {reason(error)}; {len(lines) - done:,} of its lines are missing")


def _copied(text: bytes, left_out: frozenset[int], redaction: Redaction) -> bytes:
    """The line without the spans at these positions, redacted; empty if no span is left."""
    is_one_line = text.find(b"\n") in {-1, len(text) - 1}
    if left_out or not is_one_line or not redaction.shows_all or _SURROGATE.search(text):
        document = json.loads(text)
        if not _leave_out(document, left_out):
            return b""
        _redact(document, redaction)
        return _line(document)
    return text if text.endswith(b"\n") else text + b"\n"


def _line(document: dict[str, Any]) -> bytes:
    """A line in plain ASCII, like all lines of this package, so that no reader mistakes a character for a line end."""
    text = encoded(as_json(document)).decode()
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text).encode() + b"\n"


def _leave_out(document: dict[str, Any], positions: frozenset[int]) -> bool:
    """Remove the spans at these positions. Returns whether any are left."""
    position = 0
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans.get("scopeSpans") or ():
            kept = []
            for span in scope_spans.get("spans") or ():
                if position not in positions:
                    kept.append(span)
                position += 1
            scope_spans["spans"] = kept
    return position > len(positions)


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
