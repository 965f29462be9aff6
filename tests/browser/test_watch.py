"""``ray-tracing-hooks view --watch`` in a real browser: the page follows what is recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hand_made import HandMade
from playwright.sync_api import Browser

MS = 1_000_000


def calls(first: int, many: int) -> bytes:
    """The lines of sequential calls of one task, after those of a driver of a second."""
    run, driver = HandMade.driven(1000)
    run.spans[0].name = "</script><b>x.py ray.driver"
    for number in range(first + many):
        run.run(run.submit(driver, "m.f", 10 * number), 10 * number + 2, 10 * number + 9)
    spans = run.as_json_lines().splitlines(keepends=True)
    return b"".join(spans[1 + 2 * first :] if first else spans)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a driver and twenty calls."""
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.jsonl").write_bytes(calls(0, 20))
    return tmp_path / "spans"


@pytest.fixture
def address(folder: Path, tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "ray_tracing_hooks", "view", str(folder), "--watch"]
    with subprocess.Popen(
        [*command, "--output", str(tmp_path / "report.html")], stdout=subprocess.PIPE, env=os.environ, text=True
    ) as running:
        assert running.stdout is not None
        try:
            running.stdout.readline()
            yield running.stdout.readline().split()[3]
        finally:
            running.send_signal(signal.SIGINT)


def test_the_page_follows_what_is_recorded(browser: Browser, address: str, folder: Path) -> None:
    """In the same view and range. No script of a span runs, and nothing is asked of another address."""
    page = browser.new_page(viewport={"width": 1600, "height": 900})
    page.set_default_timeout(60_000)
    problems: list[str] = []
    asked: set[str] = set()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda request: asked.add(request.url.partition("?")[0].removeprefix(address)))
    page.goto(f"{address}#view=timeline&t={100 * MS}-{200 * MS}")
    frame: Any = page.frame_locator("iframe")
    frame.locator("#size", has_text="41 spans").wait_for()
    page.keyboard.press("7")
    frame.locator("#tab-spans[aria-selected=true]").wait_for()
    page.keyboard.press("2")
    (folder / "b.jsonl").write_bytes(calls(20, 10))
    frame.locator("#size", has_text="61 spans").wait_for()
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator("#tab-timeline").get_attribute("aria-selected") == "true"
    assert frame.locator("#range").text_content() == "100 ms \u2013 200 ms"
    page.close()
    assert problems == []
    assert {path for path in asked if not path.startswith("data:")} == {"", "version", "report"}
