"""The rate of calls with tracing relative to the rate without, for Ray's own loops.

    python tests/benchmarks/calls [--loops NAME,...] [--lanes NAME,...] [--rounds 5] [--sessions 1] [--seconds 0.5]

Every contender has a driver and a cluster of its own, all of them up at once, and they take turns: half a second each,
round after round, the order reversed each time, so that a slow moment of the machine hits all of them alike. Figures
are medians, over the rounds of all sessions, of the ratio to the untraced rate of the same round; a session starts
every cluster anew. The collector is a process that answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from loops import LOOPS

HERE = Path(__file__).parent


class Lane(NamedTuple):
    hook: str
    variables: dict[str, str] = {}  # noqa: RUF012  a NamedTuple's default is not changed


UNTRACED = "untraced"
OURS = "ray_tracing_hooks."
LANES = {
    UNTRACED: Lane(""),
    "ray": Lane("ray.util.tracing.setup_local_tmp_tracing:setup_tracing"),
    "batch": Lane("usual_hook:setup"),
    "local": Lane(f"{OURS}local:setup"),
    "otlp": Lane(f"{OURS}otlp:setup"),
    "unsampled": Lane(f"{OURS}local:setup", {"OTEL_TRACES_SAMPLER": "always_off"}),
}


class Driver:
    """A lane's process, which runs a loop when told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._in, self._out = process, process.stdin, process.stdout

    def rate(self, loop: str, seconds: float) -> float:
        self._in.write(f"{loop}\t{seconds}\n")
        self._in.flush()
        return float(self._answer("RATE "))

    def wait_until_ready(self) -> None:
        self._answer("READY")

    def _answer(self, mark: str) -> str:
        for line in self._out:
            if line.startswith(mark):
                return line.removeprefix(mark)
        raise RuntimeError("the driver has ended; see its output above")

    def end(self) -> None:
        self._in.close()
        self.process.wait(60)


@contextmanager
def driver(lane: Lane, folder: str, collector: str, log: TextIO) -> Iterator[Driver]:
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
        "RAY_TRACING_LOCAL_DIR": os.path.join(folder, "spans"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        **lane.variables,
    }
    process = subprocess.Popen(
        [sys.executable, str(HERE / "lane.py"), lane.hook],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    found = Driver(process)
    try:
        yield found
    finally:
        found.end()


@contextmanager
def collector() -> Iterator[str]:
    command = [sys.executable, str(HERE.parent / "shipper_throughput.py"), "--collect", "grpc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


Rates = dict[str, dict[str, list[float]]]
"""By loop and lane, one figure a round."""


def measure(lanes: list[str], loops: list[str], rounds: int, seconds: float, rates: Rates) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(collector())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rth-", ignore_cleanup_errors=True))
        drivers: dict[str, Driver] = {}
        for name in lanes:
            path = os.path.join(folder, name)
            os.mkdir(path)
            log = stack.enter_context(open(os.path.join(path, "log"), "w"))
            drivers[name] = stack.enter_context(driver(LANES[name], path, address, log))
            drivers[name].wait_until_ready()
        for number in range(rounds):
            for loop in loops:
                for name in lanes if number % 2 == 0 else reversed(lanes):
                    rate = drivers[name].rate(loop, seconds)
                    rates.setdefault(loop, {}).setdefault(name, []).append(rate)
            progress(f"round {number + 1} of {rounds}")


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(rates: Rates, lanes: list[str]) -> str:
    """Untraced calls a second, then each lane's ratio to it: median, and the quartiles."""
    lines = [f"{'':32}{'untraced':>11}" + "".join(f"{name:>20}" for name in lanes if name != UNTRACED)]
    for loop, found in rates.items():
        base = found[UNTRACED]
        line = f"{loop:32}{statistics.median(base):>9,.0f}/s"
        for name in lanes:
            if name == UNTRACED:
                continue
            ratios = sorted(rate / untraced for rate, untraced in zip(found[name], base, strict=True))
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            line += f"{statistics.median(ratios):>8.2f} ({low:.2f}-{high:.2f})"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", default=",".join(LOOPS), help="comma list; default: all")
    parser.add_argument("--lanes", default=",".join(LANES), help="comma list")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--plot", help="draw the ratios into this SVG file")
    parser.add_argument("--json", help="write every figure to this file")
    chosen = parser.parse_args()
    lanes = list(dict.fromkeys([UNTRACED, *chosen.lanes.split(",")]))
    rates: Rates = {}
    for number in range(chosen.sessions):
        progress(f"session {number + 1} of {chosen.sessions}")
        measure(lanes, chosen.loops.split(","), chosen.rounds, chosen.seconds, rates)
        print(table(rates, lanes), flush=True)
    if chosen.plot:
        from plot import plot

        plot(rates, lanes, UNTRACED, chosen.plot)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(rates))


if __name__ == "__main__":
    main()
