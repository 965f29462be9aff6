"""What tracing costs a pipeline of Ray Data, in one and the same cluster with and without.

    python tests/benchmarks/data_cost.py [--pipelines tiny,realistic] [--sessions 3] [--turns 12]

Two clusters alike differ by as much as is to be measured. Here all processes have what tracing replaces in Ray put
back, and replaced again, by turns (``switched_hook``). A turn executes a pipeline three times: with tracing, without,
and once more without, in an order that changes.

- tiny: 200 blocks of 10 rows, with a function that does nothing, in tasks.
- realistic: four Parquet files of 50,000 rows are read in 16 blocks, a function computes for some 50 ms on each, an
  actor does the same, and the program iterates over the batches.

Printed are the rows per second relative to those without tracing: median over the turns of all sessions, with
quartiles, and the medians of each session; the same for the second execution without; and the processor time of the
driver for an execution. Each session has a new cluster, and counts its spans at the end: one for each execution with
tracing, and none for the others. Needs Ray Data, which ``pip install 'ray[data]'`` has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from serve_cost import RESULT, Switch
from switched_hook import FOLDER, OFF, ON

HERE = Path(__file__).parent

WITH, WITHOUT, AGAIN = "with", "without", "again"
WARM_UP = 2
"""Executions before the first turn."""

TINY_BLOCKS, TINY_ROWS = 200, 10
FILES, FILE_ROWS, BLOCKS = 4, 50_000, 16

Execution = tuple[float, float]
"""Rows per second, and milliseconds of the driver's processor time."""


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
        parquet.write_table(table, f"{folder}/{number}.parquet", row_group_size=FILE_ROWS // (BLOCKS // FILES))

    def run() -> int:
        computed = data.read_parquet(folder, override_num_blocks=BLOCKS).map_batches(_compute, batch_size=None)
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

    switch = Switch(Path(os.environ[FOLDER]))
    ray.init(
        "local",
        num_cpus=3,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=300_000_000,
        _tracing_startup_hook="switched_hook:setup",
    )
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
    print(RESULT + json.dumps(found), flush=True)


def execution(run: Callable[[], int]) -> Execution:
    began, spent = time.perf_counter(), time.process_time()
    rows = run()
    return rows / (time.perf_counter() - began), (time.process_time() - spent) * 1e3


def run_session(name: str, turns: int) -> list[dict[str, Execution]]:
    """A session in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="rth-", ignore_cleanup_errors=True) as folder:
        switches = Path(folder, "switches")
        switches.mkdir()
        paths = [str(HERE), os.path.join(sys.prefix, "data"), os.environ.get("PYTHONPATH")]
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": folder,
            "RAY_TRACING_LOCAL_DIR": f"{folder}/spans",
            "RAY_TRACING_SPOOL_DIR": f"{folder}/spool",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            FOLDER: str(switches),
        }
        command = [sys.executable, __file__, "--session", name, "--turns", str(turns)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not lines:
        sys.exit(f"a session has failed:\n{done.stderr[-2000:]}")
    return [dict(turn) for turn in json.loads(lines[0].removeprefix(RESULT))]


def report(name: str, sessions: list[list[dict[str, Execution]]]) -> None:
    turns = [turn for found in sessions for turn in found]
    without = statistics.median(turn[WITHOUT][0] for turn in turns)
    print(f"{name}: {without:,.0f} rows/s without tracing")
    for kind, title in ((WITH, "traced"), (AGAIN, "untraced again")):
        ratios = sorted(turn[kind][0] / turn[WITHOUT][0] for turn in turns)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        each = [statistics.median(turn[kind][0] / turn[WITHOUT][0] for turn in found) for found in sessions]
        by_session = "  ".join(f"{ratio:.3f}" for ratio in each)
        print(f"  {title:16}{statistics.median(ratios):.3f} ({low:.2f}-{high:.2f})   {by_session}")
    without, with_tracing = (statistics.median(turn[kind][1] for turn in turns) for kind in (WITHOUT, WITH))
    print(
        f"  driver          {without:,.0f} ms an execution, with tracing {with_tracing - without:+,.0f} ms", flush=True
    )


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
