"""Runs one program on a cluster of its own: ``python -m corpus.programs.core NAME [--mended]``."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from corpus import PROGRAMS, Program, Run
from ray_tracing_hooks._ray.states import StatesAnswer, ask, keep

HOOK = "corpus.hook:setup"
_PATIENCE = 120.0
_REPORTS = 1.0
"""Seconds in which each of Ray's processes reports the states of its tasks."""
_ENDS = frozenset({"FINISHED", "FAILED"})


def main() -> None:
    """Run the program that the arguments name, and write what it measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--mended", action="store_true", help="without the cause")
    parser.add_argument("--to", type=Path, help="a file for what was measured, besides the standard output")
    asked = parser.parse_args()
    for folder in ("CORPUS_FOLDER", "CORPUS_READY"):
        if folder not in os.environ:
            os.environ[folder] = tempfile.mkdtemp(prefix="corpus-")
    program = PROGRAMS[asked.name]
    run = Run(asked.mended)
    cluster = start(program)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="WARNING")
        begun = time.perf_counter()
        program.function(run)
        wall = time.perf_counter() - begun - run.start
        measured = {"wall": wall, "costs": [run.costs[cause] for cause in sorted(run.costs)]}
        ray.shutdown()
        if program.states:
            keep(os.environ["RAY_TRACING_LOCAL_DIR"], states(cluster.address))
    finally:
        cluster.shutdown()
    print(asked.name, json.dumps(measured))
    if asked.to:
        asked.to.write_text(json.dumps(measured))


def states(address: str) -> StatesAnswer:
    """The states of all tasks, once the owner of each has reported its end and its worker has reported that it ran.

    Ray's processes report once a second. A worker that ended before its report never does, so that wait is limited.
    """
    deadline = time.monotonic() + _PATIENCE
    last = None
    while True:
        answer = ask(address, _PATIENCE)
        attempts = list(answer.attempts)
        if all(not each.states.keys().isdisjoint(_ENDS) for each in attempts):
            last = last or time.monotonic() + 2 * _REPORTS
            if time.monotonic() > last or all("RUNNING" in each.states for each in attempts):
                return answer._replace(attempts=iter(attempts))
        elif time.monotonic() > deadline:
            message = "Ray does not report the ends of all tasks"
            raise TimeoutError(message)
        time.sleep(0.05)


def start(program: Program) -> Cluster:
    """A cluster whose workers have started before the program does, as many on the head as it has processors.

    Workers that no job has used yet are of any. Those of the first job are started when it connects, so another one
    connects before, and makes no spans. Other nodes start workers only for calls.
    """
    ready = os.environ["CORPUS_READY"]
    head: dict[str, Any] = {"num_cpus": 4, **program.cluster}
    others: list[dict[str, Any]] = head.pop("nodes", [])
    head = {"include_dashboard": False, "tracing_startup_hook": HOOK, **head}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for each in others:
        cluster.add_node(**each)
    os.environ["RAY_TRACING_ROOT_SPAN"] = "0"
    ray.init(address=cluster.address, log_to_driver=False, logging_level="WARNING")
    deadline = time.monotonic() + _PATIENCE
    while len(set(os.listdir(ready)) - {str(os.getpid())}) < head["num_cpus"] and time.monotonic() < deadline:
        time.sleep(0.05)
    ray.shutdown()
    os.environ["RAY_TRACING_ROOT_SPAN"] = "1"
    return cluster
