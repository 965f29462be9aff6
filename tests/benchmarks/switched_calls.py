"""What tracing costs a call, in one and the same cluster with and without.

    python tests/benchmarks/switched_calls.py [--loops NAME,...] [--sessions 3] [--turns 40] [--seconds 0.4]

Two clusters alike differ by as much as is to be measured. Here all processes have what tracing replaces in Ray put
back, and replaced again, by turns (``switched_hook``): a turn is one piece with tracing and two without. Printed are,
for each of four loops of ``calls``:

- the rate with tracing relative to those without of the same turn: the geometric mean over all turns, and that of each
  session. "untraced again" is the second piece without tracing relative to the first, and should be 1;
- the processor time a call, in microseconds more than without, by the processes that spend it, likewise.

Errors are standard errors over the turns, as if those of different sessions did not differ more than those of one.

The shipper works at a low priority, and delivers after a piece what it has not delivered in it. Its processor time has
that too, the rates have not: they are those of bursts. Each session has a new cluster, and counts its spans at the end:
one for each call with tracing, and none of the others.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import switching
from switching import AGAIN, PATIENCE, WITH, WITHOUT, Turn, connect, hand_over, in_turn

LOOPS = ("actor calls sync", "actor calls async", "n to n actor calls sync", "n to n actor calls async")
"""Loops whose calls all execute something named `small`, which is counted."""

EXECUTED = b'small ray.remote_worker"'
WARM_UP = 5
AFTER_SWITCH = 0.1
"""Seconds before a turn counts: Python makes code fast again that has been replaced."""


def session(name: str, turns: int, seconds: float) -> None:
    import loops
    import ray
    from family import ROLES
    from soak import shipper_of

    from ray_tracing_hooks._ship.flush import flush

    folder = Path(os.environ["RAY_TMPDIR"])
    switch = connect(2)

    def settle() -> None:
        for spool in (folder / "spool").iterdir():
            if not flush(str(spool), PATIENCE).done:
                sys.exit(f"not all spans were delivered within {PATIENCE:g} s")

    loop = loops.CORE[name]()
    for _ in range(WARM_UP):
        loop()
    settle()
    before = executed(folder)
    times = Times(processes())

    def piece() -> dict[str, float]:
        warm, _ = run(loop, AFTER_SWITCH)
        settle()
        at_first, begun = times.of_roles(), time.monotonic()
        calls, ended = run(loop, seconds)
        settle()
        at_last = times.of_roles()
        spent = {role: (at_last[role] - at_first[role]) / calls for role in ROLES}
        return {"calls": warm + calls, "rate": calls / (ended - begun), **spent}

    found = [in_turn(switch, number, piece) for number in range(turns)]
    calls = sum(turn[WITH]["calls"] for turn in found)
    spans = executed(folder) - before
    shipper = shipper_of(folder / "spool")
    ray.shutdown()
    psutil.wait_procs([shipper], timeout=PATIENCE)  # what it still writes would stay behind
    if spans != calls:
        sys.exit(f"{calls:.0f} calls were traced, and there are {spans} spans of them")
    hand_over(found)


def run(loop: Callable[[], int], seconds: float) -> tuple[int, float]:
    """How many calls there were, and when the last one was over."""
    calls, until = 0, time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        calls += loop()
    return calls, now


def executed(folder: Path) -> int:
    return sum(path.read_bytes().count(EXECUTED) for path in (folder / "spans").iterdir() if path.is_file())


def processes() -> dict[int, str]:
    """The roles of the cluster's processes, by their ids."""
    from family import DRIVER, role_of
    from soak import shipper_of

    found = {os.getpid(): DRIVER}
    of_cluster = psutil.Process().children(recursive=True)
    for process in [*of_cluster, shipper_of(Path(os.environ["RAY_TRACING_SPOOL_DIR"]))]:
        found[process.pid] = role_of(process.cmdline())
    return found


class Times:
    """The processor times of these processes."""

    def __init__(self, roles: dict[int, str]) -> None:
        self._roles = roles
        self._last: dict[int, int] = {}

    def of_roles(self) -> dict[str, float]:
        """In us. Of a process that has ended, what it had taken at the last look."""
        from family import ROLES, processor_time_of

        times = dict.fromkeys(ROLES, 0.0)
        for pid, role in self._roles.items():
            with suppress(OSError):
                self._last[pid] = processor_time_of(pid)
            times[role] += self._last.get(pid, 0) / 1e3
        return times


def report(name: str, sessions: list[list[Turn]]) -> None:
    turns = [turn for found in sessions for turn in found]
    rate = statistics.median(turn[kind]["rate"] for turn in turns for kind in (WITHOUT, AGAIN))
    print(f"{name}: {rate:,.0f}/s without tracing, {len(turns)} turns")
    for title, ratio in (("traced", traced), ("untraced again", untraced)):
        mean, error = mean_of([ratio(each) for each in turns])
        of_sessions = "  ".join(f"{math.exp(mean_of([ratio(each) for each in found])[0]):.3f}" for found in sessions)
        print(f"  {title:16}{math.exp(mean):.3f} ± {math.exp(mean) * error:.3f}   {of_sessions}")
    print(f"  {'processor time a call':24}{'without, us':>12}{'traced, more':>18}{'again, more':>18}")
    roles = turns[0][WITH].keys() - {"calls", "rate"}
    for part in [*sorted(roles), "all"]:
        of = [
            [sum(turn[kind][role] for role in (roles if part == "all" else [part])) for kind in (WITHOUT, WITH, AGAIN)]
            for turn in turns
        ]
        more = mean_of([line - (first + again) / 2 for first, line, again in of])
        check = mean_of([again - first for first, _, again in of])
        without = statistics.mean((first + again) / 2 for first, _, again in of)
        texts = [f"{mean:+.1f} ± {error:.1f}" for mean, error in (more, check)]
        print(f"  {part:24}{without:>12.1f}{texts[0]:>18}{texts[1]:>18}", flush=True)


def traced(turn: Turn) -> float:
    """The logarithm of the rate with tracing, relative to the geometric mean of both without."""
    return math.log(turn[WITH]["rate"]) - (math.log(turn[WITHOUT]["rate"]) + math.log(turn[AGAIN]["rate"])) / 2


def untraced(turn: Turn) -> float:
    """The same of the second one without tracing, relative to the first."""
    return math.log(turn[AGAIN]["rate"] / turn[WITHOUT]["rate"])


def mean_of(values: list[float]) -> tuple[float, float]:
    """With its standard error."""
    return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))


def main() -> None:
    parser = switching.parser(__doc__, turns=40)
    parser.add_argument("--loops", default=",".join(LOOPS))
    parser.add_argument("--seconds", type=float, default=0.4)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.turns, chosen.seconds)
        return
    if chosen.turns < 2:
        parser.error("two turns are needed for a standard error")
    for name in chosen.loops.split(","):
        report(name, switching.sessions(__file__, name, chosen, ["--seconds", str(chosen.seconds)]))


if __name__ == "__main__":
    main()
