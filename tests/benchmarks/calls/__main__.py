"""The rate of calls, and the processor time of a call, with tracing relative to the same without: Ray's own loops.

    python tests/benchmarks/calls [--loops NAME,...] [--lanes NAME,...] [--options] [--rounds 3] [--sessions 2]
                                  [--seconds 0.3] [--json FILE]

Every contender has a driver and a cluster of its own. All of them are up at once, and stand still (``SIGSTOP``) but in
their turn. Turns are short, round after round, the order reversed each time, so that a slow moment of the machine hits
all of them alike. A turn is over when its spans are delivered and its processes are idle. What delivers later by a
timer, as batch processors do, does it in a later turn of its own. Three tables come of it:

- calls a second, relative to the untraced ones of the same round;
- processor time a call, relative likewise: of the driver, the workers and all of Ray, and of what delivers the spans.
  It is the steadier one, since others on the machine hardly change it, and nothing that is done later is missing;
- the same in microseconds more than untraced, by the process that spends them: driver, workers, shipper, rest of Ray.

Figures are medians over the rounds of all sessions, with their quartiles; a session starts every cluster anew. The lane
``again`` is one without tracing like the first: how far it is from 1 says how far the others may be off. The collector
and the agent of ddtrace are processes that answer at once; their own time counts for nobody.

``pip install 'ray-tracing-hooks[bench]'`` has ddtrace, without which its lane is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from contenders import LANES, OPTIONS, UNTRACED, Contenders, Turn, missing
from family import ROLES
from loops import CORE

WARM_SHARE = 0.25
"""How long a turn runs before it counts, as a share of the time that counts."""

Turns = dict[str, dict[str, list[Turn | None]]]
"""By loop and lane, one a round; None where the lane cannot run the loop."""

Figures = dict[str, dict[str, list[float | None]]]
"""One figure of each."""


def measure(lanes: list[str], loops: list[str], rounds: int, seconds: float, turns: Turns) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rth-", ignore_cleanup_errors=True))
        contenders = Contenders(stack, folder, lanes)
        for number, loop in enumerate(loops):
            progress(f"{loop} ({number + 1} of {len(loops)})")
            found = turns.setdefault(loop, {lane: [] for lane in lanes})
            able = [lane for lane in lanes if contenders.prepare(lane, loop)]
            for lane in able:
                contenders.turn(lane, 0, 0)  # to get warm
            for round_ in range(rounds):
                order = able if round_ % 2 == 0 else able[::-1]
                came = {lane: contenders.turn(lane, seconds * WARM_SHARE, seconds) for lane in order}
                for lane in lanes:
                    found[lane].append(came.get(lane))
                able = [lane for lane in able if came[lane] is not None]
            for lane in able:
                contenders.drop(lane)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def ratios(found: dict[str, list[float | None]], lane: str) -> list[float]:
    """Of the rounds that both have, sorted."""
    pairs = zip(found[lane], found[UNTRACED], strict=True)
    return sorted(figure / base for figure, base in pairs if figure is not None and base is not None)


def table(figures: Figures, lanes: list[str], unit: str, scale: float) -> str:
    """The untraced figure, then each lane's ratio to it: median, and the quartiles."""
    shown = [lane for lane in lanes if lane != UNTRACED]
    lines = [f"{'':30}{UNTRACED + ', ' + unit:>20}" + "".join(f"{lane:>18}" for lane in shown)]
    for loop, found in figures.items():
        base = [figure for figure in found[UNTRACED] if figure is not None]
        if not base:
            continue
        line = f"{loop:30}{statistics.median(base) * scale:>20,.0f}"
        for lane in shown:
            if values := ratios(found, lane):
                low, high = values[len(values) // 4], values[-1 - len(values) // 4]
                line += f"{statistics.median(values):>6.2f} {f'({low:.2f}-{high:.2f})':>11}"
            else:
                line += f"{'fails':>18}"
        lines.append(line)
    return "\n".join(lines)


def rates(turns: Turns) -> Figures:
    return {
        loop: {lane: [turn and turn.rate for turn in row] for lane, row in found.items()}
        for loop, found in turns.items()
    }


def processor_times(turns: Turns) -> Figures:
    return {
        loop: {lane: [turn and turn.processor_time for turn in row] for lane, row in found.items()}
        for loop, found in turns.items()
    }


def table_of_roles(turns: Turns, lanes: list[str]) -> str:
    """Microseconds a call more than untraced, by process: medians of the rounds."""
    shown = [lane for lane in lanes if lane != UNTRACED]
    lines = [f"{'':40}{UNTRACED:>10}" + "".join(f"{lane:>14}" for lane in shown)]
    for loop, found in turns.items():
        for role in ROLES:
            times = {lane: [turn and turn.by_role[role] * 1e6 for turn in row] for lane, row in found.items()}
            base = [time for time in times[UNTRACED] if time is not None]
            if not base:
                continue
            line = f"{loop + ', ' + role:40}{statistics.median(base):>10,.0f}"
            for lane in shown:
                pairs = zip(times[lane], times[UNTRACED], strict=True)
                more = [time - by for time, by in pairs if time is not None and by is not None]
                line += f"{statistics.median(more):>+14,.0f}" if more else f"{'fails':>14}"
            lines.append(line)
    return "\n".join(lines)


def print_tables(turns: Turns, lanes: list[str]) -> None:
    print("Calls a second, relative to untraced: more is better")
    print(table(rates(turns), lanes, "1/s", 1))
    print("Processor time a call, relative to untraced: less is better")
    print(table(processor_times(turns), lanes, "us", 1e6), flush=True)
    print("Processor time a call more than untraced, in microseconds, by process")
    print(table_of_roles(turns, lanes), flush=True)


def usable_lanes(names: list[str]) -> list[str]:
    found = []
    for name in dict.fromkeys([UNTRACED, *names]):
        if needed := missing(name):
            progress(f"The lane {name} is left out: pip install {needed}")
        else:
            found.append(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", default=",".join(CORE), help="comma list")
    parser.add_argument(
        "--lanes",
        default=",".join(LANES),
        help="comma list; default: all but those of options",
    )
    parser.add_argument("--options", action="store_true", help="the lanes of options, and those to compare them with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--json", help="write every figure to this file")
    chosen = parser.parse_args()
    lanes = usable_lanes(["again", "local", "unsampled", *OPTIONS] if chosen.options else chosen.lanes.split(","))
    loops = chosen.loops.split(",")
    turns: Turns = {}
    for number in range(chosen.sessions):
        progress(f"session {number + 1} of {chosen.sessions}")
        measure(lanes, loops, chosen.rounds, chosen.seconds, turns)
        print_tables(turns, lanes)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(turns))


if __name__ == "__main__":
    main()
