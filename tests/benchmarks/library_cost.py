"""What tracing costs pipelines of Ray Data, loops of Ray Train and trials of Ray Tune, in one and the same cluster with
and without.

    python tests/benchmarks/library_cost.py [--parts tiny,realistic,reports,barriers,trials] [--sessions 3] [--turns 10]

Two clusters alike differ by as much as is to be measured. Here all processes have what tracing replaces in Ray put
back, and replaced again, by turns (``switched_hook``). A turn is three pieces of work: with tracing, without, and once
more without, in an order that changes.

- tiny: 200 blocks of 10 rows, with a function that does nothing, in tasks of Ray Data.
- realistic: 32 Parquet files of 12,500 rows are read and put into 32 blocks, a function computes for some 50 ms on each
  in a task, an actor does the same, and the program iterates over the batches. The actor is started in each execution.
- reports: two ranks of Ray Train take 50 steps of 10 ms, and report at each fifth.
- barriers: the same, and they meet at a barrier in each step.
- trials: an experiment of Ray Tune with 8 trials that report once and end, two at a time; a fifth of the turns.

The rate is that of rows, of the steps of rank 0, or of trials. Of Ray Data, the processor time of the driver and of all
processes of the cluster is told too, which varies less; of Ray Tune the time from the start of the experiment until a
trial runs, which most of the time is that of its worker. :func:`switching.table` says what the columns are. Each
session has a new cluster, and counts its spans at the end. ``pip install 'ray[data,train]'`` has what this needs.
"""

from __future__ import annotations

import json
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
from switched_hook import ON
from switched_hook import _current as current
from switching import Switch, Turn, connect, hand_over, in_turn

from ray_tracing_hooks import _startup
from ray_tracing_hooks._safety.patching import ABSENT

WARM_UP = 2
"""Pieces before the first turn."""

SETTLING = 1.0
"""Seconds after an execution, whose processor time counts as its own."""

TINY_BLOCKS, TINY_ROWS = 200, 10
FILES, FILE_ROWS = 32, 12_500
STEP, STEPS, REPORT_EACH = 0.010, 50, 5
"""Seconds; steps of a piece."""

TRIALS, AT_ONCE = 8, 2
UNITS = {"rate": "1/s", "driver": "ms", "cluster": "ms", "until a trial runs": "ms"}
MARKS = {
    "data": (b'"dataset ray.data"',),
    "train": (b'"name":"ray.train.report"', b'"name":"ray.train.collective.barrier"'),
    "trials": (b' ray.tune.trial"',),
}
"""What the spans have in them that are counted."""


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


def execute(name: str, turns: int, switch: Switch) -> tuple[list[Turn], int]:
    """The turns, and the spans that there have to be."""
    from ray import data

    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    run = PIPELINES[name]()

    def piece() -> dict[str, float]:
        of_all = processor_time_of_cluster()
        began, spent = time.perf_counter(), time.process_time()
        rows = run()
        rate, of_driver = rows / (time.perf_counter() - began), time.process_time() - spent
        # Ray's and our processes have a little to do after the execution, with tracing and without.
        time.sleep(SETTLING)
        return {"rate": rate, "driver": of_driver * 1e3, "cluster": (processor_time_of_cluster() - of_all) * 1e3}

    for _ in range(WARM_UP):
        run()
    return [in_turn(switch, number, piece) for number in range(turns)], WARM_UP + turns


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


def train(turns: int, *, meets: bool) -> tuple[list[Turn], int]:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    result = Path(os.environ["RAY_TMPDIR"], "turns.json")
    config = {"turns": turns, "meets": meets, "result": str(result), "path": list(sys.path)}
    DataParallelTrainer(
        loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(storage_path=os.environ["RAY_TMPDIR"]),
    ).fit()
    return json.loads(result.read_text()), 2 * (WARM_UP + turns) * (STEPS // REPORT_EACH + (STEPS if meets else 0))


def loop(config: dict[str, Any]) -> None:
    sys.path[:] = config["path"]
    import ray.train
    from ray.train import collective

    def piece() -> dict[str, float]:
        begun = time.perf_counter()
        for step in range(STEPS):
            time.sleep(STEP)
            if config["meets"]:
                collective.barrier()
            if step % REPORT_EACH == REPORT_EACH - 1:
                ray.train.report({"step": step})
        return {"rate": STEPS / (time.perf_counter() - begun)}

    switch = RankSwitch()
    for _ in range(WARM_UP):
        piece()
    found = [in_turn(switch, number, piece) for number in range(config["turns"])]
    switch.turn(ON)
    if ray.train.get_context().get_world_rank() == 0:
        Path(config["result"]).write_text(json.dumps(found))


class RankSwitch:
    """What has been replaced in this process, but for the execution of calls, which come with contexts."""

    def __init__(self) -> None:
        from ray._private.function_manager import FunctionActorManager

        self._places = [
            (owner, name, current(owner, name), original)
            for owner, name, original in _startup._here._connection_patches._applied
            if name and owner is not FunctionActorManager
        ]

    def turn(self, command: bytes) -> None:
        if command == ON:
            for owner, name, replacement, _ in self._places:
                setattr(owner, name, replacement)
        else:
            for owner, name, _, original in reversed(self._places):
                delattr(owner, name) if original is ABSENT else setattr(owner, name, original)


def tune(turns: int, switch: Switch) -> tuple[list[Turn], int]:
    experiment()
    return [in_turn(switch, number, experiment) for number in range(turns)], TRIALS * (1 + turns)


def experiment() -> dict[str, float]:
    from ray import tune

    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    begun = time.time()
    results = tune.Tuner(
        tune.with_resources(trial, {"cpu": 0.5}),
        tune_config=tune.TuneConfig(num_samples=TRIALS, max_concurrent_trials=AT_ONCE),
        run_config=tune.RunConfig(storage_path=os.environ["RAY_TMPDIR"], verbose=0),
    ).fit()
    took = time.time() - begun
    first = sorted(result.metrics["began"] for result in results)[:AT_ONCE]
    return {"rate": TRIALS / took, "until a trial runs": 1e3 * (statistics.mean(first) - begun)}


def trial(_config: dict[str, Any]) -> None:
    from ray import tune

    tune.report({"began": time.time()})


def session(part: str, turns: int) -> None:
    import ray

    switch = connect(3 if part in PIPELINES else 2)
    if part in PIPELINES:
        found, wanted = execute(part, turns, switch)
    elif part == "trials":
        found, wanted = tune(max(1, turns // 5), switch)
    else:
        found, wanted = train(turns, meets=part == "barriers")
    switch.turn(ON)
    ray.shutdown()
    marks = MARKS["data" if part in PIPELINES else "trials" if part == "trials" else "train"]
    texts = [path.read_bytes() for path in Path(os.environ["RAY_TRACING_LOCAL_DIR"]).glob("*.jsonl")]
    spans = sum(text.count(mark) for text in texts for mark in marks)
    if spans != wanted:
        sys.exit(f"there should be {wanted} spans of what was traced, and there are {spans}")
    hand_over(found)


def main() -> None:
    parser = switching.parser(__doc__, turns=10)
    parser.add_argument("--parts", default="tiny,realistic,reports,barriers,trials")
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.turns)
        return
    for part in chosen.parts.split(","):
        library = os.path.join(sys.prefix, "data" if part in PIPELINES else "train")
        patience = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.05"}
        sessions = switching.sessions(__file__, part, chosen, [], library, **patience)
        print("\n".join(switching.table(part, sessions, UNITS)), flush=True)


if __name__ == "__main__":
    main()
