"""``ray-tracing-hooks view``: the file that it writes, and what is in it. How it looks is in tests/browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hand_made import HandMade
from hypothesis import given
from hypothesis import strategies as st
from made_spans import line
from recordings import recorded

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.views.exports.otlp import _attributes
from ray_tracing_hooks._insight.views.page import pack

RECORDED = Path(__file__).parent / "recorded"


def view(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["view", *map(str, arguments)], prog_name="ray-tracing-hooks")


def blocks(page: Path) -> dict[str, list[bytes]]:
    """What the page carries, unpacked, by the ids of its elements."""
    found = re.findall(r'<script type="text/plain" id="(\w+)">([^<]*)</script>', page.read_text())
    return {name: [gzip.decompress(base64.b64decode(line)) for line in text.split()] for name, text in found}


def meta(page: Path) -> Any:
    return json.loads(blocks(page)["meta"][0])


def test_the_page_is_one_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    """It takes the place of what was there, nothing is left beside it, and it names no other file or address."""
    page = tmp_path / "report.html"
    page.write_text("older")
    page.chmod(0o644)
    result = view(RECORDED / "worker_tree.jsonl.gz", "--output", page, "--force")
    assert result.exit_code == 0, result.output
    assert "141 spans" in result.stdout
    assert "attributes" in result.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [page]
    text = page.read_text()
    assert set(re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]*)""", text.partition("<script")[0])) == {
        "data:,",
        "#views",
    }
    assert set(re.findall(r"https?://[^\s\"'<>]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "default-src &#x27;none&#x27;" in text


def test_it_writes_over_reports_of_its_own_alone(tmp_path: Path) -> None:
    """The same call can be made again; any other file stays as it is without --force, as with `export`."""
    page, spans = tmp_path / "report.html", RECORDED / "worker_tree.jsonl.gz"
    assert view(spans, "--output", page).exit_code == 0
    assert view(spans, "--output", page, "--no-attributes").exit_code == 0
    page.write_text("<!doctype html>\nmy own work")
    refused = view(spans, "--output", page)
    assert refused.exit_code == 1
    assert "exists: --force overwrites it" in refused.stderr.replace("\n", " ")
    assert page.read_text() == "<!doctype html>\nmy own work"
    page.unlink()
    page.symlink_to(tmp_path / "elsewhere")
    assert view(spans, "--output", page).exit_code == 1
    assert view(spans, "--output", page, "--force").exit_code == 0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("works", [True, False])
def test_it_opens_the_page(tmp_path: Path, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the program that BROWSER names; where there is none, that is said."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {opened}.part && mv {opened}.part {opened}\n")
    browser.chmod(0o700)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)
    if works:
        monkeypatch.setenv("BROWSER", f"{browser} %s")
    page = tmp_path / "a report.html"
    spans = str(RECORDED / "worker_tree.jsonl.gz")
    command = [sys.executable, "-m", "ray_tracing_hooks", "view", spans, "--open", "--output", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if works:
        assert opened.read_text() == f"{page.as_uri()}\n"
        assert "Open it" not in done.stdout
    else:
        assert "no browser was found" in done.stderr
        assert "Open it in a browser." in done.stdout


@pytest.mark.parametrize(
    ("run", "beginning"),
    [
        ("bottleneck", "Actor Store#93fc54dc "),
        ("late_rank", "Rank 2 of job "),
        ("get_in_loop_of_a_task", "album waits for each call of "),
        ("rank_fails", "job was restarted "),
    ],
)
def test_the_sentence_of_a_finding_begins_with_a_capital_letter_unless_with_a_name(
    tmp_path: Path, run: str, beginning: str
) -> None:
    assert view(recorded(run), "--output", tmp_path / "report.html").exit_code == 0
    assert any(each["text"].startswith(beginning) for each in meta(tmp_path / "report.html")["findings"])


@pytest.mark.parametrize("run", ["bottleneck", "worker_tree", "bottleneck_inferred"])
def test_the_parts_of_the_time_consist_of_all_of_it(tmp_path: Path, run: str) -> None:
    """What each part consists of adds up to the part, and names spans of the page."""
    assert view(RECORDED / f"{run}.jsonl.gz", "--output", tmp_path / "report.html").exit_code == 0
    shown = meta(tmp_path / "report.html")
    parts = shown["path"]["by"]
    assert sum(part["ns"] for part in parts) == shown["path"]["total"]
    waits = [part for part in parts if part["by"]]
    assert waits
    for part in waits:
        assert sum(each["ns"] for each in part["by"]) == part["ns"], part["kind"]
        assert all(0 <= row < shown["spans"] for each in part["by"] for row in each["rows"])


@pytest.mark.parametrize(
    ("address", "is_fine"),
    [("https://a/trace/{trace_id}?at={span_id}", True), ("javascript:{trace_id}", False), ("https://a/trace", False)],
)
def test_traces_and_findings_lead_to_the_back_end_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, is_fine: bool
) -> None:
    """By an address of the web with a place for the trace id; others are reported, and there are no links."""
    monkeypatch.setenv("RAY_TRACING_TRACE_URL", address)
    run = str(RECORDED / "bottleneck.jsonl.gz")
    report = tmp_path / "report.html"
    done = view(run, "--output", report)
    assert done.exit_code == 0
    assert ("RAY_TRACING_TRACE_URL" in done.stderr) == (not is_fine)
    assert meta(report)["trace_url"] == (address if is_fine else "")
    summary, tree = (CliRunner().invoke(main, [command, run]).stdout for command in ("summary", "tree"))
    shown = re.findall(r"https://a/trace/([0-9a-f]{32})\?at=([0-9a-f]*)$", summary, re.MULTILINE)
    assert [len(span) for _, span in shown] == ([16] if is_fine else [])
    traces = re.findall(r"https://a/trace/([0-9a-f]{32})\?at=$", tree, re.MULTILINE)
    assert traces == ([trace for trace, _ in shown] if is_fine else [])


SECRET = "hunter2-the-secret"


def _line(job: str, number: int, name: str, start: int) -> str:
    """A line with the span of a driver that failed, with a secret in all places where there may be one."""
    span = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": f"{name} ray.driver",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**9),
        "status": {"code": 2, "message": f"failed with {SECRET}"},
        "attributes": _attributes({"ray.job_id": job, "api.key": SECRET, "plain": "seen"}),
        "events": [
            {
                "name": "exception",
                "timeUnixNano": str(start),
                "attributes": _attributes({"exception.message": SECRET, "exception.stacktrace": SECRET}),
            }
        ],
        "links": [{"traceId": "1" * 32, "spanId": "2" * 16, "attributes": _attributes({"api.key": SECRET})}],
    }
    return line(span, resource={"service.name": name, "api.key": SECRET})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs, the second one later."""
    folder = tmp_path / "spans"
    folder.mkdir()
    lines = [_line("01", 1, "first.py", 10**18), _line("02", 2, "second.py", 10**18 + 10**12)]
    (folder / "made.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.parametrize(
    ("options", "is_there", "others"),
    [
        ([], True, True),
        (["--no-attributes"], False, False),
        (["--redact", "api.*", "--redact", "EXCEPTION.*"], False, True),
    ],
)
def test_what_is_not_to_be_passed_on_is_not_in_the_file(
    folder: Path, tmp_path: Path, options: list[str], is_there: bool, others: bool
) -> None:
    """A redacted attribute is in no span, event, link, resource or error text; without attributes there is none."""
    page = tmp_path / "report.html"
    assert view(folder, "--output", page, *options).exit_code == 0
    held = b"".join(part for parts in blocks(page).values() for part in parts) + page.read_bytes()
    assert (SECRET.encode() in held) == is_there
    assert (b'"seen"' in held) == others


def test_it_is_the_newest_run_unless_another_is_asked_for(folder: Path, tmp_path: Path) -> None:
    """Nothing of other runs is in the file, their names neither."""
    page = tmp_path / "report.html"
    result = view(folder, "--output", page)
    assert "newest of 2 runs" in result.stderr
    assert meta(page)["source"] == "second.py"
    assert b"first.py" not in b"".join(part for parts in blocks(page).values() for part in parts)
    assert view(folder, "--trace", f"{1:032x}", "--output", page).exit_code == 0
    assert meta(page)["source"] == "first.py"
    assert view(folder, "--job", "01", "--output", page).exit_code == 0
    assert meta(page)["source"] == "first.py"
    assert view(folder, "--all", "--output", page).exit_code == 0
    assert meta(page)["spans"] == 2


def test_a_part_of_a_run_has_what_ran_then_with_its_callers(tmp_path: Path) -> None:
    """Times are from the start of the run. No span is cut."""
    page, run = tmp_path / "report.html", HandMade()
    driver = run.driver(0, 100)
    for begin in (0, 40, 80):
        run.run(run.submit(driver, f"f{begin}", begin), begin + 5, begin + 10)
    path = tmp_path / "made.jsonl"
    path.write_bytes(run.as_json_lines())

    def functions(*options: str) -> list[str]:
        assert view(path, *options, "--output", page).exit_code == 0
        assert meta(page)["extent"] == 100 * 10**6
        return [each["label"] for each in meta(page)["graph"]["functions"]]

    assert functions("--from", "30ms", "--to", "60ms") == ["job.py", "f40"]
    assert functions("--from", "50ms") == ["job.py", "f40", "f80"]
    assert functions("--to", "45ms") == ["job.py", "f0", "f40"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere"], 1, "does not exist"),
        (["{folder}", "--output", "{folder}"], 1, "is a folder"),
        (["{folder}", "--output", "{folder}/no/report.html"], 1, "there is no folder"),
        (["{folder}", "--job", "7f"], 1, "none of 2 runs is of a job that starts with '7f' (--job): the newest is of"),
        (["{folder}", "--from", "1h"], 1, "no span ran then (--from, --to): the spans that are chosen cover"),
        (["{folder}", "--trace", "zz"], 2, "not a trace id"),
        (["{folder}", "--trace", "ab", "--all"], 2, "--trace and --all choose different spans: give one of them"),
        (["{folder}", "--trace", "ab", "--job", "01"], 2, "--trace and --job choose different spans"),
        (["{folder}", "--from", "2s", "--to", "2s"], 2, "--from is not before --to: nothing would be left"),
        (["{folder}", "--max-spans", "0"], 2, "'0' is not valid: expected a whole number from 1 to 1,000,000,000"),
        (["{folder}", "--port", "65536"], 2, "'65536' is not valid: expected a whole number from 0 to 65,535"),
        (["{folder}", "--output", ""], 2, "it is empty: name a file"),
    ],
)
def test_wrong_use_says_what_is_wrong(folder: Path, arguments: list[str], code: int, says: str) -> None:
    """What is not there ends with code 1, and with no text on usage."""
    result = view(*(each.format(folder=folder) for each in arguments))
    assert result.exit_code == code
    assert says in " ".join(result.stderr.split())
    assert ("Usage" in result.stderr) == (code == 2)


@given(st.lists(st.integers(0, 2**63), max_size=30), st.lists(st.integers(0, 255), max_size=5))
def test_columns_keep_their_numbers(numbers: list[int], others: list[int]) -> None:
    """What is packed can be unpacked, by a few lines that say what the browser does."""
    block = pack.packed({"numbers": numbers, "others": others})
    size = int.from_bytes(block[:4], "little")
    at = 4 + size
    found = {}
    for name, count, width in json.loads(block[4:at]):
        planes = [block[at + plane * count : at + (plane + 1) * count] for plane in range(width)]
        found[name] = [sum(plane[place] << 8 * n for n, plane in enumerate(planes)) for place in range(count)]
        at += count * width
    assert found == {"numbers": numbers, "others": others}


@given(st.integers(-(2**40), 2**40))
def test_zigzag_is_never_negative(number: int) -> None:
    """And each number has one of its own."""
    packed = pack.zigzag(number)
    assert packed >= 0
    assert number == (-(packed + 1) // 2 if packed % 2 else packed // 2)
