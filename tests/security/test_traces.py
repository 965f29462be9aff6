"""What a hostile file of spans, spool or settings file can do to who looks at it: cost a bounded time, and no more."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._settings.table import load
from ray_tracing_hooks._ship.replay import JsonFiles
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.reader import parse
from ray_tracing_hooks._spool.writer import SpoolWriter

pytestmark = pytest.mark.timeout(90)

MIB = 1 << 20
NASTY = "a\x1b[2J\x1b]8;;http://evil\x07b\u202ec\u2066d\ne\rf\u2028g\u200bh\x9bi"
HARMLESS = "a\\x1b[2J\\x1b]8;;http://evil\\x07b\\u202ec\\u2066d\\ne\\rf\\u2028g\\u200bh\\x9bi"  # as it is shown


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def commands(text: str) -> list[str]:
    """The characters in an output that a terminal would obey or that hide what is said."""
    return [each for each in text if each in NASTY and not each.isprintable() and each != "\n"]


def span(**parts: Any) -> dict[str, Any]:
    ids = {"traceId": "1" * 32, "spanId": "2" * 16}
    return {**ids, "name": "n", "startTimeUnixNano": "1000", "endTimeUnixNano": "2000", **parts}


def document(*spans: dict[str, Any], resource: Any = None) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": resource or {}, "scopeSpans": [{"spans": list(spans)}]}]}


def text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


# What is shown.


def test_nothing_in_a_trace_commands_the_terminal(tmp_path: Path) -> None:
    """Neither a name, key, value, event or error, nor what the host, an actor or a file is called."""
    nasty = span(
        name=NASTY,
        kind=5,
        status={"code": 2, "message": NASTY},
        attributes=[text(NASTY, NASTY), text("error.type", NASTY), text("ray.actor_id", NASTY), text("ray.pid", NASTY)],
        events=[{"name": "exception", "attributes": [text("exception.message", NASTY), text(NASTY, NASTY)]}],
    )
    found = document(nasty, resource={"attributes": [text("host.name", NASTY), text("ray.process_type", NASTY)]})
    folder = tmp_path / NASTY.replace("/", "")
    folder.mkdir()
    (folder / "spans.jsonl").write_text(f"{json.dumps(found)}\n{{\n")
    for options in ((), ("--raw", "--no-collapse"), ("--json",), ("--errors",)):
        result = run("tree", *options, folder)
        assert result.exit_code == 0
        assert commands(result.output) == []
    assert HARMLESS in run("tree", folder).stdout
    (folder / "spans.jsonl").write_text("{}\n")
    empty = tmp_path / "\x1b[2J"
    empty.mkdir()
    for arguments in (
        ("tree", folder),
        ("tree", empty),
        ("tree", tmp_path / "\x1b[2Jnone"),
        ("replay", empty),
        ("replay", "--dry-run", folder),
    ):
        result = run(*arguments)
        assert "\\x1b[2J" in result.output
        assert commands(result.output) == []


def test_a_settings_file_does_not_command_the_terminal(tmp_path: Path) -> None:
    """It may belong to another user."""
    file = tmp_path / "\x1b[2J.yaml"
    values = {"local_dir": f"/{NASTY}", "exclude": [NASTY], "strict": NASTY, NASTY: NASTY}
    file.write_text(json.dumps(values))
    os.environ["RAY_TRACING_CONFIG"] = str(file)
    for options in ((), ("--json",)):
        result = run("config", *options)
        assert result.exit_code == 2
        assert commands(result.output) == []
        assert "\\u202e" in result.output


# Files that are made to cost much.


def test_a_packed_file_that_unpacks_to_gigabytes_is_left(tmp_path: Path) -> None:
    """Some megabytes of gzip are gigabytes of spans: the same for a look and for a replay."""
    line = json.dumps(document(span())).encode().ljust(MIB - 1) + b"\n"
    packed = gzip.compress(line * 16, 9)
    with open(tmp_path / "spans.jsonl.gz", "wb") as file:
        file.writelines([packed] * 12)  # 192 MiB, in parts as gzip allows them
    size = (tmp_path / "spans.jsonl.gz").stat().st_size
    assert size < MIB // 2
    before = psutil.Process().memory_info().rss
    result = run("tree", tmp_path)
    assert psutil.Process().memory_info().rss - before < 150 * MIB
    assert "decompresses to more than 200 times its size" in result.output
    damaged: list[str] = []
    source = JsonFiles([str(tmp_path / "spans.jsonl.gz")], {}, damaged.append)
    taken = sum(len(batch.spans) for portion in source.portions() for batch in portion)
    assert taken <= 65
    assert "decompresses to more than 200 times its size" in damaged[0]


def test_a_packed_file_of_real_spans_is_read_whole(tmp_path: Path) -> None:
    """Spans as like as they can be, but for their ids and times."""
    spans = [
        span(
            traceId=os.urandom(16).hex(),
            spanId=os.urandom(8).hex(),
            startTimeUnixNano=str(1_790_000_000_000_000_000 + 1000 * number),
            attributes=[text("key", "the same value " * 250)],
        )
        for number in range(18_000)
    ]
    with gzip.open(tmp_path / "spans.jsonl.gz", "wb") as file:
        for first in range(0, len(spans), 500):
            file.write(json.dumps(document(*spans[first : first + 500])).encode() + b"\n")
    source = JsonFiles([str(tmp_path / "spans.jsonl.gz")], {}, pytest.fail)
    assert sum(len(batch.spans) for portion in source.portions() for batch in portion) == 18_000


def slow_damage(size: int) -> bytes:
    """Bytes that look at every second place like the head of a long record, whose checksum has to be computed."""
    return bytes([4, 0]) * (size // 2)


def test_damage_that_is_made_to_be_slow_costs_no_more_than_other_damage() -> None:
    """The square of a mebibyte is an hour of checksums."""
    began = time.process_time()
    records, consumed, damaged = parse(layout.MAGIC + slow_damage(MIB), final=True)
    assert (records, consumed, damaged) == ([], MIB + len(layout.MAGIC), MIB)
    assert time.process_time() - began < 30


def test_no_segment_is_read_that_is_too_large_for_one(tmp_path: Path) -> None:
    """A sparse file of a tebibyte takes no place on the disk."""
    SpoolWriter(str(tmp_path)).span(b"\0\0", b"")
    with open(tmp_path / "1-1-1.000000.spool", "wb") as file:
        file.write(layout.MAGIC)
        file.truncate(1 << 40)
    result = run("tree", tmp_path)
    assert "larger than 64 MiB, the most that a segment can have" in result.output
    result = run("replay", "--dry-run", tmp_path)
    assert "larger than 64 MiB" in result.output


@pytest.mark.parametrize("name", ["x.000000.spool", "x.jsonl", "x.jsonl.gz", "plan.json", "shipper.lock"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "link"])
def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path, name: str, kind: str) -> None:
    """A FIFO beside the spans would be waited for; they are shown all the same."""
    writer = SpoolWriter(str(tmp_path))
    (tmp_path / "spans.jsonl").write_text(json.dumps(document(span())) + "\n")
    ids = b"\x0a\x10" + b"\x01" * 16 + b"\x12\x08" + b"\x02" * 8
    writer.span(writer.scope(b"", b"").to_bytes(2, "little"), ids + b"\x2a\x07spooled\x39" + bytes([1] * 8))
    writer.close()
    if kind == "fifo":
        os.mkfifo(tmp_path / name)
    elif kind == "link":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            folder = os.open(tmp_path, os.O_PATH)
            made.bind(f"/proc/self/fd/{folder}/{name}")
            os.close(folder)
    assert "spooled" in run("tree", tmp_path).output
    assert "2 spans" in run("replay", "--dry-run", tmp_path).output


ODD: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "9" * 30, "1e400", "-1", "f" * 32, "0" * 16, "99999999999999999999", "\ud800", [], {}, [[]]]),
    st.text(max_size=5),
)


def perhaps(good: Any) -> Any:
    """Mostly what belongs there."""
    return st.one_of(good, good, good, good, good, good, good, ODD)


VALUE = st.recursive(
    st.builds(lambda kind, value: {kind: value}, st.sampled_from(["stringValue", "intValue", "doubleValue"]), ODD),
    lambda inner: st.builds(lambda item: {"arrayValue": {"values": [item]}}, inner),
    max_leaves=3,
)
ATTRIBUTES = st.lists(
    perhaps(
        st.fixed_dictionaries(
            {"key": perhaps(st.sampled_from(["error.type", "ray.pid", "ray.actor_id"])), "value": perhaps(VALUE)}
        )
    ),
    max_size=2,
)
TIME = perhaps(st.integers(0, 2**64).map(str))
SPAN = st.fixed_dictionaries(
    {
        "traceId": perhaps(st.sampled_from(["1" * 32, "2" * 32])),
        "spanId": perhaps(st.sampled_from(["1" * 16, "2" * 16, "3" * 16])),
        "parentSpanId": perhaps(st.sampled_from(["", "1" * 16, "2" * 16])),
        "name": perhaps(st.text(max_size=5)),
        "kind": perhaps(st.integers(0, 6)),
        "startTimeUnixNano": TIME,
        "endTimeUnixNano": TIME,
        "status": perhaps(st.fixed_dictionaries({"code": perhaps(st.just(2)), "message": ODD})),
        "attributes": perhaps(ATTRIBUTES),
        "events": perhaps(st.lists(st.fixed_dictionaries({"name": ODD, "attributes": perhaps(ATTRIBUTES)}))),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(perhaps(SPAN), max_size=5), perhaps(ATTRIBUTES))
def test_any_document_is_shown_as_far_as_it_makes_sense(tmp_path: Path, spans: list[Any], resource: Any) -> None:
    """No value anywhere ends the command, or reaches the terminal as it is."""
    (tmp_path / "spans.jsonl").write_text(
        json.dumps(document(span(), *spans, resource={"attributes": resource} if resource else {})) + "\n"
    )
    for options in ((), ("--json",)):
        result = run("tree", *options, tmp_path)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code in {0, 1}
        assert commands(result.output) == []


@pytest.mark.parametrize("value", ["1" + "0" * 400, "99999999999999999999", "-5", "1e300", "Infinity", "NaN"])
def test_a_time_that_is_none_costs_its_span(tmp_path: Path, value: str) -> None:
    spans = [span(), span(spanId="3" * 16, startTimeUnixNano=float(value) if value in {"NaN", "Infinity"} else value)]
    (tmp_path / "spans.jsonl").write_text(json.dumps(document(*spans)) + "\n")
    result = run("tree", tmp_path)
    assert result.exit_code == 0
    assert "1 span\n" in result.stdout
    assert "1 bad span skipped" in result.stderr


def test_names_in_a_spool_are_never_paths(tmp_path: Path) -> None:
    """Only its own files are read and only its own state is written, whatever a segment or a plan is called in it."""
    spool = tmp_path / "spool"
    writer = SpoolWriter(str(spool))
    scope = writer.scope(b"\x0a\x12\x0a\x05../..\x12\x09\x0a\x07/etc/x/", b"\x0a\x05../..")
    writer.span(scope.to_bytes(2, "little"), b"\x0a\x10" + b"\x01" * 16 + b"\x12\x08" + b"\x02" * 8 + b"\x2a\x05../..")
    writer.close()
    os.environ["RAY_TRACING_LOCAL_DIR"] = str(tmp_path / "out")
    before = sorted(tmp_path.iterdir())
    result = run("replay", "--exporter", "local", spool)
    assert result.exit_code == 0, result.output
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])
    (made,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"replay-[0-9a-f]{15}-0001\.jsonl", made.name)


# Settings files.


def problems_of(file: Path) -> list[str]:
    problems: list[str] = []
    load({"RAY_TRACING_CONFIG": str(file)}, problems.append)
    return problems


def test_merges_within_merges_are_not_read(tmp_path: Path) -> None:
    """A dozen lines would take years and all memory."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    (tmp_path / "settings.yaml").write_text("\n".join(lines))
    (problem,) = problems_of(tmp_path / "settings.yaml")
    assert "'<<' is not read" in problem


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        (b"local_dir: /" + b"x" * 70_000, "larger than 64 KiB"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nexclude: *c\n", "unknown setting 'a'"),
        (b"!!python/object/apply:os.system ['touch owned']", "not valid YAML"),
        (b"[" * 2000, "it is nested too deeply"),
    ],
)
def test_hostile_settings_are_a_sentence(tmp_path: Path, contents: bytes, problem: str) -> None:
    (tmp_path / "settings.yaml").write_bytes(contents)
    said = problems_of(tmp_path / "settings.yaml")
    assert any(problem in sentence for sentence in said)
    assert all(len(sentence) < 1000 for sentence in said)


def test_settings_that_are_no_file_keep_nobody_waiting(tmp_path: Path) -> None:
    """Every worker would wait for ever."""
    os.mkfifo(tmp_path / "settings.yaml")
    for path in (tmp_path / "settings.yaml", Path("/dev/zero"), tmp_path):
        (problem,) = problems_of(path)
        assert "cannot be read (" in problem
