"""What the report costs: to make, to send and to look at: ``page.py [SPANS]...``.

The spans are those of ``insight.py``. For each number of them a process of its own makes the page; then headless
Chromium without a GPU opens it at 1600 x 900. A frame is the drawing of the timeline, read back so that nothing is left
for later. Needs Chromium and Playwright.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import insight

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "helpers"))

from browser import chromium

_FRAMES = """async ([share, frames]) => {
    const { app, store } = window.insight;
    const { timeline } = app.views;
    app.show("timeline");
    const took = [];
    for (let n = 0; n < frames; n++) {
        const from = store.end * (1 - share) * (n / frames);
        store.range = [from, from + store.end * share];
        const began = performance.now();
        timeline.draw();
        timeline.canvas.getContext("2d").getImageData(0, 0, 1, 1);
        took.push(performance.now() - began);
        await new Promise(done => requestAnimationFrame(done));
    }
    took.sort((a, b) => a - b);
    return [took[Math.floor(took.length / 2)], took[Math.floor(took.length * 0.95)]];
}"""

_ASK = """async ask => {
    const { app, store } = window.insight;
    const began = performance.now();
    await new Function("app", "store", "return " + ask)(app, store);
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return performance.now() - began;
}"""

_ASKS = {
    "filter by name": "app.setFilter('-1')",
    "filter by duration": "app.setFilter('>1ms')",
    "no filter": "app.setFilter('')",
    "select a function": "store.select({ type: 'function', id: 1 })",
    "select a span": "app.selectSpan(Math.floor(store.count / 2))",
    "flame graph": "app.show('flame')",
    "physical": "app.show('physical')",
    "logical": "app.show('logical')",
    "stack": "app.show('stack')",
    "spans": "app.show('spans')",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spans", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    given = parser.parse_args()
    for spans in given.spans:
        with tempfile.TemporaryDirectory(prefix="page-") as folder:
            insight.write(folder, spans)
            print(f"{spans:,} spans", flush=True)
            path = os.path.join(folder, "report.html")
            _make(folder, path)
            _look(path)


def _make(folder: str, path: str) -> None:
    program = (
        "import resource, sys; from ray_tracing_hooks._cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print('MiB', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,"
        " resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,"
        " round(sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)), 1))"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, "view", folder, "--output", path], check=True, capture_output=True, text=True
    )
    took = time.monotonic() - began
    _, own, children, cpu = done.stdout.split("\n")[-2].split()
    size = f"{os.path.getsize(path) / 1e6:.1f} MB"
    print(f"  made in {took:.1f} s ({cpu} s of processor time), {own} MiB (readers {children} MiB), {size}")


def _look(path: str) -> None:
    with chromium() as browser:
        page: Any = browser.new_page(viewport={"width": 1600, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"file://{path}#view=timeline")
        page.wait_for_selector("body[data-ready]")
        ready = page.evaluate("performance.now()")
        drawn = page.evaluate("window.insight.app.views.timeline.drawn")
        loaded = page.evaluate("window.insight.loaded")
        print(f"  opened in {ready:.0f} ms at most, {loaded:.0f} ms of it unpacking and laying out; {drawn:,.0f} bars")
        for share in (1, 0.1, 0.01):
            median, slow = page.evaluate(_FRAMES, [share, 40])
            print(f"  frame, {share:.0%} of the time: median {median:.1f} ms, 95 % within {slow:.1f} ms")
        page.evaluate("window.insight.store.setRange(0, window.insight.store.end)")
        for what, ask in _ASKS.items():
            print(f"  {what}: {page.evaluate(_ASK, ask):.0f} ms")


if __name__ == "__main__":
    main()
