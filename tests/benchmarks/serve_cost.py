"""What tracing costs a request of Ray Serve, in one and the same cluster with and without.

    python tests/benchmarks/serve_cost.py [--by http,handle] [--sessions 3] [--turns 30] [--seconds 1.0]

Two clusters alike differ by as much as is to be measured. Here the proxy, the replica and the driver have all that
tracing replaces in Ray put back, and replaced again, by turns (``switched_hook``); what is in place of methods of
``logging`` then does nothing more. A deployment that does nothing answers one request after the other, sent by HTTP on
one connection or by a handle.

Printed are the rate and the time that a request takes with tracing, relative to the turn without it beside: median over
the turns of all sessions, with quartiles, and the medians of each session. The 99th percentile is that of all requests
of a session, since a turn has too few: its line has the median over sessions. Then the processor time of each process,
likewise, and that of the shipper for each request that is traced; it works in both kinds of turns, so the rates do not
have it. Each session has a new cluster, and counts its spans at the end: one in the replica for each request of the
turns with tracing, and none of the others. Needs Ray Serve, which ``pip install 'ray[serve]'`` has.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import switching
from soak import shipper_of
from switched_hook import OFF, ON
from switching import connect, hand_over

WARM_UP, AFTER_SWITCH = 400, 50
"""Requests before the first turn, and before each: Python makes code fast again that has been replaced."""

SHIPPER = "shipper"
TITLES = {"proxy": "ProxyActor", "replica": "ServeReplica"}

Turn = dict[str, float]
"""Requests a second, the median of what one takes in us, and the processor time a request of each process in us."""


class Session(NamedTuple):
    """What was measured in one cluster."""

    turns: list[dict[str, Turn]]
    """Pairs of turns, ``off`` and ``on``."""
    shipped: float
    """The processor time of the shipper for a traced request, in us."""
    slowest: dict[str, float]
    """The 99th percentile of what a request took in these turns, in us."""


def session(by: str, turns: int, seconds: float) -> None:
    import loops
    import ray

    switch = connect(2)
    loop = {"http": loops.serve_requests_by_http, "handle": loops.serve_requests_by_handle}[by]()
    traced = 0
    for _ in range(WARM_UP):
        traced += loop()
    pids = processes()
    found: list[dict[str, Turn]] = []
    times: dict[str, list[float]] = {"off": [], "on": []}
    begun = processor_times(pids)[SHIPPER]
    for number in range(turns):
        order = [(OFF, "off"), (ON, "on")]
        pair = {}
        for command, name in order if number % 2 else reversed(order):
            switch.turn(command)
            pair[name], requests = turn(loop, pids, seconds, times[name])
            traced += requests if command == ON else 0
        found.append(pair)
    shipped = (processor_times(pids)[SHIPPER] - begun) / (traced - WARM_UP)
    ray.shutdown()
    files = Path(os.environ["RAY_TRACING_LOCAL_DIR"]).iterdir()
    spans = sum(path.read_bytes().count(b" serve.replica") for path in files)
    if spans != traced:
        sys.exit(f"{traced} requests were traced, and there are {spans} spans of the replica")
    slowest = {name: statistics.quantiles(taken, n=100)[-1] * 1e6 for name, taken in times.items()}
    hand_over([found, shipped, slowest])


def processes() -> dict[str, int]:
    found = {"driver": os.getpid(), SHIPPER: shipper_of(Path(os.environ["RAY_TRACING_SPOOL_DIR"])).pid}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            line = " ".join(process.cmdline())
            found.update({name: process.pid for name, title in TITLES.items() if title in line})
    if missing := TITLES.keys() - found.keys():
        sys.exit(f"not found among the processes: {', '.join(sorted(missing))}")
    return found


def turn(loop: Any, pids: dict[str, int], seconds: float, taken: list[float]) -> tuple[Turn, int]:
    """The figures, and how many requests there were with those before it counts. What each took is added to ``taken``,
    in seconds.
    """
    for _ in range(AFTER_SWITCH):
        loop()
    before = processor_times(pids)
    times: list[float] = []
    now = begun = time.perf_counter()
    while now - begun < seconds:
        loop()
        last, now = now, time.perf_counter()
        times.append(now - last)
    after = processor_times(pids)
    taken += times
    spent = {name: (after[name] - before[name]) / len(times) for name in pids}
    figures = {"rate": len(times) / (now - begun), "median": statistics.median(times) * 1e6, **spent}
    return figures, AFTER_SWITCH + len(times)


def processor_times(pids: dict[str, int]) -> dict[str, float]:
    """In us."""
    from family import processor_time_of

    return {name: processor_time_of(pid) / 1e3 for name, pid in pids.items()}


def run(by: str, turns: int, seconds: float) -> Session:
    """A session in a process of its own."""
    arguments = ["--session", by, "--turns", str(turns), "--seconds", str(seconds)]
    return Session(*switching.session(__file__, arguments))


def report(by: str, sessions: list[Session]) -> None:
    pairs = [pair for found in sessions for pair in found.turns]
    names = [name for name in pairs[0]["off"] if name != SHIPPER]
    print(f"{'by ' + by:12}{'without':>14}{'with, relative':>22}   by session")
    for name in names:
        ratios = sorted(pair["on"][name] / pair["off"][name] for pair in pairs)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        each = [statistics.median(pair["on"][name] / pair["off"][name] for pair in found.turns) for found in sessions]
        without = statistics.median(pair["off"][name] for pair in pairs)
        unit = "1/s" if name == "rate" else "us"
        print(
            f"{name:12}{without:>10,.0f} {unit:<3}{statistics.median(ratios):>8.3f} ({low:.2f}-{high:.2f})"
            f"   {'  '.join(f'{ratio:.3f}' for ratio in each)}"
        )
        if name == "median":
            each = [found.slowest["on"] / found.slowest["off"] for found in sessions]
            without = statistics.median(found.slowest["off"] for found in sessions)
            low, high = min(each), max(each)
            print(
                f"{'p99':12}{without:>10,.0f} us {statistics.median(each):>8.3f} ({low:.2f}-{high:.2f})"
                f"   {'  '.join(f'{ratio:.3f}' for ratio in each)}"
            )
    shipped = statistics.median(found.shipped for found in sessions)
    print(f"{SHIPPER:12}{shipped:>10,.0f} us a traced request, at low priority", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", default="http,handle")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--turns", type=int, default=30, help="pairs of turns in each session")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--session", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.turns, chosen.seconds)
        return
    for by in chosen.by.split(","):
        sessions = []
        for number in range(chosen.sessions):
            print(f"by {by}, session {number + 1} of {chosen.sessions}", file=sys.stderr, flush=True)
            sessions.append(run(by, chosen.turns, chosen.seconds))
        report(by, sessions)


if __name__ == "__main__":
    main()
