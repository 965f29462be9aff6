"""Input that is made to take long or much memory costs neither: nesting, repetition, numbers, merges."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets import SEEDS, TARGETS

from ray_tracing_hooks._formats import otlp_json
from ray_tracing_hooks._formats.encoded_span.decode import decode_span
from ray_tracing_hooks._formats.otlp_json_read import traces
from ray_tracing_hooks._formats.protobuf import FormatError, field, varint
from ray_tracing_hooks._insight.ingest import load as insight
from ray_tracing_hooks._settings.table import load

IDS = b"\x0a\x10" + bytes(range(1, 17)) + b"\x12\x08" + bytes(range(1, 9))
DEEP = 100_000


@contextmanager
def short_and_small(mebibytes: int, seconds: float = 20.0) -> Iterator[None]:
    """The block takes less processor time, and less memory."""
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        taken, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < seconds
    assert peak < mebibytes << 20


def nested(tag: bytes, depth: int) -> bytes:
    """An ``AnyValue`` of arrays (or of maps, by another tag) in one another."""
    parts: list[bytes] = []
    size = 0
    for _ in range(depth):
        for head in (b"\x12", b"\x0a", tag) if tag == b"\x32" else (b"\x0a", tag):
            parts.append(head + varint(size))
            size += len(parts[-1])
    return b"".join(reversed(parts))


def attribute(value: bytes) -> bytes:
    return field(0x4A, b"\x0a\x01k" + field(0x12, value))


@pytest.mark.parametrize("tag", [b"\x2a", b"\x32"], ids=["arrays", "maps"])
@pytest.mark.parametrize("read", [otlp_json.span_json, decode_span])
def test_values_that_nest_100_000_deep_are_refused(tag: bytes, read: Callable[[bytes], object]) -> None:
    """With an error that who reads expects, before they are read. One of the readers used to run out of stack."""
    encoded = IDS + attribute(nested(tag, DEEP))
    with short_and_small(300), pytest.raises(FormatError, match=r"nested more than 50 levels deep|parsing"):
        read(encoded)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ('{"arrayValue":{"values":[', "]}}"),
        ('{"kvlistValue":{"values":[{"key":"k","value":', "}]}}"),
        ("[", "]"),
        ('{"a":', "}"),
    ],
    ids=["arrays", "maps", "lists", "objects"],
)
def test_json_that_nests_100_000_deep_is_refused(tmp_path: Path, opening: str, closing: str) -> None:
    """By both readers; the next line is read."""
    described = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7"}
    described |= {"startTimeUnixNano": "1", "attributes": "HERE"}
    good = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [described]}]}]})
    deep = good.replace('"HERE"', f'[{{"key":"k","value":{opening * DEEP}{{}}{closing * DEEP}}}]')
    with short_and_small(100):
        with pytest.raises(FormatError, match="not JSON"):
            traces(deep)
        (tmp_path / "a.jsonl").write_text(deep + "\n" + good.replace('"HERE"', "[]") + "\n")
        spans, quality = insight.read([str(tmp_path / "a.jsonl")])
    assert len(spans) == 1
    assert "not JSON" in quality.problems[0].reason


@pytest.mark.parametrize(
    "repeated",
    [
        lambda many: attribute(field(0x2A, b"\x0a\x00") * many),
        lambda many: field(0x4A, b"\x0a\x01k" + field(0x12, b"\x2a\x02\x0a\x00") * many),
        lambda many: field(0x7A, b"\x12\x01a") * many,
        lambda many: attribute(b"\x18\x01") * (many // 4),
        lambda many: b"\x5a\x00" * many,
    ],
    ids=["parts of an array", "parts of a value", "parts of a status", "attributes", "events"],
)
@pytest.mark.parametrize("read", [otlp_json.span_json, decode_span])
def test_a_message_in_many_parts_takes_time_by_its_size(
    read: Callable[[bytes], object], repeated: Callable[[int], bytes]
) -> None:
    """Sub-messages merge, and each part was copied as often as others followed."""
    encoded = IDS + repeated(100_000)
    began = time.process_time()
    read(encoded)
    assert time.process_time() - began < 20


LAUGHS = "a0: &a0 {" + ", ".join(f"k{number}: 1" for number in range(10)) + "}\n"
YAML = {
    "billion laughs": "x0: &x0 [lol]\n"
    + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 30)),
    "merges": LAUGHS + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 12)),
    "a number by 60": "x: 1" + ":1" * 8000,
    "a long number": "x: " + "9" * 60_000,
    "keys": "".join(f"k{number}: 1\n" for number in range(2000)),
    "long": "x: " + "a" * 100_000,
    "questions": "? " * 30_000,
}


@pytest.mark.parametrize("what", list(YAML))
def test_a_settings_file_cannot_take_long(tmp_path: Path, what: str) -> None:
    """Ten lines of YAML can ask for more memory than there is. What is wrong is said, and the rest holds."""
    path = tmp_path / "settings.yaml"
    path.write_text(YAML[what])
    problems: list[str] = []
    with short_and_small(200):
        found = load({"RAY_TRACING_CONFIG": str(path), "RAY_TRACING_FLUSH_TIMEOUT": "7"}, problems.append)
    assert found.flush_timeout == 7
    assert problems
    assert max(map(len, problems)) < 1000 + len(str(path))


# What `make fuzz` does for minutes, for a moment.


@st.composite
def spoiled(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """Any bytes, or good input with something cut out and something put in."""
    if not seeds or draw(st.booleans()):
        return draw(st.binary(max_size=200))
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(data)))
        end = draw(st.integers(begin, min(len(data), begin + 20)))
        data = data[:begin] + draw(st.binary(max_size=20)) + data[end:]
    return data


@pytest.mark.parametrize("target", list(TARGETS))
def test_no_input_is_a_crash(target: str) -> None:
    """See ``tests/fuzz/targets.py`` for what must hold of each."""

    @settings(suppress_health_check=list(HealthCheck))
    @given(spoiled(SEEDS[target]))
    def check(data: bytes) -> None:
        TARGETS[target](data)

    check()
    for seed in SEEDS[target]:
        TARGETS[target](seed)
