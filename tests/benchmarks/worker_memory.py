"""What a hook adds to what a Ray worker holds: memory, threads and descriptors.

    python tests/benchmarks/worker_memory.py [--workers 50] [--lanes NAME,...]

Each contender has a cluster of its own with so many actors, each of which has answered a call. Memory is that of
``/proc/PID/smaps_rollup``: what a process has in memory (RSS), the same with its share of what others have there too
(PSS), and without that (USS). Figures are medians over the workers, and in brackets what they are more than without a
hook.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from typing import Any

from worker_lanes import HOOKS, RESULT, UNTRACED, cluster, collector, drive, progress

GROUP = 10
"""So many workers start at once."""

FIGURES = ("RSS MiB", "PSS MiB", "USS MiB", "threads", "descriptors")


class Worker:
    def pid(self) -> int:
        return os.getpid()


def run(lane: str, count: int) -> None:
    """Start workers in groups, and print the figures of each when all are up."""
    import ray

    worker = ray.remote(num_cpus=0)(Worker)
    actors: list[Any] = []
    pids: list[int] = []
    with cluster(HOOKS[lane]):
        while len(actors) < count:
            group = [worker.remote() for _ in range(min(GROUP, count - len(actors)))]
            pids += ray.get([actor.pid.remote() for actor in group])
            actors += group
        found = [figures(pid) for pid in pids]
    print(RESULT + json.dumps(found))


def figures(pid: int) -> list[float]:
    kib: dict[str, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if rest.endswith(" kB\n"):
                kib[name] = int(rest.split()[0])
    memory = [kib["Rss"], kib["Pss"], kib["Private_Clean"] + kib["Private_Dirty"]]
    return [*(size / 1024 for size in memory), len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=50, help="of each contender")
    parser.add_argument("--lanes", default=";".join(HOOKS), help=f"with semicolons between them, of {'; '.join(HOOKS)}")
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.drive:
        run(chosen.drive[0], int(chosen.drive[1]))
        return
    medians: dict[str, list[float]] = {}
    with collector() as address:
        for lane in chosen.lanes.split(";"):
            progress(lane)
            rows = drive(__file__, lane, address, chosen.workers)
            medians[lane] = [statistics.median(column) for column in zip(*rows, strict=True)]
    print(table(medians))


def table(medians: dict[str, list[float]]) -> str:
    """Each lane's figures, and what they are more than without a hook."""
    lines = [f"{'':16}" + "".join(f"{name:>22}" for name in FIGURES)]
    base = medians.get(UNTRACED)
    for lane, values in medians.items():
        cells = [f"{value:.1f}" for value in values]
        if base is not None and lane != UNTRACED:
            cells = [f"{cell} ({value - least:+.1f})" for cell, value, least in zip(cells, values, base, strict=True)]
        lines.append(f"{lane:16}" + "".join(f"{cell:>22}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
