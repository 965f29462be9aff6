"""A page of a run in a browser, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Dialog, Page

from ray_tracing_hooks._insight.analysis.analysis import Analysis


class Report:
    """The page of a run, open in a browser."""

    def __init__(self, page: Page, path: Path, analysis: Analysis) -> None:
        self.page, self.path, self.analysis = page, path, analysis
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self._listeners: dict[Any, Callable[..., None]] = {
            "console": lambda message: self.wrong.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: self.wrong.append(str(error)),
            "dialog": self._dialog,
            "request": lambda request: self.requests.append(request.url),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def forget(self) -> None:
        """Listen no more: the next report is opened in the same page."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, **state: object) -> Report:
        """Open it, or what the address says of it, and wait until it is there."""
        self.page.goto("about:blank")
        self.page.goto(self.path.as_uri() + "#" + "&".join(f"{key}={value}" for key, value in state.items()))
        self.page.wait_for_selector("body[data-ready]")
        self.settle()
        return self

    def js(self, expression: str) -> Any:
        """The value of an expression in which ``store`` and ``app`` are those of the page."""
        return self.page.evaluate(f"() => {{ const {{ store, app }} = window.insight; return {expression}; }}")

    def rows(self, name: str) -> list[int]:
        """The rows of the spans of this name."""
        table = self.analysis.table
        return [row for row in range(len(table)) if table.name_of(row) == name]

    def select(self, row: int) -> None:
        self.js(f"app.selectSpan({row})")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def colours(self, canvas: str) -> int:
        """How many different colours a canvas shows."""
        found: int = self.page.evaluate(
            """selector => {
                const canvas = document.querySelector(selector);
                const { width, height } = canvas;
                const image = canvas.getContext("2d").getImageData(0, 0, width, height);
                return new Set(new Uint32Array(image.data.buffer)).size;
            }""",
            canvas,
        )
        return found


MakeReport = Callable[..., Report]
