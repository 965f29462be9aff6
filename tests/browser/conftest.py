"""A real browser, and pages of recorded and of made-up runs in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from browsing import MakeReport, Report
from playwright.sync_api import Browser, Page
from recordings import recorded

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.span import Span
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views import page as pages


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with the tests of a file: its event loop runs as long, and other tests have their own."""
    with chromium() as found:
        yield found


class Pages:
    """Open pages by what is asked of their windows. To open a window costs more than to open a report in one."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: dict[tuple[str, tuple[int, int]], list[Page]] = {}
        self._taken: list[tuple[tuple[str, tuple[int, int]], Page]] = []

    def take(self, scheme: Any, size: tuple[int, int]) -> Page:
        """One that no other report of the test has."""
        idle = self._idle.setdefault((scheme, size), [])
        if idle:
            page = idle.pop()
        else:
            context = self._browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
            context.set_default_timeout(20_000)
            page = context.new_page()
        self._taken.append(((scheme, size), page))
        return page

    def give_back(self) -> None:
        """All that the test has taken, as they were when they were new."""
        for key, page in self._taken:
            page.evaluate("location.protocol === 'file:' && window.localStorage.clear()")
            page.goto("about:blank")
            page.mouse.move(0, 0)
            page.emulate_media(media="null")
            page.context.clear_permissions()
            self._idle[key].append(page)
        self._taken.clear()


@pytest.fixture(scope="module")
def opened_pages(browser: Browser) -> Pages:
    return Pages(browser)


@pytest.fixture
def report(opened_pages: Pages, tmp_path: Path) -> Iterator[MakeReport]:
    """Makes the page of a recorded run, by its name, of spans or of an analysis; nothing may go wrong in it nor leave
    it.
    """
    made: list[Report] = []

    def make(
        run: str | Sequence[Span] | Table | Analysis,
        *,
        scheme: Any = "light",
        size: tuple[int, int] = (1600, 900),
        **options: Any,
    ) -> Report:
        if isinstance(run, str):
            run = load(span_files([recorded(run)]))
        elif not isinstance(run, (Table, Analysis)):
            run = Table.of(run)
        analysis = run if isinstance(run, Analysis) else Analysis(run)
        path = tmp_path / f"report{len(made)}.html"
        with open(path, "wb") as file:
            pages.write(file, analysis, source="a run", **options)
        made.append(Report(opened_pages.take(scheme, size), path, analysis))
        return made[-1]

    yield make
    for each in made:
        each.forget()
    opened_pages.give_back()
    for each in made:
        assert each.wrong == []
        assert {url.split("#")[0] for url in each.requests} <= {each.path.as_uri(), "about:blank"}
