"""What the report costs: to make, to send and to look at: ``page.py [--serve] [SPANS]...``.

The spans are those of ``insight.py``. For each number of them a process of its own makes the page; then headless
Chromium without a GPU opens it at 1600 x 900. A frame is the drawing of the timeline, read back so that nothing is left
for later. With ``--serve`` the page is that of a local server, which answers for its spans: seconds until it is there,
the memory of the server and of what made the index, and the time until all tiles of a view have come. Needs Chromium
and Playwright.
"""

from __future__ import annotations

import argparse
import os
import signal
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
    parser.add_argument("--serve", action="store_true", help="ask a local server")
    parser.add_argument("--folder", help="with --serve: spans that are there, rather than some that are made")
    given = parser.parse_args()
    if given.folder:
        _serve(given.folder)
        return
    for spans in given.spans:
        with tempfile.TemporaryDirectory(prefix="page-") as folder:
            insight.write(folder, spans)
            print(f"{spans:,} spans", flush=True)
            if given.serve:
                _serve(folder)
            else:
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


_VIEWS = {"the whole run": 1, "a hundredth": 0.01, "a ten-thousandth": 0.0001}

_QUESTIONS = {
    "filter by name": "app.setFilter('-ray.get')",
    "filter by duration": "app.setFilter('>2ms')",
    "no filter": "app.setFilter('')",
    "a span": "store.load(1000)",
    "all of a function": "store.group({ type: 'function', id: 1 })",
    "the slowest": "store.ask('list', { ...store.asked, by: 'took', ascending: 0 })",
    "figures of half of the run": "store.ask('figures', { from: 0, to: Math.floor(store.end / 2), q: '' })",
    "figures of a thousandth": "store.ask('figures', { from: 0, to: Math.floor(store.end / 1000), q: '' })",
    "what is open": "store.ask('stack', { at: Math.floor(store.end / 2), q: '' })",
}


def _serve(folder: str) -> None:
    command = [sys.executable, "-m", "ray_tracing_hooks", "serve", folder, "--max-spans", "1"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving, chromium() as browser:
        assert serving.stdout is not None
        address = serving.stdout.readline().split(" at ")[1].split()[0]
        try:
            page: Any = browser.new_page(viewport={"width": 1600, "height": 900})
            page.set_default_timeout(120_000)
            makers: dict[str, int] = {}
            while (state := page.request.get(f"{address}state").json())["version"] == 0:
                makers[state["doing"].partition(",")[0]] = max(map(_resident, _below(serving.pid)), default=0)
                time.sleep(0.2)
            print(f"  index made in {time.monotonic() - began:.1f} s; {max(makers.values())} MiB at most meanwhile")
            page.goto(f"{address}report?version={state['version']}#view=timeline")
            page.wait_for_selector("body[data-ready]")
            print(
                f"  opened in {page.evaluate('performance.now()'):.0f} ms at most; server {_resident(serving.pid)} MiB"
            )
            for what, share in _VIEWS.items():
                took = page.evaluate(_TILES, share)
                print(f"  tiles of {what}: {took:.0f} ms; {page.evaluate('insight.store.count'):,} spans in the page")
            for share in (1, 0.1, 0.01):
                median, slow = page.evaluate(_FRAMES, [share, 40])
                print(f"  frame, {share:.0%} of the time: median {median:.1f} ms, 95 % within {slow:.1f} ms")
            for what, ask in _QUESTIONS.items():
                print(f"  {what}: {page.evaluate(_ASK, ask):.0f} ms")
            print(f"  server {_resident(serving.pid)} MiB of its own, {_resident(serving.pid, 'RssFile')} mapped")
        finally:
            serving.send_signal(signal.SIGINT)


_TILES = """async share => {
    const { app, store } = window.insight;
    app.show("timeline");
    const began = performance.now();
    store.setRange(store.end * 0.4, store.end * (0.4 + share));
    do await new Promise(done => setTimeout(done, 5));
    while (store.wanted.size || store.asking || app.views.timeline.pending);
    return performance.now() - began;
}"""


def _below(pid: int) -> list[int]:
    try:
        found: list[int] = []
        # What another thread than the first has started is a child of that one.
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        return []
    return found


def _resident(pid: int, what: str = "RssAnon") -> int:
    """MiB."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) // 1024 for line in file if line.startswith(what))
    except (OSError, StopIteration):
        return 0


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
