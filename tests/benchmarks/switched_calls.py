"""What tracing costs a call, in one and the same cluster with and without.

    python tests/benchmarks/switched_calls.py [--loops NAME,...] [--sessions 2] [--rounds 40] [--seconds 0.4] [--code]

Two clusters alike differ by as much as is to be measured. Here all processes have what tracing replaces in Ray put
back, and replaced again, by turns (``switched_hook``): a round has one turn with tracing and two without, in an order
drawn by lot. Printed are, for each of four loops of ``calls``:

- the rate of the turn with tracing relative to those without of the same round: the geometric mean over all rounds, and
  that of each session. "untraced again" is the second turn without tracing relative to the first, and should be 1;
- the processor time a call, in microseconds more than in the turns without, by the processes that spend it, likewise;
- with ``--code``, the same by the code that runs: ``perf record`` samples each processor a thousand times a second.
  That costs a little itself, and needs the program ``perf``.

Errors are standard errors over the rounds, as if those of different sessions did not differ more than those of one.

The shipper works at a low priority, and delivers after a turn what it has not delivered in it. Its processor time has
that too, the rates have not: they are those of bursts. Each session has a new cluster, and counts its spans at the end:
one for each call of the turns with tracing, and none of the others.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import switching
from switched_hook import OFF, ON
from switching import PATIENCE, connect, hand_over

LOOPS = ("actor calls sync", "actor calls async", "n to n actor calls sync", "n to n actor calls async")
"""Loops whose calls all execute something named `small`, which is counted."""

EXECUTED = b'small ray.remote_worker"'
KINDS = WITHOUT, WITH, AGAIN = "without", "with", "again"
WARM_UP = 5
AFTER_SWITCH = 0.1
"""Seconds before a turn counts: Python makes code fast again that has been replaced."""

FREQUENCY = 997
"""Samples a second, not in step with anything."""

CODE = {
    "kernel": re.compile(r"^\[(?!vdso|unknown)"),
    "Python": re.compile(r"^(lib)?python3|\.cpython-"),
    "Ray": re.compile(r"^(_raylet|gcs_server|raylet)"),
    "the compiled part": re.compile(r"^_hotpath"),
}
"""Patterns for the names of libraries; the first that is found counts."""

OTHER = "other libraries"
_SAMPLE = re.compile(r"\s*(\d+)\s+([\d.]+):\s+\S+\s+\((.*)\)$")


class Turn(NamedTuple):
    kind: str
    round: int
    begun: float
    ended: float
    delivered: float
    """When everything was delivered; all three by CLOCK_MONOTONIC."""
    calls: int
    spent: dict[str, float]
    """Processor time a call by role, in us."""
    code: dict[str, float]
    """The same by code; empty without ``--code``."""


def session(name: str, rounds: int, seconds: float, *, samples: bool) -> None:
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

    loop = loops.LOOPS[name]()
    for _ in range(WARM_UP):
        loop()
    settle()
    before, traced = executed(folder), 0
    times = Times(processes())
    found: list[Turn] = []
    with sampling(folder, wanted=samples):
        for number in range(rounds):
            order = [ON, OFF, OFF]
            random.shuffle(order)
            kinds = iter((WITHOUT, AGAIN))
            for command in order:
                kind = WITH if command == ON else next(kinds)
                switch.turn(command)
                warm, _ = run(loop, AFTER_SWITCH)
                settle()
                at_first, begun = times.of_roles(), time.monotonic()
                calls, ended = run(loop, seconds)
                settle()
                at_last, delivered = times.of_roles(), time.monotonic()
                spent = {role: (at_last[role] - at_first[role]) / calls for role in ROLES}
                found.append(Turn(kind, number, begun, ended, delivered, calls, spent, {}))
                traced += warm + calls if command == ON else 0
    settle()
    spans = executed(folder) - before
    shipper = shipper_of(folder / "spool")
    ray.shutdown()
    psutil.wait_procs([shipper], timeout=PATIENCE)  # what it still writes would stay behind
    if spans != traced:
        sys.exit(f"{traced} calls were traced, and there are {spans} spans of them")
    if samples:
        found = [turn._replace(code=code) for turn, code in zip(found, by_code(folder, found), strict=True)]
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


@contextmanager
def sampling(folder: Path, *, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    command = ["perf", "record", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(FREQUENCY), "-a"]
    # It ends with its own program, which ends when this process does or closes the pipe.
    command += ["-o", str(folder / "samples"), "--", "sh", "-c", "echo; cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as perf:
        assert perf.stdout is not None
        if not perf.stdout.readline():  # it is sampling once its program has begun
            sys.exit(f"perf could not sample:\n{perf.communicate()[1].decode()}")
        yield
        problem = perf.communicate()[1].decode()
    if perf.returncode:
        sys.exit(f"perf has failed:\n{problem}")


def by_code(folder: Path, turns: list[Turn]) -> list[dict[str, float]]:
    """The time of all processors in each turn, by the code that ran, in us a call."""
    command = ["perf", "script", "-i", str(folder / "samples"), "-F", "pid,time,ip,dso"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    begun, counts = [turn.begun for turn in turns], [Counter[str]() for _ in turns]
    for line in done.stdout.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or sample[1] == "0":  # idle
            continue
        index = bisect_right(begun, float(sample[2])) - 1
        if index >= 0 and float(sample[2]) <= turns[index].delivered:
            counts[index][code_of(sample[3])] += 1
    return [
        {name: count[name] / FREQUENCY * 1e6 / turn.calls for name in [*CODE, OTHER]}
        for turn, count in zip(turns, counts, strict=True)
    ]


def code_of(library: str) -> str:
    name = library.rpartition("/")[2]
    return next((code for code, pattern in CODE.items() if pattern.search(name)), OTHER)


def run_session(name: str, chosen: argparse.Namespace) -> list[Turn]:
    """A session in a process of its own."""
    arguments = ["--session", name, *(["--code"] if chosen.code else [])]
    arguments += ["--rounds", str(chosen.rounds), "--seconds", str(chosen.seconds)]
    return [Turn(*turn) for turn in switching.session(__file__, arguments)]


def report(name: str, sessions: list[list[Turn]]) -> None:
    by_session = [rounds_of(turns) for turns in sessions]
    rounds = [each for found in by_session for each in found]
    rate = statistics.median(rate_of(turn) for each in rounds for turn in (each[WITHOUT], each[AGAIN]))
    print(f"{name}: {rate:,.0f}/s without tracing, {len(rounds)} rounds")
    for title, ratio in (("traced", traced), ("untraced again", untraced)):
        mean, error = mean_of([ratio(each) for each in rounds])
        of_sessions = "  ".join(f"{math.exp(mean_of([ratio(each) for each in found])[0]):.3f}" for found in by_session)
        print(f"  {title:16}{math.exp(mean):.3f} ± {math.exp(mean) * error:.3f}   {of_sessions}")
    show("processor time a call", [[each[kind].spent for kind in KINDS] for each in rounds])
    if rounds[0][WITH].code:
        show("the same by code", [[each[kind].code for kind in KINDS] for each in rounds])


def traced(turns: dict[str, Turn]) -> float:
    """The logarithm of the rate with tracing, relative to the geometric mean of both without."""
    return math.log(rate_of(turns[WITH])) - (math.log(rate_of(turns[WITHOUT])) + math.log(rate_of(turns[AGAIN]))) / 2


def untraced(turns: dict[str, Turn]) -> float:
    """The same of the second one without tracing, relative to the first."""
    return math.log(rate_of(turns[AGAIN]) / rate_of(turns[WITHOUT]))


def show(title: str, rounds: list[list[dict[str, float]]]) -> None:
    """Each round has the parts of the turns in :data:`KINDS`."""
    print(f"  {title:24}{'without, us':>12}{'traced, more':>18}{'again, more':>18}")
    for part in [*rounds[0][0], "all"]:
        lines = [[sum(turn.values()) if part == "all" else turn[part] for turn in turns] for turns in rounds]
        more = mean_of([line - (first + again) / 2 for first, line, again in lines])
        check = mean_of([again - first for first, _, again in lines])
        without = statistics.mean((first + again) / 2 for first, _, again in lines)
        texts = [f"{mean:+.1f} ± {error:.1f}" for mean, error in (more, check)]
        print(f"  {part:24}{without:>12.1f}{texts[0]:>18}{texts[1]:>18}", flush=True)


def rounds_of(turns: list[Turn]) -> list[dict[str, Turn]]:
    rounds: dict[int, dict[str, Turn]] = {}
    for turn in turns:
        rounds.setdefault(turn.round, {})[turn.kind] = turn
    return list(rounds.values())


def rate_of(turn: Turn) -> float:
    return turn.calls / (turn.ended - turn.begun)


def mean_of(values: list[float]) -> tuple[float, float]:
    """With its standard error."""
    return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", default=",".join(LOOPS), help=f"of these: {', '.join(LOOPS)}")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of three turns in each session, at least two")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--code", action="store_true", help="sample which code runs, with perf")
    parser.add_argument("--session", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.rounds, chosen.seconds, samples=chosen.code)
        return
    names = chosen.loops.split(",")
    if unknown := set(names) - set(LOOPS):
        parser.error(f"no such loop: {', '.join(sorted(unknown))}; there are {', '.join(LOOPS)}")
    if chosen.sessions < 1 or chosen.rounds < 2 or chosen.seconds <= 0:
        parser.error("a session, two rounds (for a standard error) and a time of more than 0 seconds are needed")
    if chosen.code and shutil.which("perf") is None:
        parser.error("--code needs the program perf")
    for name in names:
        sessions = []
        for number in range(chosen.sessions):
            print(f"{name}, session {number + 1} of {chosen.sessions}", file=sys.stderr, flush=True)
            sessions.append(run_session(name, chosen))
        report(name, sessions)


if __name__ == "__main__":
    main()
