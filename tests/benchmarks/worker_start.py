"""What a hook adds to the start of a Ray worker.

    python tests/benchmarks/worker_start.py [--workers 20] [--rounds 2] [--lanes NAME,...]

Each contender has a cluster of its own in each round, and they take turns, the order reversed each time, so that a
slow moment of the machine hits all of them alike. What is measured is the hook alone, inside real workers: from the
import of its module until it returns, by a hook around it. CPU time is that of its thread; the least is what the
machine can do when nothing else runs. The last columns are the CPU time that the whole process has used when its first
method runs.

Then come the modules of ours that take longest, by Python itself (``PYTHONPROFILEIMPORTTIME``), in other workers since
measuring takes time too. An installed package has its bytecode beside it; from a checkout, with
``PYTHONDONTWRITEBYTECODE``, every worker compiles all that it imports, which takes three times as long as the rest.
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

from timed_hook import HOOK
from worker_lanes import HOOKS, LOCAL, RESULT, UNTRACED, cluster, collector, drive, progress

GROUP = 5
"""So many workers start at once: few, since they share the processors."""

MOST_MODULES = 15


class Worker:
    def look(self) -> dict[str, Any]:
        process = time.process_time()
        # The module is there where it was the hook.
        of_hook = getattr(sys.modules.get("timed_hook"), "taken", {})
        return {"pid": os.getpid(), "process": process, **of_hook}


def run(lane: str, count: int) -> None:
    """Start workers in groups, and print what each of them says."""
    import ray

    worker = ray.remote(num_cpus=0)(Worker)
    found: list[dict[str, Any]] = []
    with cluster("timed_hook:setup" if HOOKS[lane] else ""):
        while len(found) < count:
            actors = [worker.remote() for _ in range(min(GROUP, count - len(found)))]
            found += ray.get([actor.look.remote() for actor in actors])
            for actor in actors:
                ray.kill(actor)
        logs = Path(ray._private.worker.global_worker.node.get_logs_dir_path())
        for row in found:
            (log,) = logs.glob(f"worker-*-{row['pid']}.err")
            row["imports"] = imports(log.read_text(encoding="utf-8", errors="replace"), row.get("modules", []))
    print(RESULT + json.dumps(found))


def imports(log: str, modules: list[str]) -> dict[str, int]:
    """The microseconds that each of ``modules`` took to import, without those that it imported in turn."""
    found = {}
    for line in log.splitlines():
        if line.startswith("import time:"):
            own, _, name = line.removeprefix("import time:").split("|")
            if name.strip() in modules:
                found[name.strip()] = int(own)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=20, help="of each contender in a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lanes", default=";".join(HOOKS), help=f"with semicolons between them, of {'; '.join(HOOKS)}")
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.drive:
        run(chosen.drive[0], int(chosen.drive[1]))
        return
    lanes = chosen.lanes.split(";")
    found: dict[str, list[dict[str, Any]]] = {lane: [] for lane in lanes}
    with collector() as address:
        for number in range(chosen.rounds):
            for lane in lanes if number % 2 == 0 else reversed(lanes):
                progress(f"round {number + 1} of {chosen.rounds}: {lane}")
                found[lane] += drive(__file__, lane, address, chosen.workers, **{HOOK: HOOKS[lane]})
        print(table(found))
        for lane in lanes:
            if lane == LOCAL:
                progress(f"imports: {lane}")
                variables = {HOOK: HOOKS[lane], "PYTHONPROFILEIMPORTTIME": "1"}
                print(slowest(drive(__file__, lane, address, chosen.workers, **variables)))


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    columns = ["hook, CPU: least", "median", "hook, wall: median", "modules", "process, CPU: least", "median"]
    lines = [f"{'milliseconds':16}" + "".join(f"{column:>{len(column) + 3}}" for column in columns)]
    for lane, rows in found.items():
        process = [row["process"] * 1e3 for row in rows]
        figures = ["", "", "", "", f"{min(process):.0f}", f"{statistics.median(process):.0f}"]
        if lane != UNTRACED:
            cpu, wall = [row["cpu"] * 1e3 for row in rows], [row["wall"] * 1e3 for row in rows]
            times = (min(cpu), statistics.median(cpu), statistics.median(wall))
            modules = statistics.median(len(row["modules"]) for row in rows)
            figures[:4] = [*(f"{milliseconds:.1f}" for milliseconds in times), f"{modules:.0f}"]
        cells = zip(figures, columns, strict=True)
        lines.append(f"{lane:16}" + "".join(f"{figure:>{len(column) + 3}}" for figure, column in cells))
    return "\n".join(lines)


def slowest(rows: list[dict[str, Any]]) -> str:
    least = {name: min(row["imports"].get(name, 0) for row in rows) / 1e3 for name in rows[0]["imports"]}
    ranked = sorted(least.items(), key=lambda item: -item[1])
    lines = [f"{milliseconds:8.2f} ms  {name}" for name, milliseconds in ranked[:MOST_MODULES]]
    return "\n".join([f"\nOf {len(ranked)} modules, {sum(least.values()):.1f} ms in all, the slowest:", *lines])


if __name__ == "__main__":
    main()
