"""Takes the pictures of the documents from the reports of recorded runs: ``pictures.py [FOLDER]``, by default
``docs/pictures``.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile

from playwright.sync_api import Browser, Page

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import load
from ray_tracing_hooks._insight.model.span import CONSUMER
from ray_tracing_hooks._insight.views import page as pages

HERE = os.path.dirname(os.path.abspath(__file__))

PICTURES = (
    ("findings", "bottleneck", "view=findings", "light"),
    ("timeline", "worker_tree", "view=timeline", "light"),
    ("flame", "worker_tree", "view=flame", "dark"),
    ("logical", "worker_tree", "view=logical", "light"),
    ("requests", "waiting_requests", "view=requests", "light"),
    ("datasets", "data_bottleneck", "view=datasets", "light"),
    ("ranks", "late_rank", "view=ranks", "light"),
    ("details", "worker_tree", "view=timeline&path=0&q=-ray.get+-ray.wait&span=%d", "dark"),
)
OF_README = ("bottleneck", "slow_job")
"""The first finding of a run, with its timeline below it."""
_FRAME = "<!doctype html><style>html{overflow:hidden} body{margin:0} img{display:block;width:1280px}</style>"


def main() -> None:
    sys.path.append(os.path.join(HERE, "..", "helpers"))
    from browser import chromium

    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "docs", "pictures")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as made, chromium() as browser:
        for name, run, state, scheme in PICTURES:
            page = opened(browser, made, run, state, scheme)
            saved(page.screenshot(), folder, name)
            page.close()
        name, run = OF_README
        for scheme in ("light", "dark"):
            page = opened(browser, made, run, "view=findings", scheme)
            finding = page.locator("[data-finding]").first.bounding_box()
            assert finding is not None
            bottom = finding["y"] + finding["height"] + 12
            top = page.screenshot(
                clip={"x": 0, "y": finding["y"] - 12, "width": 1280, "height": bottom - finding["y"] + 12}
            )
            page.goto(page.url.replace("view=findings", "view=timeline&path=0"))
            page.wait_for_function("location.hash.includes('timeline')")
            settled(page)
            below = page.screenshot(
                clip={"x": 0, "y": 173, "width": 1280, "height": 310}
            )  # from the ruler to the last lane
            page.close()
            page = browser.new_page(viewport={"width": 1280, "height": 100})  # without the report's security policy
            page.set_content(_FRAME + "".join(f"<img src='{data_url(each)}'>" for each in (top, below)))
            saved(page.screenshot(full_page=True), folder, f"{name}-{scheme}")
            page.close()


def opened(browser: Browser, made: str, run: str, state: str, scheme: str) -> Page:
    """The report of a recorded run."""
    from recordings import recorded

    path = os.path.join(made, f"{run}.html")
    table = load(span_files([recorded(run)]))
    with open(path, "wb") as file:
        pages.write(file, Analysis(table), source=run)
    failed = next((row for row in range(len(table)) if table.failed(row) and table.kind[row] == CONSUMER), 0)
    page = browser.new_page(
        viewport={"width": 1280, "height": 720}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page.goto(f"file://{path}#{state.replace('%d', str(failed))}")
    settled(page)
    return page


def settled(page: Page) -> None:
    page.wait_for_selector("body[data-ready]")
    page.evaluate("() => new Promise(done => setTimeout(done, 300))")


def data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def saved(picture: bytes, folder: str, name: str) -> None:
    target = os.path.join(folder, f"{name}.png")
    with open(target, "wb") as file:
        file.write(picture)
    print(target, len(picture))


if __name__ == "__main__":
    main()
