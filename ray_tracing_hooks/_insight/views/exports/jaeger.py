"""The JSON that Jaeger's UI accepts as an uploaded file: traces with their processes, as its query service returns.

Spans have the same tags and logs as if they had been sent to Jaeger. Times are in microseconds, the only unit of this
format.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from ray_tracing_hooks._formats import jaeger
from ray_tracing_hooks._formats.encoded_span import decode as encoded_spans
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import RUNNING, Table
from ray_tracing_hooks._insight.views.exports.selection import Source, as_json, encoded

_MANY = 1000
_REFERENCES = {jaeger.CHILD_OF: "CHILD_OF", jaeger.FOLLOWS_FROM: "FOLLOWS_FROM"}


def write(source: Source, out: BinaryIO) -> Sequence[str]:
    """Write all spans; returns notes for the user."""
    table = source.table
    of_trace: list[array[int]] = [array("L") for _ in table.traces]
    for row, trace in enumerate(table.trace):
        of_trace[trace].append(row)
    out.write(b'{"data":[')
    separator = "\n"
    for trace_id, rows in zip(table.traces, of_trace, strict=True):
        if not rows:
            continue
        out.write(encoded(f'{separator}{{"traceID":"{trace_id}","spans":['))
        separator = ",\n"
        out.writelines(
            encoded((",\n" if position else "\n") + line) for position, line in enumerate(_spans(source, table, rows))
        )
        out.write(encoded(f'\n],"processes":{as_json(_processes(source, table, rows))}}}'))
    out.write(b"\n]}\n")
    told = ["Jaeger's JSON has times in microseconds: nanoseconds are cut off"]
    if running := table.state.count(RUNNING):
        told.append(f"{running:,} spans are still running: they end at the time of reading, with a warning")
    return told


def _spans(source: Source, table: Table, rows: Sequence[int]) -> Iterator[str]:
    for done, row in enumerate(table.as_recorded(rows), 1):
        span = table.span(row)
        made = jaeger.jaeger_span(
            _as_decoded(source, span, table.end_or_now(row)), encoded_spans.Scope(span.scope, "", {})
        )
        trace_id, span_id = span.trace_id, span.span_id
        references = [("CHILD_OF", trace_id, span.parent_id)] if span.parent_id else []
        references += [(_REFERENCES[kind], trace.hex(), parent.hex()) for kind, trace, parent in made.links]
        yield as_json(
            {
                "traceID": trace_id,
                "spanID": span_id,
                "flags": jaeger.SAMPLED,
                "operationName": made.name,
                "references": [
                    {"refType": kind, "traceID": trace, "spanID": parent} for kind, trace, parent in references
                ],
                "startTime": made.start_ns // 1000,
                # From the truncated ends, so that truncation makes no child outlast its parent.
                "duration": (made.start_ns + made.duration_ns) // 1000 - made.start_ns // 1000,
                "tags": [_tag(key, value) for key, value in made.tags],
                "logs": [
                    {"timestamp": log.time_ns // 1000, "fields": [_tag(key, value) for key, value in log.fields]}
                    for log in made.logs
                ],
                "processID": f"p{table.resource[row] + 1}",
                "warnings": [f"{span.state}: the end is when this was written"] if span.state == "running" else None,
            }
        )
        if done % _MANY == 0:
            source.on_spans(_MANY)
    source.on_spans(len(rows) % _MANY)


def _as_decoded(source: Source, span: Span, end_ns: int) -> encoded_spans.Span:
    shown = source.shown
    return encoded_spans.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        trace_state="",
        parent_span_id=bytes.fromhex(span.parent_id),
        name=span.name,
        kind=span.kind,
        start_ns=span.start_ns,
        end_ns=end_ns,
        attributes=dict(shown(span.attributes)),
        dropped_attributes=0,
        events=[encoded_spans.Event(each.time_ns, each.name, dict(shown(each.attributes)), 0) for each in span.events],
        dropped_events=0,
        links=[
            encoded_spans.Link(
                bytes.fromhex(each.trace_id), bytes.fromhex(each.span_id), "", dict(shown(each.attributes)), 0, 0
            )
            for each in span.links
        ],
        dropped_links=0,
        status_code=span.status_code,
        status_message=source.redaction.message(span.status_message),
        flags=0,
    )


def _processes(source: Source, table: Table, rows: Sequence[int]) -> dict[str, Any]:
    found = {}
    for resource in sorted({table.resource[row] for row in rows}):
        attributes = table.resources[resource]
        service = {"service.name": attributes["service.name"]} if "service.name" in attributes else {}
        made = jaeger.process({**source.shown(attributes), **service})
        found[f"p{resource + 1}"] = {
            "serviceName": made.service,
            "tags": [_tag(key, value) for key, value in made.tags],
        }
    return found


def _tag(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "type": "bool", "value": value}
    if isinstance(value, int):
        return {"key": key, "type": "int64", "value": value}
    if isinstance(value, float):
        return {"key": key, "type": "float64", "value": value}
    if isinstance(value, bytes):
        return {"key": key, "type": "binary", "value": base64.b64encode(value).decode()}
    return {"key": key, "type": "string", "value": value}
