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
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.views.exports.otlp import _attributes, _described

MS = 1_000_000
EPOCH = 1_795_300_404_477_229_122
DRIVER = process(pid=1, **{"ray.worker.process_type": "driver"})


def line(each: Span) -> str:
    resource = {"attributes": _attributes(each.resource)}
    scope_spans = [{"scope": {"name": each.scope}, "spans": [_described(each)]}]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}) + "\n"


def calls(first: int, many: int) -> str:
    """The lines of ``count`` sequential calls of one task, each with four child spans."""
    made = []
    for number in range(first, first + many):
        at = EPOCH + number * 10 * MS
        made += [
            span(10 * number, at, at + MS, 1, name="m.f ray.remote", kind=PRODUCER, where=DRIVER),
            span(10 * number + 1, at + 2 * MS, at + 9 * MS, 10 * number, name="m.f ray.remote_worker", kind=CONSUMER),
        ]
        for inside in range(4):
            begin = at + (3 + inside) * MS
            made.append(span(10 * number + 2 + inside, begin, begin + MS // 2, 10 * number + 1, name="inside"))
    return "".join(map(line, made))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a driver and fifty calls."""
    driver = span(1, EPOCH, EPOCH + 10_000 * MS, name="</script><b>x.py ray.driver", where=DRIVER)
    (tmp_path / "a.jsonl").write_text(line(driver) + calls(1, 50))
    return tmp_path


@pytest.fixture
def address(folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the command, run as a user runs it, says that the page is. Ctrl-C ends it without a word."""
    command = [sys.executable, "-m", "ray_tracing_hooks", "serve", str(folder), "--max-spans", request.param]
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


def report(page: Any, version: int) -> Any:
    """The frame with the report of this version, once it is there."""
    # Not Playwright's own waiting for a condition, which the policy of the page does not allow.
    deadline = time.monotonic() + 60
    while not (found := [frame for frame in page.frames if f"/report?version={version}" in frame.url]):
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    found[0].locator("body[data-ready='true']").wait_for()
    return found[0]


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page in which nothing goes wrong, and that asks nothing of another address."""
    found = browser.new_page(viewport={"width": 1600, "height": 900})
    problems: list[str] = []
    asked: set[str] = set()
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    found.on("request", lambda request: asked.add(request.url.partition("?")[0]))
    yield found
    found.close()
    assert problems == []
    paths = {url.removeprefix(address) for url in asked if not url.startswith("data:")}
    assert {path for path in paths if not path.startswith("ask/")} == {"", "state", "report"}


@pytest.mark.parametrize("address", ["1000"], indirect=True)
def test_the_page_follows_what_is_recorded(address: str, page: Any, folder: Path) -> None:
    """It shows what there was; what arrives is shown when it is asked for, and then by itself, in the same view.

    No script of a span runs.
    """
    page.goto(address + "#view=timeline&t=100000000-200000000")
    frame = report(page, 1)
    assert frame.evaluate("window.insight.store.count") == 301
    assert frame.evaluate("[...window.insight.store.range].map(Math.round)") == [100 * MS, 200 * MS]
    page.keyboard.press("7")
    settle(page, frame, "app.view === 'spans'")
    page.keyboard.press("2")
    told = page.locator("#told")
    told.filter(has_text="301 spans").wait_for()
    follow(page, folder)
    assert page.evaluate("location.hash").startswith("#view=timeline")


def follow(page: Any, folder: Path) -> Any:
    """Record more, twice; the frame that shows it."""
    told = page.locator("#told")
    with (folder / "a.jsonl").open("a") as file:
        file.write(calls(51, 10))
    page.locator("#reload").click()
    told.filter(has_text="361 spans").wait_for()
    report(page, 2)
    page.locator("#follow").check()
    (folder / "b.jsonl").write_text(calls(61, 10))
    told.filter(has_text="421 spans").wait_for()
    return report(page, 3)


def settle(page: Any, frame: Any, condition: str) -> None:
    """Wait until it is so in the page."""
    deadline = time.monotonic() + 30
    while not frame.evaluate(f"(() => {{ const {{ app, store }} = window.insight; return {condition}; }})()"):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(20)


@pytest.mark.parametrize("address", ["20"], indirect=True)
def test_a_run_that_is_too_large_for_a_page_is_asked_for(address: str, page: Any, folder: Path) -> None:
    """Every view opens, the timeline has all spans where it is close enough, and search, selection and details work.

    What is recorded meanwhile is shown like that of a small run.
    """
    page.goto(address)
    frame = report(page, 1)

    def js(expression: str) -> Any:
        return frame.evaluate(f"(() => {{ const {{ app, store }} = window.insight; return {expression}; }})()")

    bars = "store.tiles.size && store.wanted.size === 0 && store.asking === 0"
    assert js("[store.total, store.count < 301]") == [301, True]
    js("app.show('timeline')")
    settle(page, frame, bars)
    # Far off, what is inside is one bar for each bucket; close to it each is one.
    counts = (
        "(() => { const all = []; for (let sub = 0; sub < store.begins.length - 1; sub++)"
        " store.eachBar(sub, ...store.range, (i, begin, end, flags, count) => all.push(count)); return all; })()"
    )
    assert max(js(counts)) > 1
    js(f"store.setRange({100 * MS}, {200 * MS})")
    settle(page, frame, f"{bars} && {counts}.every((count) => count === 1)")
    # The driver, ten calls, and the submission that begins at the very end.
    assert len(js(counts)) == 1 + 6 * 10 + 1

    held = "part.by.every(({ rows }) => rows.length && rows.every(row => row < store.count))"
    assert js(f"store.meta.split.parts.length && store.meta.split.parts.every(part => {held})")
    js("document.querySelector('#tab-timeline').click()")
    name = "app.details.root.textContent.includes('m.f')"
    at = "(() => { let found = -1; for (let sub = 0; sub < store.begins.length - 1; sub++) store.eachBar(sub, "
    js(
        at
        + "...store.range, (i) => { if (store.kind(i) === 5) found = i; }); app.selectSpan(found); return found; })()"
    )
    settle(page, frame, f"{name} && store.known")
    assert js("app.details.root.textContent.includes('In the queue')")
    assert js("app.details.root.textContent.includes('1.00 ms')")
    assert js("store.parent[store.selection.row] >= 0 && store.submission[store.selection.row] >= 0")
    assert js("location.hash.includes(`span=${store.row[store.selection.row]}`)")

    js("app.setFilter('remote_worker')")
    settle(
        page, frame, "store.kept === 50 && app.views.timeline.rows.filter(({ kind }) => kind === 'bars').length === 1"
    )
    assert js("document.getElementById('hidden').textContent") == "50 of 301 spans, 251 hidden"
    js("(store.setRange(0, store.end), app.show('spans'))")
    settle(page, frame, "app.views.spans.note.textContent.startsWith('50 spans of 301')")
    assert js("app.views.spans.rows.length") == 50
    js("app.setFilter('batch=7')")
    settle(page, frame, "document.getElementById('hidden').textContent.startsWith('batch:')")
    assert js("store.kept") == 301
    js("app.setFilter('')")

    for view, seen in {
        "findings": "document.querySelector('.facts')",
        "flame": "app.views.flame.frames.levels.length === 3",
        "logical": "document.querySelector('.logical svg')",
        "physical": "document.querySelectorAll('button.place').length === 2",
        "stack": "document.querySelectorAll('.stack tbody tr').length >= 1",
        "spans": "app.views.spans.rows.length === 301",
    }.items():
        js(f"app.show('{view}')")
        settle(page, frame, seen)
    js("store.select({ type: 'function', id: store.meta.graph.functions.findIndex(({ label }) => label === 'm.f') })")
    settle(page, frame, "app.details.root.textContent.includes('Slowest spans')")
    assert js("app.details.root.textContent.includes('300 spans')")
    js("app.show('physical')")
    settle(page, frame, "document.querySelectorAll('button.place.chosen').length === 2")
    js("store.setRange(100e6, 200e6)")
    js("app.show('flame')")
    settle(page, frame, "[...app.views.flame.figures.spans].reduce((a, b) => a + b) === 62")

    frame = follow(page, folder)
    assert frame.evaluate("window.insight.store.total") == 421
    assert frame.evaluate("[...window.insight.store.range].map(Math.round)") == [100 * MS, 200 * MS]


@pytest.mark.parametrize("address", ["20"], indirect=True)
def test_an_address_of_a_large_run_opens_what_it_says(address: str, page: Any) -> None:
    """The span, though the page does not hold it, the filter and the range."""
    page.goto(address + f"#view=timeline&span=60&q=m.f&t={100 * MS}-{200 * MS}")
    frame = report(page, 1)
    settle(page, frame, "store.selection && store.row[store.selection.row] === 60 && store.kept === 100")
    settle(page, frame, "app.details.root.textContent.includes('m.f')")
    assert frame.evaluate("[...window.insight.store.range].map(Math.round)") == [100 * MS, 200 * MS]


def test_what_cannot_be_served_is_told_at_once(folder: Path) -> None:
    """A folder that is not there, one without spans, a port that is not free for us."""
    run = CliRunner().invoke
    missing = run(main, ["serve", str(folder / "none")])
    assert (missing.exit_code, "does not exist" in missing.output) == (2, True)
    (folder / "empty").mkdir()
    empty = run(main, ["serve", str(folder / "empty")])
    assert (empty.exit_code, "it contains no *.jsonl" in empty.output) == (1, True)


class TestDatasets:
    """A run with a dataset."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        recorded = Path(__file__).parent.parent / "insight" / "recorded" / "data_bottleneck.jsonl.gz"
        (tmp_path / recorded.name).symlink_to(recorded)
        return tmp_path

    @pytest.mark.parametrize("address", ["20"], indirect=True)
    def test_operators_are_there_also_if_their_tasks_are_asked_for(self, address: str, page: Any) -> None:
        page.goto(address + "#view=datasets")
        frame = report(page, 1)
        assert frame.locator(".operator .title").all_text_contents()[1:] == ["MapBatches(Embedder)"]
        frame.locator(".operator").nth(1).click()
        frame.locator(".details h2", has_text="MapBatches(Embedder) ray.data.operator").wait_for()
        frame.locator(".details", has_text="ray.data.max_concurrency").wait_for()
