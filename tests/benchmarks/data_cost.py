"""What tracing costs a pipeline of Ray Data, in one and the same cluster with and without.

    python tests/benchmarks/data_cost.py [--pipelines tiny,realistic] [--sessions 3] [--turns 12]

Two clusters alike differ by as much as is to be measured. Here all processes have what tracing replaces in Ray put
back, and replaced again, by turns (``switched_hook``). A turn executes a pipeline three times: with tracing, without,
and once more without, in an order that changes.

- tiny: 200 blocks of 10 rows, with a function that does nothing, in tasks.
- realistic: 32 Parquet files of 12,500 rows are read and put into 32 blocks, a function computes for some 50 ms on each
  in a task, an actor does the same, and the program iterates over the batches. The actor is started in each execution.

Printed are the rows per second relative to those without tracing: median over the turns of all sessions, with
quartiles, and the medians of each session; the same for the second execution without; the same for the processor time
of all processes of the cluster, which varies less; and that of the driver in milliseconds. Each session has a new
cluster, and counts its spans at the end: one for each execution with tracing, and none for the others. Needs Ray Data,
which ``pip install 'ray[data]'`` has.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import switching
from switched_hook import OFF, ON
from switching import connect, hand_over

WITH, WITHOUT, AGAIN = "with", "without", "again"
WARM_UP = 2
"""Executions before the first turn."""

SETTLING = 1.0
"""Seconds after an execution, whose processor time counts as its own."""

TINY_BLOCKS, TINY_ROWS = 200, 10
FILES, FILE_ROWS = 32, 12_500

Execution = tuple[float, float, float]
"""Rows per second, and milliseconds of processor time: of the driver, and of all processes of the cluster."""


def tiny() -> Callable[[], int]:
    from ray import data

    def run() -> int:
        blocks = data.range(TINY_BLOCKS * TINY_ROWS, override_num_blocks=TINY_BLOCKS).map_batches(_same)
        return int(blocks.materialize().count())

    return run


def realistic() -> Callable[[], int]:
    from ray import data

    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    folder = tempfile.mkdtemp(dir=os.environ["RAY_TMPDIR"])
    for number in range(FILES):
        first = number * FILE_ROWS
        table = arrow.table({"id": range(first, first + FILE_ROWS), "x": [float(each) for each in range(FILE_ROWS)]})
        parquet.write_table(table, f"{folder}/{number}.parquet")

    def run() -> int:
        # Ray Data reads small files together, whatever number of blocks it is asked for.
        blocks = data.read_parquet(folder).repartition(FILES)
        computed = blocks.map_batches(_compute, batch_size=None)
        inferred = computed.map_batches(Model, compute=data.ActorPoolStrategy(size=1), num_cpus=0.5, batch_size=None)
        return sum(len(batch["id"]) for batch in inferred.iter_batches(batch_size=10_000))

    return run


def _same(batch: Any) -> Any:
    return batch


def _compute(batch: Any) -> Any:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        batch["y"] = batch["x"] * 2.0 + 1.0
    return batch


class Model:
    """A function that has to be set up."""

    def __call__(self, batch: Any) -> Any:
        return _compute(batch)


PIPELINES = {"tiny": tiny, "realistic": realistic}


def session(name: str, turns: int) -> None:
    import ray

    switch = connect(3)
    from ray import data

    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    run = PIPELINES[name]()
    for _ in range(WARM_UP):
        run()
    found: list[dict[str, Execution]] = []
    for number in range(turns):
        order = [(ON, WITH), (OFF, WITHOUT), (OFF, AGAIN)]
        turn: dict[str, Execution] = {}
        for command, kind in order[number % 3 :] + order[: number % 3]:
            switch.turn(command)
            turn[kind] = execution(run)
        found.append(turn)
    switch.turn(ON)
    ray.shutdown()
    files = Path(os.environ["RAY_TRACING_LOCAL_DIR"]).iterdir()
    spans = sum(path.read_bytes().count(b'"dataset ray.data"') for path in files)
    if spans != WARM_UP + turns:
        sys.exit(f"{WARM_UP + turns} executions were traced, and there are {spans} spans of executions")
    hand_over(found)


def execution(run: Callable[[], int]) -> Execution:
    of_all = processor_time_of_cluster()
    began, spent = time.perf_counter(), time.process_time()
    rows = run()
    rate, of_driver = rows / (time.perf_counter() - began), time.process_time() - spent
    # Ray's and our processes have a little to do after the execution, with tracing and without.
    time.sleep(SETTLING)
    return rate, of_driver * 1e3, (processor_time_of_cluster() - of_all) * 1e3


def processor_time_of_cluster() -> float:
    """Seconds of all processes with this one's folder for Ray, and of those of their children that have ended."""
    from family import processor_time_of

    tick, found = os.sysconf("SC_CLK_TCK"), 0.0
    folder = f"RAY_TMPDIR={os.environ['RAY_TMPDIR']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if folder not in (process / "environ").read_bytes().split(b"\0"):
                continue
            ended = (process / "stat").read_text().rpartition(")")[2].split()[13:15]
            found += processor_time_of(int(process.name)) / 1e9 + sum(map(int, ended)) / tick
        except OSError:  # it has just ended
            continue
    return found


def run_session(name: str, turns: int) -> list[dict[str, Execution]]:
    """A session in a process of its own."""
    arguments = ["--session", name, "--turns", str(turns)]
    found = switching.session(__file__, arguments, os.path.join(sys.prefix, "data"))
    return [dict(turn) for turn in found]


def report(name: str, sessions: list[list[dict[str, Execution]]]) -> None:
    turns = [turn for found in sessions for turn in found]
    without = statistics.median(turn[WITHOUT][0] for turn in turns)
    print(f"{name}: {without:,.0f} rows/s without tracing")
    for kind, title in ((WITH, "traced"), (AGAIN, "untraced again")):
        each = [statistics.median(turn[kind][0] / turn[WITHOUT][0] for turn in found) for found in sessions]
        by_session = "  ".join(f"{ratio:.3f}" for ratio in each)
        print(f"  {title:16}{spread([turn[kind][0] / turn[WITHOUT][0] for turn in turns])}   {by_session}")
    print("  processor time of the cluster, relative to that without tracing: less is better")
    for kind, title in ((WITH, "traced"), (AGAIN, "untraced again")):
        print(f"  {title:16}{spread([turn[kind][2] / turn[WITHOUT][2] for turn in turns])}")
    without, with_tracing = (statistics.median(turn[kind][1] for turn in turns) for kind in (WITHOUT, WITH))
    print(
        f"  driver          {without:,.0f} ms an execution, with tracing {with_tracing - without:+,.0f} ms", flush=True
    )


def spread(ratios: list[float]) -> str:
    ratios = sorted(ratios)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return f"{statistics.median(ratios):.3f} ({low:.3f}-{high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", default=",".join(PIPELINES))
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--turns", type=int, default=12, help="turns of three executions in each session")
    parser.add_argument("--session", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.turns)
        return
    for name in chosen.pipelines.split(","):
        sessions = []
        for number in range(chosen.sessions):
            print(f"{name}, session {number + 1} of {chosen.sessions}", file=sys.stderr, flush=True)
            sessions.append(run_session(name, chosen.turns))
        report(name, sessions)


if __name__ == "__main__":
    main()
