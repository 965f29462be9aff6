"""Fetches traces from Jaeger (query API v3), Grafana Tempo and the Collector's table in ClickHouse, as OTLP-JSON lines.

An address is one of HTTP with parameters: ``trace=ID``, or ``service=NAME`` with ``last=1h``, or ``start`` and ``end``
in ISO 8601; ``limit`` is the number of traces, ``tenant`` that of Tempo, and ``database`` and ``table`` are those of
ClickHouse. A user and a password in it are sent.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from ray_tracing_hooks._formats.otlp import encode_json
from ray_tracing_hooks._formats.otlp_json_read import traces as encoded_traces
from ray_tracing_hooks._formats.protobuf import FormatError

_PARAMETERS = ("trace", "service", "last", "start", "end", "limit")
_PARAMETERS_OF = {"jaeger": (), "tempo": ("tenant",), "clickhouse": ("database", "table")}
_LIMIT = 1000
_TIMEOUT = 60
_MOST_ANSWER = 1 << 30
_LATEST = float(1 << 37)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_Warn = Callable[[str], None]


class AddressError(ValueError):
    """Something is wrong with an address."""


class _Query:
    """The parts of an address."""

    def __init__(self, kind: str, address: str) -> None:
        """Raises ValueError if there is something wrong with the address."""
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"expected an address such as {kind}:http://HOST:PORT?service=ray&last=1h")
        given = parse_qsl(parts.query, keep_blank_values=True)
        known = (*_PARAMETERS, *_PARAMETERS_OF[kind])
        if unknown := [name for name, _ in given if name not in known]:
            raise ValueError(f"{unknown[0]!r:.40} is no parameter: expected {', '.join(known)}")
        found = dict(given)
        self.kind = kind
        self.ids = [value.lower() for name, value in given if name == "trace"]
        self.service = found.get("service", "")
        if not self.ids and not self.service:
            raise ValueError("give a trace (?trace=ID), or a service (?service=ray&last=1h)")
        if wrong := [each for each in self.ids if not re.fullmatch("[0-9a-f]{1,32}", each)]:
            raise ValueError(f"{wrong[0]!r:.60} is no trace id: expected up to 32 hex digits")
        self.limit = _limit(found.get("limit", str(_LIMIT)))
        self.end = _time(found["end"]) if "end" in found else time.time()
        self.start = _time(found["start"]) if "start" in found else self.end - _seconds(found.get("last", "1h"))
        if self.start >= self.end:
            raise ValueError("the start is not before the end")
        where = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
        try:
            host = f"{where}:{parts.port}" if parts.port else where
        except ValueError:  # with a text that may be part of a password
            raise ValueError("the port is no number up to 65535; in a password, write / as %2F") from None
        self.shown = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.headers = {"Accept": "application/json"}
        self.authorization = ""
        if parts.username is not None:
            user = f"{parts.username}:{parts.password or ''}".encode()
            self.authorization = f"Basic {base64.b64encode(user).decode()}"
        self.database, self.table = found.get("database", "default"), found.get("table", "otel_traces")
        if "tenant" in found:
            self.headers["X-Scope-OrgID"] = found["tenant"]

    def get(self, path: str, parameters: Mapping[str, Any] | None = None) -> bytes | None:
        """The answer; None if there is no such thing. Raises OSError, whose text names the server."""
        url = f"{self.shown}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        # The address is the user's, and has the scheme of HTTP.
        request = urllib.request.Request(url, headers=self.headers)  # noqa: S310
        if self.authorization:  # not for another server that the answer redirects to
            request.add_unredirected_header("Authorization", self.authorization)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                body: bytes = answer.read(_MOST_ANSWER)
                return body
        except urllib.error.HTTPError as error:
            if error.code == http.client.NOT_FOUND:
                return None
            said = " ".join(error.read(300).decode(errors="replace").split())
            raise OSError(
                error.code, f"{self.kind} at {self.shown} answers {error.code} {error.reason}: {said}"
            ) from None
        except (urllib.error.URLError, TimeoutError, http.client.HTTPException, ValueError) as error:
            raise OSError(
                0, f"{self.kind} at {self.shown} does not answer: {getattr(error, 'reason', error)}"
            ) from None


def traces_of(kind: str, address: str, warn: _Warn) -> Iterator[bytes]:
    """The traces at an address, as lines. ``warn`` is called with what the back end left out.

    Raises AddressError, ValueError if something is wrong with the answer, and OSError without one.
    """
    try:
        query = _Query(kind, address)
    except ValueError as error:
        raise AddressError(f"{kind}: {error}") from None
    for document in _documents(query, warn):
        try:
            groups, wrong = encoded_traces(json.dumps(document))
        except (FormatError, RecursionError) as error:
            raise ValueError(f"{kind} at {query.shown} answers with something else than OTLP: {error}") from None
        if wrong:
            warn(f"{len(wrong):,} spans of {kind} at {query.shown} cannot be read (the first: {wrong[0]})")
        line, bad = encode_json(groups)
        if bad:
            warn(f"{bad:,} spans of {kind} at {query.shown} cannot be read")
        yield line + b"\n"


def _documents(query: _Query, warn: _Warn) -> Iterator[dict[str, Any]]:
    try:
        yield from BACKENDS[query.kind](query, warn)
    except (TypeError, AttributeError, RecursionError):
        raise ValueError(f"{query.kind} at {query.shown} answers with something else than traces") from None


def _of_jaeger(query: _Query, warn: _Warn) -> Iterator[dict[str, Any]]:
    if query.ids:
        bodies = [(each, query.get(f"/api/v3/traces/{each}")) for each in query.ids]
    else:
        wanted = {
            "query.service_name": query.service,
            "query.start_time_min": _text(query.start),
            "query.start_time_max": _text(query.end),
            # The second is its name in Jaeger 1.
            "query.search_depth": query.limit,
            "query.num_traces": query.limit,
        }
        bodies = [(query.service, query.get("/api/v3/traces", wanted))]
    for what, body in bodies:
        if body is None:
            warn(f"jaeger at {query.shown} has no trace of {what!r}")
            continue
        seen: set[str] = set()
        # A stream of objects, each with a part of the traces.
        for part in _objects(body, query):
            if "error" in part:
                raise ValueError(f"jaeger at {query.shown}: {json.dumps(part['error'])[:200]}")
            found = part.get("result", part)
            seen.update(_ids(found))
            yield found
        if not query.ids and len(seen) >= query.limit:
            _warn_of_limit(query, len(seen), warn)


def _of_tempo(query: _Query, warn: _Warn) -> Iterator[dict[str, Any]]:
    ids = query.ids
    if not ids:
        wanted = {
            "q": f"{{ resource.service.name = {json.dumps(query.service)} }}",
            "start": max(0, int(query.start)),
            "end": int(query.end) + 1,
            "limit": query.limit,
        }
        body = query.get("/api/search", wanted)
        found = next(_objects(body or b"{}", query), {}).get("traces") or []
        ids = [str(each.get("traceID") or "").zfill(32) for each in found if isinstance(each, dict)]
        if len(ids) >= query.limit:
            _warn_of_limit(query, len(ids), warn)
        if not ids:
            warn(f"tempo at {query.shown} has no traces of the service {query.service!r} in this time")
    for each in ids:
        body = query.get(f"/api/v2/traces/{quote(each)}")
        # Tempo before 2.7 has only the other one.
        is_old = body is None
        body = query.get(f"/api/traces/{quote(each)}") if is_old else body
        if body is None:
            warn(f"tempo at {query.shown} has no trace {each}")
            continue
        answer = next(_objects(body, query), {})
        if answer.get("status") == "PARTIAL" or answer.get("message"):
            warn(
                f"tempo at {query.shown} left out a part of trace {each}: {answer.get('message') or 'it is too large'}"
            )
        trace = answer if is_old else answer.get("trace") or {}
        batches = trace.get("resourceSpans") or trace.get("batches") or []
        yield {"resourceSpans": batches}


_OF_CLICKHOUSE = """
SELECT *, toUnixTimestamp64Nano(Timestamp) AS start_ns,
    arrayMap(each -> toUnixTimestamp64Nano(each), Events.Timestamp) AS event_ns
FROM {database:Identifier}.{table:Identifier}
WHERE TraceId IN {ids:Array(String)} OR TraceId IN (
    SELECT TraceId FROM {database:Identifier}.{table:Identifier}
    WHERE ServiceName = {service:String} AND empty({ids:Array(String)})
        AND toUnixTimestamp64Nano(Timestamp) BETWEEN {start:Int64} AND {end:Int64}
    GROUP BY TraceId ORDER BY max(Timestamp) DESC LIMIT {limit:UInt32}
)
FORMAT JSONEachRow
"""
_ROWS = 1000


def _of_clickhouse(query: _Query, warn: _Warn) -> Iterator[dict[str, Any]]:
    ids = [each.zfill(32) for each in query.ids]
    given: dict[str, Any] = {"database": query.database, "table": query.table, "service": query.service}
    given["ids"] = "[" + ",".join(f"'{each}'" for each in ids) + "]"
    given |= {"start": max(0, int(query.start * 1e9)), "end": min(int(query.end * 1e9), (1 << 63) - 1)}
    given["limit"] = query.limit
    # With GET, nothing is written.
    body = query.get("/", {"query": _OF_CLICKHOUSE} | {f"param_{name}": value for name, value in given.items()})
    if body is None:
        raise ValueError(f"clickhouse at {query.shown} has no table {query.database}.{query.table} of the Collector")
    rows = _objects(body, query)
    seen: set[str] = set()
    while some := list(islice(rows, _ROWS)):
        seen.update(str(each.get("TraceId")) for each in some)
        try:
            yield {"resourceSpans": [_of_row(each) for each in some]}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"clickhouse at {query.shown} has a table of another kind: {error!r:.100}") from None
    if missing := [each for each in ids if each not in seen]:
        warn(f"clickhouse at {query.shown} has no trace {missing[0]}")
    if not ids and len(seen) >= query.limit:
        _warn_of_limit(query, len(seen), warn)


def _of_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of ``otel_traces`` as a span with its resource. Raises KeyError, TypeError or ValueError."""
    start, took = int(row["start_ns"]), int(row["Duration"])
    own = row["SpanAttributes"]
    events = zip(row["event_ns"], row["Events.Name"], row["Events.Attributes"], strict=True)
    links = zip(
        row["Links.TraceId"], row["Links.SpanId"], row["Links.TraceState"], row["Links.Attributes"], strict=True
    )
    span = {
        "traceId": row["TraceId"],
        "spanId": row["SpanId"],
        "parentSpanId": row["ParentSpanId"],
        "traceState": row["TraceState"],
        "name": row["SpanName"],
        # Older versions of the exporter write SPAN_KIND_SERVER, newer ones Server.
        "kind": _KINDS.index(row["SpanKind"].rpartition("_")[2].lower()),
        "startTimeUnixNano": str(start),
        # A span without an end has less than no duration, which the type of the column cannot hold.
        "endTimeUnixNano": str(start + took if 0 <= took < 1 << 63 else 0),
        "attributes": _attributes(own),
        "status": {
            "code": _STATUSES.index(row["StatusCode"].rpartition("_")[2].lower()),
            "message": row["StatusMessage"],
        },
        "events": [
            {"timeUnixNano": str(time), "name": name, "attributes": _attributes(of)} for time, name, of in events
        ],
        "links": [
            {"traceId": trace, "spanId": of, "traceState": state, "attributes": _attributes(attributes)}
            for trace, of, state, attributes in links
        ],
    }
    scope = {"name": row.get("ScopeName", ""), "version": row.get("ScopeVersion", "")}
    resource = {"attributes": _attributes(row["ResourceAttributes"])}
    return {"resource": resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}


_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUSES = ("unset", "ok", "error")


def _attributes(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(name, value)} for name, value in found.items()]


def _value(name: str, text: Any) -> dict[str, Any]:
    """The value that a text stands for: the table has texts alone. Ids stay texts. Raises TypeError."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is no text")
    value: Any = text
    if not name.endswith(("_id", ".id")):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
    match value:
        case bool():
            return {"boolValue": value}
        # What is written in another way, such as 2.60 and 1e5, is no number that the Collector wrote.
        case int() if str(value) == text and -(1 << 63) <= value < 1 << 63:
            return {"intValue": text}
        case float() if repr(value) == text:
            return {"doubleValue": value}
        case list() if not any(isinstance(each, (dict, list)) for each in value):
            parts = [{"stringValue": x} if isinstance(x, str) else _value(name, json.dumps(x)) for x in value]
            return {"arrayValue": {"values": parts}}
    return {"stringValue": text}


def _warn_of_limit(query: _Query, number: int, warn: _Warn) -> None:
    warn(
        f"{query.kind} at {query.shown} returned {number:,} traces, as many as were asked for: there may be more "
        f"(limit={query.limit} in the address)"
    )


def _objects(body: bytes, query: _Query) -> Iterator[dict[str, Any]]:
    """The JSON objects of an answer, one after the other. Raises ValueError if it is something else."""
    decoder = json.JSONDecoder()
    try:
        text = body.decode()
        at = 0
        while at < len(text):
            found, at = decoder.raw_decode(text, at)
            yield _object(found)
            while at < len(text) and text[at].isspace():
                at += 1
    except (ValueError, TypeError):
        raise ValueError(f"{query.kind} at {query.shown} answers with something else than JSON objects") from None


def _object(found: Any) -> dict[str, Any]:
    """A value that has to be an object. Raises TypeError."""
    if not isinstance(found, dict):
        raise TypeError(found)
    return found


def _ids(document: dict[str, Any]) -> Iterator[str]:
    for of_resource in document.get("resourceSpans") or ():
        for of_scope in of_resource.get("scopeSpans") or ():
            for span in of_scope.get("spans") or ():
                yield str(span.get("traceId"))


def _limit(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise ValueError(f"limit={text!r:.20} is not valid: expected a number of traces from 1")
    return int(text)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match is None:
        raise ValueError(f"last={text!r:.20} is not valid: expected a number and s, m, h or d, such as 1h")
    return int(match[1]) * _UNITS[match[2]]


def _time(text: str) -> float:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r:.40} is no time: expected one such as 2026-11-29T14:00:00Z") from None
    return min(found, _LATEST)


def _text(seconds: float) -> str:
    moment = datetime.fromtimestamp(max(0.0, seconds), timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


BACKENDS = {"jaeger": _of_jaeger, "tempo": _of_tempo, "clickhouse": _of_clickhouse}
