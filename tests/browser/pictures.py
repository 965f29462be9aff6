"""Takes the pictures of the README from the report of recorded runs: ``pictures.py [FOLDER]``, by default ``docs``."""

from __future__ import annotations

import os
import sys
import tempfile

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


def main() -> None:
    sys.path.append(os.path.join(HERE, "..", "helpers"))
    from browser import chromium

    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "docs")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as made, chromium() as browser:
        for name, run, state, scheme in PICTURES:
            path = os.path.join(made, f"{run}.html")
            with open(path, "wb") as file:
                recorded = os.path.join(HERE, "..", "insight", "recorded", f"{run}.jsonl.gz")
                table = load(span_files([recorded]))
                pages.write(file, Analysis(table), source=run)
            failed = next((row for row in range(len(table)) if table.failed(row) and table.kind[row] == CONSUMER), 0)
            page = browser.new_page(
                viewport={"width": 1280, "height": 720}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page.goto(f"file://{path}#{state.replace('%d', str(failed))}")
            page.wait_for_selector("body[data-ready]")
            page.evaluate("() => new Promise(done => setTimeout(done, 300))")
            target = os.path.join(folder, f"report-{name}.png")
            page.screenshot(path=target)
            print(target, os.path.getsize(target))


if __name__ == "__main__":
    main()
