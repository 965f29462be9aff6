"""``ray-tracing-hooks serve`` in a real browser: the page is there, and follows what is recorded."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_spans import CONSUMER, PRODUCER, process, span

from ray_tracing_hooks._cli import main
from ray_tracing_hooks._insight.exports.otlp import _attributes, _described
from ray_tracing_hooks._insight.model import Span

MS = 1_000_000
EPOCH = 1_795_300_404_477_229_122
DRIVER = process(pid=1, **{"ray.worker.process_type": "driver"})


def line(each: Span) -> str:
    resource = {"attributes": _attributes(each.resource)}
    scope_spans = [{"scope": {"name": each.scope}, "spans": [_described(each)]}]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}) + "\n"


def calls(first: int, many: int) -> str:
    """The lines of so many calls of one task, one after the other."""
    made = []
    for number in range(first, first + many):
        at = EPOCH + number * 10 * MS
        made += [
            span(10 * number, at, at + MS, 1, name="m.f ray.remote", kind=PRODUCER, where=DRIVER),
            span(10 * number + 1, at + 2 * MS, at + 9 * MS, 10 * number, name="m.f ray.remote_worker", kind=CONSUMER),
        ]
    return "".join(map(line, made))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a driver and fifty calls."""
    driver = span(1, EPOCH, EPOCH + 10_000 * MS, name="</script><b>x.py ray.driver", where=DRIVER)
    (tmp_path / "a.jsonl").write_text(line(driver) + calls(1, 50))
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """Where the command, run as a user runs it, says that the page is. Ctrl-C ends it without a word."""
    command = [sys.executable, "-m", "ray_tracing_hooks", "serve", str(folder), "--max-spans", "60"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        assert serving.stderr is not None
        told = serving.stdout.readline()
        found = re.fullmatch(r"Serving .* at (http://127\.0\.0\.1:\d+/[\w-]{32}/) until Ctrl-C\n", told)
        try:
            assert found, told
            yield found[1]
        finally:
            serving.send_signal(signal.SIGINT)
            rest = serving.communicate(timeout=60)
        assert (serving.returncode, rest) == (0, ("", ""))


def report(page: Any, path: str = "report") -> Any:
    """The frame with the report of this path, once it is there."""
    # Not Playwright's own waiting for a condition, which the policy of the page does not allow.
    deadline = time.monotonic() + 60
    while not (found := [frame for frame in page.frames if frame.url.partition("?")[0].endswith(f"/{path}")]):
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    found[0].locator("body[data-ready='true']").wait_for()
    return found[0]


def test_the_page_follows_what_is_recorded(address: str, browser: Any, folder: Path) -> None:
    """It shows what there was; what arrives is shown when it is asked for, and then by itself, in the same view.

    Of more spans than a page shows there is a sample, and all of a range. Nothing is asked of another address, and
    no script of a span runs.
    """
    page = browser.new_page()
    problems: list[str] = []
    asked: set[str] = set()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.add(request.url.partition("?")[0]))
    page.goto(address + "#view=timeline&t=100000000-200000000")
    frame = report(page)
    assert frame.evaluate("window.insight.store.count") == 60
    assert frame.evaluate("[...window.insight.store.range].map(Math.round)") == [100 * MS, 200 * MS]
    told = page.locator("#told")
    told.filter(has_text="101 spans, of which the page shows 60: figures are of all of them").wait_for()

    page.locator("#part").click()
    # The calls from 100 to 200 ms, the submission that begins there, and the driver that made them.
    assert report(page, "part").evaluate("window.insight.store.count") == 2 * 10 + 1 + 1
    told.filter(has_text="A part of the run").wait_for()
    page.locator("#whole").click()
    report(page)

    with (folder / "a.jsonl").open("a") as file:
        file.write(calls(51, 10))
    page.locator("#reload").click()
    told.filter(has_text="121 spans").wait_for()
    page.locator("#follow").check()
    (folder / "b.jsonl").write_text(calls(61, 10))
    told.filter(has_text="141 spans").wait_for()
    report(page)
    assert page.evaluate("location.hash").startswith("#view=")
    assert problems == []
    assert {url.removeprefix(address) for url in asked if not url.startswith("data:")} == {
        "", "state", "report", "part",
    }  # fmt: skip
    page.close()


def test_what_cannot_be_served_is_told_at_once(folder: Path) -> None:
    """A folder that is not there, one without spans, a port that is not free for us."""
    run = CliRunner().invoke
    missing = run(main, ["serve", str(folder / "none")])
    assert (missing.exit_code, "does not exist" in missing.output) == (2, True)
    (folder / "empty").mkdir()
    empty = run(main, ["serve", str(folder / "empty")])
    assert (empty.exit_code, "it holds no *.jsonl" in empty.output) == (1, True)
