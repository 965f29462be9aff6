"""What is fuzzed: everything that reads bytes which this process did not just write itself.

A target takes any bytes. It raises for a defect only: what the code under test may raise is caught here, and what must
hold of its answer is asserted here. ``SEEDS`` are good inputs for each, to begin from.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from functools import lru_cache

from ray_tracing_hooks._formats import jaeger, otlp, otlp_json, otlp_json_read, protobuf
from ray_tracing_hooks._formats.encoded_span import decode
from ray_tracing_hooks._formats.otlp import LOGS, TRACES
from ray_tracing_hooks._insight.ingest import kept_runs
from ray_tracing_hooks._insight.ingest import load as insight
from ray_tracing_hooks._insight.ingest.converted import converted
from ray_tracing_hooks._insight.model.quality import Quality
from ray_tracing_hooks._record import carrier
from ray_tracing_hooks._settings import table
from ray_tracing_hooks._ship.folder import Folder
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._spool import layout, reader

Target = Callable[[bytes], None]


@lru_cache(maxsize=1)
def _folder() -> str:
    # In memory: a target runs some thousand times a second. One folder for the process.
    folder = tempfile.mkdtemp(prefix="rth-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file(name: str, data: bytes) -> str:
    path = os.path.join(_folder(), name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def segment(data: bytes) -> None:
    """A segment gives records with right checksums, in order; every byte is a record's or counted as damage."""
    path = _file("1-1-fuzz.000000.spool", data)
    wholes = []
    for limit in (None, 64):
        segment = reader.SegmentReader(path)
        records: list[reader.Record] = []
        while True:
            found = segment.read(final=True, limit=limit)
            records += found
            if segment.refusal or segment.offset >= len(data):
                break
        if segment.refusal:
            assert not data.startswith(layout.MAGIC)
            assert not records
            return
        assert segment.offset == len(data)
        taken = sum(layout.FRAME.size + len(payload) for _, payload, _ in records)
        head = len(layout.MAGIC) if data.startswith(layout.MAGIC) else 0
        assert taken + segment.damaged + head == len(data), (taken, segment.damaged, head, len(data))
        last = -1
        for kind, payload, offset in records:
            assert offset > last
            last = offset
            length, checksum, stored_kind = layout.FRAME.unpack_from(data, offset)
            assert (length, stored_kind) == (len(payload), kind)
            assert zlib.crc32(bytes([kind]) + payload) == checksum
        wholes.append(records)
    assert wholes[0] == wholes[1], "the size of what is read at once changes nothing"
    growing = reader.SegmentReader(path)
    growing.read()
    growing.read(final=True)
    assert growing.offset == len(data)


def follower(data: bytes) -> None:
    """What a shipper makes of a segment can be handed to every sink."""
    _file("1-1-fuzz.000000.spool", data)
    problems = Problems()
    folder = Folder(_folder())
    for signal in (TRACES, LOGS):
        follower = Follower({}, problems, reports=True, signal=signal)
        for _ in range(2):
            for batches in follower.follow(folder.snapshot(follower.open_processes())):
                groups = [otlp.Group(*batch) for batch in batches]
                otlp.encode(groups)
                otlp.encode_json(groups, signal)
                assert list(otlp.cut(groups, 1000))
        again = Follower(json.loads(json.dumps(follower.positions())), problems, reports=True, signal=signal)
        list(again.follow(folder.snapshot(again.open_processes())))
    insight.read([os.path.join(_folder(), "1-1-fuzz.000000.spool")])
    reader.count_spans(os.path.join(_folder(), "1-1-fuzz.000000.spool"))


def message(data: bytes) -> None:
    """An encoded span, log record, resource or scope is refused, or read and written as JSON that reads as JSON."""
    for write in (otlp_json.span_json, otlp_json.log_record_json, otlp_json.resource_json, otlp_json.scope_json):
        try:
            text = write(data)
        except protobuf.FormatError:
            continue
        json.loads(text)
        assert text.isascii()
        assert "\n" not in text
    for decoder in (decode.decode_resource, decode.decode_scope):
        try:
            decoder(data)
        except protobuf.FormatError:
            continue
    try:
        decoded = decode.decode_span(data)
    except protobuf.FormatError:
        return
    with contextlib.suppress(ValueError, OverflowError, RecursionError, struct.error):  # as the sink does
        jaeger.API_V2.span(jaeger.jaeger_span(decoded, decode.Scope("", "", {})))


def span_as_json(data: bytes) -> None:
    """A span that is written as JSON reads back as the same JSON, with the reader of ``replay``."""
    try:
        text = otlp_json.span_json(data)
    except protobuf.FormatError:
        return
    groups, wrong = otlp_json_read.traces(TRACES.line("{}", "{}", [text]))
    assert otlp.count(groups) + len(wrong) == 1
    for group in groups:
        again = json.loads(otlp_json.span_json(group.spans[0]))
        first = json.loads(text)
        assert again.get("traceId") == first.get("traceId")
        assert again.get("name") == first.get("name")


def json_line(data: bytes) -> None:
    """A line of a file is refused, or its spans can be encoded; both readers live."""
    try:
        groups, _ = otlp_json_read.traces(data)
    except protobuf.FormatError:
        pass
    else:
        otlp.encode(groups)
        otlp.encode_json(groups)
    _, quality = insight.read([_file("fuzz.jsonl", data)])
    assert quality.files == 1


def packed_file(data: bytes) -> None:
    """The same of a file that is called compressed."""
    insight.read([_file("fuzz.jsonl.gz", data)])


def other_format(data: bytes) -> None:
    """A file of another format becomes lines of OTLP-JSON, or nothing."""
    lines = os.path.join(_folder(), "converted.jsonl")
    with contextlib.suppress(ValueError, ImportError):
        converted(_file("fuzz", data), lines, lambda _problem: None)
        insight.read([lines])


def description(data: bytes) -> None:
    """What describes a run of a store is refused, or has all that is read of it."""
    folder = os.path.join(_folder(), "run=kkkkkkkkkk")
    os.makedirs(folder, exist_ok=True)
    _file("run=kkkkkkkkkk/run.json", data)
    with contextlib.suppress(ValueError):
        run = kept_runs.kept_run(folder)
        assert run is not None
        assert all(os.path.dirname(path) == folder for path in run.files)
        kept_runs.KeptQuality(run.files).add_to(Quality())


def carried(data: bytes) -> None:
    """A call's context is refused with ValueError, or taken on into the context of OpenTelemetry."""
    from ray_tracing_hooks._ray.propagation import incoming

    try:
        found = carrier.decode(data)
    except ValueError:
        return
    incoming(found)
    assert carrier.unpack_headers(carrier.pack_headers(found.headers)) == found.headers


def skywalking_headers(data: bytes) -> None:
    """The headers of a client are ignored or continued, and what is sent on is right."""
    from opentelemetry.context import Context

    from ray_tracing_hooks._formats.skywalking import headers
    from ray_tracing_hooks._propagators.skywalking import Sw6Propagator, Sw8Propagator

    texts = (*data.decode("latin-1").split("\n"), "", "")
    given = {"sw8": texts[0], "sw6": texts[0], "sw8-correlation": texts[1], "sw8-x": texts[2]}
    for propagator, read in ((Sw8Propagator(), headers.read_sw8), (Sw6Propagator(), headers.read_sw6)):
        sent: dict[str, str] = {}
        propagator.inject(sent, propagator.extract(given, Context()))
        found = sent.get("sw8") or sent.get("sw6")
        assert found is None or read(found) is not None


def settings(data: bytes) -> None:
    """A settings file is read or reported, and what is used is right."""
    problems: list[str] = []
    found = table.load({"RAY_TRACING_CONFIG": _file("fuzz.yaml", data)}, problems.append)
    for setting in table.all_settings():
        setting.text(found.value(setting))
    assert all(len(problem) < 2000 for problem in problems)


def answer(data: bytes) -> None:
    """What a server answers is understood or ignored, said in a line, and holds nobody up for more than an hour."""
    for decoder in (otlp.decode_answer, otlp.decode_json_answer):
        rejected, text = decoder(data)
        assert rejected >= 0
        text.encode("utf-8", "replace")
    from ray_tracing_hooks._ship.transport import grpc, http

    response = _Response(data)
    for kind in ("application/x-protobuf", "application/json", "text/plain"):
        response.headers["Content-Type"] = kind
        said = http._status_text(503, response, data)  # type: ignore[arg-type]
        assert len(said) < 3000
        assert "\n" not in said
    for wait in (http._seconds(data.decode("latin-1")), grpc._retry_info(_Error(data))):
        assert wait is None or 0 <= wait <= 3600


class _Response:
    reason = "x"

    def __init__(self, data: bytes) -> None:
        self.headers = {"Location": data.decode("latin-1")}


class _Error:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def trailing_metadata(self) -> list[tuple[str, bytes]]:
        return [("grpc-status-details-bin", self._data)]


def frame(kind: int, payload: bytes) -> bytes:
    """One record."""
    return layout.FRAME.pack(len(payload), zlib.crc32(bytes([kind]) + payload), kind) + payload


def _text(tag: int, text: bytes) -> bytes:
    return protobuf.field(tag, text)


def _attribute(tag: int, key: bytes, value: bytes) -> bytes:
    return protobuf.field(tag, _text(0x0A, key) + protobuf.field(0x12, value))


_RESOURCE = _attribute(0x0A, b"service.name", _text(0x0A, b"fuzz"))
_SCOPE = _text(0x0A, b"scope") + _text(0x12, b"1")
_IDS = b"\x0a\x10" + bytes(range(1, 17)) + b"\x12\x08" + bytes(range(1, 9))
_VALUES = [
    _text(0x0A, b"text"),
    b"\x10\x01",
    b"\x18" + b"\xff" * 9 + b"\x01",
    b"\x21" + struct.pack("<d", 0.5),
    protobuf.field(0x2A, protobuf.field(0x0A, b"\x18\x05") + protobuf.field(0x0A, b"")),
    protobuf.field(0x32, protobuf.field(0x0A, _text(0x0A, b"k") + protobuf.field(0x12, b"\x10\x00"))),
    protobuf.field(0x3A, b"\x00\xff"),
]
_SPAN = (
    _IDS
    + _text(0x1A, b"a=b")
    + b"\x22\x08"
    + bytes(range(2, 10))
    + _text(0x2A, b"name")
    + b"\x30\x05"
    + protobuf.fixed64(0x39, 10**18)
    + protobuf.fixed64(0x41, 10**18 + 1)
    + b"".join(_attribute(0x4A, b"key", value) for value in _VALUES)
    + b"\x50\x01"
    + protobuf.field(0x5A, protobuf.fixed64(0x09, 5) + _text(0x12, b"event") + _attribute(0x1A, b"k", _VALUES[0]))
    + protobuf.field(0x6A, _IDS + _attribute(0x22, b"k", _VALUES[1]) + b"\x35\x00\x01\x00\x00")
    + protobuf.field(0x7A, _text(0x12, b"bad") + b"\x18\x02")
    + b"\x85\x01\x00\x01\x00\x00"
)
_LOG_RECORD = (
    protobuf.fixed64(0x09, 10**18)
    + b"\x10\x11"
    + _text(0x1A, b"ERROR")
    + protobuf.field(0x2A, _VALUES[0])
    + b"".join(_attribute(0x32, b"key", value) for value in _VALUES)
    + b"\x38\x01\x45\x01\x00\x00\x00\x4a\x10"
    + bytes(range(1, 17))
    + b"\x52\x08"
    + bytes(range(1, 9))
    + protobuf.fixed64(0x59, 10**18)
)
_SEGMENT = (
    layout.MAGIC
    + frame(layout.RESOURCE, layout.U16.pack(0) + _RESOURCE)
    + frame(layout.SCOPE, layout.TWO_U16.pack(0, 0) + _SCOPE)
    + frame(layout.START, layout.U16.pack(0) + _IDS + _text(0x2A, b"begun") + protobuf.fixed64(0x39, 5))
    + frame(layout.SPAN, layout.U16.pack(0) + _SPAN)
    + frame(layout.LOG, layout.U16.pack(0) + _LOG_RECORD)
    + frame(layout.DROPPED, layout.U64.pack(3))
)
_LINE = TRACES.line(
    otlp_json.resource_json(_RESOURCE), otlp_json.scope_json(_SCOPE), [otlp_json.span_json(_SPAN)]
).encode()
_YAML = b"""exporters: [local, otlp]
local_dir: &x /data/spans
local_max_bytes: 2 GiB
flush_timeout: 1.5
ray: task
include: [a.*, "b,c"]
root_span: no
jaeger_endpoint: http://user:word@jaeger:4317
a: {<<: {b: *x}}
"""
_CARRIED = carrier.encode(
    bytes(range(16)), bytes(range(8)), 1, 10**18, bytes(24), {"tracestate": "a=b,c=d", "baggage": "k=v;p=1,%20=é"}
)
_ANSWERS = [
    b"",
    protobuf.field(0x0A, b"\x08\x05" + _text(0x12, b"why")),
    b'{"partialSuccess": {"rejectedSpans": "5", "errorMessage": "why"}}',
    b'{"error": {"message": "why", "code": 5}}',
    b"\x08\x0e"
    + _text(0x12, b"busy")
    + protobuf.field(
        0x1A,
        _text(0x0A, b"type.googleapis.com/google.rpc.RetryInfo")
        + protobuf.field(0x12, protobuf.field(0x0A, b"\x08\x05")),
    ),
    b"Wed, 21 Oct 2099 07:28:00 GMT",
    b"7.5",
]

_SW8 = b"1-dHJhY2U=-c2VnbWVudA==-3-Z2F0ZXdheQ==-Z3ctMQ==-L2FwaQ==-MTAuMC4wLjU6ODAwMA==\ndGVuYW50:YWNtZQ==\n1-17"
_SW6 = b"1-NC4xNy4xNw==-NC4xNi4xNw==-1-4-4-IzEyNy4wLjAuMToyMQ==-Iy9jaGVja291dA==-LTE="

_TRACES = protobuf.field(0x0A, protobuf.field(0x12, protobuf.field(0x12, _SPAN[:100])))[:127]
_DESCRIPTION = json.dumps(
    {
        "format": kept_runs.FORMAT,
        "version": kept_runs.VERSION,
        "id": "kkkkkkkkkk",
        "program": {"name": "a.py", "arguments": ["b"], "commit": None},
        "cluster": {"job": "01000000", "nodes": 1},
        "start_unix_nano": 1,
        "wall_ns": 1,
        "state": "ended",
        "counts": {"calls": 1},
        "findings": [{"title": "a", "share": 0.5, "cost_ns": 1}],
        "read_unix_nano": 1,
        "quality": {**dict.fromkeys(kept_runs.COUNTS, 0), "problems": [["a", 1, "b"]]},
        "files": [{"name": "traces-a-0000.parquet", "rows": 1}],
    }
).encode()

TARGETS: dict[str, Target] = {
    "segment": segment,
    "follower": follower,
    "message": message,
    "span_as_json": span_as_json,
    "json_line": json_line,
    "packed_file": packed_file,
    "other_format": other_format,
    "description": description,
    "carried": carried,
    "skywalking_headers": skywalking_headers,
    "settings": settings,
    "answer": answer,
}
SEEDS: dict[str, list[bytes]] = {
    "segment": [_SEGMENT, layout.MAGIC],
    "follower": [_SEGMENT, layout.MAGIC],
    "message": [_SPAN, _LOG_RECORD, _RESOURCE, _SCOPE],
    "span_as_json": [_SPAN],
    "json_line": [_LINE, b'{"resource_spans": []}', b'{"resourceLogs": []}'],
    "packed_file": [],
    "other_format": [_TRACES, len(_TRACES).to_bytes(4, "big") + _TRACES, bytes([len(_TRACES)]) + _TRACES],
    "description": [_DESCRIPTION],
    "carried": [_CARRIED, _CARRIED[:58]],
    "skywalking_headers": [_SW8, _SW6, b"1-------"],
    "settings": [_YAML],
    "answer": _ANSWERS,
}
