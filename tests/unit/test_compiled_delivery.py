"""The compiled part of the delivery reads and writes the same as the Python code beside it, whatever the bytes are."""

from __future__ import annotations

import importlib.util
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from shipping import Node

from ray_tracing_hooks import _compiled
from ray_tracing_hooks._cli import main
from ray_tracing_hooks._formats import otlp_json
from ray_tracing_hooks._spool.layout import DROPPED, EXIT, FRAME, MAX_PAYLOAD, SPAN, START
from ray_tracing_hooks._spool.reader import Parts, _good_records

pytestmark = pytest.mark.skipif(not _compiled.use.is_loaded, reason="this installation is pure Python")


def record(kind: int, payload: bytes) -> bytes:
    checked = bytes([kind]) + payload
    return struct.pack("<II", len(payload), zlib.crc32(checked)) + checked


def read(data: bytes, position: int, base: int, *, compiled: bool) -> tuple[int, list[Parts]]:
    found: list[Parts] = []
    before = _compiled.use.is_on
    _compiled.use.allow(compiled)
    try:
        return _good_records(data, position, base, found), found
    finally:
        _compiled.use.allow(before)


_payloads = st.binary(max_size=4) | st.binary(min_size=20, max_size=40) | st.binary(min_size=400, max_size=600)
_records = st.builds(record, st.integers(0, 255), _payloads)


@given(st.lists(_records, max_size=5), st.binary(max_size=50), st.integers(0, 1 << 40), st.data())
def test_records_are_read_in_the_same_parts(records: list[bytes], after: bytes, base: int, data: st.DataObject) -> None:
    """From any position, with bytes changed or cut off, and with others after them."""
    written = bytearray(b"".join(records) + after)
    if written and data.draw(st.booleans()):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    begin = data.draw(st.sampled_from([0, len(records[0]) if records else 0, 3, len(written), len(written) + 1]))
    cut = bytes(written[: len(written) - data.draw(st.integers(0, 30))])
    assert read(cut, begin, base, compiled=True) == read(cut, begin, base, compiled=False)


def test_records_of_every_size_are_verified() -> None:
    """A checksum is computed in several ways, depending on the size."""
    for size in (*range(200), *range(4000, 4100), 100_000):
        payload = os.urandom(size)
        good = record(SPAN, payload)
        assert read(good, 0, 7, compiled=True) == (
            len(good),
            [(good[8:11], good[11:39].ljust(28, b"\0"), payload[2:], 7)],
        )
        flipped = bytearray(good)
        flipped[-1 - size // 2] ^= 16
        assert read(bytes(flipped), 0, 7, compiled=True) == (0, [])


@pytest.mark.parametrize("length", [MAX_PAYLOAD + 1, 1 << 31, (1 << 32) - 1])
def test_a_length_that_is_too_large_ends_the_records(length: int) -> None:
    good = record(START, b"payload")
    data = good + FRAME.pack(length, 0, SPAN) + bytes(100)
    end, records = read(data, 0, 0, compiled=True)
    assert (end, records) == read(data, 0, 0, compiled=False)
    assert (end, len(records)) == (len(good), 1)


def test_records_without_a_payload_are_read() -> None:
    data = record(EXIT, b"") + record(DROPPED, b"\0") + record(DROPPED, bytes(2)) + record(EXIT, b"")
    compiled = read(data, 0, 0, compiled=True)
    assert compiled == read(data, 0, 0, compiled=False)
    assert [head for head, *_ in compiled[1]] == [b"\x07", b"\x05\0", b"\x05\0\0", b"\x07"]


def test_what_is_no_data_or_no_list_is_refused() -> None:
    wrong: list[tuple[Any, ...]] = [("text", 0, 0, []), (b"", 0, 0, ()), (b"", "0", 0, []), (b"", 0, 0)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            _compiled.hotpath.good_records(*arguments)
    with pytest.raises(ValueError, match="negative"):
        _compiled.hotpath.good_records(b"", -1, 0, [])


def test_what_writes_calls_is_made_of_the_right_constants() -> None:
    """Wrong ones would come from a change in Python that was not made in C."""
    names = (b"\x0a\x10", b"\x12\x08", b"\x22\x08", b"\x39", b"\x41", b"\x2a\x30\x4a", b"submit time", b"text")
    pairs = (b"encoded", b"text")
    _compiled.hotpath.CallJson(str, names, pairs, pairs)
    for constants, flags, ids in (
        (names[:-1], pairs, pairs),
        ((*names[:-1], b""), pairs, pairs),
        ((*names[:-1], "text"), pairs, pairs),
        (names, (*pairs, b"odd"), pairs),
        (names, pairs, 5 * pairs),
        (names, (b"", b"text"), pairs),
    ):
        with pytest.raises(ValueError, match="constants of a call's span"):
            _compiled.hotpath.CallJson(str, constants, flags, ids)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _compiled.hotpath.CallJson(str, list(names), pairs, pairs)  # type: ignore[arg-type]


def test_the_compiled_part_may_be_switched_on_after_the_import() -> None:
    """As by the settings of a later connection of the process."""
    before = _compiled.use.is_on
    _compiled.use.allow(False)
    try:
        spec = importlib.util.find_spec(otlp_json.__name__)
        assert spec is not None
        assert spec.loader is not None
        imported = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(imported)
    finally:
        _compiled.use.allow(before)
    assert imported._call_json is not None


def test_what_is_no_span_is_refused_and_what_describes_a_template_may_fail() -> None:
    assert otlp_json._call_json is not None
    with pytest.raises(TypeError, match="bytes are expected"):
        otlp_json._call_json("span")  # type: ignore[arg-type]

    def fails(_template: bytes) -> str:
        raise MemoryError("no room for a template")

    constants = (b"\x0a\x10", b"\x12\x08", b"\x22\x08", b"\x39", b"\x41", b"\x2a\x30\x4a", b"submit time", b"text")
    span = (
        b"\x0a\x10"
        + bytes(16)
        + b"\x12\x08"
        + bytes(8)
        + b"F"
        + b"\x39"
        + bytes([1] * 8)
        + b"\x2a\x01n"
        + b"I\x01a"
        + b"\x41"
        + bytes([1] * 8)
    )

    for template in (fails, lambda _: 5, lambda _: ""):
        write = _compiled.hotpath.CallJson(template, constants, (b"F", b"1"), (b"I\x01", b"{")).write  # type: ignore[arg-type]
        if template is fails:
            with pytest.raises(MemoryError):
                write(span)
        else:
            assert write(span) is None


@pytest.mark.parametrize("is_on", [True, False])
def test_a_shipper_uses_it_if_the_process_that_starts_it_does(
    node: Node, monkeypatch: pytest.MonkeyPatch, *, is_on: bool
) -> None:
    """Also where it is switched off by a settings file, which the shipper does not read."""
    monkeypatch.setattr(_compiled.use, "is_on", is_on)
    assert node.start().environ()[_compiled.VARIABLE] == str(int(is_on))


@pytest.mark.parametrize("is_on", ["true", "false"])
def test_commands_read_spools_without_it_if_a_settings_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on: str
) -> None:
    monkeypatch.setattr(_compiled.use, "is_on", is_on == "false")
    file = tmp_path / "settings.yaml"
    file.write_text(f"compiled: {is_on}\n")
    monkeypatch.setenv("RAY_TRACING_CONFIG", str(file))
    result = CliRunner().invoke(main, ["replay", str(tmp_path), "--dry-run"])
    assert "no spans in" in result.output
    assert _compiled.use.is_on == (is_on == "true")
