"""A browser for what is shown in one: headless Chromium of the system, driven by Playwright."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from installed import program
from playwright.sync_api import Browser, sync_playwright

_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
"""Nothing that a browser does of itself on a network."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, as Playwright's ``Browser``; ended at the end."""
    found = program("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(folder: Path, answers: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a server of a folder's files, and of ``answers`` by their paths."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            if found is None:
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_arguments: object) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
