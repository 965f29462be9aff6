"""What tracing costs training loops of Ray Train and trials of Ray Tune, in one and the same cluster with and without.

    python tests/benchmarks/train_cost.py [--parts reports,barriers,trials] [--sessions 3] [--turns 20]

Two runs alike differ by more than is to be measured. Here what tracing replaces in Ray is put back, and replaced again,
by turns (``switched_hook``). A turn is three pieces of work: with tracing, without, and once more without, in an order
that changes.

- reports: two ranks take steps of 10 ms, and report at each fifth. A piece is 50 steps.
- barriers: the same, and they meet at a barrier in each step.
- trials: an experiment of 8 trials that report once and end, two at a time. A piece is one experiment.

Printed are the steps per second of rank 0, or trials per second, relative to those without tracing: median over the
turns of all sessions, with quartiles, and the medians of each session; the same for the second piece without. For
trials also the time from the start of the experiment until a trial runs, which most of the time is that of its worker.
Each session has a new cluster, and counts its spans at the end. Needs Ray Train and Tune, which ``pip install
'ray[train]'`` has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import switching
from switched_hook import OFF, ON
from switched_hook import _current as current
from switching import Switch, connect, hand_over

from ray_tracing_hooks import _startup
from ray_tracing_hooks._safety.patching import ABSENT

WITH, WITHOUT, AGAIN = "with", "without", "again"
ORDER = [(ON, WITH), (OFF, WITHOUT), (OFF, AGAIN)]

STEP, STEPS, REPORT_EACH, WARM_UP = 0.010, 50, 5, 2
"""Seconds; steps of a piece; pieces before the first turn."""

TRIALS, AT_ONCE = 8, 2

Turn = dict[str, list[float]]
"""For each kind of piece the rate, and for trials the milliseconds until one runs."""


def order(number: int) -> list[tuple[bytes, str]]:
    return ORDER[number % 3 :] + ORDER[: number % 3]


def train(turns: int, *, meets: bool) -> tuple[list[Turn], int]:
    """The turns, and the spans that there have to be: of steps, reports and barriers."""
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
    pieces = WARM_UP + turns
    return json.loads(result.read_text()), 2 * pieces * (STEPS // REPORT_EACH + (STEPS if meets else 0))


def loop(config: dict[str, Any]) -> None:
    sys.path[:] = config["path"]
    import ray.train
    from ray.train import collective

    switch, rank = RankSwitch(), ray.train.get_context().get_world_rank()

    def piece() -> float:
        begun = time.perf_counter()
        for step in range(STEPS):
            time.sleep(STEP)
            if config["meets"]:
                collective.barrier()
            if step % REPORT_EACH == REPORT_EACH - 1:
                ray.train.report({"step": step})
        return STEPS / (time.perf_counter() - begun)

    found = []
    for _ in range(WARM_UP):
        piece()
    for number in range(config["turns"]):
        turn = {}
        for command, kind in order(number):
            switch.turn(command)
            turn[kind] = [piece()]
        found.append(turn)
    switch.turn(ON)
    if rank == 0:
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
    found = []
    experiment()
    for number in range(turns):
        turn = {}
        for command, kind in order(number):
            switch.turn(command)
            turn[kind] = experiment()
        found.append(turn)
    switch.turn(ON)
    return found, TRIALS * (1 + turns)


def experiment() -> list[float]:
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
    return [TRIALS / took, 1e3 * (statistics.mean(first) - begun)]


def trial(_config: dict[str, Any]) -> None:
    from ray import tune

    tune.report({"began": time.time()})


def session(part: str, turns: int) -> None:
    import ray

    switch = connect(2)
    found, wanted = tune(turns, switch) if part == "trials" else train(turns, meets=part == "barriers")
    ray.shutdown()
    marks = (b' ray.tune.trial"',) if part == "trials" else (b'"ray.train.report"', b'"ray.train.collective.barrier"')
    texts = [path.read_bytes() for path in Path(os.environ["RAY_TRACING_LOCAL_DIR"]).glob("*.jsonl")]
    spans = sum(text.count(b'"name":' + mark if mark[:1] == b'"' else mark) for text in texts for mark in marks)
    if spans != wanted:
        sys.exit(f"there should be {wanted} spans of what was traced, and there are {spans}")
    hand_over(found)


def run_session(part: str, turns: int) -> list[Turn]:
    """A session in a process of its own."""
    arguments = ["--session", part, "--turns", str(turns)]
    found = switching.session(
        __file__, arguments, os.path.join(sys.prefix, "train"), RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.05"
    )
    return [dict(turn) for turn in found]


def report(part: str, sessions: list[list[Turn]]) -> None:
    turns = [turn for found in sessions for turn in found]
    what = "trials/s" if part == "trials" else "steps/s"
    without = statistics.median(turn[WITHOUT][0] for turn in turns)
    print(f"{part}: {without:,.1f} {what} without tracing")
    for kind, title in ((WITH, "traced"), (AGAIN, "untraced again")):
        ratios = sorted(turn[kind][0] / turn[WITHOUT][0] for turn in turns)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        each = [statistics.median(turn[kind][0] / turn[WITHOUT][0] for turn in found) for found in sessions]
        by_session = "  ".join(f"{ratio:.3f}" for ratio in each)
        print(f"  {title:16}{statistics.median(ratios):.3f} ({low:.2f}-{high:.2f})   {by_session}", flush=True)
    if part == "trials":
        times = {kind: statistics.median(turn[kind][1] for turn in turns) for kind in (WITHOUT, WITH, AGAIN)}
        print(
            f"  until a trial runs: {times[WITHOUT]:,.0f} ms, with tracing {times[WITH] - times[WITHOUT]:+,.0f} ms, "
            f"untraced again {times[AGAIN] - times[WITHOUT]:+,.0f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="reports,barriers,trials")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--turns", type=int, default=20, help="turns of each session; a fifth of them for trials")
    parser.add_argument("--session", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.session:
        session(chosen.session, chosen.turns)
        return
    for part in chosen.parts.split(","):
        sessions = []
        for number in range(chosen.sessions):
            print(f"{part}, session {number + 1} of {chosen.sessions}", file=sys.stderr, flush=True)
            sessions.append(run_session(part, max(1, chosen.turns // 5) if part == "trials" else chosen.turns))
        report(part, sessions)


if __name__ == "__main__":
    main()
